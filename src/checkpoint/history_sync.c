/* SPDX-License-Identifier: Apache-2.0 */
/* Making the log durable. */
#include "checkpoint/history_sync.h"

#include "base/error.h"
#include "checkpoint/history_head.h"

enum sync_state { SYNC_ASKED, SYNC_LISTED, SYNC_HEAD, SYNC_READ, SYNC_PUT };

#define LOOKS_MAX 100u /* entries that are asked about, from the newest down: what a handle has created lately */
#define PUTS_MAX  16u

static enum bwi_step wait_in(struct bwi_history_sync *h, enum sync_state in) {
    h->state = (int)in;
    return BWI_STEP_WAIT;
}

static struct bwi_store *authority(const struct bwi_history_sync *h) {
    return h->ctx->tier[BWI_TIER_REMOTE];
}

static enum bwi_step end(struct bwi_history_sync *h) {
    bwi_call_fini(&h->call);
    bwi_store_names_fini(&h->names);
    bwi_buf_fini(&h->bytes);
    return BWI_STEP_END;
}

static enum bwi_step ask(struct bwi_history_sync *h) {
    const struct bwi_key prefix = bwi_key_history(h->ctx->run);
    bwi_call_prepare(&h->call, BWI_STORE_SYNC, prefix.s);
    bwi_call_submit(&h->call, &h->task, authority(h));
    return wait_in(h, SYNC_ASKED);
}

static enum bwi_step asked(struct bwi_history_sync *h) {
    const struct bwi_key prefix = bwi_key_history(h->ctx->run);
    const struct bwi_store_op *op = &h->call.op;
    if (!op->doubtful || h->again) {
        (void)bwi_error_copy(&h->task.error, &op->error);
        return end(h);
    }
    h->again = true;
    bwi_call_list(&h->call, &h->task, authority(h), prefix.s, NULL);
    return wait_in(h, SYNC_LISTED);
}

/* The next entry that this handle may have created. */
static enum bwi_step next(struct bwi_history_sync *h) {
    uint32_t era;
    uint64_t n;
    const size_t last = h->names.len > LOOKS_MAX ? h->names.len - LOOKS_MAX : 0;
    while (h->at > last && !bwi_head_name(&h->names, h->at - 1, &era, &n)) h->at--;
    if (h->at == last || h->put == PUTS_MAX) return ask(h);
    const struct bwi_key key = bwi_key_entry(h->ctx->run, era, n);
    bwi_call_prepare(&h->call, BWI_STORE_HEAD, key.s);
    bwi_call_submit(&h->call, &h->task, authority(h));
    return wait_in(h, SYNC_HEAD);
}

static enum bwi_step listed(struct bwi_history_sync *h) {
    struct bwi_store_op *op = &h->call.op;
    h->names = op->names;
    op->names = (struct bwi_store_names){0};
    h->at = h->names.len;
    return next(h);
}

static enum bwi_step looked(struct bwi_history_sync *h) {
    const struct bwi_key key = h->call.key;
    if (!h->call.op.doubtful) {
        h->at--;
        return next(h);
    }
    bwi_call_get(&h->call, &h->task, authority(h), key.s, BWI_ENTRY_BYTES_MAX);
    return wait_in(h, SYNC_READ);
}

static bool is_sound(const struct bwi_history_sync *h, uint32_t era, uint64_t n) {
    struct bwi_head head = {0};
    const struct bwi_span bytes = bwi_buf_span(&h->bytes);
    const bool sound =
        bwi_head_decode(h->ctx, bytes, era, n, &head, NULL) == 0 || bwi_head_is_era_end(h->ctx, bytes, era, n);
    bwi_head_fini(&head);
    return sound;
}

/* What cannot be read, or is damaged, is not put anew: then no fsync is believed, as before. */
static enum bwi_step was_read(struct bwi_history_sync *h) {
    struct bwi_store_op *op = &h->call.op;
    const struct bwi_key key = h->call.key;
    uint32_t era = 0;
    uint64_t n = 0;
    (void)bwi_head_name(&h->names, --h->at, &era, &n);
    if (op->error.status < 0) return next(h);
    bwi_buf_fini(&h->bytes);
    h->bytes = op->body;
    op->body = (struct bwi_buf){0};
    if (!is_sound(h, era, n)) return next(h);
    h->put++;
    bwi_call_create(&h->call, &h->task, authority(h), key.s, bwi_buf_span(&h->bytes));
    return wait_in(h, SYNC_PUT);
}

static enum bwi_step sync_step(struct bwi_task *t) {
    struct bwi_history_sync *h = bwi_container_of(t, struct bwi_history_sync, task);
    if (t->pending > 0) return BWI_STEP_WAIT;
    switch ((enum sync_state)h->state) {
    case SYNC_ASKED: return asked(h);
    case SYNC_LISTED: return listed(h);
    case SYNC_HEAD: return looked(h);
    case SYNC_READ: return was_read(h);
    case SYNC_PUT: break;
    }
    return next(h);
}

void bwi_history_sync_start(struct bwi_history_sync *h, struct bwi_loop *loop, struct bwi_task *parent) {
    struct bwi_context *ctx = h->ctx;
    *h = (struct bwi_history_sync){.ctx = ctx};
    h->task.step = sync_step;
    h->task.name = "history sync";
    bwi_task_start(loop, &h->task, parent);
    (void)ask(h);
}
