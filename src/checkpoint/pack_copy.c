/* SPDX-License-Identifier: Apache-2.0 */
/* Copying a pack from one tier to another, or only verifying it. The file goes through a window of up to four
 * buffers, block by block: read, hashed on a worker, written. Blocks are read and written side by side, but hashed
 * strictly in order, because an extent may begin in one block and end in another. The window is one buffer of the
 * arena, so that a copy never holds a part of it while it waits for the rest. Chunks that are still in memory are
 * blocks of their own, which need neither a buffer nor a read. */
#include "base/checked.h"
#include "base/error.h"
#include "base/vec.h"
#include "checkpoint/pack_digest.h"
#include "checkpoint/transfer.h"
#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <string.h>

#define BLOCK_BYTES  (UINT64_C(4) << 20)
#define BUFFERS_MAX  4u
#define BUFFERS_MIN  2u /* one is read while another one is written */
#define NO_CHUNK     SIZE_MAX
#define MEMORY_SHARE 4u /* of the budget: what is being sent from there may wait for a tier that is slow, or hangs */

enum block_state {
    BLOCK_FREE,
    BLOCK_READ,
    BLOCK_LOOK, /* in memory, and being looked at: is it what was hashed? */
    BLOCK_FULL,
    BLOCK_HASH,
    BLOCK_HASHED, /* waits for its turn to be written */
    BLOCK_PACED,  /* has its turn, and a time */
    BLOCK_WRITE,
};

struct block {
    enum block_state state;
    uint64_t offset;
    size_t bytes;
    const uint8_t *data;
    size_t chunk;    /* that is kept in memory; NO_CHUNK: the data is in the window */
    uint64_t due_ns; /* PACED */
    struct bwi_call call;
    struct bwi_pack_copy *owner;
    struct bwi_io_req look;
    bool looking; /* the request is in flight */
};

enum copy_state {
    COPY_ASK_TARGET,
    COPY_TARGET,
    COPY_ASK_SOURCE,
    COPY_SOURCE,
    COPY_BEGIN,
    COPY_BEGUN,
    COPY_ACQUIRE,
    COPY_ACQUIRED,
    COPY_STREAM,
    COPY_SETTLE,  /* it is known how this ends: waits for what is in flight, gives the buffer back */
    COPY_RELEASE, /* the source */
    COPY_CLOSE,   /* the target: FINISH or ABORT */
    COPY_CLOSED,
};

struct bwi_pack_copier {
    enum copy_state state;
    struct bwi_key key;
    struct bwi_call call; /* all but READ and WRITE */
    struct bwi_store_upload *upload;
    struct bwi_store_handle *handle;
    bool opened; /* the first read has ended: from here on reads share the handle */
    bool lost;   /* the source is gone or too short */
    struct bwi_arena_wait window;
    size_t block_bytes;            /* of a buffer in the window */
    size_t buffer_count;           /* in the window */
    uint8_t *buffers[BUFFERS_MAX]; /* that are free: the first so many */
    size_t buffers_free;
    struct block *blocks; /* block n of the file is in n % depth */
    size_t depth;
    uint64_t read_bytes, written_bytes;  /* of the file: up to where it is cut into blocks; how much is written */
    uint64_t to_read, to_hash, to_write; /* the next block of each kind */
    uint64_t reads;                      /* begun */
    uint64_t memory_bytes;               /* of blocks that are chunks in memory: nobody else can have these meanwhile */
    bool hashing;                        /* on a worker, which has `digest` until then */
    struct bwi_io_req hash;
    struct bwi_pack_digest digest;
};

static enum bwi_step go(struct bwi_pack_copy *c, enum copy_state to) {
    c->c->state = to;
    return BWI_STEP_AGAIN;
}

static const struct bwi_pack_ref *pack_of(const struct bwi_pack_copy *c) {
    return &c->placement->packs[c->pack];
}

static bool is_cancelled(struct bwi_pack_copy *c) {
    if (!c->task.cancel) return false;
    (void)bwi_error_set(&c->task.error, BW_E_CANCELLED, "pack \"%s\": cancelled", c->c->key.s);
    return true;
}

