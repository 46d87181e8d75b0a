/* SPDX-License-Identifier: Apache-2.0 */
/* One run: two ranks that save, and a prune and a drain beside them, real processes over two tiers in a scratch
 * directory. One of them is killed, or stopped for a while, before or after one of its system calls: any one, or one of
 * a table of named points. Perhaps the next launch fares no better. Then a last one has to go on from the right
 * checkpoint, find it whole to the bit, save again, and leave nothing behind that is not needed.
 *
 *     kill_soak [--points] ...    besides, print how often each named point was hit
 */
#include "kill_check.h"
#include "kill_clock.h"
#include "kill_trace.h"
#include "soak.h"
#include "test.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

enum place { PLACE_RANK_0, PLACE_RANK_1, PLACE_PRUNE, PLACE_DRAIN, PLACE_LAST_0, PLACE_LAST_1, PLACE_CHECK };

/* About how many calls a process of each role makes in a whole launch. */
static const unsigned lengths[KILL_ROLES] = {210, 165, 30, 25};

#define QUOTA_BYTES 30000u /* of four saves on the local tier: the newest, one that may still be, two in flight */
#define SAVE_EVERY  100u   /* runs after which the counts of points are kept */

/* In memory that all processes of a worker share. */
struct stage {
    struct kill_account account;
    struct kill_part parts[KILL_LAUNCHES][PLACE_CHECK + 1];
};

struct run {
    struct stage *stage;
    struct kill_account *a;
    struct kill_team team;
    uint64_t random;
    unsigned crashes; /* launches in which somebody is hit */
    struct kill_aim aim[KILL_LAUNCHES];
    bool with_all[KILL_LAUNCHES]; /* all die together */
    unsigned patience_ms[KILL_LAUNCHES];
    bool afterwards[KILL_LAUNCHES];      /* the tool that is hit comes when the ranks have been killed */
    uint32_t prune_keeps[KILL_LAUNCHES]; /* UINT32_MAX: there is no prune */
    bool drains[KILL_LAUNCHES];
    bool alone[KILL_LAUNCHES]; /* rank 1 never comes */
    unsigned wake_ms;
};

static struct kill_counts *counts;
static const char *counts_file;

/* --- what is drawn ---- */

static unsigned below(struct run *x, unsigned n) {
    return (unsigned)(test_random(&x->random) % n);
}

static bool chance(struct run *x, unsigned percent) {
    return below(x, 100) < percent;
}

static void draw_saves(struct run *x, struct kill_launch *l) {
    static const enum bw_level until[] = {BW_CAPTURED, BW_LOCAL, BW_LOCAL, BW_REMOTE, BW_COMMITTED, BW_COMMITTED};
    l->saves = 1 + below(x, 3);
    for (unsigned i = 0; i < l->saves; i++) {
        struct kill_save_plan *p = &l->plan[i];
        const unsigned fate = below(x, 100);
        /* the commit of a later one ends it for all */
        p->fate = fate < 85 || i + 1 == l->saves ? FATE_SAVED : fate < 92 ? FATE_SKIPPED : FATE_CANCELLED;
        p->by = below(x, KILL_RANKS);
        p->until = until[below(x, 6)];
    }
}

static enum kill_role draw_role(struct run *x) {
    const unsigned n = below(x, 100);
    return n < 40 ? KILL_RANK_0 : n < 65 ? KILL_RANK_1 : n < 83 ? KILL_PRUNE : KILL_DRAIN;
}

static void draw_aim(struct run *x, struct kill_aim *aim) {
    const struct kill_named named = kill_named_at(test_random(&x->random));
    const enum kill_role role = draw_role(x);
    *aim = (struct kill_aim){.role = role, .n = 1 + below(x, lengths[role]), .directed = chance(x, 40)};
    if (aim->directed) {
        aim->role = named.role;
        aim->point = named.point;
        aim->n = chance(x, 80) ? 1 : 2 + below(x, 4);
    }
    aim->after = chance(x, 50);
    aim->freeze = chance(x, 8);
    aim->census = chance(x, 4);
}

static bool is_tool(enum kill_role role) {
    return role == KILL_PRUNE || role == KILL_DRAIN;
}

static bool deletes(const struct kill_aim *aim) {
    const enum kill_verb verb = kill_point_verb(aim->point);
    return aim->directed && (verb == VERB_UNLINK || verb == VERB_RMDIR);
}

