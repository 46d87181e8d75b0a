/* SPDX-License-Identifier: Apache-2.0 */
/* Verifying a checkpoint: the manifest, all groups on all tiers that were asked for (a few at once), and at the
 * end the index, which must be what the layouts give, and coverage. Damage is reported and passed by. */
#include "base/error.h"
#include "base/text.h"
#include "base/vec.h"
#include "checkpoint/names.h"
#include "checkpoint/policy_history.h"
#include "checkpoint/verify_private.h"
#include <inttypes.h>
#include <stdatomic.h>

enum verify_state {
    VERIFY_BEGIN,
    VERIFY_MANIFEST,
    VERIFY_LIST, /* without a manifest: which groups there are */
    VERIFY_PREPARE,
    VERIFY_GROUPS,
    VERIFY_LAYOUTS,
    VERIFY_INDEX,
    VERIFY_FATE, /* is it damaged, or was it retired meanwhile? */
    VERIFY_FATE_READ,
    VERIFY_CONCLUDE,
    VERIFY_END,
};

void bwi_verify_fini(struct bwi_verify *v) {
    if (v == NULL) return;
    for (int t = 0; t < BWI_TIERS; t++) {
        bwi_free(v->bad_groups[t]);
        v->bad_groups[t] = NULL;
        v->bad_count[t] = 0;
    }
}

static enum bwi_step go(struct bwi_verify *v, enum verify_state to) {
    v->state = (int)to;
    return BWI_STEP_AGAIN;
}

static enum bwi_step nomem(struct bwi_verify *v, size_t bytes, const char *what) {
    (void)bwi_error_nomem(&v->task.error, bytes, what);
    return go(v, VERIFY_END);
}

static struct bwi_store *authority(const struct bwi_verify *v) {
    return v->ctx->tier[BWI_TIER_REMOTE];
}

/* ---- the manifest ---- */

static enum bwi_step verify_begin(struct bwi_verify *v) {
    v->w->groups = v->groups;
    if (!v->committed) return go(v, VERIFY_PREPARE);
    const struct bwi_key key = bwi_key_manifest(v->ctx->run, &v->id, &v->manifest);
    bwi_call_get(&v->w->call, &v->task, authority(v), key.s, BWI_MANIFEST_BYTES_MAX);
    return go(v, VERIFY_MANIFEST);
}

static enum bwi_step verify_manifest(struct bwi_verify *v) {
    struct bwi_verify_work *w = v->w;
    if (w->call.busy) return BWI_STEP_WAIT;
    struct bw_error e = w->call.op.error;
    if (e.status == 0) (void)bwi_manifest_take(bwi_buf_span(&w->call.op.body), &v->manifest, &v->id, &w->manifest, &e);
    w->manifest_set = e.status == 0;
    if (e.status == BW_E_NOMEM) {
        (void)bwi_error_copy(&v->task.error, &e);
        return go(v, VERIFY_END);
    }
    if (e.status == 0) {
        w->groups = w->manifest.group_count;
        return go(v, VERIFY_PREPARE);
    }
    const struct bwi_key key = w->call.key;
    bwi_verify_report(v, BWI_TIER_REMOTE, UINT32_MAX, key.s, e.status, e.message);
    if (w->groups > 0) return go(v, VERIFY_PREPARE);
    const struct bwi_key groups = bwi_key_groups(v->ctx->run, &v->id);
    bwi_call_list(&w->call, &v->task, authority(v), groups.s, NULL);
    return go(v, VERIFY_LIST);
}

static enum bwi_step verify_list(struct bwi_verify *v) {
    struct bwi_verify_work *w = v->w;
    const struct bwi_store_op *op = &w->call.op;
    if (w->call.busy) return BWI_STEP_WAIT;
    if (op->error.status != 0) {
        bwi_verify_report(v, BWI_TIER_REMOTE, UINT32_MAX, w->call.key.s, op->error.status, op->error.message);
    }
    w->groups = bwi_names_groups(&op->names);
    return go(v, VERIFY_PREPARE);
}

/* ---- groups ---- */

