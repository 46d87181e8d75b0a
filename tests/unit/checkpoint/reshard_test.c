/* SPDX-License-Identifier: Apache-2.0 */
/* Saved by one number of ranks, read by another: every value of every tensor, whatever the splits. */
#include "reader.h"

static void tensors(struct fixture *f) {
    fixture_tensor(f, "w", BW_F32, 2, (uint64_t[]){37, 53});
    fixture_tensor(f, "wide", BW_BF16, 2, (uint64_t[]){3, 4001});
    fixture_tensor(f, "long", BW_U8, 1, (uint64_t[]){20011});
    fixture_tensor(f, "cube", BW_F64, 3, (uint64_t[]){7, 5, 11});
    fixture_tensor(f, "scalar", BW_F64, 0, NULL);
    fixture_tensor(f, "few", BW_I16, 1, (uint64_t[]){2}); /* fewer than ranks: most shards are empty */
    fixture_tensor(f, "empty", BW_F32, 2, (uint64_t[]){0, 5});
    fixture_tensor(f, "complex", BW_C128, 2, (uint64_t[]){13, 9});
    fixture_tensor(f, "scale", BW_F8_E8M0, 1, (uint64_t[]){333});
    fixture_tie(f, "w.tied", 0);
}

/* What one rank of a world reads, in one call. */
static void read_as(struct reader *x, enum fixture_split split, uint32_t world, uint32_t rank, bool transpose) {
    struct piece pieces[FIXTURE_TENSORS];
    struct bw_slice slices[FIXTURE_TENSORS];
    const size_t n = x->f->tensor_count;
    for (size_t i = 0; i < n; i++) {
        const struct fixture_tensor *t = &x->f->tensors[i];
        uint64_t offset[4];
        uint64_t extent[4];
        fixture_box(split, t->dims, t->shape, world, rank, offset, extent);
        piece_make(&pieces[i], x->f, i, offset, extent);
        if (transpose) piece_transpose(&pieces[i]);
        slices[i] = pieces[i].slice;
    }
    assert_ok(reader_read(x, slices, n), &x->error);
    for (size_t i = 0; i < n; i++) {
        assert_int_equal(piece_wrong(&pieces[i]), 0);
        bwi_free(pieces[i].memory);
    }
}

static void reshard(uint32_t saved_by, enum fixture_split saved, bool local) {
    static const uint32_t worlds[] = {1, 2, 5, 16};
    struct world w;
    struct fixture f;
    world_open(&w, 0, 256 * KIB);
    fixture_init(&f, &w, saved_by, saved);
    f.tiers[BWI_TIER_LOCAL] = local;
    tensors(&f);
    fixture_save(&f);
    const struct bwi_restore_target t = reader_target(&f, true);
    for (size_t i = 0; i < 4; i++) {
        for (int split = 0; split < 3; split++) {
            struct reader x;
            reader_open(&x, &f, &t);
            for (uint32_t rank = 0; rank < worlds[i]; rank++) {
                read_as(&x, (enum fixture_split)split, worlds[i], rank, (rank + i) % 2 == 1);
            }
            const struct bw_restore_stats *s = bwi_restore_get_stats(x.r);
            assert_true(s->verified_bytes > 0);
            assert_true(local ? s->remote_bytes == 0 && s->local_bytes > 0 : s->local_bytes == 0);
            reader_close(&x);
        }
    }
    world_close(&w);
}

static void one_rank_saved_them(void **state) {
    (void)state;
    reshard(1, FIXTURE_ROWS, true);
}

static void two_ranks_saved_them(void **state) {
    (void)state;
    for (int split = 0; split < 3; split++) reshard(2, (enum fixture_split)split, split % 2 == 0);
}

static void three_ranks_saved_them(void **state) {
    (void)state;
    for (int split = 0; split < 3; split++) reshard(3, (enum fixture_split)split, split % 2 == 1);
}

static void eight_ranks_saved_them(void **state) {
    (void)state;
    for (int split = 0; split < 3; split++) reshard(8, (enum fixture_split)split, split % 2 == 0);
}

