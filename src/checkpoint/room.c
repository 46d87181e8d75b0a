/* SPDX-License-Identifier: Apache-2.0 */
/* Makes room for a group's next save on the local tier: finds what lies there of the group, asks the policy, and
 * evicts, until the policy asks for nothing more. Only if the disk is full all the same, it looks once for what lies
 * there of other groups, and goes on with all of it. doc/flows/prune.md.
 *
 * What cannot be evicted (somebody works on it, or the disk refuses) is passed over; that matters only if the save does
 * not fit because of it. */
#include "checkpoint/room.h"
#include "base/checked.h"
#include "base/error.h"
#include "base/text.h"
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
    ROOM_OTHERS, /* what lies there of other groups */
    ROOM_OTHERS_LISTED,
    ROOM_OTHERS_DATA,
    ROOM_OTHERS_GROUPS,
    ROOM_LAYOUTS, /* those that nothing here needs any more */
    ROOM_LAYOUTS_LISTED,
    ROOM_LAYOUT,
    ROOM_END,
};

/* What the listings said of the copy with the same number. */
struct seen {
    uint32_t group;
    bool fan_out;
    bool in_checkpoints, in_data;
    bool has_data;
    bool is_read; /* its summary */
};

/* A directory whose names are groups: checkpoints/<id>/groups/, or data/<ff>/<id>/. */
struct place {
    struct bwi_id id;
    bool in_data;
    uint8_t ff;
};

#define FAN_OUT_DIRS 256u

