/* SPDX-License-Identifier: Apache-2.0 */
/* What must stay small: memory, descriptors and threads over many saves, objects and calls over many tensors. And what
 * the files of a run are like: their modes, and that a copy anywhere counts as much as the original. */
#include "job.h"
#include <dirent.h>
#include <fcntl.h>
#include <fts.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* --- memory ---- */

static uint64_t status_kib(const char *status, const char *key) {
    const char *at = strstr(status, key);
    return at == NULL ? 0 : strtoull(at + strlen(key), NULL, 10);
}

/* Resident, huge pages included. */
static uint64_t resident_bytes(void) {
    char text[8192];
    const int fd = open("/proc/self/status", O_RDONLY | O_CLOEXEC);
    must(fd >= 0);
    const ssize_t n = read(fd, text, sizeof text - 1);
    (void)close(fd);
    must(n > 0);
    text[n] = 0;
    return (status_kib(text, "\nVmRSS:") + status_kib(text, "\nHugetlbPages:")) * 1024;
}

struct sampler {
    pthread_t thread;
    atomic_bool stop;
    uint64_t most;
    unsigned samples;
};

static void *sample(void *arg) {
    struct sampler *s = arg;
    while (!atomic_load(&s->stop)) {
        const uint64_t now = resident_bytes();
        s->most = now > s->most ? now : s->most;
        s->samples++;
        sleep_ms(10);
    }
    return NULL;
}

static void sampler_start(struct sampler *s) {
    memset(s, 0, sizeof *s);
    must_eq(pthread_create(&s->thread, NULL, sample, s), 0);
}

static uint64_t sampler_stop(struct sampler *s) {
    atomic_store(&s->stop, true);
    must_eq(pthread_join(s->thread, NULL), 0);
    must(s->samples > 0);
    return s->most;
}

#define BUDGET (64 * MIB)
/* Eight times the budget, one tensor of twice the budget among it. */
#define LARGE (FULL_OR(2, 1) * BUDGET + 4097)
#define PARTS 7
#define PART  ((FULL_OR(8, 3) * BUDGET - LARGE) / PARTS)
#define WHOLE (LARGE + PARTS * PART)

/* The large tensor and so many of the parts. */
static void describe_parts(struct bw_save *v, const unsigned char *m, unsigned parts) {
    add_bytes(v, "large", m, LARGE);
    for (unsigned i = 0; i < parts; i++) {
        char name[16];
        (void)snprintf(name, sizeof name, "part %u", i);
        add_bytes(v, name, m + LARGE + i * PART, PART);
    }
}

static void read_parts(struct bw_restore *r, unsigned char *m, unsigned parts) {
    struct bw_error err = BW_ERROR_INIT;
    struct bw_slice s[PARTS + 1];
    char names[PARTS + 1][16];
    for (unsigned i = 0; i <= parts; i++) {
        (void)snprintf(names[i], sizeof names[i], i < parts ? "part %u" : "large", i);
        s[i] = (struct bw_slice)BW_SLICE_INIT;
        s[i].dtype = BW_U8;
        s[i].name = names[i];
        s[i].dims = 1;
        s[i].data = i < parts ? m + LARGE + i * PART : m;
    }
    must_ok(bw_restore_read(r, s, parts + 1, &err), &err);
}

/* Less of what the case itself holds. Sanitizers keep shadows and freed memory: there the bound says nothing. */
static void check_memory(uint64_t most, uint64_t before, const char *what) {
    const uint64_t used = most > before ? most - before : 0;
    (void)printf("             %s: %llu MiB beside the tensors, budget %llu MiB\n", what,
                 (unsigned long long)(used / MIB), (unsigned long long)(BUDGET / MIB));
    if (!SANITIZED)
        must_at(used <= BUDGET + 64 * MIB, what, "memory stays within the budget and 64 MiB", __FILE__, __LINE__);
}

static void commit_parts(struct bw_checkpointer *ck, const unsigned char *m, unsigned parts) {
    struct bw_save *v = begin(ck, 1);
    describe_parts(v, m, parts);
    commit(v);
}

