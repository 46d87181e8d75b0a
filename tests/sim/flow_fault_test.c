/* SPDX-License-Identifier: Apache-2.0 */
/* Every system call of a job's flows fails in turn, on either node, once or from then on, with what a kernel gives:
 * who asked is told clearly, what was committed is there, the next launch opens and saves, nothing is left behind.
 *
 * Which error a call fails with follows from a seed, so that in one run each error meets many calls, and in many runs
 * every call. BW_TEST_SEED tries others. */
#include "flow_kit.h"

#include "sanitized.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

static const struct {
    int error, status;
} errors[] = {{ENOSPC, BW_E_NOSPACE}, {EDQUOT, BW_E_NOSPACE}, {EIO, BW_E_IO},           {EROFS, BW_E_ACCESS},
              {EMFILE, BW_E_IO},      {ENOMEM, BW_E_NOMEM},   {ETIMEDOUT, BW_E_TIMEOUT}};
#define REMOVING   (UINT32_C(1) << BWI_OS_UNLINK)
#define TROUBLE_MS UINT64_C(120000) /* of virtual time: then what failed for good works again */
#define ERRORS     (sizeof errors / sizeof errors[0])

/* What fails in one run of a flow, and what became of it. */
struct trial {
    const char *flow;
    unsigned node;
    uint64_t n, repeat;
    uint32_t mask;  /* of the calls that are counted */
    unsigned error; /* of the table above */
    unsigned told;
    bool running;
};

static struct trial now; /* for the message of a case that fails */
static uint64_t seed;

static void arm(struct job *j, const struct trial *t) {
    bwi_os_fault_at(j->fault[t->node], t->n, t->repeat, t->mask, errors[t->error].error);
}

static void disarm(struct job *j) {
    for (unsigned r = 0; r < FLOW_WORLD && j->running; r++) bwi_os_fault_at(j->fault[r], 0, 0, 0, 0);
}

/* ---- what is told ---- */

/* An error says what it is, and of what. */
static void take(struct trial *t, unsigned rank, const struct bw_error *e) {
    if (e->status == 0) return;
    t->told++;
    const bool own = e->status == errors[t->error].status || e->status == BW_E_UNKNOWN || e->status == BW_E_TIMEOUT ||
                     e->status == BW_E_ABORTED || strstr(e->message, "an earlier fsync") != NULL;
    const bool named = strchr(e->message, '"') != NULL || strstr(e->message, "runs/") != NULL;
    if (own && named) return;
    print_error("rank %u: %s: %s\n", rank, bw_status_name(e->status), e->message);
    fail();
}

/* ---- flows ---- */

static void act_open(struct job *j, struct trial *t) {
    job_end(j);
    job_launch(j, BWI_REGISTER_DEFAULT, 0);
    arm(j, t);
    job_wait_open(j);
    for (unsigned r = 0; r < FLOW_WORLD; r++) take(t, r, &j->c.ranks[r].open->error);
}

static void act_rollback(struct job *j, struct trial *t) {
    job_end(j);
    job_launch(j, BWI_REGISTER_ROLLBACK, 1);
    arm(j, t);
    job_wait_open(j);
    for (unsigned r = 0; r < FLOW_WORLD; r++) take(t, r, &j->c.ranks[r].open->error);
}

static bool is_live(struct job *j, uint64_t step) {
    struct bw_error err = BW_ERROR_INIT;
    struct bwi_head head;
    assert_ok(job_head(j, 0, &head, &err), &err);
    const bool live = bwi_policy_find_live(&head.entry, step) != NULL;
    bwi_head_fini(&head);
    return live;
}

/* What was told is so, and by the next save the bytes of one that failed have been given back. */
static void check_outcome(struct job *j, const struct trial *t, const struct bw_error e[FLOW_WORLD]) {
    const bool live = is_live(j, 3);
    for (unsigned r = 0; r < FLOW_WORLD; r++) assert_true(e[r].status == BW_E_UNKNOWN || (e[r].status == 0) == live);
    if (!live && t->repeat == 1) assert_int_equal(job_packs_of(j, 3), 0);
}

