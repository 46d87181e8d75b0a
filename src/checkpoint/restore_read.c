/* SPDX-License-Identifier: Apache-2.0 */
/* Reading extents: group after group, up to BWI_RESTORE_JOBS extents at once, bounded by the arena. While the extents
 * of one group are read, the metadata of the next ones is fetched. */
#include "base/error.h"
#include "base/vec.h"
#include "checkpoint/restore_private.h"
#include "format/shape.h"
#include <breakwater/tensor.h>
#include <inttypes.h>

/* ---- groups ---- */

static void look_ahead(struct bwi_restore_call *c) {
    struct bwi_restore_work *w = c->w;
    unsigned ahead = 0;
    uint32_t last = UINT32_MAX;
    for (size_t i = w->hit_at; i < w->hit_count && ahead < BWI_RESTORE_AHEAD; i++) {
        enum bwi_tier tier;
        if (w->hits[i].group == last) continue;
        last = w->hits[i].group;
        struct bwi_restore_group *g = bwi_restore_group_pin(c, last);
        if (g == NULL) return;
        (void)bwi_restore_group_find(c, g, BWI_TIER_LOCAL, &tier);
        bwi_restore_group_unpin(g);
        ahead++;
    }
}

/* Makes the next group's batch when the last one has been handed out. false: there is none, or it is not known
 * yet. */
static bool next_batch(struct bwi_restore_call *c) {
    struct bwi_restore_work *w = c->w;
    enum bwi_tier tier = BWI_TIER_LOCAL;
    struct bw_error e = BW_ERROR_INIT;
    struct bwi_restore_batch *old = w->batch;
    w->batch = NULL;
    if (old != NULL && old->jobs == 0) bwi_restore_batch_free(old);
    if (w->hit_at == w->hit_count) return false;
    look_ahead(c);
    if (w->error.status != 0) return false;
    struct bwi_restore_group *g = bwi_restore_group_pin(c, w->hits[w->hit_at].group);
    if (g == NULL) return false;
    const enum bwi_ready ready = bwi_restore_group_find(c, g, BWI_TIER_LOCAL, &tier);
    if (ready == BWI_NOWHERE) bwi_restore_group_nowhere(c, g);
    if (ready == BWI_READY && bwi_restore_plan_batch(c, g, tier, &w->batch, &e) < 0) bwi_restore_fail(c, &e);
    bwi_restore_group_unpin(g);
    return w->batch != NULL;
}

/* ---- jobs ---- */

static struct bwi_restore_job *free_job(struct bwi_restore_work *w) {
    for (size_t i = 0; i < BWI_RESTORE_JOBS; i++) {
        if (w->jobs[i].state == BWI_JOB_FREE) return &w->jobs[i];
    }
    return NULL;
}

static bool issue(struct bwi_restore_call *c) {
    struct bwi_restore_work *w = c->w;
    struct bwi_restore_job *j = free_job(w);
    if (j == NULL) return false;
    if (w->batch == NULL || w->batch->at == w->batch->count) return next_batch(c);
    bwi_restore_job_begin(j, w->batch);
    return true;
}

static bool is_idle(const struct bwi_restore_work *w) {
    for (size_t i = 0; i < BWI_RESTORE_JOBS; i++) {
        if (w->jobs[i].state != BWI_JOB_FREE) return false;
    }
    return true;
}

/* Runs until nothing moves. true: all extents are where they belong. */
static bool run(struct bwi_restore_call *c) {
    struct bwi_restore_work *w = c->w;
    bool moved = true;
    while (moved && w->error.status == 0) {
        moved = false;
        for (size_t i = 0; i < BWI_RESTORE_JOBS && w->error.status == 0; i++) {
            moved |= bwi_restore_job_step(&w->jobs[i]);
        }
        if (w->error.status == 0) moved |= issue(c);
    }
    return w->error.status == 0 && w->hit_at == w->hit_count && w->batch == NULL && is_idle(w);
}

/* ---- afterwards ---- */

/* Every byte of every slice was written once, or some of it is in no box. */
static void check_whole(struct bwi_restore_call *c) {
    const struct bwi_restore_work *w = c->w;
    for (size_t i = 0; i < w->want_count; i++) {
        const struct bwi_restore_want *x = &w->wants[i];
        if (x->got == x->bytes) continue;
        struct bw_error e = BW_ERROR_INIT;
        (void)bwi_error_set(&e, BW_E_CORRUPT,
                            "checkpoint %s: tensor %s: the slice has %" PRIu64 " bytes, its boxes gave %" PRIu64 ": %s",
                            c->r->id_text, bwi_shape_name_text(bwi_span_str(x->name)).s, x->bytes, x->got,
                            x->got < x->bytes ? "no box holds the rest" : "boxes overlap");
        bwi_restore_fail(c, &e);
        return;
    }
}

