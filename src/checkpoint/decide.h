/* SPDX-License-Identifier: Apache-2.0 */
/* Deciding: read the head, compute the next entry, create it; if the name is taken, start over. The compare-and-swap
 * that everything else stands on. One decision of a context is in flight at a time; others queue. */
#ifndef BWI_CHECKPOINT_DECIDE_H
#define BWI_CHECKPOINT_DECIDE_H

#include "checkpoint/history_head.h"
#include "checkpoint/history_sync.h"
#include "checkpoint/policy_history.h"

struct bwi_decide {
    struct bwi_task task;
    /* in */
    struct bwi_context *ctx;
    /* Computes the next entry from the head; called again for every new head. 0: *ret is filled. 1: there is nothing to
     * decide any more (the task ends well, `created` stays false, and that head is durable). Negative: the task ends
     * with it. */
    int (*next)(void *user, const struct bwi_actor *a, struct bwi_entry *ret, struct bw_error *err);
    void *user;
    bool over_damage;     /* repair: a damaged newest entry does not stop it */
    bool over_archive;    /* promote: neither does a store that is an archive */
    uint64_t deadline_ns; /* BWI_NEVER: only cancel ends it. When it passes the outcome may be BW_E_UNKNOWN */
    /* out */
    bool created;
    struct bwi_head head; /* the new head when created, else the one on which it ended; fini by the caller */
    unsigned rounds;      /* how often it started over: for tests */
    /* inside */
    int state;
    struct bwi_head_read read;
    struct bwi_history_sync sync;
    struct bwi_call call, list;
    struct bwi_buf bytes; /* of the entry that is being created: repeated unchanged until n+1 exists */
    struct bwi_entry entry;
    struct bwi_key key;
    struct bwi_backoff backoff;
    uint64_t retry_ns;
    size_t trim_at;
    bool sent;
    bool unsure; /* some answer was lost: the entry may appear later */
    struct bwi_decide *next_in_line;
};
void bwi_decide_start(struct bwi_decide *d, struct bwi_loop *loop, struct bwi_task *parent);
void bwi_decide_fini(struct bwi_decide *d);

#endif