/* The source has failed. Only what is gone or too short is damage; what cannot be read now may be readable later. */
static enum bwi_step source_failed(struct bwi_pack_copy *c, const struct bw_error *cause) {
    c->c->lost = cause->status == BW_E_NOTFOUND || cause->status == BW_E_CORRUPT;
    (void)bwi_error_copy(&c->task.error, cause);
    return go(c, COPY_SETTLE);
}

/* ---- before the first byte ---- */

static enum bwi_step ask(struct bwi_pack_copy *c, struct bwi_store *s, enum copy_state then) {
    if (is_cancelled(c)) return go(c, COPY_SETTLE);
    bwi_call_prepare(&c->c->call, BWI_STORE_HEAD, c->c->key.s);
    bwi_call_submit(&c->c->call, &c->task, s);
    return go(c, then);
}

static enum bwi_step copy_ask_target(struct bwi_pack_copy *c) {
    if (c->verify_only || c->replace) return go(c, COPY_ASK_SOURCE);
    return ask(c, c->to, COPY_TARGET);
}

static enum bwi_step copy_target(struct bwi_pack_copy *c) {
    const struct bwi_store_op *op = &c->c->call.op;
    const uint64_t want = pack_of(c)->file_bytes;
    if (op->error.status == BW_E_NOTFOUND) return go(c, COPY_ASK_SOURCE);
    if (op->error.status == 0 && op->doubtful && op->size_bytes == want) return go(c, COPY_ASK_SOURCE);
    if (op->error.status == BW_E_CORRUPT) { /* no file is in its place */
        (void)bwi_error_set(&c->task.error, BW_E_EXISTS, "%s", op->error.message);
    } else if (op->error.status != 0) {
        (void)bwi_error_copy(&c->task.error, &op->error);
    } else if (op->size_bytes != want) {
        (void)bwi_error_set(&c->task.error, BW_E_EXISTS,
                            "pack \"%s\": the target has it with %" PRIu64 " bytes, expected %" PRIu64, c->c->key.s,
                            op->size_bytes, want);
    } else {
        c->skipped = true;
        bwi_progress_add(c->ctx, want);
    }
    return go(c, COPY_SETTLE);
}

static enum bwi_step copy_ask_source(struct bwi_pack_copy *c) {
    return ask(c, c->from, COPY_SOURCE);
}

/* A file that is too long is found out here: reading would not notice. Its extents may be sound all the same. */
static enum bwi_step copy_source(struct bwi_pack_copy *c) {
    const struct bwi_store_op *op = &c->c->call.op;
    const uint64_t want = pack_of(c)->file_bytes;
    if (op->error.status != 0) return source_failed(c, &op->error);
    if (op->size_bytes != want) {
        (void)bwi_error_set(&c->c->digest.first, BW_E_CORRUPT, "the file has %" PRIu64 " bytes, expected %" PRIu64,
                            op->size_bytes, want);
        c->c->digest.damages++;
        c->c->lost = op->size_bytes < want;
        if (c->c->lost || !c->verify_only) return go(c, COPY_SETTLE);
    }
    return go(c, c->verify_only ? COPY_ACQUIRE : COPY_BEGIN);
}

static enum bwi_step copy_begin(struct bwi_pack_copy *c) {
    if (is_cancelled(c)) return go(c, COPY_SETTLE);
    struct bwi_pack_copier *k = c->c;
    bwi_call_prepare(&k->call, BWI_STORE_BEGIN, k->key.s);
    k->call.op.size_bytes = pack_of(c)->file_bytes;
    k->call.op.replace = c->replace;
    bwi_call_submit(&k->call, &c->task, c->to);
    return go(c, COPY_BEGUN);
}

static enum bwi_step copy_begun(struct bwi_pack_copy *c) {
    struct bwi_pack_copier *k = c->c;
    k->upload = k->call.op.upload;
    const bool failed = bwi_error_copy(&c->task.error, &k->call.op.error) < 0;
    return go(c, failed ? COPY_SETTLE : COPY_ACQUIRE);
}

static void window_granted(struct bwi_arena_wait *w) {
    struct bwi_pack_copy *c = w->user;
    bwi_task_wake(&c->task);
}

static enum bwi_step copy_acquire(struct bwi_pack_copy *c) {
    struct bwi_pack_copier *k = c->c;
    k->window =
        (struct bwi_arena_wait){.bytes = k->block_bytes * k->buffer_count, .granted = window_granted, .user = c};
    bwi_arena_acquire(c->ctx->arena, &k->window);
    return go(c, COPY_ACQUIRED);
}