static bool make_order(struct bwi_verify *v) {
    struct bwi_verify_work *w = v->w;
    const size_t n = v->only_groups == NULL ? w->groups : v->only_group_count;
    w->order = bwi_calloc(n, sizeof *w->order);
    if (w->order == NULL) return false;
    for (size_t i = 0; i < n; i++) {
        const uint32_t group = v->only_groups == NULL ? (uint32_t)i : v->only_groups[i];
        if (group < w->groups) w->order[w->order_count++] = group;
    }
    return true;
}

static void set_total(const struct bwi_verify *v) {
    const struct bwi_verify_work *w = v->w;
    struct bwi_progress *p = v->ctx->progress;
    if (p == NULL) return;
    const uint64_t tiers = (uint64_t)v->tiers[BWI_TIER_LOCAL] + v->tiers[BWI_TIER_REMOTE];
    uint64_t bytes = 0;
    for (size_t i = 0; !v->fast && w->manifest_set && i < w->order_count; i++) {
        bytes += w->manifest.groups[w->order[i]].raw_bytes * tiers;
    }
    (void)atomic_fetch_add_explicit(&p->total_bytes, bytes, memory_order_relaxed);
    (void)atomic_fetch_add_explicit(&p->total_items, tiers * w->order_count, memory_order_relaxed);
}

static enum bwi_step verify_prepare(struct bwi_verify *v) {
    struct bwi_verify_work *w = v->w;
    bool ok = make_order(v);
    w->layout_bytes = bwi_calloc(w->groups, sizeof *w->layout_bytes);
    w->layouts = bwi_calloc(w->groups, sizeof *w->layouts);
    for (int t = 0; t < BWI_TIERS; t++) {
        w->seen[t] = bwi_calloc(w->groups, sizeof *w->seen[t]);
        w->bad[t] = bwi_calloc(w->groups, sizeof *w->bad[t]);
        ok = ok && w->seen[t] != NULL && w->bad[t] != NULL;
        if (v->ctx->tier[t] == NULL) v->tiers[t] = false;
    }
    if (!ok || w->layout_bytes == NULL || w->layouts == NULL) {
        return nomem(v, w->groups * sizeof *w->layouts, "verifying all groups");
    }
    set_total(v);
    return go(v, VERIFY_GROUPS);
}

/* The next group and tier; group by group, so that both tiers of one are near in the list. */
static bool next_task(struct bwi_verify *v, uint32_t *group, enum bwi_tier *tier) {
    struct bwi_verify_work *w = v->w;
    for (; w->next < w->order_count * BWI_TIERS; w->next++) {
        *group = w->order[w->next / BWI_TIERS];
        *tier = (enum bwi_tier)(w->next % BWI_TIERS);
        if (!v->tiers[*tier]) continue;
        w->next++;
        return true;
    }
    return false;
}

static void take(struct bwi_verify *v, struct bwi_verify_group *g) {
    struct bwi_verify_work *w = v->w;
    (void)bwi_error_copy(&v->task.error, &g->task.error);
    w->seen[g->tier][g->group] = g->there;
    w->group_count[g->tier] += g->there;
    w->pack_count[g->tier] += g->packs;
    w->byte_count[g->tier] += g->bytes;
    v->bytes += g->bytes;
    if (v->ctx->progress != NULL) {
        (void)atomic_fetch_add_explicit(&v->ctx->progress->done_items, 1, memory_order_relaxed);
    }
    bwi_verify_group_free(g);
}

static enum bwi_step verify_groups(struct bwi_verify *v) {
    bool idle = true;
    if (v->task.cancel) (void)bwi_error_set(&v->task.error, BW_E_CANCELLED, "verify: cancelled");
    for (size_t i = 0; i < BWI_VERIFY_LANES; i++) {
        struct bwi_verify_group *g = &v->w->lanes[i];
        if (g->used && !g->task.running) take(v, g);
        uint32_t group;
        enum bwi_tier tier;
        if (!g->used && v->task.error.status == 0 && next_task(v, &group, &tier)) {
            *g = (struct bwi_verify_group){.v = v, .used = true, .group = group, .tier = tier};
            bwi_verify_group_start(g, v->task.loop, &v->task);
        }
        if (g->used && v->task.error.status != 0 && !g->task.cancel) bwi_task_cancel(&g->task);
        if (g->used) idle = false;
    }
    if (!idle) return BWI_STEP_WAIT;
    return go(v, v->task.error.status != 0 ? VERIFY_END : VERIFY_LAYOUTS);
}

