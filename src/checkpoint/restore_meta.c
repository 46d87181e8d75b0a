/* SPDX-License-Identifier: Apache-2.0 */
/* Blobs and metadata of ranks, and all questions that are answered from what earlier calls have read. */
#include "base/error.h"
#include "base/vec.h"
#include "checkpoint/restore_private.h"
#include "format/shape.h"
#include <breakwater/tensor.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

void bwi_restore_blobs_free(struct bwi_restore *r) {
    for (size_t i = 0; i < r->blob_count; i++) bwi_free(r->blobs[i].name);
    for (size_t i = 0; i < r->metadata_count; i++) bwi_free(r->metadata[i].json);
    bwi_free(r->blobs);
    bwi_free(r->metadata);
    r->blobs = NULL;
    r->metadata = NULL;
    r->blob_count = r->metadata_count = r->blob_cap = r->metadata_cap = 0;
}

static char *copy_of(struct bwi_span s, struct bw_error *err) {
    char *copy = bwi_malloc(s.len + 1);
    if (copy == NULL) {
        (void)bwi_error_nomem(err, s.len + 1, "text of a checkpoint");
        return NULL;
    }
    if (s.len > 0) memcpy(copy, s.ptr, s.len);
    copy[s.len] = '\0';
    return copy;
}

/* ---- the blobs of all groups ---- */

static int add_blobs(struct bwi_restore *r, const struct bwi_restore_group *g, enum bwi_tier tier,
                     struct bw_error *err) {
    const struct bwi_layout *l = &g->tier[tier].meta.layout;
    const struct bwi_content *content = &g->tier[tier].meta.content;
    if (!bwi_vec_reserve((void **)&r->blobs, &r->blob_cap, r->blob_count + l->blob_count, sizeof *r->blobs)) {
        return bwi_error_nomem(err, l->blob_count * sizeof *r->blobs, "list of blobs");
    }
    for (uint32_t i = 0; i < l->blob_count; i++) {
        const uint32_t item = l->box_count + i;
        char *name = copy_of(l->blobs[i].name, err);
        if (name == NULL) return err->status;
        r->blobs[r->blob_count++] =
            (struct bwi_restore_blob){name, l->blobs[i].rank, g->group, item, content->raw_bytes[item]};
    }
    return 0;
}

static int by_rank_and_name(const void *left, const void *right) {
    const struct bwi_restore_blob *a = left;
    const struct bwi_restore_blob *b = right;
    if (a->rank != b->rank) return a->rank < b->rank ? -1 : 1;
    return strcmp(a->name, b->name);
}

/* false: this slot has nothing more to do. */
static bool advance(struct bwi_restore_call *c, struct bwi_restore_group **slot) {
    struct bwi_restore_work *w = c->w;
    for (;;) {
        if (*slot == NULL && w->walk_next == c->r->manifest.group_count) return false;
        if (*slot == NULL) *slot = bwi_restore_group_pin(c, w->walk_next++);
        if (*slot == NULL) return false; /* out of memory */
        enum bwi_tier tier = BWI_TIER_LOCAL;
        struct bw_error e = BW_ERROR_INIT;
        const enum bwi_ready ready = bwi_restore_group_find(c, *slot, BWI_TIER_LOCAL, &tier);
        if (ready == BWI_WAIT) return true;
        if (ready == BWI_NOWHERE) {
            bwi_restore_group_nowhere(c, *slot);
        } else if (add_blobs(c->r, *slot, tier, &e) < 0) {
            bwi_restore_fail(c, &e);
        }
        bwi_restore_group_unpin(*slot);
        *slot = NULL;
        if (w->error.status != 0) return false;
    }
}

static void forget_blobs(struct bwi_restore *r) {
    for (size_t i = 0; i < r->blob_count; i++) bwi_free(r->blobs[i].name);
    r->blob_count = 0;
}

enum bwi_ready bwi_restore_blobs_step(struct bwi_restore_call *c) {
    struct bwi_restore *r = c->r;
    struct bwi_restore_work *w = c->w;
    if (r->blobs_set) return BWI_READY;
    if (w->sub == 0) { /* a call before may have failed half way */
        forget_blobs(r);
        w->walk_next = 0;
        w->sub = 1;
    }
    bool idle = true;
    for (size_t i = 0; i < BWI_RESTORE_WINDOW && w->error.status == 0; i++) {
        if (advance(c, &w->walk[i])) idle = false;
    }
    if (!idle || w->error.status != 0) return BWI_WAIT;
    if (r->blob_count > 1) qsort(r->blobs, r->blob_count, sizeof *r->blobs, by_rank_and_name);
    r->blobs_set = true;
    return BWI_READY;
}

