/* SPDX-License-Identifier: Apache-2.0 */
/* From the history's hash to names: manifest, head of the index, blocks of the index. Each is held against the
 * hash in the one before. */
#include "base/error.h"
#include "base/vec.h"
#include "checkpoint/restore_private.h"
#include <inttypes.h>
#include <string.h>

enum manifest_sub { SUB_ASK_MANIFEST, SUB_MANIFEST, SUB_ASK_HEAD, SUB_HEAD };

static struct bwi_store *authority(const struct bwi_restore_call *c) {
    return c->r->ctx->tier[BWI_TIER_REMOTE];
}

/* An object that the checkpoint consists of could not be read. */
static enum bwi_ready object_failed(struct bwi_restore_call *c, const struct bw_error *cause) {
    struct bw_error e = *cause;
    (void)bwi_error_wrap(&e, "checkpoint %s: remote tier", c->r->id_text);
    if (e.status == BW_E_NOTFOUND && c->w->error.status == 0) c->w->missing = true;
    bwi_restore_fail(c, &e);
    return BWI_WAIT;
}

static enum bwi_ready object_damaged(struct bwi_restore_call *c, const char *key, struct bw_error *cause) {
    (void)bwi_error_wrap(cause, "checkpoint %s: remote tier: \"%s\"", c->r->id_text, key);
    bwi_restore_fail(c, cause);
    return BWI_WAIT;
}

/* The index says nothing that the layouts do not say. Where it is damaged or gone it is made again in memory, and its
 * root is still held against the manifest. */
static bool index_is_lost(struct bwi_restore_call *c, const struct bw_error *cause) {
    if (!bwi_is_damage(cause->status)) return false;
    (void)bwi_error_copy(&c->w->index_lost, cause);
    (void)bwi_error_wrap(&c->w->index_lost, "checkpoint %s: remote tier", c->r->id_text);
    return true;
}

/* ---- the manifest ---- */

static void ask_manifest(struct bwi_restore_call *c) {
    const struct bwi_restore *r = c->r;
    const struct bwi_key key = bwi_key_manifest(r->ctx->run, &r->target.id, &r->target.manifest);
    bwi_call_get(&c->w->call, &c->task, authority(c), key.s, BWI_MANIFEST_BYTES_MAX);
    c->w->sub = SUB_MANIFEST;
}

static int take_manifest(struct bwi_restore *r, struct bwi_span bytes, struct bw_error *err) {
    const int rc = bwi_manifest_take(bytes, &r->target.manifest, &r->target.id, &r->manifest, err);
    if (rc < 0) return rc;
    r->manifest_set = true;
    r->stats.metadata_objects++;
    return 0;
}

static enum bwi_ready got_manifest(struct bwi_restore_call *c) {
    struct bwi_restore_work *w = c->w;
    if (w->call.busy) return BWI_WAIT;
    w->progress++;
    if (w->call.op.error.status != 0) return object_failed(c, &w->call.op.error);
    struct bw_error e = BW_ERROR_INIT;
    if (take_manifest(c->r, bwi_buf_span(&w->call.op.body), &e) < 0) return object_damaged(c, w->call.key.s, &e);
    w->sub = SUB_ASK_HEAD;
    return BWI_READY;
}

/* ---- the head of the index ---- */

static enum bwi_ready ask_head(struct bwi_restore_call *c) {
    struct bwi_restore *r = c->r;
    const struct bwi_index_info *x = &r->manifest.index;
    const struct bwi_key key = bwi_key_index(r->ctx->run, &r->target.id, &x->root);
    bwi_buf_reset(&r->index);
    if (!bwi_buf_reserve(&r->index, (size_t)x->head_bytes)) {
        bwi_restore_nomem(c, (size_t)x->head_bytes, "head of the index");
        return BWI_WAIT;
    }
    bwi_call_prepare(&c->w->call, BWI_STORE_READ, key.s);
    c->w->call.op.buf = r->index.ptr;
    c->w->call.op.bytes = (size_t)x->head_bytes;
    bwi_call_submit(&c->w->call, &c->task, authority(c));
    c->w->sub = SUB_HEAD;
    return BWI_WAIT;
}

