/* SPDX-License-Identifier: Apache-2.0 */
/* Repeats an experiment in worker processes, and keeps count. */
#include "soak.h"
#include "test.h"
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <inttypes.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define JOBS_MAX     64u
#define RUN_S_MAX    120u
#define PROGRESS_S   10u
#define VIOLATIONS   20u /* a soak that finds so many is stopped */
#define OUTPUT_BYTES 4000
#define PAUSE_MS     2000 /* between two looks: nobody was at work */

struct worker {
    pid_t pid;
    FILE *output;
    char dir[600];
};

/* What workers and the process above them share. */
struct shared {
    atomic_ullong next; /* the first run that nobody has taken */
    atomic_uint violations;
    struct slot {
        atomic_ullong at;       /* the run that it is at */
        atomic_ullong since_ms; /* since when; 0: at none */
        atomic_bool said;       /* its run has told of a violation */
        char message[512];
    } slot[JOBS_MAX];
};

struct options {
    uint64_t count, seed, only;
    unsigned jobs, violations_max;
    const char *dir, *state_file;
    bool alone;
};

struct supervisor {
    const struct soak *soak;
    struct options o;
    struct shared *shared;
    struct worker workers[JOBS_MAX];
    uint64_t first; /* runs of earlier starts */
    uint64_t began_ms, told_ms, looked_ms;
};

static volatile sig_atomic_t told_to_stop;

static void on_signal(int number) {
    told_to_stop = number;
}

