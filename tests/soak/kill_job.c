/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks that save, and tools beside them. */
#include "kill_job.h"
#include "kill_clock.h"
#include "kill_value.h"
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define MIB         UINT64_C(1048576)
#define SLICE_MS    1000u /* of the fast clock */
#define HURRIED_MS  1000u
#define PATIENCE_MS 3000u /* of the machine's time: one that was woken waits in vain for so long */
#define AFTER_HIT   3u    /* slices that a rank goes on waiting when somebody has been hit */
#define LAUNCH_S    7200  /* so much later is each launch */
#define TOOL_US     3000
#define FAST(ms)    ((uint64_t)(ms)*KILL_SPEED)
#define IO_THREADS  2u

struct rank {
    struct kill_part *part;
    struct kill_account *a;
    struct kill_launch *l;
    struct kill_one *one;
    unsigned rank;
    struct bw_checkpointer *ck;
    uint64_t base;
    struct bw_save *saves[KILL_SAVES];
    struct kill_state states[KILL_SAVES];
    struct bw_error err;
    bool good;
};

void kill_enter(const struct kill_part *p) {
    kill_clock_set(KILL_SPEED, (int64_t)p->launch * LAUNCH_S);
}

/* A failure that nobody on earth can have caused by dying. */
static bool is_forgivable(int status) {
    switch (status) {
    case BW_E_TIMEOUT:
    case BW_E_BUSY:
    case BW_E_UNKNOWN:
    case BW_E_ABORTED:
    case BW_E_CANCELLED:
    case BW_E_SKIPPED:
    case BW_E_LAUNCH_LOST: return true;
    default: return false;
    }
}

static bool is_late(const struct rank *x) {
    return atomic_load(&x->a->now) != x->part->launch;
}

/* One that was stopped and woken finds its data swept away under it: whatever it is told then is right, if only it is
 * told. */
static bool failed(struct rank *x, const char *what) {
    const bool strict = x->l->calm || (x->l->no_rank && !is_late(x));
    x->good = false;
    kill_tell(x->a, "launch %u rank %u: %s: %s", x->part->launch, x->rank, what, x->err.message);
    if (strict || (!is_forgivable(x->err.status) && !is_late(x)) || x->err.status == BW_E_INTERNAL)
        kill_violated(x->a, "launch %u rank %u: %s: %s: %s", x->part->launch, x->rank, what,
                      bw_status_name(x->err.status), x->err.message);
    return false;
}

/* --- opening ---- */

/* Where somebody may die, or give up for want of time, the others wait for him in vain: no longer than this. */
static uint64_t patience_ms(const struct kill_launch *l) {
    return FAST(l->calm || l->no_rank ? KILL_HANG_MS : PATIENCE_MS);
}

static bool open_rank(struct rank *x) {
    struct bw_options o = BW_OPTIONS_INIT;
    o.flags = BW_ALLOW_SAME_DEVICE | BW_ALLOW_NODE_LOCAL;
    o.run = KILL_RUN;
    o.job = "job";
    o.launch = x->l->name;
    o.rank = x->rank;
    o.world = KILL_RANKS;
    o.local_url = x->a->local[0] != '\0' ? x->a->local : NULL;
    o.remote_url = x->a->remote;
    o.memory_budget_bytes = 64 * MIB;
    o.io_threads = IO_THREADS;
    o.local_io_depth = 16; /* what is killed is not a probe */
    o.io_timeout_ms = FAST(KILL_HANG_MS);
    o.open_timeout_ms = x->l->hurried ? HURRIED_MS : patience_ms(x->l);
    o.busy_timeout_ms = patience_ms(x->l);
    o.retention.keep_last = x->l->keep_last;
    o.local_quota_bytes = x->l->quota_bytes;
    return bw_checkpointer_open(&o, &x->ck, &x->err) == 0 || failed(x, "open");
}

static bool restore(struct rank *x) {
    const struct bw_resumed *r = &x->one->resumed;
    struct bw_restore *from = NULL;
    if (!r->from_checkpoint) return true;
    if (bw_restore_open(x->ck, &from, &x->err) != 0) return failed(x, "restore");
    kill_state_compare(x->a, from, r->id);
    bw_restore_close(from);
    return true;
}

