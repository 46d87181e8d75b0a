/* SPDX-License-Identifier: Apache-2.0 */
/* Verifying one group on one tier: its metadata, then its packs, then the extents that need a look of their own.
 * What is damaged is reported and passed by; the task fails only when it cannot go on (out of memory, cancelled). */
#include "base/error.h"
#include "base/text.h"
#include "base/vec.h"
#include "checkpoint/verify_private.h"
#include <inttypes.h>
#include <stdlib.h>

enum group_state {
    GROUP_META,
    GROUP_ASK, /* metadata is damaged somewhere: the next object by itself */
    GROUP_LOOK,
    GROUP_PACK,   /* the next pack */
    GROUP_HEAD,   /* its size */
    GROUP_HEADER, /* its header, where it belongs to another checkpoint */
    GROUP_HEADER_READ,
    GROUP_COPY, /* all of it */
    GROUP_PROBES,
    GROUP_SUMMARY, /* is it still there? */
    GROUP_SETTLE,
};

enum { LAYOUT, CONTENT, PLACEMENT, OBJECTS };

static enum bwi_step go(struct bwi_verify_group *g, enum group_state to) {
    g->state = (int)to;
    return BWI_STEP_AGAIN;
}

static struct bwi_store *store_of(const struct bwi_verify_group *g) {
    return g->v->ctx->tier[g->tier];
}

static enum bwi_step nomem(struct bwi_verify_group *g, size_t bytes, const char *what) {
    (void)bwi_error_nomem(&g->task.error, bytes, what);
    return go(g, GROUP_SETTLE);
}

static void report(struct bwi_verify_group *g, const char *key, int status, const char *text) {
    bwi_verify_report(g->v, g->tier, g->group, key, status, text);
}

static const struct bwi_manifest_group *wanted(const struct bwi_verify_group *g) {
    const struct bwi_verify_work *w = g->v->w;
    return w->manifest_set ? &w->manifest.groups[g->group] : NULL;
}

/* ---- is the copy still there? ---- */

/* An eviction takes the summary first: without it what is missing is no damage. true: it is asked for, and the state
 * at hand will be called again, unless the copy is gone. */
static bool ask_summary(struct bwi_verify_group *g, int status) {
    if (g->tier != BWI_TIER_LOCAL || status != BW_E_NOTFOUND || g->still_there) {
        g->still_there = false;
        return false;
    }
    const struct bwi_key key = bwi_key_summary(g->v->ctx->run, &g->v->id, g->group);
    bwi_call_prepare(&g->look, BWI_STORE_HEAD, key.s);
    bwi_call_submit(&g->look, &g->task, store_of(g));
    g->back = g->state;
    g->state = GROUP_SUMMARY;
    return true;
}

static enum bwi_step group_summary(struct bwi_verify_group *g) {
    if (g->look.busy) return BWI_STEP_WAIT;
    g->still_there = g->look.op.error.status != BW_E_NOTFOUND;
    if (g->still_there) return go(g, (enum group_state)g->back);
    g->there = false;
    g->packs = g->bytes = 0;
    return go(g, GROUP_SETTLE);
}

/* ---- metadata ---- */

/* A layout of each group is kept: together they give the index. */
static bool keep_layout(struct bwi_verify_group *g) {
    struct bwi_buf *copy = &g->v->w->layout_bytes[g->group];
    if (copy->len > 0) return true;
    bwi_buf_put(copy, g->meta.layout_bytes.ptr, g->meta.layout_bytes.len);
    return !copy->failed && bwi_layout_decode(bwi_buf_span(copy), &g->v->w->layouts[g->group], &g->task.error) == 0;
}

static enum bwi_step begin_packs(struct bwi_verify_group *g) {
    const uint32_t packs = g->meta.placement.pack_count;
    g->there = true;
    g->pack = 0;
    g->known = bwi_calloc(packs, sizeof *g->known);
    if (g->known == NULL || !keep_layout(g)) return nomem(g, g->meta.layout_bytes.len, "verifying a group");
    for (uint32_t i = 0; i < packs; i++) {
        g->known[i].own = bwi_pack_is_own(&g->meta.placement, i, &g->v->id, g->group);
    }
    return go(g, GROUP_PACK);
}

/* Where a missing summary is nothing but that. */
static bool may_be_absent(const struct bwi_verify_group *g) {
    return g->tier == BWI_TIER_LOCAL || !g->v->committed;
}

