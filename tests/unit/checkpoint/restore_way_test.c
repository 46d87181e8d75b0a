/* SPDX-License-Identifier: Apache-2.0 */
/* How much a restore reads, at once and in all, and where the bytes go first. */
#include "reader.h"

static uint64_t asked(const struct world *w, enum bwi_tier t) {
    return w->ctx.tier[t]->ops[BWI_STORE_GET] + w->ctx.tier[t]->ops[BWI_STORE_READ];
}

static void open_saved(struct world *w, struct fixture *f, struct reader *x) {
    fixture_save(f);
    const struct bwi_restore_target t = reader_target(f, true);
    reader_open(x, f, &t);
    (void)w;
}

static void close_both(struct world *w, struct reader *x) {
    reader_close(x);
    world_close(w);
}

/* ---- how much ---- */

static void make_many(struct fixture *f, struct world *w, uint64_t bytes) {
    static char names[FIXTURE_TENSORS][4];
    fixture_init(f, w, 1, FIXTURE_ROWS);
    for (int i = 0; i < FIXTURE_TENSORS; i++) {
        (void)snprintf(names[i], sizeof names[i], "t%d", i);
        fixture_tensor(f, names[i], BW_U8, 1, (uint64_t[]){bytes});
    }
}

static void small_tensors_side_by_side_are_read_at_once(void **state) {
    (void)state;
    struct world w;
    struct fixture f;
    struct reader x;
    world_open(&w, 3, 16 * 64 * KIB); /* a run has 64 KiB at most */
    make_many(&f, &w, 1001);
    open_saved(&w, &f, &x);
    assert_ok(reader_all(&x), &x.error);
    assert_int_equal(w.ctx.tier[BWI_TIER_LOCAL]->ops[BWI_STORE_READ], 1);
    assert_int_equal(bwi_restore_get_stats(x.r)->verified_bytes, FIXTURE_TENSORS * 1001);
    close_both(&w, &x);
    world_open(&w, 3, 16 * 8 * KIB); /* eight of them in a run */
    make_many(&f, &w, 1001);
    open_saved(&w, &f, &x);
    assert_ok(reader_all(&x), &x.error);
    assert_int_equal(w.ctx.tier[BWI_TIER_LOCAL]->ops[BWI_STORE_READ], 3);
    close_both(&w, &x);
}

static void of_a_run_only_what_is_damaged_comes_from_another_tier(void **state) {
    (void)state;
    struct world w;
    struct fixture f;
    struct reader x;
    struct bwi_group_meta m;
    world_open(&w, 4, 16 * 64 * KIB);
    make_many(&f, &w, 1001);
    open_saved(&w, &f, &x);
    fixture_meta(&f, 0, BWI_TIER_LOCAL, &m);
    const struct bwi_key pack = bwi_pack_key_of(&m.placement, 0);
    fixture_damage(&w, BWI_TIER_LOCAL, pack.s, FIXTURE_FLIP, m.placement.places[7].offset + 500);
    bwi_group_meta_fini(&m);
    assert_ok(reader_all(&x), &x.error);
    const struct bw_restore_stats *s = bwi_restore_get_stats(x.r);
    assert_int_equal(s->remote_bytes, 1001);
    assert_int_equal(s->damaged_extents, 1);
    assert_int_equal(s->verified_bytes, FIXTURE_TENSORS * 1001);
    assert_int_equal(s->repaired_objects, 1);
    close_both(&w, &x);
}

/* In a directory, out of the page cache: a store that shows the bytes in several pieces. */
static void run_in_a_directory(uint64_t bytes, bool damaged) {
    struct world w;
    struct fixture f;
    struct reader x;
    struct bwi_group_meta m;
    world_open_dirs(&w, NULL, BWI_ARENA_MIN_BYTES);
    make_many(&f, &w, bytes);
    f.extent_bytes = 64 * KIB;
    f.pack_bytes = 2 * MIB;
    open_saved(&w, &f, &x);
    fixture_meta(&f, 0, BWI_TIER_LOCAL, &m);
    const struct bwi_key pack = bwi_pack_key_of(&m.placement, 0);
    const uint64_t at = m.placement.places[7].offset + bytes / 2;
    bwi_group_meta_fini(&m);
    if (damaged) fixture_damage(&w, BWI_TIER_LOCAL, pack.s, FIXTURE_FLIP, at);
    assert_ok(reader_all(&x), &x.error);
    const struct bw_restore_stats *s = bwi_restore_get_stats(x.r);
    assert_int_equal(s->verified_bytes, FIXTURE_TENSORS * bytes);
    assert_int_equal(s->remote_bytes, damaged ? bytes : 0);
    assert_int_equal(s->damaged_extents, damaged);
    if (!damaged) assert_int_equal(w.ctx.tier[BWI_TIER_LOCAL]->ops[BWI_STORE_READ], 1);
    close_both(&w, &x);
}

