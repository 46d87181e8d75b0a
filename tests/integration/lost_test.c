/* SPDX-License-Identifier: Apache-2.0 */
/* What somebody has removed from a store, or spoilt there: it is named, and what the message advises works. */
#include "job.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define STATE 5000
#define STEPS 6 /* of save_steps */

/* Entry 1 of the history registers the launch, entry n + 1 commits step n. */
static void save_steps(const struct place *p) {
    struct bw_checkpointer *ck = open_alone(p, "one");
    for (uint64_t step = 1; step <= STEPS; step++) save_filled(ck, step, STATE);
    close_ok(ck);
}

/* ---- entries of the history ---- */

static const char *entry_path(const char *remote, unsigned n) {
    return path_in(remote, "runs/" RUN "/history/000001.%020u.json", n);
}

static void remove_entry(const char *remote, unsigned n) {
    must_eq(unlink(entry_path(remote, n)), 0);
}

/* All that verify says of damage, one finding to a line. The text is static storage. */
static const char *damage_found(const struct place *p) {
    static char text[2000];
    struct bw_error err = BW_ERROR_INIT;
    struct bw_list *list = NULL;
    struct bw_finding f;
    size_t used = 0;
    text[0] = 0;
    struct bw_catalog *c = catalog_of(p);
    must_ok(bw_catalog_verify(c, RUN, NULL, 0, &list, &err), &err);
    must(bw_list_count(list) > 0);
    for (size_t i = 0; bw_list_finding(list, i, &f); i++) {
        if (f.severity != 2) continue;
        used += (size_t)snprintf(text + used, sizeof text - used, "%s %s %s %s\n", bw_status_name(f.status), f.tier,
                                 f.object, f.message);
        must(used < sizeof text);
    }
    bw_list_free(list);
    bw_catalog_close(c);
    return text;
}

#define must_find(p, want) must_at(strcmp(damage_found(p), (want)) == 0, damage_found(p), want, __FILE__, __LINE__)

static void entries_that_are_missing_in_the_middle_are_named(void **state) {
    (void)state;
    struct place p;
    place_make(&p);
    save_steps(&p);
    must_find(&p, "");
    remove_entry(p.remote, 3);
    must_find(&p, "BW_E_CORRUPT remote runs/" RUN "/history/ history: entries 3 to 3 are missing\n");
    remove_entry(p.remote, 5);
    remove_entry(p.remote, 6);
    must_find(&p, "BW_E_CORRUPT remote runs/" RUN "/history/ history: entries 3 to 3 are missing\n"
                  "BW_E_CORRUPT remote runs/" RUN "/history/ history: entries 5 to 6 are missing\n");
    for (uint64_t step = 1; step <= STEPS; step++) check_bytes(&p, step, STATE, step); /* the newest entry says all */
    place_drop(&p);
}

/* A power cut may undo the removal of one, and not of the next. */
static void an_entry_that_was_trimmed_may_come_back(void **state) {
    struct bw_error err = BW_ERROR_INIT;
    struct place p;
    char kept[1400];
    (void)state;
    place_make(&p);
    struct bw_checkpointer *ck = open_alone(&p, "one");
    uint8_t memory[8];
    struct bw_save *v = begin_filled(ck, 1, memory, sizeof memory);
    struct bw_save_stats stats;
    wait_for(v, BW_COMMITTED);
    bw_save_stats(v, &stats);
    bw_save_release(v);
    close_ok(ck);
    (void)snprintf(kept, sizeof kept, "%s/kept", p.root);
    must_eq(link(entry_path(p.remote, 1), kept), 0);
    struct bw_catalog *c = catalog_of(&p);
    for (unsigned i = 0; i < 904; i++) must_ok(bw_catalog_pin(c, RUN, stats.id, i % 2 == 0, &err), &err);
    bw_catalog_close(c);
    must_eq(access(entry_path(p.remote, 1), F_OK), -1);
    must_eq(link(kept, entry_path(p.remote, 1)), 0);
    must_find(&p, "");
    place_drop(&p);
}

static void the_oldest_entries_may_be_gone(void **state) {
    (void)state;
    struct place p;
    place_make(&p);
    save_steps(&p);
    for (unsigned n = 1; n <= STEPS; n++) {
        remove_entry(p.remote, n);
        must_find(&p, "");
    }
    place_drop(&p);
}

/* ---- the identity of a store ---- */

static void spoil(const char *path) {
    must_eq(chmod(path, 0600), 0);
    FILE *f = fopen(path, "w");
    must(f != NULL && fputs("spoilt", f) > 0 && fclose(f) == 0);
}

static void must_not_open(const struct place *p, const char *launch, int want, const char *part) {
    struct bw_error err = BW_ERROR_INIT;
    struct bw_checkpointer *ck = NULL;
    const struct bw_options o = options_of(p, launch, 0, 1);
    must_fail(bw_checkpointer_open(&o, &ck, &err), want, &err, part);
}

/* Step 7 is on the node's disk only when its launch ends. */
static void leave_a_step_on_the_node(const struct place *p) {
    struct bw_error err = BW_ERROR_INIT;
    static unsigned char m[20 * MIB];
    struct bw_options o = options_of(p, "two", 0, 1);
    o.drain_bytes_per_s = MIB; /* far too slow for the deadline */
    struct bw_checkpointer *ck = open_with(&o);
    wait_for(begin_filled(ck, STEPS + 1, m, sizeof m), BW_LOCAL);
    must_fail(bw_checkpointer_close(ck, 100, &err), BW_E_TIMEOUT, &err, "left for the next launch");
}

