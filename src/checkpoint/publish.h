/* SPDX-License-Identifier: Apache-2.0 */
/* Making a group complete in a tier once its packs are there: layout, content, placement, and last of all the summary.
 * The one place that knows this order. doc/flows/save.md, doc/flows/drain.md. */
#ifndef BWI_CHECKPOINT_PUBLISH_H
#define BWI_CHECKPOINT_PUBLISH_H

#include "checkpoint/context.h"
#include "format/summary.h"

struct bwi_publish {
    struct bwi_task task;
    /* in: spans are borrowed until the task has ended */
    struct bwi_context *ctx;
    struct bwi_store *store;
    const struct bwi_summary *summary;
    struct bwi_span layout, content, placement;
    bool layout_known; /* this layout of this attempt is known to be in this tier: not written again */
    bool sync_packs;   /* some packs were there before: their names are made durable ahead of the summary */
    /* out */
    uint64_t objects;     /* created */
    bool was_complete;    /* another writer's summary was first, with the same layout and content: that one counts */
    bool summary_sent;    /* however the task ends: the summary may be there from now on */
    bool summary_refused; /* it was sent once, and clearly refused: it is surely not there */
    /* inside */
    int state;
    struct bwi_call calls[3];
    struct bwi_buf bytes;
};
/* A summary that is there with another layout or content is BW_E_EXISTS: two different things under one id. */
void bwi_publish_start(struct bwi_publish *p, struct bwi_loop *loop, struct bwi_task *parent);

/* Task: puts a mark, failed/<group> or damaged/<group>; the first one counts, so one that is there already is success.
 */
struct bwi_mark_put {
    struct bwi_task task;
    struct bwi_context *ctx;
    struct bwi_id id;
    uint32_t group;
    bool damaged;
    int status;
    char reason[400];
    /* inside */
    struct bwi_call call;
    struct bwi_buf bytes;
    int state;
};
void bwi_mark_put_start(struct bwi_mark_put *m, struct bwi_loop *loop, struct bwi_task *parent);

#endif