static enum bwi_step copy_acquired(struct bwi_pack_copy *c) {
    if (is_cancelled(c)) return go(c, COPY_SETTLE);
    struct bwi_pack_copier *k = c->c;
    if (k->window.ptr == NULL) return BWI_STEP_WAIT;
    for (; k->buffers_free < k->buffer_count; k->buffers_free++)
        k->buffers[k->buffers_free] = k->window.ptr + k->buffers_free * k->block_bytes;
    return go(c, COPY_STREAM);
}

/* ---- the stream of blocks ---- */

static struct block *block_at(struct bwi_pack_copier *k, uint64_t n) {
    return &k->blocks[n % k->depth];
}

static struct block *next_block(struct bwi_pack_copier *k, size_t bytes, const uint8_t *data, size_t chunk) {
    struct block *b = block_at(k, k->to_read++);
    b->offset = k->read_bytes;
    b->bytes = bytes;
    b->data = data;
    b->chunk = chunk;
    k->read_bytes += bytes;
    return b;
}

/* The first read goes alone: it opens the object for all others. */
static bool read_block(struct bwi_pack_copy *c, uint64_t end) {
    struct bwi_pack_copier *k = c->c;
    if (k->buffers_free == 0 || (k->reads > 0 && !k->opened)) return false;
    uint8_t *buffer = k->buffers[--k->buffers_free];
    const size_t bytes = (size_t)bwi_min_u64(k->block_bytes, end - k->read_bytes);
    struct block *b = next_block(k, bytes, buffer, NO_CHUNK);
    k->reads++;
    b->state = BLOCK_READ;
    bwi_call_prepare(&b->call, BWI_STORE_READ, k->key.s);
    b->call.op.offset = b->offset;
    b->call.op.buf = buffer;
    b->call.op.bytes = b->bytes;
    b->call.op.handle = &k->handle;
    b->call.op.bulk = true; /* what a trainer has in the page cache stays there */
    b->call.op.room_bytes = k->block_bytes;
    bwi_call_submit(&b->call, &c->task, c->from);
    return true;
}

static void look_call(struct bwi_io_req *r) {
    const struct block *b = r->user;
    r->result = bwi_resident_is_sound(b->owner->resident, b->chunk) ? 0 : -EIO;
}

static void look_done(struct bwi_io_req *r) {
    struct block *b = r->user;
    b->looking = false;
    b->owner->task.pending--;
    bwi_task_wake(&b->owner->task);
}

static void start_look(struct bwi_pack_copy *c, struct block *b) {
    c->c->memory_bytes += b->bytes;
    b->state = BLOCK_LOOK;
    b->owner = c;
    b->looking = true;
    b->look = (struct bwi_io_req){.kind = BWI_IO_CALL, .call = look_call, .done = look_done, .user = b};
    c->task.pending++;
    bwi_loop_call(c->task.loop, &b->look);
}

static bool begin_block(struct bwi_pack_copy *c) {
    struct bwi_pack_copier *k = c->c;
    if (k->read_bytes == pack_of(c)->file_bytes || block_at(k, k->to_read)->state != BLOCK_FREE) return false;
    const size_t chunk = bwi_resident_find(c->resident, c->pack, k->read_bytes);
    if (chunk == SIZE_MAX) return read_block(c, pack_of(c)->file_bytes);
    const struct bwi_chunk *kept = &c->resident->plan->chunks[chunk];
    if (kept->pack_offset > k->read_bytes) return read_block(c, kept->pack_offset);
    if (k->memory_bytes > 0 && k->memory_bytes + kept->bytes > bwi_arena_budget(c->ctx->arena) / MEMORY_SHARE)
        return false;
    start_look(c, next_block(k, kept->bytes, bwi_resident_use(c->resident, chunk), chunk));
    return true;
}

static bool end_look(struct bwi_pack_copy *c, struct block *b) {
    if (b->looking) return false;
    if (b->look.result < 0) {
        c->resident->spoilt = true;
        (void)bwi_error_set(&c->task.error, BW_E_IO,
                            "pack \"%s\": memory at offset %" PRIu64
                            " has changed since it was hashed: it is read from the local tier",
                            c->c->key.s, b->offset);
        return false;
    }
    c->memory_bytes += b->bytes;
    b->state = BLOCK_FULL;
    return true;
}

