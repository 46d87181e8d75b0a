/* SPDX-License-Identifier: Apache-2.0 */
/* Who writes replicated tensors: all ranks of a set compute complementary answers, whatever the order of their calls,
 * balanced by bytes. */
#include "base/vec.h"
#include "boxes.h"

#define SETS    3
#define TENSORS 40
#define RANKS   9

static uint8_t memory[1];

struct spec {
    char name[16];
    uint64_t bytes, group;
    uint32_t replicas;
};

static void add(struct bwi_description *d, const struct spec *s, uint32_t index) {
    struct bw_error err = BW_ERROR_INIT;
    const int64_t expanded[] = {0};
    struct bw_tensor t = BW_TENSOR_INIT;
    t.name = s->name;
    t.dtype = BW_U8;
    t.dims = 1;
    t.shape = &s->bytes;
    t.stride_bytes = expanded;
    t.data = memory;
    t.replica_count = s->replicas;
    t.replica_index = index;
    t.replica_group = s->group;
    assert_ok(bwi_description_tensor(d, &t, &err), &err);
}

/* As replica `index` of each set describes them, in an order of its own. */
static void own(struct bwi_description *d, const struct spec *specs, size_t n, uint32_t index, uint64_t *rng) {
    struct bw_error err = BW_ERROR_INIT;
    size_t order[TENSORS];
    for (size_t i = 0; i < n; i++) order[i] = i;
    for (size_t i = n; i > 1; i--) {
        const size_t with = below(rng, i);
        const size_t t = order[i - 1];
        order[i - 1] = order[with];
        order[with] = t;
    }
    bwi_description_init(d);
    for (size_t i = 0; i < n; i++) {
        const struct spec *s = &specs[order[i]];
        if (index < s->replicas || s->replicas == 0) add(d, s, s->replicas == 0 ? 0 : index);
    }
    assert_ok(bwi_description_own(d, &err), &err);
}

static bool is_mine(const struct bwi_description *d, const char *name) {
    uint64_t i = 0;
    assert_true(bwi_map_get(&d->names, bwi_span_str(name), &i));
    return d->tensors[i].mine;
}

/* Exactly one owner of each tensor; in each set no replica has more than the least one plus the largest tensor. */
static void check_set(const struct bwi_description *ranks, const struct spec *specs, size_t n, uint32_t replicas,
                      uint64_t group) {
    uint64_t load[RANKS] = {0};
    uint64_t largest = 0;
    for (size_t i = 0; i < n; i++) {
        if (specs[i].replicas != replicas || specs[i].group != group) continue;
        unsigned owners = 0;
        for (uint32_t r = 0; r < replicas; r++) {
            if (!is_mine(&ranks[r], specs[i].name)) continue;
            owners++;
            load[r] += specs[i].bytes;
        }
        assert_int_equal(owners, 1);
        if (specs[i].bytes > largest) largest = specs[i].bytes;
    }
    uint64_t least = UINT64_MAX;
    uint64_t most = 0;
    for (uint32_t r = 0; r < replicas; r++) {
        if (load[r] < least) least = load[r];
        if (load[r] > most) most = load[r];
    }
    assert_true(most <= least + largest);
}

static void each_replicated_tensor_has_one_owner_in_any_topology(void **state) {
    (void)state;
    uint64_t rng = test_seed(71);
    for (int round = 0; round < 200; round++) {
        struct spec specs[TENSORS];
        const size_t n = 1 + below(&rng, TENSORS);
        uint32_t replicas[SETS];
        for (size_t i = 0; i < SETS; i++) replicas[i] = (uint32_t)(2 + below(&rng, RANKS - 1));
        for (size_t i = 0; i < n; i++) {
            const size_t set = below(&rng, SETS);
            snprintf(specs[i].name, sizeof specs[i].name, "t%zu", i);
            specs[i].bytes = below(&rng, 3) == 0 ? 64 : below(&rng, 1000); /* equal sizes, and 0 */
            specs[i].replicas = replicas[set];
            specs[i].group = set;
        }
        struct bwi_description ranks[RANKS + 1];
        for (uint32_t r = 0; r < RANKS + 1; r++) own(&ranks[r], specs, n, r, &rng);
        for (size_t set = 0; set < SETS; set++) check_set(ranks, specs, n, replicas[set], set);
        for (uint32_t r = 0; r < RANKS + 1; r++) bwi_description_fini(&ranks[r]);
    }
}

static void the_largest_goes_first_and_then_to_the_lightest(void **state) {
    (void)state;
    const struct spec specs[] = {{"a", 10, 0, 2}, {"b", 70, 0, 2}, {"c", 40, 0, 2}, {"d", 40, 0, 2}};
    struct bwi_description d[2];
    uint64_t rng = 5;
    for (uint32_t r = 0; r < 2; r++) own(&d[r], specs, 4, r, &rng);
    /* b to 0; c (70 against 0) to 1; d (70 against 40) to 1; a (70 against 80) to 0. */
    assert_true(is_mine(&d[0], "b"));
    assert_true(is_mine(&d[1], "c"));
    assert_true(is_mine(&d[1], "d"));
    assert_true(is_mine(&d[0], "a"));
    assert_false(is_mine(&d[1], "b"));
    assert_false(is_mine(&d[0], "c"));
    for (uint32_t r = 0; r < 2; r++) bwi_description_fini(&d[r]);
}

