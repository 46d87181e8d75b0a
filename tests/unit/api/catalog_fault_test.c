/* SPDX-License-Identifier: Apache-2.0 */
/* The verbs of a catalog when a call of a store fails, and when others change the run in between: what failed is told,
 * nothing that was committed is lost, and the next call works. */
#include "api/catalog.h"
#include "base/error.h"
#include "base/text.h"
#include "sanitized.h"
#include "test.h"
#include <breakwater/breakwater.h>
#include <glob.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define STEPS   3u
#define BYTES   6000u
#define WAIT_MS UINT64_C(60000)

/* --- a store that fails, or during which something happens ---- */

static struct {
    void (*submit[BWI_TIERS])(struct bwi_store *s, struct bwi_store_op *op); /* of the stores themselves */
    struct bw_catalog *catalog;
    unsigned long seen, at; /* calls; the number of the one that fails, 0: none */
    enum bwi_store_verb verb;
    const char *part;  /* NULL: any verb and key */
    void (*act)(void); /* instead of failing */
} fault;

static void no_work(struct bwi_io_req *r) {
    r->result = 0;
}

static void refuse(struct bwi_io_req *r) {
    struct bwi_store_op *op = r->user;
    (void)bwi_error_set(&op->error, BW_E_IO, "\"%s\": injected failure", op->key ? op->key : "");
    op->done(op);
}

/* Those that never fail, and those of an upload, which other tests fail. */
static bool counts(const struct bwi_store_op *op) {
    if (fault.part != NULL) return op->verb == fault.verb && op->key != NULL && strstr(op->key, fault.part) != NULL;
    return op->verb != BWI_STORE_RELEASE && op->verb != BWI_STORE_ABORT && op->verb != BWI_STORE_UNLOCK &&
           op->verb != BWI_STORE_WRITE && op->verb != BWI_STORE_FINISH;
}

static void submit(struct bwi_store *s, struct bwi_store_op *op) {
    struct bwi_host *h = &fault.catalog->host;
    const int tier = s == h->ctx.tier[BWI_TIER_LOCAL] ? BWI_TIER_LOCAL : BWI_TIER_REMOTE;
    const bool hit = fault.at > 0 && counts(op) && ++fault.seen == fault.at;
    if (hit && fault.act == NULL) {
        op->req = (struct bwi_io_req){.kind = BWI_IO_CALL, .call = no_work, .done = refuse, .user = op};
        bwi_io_submit(h->io, &op->req);
        return;
    }
    if (hit) fault.act();
    fault.submit[tier](s, op);
}

/* The n-th call of this verb whose key has this part; part NULL: of all. act NULL: it fails. */
static void arm(unsigned long n, enum bwi_store_verb verb, const char *part, void (*act)(void)) {
    fault.seen = 0;
    fault.at = n;
    fault.verb = verb;
    fault.part = part;
    fault.act = act;
}

static bool disarm(void) {
    const bool reached = fault.seen >= fault.at;
    fault.at = 0;
    return reached;
}

/* --- a run ---- */

static char root[600], remote[700], local[700];
static unsigned char saved[BYTES], got[BYTES];

static void fill(uint64_t step) {
    for (unsigned i = 0; i < BYTES; i++) saved[i] = (unsigned char)(i * 7 + step);
}

static void open_launch(const char *launch, struct bw_checkpointer **ret) {
    struct bw_error err = BW_ERROR_INIT;
    struct bw_options o = BW_OPTIONS_INIT;
    o.run = "run", o.job = "job", o.launch = launch, o.world = 1;
    o.remote_url = remote, o.local_url = local;
    o.local_io_depth = 16;
    o.memory_budget_bytes = UINT64_C(64) << 20;
    o.io_threads = 1;
    o.flags = BW_ALLOW_SAME_DEVICE | BW_ALLOW_NODE_LOCAL;
    assert_ok(bw_checkpointer_open(&o, ret, &err), &err);
}

static void save_step(struct bw_checkpointer *ck, uint64_t step) {
    struct bw_error err = BW_ERROR_INIT;
    struct bw_save *save = NULL;
    fill(step);
    assert_ok(bw_save_begin(ck, step, &save, &err), &err);
    assert_ok(bw_save_tensor(save, &BW_TENSOR_OF("w", BW_U8, saved, BYTES), &err), &err);
    assert_ok(bw_save_start(save, &err), &err);
    assert_ok(bw_save_wait(save, BW_COMMITTED, WAIT_MS, &err), &err);
    bw_save_release(save);
}

