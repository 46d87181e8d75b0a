/* SPDX-License-Identifier: Apache-2.0 */
/* Reading a group's metadata: all of it, and each way in which the objects can contradict each other. */
#include "checkpoint/source.h"
#include "transfer_fixture.h"

#define GROUP 5

/* A group with all its objects on the local tier, each of which a test may change before they are put there. */
struct group {
    struct world w;
    struct state s;
    struct placed placed;
    struct bwi_xxh headers[16];
    struct bwi_buf layout, content, placement, summary;
    struct bwi_summary sum;
    struct bwi_key key[4]; /* summary, layout, content, placement */
};
enum { SUMMARY, LAYOUT, CONTENT, PLACEMENT };

static void encode_content(struct group *g) {
    struct bw_error err = BW_ERROR_INIT;
    bwi_buf_reset(&g->content);
    assert_ok(bwi_content_encode(&g->s.plan.content, &g->content, &err), &err);
    g->sum.content = bwi_sha_of(bwi_buf_span(&g->content));
    g->sum.content_bytes = g->content.len;
}

static void encode_placement(struct group *g) {
    struct bw_error err = BW_ERROR_INIT;
    bwi_buf_reset(&g->placement);
    assert_ok(bwi_placement_encode(&g->placed.p, &g->placement, &err), &err);
    g->sum.placement = bwi_sha_of(bwi_buf_span(&g->placement));
    g->sum.placement_bytes = g->placement.len;
}

static void set_layout(struct group *g) {
    bwi_buf_reset(&g->layout);
    bwi_buf_put(&g->layout, g->s.plan.layout_bytes.ptr, g->s.plan.layout_bytes.len);
    g->sum.layout = g->s.plan.layout_sha;
    g->sum.layout_bytes = g->layout.len;
}

static void group_open(struct group *g, uint64_t seed) {
    memset(g, 0, sizeof *g);
    world_open(&g->w, seed, 64 * KIB);
    state_mixed(&g->s, 1, 16 * KIB, 48 * KIB);
    for (size_t i = 0; i < g->s.plan.pack_count; i++) {
        g->headers[i] = bwi_xxh_of(bwi_buf_span(&g->s.plan.packs[i].header));
    }
    placed_make(&g->placed, &g->w, &g->s, GROUP, g->headers);
    g->sum = (struct bwi_summary){.uuid = {{1, 2, 3}},
                                  .id = ID,
                                  .group = GROUP,
                                  .groups = 8,
                                  .world = 8,
                                  .rank_count = 1,
                                  .writer = g->w.ctx.writer,
                                  .raw_bytes = g->s.plan.raw_bytes,
                                  .stored_bytes = g->s.plan.stored_bytes,
                                  .pack_count = (uint32_t)g->s.plan.pack_count};
    set_layout(g);
    encode_content(g);
    g->placed.p.content = g->sum.content;
    encode_placement(g);
}

/* Puts all objects where they belong. */
static void group_put(struct group *g) {
    struct bw_error err = BW_ERROR_INIT;
    const char *run = g->w.ctx.run;
    bwi_buf_reset(&g->summary);
    assert_ok(bwi_summary_encode(&g->sum, &g->summary, &err), &err);
    g->key[SUMMARY] = bwi_key_summary(run, &ID, GROUP);
    g->key[LAYOUT] = bwi_key_layout(run, ID.attempt, ID.nonce, &g->sum.layout);
    g->key[CONTENT] = bwi_key_content(run, g->sum.fan_out, &ID, GROUP);
    g->key[PLACEMENT] = bwi_key_placement(run, g->sum.fan_out, &ID, GROUP, g->sum.writer);
    const struct bwi_buf *bytes[] = {&g->summary, &g->layout, &g->content, &g->placement};
    for (int i = 0; i < 4; i++) world_put(&g->w, BWI_TIER_LOCAL, g->key[i].s, bwi_buf_span(bytes[i]));
}

static void group_close(struct group *g) {
    placed_free(&g->placed);
    bwi_buf_fini(&g->layout);
    bwi_buf_fini(&g->content);
    bwi_buf_fini(&g->placement);
    bwi_buf_fini(&g->summary);
    state_free(&g->s);
    world_close(&g->w);
}

struct reading {
    struct bwi_meta_read r;
    struct bwi_group_meta meta;
};