static void a_save_stays_within_the_budget(void **state) {
    (void)state;
    struct place p;
    struct sampler s;
    struct bw_checkpointer_stats stats;
    place_make(&p);
    unsigned char *m = malloc(WHOLE);
    must(m != NULL);
    fill(m, WHOLE, 1);
    const uint64_t before = resident_bytes();
    sampler_start(&s);
    struct bw_checkpointer *ck = open_alone(&p, "one");
    commit_parts(ck, m, PARTS);
    bw_checkpointer_stats(ck, &stats);
    must(stats.memory_budget_bytes == BUDGET && stats.memory_peak_bytes <= BUDGET && stats.memory_peak_bytes > 0);
    close_ok(ck);
    check_memory(sampler_stop(&s), before, "save");
    free(m);
    place_drop(&p);
}

/* Of more than four times the budget: by the next launch, and by a reader. */
static void a_restore_stays_within_the_budget(void **state) {
    (void)state;
    struct place p;
    struct bw_error err = BW_ERROR_INIT;
    const unsigned parts = FULL_OR(3, PARTS);
    const size_t bytes = LARGE + parts * PART;
    place_make(&p);
    unsigned char *m = malloc(bytes);
    must(m != NULL);
    fill(m, bytes, 1);
    struct bw_checkpointer *ck = open_alone(&p, "one");
    commit_parts(ck, m, parts);
    close_ok(ck);
    for (unsigned by_reader = 0; by_reader < 2; by_reader++) {
        struct sampler s;
        struct bw_restore *r = NULL;
        memset(m, 0x5a, bytes);
        const uint64_t before = resident_bytes();
        sampler_start(&s);
        ck = by_reader ? NULL : open_alone(&p, "two");
        if (by_reader)
            r = reader_of(&p, 1);
        else
            must_ok(bw_restore_open(ck, &r, &err), &err);
        read_parts(r, m, parts);
        bw_restore_close(r);
        if (ck != NULL) close_ok(ck);
        check_memory(sampler_stop(&s), before, by_reader ? "reader" : "restore");
        must(is_filled(m, bytes, 1));
    }
    free(m);
    place_drop(&p);
}

/* --- leaks ---- */

static unsigned entries_of(const char *path) {
    unsigned n = 0;
    DIR *d = opendir(path);
    must(d != NULL);
    while (readdir(d) != NULL) n++;
    (void)closedir(d);
    return n;
}

struct footprint {
    unsigned descriptors, threads;
    uint64_t resident;
};

/* The least over half a second: what is done in the background after a commit opens files for a moment. */
static struct footprint footprint(void) {
    struct footprint f = {UINT32_MAX, UINT32_MAX, UINT64_MAX};
    for (unsigned i = 0; i < 50; i++) {
        const unsigned descriptors = entries_of("/proc/self/fd"), threads = test_threads();
        const uint64_t resident = resident_bytes();
        f.descriptors = descriptors < f.descriptors ? descriptors : f.descriptors;
        f.threads = threads < f.threads ? threads : f.threads;
        f.resident = resident < f.resident ? resident : f.resident;
        sleep_ms(10);
    }
    return f;
}

static void must_be_flat(const struct footprint *a, const struct footprint *b, uint64_t bytes) {
    must_eq(b->descriptors, a->descriptors);
    must_eq(b->threads, a->threads);
    (void)printf("             resident: %llu KiB before, %llu KiB after\n", (unsigned long long)(a->resident / 1024),
                 (unsigned long long)(b->resident / 1024));
    if (!SANITIZED) must(b->resident <= a->resident + bytes);
}

