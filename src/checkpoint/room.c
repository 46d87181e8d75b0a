/* SPDX-License-Identifier: Apache-2.0 */
/* Makes room for a group's next save on the local tier: finds what lies there of the group, asks the policy, and
 * evicts, until the policy asks for nothing more. doc/flows/prune.md.
 *
 * What cannot be evicted (somebody works on it, or the disk refuses) is passed over; that matters only if the save does
 * not fit because of it. */
#include "checkpoint/room.h"
#include "base/error.h"
#include "base/vec.h"
#include "checkpoint/names.h"
#include "checkpoint/window.h"
#include <inttypes.h>
#include <string.h>

enum room_state {
    ROOM_LIST,
    ROOM_LISTED,
    ROOM_SUMMARIES,
    ROOM_DATA,
    ROOM_ASK_SPACE,
    ROOM_DECIDE,
    ROOM_EVICT, /* the next one that is marked */
    ROOM_LOCKED,
    ROOM_SYNC,
    ROOM_SYNCED,
    ROOM_DELETED,
    ROOM_TIDY,
    ROOM_TIDIED,
    ROOM_LAYOUTS, /* those that nothing here needs any more */
    ROOM_LAYOUTS_LISTED,
    ROOM_LAYOUT,
    ROOM_END,
};

/* What the listings said of the copy with the same number. */
struct seen {
    bool fan_out;
    bool in_checkpoints, in_data;
    bool has_data;
};

struct bwi_room_work {
    struct bwi_call lists[2]; /* checkpoints/ and data/<ff>/, or layouts/ */
    struct bwi_call space, call, lock;
    struct bwi_store_lock *held;
    struct bwi_window window;
    struct bwi_local_copy *copies;
    struct seen *seen;
    size_t count, copies_cap, seen_cap;
    struct bwi_id *busy; /* the caller's, and what could not be evicted */
    size_t busy_count, busy_cap;
    bool only_garbage;     /* of the first round: its bytes are not known, so the space is asked for again */
    size_t at;             /* copy that is being evicted; layout that is looked at */
    struct bw_error first; /* why something could not be evicted */
};

static struct bwi_store *local(const struct bwi_room *r) {
    return r->ctx->tier[BWI_TIER_LOCAL];
}

static enum bwi_step go(struct bwi_room *r, enum room_state to) {
    r->state = (int)to;
    return BWI_STEP_AGAIN;
}

static enum bwi_step wait_in(struct bwi_room *r, enum room_state in) {
    r->state = (int)in;
    return BWI_STEP_WAIT;
}

static enum bwi_step fail(struct bwi_room *r, const struct bw_error *e) {
    (void)bwi_error_copy(&r->task.error, e);
    return go(r, ROOM_END);
}

static enum bwi_step cancelled(struct bwi_room *r) {
    (void)bwi_error_set(&r->task.error, BW_E_CANCELLED, "cancelled");
    return go(r, ROOM_END);
}

static void send(struct bwi_room *r, struct bwi_call *c, enum bwi_store_verb verb, const char *key) {
    bwi_call_prepare(c, verb, key);
    bwi_call_submit(c, &r->task, local(r));
}

static bool is_busy(const struct bwi_room_work *w, const struct bwi_id *id) {
    for (size_t i = 0; i < w->busy_count; i++)
        if (bwi_id_eq(&w->busy[i], id)) return true;
    return false;
}

static int add_busy(struct bwi_room_work *w, const struct bwi_id *id, struct bw_error *err) {
    void *grown = w->busy;
    const bool ok = bwi_vec_reserve(&grown, &w->busy_cap, w->busy_count + 1, sizeof *w->busy);
    w->busy = grown;
    if (!ok) return bwi_error_nomem(err, sizeof *id, "making room");
    w->busy[w->busy_count++] = *id;
    return 0;
}

/* data/<ff>/<id>/ */
static struct bwi_key data_dir_of(const struct bwi_room *r, bool fan_out, const struct bwi_id *id) {
    struct bwi_key key = bwi_key_data_of(r->ctx->run, fan_out, id, r->group);
    const size_t len = strlen(key.s);
    if (len > sizeof "000000") key.s[len - sizeof "000000"] = '\0'; /* "<group>/" is as long */
    return key;
}

/* ---- what is there ---- */

static struct bwi_key data_prefix(const struct bwi_room *r) {
    char ff[3];
    struct bwi_key key = bwi_key_data(r->ctx->run);
    const size_t len = strlen(key.s);
    bwi_fan_out_text(r->fan_out, r->group, ff);
    if (len + sizeof "ff/" <= sizeof key.s) {
        memcpy(key.s + len, ff, 2);
        memcpy(key.s + len + 2, "/", 2);
    }
    return key;
}

