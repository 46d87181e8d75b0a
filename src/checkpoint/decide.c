/* SPDX-License-Identifier: Apache-2.0 */
/* The compare-and-swap on a run's history. */
#include "checkpoint/decide.h"

#include "base/error.h"
#include "base/text.h"

enum decide_state {
    DECIDE_QUEUE,
    DECIDE_READ,
    DECIDE_COMPUTE,
    DECIDE_SETTLED, /* what the new entry follows on is durable */
    DECIDE_CREATE,
    DECIDE_CREATED,
    DECIDE_LOOK,
    DECIDE_LISTED,
    DECIDE_UNDONE,
    DECIDE_TRIM,
    DECIDE_SYNCED /* what was found instead of a decision is durable */
};

/* Old entries deleted per decision: more than one, so that a log that was left long by a crash shrinks. */
#define DECIDE_TRIM_MAX 4u

static void leave_line(struct bwi_decide *d) {
    struct bwi_decide **at = &d->ctx->deciding;
    while (*at && *at != d) at = &(*at)->next_in_line;
    if (*at) *at = d->next_in_line;
    if (d->ctx->deciding) bwi_task_wake(&d->ctx->deciding->task);
}

static enum bwi_step end(struct bwi_decide *d) {
    bwi_call_fini(&d->call);
    bwi_call_fini(&d->list);
    bwi_buf_fini(&d->bytes);
    bwi_entry_fini(&d->entry);
    leave_line(d);
    return BWI_STEP_END;
}

static enum bwi_step fail(struct bwi_decide *d, const struct bw_error *e) {
    bwi_error_copy(&d->task.error, e);
    return end(d);
}

static bool out_of_time(const struct bwi_decide *d) {
    return d->task.cancel || bwi_loop_now_ns(d->task.loop) >= d->deadline_ns;
}

static enum bwi_step start_over(struct bwi_decide *d) {
    bwi_buf_fini(&d->bytes);
    bwi_entry_fini(&d->entry);
    d->sent = false;
    d->unsure = false;
    d->rounds++;
    d->state = DECIDE_READ;
    return BWI_STEP_AGAIN;
}

static enum bwi_step give_up(struct bwi_decide *d, const char *why) {
    if (d->task.cancel)
        bwi_error_set(&d->task.error, BW_E_CANCELLED, "cancelled before anything was decided");
    else
        bwi_error_set(&d->task.error, BW_E_TIMEOUT, "no decision by the deadline: %s (%u rounds)", why, d->rounds);
    return end(d);
}

static enum bwi_step wait_in_line(struct bwi_decide *d) {
    if (d->deadline_ns != BWI_NEVER) bwi_task_wake_at(&d->task, d->deadline_ns);
    return BWI_STEP_WAIT;
}

static enum bwi_step read_head(struct bwi_decide *d) {
    if (out_of_time(d)) return give_up(d, "others decided first each time");
    d->read = (struct bwi_head_read){.ctx = d->ctx, .head = &d->head};
    d->state = DECIDE_COMPUTE;
    bwi_head_read_start(&d->read, d->task.loop, &d->task);
    return BWI_STEP_WAIT;
}

/* May anybody write behind this head at all? */
static int check_head(struct bwi_decide *d, struct bw_error *err) {
    const struct bwi_head *h = &d->head;
    if (h->damaged && !d->over_damage)
        return bwi_error_set(err, BW_E_CORRUPT,
                             "the newest history entry of run \"%s\" is damaged (%s); repair it first: breakwater "
                             "repair %s --history --yes",
                             d->ctx->run, h->damage, d->ctx->run);
    if (h->found && !d->over_archive && !bwi_uuid_eq(&h->entry.store, &d->ctx->store_id[BWI_TIER_REMOTE]))
        return bwi_error_set(
            err, BW_E_FOREIGN,
            "this store is an archive of run \"%s\": another store decides, unless this one is promoted", d->ctx->run);
    return 0;
}

/* There is nothing to decide because of what somebody else decided, and the caller will say so. Whoever created that
 * entry may have died before its name was durable. */
static enum bwi_step sync_head(struct bwi_decide *d) {
    if (!d->head.found) return end(d);
    d->state = DECIDE_SYNCED;
    d->sync.ctx = d->ctx;
    bwi_history_sync_start(&d->sync, d->task.loop, &d->task);
    return BWI_STEP_WAIT;
}

static enum bwi_step synced(struct bwi_decide *d) {
    const struct bw_error *e = &d->sync.task.error;
    if (d->sync.task.running) return BWI_STEP_WAIT;
    return e->status < 0 ? fail(d, e) : end(d);
}