static struct bw_catalog *open_catalog(void) {
    struct bw_error err = BW_ERROR_INIT;
    struct bw_catalog_options o = BW_CATALOG_OPTIONS_INIT;
    struct bw_catalog *c = NULL;
    o.remote_url = remote, o.local_url = local;
    o.memory_budget_bytes = UINT64_C(64) << 20;
    o.io_threads = 1;
    assert_ok(bw_catalog_open(&o, &c, &err), &err);
    return c;
}

/* Three steps, and a catalog whose stores fail as they are told. */
static void begin(void) {
    struct bw_error err = BW_ERROR_INIT;
    struct bw_checkpointer *ck = NULL;
    (void)snprintf(root, sizeof root, "%s", test_mkdir());
    (void)snprintf(remote, sizeof remote, "%s/remote", root);
    (void)snprintf(local, sizeof local, "%s/local", root);
    open_launch("one", &ck);
    for (uint64_t step = 1; step <= STEPS; step++) save_step(ck, step);
    assert_ok(bw_checkpointer_close(ck, WAIT_MS, &err), &err);
    memset(&fault, 0, sizeof fault);
    fault.catalog = open_catalog();
    for (int t = 0; t < BWI_TIERS; t++) {
        fault.submit[t] = fault.catalog->host.ctx.tier[t]->submit;
        fault.catalog->host.ctx.tier[t]->submit = submit;
    }
}

static void end(void) {
    bw_catalog_close(fault.catalog);
    test_rmdir(root);
}

static void check_step(uint64_t step) {
    struct bw_error err = BW_ERROR_INIT;
    struct bw_reader_options o = BW_READER_OPTIONS_INIT;
    struct bw_restore *r = NULL;
    struct bw_slice s = BW_SLICE_OF("w", BW_U8, got, BYTES);
    o.run = "run", o.step = step, o.remote_url = remote;
    o.memory_budget_bytes = UINT64_C(64) << 20;
    o.io_threads = 1;
    assert_ok(bw_reader_open(&o, &r, &err), &err);
    assert_ok(bw_restore_read(r, &s, 1, &err), &err);
    bw_restore_close(r);
    fill(step);
    assert_memory_equal(saved, got, BYTES);
}

static const char *entry_path(unsigned era, unsigned n) {
    static char path[900];
    (void)snprintf(path, sizeof path, "%s/runs/run/history/%06u.%020u.json", remote, era, n);
    return path;
}

static void flip(const char *path) {
    FILE *f = fopen(path, "r+");
    assert_non_null(f);
    assert_int_equal(fseek(f, 30, SEEK_SET), 0);
    const int c = fgetc(f);
    assert_true(fseek(f, 30, SEEK_SET) == 0 && fputc(c ^ 1, f) == (c ^ 1) && fclose(f) == 0);
}

/* --- verbs ---- */

static char newest[BW_ID_BYTES];

typedef int verb(struct bw_list **ret, struct bw_error *err);

static int runs(struct bw_list **ret, struct bw_error *err) {
    return bw_catalog_runs(fault.catalog, ret, err);
}
static int checkpoints(struct bw_list **ret, struct bw_error *err) {
    return bw_catalog_checkpoints(fault.catalog, "run", ret, err);
}
static int objects(struct bw_list **ret, struct bw_error *err) {
    return bw_catalog_objects(fault.catalog, "run", newest, ret, err);
}
static int refs(struct bw_list **ret, struct bw_error *err) {
    return bw_catalog_refs(fault.catalog, "run", ret, err);
}
static int history(struct bw_list **ret, struct bw_error *err) {
    return bw_catalog_history(fault.catalog, "run", ret, err);
}
static int verify(struct bw_list **ret, struct bw_error *err) {
    return bw_catalog_verify(fault.catalog, "run", NULL, 0, ret, err);
}
static int prune(struct bw_list **ret, struct bw_error *err) {
    const struct bw_prune_options o = {.struct_size = sizeof o, .grace_ms = 0};
    return bw_catalog_prune(fault.catalog, "run", &o, ret, err);
}
static int roll_back(struct bw_list **ret, struct bw_error *err) {
    return bw_catalog_rollback(fault.catalog, "run", 1, NULL, "back", 1, ret, err);
}
static int repair_dry(struct bw_list **ret, struct bw_error *err) {
    return bw_catalog_repair(fault.catalog, "run", 0, ret, err);
}
static int repair(struct bw_list **ret, struct bw_error *err) {
    return bw_catalog_repair(fault.catalog, "run", BW_REPAIR_HISTORY, ret, err);
}
static int pin(struct bw_list **ret, struct bw_error *err) {
    static uint32_t pinned;
    (void)ret;
    return bw_catalog_pin(fault.catalog, "run", newest, pinned ^= 1, err);
}