static void reading_init(struct reading *x, struct group *g) {
    memset(x, 0, sizeof *x);
    x->r = (struct bwi_meta_read){.ctx = &g->w.ctx, .tier = BWI_TIER_LOCAL, .id = ID, .group = GROUP, .meta = &x->meta};
}

static void reading_run(struct reading *x, struct group *g) {
    bwi_meta_read_start(&x->r, g->w.loop, NULL);
    world_run(&g->w);
    assert_int_equal(x->r.task.pending, 0);
    assert_int_equal(x->meta.meta_ok, x->r.task.error.status == 0 && !x->r.summary_only);
}

/* Reads, expects an error with the tier's name, the key of an object and a text. */
static void expect(struct group *g, int status, int object, const char *text) {
    struct reading x;
    reading_init(&x, g);
    reading_run(&x, g);
    assert_fails(x.r.task.error.status, status, &x.r.task.error, "local tier: ");
    assert_non_null(strstr(x.r.task.error.message, g->key[object].s));
    if (strstr(x.r.task.error.message, text) == NULL) fail_msg("no \"%s\" in: %s", text, x.r.task.error.message);
    assert_int_equal(x.meta.summary_ok, object != SUMMARY);
    assert_null(x.meta.layout_bytes.ptr);
    assert_null(x.meta.layout.tensors);
    bwi_group_meta_fini(&x.meta);
}

/* ---- what is sound ---- */

static void check_meta(const struct group *g, const struct bwi_group_meta *m) {
    const struct bwi_plan *p = &g->s.plan;
    assert_true(m->summary_ok && m->meta_ok);
    assert_true(bwi_sha_eq(&m->summary.placement, &g->sum.placement));
    assert_int_equal(m->layout_bytes.len, p->layout_bytes.len);
    assert_int_equal(m->layout.tensor_count, p->layout.tensor_count);
    assert_int_equal(m->content.extent_count, p->content.extent_count);
    assert_memory_equal(m->content.raw_bytes, p->content.raw_bytes, p->content.item_count * sizeof(uint64_t));
    assert_int_equal(m->placement.pack_count, p->pack_count);
    assert_int_equal(m->placement.places[3].offset, p->places[3].offset);
}

static void all_four_objects_are_read_whatever_the_order(void **state) {
    (void)state;
    const long live = bwi_alloc_live();
    for (uint64_t seed = 0; seed < 20; seed++) {
        struct group g;
        struct reading x;
        group_open(&g, seed == 0 ? 0 : test_seed(seed));
        g.sum.fan_out = seed % 2 == 1;
        group_put(&g);
        reading_init(&x, &g);
        x.r.want_layout = &g.sum.layout;
        x.r.want_content = &g.sum.content;
        x.r.want_uuid = &g.sum.uuid;
        for (int round = 0; round < 2; round++) { /* a second reading frees what the first one has left */
            reading_run(&x, &g);
            assert_ok(x.r.task.error.status, &x.r.task.error);
            assert_int_equal(x.r.objects, 4);
            check_meta(&g, &x.meta);
        }
        assert_int_equal(g.w.ctx.tier[BWI_TIER_LOCAL]->ops[BWI_STORE_GET], 8);
        bwi_group_meta_fini(&x.meta);
        bwi_group_meta_fini(&x.meta);
        group_close(&g);
    }
    bwi_group_meta_fini(NULL);
    assert_int_equal(bwi_alloc_live(), live);
}

static void the_summary_alone_takes_one_operation(void **state) {
    (void)state;
    struct group g;
    struct reading x;
    group_open(&g, 1);
    group_put(&g);
    reading_init(&x, &g);
    x.r.summary_only = true;
    reading_run(&x, &g);
    assert_ok(x.r.task.error.status, &x.r.task.error);
    assert_true(x.meta.summary_ok);
    assert_false(x.meta.meta_ok);
    assert_int_equal(x.meta.summary.group, GROUP);
    assert_int_equal(x.r.objects, 1);
    assert_int_equal(g.w.ctx.tier[BWI_TIER_LOCAL]->ops[BWI_STORE_GET], 1);
    bwi_group_meta_fini(&x.meta);
    group_close(&g);
}

static void objects_are_fetched_side_by_side(void **state) {
    (void)state;
    struct group g;
    struct reading x;
    group_open(&g, 0);
    group_put(&g);
    bwi_bucket_model(g.w.bucket[0])->latency_ns = 1000;
    const uint64_t start = g.w.env.now;
    reading_init(&x, &g);
    reading_run(&x, &g);
    assert_ok(x.r.task.error.status, &x.r.task.error);
    assert_int_equal(g.w.env.now - start, 2000);
    bwi_group_meta_fini(&x.meta);
    group_close(&g);
}