static void save_some(struct bw_checkpointer *ck, uint64_t from, uint64_t to) {
    static unsigned char m[300000];
    for (uint64_t step = from; step <= to; step++) {
        struct bw_save *v = begin(ck, step);
        fill(m, sizeof m, step);
        for (unsigned i = 0; i < 20; i++) {
            char name[16];
            (void)snprintf(name, sizeof name, "tensor %u", i);
            add_bytes(v, name, m + i * 1000, 200000);
        }
        start(v);
        wait_for(v, step % 3 ? BW_COMMITTED : BW_CAPTURED);
        if (step % 3 == 0) wait_for(v, BW_COMMITTED);
        bw_save_release(v);
    }
}

static void two_hundred_saves_leave_nothing_behind(void **state) {
    (void)state;
    struct place p;
    place_make(&p);
    struct bw_options o = options_of(&p, "one", 0, 1);
    o.retention.keep_last = 5;
    o.local_quota_bytes = 40 * MIB;
    struct bw_checkpointer *ck = open_with(&o);
    const uint64_t warm = FULL_OR(40, 10), last = FULL_OR(240, 40);
    save_some(ck, 1, warm);
    const struct footprint before = footprint();
    save_some(ck, warm + 1, last);
    const struct footprint after = footprint();
    must_be_flat(&before, &after, 4 * MIB);
    close_ok(ck);
    place_drop(&p);
}

static void open_and_restore(const struct place *p, unsigned i) {
    struct bw_error err = BW_ERROR_INIT;
    struct bw_restore *r = NULL;
    static unsigned char m[200000];
    char launch[32];
    (void)snprintf(launch, sizeof launch, "again-%u", i);
    struct bw_checkpointer *ck = open_alone(p, launch);
    must_ok(bw_restore_open(ck, &r, &err), &err);
    read_bytes(r, "w", m, sizeof m);
    bw_restore_close(r);
    must_eq(bw_save_begin(ck, 1, NULL, &err), BW_E_INVALID);
    close_ok(ck);
    r = reader_of(p, UINT64_MAX);
    read_bytes(r, "w", m, sizeof m);
    must(is_filled(m, sizeof m, 1));
    bw_restore_close(r);
    must_eq(history_of(p).commits, 1);
}

static void handles_that_come_and_go_leave_nothing_behind(void **state) {
    (void)state;
    struct place p;
    static unsigned char m[200000];
    place_make(&p);
    fill(m, sizeof m, 1);
    struct bw_checkpointer *ck = open_alone(&p, "one");
    save_bytes(ck, 1, m, sizeof m);
    close_ok(ck);
    const unsigned warm = FULL_OR(5, 2), last = FULL_OR(30, 6);
    for (unsigned i = 0; i < warm; i++) open_and_restore(&p, i);
    const struct footprint before = footprint();
    for (unsigned i = warm; i < last; i++) open_and_restore(&p, i);
    const struct footprint after = footprint();
    must_be_flat(&before, &after, 4 * MIB);
    place_drop(&p);
}

/* --- objects and calls ---- */

struct cost {
    uint64_t objects_local, objects_remote, calls_local, calls_remote;
};

static void save_many(struct bw_checkpointer *ck, uint64_t step, unsigned tensors, struct cost *ret) {
    static uint32_t m[10000];
    struct bw_save_stats stats;
    struct bw_checkpointer_stats before, after;
    bw_checkpointer_stats(ck, &before);
    struct bw_save *v = begin(ck, step);
    for (unsigned i = 0; i < tensors; i++) {
        char name[24];
        (void)snprintf(name, sizeof name, "tensor %u", i);
        add_bytes(v, name, &m[i], 4);
    }
    start(v);
    wait_for(v, BW_COMMITTED);
    bw_save_stats(v, &stats);
    bw_save_release(v);
    bw_checkpointer_stats(ck, &after);
    *ret = (struct cost){stats.objects_local, stats.objects_remote, after.local_store_calls - before.local_store_calls,
                         after.remote_store_calls - before.remote_store_calls};
}

