/* SPDX-License-Identifier: Apache-2.0 */
/* A checkpoint that is not committed has neither manifest nor index: both are made in memory, from what its groups'
 * summaries and layouts say, wherever these are. Groups that are nowhere yet are asked for again and again until they
 * appear. The index of a committed one is made in the same way when the stored one is lost. */
#include "base/error.h"
#include "base/vec.h"
#include "checkpoint/restore_private.h"
#include <inttypes.h>

struct bwi_restore_gather {
    uint32_t groups;
    uint32_t have_count;
    bool *have;
    struct bwi_summary *summaries;
    struct bwi_layout *layouts;
    struct bwi_buf *layout_bytes;
    uint64_t deadline_ns;
    struct bwi_backoff backoff;
    bool pausing;         /* between two rounds */
    struct bw_error last; /* damage that was found of a group that is still missing */
};

void bwi_restore_gather_free(struct bwi_restore_call *c) {
    struct bwi_restore_gather *g = c->w->gather;
    if (g == NULL) return;
    for (uint32_t i = 0; i < g->groups; i++) {
        if (g->layouts != NULL) bwi_layout_fini(&g->layouts[i]);
        if (g->layout_bytes != NULL) bwi_buf_fini(&g->layout_bytes[i]);
    }
    bwi_free(g->have);
    bwi_free(g->summaries);
    bwi_free(g->layouts);
    bwi_free(g->layout_bytes);
    bwi_free(g);
    c->w->gather = NULL;
}

static bool begin(struct bwi_restore_call *c) {
    const struct bwi_restore_target *t = &c->r->target;
    const uint32_t groups = t->committed ? c->r->manifest.group_count : t->groups;
    struct bwi_restore_gather *g = bwi_calloc(1, sizeof *g);
    c->w->gather = g;
    c->w->walk_next = 0;
    if (g != NULL) {
        g->groups = groups;
        g->have = bwi_calloc(groups, sizeof *g->have);
        g->summaries = bwi_calloc(groups, sizeof *g->summaries);
        g->layouts = bwi_calloc(groups, sizeof *g->layouts);
        g->layout_bytes = bwi_calloc(groups, sizeof *g->layout_bytes);
    }
    if (g == NULL || g->have == NULL || g->summaries == NULL || g->layouts == NULL || g->layout_bytes == NULL) {
        bwi_restore_nomem(c, groups * sizeof *g->summaries, "summaries of all groups");
        return false;
    }
    const uint64_t now = bwi_loop_now_ns(c->task.loop);
    g->deadline_ns = now > BWI_NEVER - t->wait_ns ? BWI_NEVER : now + t->wait_ns;
    bwi_backoff_reset(&g->backoff, c->r->ctx);
    return true;
}

/* ---- one group ---- */

/* A copy: the entry may be evicted before all are there. */
static void take(struct bwi_restore_call *c, const struct bwi_restore_group *g, enum bwi_tier tier) {
    struct bwi_restore_gather *x = c->w->gather;
    const struct bwi_group_meta *m = &g->tier[tier].meta;
    struct bwi_buf *copy = &x->layout_bytes[g->group];
    struct bw_error e = BW_ERROR_INIT;
    bwi_buf_put(copy, m->layout_bytes.ptr, m->layout_bytes.len);
    if (copy->failed) {
        bwi_restore_nomem(c, m->layout_bytes.len, "layouts of all groups");
        return;
    }
    if (bwi_layout_decode(bwi_buf_span(copy), &x->layouts[g->group], &e) < 0) {
        bwi_restore_fail(c, &e);
        return;
    }
    x->summaries[g->group] = m->summary;
    x->have[g->group] = true;
    x->have_count++;
}

/* No tier has it: not yet, if the authority simply has nothing. What was committed is there, or lost. */
static void absent(struct bwi_restore_call *c, struct bwi_restore_group *g) {
    const struct bw_error *local = &g->tier[BWI_TIER_LOCAL].error;
    const struct bw_error *remote = &g->tier[BWI_TIER_REMOTE].error;
    if (c->r->target.committed || remote->status != BW_E_NOTFOUND || !bwi_is_damage(local->status)) {
        bwi_restore_group_nowhere(c, g);
        return;
    }
    if (local->status != BW_E_NOTFOUND) (void)bwi_error_copy(&c->w->gather->last, local);
    for (int t = 0; t < BWI_TIERS; t++) bwi_restore_source_forget(&g->tier[t]);
}

/* A slot of the window has its group, or gets the next one. false: nothing more for it in this round. */
static bool advance(struct bwi_restore_call *c, struct bwi_restore_group **slot) {
    struct bwi_restore_work *w = c->w;
    const struct bwi_restore_gather *x = w->gather;
    for (;;) {
        while (*slot == NULL && w->walk_next < x->groups && x->have[w->walk_next]) w->walk_next++;
        if (*slot == NULL && w->walk_next == x->groups) return false;
        if (*slot == NULL) *slot = bwi_restore_group_pin(c, w->walk_next++);
        if (*slot == NULL) return false; /* out of memory: the window is far below what can be pinned */
        enum bwi_tier tier = BWI_TIER_LOCAL;
        const enum bwi_ready ready = bwi_restore_group_find(c, *slot, BWI_TIER_LOCAL, &tier);
        if (ready == BWI_WAIT) return true;
        if (ready == BWI_READY) {
            take(c, *slot, tier);
        } else {
            absent(c, *slot);
        }
        bwi_restore_group_unpin(*slot);
        *slot = NULL;
        if (w->error.status != 0) return false;
    }
}

