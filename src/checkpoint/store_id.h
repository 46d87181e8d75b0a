/* SPDX-License-Identifier: Apache-2.0 */
/* The identity of a store: store.json, created once with a random id. A remote store that has lost it while it holds
 * runs is refused (BW_E_FOREIGN): their histories name it. A local tier gets a new one. A damaged one is refused in
 * both (BW_E_CORRUPT, BW_E_FORMAT), and the message says what to do. */
#ifndef BWI_CHECKPOINT_STORE_ID_H
#define BWI_CHECKPOINT_STORE_ID_H

#include "checkpoint/context.h"

/* Task: reads the ids of all tiers of ctx into ctx->store_id. create: makes one where there is none; else
 * BW_E_NOTFOUND. */
struct bwi_store_ids {
    struct bwi_task task;
    struct bwi_context *ctx;
    bool create;
    /* inside */
    int state;
    int tier;
    bool looked; /* runs were seen beside a missing identity */
    struct bwi_call call;
    struct bwi_buf bytes;
};
void bwi_store_ids_start(struct bwi_store_ids *s, struct bwi_loop *loop, struct bwi_task *parent);

/* 128 random bits. */
struct bwi_uuid bwi_uuid_random(struct bwi_env *env);

#endif
