/* SPDX-License-Identifier: Apache-2.0 */
/* The arena: who gets which memory when, against a naive model. */
#include "base/vec.h"
#include "io/arena.h"
#include "os/os.h"
#include "test.h"
#include <stdlib.h>
#include <string.h>

#define MB   (UINT64_C(1) << 20)
#define PAGE ((size_t)BWI_ARENA_ALIGN)

struct ask {
    struct bwi_arena_wait w;
    int granted;
    int order; /* the how manieth grant */
};
static int grants;

static void note(struct bwi_arena_wait *w) {
    struct ask *a = w->user;
    a->granted++;
    a->order = ++grants;
}

static void ask(struct bwi_arena *arena, struct ask *a, size_t bytes) {
    *a = (struct ask){.w = {.bytes = bytes, .granted = note, .user = a}};
    bwi_arena_acquire(arena, &a->w);
}

static struct bwi_arena *open_arena(uint64_t bytes) {
    struct bwi_arena *a = NULL;
    struct bw_error err = BW_ERROR_INIT;
    assert_ok(bwi_arena_open(bytes, 0, &a, &err), &err);
    return a;
}

static void a_buffer_is_granted_at_once_aligned_and_counted(void **state) {
    (void)state;
    struct bwi_arena *a = open_arena(MB + 1);
    struct ask x, y;
    assert_int_equal(bwi_arena_budget(a), MB);
    ask(a, &x, 1);
    ask(a, &y, PAGE + 1);
    assert_int_equal(x.granted, 1);
    assert_int_equal(y.granted, 1);
    assert_int_equal((uintptr_t)y.w.ptr % PAGE, 0);
    assert_ptr_equal(y.w.ptr, x.w.ptr + PAGE);
    assert_int_equal(bwi_arena_used(a), 3 * PAGE);
    memset(y.w.ptr, 0xff, PAGE + 1);
    bwi_arena_release(a, x.w.ptr, 1);
    bwi_arena_release(a, y.w.ptr, PAGE + 1);
    assert_int_equal(bwi_arena_used(a), 0);
    assert_int_equal(bwi_arena_peak(a), 3 * PAGE);
    bwi_arena_close(a);
}

/* ---- lending ---- */

struct loan {
    struct bwi_arena_lender lender;
    struct bwi_arena *arena;
    struct ask kept[4]; /* the last one is given back first */
    size_t left;
};

static bool lend_one(struct bwi_arena_lender *l) {
    struct loan *x = (struct loan *)(void *)l;
    if (x->left == 0) return false;
    struct ask *k = &x->kept[--x->left];
    l->bytes -= PAGE;
    bwi_arena_release(x->arena, k->w.ptr, k->w.bytes);
    return true;
}

static void keep(struct bwi_arena *a, struct loan *x, size_t n) {
    *x = (struct loan){.lender.lend = lend_one, .arena = a};
    for (; x->left < n; x->left++) ask(a, &x->kept[x->left], PAGE);
    x->lender.bytes = n * PAGE;
    bwi_arena_add_lender(a, &x->lender);
}

static void what_is_lent_comes_back_when_it_is_needed_and_no_more_of_it(void **state) {
    (void)state;
    struct bwi_arena *a = open_arena(6 * PAGE);
    struct loan early, late;
    struct ask x, y, z;
    keep(a, &early, 3);
    keep(a, &late, 2);
    ask(a, &x, PAGE); /* there is one */
    assert_int_equal(early.left + late.left, 5);
    ask(a, &y, 2 * PAGE);
    assert_int_equal(y.granted, 1);
    assert_int_equal(late.left, 0);
    assert_int_equal(early.left, 3);
    assert_false(bwi_arena_is_wanted(a));
    ask(a, &z, 4 * PAGE); /* more than there is to lend: it waits for the others */
    assert_int_equal(z.granted, 0);
    assert_int_equal(early.left, 0);
    assert_true(bwi_arena_is_wanted(a));
    bwi_arena_release(a, x.w.ptr, PAGE);
    bwi_arena_release(a, y.w.ptr, 2 * PAGE);
    assert_int_equal(z.granted, 1);
    bwi_arena_release(a, z.w.ptr, 4 * PAGE);
    bwi_arena_remove_lender(a, &early.lender);
    bwi_arena_remove_lender(a, &late.lender);
    bwi_arena_close(a);
}

