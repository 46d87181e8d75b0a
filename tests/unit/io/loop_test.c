/* SPDX-License-Identifier: Apache-2.0 */
/* The loop: tasks, timers, sources and waiting, most of it on virtual time. */
#include "base/vec.h"
#include "io/engine.h"
#include "io/loop.h"
#include "test.h"
#include <stdlib.h>
#include <string.h>

struct fixture {
    struct bwi_env_virtual v;
    struct bwi_loop *loop;
};

static int setup(void **state) {
    struct fixture *f = calloc(1, sizeof *f);
    bwi_env_virtual_init(&f->v, 7);
    if (!f || bwi_loop_open(&f->v.env, NULL, &f->loop, NULL) < 0) return -1;
    *state = f;
    return 0;
}

static int teardown(void **state) {
    struct fixture *f = *state;
    bwi_loop_close(f->loop);
    free(f);
    return 0;
}

/* A task that notes when it is called and answers from a script, whose last answer is repeated. */
struct actor {
    struct bwi_task task;
    const enum bwi_step *script;
    int length;
    int calls;
    int ended;
    int *order; /* next place; NULL: not noted */
    int place;
    uint64_t called_at;
    void (*act)(struct actor *a); /* within the step; NULL allowed */
    struct actor *other;
};

static enum bwi_step actor_step(struct bwi_task *t) {
    struct actor *a = bwi_container_of(t, struct actor, task);
    int i = a->calls < a->length ? a->calls : a->length - 1;
    a->calls++;
    a->called_at = bwi_loop_now_ns(t->loop);
    if (a->order) a->place = (*a->order)++;
    if (a->act) a->act(a);
    return a->script[i];
}

static void actor_ended(struct bwi_task *t) {
    bwi_container_of(t, struct actor, task)->ended++;
}

static const enum bwi_step wait_then_end[] = {BWI_STEP_WAIT, BWI_STEP_END};
static const enum bwi_step just_end[] = {BWI_STEP_END};
static const enum bwi_step always_wait[] = {BWI_STEP_WAIT};
static const enum bwi_step again_twice[] = {BWI_STEP_AGAIN, BWI_STEP_AGAIN, BWI_STEP_END};

static void start(struct fixture *f, struct actor *a, const enum bwi_step *script, int length,
                  struct bwi_task *parent) {
    *a = (struct actor){
        .task = {.step = actor_step, .ended = actor_ended, .name = "actor"}, .script = script, .length = length};
    bwi_task_start(f->loop, &a->task, parent);
}

/* Lets the remaining tasks of a case go. */
static void end_now(struct fixture *f, struct actor *a) {
    a->script = just_end;
    a->length = 1;
    a->act = NULL;
    bwi_task_wake(&a->task);
    bwi_loop_turn(f->loop, 0);
    assert_false(a->task.running);
}

static void a_task_runs_until_it_ends_and_is_told_so_once(void **state) {
    struct fixture *f = *state;
    struct actor a;
    start(f, &a, again_twice, 3, NULL);
    assert_int_equal(bwi_loop_tasks(f->loop), 1);
    assert_int_equal(a.calls, 0); /* not from within start */
    assert_true(bwi_loop_turn(f->loop, 0));
    assert_int_equal(a.calls, 3); /* AGAIN: in the same turn */
    assert_int_equal(a.ended, 1);
    assert_int_equal(bwi_loop_tasks(f->loop), 0);
    bwi_task_wake(&a.task);
    bwi_task_wake_at(&a.task, 1);
    assert_false(bwi_loop_turn(f->loop, 0));
    assert_int_equal(a.calls, 3);
}

static void a_waiting_task_is_called_once_for_many_wakes(void **state) {
    struct fixture *f = *state;
    struct actor a;
    start(f, &a, wait_then_end, 2, NULL);
    bwi_loop_turn(f->loop, 0);
    assert_int_equal(a.calls, 1);
    assert_false(bwi_loop_turn(f->loop, 0));
    for (int i = 0; i < 5; i++) bwi_task_wake(&a.task);
    bwi_loop_turn(f->loop, 0);
    assert_int_equal(a.calls, 2);
    assert_int_equal(a.ended, 1);
}

static void wake_self(struct actor *a) {
    if (a->calls == 1) bwi_task_wake(&a->task);
}

static void a_wake_within_the_own_step_is_not_lost(void **state) {
    struct fixture *f = *state;
    struct actor a;
    start(f, &a, wait_then_end, 2, NULL);
    a.act = wake_self;
    bwi_loop_turn(f->loop, 0);
    assert_int_equal(a.calls, 2);
    assert_int_equal(a.ended, 1);
}

