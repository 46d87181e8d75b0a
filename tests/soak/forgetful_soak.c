/* SPDX-License-Identifier: Apache-2.0 */
/* One run: two ranks that save, and perhaps a prune and a drain beside them, real processes over two tiers on a mounted
 * file system that forgets what was not synced. At some change of it, or just before a name is made durable, it stands
 * still; all are killed, the power fails, and it is mounted again with what is left. Perhaps the next launch fares no
 * better. Then a last one has to go on from the right checkpoint, find it whole to the bit, save again, and leave
 * nothing behind that is not needed. */
#include "forgetful.h"
#include "kill_check.h"
#include "kill_clock.h"
#include "soak.h"
#include "test.h"
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define POLL_US 500u
#define SKIPPED 77

enum place { PLACE_RANK_0, PLACE_RANK_1, PLACE_PRUNE, PLACE_DRAIN, PLACE_CHECK, PLACES };

/* In memory that all processes of a worker share. */
struct stage {
    struct kill_account account;
    struct kill_part parts[KILL_LAUNCHES][PLACES];
};

struct run {
    struct stage *stage;
    struct kill_account *a;
    struct forgetful *disk;
    char dir[600];
    uint64_t random;
    unsigned crashes; /* launches that do not come to their end */
    pid_t pid[PLACES];
    int status[PLACES]; /* of those that have ended */
};

/* --- what is drawn ---- */

static unsigned below(struct run *x, unsigned n) {
    return (unsigned)(test_random(&x->random) % n);
}

static bool chance(struct run *x, unsigned percent) {
    return below(x, 100) < percent;
}

static void draw_launch(struct run *x, unsigned i) {
    static const enum bw_level until[] = {BW_CAPTURED, BW_LOCAL, BW_LOCAL, BW_REMOTE, BW_COMMITTED, BW_COMMITTED};
    struct kill_launch *l = &x->a->launch[i];
    (void)snprintf(l->name, sizeof l->name, "launch%u", i);
    l->saves = 1 + below(x, 3);
    for (unsigned k = 0; k < l->saves; k++) l->plan[k].until = until[below(x, 6)];
    l->keep_last = chance(x, 25) ? 1 : 0;
    if (l->keep_last > 0) x->a->keep_least = 3; /* in flight: 2 */
}

static void draw_last(struct run *x) {
    struct kill_launch *l = &x->a->launch[x->crashes];
    (void)snprintf(l->name, sizeof l->name, "last");
    l->saves = 1;
    l->plan[0].until = BW_COMMITTED;
    l->calm = true;
}

static void draw(struct run *x, const struct soak_run *r, struct stage *stage) {
    memset(stage, 0, sizeof *stage);
    *x = (struct run){.stage = stage, .a = &stage->account, .random = r->seed};
    x->a->seed = r->seed;
    x->a->talk = r->alone;
    x->crashes = 1 + below(x, 3);
    (void)snprintf(x->dir, sizeof x->dir, "%s/%" PRIu64, r->dir, r->index);
    (void)snprintf(x->a->remote, sizeof x->a->remote, "%s/remote", x->dir);
    (void)snprintf(x->a->local, sizeof x->a->local, "%s/local", x->dir);
    for (unsigned i = 0; i < x->crashes; i++) draw_launch(x, i);
    draw_last(x);
}

/* Where it stands still: before a name that others wait for is durable, or at any change. */
static void aim(struct run *x) {
    static const char *const names[] = {"groups", "history", "000000", "000001", "", ""};
    const char *name = names[below(x, 6)];
    const uint64_t n = name[0] != '\0' ? 1 + below(x, 5) : 1 + below(x, chance(x, 50) ? 150 : 500);
    kill_tell(x->a, "stands still at %" PRIu64 " of \"%s\"", n, name);
    forgetful_aim(x->disk, name, n);
}

/* --- processes ---- */

static void start(struct run *x, unsigned launch, enum place place) {
    static int (*const mains[])(void *arg) = {kill_rank_main, kill_rank_main, kill_prune_main, kill_drain_main,
                                              kill_check_main};
    struct kill_part *p = &x->stage->parts[launch][place];
    *p = (struct kill_part){.account = x->a, .launch = launch, .rank = place % 2};
    (void)fflush(NULL);
    const pid_t pid = fork();
    if (pid == 0) _exit(mains[place](p));
    assert_true(pid > 0);
    x->pid[place] = pid;
}