static void free_block(struct bwi_pack_copy *c, struct block *b) {
    struct bwi_pack_copier *k = c->c;
    if (b->state == BLOCK_FREE) return;
    if (b->chunk != NO_CHUNK) k->memory_bytes -= b->bytes;
    if (b->chunk == NO_CHUNK)
        k->buffers[k->buffers_free++] = k->window.ptr + (size_t)(b->data - k->window.ptr);
    else
        bwi_resident_drop(c->resident, b->chunk);
    b->state = BLOCK_FREE;
}

static void hash_block(struct bwi_pack_copier *k) {
    const struct block *b = block_at(k, k->to_hash);
    bwi_pack_digest_update(&k->digest, b->data, b->bytes);
}

static void hash_call(struct bwi_io_req *r) {
    const struct bwi_pack_copy *c = r->user;
    hash_block(c->c);
    r->result = 0;
}

static void hash_done(struct bwi_io_req *r) {
    struct bwi_pack_copy *c = r->user;
    c->c->hashing = false;
    c->task.pending--;
    bwi_task_wake(&c->task);
}

static bool begin_hash(struct bwi_pack_copy *c) {
    struct bwi_pack_copier *k = c->c;
    struct block *b = block_at(k, k->to_hash);
    if (k->to_hash == k->to_read || b->state != BLOCK_FULL) return false;
    b->state = BLOCK_HASH;
    if (b->chunk != NO_CHUNK) {
        bwi_pack_digest_skip(&k->digest, b->bytes);
        return true;
    }
    k->hash = (struct bwi_io_req){.kind = BWI_IO_CALL, .call = hash_call, .done = hash_done, .user = c};
    k->hashing = true;
    c->task.pending++;
    bwi_loop_call(c->task.loop, &k->hash);
    return true;
}

/* A block that has been hashed is kept only for being written. */
static bool end_hash(struct bwi_pack_copy *c) {
    struct bwi_pack_copier *k = c->c;
    struct block *b = block_at(k, k->to_hash);
    if (b->state != BLOCK_HASH || k->hashing) return false;
    k->to_hash++;
    b->state = BLOCK_HASHED;
    if (c->verify_only) {
        c->bytes += b->bytes;
        bwi_progress_add(c->ctx, b->bytes);
        free_block(c, b);
    }
    return true;
}

static bool begin_write(struct bwi_pack_copy *c) {
    struct bwi_pack_copier *k = c->c;
    struct block *b = block_at(k, k->to_write);
    const uint64_t now = bwi_loop_now_ns(c->task.loop);
    if (k->to_write == k->to_hash || (b->state != BLOCK_HASHED && b->state != BLOCK_PACED)) return false;
    if (b->state == BLOCK_HASHED) {
        b->due_ns = c->pace == NULL ? now : bwi_pace_take(c->pace, now, b->bytes);
        b->state = BLOCK_PACED;
    }
    if (b->due_ns > now) {
        bwi_task_wake_at(&c->task, b->due_ns);
        return false;
    }
    k->to_write++;
    b->state = BLOCK_WRITE;
    bwi_call_prepare(&b->call, BWI_STORE_WRITE, NULL);
    b->call.op.upload = k->upload;
    b->call.op.offset = b->offset;
    b->call.op.buf = (void *)(uintptr_t)b->data;
    b->call.op.bytes = b->bytes;
    bwi_call_submit(&b->call, &c->task, c->to);
    return true;
}

static bool end_read(struct bwi_pack_copy *c, struct block *b) {
    if (b->call.busy) return false;
    if (b->call.op.error.status != 0) {
        (void)source_failed(c, &b->call.op.error);
        return false;
    }
    c->c->opened = true;
    b->state = BLOCK_FULL;
    return true;
}

static bool end_write(struct bwi_pack_copy *c, struct block *b) {
    if (b->call.busy) return false;
    free_block(c, b);
    if (bwi_error_copy(&c->task.error, &b->call.op.error) < 0) return false;
    c->c->written_bytes += b->bytes;
    c->bytes += b->bytes;
    bwi_progress_add(c->ctx, b->bytes);
    return true;
}

