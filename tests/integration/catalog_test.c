/* SPDX-License-Identifier: Apache-2.0 */
/* The verbs of a catalog that change a run: what they refuse, and what they say of what they did. */
#include "job.h"
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#define STATE 70000

static struct bw_catalog *catalog_with_local(const struct place *p) {
    struct bw_catalog_options o = BW_CATALOG_OPTIONS_INIT;
    struct bw_error err = BW_ERROR_INIT;
    struct bw_catalog *c = NULL;
    o.remote_url = p->remote;
    o.local_url = p->local;
    o.memory_budget_bytes = 64 * MIB;
    o.io_threads = 2;
    must_ok(bw_catalog_open(&o, &c, &err), &err);
    return c;
}

static void save_steps(const struct place *p, uint64_t last) {
    struct bw_checkpointer *ck = open_alone(p, "one");
    for (uint64_t step = 1; step <= last; step++) save_filled(ck, step, STATE);
    close_ok(ck);
}

/* Whether a row speaks of the object and says so. The list is let go. */
static bool says(struct bw_list *list, const char *object, int32_t status, const char *part) {
    struct bw_finding f;
    bool said = false;
    for (size_t i = 0; bw_list_finding(list, i, &f); i++)
        said = said || (strcmp(f.object, object) == 0 && f.status == status && strstr(f.message, part) != NULL);
    for (size_t i = 0; !said && bw_list_finding(list, i, &f); i++)
        (void)fprintf(stderr, "%s: %s: %s\n", f.object, bw_status_name(f.status), f.message);
    bw_list_free(list);
    return said;
}

/* --- rollback ---- */

static int back_to(struct bw_catalog *c, uint64_t step, const char *id, const char *label, struct bw_error *err) {
    struct bw_list *list = NULL;
    const int rc = bw_catalog_rollback(c, RUN, step, id, label, 0, &list, err);
    bw_list_free(list);
    return rc;
}

static void a_rollback_names_what_it_cannot_go_back_to(void **state) {
    (void)state;
    struct place p;
    struct bw_error err = BW_ERROR_INIT;
    const char *stranger = "00000000000000000002.7-0badcafe.0";
    place_make(&p);
    save_steps(&p, 4);
    struct bw_catalog *c = catalog_of(&p);
    must_fail(back_to(c, 99, NULL, "back", &err), BW_E_NOTFOUND, &err, "no live checkpoint of step 99 to go back to");
    must_fail(back_to(c, 0, stranger, "back", &err), BW_E_NOTFOUND, &err, stranger);
    must_fail(back_to(c, 2, NULL, "not a name", &err), BW_E_INVALID, &err, "label is \"not a name\"");
    must_ok(back_to(c, 2, NULL, "back", &err), &err);
    must_fail(back_to(c, 1, NULL, "back", &err), BW_E_REFUSED, &err, "label \"back\" was used in this run before");
    bw_catalog_close(c);
    check_bytes(&p, UINT64_MAX, STATE, 2);
    place_drop(&p);
}

/* --- prune ---- */

static void a_prune_names_the_options_that_it_refuses(void **state) {
    (void)state;
    struct place p;
    struct bw_error err = BW_ERROR_INIT;
    struct bw_list *list = NULL;
    place_make(&p);
    save_steps(&p, 2);
    struct bw_catalog *c = catalog_of(&p);
    struct bw_prune_options o = {.struct_size = 7};
    must_fail(bw_catalog_prune(c, RUN, &o, &list, &err), BW_E_INVALID, &err, "struct_size is 7");
    o = (struct bw_prune_options){.struct_size = sizeof o, .retention.reserved = 3};
    must_fail(bw_catalog_prune(c, RUN, &o, &list, &err), BW_E_INVALID, &err, "retention.reserved is 3");
    bw_catalog_close(c);
    must_eq(history_of(&p).live, 2);
    place_drop(&p);
}

/* --- drain ---- */

struct pair {
    struct place p;
    struct board *board;
};

/* Ranks 0 and 1 of a launch end before their drains do; rank 1 is on a node of its own. */
static int rank_that_ends_early(void *arg, unsigned rank) {
    struct pair *q = arg;
    struct bw_options o = options_of(&q->p, "pair", rank, 2);
    const char *other = path_in(q->p.root, "other");
    uint64_t shape = 2, offset = rank, extent = 1;
    void *ballast = calloc(1, 24 * MIB);
    char name[16];
    (void)snprintf(name, sizeof name, "ballast %u", rank);
    if (rank == 1) o.local_url = other;
    o.drain_bytes_per_s = MIB;
    struct bw_checkpointer *ck = open_with(&o);
    struct bw_save *v = begin(ck, 5);
    add_box(v, "w", BW_U8, "x", 1, &shape, &offset, &extent);
    add_bytes(v, name, ballast, 24 * MIB);
    start(v);
    wait_for(v, BW_LOCAL);
    meet(q->board, 0, 2);
    (void)bw_checkpointer_close(ck, 0, NULL);
    free(ballast);
    return 0;
}

