/* SPDX-License-Identifier: Apache-2.0 */
/* Reading the head of a run's history: a listing, a read, and a listing after it. doc/flows/README.md. */
#ifndef BWI_CHECKPOINT_HISTORY_HEAD_H
#define BWI_CHECKPOINT_HISTORY_HEAD_H

#include "checkpoint/context.h"

/* The newest entry as it was read. Zero-initialised: nothing read, or an empty history. */
struct bwi_head {
    bool found; /* false: the run has no history */
    struct bwi_entry entry;
    struct bwi_sha sha;   /* of its bytes */
    bool damaged;         /* entries newer than this one are damaged: readers go on and say so, writers refuse */
    bool ended;           /* the newest is the end of its era: a repair was begun (damaged is set too) */
    uint32_t damaged_era; /* of the newest, damaged one */
    uint64_t damaged_n;
    char damage[256]; /* what is wrong with it */
};
void bwi_head_fini(struct bwi_head *h);

/* Task: lists history/, reads the highest (era, n). If that one is damaged the one below is taken, and so on. An entry
 * that is gone when it is read (trimmed meanwhile) starts over, and so does one that proves to be a stray. `known` (may
 * be NULL): only looks for something newer; `unchanged` is set, and `head` left alone, when there is nothing. */
struct bwi_head_read {
    struct bwi_task task;
    /* in */
    struct bwi_context *ctx;
    const struct bwi_head *known;
    struct bwi_store *store; /* NULL: the authority */
    /* out */
    struct bwi_head *head; /* the caller's; replaced on success */
    bool unchanged;
    bool gone; /* unchanged, and the known entry is not there any more: the log has gone back */
    /* inside */
    int state;
    struct bwi_call list, get;
    size_t at; /* candidate in list.names: tried from the last one down */
    unsigned restarts;
    struct bwi_head next;
};
void bwi_head_read_start(struct bwi_head_read *r, struct bwi_loop *loop, struct bwi_task *parent);

/* Picks (era, n) of names[i] apart and orders names of a listing of history/ by (era, n); names that are no entries are
 * dropped. For others that look at such a listing. */
bool bwi_head_name(const struct bwi_store_names *names, size_t i, uint32_t *ret_era, uint64_t *ret_n);

/* Whether a listing made after entry (era, n) was seen, or created, shows that it is not part of the log. An entry is
 * trimmed when the log has come to n + BWI_HISTORY_KEPT; then its name is free again for somebody who slept through
 * all of that, and what he creates there has decided nothing. */
bool bwi_head_is_stray(const struct bwi_store_names *names, uint32_t era, uint64_t n);

/* Whether these bytes, found under the name of entry (era, n), are no entry but the end of the era: put there by a
 * repair, so that nobody who read the log before goes on in that era (doc/format/history.md). */
bool bwi_head_is_era_end(const struct bwi_context *ctx, struct bwi_span bytes, uint32_t era, uint64_t n);

/* The bytes of an entry, checked against its place in the log: seal, format, run, era, n. */
int bwi_head_decode(const struct bwi_context *ctx, struct bwi_span bytes, uint32_t era, uint64_t n,
                    struct bwi_head *ret, struct bw_error *err);

#endif
