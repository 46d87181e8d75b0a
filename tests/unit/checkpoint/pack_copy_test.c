/* SPDX-License-Identifier: Apache-2.0 */
/* Copying and verifying packs: sound and damaged sources, targets that have them already, failures, pacing. */
#include "transfer_fixture.h"
#include <fcntl.h>
#include <unistd.h>

#define EXTENT (16 * KIB)
#define ARENA  (64 * KIB) /* the window is cut down to two blocks of 32 KiB, and extents lie across them */

/* A state that has been written to the local tier, and its placement. */
struct source {
    struct world w;
    struct state s;
    struct bwi_pack_write pw;
    struct placed placed;
};

static void source_write(struct source *x, uint64_t pack_bytes) {
    state_mixed(&x->s, 1, EXTENT, pack_bytes);
    write_start(&x->w, &x->pw, &x->s, 0);
    world_run(&x->w);
    assert_ok(x->pw.task.error.status, &x->pw.task.error);
    placed_make(&x->placed, &x->w, &x->s, 0, x->pw.headers);
    x->w.progress.done_bytes = 0;
    for (int t = 0; t < BWI_TIERS; t++) memset(x->w.ctx.tier[t]->ops, 0, sizeof x->w.ctx.tier[t]->ops);
}

static void source_open(struct source *x, uint64_t seed, uint64_t pack_bytes) {
    world_open(&x->w, seed, ARENA);
    source_write(x, pack_bytes);
}

static void source_close(struct source *x) {
    placed_free(&x->placed);
    bwi_pack_write_fini(&x->pw);
    state_free(&x->s);
    world_close(&x->w);
}

static struct bwi_pack_copy copy_of(struct source *x, uint32_t pack) {
    return (struct bwi_pack_copy){.ctx = &x->w.ctx,
                                  .from = x->w.ctx.tier[BWI_TIER_LOCAL],
                                  .to = x->w.ctx.tier[BWI_TIER_REMOTE],
                                  .placement = &x->placed.p,
                                  .pack = pack};
}

static void copy_run(struct source *x, struct bwi_pack_copy *c) {
    struct bw_error err = BW_ERROR_INIT;
    assert_ok(bwi_pack_copy_start(c, NULL, &err), &err);
    world_run(&x->w);
    assert_int_equal(c->task.pending, 0);
    assert_int_equal(bwi_arena_used(x->w.arena), 0);
}

static struct bwi_span near_object(struct source *x, uint32_t pack) {
    struct bwi_span data = BWI_SPAN_NONE;
    assert_true(bwi_bucket_get(x->w.bucket[BWI_TIER_LOCAL], x->placed.keys[pack].s, &data));
    return data;
}

/* Changes one byte of the source. */
static void flip(struct source *x, uint32_t pack, uint64_t at) {
    const struct bwi_span data = near_object(x, pack);
    uint8_t *copy = bwi_malloc(data.len);
    assert_non_null(copy);
    memcpy(copy, data.ptr, data.len);
    copy[at] ^= 0x10;
    world_put(&x->w, BWI_TIER_LOCAL, x->placed.keys[pack].s, bwi_span(copy, data.len));
    bwi_free(copy);
}

static uint64_t extents_of(const struct source *x, uint32_t pack) {
    uint64_t n = 0;
    for (uint64_t i = 0; i < x->placed.p.extent_count; i++) n += x->placed.p.places[i].pack == pack;
    return n;
}

/* ---- copying ---- */

static void packs_arrive_byte_for_byte_whatever_the_order(void **state) {
    (void)state;
    const long live = bwi_alloc_live();
    for (uint64_t seed = 0; seed < 20; seed++) {
        struct source x;
        source_open(&x, seed == 0 ? 0 : test_seed(seed), seed % 2 == 0 ? 48 * KIB : MIB);
        uint64_t bytes = 0;
        for (uint32_t i = 0; i < x.placed.p.pack_count; i++) {
            struct bwi_pack_copy c = copy_of(&x, i);
            copy_run(&x, &c);
            assert_ok(c.task.error.status, &c.task.error);
            assert_false(c.skipped);
            assert_int_equal(c.bytes, x.placed.p.packs[i].file_bytes);
            bytes += c.bytes;
            bwi_pack_copy_fini(&c);
            bwi_pack_copy_fini(&c);
        }
        assert_int_equal(x.w.progress.done_bytes, bytes);
        state_check(&x.w, &x.s, BWI_TIER_REMOTE, 0, x.pw.headers);
        assert_int_equal(world_upload_bytes(&x.w, BWI_TIER_REMOTE), 0);
        source_close(&x);
    }
    assert_int_equal(bwi_alloc_live(), live);
}

/* ---- what is still in memory ---- */

/* Writes a state and keeps all of it; then somebody needs a part of the memory. */
static void source_keep(struct source *x, struct bwi_resident *r, uint64_t seed, uint64_t budget) {
    struct bw_error err = BW_ERROR_INIT;
    world_open(&x->w, seed, budget);
    state_mixed(&x->s, seed, EXTENT, 48 * KIB);
    bwi_resident_begin(r, x->w.arena, &x->s.plan);
    x->pw =
        (struct bwi_pack_write){.ctx = &x->w.ctx, .tier = BWI_TIER_LOCAL, .plan = &x->s.plan, .id = ID, .resident = r};
    assert_ok(bwi_pack_write_start(&x->pw, NULL, &err), &err);
    world_run(&x->w);
    assert_ok(x->pw.task.error.status, &x->pw.task.error);
    placed_make(&x->placed, &x->w, &x->s, 0, x->pw.headers);
}