static void wake_self_always(struct actor *a) {
    bwi_task_wake(&a->task);
}

static void a_task_that_wakes_itself_and_ends_is_not_called_again(void **state) {
    struct fixture *f = *state;
    struct actor a;
    start(f, &a, just_end, 1, NULL);
    a.act = wake_self_always;
    bwi_loop_turn(f->loop, 0);
    assert_false(bwi_loop_turn(f->loop, 0));
    assert_int_equal(a.calls, 1);
}

static void a_parent_is_woken_when_its_child_ends(void **state) {
    struct fixture *f = *state;
    struct actor parent, child;
    start(f, &parent, always_wait, 1, NULL);
    start(f, &child, wait_then_end, 2, &parent.task);
    bwi_loop_turn(f->loop, 0);
    assert_int_equal(parent.calls, 1);
    bwi_task_wake(&child.task);
    bwi_loop_turn(f->loop, 0);
    assert_int_equal(child.ended, 1);
    assert_int_equal(parent.calls, 2);
    end_now(f, &parent);
}

static void free_task(struct bwi_task *t) {
    free(bwi_container_of(t, struct actor, task));
}

static void a_task_may_be_freed_when_it_has_ended(void **state) {
    struct fixture *f = *state;
    struct actor parent;
    start(f, &parent, always_wait, 1, NULL);
    for (int i = 0; i < 10; i++) {
        struct actor *a = malloc(sizeof *a);
        assert_non_null(a);
        start(f, a, wait_then_end, 2, &parent.task);
        a->task.ended = free_task;
        bwi_task_wake_at(&a->task, f->v.now + 5);
    }
    bwi_loop_turn(f->loop, 0);
    f->v.now += 5;
    bwi_loop_turn(f->loop, 0);
    assert_int_equal(bwi_loop_tasks(f->loop), 1);
    assert_true(bwi_loop_next_ns(f->loop) == BWI_NEVER);
    end_now(f, &parent);
}

static void cancelling_sets_the_wish_and_wakes(void **state) {
    struct fixture *f = *state;
    struct actor a;
    start(f, &a, always_wait, 1, NULL);
    bwi_loop_turn(f->loop, 0);
    assert_false(a.task.cancel);
    bwi_task_cancel(&a.task);
    bwi_loop_turn(f->loop, 0);
    assert_true(a.task.cancel);
    assert_int_equal(a.calls, 2);
    end_now(f, &a);
}

static void starting_resets_what_an_earlier_life_left(void **state) {
    struct fixture *f = *state;
    struct actor a;
    start(f, &a, just_end, 1, NULL);
    bwi_task_cancel(&a.task);
    a.task.error.status = BW_E_IO;
    a.task.pending = 3;
    bwi_loop_turn(f->loop, 0);
    bwi_task_start(f->loop, &a.task, NULL);
    assert_false(a.task.cancel);
    assert_int_equal(a.task.error.status, 0);
    assert_int_equal(a.task.pending, 0);
    assert_string_equal(a.task.name, "actor");
    bwi_loop_turn(f->loop, 0);
    assert_int_equal(a.ended, 2);
}

/* ---- timers ---- */

static void a_timer_fires_at_its_time_and_once(void **state) {
    struct fixture *f = *state;
    struct actor a;
    start(f, &a, always_wait, 1, NULL);
    bwi_loop_turn(f->loop, 0);
    bwi_task_wake_at(&a.task, f->v.now + 100);
    assert_int_equal(bwi_loop_next_ns(f->loop), f->v.now + 100);
    f->v.now += 99;
    assert_false(bwi_loop_turn(f->loop, BWI_NEVER)); /* time stands still: it does not sleep */
    f->v.now += 1;
    assert_true(bwi_loop_turn(f->loop, 0));
    assert_int_equal(a.calls, 2);
    assert_true(a.task.wake_ns == BWI_NEVER);
    f->v.now += 1000;
    assert_false(bwi_loop_turn(f->loop, 0));
    end_now(f, &a);
}

static void a_timer_can_be_moved_and_taken_away(void **state) {
    struct fixture *f = *state;
    struct actor a;
    start(f, &a, always_wait, 1, NULL);
    bwi_loop_turn(f->loop, 0);
    bwi_task_wake_at(&a.task, f->v.now + 100);
    bwi_task_wake_at(&a.task, f->v.now + 50);
    assert_int_equal(bwi_loop_next_ns(f->loop), f->v.now + 50);
    bwi_task_wake_at(&a.task, BWI_NEVER);
    assert_true(bwi_loop_next_ns(f->loop) == BWI_NEVER);
    f->v.now += 1000;
    assert_false(bwi_loop_turn(f->loop, 0));
    bwi_task_wake_at(&a.task, f->v.now); /* already due */
    assert_true(bwi_loop_turn(f->loop, 0));
    assert_int_equal(a.calls, 2);
    end_now(f, &a);
}