/* What only the launches after the first one come to. */
static bool is_of_later_launch(const struct kill_aim *aim) {
    const enum kill_kind kind = kill_point_kind(aim->point);
    return deletes(aim) && aim->role == KILL_PRUNE && (kind == KIND_LAYOUT || kind == KIND_INVENTORY);
}

/* A save is written over packs that leave, and those leave for want of room: with one save at a time, two have to be
 * there. */
static void lead_to_recycling(struct kill_launch *l) {
    l->saves = KILL_SAVES;
    for (unsigned i = 0; i < l->saves; i++)
        l->plan[i] = (struct kill_save_plan){.fate = FATE_SAVED, .until = BW_COMMITTED};
    l->quota_bytes = QUOTA_BYTES * 3 / 4;
}

/* Sees to it that a point is come to that is seldom come to by itself. */
static void lead_to(struct run *x, unsigned i) {
    const struct kill_aim *aim = &x->aim[i];
    struct kill_launch *l = &x->a->launch[i];
    const bool marks = aim->directed && kill_point_kind(aim->point) == KIND_MARK;
    if (aim->directed && kill_point_verb(aim->point) == VERB_RENAME) lead_to_recycling(l);
    if (aim->role == KILL_PRUNE && l->saves < 3) l->saves += below(x, KILL_SAVES - l->saves + 1);
    if (!marks && !(deletes(aim) && !is_tool(aim->role))) return;
    if (l->saves == 1) l->plan[l->saves++] = l->plan[0];
    l->plan[0].fate = FATE_CANCELLED;
    if (!is_tool(aim->role)) l->plan[0].by = (unsigned)aim->role;
}

static void note_keeping(struct run *x, uint32_t keeps) {
    if (keeps == 0 || keeps == UINT32_MAX) return;
    if (x->a->keep_least == 0 || x->a->keep_least > keeps) x->a->keep_least = keeps;
}

static void draw_tools(struct run *x, unsigned i) {
    static const uint32_t keeps[] = {0, 1, 1, 1, 2};
    const enum kill_role role = x->aim[i].role;
    struct kill_launch *l = &x->a->launch[i];
    x->afterwards[i] = is_tool(role) && chance(x, role == KILL_DRAIN ? 70 : 40);
    l->no_rank = is_tool(role) && !x->afterwards[i];
    x->drains[i] = role == KILL_DRAIN || chance(x, 40);
    x->prune_keeps[i] = role == KILL_PRUNE || chance(x, 40) ? keeps[below(x, 5)] : UINT32_MAX;
    if (is_of_later_launch(&x->aim[i])) x->prune_keeps[i] = 1;
    note_keeping(x, x->prune_keeps[i]);
}

static bool aims_at_refusal(const struct kill_aim *aim) {
    return aim->directed && kill_point_kind(aim->point) == KIND_REFUSAL;
}

static void draw_launch(struct run *x, unsigned i) {
    struct kill_launch *l = &x->a->launch[i];
    (void)snprintf(l->name, sizeof l->name, "launch%u", i);
    draw_saves(x, l);
    l->keep_last = chance(x, 25) ? 1 : 0;
    if (l->keep_last > 0) note_keeping(x, 3); /* in flight: 2 */
    l->quota_bytes = chance(x, 25) ? QUOTA_BYTES : 0;
    lead_to(x, i);
    draw_tools(x, i);
    x->with_all[i] = chance(x, 40);
    x->alone[i] = l->hurried = aims_at_refusal(&x->aim[i]);
    if (!l->no_rank && chance(x, 10)) l->hurried = true;
    x->patience_ms[i] = x->afterwards[i] ? 1 + below(x, 60) : below(x, chance(x, 75) ? 20 : 400);
}

static void draw_last(struct run *x) {
    struct kill_launch *l = &x->a->launch[x->crashes];
    (void)snprintf(l->name, sizeof l->name, "last");
    l->saves = 1;
    l->plan[0].until = BW_COMMITTED;
    l->calm = l->no_rank = true;
    x->drains[x->crashes] = chance(x, 20);
    x->prune_keeps[x->crashes] = chance(x, 20) ? below(x, 2) : UINT32_MAX;
    note_keeping(x, x->prune_keeps[x->crashes]);
}