/* ---- the metadata of a rank ---- */

int bwi_restore_group_of_rank(const struct bwi_restore *r, uint32_t rank, uint32_t *ret, struct bw_error *err) {
    if (bwi_manifest_group_of_rank(&r->manifest, rank, ret)) return 0;
    return bwi_error_set(err, BW_E_NOTFOUND, "checkpoint %s: no rank %" PRIu32 ", it was saved by %" PRIu32 " ranks",
                         r->id_text, rank, r->manifest.world);
}

static const struct bwi_restore_metadata *find_metadata(const struct bwi_restore *r, uint32_t rank) {
    for (size_t i = 0; i < r->metadata_count; i++) {
        if (r->metadata[i].rank == rank) return &r->metadata[i];
    }
    return NULL;
}

static int keep_metadata(struct bwi_restore *r, uint32_t rank, const struct bwi_group_meta *m, struct bw_error *err) {
    struct bwi_span json = BWI_SPAN_NONE;
    for (uint32_t i = 0; i < m->layout.rank_count; i++) {
        if (m->layout.ranks[i] == rank) json = m->content.meta[i];
    }
    if (json.len == 0) json = bwi_span_str("{}");
    if (!bwi_vec_reserve((void **)&r->metadata, &r->metadata_cap, r->metadata_count + 1, sizeof *r->metadata)) {
        return bwi_error_nomem(err, sizeof *r->metadata, "metadata of a rank");
    }
    char *copy = copy_of(json, err);
    if (copy == NULL) return err->status;
    r->metadata[r->metadata_count++] = (struct bwi_restore_metadata){rank, copy};
    return 0;
}

enum bwi_ready bwi_restore_rank_step(struct bwi_restore_call *c) {
    struct bwi_restore *r = c->r;
    struct bwi_restore_group **slot = &c->w->walk[0];
    struct bw_error e = BW_ERROR_INIT;
    uint32_t group;
    enum bwi_tier tier = BWI_TIER_LOCAL;
    if (find_metadata(r, c->rank) != NULL) return BWI_READY;
    if (bwi_restore_group_of_rank(r, c->rank, &group, &e) < 0) {
        bwi_restore_fail(c, &e);
        return BWI_WAIT;
    }
    if (*slot == NULL) *slot = bwi_restore_group_pin(c, group);
    if (*slot == NULL) return BWI_WAIT;
    const enum bwi_ready ready = bwi_restore_group_find(c, *slot, BWI_TIER_LOCAL, &tier);
    if (ready == BWI_NOWHERE) bwi_restore_group_nowhere(c, *slot);
    if (ready != BWI_READY) return BWI_WAIT;
    if (keep_metadata(r, c->rank, &(*slot)->tier[tier].meta, &e) < 0) bwi_restore_fail(c, &e);
    return BWI_READY;
}

/* ---- answers ---- */

static int not_read(const struct bwi_restore *r, const char *what, struct bw_error *err) {
    return bwi_error_set(err, BW_E_STATE, "checkpoint %s: its %s not been read yet", r->id_text, what);
}

int bwi_restore_get_info(struct bwi_restore *r, struct bw_checkpoint_info *ret, struct bw_error *err) {
    if (!r->head_set) return not_read(r, "manifest has", err);
    struct bw_checkpoint_info info = {.step = r->target.id.step,
                                      .attempt = r->target.id.attempt,
                                      .world = r->manifest.world,
                                      .groups = r->manifest.group_count,
                                      .committed = r->target.committed,
                                      .raw_bytes = r->manifest.raw_bytes,
                                      .tensors = r->head.tensors};
    _Static_assert(sizeof info.id >= sizeof r->id_text, "an id fits");
    memcpy(info.id, r->id_text, sizeof r->id_text);
    *ret = info;
    return 0;
}

static int by_name(const void *key, const void *element) {
    const struct bwi_index_tensor *t = element;
    return bwi_span_cmp(*(const struct bwi_span *)key, t->name);
}

/* The tensor and its block. BW_E_STATE: the block has not been read. */
static int find(const struct bwi_restore *r, struct bwi_span name, const struct bwi_restore_block **ret_block,
                const struct bwi_index_tensor **ret, struct bw_error *err) {
    uint32_t n;
    const struct bwi_restore_block *b = NULL;
    const struct bwi_index_tensor *t = NULL;
    if (!r->head_set) return not_read(r, "index has", err);
    if (bwi_index_head_find(&r->head, name, &n)) {
        b = &r->blocks[n];
        if (!b->loaded) return not_read(r, "block of the index with this tensor has", err);
        t = bsearch(&name, b->block.tensors, b->block.tensor_count, sizeof *b->block.tensors, by_name);
    }
    if (t == NULL) {
        return bwi_error_set(err, BW_E_NOTFOUND, "checkpoint %s: no tensor %s", r->id_text,
                             bwi_shape_name_text(name).s);
    }
    *ret_block = b;
    *ret = t;
    return 0;
}