static void lenders_are_asked_until_there_is_a_piece_as_large_as_wanted(void **state) {
    (void)state;
    struct bwi_arena *a = open_arena(4 * PAGE);
    struct loan x;
    keep(a, &x, 4);
    assert_int_equal(bwi_arena_largest_free(a, 0), 0);
    assert_int_equal(bwi_arena_largest_free(a, 2 * PAGE), 2 * PAGE);
    assert_int_equal(x.left, 2);
    assert_int_equal(bwi_arena_largest_free(a, 2 * PAGE), 2 * PAGE);
    assert_int_equal(x.left, 2);
    assert_int_equal(bwi_arena_largest_free(a, 5 * PAGE), 2 * PAGE); /* all of it would not be enough */
    assert_int_equal(x.left, 2);
    assert_int_equal(bwi_arena_largest_free(a, 4 * PAGE), 4 * PAGE);
    bwi_arena_remove_lender(a, &x.lender);
    bwi_arena_close(a);
}

static void the_largest_free_piece_is_known(void **state) {
    (void)state;
    struct bwi_arena *a = open_arena(4 * PAGE);
    struct ask x, y, z;
    assert_int_equal(bwi_arena_largest_free(a, 0), 4 * PAGE);
    ask(a, &x, PAGE);
    ask(a, &y, 2 * PAGE);
    assert_int_equal(bwi_arena_largest_free(a, 0), PAGE);
    ask(a, &z, PAGE);
    assert_int_equal(bwi_arena_largest_free(a, 0), 0);
    bwi_arena_release(a, y.w.ptr, 2 * PAGE);
    assert_int_equal(bwi_arena_largest_free(a, 0), 2 * PAGE);
    bwi_arena_release(a, x.w.ptr, PAGE);
    bwi_arena_release(a, z.w.ptr, PAGE);
    assert_int_equal(bwi_arena_largest_free(a, 0), 4 * PAGE);
    bwi_arena_close(a);
}

static void no_bytes_still_get_an_address(void **state) {
    (void)state;
    struct bwi_arena *a = open_arena(MB);
    struct ask x;
    ask(a, &x, 0);
    assert_non_null(x.w.ptr);
    assert_int_equal(bwi_arena_used(a), PAGE);
    bwi_arena_release(a, x.w.ptr, 0);
    assert_int_equal(bwi_arena_used(a), 0);
    bwi_arena_close(a);
}

static void a_small_request_does_not_overtake_a_large_one(void **state) {
    (void)state;
    struct bwi_arena *a = open_arena(MB);
    struct ask first, large, small;
    ask(a, &first, MB / 2);
    ask(a, &large, MB);
    ask(a, &small, PAGE); /* would fit, but came later */
    assert_int_equal(large.granted + small.granted, 0);
    bwi_arena_release(a, first.w.ptr, MB / 2);
    assert_int_equal(large.granted, 1);
    assert_int_equal(small.granted, 0);
    bwi_arena_release(a, large.w.ptr, MB);
    assert_int_equal(small.granted, 1);
    bwi_arena_release(a, small.w.ptr, PAGE);
    bwi_arena_close(a);
}

static void withdrawing_the_first_waiter_lets_the_next_ones_in(void **state) {
    (void)state;
    struct bwi_arena *a = open_arena(MB);
    struct ask first, large, small, other;
    ask(a, &first, MB / 2);
    ask(a, &large, MB);
    ask(a, &small, PAGE);
    ask(a, &other, PAGE);
    bwi_arena_cancel(a, &other.w); /* from the middle: nobody is served by that */
    assert_int_equal(small.granted, 0);
    bwi_arena_cancel(a, &large.w);
    bwi_arena_cancel(a, &large.w); /* twice: nothing happens */
    assert_int_equal(large.granted + other.granted, 0);
    assert_int_equal(small.granted, 1);
    bwi_arena_release(a, small.w.ptr, PAGE);
    bwi_arena_release(a, first.w.ptr, MB / 2);
    bwi_arena_close(a);
}