static bool end_transfers(struct bwi_pack_copy *c) {
    bool moved = false;
    for (size_t i = 0; i < c->c->depth && c->task.error.status == 0; i++) {
        struct block *b = &c->c->blocks[i];
        if (b->state == BLOCK_READ) moved |= end_read(c, b);
        if (b->state == BLOCK_LOOK) moved |= end_look(c, b);
        if (b->state == BLOCK_WRITE) moved |= end_write(c, b);
    }
    return moved;
}

static enum bwi_step copy_stream(struct bwi_pack_copy *c) {
    struct bwi_pack_copier *k = c->c;
    const uint64_t done_bytes = c->verify_only ? c->bytes : k->written_bytes;
    if (is_cancelled(c)) return go(c, COPY_SETTLE);
    if (done_bytes == pack_of(c)->file_bytes) return go(c, COPY_SETTLE);
    bool moved = end_transfers(c);
    if (c->task.error.status != 0) return go(c, COPY_SETTLE);
    moved |= end_hash(c);
    if (!c->verify_only && !k->hashing && k->digest.damages > 0) return go(c, COPY_SETTLE);
    moved |= begin_block(c);
    moved |= begin_hash(c);
    moved |= begin_write(c);
    return moved ? BWI_STEP_AGAIN : BWI_STEP_WAIT;
}

/* ---- after the last byte ---- */

/* What hashing has found becomes the error of the task, unless something else has ended it. */
static void conclude(struct bwi_pack_copy *c) {
    struct bwi_pack_digest *d = &c->c->digest;
    if (c->c->lost) bwi_pack_digest_lost(d);
    c->bad_count = d->bad_count;
    struct bw_error e = d->first;
    if (d->damages > 1) (void)bwi_error_wrap(&e, "%" PRIu64 " damages, the first", d->damages);
    (void)bwi_error_wrap(&e, "pack \"%s\"", c->c->key.s);
    (void)bwi_error_copy(&c->task.error, &e);
}

static enum bwi_step copy_settle(struct bwi_pack_copy *c) {
    struct bwi_pack_copier *k = c->c;
    if (c->task.pending > 0) return BWI_STEP_WAIT;
    conclude(c);
    for (size_t i = 0; i < k->depth; i++) free_block(c, &k->blocks[i]);
    bwi_arena_cancel(c->ctx->arena, &k->window);
    bwi_arena_release(c->ctx->arena, k->window.ptr, k->window.bytes);
    k->window.ptr = NULL;
    return go(c, COPY_RELEASE);
}

static enum bwi_step copy_release(struct bwi_pack_copy *c) {
    struct bwi_pack_copier *k = c->c;
    if (k->handle != NULL) {
        bwi_call_prepare(&k->call, BWI_STORE_RELEASE, k->key.s);
        k->call.op.handle = &k->handle;
        bwi_call_submit(&k->call, &c->task, c->from);
    }
    return go(c, COPY_CLOSE);
}

static enum bwi_step copy_close(struct bwi_pack_copy *c) {
    struct bwi_pack_copier *k = c->c;
    if (k->upload == NULL) return BWI_STEP_END;
    bwi_call_prepare(&k->call, c->task.error.status == 0 ? BWI_STORE_FINISH : BWI_STORE_ABORT, NULL);
    k->call.op.upload = k->upload;
    k->upload = NULL;
    bwi_call_submit(&k->call, &c->task, c->to);
    return go(c, COPY_CLOSED);
}

static enum bwi_step copy_closed(struct bwi_pack_copy *c) {
    (void)bwi_error_copy(&c->task.error, &c->c->call.op.error);
    return BWI_STEP_END;
}

static enum bwi_step copy_step(struct bwi_task *t) {
    struct bwi_pack_copy *c = bwi_container_of(t, struct bwi_pack_copy, task);
    if (c->c->call.busy) return BWI_STEP_WAIT;
    switch (c->c->state) {
    case COPY_ASK_TARGET: return copy_ask_target(c);
    case COPY_TARGET: return copy_target(c);
    case COPY_ASK_SOURCE: return copy_ask_source(c);
    case COPY_SOURCE: return copy_source(c);
    case COPY_BEGIN: return copy_begin(c);
    case COPY_BEGUN: return copy_begun(c);
    case COPY_ACQUIRE: return copy_acquire(c);
    case COPY_ACQUIRED: return copy_acquired(c);
    case COPY_STREAM: return copy_stream(c);
    case COPY_SETTLE: return copy_settle(c);
    case COPY_RELEASE: return copy_release(c);
    case COPY_CLOSE: return copy_close(c);
    case COPY_CLOSED: return copy_closed(c);
    }
    return BWI_STEP_END;
}

