/* SPDX-License-Identifier: Apache-2.0 */
/* Waiting for one task or operation. */
#include "api/blocking.h"

#include "base/error.h"

/* How soon what runs learns that nobody waits for it any more. */
#define LOOK_NS (200 * BWI_NS_PER_MS)

static bool is_given_up(const struct bwi_host *h) {
    return h->pulse && atomic_load(&h->pulse->given_up);
}

int bwi_block_on(struct bwi_host *h, struct bwi_task *t, struct bw_error *err) {
    while (t->running) {
        const bool any = bwi_loop_turn(h->loop, bwi_loop_now_ns(h->loop) + LOOK_NS);
        if (any && h->pulse) atomic_store(&h->pulse->heard_ns, bwi_loop_now_ns(h->loop));
        if (t->running && !t->cancel && is_given_up(h)) bwi_task_cancel(t);
    }
    if (is_given_up(h)) (void)bwi_error_set(&t->error, BW_E_CANCELLED, "nobody waits for it any more");
    bwi_error_copy(err, &t->error);
    return t->error.status;
}

/* A task that issues one call and ends when it is done. */
struct one {
    struct bwi_task task;
    struct bwi_call call;
    struct bwi_store *store;
    bool sent;
};

static enum bwi_step one_step(struct bwi_task *t) {
    struct one *o = bwi_container_of(t, struct one, task);
    if (!o->sent) {
        o->sent = true;
        bwi_call_submit(&o->call, t, o->store);
        return BWI_STEP_WAIT;
    }
    if (t->pending) return BWI_STEP_WAIT;
    bwi_error_copy(&t->error, &o->call.op.error);
    return BWI_STEP_END;
}

static int run_one(struct bwi_host *h, enum bwi_tier tier, struct one *o, struct bw_error *err) {
    o->task.step = one_step;
    o->task.name = "call";
    o->store = h->ctx.tier[tier];
    bwi_task_start(h->loop, &o->task, NULL);
    return bwi_block_on(h, &o->task, err);
}

int bwi_block_get(struct bwi_host *h, enum bwi_tier tier, const char *key, uint64_t limit_bytes, struct bwi_buf *ret,
                  struct bw_error *err) {
    struct one o = {0};
    bwi_call_prepare(&o.call, BWI_STORE_GET, key);
    o.call.op.limit_bytes = (size_t)limit_bytes;
    int rc = run_one(h, tier, &o, err);
    if (rc == 0) {
        *ret = o.call.op.body;
        o.call.op.body = (struct bwi_buf){0};
    }
    bwi_call_fini(&o.call);
    return rc;
}

int bwi_block_list(struct bwi_host *h, enum bwi_tier tier, const char *prefix, struct bwi_store_names *ret,
                   struct bw_error *err) {
    struct one o = {0};
    bwi_call_prepare(&o.call, BWI_STORE_LIST, prefix);
    int rc = run_one(h, tier, &o, err);
    if (rc == 0) {
        *ret = o.call.op.names;
        o.call.op.names = (struct bwi_store_names){0};
    }
    bwi_call_fini(&o.call);
    return rc;
}

int bwi_block_head(struct bwi_host *h, enum bwi_tier tier, const char *key, uint64_t *ret_bytes, struct bw_error *err) {
    struct one o = {0};
    bwi_call_prepare(&o.call, BWI_STORE_HEAD, key);
    int rc = run_one(h, tier, &o, err);
    if (rc == 0) *ret_bytes = o.call.op.size_bytes;
    bwi_call_fini(&o.call);
    return rc;
}

int bwi_block_do(struct bwi_host *h, enum bwi_tier tier, enum bwi_store_verb verb, const char *key,
                 struct bwi_span data, enum bwi_store_outcome *ret_outcome, struct bw_error *err) {
    struct one o = {0};
    bwi_call_prepare(&o.call, verb, key);
    o.call.op.data = data;
    int rc = run_one(h, tier, &o, err);
    if (rc == 0 && ret_outcome) *ret_outcome = o.call.op.outcome;
    bwi_call_fini(&o.call);
    return rc;
}