struct chain {
    struct bwi_arena_wait w;
    struct bwi_arena *arena;
    int left;
};

/* Gives the buffer back at once and asks again, from within the callback. */
static void give_and_ask(struct bwi_arena_wait *w) {
    struct chain *c = w->user;
    bwi_arena_release(c->arena, w->ptr, w->bytes);
    if (--c->left > 0) bwi_arena_acquire(c->arena, w);
}

static void a_callback_may_release_and_ask_again(void **state) {
    (void)state;
    struct bwi_arena *a = open_arena(MB);
    struct ask all, behind;
    ask(a, &all, MB);
    struct chain c = {.w = {.bytes = MB, .granted = give_and_ask, .user = &c}, .arena = a, .left = 3};
    bwi_arena_acquire(a, &c.w);
    ask(a, &behind, MB);
    bwi_arena_release(a, all.w.ptr, MB);
    assert_int_equal(c.left, 2); /* its second request waits behind the other one */
    assert_int_equal(behind.granted, 1);
    bwi_arena_release(a, behind.w.ptr, MB);
    assert_int_equal(c.left, 0);
    assert_int_equal(bwi_arena_used(a), 0);
    bwi_arena_close(a);
}

static void a_budget_below_a_page_or_beyond_the_machine_is_refused(void **state) {
    (void)state;
    struct bwi_arena *a = NULL;
    struct bw_error err = BW_ERROR_INIT;
    assert_fails(bwi_arena_open(4095, 0, &a, &err), BW_E_INVALID, &err,
                 "memory budget: expected at least 4096 bytes, found 4095");
    bw_error_clear(&err);
    assert_fails(bwi_arena_open(UINT64_C(1) << 60, 0, &a, &err), BW_E_NOMEM, &err,
                 "map 1152921504606846976 bytes for the memory budget");
    assert_null(a);
}

static void touching_in_parts_makes_all_of_it_resident(void **state) {
    (void)state;
    struct bw_error err = BW_ERROR_INIT;
    for (unsigned threads = 1; threads <= 80; threads += 13) {
        struct bwi_arena *a = NULL;
        uint64_t before = bwi_os_rss_bytes();
        assert_ok(bwi_arena_open(16 * MB + PAGE, threads, &a, &err), &err);
        assert_true(bwi_os_rss_bytes() >= before + 16 * MB - MB / 2);
        bwi_arena_close(a);
    }
}

static void a_failing_allocation_is_reported(void **state) {
    (void)state;
    struct bwi_arena *a = NULL;
    struct bw_error err = BW_ERROR_INIT;
    long live = bwi_alloc_live();
    bwi_alloc_fail_at(1);
    int rc = bwi_arena_open(MB, 0, &a, &err);
    bwi_alloc_fail_at(0);
    assert_fails(rc, BW_E_NOMEM, &err, "the arena");
    assert_int_equal(bwi_alloc_live(), live);
    bwi_arena_close(NULL);
}

/* ---- against a model: an array of pages, first fit, one queue ---- */

#define PAGES 512u
#define ASKS  64

struct model {
    int owner[PAGES]; /* index of the request + 1; 0 = free */
    int queue[ASKS];
    int queued;
};

static bool model_take(struct model *m, int who, size_t pages) {
    for (size_t at = 0, run = 0; at < PAGES; at++) {
        run = m->owner[at] == 0 ? run + 1 : 0;
        if (run < pages) continue;
        for (size_t i = 0; i < pages; i++) m->owner[at - i] = who + 1;
        return true;
    }
    return false;
}

static void model_serve(struct model *m, const struct ask *asks) {
    while (m->queued > 0 && model_take(m, m->queue[0], asks[m->queue[0]].w.bytes / PAGE)) {
        memmove(m->queue, m->queue + 1, (size_t)--m->queued * sizeof *m->queue);
    }
}

static void model_cancel(struct model *m, int who) {
    for (int i = 0; i < m->queued; i++) {
        if (m->queue[i] != who) continue;
        memmove(m->queue + i, m->queue + i + 1, (size_t)(m->queued - i - 1) * sizeof *m->queue);
        m->queued--;
        return;
    }
}