static enum bwi_step group_meta(struct bwi_verify_group *g) {
    if (g->read.task.running) return BWI_STEP_WAIT;
    const struct bw_error *e = &g->read.task.error;
    if (e->status == 0) return begin_packs(g);
    if (e->status == BW_E_NOTFOUND && may_be_absent(g)) return go(g, GROUP_SETTLE);
    g->there = e->status != BW_E_NOTFOUND;
    if (e->status == BW_E_NOMEM || e->status == BW_E_CANCELLED) {
        (void)bwi_error_copy(&g->task.error, e);
        return go(g, GROUP_SETTLE);
    }
    const struct bwi_key summary = bwi_key_summary(g->v->ctx->run, &g->v->id, g->group);
    if (!bwi_is_damage(e->status)) {
        report(g, summary.s, e->status, e->message);
        return go(g, GROUP_SETTLE);
    }
    if (!g->meta.summary_ok) {
        report(g, summary.s, e->status, e->message);
        g->bad_objects++;
    }
    g->object = LAYOUT;
    return go(g, GROUP_ASK);
}

/* What the summary names, or without one the manifest. false: neither tells. */
static bool expectation(const struct bwi_verify_group *g, struct bwi_key *key, struct bwi_sha *sha, uint64_t *bytes) {
    const char *run = g->v->ctx->run;
    const struct bwi_id *id = &g->v->id;
    const struct bwi_summary *s = &g->meta.summary;
    const struct bwi_manifest_group *m = wanted(g);
    const bool ok = g->meta.summary_ok;
    if (!ok && (m == NULL || g->object == PLACEMENT)) return false;
    const bool fan_out = ok ? s->fan_out : g->v->w->manifest.fan_out;
    if (g->object == LAYOUT) {
        *sha = ok ? s->layout : m->layout;
        *bytes = ok ? s->layout_bytes : m->layout_bytes;
        *key = bwi_key_layout(run, id->attempt, id->nonce, sha);
    } else if (g->object == CONTENT) {
        *sha = ok ? s->content : m->content;
        *bytes = ok ? s->content_bytes : m->content_bytes;
        *key = bwi_key_content(run, fan_out, id, g->group);
    } else {
        *sha = s->placement;
        *bytes = s->placement_bytes;
        *key = bwi_key_placement(run, fan_out, id, g->group, s->writer);
    }
    return true;
}

static enum bwi_step group_ask(struct bwi_verify_group *g) {
    struct bwi_key key;
    struct bwi_sha sha;
    uint64_t bytes;
    if (g->object < OBJECTS && !expectation(g, &key, &sha, &bytes)) {
        g->object++;
        return BWI_STEP_AGAIN;
    }
    if (g->object < OBJECTS) {
        bwi_call_get(&g->call, &g->task, store_of(g), key.s, bytes);
        return go(g, GROUP_LOOK);
    }
    if (g->bad_objects == 0) { /* each is what its name says, but together they make no sense */
        const struct bwi_key summary = bwi_key_summary(g->v->ctx->run, &g->v->id, g->group);
        report(g, summary.s, g->read.task.error.status, g->read.task.error.message);
    }
    return go(g, GROUP_SETTLE);
}

static enum bwi_step group_look(struct bwi_verify_group *g) {
    struct bwi_key key = {{0}};
    struct bwi_sha sha = {{0}};
    uint64_t bytes = 0;
    char text[192];
    const struct bwi_store_op *op = &g->call.op;
    if (g->call.busy) return BWI_STEP_WAIT;
    if (ask_summary(g, op->error.status)) return BWI_STEP_AGAIN;
    (void)expectation(g, &key, &sha, &bytes);
    const struct bwi_sha found = bwi_sha_of(bwi_buf_span(&op->body));
    if (op->error.status != 0) {
        report(g, key.s, op->error.status, op->error.message);
        g->bad_objects++;
    } else if (op->body.len != bytes || !bwi_sha_eq(&found, &sha)) {
        char hex[2][BWI_SHA_HEX_BYTES];
        bwi_sha_hex(&found, hex[0]);
        bwi_sha_hex(&sha, hex[1]);
        (void)bwi_format(text, sizeof text,
                         "%zu bytes with SHA-256 %.16s, expected %" PRIu64 " with %.16s; its packs were not looked at",
                         op->body.len, hex[0], bytes, hex[1]);
        report(g, key.s, BW_E_CORRUPT, text);
        g->bad_objects++;
    }
    bwi_call_fini(&g->call);
    g->object++;
    return go(g, GROUP_ASK);
}