static void a_local_tier_with_a_new_identity_is_used_as_before(void **state) {
    (void)state;
    struct place p;
    place_make(&p);
    save_steps(&p);
    leave_a_step_on_the_node(&p);
    const char *id = path_in(p.local, "store.json");
    spoil(id);
    must_not_open(&p, "three", BW_E_CORRUPT, "if this is the right directory, remove that file");
    must_eq(unlink(id), 0);
    struct bw_checkpointer *ck = open_alone(&p, "three");
    must(resumed_of(ck).step == STEPS + 1 && resumed_of(ck).committed == 0); /* which only the node had */
    close_ok(ck);
    must_eq(access(id, R_OK), 0);
    place_drop(&p);
}

/* Another store at p's remote place, with an identity of its own and without runs; the old one's runs go there. */
static void move_runs_into_another_store(struct place *p) {
    struct place other = *p;
    (void)snprintf(other.remote, sizeof other.remote, "%s/remote-2", p->root);
    (void)snprintf(other.local, sizeof other.local, "%s/local-2", p->root);
    struct bw_options o = options_of(&other, "elsewhere", 0, 1);
    o.run = "elsewhere";
    close_ok(open_with(&o));
    must_eq(rename(path_in(p->remote, "runs/" RUN), path_in(other.remote, "runs/" RUN)), 0);
    memcpy(p->remote, other.remote, sizeof p->remote);
}

static void a_remote_store_without_its_identity_lives_on_in_another_one(void **state) {
    (void)state;
    struct place p;
    struct bw_error err = BW_ERROR_INIT;
    struct bw_list *list = NULL;
    place_make(&p);
    save_steps(&p);
    spoil(path_in(p.remote, "store.json"));
    must_not_open(&p, "two", BW_E_CORRUPT, "put a sound copy of it back, or move \"runs/\" into another store");
    must_eq(unlink(path_in(p.remote, "store.json")), 0);
    must_not_open(&p, "two", BW_E_FOREIGN, "it holds runs, but \"store.json\" is missing");
    must(access(path_in(p.remote, "store.json"), F_OK) != 0 && errno == ENOENT); /* nobody has made one */
    remove_entry(p.remote, 3);
    move_runs_into_another_store(&p);
    must_find(&p, ""); /* an archive may have gaps */
    must_not_open(&p, "three", BW_E_FOREIGN, "archive");
    struct bw_catalog *c = catalog_of(&p);
    must_ok(bw_catalog_repair(c, RUN, BW_REPAIR_PROMOTE, &list, &err), &err);
    bw_list_free(list);
    bw_catalog_close(c);
    for (uint64_t step = 1; step <= STEPS; step++) check_bytes(&p, step, STATE, step);
    struct bw_checkpointer *ck = open_alone(&p, "four");
    must(resumed_of(ck).step == STEPS && resumed_of(ck).committed == 1);
    save_bytes(ck, STEPS + 1, "x", 1);
    close_ok(ck);
    place_drop(&p);
}

/* ---- damage on the node's disk ---- */

/* Damages each pack below a directory in its last byte; says how many. */
static unsigned damage_packs(const char *dir) {
    char command[900];
    (void)snprintf(
        command, sizeof command,
        "find '%s' -name '*.safetensors' | while read -r f; do chmod u+w \"$f\"; "
        "printf X | dd of=\"$f\" bs=1 seek=$(($(stat -c %%s \"$f\") - 1)) conv=notrunc 2>/dev/null; echo; done",
        dir);
    FILE *p = popen(command, "r");
    unsigned lines = 0;
    must(p != NULL);
    for (int c; (c = fgetc(p)) != EOF;) lines += c == '\n';
    must_eq(pclose(p), 0);
    return lines;
}

static void a_repair_of_the_local_copy_is_told(void **state) {
    (void)state;
    struct place p;
    struct bw_error err = BW_ERROR_INIT;
    struct bw_restore *r = NULL;
    struct bw_event e;
    static unsigned char m[STATE];
    unsigned told = 0;
    place_make(&p);
    save_steps(&p);
    must(damage_packs(p.local) > 0);
    struct bw_checkpointer *ck = open_alone(&p, "two");
    must_ok(bw_restore_open(ck, &r, &err), &err);
    read_bytes(r, "w", m, sizeof m);
    must(is_filled(m, sizeof m, STEPS));
    bw_restore_close(r);
    while (bw_checkpointer_poll(ck, &e))
        told += e.type == BW_EVENT_NOTE && e.status == BW_E_CORRUPT && e.step == STEPS &&
                strstr(e.message, "put right from the other one") != NULL;
    must_eq(told, 1);
    close_ok(ck);
    place_drop(&p);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(entries_that_are_missing_in_the_middle_are_named),
        cmocka_unit_test(an_entry_that_was_trimmed_may_come_back),
        cmocka_unit_test(the_oldest_entries_may_be_gone),
        cmocka_unit_test(a_local_tier_with_a_new_identity_is_used_as_before),
        cmocka_unit_test(a_remote_store_without_its_identity_lives_on_in_another_one),
        cmocka_unit_test(a_repair_of_the_local_copy_is_told),
    };
    return run_cases(tests);
}