static void copy_begin(struct source *x, struct bwi_resident *r, uint32_t pack, struct bwi_pack_copy *c) {
    struct bw_error err = BW_ERROR_INIT;
    *c = copy_of(x, pack);
    c->resident = r;
    assert_ok(bwi_pack_copy_start(c, NULL, &err), &err);
}

/* Copies a pack with what is in memory of it. To be ended by bwi_pack_copy_fini. */
static void copy_kept(struct source *x, struct bwi_resident *r, uint32_t pack, struct bwi_pack_copy *c) {
    copy_begin(x, r, pack, c);
    world_run(&x->w);
}

/* Spoils on the local tier what is in memory, so that whoever reads it there finds damage. Returns its bytes. */
static uint64_t spoil_resident(struct source *x, const struct bwi_resident *r, uint32_t pack) {
    const struct bwi_pack_plan *p = &x->s.plan.packs[pack];
    uint64_t bytes = 0;
    for (size_t i = p->first_chunk; i < p->first_chunk + p->chunks; i++) {
        if (r->buffers[i].ptr == NULL) continue;
        flip(x, pack, x->s.plan.chunks[i].pack_offset);
        bytes += x->s.plan.chunks[i].bytes;
    }
    return bytes;
}

static void what_is_still_in_memory_is_not_read_back(void **state) {
    (void)state;
    uint64_t whole = 0, parts = 0;
    for (uint64_t seed = 1; seed < 30; seed++) {
        struct source x;
        struct bwi_resident r;
        source_keep(&x, &r, test_seed(seed), MIB);
        const uint64_t used = bwi_arena_used(x.w.arena);
        assert_true(used > 0);
        /* Without gaps, with one at the end, and almost nothing: the window takes a part as well. */
        if (seed % 3 > 0) (void)bwi_arena_largest_free(x.w.arena, MIB - used / (seed % 3 == 1 ? 2 : 8));
        const uint64_t read_before = x.w.ctx.tier[BWI_TIER_LOCAL]->bytes_out;
        uint64_t file_bytes = 0, memory_bytes = 0;
        for (uint32_t i = 0; i < x.placed.p.pack_count; i++) {
            const uint64_t resident = spoil_resident(&x, &r, i);
            struct bwi_pack_copy c;
            copy_kept(&x, &r, i, &c);
            assert_ok(c.task.error.status, &c.task.error);
            assert_int_equal(c.bytes, x.placed.p.packs[i].file_bytes);
            assert_int_equal(c.memory_bytes, resident);
            file_bytes += c.bytes;
            memory_bytes += c.memory_bytes;
            bwi_pack_copy_fini(&c);
        }
        assert_int_equal(x.w.ctx.tier[BWI_TIER_LOCAL]->bytes_out - read_before, file_bytes - memory_bytes);
        state_check(&x.w, &x.s, BWI_TIER_REMOTE, 0, x.pw.headers);
        assert_int_equal(bwi_arena_used(x.w.arena), 0); /* what has been sent is given back */
        whole += seed % 3 == 0 && memory_bytes > 0;
        parts += seed % 3 > 0 && memory_bytes > 0;
        bwi_resident_end(&r);
        bwi_resident_end(&r);
        source_close(&x);
    }
    assert_int_equal(whole, 9);
    assert_in_range(parts, 5, 20);
}

/* Whoever waits for a buffer gets it, not the drain to come. */
static void a_state_above_the_budget_is_written_all_the_same(void **state) {
    (void)state;
    for (uint64_t seed = 1; seed < 10; seed++) {
        struct source x;
        struct bwi_resident r;
        source_keep(&x, &r, test_seed(seed), ARENA);
        assert_true(x.s.plan.stored_bytes > 2 * ARENA);
        for (uint32_t i = 0; i < x.placed.p.pack_count; i++) {
            struct bwi_pack_copy c;
            copy_kept(&x, &r, i, &c);
            assert_ok(c.task.error.status, &c.task.error);
            bwi_pack_copy_fini(&c);
        }
        state_check(&x.w, &x.s, BWI_TIER_REMOTE, 0, x.pw.headers);
        bwi_resident_end(&r);
        source_close(&x);
    }
}

/* Somebody else's stray write: what is sent is what was hashed, and the disk has it. */
static void memory_that_has_changed_is_not_sent(void **state) {
    (void)state;
    for (int in_gap = 0; in_gap < 2; in_gap++) {
        struct source x;
        struct bwi_resident r;
        source_keep(&x, &r, test_seed(3), MIB);
        size_t chunk = x.s.plan.packs[0].first_chunk;
        uint64_t used = 0;
        for (;; chunk++) { /* one with a pad behind its last piece */
            const struct bwi_chunk *k = &x.s.plan.chunks[chunk];
            const struct bwi_piece *last = &x.s.plan.pieces[k->first_piece + k->pieces - 1];
            used = last->pack_offset + last->bytes - k->pack_offset;
            if (!in_gap || used < k->bytes) break;
        }
        r.buffers[chunk].ptr[in_gap ? used : used - 1] ^= 1;
        uint32_t pack = 0;
        while (chunk >= x.s.plan.packs[pack].first_chunk + x.s.plan.packs[pack].chunks) pack++;
        for (int again = 0; again < 2; again++) {
            struct bwi_pack_copy c;
            copy_kept(&x, &r, pack, &c);
            if (again)
                assert_ok(c.task.error.status, &c.task.error);
            else
                assert_fails(c.task.error.status, BW_E_IO, &c.task.error, "has changed since it was hashed");
            if (again) assert_int_equal(c.memory_bytes, 0);
            bwi_pack_copy_fini(&c);
        }
        bwi_resident_end(&r);
        source_close(&x);
    }
}

