/* SPDX-License-Identifier: Apache-2.0 */
/* A newest history entry that is damaged: writers stop, readers go on, a repair begins the next era; and one that dies
 * half way is gone on with. */
#include "job.h"
#include <glob.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define STATE 5000
#define STEPS 4
#define LAST  (STEPS + 1) /* entry 1 registers the launch, entry n + 1 commits step n */

static void save_steps(const struct place *p) {
    struct bw_checkpointer *ck = open_alone(p, "one");
    for (uint64_t step = 1; step <= STEPS; step++) save_filled(ck, step, STATE);
    close_ok(ck);
}

static const char *entry_path(const struct place *p, unsigned era, unsigned n) {
    return path_in(p->remote, "runs/" RUN "/history/%06u.%020u.json", era, n);
}

static void flip(const char *path) {
    FILE *f = fopen(path, "r+");
    must(f != NULL && fseek(f, 30, SEEK_SET) == 0);
    const int c = fgetc(f);
    must(fseek(f, 30, SEEK_SET) == 0 && fputc(c ^ 1, f) == (c ^ 1) && fclose(f) == 0);
}

static void copy(const char *from, const char *to) {
    char bytes[4096];
    FILE *in = fopen(from, "r");
    FILE *out = fopen(to, "w");
    must(in != NULL && out != NULL);
    const size_t n = fread(bytes, 1, sizeof bytes, in);
    must(n > 0 && n < sizeof bytes && fwrite(bytes, 1, n, out) == n && fclose(out) == 0 && fclose(in) == 0);
}

/* Whether some finding has this severity and this in its message. */
static bool repair_says(const struct place *p, uint32_t what, uint32_t severity, const char *part) {
    struct bw_error err = BW_ERROR_INIT;
    struct bw_list *list = NULL;
    struct bw_finding f;
    bool found = false;
    struct bw_catalog *c = catalog_of(p);
    must_ok(bw_catalog_repair(c, RUN, what, &list, &err), &err);
    for (size_t i = 0; bw_list_finding(list, i, &f); i++)
        found = found || (f.severity == severity && strstr(f.message, part) != NULL);
    bw_list_free(list);
    bw_catalog_close(c);
    return found;
}

static void must_not_open(const struct place *p, const char *launch, int want, const char *part) {
    struct bw_error err = BW_ERROR_INIT;
    struct bw_checkpointer *ck = NULL;
    const struct bw_options o = options_of(p, launch, 0, 1);
    must_fail(bw_checkpointer_open(&o, &ck, &err), want, &err, part);
}

static void all_steps_are_there_and_the_job_goes_on(const struct place *p, const char *launch) {
    for (uint64_t step = 1; step <= STEPS; step++) check_bytes(p, step, STATE, step);
    struct bw_checkpointer *ck = open_alone(p, launch);
    must(resumed_of(ck).step == STEPS && resumed_of(ck).committed == 1);
    save_filled(ck, STEPS + 1, STATE);
    close_ok(ck);
    check_bytes(p, STEPS + 1, STATE, STEPS + 1);
}

/* The newest entry had committed the last step: its data is complete, so the next era has it. */
static void the_next_era_begins_behind_the_end_of_this_one(void **state) {
    (void)state;
    struct place p;
    place_make(&p);
    save_steps(&p);
    flip(entry_path(&p, 1, LAST));
    must_not_open(&p, "two", BW_E_CORRUPT, "repair it first");
    check_bytes(&p, STEPS - 1, STATE, STEPS - 1); /* readers go on from the entry before */
    must(repair_says(&p, 0, 2, "the newest entry is damaged"));
    must(access(entry_path(&p, 1, LAST + 1), F_OK) != 0); /* that was a dry run */
    must(repair_says(&p, BW_REPAIR_HISTORY, 0, "era 2 has begun from entry 000001."));
    must_eq(access(entry_path(&p, 1, LAST + 1), R_OK), 0);
    must_eq(access(entry_path(&p, 2, LAST + 2), R_OK), 0);
    must_eq(access(entry_path(&p, 1, LAST), R_OK), 0); /* what is damaged is left as it is */
    all_steps_are_there_and_the_job_goes_on(&p, "three");
    place_drop(&p);
}

/* A mistaken mkfifo, a link to where the file has been moved, a folder of that name: readers and verify tell of it,
 * and it is repaired as any damage. */
static void put_no_file(const struct place *p, unsigned kind) {
    const char *path = entry_path(p, 1, LAST);
    const char *to = path_in(p->root, "moved");
    must_eq(rename(path, to), 0);
    must_eq(kind == 0 ? mkfifo(path, 0600) : kind == 1 ? symlink(to, path) : mkdir(path, 0700), 0);
}

