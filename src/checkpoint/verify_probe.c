/* SPDX-License-Identifier: Apache-2.0 */
/* Extents that are read one by one: those in packs of other checkpoints, of which only a part is this one's, and
 * compressed ones, whose raw bytes have a hash of their own. A few at once, in the content's order. */
#include "base/error.h"
#include "base/vec.h"
#include "checkpoint/verify_private.h"
#include <inttypes.h>

static struct bwi_context *ctx_of(const struct bwi_verify_group *g) {
    return g->v->ctx;
}

/* The next extent that needs a probe. */
static bool next_extent(struct bwi_verify_group *g, uint64_t *ret) {
    const struct bwi_group_meta *m = &g->meta;
    for (; g->next < m->placement.extent_count; g->next++) {
        const struct bwi_place *p = &m->placement.places[g->next];
        if (g->known[p->pack].skip || (p->codec == BWI_CODEC_RAW && g->known[p->pack].own)) continue;
        *ret = g->next++;
        return true;
    }
    return false;
}

static void granted(struct bwi_arena_wait *w) {
    struct bwi_verify_probe *p = w->user;
    bwi_task_wake(&p->g->task);
}

static void begin(struct bwi_verify_group *g, struct bwi_verify_probe *p, uint64_t extent) {
    const struct bwi_group_meta *m = &g->meta;
    while (m->content.first_extent[g->item + 1] <= extent) g->item++;
    *p = (struct bwi_verify_probe){.state = BWI_PROBE_BUFFER,
                                   .g = g,
                                   .number = extent,
                                   .extent = bwi_extent_of(&m->content, &m->placement, g->item, extent),
                                   .pack = bwi_pack_key_of(&m->placement, m->placement.places[extent].pack)};
    const size_t need = bwi_extent_buffer_bytes(&p->extent);
    if (need > bwi_arena_budget(ctx_of(g)->arena)) {
        (void)bwi_error_set(&g->task.error, BW_E_LIMIT, "memory budget: an extent of pack \"%s\" needs %zu bytes",
                            p->pack.s, need);
        p->state = BWI_PROBE_FREE;
        return;
    }
    p->buffer = (struct bwi_arena_wait){.bytes = need, .granted = granted, .user = p};
    bwi_arena_acquire(ctx_of(g)->arena, &p->buffer);
}

static void end(struct bwi_verify_probe *p) {
    struct bwi_arena *a = ctx_of(p->g)->arena;
    bwi_arena_cancel(a, &p->buffer);
    bwi_arena_release(a, p->buffer.ptr, p->buffer.bytes);
    bwi_call_fini(&p->call);
    p->state = BWI_PROBE_FREE;
}

/* What could not be looked at is told at once; damage is collected, and told pack by pack. */
static void bad(struct bwi_verify_probe *p, const struct bw_error *cause) {
    struct bwi_verify_group *g = p->g;
    if (!bwi_is_damage(cause->status)) {
        struct bw_error e = *cause;
        (void)bwi_error_wrap(&e, "extent %" PRIu64, p->number);
        bwi_verify_report(g->v, g->tier, g->group, p->pack.s, e.status, e.message);
        g->known[p->extent.place->pack].skip = true;
        return;
    }
    g->missing |= cause->status == BW_E_NOTFOUND;
    if (g->bad_count >= BWI_VERIFY_BAD) return;
    if (!bwi_vec_reserve((void **)&g->bad, &g->bad_cap, g->bad_count + 1, sizeof *g->bad)) {
        (void)bwi_error_nomem(&g->task.error, g->bad_count * sizeof *g->bad, "damaged extents");
        return;
    }
    g->bad[g->bad_count++] = p->number;
}

static void check(struct bwi_verify_probe *p) {
    const uint8_t *raw;
    p->verdict = bwi_extent_check(&p->extent, p->buffer.ptr, &raw, p->why);
}

static void check_call(struct bwi_io_req *r) {
    check(r->user);
    r->result = 0;
}

static void check_done(struct bwi_io_req *r) {
    struct bwi_verify_probe *p = r->user;
    p->working = false;
    p->g->task.pending--;
    bwi_task_wake(&p->g->task);
}

static void begin_check(struct bwi_verify_probe *p) {
    p->state = BWI_PROBE_CHECK;
    p->working = true;
    p->g->task.pending++;
    p->req = (struct bwi_io_req){.kind = BWI_IO_CALL, .call = check_call, .done = check_done, .user = p};
    bwi_loop_call(p->g->task.loop, &p->req);
}

static bool begin_read(struct bwi_verify_probe *p) {
    if (p->buffer.ptr == NULL) return false;
    bwi_call_prepare(&p->call, BWI_STORE_READ, p->pack.s);
    p->call.op.offset = p->extent.place->offset;
    p->call.op.buf = p->buffer.ptr;
    p->call.op.bytes = (size_t)p->extent.place->stored_bytes;
    bwi_call_submit(&p->call, &p->g->task, ctx_of(p->g)->tier[p->g->tier]);
    p->state = BWI_PROBE_READ;
    return true;
}

static bool end_read(struct bwi_verify_probe *p) {
    if (p->call.busy) return false;
    const struct bw_error e = p->call.op.error;
    if (e.status == 0) {
        begin_check(p);
    } else {
        bad(p, &e);
        end(p);
    }
    return true;
}

static bool end_check(struct bwi_verify_probe *p) {
    struct bwi_verify_group *g = p->g;
    if (p->working) return false;
    if (p->verdict != 0) {
        struct bw_error e = BW_ERROR_INIT;
        (void)bwi_error_set(&e, p->verdict, "%s", p->why);
        bad(p, &e);
    } else if (!g->known[p->extent.place->pack].own) { /* own packs were counted whole */
        g->bytes += p->extent.place->stored_bytes;
        bwi_progress_add(ctx_of(g), p->extent.place->stored_bytes);
    }
    end(p);
    return true;
}

static bool probe_step(struct bwi_verify_probe *p) {
    uint64_t extent;
    switch (p->state) {
    case BWI_PROBE_FREE: break;
    case BWI_PROBE_BUFFER: return begin_read(p);
    case BWI_PROBE_READ: return end_read(p);
    case BWI_PROBE_CHECK: return end_check(p);
    }
    if (p->g->task.error.status != 0 || p->g->task.cancel || !next_extent(p->g, &extent)) return false;
    begin(p->g, p, extent);
    return true;
}

bool bwi_verify_probes_step(struct bwi_verify_group *g) {
    bool moved = true;
    while (moved) {
        moved = false;
        for (size_t i = 0; i < BWI_VERIFY_PROBES; i++) {
            g->probes[i].g = g;
            moved |= probe_step(&g->probes[i]);
        }
    }
    for (size_t i = 0; i < BWI_VERIFY_PROBES; i++) {
        if (g->probes[i].state != BWI_PROBE_FREE) return false;
    }
    return true;
}

bool bwi_verify_probes_stop(struct bwi_verify_group *g) {
    bool idle = true;
    for (size_t i = 0; i < BWI_VERIFY_PROBES; i++) {
        struct bwi_verify_probe *p = &g->probes[i];
        if (p->state == BWI_PROBE_FREE) continue;
        if (p->call.busy || p->working) {
            idle = false;
        } else {
            end(p);
        }
    }
    return idle;
}
