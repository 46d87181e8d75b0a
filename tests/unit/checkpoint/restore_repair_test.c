/* SPDX-License-Identifier: Apache-2.0 */
/* Putting a damaged local copy right after a read: what it may write, and when it must not begin. */
#include "base/error.h"
#include "reader.h"

static void save(struct world *w, struct fixture *f, uint64_t salt) {
    world_open(w, 8, 256 * KIB);
    bwi_loop_set_picker(w->loop, NULL, NULL); /* who is woken first runs first */
    fixture_init(f, w, 2, FIXTURE_ROWS);
    f->salt = salt;
    fixture_tensor(f, "a", BW_F32, 2, (uint64_t[]){24, 300});
    fixture_save(f);
}

static struct bwi_key pack_of(const struct fixture *f, uint32_t group) {
    return bwi_key_pack("run", false, &f->id, group, 0, f->w->ctx.writer);
}

/* A reader, and a piece of so many rows to read with it. */
static void open_piece(struct reader *x, struct piece *p, struct fixture *f, uint64_t rows) {
    const struct bwi_restore_target t = reader_target(f, true);
    reader_open(x, f, &t);
    piece_make(p, f, 0, (uint64_t[]){0, 0}, (uint64_t[]){rows, 300});
}

/* Cancelled after some turns. false: the call was faster. */
static bool cancelled_after(uint64_t turns, unsigned *repaired) {
    struct world w;
    struct fixture f;
    struct reader x;
    struct piece p;
    save(&w, &f, 0);
    fixture_damage(&w, BWI_TIER_LOCAL, pack_of(&f, 0).s, FIXTURE_FLIP, 5000);
    fixture_damage(&w, BWI_TIER_LOCAL, bwi_key_content("run", false, &f.id, 1).s, FIXTURE_FLIP, 50);
    fixture_damage(&w, BWI_TIER_LOCAL, pack_of(&f, 1).s, FIXTURE_DELETE, 0);
    open_piece(&x, &p, &f, 24);
    struct bwi_restore_call c = {.what = BWI_RESTORE_READ, .r = x.r, .slices = &p.slice, .slice_count = 1};
    bwi_restore_call_start(&c, w.loop, NULL);
    for (uint64_t i = 0; i < turns && c.task.running; i++) world_turn(&w);
    const bool running = c.task.running;
    const uint64_t *ops = w.ctx.tier[BWI_TIER_LOCAL]->ops;
    const uint64_t begun = ops[BWI_STORE_BEGIN];
    const uint64_t replaced = ops[BWI_STORE_REPLACE];
    bwi_task_cancel(&c.task);
    world_run(&w);
    assert_int_equal(ops[BWI_STORE_BEGIN], begun);
    assert_int_equal(ops[BWI_STORE_REPLACE], replaced);
    if (c.task.error.status == 0) {
        assert_int_equal(piece_wrong(&p), 0);
    } else {
        assert_int_equal(c.task.error.status, BW_E_CANCELLED);
    }
    *repaired = (unsigned)bwi_restore_get_stats(x.r)->repaired_objects;
    assert_int_equal(world_upload_bytes(&w, BWI_TIER_LOCAL), 0);
    bwi_free(p.memory);
    reader_close(&x);
    world_close(&w);
    return running;
}

static void a_cancelled_call_begins_no_repair(void **state) {
    (void)state;
    unsigned repaired = 0;
    uint64_t turns = 0;
    while (cancelled_after(turns, &repaired)) turns++;
    assert_true(turns > 20);
    assert_int_equal(repaired, 3); /* the pack, the other pack, the content */
}

/* Puts all that a bucket holds over what is in another one. */
static void copy_all(struct bwi_bucket *to, const struct bwi_bucket *from) {
    for (size_t i = 0; i < bwi_bucket_objects(from); i++) {
        struct bwi_span data = BWI_SPAN_NONE;
        const char *key = bwi_bucket_key(from, i);
        assert_true(bwi_bucket_get(from, key, &data));
        assert_true(bwi_bucket_put(to, key, data));
    }
}