/* More groups than are kept at once, and than are flat. */
static void eighty_groups_are_read_with_the_metadata_of_sixty_four_kept(void **state) {
    (void)state;
    struct world w;
    struct fixture f;
    struct reader x;
    world_open(&w, 3, 256 * KIB);
    fixture_init(&f, &w, 80, FIXTURE_ROWS);
    fixture_tensor(&f, "w", BW_F32, 2, (uint64_t[]){160, 33});
    fixture_save(&f);
    const struct bwi_restore_target t = reader_target(&f, true);
    reader_open(&x, &f, &t);
    assert_ok(reader_all(&x), &x.error);
    assert_ok(reader_all(&x), &x.error);
    reader_close(&x);
    world_close(&w);
}

static void a_rank_that_reads_what_it_saved_asks_for_as_many_objects_whatever_the_world(void **state) {
    (void)state;
    uint64_t gets[2][2];
    for (int i = 0; i < 2; i++) {
        struct world w;
        struct fixture f;
        struct reader x;
        const uint32_t world = i == 0 ? 2 : 16;
        world_open(&w, 0, 256 * KIB);
        fixture_init(&f, &w, world, FIXTURE_ROWS);
        fixture_tensor(&f, "w", BW_F32, 2, (uint64_t[]){16, 100});
        fixture_save(&f);
        const struct bwi_restore_target t = reader_target(&f, true);
        reader_open(&x, &f, &t);
        for (int k = 0; k < BWI_TIERS; k++) gets[i][k] = w.ctx.tier[k]->ops[BWI_STORE_GET];
        const uint64_t reads = w.ctx.tier[BWI_TIER_REMOTE]->ops[BWI_STORE_READ];
        read_as(&x, FIXTURE_ROWS, world, 1, false);
        for (int k = 0; k < BWI_TIERS; k++) gets[i][k] = w.ctx.tier[k]->ops[BWI_STORE_GET] - gets[i][k];
        assert_int_equal(w.ctx.tier[BWI_TIER_REMOTE]->ops[BWI_STORE_READ] - reads,
                         2);                           /* the index: head and one block */
        assert_int_equal(gets[i][BWI_TIER_LOCAL], 4);  /* summary, layout, content, placement */
        assert_int_equal(gets[i][BWI_TIER_REMOTE], 1); /* the manifest */
        reader_close(&x);
        world_close(&w);
    }
}

static void random_boxes_of_random_shapes_from_directories_with_workers(void **state) {
    (void)state;
    uint64_t rng = test_seed(77);
    struct world w;
    struct fixture f;
    struct reader x;
    const long live = bwi_alloc_live();
    world_open_dirs(&w, NULL, 1 * MIB);
    fixture_init(&f, &w, 6, FIXTURE_GRID);
    tensors(&f);
    fixture_save(&f);
    const struct bwi_restore_target t = reader_target(&f, true);
    reader_open(&x, &f, &t);
    for (int round = 0; round < 20; round++) {
        struct piece pieces[FIXTURE_TENSORS];
        struct bw_slice slices[FIXTURE_TENSORS];
        for (size_t i = 0; i < f.tensor_count; i++) {
            uint64_t offset[4];
            uint64_t extent[4];
            for (uint32_t d = 0; d < f.tensors[i].dims; d++) {
                offset[d] = test_random(&rng) % (f.tensors[i].shape[d] + 1);
                extent[d] = test_random(&rng) % (f.tensors[i].shape[d] - offset[d] + 1);
            }
            piece_make(&pieces[i], &f, i, offset, extent);
            if (test_random(&rng) % 2 == 0) piece_transpose(&pieces[i]);
            slices[i] = pieces[i].slice;
        }
        assert_ok(reader_read(&x, slices, f.tensor_count), &x.error);
        for (size_t i = 0; i < f.tensor_count; i++) {
            assert_int_equal(piece_wrong(&pieces[i]), 0);
            bwi_free(pieces[i].memory);
        }
    }
    reader_close(&x);
    world_close(&w);
    assert_int_equal(bwi_alloc_live(), live); /* handles of packs, too */
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_rank_saved_them),
        cmocka_unit_test(two_ranks_saved_them),
        cmocka_unit_test(three_ranks_saved_them),
        cmocka_unit_test(eight_ranks_saved_them),
        cmocka_unit_test(eighty_groups_are_read_with_the_metadata_of_sixty_four_kept),
        cmocka_unit_test(a_rank_that_reads_what_it_saved_asks_for_as_many_objects_whatever_the_world),
        cmocka_unit_test(random_boxes_of_random_shapes_from_directories_with_workers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
