/* SPDX-License-Identifier: Apache-2.0 */
/* Writing the packs of a plan from memory. Chunks go through slots, in the plan's order: a buffer from the arena, the
 * capture on a worker, the write, the buffer back. There are as many slots as buffers fit into the arena, so that a
 * state that fits is captured without waiting for the device. Beside them up to four packs are open, each on its way
 * from BEGIN to FINISH.
 *
 * Capturing waits for nothing but buffers, so that the caller's memory is free as soon as possible: a chunk may be
 * captured before its pack has been begun. This cannot deadlock: a slot asks for one buffer and holds no other, and
 * chunks get theirs in order, so that those of the packs that are open always come before those that wait for a pack
 * to be closed. */
#include "base/checked.h"
#include "base/error.h"
#include "base/vec.h"
#include "checkpoint/transfer.h"
#include <assert.h>
#include <string.h>

#define SLOTS_MIN 16   /* chunks in flight: 64 MiB at the usual extent, more than any device needs to be busy */
#define SLOTS_MAX 4096 /* 16 GiB of captured chunks; each turn looks at every slot */
#define OPEN      4    /* packs that are open at once */

#define BATCHES   16u /* in flight at most; workers beyond have no part in capturing */
#define BATCH_MAX 8u  /* chunks */

enum slot_state {
    SLOT_FREE,
    SLOT_BUFFER,   /* waits for the arena */
    SLOT_READY,    /* waits for a worker */
    SLOT_CAPTURE,  /* is being filled */
    SLOT_CAPTURED, /* waits until its pack has been begun */
    SLOT_WRITE,    /* is being written, and hashed beside it */
    SLOT_WRITTEN,  /* waits for the hash */
};

struct slot {
    struct bwi_pack_write *owner;
    enum slot_state state;
    const struct bwi_chunk *chunk;
    size_t pack;
    struct slot *next; /* that is free, or ready */
    bool hashing;      /* the request is in flight */
    bool hashed;
    uint64_t asked_ns;
    struct bwi_arena_wait buffer;
    struct bwi_io_req hash;
    struct bwi_call call;
};

/* What one worker captures at a time: several chunks, since what it costs to hand work over would be felt else. */
struct batch {
    struct bwi_pack_write *owner;
    struct slot *slots[BATCH_MAX];
    size_t count; /* 0: not in flight */
    struct bwi_io_req req;
};

enum pack_state {
    PACK_CLOSED,
    PACK_BEGIN,
    PACK_HEADER, /* from here on chunks are written */
    PACK_DATA,
    PACK_FINISH,
    PACK_ASK,  /* whether it exists: FINISH got no answer */
    PACK_SYNC, /* it does; that its name is durable is what FINISH could not say */
};

struct pack {
    enum pack_state state;
    size_t number;
    size_t unwritten; /* chunks */
    struct bwi_key key;
    struct bwi_store_upload *upload;
    struct bwi_call call;
};

enum write_state {
    WRITE_RUN,
    WRITE_SETTLE, /* failed or cancelled: waits for what is in flight */
    WRITE_ABORT,
    WRITE_ABORTED,
};

struct bwi_pack_writer {
    enum write_state state;
    struct bwi_store *store;
    struct slot *slots;
    size_t slot_count;
    size_t writing; /* slots in SLOT_WRITE */
    size_t depth;   /* of them at most */
    struct batch batches[BATCHES];
    struct slot *free;
    bool waiting;                    /* a slot is in SLOT_BUFFER */
    struct slot *ready, *ready_tail; /* slots in SLOT_READY, in the plan's order */
    size_t ready_count;
    struct pack packs[OPEN];  /* pack n is in n % OPEN */
    size_t begun, finished;   /* packs, both in order */
    size_t cut_pack, cut;     /* the next chunk to be captured: its pack, its number in the pack */
    size_t uncut, uncaptured; /* chunks of the whole plan: without a slot yet, not in a buffer yet */
};

static const struct bwi_pack_plan *pack_plan(const struct bwi_pack_write *w, size_t n) {
    return &w->plan->packs[n];
}

static int fail(struct bwi_pack_write *w, size_t pack, const struct bw_error *cause) {
    struct bw_error e = *cause;
    (void)bwi_error_wrap(&e, "write pack %zu to the %s tier", pack, bwi_tier_name(w->tier));
    return bwi_error_copy(&w->task.error, &e);
}