static void a_run_is_checked_as_it_comes(void **state) {
    (void)state;
    for (uint64_t bytes = 15001; bytes <= 30002; bytes += 15001) { /* into the buffer, and straight to their places */
        run_in_a_directory(bytes, false);
        run_in_a_directory(bytes, true);
    }
}

static void a_part_reads_only_that_part(void **state) {
    (void)state;
    struct world w;
    struct fixture f;
    struct reader x;
    struct piece p;
    world_open(&w, 5, MIB);
    fixture_init(&f, &w, 1, FIXTURE_ROWS);
    fixture_tensor(&f, "w", BW_U8, 2, (uint64_t[]){256, 4096}); /* a row is an extent */
    open_saved(&w, &f, &x);
    assert_ok(reader_all(&x), &x.error); /* and with it all metadata */
    const uint64_t before = w.ctx.tier[BWI_TIER_LOCAL]->bytes_out, objects = asked(&w, BWI_TIER_REMOTE);
    piece_make(&p, &f, 0, (uint64_t[]){100, 17}, (uint64_t[]){3, 2000});
    assert_ok(reader_read(&x, &p.slice, 1), &x.error);
    assert_int_equal(piece_wrong(&p), 0);
    assert_int_equal(w.ctx.tier[BWI_TIER_LOCAL]->bytes_out - before, 3 * 4096);
    assert_int_equal(asked(&w, BWI_TIER_REMOTE), objects);
    bwi_free(p.memory);
    close_both(&w, &x);
}

/* What a new reader asks both tiers for, to read the rows that one rank of `world` has saved. */
static uint64_t objects_of_one_rank(uint32_t world) {
    struct world w;
    struct fixture f;
    struct reader x;
    struct piece p;
    uint64_t offset[2], extent[2];
    world_open(&w, 6, MIB);
    fixture_small(&f, &w, world);
    open_saved(&w, &f, &x);
    const uint64_t before = asked(&w, BWI_TIER_LOCAL) + asked(&w, BWI_TIER_REMOTE);
    fixture_box(FIXTURE_ROWS, 2, f.tensors[0].shape, world, world / 2, offset, extent);
    piece_make(&p, &f, 0, offset, extent);
    assert_ok(reader_read(&x, &p.slice, 1), &x.error);
    assert_int_equal(piece_wrong(&p), 0);
    bwi_free(p.memory);
    const uint64_t after = asked(&w, BWI_TIER_LOCAL) + asked(&w, BWI_TIER_REMOTE);
    close_both(&w, &x);
    return after - before;
}

static void a_rank_reads_what_it_saved_with_as_many_objects_whatever_the_world(void **state) {
    (void)state;
    /* Manifest, head and block of the index; summary, layout, content, placement of its group; its bytes. */
    for (uint32_t world = 1; world <= 24; world = 2 * world + world % 2)
        assert_int_equal(objects_of_one_rank(world), 8);
}

/* ---- where to ---- */

/* In front of a tier: what is read into the caller's memory arrives with a flipped bit. */
static struct {
    struct bwi_store base;
    struct bwi_store *below;
    const uint8_t *low, *high; /* the caller's */
    void (*done)(struct bwi_store_op *op);
    unsigned spoiled, others;
} spoiler;

static void spoil(struct bwi_store_op *op) {
    *(uint8_t *)op->buf ^= 1;
    spoiler.spoiled++;
    op->done = spoiler.done;
    op->done(op);
}