/* ---- what the layouts give ---- */

static bool have_all_layouts(const struct bwi_verify_work *w) {
    for (uint32_t g = 0; g < w->groups; g++) {
        if (w->layout_bytes[g].len == 0) return false;
    }
    return w->groups > 0;
}

/* The name of what is not one object: the checkpoint's own prefix. */
static void report_whole(struct bwi_verify *v, int status, const char *text) {
    const struct bwi_key key = bwi_key_checkpoint(v->ctx->run, &v->id);
    bwi_verify_report(v, v->tiers[BWI_TIER_REMOTE] ? BWI_TIER_REMOTE : BWI_TIER_LOCAL, UINT32_MAX, key.s, status, text);
}

static void check_root(struct bwi_verify *v, const struct bwi_index_info *info) {
    const struct bwi_verify_work *w = v->w;
    if (!w->manifest_set || bwi_sha_eq(&info->root, &w->manifest.index.root)) return;
    char hex[2][BWI_SHA_HEX_BYTES];
    char text[128];
    bwi_sha_hex(&info->root, hex[0]);
    bwi_sha_hex(&w->manifest.index.root, hex[1]);
    (void)bwi_format(text, sizeof text, "the layouts give an index with the root %.16s, the manifest names %.16s",
                     hex[0], hex[1]);
    report_whole(v, BW_E_CORRUPT, text);
}

static enum bwi_step verify_layouts(struct bwi_verify *v) {
    struct bwi_verify_work *w = v->w;
    struct bwi_index_info info;
    struct bw_error e = BW_ERROR_INIT;
    if (v->only_groups != NULL) return go(v, VERIFY_FATE);
    if (have_all_layouts(w)) {
        struct bwi_buf index = {0};
        const int rc = bwi_index_make(w->layouts, w->groups, &index, &info, &e);
        bwi_buf_fini(&index);
        if (rc == BW_E_NOMEM) {
            (void)bwi_error_copy(&v->task.error, &e);
            return go(v, VERIFY_END);
        }
        if (rc < 0) {
            report_whole(v, rc, e.message);
        } else {
            check_root(v, &info);
        }
    }
    if (!w->manifest_set || !v->tiers[BWI_TIER_REMOTE]) return go(v, VERIFY_FATE);
    const struct bwi_key key = bwi_key_index(v->ctx->run, &v->id, &w->manifest.index.root);
    bwi_call_get(&w->call, &v->task, authority(v), key.s, w->manifest.index.bytes);
    return go(v, VERIFY_INDEX);
}

/* ---- the index ---- */

static int check_blocks(const struct bwi_index_head *h, struct bwi_span bytes, struct bw_error *err) {
    int rc = 0;
    for (uint32_t i = 0; i < h->block_count && rc == 0; i++) {
        const struct bwi_index_block_ref *ref = &h->blocks[i];
        struct bwi_index_block b = {0};
        rc = bwi_index_block_decode(bwi_span(bytes.ptr + ref->offset, ref->bytes), ref, &b, err);
        bwi_index_block_fini(&b);
    }
    return rc;
}

/* Its head names each of its bytes, so with the root that the layouts give it is the index that they give. */
static int check_index(const struct bwi_verify_work *w, struct bwi_span bytes, struct bw_error *err) {
    const struct bwi_index_info *x = &w->manifest.index;
    if (bytes.len != x->bytes || x->head_bytes > x->bytes) {
        return bwi_error_set(err, BW_E_CORRUPT, "%zu bytes, the manifest names %" PRIu64, bytes.len, x->bytes);
    }
    const struct bwi_span head = bwi_span(bytes.ptr, (size_t)x->head_bytes);
    const struct bwi_sha found = bwi_sha_of(head);
    if (!bwi_sha_eq(&found, &x->root)) {
        return bwi_error_set(err, BW_E_CORRUPT, "the SHA-256 of its head is not the root that the manifest names");
    }
    struct bwi_index_head h = {0};
    int rc = bwi_index_head_decode(head, &h, err);
    if (rc == 0 && h.bytes != x->bytes) {
        rc = bwi_error_set(err, BW_E_CORRUPT, "its head speaks of %" PRIu64 " bytes, the manifest of %" PRIu64, h.bytes,
                           x->bytes);
    }
    if (rc == 0) rc = check_blocks(&h, bytes, err);
    bwi_index_head_fini(&h);
    return rc;
}