static uint64_t now_ms(void) {
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

static uint64_t seed_of(const struct options *o, uint64_t index) {
    uint64_t state = o->seed * UINT64_C(0xd1342543de82ef95) + index;
    (void)test_random(&state);
    return test_random(&state);
}

static void stop(const char *what, const char *which) {
    fprintf(stderr, "%s: %s\n", what, which);
    exit(2);
}

static uint64_t number(const char *option, const char *text) {
    char *end, found[100];
    errno = 0;
    const unsigned long long n = strtoull(text, &end, 0);
    (void)snprintf(found, sizeof found, "'%s' is not a number from 0 to 2^64 - 1", text);
    if (errno != 0 || end == text || *end != '\0' || text[0] == '-') stop(option, found);
    return n;
}

static void help(const struct soak *s, const char *program) {
    printf("usage: %s [--count N] [--seed S] [--jobs J] [--dir DIR] [--state FILE] [--only RUN] [--violations N]\n\n"
           "  --count N       so many runs (1000), the same ones whenever the seed is the same\n"
           "  --seed S        of all of them (1)\n"
           "  --jobs J        workers (one per CPU)\n"
           "  --dir DIR       for scratch files\n"
           "  --state FILE    how far it has come; where the file is there, it goes on from that\n"
           "  --only RUN      this run alone, and what happens in it\n"
           "  --violations N  stop after so many (20)\n"
           "%s\n"
           "The last line is \"N runs, N violations\"; the exit status is 0 without a violation.\n",
           program, s->help ? s->help : "");
    exit(0);
}

static void parse(const struct soak *s, int argc, char **argv, struct options *o) {
    static const struct option known[] = {{"count", 1, NULL, 'c'},      {"seed", 1, NULL, 's'},  {"jobs", 1, NULL, 'j'},
                                          {"dir", 1, NULL, 'd'},        {"state", 1, NULL, 'f'}, {"only", 1, NULL, 'o'},
                                          {"violations", 1, NULL, 'v'}, {"help", 0, NULL, 'h'},  {NULL, 0, NULL, 0}};
    struct stat dir;
    const long cpus = sysconf(_SC_NPROCESSORS_ONLN);
    *o = (struct options){.count = 1000,
                          .seed = 1,
                          .violations_max = VIOLATIONS,
                          .jobs = cpus > 0 && cpus < JOBS_MAX ? (unsigned)cpus : 2};
    for (int c; (c = getopt_long(argc, argv, "", known, NULL)) != -1;) {
        switch (c) {
        case 'c': o->count = number("--count", optarg); break;
        case 's': o->seed = number("--seed", optarg); break;
        case 'j': o->jobs = (unsigned)number("--jobs", optarg); break;
        case 'd': o->dir = optarg; break;
        case 'v': o->violations_max = (unsigned)number("--violations", optarg); break;
        case 'f': o->state_file = optarg; break;
        case 'o': o->only = number("--only", optarg), o->alone = true; break;
        case 'h': help(s, argv[0]); break;
        default: exit(2);
        }
    }
    if (optind < argc) stop(argv[optind], "unknown argument");
    if (o->jobs == 0 || o->jobs > JOBS_MAX) stop("--jobs", "must be from 1 to 64");
    if (o->count == 0) stop("--count", "must be 1 or more");
    if (o->dir != NULL && access(o->dir, W_OK) != 0) stop(o->dir, strerror(errno));
    if (o->dir != NULL && stat(o->dir, &dir) == 0 && !S_ISDIR(dir.st_mode)) stop(o->dir, strerror(ENOTDIR));
    if (o->dir != NULL && setenv("BW_TEST_DIR", o->dir, 1) != 0) stop("--dir", strerror(errno));
}

/* --- a worker ---- */

static bool run_one(const struct supervisor *v, struct soak_run *r, uint64_t index, void **state) {
    r->index = index;
    r->seed = seed_of(&v->o, index);
    r->message[0] = '\0';
    return v->soak->run(r, state);
}

static void work(const struct supervisor *v, struct slot *slot, const char *dir) {
    struct soak_run r = {.dir = dir};
    void *state = NULL;
    for (;;) {
        const uint64_t index = atomic_fetch_add(&v->shared->next, 1);
        if (index >= v->o.count || atomic_load(&v->shared->violations) >= v->o.violations_max) break;
        atomic_store(&slot->at, index);
        atomic_store(&slot->since_ms, now_ms());
        if (!run_one(v, &r, index, &state)) {
            memcpy(slot->message, r.message, sizeof slot->message);
            atomic_store(&slot->said, true);
            exit(1);
        }
    }
    atomic_store(&slot->since_ms, 0);
    if (v->soak->end != NULL) v->soak->end(state);
    exit(0);
}

static void start_worker(struct supervisor *v, unsigned i) {
    struct worker *w = &v->workers[i];
    struct slot *slot = &v->shared->slot[i];
    memset(slot, 0, sizeof *slot);
    (void)snprintf(w->dir, sizeof w->dir, "%s", test_mkdir());
    w->output = tmpfile();
    if (w->output == NULL) stop("a file for the output", strerror(errno));
    (void)fflush(NULL);
    w->pid = fork();
    if (w->pid < 0) stop("fork", strerror(errno));
    if (w->pid > 0) return;
    (void)signal(SIGINT, SIG_DFL);
    (void)signal(SIGTERM, SIG_DFL);
    (void)setpgid(0, 0);                    /* so that what it started dies with it */
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL); /* and it with the soak */
    (void)dup2(fileno(w->output), STDOUT_FILENO);
    (void)dup2(fileno(w->output), STDERR_FILENO);
    work(v, slot, w->dir);
}

/* --- the process above ---- */

static void show_output(FILE *f) {
    char text[OUTPUT_BYTES];
    if (fseek(f, 0, SEEK_END) != 0) return;
    const long end = ftell(f);
    (void)fseek(f, end > OUTPUT_BYTES ? end - OUTPUT_BYTES : 0, SEEK_SET);
    const size_t n = fread(text, 1, sizeof text, f);
    (void)fwrite(text, 1, n, stdout);
}

static void tell_violation(const struct supervisor *v, unsigned i, const char *how, int number_of_it) {
    struct slot *slot = &v->shared->slot[i];
    const unsigned long long at = atomic_load(&slot->at);
    printf("violation: run %llu of seed %" PRIu64 ": ", at, v->o.seed);
    if (atomic_load(&slot->said))
        printf("%s\n", slot->message);
    else
        printf("%s %d\n", how, number_of_it);
    show_output(v->workers[i].output);
    printf("again: ./dev soak %s --seed %" PRIu64 " --only %llu\n", v->soak->name, v->o.seed, at);
    (void)fflush(stdout);
}