#define MANY 10000

struct due {
    uint64_t at, seq;
    int who;
};
static int by_time(const void *a, const void *b) {
    const struct due *x = a, *y = b;
    if (x->at != y->at) return x->at < y->at ? -1 : 1;
    return x->seq < y->seq ? -1 : 1;
}

/* Timers set, moved and taken away at random; they fire in the order of their times, equal ones in the order of their
 * setting. */
static void ten_thousand_timers_fire_in_order(void **state) {
    struct fixture *f = *state;
    uint64_t rng = test_seed(3), seq = 0;
    struct actor *all = calloc(MANY, sizeof *all);
    struct due *due = calloc(MANY, sizeof *due);
    assert_true(all && due);
    int order = 0, expected = 0;
    for (int i = 0; i < MANY; i++) {
        start(f, &all[i], wait_then_end, 2, NULL);
        due[i] = (struct due){.at = BWI_NEVER, .who = i};
    }
    bwi_loop_turn(f->loop, 0);
    uint64_t begin = f->v.now;
    for (int n = 0; n < 4 * MANY; n++) {
        int i = n < MANY ? n : (int)(test_random(&rng) % MANY);
        bool away = n >= MANY && test_random(&rng) % 8 == 0;
        due[i] = (struct due){.at = away ? BWI_NEVER : begin + 1 + test_random(&rng) % 3000, .seq = seq++, .who = i};
        bwi_task_wake_at(&all[i].task, due[i].at);
        all[i].order = &order;
    }
    qsort(due, MANY, sizeof *due, by_time);
    while (bwi_loop_next_ns(f->loop) != BWI_NEVER) {
        f->v.now = bwi_loop_next_ns(f->loop);
        assert_true(bwi_loop_turn(f->loop, 0));
        for (; expected < order; expected++) {
            const struct actor *a = &all[due[expected].who];
            assert_int_equal(a->place, expected);
            assert_int_equal(a->called_at, due[expected].at);
        }
    }
    for (int i = 0; i < MANY; i++) {
        if (all[i].task.running) end_now(f, &all[i]);
    }
    assert_int_equal(bwi_loop_tasks(f->loop), 0);
    free(all);
    free(due);
}

/* ---- the order of ready tasks ---- */

static void ready_tasks_run_in_the_order_of_their_waking(void **state) {
    struct fixture *f = *state;
    struct actor a[3];
    int order = 0;
    for (int i = 0; i < 3; i++) {
        start(f, &a[i], wait_then_end, 2, NULL);
        a[i].order = &order;
    }
    bwi_loop_turn(f->loop, 0);
    bwi_task_wake(&a[2].task);
    bwi_task_wake(&a[0].task);
    bwi_task_wake(&a[1].task);
    bwi_loop_turn(f->loop, 0);
    assert_int_equal(a[2].place, 3);
    assert_int_equal(a[0].place, 4);
    assert_int_equal(a[1].place, 5);
}

static size_t pick_last(void *user, size_t n) {
    ++*(int *)user;
    return n - 1;
}

static void a_picker_chooses_among_the_ready_ones(void **state) {
    struct fixture *f = *state;
    struct actor a[4];
    int order = 0, asked = 0;
    for (int i = 0; i < 4; i++) {
        start(f, &a[i], just_end, 1, NULL);
        a[i].order = &order;
    }
    bwi_loop_set_picker(f->loop, pick_last, &asked);
    bwi_loop_turn(f->loop, 0);
    for (int i = 0; i < 4; i++) assert_int_equal(a[i].place, 3 - i);
    assert_int_equal(asked, 4);
}

static size_t pick_at_random(void *user, size_t n) {
    return test_random(user) % n;
}

static void wake_other(struct actor *a) {
    bwi_task_wake(&a->other->task);
    bwi_task_wake_at(&a->other->task, a->called_at + 1);
}

static void any_order_of_picking_keeps_every_wake(void **state) {
    struct fixture *f = *state;
    uint64_t rng = test_seed(9);
    bwi_loop_set_picker(f->loop, pick_at_random, &rng);
    struct actor a[50];
    for (int i = 0; i < 50; i++) start(f, &a[i], again_twice, 3, NULL);
    for (int i = 0; i < 50; i++) {
        a[i].other = &a[(i + 1) % 50];
        a[i].act = wake_other;
    }
    bwi_loop_turn(f->loop, 0);
    for (int i = 0; i < 50; i++) {
        assert_int_equal(a[i].calls, 3);
        assert_int_equal(a[i].ended, 1);
    }
    assert_true(bwi_loop_next_ns(f->loop) == BWI_NEVER);
}

