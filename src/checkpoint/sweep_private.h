/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of the sweep share. */
#ifndef BWI_CHECKPOINT_SWEEP_PRIVATE_H
#define BWI_CHECKPOINT_SWEEP_PRIVATE_H

#include "checkpoint/names.h"
#include "checkpoint/sweep.h"
#include "checkpoint/window.h"

enum bwi_sweep_state {
    /* sweep_find.c: what is there, what is dead, and since when */
    BWI_SWEEP_HEAD,
    BWI_SWEEP_LIST,
    BWI_SWEEP_LISTED,
    BWI_SWEEP_DATA,
    BWI_SWEEP_LOG,
    BWI_SWEEP_LOG_LISTED,
    BWI_SWEEP_LOG_READ,
    /* sweep.c: one checkpoint after the other */
    BWI_SWEEP_NEXT,
    BWI_SWEEP_LOOKED,
    BWI_SWEEP_SUMMARIES,
    BWI_SWEEP_DELETE,
    BWI_SWEEP_SUMMARIES_GONE,
    BWI_SWEEP_DELETE_DATA,
    BWI_SWEEP_DATA_GONE,
    BWI_SWEEP_GONE,
    /* sweep_rest.c: layouts, then inventories */
    BWI_SWEEP_REST,
    BWI_SWEEP_REST_LISTED,
    BWI_SWEEP_REST_NEXT,
    BWI_SWEEP_REST_ASKED,
    BWI_SWEEP_REST_LOOKED,
    BWI_SWEEP_REST_GONE,
    BWI_SWEEP_END,
};

#define BWI_FAN_OUT 256u

/* A checkpoint id of which something lies in the tier, and that is dead, or may be foreign. */
struct bwi_swept {
    struct bwi_id id;
    bool dead;                     /* by the head, and for longer than the grace */
    bool in_checkpoints;           /* checkpoints/<id>/ */
    uint64_t ff[BWI_FAN_OUT / 64]; /* data/<ff>/<id>/: a bit for each <ff> */
    bool gone;                     /* or would be */
};

struct bwi_sweep_work {
    struct bwi_head head;
    struct bwi_head_read read;
    struct bwi_call calls[2];
    struct bwi_call sync; /* and what looks at one of the rest */
    struct bwi_window window;
    struct bwi_swept *list;
    size_t count, cap;
    size_t at;
    struct bw_error first; /* what could not be deleted */
    /* the log: newest first while it is read */
    struct bwi_entry *log;
    size_t log_count, log_want;
    int64_t cutoff_ms; /* what died later stays */
    bool log_ends;     /* an entry from before the cutoff has been read */
    /* of the checkpoint that is looked at */
    uint32_t *groups;
    size_t group_count;
    uint64_t objects, bytes;
    bool foreign;
    struct bw_error now; /* of its window, kept until nothing of it is in flight any more */
    /* of the rest */
    bool launches;
    char launch[BWI_NAME_BUF]; /* that is looked at */
    struct bwi_key dir;
};

static inline enum bwi_step bwi_sweep_go(struct bwi_sweep *s, enum bwi_sweep_state to) {
    s->state = (int)to;
    return BWI_STEP_AGAIN;
}

static inline struct bwi_store *bwi_sweep_store(const struct bwi_sweep *s) {
    return s->ctx->tier[s->tier];
}

bool bwi_sweep_has_ff(const struct bwi_swept *c, unsigned ff);
enum bwi_step bwi_sweep_fail(struct bwi_sweep *s, const struct bw_error *e);
void bwi_sweep_delete_prefix(struct bwi_sweep *s, struct bwi_call *call, const char *prefix);

enum bwi_step bwi_sweep_find(struct bwi_sweep *s); /* states up to LOG_READ */
enum bwi_step bwi_sweep_rest(struct bwi_sweep *s); /* states from REST on */

#endif
