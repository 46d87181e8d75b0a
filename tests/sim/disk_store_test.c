/* SPDX-License-Identifier: Apache-2.0 */
/* The POSIX store on a simulated disk: it keeps the contract of stores there as anywhere, and what it calls done is
 * safe. */
#include "contract.h"
#include "disk.h"

#include "base/vec.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct run {
    const struct contract_case *test;
    struct contract c;
    struct disk *d;
    struct disk_process *p;
    long live;
};

static const struct contract_kind kind = {.name = "posix_sim", .tree = true};

struct bwi_store *contract_open(struct contract *c, bool read_only) {
    return rig_store(&c->rig, c->url, read_only);
}

/* As rig_open does it, but on virtual time with an engine. */
static void open_rig(struct rig *r, struct bwi_os *os) {
    struct bw_error err = BW_ERROR_INIT;
    const struct bwi_io_options o = {.os = os};
    *r = (struct rig){.virtual_time = true};
    bwi_env_virtual_init(&r->v, test_seed(11));
    assert_ok(bwi_io_open(&o, &r->io, &err), &err);
    assert_ok(bwi_loop_open(&r->v.env, r->io, &r->loop, &err), &err);
}

static int setup(void **state) {
    struct run *run = *state;
    struct contract *c = &run->c;
    *c = (struct contract){.kind = &kind};
    run->live = bwi_alloc_live();
    run->p = disk_process_new(1);
    open_rig(&c->rig, disk_os(run->p));
    run->d = disk_new(&c->rig.v.env, NULL);
    disk_attach(run->p, "disk", run->d);
    snprintf(c->url, sizeof c->url, "/disk/some/where");
    c->a = contract_open(c, false);
    c->b = contract_open(c, false);
    return 0;
}

static void run_case(void **state) {
    struct run *run = *state;
    run->test->run(&run->c);
}

static int teardown(void **state) {
    struct run *run = *state;
    struct contract *c = &run->c;
    c->a->close(c->a);
    c->b->close(c->b);
    rig_close(&c->rig);
    const unsigned files = disk_open_files(run->p);
    disk_process_free(run->p);
    disk_free(run->d);
    if (files != 0) print_error("%u descriptors were left open\n", files);
    if (bwi_alloc_live() != run->live)
        print_error("%ld allocations were not given back\n", bwi_alloc_live() - run->live);
    return files == 0 && bwi_alloc_live() == run->live ? 0 : -1;
}

/* --- what is done is safe ---- */

#define ANY "/disk/some/where"

struct bench {
    struct bwi_env_virtual env; /* of the disk: it outlives the rigs */
    struct rig rig;
    struct disk *d;
    struct disk_process *p;
    struct bwi_store *s;
    const struct disk_model *model;
};

static void reopen(struct bench *b) {
    b->p = disk_process_new(1);
    disk_attach(b->p, "disk", b->d);
    open_rig(&b->rig, disk_os(b->p));
    b->s = rig_store(&b->rig, ANY, false);
}

static void leave(struct bench *b) {
    b->s->close(b->s);
    rig_close(&b->rig);
    disk_process_free(b->p);
}

static void kill_it(void *user) {
    disk_process_kill(user);
}

static const char *text_of(unsigned n) {
    static char text[3000];
    memset(text, 'a' + (int)(n % 26), sizeof text - 1);
    return text;
}

/* What became of an object that was asked for before the crash. */
enum fate { UNKNOWN, DONE, GONE };

/* Creates, uploads and deletes until the process is stopped at its n-th change. */
static unsigned work(struct bench *b, enum fate fate[], unsigned objects) {
    unsigned i = 0;
    for (; i < objects && !disk_process_is_dead(b->p); i++) {
        char key[64];
        snprintf(key, sizeof key, "runs/%u/x/%u", i / 4, i);
        struct bwi_store_op op = i % 2 == 0 ? st_create(&b->rig, b->s, key, text_of(i))
                                            : st_upload(&b->rig, b->s, key, bwi_span_str(text_of(i)));
        fate[i] = op.error.status == 0 ? DONE : UNKNOWN;
        if (i % 4 != 3) continue;
        snprintf(key, sizeof key, "runs/%u/", i / 4);
        if (i % 8 != 7) continue;
        for (unsigned k = i - 3; k <= i; k++) fate[k] = UNKNOWN;
        op = st_key(&b->rig, b->s, BWI_STORE_DELETE_PREFIX, key);
        for (unsigned k = i - 3; k <= i; k++) fate[k] = op.error.status == 0 ? GONE : UNKNOWN;
    }
    return i;
}