static void draw_aims(struct run *x) {
    const unsigned n = below(x, 100);
    x->crashes = n < 75 ? 1 : n < 95 ? 2 : 3;
    for (unsigned i = 0; i < x->crashes; i++) draw_aim(x, &x->aim[i]);
    if (is_of_later_launch(&x->aim[0])) {
        x->aim[1] = x->aim[0];
        x->aim[0] = (struct kill_aim){.role = KILL_RANK_0, .n = UINT64_MAX}; /* dies when all is done */
        if (x->crashes == 1) x->crashes = 2;
    }
    for (unsigned i = 0; i < x->crashes; i++)
        if (x->aim[i].freeze) x->crashes = i + 1; /* it is watched until it has ended */
}

static void draw(struct run *x, const struct soak_run *r, struct stage *stage) {
    memset(stage, 0, sizeof *stage);
    *x = (struct run){.stage = stage, .a = &stage->account, .random = r->seed};
    x->a->seed = r->seed;
    x->a->talk = r->alone;
    (void)snprintf(x->a->remote, sizeof x->a->remote, "%s/%" PRIu64 "/remote", r->dir, r->index);
    if (!chance(x, 12)) (void)snprintf(x->a->local, sizeof x->a->local, "%s/%" PRIu64 "/local", r->dir, r->index);
    draw_aims(x);
    for (unsigned i = 0; i < x->crashes; i++) draw_launch(x, i);
    x->wake_ms = chance(x, 30) ? 0 : 1 + below(x, 60);
    draw_last(x);
}

/* --- processes ---- */

static int (*main_of(unsigned place))(void *) {
    switch (place) {
    case PLACE_PRUNE: return kill_prune_main;
    case PLACE_DRAIN: return kill_drain_main;
    case PLACE_CHECK: return kill_check_main;
    default: return kill_rank_main;
    }
}

static bool start(struct run *x, unsigned launch, unsigned place, const struct kill_aim *aim) {
    static const char *const names[] = {"rank 0", "rank 1", "prune", "drain", "rank 0", "rank 1", "check"};
    struct kill_part *p = &x->stage->parts[launch][place];
    *p = (struct kill_part){.account = x->a, .launch = launch, .rank = place % 2, .keep_last = x->prune_keeps[launch]};
    if (kill_team_start(&x->team, place, names[place], main_of(place), p, &p->result, aim)) return true;
    kill_violated(x->a, "no process for %s", names[place]);
    return false;
}

struct wait {
    unsigned first, count; /* places that must be empty */
    bool until_hit;
    int but; /* but for this one */
};

static bool is_over(struct kill_team *t, void *user) {
    const struct wait *w = user;
    if (w->until_hit && t->hit.done) return true;
    for (unsigned i = w->first; i < w->first + w->count; i++)
        if ((int)i != w->but && !kill_team_gone(t, i)) return false;
    return true;
}

static void wait_well(struct run *x, struct wait w, const char *what) {
    if (kill_team_wait(&x->team, is_over, &w, KILL_HANG_MS)) return;
    for (unsigned i = 0; i < KILL_PROCESSES; i++) {
        char where[300];
        kill_team_where(&x->team, i, where, sizeof where);
        if (where[0] != '\0') kill_tell(x->a, "%s is at %s", x->team.process[i].name, where);
    }
    kill_violated(x->a, "%s do not come to an end", what);
}

/* Whoever has ended without a word, and was not killed. */
static void expect_words(struct run *x, unsigned first, unsigned count) {
    for (unsigned i = first; i < first + count; i++) {
        const struct kill_process *p = &x->team.process[i];
        if (p->pid > 0 && p->ended && !p->killed && atomic_load(p->result) == 0)
            kill_violated(x->a, "%s ended by itself, status %#x", p->name, p->status);
    }
}

/* --- launches ---- */

static unsigned place_of(enum kill_role role) {
    return (unsigned)role;
}

static void start_all(struct run *x, unsigned i) {
    const unsigned victim = place_of(x->aim[i].role);
    x->team.hit.done = false;
    atomic_store(&x->a->hit, false);
    atomic_store(&x->a->no_more, false);
    atomic_store(&x->a->now, i);
    for (unsigned place = 0; place <= PLACE_DRAIN; place++) {
        if (place == PLACE_PRUNE && x->prune_keeps[i] == UINT32_MAX) continue;
        if (place == PLACE_DRAIN && !x->drains[i]) continue;
        if ((place == victim && x->afterwards[i]) || (place == PLACE_RANK_1 && x->alone[i])) continue;
        if (!start(x, i, place, place == victim ? &x->aim[i] : NULL)) return;
        x->team.process[place].with_victim = place != victim && x->with_all[i] && !x->a->launch[i].no_rank;
    }
}