/* Nothing reads the memory any more. false: what was read of it is worth nothing. */
static bool set_captured(struct bwi_pack_write *w) {
    if (w->captured) return true;
    if (w->cow != NULL) bwi_cow_end(w->cow);
    w->captured = true;
    w->captured_ns = bwi_loop_now_ns(w->task.loop);
    if (w->task.parent != NULL) bwi_task_wake(w->task.parent);
    return w->cow == NULL || !w->cow->lost;
}

static int fail_lost(struct bwi_pack_write *w) {
    bwi_error_set(&w->task.error, BW_E_IO,
                  "a write to the tensors had waited for too long until they were captured: they were given free, and "
                  "the save is lost");
    bwi_error_stage(&w->task.error, BW_STAGE_CAPTURE);
    return BW_E_IO;
}

/* ---- packs ---- */

static bool pack_call_failed(struct bwi_pack_write *w, const struct pack *p) {
    if (p->call.op.error.status == 0) return false;
    w->gone = p->call.op.outcome == BWI_STORE_GONE;
    return fail(w, p->number, &p->call.op.error) < 0;
}

static bool pack_begin(struct bwi_pack_write *w) {
    struct bwi_pack_writer *k = w->w;
    if (w->hold || k->begun == w->plan->pack_count || k->begun - k->finished == OPEN) return false;
    struct pack *p = &k->packs[k->begun % OPEN];
    assert(p->state == PACK_CLOSED);
    p->number = k->begun++;
    p->unwritten = pack_plan(w, p->number)->chunks;
    p->key = bwi_key_pack(w->ctx->run, w->fan_out, &w->id, w->group, (uint32_t)p->number, w->ctx->writer);
    bwi_call_prepare(&p->call, BWI_STORE_BEGIN, p->key.s);
    p->call.op.size_bytes = pack_plan(w, p->number)->file_bytes;
    bwi_call_submit(&p->call, &w->task, k->store);
    p->state = PACK_BEGIN;
    return true;
}

static bool pack_begun(struct bwi_pack_write *w, struct pack *p) {
    if (p->call.busy) return false;
    p->upload = p->call.op.upload;
    if (pack_call_failed(w, p)) return false;
    w->recycled_bytes += p->call.op.recycled_bytes;
    const struct bwi_span header = bwi_buf_span(&pack_plan(w, p->number)->header);
    w->headers[p->number] = bwi_xxh_of(header);
    bwi_call_prepare(&p->call, BWI_STORE_WRITE, NULL);
    p->call.op.upload = p->upload;
    p->call.op.buf = pack_plan(w, p->number)->header.ptr;
    p->call.op.bytes = header.len;
    bwi_call_submit(&p->call, &w->task, w->w->store);
    p->state = PACK_HEADER;
    return true;
}

static bool pack_header(struct bwi_pack_write *w, struct pack *p) {
    if (p->call.busy || pack_call_failed(w, p)) return false;
    bwi_progress_add(w->ctx, p->call.op.bytes);
    p->state = PACK_DATA;
    return true;
}

static bool pack_data(struct bwi_pack_write *w, struct pack *p) {
    if (p->unwritten > 0 || p->number != w->w->finished) return false;
    bwi_call_prepare(&p->call, BWI_STORE_FINISH, NULL);
    p->call.op.upload = p->upload;
    p->upload = NULL; /* gone afterwards, however it ends */
    bwi_call_submit(&p->call, &w->task, w->w->store);
    p->state = PACK_FINISH;
    return true;
}

static bool pack_done(struct bwi_pack_write *w, struct pack *p) {
    w->w->finished++;
    p->state = PACK_CLOSED;
    return true;
}

static bool pack_finish(struct bwi_pack_write *w, struct pack *p) {
    if (p->call.busy) return false;
    if (p->call.op.error.status == BW_E_UNKNOWN) {
        bwi_call_prepare(&p->call, BWI_STORE_HEAD, p->key.s);
        bwi_call_submit(&p->call, &w->task, w->w->store);
        p->state = PACK_ASK;
        return true;
    }
    if (pack_call_failed(w, p)) return false;
    w->objects++;
    return pack_done(w, p);
}