static enum bwi_step verify_index(struct bwi_verify *v) {
    struct bwi_verify_work *w = v->w;
    if (w->call.busy) return BWI_STEP_WAIT;
    struct bw_error e = w->call.op.error;
    if (e.status == 0) (void)check_index(w, bwi_buf_span(&w->call.op.body), &e);
    if (e.status == BW_E_NOMEM) {
        (void)bwi_error_copy(&v->task.error, &e);
        return go(v, VERIFY_END);
    }
    if (e.status != 0) bwi_verify_report(v, BWI_TIER_REMOTE, UINT32_MAX, w->call.key.s, e.status, e.message);
    v->bytes += w->call.op.body.len;
    return go(v, VERIFY_FATE);
}

/* ---- what the history says about damage ---- */

static enum bwi_step verify_fate(struct bwi_verify *v) {
    struct bwi_verify_work *w = v->w;
    if (!v->committed || v->damaged_objects == 0) return go(v, VERIFY_CONCLUDE);
    w->read = (struct bwi_head_read){.ctx = v->ctx, .head = &w->head};
    bwi_head_read_start(&w->read, v->task.loop, &v->task);
    return go(v, VERIFY_FATE_READ);
}

/* What the history does not name any more is swept away, under the eyes of whoever has looked long enough. */
static enum bwi_step verify_fate_read(struct bwi_verify *v) {
    struct bwi_verify_work *w = v->w;
    if (w->read.task.running) return BWI_STEP_WAIT;
    const bool known = w->read.task.error.status == 0 && w->head.found;
    if (!known || bwi_policy_fate(&w->head.entry, &v->id) != BWI_FATE_DEAD) return go(v, VERIFY_CONCLUDE);
    v->findings->count = w->first_finding;
    v->damaged_objects = 0;
    bwi_findings_add(v->findings, 0, 0, bwi_tier_name(BWI_TIER_REMOTE), &v->id, NULL, NULL,
                     "retired while it was verified: the history does not name it any more");
    if (v->findings->failed) return nomem(v, sizeof *v->findings->list, "list of findings");
    return go(v, VERIFY_END);
}

/* ---- the result ---- */

static int list_bad(struct bwi_verify *v, enum bwi_tier t) {
    const struct bwi_verify_work *w = v->w;
    size_t n = 0;
    for (uint32_t g = 0; g < w->groups; g++) n += w->bad[t][g];
    v->bad_count[t] = 0;
    if (n == 0) return 0;
    v->bad_groups[t] = bwi_calloc(n, sizeof *v->bad_groups[t]);
    if (v->bad_groups[t] == NULL) return bwi_error_nomem(&v->task.error, n * sizeof(uint32_t), "damaged groups");
    for (uint32_t g = 0; g < w->groups; g++) {
        if (w->bad[t][g]) v->bad_groups[t][v->bad_count[t]++] = g;
    }
    return 0;
}

/* A group of an uncommitted checkpoint that no tier has is no damage, but nothing to rely on. */
static void report_absent(struct bwi_verify *v) {
    const struct bwi_verify_work *w = v->w;
    uint64_t absent = 0;
    uint32_t first = 0;
    for (size_t i = w->order_count; !v->committed && i-- > 0;) {
        const uint32_t g = w->order[i];
        if (w->seen[BWI_TIER_LOCAL][g] || w->seen[BWI_TIER_REMOTE][g]) continue;
        absent++;
        first = g;
    }
    if (absent == 0) return;
    bwi_findings_add(v->findings, 1, BW_E_NOTFOUND, NULL, &v->id, NULL, NULL,
                     "not committed: %" PRIu64 " groups are on no tier that was looked at, the first is group %" PRIu32,
                     absent, first);
}