struct bwi_room_work {
    struct bwi_call lists[2]; /* checkpoints/ and data/<ff>/, or layouts/ */
    struct bwi_call space, call, lock;
    struct bwi_store_lock *held;
    struct bwi_window window;
    struct bwi_local_copy *copies;
    struct seen *seen;
    size_t count, copies_cap, seen_cap;
    bool only_garbage;         /* of the first round: its bytes are not known, so the space is asked for again */
    bool all_groups;           /* the copies are those of all groups */
    bool leaves_rest;          /* there is room in plenty: only what is written over goes now */
    uint8_t ffs[FAN_OUT_DIRS]; /* of data/ */
    size_t ff_count;
    struct place *places;
    size_t place_count, place_cap;
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

static bool is_busy(const struct bwi_room *r, const struct bwi_id *id) {
    for (size_t i = 0; i < r->busy_count; i++)
        if (bwi_id_eq(&r->busy[i], id)) return true;
    return false;
}

/* data/<ff>/<id>/<group>/ of copy i */
static struct bwi_key data_of(const struct bwi_room *r, size_t i) {
    const struct seen *s = &r->w->seen[i];
    return bwi_key_data_of(r->ctx->run, s->fan_out, &r->w->copies[i].id, s->group);
}

/* data/<ff>/<id>/ */
static struct bwi_key data_dir_of(const struct bwi_room *r, size_t i) {
    struct bwi_key key = data_of(r, i);
    const size_t len = strlen(key.s);
    if (len > sizeof "000000") key.s[len - sizeof "000000"] = '\0'; /* "<group>/" is as long */
    return key;
}

/* ---- what is there ---- */

/* data/<ff>/ */
static struct bwi_key data_prefix(const struct bwi_room *r, const char ff[3]) {
    struct bwi_key key = bwi_key_data(r->ctx->run);
    const size_t len = strlen(key.s);
    if (len + sizeof "ff/" <= sizeof key.s) {
        memcpy(key.s + len, ff, 2);
        memcpy(key.s + len + 2, "/", 2);
    }
    return key;
}

static enum bwi_step list(struct bwi_room *r) {
    char ff[3];
    bwi_fan_out_text(r->fan_out, r->group, ff);
    const struct bwi_key checkpoints = bwi_key_checkpoints(r->ctx->run);
    const struct bwi_key data = data_prefix(r, ff);
    bwi_call_list(&r->w->lists[0], &r->task, local(r), checkpoints.s, NULL);
    bwi_call_list(&r->w->lists[1], &r->task, local(r), data.s, NULL);
    return wait_in(r, ROOM_LISTED);
}

/* NULL: out of memory. */
static struct seen *add_copy(struct bwi_room *r, const struct bwi_id *id, uint32_t group, struct bw_error *err) {
    struct bwi_room_work *w = r->w;
    size_t i = 0;
    while (i < w->count && !(w->seen[i].group == group && bwi_id_eq(&w->copies[i].id, id))) i++;
    if (i == w->count) {
        void *copies = w->copies;
        void *seen = w->seen;
        bool ok = bwi_vec_reserve(&copies, &w->copies_cap, w->count + 1, sizeof *w->copies);
        w->copies = copies;
        ok = ok && bwi_vec_reserve(&seen, &w->seen_cap, w->count + 1, sizeof *w->seen);
        w->seen = seen;
        if (!ok) {
            (void)bwi_error_nomem(err, sizeof *w->copies, "making room");
            return NULL;
        }
        const struct bwi_kept *newest = bwi_policy_newest(r->head);
        w->copies[i] = (struct bwi_local_copy){.id = *id, .fate = bwi_policy_fate(r->head, id)};
        w->copies[i].newest = newest != NULL && bwi_id_eq(&newest->id, id);
        w->copies[i].other = group != r->group;
        w->seen[i] = (struct seen){.group = group, .fan_out = r->fan_out};
        w->count++;
    }
    return &w->seen[i];
}

static enum bwi_step listed(struct bwi_room *r) {
    struct bwi_room_work *w = r->w;
    for (int l = 0; l < 2; l++) {
        const struct bwi_store_op *op = &w->lists[l].op;
        if (op->error.status < 0) return fail(r, &op->error);
        for (size_t i = 0; i < op->names.len; i++) {
            struct bwi_id id;
            if (!bwi_names_id(&op->names, i, &id)) continue;
            struct seen *s = add_copy(r, &id, r->group, &r->task.error);
            if (s == NULL) return go(r, ROOM_END);
            *(l == 0 ? &s->in_checkpoints : &s->in_data) = true;
        }
    }
    bwi_call_fini(&w->lists[0]);
    bwi_call_fini(&w->lists[1]);
    bwi_window_begin(&w->window);
    return go(r, ROOM_SUMMARIES);
}

static bool send_summary(void *user, size_t i, struct bwi_call *call) {
    struct bwi_room *r = user;
    const struct seen *s = &r->w->seen[i];
    if (!s->in_checkpoints || s->is_read) return false;
    const struct bwi_key key = bwi_key_summary(r->ctx->run, &r->w->copies[i].id, s->group);
    bwi_call_get(call, &r->task, local(r), key.s, BWI_SUMMARY_BYTES_MAX);
    return true;
}

/* A damaged summary is none. One of a version that we do not know is nothing that we could judge. */
static void take_summary(void *user, size_t i, struct bwi_store_op *op, struct bw_error *err) {
    struct bwi_room *r = user;
    struct bwi_local_copy *c = &r->w->copies[i];
    struct bwi_summary s = {0};
    int rc = op->error.status;
    r->w->seen[i].is_read = true;
    if (rc == 0) rc = bwi_summary_decode(bwi_buf_span(&op->body), &s, NULL);
    if (rc == BW_E_NOTFOUND || rc == BW_E_CORRUPT || rc == BW_E_FORMAT) return;
    c->foreign = rc == BW_E_VERSION;
    if (rc < 0 && op->error.status < 0) (void)bwi_error_copy(err, &op->error);
    if (rc < 0 || !bwi_id_eq(&s.id, &c->id) || s.group != r->w->seen[i].group) return;
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
    if (!r->w->seen[i].in_data || c->other || c->complete || c->foreign || is_busy(r, &c->id)) return false;
    if (c->fate == BWI_FATE_AHEAD || c->fate == BWI_FATE_COMMITTABLE) return false;
    const struct bwi_key key = data_dir_of(r, i);
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

/* Whether an attempt is of this run's life: the current one, or one that a sound summary here tells of. */
static bool is_of_this_life(const struct bwi_room *r, const struct bwi_id *id) {
    const struct bwi_room_work *w = r->w;
    if (bwi_policy_is_current(r->head, id->attempt, id->nonce)) return true;
    for (size_t i = 0; i < w->count; i++)
        if (w->copies[i].complete && w->copies[i].id.attempt == id->attempt && w->copies[i].id.nonce == id->nonce)
            return true;
    return false;
}

/* Data of other groups without a summary may be what a job of another life is writing at this moment. */
static void spare_other_lives(struct bwi_room *r) {
    for (size_t i = 0; i < r->w->count; i++) {
        struct bwi_local_copy *c = &r->w->copies[i];
        if (c->other && !c->complete && c->fate == BWI_FATE_DEAD && !is_of_this_life(r, &c->id)) c->foreign = true;
    }
}

/* Only what is there stays in the list. */
static void drop_absent(struct bwi_room_work *w) {
    size_t kept = 0;
    for (size_t i = 0; i < w->count; i++) {
        if (!w->copies[i].complete && !w->copies[i].foreign && !w->seen[i].has_data) continue;
        w->copies[kept] = w->copies[i];
        w->seen[kept++] = w->seen[i];
    }
    w->count = kept;
}

static enum bwi_step read_window(struct bwi_room *r, size_t count, const struct bwi_window_ops *ops,
                                 enum room_state then) {
    if (r->task.cancel) (void)bwi_error_set(&r->task.error, BW_E_CANCELLED, "cancelled");
    const int rc = bwi_window_run(&r->w->window, count, ops, r, &r->task.error);
    if (rc == 0) return BWI_STEP_WAIT;
    if (rc < 0) return go(r, ROOM_END);
    if (then == ROOM_ASK_SPACE) {
        spare_other_lives(r);
        drop_absent(r->w);
    }
    bwi_window_begin(&r->w->window);
    return go(r, then);
}

/* ---- what is there of other groups ---- */

static enum bwi_step list_others(struct bwi_room *r) {
    const struct bwi_key checkpoints = bwi_key_checkpoints(r->ctx->run);
    const struct bwi_key data = bwi_key_data(r->ctx->run);
    r->w->all_groups = true;
    r->w->only_garbage = true;
    bwi_call_list(&r->w->lists[0], &r->task, local(r), checkpoints.s, NULL);
    bwi_call_list(&r->w->lists[1], &r->task, local(r), data.s, NULL);
    return wait_in(r, ROOM_OTHERS_LISTED);
}

/* The places among the names of a listing: of checkpoints/, or of data/<ff>/. */
static void add_places(struct bwi_room_work *w, const struct bwi_store_names *names, bool in_data, uint8_t ff,
                       struct bw_error *err) {
    for (size_t i = 0; i < names->len && err->status == 0; i++) {
        struct bwi_id id;
        if (!bwi_names_id(names, i, &id)) continue;
        void *grown = w->places;
        const bool ok = bwi_vec_reserve(&grown, &w->place_cap, w->place_count + 1, sizeof *w->places);
        w->places = grown;
        if (ok)
            w->places[w->place_count++] = (struct place){id, in_data, ff};
        else
            (void)bwi_error_nomem(err, sizeof *w->places, "making room");
    }
}

static enum bwi_step others_listed(struct bwi_room *r) {
    struct bwi_room_work *w = r->w;
    const struct bwi_store_names *data = &w->lists[1].op.names;
    for (int l = 0; l < 2; l++)
        if (w->lists[l].op.error.status < 0) return fail(r, &w->lists[l].op.error);
    add_places(w, &w->lists[0].op.names, false, 0, &r->task.error);
    for (size_t i = 0; i < data->len && w->ff_count < FAN_OUT_DIRS; i++) {
        uint64_t ff;
        if (strlen(data->name[i]) != 3 || data->name[i][2] != '/' || !bwi_hex_u64(data->name[i], 2, &ff)) continue;
        w->ffs[w->ff_count++] = (uint8_t)ff;
    }
    bwi_call_fini(&w->lists[0]);
    bwi_call_fini(&w->lists[1]);
    return go(r, r->task.error.status < 0 ? ROOM_END : ROOM_OTHERS_DATA);
}

static bool send_ff(void *user, size_t i, struct bwi_call *call) {
    struct bwi_room *r = user;
    char ff[3];
    (void)bwi_format(ff, sizeof ff, "%02x", r->w->ffs[i]);
    const struct bwi_key key = data_prefix(r, ff);
    bwi_call_list(call, &r->task, local(r), key.s, NULL);
    return true;
}

static void take_ff(void *user, size_t i, struct bwi_store_op *op, struct bw_error *err) {
    struct bwi_room *r = user;
    (void)bwi_error_copy(err, &op->error);
    add_places(r->w, &op->names, true, r->w->ffs[i], err);
}

/* Data that may still be committed is of no interest, so only its summaries are looked for: what they refer to stays.
 */
static bool send_groups(void *user, size_t i, struct bwi_call *call) {
    struct bwi_room *r = user;
    const struct place *p = &r->w->places[i];
    struct bwi_key key = bwi_key_groups(r->ctx->run, &p->id);
    if (p->in_data) {
        const enum bwi_fate fate = bwi_policy_fate(r->head, &p->id);
        if (fate == BWI_FATE_AHEAD || fate == BWI_FATE_COMMITTABLE || is_busy(r, &p->id)) return false;
        char ff[3];
        char id[BWI_ID_TEXT_BYTES];
        (void)bwi_format(ff, sizeof ff, "%02x", p->ff);
        bwi_id_text(&p->id, id);
        (void)bwi_format(key.s, sizeof key.s, "%s%s/", data_prefix(r, ff).s, id);
    }
    bwi_call_list(call, &r->task, local(r), key.s, NULL);
    return true;
}

/* Whether data/<ff>/ is where the data of this group lies, and in which kind of attempt. */
static bool belongs(uint8_t ff, uint32_t group, bool *ret_fan_out) {
    char want[3];
    char is[3];
    (void)bwi_format(is, sizeof is, "%02x", ff);
    bwi_fan_out_text(true, group, want);
    *ret_fan_out = strcmp(is, want) == 0;
    return *ret_fan_out || ff == 0;
}

static void take_groups(void *user, size_t i, struct bwi_store_op *op, struct bw_error *err) {
    struct bwi_room *r = user;
    const struct place p = r->w->places[i];
    (void)bwi_error_copy(err, &op->error);
    for (size_t n = 0; n < op->names.len && err->status == 0; n++) {
        uint32_t group;
        bool fan_out = r->fan_out;
        if (!bwi_names_group(&op->names, n, p.in_data, &group) || group == r->group) continue;
        if (p.in_data && !belongs(p.ff, group, &fan_out)) continue;
        struct seen *s = add_copy(r, &p.id, group, err);
        if (s == NULL) return;
        if (p.in_data) s->fan_out = fan_out;
        *(p.in_data ? &s->has_data : &s->in_checkpoints) = true;
    }
}

/* ---- what goes ---- */

static uint64_t add(uint64_t a, uint64_t b) {
    uint64_t sum = UINT64_MAX;
    (void)bwi_add_u64(a, b, &sum);
    return sum;
}

/* The quota is for packs alone: what lies beside them is added on both sides. */
static uint64_t need_of(const struct bwi_room *r) {
    return add(r->need_bytes, r->beside_bytes);
}

static uint64_t quota_of(const struct bwi_room *r) {
    return r->quota_bytes == 0 ? 0 : add(r->quota_bytes, r->beside_bytes);
}

static enum bwi_step ask_space(struct bwi_room *r) {
    if (!local(r)->caps.has_space) {
        bwi_call_fini(&r->w->space);
        r->w->space.op.free_bytes = UINT64_MAX;
        return go(r, ROOM_DECIDE);
    }
    send(r, &r->w->space, BWI_STORE_SPACE, "");
    return wait_in(r, ROOM_DECIDE);
}

/* What other groups have is of no help against the quota, which counts this group alone. */
static bool others_may_help(struct bwi_room *r, uint64_t need, uint64_t quota) {
    struct bwi_room_work *w = r->w;
    return !w->all_groups && r->head != NULL &&
           bwi_policy_evict(w->copies, w->count, r->busy, r->busy_count, need, quota, UINT64_MAX);
}

/* A disk that has refused a write has as much as was taken from it here, whatever it shows. */
static uint64_t free_space(const struct bwi_room *r) {
    const uint64_t shown = r->w->space.op.free_bytes;
    return r->refused ? bwi_min_u64(shown, add(r->beside_bytes, r->evicted_bytes)) : shown;
}

static enum bwi_step end(struct bwi_room *r) {
    return go(r, r->evicted > 0 ? ROOM_LAYOUTS : ROOM_END);
}

static bool may_leave(const struct bwi_room *r) {
    struct bwi_room_work *w = r->w;
    return w->only_garbage && r->may_wait && !r->refused &&
           bwi_policy_evict_later(w->copies, w->count, r->busy, r->busy_count, need_of(r), quota_of(r),
                                  w->space.op.free_bytes);
}

/* What is written over is not deleted, so it takes no time that the save could wait for; and it is there in time. */
static enum bwi_step leave_rest(struct bwi_room *r) {
    struct bwi_room_work *w = r->w;
    w->leaves_rest = r->fits = true;
    w->at = 0;
    return bwi_policy_recycle(w->copies, w->count, r->busy, r->busy_count, r->recycle_bytes) ? go(r, ROOM_EVICT)
                                                                                             : end(r);
}

/* For the next save: deleting it would take time, and take it away from there. */
static void leave_for_next(struct bwi_room *r) {
    struct bwi_room_work *w = r->w;
    if (!w->only_garbage || r->leave_bytes == 0 ||
        !bwi_policy_evict_later(w->copies, w->count, r->busy, r->busy_count, r->leave_bytes, 0,
                                w->space.op.free_bytes) ||
        !bwi_policy_recycle(w->copies, w->count, r->busy, r->busy_count, r->leave_bytes))
        return;
    for (size_t i = 0; i < w->count; i++) w->copies[i].stays |= w->copies[i].evict;
}

static enum bwi_step decide(struct bwi_room *r) {
    struct bwi_room_work *w = r->w;
    if (w->space.op.error.status < 0) return fail(r, &w->space.op.error);
    const uint64_t need = w->only_garbage ? 0 : need_of(r);
    const uint64_t quota = w->only_garbage ? 0 : quota_of(r);
    if (may_leave(r)) return leave_rest(r);
    leave_for_next(r);
    r->fits = bwi_policy_evict(w->copies, w->count, r->busy, r->busy_count, need, quota, free_space(r));
    bool any = false;
    for (size_t i = 0; i < w->count; i++) any = any || w->copies[i].evict;
    w->at = 0;
    if (any) return go(r, ROOM_EVICT);
    if (w->only_garbage) {
        w->only_garbage = false;
        return go(r, ROOM_DECIDE);
    }
    if (!r->fits && others_may_help(r, need, quota)) return go(r, ROOM_OTHERS);
    if (!r->fits && r->refused) {
        r->refused = false;
        return go(r, ROOM_DECIDE);
    }
    if (!r->fits) (void)bwi_error_copy(&r->task.error, &w->first);
    return end(r);
}

/* ---- one eviction: the summary first, then the data, then what is empty ---- */

static enum bwi_step next_eviction(struct bwi_room *r) {
    struct bwi_room_work *w = r->w;
    if (r->task.cancel) return cancelled(r);
    while (w->at < w->count && !w->copies[w->at].evict) w->at++;
    if (w->at == w->count && w->leaves_rest) return end(r);
    if (w->at == w->count) {
        w->only_garbage = false;
        return go(r, ROOM_ASK_SPACE);
    }
    const struct bwi_key key = data_of(r, w->at);
    send(r, &w->lock, BWI_STORE_LOCK, key.s);
    return wait_in(r, ROOM_LOCKED);
}

static enum bwi_step unlock(struct bwi_room *r, enum room_state then) {
    struct bwi_room_work *w = r->w;
    if (w->held == NULL) return go(r, then);
    const struct bwi_key key = data_of(r, w->at);
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
    w->copies[w->at].stays = true;
    w->copies[w->at].evict = false;
    return unlock(r, ROOM_EVICT);
}

/* A full disk may have no room for the lock's file, and is the one that needs this most. */
static enum bwi_step locked(struct bwi_room *r) {
    struct bwi_room_work *w = r->w;
    const struct bw_error *e = &w->lock.op.error;
    if (e->status < 0 && e->status != BW_E_NOSPACE) return pass_over(r, e);
    w->held = w->lock.op.lock;
    const struct bwi_key key = bwi_key_summary(r->ctx->run, &w->copies[w->at].id, w->seen[w->at].group);
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
    const struct bwi_key key = data_of(r, w->at);
    bwi_call_prepare(&w->call, BWI_STORE_DELETE_PREFIX, key.s);
    w->call.op.keep_bytes = r->recycle_bytes;
    bwi_call_submit(&w->call, &r->task, local(r));
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
    const struct bwi_key data = data_dir_of(r, w->at);
    const struct bwi_key groups = bwi_key_groups(r->ctx->run, id);
    bwi_call_list(&w->lists[0], &r->task, local(r), groups.s, NULL);
    bwi_call_list(&w->lists[1], &r->task, local(r), data.s, NULL);
    return wait_in(r, ROOM_TIDIED);
}

/* The last group closes the door. Its leftovers are nobody's hindrance: if they cannot be removed they stay. */
static enum bwi_step tidy(struct bwi_room *r) {
    struct bwi_room_work *w = r->w;
    const struct bwi_id id = w->copies[w->at].id;
    const struct bwi_key data = data_dir_of(r, w->at);
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
        bwi_free(w->places);
        bwi_free(w);
    }
    r->w = NULL;
    return BWI_STEP_END;
}

/* In these states answers are taken while others are still on their way. */
static bool is_windowed(int state) {
    return state == ROOM_SUMMARIES || state == ROOM_DATA || state == ROOM_OTHERS_DATA || state == ROOM_OTHERS_GROUPS;
}

static enum bwi_step room_step(struct bwi_task *t) {
    static const struct bwi_window_ops summaries = {send_summary, take_summary};
    static const struct bwi_window_ops data = {send_data, take_data};
    static const struct bwi_window_ops others = {send_ff, take_ff};
    static const struct bwi_window_ops groups = {send_groups, take_groups};
    struct bwi_room *r = bwi_container_of(t, struct bwi_room, task);
    if (t->pending > 0 && !is_windowed(r->state)) return BWI_STEP_WAIT;
    switch ((enum room_state)r->state) {
    case ROOM_LIST: return list(r);
    case ROOM_LISTED: return listed(r);
    case ROOM_SUMMARIES: return read_window(r, r->w->count, &summaries, ROOM_DATA);
    case ROOM_DATA: return read_window(r, r->w->count, &data, ROOM_ASK_SPACE);
    case ROOM_ASK_SPACE: return ask_space(r);
    case ROOM_DECIDE: return decide(r);
    case ROOM_EVICT: return next_eviction(r);
    case ROOM_LOCKED: return locked(r);
    case ROOM_SYNC: return sync_summary(r);
    case ROOM_SYNCED: return delete_data(r);
    case ROOM_DELETED: return deleted(r);
    case ROOM_TIDY: return look_for_others(r);
    case ROOM_TIDIED: return tidy(r);
    case ROOM_OTHERS: return list_others(r);
    case ROOM_OTHERS_LISTED: return others_listed(r);
    case ROOM_OTHERS_DATA: return read_window(r, r->w->ff_count, &others, ROOM_OTHERS_GROUPS);
    case ROOM_OTHERS_GROUPS: return read_window(r, r->w->place_count, &groups, ROOM_SUMMARIES);
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
    if (r->task.error.status < 0) r->state = ROOM_END;
    if (r->w != NULL) r->w->only_garbage = true;
}