/* ---- rounds ---- */

static void pause(struct bwi_restore_call *c) {
    struct bwi_restore_gather *x = c->w->gather;
    const uint64_t now = bwi_loop_now_ns(c->task.loop);
    uint32_t first = 0;
    while (x->have[first]) first++;
    if (now >= x->deadline_ns) {
        if (x->last.status != 0) (void)bwi_error_copy(&c->w->error, &x->last);
        (void)bwi_error_set(
            &c->w->error, BW_E_TIMEOUT,
            "checkpoint %s is not committed, and %" PRIu32 " of its %" PRIu32
            " groups are on no tier that can be reached, the first is group %" PRIu32 ": waited for %" PRIu64 " ms",
            c->r->id_text, x->groups - x->have_count, x->groups, first, c->r->target.wait_ns / BWI_NS_PER_MS);
        return;
    }
    const uint64_t next = bwi_backoff_next(&x->backoff, c->r->ctx, now);
    c->w->retry_ns = next < x->deadline_ns ? next : x->deadline_ns;
    x->pausing = true;
}

/* Others wait with us: this is not what io_timeout_ns means. */
static bool paused(struct bwi_restore_call *c) {
    struct bwi_restore_gather *x = c->w->gather;
    if (!x->pausing) return false;
    c->w->progress++;
    if (bwi_loop_now_ns(c->task.loop) < c->w->retry_ns) return true;
    c->w->retry_ns = BWI_NEVER;
    c->w->walk_next = 0;
    x->pausing = false;
    return false;
}

/* ---- all are there ---- */

static int check_target(const struct bwi_restore *r, const struct bwi_summary *s, struct bw_error *err) {
    if (s->groups == r->target.groups && s->world == r->target.world) return 0;
    return bwi_error_set(err, BW_E_CORRUPT,
                         "checkpoint %s: its summaries speak of %" PRIu32 " groups in a world of %" PRIu32
                         ", the history of %" PRIu32 " in a world of %" PRIu32,
                         r->id_text, s->groups, s->world, r->target.groups, r->target.world);
}

static int finish(struct bwi_restore *r, struct bwi_restore_gather *x, struct bw_error *err) {
    struct bwi_index_info info;
    bwi_buf_reset(&r->index);
    int rc = check_target(r, &x->summaries[0], err);
    if (rc == 0) rc = bwi_index_make(x->layouts, x->groups, &r->index, &info, err);
    if (rc == 0) rc = bwi_manifest_build(x->summaries, x->groups, &info, &r->manifest, err);
    if (rc < 0) return rc;
    rc = bwi_restore_take_head(r, err);
    if (rc < 0) {
        bwi_manifest_fini(&r->manifest);
        r->manifest = (struct bwi_manifest){0};
        return rc;
    }
    r->manifest_set = true;
    r->summaries = x->summaries;
    x->summaries = NULL;
    return 0;
}

/* The manifest is there: what was made must have the root that it names. */
static int finish_again(struct bwi_restore *r, const struct bwi_restore_gather *x, const struct bw_error *lost,
                        struct bw_error *err) {
    struct bwi_index_info info;
    int rc = bwi_index_make(x->layouts, x->groups, &r->made, &info, err);
    if (rc == 0 && !bwi_sha_eq(&info.root, &r->manifest.index.root)) {
        rc = bwi_error_set(err, BW_E_CORRUPT, "%s; and the layouts give another index", lost->message);
    }
    if (rc == 0 && !r->head_set) {
        bwi_buf_reset(&r->index);
        bwi_buf_put(&r->index, r->made.ptr, (size_t)info.head_bytes);
        rc = r->index.failed ? bwi_error_nomem(err, (size_t)info.head_bytes, "head of the index")
                             : bwi_restore_take_head(r, err);
    }
    if (rc < 0) bwi_buf_fini(&r->made);
    return rc;
}

enum bwi_ready bwi_restore_gather_step(struct bwi_restore_call *c) {
    struct bwi_restore_work *w = c->w;
    bool idle = true;
    if (w->gather == NULL && !begin(c)) return BWI_WAIT;
    if (paused(c)) return BWI_WAIT;
    for (size_t i = 0; i < BWI_RESTORE_WINDOW && w->error.status == 0; i++) {
        if (advance(c, &w->walk[i])) idle = false;
    }
    if (!idle || w->error.status != 0) return BWI_WAIT;
    if (w->gather->have_count < w->gather->groups) {
        pause(c);
        return BWI_WAIT;
    }
    struct bw_error e = BW_ERROR_INIT;
    const int rc =
        c->r->target.committed ? finish_again(c->r, w->gather, &w->index_lost, &e) : finish(c->r, w->gather, &e);
    w->unfit = rc == BW_E_COVERAGE && !c->r->target.committed;
    if (rc < 0) bwi_restore_fail(c, &e);
    bwi_restore_gather_free(c);
    return BWI_READY;
}