/* ---- the summary ---- */

static void a_missing_summary_is_not_found(void **state) {
    (void)state;
    struct group g;
    group_open(&g, 1);
    group_put(&g);
    assert_true(bwi_bucket_remove(g.w.bucket[0], g.key[SUMMARY].s));
    expect(&g, BW_E_NOTFOUND, SUMMARY, "no such object");
    group_close(&g);
}

static void a_damaged_summary_is_refused(void **state) {
    (void)state;
    struct group g;
    group_open(&g, 1);
    group_put(&g);
    for (size_t at = 0; at < g.summary.len; at += 7) {
        g.summary.ptr[at] ^= 1;
        world_put(&g.w, BWI_TIER_LOCAL, g.key[SUMMARY].s, bwi_buf_span(&g.summary));
        g.summary.ptr[at] ^= 1;
        struct reading x;
        reading_init(&x, &g);
        reading_run(&x, &g);
        assert_fails(x.r.task.error.status, BW_E_CORRUPT, &x.r.task.error, g.key[SUMMARY].s);
        bwi_group_meta_fini(&x.meta);
    }
    world_put(&g.w, BWI_TIER_LOCAL, g.key[SUMMARY].s, bwi_span_str(""));
    struct reading x;
    reading_init(&x, &g);
    reading_run(&x, &g);
    assert_true(x.r.task.error.status < 0);
    group_close(&g);
}

static void a_summary_of_another_checkpoint_is_damage(void **state) {
    (void)state;
    struct group g;
    group_open(&g, 1);
    g.sum.id.step = 8;
    group_put(&g);
    expect(&g, BW_E_CORRUPT, SUMMARY,
           "the summary is of checkpoint 00000000000000000008.1-1234abcd.0, expected 00000000000000000007.");
    group_close(&g);
}

static void a_summary_of_another_group_is_damage(void **state) {
    (void)state;
    struct group g;
    group_open(&g, 1);
    g.sum.group = 4;
    group_put(&g);
    expect(&g, BW_E_CORRUPT, SUMMARY, "the summary is of group 4, expected 5");
    group_close(&g);
}

static void a_summary_of_another_life_is_foreign(void **state) {
    (void)state;
    struct group g;
    struct reading x;
    const struct bwi_uuid mine = {{9}};
    group_open(&g, 1);
    group_put(&g);
    reading_init(&x, &g);
    x.r.want_uuid = &mine;
    reading_run(&x, &g);
    assert_fails(x.r.task.error.status, BW_E_FOREIGN, &x.r.task.error,
                 "the summary belongs to uuid 01020300000000000000000000000000, expected 0900");
    assert_false(x.meta.summary_ok);
    bwi_group_meta_fini(&x.meta);
    group_close(&g);
}

static void a_summary_that_contradicts_the_manifest_is_damage(void **state) {
    (void)state;
    struct group g;
    const struct bwi_sha other = {{7}};
    group_open(&g, 1);
    group_put(&g);
    for (int i = 0; i < 2; i++) {
        struct reading x;
        reading_init(&x, &g);
        if (i == 0) x.r.want_layout = &other;
        if (i == 1) x.r.want_content = &other;
        reading_run(&x, &g);
        assert_fails(x.r.task.error.status, BW_E_CORRUPT, &x.r.task.error,
                     i == 0 ? "the summary names layout " : "the summary names content ");
        assert_non_null(strstr(x.r.task.error.message, "the manifest 0700000000000000"));
        bwi_group_meta_fini(&x.meta);
    }
    group_close(&g);
}

/* ---- what it names ---- */

static const struct bwi_buf *object_of(const struct group *g, int object) {
    return object == LAYOUT ? &g->layout : object == CONTENT ? &g->content : &g->placement;
}

static void an_object_that_is_gone_is_damage_that_names_it(void **state) {
    (void)state;
    for (int i = LAYOUT; i <= PLACEMENT; i++) {
        struct group g;
        group_open(&g, 2);
        group_put(&g);
        assert_true(bwi_bucket_remove(g.w.bucket[0], g.key[i].s));
        expect(&g, BW_E_CORRUPT, i, "the summary names it, and it is missing");
        group_close(&g);
    }
}