static enum bwi_step list(struct bwi_room *r) {
    const struct bwi_key checkpoints = bwi_key_checkpoints(r->ctx->run);
    const struct bwi_key data = data_prefix(r);
    bwi_call_list(&r->w->lists[0], &r->task, local(r), checkpoints.s, NULL);
    bwi_call_list(&r->w->lists[1], &r->task, local(r), data.s, NULL);
    return wait_in(r, ROOM_LISTED);
}

static int add_copy(struct bwi_room *r, const struct bwi_id *id, bool in_data, struct bw_error *err) {
    struct bwi_room_work *w = r->w;
    size_t i = 0;
    while (i < w->count && !bwi_id_eq(&w->copies[i].id, id)) i++;
    if (i == w->count) {
        void *copies = w->copies;
        void *seen = w->seen;
        bool ok = bwi_vec_reserve(&copies, &w->copies_cap, w->count + 1, sizeof *w->copies);
        w->copies = copies;
        ok = ok && bwi_vec_reserve(&seen, &w->seen_cap, w->count + 1, sizeof *w->seen);
        w->seen = seen;
        if (!ok) return bwi_error_nomem(err, sizeof *w->copies, "making room");
        const struct bwi_kept *newest = bwi_policy_newest(r->head);
        w->copies[i] = (struct bwi_local_copy){.id = *id, .fate = bwi_policy_fate(r->head, id)};
        w->copies[i].newest = newest != NULL && bwi_id_eq(&newest->id, id);
        w->seen[i] = (struct seen){.fan_out = r->fan_out};
        w->count++;
    }
    if (in_data)
        w->seen[i].in_data = true;
    else
        w->seen[i].in_checkpoints = true;
    return 0;
}

static enum bwi_step listed(struct bwi_room *r) {
    struct bwi_room_work *w = r->w;
    for (int l = 0; l < 2; l++) {
        const struct bwi_store_op *op = &w->lists[l].op;
        if (op->error.status < 0) return fail(r, &op->error);
        for (size_t i = 0; i < op->names.len; i++) {
            struct bwi_id id;
            if (!bwi_names_id(&op->names, i, &id)) continue;
            if (add_copy(r, &id, l == 1, &r->task.error) < 0) return go(r, ROOM_END);
        }
    }
    bwi_call_fini(&w->lists[0]);
    bwi_call_fini(&w->lists[1]);
    bwi_window_begin(&w->window);
    return go(r, ROOM_SUMMARIES);
}

static bool send_summary(void *user, size_t i, struct bwi_call *call) {
    struct bwi_room *r = user;
    if (!r->w->seen[i].in_checkpoints) return false;
    const struct bwi_key key = bwi_key_summary(r->ctx->run, &r->w->copies[i].id, r->group);
    bwi_call_get(call, &r->task, local(r), key.s, BWI_SUMMARY_BYTES_MAX);
    return true;
}

/* A damaged summary is none. One of a version that we do not know is nothing that we could judge. */
static void take_summary(void *user, size_t i, struct bwi_store_op *op, struct bw_error *err) {
    struct bwi_room *r = user;
    struct bwi_local_copy *c = &r->w->copies[i];
    struct bwi_summary s;
    int rc = op->error.status;
    if (rc == 0) rc = bwi_summary_decode(bwi_buf_span(&op->body), &s, NULL);
    if (rc == BW_E_NOTFOUND || rc == BW_E_CORRUPT || rc == BW_E_FORMAT) return;
    c->foreign = rc == BW_E_VERSION;
    if (rc < 0 && op->error.status < 0) (void)bwi_error_copy(err, &op->error);
    if (rc < 0 || !bwi_id_eq(&s.id, &c->id) || s.group != r->group) return;
    c->foreign = !bwi_policy_in_lineage(r->head, &s.uuid);
    c->complete = !c->foreign;
    c->bytes = s.stored_bytes;
    c->ref_count = s.ref_count;
    memcpy(c->refs, s.refs, sizeof c->refs);
    r->w->seen[i].fan_out = s.fan_out;
}

/* Of data without a summary only what may go is of interest. */
static bool send_data(void *user, size_t i, struct bwi_call *call) {
    struct bwi_room *r = user;
    const struct bwi_local_copy *c = &r->w->copies[i];
    if (!r->w->seen[i].in_data || c->complete || c->foreign || is_busy(r->w, &c->id)) return false;
    if (c->fate == BWI_FATE_AHEAD || c->fate == BWI_FATE_COMMITTABLE) return false;
    const struct bwi_key key = data_dir_of(r, r->w->seen[i].fan_out, &c->id);
    bwi_call_list(call, &r->task, local(r), key.s, NULL);
    return true;
}