/* A tier that is slow, or hangs, keeps no more than a part of the memory from everybody else. */
static void what_is_being_sent_leaves_most_of_the_arena(void **state) {
    (void)state;
    struct source x;
    struct bwi_resident r;
    uint64_t most = 0;
    source_keep(&x, &r, test_seed(3), 128 * KIB);
    bwi_bucket_model(x.w.bucket[BWI_TIER_REMOTE])->latency_ns = BWI_NS_PER_S;
    for (uint32_t i = 0; i < x.placed.p.pack_count; i++) {
        struct bwi_pack_copy c;
        copy_begin(&x, &r, i, &c);
        while (c.task.running) {
            uint64_t sent = 0;
            world_turn(&x.w);
            for (size_t k = 0; k < r.last; k++) sent += r.buffers[k].in_use ? r.buffers[k].bytes : 0;
            if (sent > most) most = sent;
        }
        assert_ok(c.task.error.status, &c.task.error);
        bwi_pack_copy_fini(&c);
    }
    assert_in_range(most, 1, 32 * KIB);
    bwi_resident_end(&r);
    source_close(&x);
}

/* A copy that fails in the middle has given back what it was sending; the next one reads that. */
static void a_copy_that_fails_lets_go_of_what_is_in_memory(void **state) {
    (void)state;
    struct source x;
    struct bwi_resident r;
    source_keep(&x, &r, test_seed(3), MIB);
    bwi_bucket_fail_next(x.w.bucket[BWI_TIER_REMOTE], BWI_STORE_WRITE, NULL, BW_E_IO, false);
    for (int again = 0; again < 2; again++) {
        struct bwi_pack_copy c;
        copy_kept(&x, &r, 0, &c);
        assert_int_equal(c.task.error.status, again ? 0 : BW_E_IO);
        if (again) assert_in_range(c.memory_bytes, 0, c.bytes - 1);
        bwi_pack_copy_fini(&c);
    }
    bwi_resident_end(&r);
    assert_int_equal(bwi_arena_used(x.w.arena), 0);
    source_close(&x);
}

static void several_copies_share_an_arena(void **state) {
    (void)state;
    for (uint64_t seed = 1; seed < 6; seed++) {
        struct source x;
        struct bwi_pack_copy c[8];
        struct bw_error err = BW_ERROR_INIT;
        source_open(&x, test_seed(seed), 48 * KIB);
        assert_in_range(x.placed.p.pack_count, 2, 8);
        for (uint32_t i = 0; i < x.placed.p.pack_count; i++) {
            c[i] = copy_of(&x, i);
            assert_ok(bwi_pack_copy_start(&c[i], NULL, &err), &err);
        }
        world_run(&x.w);
        for (uint32_t i = 0; i < x.placed.p.pack_count; i++) {
            assert_ok(c[i].task.error.status, &c[i].task.error);
            bwi_pack_copy_fini(&c[i]);
        }
        state_check(&x.w, &x.s, BWI_TIER_REMOTE, 0, x.pw.headers);
        source_close(&x);
    }
}

static void packs_are_copied_between_directories(void **state) {
    (void)state;
    struct source x;
    world_open_dirs(&x.w, NULL, ARENA);
    source_write(&x, 48 * KIB);
    for (uint32_t i = 0; i < x.placed.p.pack_count; i++) {
        struct bwi_pack_copy c = copy_of(&x, i);
        copy_run(&x, &c);
        assert_ok(c.task.error.status, &c.task.error);
        bwi_pack_copy_fini(&c);
        c.verify_only = true;
        c.from = c.to;
        copy_run(&x, &c);
        assert_ok(c.task.error.status, &c.task.error);
        bwi_pack_copy_fini(&c);
    }
    state_check(&x.w, &x.s, BWI_TIER_REMOTE, 0, x.pw.headers);
    source_close(&x);
}

/* 40 MiB with blocks of 4 MiB: as in real use. */
static void a_large_pack_goes_through_a_window_of_sixteen_mib(void **state) {
    (void)state;
    struct source x = {0};
    world_open_dirs(&x.w, NULL, BWI_ARENA_MIN_BYTES);
    bwi_description_init(&x.s.d);
    const uint64_t shape[] = {40, 1 << 18};
    state_tensor(&x.s, "large", BW_F32, state_memory(&x.s, 4 << 18), 2, shape, (int64_t[]){0, 4});
    state_plain(&x.s, "small", BW_U8, 12345);
    state_plan(&x.s, BWI_EXTENT_BYTES, BWI_PLAN_PACK_BYTES);
    write_start(&x.w, &x.pw, &x.s, 0);
    world_run(&x.w);
    placed_make(&x.placed, &x.w, &x.s, 0, x.pw.headers);
    memset(x.w.ctx.tier[0]->ops, 0, sizeof x.w.ctx.tier[0]->ops);
    struct bwi_pack_copy c = copy_of(&x, 0);
    copy_run(&x, &c);
    assert_ok(c.task.error.status, &c.task.error);
    assert_int_equal(x.w.ctx.tier[0]->ops[BWI_STORE_READ], 11);
    assert_int_equal(x.w.ctx.tier[0]->ops[BWI_STORE_RELEASE], 1);
    bwi_pack_copy_fini(&c);
    state_check(&x.w, &x.s, BWI_TIER_REMOTE, 0, x.pw.headers);
    source_close(&x);
}