static void a_drain_says_what_it_copied_what_is_missing_and_what_it_committed(void **state) {
    (void)state;
    struct pair q = {.board = board_new()};
    struct bw_error err = BW_ERROR_INIT;
    struct bw_list *list = NULL;
    struct bw_progress progress = {0};
    place_make(&q.p);
    run_ranks(rank_that_ends_early, &q, 2);
    struct bw_catalog *c = catalog_with_local(&q.p);
    must_ok(bw_catalog_drain(c, RUN, &list, &err), &err);
    must(says(list, "group 0", 0, "copied to the authority"));
    must_ok(bw_catalog_drain(c, RUN, &list, &err), &err);
    must(says(list, "commit", 0, "1 of 2 groups are missing, the first is group 1"));
    bw_catalog_close(c);
    struct place other = q.p; /* on the other node */
    (void)snprintf(other.local, sizeof other.local, "%.600s/other", q.p.root);
    c = catalog_with_local(&other);
    must_ok(bw_catalog_drain(c, RUN, &list, &err), &err);
    must(says(list, "commit", 0, "committed"));
    must_ok(bw_catalog_verify(c, RUN, NULL, 0, &list, &err), &err);
    bw_list_free(list);
    bw_catalog_progress(c, &progress);
    must(progress.done_bytes >= 48 * MIB && progress.done_bytes <= progress.total_bytes);
    must(progress.done_items > 0 && progress.done_items == progress.total_items);
    bw_catalog_close(c);
    must_eq(history_of(&q.p).live, 1);
    must_be_sound(&q.p);
    board_free(q.board);
    place_drop(&q.p);
}

/* --- what has become of a checkpoint ---- */

/* A rank that has a step complete on its node alone. */
static int rank_that_ends_before_its_drain(void *arg, unsigned rank) {
    struct place *p = arg;
    struct bw_options o = options_of(p, "alone", rank, 1);
    void *m = calloc(1, 24 * MIB);
    o.drain_bytes_per_s = MIB;
    struct bw_checkpointer *ck = open_with(&o);
    struct bw_save *v = begin(ck, 5);
    add_bytes(v, "w", m, 24 * MIB);
    start(v);
    wait_for(v, BW_LOCAL);
    (void)bw_checkpointer_close(ck, 0, NULL);
    free(m);
    return 0;
}

static struct bw_checkpoint_row row_of(struct bw_catalog *c, uint64_t step) {
    struct bw_error err = BW_ERROR_INIT;
    struct bw_list *list = NULL;
    struct bw_checkpoint_row row, found = {.step = UINT64_MAX};
    must_ok(bw_catalog_checkpoints(c, RUN, &list, &err), &err);
    for (size_t i = 0; bw_list_checkpoint(list, i, &row); i++)
        if (row.step == step) found = row;
    bw_list_free(list);
    return found;
}

static void a_list_tells_how_far_a_checkpoint_has_come(void **state) {
    (void)state;
    struct place p;
    struct bw_error err = BW_ERROR_INIT;
    struct bw_list *list = NULL;
    place_make(&p);
    run_ranks(rank_that_ends_before_its_drain, &p, 1);
    struct bw_catalog *c = catalog_with_local(&p);
    struct bw_checkpoint_row row = row_of(c, 5);
    must(row.state == BW_CKPT_PENDING && row.level == BW_LOCAL && row.groups == 1 && row.groups_local == 1);
    must_ok(bw_catalog_drain(c, RUN, &list, &err), &err);
    bw_list_free(list);
    row = row_of(c, 5);
    must(row.state == BW_CKPT_LIVE && row.level == BW_COMMITTED && row.groups_remote == 1);
    /* Of an attempt that this history has not heard of: somebody else may have. */
    const char *ahead = path_in(p.remote, "runs/" RUN "/checkpoints/%020u.9-0badcafe.0", 6u);
    must(mkdir(ahead, 0700) == 0 && mkdir(path_in(ahead, "groups"), 0700) == 0);
    row = row_of(c, 6);
    must(row.state == BW_CKPT_AHEAD && row.level == 0 && row.groups == 0);
    bw_catalog_close(c);
    place_drop(&p);
}

static void what_a_launch_says_lies_in_its_own_place(void **state) {
    (void)state;
    struct place p;
    struct bw_error err = BW_ERROR_INIT;
    struct bw_list *list = NULL;
    struct bw_checkpointer *ck = NULL;
    place_make(&p);
    save_steps(&p, 1);
    struct bw_options o = options_of(&p, "lonely", 0, 2);
    o.open_timeout_ms = 500;
    must_fail(bw_checkpointer_open(&o, &ck, &err), BW_E_TIMEOUT, &err, "missing: 1");
    const char *from = path_in(p.remote, "runs/" RUN "/launches/lonely/refused.json");
    const char *to = path_in(p.remote, "runs/" RUN "/launches/one/refused.json");
    must_eq(rename(from, to), 0);
    struct bw_catalog *c = catalog_of(&p);
    must_ok(bw_catalog_verify(c, RUN, NULL, 0, &list, &err), &err);
    must(says(list, to + strlen(p.remote) + 1, BW_E_CORRUPT, "it is the refusal of launch \"lonely\""));
    bw_catalog_close(c);
    place_drop(&p);
}

/* --- readers ---- */

static void a_reader_counts_what_it_read(void **state) {
    (void)state;
    struct place p;
    struct bw_restore_stats stats = {0};
    unsigned char *m = malloc(STATE);
    place_make(&p);
    save_steps(&p, 2);
    struct bw_restore *r = reader_of(&p, 2);
    read_bytes(r, "w", m, STATE);
    bw_restore_stats(r, &stats);
    must(stats.remote_bytes >= STATE && stats.verified_bytes >= STATE && stats.local_bytes == 0);
    must(stats.metadata_objects > 0 && stats.read_ns > 0 && stats.damaged_extents == 0);
    bw_restore_close(r);
    free(m);
    place_drop(&p);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_rollback_names_what_it_cannot_go_back_to),
        cmocka_unit_test(a_prune_names_the_options_that_it_refuses),
        cmocka_unit_test(a_drain_says_what_it_copied_what_is_missing_and_what_it_committed),
        cmocka_unit_test(a_list_tells_how_far_a_checkpoint_has_come),
        cmocka_unit_test(what_a_launch_says_lies_in_its_own_place),
        cmocka_unit_test(a_reader_counts_what_it_read),
    };
    return run_cases(tests);
}