enum bwi_ready bwi_restore_extents_step(struct bwi_restore_call *c) {
    struct bwi_restore_work *w = c->w;
    if (w->sub == 0) {
        struct bw_error e = BW_ERROR_INIT;
        w->sub = 1;
        int rc = bwi_restore_slices_take(c, &e);
        if (rc == 0) rc = bwi_restore_plan_hits(c, &e);
        if (rc < 0) {
            bwi_restore_fail(c, &e);
            return BWI_WAIT;
        }
    }
    if (!run(c)) return BWI_WAIT;
    check_whole(c);
    return BWI_READY;
}

/* ---- a blob ---- */

static const uint64_t ZERO[1] = {0};

static int check_blob(const struct bwi_restore_call *c, struct bw_error *err) {
    if (c->name == NULL) return bwi_error_set(err, BW_E_INVALID, "blob: name is NULL");
    if (c->buf == NULL && c->buf_bytes > 0) {
        return bwi_error_set(err, BW_E_INVALID, "blob %s: the buffer is NULL, with %zu bytes",
                             bwi_shape_name_text(bwi_span_str(c->name)).s, c->buf_bytes);
    }
    return 0;
}

/* The one want and the one hit of a blob: bytes in one dimension. */
static int take_blob(struct bwi_restore_call *c, uint32_t group, const struct bwi_group_meta *m, struct bw_error *err) {
    struct bwi_restore_work *w = c->w;
    const struct bwi_span name = bwi_span_str(c->name);
    uint32_t blob;
    if (!bwi_layout_find_blob(&m->layout, c->rank, name, &blob)) {
        return bwi_error_set(err, BW_E_NOTFOUND, "checkpoint %s: rank %" PRIu32 " has no blob %s", c->r->id_text,
                             c->rank, bwi_shape_name_text(name).s);
    }
    const uint32_t item = m->layout.box_count + blob;
    const uint64_t bytes = m->content.raw_bytes[item];
    c->got_bytes = (size_t)bytes;
    if (bytes > c->buf_bytes) {
        return bwi_error_set(err, BW_E_LIMIT, "blob %s of rank %" PRIu32 " has %" PRIu64 " bytes, the buffer %zu",
                             bwi_shape_name_text(name).s, c->rank, bytes, c->buf_bytes);
    }
    w->wants = bwi_calloc(1, sizeof *w->wants);
    if (w->wants == NULL) return bwi_error_nomem(err, sizeof *w->wants, "blob");
    struct bwi_restore_want *x = w->wants;
    *x = (struct bwi_restore_want){.name = c->name, .blob = true, .extent = {bytes}, .stride = {1}, .bytes = bytes};
    x->to = (struct bwi_strided){c->buf, 1, 1, x->extent, x->stride};
    w->want_count = 1;
    const struct bwi_restore_hit h = {group, item, 0, ZERO, x->extent};
    return bytes == 0 ? 0 : bwi_restore_hit_add(w, &h, err);
}

static enum bwi_ready find_blob(struct bwi_restore_call *c) {
    struct bwi_restore_group **slot = &c->w->walk[0];
    struct bw_error e = BW_ERROR_INIT;
    uint32_t group;
    enum bwi_tier tier = BWI_TIER_LOCAL;
    if (check_blob(c, &e) < 0 || bwi_restore_group_of_rank(c->r, c->rank, &group, &e) < 0) {
        bwi_restore_fail(c, &e);
        return BWI_WAIT;
    }
    if (*slot == NULL) *slot = bwi_restore_group_pin(c, group);
    if (*slot == NULL) return BWI_WAIT;
    const enum bwi_ready ready = bwi_restore_group_find(c, *slot, BWI_TIER_LOCAL, &tier);
    if (ready == BWI_NOWHERE) bwi_restore_group_nowhere(c, *slot);
    if (ready != BWI_READY) return BWI_WAIT;
    if (take_blob(c, group, &(*slot)->tier[tier].meta, &e) < 0) bwi_restore_fail(c, &e);
    return BWI_READY;
}

enum bwi_ready bwi_restore_blob_step(struct bwi_restore_call *c) {
    struct bwi_restore_work *w = c->w;
    if (w->sub == 0) {
        if (find_blob(c) != BWI_READY || w->error.status != 0) return BWI_WAIT;
        w->sub = 1;
    }
    if (!run(c)) return BWI_WAIT;
    check_whole(c);
    return BWI_READY;
}