static void check(struct bench *b, const enum fate fate[], unsigned objects) {
    for (unsigned i = 0; i < objects; i++) {
        char key[64];
        snprintf(key, sizeof key, "runs/%u/x/%u", i / 4, i);
        struct bwi_store_op op = st_get(&b->rig, b->s, key, 1 << 20);
        const bool there = op.error.status == 0;
        if (there) {
            assert_int_equal(op.body.len, strlen(text_of(i)));
            assert_memory_equal(op.body.ptr, text_of(i), op.body.len);
        } else {
            assert_int_equal(op.error.status, BW_E_NOTFOUND);
        }
        if (fate[i] == DONE) assert_true(there);
        if (fate[i] == GONE) assert_false(there);
        bwi_buf_fini(&op.body);
    }
}

static void play(const struct disk_model *m, uint64_t stop, uint64_t seed) {
    struct bench b = {.model = m};
    enum fate fate[24] = {UNKNOWN};
    bwi_env_virtual_init(&b.env, seed);
    b.d = disk_new(&b.env.env, m);
    reopen(&b);
    disk_stop_at(b.p, stop, kill_it, b.p);
    const unsigned objects = work(&b, fate, 24);
    disk_crash(b.d, seed);
    leave(&b);
    reopen(&b);
    check(&b, fate, objects);
    leave(&b);
    disk_free(b.d);
}

static void what_is_done_survives_a_crash_at_any_change_and_nothing_is_ever_torn(void **state) {
    (void)state;
    for (uint64_t stop = 1; stop < 330; stop++)
        for (uint64_t seed = 1; seed <= 6; seed++) play(NULL, stop, test_seed(3) * 100000 + stop * 10 + seed);
}

/* --- what is written over ---- */

#define GENERATIONS 4u

/* Each generation has another size, from two to four blocks of the store, and another letter. */
static struct bwi_span generation(unsigned n) {
    static char text[20000];
    const size_t bytes = 9000 + n * 2100 % 5000;
    memset(text, 'a' + (int)n, bytes);
    return bwi_span(text, bytes);
}

/* Each one is written over the one before, which is deleted. */
static void write_over(struct bench *b, enum fate fate[], unsigned *ret_recycled) {
    for (unsigned i = 0; i < GENERATIONS && !disk_process_is_dead(b->p); i++) {
        char key[64];
        snprintf(key, sizeof key, "run/%u/", i - 1);
        const struct bwi_store_op gone =
            st_run(&b->rig, b->s, (struct bwi_store_op){.verb = BWI_STORE_DELETE_PREFIX, .key = key, .keep_bytes = 1});
        if (i > 0) fate[i - 1] = gone.error.status == 0 ? GONE : UNKNOWN;
        snprintf(key, sizeof key, "run/%u/k", i);
        const struct bwi_store_op begun = st_begin(&b->rig, b->s, key, generation(i).len);
        if (begun.error.status != 0) continue;
        *ret_recycled += begun.recycled_bytes > 0;
        (void)st_write(&b->rig, b->s, begun.upload, 0, generation(i).ptr, generation(i).len);
        if (st_finish(&b->rig, b->s, begun.upload).error.status == 0) fate[i] = DONE;
    }
}

static void check_generations(struct bench *b, const enum fate fate[]) {
    for (unsigned i = 0; i < GENERATIONS; i++) {
        char key[64];
        snprintf(key, sizeof key, "run/%u/k", i);
        struct bwi_store_op op = st_get(&b->rig, b->s, key, 1 << 20);
        const bool there = op.error.status == 0;
        if (there) {
            assert_int_equal(op.body.len, generation(i).len);
            assert_memory_equal(op.body.ptr, generation(i).ptr, op.body.len);
        }
        if (fate[i] == DONE) assert_true(there);
        if (fate[i] == GONE) assert_false(there);
        bwi_buf_fini(&op.body);
    }
}

static void after_a_crash_no_name_old_or_new_has_the_bytes_of_another(void **state) {
    (void)state;
    unsigned recycled = 0;
    for (uint64_t stop = 1; stop < 110; stop++) {
        for (uint64_t seed = 1; seed <= 20; seed++) {
            struct bench b = {0};
            enum fate fate[GENERATIONS] = {UNKNOWN};
            bwi_env_virtual_init(&b.env, seed);
            b.d = disk_new(&b.env.env, NULL);
            reopen(&b);
            disk_stop_at(b.p, stop, kill_it, b.p);
            write_over(&b, fate, &recycled);
            disk_crash(b.d, test_seed(3) * 100000 + stop * 100 + seed);
            leave(&b);
            reopen(&b);
            check_generations(&b, fate);
            leave(&b);
            disk_free(b.d);
        }
    }
    assert_true(recycled > 1000);
}