/* The writer's number is in the key, so an object of this name and size is the one that was written here. */
static bool pack_ask(struct bwi_pack_write *w, struct pack *p) {
    if (p->call.busy) return false;
    const uint64_t want = pack_plan(w, p->number)->file_bytes;
    if (p->call.op.error.status == 0 && p->call.op.size_bytes == want) {
        const struct bwi_key dir = bwi_key_data_of(w->ctx->run, w->fan_out, &w->id, w->group);
        w->objects++;
        bwi_call_prepare(&p->call, BWI_STORE_SYNC, dir.s);
        bwi_call_submit(&p->call, &w->task, w->w->store);
        p->state = PACK_SYNC;
        return true;
    }
    struct bw_error e = BW_ERROR_INIT;
    (void)bwi_error_set(&e, BW_E_UNKNOWN, "finish \"%s\": no answer, and it cannot be seen whether the object exists",
                        p->key.s);
    (void)fail(w, p->number, &e);
    return false;
}

static bool pack_sync(struct bwi_pack_write *w, struct pack *p) {
    if (p->call.busy || pack_call_failed(w, p)) return false;
    return pack_done(w, p);
}

static bool pack_step(struct bwi_pack_write *w, struct pack *p) {
    switch (p->state) {
    case PACK_CLOSED: return false;
    case PACK_BEGIN: return pack_begun(w, p);
    case PACK_HEADER: return pack_header(w, p);
    case PACK_DATA: return pack_data(w, p);
    case PACK_FINISH: return pack_finish(w, p);
    case PACK_ASK: return pack_ask(w, p);
    case PACK_SYNC: return pack_sync(w, p);
    }
    return false;
}

/* The open pack that a captured chunk may be written to; NULL: not yet. */
static struct pack *pack_open(struct bwi_pack_writer *k, size_t number) {
    struct pack *p = &k->packs[number % OPEN];
    return p->number == number && (p->state == PACK_HEADER || p->state == PACK_DATA) ? p : NULL;
}

/* ---- chunks ---- */

static void slot_granted(struct bwi_arena_wait *b) {
    struct slot *s = b->user;
    s->owner->arena_wait_ns += bwi_loop_now_ns(s->owner->task.loop) - s->asked_ns;
    bwi_task_wake(&s->owner->task);
}

static void slot_release(struct slot *s) {
    struct bwi_pack_write *w = s->owner;
    struct bwi_pack_writer *k = w->w;
    if (s->state == SLOT_FREE) return;
    const size_t number = (size_t)(s->chunk - w->plan->chunks);
    const bool keeps = s->state == SLOT_WRITTEN && s->call.op.error.status == 0;
    if (!keeps || !bwi_resident_put(w->resident, number, s->buffer.ptr, s->buffer.bytes))
        bwi_arena_release(w->ctx->arena, s->buffer.ptr, s->buffer.bytes);
    s->buffer.ptr = NULL;
    s->state = SLOT_FREE;
    s->next = k->free;
    k->free = s;
}

/* Whether one more chunk may be captured although no pack is begun. */
static bool may_hold(const struct bwi_pack_write *w, uint32_t bytes) {
    const uint64_t needed = bytes + BWI_HOLD_LEAVES_BYTES;
    return bwi_arena_largest_free(w->ctx->arena, needed) >= needed;
}

static bool slot_buffer(struct bwi_pack_writer *k, struct slot *s) {
    if (s->buffer.ptr == NULL) return false;
    k->waiting = false;
    s->state = SLOT_READY;
    s->next = NULL;
    if (k->ready == NULL)
        k->ready = s;
    else
        k->ready_tail->next = s;
    k->ready_tail = s;
    k->ready_count++;
    return true;
}

/* Asks for the buffer of the next chunk. One at a time: saves that share the arena take turns. */
static bool slot_begin(struct bwi_pack_write *w) {
    struct bwi_pack_writer *k = w->w;
    struct slot *s = k->free;
    if (k->waiting) return false;
    while (k->cut_pack < w->plan->pack_count && k->cut == pack_plan(w, k->cut_pack)->chunks) {
        k->cut_pack++;
        k->cut = 0;
    }
    if (s == NULL || k->cut_pack == w->plan->pack_count) return false;
    const struct bwi_chunk *chunk = &w->plan->chunks[pack_plan(w, k->cut_pack)->first_chunk + k->cut];
    if (w->hold && !may_hold(w, chunk->bytes)) return false;
    k->free = s->next;
    k->waiting = true;
    s->pack = k->cut_pack;
    s->chunk = chunk;
    k->cut++;
    k->uncut--;
    s->state = SLOT_BUFFER;
    s->asked_ns = bwi_loop_now_ns(w->task.loop);
    s->buffer = (struct bwi_arena_wait){
        .bytes = (size_t)bwi_round_up(s->chunk->bytes, BWI_ARENA_ALIGN), .granted = slot_granted, .user = s};
    bwi_arena_acquire(w->ctx->arena, &s->buffer);
    (void)slot_buffer(k, s);
    return true;
}