static bool resume(struct rank *x) {
    bw_checkpointer_resumed(x->ck, &x->one->resumed);
    const struct bw_resumed *r = &x->one->resumed;
    kill_tell(x->a, "launch %u rank %u: attempt %u from \"%s\": %s", x->part->launch, x->rank, r->attempt, r->id,
              r->reason);
    atomic_store(&x->l->attempt, r->attempt);
    atomic_store(&x->one->opened, true);
    kill_judge_resumed(x->a, x->part->launch, r);
    const struct kill_one *other = &x->l->rank[1 - x->rank];
    if (atomic_load(&other->opened) && strcmp(other->resumed.id, r->id) != 0)
        kill_violated(x->a, "launch %u: one rank goes on from \"%s\", the other one from \"%s\"", x->part->launch,
                      r->id, other->resumed.id);
    x->base = r->from_checkpoint ? r->step + 1 : 1;
    return restore(x);
}

/* --- saving ---- */

/* Somebody has died, or has given up for want of time. */
static bool is_doubtful(const struct rank *x) {
    return !x->l->no_rank && (atomic_load(&x->a->hit) || atomic_load(&x->l->rank[1 - x->rank].ended));
}

/* Waits as long as anything may still come of it. */
static bool wait_for(struct rank *x, struct bw_save *v, enum bw_level level) {
    const uint64_t until = kill_clock_ms() + KILL_HANG_MS;
    unsigned after = 0;
    for (;;) {
        if (bw_save_wait(v, level, SLICE_MS, &x->err) == 0) return true;
        if (x->err.status != BW_E_TIMEOUT) return false;
        if (is_doubtful(x) && ++after > AFTER_HIT) return false;
        if (kill_clock_ms() > until) return false;
    }
}

/* Waits for one level after the other and keeps what was told. */
static bool climb(struct rank *x, unsigned i, enum bw_level to) {
    static const enum bw_level ladder[] = {BW_CAPTURED, BW_LOCAL, BW_REMOTE, BW_COMMITTED};
    struct kill_told *t = &x->one->told[i];
    for (unsigned k = 0; k < 4 && ladder[k] <= to; k++) {
        if (atomic_load(&t->level) >= ladder[k]) continue;
        if (!wait_for(x, x->saves[i], ladder[k])) return false;
        t->late = is_late(x);
        atomic_store(&t->level, ladder[k]);
        kill_tell(x->a, "launch %u rank %u: %s is %s", x->part->launch, x->rank, t->id, bw_level_name((int)ladder[k]));
    }
    return true;
}

static bool cancel(struct rank *x, unsigned i) {
    if (bw_save_cancel(x->saves[i], &x->err) != 0) return failed(x, "cancel");
    return true;
}

/* A save that this rank, or the other one, gives up may fail with what follows from that. */
static bool is_expected(const struct rank *x, unsigned i) {
    const int status = x->err.status;
    return x->l->plan[i].fate != FATE_SAVED &&
           (status == BW_E_ABORTED || status == BW_E_CANCELLED || status == BW_E_UNKNOWN);
}

static bool save(struct rank *x, unsigned i) {
    const struct kill_save_plan *plan = &x->l->plan[i];
    struct kill_told *t = &x->one->told[i];
    struct kill_state *state = &x->states[i];
    struct bw_save_stats stats;
    t->step = x->base + i;
    if (plan->fate == FATE_SKIPPED && plan->by == x->rank) return true;
    if (bw_save_begin(x->ck, t->step, &x->saves[i], &x->err) != 0) return failed(x, "begin");
    kill_state_fill(state, x->a, x->part->launch, t->step, x->rank);
    if (kill_state_describe(state, x->saves[i], x->rank, &x->err) != 0) return failed(x, "describe");
    if (bw_save_start(x->saves[i], &x->err) != 0) return is_expected(x, i) || failed(x, "start");
    bw_save_stats(x->saves[i], &stats);
    memcpy(t->id, stats.id, sizeof t->id);
    bool good = climb(x, i, BW_CAPTURED);
    if (good) memset(state, 0, sizeof *state); /* the caller's again */
    if (good && plan->fate == FATE_CANCELLED && plan->by == x->rank) return cancel(x, i);
    good = good && climb(x, i, plan->fate == FATE_SAVED ? plan->until : BW_CAPTURED);
    if (!good) kill_tell(x->a, "launch %u rank %u: save %s: %s", x->part->launch, x->rank, t->id, x->err.message);
    return good || is_expected(x, i) || failed(x, "save");
}