static void what_is_no_file_in_the_place_of_an_entry_is_damage(void **state) {
    (void)state;
    static const char *const found[] = {"is a FIFO: expected a regular file",
                                        "is a symbolic link: expected a regular file",
                                        "is a directory: expected a regular file"};
    for (unsigned kind = 0; kind < 3; kind++) {
        struct place p;
        place_make(&p);
        save_steps(&p);
        put_no_file(&p, kind);
        must_not_open(&p, "two", BW_E_CORRUPT, found[kind]);
        must_not_open(&p, "two-again", BW_E_CORRUPT, "repair it first");
        check_bytes(&p, STEPS - 1, STATE, STEPS - 1);
        must(repair_says(&p, 0, 2, found[kind]));
        must(repair_says(&p, BW_REPAIR_HISTORY, 0, "era 2 has begun from entry 000001."));
        must(!repair_says(&p, 0, 2, ""));
        all_steps_are_there_and_the_job_goes_on(&p, "three");
        place_drop(&p);
    }
}

/* Under the name of the entry that a running job would create next. */
static void a_job_in_whose_way_no_file_lies_is_told_of_the_repair(void **state) {
    (void)state;
    struct place p;
    struct bw_error err = BW_ERROR_INIT;
    place_make(&p);
    save_steps(&p);
    struct bw_checkpointer *ck = open_alone(&p, "two");
    must_eq(mkfifo(entry_path(&p, 1, LAST + 2), 0600), 0);
    char *m = malloc(STATE);
    must(m != NULL);
    struct bw_save *v = begin_filled(ck, STEPS + 1, m, STATE);
    must_fail(bw_save_wait(v, BW_COMMITTED, 2000, &err), BW_E_TIMEOUT, &err, "repair it first");
    must(strstr(err.message, "is a FIFO: expected a regular file") != NULL);
    bw_save_release(v);
    (void)bw_checkpointer_close(ck, 500, NULL);
    free(m);
    must(repair_says(&p, BW_REPAIR_HISTORY, 0, "era 2 has begun from entry 000001."));
    place_drop(&p);
}

static void a_repair_that_died_half_way_is_gone_on_with(void **state) {
    (void)state;
    struct place p;
    place_make(&p);
    save_steps(&p);
    flip(entry_path(&p, 1, LAST));
    must(repair_says(&p, BW_REPAIR_HISTORY, 0, "era 2 has begun"));
    must_eq(unlink(entry_path(&p, 2, LAST + 2)), 0); /* as if it had not come so far */
    must_not_open(&p, "two", BW_E_CORRUPT, "ends era 1: a repair was begun there and has not ended");
    check_bytes(&p, STEPS - 1, STATE, STEPS - 1);
    must(repair_says(&p, BW_REPAIR_HISTORY, 0, "era 2 has begun from entry 000001."));
    must(access(entry_path(&p, 1, LAST + 2), F_OK) != 0); /* it does not end the era a second time */
    all_steps_are_there_and_the_job_goes_on(&p, "three");
    place_drop(&p);
}

/* A sweep that was interrupted has taken the summaries and left the manifest: such a one cannot be restored. */
static void what_a_sweep_has_begun_to_take_is_lost(void **state) {
    (void)state;
    struct place p;
    place_make(&p);
    save_steps(&p);
    flip(entry_path(&p, 1, LAST));
    glob_t summary;
    must_eq(glob(path_in(p.remote, "runs/" RUN "/checkpoints/%020u.*/groups/000000", 2u), 0, NULL, &summary), 0);
    must_eq(unlink(summary.gl_pathv[0]), 0);
    globfree(&summary);
    must(repair_says(&p, 0, 2, "lost: its summaries are gone"));
    must(repair_says(&p, BW_REPAIR_HISTORY, 0, "complete: it becomes live"));
    must(!repair_says(&p, 0, 2, "lost"));
    check_bytes(&p, 1, STATE, 1);
    check_bytes(&p, STEPS, STATE, STEPS);
    place_drop(&p);
}