/* Of the source of pack 0, in a directory. false: this file system has no way past the page cache. */
static bool in_page_cache(const struct source *x, uint64_t *ret_bytes, bool drop) {
    struct bwi_os *os = bwi_os_system();
    struct bwi_os_space space;
    char path[1200];
    (void)snprintf(path, sizeof path, "%s/%s", x->w.dir[BWI_TIER_LOCAL], x->placed.keys[0].s);
    const int root = os->open_root(os, x->w.dir[BWI_TIER_LOCAL], false);
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    const uint64_t bytes = x->placed.p.packs[0].file_bytes;
    const int direct = os->open_direct(os, fd, false);
    if (drop) assert_int_equal(os->advise_done(os, fd, 0, bytes), 0);
    *ret_bytes = (uint64_t)os->cached(os, fd, 0, bytes);
    assert_int_equal(os->space(os, root, &space), 0);
    if (direct >= 0) (void)close(direct);
    (void)close(fd);
    (void)os->close(os, root);
    return direct >= 0 && space.fs_type != 0x01021994; /* tmpfs */
}

static void what_is_copied_does_not_push_anything_out_of_the_page_cache(void **state) {
    (void)state;
    struct source x = {0};
    uint64_t before, after;
    world_open_dirs(&x.w, NULL, BWI_ARENA_MIN_BYTES);
    bwi_description_init(&x.s.d);
    state_plain(&x.s, "large", BW_U8, 12 << 20);
    state_plan(&x.s, BWI_EXTENT_BYTES, BWI_PLAN_PACK_BYTES);
    write_start(&x.w, &x.pw, &x.s, 0);
    world_run(&x.w);
    placed_make(&x.placed, &x.w, &x.s, 0, x.pw.headers);
    const bool can = in_page_cache(&x, &before, true);
    struct bwi_pack_copy c = copy_of(&x, 0);
    copy_run(&x, &c);
    assert_ok(c.task.error.status, &c.task.error);
    (void)in_page_cache(&x, &after, false);
    bwi_pack_copy_fini(&c);
    source_close(&x);
    if (can) assert_int_equal(after, before);
}

static void reads_run_side_by_side_once_the_first_has_opened_the_object(void **state) {
    (void)state;
    struct source x;
    source_open(&x, 0, MIB);
    bwi_bucket_model(x.w.bucket[BWI_TIER_LOCAL])->latency_ns = 1000;
    bwi_bucket_model(x.w.bucket[BWI_TIER_REMOTE])->latency_ns = 1000;
    struct bwi_pack_copy c = copy_of(&x, 0);
    c.verify_only = true;
    const uint64_t start = x.w.env.now;
    const uint64_t blocks = (x.placed.p.packs[0].file_bytes + ARENA / 2 - 1) / (ARENA / 2);
    assert_true(blocks >= 4);
    copy_run(&x, &c);
    assert_ok(c.task.error.status, &c.task.error);
    assert_int_equal(x.w.ctx.tier[0]->ops[BWI_STORE_READ], blocks);
    /* HEAD, the first read, the others in pairs */
    assert_int_equal(x.w.env.now - start, 1000 * (2 + blocks / 2));
    bwi_pack_copy_fini(&c);
    source_close(&x);
}

/* ---- the target ---- */

static void what_the_target_has_already_is_skipped(void **state) {
    (void)state;
    struct source x;
    source_open(&x, 1, MIB);
    for (int round = 0; round < 2; round++) {
        struct bwi_pack_copy c = copy_of(&x, 0);
        copy_run(&x, &c);
        assert_ok(c.task.error.status, &c.task.error);
        assert_int_equal(c.skipped, round == 1);
        assert_int_equal(c.bytes, round == 1 ? 0 : x.placed.p.packs[0].file_bytes);
        bwi_pack_copy_fini(&c);
    }
    const struct bwi_store *to = x.w.ctx.tier[BWI_TIER_REMOTE];
    assert_int_equal(to->ops[BWI_STORE_BEGIN], 1);
    assert_int_equal(x.w.progress.done_bytes, 2 * x.placed.p.packs[0].file_bytes);
    source_close(&x);
}