int bwi_restore_take_head(struct bwi_restore *r, struct bw_error *err) {
    const struct bwi_index_info *x = &r->manifest.index;
    const struct bwi_span head = bwi_span(r->index.ptr, (size_t)x->head_bytes);
    struct bwi_index_head h = {0};
    int rc = bwi_sha_check(head, &x->root, "the manifest", err);
    if (rc == 0) rc = bwi_index_head_decode(head, &h, err);
    if (rc < 0) return rc;
    if (h.bytes != x->bytes || h.tensors != x->tensors || h.boxes != x->boxes) {
        rc = bwi_error_set(err, BW_E_CORRUPT,
                           "its head counts %" PRIu64 " bytes, %" PRIu64 " tensors, %" PRIu64
                           " boxes, the manifest %" PRIu64 ", %" PRIu64 ", %" PRIu64,
                           h.bytes, h.tensors, h.boxes, x->bytes, x->tensors, x->boxes);
    }
    struct bwi_restore_block *blocks = rc == 0 ? bwi_calloc((size_t)h.block_count + 1, sizeof *blocks) : NULL;
    if (rc == 0 && blocks == NULL) rc = bwi_error_nomem(err, h.block_count * sizeof *blocks, "blocks of the index");
    if (rc < 0) {
        bwi_index_head_fini(&h);
        return rc;
    }
    r->head = h;
    r->blocks = blocks;
    r->head_set = true;
    return 0;
}

static enum bwi_ready got_head(struct bwi_restore_call *c) {
    struct bwi_restore_work *w = c->w;
    if (w->call.busy) return BWI_WAIT;
    w->progress++;
    struct bw_error e = w->call.op.error;
    c->r->index.len = w->call.op.bytes;
    if (e.status == 0 && bwi_restore_take_head(c->r, &e) < 0) (void)bwi_error_wrap(&e, "\"%s\"", w->call.key.s);
    if (e.status != 0) return index_is_lost(c, &e) ? bwi_restore_gather_step(c) : object_failed(c, &e);
    c->r->stats.metadata_objects++;
    return BWI_READY;
}

enum bwi_ready bwi_restore_manifest_step(struct bwi_restore_call *c) {
    const struct bwi_restore *r = c->r;
    struct bwi_restore_work *w = c->w;
    if (r->head_set) return BWI_READY;
    if (!r->target.committed || w->index_lost.status != 0) return bwi_restore_gather_step(c);
    if (w->sub == SUB_ASK_MANIFEST && r->manifest_set) w->sub = SUB_ASK_HEAD;
    if (w->sub == SUB_ASK_MANIFEST) {
        ask_manifest(c);
        return BWI_WAIT;
    }
    if (w->sub == SUB_MANIFEST && got_manifest(c) == BWI_WAIT) return BWI_WAIT;
    return w->sub == SUB_ASK_HEAD ? ask_head(c) : got_head(c);
}

/* ---- blocks ---- */

static int name_tensors(struct bwi_restore_block *b, struct bw_error *err) {
    size_t bytes = 0;
    for (uint32_t i = 0; i < b->block.tensor_count; i++) bytes += b->block.tensors[i].name.len + 1;
    b->text = bwi_malloc(bytes);
    b->names = bwi_calloc(b->block.tensor_count, sizeof *b->names);
    if (b->text == NULL || b->names == NULL) return bwi_error_nomem(err, bytes, "names of tensors");
    char *at = b->text;
    for (uint32_t i = 0; i < b->block.tensor_count; i++) {
        const struct bwi_span name = b->block.tensors[i].name;
        memcpy(at, name.ptr, name.len);
        at[name.len] = '\0';
        b->names[i] = at;
        at += name.len + 1;
    }
    return 0;
}

static int take_block(struct bwi_restore *r, uint32_t n, struct bwi_span bytes, struct bw_error *err) {
    struct bwi_restore_block *b = &r->blocks[n];
    int rc = bwi_index_block_decode(bytes, &r->head.blocks[n], &b->block, err);
    if (rc == 0) rc = name_tensors(b, err);
    b->loaded = rc == 0;
    if (rc == 0) return 0;
    bwi_index_block_fini(&b->block);
    bwi_free(b->text);
    bwi_free(b->names);
    b->text = NULL;
    b->names = NULL;
    return rc;
}