static void report_sound(struct bwi_verify *v, enum bwi_tier t) {
    const struct bwi_verify_work *w = v->w;
    if (!v->tiers[t] || w->found[t] > 0 || w->order_count == 0) return;
    bwi_findings_add(v->findings, 0, 0, bwi_tier_name(t), &v->id, NULL, NULL,
                     v->fast ? "complete: %" PRIu64 " of %zu group%s, %" PRIu64 " pack%s; %" PRIu64
                               " bytes read, sizes and metadata only"
                             : "sound: %" PRIu64 " of %zu group%s, %" PRIu64 " pack%s, %" PRIu64 " bytes",
                     w->group_count[t], w->order_count, w->order_count == 1 ? "" : "s", w->pack_count[t],
                     w->pack_count[t] == 1 ? "" : "s", w->byte_count[t]);
}

static enum bwi_step verify_conclude(struct bwi_verify *v) {
    for (int t = 0; t < BWI_TIERS; t++) {
        if (list_bad(v, (enum bwi_tier)t) < 0) return go(v, VERIFY_END);
    }
    report_absent(v);
    for (int t = 0; t < BWI_TIERS; t++) report_sound(v, (enum bwi_tier)t);
    if (v->findings->failed) return nomem(v, sizeof *v->findings->list, "list of findings");
    return go(v, VERIFY_END);
}

static enum bwi_step verify_end(struct bwi_verify *v) {
    struct bwi_verify_work *w = v->w;
    bwi_error_stage(&v->task.error, BW_STAGE_VERIFY);
    if (w == NULL) return BWI_STEP_END;
    bwi_manifest_fini(&w->manifest);
    for (uint32_t g = 0; g < w->groups; g++) {
        if (w->layouts != NULL) bwi_layout_fini(&w->layouts[g]);
        if (w->layout_bytes != NULL) bwi_buf_fini(&w->layout_bytes[g]);
    }
    bwi_free(w->layouts);
    bwi_free(w->layout_bytes);
    for (int t = 0; t < BWI_TIERS; t++) {
        bwi_free(w->seen[t]);
        bwi_free(w->bad[t]);
    }
    bwi_free(w->order);
    bwi_head_fini(&w->head);
    bwi_call_fini(&w->call);
    bwi_free(w);
    v->w = NULL;
    return BWI_STEP_END;
}

static enum bwi_step verify_step(struct bwi_task *t) {
    struct bwi_verify *v = bwi_container_of(t, struct bwi_verify, task);
    if (v->w == NULL) return verify_end(v);
    switch ((enum verify_state)v->state) {
    case VERIFY_BEGIN: return verify_begin(v);
    case VERIFY_MANIFEST: return verify_manifest(v);
    case VERIFY_LIST: return verify_list(v);
    case VERIFY_PREPARE: return verify_prepare(v);
    case VERIFY_GROUPS: return verify_groups(v);
    case VERIFY_LAYOUTS: return verify_layouts(v);
    case VERIFY_INDEX: return verify_index(v);
    case VERIFY_FATE: return verify_fate(v);
    case VERIFY_FATE_READ: return verify_fate_read(v);
    case VERIFY_CONCLUDE: return verify_conclude(v);
    case VERIFY_END: break;
    }
    return verify_end(v);
}

void bwi_verify_start(struct bwi_verify *v, struct bwi_loop *loop, struct bwi_task *parent) {
    bwi_verify_fini(v);
    v->task.step = verify_step;
    v->task.name = "verify";
    v->state = VERIFY_BEGIN;
    v->bytes = v->damaged_objects = 0;
    bwi_task_start(loop, &v->task, parent);
    v->w = bwi_calloc(1, sizeof *v->w);
    if (v->w == NULL) {
        (void)bwi_error_nomem(&v->task.error, sizeof *v->w, "verify");
        return;
    }
    v->w->first_finding = v->findings->count;
}
