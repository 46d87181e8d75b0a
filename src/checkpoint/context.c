/* SPDX-License-Identifier: Apache-2.0 */
/* What coordinators share: their context, store operations on behalf of a task, and waiting for others without a
 * storm. */
#include "checkpoint/context.h"
#include "base/checked.h"
#include "base/text.h"
#include "os/os.h"
#include <assert.h>
#include <stdatomic.h>
#include <string.h>

#define POLL_MIN_NS (20 * BWI_NS_PER_MS) /* a group that is nearly done is seen soon */
#define POLL_MAX_NS (5 * BWI_NS_PER_S)
/* By the number of ranks: the first period of all but rank 0, so that together they look two thousand times a second;
 * how far their last one is above that of few ranks; and how far rank 0's is. */
#define POLL_RANK_NS      (BWI_NS_PER_MS / 2)
#define POLL_RANK_MAX_NS  (3 * BWI_NS_PER_MS)
#define POLL_FIRST_MAX_NS (BWI_NS_PER_MS / 10)
#define POLL_FEW_MAX_NS   (200 * BWI_NS_PER_MS)
#define RESEND_MAX        3u
#define GRACE_MS          UINT64_C(3600000) /* an hour: longer than any reader takes from the head to its last object */

const char *bwi_tier_name(enum bwi_tier t) {
    switch (t) {
    case BWI_TIER_LOCAL: return "local";
    case BWI_TIER_REMOTE: return "remote";
    case BWI_TIERS: break;
    }
    return "?";
}

/* Host names go into JSON objects that allow printable ASCII only. */
static void set_host(struct bwi_context *c) {
    bwi_os_hostname(c->host, sizeof c->host);
    for (char *p = c->host; *p != '\0'; p++) {
        if (*p < 0x20 || *p > 0x7e) *p = '?';
    }
}

void bwi_context_init(struct bwi_context *c, struct bwi_loop *loop) {
    memset(c, 0, sizeof *c);
    c->loop = loop;
    c->env = bwi_loop_env(loop);
    c->writer = c->env->random_u64(c->env);
    c->poll_min_ns = POLL_MIN_NS;
    c->poll_max_ns = POLL_MAX_NS;
    c->grace_ms = GRACE_MS;
    set_host(c);
}

void bwi_context_pace(struct bwi_context *c, uint32_t rank, uint32_t world) {
    const uint64_t first = rank == 0 ? 0 : POLL_RANK_NS * world;
    const uint64_t last = POLL_FEW_MAX_NS + (rank == 0 ? POLL_FIRST_MAX_NS : POLL_RANK_MAX_NS) * world;
    c->poll_min_ns = bwi_min_u64(POLL_MAX_NS, bwi_max_u64(POLL_MIN_NS, first));
    c->poll_max_ns = bwi_min_u64(POLL_MAX_NS, bwi_max_u64(last, c->poll_min_ns));
    c->spread_ns = bwi_min_u64(POLL_MAX_NS, first);
}

void bwi_progress_add(const struct bwi_context *c, uint64_t done_bytes) {
    if (c->progress == NULL) return;
    (void)atomic_fetch_add_explicit(&c->progress->done_bytes, done_bytes, memory_order_relaxed);
}

/* ---- calls ---- */

/* An object is created once with the same bytes, so a create whose answer was lost is sent again: what is there already
 * counts as made. */
static bool send_again(struct bwi_call *c) {
    if (c->op.verb != BWI_STORE_CREATE || c->op.error.status != BW_E_UNKNOWN || c->resent == RESEND_MAX) return false;
    c->resent++;
    bw_error_clear(&c->op.error);
    bwi_store_submit(c->store, &c->op);
    return true;
}

static void call_done(struct bwi_store_op *op) {
    struct bwi_call *c = bwi_container_of(op, struct bwi_call, op);
    if (send_again(c)) return;
    c->busy = false;
    c->task->pending--;
    bwi_task_wake(c->task);
}

void bwi_call_prepare(struct bwi_call *c, enum bwi_store_verb verb, const char *key) {
    bwi_call_fini(c);
    c->op.verb = verb;
    bwi_format(c->key.s, sizeof c->key.s, "%s", key ? key : "");
    c->op.key = c->key.s;
}

void bwi_call_submit(struct bwi_call *c, struct bwi_task *t, struct bwi_store *s) {
    assert(!c->busy);
    c->task = t;
    c->busy = true;
    c->store = s;
    c->resent = 0;
    t->pending++;
    c->op.done = call_done;
    bwi_store_submit(s, &c->op);
}

void bwi_call_fini(struct bwi_call *c) {
    assert(!c->busy);
    bwi_buf_fini(&c->op.body);
    bwi_store_names_fini(&c->op.names);
    memset(&c->op, 0, sizeof c->op);
}

void bwi_call_get(struct bwi_call *c, struct bwi_task *t, struct bwi_store *s, const char *key, uint64_t limit_bytes) {
    bwi_call_prepare(c, BWI_STORE_GET, key);
    c->op.limit_bytes = limit_bytes > SIZE_MAX ? SIZE_MAX : (size_t)limit_bytes;
    bwi_call_submit(c, t, s);
}

void bwi_call_create(struct bwi_call *c, struct bwi_task *t, struct bwi_store *s, const char *key,
                     struct bwi_span data) {
    bwi_call_prepare(c, BWI_STORE_CREATE, key);
    c->op.data = data;
    bwi_call_submit(c, t, s);
}

void bwi_call_list(struct bwi_call *c, struct bwi_task *t, struct bwi_store *s, const char *prefix, const char *after) {
    bwi_call_prepare(c, BWI_STORE_LIST, prefix);
    if (after) {
        bwi_format(c->after, sizeof c->after, "%s", after);
        c->op.after = c->after;
    }
    bwi_call_submit(c, t, s);
}

/* ---- back-off ---- */

void bwi_backoff_reset(struct bwi_backoff *b, const struct bwi_context *c) {
    b->period_ns = c->poll_min_ns;
}

uint64_t bwi_backoff_next(struct bwi_backoff *b, const struct bwi_context *c, uint64_t now_ns) {
    const uint64_t period = b->period_ns > 0 ? b->period_ns : c->poll_min_ns;
    const uint64_t phase = period > 0 ? c->env->random_u64(c->env) % period : 0;
    const uint64_t wait = period / 2 + phase;
    const uint64_t grown = period + period / 2;
    b->period_ns = grown < period || grown > c->poll_max_ns ? c->poll_max_ns : grown;
    return now_ns > BWI_NEVER - 1 - wait ? BWI_NEVER - 1 : now_ns + wait;
}