static void a_target_of_another_size_is_an_error_before_anything_is_read(void **state) {
    (void)state;
    struct source x;
    source_open(&x, 1, MIB);
    world_put(&x.w, BWI_TIER_REMOTE, x.placed.keys[0].s, bwi_span_str("other"));
    struct bwi_pack_copy c = copy_of(&x, 0);
    copy_run(&x, &c);
    assert_fails(c.task.error.status, BW_E_EXISTS, &c.task.error, "the target has it with 5 bytes, expected ");
    assert_int_equal(x.w.ctx.tier[BWI_TIER_LOCAL]->ops[BWI_STORE_READ], 0);
    bwi_pack_copy_fini(&c);
    bwi_bucket_fail_next(x.w.bucket[BWI_TIER_REMOTE], BWI_STORE_HEAD, NULL, BW_E_CORRUPT, false);
    c = copy_of(&x, 0);
    copy_run(&x, &c);
    assert_fails(c.task.error.status, BW_E_EXISTS, &c.task.error, x.placed.keys[0].s); /* what is no file, too */
    assert_int_equal(x.w.ctx.tier[BWI_TIER_LOCAL]->ops[BWI_STORE_READ], 0);
    bwi_pack_copy_fini(&c);
    source_close(&x);
}

static void a_damaged_target_is_replaced_on_demand(void **state) {
    (void)state;
    for (int dirs = 0; dirs < 2; dirs++) {
        struct source x;
        if (dirs != 0) {
            world_open_dirs(&x.w, NULL, ARENA);
        } else {
            world_open(&x.w, 1, ARENA);
        }
        source_write(&x, MIB);
        const size_t bytes = (size_t)x.placed.p.packs[0].file_bytes;
        uint8_t *zero = bwi_calloc(1, bytes);
        assert_non_null(zero);
        world_put(&x.w, BWI_TIER_REMOTE, x.placed.keys[0].s, bwi_span(zero, bytes));
        bwi_free(zero);
        struct bwi_pack_copy c = copy_of(&x, 0);
        c.replace = true;
        copy_run(&x, &c);
        assert_ok(c.task.error.status, &c.task.error);
        assert_false(c.skipped);
        bwi_pack_copy_fini(&c);
        state_check(&x.w, &x.s, BWI_TIER_REMOTE, 0, x.pw.headers);
        source_close(&x);
    }
}

/* ---- damage ---- */

/* What covers a byte of a pack: the number of an extent, or UINT64_MAX. */
static uint64_t extent_at(const struct source *x, uint32_t pack, uint64_t at) {
    for (uint64_t i = 0; i < x->placed.p.extent_count; i++) {
        const struct bwi_place *p = &x->placed.p.places[i];
        if (p->pack == pack && at >= p->offset && at < p->offset + p->stored_bytes) return i;
    }
    return UINT64_MAX;
}

static void check_one_flip(struct source *x, uint64_t at) {
    uint64_t bad[4] = {0};
    char want[64];
    const uint64_t extent = extent_at(x, 0, at);
    flip(x, 0, at);
    struct bwi_pack_copy c = copy_of(x, 0);
    c.verify_only = true;
    c.bad = bad;
    c.bad_cap = 4;
    copy_run(x, &c);
    (void)snprintf(want, sizeof want, "safetensors\": extent %llu (", (unsigned long long)extent);
    const char *part = at < x->placed.p.packs[0].header_bytes ? "safetensors\": the header ("
                       : extent == UINT64_MAX                 ? "belongs to no extent: expected 0, found 16"
                                                              : want;
    assert_fails(c.task.error.status, BW_E_CORRUPT, &c.task.error, part);
    assert_int_equal(c.bad_count, extent == UINT64_MAX ? 0 : 1);
    if (extent != UINT64_MAX) assert_int_equal(bad[0], extent);
    assert_int_equal(c.bytes, x->placed.p.packs[0].file_bytes); /* to the end, whatever was found */
    bwi_pack_copy_fini(&c);

    c = copy_of(x, 0);
    copy_run(x, &c);
    assert_fails(c.task.error.status, BW_E_CORRUPT, &c.task.error, part);
    assert_int_equal(bwi_bucket_objects(x->w.bucket[BWI_TIER_REMOTE]), 0);
    bwi_pack_copy_fini(&c);
    flip(x, 0, at); /* back */
}

static void a_flipped_bit_anywhere_is_found_and_never_copied(void **state) {
    (void)state;
    struct source x;
    source_open(&x, 0, MIB);
    const uint64_t bytes = x.placed.p.packs[0].file_bytes;
    unsigned gaps = 0;
    for (uint64_t at = 0; at < bytes; at += 1013) check_one_flip(&x, at);
    for (uint64_t at = x.placed.p.packs[0].header_bytes; at < bytes; at++) { /* each gap, at both ends */
        const bool gap = extent_at(&x, 0, at) == UINT64_MAX;
        if (!gap || (extent_at(&x, 0, at - 1) == UINT64_MAX && extent_at(&x, 0, at + 1) == UINT64_MAX)) continue;
        check_one_flip(&x, at);
        gaps++;
    }
    assert_true(gaps >= 4);
    check_one_flip(&x, bytes - 1);
    assert_int_equal(world_upload_bytes(&x.w, BWI_TIER_REMOTE), 0);
    source_close(&x);
}

static void verifying_lists_all_damages(void **state) {
    (void)state;
    struct source x;
    uint64_t bad[3];
    source_open(&x, 3, MIB);
    assert_true(x.placed.p.extent_count >= 5);
    for (uint64_t i = 0; i < 4; i++) flip(&x, 0, x.placed.p.places[i].offset);
    flip(&x, 0, 0);
    struct bwi_pack_copy c = copy_of(&x, 0);
    c.verify_only = true;
    c.bad = bad;
    c.bad_cap = 3;
    copy_run(&x, &c);
    assert_fails(c.task.error.status, BW_E_CORRUPT, &c.task.error, "safetensors\": 5 damages, the first: the header");
    assert_int_equal(c.bad_count, 3);
    for (size_t i = 0; i < 3; i++) assert_true(bad[i] < 4);
    bwi_pack_copy_fini(&c);
    source_close(&x);
}