/* ---- sources ---- */

struct spring {
    struct bwi_source source;
    struct bwi_loop *loop;
    uint64_t due;
    int polls;
    struct bwi_source *remove; /* when polled */
};

static bool spring_poll(struct bwi_source *s, uint64_t now_ns) {
    struct spring *p = bwi_container_of(s, struct spring, source);
    p->polls++;
    if (p->remove) bwi_loop_remove_source(p->loop, p->remove);
    if (now_ns < p->due) return false;
    p->due = BWI_NEVER;
    return true;
}
static uint64_t spring_due(struct bwi_source *s) {
    return bwi_container_of(s, struct spring, source)->due;
}

static void add_spring(struct fixture *f, struct spring *p, uint64_t due) {
    *p = (struct spring){.source = {.poll = spring_poll, .due = spring_due}, .loop = f->loop, .due = due};
    bwi_loop_add_source(f->loop, &p->source);
}

static void sources_are_polled_and_say_when_they_are_due(void **state) {
    struct fixture *f = *state;
    struct spring a, b;
    add_spring(f, &a, f->v.now + 20);
    add_spring(f, &b, f->v.now + 10);
    assert_int_equal(bwi_loop_next_ns(f->loop), f->v.now + 10);
    assert_false(bwi_loop_turn(f->loop, 0));
    f->v.now += 10;
    assert_true(bwi_loop_turn(f->loop, 0));
    assert_int_equal(bwi_loop_next_ns(f->loop), f->v.now + 10);
    bwi_loop_remove_source(f->loop, &a.source);
    bwi_loop_remove_source(f->loop, &a.source); /* twice: nothing happens */
    assert_true(bwi_loop_next_ns(f->loop) == BWI_NEVER);
    bwi_loop_remove_source(f->loop, &b.source);
}

static void a_source_may_remove_itself_or_the_next_while_polled(void **state) {
    struct fixture *f = *state;
    struct spring a, b, c;
    add_spring(f, &a, BWI_NEVER);
    add_spring(f, &b, BWI_NEVER);
    add_spring(f, &c, BWI_NEVER);
    a.remove = &b.source;
    c.remove = &c.source;
    bwi_loop_turn(f->loop, 0);
    a.remove = NULL;
    bwi_loop_turn(f->loop, 0);
    assert_int_equal(a.polls, 2);
    assert_int_equal(b.polls, 0);
    assert_int_equal(c.polls, 1);
    bwi_loop_remove_source(f->loop, &a.source);
}

/* ---- the system's clock ---- */

static uint64_t system_now(void) {
    return bwi_env_system()->now_ns(bwi_env_system());
}

static void without_an_engine_it_sleeps_until_the_next_timer(void **state) {
    (void)state;
    struct fixture f = {.loop = NULL};
    struct bw_error err = BW_ERROR_INIT;
    assert_ok(bwi_loop_open(bwi_env_system(), NULL, &f.loop, &err), &err);
    struct actor a;
    start(&f, &a, wait_then_end, 2, NULL);
    uint64_t at = system_now() + 20 * BWI_NS_PER_MS;
    bwi_task_wake_at(&a.task, at);
    assert_true(bwi_loop_run(f.loop, &a.task, at + 20 * BWI_NS_PER_S));
    assert_true(a.called_at >= at);
    assert_false(bwi_loop_turn(f.loop, BWI_NEVER)); /* nothing can ever happen: it returns */
    bwi_loop_close(f.loop);
}

static void a_run_ends_at_its_deadline(void **state) {
    (void)state;
    struct fixture f = {.loop = NULL};
    struct bwi_io *io = NULL;
    struct bw_error err = BW_ERROR_INIT;
    assert_ok(bwi_io_open(&(struct bwi_io_options){.threads = 1}, &io, &err), &err);
    assert_ok(bwi_loop_open(bwi_env_system(), io, &f.loop, &err), &err);
    struct actor a;
    start(&f, &a, always_wait, 1, NULL);
    uint64_t at = system_now() + 20 * BWI_NS_PER_MS;
    assert_false(bwi_loop_run(f.loop, &a.task, at));
    assert_true(system_now() >= at);
    end_now(&f, &a);
    bwi_loop_close(f.loop);
    bwi_io_close(io);
}

