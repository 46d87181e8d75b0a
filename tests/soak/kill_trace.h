/* SPDX-License-Identifier: Apache-2.0 */
/* Processes of one experiment, of which one, the victim, is watched at its system calls and killed or stopped at one of
 * them.
 *
 * Watched are the calls that have to do with files, with all threads of the victim: a filter in the victim stops it
 * there, before the call, and the process that watches lets it go on. What lies between two of those calls cannot be
 * seen from outside, so whoever is killed there might as well have been killed at the next one. */
#ifndef BW_TEST_KILL_TRACE_H
#define BW_TEST_KILL_TRACE_H

#include "kill_points.h"
#include <sys/types.h>

#define KILL_PROCESSES 8u

/* Where the victim is to be hit. */
struct kill_aim {
    enum kill_role role;
    uint64_t n; /* at its n-th call, from 1 */
    bool directed;
    unsigned point; /* directed: at the n-th call of this point */
    bool after;     /* the call has been made */
    bool freeze;    /* stopped, not killed; the call has been made then */
    bool census;    /* every call is looked at and counted */
};

/* How it was hit. */
struct kill_hit {
    bool done;
    bool at_end; /* it came to its end before, and was killed there */
    unsigned point;
    uint64_t call;
    char path[400];
};

struct kill_process {
    pid_t pid; /* 0: none */
    const char *name;
    atomic_int *result; /* in shared memory: what its main returned, plus 1; 0: not yet */
    bool with_victim;   /* killed at the same moment */
    bool killed, ended;
    int status; /* as waitpid tells it */
};

struct kill_team {
    char dir[600]; /* the tiers are below it */
    struct kill_counts *counts;
    struct kill_process process[KILL_PROCESSES];
    int victim; /* its place, -1: none */
    struct kill_aim aim;
    struct kill_hit hit;
    uint64_t calls; /* of the victim so far */
    pid_t aimed;    /* the thread whose call is being waited for */
    bool woken;
};

/* The state of each thread of a process that has not ended, and the system call that it is in: "S 202, S 35". */
void kill_team_where(const struct kill_team *t, unsigned place, char *ret, size_t ret_bytes);
void kill_team_init(struct kill_team *t, const char *dir, struct kill_counts *counts);
/* Runs main(arg) in a process of its own, at a place of the team. `aim` NULL: not the victim. A victim that comes to
 * its end is killed there. false: no process. */
bool kill_team_start(struct kill_team *t, unsigned place, const char *name, int (*main)(void *arg), void *arg,
                     atomic_int *result, const struct kill_aim *aim);
/* Watches until `enough` says so or the time is up (false). It is asked when a process has ended, and every few
 * milliseconds. */
bool kill_team_wait(struct kill_team *t, bool (*enough)(struct kill_team *t, void *user), void *user,
                    unsigned limit_ms);
/* Wakes the victim that was stopped. */
void kill_team_wake(struct kill_team *t);
/* Kills one, if it is still there. */
void kill_team_kill(struct kill_team *t, unsigned place);
/* Kills those that are still there, and waits for their end. */
void kill_team_stop(struct kill_team *t);
/* It was never started, or has ended. */
bool kill_team_gone(const struct kill_team *t, unsigned place);

#endif