static void tell_hit(const struct run *x, unsigned i) {
    const struct kill_aim *aim = &x->aim[i];
    char name[96];
    if (!x->a->talk) return;
    kill_point_name(x->team.hit.point, name, sizeof name);
    kill_tell(x->a, "launch %u: %s %s %s %s, call %" PRIu64 ": %s", i, kill_role_name(aim->role),
              x->team.hit.at_end ? "came to its end:"
              : aim->freeze      ? "stopped"
                                 : "killed",
              aim->after ? "after" : "before", name, x->team.hit.call, x->team.hit.path);
}

static bool never(struct kill_team *t, void *user) {
    (void)t;
    (void)user;
    return false;
}

/* All but one that is stopped: that one is waited for until it is. */
static void wait_for_tools(struct run *x, int but) {
    atomic_store(&x->a->no_more, true);
    if (but >= 0) wait_well(x, (struct wait){(unsigned)but, 1, true, -1}, "who is to be stopped");
    wait_well(x, (struct wait){PLACE_RANK_0, PLACE_LAST_0, false, but}, "the tools");
    expect_words(x, PLACE_RANK_0, PLACE_LAST_0);
}

/* One launch whose ranks die at some moment; the tool that comes then is the one that is hit. */
static void crash_afterwards(struct run *x, unsigned i) {
    const unsigned victim = place_of(x->aim[i].role);
    start_all(x, i);
    (void)kill_team_wait(&x->team, never, NULL, x->patience_ms[i]);
    for (unsigned place = 0; place < KILL_RANKS; place++) kill_team_kill(&x->team, place);
    wait_for_tools(x, -1);
    if (!start(x, i, victim, &x->aim[i])) return;
    wait_well(x, (struct wait){victim, 1, true, -1}, "the tool");
    tell_hit(x, i);
    wait_for_tools(x, x->aim[i].freeze ? (int)victim : -1);
}

/* One launch in which somebody is hit. */
static void crash(struct run *x, unsigned i) {
    const bool freeze = x->aim[i].freeze, no_rank = x->a->launch[i].no_rank;
    const int victim = (int)place_of(x->aim[i].role);
    start_all(x, i);
    struct wait w = {PLACE_RANK_0, KILL_RANKS, true, -1};
    wait_well(x, w, "the ranks");
    if (x->team.hit.done) tell_hit(x, i);
    atomic_store(&x->a->hit, x->team.hit.done);
    w.until_hit = false;
    w.but = freeze ? victim : -1;
    if (no_rank)
        wait_well(x, w, "the ranks beside a tool that was hit");
    else if (!x->with_all[i])
        (void)kill_team_wait(&x->team, is_over, &w, x->patience_ms[i]);
    for (unsigned place = 0; place < KILL_RANKS; place++)
        if (!freeze || (int)place != victim) kill_team_kill(&x->team, place);
    wait_for_tools(x, freeze ? victim : -1);
}

/* Who was stopped leads a launch that may not have registered yet: it would be a rival, and might rightly win. */
static bool is_rival(const struct run *x) {
    const unsigned i = x->crashes - 1;
    return x->aim[i].freeze && x->aim[i].role == KILL_RANK_0 && !atomic_load(&x->a->launch[i].rank[0].opened);
}

static bool last_has_opened(struct kill_team *t, void *user) {
    const struct run *x = user;
    (void)t;
    return atomic_load(&x->a->launch[x->crashes].rank[0].opened);
}

/* A rival comes when the last launch has registered; one that has not even looked at the history would do so on top of
 * that, and does not come. */
static void wake(struct run *x) {
    char path[1000];
    (void)snprintf(path, sizeof path, "%s/runs/" KILL_RUN "/launches/%s/000000.json", x->a->remote,
                   x->a->launch[x->crashes - 1].name);
    if (is_rival(x)) (void)kill_team_wait(&x->team, last_has_opened, x, KILL_HANG_MS);
    if (is_rival(x) && access(path, F_OK) != 0)
        kill_team_kill(&x->team, PLACE_RANK_0);
    else
        kill_team_wake(&x->team);
}