/* Whether nobody of places first to last is left. */
static bool are_gone(struct run *x, enum place first, enum place last) {
    bool gone = true;
    for (unsigned i = first; i <= last; i++) {
        if (x->pid[i] == 0) continue;
        if (waitpid(x->pid[i], &x->status[i], WNOHANG) == x->pid[i])
            x->pid[i] = 0;
        else
            gone = false;
    }
    return gone;
}

static void wait_for(struct run *x, enum place first, enum place last, uint64_t patience_ms, const char *what) {
    const uint64_t until = kill_clock_ms() + patience_ms;
    while (!are_gone(x, first, last) && !forgetful_stands_still(x->disk)) {
        if (kill_clock_ms() > until) {
            if (what != NULL) kill_violated(x->a, "%s do not come to an end", what);
            return;
        }
        (void)usleep(POLL_US);
    }
}

/* They end when the disk is unmounted, whatever they wait for. */
static void kill_all(struct run *x) {
    for (unsigned i = 0; i < PLACES; i++)
        if (x->pid[i] != 0) (void)kill(x->pid[i], SIGKILL);
}

static void expect_good(struct run *x, enum place first, enum place last) {
    for (unsigned i = first; i <= last; i++)
        if (!WIFEXITED(x->status[i]) || WEXITSTATUS(x->status[i]) != 0)
            kill_violated(x->a, "a process of the last launch ended with status %#x", (unsigned)x->status[i]);
}

/* --- launches ---- */

static void crash(struct run *x, unsigned i) {
    atomic_store(&x->a->now, i);
    aim(x);
    for (enum place p = PLACE_RANK_0; p <= PLACE_RANK_1; p++) start(x, i, p);
    for (enum place p = PLACE_PRUNE; p <= PLACE_DRAIN; p++)
        if (chance(x, 25)) start(x, i, p);
    wait_for(x, PLACE_RANK_0, PLACE_RANK_1, chance(x, 20) ? below(x, 200) : KILL_HANG_MS, NULL);
    const bool still = forgetful_stands_still(x->disk), power = chance(x, 80);
    kill_tell(x->a, "launch %u: %s, %s", i, still ? "it stands still" : "over",
              power ? "the power fails" : "all are killed");
    kill_all(x);
    const bool good = power ? forgetful_crash(x->disk, test_random(&x->random)) : forgetful_go_on(x->disk);
    if (!good) kill_violated(x->a, "the disk cannot be mounted again");
    forgetful_aim(x->disk, "", 0);
    wait_for(x, PLACE_RANK_0, PLACE_CHECK, KILL_HANG_MS, "those who were killed");
}

static void last(struct run *x) {
    const unsigned i = x->crashes;
    atomic_store(&x->a->now, i);
    for (enum place p = PLACE_RANK_0; p <= PLACE_RANK_1; p++) start(x, i, p);
    wait_for(x, PLACE_RANK_0, PLACE_RANK_1, KILL_HANG_MS, "the ranks of the last launch");
    if (atomic_load(&x->a->violated)) return;
    expect_good(x, PLACE_RANK_0, PLACE_RANK_1);
    start(x, i, PLACE_CHECK);
    wait_for(x, PLACE_CHECK, PLACE_CHECK, KILL_HANG_MS, "the checks");
    expect_good(x, PLACE_CHECK, PLACE_CHECK);
}

static bool run(struct soak_run *r, void **state) {
    static struct run x;
    if (*state == NULL)
        *state = mmap(NULL, sizeof(struct stage), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(*state != MAP_FAILED);
    draw(&x, r, *state);
    assert_int_equal(mkdir(x.dir, 0700), 0);
    x.disk = forgetful_start(x.dir);
    assert_non_null(x.disk);
    for (unsigned i = 0; i < x.crashes && !atomic_load(&x.a->violated); i++) crash(&x, i);
    if (!atomic_load(&x.a->violated)) last(&x);
    kill_tell(x.a, "%" PRIu64 " changes", forgetful_changes(x.disk));
    kill_all(&x);
    forgetful_stop(x.disk);
    for (unsigned i = 0; i < PLACES; i++)
        if (x.pid[i] != 0) (void)waitpid(x.pid[i], NULL, 0);
    assert_int_equal(rmdir(x.dir), 0);
    (void)snprintf(r->message, sizeof r->message, "%s", x.a->message);
    return !atomic_load(&x.a->violated);
}

int main(int argc, char **argv) {
    const struct soak soak = {.name = "forgetful", .run = run, .run_s_max = 300};
    if (forgetful_is_possible()) return soak_main(&soak, argc, argv);
    (void)printf("skipped: no /dev/fuse\n");
    return SKIPPED;
}
