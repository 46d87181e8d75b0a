/* SPDX-License-Identifier: Apache-2.0 */
/* Watching a process at its system calls, by a filter and ptrace. */
#include "kill_trace.h"
#include "kill_clock.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define TICK_US       10000
#define OPTIONS       (PTRACE_O_EXITKILL | PTRACE_O_TRACECLONE | PTRACE_O_TRACESECCOMP | PTRACE_O_TRACESYSGOOD)
#define SYSCALL_STOP  (SIGTRAP | 0x80)
#define EVENT_OF(s)   ((s) >> 16)
#define COUNT_OF(a)   (sizeof(a) / sizeof *(a))
#define REQUEST(r)    ((enum __ptrace_request)(r))
#define NO_ARG        ((void *)0)
#define PROC_NAME_MAX 64

/* The calls at which a victim is stopped, and what they do: those that change something that others can see, or wait
 * for it to be durable. */
static const struct watched {
    int nr;
    enum kill_verb verb;
} watched[] = {
    {SYS_openat, VERB_CREATE},   {SYS_fallocate, VERB_RESERVE}, {SYS_pwrite64, VERB_WRITE},
    {SYS_ftruncate, VERB_WRITE}, {SYS_fsync, VERB_SYNC},        {SYS_linkat, VERB_LINK},
    {SYS_unlinkat, VERB_UNLINK}, {SYS_mkdirat, VERB_MKDIR},     {SYS_renameat2, VERB_RENAME},
    {SYS_flock, VERB_LOCK},
#ifdef SYS_renameat
    {SYS_renameat, VERB_RENAME},
#endif
};

/* --- the process that is watched ---- */

/* One comparison for each call, in front of the two verdicts. Of the calls that open a file only those count that may
 * make it. */
