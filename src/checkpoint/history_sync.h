/* SPDX-License-Identifier: Apache-2.0 */
/* Making the log durable before something is reported or deleted because of it. */
#ifndef BWI_CHECKPOINT_HISTORY_SYNC_H
#define BWI_CHECKPOINT_HISTORY_SYNC_H

#include "checkpoint/context.h"

/* Task: the names in history/ of the authority are durable when it ends well. Where this handle created one of them and
 * an fsync failed then, no later one vouches for it: the entry, which is sealed, is put once more as it is. */
struct bwi_history_sync {
    struct bwi_task task;
    /* in */
    struct bwi_context *ctx;
    /* inside */
    int state;
    struct bwi_call call;
    struct bwi_store_names names;
    size_t at;
    unsigned put;
    struct bwi_buf bytes;
    bool again; /* it has been asked for once more */
};
void bwi_history_sync_start(struct bwi_history_sync *h, struct bwi_loop *loop, struct bwi_task *parent);

#endif