static void find_newest(void) {
    struct bw_error err = BW_ERROR_INIT;
    struct bw_list *list = NULL;
    struct bw_checkpoint_row row;
    assert_ok(checkpoints(&list, &err), &err);
    for (size_t i = 0; bw_list_checkpoint(list, i, &row); i++) (void)snprintf(newest, sizeof newest, "%s", row.id);
    bw_list_free(list);
}

/* Whether some row says that something could not be read; none calls that damage. */
static bool tells_io(const struct bw_list *list) {
    struct bw_finding f;
    struct bw_run_info r;
    struct bw_history_row h;
    bool told = false;
    for (size_t i = 0; bw_list_finding(list, i, &f); i++) {
        assert_true(f.severity < 2 || f.status == BW_E_IO);
        told = told || f.status == BW_E_IO;
    }
    for (size_t i = 0; bw_list_run(list, i, &r); i++) told = told || r.status == BW_E_IO;
    for (size_t i = 0; bw_list_history(list, i, &h); i++) told = told || h.status == BW_E_IO;
    return told;
}

static bool says(const struct bw_list *list, uint32_t severity, const char *part) {
    struct bw_finding f;
    bool said = false;
    for (size_t i = 0; bw_list_finding(list, i, &f); i++)
        said = said || (f.severity == severity && strstr(f.message, part) != NULL);
    for (size_t i = 0; !said && bw_list_finding(list, i, &f); i++) print_message("%u %s\n", f.severity, f.message);
    return said;
}

static void any_store_call_of_a_verb_may_fail(void **state) {
    static const struct {
        verb *call;
        bool may_be_silent; /* what is not known is left out of a row, or is tried again by others */
    } verbs[] = {{runs, false},   {checkpoints, true}, {objects, false},   {refs, false},       {history, false},
                 {verify, false}, {prune, true},       {roll_back, false}, {repair_dry, false}, {pin, true}};
    unsigned trials = 0;
    (void)state;
    begin();
    find_newest();
    for (size_t i = 0; i < sizeof verbs / sizeof *verbs; i++) {
        bool reached = true;
        for (unsigned long n = 1; reached; n += FULL_OR(1, 3)) {
            struct bw_error err = BW_ERROR_INIT;
            struct bw_list *list = NULL;
            arm(n, 0, NULL, NULL);
            const int rc = verbs[i].call(&list, &err);
            reached = disarm();
            trials += reached;
            if (rc != 0) assert_fails(rc, BW_E_IO, &err, "injected failure");
            if (rc == 0 && !tells_io(list) && reached && !verbs[i].may_be_silent) {
                print_message("verb %zu, call %lu\n", i, n);
                fail();
            }
            bw_list_free(list);
        }
        struct bw_error err = BW_ERROR_INIT;
        struct bw_list *list = NULL;
        assert_ok(verbs[i].call(&list, &err), &err);
        assert_false(tells_io(list));
        bw_list_free(list);
    }
    for (uint64_t step = 1; step <= STEPS; step++) check_step(step);
    (void)printf("  a store call failed %u times\n", trials);
    end();
}

static void the_job_goes_on(void) {
    struct bw_error err = BW_ERROR_INIT;
    struct bw_checkpointer *ck = NULL;
    for (uint64_t step = 1; step <= STEPS; step++) check_step(step);
    open_launch("two", &ck);
    save_step(ck, STEPS + 1);
    assert_ok(bw_checkpointer_close(ck, WAIT_MS, &err), &err);
    check_step(STEPS + 1);
}

static void another_repair(void) {
    struct bw_error err = BW_ERROR_INIT;
    struct bw_list *list = NULL;
    struct bw_catalog *c = open_catalog();
    assert_ok(bw_catalog_repair(c, "run", BW_REPAIR_HISTORY, &list, &err), &err);
    assert_true(says(list, 0, "era 2 has begun from entry 000001."));
    bw_list_free(list);
    bw_catalog_close(c);
}