static void an_object_of_another_size_is_damage(void **state) {
    (void)state;
    for (int i = LAYOUT; i <= PLACEMENT; i++) {
        struct group g;
        group_open(&g, 2);
        group_put(&g);
        const struct bwi_buf *b = object_of(&g, i);
        world_put(&g.w, BWI_TIER_LOCAL, g.key[i].s, bwi_span(b->ptr, b->len - 1));
        expect(&g, BW_E_CORRUPT, i, "bytes, the summary names ");
        struct bwi_buf longer = {0};
        bwi_buf_put(&longer, b->ptr, b->len);
        bwi_buf_u8(&longer, 0);
        world_put(&g.w, BWI_TIER_LOCAL, g.key[i].s, bwi_buf_span(&longer));
        expect(&g, BW_E_CORRUPT, i, "more than the ");
        bwi_buf_fini(&longer);
        group_close(&g);
    }
}

static void a_flipped_bit_in_an_object_is_damage(void **state) {
    (void)state;
    struct group g;
    group_open(&g, 2);
    group_put(&g);
    for (int i = LAYOUT; i <= PLACEMENT; i++) {
        const struct bwi_buf *b = object_of(&g, i);
        for (size_t at = 0; at < b->len; at += b->len / 20 + 1) {
            b->ptr[at] ^= 0x80;
            world_put(&g.w, BWI_TIER_LOCAL, g.key[i].s, bwi_buf_span(b));
            expect(&g, BW_E_CORRUPT, i, "does not match the SHA-256 in the summary");
            b->ptr[at] ^= 0x80;
        }
        world_put(&g.w, BWI_TIER_LOCAL, g.key[i].s, bwi_buf_span(b));
    }
    group_close(&g);
}

static void a_layout_of_other_ranks_is_damage(void **state) {
    (void)state;
    struct group g;
    group_open(&g, 1);
    g.sum.ranks[0] = 1;
    group_put(&g);
    expect(&g, BW_E_CORRUPT, LAYOUT, "its ranks are not those of the summary");
    group_close(&g);
}

static void a_layout_that_is_none_is_refused(void **state) {
    (void)state;
    struct group g;
    group_open(&g, 1);
    memcpy(g.layout.ptr, "NOLAYOUT", 8);
    g.sum.layout = bwi_sha_of(bwi_buf_span(&g.layout));
    group_put(&g);
    expect(&g, BW_E_FORMAT, LAYOUT, "layout");
    group_close(&g);
}

static void a_content_of_another_layout_is_damage(void **state) {
    (void)state;
    struct group g;
    group_open(&g, 1);
    g.s.plan.content.layout.b[0] ^= 1;
    encode_content(&g);
    group_put(&g);
    expect(&g, BW_E_CORRUPT, CONTENT, "it belongs to another layout");
    group_close(&g);
}

static void a_content_that_does_not_fit_its_layout_is_refused(void **state) {
    (void)state;
    struct group g;
    group_open(&g, 1);
    g.s.plan.content.raw_bytes[1]++;
    encode_content(&g);
    group_put(&g);
    expect(&g, BW_E_FORMAT, CONTENT, "");
    group_close(&g);
}

static void a_placement_of_another_content_is_damage(void **state) {
    (void)state;
    struct group g;
    group_open(&g, 1);
    g.placed.p.content.b[0] ^= 1;
    encode_placement(&g);
    group_put(&g);
    expect(&g, BW_E_CORRUPT, PLACEMENT, "it belongs to another content");
    group_close(&g);
}

static void a_placement_of_another_writer_is_damage(void **state) {
    (void)state;
    struct group g;
    group_open(&g, 1);
    g.placed.p.writer++;
    encode_placement(&g);
    group_put(&g);
    expect(&g, BW_E_CORRUPT, PLACEMENT, "its writer is not that of the summary");
    group_close(&g);
}

static void a_pack_of_another_checkpoint_is_refused_unless_the_summary_refers_to_it(void **state) {
    (void)state;
    for (int named = 0; named < 2; named++) {
        struct group g;
        const struct bwi_id other = {3, 1, 0x1234abcd, 0};
        group_open(&g, 1);
        g.placed.keys[1] = bwi_key_pack("run", false, &other, GROUP, 1, g.w.ctx.writer);
        g.placed.p.packs[1].key = bwi_span_str(g.placed.keys[1].s);
        encode_placement(&g);
        g.sum.ref_count = (uint32_t)named;
        g.sum.refs[0] = named != 0 ? other : (struct bwi_id){0};
        group_put(&g);
        if (named == 0) {
            expect(&g, BW_E_FORMAT, PLACEMENT, "");
        } else {
            struct reading x;
            reading_init(&x, &g);
            reading_run(&x, &g);
            assert_ok(x.r.task.error.status, &x.r.task.error);
            bwi_group_meta_fini(&x.meta);
        }
        group_close(&g);
    }
}