/* ---- packs ---- */

static enum bwi_step next_pack(struct bwi_verify_group *g) {
    g->pack++;
    return go(g, GROUP_PACK);
}

/* The extents of the pack at hand, all of them, for one that is gone. */
static uint64_t *extents_of(struct bwi_verify_group *g, size_t *ret_n) {
    const struct bwi_placement *p = &g->meta.placement;
    size_t n = 0;
    for (uint64_t e = 0; e < p->extent_count && n < BWI_VERIFY_BAD; e++) n += p->places[e].pack == g->pack;
    uint64_t *list = bwi_calloc(n, sizeof *list);
    if (list == NULL) return NULL;
    *ret_n = 0;
    for (uint64_t e = 0; e < p->extent_count && *ret_n < n; e++) {
        if (p->places[e].pack == g->pack) list[(*ret_n)++] = e;
    }
    return list;
}

static enum bwi_step lost(struct bwi_verify_group *g, const struct bw_error *e) {
    size_t n = 0;
    uint64_t *list = extents_of(g, &n);
    if (list == NULL) return nomem(g, sizeof *list, "damaged extents");
    bwi_verify_report_pack(g, g->pack, e, list, n);
    bwi_free(list);
    g->known[g->pack].skip = true;
    return next_pack(g);
}

static enum bwi_step start_copy(struct bwi_verify_group *g) {
    struct bwi_pack_copy *c = &g->copy;
    size_t cap = 0;
    uint64_t *bad = extents_of(g, &cap);
    if (bad == NULL) return nomem(g, sizeof *bad, "extents of a pack");
    *c = (struct bwi_pack_copy){.ctx = g->v->ctx,
                                .from = store_of(g),
                                .placement = &g->meta.placement,
                                .pack = g->pack,
                                .verify_only = true,
                                .bad = bad,
                                .bad_cap = cap};
    struct bw_error e = BW_ERROR_INIT;
    if (bwi_pack_copy_start(c, &g->task, &e) < 0) {
        bwi_free(bad);
        c->bad = NULL;
        (void)bwi_error_copy(&g->task.error, &e);
        return go(g, GROUP_SETTLE);
    }
    return go(g, GROUP_COPY);
}

static enum bwi_step group_pack(struct bwi_verify_group *g) {
    if (g->task.cancel) {
        (void)bwi_error_set(&g->task.error, BW_E_CANCELLED, "verify: cancelled");
        return go(g, GROUP_SETTLE);
    }
    if (g->pack == g->meta.placement.pack_count) return go(g, g->v->fast ? GROUP_SETTLE : GROUP_PROBES);
    g->packs++;
    if (!g->v->fast && g->known[g->pack].own) return start_copy(g);
    const struct bwi_key key = bwi_pack_key_of(&g->meta.placement, g->pack);
    bwi_call_prepare(&g->call, BWI_STORE_HEAD, key.s);
    bwi_call_submit(&g->call, &g->task, store_of(g));
    return go(g, GROUP_HEAD);
}

static enum bwi_step group_copy(struct bwi_verify_group *g) {
    struct bwi_pack_copy *c = &g->copy;
    if (c->task.running) {
        if (g->task.cancel && !c->task.cancel) bwi_task_cancel(&c->task);
        return BWI_STEP_WAIT;
    }
    const struct bw_error *e = &c->task.error;
    if (ask_summary(g, e->status)) return BWI_STEP_AGAIN;
    g->bytes += c->bytes;
    if (e->status == BW_E_NOMEM || e->status == BW_E_CANCELLED) {
        (void)bwi_error_copy(&g->task.error, e);
    } else if (bwi_is_damage(e->status)) {
        bwi_verify_report_pack(g, g->pack, e, c->bad, c->bad_count);
    } else if (e->status != 0) {
        const struct bwi_key key = bwi_pack_key_of(&g->meta.placement, g->pack);
        report(g, key.s, e->status, e->message);
    }
    g->known[g->pack].skip = e->status != 0;
    bwi_pack_copy_fini(c);
    bwi_free(c->bad);
    c->bad = NULL;
    return g->task.error.status != 0 ? go(g, GROUP_SETTLE) : next_pack(g);
}