/* ---- start ---- */

static int set_key(struct bwi_pack_copy *c, struct bw_error *err) {
    const struct bwi_span key = pack_of(c)->key;
    if (key.len == 0 || key.len >= sizeof c->c->key.s) {
        return bwi_error_set(err, BW_E_FORMAT, "pack %" PRIu32 ": a key of %zu bytes, expected 1 to %zu", c->pack,
                             key.len, sizeof c->c->key.s - 1);
    }
    memcpy(c->c->key.s, key.ptr, key.len);
    c->c->key.s[key.len] = '\0';
    return 0;
}

/* Buffers of 4 MiB, four of them; fewer and smaller ones for a small file or a small arena. */
static int set_window(struct bwi_pack_copy *c, struct bw_error *err) {
    struct bwi_pack_copier *k = c->c;
    const uint64_t file = pack_of(c)->file_bytes;
    const uint64_t budget = bwi_arena_budget(c->ctx->arena);
    const uint64_t half = bwi_round_up(bwi_max_u64(bwi_div_ceil(file, BUFFERS_MIN), 1), BWI_ARENA_ALIGN);
    uint64_t bytes = bwi_min_u64(BLOCK_BYTES, half);
    uint64_t count = bwi_max_u64(BUFFERS_MIN, bwi_min_u64(BUFFERS_MAX, bwi_div_ceil(file, bytes)));
    while (count > BUFFERS_MIN && bytes * count > budget) count--;
    bytes = bwi_min_u64(bytes, budget / count / BWI_ARENA_ALIGN * BWI_ARENA_ALIGN);
    if (bytes == 0) {
        return bwi_error_set(err, BW_E_LIMIT, "memory budget of %" PRIu64 " bytes: a pack cannot be copied", budget);
    }
    k->block_bytes = (size_t)bytes;
    k->buffer_count = (size_t)count;
    return 0;
}

static int prepare(struct bwi_pack_copy *c, struct bw_error *err) {
    c->c->depth = c->depth > 0 ? c->depth : BWI_IO_DEPTH_USUAL;
    c->c->blocks = bwi_calloc(c->c->depth, sizeof *c->c->blocks);
    int rc = c->c->blocks != NULL ? 0 : bwi_error_nomem(err, c->c->depth * sizeof *c->c->blocks, "copying a pack");
    if (rc == 0) rc = set_key(c, err);
    if (rc == 0) rc = set_window(c, err);
    if (rc < 0) return rc;
    rc = bwi_pack_digest_init(&c->c->digest, c->placement, c->pack, err);
    if (rc < 0) {
        (void)bwi_error_wrap(err, "pack \"%s\"", c->c->key.s);
        return rc;
    }
    if (c->verify_only) {
        c->c->digest.bad = c->bad;
        c->c->digest.bad_cap = c->bad_cap;
    }
    return 0;
}

int bwi_pack_copy_start(struct bwi_pack_copy *c, struct bwi_task *parent, struct bw_error *err) {
    c->skipped = false;
    c->bytes = c->memory_bytes = 0;
    c->bad_count = 0;
    c->c = NULL;
    if (c->pack >= c->placement->pack_count) {
        return bwi_error_set(err, BW_E_INVALID, "pack %" PRIu32 ": the placement has %" PRIu32, c->pack,
                             c->placement->pack_count);
    }
    c->c = bwi_calloc(1, sizeof *c->c);
    if (c->c == NULL) return bwi_error_nomem(err, sizeof *c->c, "copying a pack");
    const int rc = prepare(c, err);
    if (rc < 0) {
        bwi_pack_copy_fini(c);
        return rc;
    }
    c->task.step = copy_step;
    c->task.name = "pack copy";
    bwi_task_start(c->ctx->loop, &c->task, parent);
    return 0;
}

void bwi_pack_copy_fini(struct bwi_pack_copy *c) {
    if (c == NULL) return;
    assert(!c->task.running);
    if (c->c != NULL) bwi_pack_digest_fini(&c->c->digest);
    if (c->c != NULL) bwi_free(c->c->blocks);
    bwi_free(c->c);
    c->c = NULL;
}