/* On a worker. Chunks that are filled at the same time touch different pieces of the plan. */
static void batch_fill(struct bwi_io_req *r) {
    const struct batch *b = r->user;
    for (size_t i = 0; i < b->count; i++) bwi_plan_fill(b->owner->plan, b->slots[i]->chunk, b->slots[i]->buffer.ptr);
    r->result = 0;
}

static void batch_filled(struct bwi_io_req *r) {
    struct batch *b = r->user;
    for (size_t i = 0; i < b->count; i++) b->slots[i]->state = SLOT_CAPTURED;
    b->owner->w->uncaptured -= b->count;
    b->owner->task.pending--;
    b->count = 0;
    bwi_task_wake(&b->owner->task);
}

/* The more there is, the more a batch takes; towards the end little, so that the workers end together. */
static bool batch_start(struct bwi_pack_write *w) {
    struct bwi_pack_writer *k = w->w;
    struct batch *b = k->batches;
    while (b < k->batches + BATCHES && b->count > 0) b++;
    if (k->ready_count == 0 || b == k->batches + BATCHES) return false;
    const size_t count = bwi_max_u64(bwi_min_u64(k->ready_count / BATCHES, BATCH_MAX), 1);
    *b = (struct batch){.owner = w, .req = {.kind = BWI_IO_CALL, .call = batch_fill, .done = batch_filled, .user = b}};
    b->req.urgent = w->cow == NULL || bwi_cow_is_wanted(w->cow);
    for (; b->count < count; b->count++, k->ready = k->ready->next) {
        b->slots[b->count] = k->ready;
        k->ready->state = SLOT_CAPTURE;
    }
    k->ready_count -= count;
    w->task.pending++;
    bwi_loop_call(w->task.loop, &b->req);
    return true;
}

/* Beside the write: both only read the buffer. But while memory is captured the workers copy it first, unless the rest
 * of it waits for buffers, or for slots. */
static bool may_hash(const struct bwi_pack_write *w) {
    const struct bwi_pack_writer *k = w->w;
    return k->uncaptured == 0 || k->waiting || (k->free == NULL && k->uncut > 0);
}

static void slot_hash(struct bwi_io_req *r) {
    const struct slot *s = r->user;
    bwi_plan_hash(s->owner->plan, s->chunk, s->buffer.ptr);
    r->result = 0;
}

static void slot_hashed(struct bwi_io_req *r) {
    struct slot *s = r->user;
    s->hashing = false;
    s->owner->task.pending--;
    bwi_task_wake(&s->owner->task);
}

static void slot_start_hash(struct bwi_pack_write *w, struct slot *s) {
    s->hash = (struct bwi_io_req){.kind = BWI_IO_CALL, .call = slot_hash, .done = slot_hashed, .user = s};
    s->hashing = s->hashed = true;
    w->task.pending++;
    bwi_loop_call(w->task.loop, &s->hash);
}

static bool slot_captured(struct bwi_pack_write *w, struct slot *s) {
    const struct pack *p = pack_open(w->w, s->pack);
    if (p == NULL || w->w->writing >= w->w->depth) return false;
    w->w->writing++;
    bwi_call_prepare(&s->call, BWI_STORE_WRITE, NULL);
    s->call.op.upload = p->upload;
    s->call.op.offset = s->chunk->pack_offset;
    s->call.op.buf = s->buffer.ptr;
    s->call.op.bytes = s->chunk->bytes;
    bwi_call_submit(&s->call, &w->task, w->w->store);
    s->hashed = w->cow != NULL; /* by whoever has filled it */
    s->state = SLOT_WRITE;
    return true;
}

static bool slot_hash_beside(struct bwi_pack_write *w, struct slot *s) {
    if (s->hashed || !may_hash(w)) return false;
    slot_start_hash(w, s);
    return true;
}

static bool slot_write(struct bwi_pack_write *w, struct slot *s) {
    if (s->call.busy) return slot_hash_beside(w, s);
    w->w->writing--;
    s->state = SLOT_WRITTEN;
    return true;
}