/* The same requests hold the same pages, and what was written to a buffer is still there. */
static void compare(const struct model *m, const struct ask *asks, const uint8_t *base, const struct bwi_arena *a) {
    size_t used = 0;
    for (size_t at = 0; at < PAGES; at++) {
        int who = m->owner[at] - 1;
        if (who < 0) continue;
        used++;
        assert_int_equal(asks[who].granted, 1);
        assert_true(base + at * PAGE >= asks[who].w.ptr && base + at * PAGE < asks[who].w.ptr + asks[who].w.bytes);
        assert_int_equal(base[at * PAGE], who);
    }
    for (int i = 0; i < m->queued; i++) assert_int_equal(asks[m->queue[i]].granted, 0);
    assert_int_equal(bwi_arena_used(a), used * PAGE);
    assert_true(bwi_arena_peak(a) <= bwi_arena_budget(a));
}

static void mark(struct ask *a, int who) {
    if (a->granted && a->w.ptr) {
        for (size_t i = 0; i < a->w.bytes; i += PAGE) a->w.ptr[i] = (uint8_t)who;
    }
}

static void it_does_what_a_naive_model_does(void **state) {
    (void)state;
    uint64_t rng = test_seed(42);
    struct bwi_arena *a = open_arena(PAGES * PAGE);
    struct model m = {0};
    struct ask asks[ASKS] = {0};
    bool live[ASKS] = {0};
    struct ask whole;
    ask(a, &whole, PAGES * PAGE);
    uint8_t *base = whole.w.ptr;
    bwi_arena_release(a, base, PAGES * PAGE);
    for (int step = 0; step < 20000; step++) {
        int who = (int)(test_random(&rng) % ASKS);
        struct ask *x = &asks[who];
        if (!live[who]) {
            size_t pages = test_random(&rng) % 8 == 0 ? 1 + test_random(&rng) % PAGES : 1 + test_random(&rng) % 24;
            ask(a, x, pages * PAGE);
            live[who] = true;
            m.queue[m.queued++] = who;
        } else if (x->granted) {
            for (size_t i = 0; i < PAGES; i++) m.owner[i] = m.owner[i] == who + 1 ? 0 : m.owner[i];
            bwi_arena_release(a, x->w.ptr, x->w.bytes);
            live[who] = false;
        } else {
            model_cancel(&m, who);
            bwi_arena_cancel(a, &x->w);
            live[who] = false;
        }
        model_serve(&m, asks);
        for (int i = 0; i < ASKS; i++) {
            if (live[i]) mark(&asks[i], i);
        }
        compare(&m, asks, base, a);
    }
    for (int i = 0; i < ASKS; i++) {
        if (live[i] && !asks[i].granted) bwi_arena_cancel(a, &asks[i].w), live[i] = false;
    }
    for (int i = 0; i < ASKS; i++) {
        if (live[i]) bwi_arena_release(a, asks[i].w.ptr, asks[i].w.bytes);
    }
    bwi_arena_close(a);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_buffer_is_granted_at_once_aligned_and_counted),
        cmocka_unit_test(the_largest_free_piece_is_known),
        cmocka_unit_test(what_is_lent_comes_back_when_it_is_needed_and_no_more_of_it),
        cmocka_unit_test(lenders_are_asked_until_there_is_a_piece_as_large_as_wanted),
        cmocka_unit_test(no_bytes_still_get_an_address),
        cmocka_unit_test(a_small_request_does_not_overtake_a_large_one),
        cmocka_unit_test(withdrawing_the_first_waiter_lets_the_next_ones_in),
        cmocka_unit_test(a_callback_may_release_and_ask_again),
        cmocka_unit_test(a_budget_below_a_page_or_beyond_the_machine_is_refused),
        cmocka_unit_test(touching_in_parts_makes_all_of_it_resident),
        cmocka_unit_test(a_failing_allocation_is_reported),
        cmocka_unit_test(it_does_what_a_naive_model_does),
    };
    return cmocka_run_group_tests_name("arena", tests, NULL, NULL);
}