const struct bwi_index_tensor *bwi_restore_find_tensor(const struct bwi_restore *r, struct bwi_span name) {
    const struct bwi_restore_block *b = NULL;
    const struct bwi_index_tensor *t = NULL;
    return find(r, name, &b, &t, NULL) == 0 ? t : NULL;
}

static void fill_tensor(const struct bwi_restore_block *b, const struct bwi_index_tensor *t,
                        struct bw_tensor_info *ret) {
    *ret = (struct bw_tensor_info){.name = b->names[t - b->block.tensors],
                                   .dtype = t->dtype,
                                   .dims = t->dims,
                                   .shape = t->dims == 0 ? NULL : t->shape,
                                   .boxes = t->box_count};
    (void)bwi_shape_bytes(t->dtype, t->dims, t->shape, &ret->bytes); /* a decoded shape fits */
}

int bwi_restore_get_tensor(struct bwi_restore *r, const char *name, struct bw_tensor_info *ret, struct bw_error *err) {
    const struct bwi_restore_block *b = NULL;
    const struct bwi_index_tensor *t = NULL;
    if (name == NULL) return bwi_error_set(err, BW_E_INVALID, "tensor: name is NULL");
    const int rc = find(r, bwi_span_str(name), &b, &t, err);
    if (t != NULL) fill_tensor(b, t, ret);
    return rc;
}

int bwi_restore_get_tensor_at(struct bwi_restore *r, uint64_t i, struct bw_tensor_info *ret, struct bw_error *err) {
    if (!r->head_set) return not_read(r, "index has", err);
    if (i >= r->head.tensors) {
        return bwi_error_set(err, BW_E_NOTFOUND, "checkpoint %s: no tensor number %" PRIu64 ", it has %" PRIu64,
                             r->id_text, i, r->head.tensors);
    }
    uint32_t low = 0;
    for (uint32_t high = r->head.block_count; high - low > 1;) {
        const uint32_t mid = low + (high - low) / 2;
        if (r->head.blocks[mid].first_tensor <= i) {
            low = mid;
        } else {
            high = mid;
        }
    }
    const struct bwi_restore_block *b = &r->blocks[low];
    if (!b->loaded) return not_read(r, "index has", err);
    fill_tensor(b, &b->block.tensors[i - r->head.blocks[low].first_tensor], ret);
    return 0;
}

int bwi_restore_get_box(struct bwi_restore *r, const char *name, uint32_t i, struct bw_box_info *ret,
                        struct bw_error *err) {
    const struct bwi_restore_block *b = NULL;
    const struct bwi_index_tensor *t = NULL;
    if (name == NULL) return bwi_error_set(err, BW_E_INVALID, "tensor: name is NULL");
    const int rc = find(r, bwi_span_str(name), &b, &t, err);
    if (t == NULL) return rc;
    if (i >= t->box_count) {
        return bwi_error_set(err, BW_E_NOTFOUND, "tensor %s: no box number %" PRIu32 ", it has %" PRIu32,
                             bwi_shape_name_text(t->name).s, i, t->box_count);
    }
    const struct bwi_index_box *x = &t->boxes[i];
    *ret = (struct bw_box_info){x->offset, x->extent, x->group, x->item};
    return 0;
}

int bwi_restore_get_blob_count(struct bwi_restore *r, uint64_t *ret, struct bw_error *err) {
    if (!r->blobs_set) return not_read(r, "blobs have", err);
    *ret = r->blob_count;
    return 0;
}

int bwi_restore_get_blob(struct bwi_restore *r, uint64_t i, struct bw_blob_info *ret, struct bw_error *err) {
    if (!r->blobs_set) return not_read(r, "blobs have", err);
    if (i >= r->blob_count) {
        return bwi_error_set(err, BW_E_NOTFOUND, "checkpoint %s: no blob number %" PRIu64 ", it has %zu", r->id_text, i,
                             r->blob_count);
    }
    const struct bwi_restore_blob *b = &r->blobs[i];
    *ret = (struct bw_blob_info){.name = b->name, .rank = b->rank, .bytes = b->bytes};
    return 0;
}

int bwi_restore_get_metadata(struct bwi_restore *r, uint32_t rank, const char **ret, struct bw_error *err) {
    const struct bwi_restore_metadata *m = find_metadata(r, rank);
    if (m == NULL) return not_read(r, "metadata of this rank has", err);
    *ret = m->json;
    return 0;
}
