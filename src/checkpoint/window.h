/* SPDX-License-Identifier: Apache-2.0 */
/* Many small requests of one task, a window of them at a time: enough to hide round trips, few enough not to be a
 * storm. */
#ifndef BWI_CHECKPOINT_WINDOW_H
#define BWI_CHECKPOINT_WINDOW_H

#include "checkpoint/context.h"

#define BWI_WINDOW_SLOTS 16u

struct bwi_window {
    struct bwi_window_slot {
        struct bwi_call call;
        size_t index;
        bool used;
    } slots[BWI_WINDOW_SLOTS];
    size_t next; /* request to be sent */
};

struct bwi_window_ops {
    /* Submits request i on `call`. false: there is nothing to ask for i. */
    bool (*send)(void *user, size_t i, struct bwi_call *call);
    /* Looks at the answer, also at one that says that it failed. What is set in *err stops the window. */
    void (*take)(void *user, size_t i, struct bwi_store_op *op, struct bw_error *err);
};

void bwi_window_begin(struct bwi_window *w); /* nothing may be in flight */
/* To be called from each step. 0: something is in flight; 1: all `count` requests have been answered and taken;
 * negative: err->status, with nothing in flight any more. Once *err is set nothing more is sent. */
int bwi_window_run(struct bwi_window *w, size_t count, const struct bwi_window_ops *ops, void *user,
                   struct bw_error *err);
void bwi_window_fini(struct bwi_window *w);

#endif