static void a_source_that_is_gone_or_too_short_is_bad_from_end_to_end(void **state) {
    (void)state;
    for (int gone = 0; gone < 2; gone++) {
        struct source x;
        uint64_t bad[64];
        source_open(&x, 1, MIB);
        const struct bwi_span data = near_object(&x, 0);
        uint8_t *copy = bwi_malloc(data.len);
        memcpy(copy, data.ptr, data.len);
        if (gone != 0) assert_true(bwi_bucket_remove(x.w.bucket[0], x.placed.keys[0].s));
        if (gone == 0) world_put(&x.w, BWI_TIER_LOCAL, x.placed.keys[0].s, bwi_span(copy, data.len - 1));
        bwi_free(copy);
        for (int verify = 0; verify < 2; verify++) {
            struct bwi_pack_copy c = copy_of(&x, 0);
            c.verify_only = verify != 0;
            c.bad = bad;
            c.bad_cap = 64;
            copy_run(&x, &c);
            assert_fails(c.task.error.status, gone != 0 ? BW_E_NOTFOUND : BW_E_CORRUPT, &c.task.error,
                         gone != 0 ? "no such object" : "bytes, expected ");
            assert_int_equal(c.bad_count, verify != 0 ? extents_of(&x, 0) : 0);
            bwi_pack_copy_fini(&c);
        }
        assert_int_equal(bwi_bucket_objects(x.w.bucket[1]), 0);
        source_close(&x);
    }
}

static void a_source_that_vanishes_while_it_is_read_is_bad_too(void **state) {
    (void)state;
    struct source x;
    uint64_t bad[64];
    source_open(&x, 1, MIB);
    struct bwi_pack_copy c = copy_of(&x, 0);
    c.verify_only = true;
    c.bad = bad;
    c.bad_cap = 64;
    struct bw_error err = BW_ERROR_INIT;
    assert_ok(bwi_pack_copy_start(&c, NULL, &err), &err);
    while (c.bytes == 0) world_turn(&x.w);
    assert_true(bwi_bucket_remove(x.w.bucket[0], x.placed.keys[0].s));
    world_run(&x.w);
    assert_fails(c.task.error.status, BW_E_NOTFOUND, &c.task.error, "no such object");
    assert_int_equal(c.bad_count, extents_of(&x, 0));
    bwi_pack_copy_fini(&c);
    source_close(&x);
}

static void trailing_bytes_are_damage_though_all_extents_are_sound(void **state) {
    (void)state;
    struct source x;
    uint64_t bad[4];
    source_open(&x, 1, MIB);
    const struct bwi_span data = near_object(&x, 0);
    uint8_t *copy = bwi_calloc(1, data.len + 1);
    assert_non_null(copy);
    memcpy(copy, data.ptr, data.len);
    world_put(&x.w, BWI_TIER_LOCAL, x.placed.keys[0].s, bwi_span(copy, data.len + 1));
    bwi_free(copy);
    for (int verify = 0; verify < 2; verify++) {
        struct bwi_pack_copy c = copy_of(&x, 0);
        c.verify_only = verify != 0;
        c.bad = bad;
        c.bad_cap = 4;
        copy_run(&x, &c);
        assert_fails(c.task.error.status, BW_E_CORRUPT, &c.task.error, "safetensors\": the file has ");
        assert_int_equal(c.bad_count, 0);
        assert_int_equal(c.bytes, verify != 0 ? x.placed.p.packs[0].file_bytes : 0);
        bwi_pack_copy_fini(&c);
    }
    source_close(&x);
}

/* ---- failures ---- */

static void check_nothing_there(struct source *x) {
    assert_int_equal(bwi_bucket_objects(x->w.bucket[BWI_TIER_REMOTE]), 0);
    assert_int_equal(world_upload_bytes(&x->w, BWI_TIER_REMOTE), 0);
}

/* false: the operation never came. */
static bool copy_with_failure(enum bwi_tier tier, enum bwi_store_verb verb, uint64_t n) {
    struct source x;
    struct bw_error err = BW_ERROR_INIT;
    bool armed = false;
    source_open(&x, test_seed(7), MIB);
    struct bwi_pack_copy c = copy_of(&x, 0);
    assert_ok(bwi_pack_copy_start(&c, NULL, &err), &err);
    while (bwi_loop_tasks(x.w.loop) > 0) {
        if (!armed && x.w.ctx.tier[tier]->ops[verb] >= n - 1) {
            bwi_bucket_fail_next(x.w.bucket[tier], verb, NULL, BW_E_IO, false);
            armed = true;
        }
        world_turn(&x.w);
    }
    const bool failed = c.task.error.status != 0;
    if (failed) {
        assert_fails(c.task.error.status, BW_E_IO, &c.task.error, ".safetensors\": ");
        assert_int_equal(c.bad_count, 0); /* an I/O error is not damage */
        check_nothing_there(&x);
    }
    bwi_pack_copy_fini(&c);
    source_close(&x);
    return failed;
}