static enum bwi_step group_head(struct bwi_verify_group *g) {
    const struct bwi_pack_ref *pack = &g->meta.placement.packs[g->pack];
    const struct bwi_store_op *op = &g->call.op;
    if (g->call.busy) return BWI_STEP_WAIT;
    if (ask_summary(g, op->error.status)) return BWI_STEP_AGAIN;
    struct bw_error e = op->error;
    if (e.status == 0 && op->size_bytes != pack->file_bytes) {
        (void)bwi_error_set(&e, BW_E_CORRUPT, "the file has %" PRIu64 " bytes, expected %" PRIu64, op->size_bytes,
                            pack->file_bytes);
    }
    if (bwi_is_damage(e.status)) return lost(g, &e);
    if (e.status != 0) {
        const struct bwi_key key = bwi_pack_key_of(&g->meta.placement, g->pack);
        report(g, key.s, e.status, e.message);
        g->known[g->pack].skip = true;
        return next_pack(g);
    }
    return g->v->fast ? next_pack(g) : go(g, GROUP_HEADER);
}

/* ---- the header of a pack of another checkpoint ---- */

static void header_granted(struct bwi_arena_wait *w) {
    struct bwi_verify_group *g = w->user;
    bwi_task_wake(&g->task);
}

static void header_end(struct bwi_verify_group *g) {
    bwi_arena_cancel(g->v->ctx->arena, &g->header);
    bwi_arena_release(g->v->ctx->arena, g->header.ptr, g->header.bytes);
    g->header = (struct bwi_arena_wait){0};
}

static enum bwi_step group_header(struct bwi_verify_group *g) {
    const struct bwi_pack_ref *pack = &g->meta.placement.packs[g->pack];
    if (g->task.cancel) return go(g, GROUP_SETTLE);
    if (g->header.bytes == 0) {
        if (pack->header_bytes > bwi_arena_budget(g->v->ctx->arena)) {
            (void)bwi_error_set(&g->task.error, BW_E_LIMIT, "memory budget: the header of a pack has %" PRIu64 " bytes",
                                pack->header_bytes);
            return go(g, GROUP_SETTLE);
        }
        g->header = (struct bwi_arena_wait){.bytes = (size_t)pack->header_bytes, .granted = header_granted, .user = g};
        bwi_arena_acquire(g->v->ctx->arena, &g->header);
    }
    if (g->header.ptr == NULL) return BWI_STEP_WAIT;
    const struct bwi_key key = bwi_pack_key_of(&g->meta.placement, g->pack);
    bwi_call_prepare(&g->call, BWI_STORE_READ, key.s);
    g->call.op.buf = g->header.ptr;
    g->call.op.bytes = (size_t)pack->header_bytes;
    bwi_call_submit(&g->call, &g->task, store_of(g));
    return go(g, GROUP_HEADER_READ);
}

static enum bwi_step group_header_read(struct bwi_verify_group *g) {
    const struct bwi_pack_ref *pack = &g->meta.placement.packs[g->pack];
    if (g->call.busy) return BWI_STEP_WAIT;
    if (ask_summary(g, g->call.op.error.status)) return BWI_STEP_AGAIN;
    struct bw_error e = g->call.op.error;
    if (e.status == 0) {
        const struct bwi_xxh found = bwi_xxh_of(bwi_span(g->header.ptr, (size_t)pack->header_bytes));
        if (!bwi_xxh_eq(&found, &pack->header)) {
            (void)bwi_error_set(&e, BW_E_CORRUPT, "the header (%" PRIu64 " bytes) does not match its hash",
                                pack->header_bytes);
        }
    }
    if (bwi_is_damage(e.status)) {
        bwi_verify_report_pack(g, g->pack, &e, NULL, 0);
    } else if (e.status != 0) {
        report(g, g->call.key.s, e.status, e.message);
    }
    header_end(g);
    return next_pack(g);
}

/* ---- single extents ---- */

static int by_pack(const void *left, const void *right, void *placement) {
    const struct bwi_place *places = ((const struct bwi_placement *)placement)->places;
    const uint64_t a = *(const uint64_t *)left;
    const uint64_t b = *(const uint64_t *)right;
    if (places[a].pack != places[b].pack) return places[a].pack < places[b].pack ? -1 : 1;
    return (a > b) - (a < b);
}