/* The launch that has to do it. Somebody of an earlier one may be woken before or meanwhile. */
static void last(struct run *x) {
    const unsigned i = x->crashes;
    atomic_store(&x->a->now, i);
    atomic_store(&x->a->no_more, false);
    if (x->wake_ms == 0 && !is_rival(x)) wake(x);
    bool good = start(x, i, PLACE_LAST_0, NULL);
    good = good && start(x, i, PLACE_LAST_1, NULL);
    const bool tools = good && !x->aim[i - 1].freeze; /* who was stopped has their place */
    if (tools && x->prune_keeps[i] != UINT32_MAX) good = start(x, i, PLACE_PRUNE, NULL);
    if (tools && x->drains[i]) good = start(x, i, PLACE_DRAIN, NULL) && good;
    if (!good) return;
    if (!x->team.woken && !kill_team_gone(&x->team, (unsigned)x->team.victim)) {
        (void)kill_team_wait(&x->team, never, NULL, x->wake_ms);
        wake(x);
    }
    wait_well(x, (struct wait){PLACE_LAST_0, KILL_RANKS, false, -1}, "the ranks of the last launch");
    atomic_store(&x->a->no_more, true);
    wait_well(x, (struct wait){PLACE_RANK_0, PLACE_LAST_0, false, -1},
              "the tools, or those who were stopped and woken");
    expect_words(x, PLACE_RANK_0, PLACE_CHECK);
}

static void check(struct run *x) {
    if (!start(x, x->crashes, PLACE_CHECK, NULL)) return;
    wait_well(x, (struct wait){PLACE_CHECK, 1, false, -1}, "the checks");
    expect_words(x, PLACE_CHECK, 1);
}

static void clean(struct run *x) {
    kill_team_stop(&x->team);
    if (!atomic_load(&x->a->violated) || getenv("BW_TEST_KEEP") == NULL) test_rmdir(x->team.dir);
}

static bool run(struct soak_run *r, void **state) {
    static struct run x;
    char dir[600];
    if (*state == NULL)
        *state = mmap(NULL, sizeof(struct stage), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(*state != MAP_FAILED);
    draw(&x, r, *state);
    (void)snprintf(dir, sizeof dir, "%s/%" PRIu64, r->dir, r->index);
    assert_int_equal(mkdir(dir, 0700), 0);
    kill_team_init(&x.team, dir, counts);
    for (unsigned i = 0; i < x.crashes && !atomic_load(&x.a->violated); i++)
        x.afterwards[i] ? crash_afterwards(&x, i) : crash(&x, i);
    if (!atomic_load(&x.a->violated)) last(&x);
    if (!atomic_load(&x.a->violated)) check(&x);
    clean(&x);
    if (counts_file != NULL && r->index % SAVE_EVERY == SAVE_EVERY - 1) kill_counts_save(counts, counts_file);
    (void)snprintf(r->message, sizeof r->message, "%s", x.a->message);
    if (atomic_load(&x.a->violated)) kill_show_story(x.a);
    return !atomic_load(&x.a->violated);
}

/* --- the program ---- */

/* Takes an option of our own out of the arguments. */
static bool take(int *argc, char **argv, const char *name) {
    for (int i = 1; i < *argc; i++) {
        if (strcmp(argv[i], name) != 0) continue;
        memmove(argv + i, argv + i + 1, (size_t)(*argc - i) * sizeof *argv);
        --*argc;
        return true;
    }
    return false;
}

static const char *value_of(int argc, char **argv, const char *name) {
    for (int i = 1; i + 1 < argc; i++)
        if (strcmp(argv[i], name) == 0) return argv[i + 1];
    return NULL;
}

/* Memory is quicker than a disk, and nothing here hangs on what lasts longer than a process. */
static void prefer_memory(void) {
    struct statvfs v;
    if (getenv("BW_TEST_DIR") == NULL && access("/dev/shm", W_OK) == 0 && statvfs("/dev/shm", &v) == 0 &&
        v.f_bavail * v.f_bsize > UINT64_C(64) << 20)
        (void)setenv("BW_TEST_DIR", "/dev/shm", 1);
}

int main(int argc, char **argv) {
    static char name[700];
    const struct soak soak = {.name = "kill",
                              .run = run,
                              .run_s_max = 300,
                              .help = "  --points        say how often each named point was hit\n"};
    const bool points = take(&argc, argv, "--points");
    const char *state = value_of(argc, argv, "--state");
    prefer_memory();
    counts = kill_counts_new();
    if (counts == NULL) return 2;
    if (state != NULL) {
        (void)snprintf(name, sizeof name, "%s.points", state);
        counts_file = name;
        kill_counts_load(counts, counts_file);
    }
    const int rc = soak_main(&soak, argc, argv);
    if (counts_file != NULL) kill_counts_save(counts, counts_file);
    if (points) kill_counts_print(counts, stdout);
    return rc;
}