static void got_block(struct bwi_restore_call *c, struct bwi_restore_fetch *f) {
    struct bwi_restore_block *b = &c->r->blocks[f->block];
    f->used = false;
    c->w->progress++;
    struct bw_error e = f->call.op.error;
    b->bytes.len = f->call.op.bytes;
    c->r->stats.metadata_objects += e.status == 0;
    if (e.status == 0 && take_block(c->r, f->block, bwi_buf_span(&b->bytes), &e) < 0)
        (void)bwi_error_wrap(&e, "\"%s\"", f->call.key.s);
    if (e.status != 0 && !index_is_lost(c, &e)) (void)object_failed(c, &e);
}

static void ask_block(struct bwi_restore_call *c, struct bwi_restore_fetch *f, uint32_t n) {
    struct bwi_restore *r = c->r;
    const struct bwi_index_block_ref *ref = &r->head.blocks[n];
    struct bwi_buf *to = &r->blocks[n].bytes;
    const struct bwi_key key = bwi_key_index(r->ctx->run, &r->target.id, &r->manifest.index.root);
    bwi_buf_reset(to);
    if (!bwi_buf_reserve(to, ref->bytes)) {
        bwi_restore_nomem(c, ref->bytes, "block of the index");
        return;
    }
    f->used = true;
    f->block = n;
    bwi_call_prepare(&f->call, BWI_STORE_READ, key.s);
    f->call.op.offset = ref->offset;
    f->call.op.buf = to->ptr;
    f->call.op.bytes = ref->bytes;
    f->call.op.handle = &c->w->index_handle;
    bwi_call_submit(&f->call, &c->task, authority(c));
}

static bool is_asked(const struct bwi_restore_work *w, uint32_t block) {
    for (size_t i = 0; i < BWI_RESTORE_WINDOW; i++) {
        if (w->fetch[i].used && w->fetch[i].block == block) return true;
    }
    return false;
}

/* The next block that is needed and neither there nor on its way. */
static bool next_block(struct bwi_restore_call *c, uint32_t *ret) {
    struct bwi_restore_work *w = c->w;
    for (; w->need_at < w->need_count; w->need_at++) {
        const uint32_t n = w->need[w->need_at];
        if (c->r->blocks[n].loaded || is_asked(w, n)) continue;
        *ret = n;
        w->need_at++;
        return true;
    }
    return false;
}

/* The index of an uncommitted checkpoint is in memory already, and so is one that was made again. */
static enum bwi_ready blocks_in_memory(struct bwi_restore_call *c) {
    const struct bwi_buf *index = c->r->target.committed ? &c->r->made : &c->r->index;
    uint32_t n;
    while (next_block(c, &n)) {
        const struct bwi_index_block_ref *ref = &c->r->head.blocks[n];
        struct bw_error e = BW_ERROR_INIT;
        if (take_block(c->r, n, bwi_span(index->ptr + ref->offset, ref->bytes), &e) < 0) {
            bwi_restore_fail(c, &e);
            return BWI_WAIT;
        }
    }
    return BWI_READY;
}

enum bwi_ready bwi_restore_blocks_step(struct bwi_restore_call *c) {
    struct bwi_restore_work *w = c->w;
    bool idle = true;
    if (!c->r->target.committed || c->r->made.len > 0) return blocks_in_memory(c);
    for (size_t i = 0; i < BWI_RESTORE_WINDOW; i++) {
        struct bwi_restore_fetch *f = &w->fetch[i];
        uint32_t n;
        if (f->used && !f->call.busy) got_block(c, f);
        const bool more = w->error.status == 0 && w->index_lost.status == 0;
        if (!f->used && more && next_block(c, &n)) ask_block(c, f, n);
        if (f->used) idle = false;
    }
    if (!idle || w->index_lost.status == 0 || w->error.status != 0) return idle ? BWI_READY : BWI_WAIT;
    if (bwi_restore_gather_step(c) != BWI_READY || w->error.status != 0) return BWI_WAIT;
    w->need_at = 0;
    return blocks_in_memory(c);
}