static void act_save(struct job *j, struct trial *t) {
    struct bw_error e[FLOW_WORLD];
    job_begin(j, 3);
    arm(j, t);
    (void)job_wait(j, TROUBLE_MS);
    disarm(j); /* what is left on the node's disk goes on from here */
    job_finish(j, e);
    for (unsigned r = 0; r < FLOW_WORLD; r++) take(t, r, &e[r]);
    job_save(j, 4);
    check_outcome(j, t, e);
}

static void act_close(struct job *j, struct trial *t) {
    job_begin(j, 3);
    arm(j, t);
    job_capture(j);
    job_end(j);
}

static void act_read(struct job *j, struct trial *t) {
    struct bw_error e = BW_ERROR_INIT;
    arm(j, t);
    (void)job_read(j, t->node, 2, &e);
    take(t, t->node, &e);
}

/* What could not be looked at is no damage. */
static void take_findings(struct trial *t, const struct bwi_findings *f, bool sound) {
    for (size_t i = 0; i < f->count; i++) {
        struct bw_error e = BW_ERROR_INIT;
        if (f->list[i].severity < 2 || (!sound && bwi_is_damage(f->list[i].status))) continue;
        (void)bwi_error_set(&e, f->list[i].status, "\"%s\": %s", f->list[i].object, f->list[i].message);
        take(t, t->node, &e);
    }
}

static void act_verify(struct job *j, struct trial *t) {
    struct bwi_findings f = {0};
    struct bw_error e = BW_ERROR_INIT;
    arm(j, t);
    (void)job_verify(j, t->node, 2, &f, &e);
    take(t, t->node, &e);
    take_findings(t, &f, true);
    bwi_findings_fini(&f);
}

static void act_mend(struct job *j, struct trial *t) {
    struct bwi_findings f = {0};
    struct bw_error e = BW_ERROR_INIT;
    job_damage_pack(j, 2);
    arm(j, t);
    (void)job_mend(j, 0, 2, &f, &e);
    take(t, 0, &e);
    take_findings(t, &f, false);
    disarm(j);
    bool mended = e.status == 0;
    for (size_t i = 0; i < f.count; i++) mended = mended && f.list[i].severity == 0;
    assert_true(f.count > 0 || !mended);
    bwi_findings_fini(&f);
    bw_error_clear(&e);
    assert_ok(job_mend(j, 0, 2, &f, &e), &e); /* once more: whatever the first one left of it */
    for (size_t i = 0; i < f.count; i++) assert_true(f.list[i].severity == 0);
    if (mended) assert_int_equal(f.count, 0);
    bwi_findings_fini(&f);
}

static void act_prune(struct job *j, struct trial *t) {
    struct bw_error e[4] = {BW_ERROR_INIT, BW_ERROR_INIT, BW_ERROR_INIT, BW_ERROR_INIT};
    arm(j, t);
    (void)job_retire(j, t->node, 1, &e[0]);
    (void)job_sweep(j, t->node, BWI_TIER_REMOTE, &e[1]);
    (void)job_sweep(j, t->node, BWI_TIER_LOCAL, &e[2]);
    for (unsigned i = 0; i < 3; i++) take(t, t->node, &e[i]);
}

struct flow {
    const char *name;
    void (*act)(struct job *j, struct trial *t);
    uint64_t from[2]; /* what the next launch may go on from */
};

static const struct flow flows[] = {
    {"open", act_open, {2, 2}},   {"rollback", act_rollback, {1, 2}}, {"save", act_save, {4, 4}},
    {"close", act_close, {2, 3}}, {"restore", act_read, {2, 2}},      {"verify", act_verify, {2, 2}},
    {"repair", act_mend, {2, 2}}, {"prune", act_prune, {2, 2}},
};

/* ---- afterwards ---- */

struct leftovers {
    const struct bwi_entry *e;
    unsigned hidden, strange;
};

static bool is_kept(const struct bwi_entry *e, const char *path) {
    char text[BWI_ID_TEXT_BYTES];
    for (size_t i = 0; i < e->live_count + e->shelved_count; i++) {
        const struct bwi_kept *k = i < e->live_count ? &e->live[i] : &e->shelved[i - e->live_count];
        bwi_id_text(&k->id, text);
        if (strstr(path, text) != NULL) return true;
    }
    return false;
}