/* The third save of a launch: the layout is known by then. */
static struct cost cost_of(unsigned tensors, bool with_local) {
    struct place p;
    struct cost c = {0};
    place_make(&p);
    struct bw_options o = options_of(&p, "one", 0, 1);
    if (!with_local) o.local_url = NULL;
    struct bw_checkpointer *ck = open_with(&o);
    for (uint64_t step = 1; step <= 3; step++) save_many(ck, step, tensors, &c);
    close_ok(ck);
    place_drop(&p);
    (void)printf("             %5u tensors: %llu objects local, %llu remote; %llu calls local, %llu remote\n", tensors,
                 (unsigned long long)c.objects_local, (unsigned long long)c.objects_remote,
                 (unsigned long long)c.calls_local, (unsigned long long)c.calls_remote);
    return c;
}

static void the_cost_of_a_step_does_not_grow_with_its_tensors(void **state) {
    (void)state;
    for (int with_local = 0; with_local < 2; with_local++) {
        const struct cost few = cost_of(10, with_local), many = cost_of(FULL_OR(10000, 1000), with_local);
        must_eq(few.objects_local, many.objects_local);
        must_eq(few.objects_remote, many.objects_remote);
        must(few.objects_remote <= 4); /* a pack, content, placement, summary */
        must(many.objects_local <= 4);
        must(many.calls_local <= few.calls_local + 4); /* a look into the history may fall into it */
        must(many.calls_remote <= few.calls_remote + 8);
        must(few.calls_remote < 60);
    }
}

/* --- files ---- */

static void check_modes(const char *root) {
    char copy[700];
    (void)snprintf(copy, sizeof copy, "%s", root);
    char *const roots[] = {copy, NULL};
    unsigned files = 0, directories = 0;
    FTS *walk = fts_open(roots, FTS_PHYSICAL | FTS_NOCHDIR, NULL);
    must(walk != NULL);
    for (FTSENT *e; (e = fts_read(walk)) != NULL;) {
        if (e->fts_info == FTS_F)
            must_at((e->fts_statp->st_mode & 07777) == 0600, e->fts_path, "a file is 0600", __FILE__, __LINE__);
        if (e->fts_info == FTS_D)
            must_at((e->fts_statp->st_mode & 07777) == 0700, e->fts_path, "a directory is 0700", __FILE__, __LINE__);
        must_at(strstr(e->fts_name, ".tmp") == NULL, e->fts_path, "no temporary file is left", __FILE__, __LINE__);
        files += e->fts_info == FTS_F;
        directories += e->fts_info == FTS_D;
    }
    (void)fts_close(walk);
    must(files > 5 && directories > 5);
}

static void files_are_private_whatever_the_umask(void **state) {
    (void)state;
    struct place p;
    place_make(&p);
    const mode_t mask = umask(0);
    struct bw_checkpointer *ck = open_alone(&p, "one");
    save_bytes(ck, 1, "x", 1);
    close_ok(ck);
    (void)umask(mask);
    check_modes(p.remote);
    check_modes(p.local);
    place_drop(&p);
}

static void run_command(const char *const *argv) {
    const pid_t pid = fork();
    must(pid >= 0);
    if (pid == 0) {
        (void)execvp(argv[0], (char *const *)(uintptr_t)argv);
        _exit(127);
    }
    must_eq(reap(pid), 0);
}

static void verify_all(const struct place *p) {
    struct bw_error err = BW_ERROR_INIT;
    struct bw_list *list = NULL;
    struct bw_finding f;
    struct bw_catalog *c = catalog_of(p);
    for (uint32_t fast = 0; fast <= BW_VERIFY_FAST; fast++) {
        must_ok(bw_catalog_verify(c, RUN, NULL, fast, &list, &err), &err);
        must(bw_list_count(list) > 0);
        for (size_t i = 0; bw_list_finding(list, i, &f); i++)
            must_at(f.severity == 0, f.message, "verify finds nothing wrong", __FILE__, __LINE__);
        bw_list_free(list);
        list = NULL;
    }
    bw_catalog_close(c);
}

#define STATE 300000

static void save_three(const struct place *p) {
    struct bw_checkpointer *ck = open_alone(p, "one");
    for (uint64_t step = 1; step <= 3; step++) save_filled(ck, step, STATE);
    close_ok(ck);
}

