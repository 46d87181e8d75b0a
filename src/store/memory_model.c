/* SPDX-License-Identifier: Apache-2.0 */
/* When an operation of a memory store completes, and whether it is made to fail. All is decided at submission, so with
 * one seed the same operations meet the same fate. */
#include "store/memory_bucket.h"
#include <string.h>

__extension__ typedef unsigned __int128 wide;

static uint64_t add_saturating(uint64_t a, uint64_t b) {
    return a > UINT64_MAX - b ? UINT64_MAX : a + b;
}

uint64_t bwi_memory_delay_locked(struct bwi_bucket *b) {
    const struct bwi_memory_model *m = &b->model;
    uint64_t jitter_ns = m->jitter_ns == 0 ? 0 : b->env->random_u64(b->env) % add_saturating(m->jitter_ns, 1);
    return add_saturating(m->latency_ns, jitter_ns);
}

static uint64_t bytes_moved(const struct bwi_bucket *b, const struct bwi_store_op *op) {
    if (op->verb == BWI_STORE_CREATE || op->verb == BWI_STORE_REPLACE) return op->data.len;
    if (op->verb == BWI_STORE_READ || op->verb == BWI_STORE_WRITE) return op->bytes;
    const struct bwi_object *o = op->verb == BWI_STORE_GET ? bwi_bucket_find(b, op->key) : NULL;
    return o ? o->len : 0;
}

uint64_t bwi_memory_due_locked(struct bwi_bucket *b, const struct bwi_store_op *op, uint64_t now_ns) {
    uint64_t rate = b->model.bytes_per_s, bytes = rate > 0 ? bytes_moved(b, op) : 0, from_ns = now_ns;
    if (bytes > 0) {
        wide ns = ((wide)bytes * 1000000000u + rate - 1) / rate;
        if (b->busy_until_ns < now_ns) b->busy_until_ns = now_ns;
        b->busy_until_ns = add_saturating(b->busy_until_ns, ns > UINT64_MAX ? UINT64_MAX : (uint64_t)ns);
        from_ns = b->busy_until_ns;
    }
    return add_saturating(from_ns, bwi_memory_delay_locked(b));
}

static bool drawn(struct bwi_bucket *b, uint64_t every) {
    return every > 0 && b->env->random_u64(b->env) % every == 0;
}

/* Those whose answer, when it is lost, leaves a question. */
static bool has_effect(enum bwi_store_verb verb) {
    return verb == BWI_STORE_CREATE || verb == BWI_STORE_FINISH || verb == BWI_STORE_REPLACE ||
           verb == BWI_STORE_DELETE || verb == BWI_STORE_DELETE_PREFIX;
}

static bool take_plan(struct bwi_bucket *b, const struct bwi_store_op *op, struct bwi_memory_fate *ret) {
    const char *key = bwi_store_op_key(op);
    for (size_t i = 0; i < b->plan_count; i++) {
        struct bwi_bucket_plan *plan = &b->plans[i];
        if (plan->verb != op->verb || (plan->part[0] && !(key && strstr(key, plan->part)))) continue;
        *ret = (struct bwi_memory_fate){plan->status, plan->effect};
        b->plan_count--;
        memmove(plan, plan + 1, (b->plan_count - i) * sizeof *plan);
        return true;
    }
    return false;
}

struct bwi_memory_fate bwi_memory_fate_locked(struct bwi_bucket *b, const struct bwi_store_op *op) {
    struct bwi_memory_fate fate = {0, false};
    if (take_plan(b, op, &fate)) return fate;
    if (drawn(b, b->model.fail_every)) return (struct bwi_memory_fate){BW_E_IO, false};
    if (has_effect(op->verb) && drawn(b, b->model.lose_answer_every))
        return (struct bwi_memory_fate){BW_E_UNKNOWN, true};
    return fate;
}