/* Entry n + 1 must not outlive entry n, or the log has a hole in which nobody can read what became of his save. */
static enum bwi_step settle(struct bwi_decide *d) {
    if (!d->head.found || bwi_sha_eq(&d->head.sha, &d->ctx->durable_head)) {
        d->state = DECIDE_CREATE;
        return BWI_STEP_AGAIN;
    }
    d->state = DECIDE_SETTLED;
    d->sync.ctx = d->ctx;
    bwi_history_sync_start(&d->sync, d->task.loop, &d->task);
    return BWI_STEP_WAIT;
}

static enum bwi_step settled(struct bwi_decide *d) {
    const struct bw_error *e = &d->sync.task.error;
    if (d->sync.task.running) return BWI_STEP_WAIT;
    if (e->status < 0) return fail(d, e);
    d->ctx->durable_head = d->head.sha;
    d->state = DECIDE_CREATE;
    return BWI_STEP_AGAIN;
}

static enum bwi_step compute(struct bwi_decide *d) {
    if (d->read.task.running) return BWI_STEP_WAIT;
    if (d->read.task.error.status < 0) return fail(d, &d->read.task.error);
    struct bw_error e = BW_ERROR_INIT;
    if (check_head(d, &e) < 0) return fail(d, &e);
    struct bwi_env *env = d->ctx->env;
    struct bwi_actor a = {.head = d->head.found ? &d->head.entry : NULL,
                          .head_sha = d->head.sha,
                          .store = d->ctx->store_id[BWI_TIER_REMOTE],
                          .writer = d->ctx->writer,
                          .time_ms = env->unix_ms(env),
                          .host = d->ctx->host};
    int rc = d->next(d->user, &a, &d->entry, &e);
    if (rc == 1) return sync_head(d);
    if (rc < 0 || bwi_entry_encode(&d->entry, &d->bytes, &e) < 0) return fail(d, &e);
    d->key = bwi_key_entry(d->ctx->run, d->entry.era, d->entry.n);
    bwi_backoff_reset(&d->backoff, d->ctx);
    return settle(d);
}

static enum bwi_step create(struct bwi_decide *d) {
    d->state = DECIDE_CREATED;
    d->sent = true;
    bwi_call_create(&d->call, &d->task, d->ctx->tier[BWI_TIER_REMOTE], d->key.s, bwi_buf_span(&d->bytes));
    return BWI_STEP_WAIT;
}

/* The same bytes once more, not before its time, whoever wakes it. */
static enum bwi_step create_later(struct bwi_decide *d) {
    d->state = DECIDE_CREATE;
    d->retry_ns = bwi_backoff_next(&d->backoff, d->ctx, bwi_loop_now_ns(d->task.loop));
    bwi_task_wake_at(&d->task, d->retry_ns);
    return BWI_STEP_WAIT;
}

/* The create failed. Whether the entry exists all the same is asked before anything is said. */
static enum bwi_step look(struct bwi_decide *d) {
    d->state = DECIDE_LOOK;
    bwi_call_get(&d->list, &d->task, d->ctx->tier[BWI_TIER_REMOTE], d->key.s, BWI_ENTRY_BYTES_MAX);
    return BWI_STEP_WAIT;
}

static enum bwi_step created(struct bwi_decide *d) {
    const struct bw_error *e = &d->call.op.error;
    if (e->status == BW_E_EXISTS) return start_over(d);
    if (e->status == BW_E_UNKNOWN || e->status == BW_E_TIMEOUT) d->unsure = true;
    if (e->status < 0) return look(d);
    struct bwi_key prefix = bwi_key_history(d->ctx->run);
    d->state = DECIDE_LISTED;
    bwi_call_list(&d->list, &d->task, d->ctx->tier[BWI_TIER_REMOTE], prefix.s, NULL);
    return BWI_STEP_WAIT;
}

/* n + 1 may still appear where an answer was lost, so the same bytes are sent again until it exists; only a store that
 * surely did not do it, none of the times it was asked, ends the decision with its error. */