static void any_operation_may_fail_and_nothing_gets_a_name(void **state) {
    (void)state;
    const long live = bwi_alloc_live();
    const struct {
        enum bwi_tier tier;
        enum bwi_store_verb verb;
        uint64_t least;
    } kinds[] = {{BWI_TIER_REMOTE, BWI_STORE_HEAD, 1},  {BWI_TIER_LOCAL, BWI_STORE_HEAD, 1},
                 {BWI_TIER_REMOTE, BWI_STORE_BEGIN, 1}, {BWI_TIER_LOCAL, BWI_STORE_READ, 3},
                 {BWI_TIER_REMOTE, BWI_STORE_WRITE, 3}, {BWI_TIER_REMOTE, BWI_STORE_FINISH, 1}};
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        uint64_t n = 0;
        while (copy_with_failure(kinds[i].tier, kinds[i].verb, n + 1)) n++;
        assert_true(n >= kinds[i].least);
    }
    assert_int_equal(bwi_alloc_live(), live);
}

static void cancelling_at_any_moment_gives_everything_back(void **state) {
    (void)state;
    const long live = bwi_alloc_live();
    for (uint64_t turns = 0;; turns++) {
        struct source x;
        struct bw_error err = BW_ERROR_INIT;
        source_open(&x, test_seed(8), MIB);
        struct bwi_pack_copy c = copy_of(&x, 0);
        assert_ok(bwi_pack_copy_start(&c, NULL, &err), &err);
        for (uint64_t i = 0; i < turns && c.task.running; i++) world_turn(&x.w);
        const bool running = c.task.running;
        bwi_task_cancel(&c.task);
        world_run(&x.w);
        if (c.task.error.status != 0) { /* the last steps are not stopped any more */
            assert_fails(c.task.error.status, BW_E_CANCELLED, &c.task.error, "cancelled");
            check_nothing_there(&x);
        } else {
            assert_true(turns > 3);
            assert_int_equal(bwi_bucket_objects(x.w.bucket[1]), 1);
        }
        bwi_pack_copy_fini(&c);
        source_close(&x);
        if (!running) break;
    }
    assert_int_equal(bwi_alloc_live(), live);
}

static void a_copy_that_waits_for_its_window_can_be_cancelled(void **state) {
    (void)state;
    struct source x;
    struct bw_error err = BW_ERROR_INIT;
    source_open(&x, 0, MIB);
    bwi_bucket_model(x.w.bucket[0])->latency_ns = 1000;
    struct bwi_pack_copy a = copy_of(&x, 0);
    struct bwi_pack_copy b = copy_of(&x, 0);
    a.verify_only = b.verify_only = true;
    assert_ok(bwi_pack_copy_start(&a, NULL, &err), &err);
    assert_ok(bwi_pack_copy_start(&b, NULL, &err), &err);
    while (bwi_arena_used(x.w.arena) == 0) world_turn(&x.w);
    assert_int_equal(bwi_arena_used(x.w.arena), ARENA); /* all of it: b waits */
    bwi_task_cancel(&b.task);
    (void)bwi_loop_turn(x.w.loop, 0);
    assert_false(b.task.running);
    assert_int_equal(b.task.error.status, BW_E_CANCELLED);
    world_run(&x.w);
    assert_ok(a.task.error.status, &a.task.error);
    bwi_pack_copy_fini(&a);
    bwi_pack_copy_fini(&b);
    source_close(&x);
}

static void running_out_of_memory_anywhere_is_an_error_and_leaks_nothing(void **state) {
    (void)state;
    const long live = bwi_alloc_live();
    for (unsigned long n = 1;; n++) {
        struct source x;
        struct bw_error err = BW_ERROR_INIT;
        source_open(&x, test_seed(5), MIB);
        struct bwi_pack_copy c = copy_of(&x, 0);
        (void)bwi_alloc_fail_at(n);
        const int rc = bwi_pack_copy_start(&c, NULL, &err);
        world_run(&x.w);
        const bool fired = bwi_alloc_fail_at(0) >= n;
        assert_int_equal(rc < 0 ? rc : c.task.error.status, fired ? BW_E_NOMEM : 0);
        if (fired) check_nothing_there(&x);
        bwi_pack_copy_fini(&c);
        source_close(&x);
        if (!fired) break;
    }
    assert_int_equal(bwi_alloc_live(), live);
}

static void arguments_that_cannot_be_are_refused_at_the_start(void **state) {
    (void)state;
    struct source x;
    struct bw_error err = BW_ERROR_INIT;
    source_open(&x, 0, MIB);
    struct bwi_pack_copy c = copy_of(&x, x.placed.p.pack_count);
    assert_fails(bwi_pack_copy_start(&c, NULL, &err), BW_E_INVALID, &err, "pack 1: the placement has 1");
    bwi_pack_copy_fini(&c);
    c = copy_of(&x, 0);
    bw_error_clear(&err);
    x.placed.p.packs[0].key.len = 512;
    assert_fails(bwi_pack_copy_start(&c, NULL, &err), BW_E_FORMAT, &err, "a key of 512 bytes, expected 1 to 511");
    x.placed.p.packs[0].key = bwi_span_str(x.placed.keys[0].s);
    bw_error_clear(&err);
    x.placed.p.places[0].offset = 0;
    assert_fails(bwi_pack_copy_start(&c, NULL, &err), BW_E_FORMAT, &err, "safetensors\": extent ");
    assert_int_equal(bwi_loop_tasks(x.w.loop), 0);
    source_close(&x);
}