static void take_data(void *user, size_t i, struct bwi_store_op *op, struct bw_error *err) {
    struct bwi_room *r = user;
    (void)bwi_error_copy(err, &op->error);
    for (size_t n = 0; n < op->names.len; n++) {
        uint32_t group;
        if (bwi_names_group(&op->names, n, true, &group) && group == r->group) r->w->seen[i].has_data = true;
    }
}

/* Only what is a copy of this group stays in the list. */
static void drop_others(struct bwi_room_work *w) {
    size_t kept = 0;
    for (size_t i = 0; i < w->count; i++) {
        if (!w->copies[i].complete && !w->copies[i].foreign && !w->seen[i].has_data) continue;
        w->copies[kept] = w->copies[i];
        w->seen[kept++] = w->seen[i];
    }
    w->count = kept;
}

static enum bwi_step read_window(struct bwi_room *r, const struct bwi_window_ops *ops, enum room_state then) {
    if (r->task.cancel) (void)bwi_error_set(&r->task.error, BW_E_CANCELLED, "cancelled");
    const int rc = bwi_window_run(&r->w->window, r->w->count, ops, r, &r->task.error);
    if (rc == 0) return BWI_STEP_WAIT;
    if (rc < 0) return go(r, ROOM_END);
    if (then == ROOM_ASK_SPACE) drop_others(r->w);
    bwi_window_begin(&r->w->window);
    return go(r, then);
}

/* ---- what goes ---- */

static enum bwi_step ask_space(struct bwi_room *r) {
    if (!local(r)->caps.has_space) {
        bwi_call_fini(&r->w->space);
        r->w->space.op.free_bytes = UINT64_MAX;
        return go(r, ROOM_DECIDE);
    }
    send(r, &r->w->space, BWI_STORE_SPACE, "");
    return wait_in(r, ROOM_DECIDE);
}

static enum bwi_step decide(struct bwi_room *r) {
    struct bwi_room_work *w = r->w;
    if (w->space.op.error.status < 0) return fail(r, &w->space.op.error);
    const uint64_t need = w->only_garbage ? 0 : r->need_bytes;
    const uint64_t quota = w->only_garbage ? 0 : r->quota_bytes;
    const uint64_t beside = w->only_garbage ? 0 : r->beside_bytes;
    const uint64_t room = w->space.op.free_bytes > beside ? w->space.op.free_bytes - beside : 0;
    r->fits = bwi_policy_evict(w->copies, w->count, w->busy, w->busy_count, need, quota, room);
    bool any = false;
    for (size_t i = 0; i < w->count; i++) any = any || w->copies[i].evict;
    w->at = 0;
    if (any) return go(r, ROOM_EVICT);
    if (w->only_garbage) {
        w->only_garbage = false;
        return go(r, ROOM_DECIDE);
    }
    if (!r->fits) (void)bwi_error_copy(&r->task.error, &w->first);
    return go(r, r->evicted > 0 ? ROOM_LAYOUTS : ROOM_END);
}

/* ---- one eviction: the summary first, then the data, then what is empty ---- */

static enum bwi_step next_eviction(struct bwi_room *r) {
    struct bwi_room_work *w = r->w;
    if (r->task.cancel) return cancelled(r);
    while (w->at < w->count && !w->copies[w->at].evict) w->at++;
    if (w->at == w->count) {
        w->only_garbage = false;
        return go(r, ROOM_ASK_SPACE);
    }
    const struct bwi_key key = bwi_key_data_of(r->ctx->run, w->seen[w->at].fan_out, &w->copies[w->at].id, r->group);
    send(r, &w->lock, BWI_STORE_LOCK, key.s);
    return wait_in(r, ROOM_LOCKED);
}

static enum bwi_step unlock(struct bwi_room *r, enum room_state then) {
    struct bwi_room_work *w = r->w;
    if (w->held == NULL) return go(r, then);
    const struct bwi_key key = bwi_key_data_of(r->ctx->run, w->seen[w->at].fan_out, &w->copies[w->at].id, r->group);
    bwi_call_prepare(&w->lock, BWI_STORE_UNLOCK, key.s);
    w->lock.op.lock = w->held;
    w->held = NULL;
    bwi_call_submit(&w->lock, &r->task, local(r));
    return wait_in(r, then);
}