/* What cannot be read, or made, of the step that the damaged entry had committed: no era begins without it, and the
 * next repair goes on. */
static void any_store_call_of_a_repair_may_fail_and_the_next_one_ends_it(void **state) {
    bool reached = true;
    unsigned failed = 0;
    (void)state;
    begin();
    flip(entry_path(1, STEPS + 1));
    for (unsigned long n = 1; reached; n += FULL_OR(1, 3)) {
        struct bw_error err = BW_ERROR_INIT;
        struct bw_list *list = NULL;
        arm(n, 0, NULL, NULL);
        const int rc = repair(&list, &err);
        reached = disarm();
        failed += rc != 0;
        if (rc != 0) assert_fails(rc, BW_E_IO, &err, "injected failure");
        bw_list_free(list);
        list = NULL;
        assert_ok(repair(&list, &err), &err);
        assert_false(tells_io(list));
        bw_list_free(list);
        for (uint64_t step = 1; step <= STEPS; step++) check_step(step);
        assert_int_equal(unlink(entry_path(2, STEPS + 3)), 0); /* and once more, from the damage on */
        assert_int_equal(unlink(entry_path(1, STEPS + 2)), 0);
    }
    assert_true(failed > 10);
    another_repair();
    the_job_goes_on();
    end();
}

/* The newest step's manifest is damaged as well as the entry that committed it: somebody has to take it away. */
static void a_repair_in_whose_way_something_lies_names_it(void **state) {
    struct bw_error err = BW_ERROR_INIT;
    struct bw_list *list = NULL;
    char pattern[900];
    glob_t found;
    (void)state;
    begin();
    flip(entry_path(1, STEPS + 1));
    (void)snprintf(pattern, sizeof pattern, "%s/runs/run/checkpoints/%020u.*/manifest.*", remote, STEPS);
    assert_int_equal(glob(pattern, 0, NULL, &found), 0);
    flip(found.gl_pathv[0]);
    assert_fails(repair(&list, &err), BW_E_EXISTS, &err, found.gl_pathv[0] + strlen(remote) + 1);
    assert_non_null(strstr(err.message, "the damaged entry may have committed it"));
    assert_int_equal(unlink(found.gl_pathv[0]), 0);
    globfree(&found);
    another_repair();
    the_job_goes_on();
    end();
}

/* --- others, in between ---- */

/* Before the era is ended, before the head is read again, and before the first entry of the next one is made. */
static void of_two_repairs_at_once_one_begins_the_era(void **state) {
    static const struct {
        enum bwi_store_verb verb;
        unsigned long nth;
        const char *part;
    } when[] = {{BWI_STORE_CREATE, 1, "/history/000001."},
                {BWI_STORE_LIST, 3, "/history/"},
                {BWI_STORE_CREATE, 1, "/history/000002."}};
    (void)state;
    for (size_t i = 0; i < sizeof when / sizeof *when; i++) {
        struct bw_error err = BW_ERROR_INIT;
        struct bw_list *list = NULL;
        begin();
        flip(entry_path(1, STEPS + 1));
        arm(when[i].nth, when[i].verb, when[i].part, another_repair);
        assert_ok(repair(&list, &err), &err);
        assert_true(disarm());
        assert_false(says(list, 0, "has begun"));
        bw_list_free(list);
        the_job_goes_on();
        assert_int_equal(access(entry_path(3, STEPS + 5), F_OK), -1);
        end();
    }
}

static char aside[900]; /* where an entry lies that is made in between */

static void another_decides(void) {
    assert_int_equal(rename(aside, entry_path(1, STEPS + 3)), 0);
}

/* Whoever read the log before its newest entry was damaged: what that one decides is decided, and no era begins. */
static void a_repair_begins_no_era_once_somebody_has_decided_more(void **state) {
    struct bw_error err = BW_ERROR_INIT;
    struct bw_list *list = NULL;
    struct bw_checkpointer *ck = NULL;
    (void)state;
    begin();
    open_launch("two", &ck);
    save_step(ck, STEPS + 1);
    assert_ok(bw_checkpointer_close(ck, WAIT_MS, &err), &err);
    (void)snprintf(aside, sizeof aside, "%s/aside", root);
    assert_int_equal(rename(entry_path(1, STEPS + 3), aside), 0);
    flip(entry_path(1, STEPS + 2));
    arm(1, BWI_STORE_CREATE, "/history/000001.", another_decides);
    assert_ok(repair(&list, &err), &err);
    assert_true(disarm());
    assert_true(says(list, 1, "the history has moved meanwhile: nothing was done"));
    bw_list_free(list);
    assert_int_equal(access(entry_path(2, STEPS + 4), F_OK), -1);
    open_launch("three", &ck);
    save_step(ck, STEPS + 2);
    assert_ok(bw_checkpointer_close(ck, WAIT_MS, &err), &err);
    for (uint64_t step = 1; step <= STEPS + 2; step++) check_step(step);
    end();
}

