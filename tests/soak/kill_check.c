/* SPDX-License-Identifier: Apache-2.0 */
/* Looks at everything once. */
#include "kill_check.h"
#include "kill_tree.h"
#include "kill_value.h"
#include <stdio.h>
#include <string.h>

#define MIB UINT64_C(1048576)

struct check {
    struct kill_part *part;
    struct kill_account *a;
    struct bw_catalog *catalog;
    struct kill_needed needed;
    uint64_t live_steps[KILL_LIVE_MAX];
    struct bw_error err;
};

static void failed(struct check *c, const char *what) {
    kill_violated(c->a, "at the end: %s: %s: %s", what, bw_status_name(c->err.status), c->err.message);
}

static void check_history(struct check *c) {
    struct bw_list *list = NULL;
    struct bw_history_row row;
    uint64_t n = 0;
    if (bw_catalog_history(c->catalog, KILL_RUN, &list, &c->err) != 0) failed(c, "history");
    for (size_t i = 0; list != NULL && bw_list_history(list, i, &row); i++) {
        if (row.status != 0 || (i > 0 && row.n != n + 1))
            kill_violated(c->a, "entry %llu of the history is wrong or out of its place", (unsigned long long)row.n);
        kill_tell(c->a, "%llu: %s %s %s", (unsigned long long)row.n, row.event, row.subject, row.note);
        n = row.n;
    }
    bw_list_free(list);
}

static void list_live(struct check *c) {
    struct bw_list *list = NULL;
    struct bw_checkpoint_row row;
    c->needed.count = 0;
    if (bw_catalog_checkpoints(c->catalog, KILL_RUN, &list, &c->err) != 0) failed(c, "checkpoints");
    for (size_t i = 0; list != NULL && bw_list_checkpoint(list, i, &row); i++) {
        if (row.state == BW_CKPT_PENDING || row.state == BW_CKPT_AHEAD || row.state == BW_CKPT_FOREIGN)
            kill_violated(c->a, "%s is neither live nor dead at the end: state %u", row.id, row.state);
        if (row.state != BW_CKPT_LIVE || c->needed.count == KILL_LIVE_MAX) continue;
        c->live_steps[c->needed.count] = row.step;
        memcpy(c->needed.id[c->needed.count++], row.id, sizeof row.id);
    }
    bw_list_free(list);
}

/* Retention takes the oldest first and leaves a known number: whatever it took has that many above it. */
static void expect_live(void *user, const struct kill_told *t) {
    struct check *c = user;
    uint32_t above = 0;
    for (unsigned i = 0; i < c->needed.count; i++) {
        if (strcmp(c->needed.id[i], t->id) == 0) return;
        above += c->live_steps[i] > t->step;
    }
    if (c->a->keep_least == 0 || above < c->a->keep_least)
        kill_violated(c->a, "%s was told to be committed and is not live; %u above it are", t->id, above);
}

static void compare_live(struct check *c, const char *id) {
    struct bw_reader_options o = BW_READER_OPTIONS_INIT;
    struct bw_restore *r = NULL;
    o.run = KILL_RUN;
    o.remote_url = c->a->remote;
    o.id = id;
    o.memory_budget_bytes = 64 * MIB;
    o.io_threads = 1;
    if (bw_reader_open(&o, &r, &c->err) != 0) {
        failed(c, id);
        return;
    }
    kill_state_compare(c->a, r, id);
    bw_restore_close(r);
}

static void look_at_findings(struct check *c, const char *what, const struct bw_list *list) {
    struct bw_finding f;
    for (size_t i = 0; list != NULL && bw_list_finding(list, i, &f); i++)
        if (f.severity > 0) kill_violated(c->a, "%s finds in the %s tier: %s: %s", what, f.tier, f.object, f.message);
}

static void verify(struct check *c, uint32_t flags) {
    struct bw_list *list = NULL;
    if (bw_catalog_verify(c->catalog, KILL_RUN, NULL, flags, &list, &c->err) != 0) failed(c, "verify");
    look_at_findings(c, "verify", list);
    bw_list_free(list);
}

/* Long after all of it, so that no temporary is too young. */
static void sweep(struct check *c) {
    struct bw_prune_options o = {.struct_size = sizeof o};
    struct bw_list *list = NULL;
    kill_tree_age(c->a->remote);
    if (c->a->local[0] != '\0') kill_tree_age(c->a->local);
    if (bw_catalog_prune(c->catalog, KILL_RUN, &o, &list, &c->err) != 0) failed(c, "prune");
    look_at_findings(c, "prune", list);
    bw_list_free(list);
}

static void check_all(struct check *c) {
    check_history(c);
    list_live(c);
    kill_each_committed(c->a, KILL_LAUNCHES, expect_live, c);
    for (unsigned i = 0; i < c->needed.count; i++) compare_live(c, c->needed.id[i]);
    verify(c, 0);
    sweep(c);
    verify(c, BW_VERIFY_FAST);
    kill_tree_check(c->a, c->a->remote, &c->needed);
    if (c->a->local[0] != '\0') kill_tree_check(c->a, c->a->local, &c->needed);
}

int kill_check_main(void *arg) {
    static struct check c;
    c.part = arg;
    c.a = c.part->account;
    kill_enter(c.part);
    c.needed.launch = c.a->launch[c.part->launch].name;
    c.needed.attempt = c.a->launch[c.part->launch].attempt;
    c.needed.kills = 2 * KILL_LAUNCHES;
    c.catalog = kill_catalog(c.a, &c.err);
    if (c.catalog == NULL)
        failed(&c, "open");
    else
        check_all(&c);
    bw_catalog_close(c.catalog);
    return 0;
}