static void report_probes(struct bwi_verify_group *g) {
    const struct bwi_place *places = g->meta.placement.places;
    if (g->bad_count > 1) qsort_r(g->bad, g->bad_count, sizeof *g->bad, by_pack, &g->meta.placement);
    for (size_t i = 0; i < g->bad_count;) {
        const uint32_t pack = places[g->bad[i]].pack;
        size_t n = 1;
        while (i + n < g->bad_count && places[g->bad[i + n]].pack == pack) n++;
        const struct bwi_key key = bwi_pack_key_of(&g->meta.placement, pack);
        struct bw_error e = BW_ERROR_INIT;
        (void)bwi_error_set(&e, BW_E_CORRUPT,
                            "pack \"%s\": %zu extents do not match their hashes, the first is extent %" PRIu64
                            " (%" PRIu64 " bytes at offset %" PRIu64 ")",
                            key.s, n, g->bad[i], places[g->bad[i]].stored_bytes, places[g->bad[i]].offset);
        bwi_verify_report_pack(g, pack, &e, g->bad + i, n);
        i += n;
    }
}

static enum bwi_step group_probes(struct bwi_verify_group *g) {
    if (g->task.error.status != 0 || g->task.cancel) return go(g, GROUP_SETTLE);
    if (!bwi_verify_probes_step(g)) {
        return g->task.error.status != 0 ? go(g, GROUP_SETTLE) : BWI_STEP_WAIT;
    }
    if (g->task.error.status == 0 && ask_summary(g, g->missing ? BW_E_NOTFOUND : 0)) return BWI_STEP_AGAIN;
    if (g->task.error.status == 0) report_probes(g);
    return go(g, GROUP_SETTLE);
}

static enum bwi_step group_settle(struct bwi_verify_group *g) {
    if (!bwi_verify_probes_stop(g) || g->task.pending > 0) return BWI_STEP_WAIT;
    if (g->task.cancel) (void)bwi_error_set(&g->task.error, BW_E_CANCELLED, "verify: cancelled");
    header_end(g);
    return BWI_STEP_END;
}

/* ---- the task ---- */

static enum bwi_step group_step(struct bwi_task *t) {
    struct bwi_verify_group *g = bwi_container_of(t, struct bwi_verify_group, task);
    switch ((enum group_state)g->state) {
    case GROUP_META: return group_meta(g);
    case GROUP_ASK: return group_ask(g);
    case GROUP_LOOK: return group_look(g);
    case GROUP_PACK: return group_pack(g);
    case GROUP_HEAD: return group_head(g);
    case GROUP_HEADER: return group_header(g);
    case GROUP_HEADER_READ: return group_header_read(g);
    case GROUP_COPY: return group_copy(g);
    case GROUP_PROBES: return group_probes(g);
    case GROUP_SUMMARY: return group_summary(g);
    case GROUP_SETTLE: break;
    }
    return group_settle(g);
}

void bwi_verify_group_start(struct bwi_verify_group *g, struct bwi_loop *loop, struct bwi_task *parent) {
    const struct bwi_verify_work *w = g->v->w;
    const struct bwi_manifest_group *m = wanted(g);
    g->task.step = group_step;
    g->task.name = "verify group";
    g->state = GROUP_META;
    bwi_task_start(loop, &g->task, parent);
    g->read = (struct bwi_meta_read){.ctx = g->v->ctx,
                                     .tier = g->tier,
                                     .id = g->v->id,
                                     .group = g->group,
                                     .want_layout = m == NULL ? NULL : &m->layout,
                                     .want_content = m == NULL ? NULL : &m->content,
                                     .want_uuid = m == NULL ? NULL : &w->manifest.uuid,
                                     .want_whole = m == NULL ? NULL : &w->manifest,
                                     .meta = &g->meta};
    bwi_meta_read_start(&g->read, loop, &g->task);
}

void bwi_verify_group_free(struct bwi_verify_group *g) {
    bwi_group_meta_fini(&g->meta);
    bwi_pack_copy_fini(&g->copy);
    bwi_free(g->copy.bad);
    bwi_call_fini(&g->call);
    bwi_call_fini(&g->look);
    bwi_free(g->known);
    bwi_free(g->bad);
    *g = (struct bwi_verify_group){0};
}
