/* SPDX-License-Identifier: Apache-2.0 */
/* The rules of a run's history, as pure functions from one entry to the next. Whoever wants to decide reads the newest
 * entry, computes the next one here, and creates it; if somebody else was faster, it starts over. So nothing below
 * needs a lock. doc/flows/README.md has the table of events.
 *
 * All of them take the newest entry (NULL: the run has none yet), fill *ret with a new entry that the caller frees, and
 * refuse with BW_E_REFUSED, BW_E_SUPERSEDED, BW_E_LAUNCH_LOST or BW_E_ABORTED what a rule forbids. */
#ifndef BWI_CHECKPOINT_POLICY_HISTORY_H
#define BWI_CHECKPOINT_POLICY_HISTORY_H

#include "format/history.h"
#include <breakwater/checkpointer.h>

/* Who decides, and on what. */
struct bwi_actor {
    const struct bwi_entry *head; /* NULL: empty history */
    struct bwi_sha head_sha;      /* of its bytes */
    struct bwi_uuid store;        /* of the store that the entry is created in */
    uint64_t writer;
    int64_t time_ms;
    const char *host;
};

enum bwi_register_mode {
    BWI_REGISTER_DEFAULT,
    BWI_REGISTER_ROLLBACK,
    BWI_REGISTER_FRESH,
    BWI_REGISTER_TAKEOVER,
    BWI_REGISTER_DAMAGE
};

/* A checkpoint that is not committed and might be resumed from. */
struct bwi_candidate {
    struct bwi_id id;
    uint32_t world, groups;
    bool fan_out;
    uint32_t ref_count;
    struct bwi_id refs[BWI_REFS_MAX];
};

struct bwi_register {
    const char *run, *job, *launch;
    uint32_t world, groups;
    bool fan_out;
    uint32_t nonce;       /* of the new attempt: random */
    struct bwi_uuid uuid; /* of the lineage's first era, if this is the first entry: random */
    enum bwi_register_mode mode;
    bool takeover;                     /* DAMAGE: the wish was a takeover, and is granted all the same */
    const char *label;                 /* of ROLLBACK, FRESH, TAKEOVER; else "" */
    struct bwi_id target;              /* of ROLLBACK and DAMAGE */
    struct bwi_candidate target_facts; /* world, groups, fan-out, refs of the target, of the newest live one with
                                          DEFAULT: from its manifest */
    const struct bwi_candidate
        *newer;    /* DEFAULT, TAKEOVER: an eligible uncommitted checkpoint above the newest live one; NULL */
    bool seen_set; /* what was current at this launch's first read */
    uint32_t seen_number, seen_nonce;
    const char *note;
};

/* The mode that really applies: a label that was used means the default, so does a takeover by a job that nobody
 * superseded. */
enum bwi_register_mode bwi_policy_mode(const struct bwi_entry *head, const struct bwi_register *r);
/* Whether this launch may register at all on this entry: launch id unused, nobody else won, job not superseded. */
int bwi_policy_may_register(const struct bwi_entry *head, const struct bwi_register *r, struct bw_error *err);
/* A launch that saw this attempt first (set: false: none) can never register any more: another one has since. */
bool bwi_policy_is_beaten(const struct bwi_entry *head, bool seen_set, uint32_t seen_number);
int bwi_policy_register(const struct bwi_actor *a, const struct bwi_register *r, struct bwi_entry *ret,
                        struct bw_error *err);

bool bwi_policy_committable(const struct bwi_entry *head, const struct bwi_id *id, const struct bwi_id *refs,
                            uint32_t ref_count);
int bwi_policy_commit(const struct bwi_actor *a, const struct bwi_kept *k, struct bwi_entry *ret, struct bw_error *err);
/* reason: one line. BW_E_STATE: the try is not current any more (aborted already, committed, passed). */
int bwi_policy_abort(const struct bwi_actor *a, const struct bwi_id *id, const char *reason, struct bwi_entry *ret,
                     struct bw_error *err);

int bwi_policy_retire(const struct bwi_actor *a, const struct bwi_id *ids, size_t count, struct bwi_entry *ret,
                      struct bw_error *err);
