/* SPDX-License-Identifier: Apache-2.0 */
/* What a node holds complete on a tier: every sound summary of the run. Two levels of listings, then the summaries,
 * each a window at a time. */
#include "base/error.h"
#include "base/vec.h"
#include "checkpoint/names.h"
#include "checkpoint/room.h"
#include "checkpoint/window.h"
#include <stdlib.h>

enum holds_state { HOLDS_LIST, HOLDS_LISTED, HOLDS_GROUPS, HOLDS_SETTLE, HOLDS_SUMMARIES, HOLDS_END };

struct place {
    struct bwi_id id;
    uint32_t group;
};

struct bwi_holds_work {
    struct bwi_call list;
    struct bwi_window window;
    struct bwi_id *ids;
    size_t id_count;
    struct place *places;
    size_t place_count, place_cap;
};

static struct bwi_store *store_of(const struct bwi_holds *h) {
    return h->store != NULL ? h->store : h->ctx->tier[BWI_TIER_LOCAL];
}

static enum bwi_step go(struct bwi_holds *h, enum holds_state to) {
    h->state = (int)to;
    return BWI_STEP_AGAIN;
}

static enum bwi_step list(struct bwi_holds *h) {
    const struct bwi_key key = bwi_key_checkpoints(h->ctx->run);
    bwi_call_list(&h->w->list, &h->task, store_of(h), key.s, NULL);
    h->state = HOLDS_LISTED;
    return BWI_STEP_WAIT;
}

static enum bwi_step listed(struct bwi_holds *h) {
    struct bwi_holds_work *w = h->w;
    const struct bwi_store_op *op = &w->list.op;
    if (bwi_error_copy(&h->task.error, &op->error) < 0) return go(h, HOLDS_END);
    w->ids = bwi_calloc(op->names.len + 1, sizeof *w->ids);
    if (w->ids == NULL) {
        (void)bwi_error_nomem(&h->task.error, (op->names.len + 1) * sizeof *w->ids, "a listing");
        return go(h, HOLDS_END);
    }
    for (size_t i = 0; i < op->names.len; i++)
        if (bwi_names_id(&op->names, i, &w->ids[w->id_count])) w->id_count++;
    bwi_window_begin(&w->window);
    return go(h, HOLDS_GROUPS);
}

/* One object of an old checkpoint that cannot be read says nothing about the others. false: it does fail the whole. */
static bool pass_over(struct bwi_holds *h, const struct bwi_id *id, const struct bw_error *why, struct bw_error *err) {
    if (!h->pass_over || why->status == BW_E_NOMEM || why->status == BW_E_CANCELLED) return false;
    void *grown = h->unread;
    const bool ok = bwi_vec_reserve(&grown, &h->unread_cap, h->unread_count + 1, sizeof *h->unread);
    h->unread = grown;
    if (ok)
        h->unread[h->unread_count++] = (struct bwi_unread){*id, *why};
    else
        (void)bwi_error_nomem(err, sizeof *h->unread, "what cannot be read");
    return true;
}

static bool send_groups(void *user, size_t i, struct bwi_call *call) {
    struct bwi_holds *h = user;
    const struct bwi_key key = bwi_key_groups(h->ctx->run, &h->w->ids[i]);
    bwi_call_list(call, &h->task, store_of(h), key.s, NULL);
    return true;
}

static void take_groups(void *user, size_t i, struct bwi_store_op *op, struct bw_error *err) {
    struct bwi_holds *h = user;
    struct bwi_holds_work *w = h->w;
    if (op->error.status < 0 && pass_over(h, &w->ids[i], &op->error, err)) return;
    (void)bwi_error_copy(err, &op->error);
    for (size_t n = 0; n < op->names.len && err->status == 0; n++) {
        uint32_t group;
        if (!bwi_names_group(&op->names, n, false, &group)) continue;
        void *grown = w->places;
        const bool ok = bwi_vec_reserve(&grown, &w->place_cap, w->place_count + 1, sizeof *w->places);
        w->places = grown;
        if (ok)
            w->places[w->place_count++] = (struct place){w->ids[i], group};
        else
            (void)bwi_error_nomem(err, sizeof *w->places, "a listing");
    }
}

static bool has_places(const struct bwi_holds_work *w, const struct bwi_id *id) {
    for (size_t i = 0; i < w->place_count; i++)
        if (bwi_id_eq(&w->places[i].id, id)) return true;
    return false;
}

static void drop_places(struct bwi_holds_work *w, const struct bwi_id *id) {
    size_t kept = 0;
    for (size_t i = 0; i < w->place_count; i++)
        if (!bwi_id_eq(&w->places[i].id, id)) w->places[kept++] = w->places[i];
    w->place_count = kept;
}

static bool send_sync(void *user, size_t i, struct bwi_call *call) {
    struct bwi_holds *h = user;
    if (!h->settle || !has_places(h->w, &h->w->ids[i])) return false;
    const struct bwi_key key = bwi_key_groups(h->ctx->run, &h->w->ids[i]);
    bwi_call_prepare(call, BWI_STORE_SYNC, key.s);
    bwi_call_submit(call, &h->task, store_of(h));
    return true;
}