static void a_budget_that_holds_no_two_blocks_copies_no_pack(void **state) {
    (void)state;
    struct source x;
    struct bw_error err = BW_ERROR_INIT;
    struct bwi_arena *little = NULL;
    source_open(&x, 0, MIB);
    struct bwi_arena *const whole = x.w.arena;
    assert_ok(bwi_arena_open(4 * KIB, 0, &little, &err), &err);
    x.w.ctx.arena = little;
    struct bwi_pack_copy c = copy_of(&x, 0);
    assert_fails(bwi_pack_copy_start(&c, NULL, &err), BW_E_LIMIT, &err,
                 "memory budget of 4096 bytes: a pack cannot be copied");
    bwi_pack_copy_fini(&c);
    assert_int_equal(bwi_loop_tasks(x.w.loop), 0);
    check_nothing_there(&x);
    assert_int_equal(bwi_arena_used(little), 0);
    bwi_arena_close(little);
    x.w.ctx.arena = whole;
    source_close(&x);
}

/* ---- pacing ---- */

static void writes_keep_to_the_pace(void **state) {
    (void)state;
    struct source x;
    struct bwi_pace pace;
    source_open(&x, 0, MIB);
    const uint64_t bytes = x.placed.p.packs[0].file_bytes;
    const uint64_t rate = 100000;
    bwi_pace_init(&pace, rate, 0);
    struct bwi_pack_copy c = copy_of(&x, 0);
    c.pace = &pace;
    const uint64_t start = x.w.env.now;
    copy_run(&x, &c);
    assert_ok(c.task.error.status, &c.task.error);
    const uint64_t least = bytes * BWI_NS_PER_S / rate;
    assert_in_range(x.w.env.now - start, least, least + BWI_NS_PER_MS);
    bwi_pack_copy_fini(&c);
    source_close(&x);
}

static void a_paced_copy_is_cancelled_in_its_sleep(void **state) {
    (void)state;
    struct source x;
    struct bwi_pace pace;
    struct bw_error err = BW_ERROR_INIT;
    source_open(&x, 0, MIB);
    bwi_pace_init(&pace, 1, 0);
    struct bwi_pack_copy c = copy_of(&x, 0);
    c.pace = &pace;
    assert_ok(bwi_pack_copy_start(&c, NULL, &err), &err);
    while (bwi_loop_turn(x.w.loop, 0)) {
    }
    assert_true(bwi_loop_next_ns(x.w.loop) > x.w.env.now + 1000 * BWI_NS_PER_S);
    const uint64_t now = x.w.env.now;
    bwi_task_cancel(&c.task);
    world_run(&x.w);
    assert_int_equal(x.w.env.now, now);
    assert_int_equal(c.task.error.status, BW_E_CANCELLED);
    check_nothing_there(&x);
    bwi_pack_copy_fini(&c);
    source_close(&x);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(packs_arrive_byte_for_byte_whatever_the_order),
        cmocka_unit_test(what_is_still_in_memory_is_not_read_back),
        cmocka_unit_test(a_state_above_the_budget_is_written_all_the_same),
        cmocka_unit_test(memory_that_has_changed_is_not_sent),
        cmocka_unit_test(what_is_being_sent_leaves_most_of_the_arena),
        cmocka_unit_test(a_copy_that_fails_lets_go_of_what_is_in_memory),
        cmocka_unit_test(several_copies_share_an_arena),
        cmocka_unit_test(packs_are_copied_between_directories),
        cmocka_unit_test(a_large_pack_goes_through_a_window_of_sixteen_mib),
        cmocka_unit_test(what_is_copied_does_not_push_anything_out_of_the_page_cache),
        cmocka_unit_test(reads_run_side_by_side_once_the_first_has_opened_the_object),
        cmocka_unit_test(what_the_target_has_already_is_skipped),
        cmocka_unit_test(a_target_of_another_size_is_an_error_before_anything_is_read),
        cmocka_unit_test(a_damaged_target_is_replaced_on_demand),
        cmocka_unit_test(a_flipped_bit_anywhere_is_found_and_never_copied),
        cmocka_unit_test(verifying_lists_all_damages),
        cmocka_unit_test(a_source_that_is_gone_or_too_short_is_bad_from_end_to_end),
        cmocka_unit_test(a_source_that_vanishes_while_it_is_read_is_bad_too),
        cmocka_unit_test(trailing_bytes_are_damage_though_all_extents_are_sound),
        cmocka_unit_test(any_operation_may_fail_and_nothing_gets_a_name),
        cmocka_unit_test(cancelling_at_any_moment_gives_everything_back),
        cmocka_unit_test(a_copy_that_waits_for_its_window_can_be_cancelled),
        cmocka_unit_test(running_out_of_memory_anywhere_is_an_error_and_leaks_nothing),
        cmocka_unit_test(arguments_that_cannot_be_are_refused_at_the_start),
        cmocka_unit_test(a_budget_that_holds_no_two_blocks_copies_no_pack),
        cmocka_unit_test(writes_keep_to_the_pace),
        cmocka_unit_test(a_paced_copy_is_cancelled_in_its_sleep),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