static void a_run_ends_where_time_stands_still_and_nothing_will_happen(void **state) {
    struct fixture *f = *state;
    struct actor a;
    const uint64_t before = f->v.now;
    start(f, &a, always_wait, 1, NULL);
    assert_false(bwi_loop_run(f->loop, &a.task, before + 1000));
    assert_true(a.task.running);
    assert_int_equal(f->v.now, before);
    end_now(f, &a);
    start(f, &a, again_twice, 3, NULL);
    assert_true(bwi_loop_run(f->loop, &a.task, before + 1000));
    assert_int_equal(a.ended, 1);
}

struct caller {
    struct bwi_task task;
    struct bwi_io_req req;
    int left;
};

static void add_one(struct bwi_io_req *req) {
    req->result++;
}
static void wake_caller(struct bwi_io_req *req) {
    struct caller *c = req->user;
    c->task.pending--;
    bwi_task_wake(&c->task);
}

static enum bwi_step caller_step(struct bwi_task *t) {
    struct caller *c = bwi_container_of(t, struct caller, task);
    if (t->pending > 0) return BWI_STEP_WAIT;
    if (c->left-- == 0) return BWI_STEP_END;
    t->pending++;
    bwi_io_submit(bwi_loop_io(t->loop), &c->req);
    return BWI_STEP_WAIT;
}

static void completions_of_the_engine_drive_tasks(void **state) {
    (void)state;
    struct bwi_loop *loop = NULL;
    struct bwi_io *io = NULL;
    struct bw_error err = BW_ERROR_INIT;
    assert_ok(bwi_io_open(&(struct bwi_io_options){.threads = 3}, &io, &err), &err);
    assert_ok(bwi_loop_open(bwi_env_system(), io, &loop, &err), &err);
    assert_ptr_equal(bwi_loop_io(loop), io);
    assert_ptr_equal(bwi_loop_env(loop), bwi_env_system());
    struct caller c[20];
    for (int i = 0; i < 20; i++) {
        c[i] = (struct caller){.task = {.step = caller_step}, .left = 100};
        c[i].req = (struct bwi_io_req){.kind = BWI_IO_CALL, .call = add_one, .user = &c[i], .done = wake_caller};
        bwi_task_start(loop, &c[i].task, NULL);
    }
    for (int i = 0; i < 20; i++) {
        assert_true(bwi_loop_run(loop, &c[i].task, system_now() + 20 * BWI_NS_PER_S));
        assert_int_equal(c[i].req.result, 100);
    }
    bwi_loop_close(loop);
    bwi_io_close(io);
}

static void opening_reports_a_failed_allocation(void **state) {
    (void)state;
    struct bwi_loop *loop = NULL;
    struct bw_error err = BW_ERROR_INIT;
    bwi_alloc_fail_at(1);
    int rc = bwi_loop_open(bwi_env_system(), NULL, &loop, &err);
    bwi_alloc_fail_at(0);
    assert_fails(rc, BW_E_NOMEM, &err, "a loop");
    assert_null(loop);
    bwi_loop_close(NULL);
}

#define CASE(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        CASE(a_task_runs_until_it_ends_and_is_told_so_once),
        CASE(a_waiting_task_is_called_once_for_many_wakes),
        CASE(a_wake_within_the_own_step_is_not_lost),
        CASE(a_task_that_wakes_itself_and_ends_is_not_called_again),
        CASE(a_parent_is_woken_when_its_child_ends),
        CASE(a_task_may_be_freed_when_it_has_ended),
        CASE(cancelling_sets_the_wish_and_wakes),
        CASE(starting_resets_what_an_earlier_life_left),
        CASE(a_timer_fires_at_its_time_and_once),
        CASE(a_timer_can_be_moved_and_taken_away),
        CASE(ten_thousand_timers_fire_in_order),
        CASE(ready_tasks_run_in_the_order_of_their_waking),
        CASE(a_run_ends_where_time_stands_still_and_nothing_will_happen),
        CASE(a_picker_chooses_among_the_ready_ones),
        CASE(any_order_of_picking_keeps_every_wake),
        CASE(sources_are_polled_and_say_when_they_are_due),
        CASE(a_source_may_remove_itself_or_the_next_while_polled),
        cmocka_unit_test(without_an_engine_it_sleeps_until_the_next_timer),
        cmocka_unit_test(a_run_ends_at_its_deadline),
        cmocka_unit_test(completions_of_the_engine_drive_tasks),
        cmocka_unit_test(opening_reports_a_failed_allocation),
    };
    return cmocka_run_group_tests_name("loop", tests, NULL, NULL);
}