/* ---- failures that are no damage ---- */

static void an_io_error_is_not_damage(void **state) {
    (void)state;
    for (int i = SUMMARY; i <= PLACEMENT; i++) {
        struct group g;
        group_open(&g, 2);
        group_put(&g);
        bwi_bucket_fail_next(g.w.bucket[0], BWI_STORE_GET, g.key[i].s, BW_E_IO, false);
        expect(&g, BW_E_IO, i, "injected failure");
        group_close(&g);
    }
}

static void cancelling_at_any_moment_ends_cleanly(void **state) {
    (void)state;
    const long live = bwi_alloc_live();
    unsigned cancelled = 0;
    for (uint64_t turns = 0;; turns++) {
        struct group g;
        struct reading x;
        group_open(&g, test_seed(4));
        group_put(&g);
        reading_init(&x, &g);
        bwi_meta_read_start(&x.r, g.w.loop, NULL);
        for (uint64_t i = 0; i < turns && x.r.task.running; i++) world_turn(&g.w);
        const bool running = x.r.task.running;
        bwi_task_cancel(&x.r.task);
        world_run(&g.w);
        assert_true(x.r.task.error.status == 0 || x.r.task.error.status == BW_E_CANCELLED);
        cancelled += x.r.task.error.status != 0;
        bwi_group_meta_fini(&x.meta);
        group_close(&g);
        if (!running) break;
    }
    assert_true(cancelled > 1);
    assert_int_equal(bwi_alloc_live(), live);
}

static void running_out_of_memory_anywhere_is_an_error_and_leaks_nothing(void **state) {
    (void)state;
    const long live = bwi_alloc_live();
    for (unsigned long n = 1;; n++) {
        struct group g;
        struct reading x;
        group_open(&g, test_seed(5));
        group_put(&g);
        reading_init(&x, &g);
        (void)bwi_alloc_fail_at(n);
        reading_run(&x, &g);
        const bool fired = bwi_alloc_fail_at(0) >= n;
        assert_int_equal(x.r.task.error.status, fired ? BW_E_NOMEM : 0);
        bwi_group_meta_fini(&x.meta);
        group_close(&g);
        if (!fired) break;
    }
    assert_int_equal(bwi_alloc_live(), live);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_four_objects_are_read_whatever_the_order),
        cmocka_unit_test(the_summary_alone_takes_one_operation),
        cmocka_unit_test(objects_are_fetched_side_by_side),
        cmocka_unit_test(a_missing_summary_is_not_found),
        cmocka_unit_test(a_damaged_summary_is_refused),
        cmocka_unit_test(a_summary_of_another_checkpoint_is_damage),
        cmocka_unit_test(a_summary_of_another_group_is_damage),
        cmocka_unit_test(a_summary_of_another_life_is_foreign),
        cmocka_unit_test(a_summary_that_contradicts_the_manifest_is_damage),
        cmocka_unit_test(an_object_that_is_gone_is_damage_that_names_it),
        cmocka_unit_test(an_object_of_another_size_is_damage),
        cmocka_unit_test(a_flipped_bit_in_an_object_is_damage),
        cmocka_unit_test(a_layout_of_other_ranks_is_damage),
        cmocka_unit_test(a_layout_that_is_none_is_refused),
        cmocka_unit_test(a_content_of_another_layout_is_damage),
        cmocka_unit_test(a_content_that_does_not_fit_its_layout_is_refused),
        cmocka_unit_test(a_placement_of_another_content_is_damage),
        cmocka_unit_test(a_placement_of_another_writer_is_damage),
        cmocka_unit_test(a_pack_of_another_checkpoint_is_refused_unless_the_summary_refers_to_it),
        cmocka_unit_test(an_io_error_is_not_damage),
        cmocka_unit_test(cancelling_at_any_moment_ends_cleanly),
        cmocka_unit_test(running_out_of_memory_anywhere_is_an_error_and_leaks_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