static void take_sync(void *user, size_t i, struct bwi_store_op *op, struct bw_error *err) {
    struct bwi_holds *h = user;
    const struct bwi_id *id = &h->w->ids[i];
    if (op->error.status == 0) return;
    drop_places(h->w, id);
    if (!pass_over(h, id, &op->error, err)) (void)bwi_error_copy(err, &op->error);
}

static bool send_summary(void *user, size_t i, struct bwi_call *call) {
    struct bwi_holds *h = user;
    const struct place *p = &h->w->places[i];
    const struct bwi_key key = bwi_key_summary(h->ctx->run, &p->id, p->group);
    bwi_call_get(call, &h->task, store_of(h), key.s, BWI_SUMMARY_BYTES_MAX);
    return true;
}

/* A summary that is damaged, gone meanwhile, or of a version that we do not know, is no copy that could be used. */
static void take_summary(void *user, size_t i, struct bwi_store_op *op, struct bw_error *err) {
    struct bwi_holds *h = user;
    const struct place *p = &h->w->places[i];
    struct bwi_summary s;
    const int rc = op->error.status;
    if (rc == BW_E_NOTFOUND || rc == BW_E_CORRUPT || rc == BW_E_FORMAT) return;
    if (rc < 0 && pass_over(h, &p->id, &op->error, err)) return;
    if (bwi_error_copy(err, &op->error) < 0) return;
    if (bwi_summary_decode(bwi_buf_span(&op->body), &s, NULL) < 0) return;
    if (!bwi_id_eq(&s.id, &p->id) || s.group != p->group) return;
    void *grown = h->list;
    const bool ok = bwi_vec_reserve(&grown, &h->cap, h->count + 1, sizeof *h->list);
    h->list = grown;
    if (ok)
        h->list[h->count++] = s;
    else
        (void)bwi_error_nomem(err, sizeof *h->list, "summaries");
}

static enum bwi_step run_window(struct bwi_holds *h, size_t count, const struct bwi_window_ops *ops,
                                enum holds_state then) {
    if (h->task.cancel) (void)bwi_error_set(&h->task.error, BW_E_CANCELLED, "cancelled");
    const int rc = bwi_window_run(&h->w->window, count, ops, h, &h->task.error);
    if (rc == 0) return BWI_STEP_WAIT;
    bwi_window_begin(&h->w->window);
    return go(h, rc < 0 ? HOLDS_END : then);
}

static int order(const void *a, const void *b) {
    const struct bwi_summary *x = a;
    const struct bwi_summary *y = b;
    const int by_id = bwi_id_cmp(&x->id, &y->id);
    return by_id != 0 ? by_id : (x->group > y->group) - (x->group < y->group);
}

static enum bwi_step finish(struct bwi_holds *h) {
    struct bwi_holds_work *w = h->w;
    (void)bwi_error_wrap(&h->task.error, "looking for complete groups");
    if (h->task.error.status < 0) bwi_holds_fini(h);
    if (h->count > 1) qsort(h->list, h->count, sizeof *h->list, order);
    if (w != NULL) {
        bwi_call_fini(&w->list);
        bwi_window_fini(&w->window);
        bwi_free(w->ids);
        bwi_free(w->places);
        bwi_free(w);
    }
    h->w = NULL;
    return BWI_STEP_END;
}

static enum bwi_step holds_step(struct bwi_task *t) {
    static const struct bwi_window_ops groups = {send_groups, take_groups};
    static const struct bwi_window_ops syncs = {send_sync, take_sync};
    static const struct bwi_window_ops summaries = {send_summary, take_summary};
    struct bwi_holds *h = bwi_container_of(t, struct bwi_holds, task);
    if (h->state == HOLDS_LISTED && t->pending > 0) return BWI_STEP_WAIT;
    switch ((enum holds_state)h->state) {
    case HOLDS_LIST: return list(h);
    case HOLDS_LISTED: return listed(h);
    case HOLDS_GROUPS: return run_window(h, h->w->id_count, &groups, HOLDS_SETTLE);
    case HOLDS_SETTLE: return run_window(h, h->w->id_count, &syncs, HOLDS_SUMMARIES);
    case HOLDS_SUMMARIES: return run_window(h, h->w->place_count, &summaries, HOLDS_END);
    case HOLDS_END: break;
    }
    return finish(h);
}

void bwi_holds_start(struct bwi_holds *h, struct bwi_loop *loop, struct bwi_task *parent) {
    h->task.step = holds_step;
    h->task.name = "holds";
    h->state = HOLDS_LIST;
    h->list = NULL;
    h->count = h->cap = 0;
    h->unread = NULL;
    h->unread_count = h->unread_cap = 0;
    bwi_task_start(loop, &h->task, parent);
    h->w = bwi_calloc(1, sizeof *h->w);
    if (h->w == NULL) {
        (void)bwi_error_nomem(&h->task.error, sizeof *h->w, "looking for complete groups");
        h->state = HOLDS_END;
    }
}

void bwi_holds_fini(struct bwi_holds *h) {
    if (h == NULL) return;
    bwi_free(h->list);
    bwi_free(h->unread);
    h->list = NULL;
    h->unread = NULL;
    h->count = h->cap = 0;
    h->unread_count = h->unread_cap = 0;
}