int bwi_policy_pin(const struct bwi_actor *a, const struct bwi_id *id, bool pinned, struct bwi_entry *ret,
                   struct bw_error *err);

/* a->head is the newest sound entry; era and n are those of the damaged newest one. Checkpoints in `gone` leave;
 * `found`, in step order, join one after the other, each only if it may be committed by then and refers to nothing that
 * is gone. */
struct bwi_repair {
    uint32_t era;
    uint64_t n;         /* of the end of that era */
    uint64_t damaged_n; /* for people: what was found damaged */
    struct bwi_uuid uuid;
    uint32_t nonce;
    const struct bwi_id *gone;
    size_t gone_count;
    const struct bwi_kept *found;
    size_t found_count;
};
int bwi_policy_repair(const struct bwi_actor *a, const struct bwi_repair *r, struct bwi_entry *ret,
                      struct bw_error *err);
/* The archive's store decides from now on. */
int bwi_policy_promote(const struct bwi_actor *a, const struct bwi_uuid *uuid, uint32_t nonce, struct bwi_entry *ret,
                       struct bw_error *err);

/* What a checkpoint id is to a history. DEAD is for ever, and only dead data is deleted. */
enum bwi_fate {
    BWI_FATE_LIVE,
    BWI_FATE_SHELVED,
    BWI_FATE_REFERENCED,
    BWI_FATE_COMMITTABLE,
    BWI_FATE_AHEAD,
    BWI_FATE_DEAD
};
enum bwi_fate bwi_policy_fate(const struct bwi_entry *head, const struct bwi_id *id);
/* This entry alone proves that `id` is dead and has never been live: a try of the current attempt that was aborted, of
 * a step above h. Of a step that is not above h it cannot tell an aborted try from one that was committed and retired.
 */
bool bwi_policy_was_aborted(const struct bwi_entry *head, const struct bwi_id *id);

/* Layouts of an attempt may go when it is not beyond the entry, is neither the current one nor that of the open from,
 * and no checkpoint directory of it is left (the caller looks). */
bool bwi_policy_layouts_dead(const struct bwi_entry *head, uint32_t attempt, uint32_t nonce);

const struct bwi_kept *bwi_policy_newest(const struct bwi_entry *head); /* NULL: none */
const struct bwi_kept *bwi_policy_find_live(const struct bwi_entry *head, uint64_t step);
const struct bwi_kept *bwi_policy_find_kept(const struct bwi_entry *head,
                                            const struct bwi_id *id); /* live or shelved */
/* What a rollback to this step goes back to: the live one, else a shelved one; NULL: none. */
const struct bwi_kept *bwi_policy_find_step(const struct bwi_entry *head, uint64_t step);
uint32_t bwi_policy_try(const struct bwi_entry *head, uint64_t step); /* tries[step] */
bool bwi_policy_is_current(const struct bwi_entry *head, uint32_t attempt, uint32_t nonce);
bool bwi_policy_in_lineage(const struct bwi_entry *head, const struct bwi_uuid *uuid);
const struct bwi_uuid *bwi_policy_uuid(const struct bwi_entry *head); /* of the current era */
/* Why attempt (number, nonce) of `job` is over: BW_E_LAUNCH_LOST or BW_E_SUPERSEDED with a message; 0 while it is
 * current. */
int bwi_policy_attempt_status(const struct bwi_entry *head, uint32_t number, uint32_t nonce, const char *job,
                              struct bw_error *err);

/* Whether the checkpoint that the run resumed from, and that is still to be committed, refers to this one. */
bool bwi_policy_from_needs(const struct bwi_entry *head, const struct bwi_id *id);
/* Which live checkpoints no rule keeps (checkpoint/policy_retention.c): not the newest, not pinned, not a ref of the
 * open from. `ret` holds up to live_count ids; returns how many. keep_last counts the newest so many, never fewer than
 * `in_flight` + 1. */
size_t bwi_policy_retention(const struct bwi_entry *head, const struct bw_retention *r, uint32_t in_flight,
                            int64_t now_ms, struct bwi_id *ret);

#endif
