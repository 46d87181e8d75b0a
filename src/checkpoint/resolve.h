/* SPDX-License-Identifier: Apache-2.0 */
/* Resolve: which checkpoint a launch goes on from. doc/flows/resolve.md. Run by rank 0 on the head that it is going to
 * register on. */
#ifndef BWI_CHECKPOINT_RESOLVE_H
#define BWI_CHECKPOINT_RESOLVE_H

#include "checkpoint/history_head.h"
#include "checkpoint/policy_history.h"

struct bwi_resolve {
    struct bwi_task task;
    /* in */
    struct bwi_context *ctx;
    const struct bwi_head *head;
    const struct bwi_inventory *inventories; /* of all groups of the launch */
    size_t inventory_count;
    struct bwi_register *reg; /* in: mode, label, job; out: target, target_facts, newer, mode DAMAGE, takeover, note */
    uint64_t rollback_step;
    bool damage_fail;
    uint64_t deadline_ns; /* of looking at what is marked as damaged */
    /* out */
    struct bwi_candidate newer; /* reg->newer points here when there is one */
    char note[256];             /* reg->note points here */
    /* inside */
    int state;
    struct bwi_resolve_work *w;
};
/* World and groups of a checkpoint that is not committed: those of its attempt, which the entry holds. */
void bwi_resolve_facts(const struct bwi_entry *e, const struct bwi_id *id, struct bwi_candidate *ret);
void bwi_resolve_start(struct bwi_resolve *r, struct bwi_loop *loop, struct bwi_task *parent);

#endif