/* What a worker that has ended leaves; true: there is work for another one. */
static bool bury(struct supervisor *v, unsigned i, int status) {
    struct worker *w = &v->workers[i];
    const bool good = WIFEXITED(status) && WEXITSTATUS(status) == 0;
    (void)kill(-w->pid, SIGKILL);
    w->pid = 0;
    if (!good) {
        atomic_fetch_add(&v->shared->violations, 1);
        tell_violation(v, i, WIFSIGNALED(status) ? "ended by signal" : "exit status",
                       WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
    }
    (void)fclose(w->output);
    test_rmdir(w->dir);
    return !good && atomic_load(&v->shared->violations) < v->o.violations_max;
}

/* Runs below this number have ended. */
static uint64_t runs_done(const struct supervisor *v) {
    uint64_t done = atomic_load(&v->shared->next);
    for (unsigned i = 0; i < v->o.jobs; i++) {
        const struct slot *slot = &v->shared->slot[i];
        if (v->workers[i].pid == 0 || atomic_load(&slot->since_ms) == 0) continue;
        const uint64_t at = atomic_load(&slot->at);
        if (at < done) done = at;
    }
    return done < v->o.count ? done : v->o.count;
}

static void save_state(const struct supervisor *v) {
    char name[700];
    if (v->o.state_file == NULL) return;
    (void)snprintf(name, sizeof name, "%s.new", v->o.state_file);
    FILE *f = fopen(name, "w");
    if (f == NULL) stop(name, strerror(errno));
    fprintf(f, "%s %" PRIu64 " %" PRIu64 " %u\n", v->soak->name, v->o.seed, runs_done(v),
            atomic_load(&v->shared->violations));
    if (fclose(f) != 0 || rename(name, v->o.state_file) != 0) stop(name, strerror(errno));
}

static void load_state(struct supervisor *v) {
    char name[64];
    uint64_t seed, done;
    unsigned violations;
    FILE *f = v->o.state_file != NULL ? fopen(v->o.state_file, "r") : NULL;
    if (f == NULL) return;
    if (fscanf(f, "%63s %" SCNu64 " %" SCNu64 " %u", name, &seed, &done, &violations) != 4)
        stop(v->o.state_file, "not a state of a soak");
    (void)fclose(f);
    if (strcmp(name, v->soak->name) != 0 || seed != v->o.seed)
        stop(v->o.state_file, "is of another soak, or of another seed");
    if (done > v->o.count) stop(v->o.state_file, "has come further than --count");
    v->first = done;
    atomic_store(&v->shared->next, done);
    atomic_store(&v->shared->violations, violations);
}

static void tell_progress(struct supervisor *v) {
    const uint64_t now = now_ms(), done = runs_done(v);
    if (now - v->told_ms < PROGRESS_S * 1000) return;
    v->told_ms = now;
    const uint64_t s = (now - v->began_ms) / 1000;
    printf("%s: %" PRIu64 " of %" PRIu64 " runs, %u violations, %" PRIu64 " s, %" PRIu64 " runs/s\n", v->soak->name,
           done, v->o.count, atomic_load(&v->shared->violations), s, s > 0 ? (done - v->first) / s : 0);
    (void)fflush(stdout);
    save_state(v);
}

/* While all of it was stopped (SIGSTOP, a machine that slept) no run took longer. */
static void leave_out_pauses(struct supervisor *v) {
    const uint64_t now = now_ms(), pause_ms = now - v->looked_ms;
    v->looked_ms = now;
    if (pause_ms < PAUSE_MS) return;
    for (unsigned i = 0; i < v->o.jobs; i++) {
        unsigned long long since = atomic_load(&v->shared->slot[i].since_ms);
        const unsigned long long later = since + pause_ms < now ? since + pause_ms : now;
        if (since != 0) (void)atomic_compare_exchange_strong(&v->shared->slot[i].since_ms, &since, later);
    }
}

static void stop_those_that_hang(const struct supervisor *v) {
    const uint64_t limit_ms = (v->soak->run_s_max != 0 ? v->soak->run_s_max : RUN_S_MAX) * UINT64_C(1000);
    for (unsigned i = 0; i < v->o.jobs; i++) {
        const uint64_t since = atomic_load(&v->shared->slot[i].since_ms);
        if (v->workers[i].pid == 0 || since == 0 || now_ms() <= since + limit_ms) continue;
        printf("%s: a run takes more than %" PRIu64 " s\n", v->soak->name, limit_ms / 1000);
        (void)kill(-v->workers[i].pid, SIGKILL);
    }
}

/* What a worker that is killed had mounted would stay. */
static void unmount_below(const char *dir) {
    char line[2000], at[1000];
    const size_t len = strlen(dir);
    FILE *f = fopen("/proc/self/mounts", "r");
    while (f != NULL && fgets(line, sizeof line, f) != NULL)
        if (sscanf(line, "%*s %999s", at) == 1 && strncmp(at, dir, len) == 0 && at[len] == '/')
            (void)umount2(at, MNT_DETACH);
    if (f != NULL) (void)fclose(f);
}

/* Somebody has lost patience: what is at work is done anew the next time. */
static void give_up(struct supervisor *v) {
    for (unsigned i = 0; i < v->o.jobs; i++) {
        struct worker *w = &v->workers[i];
        if (w->pid == 0) continue;
        (void)kill(-w->pid, SIGKILL);
        (void)waitpid(w->pid, NULL, 0);
        (void)fclose(w->output);
        unmount_below(w->dir);
        test_rmdir(w->dir);
    }
    save_state(v);
    if (v->o.state_file != NULL) printf("stopped: the same command goes on from run %" PRIu64 "\n", runs_done(v));
}

static void supervise(struct supervisor *v) {
    unsigned running = v->o.jobs;
    for (unsigned i = 0; i < v->o.jobs; i++) start_worker(v, i);
    while (running > 0 && told_to_stop == 0) {
        int status;
        const pid_t pid = waitpid(-1, &status, WNOHANG);
        if (pid <= 0) {
            (void)usleep(20000);
            leave_out_pauses(v);
            stop_those_that_hang(v);
            tell_progress(v);
            continue;
        }
        for (unsigned i = 0; i < v->o.jobs; i++) {
            if (v->workers[i].pid != pid) continue;
            if (bury(v, i, status))
                start_worker(v, i);
            else
                running--;
        }
    }
}

static int run_alone(const struct supervisor *v) {
    struct soak_run r = {.alone = true, .dir = test_mkdir()};
    void *state = NULL;
    const bool good = run_one(v, &r, v->o.only, &state);
    if (v->soak->end != NULL) v->soak->end(state);
    test_rmdir(r.dir);
    if (!good) printf("violation: %s\n", r.message);
    printf("1 runs, %d violations\n", good ? 0 : 1);
    return good ? 0 : 1;
}

int soak_main(const struct soak *s, int argc, char **argv) {
    static struct supervisor v;
    v.soak = s;
    parse(s, argc, argv, &v.o);
    if (v.o.alone) return run_alone(&v);
    v.shared = mmap(NULL, sizeof *v.shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (v.shared == MAP_FAILED) stop("mmap", strerror(errno));
    v.began_ms = v.told_ms = v.looked_ms = now_ms();
    load_state(&v);
    printf("%s: runs %" PRIu64 " to %" PRIu64 " of seed %" PRIu64 ", %u jobs\n", s->name, v.first, v.o.count, v.o.seed,
           v.o.jobs);
    (void)signal(SIGINT, on_signal);
    (void)signal(SIGTERM, on_signal);
    supervise(&v);
    if (told_to_stop != 0)
        give_up(&v);
    else
        save_state(&v);
    const unsigned violations = atomic_load(&v.shared->violations);
    printf("%" PRIu64 " runs, %u violations\n", runs_done(&v), violations);
    if (told_to_stop != 0) return 128 + told_to_stop;
    return violations == 0 ? 0 : 1;
}