/* This one stays for now. */
static enum bwi_step pass_over(struct bwi_room *r, const struct bw_error *e) {
    struct bwi_room_work *w = r->w;
    if (e->status != BW_E_BUSY) (void)bwi_error_copy(&w->first, e);
    (void)add_busy(w, &w->copies[w->at].id, &r->task.error);
    w->copies[w->at].evict = false;
    return unlock(r, r->task.error.status < 0 ? ROOM_END : ROOM_EVICT);
}

/* A full disk may have no room for the lock's file, and is the one that needs this most. */
static enum bwi_step locked(struct bwi_room *r) {
    struct bwi_room_work *w = r->w;
    const struct bw_error *e = &w->lock.op.error;
    if (e->status < 0 && e->status != BW_E_NOSPACE) return pass_over(r, e);
    w->held = w->lock.op.lock;
    const struct bwi_key key = bwi_key_summary(r->ctx->run, &w->copies[w->at].id, r->group);
    send(r, &w->call, BWI_STORE_DELETE, key.s);
    return wait_in(r, ROOM_SYNC);
}

/* Data must not be gone after a power cut while its summary is back. */
static enum bwi_step sync_summary(struct bwi_room *r) {
    struct bwi_room_work *w = r->w;
    if (w->call.op.error.status < 0) return pass_over(r, &w->call.op.error);
    w->copies[w->at].complete = false;
    const struct bwi_key key = bwi_key_groups(r->ctx->run, &w->copies[w->at].id);
    send(r, &w->call, BWI_STORE_SYNC, key.s);
    return wait_in(r, ROOM_SYNCED);
}

static enum bwi_step delete_data(struct bwi_room *r) {
    struct bwi_room_work *w = r->w;
    if (w->call.op.error.status < 0) return pass_over(r, &w->call.op.error);
    const struct bwi_key key = bwi_key_data_of(r->ctx->run, w->seen[w->at].fan_out, &w->copies[w->at].id, r->group);
    send(r, &w->call, BWI_STORE_DELETE_PREFIX, key.s);
    return wait_in(r, ROOM_DELETED);
}

static enum bwi_step deleted(struct bwi_room *r) {
    struct bwi_room_work *w = r->w;
    if (w->call.op.error.status < 0) return pass_over(r, &w->call.op.error);
    r->evicted++;
    r->evicted_bytes += w->copies[w->at].bytes;
    return unlock(r, ROOM_TIDY);
}

static enum bwi_step look_for_others(struct bwi_room *r) {
    struct bwi_room_work *w = r->w;
    const struct bwi_id *id = &w->copies[w->at].id;
    const struct bwi_key data = data_dir_of(r, w->seen[w->at].fan_out, id);
    const struct bwi_key groups = bwi_key_groups(r->ctx->run, id);
    bwi_call_list(&w->lists[0], &r->task, local(r), groups.s, NULL);
    bwi_call_list(&w->lists[1], &r->task, local(r), data.s, NULL);
    return wait_in(r, ROOM_TIDIED);
}

/* The last group closes the door. Its leftovers are nobody's hindrance: if they cannot be removed they stay. */
static enum bwi_step tidy(struct bwi_room *r) {
    struct bwi_room_work *w = r->w;
    const struct bwi_id id = w->copies[w->at].id;
    const struct bwi_key data = data_dir_of(r, w->seen[w->at].fan_out, &id);
    const struct bwi_key checkpoint = bwi_key_checkpoint(r->ctx->run, &id);
    const struct bwi_store_op *groups = &w->lists[0].op;
    const struct bwi_store_op *others = &w->lists[1].op;
    const bool no_groups = groups->error.status == 0 && groups->names.len == 0;
    const bool no_data = others->error.status == 0 && others->names.len == 0;
    if (no_groups) send(r, &w->lists[0], BWI_STORE_DELETE_PREFIX, checkpoint.s);
    if (no_data) send(r, &w->lists[1], BWI_STORE_DELETE_PREFIX, data.s);
    w->count--;
    memmove(&w->copies[w->at], &w->copies[w->at + 1], (w->count - w->at) * sizeof *w->copies);
    memmove(&w->seen[w->at], &w->seen[w->at + 1], (w->count - w->at) * sizeof *w->seen);
    return go(r, ROOM_EVICT);
}

/* ---- layouts of past attempts ---- */