static bool is_known_attempt(const struct bwi_entry *e, const char *path) {
    char text[64];
    bwi_format(text, sizeof text, "/layouts/%u-%08x/", e->attempt.number, e->attempt.nonce);
    if (strstr(path, text) != NULL) return true;
    for (size_t i = 0; i < e->live_count + e->shelved_count; i++) {
        const struct bwi_kept *k = i < e->live_count ? &e->live[i] : &e->shelved[i - e->live_count];
        bwi_format(text, sizeof text, "/layouts/%u-%08x/", k->id.attempt, k->id.nonce);
        if (strstr(path, text) != NULL) return true;
    }
    return false;
}

/* Inventories of a launch that is over go, unless its rank 0 has never said which attempt it saw. */
static bool may_be_launch(const struct bwi_entry *e, const char *path) {
    if (strstr(path, e->attempt.launch) != NULL) return true;
    for (size_t i = 0; i < e->launch_count; i++)
        if (strstr(path, e->launches[i]) != NULL) return false;
    return strstr(path, "/000000.json") == NULL;
}

static void look_at_file(void *user, const char *path, uint64_t bytes) {
    struct leftovers *l = user;
    const char *name = strrchr(path, '/') + 1;
    (void)bytes;
    if (name[0] == '\0' || strcmp(name, ".lock") == 0 || strcmp(name, "store.json") == 0) return;
    if (name[0] == '.') {
        l->hidden++;
        return;
    }
    if (strstr(path, "/history/") != NULL) return;
    if (strstr(path, "/launches/") != NULL  ? may_be_launch(l->e, path)
        : strstr(path, "/layouts/") != NULL ? is_known_attempt(l->e, path)
                                            : is_kept(l->e, path))
        return;
    print_error("left over: %s\n", path);
    l->strange++;
}

/* A temporary whose removal was made to fail stays until its directory goes. */
static void check_leftovers(struct job *j, const struct trial *t) {
    struct bw_error err = BW_ERROR_INIT;
    struct bwi_head head;
    assert_ok(job_sweep(j, 0, BWI_TIER_REMOTE, &err), &err);
    for (unsigned r = 0; r < FLOW_WORLD; r++) assert_ok(job_sweep(j, r, BWI_TIER_LOCAL, &err), &err);
    assert_ok(job_head(j, 0, &head, &err), &err);
    struct leftovers l = {.e = &head.entry};
    disk_each(j->remote, look_at_file, &l);
    for (unsigned r = 0; r < FLOW_WORLD; r++) disk_each(j->local[r], look_at_file, &l);
    bwi_head_fini(&head);
    assert_int_equal(l.strange, 0);
    assert_true(l.hidden <= ((t->mask & REMOVING) != 0 ? job_fired(j) : 0));
}

static void check_live(struct job *j) {
    struct bw_error err = BW_ERROR_INIT;
    struct bwi_findings f = {0};
    struct bwi_head head;
    assert_ok(job_head(j, 0, &head, &err), &err);
    for (size_t i = 0; i < head.entry.live_count; i++) {
        assert_ok(job_read(j, 1, head.entry.live[i].id.step, &err), &err);
        assert_ok(job_verify(j, 0, head.entry.live[i].id.step, &f, &err), &err);
    }
    for (size_t i = 0; i < f.count; i++) {
        if (f.list[i].severity > 0) print_error("%s: %s\n", f.list[i].object, f.list[i].message);
        assert_int_equal(f.list[i].severity, 0);
    }
    bwi_head_fini(&head);
    bwi_findings_fini(&f);
}

static void go_on(struct job *j, const struct flow *f, const struct trial *t) {
    disarm(j);
    if (j->running) job_end(j);
    job_launch(j, BWI_REGISTER_DEFAULT, 0);
    job_wait_open(j);
    for (unsigned r = 0; r < FLOW_WORLD; r++) assert_ok(j->c.ranks[r].open->error.status, &j->c.ranks[r].open->error);
    const uint64_t from = j->c.ranks[0].session->resume.id.step;
    assert_true(from == f->from[0] || from == f->from[1]);
    for (unsigned r = 0; r < FLOW_WORLD; r++) check_resumed(&j->c, r, from);
    job_save(j, 5);
    check_live(j);
    check_leftovers(j, t);
}

