/* SPDX-License-Identifier: Apache-2.0 */
/* Processes, shared memory, barriers with a deadline. */
#include "team.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MEET_SECONDS  120
#define LEAVE_SECONDS 20
#define SPINS         1000 /* looks before a waiting rank begins to sleep between them */
#define NAP_NS        50000

struct team_shared {
    _Atomic uint64_t arrived[TEAM_MAX]; /* how many meetings a rank has come to */
    atomic_int broken;                  /* a rank has died: nobody will meet again */
    double values[TEAM_MAX];
    uint64_t numbers[TEAM_MAX];
};

int team_init(struct team *t, uint32_t world, size_t count) {
    const size_t head = 4096, bytes = head + (world + 1) * count * sizeof(float);
    char *base = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (base == MAP_FAILED) return -1;
    *t = (struct team){.world = world, .mapped_bytes = bytes, .shared = (void *)base};
    float *floats = (float *)(void *)(base + head);
    for (uint32_t r = 0; r < world; r++) t->gradients[r] = floats + r * count;
    t->fresh = floats + world * count;
    return 0;
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void nap(long ns) {
    nanosleep(&(struct timespec){0, ns}, NULL);
}

/* What a child's end means as an exit code. */
static int code_of(int wait_status) {
    return WIFEXITED(wait_status) ? WEXITSTATUS(wait_status) : 128 + WTERMSIG(wait_status);
}

/* Collects the children; the first failure breaks the team. */
static int collect(struct team *t, pid_t *pids) {
    int worst = 0;
    double deadline = 0;
    for (uint32_t left = t->world; left > 0;) {
        int status;
        const pid_t pid = waitpid(-1, &status, deadline > 0 ? WNOHANG : 0);
        if (pid < 0 && errno != EINTR) return worst > 1 ? worst : 1;
        if (pid > 0) {
            left--;
            for (uint32_t r = 0; r < t->world; r++)
                if (pids[r] == pid) pids[r] = 0;
            if (code_of(status) > worst) worst = code_of(status);
            if (code_of(status) != 0) atomic_store(&t->shared->broken, 1);
            if (worst != 0 && deadline <= 0) deadline = now() + LEAVE_SECONDS;
            continue;
        }
        if (deadline > 0 && now() > deadline)
            for (uint32_t r = 0; r < t->world; r++)
                if (pids[r] > 0) kill(pids[r], SIGKILL);
        nap(NAP_NS * 20);
    }
    return worst;
}

int team_run(struct team *t, int (*rank_main)(struct team *t, void *arg), void *arg) {
    pid_t pids[TEAM_MAX] = {0};
    const pid_t launcher = getpid();
    for (uint32_t r = 0; r < t->world; r++) {
        fflush(NULL);
        pids[r] = fork();
        if (pids[r] < 0) {
            perror("fork");
            for (uint32_t k = 0; k < r; k++) kill(pids[k], SIGKILL);
            return 1;
        }
        if (pids[r] == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL); /* no rank outlives its launcher */
            if (getppid() != launcher) _exit(1);
            t->rank = r;
            const int code = rank_main(t, arg);
            exit(code);
        }
    }
    return collect(t, pids);
}

int team_meet(struct team *t) {
    const uint64_t meeting = ++t->meetings;
    const double deadline = now() + MEET_SECONDS;
    atomic_store(&t->shared->arrived[t->rank], meeting);
    for (uint32_t r = 0, looks = 0; r < t->world;) {
        if (atomic_load(&t->shared->arrived[r]) >= meeting) {
            r++;
        } else if (atomic_load(&t->shared->broken)) {
            return fprintf(stderr, "rank %u: another rank has ended\n", t->rank), -1;
        } else if (looks++ < SPINS) {
            sched_yield();
        } else {
            if (now() > deadline) return fprintf(stderr, "rank %u: rank %u did not come\n", t->rank, r), -1;
            nap(NAP_NS);
        }
    }
    return 0;
}

int team_share(struct team *t, double value, uint64_t number, double ret_values[TEAM_MAX],
               uint64_t ret_numbers[TEAM_MAX]) {
    t->shared->values[t->rank] = value;
    t->shared->numbers[t->rank] = number;
    if (team_meet(t) < 0) return -1;
    for (uint32_t r = 0; r < t->world; r++) {
        ret_values[r] = t->shared->values[r];
        ret_numbers[r] = t->shared->numbers[r];
    }
    return team_meet(t); /* nobody writes the next values before all have read these */
}