static enum bwi_step list_layouts(struct bwi_room *r) {
    const struct bwi_key layouts = bwi_key_layouts(r->ctx->run);
    const struct bwi_key checkpoints = bwi_key_checkpoints(r->ctx->run);
    bwi_call_list(&r->w->lists[0], &r->task, local(r), layouts.s, NULL);
    bwi_call_list(&r->w->lists[1], &r->task, local(r), checkpoints.s, NULL);
    r->w->at = 0;
    return wait_in(r, ROOM_LAYOUTS_LISTED);
}

/* They are small: one that cannot be listed or deleted stays until the next time. */
static enum bwi_step next_layout(struct bwi_room *r) {
    struct bwi_room_work *w = r->w;
    const struct bwi_store_op *layouts = &w->lists[0].op;
    const struct bwi_store_op *checkpoints = &w->lists[1].op;
    if (layouts->error.status < 0 || checkpoints->error.status < 0 || r->task.cancel) return go(r, ROOM_END);
    for (; w->at < layouts->names.len; w->at++) {
        uint32_t attempt, nonce;
        if (!bwi_names_attempt(&layouts->names, w->at, &attempt, &nonce)) continue;
        if (!bwi_policy_layouts_dead(r->head, attempt, nonce)) continue;
        if (bwi_names_have_attempt(&checkpoints->names, attempt, nonce)) continue;
        const struct bwi_key key = bwi_key_layouts_of(r->ctx->run, attempt, nonce);
        send(r, &w->call, BWI_STORE_DELETE_PREFIX, key.s);
        w->at++;
        return wait_in(r, ROOM_LAYOUT);
    }
    return go(r, ROOM_END);
}

/* ---- the task ---- */

static enum bwi_step finish(struct bwi_room *r) {
    struct bwi_room_work *w = r->w;
    (void)bwi_error_wrap(&r->task.error, "making room for group %" PRIu32, r->group);
    if (w != NULL) {
        bwi_call_fini(&w->lists[0]);
        bwi_call_fini(&w->lists[1]);
        bwi_call_fini(&w->space);
        bwi_call_fini(&w->call);
        bwi_call_fini(&w->lock);
        bwi_window_fini(&w->window);
        bwi_free(w->copies);
        bwi_free(w->seen);
        bwi_free(w->busy);
        bwi_free(w);
    }
    r->w = NULL;
    return BWI_STEP_END;
}

static enum bwi_step room_step(struct bwi_task *t) {
    static const struct bwi_window_ops summaries = {send_summary, take_summary};
    static const struct bwi_window_ops data = {send_data, take_data};
    struct bwi_room *r = bwi_container_of(t, struct bwi_room, task);
    const bool windowed = r->state == ROOM_SUMMARIES || r->state == ROOM_DATA;
    if (t->pending > 0 && !windowed) return BWI_STEP_WAIT;
    switch ((enum room_state)r->state) {
    case ROOM_LIST: return list(r);
    case ROOM_LISTED: return listed(r);
    case ROOM_SUMMARIES: return read_window(r, &summaries, ROOM_DATA);
    case ROOM_DATA: return read_window(r, &data, ROOM_ASK_SPACE);
    case ROOM_ASK_SPACE: return ask_space(r);
    case ROOM_DECIDE: return decide(r);
    case ROOM_EVICT: return next_eviction(r);
    case ROOM_LOCKED: return locked(r);
    case ROOM_SYNC: return sync_summary(r);
    case ROOM_SYNCED: return delete_data(r);
    case ROOM_DELETED: return deleted(r);
    case ROOM_TIDY: return look_for_others(r);
    case ROOM_TIDIED: return tidy(r);
    case ROOM_LAYOUTS: return list_layouts(r);
    case ROOM_LAYOUTS_LISTED:
    case ROOM_LAYOUT: return next_layout(r);
    case ROOM_END: break;
    }
    return finish(r);
}

void bwi_room_start(struct bwi_room *r, struct bwi_loop *loop, struct bwi_task *parent) {
    r->task.step = room_step;
    r->task.name = "room";
    r->state = ROOM_LIST;
    r->fits = false;
    r->evicted_bytes = 0;
    r->evicted = 0;
    bwi_task_start(loop, &r->task, parent);
    r->w = bwi_calloc(1, sizeof *r->w);
    if (r->w == NULL) (void)bwi_error_nomem(&r->task.error, sizeof *r->w, "making room");
    for (size_t i = 0; r->w != NULL && i < r->busy_count && r->task.error.status == 0; i++)
        (void)add_busy(r->w, &r->busy[i], &r->task.error);
    if (r->task.error.status < 0) r->state = ROOM_END;
    if (r->w != NULL) r->w->only_garbage = true;
}