/* ---- the sweep ---- */

/* false: the flow has ended before the n-th call. */
static bool try_flow(const struct flow *f, struct trial t) {
    static struct job j;
    now = t;
    now.running = true;
    job_init(&j, seed);
    job_launch(&j, BWI_REGISTER_DEFAULT, 0);
    job_wait_open(&j);
    job_save(&j, 1);
    job_save(&j, 2);
    f->act(&j, &t);
    const bool fired = job_fired(&j) > 0;
    if (!fired) assert_int_equal(t.told, 0);
    go_on(&j, f, &t);
    job_fini(&j);
    now.running = false;
    return fired;
}

static void sweep_flow(const struct flow *f, unsigned node, uint32_t mask, uint64_t repeat, uint64_t stride,
                       uint64_t *trials) {
    uint64_t random = seed + node;
    uint64_t n = 1 + test_random(&random) % stride;
    for (;; n += stride) {
        const struct trial t = {.flow = f->name,
                                .node = node,
                                .n = n,
                                .repeat = repeat,
                                .mask = mask,
                                .error = (unsigned)(test_random(&random) % ERRORS)};
        if (!try_flow(f, t)) break;
        (*trials)++;
    }
}

static void run_flow(const struct flow *f) {
    uint64_t trials = 0;
    sweep_flow(f, 0, ~REMOVING, 1, FULL_OR(1, 11), &trials);
    sweep_flow(f, 0, REMOVING, 1, FULL_OR(1, 3), &trials);
    sweep_flow(f, 1, ~REMOVING, 1, FULL_OR(5, 29), &trials);
    sweep_flow(f, 0, UINT32_MAX, UINT64_MAX, FULL_OR(3, 41), &trials);
    sweep_flow(f, 1, UINT32_MAX, UINT64_MAX, FULL_OR(7, 41), &trials);
    (void)printf("  %-8s a call failed %llu times\n", f->name, (unsigned long long)trials);
    assert_true(trials > 20);
}

#define CASE(number, sentence)                                                                                         \
    static void sentence(void **state) {                                                                               \
        (void)state;                                                                                                   \
        run_flow(&flows[number]);                                                                                      \
    }
CASE(0, any_call_of_opening_may_fail)
CASE(1, any_call_of_a_rollback_may_fail)
CASE(2, any_call_of_a_save_may_fail)
CASE(3, any_call_of_closing_may_fail)
CASE(4, any_call_of_a_restore_may_fail)
CASE(5, any_call_of_verifying_may_fail)
CASE(6, any_call_of_a_repair_may_fail)
CASE(7, any_call_of_pruning_may_fail)

static int tell(void **state) {
    (void)state;
    if (now.running)
        print_error("%s, node %u, call %llu%s fails: %s; repeat with BW_TEST_SEED=0x%llx\n", now.flow, now.node,
                    (unsigned long long)now.n, now.repeat == 1 ? "" : " and all after it",
                    strerror(errors[now.error].error), (unsigned long long)seed);
    now.running = false;
    return 0;
}

/* flow_fault_test [CASE]: a pattern of names. */
int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(any_call_of_opening_may_fail, tell),
        cmocka_unit_test_teardown(any_call_of_a_rollback_may_fail, tell),
        cmocka_unit_test_teardown(any_call_of_a_save_may_fail, tell),
        cmocka_unit_test_teardown(any_call_of_closing_may_fail, tell),
        cmocka_unit_test_teardown(any_call_of_a_restore_may_fail, tell),
        cmocka_unit_test_teardown(any_call_of_verifying_may_fail, tell),
        cmocka_unit_test_teardown(any_call_of_a_repair_may_fail, tell),
        cmocka_unit_test_teardown(any_call_of_pruning_may_fail, tell),
    };
    seed = test_seed(0x6661756c7473);
    return test_run(tests, argc > 1 ? argv[1] : getenv("BW_TEST_CASE"), NULL, NULL);
}
