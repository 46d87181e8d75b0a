/* SPDX-License-Identifier: Apache-2.0 */
/* A fuzz target without a fuzzer: runs every file of a corpus, and seeded mutations of them.
 *
 *     NAME_fuzz [--mutations N] [--seed S] FILE|FOLDER ...
 *
 * It runs in a process of its own, which shares the input at hand with the one that waits for it: whatever becomes of
 * it (a broken property, a sanitizer's report, a signal, no end), the input is kept in a file and its name printed. */
#include "replay.h"
#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerInitialize(int *argc, char ***argv);

enum { FILES_MAX = 4096, SECONDS_MAX = 20, MUTATED_MAX = 1 << 16, INPUT_MAX = 1 << 20 };

struct file {
    uint8_t *data;
    size_t size;
};
static struct file files[FILES_MAX];
static size_t file_count;

/* The input at hand. */
struct shared {
    size_t size;
    uint64_t runs;
    uint8_t data[INPUT_MAX];
};

static void fail(const char *what, const char *which) {
    (void)fprintf(stderr, "ERROR: %s %s: %s\n", what, which, strerror(errno));
    exit(1);
}

static void add_file(const char *path, size_t size) {
    FILE *f = fopen(path, "rb");
    if (f == NULL) fail("open", path);
    if (size > INPUT_MAX || file_count == FILES_MAX) fail("too much", path);
    struct file *to = &files[file_count++];
    *to = (struct file){malloc(size + 1), size};
    if (to->data == NULL || fread(to->data, 1, size, f) != size) fail("read", path);
    (void)fclose(f);
}

static void add(const char *path) {
    struct stat st;
    struct dirent **names;
    if (stat(path, &st) != 0) fail("look at", path);
    if (!S_ISDIR(st.st_mode)) {
        add_file(path, (size_t)st.st_size);
        return;
    }
    const int n = scandir(path, &names, NULL, alphasort);
    for (int i = 0; i < n; i++) {
        char name[4096];
        (void)snprintf(name, sizeof name, "%s/%s", path, names[i]->d_name);
        if (names[i]->d_name[0] != '.') add(name);
        free(names[i]);
    }
    free(names);
}

static void run_one(struct shared *s) {
    s->runs++;
    (void)alarm(SECONDS_MAX);
    (void)LLVMFuzzerTestOneInput(s->data, s->size);
}

static void run_all(struct shared *s, uint64_t mutations, uint64_t seed) {
    (void)LLVMFuzzerInitialize(NULL, NULL);
    for (size_t i = 0; i < file_count; i++) {
        s->size = files[i].size;
        if (s->size != 0) memcpy(s->data, files[i].data, s->size);
        run_one(s);
    }
    replay_seed(seed);
    for (uint64_t i = 0; i < mutations; i++) {
        const struct file *f = &files[replay_random(file_count)], *other = &files[replay_random(file_count)];
        s->size = f->size < MUTATED_MAX ? f->size : MUTATED_MAX;
        memcpy(s->data, f->data, s->size);
        s->size = replay_mutate(s->data, s->size, MUTATED_MAX, other->data, other->size);
        run_one(s);
    }
}

/* Keeps the input that did it. */
static void keep(const struct shared *s, const char *program, int status) {
    const char *dir = getenv("BW_TEST_DIR");
    const char *base = strrchr(program, '/');
    char path[4096];
    (void)snprintf(path, sizeof path, "%s/%s-crash", dir != NULL ? dir : "/tmp", base != NULL ? base + 1 : program);
    FILE *f = fopen(path, "wb");
    if (f == NULL || fwrite(s->data, 1, s->size, f) != s->size || fclose(f) != 0) fail("write", path);
    (void)fprintf(stderr, "ERROR: input %llu ended with %s %d%s; repeat it with: %s %s\n", (unsigned long long)s->runs,
                  WIFSIGNALED(status) ? "signal" : "status",
                  WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status),
                  WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM ? " (it took too long)" : "", program, path);
}

int main(int argc, char **argv) {
    uint64_t mutations = 0, seed = 1;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--mutations") == 0 && i + 1 < argc)
            mutations = strtoull(argv[++i], NULL, 0);
        else if (strcmp(argv[i], "--seed") == 0 && i + 1 < argc)
            seed = strtoull(argv[++i], NULL, 0);
        else
            add(argv[i]);
    }
    if (file_count == 0) {
        (void)fprintf(stderr, "ERROR: %s: expected a corpus, found no file\n", argv[0]);
        return 1;
    }
    struct shared *s = mmap(NULL, sizeof *s, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (s == MAP_FAILED) fail("map", "memory");
    const pid_t child = fork();
    if (child < 0) fail("fork", argv[0]);
    if (child == 0) {
        run_all(s, mutations, seed);
        for (size_t i = 0; i < file_count; i++) free(files[i].data);
        exit(0);
    }
    int status = 0;
    while (waitpid(child, &status, 0) < 0 && errno == EINTR) continue;
    for (size_t i = 0; i < file_count; i++) free(files[i].data);
    if (status != 0) {
        keep(s, argv[0], status);
        return 1;
    }
    (void)printf("%zu files and %llu mutations from seed %llu: all properties hold\n", file_count,
                 (unsigned long long)mutations, (unsigned long long)seed);
    return 0;
}
