/* SPDX-License-Identifier: Apache-2.0 */
/* A plan that is used again is the one that would be made anew: random histories of descriptions, changed or not,
 * planned or dropped, each plan held against one that is made from nothing. */
#include "base/vec.h"
#include "boxes.h"

#define TENSORS_MOST 16
#define BLOBS_MOST   4
#define MEMORY       (64u << 10)

static uint8_t memory[MEMORY];

struct said_tensor {
    char name[8];
    uint32_t dtype, replicas;
    uint64_t rows, columns; /* each may be 0 */
    int64_t gap;            /* bytes between rows; -1: no strides are given */
    size_t at;
};
struct said_blob {
    char name[8];
    size_t bytes;
};
/* What is described. Where blobs lie, and the metadata, are others each time. */
struct said {
    struct said_tensor tensors[TENSORS_MOST];
    struct said_blob blobs[BLOBS_MOST];
    size_t tensor_count, blob_count;
    size_t blob_at[BLOBS_MOST];
    char metadata[24];
};

static struct said_tensor random_tensor(uint64_t *rng, size_t i) {
    struct said_tensor t = {.dtype = below(rng, 2) ? BW_F32 : BW_U8, .replicas = below(rng, 3) == 0 ? 2 : 1};
    snprintf(t.name, sizeof t.name, "%c%zu", (char)('a' + below(rng, 20)), i);
    t.rows = below(rng, 8) == 0 ? 0 : 1 + below(rng, 40);
    t.columns = 1 + below(rng, 40);
    t.gap = (int64_t)below(rng, 3) - 1;
    t.at = below(rng, 8) * 4096; /* some are tied, some overlap */
    return t;
}

static void add_tensor(struct said *s, uint64_t *rng) {
    if (s->tensor_count == TENSORS_MOST) return;
    s->tensors[s->tensor_count] = random_tensor(rng, s->tensor_count);
    s->tensor_count++;
}

static void add_blob(struct said *s, uint64_t *rng) {
    if (s->blob_count == BLOBS_MOST) return;
    struct said_blob *b = &s->blobs[s->blob_count];
    memset(b, 0, sizeof *b);
    snprintf(b->name, sizeof b->name, "%c%zu", (char)('a' + below(rng, 20)), s->blob_count++);
    b->bytes = below(rng, 4) == 0 ? 0 : below(rng, 9000);
}

static void move_blobs(struct said *s, uint64_t *rng) {
    for (size_t i = 0; i < s->blob_count; i++) s->blob_at[i] = below(rng, MEMORY - 9000);
    snprintf(s->metadata, sizeof s->metadata, "{\"k\":%llu}", (unsigned long long)below(rng, 1000000));
    if (below(rng, 4) == 0) s->metadata[0] = '\0';
}

/* Half of the time nothing of what a plan rests on. */
static void change(struct said *s, uint64_t *rng) {
    const size_t t = s->tensor_count > 0 ? below(rng, s->tensor_count) : 0;
    const size_t b = s->blob_count > 0 ? below(rng, s->blob_count) : 0;
    move_blobs(s, rng);
    switch (below(rng, 16)) {
    case 0: s->tensors[t].at += 64; break;
    case 1: s->tensor_count = t; break;
    case 2: add_tensor(s, rng); break;
    case 3: s->blobs[b].bytes++; break;
    case 4: s->blob_count = b; break;
    case 5: add_blob(s, rng); break;
    case 6: s->tensors[t].replicas = 3 - s->tensors[t].replicas; break;
    case 7: s->blobs[b].name[0] = s->blobs[b].name[0] == 'x' ? 'y' : 'x'; break;
    default: break;
    }
}

static void describe(struct bwi_description *d, const struct said *s) {
    struct bw_error err = BW_ERROR_INIT;
    for (size_t i = 0; i < s->tensor_count; i++) {
        const struct said_tensor *from = &s->tensors[i];
        const uint64_t shape[] = {from->rows, from->columns};
        const int64_t element = (int64_t)bw_dtype_bytes((int)from->dtype);
        const int64_t strides[] = {(int64_t)from->columns * element + from->gap, element};
        struct bw_tensor t = BW_TENSOR_INIT;
        t.name = from->name, t.dtype = from->dtype, t.dims = 2, t.shape = shape, t.data = memory + from->at;
        t.stride_bytes = from->gap < 0 ? NULL : strides;
        t.replica_count = from->replicas;
        assert_ok(bwi_description_tensor(d, &t, &err), &err);
    }
    for (size_t i = 0; i < s->blob_count; i++) {
        const struct said_blob *b = &s->blobs[i];
        assert_ok(bwi_description_blob(d, b->name, memory + s->blob_at[i], b->bytes, &err), &err);
    }
    if (s->metadata[0] != '\0') assert_ok(bwi_description_metadata(d, s->metadata, &err), &err);
}

static void make(struct bwi_description *d, struct bwi_plan *ret) {
    struct bw_error err = BW_ERROR_INIT;
    assert_ok(bwi_description_own(d, &err), &err);
    assert_ok(bwi_plan_make(d, 3, 4096, 30000, ret, &err), &err);
}