static bool install_filter(void) {
    enum { COUNT = COUNT_OF(watched), LOOK = COUNT + 2, TRACE = COUNT + 4 };
    struct sock_filter code[COUNT + 6];
    unsigned at = 0;
    code[at++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
    for (unsigned i = 0; i < COUNT; i++, at++)
        code[at] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)watched[i].nr,
                                                (unsigned char)((i == 0 ? LOOK : TRACE) - at - 1), 0);
    code[at++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    code[at++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[2]));
    code[at++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, O_CREAT, 0, 1);
    code[at++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRACE);
    code[at++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    const struct sock_fprog program = {(unsigned short)at, code};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

/* `gate` is readable once the process is watched. */
static void run_child(int gate, int (*main)(void *arg), void *arg, atomic_int *result) {
    char byte;
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (gate >= 0 && (read(gate, &byte, 1) != 1 || !install_filter())) _exit(97);
    const int rc = main(arg);
    atomic_store(result, rc + 1);
    if (gate >= 0) (void)kill(getpid(), SIGKILL);
    _exit(rc);
}

/* --- what a call is about ---- */

struct call {
    pid_t tid;
    int nr;
    uint64_t args[6];
    enum kill_verb verb;
};

static bool ask(pid_t tid, struct call *ret) {
    struct __ptrace_syscall_info info;
    if (ptrace(REQUEST(PTRACE_GET_SYSCALL_INFO), tid, (void *)sizeof info, &info) <= 0) return false;
    *ret = (struct call){.tid = tid, .nr = (int)info.seccomp.nr, .verb = VERBS};
    memcpy(ret->args, info.seccomp.args, sizeof ret->args);
    for (unsigned i = 0; i < COUNT_OF(watched); i++)
        if (watched[i].nr == ret->nr) ret->verb = watched[i].verb;
    if (ret->nr == SYS_unlinkat && (ret->args[2] & AT_REMOVEDIR)) ret->verb = VERB_RMDIR;
    return ret->verb != VERBS;
}

static void path_of_fd(pid_t tid, int fd, char *ret, size_t bytes, bool *ret_directory) {
    static const char deleted[] = " (deleted)";
    char name[PROC_NAME_MAX];
    struct stat st;
    (void)snprintf(name, sizeof name, fd == AT_FDCWD ? "/proc/%d/cwd" : "/proc/%d/fd/%d", tid, fd);
    const ssize_t n = readlink(name, ret, bytes - 1);
    ret[n > 0 ? n : 0] = '\0';
    const size_t cut = sizeof deleted - 1;
    if ((size_t)n > cut && n > 0 && strcmp(ret + (size_t)n - cut, deleted) == 0) ret[(size_t)n - cut] = '\0';
    *ret_directory = stat(name, &st) == 0 && S_ISDIR(st.st_mode);
}

/* A name in the victim's memory. */
static void name_at(pid_t tid, uint64_t address, char *ret, size_t bytes) {
    const size_t page = 4096, left = page - address % page;
    const struct iovec to = {ret, bytes - 1};
    const struct iovec from[2] = {{(void *)(uintptr_t)address, left < bytes - 1 ? left : bytes - 1},
                                  {(void *)(uintptr_t)(address + left), left < bytes - 1 ? bytes - 1 - left : 0}};
    const ssize_t n = process_vm_readv(tid, &to, 1, from, 2, 0);
    ret[n > 0 ? n : 0] = '\0';
    ret[bytes - 1] = '\0';
}

/* Which argument is the directory, and which the name in it; false: the first one is a descriptor. */
static bool names_of(const struct call *c, unsigned *ret_dir, unsigned *ret_name) {
    *ret_dir = c->verb == VERB_LINK || c->verb == VERB_RENAME ? 2 : 0;
    *ret_name = *ret_dir + 1;
    return c->nr == SYS_openat || c->nr == SYS_unlinkat || c->nr == SYS_mkdirat || c->nr == SYS_linkat ||
           c->verb == VERB_RENAME;
}

static unsigned point_of(const struct kill_team *t, const struct call *c, char path[400]) {
    char name[200];
    unsigned dir, at;
    bool directory = false;
    const bool named = names_of(c, &dir, &at);
    path_of_fd(c->tid, (int)c->args[named ? dir : 0], path, 200, &directory);
    if (named) {
        name_at(c->tid, c->args[at], name, sizeof name);
        const size_t n = strlen(path);
        if (name[0] == '/')
            (void)snprintf(path, 400, "%s", name);
        else if (name[0] != '\0' && strcmp(name, ".") != 0)
            (void)snprintf(path + n, 400 - n, "/%s", name);
        directory = c->verb == VERB_MKDIR || c->verb == VERB_RMDIR;
    }
    const size_t root = strlen(t->dir);
    const bool below = strncmp(path, t->dir, root) == 0 && path[root] == '/';
    const struct kill_object o = kill_object_of(below ? path + root + 1 : "", directory);
    return kill_point(&o, c->verb);
}

/* --- hitting ---- */

static void go_on(pid_t tid, int request, int signal) {
    (void)ptrace(REQUEST(request), tid, NO_ARG, (void *)(intptr_t)signal);
}

static void kill_process(struct kill_process *p) {
    if (p->pid <= 0 || p->ended) return;
    p->killed = true;
    (void)kill(p->pid, SIGKILL);
}

static void strike(struct kill_team *t) {
    const enum kill_role role = t->aim.role;
    struct kill_process *victim = &t->process[t->victim];
    if (t->aim.freeze)
        (void)kill(victim->pid, SIGSTOP);
    else
        kill_process(victim);
    for (unsigned i = 0; i < KILL_PROCESSES; i++)
        if (t->process[i].with_victim) kill_process(&t->process[i]);
    t->hit.done = true;
    t->aimed = 0;
    atomic_fetch_add(&t->counts->hits[role][t->hit.point][t->aim.after], 1);
    atomic_fetch_add(&t->counts->kills[role], 1);
    if (t->aim.freeze) atomic_fetch_add(&t->counts->frozen, 1);
}

/* Whether this call is the one. Its path is looked up only where it matters. */
static bool is_aimed_at(struct kill_team *t, pid_t tid) {
    struct call c;
    const bool look = t->aim.census || t->aim.directed || t->calls == t->aim.n;
    if (!look || !ask(tid, &c)) return false;
    if (!t->aim.census && t->aim.directed && c.verb != kill_point_verb(t->aim.point)) return false;
    t->hit.point = point_of(t, &c, t->hit.path);
    if (t->aim.census) atomic_fetch_add(&t->counts->seen[t->aim.role][t->hit.point], 1);
    if (!t->aim.directed) return t->calls == t->aim.n;
    return t->hit.point == t->aim.point && --t->aim.n == 0;
}

static void at_call(struct kill_team *t, pid_t tid) {
    t->calls++;
    if (t->hit.done || t->aimed != 0 || !is_aimed_at(t, tid)) {
        go_on(tid, PTRACE_CONT, 0);
        return;
    }
    t->hit.call = t->calls;
    if (t->aim.after && !t->aim.freeze) {
        t->aimed = tid;
        go_on(tid, PTRACE_SYSCALL, 0);
        return;
    }
    strike(t);
    if (t->aim.freeze) go_on(tid, PTRACE_CONT, 0);
}

static bool stops(int signal) {
    return signal == SIGSTOP || signal == SIGTSTP || signal == SIGTTIN || signal == SIGTTOU;
}

static void stopped(struct kill_team *t, pid_t tid, int status) {
    const int signal = WSTOPSIG(status);
    switch (EVENT_OF(status)) {
    case PTRACE_EVENT_SECCOMP: at_call(t, tid); return;
    case PTRACE_EVENT_STOP: go_on(tid, stops(signal) ? PTRACE_LISTEN : PTRACE_CONT, 0); return;
    case 0: break;
    default: go_on(tid, PTRACE_CONT, 0); return;
    }
    if (signal != SYSCALL_STOP) {
        go_on(tid, PTRACE_CONT, signal);
        return;
    }
    if (tid == t->aimed)
        strike(t);
    else
        go_on(tid, PTRACE_CONT, 0);
}

static void ended(struct kill_team *t, pid_t pid, int status) {
    for (unsigned i = 0; i < KILL_PROCESSES; i++) {
        struct kill_process *p = &t->process[i];
        if (p->pid != pid || p->ended) continue;
        p->ended = true;
        p->status = status;
        if ((int)i != t->victim || t->hit.done) continue;
        /* It had come to its end, and killed itself there: the whole length of such a run. */
        t->hit = (struct kill_hit){.done = true, .at_end = true, .call = t->calls};
        if (atomic_load(p->result) == 1) {
            atomic_fetch_add(&t->counts->wholes[t->aim.role], 1);
            atomic_fetch_add(&t->counts->whole_calls[t->aim.role], t->calls);
        }
        atomic_fetch_add(&t->counts->kills[t->aim.role], 1);
        atomic_fetch_add(&t->counts->at_end, 1);
    }
}

/* --- the team ---- */

static void tick(int signal) {
    (void)signal;
}

void kill_team_init(struct kill_team *t, const char *dir, struct kill_counts *counts) {
    const struct sigaction quiet = {.sa_handler = tick};
    char *real = realpath(dir, NULL);
    *t = (struct kill_team){.counts = counts, .victim = -1};
    (void)snprintf(t->dir, sizeof t->dir, "%s", real != NULL ? real : dir);
    free(real);
    (void)sigaction(SIGALRM, &quiet, NULL); /* only so that waiting returns */
}

bool kill_team_start(struct kill_team *t, unsigned place, const char *name, int (*main)(void *arg), void *arg,
                     atomic_int *result, const struct kill_aim *aim) {
    struct kill_process *p = &t->process[place];
    int gate[2] = {-1, -1};
    if (aim != NULL && pipe(gate) != 0) return false;
    (void)fflush(NULL);
    atomic_store(result, 0);
    *p = (struct kill_process){.name = name, .result = result};
    p->pid = fork();
    if (p->pid == 0) run_child(gate[0], main, arg, result);
    bool good = p->pid > 0;
    if (good && aim != NULL) {
        t->victim = (int)place;
        t->aim = *aim;
        t->hit = (struct kill_hit){0};
        t->calls = 0;
        t->aimed = 0;
        t->woken = false;
        good = ptrace(PTRACE_SEIZE, p->pid, NO_ARG, (void *)OPTIONS) == 0 && write(gate[1], "", 1) == 1;
    }
    if (aim != NULL) {
        (void)close(gate[0]);
        (void)close(gate[1]);
    }
    if (p->pid < 0) p->pid = 0;
    return good;
}

static void set_ticking(bool on) {
    const struct itimerval every = {{0, on ? TICK_US : 0}, {0, on ? TICK_US : 0}};
    (void)setitimer(ITIMER_REAL, &every, NULL);
}

bool kill_team_wait(struct kill_team *t, bool (*enough)(struct kill_team *t, void *user), void *user,
                    unsigned limit_ms) {
    const uint64_t until = kill_clock_ms() + limit_ms;
    bool good = enough(t, user);
    set_ticking(true);
    while (!good) {
        int status = 0;
        const pid_t pid = waitpid(-1, &status, __WALL);
        if (pid > 0 && WIFSTOPPED(status)) {
            stopped(t, pid, status);
            continue;
        }
        if (pid > 0) ended(t, pid, status);
        good = enough(t, user);
        if (good || kill_clock_ms() > until || (pid < 0 && errno == ECHILD)) break;
    }
    set_ticking(false);
    return good;
}

void kill_team_wake(struct kill_team *t) {
    if (t->victim < 0 || t->woken) return;
    t->woken = true;
    (void)kill(t->process[t->victim].pid, SIGCONT);
}

/* --- where they are ---- */

/* The first `max` bytes of a file of /proc. */
static void look_at(const char *path, char *ret, size_t max) {
    FILE *f = fopen(path, "r");
    const size_t n = f != NULL ? fread(ret, 1, max - 1, f) : 0;
    ret[n] = '\0';
    if (f != NULL) (void)fclose(f);
}

void kill_team_where(const struct kill_team *t, unsigned place, char *ret, size_t ret_bytes) {
    char path[PROC_NAME_MAX], stat[256], call[64];
    ret[0] = '\0';
    if (kill_team_gone(t, place)) return;
    (void)snprintf(path, sizeof path, "/proc/%d/task", (int)t->process[place].pid);
    DIR *tasks = opendir(path);
    for (const struct dirent *e; tasks != NULL && (e = readdir(tasks)) != NULL;) {
        const size_t at = strlen(ret);
        if (e->d_name[0] == '.') continue;
        (void)snprintf(path, sizeof path, "/proc/%.16s/stat", e->d_name);
        look_at(path, stat, sizeof stat);
        (void)snprintf(path, sizeof path, "/proc/%.16s/syscall", e->d_name);
        look_at(path, call, sizeof call);
        const char *state = strrchr(stat, ')');
        (void)snprintf(ret + at, ret_bytes - at, "%s%.1s %.*s", at > 0 ? ", " : "",
                       state != NULL && state[1] != '\0' ? state + 2 : "?", (int)strcspn(call, " \n"), call);
    }
    if (tasks != NULL) (void)closedir(tasks);
}

bool kill_team_gone(const struct kill_team *t, unsigned place) {
    return t->process[place].pid == 0 || t->process[place].ended;
}

static bool all_gone(struct kill_team *t, void *user) {
    (void)user;
    for (unsigned i = 0; i < KILL_PROCESSES; i++)
        if (!kill_team_gone(t, i)) return false;
    return true;
}

void kill_team_kill(struct kill_team *t, unsigned place) {
    kill_process(&t->process[place]);
}

void kill_team_stop(struct kill_team *t) {
    for (unsigned i = 0; i < KILL_PROCESSES; i++) kill_process(&t->process[i]);
    (void)kill_team_wait(t, all_gone, NULL, 10000);
}