static void a_copy_of_the_tree_is_as_good_as_the_tree(void **state) {
    (void)state;
    struct place p, copy;
    place_make(&p);
    place_make(&copy);
    save_three(&p);
    const char *const argv[] = {"cp", "-r", p.remote, copy.remote, NULL};
    run_command(argv);
    place_drop(&p);
    for (uint64_t step = 1; step <= 3; step++) check_bytes(&copy, step, STATE, step);
    check_bytes(&copy, UINT64_MAX, STATE, 3);
    verify_all(&copy);
    struct bw_checkpointer *ck = open_alone(&copy, "two"); /* a training job goes on from it */
    must(resumed_of(ck).step == 3 && resumed_of(ck).committed == 1);
    save_bytes(ck, 4, "x", 1);
    close_ok(ck);
    verify_all(&copy);
    place_drop(&copy);
}

/* Times from the past and the future, in no order. */
static void shuffle_times(const char *root) {
    char copy[700];
    uint64_t seed = test_seed(5);
    (void)snprintf(copy, sizeof copy, "%s", root);
    char *const roots[] = {copy, NULL};
    FTS *walk = fts_open(roots, FTS_PHYSICAL | FTS_NOCHDIR, NULL);
    must(walk != NULL);
    for (FTSENT *e; (e = fts_read(walk)) != NULL;) {
        const struct timespec t = {(time_t)(test_random(&seed) % 4000000000u), 0};
        const struct timespec both[2] = {t, t};
        (void)utimensat(AT_FDCWD, e->fts_accpath, both, AT_SYMLINK_NOFOLLOW);
    }
    (void)fts_close(walk);
}

static void put_junk(const struct place *p, const char *name, bool directory) {
    const char *path = path_in(p->remote, "runs/" RUN "/%s", name);
    if (directory) must_eq(mkdir(path, 0700), 0);
    if (directory) return;
    FILE *f = fopen(path, "w");
    must(f != NULL && fputs("junk", f) >= 0 && fclose(f) == 0);
}

static void junk_and_times_change_nothing(void **state) {
    (void)state;
    struct place p;
    place_make(&p);
    save_three(&p);
    put_junk(&p, "checkpoints/00000000000000000099.9-ffffffff.0", true);
    put_junk(&p, "checkpoints/00000000000000000004.1-00000000.0", true);
    put_junk(&p, "checkpoints/00000000000000000004.1-00000000.0/groups", true);
    put_junk(&p, "checkpoints/step_1000", true);
    put_junk(&p, "checkpoints/latest", false);
    put_junk(&p, "checkpoints/.DS_Store", false);
    put_junk(&p, "data/00/00000000000000000099.9-ffffffff.0", true);
    put_junk(&p, "history/latest", false);
    put_junk(&p, "history/000001.00000000000000000099.json.tmp", false);
    put_junk(&p, "history/junk", true);
    put_junk(&p, "99", true);
    const char *const argv[] = {"cp", "-r", path_in(p.remote, "runs/" RUN), path_in(p.remote, "runs/neighbour"), NULL};
    run_command(argv);
    shuffle_times(p.remote);
    shuffle_times(p.local);
    check_bytes(&p, UINT64_MAX, STATE, 3);
    for (uint64_t step = 1; step <= 3; step++) check_bytes(&p, step, STATE, step);
    must_eq(history_of(&p).live, 3);
    struct bw_checkpointer *ck = open_alone(&p, "two");
    must(resumed_of(ck).step == 3 && resumed_of(ck).committed == 1);
    save_bytes(ck, 4, "x", 1);
    close_ok(ck);
    must_eq(history_of(&p).live, 4);
    place_drop(&p);
}

/* --- readers that may not write ---- */

static int read_as_somebody_else(void *arg, unsigned i) {
    const struct place *p = arg;
    (void)i;
    if (geteuid() == 0) must(setgid(65534) == 0 && setuid(65534) == 0);
    check_bytes(p, UINT64_MAX, STATE, 3);
    verify_all(p);
    return 0;
}