static enum bwi_step looked(struct bwi_decide *d) {
    const struct bw_error *asked = &d->list.op.error, *sent = &d->call.op.error;
    bool there = asked->status == 0;
    bool surely_not = asked->status == BW_E_NOTFOUND && !d->unsure;
    if (there && !bwi_span_eq(bwi_buf_span(&d->list.op.body), bwi_buf_span(&d->bytes))) return start_over(d);
    if (surely_not) return fail(d, sent);
    if (asked->status == BW_E_CORRUPT) return start_over(d); /* no file: the head tells what is there */
    if (out_of_time(d)) {
        bwi_error_set(&d->task.error, BW_E_UNKNOWN, "%s", sent->message);
        bwi_error_wrap(&d->task.error, "history entry %06u.%020llu may or may not exist", d->entry.era,
                       (unsigned long long)d->entry.n);
        return end(d);
    }
    return create_later(d);
}

static enum bwi_step listed(struct bwi_decide *d) {
    const struct bw_error *e = &d->list.op.error;
    if (e->status < 0 && out_of_time(d)) {
        bwi_error_set(&d->task.error, BW_E_UNKNOWN, "%s", e->message);
        return end(d);
    }
    if (e->status < 0) return create_later(d); /* as if the create had had no answer */
    if (bwi_head_is_stray(&d->list.op.names, d->entry.era, d->entry.n)) {
        d->state = DECIDE_UNDONE;
        bwi_call_prepare(&d->call, BWI_STORE_DELETE, d->key.s);
        bwi_call_submit(&d->call, &d->task, d->ctx->tier[BWI_TIER_REMOTE]);
        return BWI_STEP_WAIT;
    }
    bwi_head_fini(&d->head);
    d->head.found = true;
    d->head.entry = d->entry;
    d->head.sha = bwi_sha_of(bwi_buf_span(&d->bytes));
    d->ctx->durable_head = d->head.sha;
    d->entry = (struct bwi_entry){0};
    d->created = true;
    d->trim_at = 0;
    d->state = DECIDE_TRIM;
    return BWI_STEP_AGAIN;
}

/* Oldest first, so that what is left is always the end of the log. Failures are nobody's error: the next decision trims
 * again. */
static enum bwi_step trim(struct bwi_decide *d) {
    const struct bwi_entry *e = &d->head.entry;
    uint32_t era;
    uint64_t n;
    while (d->trim_at < DECIDE_TRIM_MAX && d->trim_at < d->list.op.names.len) {
        size_t i = d->trim_at++;
        if (!bwi_head_name(&d->list.op.names, i, &era, &n) || era > e->era || n + BWI_HISTORY_KEPT > e->n) continue;
        struct bwi_key key = bwi_key_entry(d->ctx->run, era, n);
        bwi_call_prepare(&d->call, BWI_STORE_DELETE, key.s);
        bwi_call_submit(&d->call, &d->task, d->ctx->tier[BWI_TIER_REMOTE]);
        return BWI_STEP_WAIT;
    }
    return end(d);
}

static enum bwi_step decide_step(struct bwi_task *t) {
    struct bwi_decide *d = bwi_container_of(t, struct bwi_decide, task);
    if (t->pending) return BWI_STEP_WAIT;
    switch ((enum decide_state)d->state) {
    case DECIDE_QUEUE:
        if (d->ctx->deciding != d && out_of_time(d)) return give_up(d, "others of this process are deciding");
        if (d->ctx->deciding != d) return wait_in_line(d);
        d->state = DECIDE_READ;
        return BWI_STEP_AGAIN;
    case DECIDE_READ: return read_head(d);
    case DECIDE_COMPUTE: return compute(d);
    case DECIDE_SETTLED: return settled(d);
    case DECIDE_CREATE:
        if (!out_of_time(d) && bwi_loop_now_ns(t->loop) < d->retry_ns) {
            bwi_task_wake_at(t, d->retry_ns);
            return BWI_STEP_WAIT;
        }
        return create(d);
    case DECIDE_CREATED: return created(d);
    case DECIDE_LOOK: return looked(d);
    case DECIDE_LISTED: return listed(d);
    case DECIDE_UNDONE: return start_over(d);
    case DECIDE_SYNCED: return synced(d);
    case DECIDE_TRIM: break;
    }
    return trim(d);
}

void bwi_decide_start(struct bwi_decide *d, struct bwi_loop *loop, struct bwi_task *parent) {
    d->task.step = decide_step;
    d->task.name = "decide";
    d->state = DECIDE_QUEUE;
    struct bwi_decide **at = &d->ctx->deciding;
    while (*at) at = &(*at)->next_in_line;
    *at = d;
    bwi_task_start(loop, &d->task, parent);
}

void bwi_decide_fini(struct bwi_decide *d) {
    bwi_head_fini(&d->head);
    bwi_buf_fini(&d->bytes);
    bwi_entry_fini(&d->entry);
}