/* The local object has the bytes that it had; these are freed. */
static void assert_as_before(struct world *w, const struct bwi_key *key, struct bwi_buf *before) {
    struct bwi_buf after = {0};
    assert_true(world_get(w, BWI_TIER_LOCAL, key->s, &after));
    assert_true(bwi_span_eq(bwi_buf_span(before), bwi_buf_span(&after)));
    bwi_buf_fini(before);
    bwi_buf_fini(&after);
}

/* Just before the repair looks at the remote tier, that becomes one with other data under the same id. */
static void other_data(bool content) {
    struct world w, w2;
    struct fixture f, other;
    struct reader x;
    struct piece p;
    struct bwi_buf before = {0};
    save(&w, &f, 0);
    save(&w2, &other, 1);
    const struct bwi_key hit = content ? bwi_key_content("run", false, &f.id, 0) : pack_of(&f, 0);
    fixture_damage(&w, BWI_TIER_LOCAL, hit.s, FIXTURE_FLIP, content ? 50 : 5000);
    assert_true(world_get(&w, BWI_TIER_LOCAL, hit.s, &before));
    open_piece(&x, &p, &f, 12);
    struct bwi_restore_call c = {.what = BWI_RESTORE_READ, .r = x.r, .slices = &p.slice, .slice_count = 1};
    bwi_restore_call_start(&c, w.loop, NULL);
    const uint64_t *heads = &w.ctx.tier[BWI_TIER_LOCAL]->ops[BWI_STORE_HEAD];
    const uint64_t none = *heads;
    while (*heads == none) world_turn(&w);
    copy_all(w.bucket[BWI_TIER_REMOTE], w2.bucket[BWI_TIER_REMOTE]);
    world_run(&w);
    assert_ok(c.task.error.status, &c.task.error);
    assert_int_equal(piece_wrong(&p), 0);
    assert_int_equal(bwi_restore_get_stats(x.r)->repaired_objects, 0);
    assert_as_before(&w, &hit, &before);
    bwi_free(p.memory);
    reader_close(&x);
    world_close(&w);
    world_close(&w2);
}

static void only_what_the_manifest_names_is_put_into_the_local_copy(void **state) {
    (void)state;
    other_data(false);
    other_data(true);
}

/* The local copy of a group lies in a pack of a checkpoint of which the authority knows nothing. */
static void a_damaged_pack_of_a_checkpoint_that_is_not_there_stays_as_it_is(void **state) {
    (void)state;
    struct world w;
    struct fixture f;
    struct reader x;
    struct piece p;
    struct bwi_buf before = {0};
    const struct bwi_id gone = {90, 2, 0xabcd1234, 0};
    save(&w, &f, 0);
    fixture_repack(&f, 0, BWI_TIER_LOCAL, BWI_CODEC_RAW, &gone);
    const struct bwi_key pack = bwi_key_pack("run", false, &gone, 0, 0, w.ctx.writer + 1);
    fixture_damage(&w, BWI_TIER_LOCAL, pack.s, FIXTURE_FLIP, UINT64_MAX);
    assert_true(world_get(&w, BWI_TIER_LOCAL, pack.s, &before));
    open_piece(&x, &p, &f, 24);
    assert_ok(reader_read(&x, &p.slice, 1), &x.error);
    assert_int_equal(piece_wrong(&p), 0);
    assert_true(bwi_restore_get_stats(x.r)->damaged_extents > 0);
    assert_int_equal(bwi_restore_get_stats(x.r)->repaired_objects, 0);
    assert_as_before(&w, &pack, &before);
    bwi_free(p.memory);
    reader_close(&x);
    world_close(&w);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_cancelled_call_begins_no_repair),
        cmocka_unit_test(only_what_the_manifest_names_is_put_into_the_local_copy),
        cmocka_unit_test(a_damaged_pack_of_a_checkpoint_that_is_not_there_stays_as_it_is),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