/* ---- two plans ---- */

#define SAME(member)          assert_int_equal(p->member, q->member)
#define SAME_ARRAY(member, n) assert_memory_equal(p->member, q->member, (n) * sizeof *p->member)
#define SAME_BYTES(member)    assert_true(bwi_span_eq(bwi_buf_span(&p->member), bwi_buf_span(&q->member)))

static void assert_same_layout(const struct bwi_layout *p, const struct bwi_layout *q) {
    SAME(rank_count), SAME(tensor_count), SAME(box_count), SAME(blob_count);
    SAME(ranks[0]);
    for (uint32_t i = 0; i < p->box_count; i++) {
        const uint8_t dims = p->tensors[i].dims;
        assert_true(bwi_span_eq(p->tensors[i].name, q->tensors[i].name));
        SAME(tensors[i].dtype), SAME(tensors[i].dims), SAME(boxes[i].tensor), SAME(boxes[i].rank), SAME(boxes[i].tied);
        SAME_ARRAY(tensors[i].shape, dims), SAME_ARRAY(boxes[i].offset, dims), SAME_ARRAY(boxes[i].extent, dims);
    }
    for (uint32_t i = 0; i < p->blob_count; i++)
        assert_true(bwi_span_eq(p->blobs[i].name, q->blobs[i].name) && p->blobs[i].rank == q->blobs[i].rank);
}

static void assert_same_content(const struct bwi_content *p, const struct bwi_content *q) {
    SAME(extent_bytes), SAME(item_count), SAME(extent_count), SAME(meta_count);
    assert_true(bwi_sha_eq(&p->layout, &q->layout) && bwi_span_eq(p->meta[0], q->meta[0]));
    SAME_ARRAY(raw_bytes, p->item_count), SAME_ARRAY(first_extent, p->item_count + 1);
    SAME_ARRAY(extents, p->extent_count);
}

static void assert_same_items(const struct bwi_plan *p, const struct bwi_plan *q) {
    for (uint32_t i = 0; i < p->content.item_count; i++) {
        const struct bwi_item_source *a = &p->items[i], *b = &q->items[i];
        if (a->tensor != NULL) {
            assert_string_equal(a->tensor->name, b->tensor->name);
            assert_ptr_equal(a->tensor->data, b->tensor->data);
            assert_int_equal(a->tensor->bytes, b->tensor->bytes);
            assert_memory_equal(a->tensor->stride, b->tensor->stride, a->tensor->dims * sizeof *a->tensor->stride);
            assert_true(a->tensor->mine && b->tensor->mine);
        } else {
            assert_string_equal(a->blob->name, b->blob->name);
            assert_ptr_equal(a->blob->data, b->blob->data);
            assert_int_equal(a->blob->bytes, b->blob->bytes);
        }
    }
}

static void assert_same_plan(const struct bwi_plan *p, const struct bwi_plan *q) {
    assert_same_layout(&p->layout, &q->layout);
    SAME_BYTES(layout_bytes);
    assert_true(bwi_sha_eq(&p->layout_sha, &q->layout_sha));
    assert_same_content(&p->content, &q->content);
    assert_same_items(p, q);
    SAME(piece_count), SAME(chunk_count), SAME(pack_count), SAME(raw_bytes), SAME(stored_bytes);
    for (size_t i = 0; i < p->content.extent_count; i++) {
        SAME(places[i].pack), SAME(places[i].codec), SAME(places[i].offset), SAME(places[i].stored_bytes);
        assert_memory_equal(&p->places[i].stored, &q->places[i].stored, sizeof p->places[i].stored);
    }
    for (size_t i = 0; i < p->piece_count; i++)
        SAME(pieces[i].item), SAME(pieces[i].extent), SAME(pieces[i].item_offset), SAME(pieces[i].bytes),
            SAME(pieces[i].pack_offset);
    for (size_t i = 0; i < p->chunk_count; i++)
        SAME(chunks[i].pack_offset), SAME(chunks[i].bytes), SAME(chunks[i].pieces), SAME(chunks[i].first_piece);
    for (size_t i = 0; i < p->pack_count; i++) {
        SAME_BYTES(packs[i].header);
        SAME(packs[i].file_bytes), SAME(packs[i].first_chunk), SAME(packs[i].chunks);
    }
    assert_ptr_equal(p->cow, q->cow);
}

/* What a save leaves in its plan. */
static void capture(struct bwi_plan *p) {
    static uint8_t chunk[4096 + BWI_PACK_ALIGN];
    for (size_t i = 0; i < p->chunk_count; i++) {
        assert_true(p->chunks[i].bytes <= sizeof chunk);
        bwi_plan_fill(p, &p->chunks[i], chunk);
        bwi_plan_hash(p, &p->chunks[i], chunk);
    }
    p->cow = (const struct bwi_cow *)(const void *)chunk; /* the next one must not go there */
}

/* ---- histories ---- */

static bool is_same(const struct said *a, const struct said *b) {
    return a->tensor_count == b->tensor_count && a->blob_count == b->blob_count &&
           memcmp(a->tensors, b->tensors, a->tensor_count * sizeof *a->tensors) == 0 &&
           memcmp(a->blobs, b->blobs, a->blob_count * sizeof *a->blobs) == 0;
}