/* The first entry of an era is the newest, and damaged too: what stands behind it is the era before. */
static void the_first_entry_of_an_era_may_be_damaged_as_well(void **state) {
    (void)state;
    struct place p;
    place_make(&p);
    save_steps(&p);
    for (unsigned era = 1; era <= 3; era++) {
        const unsigned newest = LAST + 2 * (era - 1);
        flip(entry_path(&p, era, newest));
        must_not_open(&p, era == 1 ? "two" : era == 2 ? "three" : "four", BW_E_CORRUPT, "repair it first");
        check_bytes(&p, STEPS - 1, STATE, STEPS - 1);
        char part[64];
        (void)snprintf(part, sizeof part, "era %u has begun from entry 000001.", era + 1);
        must(repair_says(&p, BW_REPAIR_HISTORY, 0, part));
        must_eq(access(entry_path(&p, era + 1, newest + 2), R_OK), 0);
    }
    all_steps_are_there_and_the_job_goes_on(&p, "five");
    place_drop(&p);
}

/* Whoever had read the log before the damage has decided meanwhile, as if nothing were wrong: then nothing is. */
static void a_sound_entry_behind_the_damaged_one_leaves_nothing_to_repair(void **state) {
    (void)state;
    struct place p;
    char aside[800];
    place_make(&p);
    save_steps(&p);
    (void)snprintf(aside, sizeof aside, "%s/aside", p.root);
    copy(entry_path(&p, 1, LAST), aside);
    must_eq(unlink(entry_path(&p, 1, LAST)), 0);
    flip(entry_path(&p, 1, LAST - 1));
    must(repair_says(&p, 0, 2, "the newest entry is damaged"));
    copy(aside, entry_path(&p, 1, LAST));
    must(!repair_says(&p, BW_REPAIR_HISTORY, 0, "era 2 has begun"));
    all_steps_are_there_and_the_job_goes_on(&p, "two");
    place_drop(&p);
}

/* A copy of an old entry under a newer name would give up all that was decided in between. */
static void an_entry_under_another_name_is_damage(void **state) {
    (void)state;
    struct place p;
    place_make(&p);
    save_steps(&p);
    copy(entry_path(&p, 1, LAST - 2), entry_path(&p, 1, LAST + 1));
    must_not_open(&p, "two", BW_E_CORRUPT, "holds entry 000001.");
    check_bytes(&p, UINT64_MAX, STATE, STEPS);
    must(repair_says(&p, BW_REPAIR_HISTORY, 0, "era 2 has begun"));
    all_steps_are_there_and_the_job_goes_on(&p, "three");
    place_drop(&p);
}

static void the_end_of_an_era_is_listed_and_is_no_damage(void **state) {
    (void)state;
    struct place p;
    struct bw_error err = BW_ERROR_INIT;
    struct bw_list *list = NULL;
    struct bw_history_row row;
    struct bw_finding f;
    size_t ends = 0, damaged = 0;
    place_make(&p);
    save_steps(&p);
    flip(entry_path(&p, 1, LAST));
    must(repair_says(&p, BW_REPAIR_HISTORY, 0, "era 2 has begun"));
    struct bw_catalog *c = catalog_of(&p);
    must_ok(bw_catalog_history(c, RUN, &list, &err), &err);
    must_eq(bw_list_count(list), LAST + 2);
    for (size_t i = 0; bw_list_history(list, i, &row); i++) {
        ends += strcmp(row.event, "era-end") == 0 && row.status == 0 && row.n == LAST + 1;
        damaged += row.status != 0;
    }
    must_eq(ends, 1);
    must_eq(damaged, 1);
    bw_list_free(list);
    must_ok(bw_catalog_verify(c, RUN, NULL, 0, &list, &err), &err);
    damaged = 0;
    for (size_t i = 0; bw_list_finding(list, i, &f);
         i++) { /* the log has been repaired: no damage, but a word about it */
        must(f.severity < 2);
        damaged += f.severity == 1 && strstr(f.object, "/history/000001.00000000000000000005.json") != NULL;
    }
    must_eq(damaged, 1);
    bw_list_free(list);
    bw_catalog_close(c);
    place_drop(&p);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_next_era_begins_behind_the_end_of_this_one),
        cmocka_unit_test(what_is_no_file_in_the_place_of_an_entry_is_damage),
        cmocka_unit_test(a_job_in_whose_way_no_file_lies_is_told_of_the_repair),
        cmocka_unit_test(a_repair_that_died_half_way_is_gone_on_with),
        cmocka_unit_test(what_a_sweep_has_begun_to_take_is_lost),
        cmocka_unit_test(the_first_entry_of_an_era_may_be_damaged_as_well),
        cmocka_unit_test(a_sound_entry_behind_the_damaged_one_leaves_nothing_to_repair),
        cmocka_unit_test(an_entry_under_another_name_is_damage),
        cmocka_unit_test(the_end_of_an_era_is_listed_and_is_no_damage),
    };
    return run_cases(tests);
}