static bool slot_written(struct bwi_pack_write *w, struct slot *s) {
    if (s->call.op.error.status != 0) {
        (void)fail(w, s->pack, &s->call.op.error);
        return false;
    }
    if (s->hashing || !s->hashed) return slot_hash_beside(w, s);
    slot_release(s);
    const uint64_t direct = s->call.op.direct_bytes, rest = s->chunk->bytes - direct;
    w->direct_bytes += direct;
    w->cached_bytes += rest - rest % BWI_OS_DIRECT_ALIGN;
    bwi_progress_add(w->ctx, s->chunk->bytes);
    w->w->packs[s->pack % OPEN].unwritten--;
    return true;
}

static bool slot_step(struct bwi_pack_write *w, struct slot *s) {
    switch (s->state) {
    case SLOT_FREE: return false;
    case SLOT_BUFFER: return slot_buffer(w->w, s);
    case SLOT_READY:
    case SLOT_CAPTURE: return false;
    case SLOT_CAPTURED: return slot_captured(w, s);
    case SLOT_WRITE: return slot_write(w, s);
    case SLOT_WRITTEN: return slot_written(w, s);
    }
    return false;
}

/* ---- the task ---- */

/* Nobody wakes this task when the memory is given free: it looks. */
#define LOST_LOOK_NS (100 * BWI_NS_PER_MS)

static void watch_frozen(struct bwi_pack_write *w) {
    if (w->captured || w->cow == NULL) return;
    if (bwi_cow_is_lost(w->cow)) (void)fail_lost(w);
    bwi_task_wake_at(&w->task, bwi_loop_now_ns(w->task.loop) + LOST_LOOK_NS);
}

static enum bwi_step write_run(struct bwi_pack_write *w) {
    struct bwi_pack_writer *k = w->w;
    bool moved = false;
    if (w->task.cancel)
        (void)bwi_error_set(&w->task.error, BW_E_CANCELLED, "the save was cancelled while it was written");
    else
        watch_frozen(w);
    for (size_t i = 0; i < OPEN && w->task.error.status == 0; i++) moved |= pack_step(w, &k->packs[i]);
    for (size_t i = 0; i < k->slot_count && w->task.error.status == 0; i++) moved |= slot_step(w, &k->slots[i]);
    if (w->task.error.status != 0) {
        k->state = WRITE_SETTLE;
        return BWI_STEP_AGAIN;
    }
    moved |= pack_begin(w);
    while (slot_begin(w)) moved = true;
    while (batch_start(w)) moved = true;
    if (k->uncaptured == 0 && !set_captured(w)) {
        (void)fail_lost(w);
        return BWI_STEP_AGAIN;
    }
    if (k->finished == w->plan->pack_count) return BWI_STEP_END;
    return moved ? BWI_STEP_AGAIN : BWI_STEP_WAIT;
}

/* true when the slot holds nothing any more. */
static bool slot_settle(struct bwi_pack_write *w, struct slot *s) {
    if (s->state == SLOT_CAPTURE || s->hashing || s->call.busy) return false;
    if (s->state == SLOT_BUFFER) bwi_arena_cancel(w->ctx->arena, &s->buffer);
    slot_release(s);
    return true;
}

/* true when nothing of the pack is in flight. What came into being meanwhile is known afterwards. */
static bool pack_settle(struct bwi_pack_write *w, struct pack *p) {
    if (p->call.busy) return false;
    if (p->state == PACK_BEGIN) p->upload = p->call.op.upload;
    if (p->state == PACK_FINISH && p->call.op.error.status == 0) w->objects++;
    p->state = PACK_CLOSED;
    return true;
}

static enum bwi_step write_settle(struct bwi_pack_write *w) {
    struct bwi_pack_writer *k = w->w;
    bool settled = true;
    bool capturing = false;
    k->ready = NULL;
    k->ready_count = 0;
    for (size_t i = 0; i < k->slot_count; i++) {
        settled &= slot_settle(w, &k->slots[i]);
        capturing |= k->slots[i].state == SLOT_CAPTURE;
    }
    for (size_t i = 0; i < OPEN; i++) settled &= pack_settle(w, &k->packs[i]);
    if (!capturing) (void)set_captured(w);
    if (!settled) return BWI_STEP_WAIT;
    k->state = WRITE_ABORT;
    return BWI_STEP_AGAIN;
}