/* --- what one launch left to the next ---- */

static void remove_all(const char *pattern) {
    glob_t found;
    assert_int_equal(glob(pattern, 0, NULL, &found), 0);
    for (size_t i = 0; i < found.gl_pathc; i++) assert_int_equal(unlink(found.gl_pathv[i]), 0);
    globfree(&found);
}

static char *checkpoint_path(const char *base, uint64_t step, const char *part) {
    static char pattern[900];
    (void)snprintf(pattern, sizeof pattern, "%s/runs/run/checkpoints/%020llu.*/%s", base, (unsigned long long)step,
                   part);
    return pattern;
}

/* The newest step is no longer committed: as if its launch had ended before. */
static void uncommit_newest(void) {
    assert_int_equal(unlink(entry_path(1, STEPS + 1)), 0);
    remove_all(checkpoint_path(remote, STEPS, "manifest.*"));
}

static void a_group_that_cannot_be_drained_is_told_and_the_next_drain_copies_it(void **state) {
    struct bw_error err = BW_ERROR_INIT;
    struct bw_list *list = NULL;
    (void)state;
    begin();
    uncommit_newest();
    remove_all(checkpoint_path(remote, STEPS, "groups/*"));
    arm(1, BWI_STORE_CREATE, "/groups/", NULL);
    assert_ok(bw_catalog_drain(fault.catalog, "run", &list, &err), &err);
    assert_true(disarm());
    assert_true(says(list, 2, "injected failure"));
    assert_true(tells_io(list));
    bw_list_free(list);
    assert_ok(bw_catalog_drain(fault.catalog, "run", &list, &err), &err);
    assert_true(says(list, 0, "copied to the authority"));
    bw_list_free(list);
    the_job_goes_on();
    end();
}

/* A launch goes on from a step of the one before and commits it; that entry is damaged, and in the end the step, too.
 */
static void a_repair_takes_up_what_a_launch_went_on_from_if_it_is_sound(void **state) {
    (void)state;
    for (int sound = 1; sound >= 0; sound--) {
        struct bw_error err = BW_ERROR_INIT;
        struct bw_list *list = NULL;
        struct bw_checkpointer *ck = NULL;
        glob_t found;
        begin();
        uncommit_newest();
        open_launch("two", &ck);
        assert_ok(bw_checkpointer_close(ck, WAIT_MS, &err), &err);
        check_step(STEPS); /* register, and the commit of what it goes on from */
        flip(entry_path(1, STEPS + 2));
        assert_int_equal(glob(checkpoint_path(remote, STEPS, "groups/*"), 0, NULL, &found), 0);
        if (!sound) flip(found.gl_pathv[0]);
        globfree(&found);
        assert_ok(repair(&list, &err), &err);
        if (sound) assert_true(says(list, 0, "complete: it becomes live"));
        if (!sound) assert_true(says(list, 1, "not taken up: "));
        assert_true(says(list, 0, "era 2 has begun from entry 000001."));
        bw_list_free(list);
        for (uint64_t step = 1; step < STEPS; step++) check_step(step);
        if (sound) check_step(STEPS);
        end();
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_store_call_of_a_verb_may_fail),
        cmocka_unit_test(any_store_call_of_a_repair_may_fail_and_the_next_one_ends_it),
        cmocka_unit_test(a_repair_in_whose_way_something_lies_names_it),
        cmocka_unit_test(of_two_repairs_at_once_one_begins_the_era),
        cmocka_unit_test(a_repair_begins_no_era_once_somebody_has_decided_more),
        cmocka_unit_test(a_group_that_cannot_be_drained_is_told_and_the_next_drain_copies_it),
        cmocka_unit_test(a_repair_takes_up_what_a_launch_went_on_from_if_it_is_sound),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