/* Said and dropped, at any point before it was planned. */
static void drop(struct bwi_description *d, const struct said *s, uint64_t *rng) {
    struct said part = *s;
    struct bw_error err = BW_ERROR_INIT;
    change(&part, rng);
    if (below(rng, 2)) part.tensor_count = below(rng, part.tensor_count + 1), part.blob_count = 0;
    describe(d, &part);
    if (below(rng, 2)) assert_ok(bwi_description_own(d, &err), &err);
    bwi_description_reset(d);
}

static void check_against_a_new_one(const struct said *s, const struct bwi_plan *p) {
    struct bwi_description fresh;
    struct bwi_plan made;
    bwi_description_init(&fresh);
    describe(&fresh, s);
    make(&fresh, &made);
    assert_same_plan(p, &made);
    bwi_plan_fini(&made);
    bwi_description_fini(&fresh);
}

static void every_plan_of_a_random_history_is_the_one_that_is_made_anew(void **state) {
    (void)state;
    uint64_t rng = test_seed(51);
    unsigned renewed = 0, made = 0;
    for (int history = 0; history < 200; history++) {
        struct bwi_description d;
        struct bwi_plan p = {0};
        struct said s = {0}, last = {0};
        bwi_description_init(&d);
        for (uint64_t n = below(&rng, TENSORS_MOST); n > 0; n--) add_tensor(&s, &rng);
        for (uint64_t n = below(&rng, BLOBS_MOST); n > 0; n--) add_blob(&s, &rng);
        for (int save = 0; save < 12; save++) {
            const bool dropped = save > 0 && below(&rng, 6) == 0;
            if (dropped) drop(&d, &s, &rng);
            change(&s, &rng);
            describe(&d, &s);
            const bool fits = bwi_plan_fits(&p, &d);
            const bool may_fit = save > 0 && is_same(&s, &last);
            assert_true(!fits || may_fit);
            assert_true(fits || !may_fit || dropped);
            if (fits) {
                bwi_plan_renew(&p, &d);
                renewed++;
            } else {
                bwi_plan_fini(&p);
                make(&d, &p);
                made++;
            }
            check_against_a_new_one(&s, &p);
            capture(&p);
            last = s;
            bwi_description_reset(&d);
        }
        bwi_plan_fini(&p);
        bwi_description_fini(&d);
        assert_int_equal(bwi_alloc_live(), 0);
    }
    assert_true(renewed > 500 && made > 500);
}

static void an_unchanged_state_is_described_and_planned_without_an_allocation(void **state) {
    (void)state;
    struct bwi_description d;
    struct bwi_plan p;
    uint64_t rng = test_seed(52);
    struct said s = {0};
    bwi_description_init(&d);
    for (int i = 0; i < TENSORS_MOST; i++) add_tensor(&s, &rng);
    for (int i = 0; i < BLOBS_MOST; i++) add_blob(&s, &rng);
    describe(&d, &s);
    make(&d, &p);
    bwi_description_reset(&d);
    (void)bwi_alloc_fail_at(0);
    for (size_t i = 0; i < s.blob_count; i++) s.blob_at[i] += 8;
    describe(&d, &s);
    assert_true(bwi_plan_fits(&p, &d));
    bwi_plan_renew(&p, &d);
    assert_int_equal(bwi_alloc_fail_at(0), 0);
    bwi_plan_fini(&p);
    assert_false(bwi_plan_fits(&p, &d)); /* there is none any more */
    bwi_description_fini(&d);
    assert_int_equal(bwi_alloc_live(), 0);
}

/* Who writes what was looked at for another set of tensors meanwhile: the plan of the first one is of no use. */
static void a_plan_is_not_used_again_once_ownership_was_computed_for_something_else(void **state) {
    (void)state;
    struct bwi_description d;
    struct bwi_plan p;
    struct bw_error err = BW_ERROR_INIT;
    struct said s = {.tensor_count = 2,
                     .tensors = {{.name = "a", .dtype = BW_U8, .replicas = 2, .rows = 2, .columns = 2, .gap = -1},
                                 {.name = "b", .dtype = BW_U8, .replicas = 2, .rows = 1, .columns = 9, .gap = -1}}};
    bwi_description_init(&d);
    describe(&d, &s);
    make(&d, &p);
    assert_true(!d.tensors[0].mine && d.tensors[1].mine);
    bwi_description_reset(&d);
    s.tensor_count = 1;
    describe(&d, &s);
    assert_ok(bwi_description_own(&d, &err), &err);
    assert_true(d.tensors[0].mine);
    bwi_description_reset(&d);
    s.tensor_count = 2;
    describe(&d, &s);
    assert_false(bwi_plan_fits(&p, &d));
    bwi_plan_fini(&p);
    bwi_description_fini(&d);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_plan_of_a_random_history_is_the_one_that_is_made_anew),
        cmocka_unit_test(an_unchanged_state_is_described_and_planned_without_an_allocation),
        cmocka_unit_test(a_plan_is_not_used_again_once_ownership_was_computed_for_something_else),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