static void save_all(struct rank *x) {
    for (unsigned i = 0; i < x->l->saves && x->good; i++)
        if (!save(x, i)) break;
    for (unsigned i = 0; i < x->l->saves && x->good; i++)
        if (x->saves[i] != NULL && !climb(x, i, BW_COMMITTED) && !is_expected(x, i)) (void)failed(x, "commit");
}

static void close_rank(struct rank *x) {
    const bool hurry = !x->good;
    kill_tell(x->a, "launch %u rank %u: closes%s", x->part->launch, x->rank, hurry ? " in a hurry" : "");
    const int rc = bw_checkpointer_close(x->ck, hurry ? SLICE_MS : FAST(KILL_HANG_MS), &x->err);
    if (rc != 0 && !hurry) (void)failed(x, "close");
}

static void run_rank(struct rank *x) {
    if (!open_rank(x)) return;
    if (resume(x)) save_all(x);
    for (unsigned i = 0; i < KILL_SAVES; i++) bw_save_release(x->saves[i]);
    close_rank(x);
}

int kill_rank_main(void *arg) {
    struct kill_part *p = arg;
    struct kill_launch *l = &p->account->launch[p->launch];
    static struct rank x; /* this process's only one */
    x = (struct rank){.part = p, .a = p->account, .l = l, .one = &l->rank[p->rank], .rank = p->rank};
    x.good = true;
    kill_enter(p);
    run_rank(&x);
    atomic_store(&x.one->ended, true);
    return x.good ? 0 : 1;
}

/* --- tools ---- */

struct bw_catalog *kill_catalog(const struct kill_account *a, struct bw_error *err) {
    struct bw_catalog_options o = BW_CATALOG_OPTIONS_INIT;
    struct bw_catalog *c = NULL;
    o.remote_url = a->remote;
    o.local_url = a->local[0] != '\0' ? a->local : NULL;
    o.memory_budget_bytes = 64 * MIB;
    o.io_threads = IO_THREADS;
    o.io_timeout_ms = FAST(KILL_HANG_MS);
    return bw_catalog_open(&o, &c, err) == 0 ? c : NULL;
}

static int prune(struct kill_part *p, struct bw_catalog *c, struct bw_list **list, struct bw_error *err) {
    struct bw_prune_options o = {.struct_size = sizeof o};
    o.retention.keep_last = p->keep_last;
    return bw_catalog_prune(c, KILL_RUN, &o, list, err);
}

static int drain(struct kill_part *p, struct bw_catalog *c, struct bw_list **list, struct bw_error *err) {
    (void)p;
    return bw_catalog_drain(c, KILL_RUN, list, err);
}

/* Before there is a run, and where another one decides or deletes at the same moment. */
static bool may_fail(int status) {
    return status == BW_E_NOTFOUND || status == BW_E_TIMEOUT || status == BW_E_UNKNOWN;
}

/* Not strict about a tool that was stopped and woken. */
static int use_tool(struct kill_part *p, const char *name,
                    int (*tool)(struct kill_part *p, struct bw_catalog *c, struct bw_list **list,
                                struct bw_error *err)) {
    struct kill_account *a = p->account;
    kill_enter(p);
    do {
        struct bw_error err = BW_ERROR_INIT;
        struct bw_list *list = NULL;
        struct bw_catalog *c = kill_catalog(a, &err);
        const int rc = c != NULL ? tool(p, c, &list, &err) : err.status;
        if (rc != 0 && !may_fail(rc) && atomic_load(&a->now) == p->launch)
            kill_violated(a, "%s in launch %u: %s: %s", name, p->launch, bw_status_name(rc), err.message);
        bw_list_free(list);
        bw_catalog_close(c);
        (void)usleep(TOOL_US);
    } while (!atomic_load(&a->no_more) && atomic_load(&a->now) == p->launch);
    return 0;
}

int kill_prune_main(void *arg) {
    return use_tool(arg, "prune", prune);
}

int kill_drain_main(void *arg) {
    return use_tool(arg, "drain", drain);
}