static enum bwi_step write_abort(struct bwi_pack_write *w) {
    struct bwi_pack_writer *k = w->w;
    for (size_t i = 0; i < OPEN; i++) {
        struct pack *p = &k->packs[i];
        if (p->upload == NULL) continue;
        bwi_call_prepare(&p->call, BWI_STORE_ABORT, NULL);
        p->call.op.upload = p->upload;
        p->upload = NULL;
        bwi_call_submit(&p->call, &w->task, k->store);
    }
    k->state = WRITE_ABORTED;
    return BWI_STEP_AGAIN;
}

static enum bwi_step write_aborted(struct bwi_pack_write *w) {
    return w->task.pending > 0 ? BWI_STEP_WAIT : BWI_STEP_END;
}

static enum bwi_step write_step(struct bwi_task *t) {
    struct bwi_pack_write *w = bwi_container_of(t, struct bwi_pack_write, task);
    switch (w->w->state) {
    case WRITE_RUN: return write_run(w);
    case WRITE_SETTLE: return write_settle(w);
    case WRITE_ABORT: return write_abort(w);
    case WRITE_ABORTED: return write_aborted(w);
    }
    return BWI_STEP_END;
}

static int check_chunks(const struct bwi_pack_write *w, struct bw_error *err) {
    const uint64_t budget = bwi_arena_budget(w->ctx->arena);
    for (size_t i = 0; i < w->plan->chunk_count; i++) {
        if (bwi_round_up(w->plan->chunks[i].bytes, BWI_ARENA_ALIGN) <= budget) continue;
        return bwi_error_set(err, BW_E_LIMIT, "memory budget of %llu bytes: a chunk of %u bytes does not fit",
                             (unsigned long long)budget, w->plan->chunks[i].bytes);
    }
    return 0;
}

/* As many as chunks of the usual size fit into the arena: small tensors make small chunks. */
static size_t slots_for(const struct bwi_pack_write *w) {
    const uint64_t usual = w->plan->stored_bytes / bwi_max_u64(w->plan->chunk_count, 1);
    const uint64_t fit = bwi_arena_budget(w->ctx->arena) / bwi_max_u64(usual, BWI_ARENA_ALIGN) + SLOTS_MIN;
    const uint64_t most = bwi_max_u64(bwi_min_u64(fit, SLOTS_MAX), SLOTS_MIN);
    return (size_t)bwi_max_u64(bwi_min_u64(w->plan->chunk_count, most), 1);
}

static int make_writer(struct bwi_pack_write *w, struct bw_error *err) {
    const size_t packs = w->plan->pack_count;
    const size_t slots = slots_for(w);
    w->w = bwi_calloc(1, sizeof *w->w);
    w->headers = packs == 0 ? NULL : bwi_calloc(packs, sizeof *w->headers);
    if (w->w != NULL) w->w->slots = bwi_calloc(slots, sizeof *w->w->slots);
    if (w->w != NULL && w->w->slots != NULL && (packs == 0 || w->headers != NULL)) {
        w->w->slot_count = slots;
        return 0;
    }
    bwi_pack_write_fini(w);
    (void)bwi_error_nomem(err, slots * sizeof *w->w->slots + packs * sizeof *w->headers, "writing packs");
    return BW_E_NOMEM;
}

int bwi_pack_write_start(struct bwi_pack_write *w, struct bwi_task *parent, struct bw_error *err) {
    w->captured = false;
    w->plan->cow = w->cow;
    w->captured_ns = w->arena_wait_ns = w->objects = 0;
    w->headers = NULL;
    w->w = NULL;
    int rc = check_chunks(w, err);
    if (rc == 0) rc = make_writer(w, err);
    if (rc != 0) return rc;
    w->w->store = w->ctx->tier[w->tier];
    w->w->depth = bwi_context_io_depth(w->ctx, w->tier);
    w->w->uncut = w->w->uncaptured = w->plan->chunk_count;
    for (size_t i = 0; i < w->w->slot_count; i++) {
        struct slot *s = &w->w->slots[i];
        s->owner = w;
        s->next = w->w->free;
        w->w->free = s;
    }
    w->task.step = write_step;
    w->task.name = "pack write";
    bwi_task_start(w->ctx->loop, &w->task, parent);
    return 0;
}

void bwi_pack_write_fini(struct bwi_pack_write *w) {
    if (w == NULL) return;
    assert(!w->task.running);
    bwi_free(w->headers);
    if (w->w != NULL) bwi_free(w->w->slots);
    bwi_free(w->w);
    w->headers = NULL;
    w->w = NULL;
}