static void an_object_that_another_process_named_and_never_synced_is_safe_when_it_is_met(void **state) {
    (void)state;
    for (uint64_t stop = 1; stop < 12; stop++) {
        for (uint64_t seed = 1; seed <= 40; seed++) {
            struct bench b = {0};
            bwi_env_virtual_init(&b.env, seed);
            b.d = disk_new(&b.env.env, NULL);
            reopen(&b);
            disk_stop_at(b.p, stop, kill_it, b.p);
            (void)st_create(&b.rig, b.s, "a/b/c", "same");
            leave(&b); /* it died; nothing is lost yet */
            reopen(&b);
            assert_op_ok(st_create(&b.rig, b.s, "a/b/c", "same"));
            disk_crash(b.d, test_seed(3) * 1000 + seed);
            leave(&b);
            reopen(&b);
            assert_object(&b.rig, b.s, "a/b/c", "same");
            leave(&b);
            disk_free(b.d);
        }
    }
}

/* --- an fsync that fails, and after which the kernel calls clean what it has not written ---- */

static struct bwi_store_op put(struct bench *b, bool upload, const char *key) {
    return upload ? st_upload(&b->rig, b->s, key, bwi_span_str(text_of(1))) : st_create(&b->rig, b->s, key, text_of(1));
}

/* The n-th fsync of the first try fails; the second one must make good what it says. false: there is no n-th one. */
static bool put_again(uint64_t n, uint64_t seed, bool upload) {
    struct bench b = {0};
    const char *key = "a/b/c";
    bwi_env_virtual_init(&b.env, seed);
    b.d = disk_new(&b.env.env, NULL);
    reopen(&b);
    disk_fail_fsync(b.d, n);
    const int first = put(&b, upload, key).error.status;
    disk_fail_fsync(b.d, 0);
    const bool was_seen = st_head(&b.rig, b.s, key).error.status == 0;
    if (first != 0 && was_seen) {
        assert_int_equal(first, BW_E_UNKNOWN);
        assert_op_fails(st_key(&b.rig, b.s, BWI_STORE_SYNC, "a/b/"), BW_E_IO, "earlier fsync");
    }
    assert_op_ok(put(&b, upload, key));
    assert_op_ok(st_key(&b.rig, b.s, BWI_STORE_SYNC, "a/b/"));
    disk_crash(b.d, seed);
    leave(&b);
    reopen(&b);
    assert_object(&b.rig, b.s, key, text_of(1));
    leave(&b);
    disk_free(b.d);
    return first != 0;
}

static void after_a_sync_that_failed_only_what_is_made_anew_is_called_done(void **state) {
    (void)state;
    for (int upload = 0; upload < 2; upload++) {
        uint64_t n = 1;
        bool failed = true;
        for (; failed; n++)
            for (uint64_t seed = 1; seed <= 20; seed++) failed = put_again(n, test_seed(9) * 1000 + seed, upload != 0);
        assert_int_equal(n, 6); /* two directories, the bytes, the name; the fifth has none to fail */
    }
}

int main(void) {
    const struct CMUnitTest more[] = {
        cmocka_unit_test(what_is_done_survives_a_crash_at_any_change_and_nothing_is_ever_torn),
        cmocka_unit_test(after_a_crash_no_name_old_or_new_has_the_bytes_of_another),
        cmocka_unit_test(after_a_sync_that_failed_only_what_is_made_anew_is_called_done),
        cmocka_unit_test(an_object_that_another_process_named_and_never_synced_is_safe_when_it_is_met),
    };
    const size_t n = contract_case_count;
    struct run *runs = calloc(n, sizeof *runs);
    struct CMUnitTest *tests = calloc(n, sizeof *tests);
    if (!runs || !tests) return 1;
    for (size_t i = 0; i < n; i++) {
        runs[i].test = &contract_cases[i];
        tests[i] = (struct CMUnitTest){contract_cases[i].name, run_case, setup, teardown, &runs[i]};
    }
    int failed = _cmocka_run_group_tests("contract", tests, n, NULL, NULL);
    failed += cmocka_run_group_tests(more, NULL, NULL);
    free(tests);
    free(runs);
    return failed;
}