static void another_user_reads_what_he_may_only_read(void **state) {
    (void)state;
    struct place p;
    place_make(&p);
    save_three(&p);
    const char *const argv[] = {"chmod", "-R", "a=rX", p.root, NULL};
    run_command(argv);
    must_eq(reap(spawn(read_as_somebody_else, &p, 0)), 0);
    const char *const back[] = {"chmod", "-R", "u=rwX", p.root, NULL};
    run_command(back);
    place_drop(&p);
}

/* ---- threads ---- */

/* The text of a file of one thread's; what is behind `key` there. */
static const char *of_thread(const char *tid, const char *file, const char *key, char text[4096]) {
    char path[300];
    snprintf(path, sizeof path, "/proc/self/task/%s/%s", tid, file);
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    must(fd >= 0);
    const ssize_t n = read(fd, text, 4095);
    (void)close(fd);
    must(n > 0);
    text[n] = 0;
    const char *at = strstr(text, key);
    must(at != NULL);
    return at + strlen(key);
}

static int nice_of(const char *tid) {
    char text[4096];
    const char *at = of_thread(tid, "stat", ") ", text); /* behind the name */
    for (int field = 3; field < 19; field++) at = strchr(at, ' ') + 1;
    return atoi(at);
}

static void threads_are_as_many_as_nice_and_where_the_options_say(void **state) {
    (void)state;
    struct place p;
    struct bw_checkpointer *ck;
    struct bw_error err = BW_ERROR_INIT;
    char cpu[16], text[4096], line[64];
    const int own = getpriority(PRIO_PROCESS, 0); /* of whoever runs the tests */
    const int nice = own > 7 ? own : 7;
    place_make(&p);
    struct bw_options o = options_of(&p, "one", 0, 1);
    snprintf(cpu, sizeof cpu, "%d", sched_getcpu());
    o.cpus = cpu, o.background_nice = 7, o.capture_threads = 3, o.io_threads = 6;
    must_ok(bw_checkpointer_open(&o, &ck, &err), &err);
    snprintf(line, sizeof line, "%s\n", cpu);
    unsigned workers = 0, capturing = 0, loops = 0;
    DIR *tasks = opendir("/proc/self/task");
    must(tasks != NULL);
    for (const struct dirent *e; (e = readdir(tasks)) != NULL;) {
        if (e->d_name[0] == '.') continue;
        const bool ours = strncmp(of_thread(e->d_name, "status", "Name:\t", text), "bw-", 3) == 0;
        if (!ours) continue;
        const bool io = strstr(text, "Name:\tbw-io-") != NULL;
        workers += io;
        capturing += strstr(text, "Name:\tbw-capture-") != NULL;
        loops += strstr(text, "Name:\tbw-loop") != NULL;
        must_eq(strncmp(of_thread(e->d_name, "status", "Cpus_allowed_list:\t", text), line, strlen(line)), 0);
        must_eq(nice_of(e->d_name), io ? nice : own);
    }
    (void)closedir(tasks);
    must_eq(workers, 6);
    must_eq(capturing, 3);
    must_eq(loops, 1);
    must_ok(bw_checkpointer_close(ck, 10000, &err), &err);
    place_drop(&p);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_save_stays_within_the_budget),
        cmocka_unit_test(a_restore_stays_within_the_budget),
        cmocka_unit_test(two_hundred_saves_leave_nothing_behind),
        cmocka_unit_test(handles_that_come_and_go_leave_nothing_behind),
        cmocka_unit_test(threads_are_as_many_as_nice_and_where_the_options_say),
        cmocka_unit_test(the_cost_of_a_step_does_not_grow_with_its_tensors),
        cmocka_unit_test(files_are_private_whatever_the_umask),
        cmocka_unit_test(a_copy_of_the_tree_is_as_good_as_the_tree),
        cmocka_unit_test(junk_and_times_change_nothing),
        cmocka_unit_test(another_user_reads_what_he_may_only_read),
    };
    return run_cases(tests);
}