static void equals_are_taken_by_name_and_the_lowest_replica_first(void **state) {
    (void)state;
    const struct spec specs[] = {{"z", 8, 0, 3}, {"x", 8, 0, 3}, {"y", 8, 0, 3}};
    struct bwi_description d[3];
    uint64_t rng = 6;
    const char *want[] = {"x", "y", "z"};
    for (uint32_t r = 0; r < 3; r++) own(&d[r], specs, 3, r, &rng);
    for (uint32_t r = 0; r < 3; r++) {
        for (uint32_t i = 0; i < 3; i++) assert_int_equal(is_mine(&d[r], want[i]), r == i);
    }
    for (uint32_t r = 0; r < 3; r++) bwi_description_fini(&d[r]);
}

static void groups_are_balanced_apart(void **state) {
    (void)state;
    /* If all were one set, "b" would go to replica 1. */
    const struct spec specs[] = {{"a", 8, 1, 2}, {"b", 8, 2, 2}, {"c", 8, 1, 4}};
    struct bwi_description d;
    uint64_t rng = 7;
    own(&d, specs, 3, 0, &rng);
    for (size_t i = 0; i < 3; i++) assert_true(is_mine(&d, specs[i].name));
    bwi_description_fini(&d);
}

static void what_is_not_replicated_is_mine(void **state) {
    (void)state;
    const struct spec specs[] = {{"a", 8, 0, 0}, {"b", 8, 5, 1}, {"c", 0, 0, 0}};
    struct bwi_description d;
    uint64_t rng = 8;
    own(&d, specs, 3, 0, &rng);
    for (size_t i = 0; i < 3; i++) assert_true(is_mine(&d, specs[i].name));
    bwi_description_fini(&d);
    struct bw_error err = BW_ERROR_INIT;
    bwi_description_init(&d);
    assert_ok(bwi_description_own(&d, &err), &err); /* nothing at all */
    bwi_description_fini(&d);
}

static void more_replicas_than_tensors_take_no_memory_and_no_time(void **state) {
    (void)state;
    const struct spec specs[] = {{"a", 8, 0, UINT32_C(1) << 24}, {"b", 4, 0, UINT32_C(1) << 24}};
    struct bwi_description d;
    uint64_t rng = 9;
    own(&d, specs, 2, 1, &rng);
    assert_false(is_mine(&d, "a"));
    assert_true(is_mine(&d, "b"));
    bwi_description_fini(&d);
}

static void two_places_in_one_set_contradict_each_other(void **state) {
    (void)state;
    struct bw_error err = BW_ERROR_INIT;
    struct bwi_description d;
    bwi_description_init(&d);
    add(&d, &(struct spec){"a", 9, 7, 4}, 1);
    add(&d, &(struct spec){"b", 8, 7, 4}, 2);
    assert_fails(bwi_description_own(&d, &err), BW_E_INVALID, &err,
                 "tensor \"b\": replica_index is 2, but 1 for tensor \"a\" of the same replica_count 4 and "
                 "replica_group 7");
    assert_false(d.tensors[0].mine);
    bwi_description_fini(&d);
    assert_int_equal(bwi_alloc_live(), 0);
}

static void out_of_memory_is_reported_and_sets_nothing(void **state) {
    (void)state;
    const struct spec specs[] = {{"a", 8, 0, 2}, {"b", 8, 0, 0}};
    struct bwi_description d;
    bwi_description_init(&d);
    add(&d, &specs[0], 0);
    add(&d, &specs[1], 0);
    for (unsigned long n = 1;; n++) {
        struct bw_error err = BW_ERROR_INIT;
        (void)bwi_alloc_fail_at(n);
        const int rc = bwi_description_own(&d, &err);
        (void)bwi_alloc_fail_at(0);
        if (rc == 0) {
            assert_int_equal(n, 3);
            break;
        }
        assert_fails(rc, BW_E_NOMEM, &err, NULL);
        assert_false(d.tensors[0].mine || d.tensors[1].mine);
    }
    bwi_description_fini(&d);
    assert_int_equal(bwi_alloc_live(), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_replicated_tensor_has_one_owner_in_any_topology),
        cmocka_unit_test(the_largest_goes_first_and_then_to_the_lightest),
        cmocka_unit_test(equals_are_taken_by_name_and_the_lowest_replica_first),
        cmocka_unit_test(groups_are_balanced_apart),
        cmocka_unit_test(what_is_not_replicated_is_mine),
        cmocka_unit_test(more_replicas_than_tensors_take_no_memory_and_no_time),
        cmocka_unit_test(two_places_in_one_set_contradict_each_other),
        cmocka_unit_test(out_of_memory_is_reported_and_sets_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