static void spoiler_submit(struct bwi_store *s, struct bwi_store_op *op) {
    const uint8_t *to = op->buf;
    (void)s;
    if (op->verb == BWI_STORE_READ && to >= spoiler.low && to < spoiler.high) {
        spoiler.done = op->done;
        op->done = spoil;
    } else if (op->verb == BWI_STORE_READ) {
        spoiler.others++;
    }
    bwi_store_submit(spoiler.below, op);
}

/* Another thread may have written there, or a fork have parted the memory from what a device wrote. */
static void what_came_straight_is_read_again_before_a_tier_is_blamed(void **state) {
    (void)state;
    struct world w;
    struct fixture f;
    struct reader x;
    struct piece p;
    struct bwi_span mark;
    world_open(&w, 7, MIB);
    fixture_init(&f, &w, 1, FIXTURE_ROWS);
    fixture_tensor(&f, "w", BW_U8, 1, (uint64_t[]){4000});
    open_saved(&w, &f, &x);
    piece_make(&p, &f, 0, (uint64_t[]){0}, (uint64_t[]){4000});
    memset(&spoiler, 0, sizeof spoiler);
    spoiler.base.submit = spoiler_submit;
    spoiler.below = w.ctx.tier[BWI_TIER_LOCAL];
    spoiler.low = p.memory;
    spoiler.high = p.memory + p.bytes;
    w.ctx.tier[BWI_TIER_LOCAL] = &spoiler.base;
    assert_ok(reader_read(&x, &p.slice, 1), &x.error);
    w.ctx.tier[BWI_TIER_LOCAL] = spoiler.below;
    assert_int_equal(piece_wrong(&p), 0);
    assert_int_equal(spoiler.spoiled, 1);
    assert_int_equal(spoiler.others, 1);
    assert_int_equal(bwi_restore_get_stats(x.r)->remote_bytes, 0);
    assert_int_equal(bwi_restore_get_stats(x.r)->damaged_extents, 0);
    assert_int_equal(bwi_restore_get_stats(x.r)->verified_bytes, 4000);
    assert_false(bwi_bucket_get(w.bucket[BWI_TIER_REMOTE], bwi_key_damaged("run", &f.id, 0).s, &mark));
    bwi_free(p.memory);
    close_both(&w, &x);
}

static void an_extent_that_belongs_to_one_place_needs_no_buffer(void **state) {
    (void)state;
    struct world w;
    struct fixture f;
    struct reader x;
    struct piece p;
    world_open(&w, 8, MIB);
    fixture_init(&f, &w, 1, FIXTURE_ROWS);
    fixture_tensor(&f, "w", BW_U8, 2, (uint64_t[]){2, 2048});
    open_saved(&w, &f, &x);
    const uint64_t peak = bwi_arena_peak(w.arena);
    bwi_arena_close(w.arena);
    struct bw_error err = BW_ERROR_INIT;
    assert_ok(bwi_arena_open(MIB, 0, &w.arena, &err), &err);
    w.ctx.arena = w.arena;
    assert_true(peak > 0);
    piece_make(&p, &f, 0, (uint64_t[]){0, 0}, (uint64_t[]){2, 2048});
    assert_ok(reader_read(&x, &p.slice, 1), &x.error);
    assert_int_equal(piece_wrong(&p), 0);
    assert_int_equal(bwi_arena_peak(w.arena), 0);
    piece_transpose(&p); /* cut up */
    assert_ok(reader_read(&x, &p.slice, 1), &x.error);
    assert_int_equal(piece_wrong(&p), 0);
    assert_int_equal(bwi_arena_peak(w.arena), 4096);
    bwi_free(p.memory);
    close_both(&w, &x);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(small_tensors_side_by_side_are_read_at_once),
        cmocka_unit_test(of_a_run_only_what_is_damaged_comes_from_another_tier),
        cmocka_unit_test(a_run_is_checked_as_it_comes),
        cmocka_unit_test(a_part_reads_only_that_part),
        cmocka_unit_test(a_rank_reads_what_it_saved_with_as_many_objects_whatever_the_world),
        cmocka_unit_test(what_came_straight_is_read_again_before_a_tier_is_blamed),
        cmocka_unit_test(an_extent_that_belongs_to_one_place_needs_no_buffer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
