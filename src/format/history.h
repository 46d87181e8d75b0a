/* SPDX-License-Identifier: Apache-2.0 */
/* A history entry: the whole decided state of a run. doc/format/history.md. What may follow what is decided in
 * checkpoint/policy_history.c; here are only bytes and structs. */
#ifndef BWI_FORMAT_HISTORY_H
#define BWI_FORMAT_HISTORY_H

#include "format/id.h"
#include "format/limits.h"
#include <breakwater/error.h>

enum bwi_event {
    BWI_EVENT_REGISTER = 1,
    BWI_EVENT_COMMIT,
    BWI_EVENT_ABORT,
    BWI_EVENT_RETIRE,
    BWI_EVENT_PIN,
    BWI_EVENT_UNPIN,
    BWI_EVENT_REPAIR,
    BWI_EVENT_PROMOTE,
};
const char *bwi_event_name(enum bwi_event e); /* "register", ... */

struct bwi_lineage {
    uint32_t era;
    uint64_t n; /* of the first entry of this era */
    struct bwi_uuid uuid;
};

struct bwi_attempt {
    bool set; /* false: the run has none yet */
    uint32_t number, nonce;
    char job[BWI_NAME_BUF];    /* "" = of no job (repair, promote) */
    char launch[BWI_NAME_BUF]; /* "" = none */
    uint32_t world, groups;
    bool fan_out;
};

struct bwi_from {
    bool set; /* false: from nothing */
    struct bwi_id id;
    uint32_t world, groups;
    bool fan_out;
    uint32_t ref_count;
    struct bwi_id refs[BWI_REFS_MAX]; /* ascending, without doubles, itself not among them */
    bool open;                        /* not committed yet */
};

/* A live or shelved checkpoint. */
struct bwi_kept {
    struct bwi_id id;
    struct bwi_sha manifest;
    uint64_t bytes;
    int64_t time_ms; /* of its commit; for people and retention by age */
    bool pinned;
    uint32_t ref_count;
    struct bwi_id refs[BWI_REFS_MAX]; /* as in bwi_from */
};

struct bwi_try {
    uint64_t step;
    uint32_t tri;
};

/* What happened, for people and for the log: the subject of the event. */
struct bwi_event_info {
    enum bwi_event type;
    struct bwi_id *ids; /* commit, abort: one; retire, pin, unpin: all; register: from, if any; repair: the lost ones */
    size_t id_count;
    char label[BWI_NAME_BUF]; /* register on demand: the label; else "" */
    char mode[16];            /* register: "default", "rollback", "fresh", "takeover", "damage"; else "" */
    char note[256];           /* why, one line of UTF-8; may be empty */
};

struct bwi_entry {
    char run[BWI_NAME_BUF];
    struct bwi_lineage *lineage;
    size_t lineage_count;
    struct bwi_uuid store; /* id of the store that decided it */
    uint32_t era;
    uint64_t n;
    struct bwi_sha prev; /* SHA-256 of all bytes of entry n - 1 of the log; zero for the first */
    uint64_t writer;
    int64_t time_ms;
    char host[64]; /* printable ASCII */
    struct bwi_event_info event;
    struct bwi_attempt attempt;
    struct bwi_from from;
    bool h_set; /* false: null, below every step */
    uint64_t h;
    struct bwi_try *tries; /* ascending by step, tri > 0 */
    size_t try_count;
    struct bwi_kept *live; /* ascending by step; one per step */
    size_t live_count;
    struct bwi_kept *shelved; /* ascending by id */
    size_t shelved_count;
    char (*labels)[BWI_NAME_BUF]; /* used, in order of use */
    size_t label_count;
    char (*launches)[BWI_NAME_BUF]; /* the last BWI_LAUNCHES_KEPT, oldest first */
    size_t launch_count;
    char (*superseded)[BWI_NAME_BUF]; /* job ids, in order */
    size_t superseded_count;
};

int bwi_entry_encode(const struct bwi_entry *e, struct bwi_buf *out, struct bw_error *err);
/* Everything is copied; free with bwi_entry_fini. */
int bwi_entry_decode(struct bwi_span in, struct bwi_entry *ret, struct bw_error *err);
void bwi_entry_fini(struct bwi_entry *e);
/* A deep copy. */
int bwi_entry_copy(const struct bwi_entry *from, struct bwi_entry *ret, struct bw_error *err);

/* The smaller JSON objects. doc/format/small.md */
struct bwi_store_id { /* store.json */
    struct bwi_uuid id;
};
int bwi_store_id_encode(const struct bwi_store_id *s, struct bwi_buf *out, struct bw_error *err);
int bwi_store_id_decode(struct bwi_span in, struct bwi_store_id *ret, struct bw_error *err);

struct bwi_hold { /* one group that a node holds complete on its local tier */
    struct bwi_id id;
    struct bwi_uuid uuid;
    uint32_t group;
    uint32_t ref_count;
    struct bwi_id refs[BWI_REFS_MAX];
};
struct bwi_inventory { /* launches/<launch>/<group>.json */
    char launch[BWI_NAME_BUF];
    char job[BWI_NAME_BUF];
    uint32_t group, groups, world;
    uint32_t rank_count;
    uint32_t ranks[BWI_GROUP_RANKS_MAX];
    uint64_t writers[BWI_GROUP_RANKS_MAX];
    struct bwi_hold *holds; /* ascending by (id, group) */
    size_t hold_count;
    char host[64];
    /* The attempt that was current when this group read the history first: its launch can register only while that one
     * still is. false: an inventory of version 1.0, which does not tell. */
    bool seen_told;
    bool seen_set; /* false: there was none */
    uint32_t seen_number, seen_nonce;
};
int bwi_inventory_encode(const struct bwi_inventory *v, struct bwi_buf *out, struct bw_error *err);
int bwi_inventory_decode(struct bwi_span in, struct bwi_inventory *ret, struct bw_error *err);
void bwi_inventory_fini(struct bwi_inventory *v);

struct bwi_mark { /* failed/<group>, damaged/<group> */
    struct bwi_id id;
    uint32_t group;
    uint64_t writer;
    int32_t status;   /* enum bw_status */
    char reason[512]; /* one line of UTF-8 */
};
int bwi_mark_encode(const struct bwi_mark *m, bool damaged, struct bwi_buf *out, struct bw_error *err);
int bwi_mark_decode(struct bwi_span in, bool damaged, struct bwi_mark *ret, struct bw_error *err);

struct bwi_era_end { /* under the name of an entry: no entry follows in this era; the next one begins at n + 1 */
    char run[BWI_NAME_BUF];
    uint32_t era;
    uint64_t n;
};
int bwi_era_end_encode(const struct bwi_era_end *e, struct bwi_buf *out, struct bw_error *err);
int bwi_era_end_decode(struct bwi_span in, struct bwi_era_end *ret, struct bw_error *err);

struct bwi_refusal { /* launches/<launch>/refused.json: rank 0 could not register the launch, and why */
    char launch[BWI_NAME_BUF];
    uint64_t writer;
    int32_t status;   /* enum bw_status */
    char reason[512]; /* one line of UTF-8 */
};
int bwi_refusal_encode(const struct bwi_refusal *r, struct bwi_buf *out, struct bw_error *err);
int bwi_refusal_decode(struct bwi_span in, struct bwi_refusal *ret, struct bw_error *err);

#endif
