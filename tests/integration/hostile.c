/* SPDX-License-Identifier: Apache-2.0 */
/* Stores that somebody has tampered with. */
#include "hostile.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fts.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { STATE_BYTES = 9000, SECONDS_MAX = FULL_OR(20, 60), RSS_MAX_KIB = 300 << 10, WORDS_MAX = 24 };

const char *hostile_command;
static struct place template;

/* --- places ---- */

static void make_template(void) {
    place_make(&template);
    struct bw_checkpointer *ck = open_alone(&template, "one");
    for (uint64_t step = 1; step <= 3; step++) {
        char *m = malloc(STATE_BYTES);
        must(m != NULL);
        fill(m, STATE_BYTES, step);
        struct bw_save *v = begin(ck, step);
        struct bw_error err = BW_ERROR_INIT;
        add_bytes(v, "w", m, STATE_BYTES);
        add_bytes(v, "x", m, 100);
        must_ok(bw_save_blob(v, "rng", m, 20, &err), &err);
        must_ok(bw_save_metadata(v, "{\"lr\":1}", &err), &err);
        commit(v);
        free(m);
    }
    close_ok(ck);
}

static void shell(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
static void shell(const char *fmt, ...) {
    char line[4096];
    va_list ap;
    va_start(ap, fmt);
    must(vsnprintf(line, sizeof line, fmt, ap) < (int)sizeof line);
    va_end(ap);
    must_eq(system(line), 0);
}

void hostile_make(struct hostile *h) {
    if (template.root[0] == '\0') make_template();
    place_make(&h->p);
    shell("cp -a '%s/.' '%s'", template.root, h->p.root);
    (void)snprintf(h->outside, sizeof h->outside, "%s/outside", h->p.root);
    shell("mkdir '%s' && echo secret >'%s/canary'", h->outside, h->outside);
    h->watch = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
    must(inotify_add_watch(h->watch, h->outside, IN_ALL_EVENTS) >= 0);
}

/* What was moved is watched, too; moving it is no event that counts. */
void hostile_move_out(struct hostile *h, const char *from, const char *to) {
    must_eq(rename(from, to), 0);
    must_eq(symlink(to, from), 0);
    (void)close(h->watch);
    h->watch = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
    must(inotify_add_watch(h->watch, h->outside, IN_ALL_EVENTS) >= 0);
    must(inotify_add_watch(h->watch, to, IN_ALL_EVENTS) >= 0);
}

void hostile_drop(struct hostile *h) {
    char events[4096] __attribute__((aligned(8)));
    const ssize_t n = read(h->watch, events, sizeof events);
    const struct inotify_event *e = (const void *)events;
    if (n > 0) must_at(false, e->len > 0 ? e->name : "", "what lies outside was not touched", __FILE__, __LINE__);
    (void)close(h->watch);
    place_drop(&h->p);
}

void hostile_template_drop(void) {
    if (template.root[0] != '\0') place_drop(&template);
}

/* --- objects ---- */

static FTS *walk(const struct hostile *h) {
    char root[sizeof h->p.remote];
    memcpy(root, h->p.remote, sizeof root);
    char *const roots[] = {root, NULL};
    FTS *w = fts_open(roots, FTS_PHYSICAL | FTS_NOCHDIR, NULL);
    must(w != NULL);
    return w;
}

const char *hostile_path(const struct hostile *h, const char *part) {
    char best[1400] = "";
    FTS *w = walk(h);
    for (FTSENT *e; (e = fts_read(w)) != NULL;) {
        const bool fits = e->fts_info == FTS_F && strstr(e->fts_path + strlen(h->p.remote), part) != NULL;
        if (fits && (best[0] == '\0' || strcmp(e->fts_path, best) > 0))
            (void)snprintf(best, sizeof best, "%s", e->fts_path);
    }
    (void)fts_close(w);
    must_at(best[0] != '\0', part, "there is such an object", __FILE__, __LINE__);
    return path_in(h->p.remote, "%s", best + strlen(h->p.remote) + 1);
}

static int by_key(const void *a, const void *b) {
    return strcmp(((const struct forge_object *)a)->key, ((const struct forge_object *)b)->key);
}

void hostile_load(const struct hostile *h, struct forge *f) {
    FTS *w = walk(h);
    for (FTSENT *e; (e = fts_read(w)) != NULL;) {
        char bytes[1 << 16];
        if (e->fts_info != FTS_F || e->fts_name[0] == '.') continue;
        FILE *in = fopen(e->fts_path, "rb");
        must(in != NULL);
        const size_t n = fread(bytes, 1, sizeof bytes, in);
        must(n < sizeof bytes && fclose(in) == 0);
        (void)forge_add(f, e->fts_path + strlen(h->p.remote) + 1, bytes, n);
    }
    (void)fts_close(w);
    qsort(f->objects, f->count, sizeof *f->objects, by_key);
}

void hostile_store(const struct hostile *h, const struct forge *f) {
    FTS *w = walk(h);
    for (FTSENT *e; (e = fts_read(w)) != NULL;)
        if (e->fts_info == FTS_F && e->fts_name[0] != '.') must_eq(unlink(e->fts_path), 0);
    (void)fts_close(w);
    for (size_t i = 0; i < f->count; i++) {
        const struct forge_object *o = &f->objects[i];
        if (o->gone) continue;
        FILE *out = fopen(path_in(h->p.remote, "%s", o->key), "wb");
        must_at(out != NULL && fwrite(o->bytes, 1, o->len, out) == o->len && fclose(out) == 0, o->key, "written",
                __FILE__, __LINE__);
    }
}

/* --- the command ---- */

static void split(const struct hostile *h, char *text, const char *argv[WORDS_MAX]) {
    size_t n = 0;
    argv[n++] = hostile_command;
    for (char *at = strtok(text, " "); at != NULL && n < WORDS_MAX - 1; at = strtok(NULL, " ")) {
        argv[n++] = strcmp(at, "@remote") == 0  ? h->p.remote
                    : strcmp(at, "@local") == 0 ? h->p.local
                    : strcmp(at, "@to") == 0    ? path_in(h->p.root, "to")
                    : strcmp(at, "@file") == 0  ? path_in(h->p.root, "file")
                                                : at;
    }
    argv[n] = NULL;
}

/* The alarm outlives the exec: who does not end is ended by it. */
static void become(const struct hostile *h, const char *words, int out) {
    char text[1000];
    const char *argv[WORDS_MAX];
    (void)snprintf(text, sizeof text, "%s", words);
    split(h, text, argv);
    const struct rlimit memory = {(rlim_t)1 << 31, (rlim_t)1 << 31};
    if (!SANITIZED) (void)setrlimit(RLIMIT_AS, &memory);
    (void)alarm(SECONDS_MAX);
    (void)dup2(out, STDOUT_FILENO);
    (void)dup2(out, STDERR_FILENO);
    (void)execv(argv[0], (char *const *)(uintptr_t)argv);
    _exit(98);
}

void hostile_run(const struct hostile *h, const char *words, struct end *ret) {
    struct rusage usage;
    int status = 0;
    FILE *out = tmpfile();
    must(out != NULL);
    const uint64_t from = clock_ms();
    const pid_t pid = fork();
    must(pid >= 0);
    if (pid == 0) become(h, words, fileno(out));
    while (wait4(pid, &status, 0, &usage) < 0 && errno == EINTR) continue;
    const ssize_t n = pread(fileno(out), ret->text, sizeof ret->text - 1, 0);
    ret->text[n > 0 ? n : 0] = '\0';
    ret->code = WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
    ret->rss_kib = usage.ru_maxrss;
    ret->ms = clock_ms() - from;
    (void)fclose(out);
}

static void must_have_ended_well(const struct end *e, const char *words) {
    if (e->code < 0 || e->code > 5) (void)fprintf(stderr, "%s\n", e->text);
    must_at(e->code >= 0 && e->code <= 5, words, "it ended by itself, with an exit code of its own", __FILE__,
            __LINE__);
    must_at(SANITIZED || e->rss_kib < RSS_MAX_KIB, words, "its memory is bounded", __FILE__, __LINE__);
    for (const char *c = e->text; *c != '\0'; c++)
        must_at((unsigned char)*c >= 0x20 || *c == '\n', words, "nothing harms the terminal", __FILE__, __LINE__);
}

void hostile_run_all(const struct hostile *h, bool few) {
    static const char *const all[] = {
        "verify " RUN " --remote @remote --memory 64MiB",
        "export " RUN " --to @to --force --with-blobs --remote @remote",
        "ls " RUN " --remote @remote",
        "ls --remote @remote",
        "show " RUN " --remote @remote --json",
        "history " RUN " --remote @remote",
        "diff " RUN " 1 2 --remote @remote",
        "doctor --remote @remote --local @local",
        "drain " RUN " --remote @remote --local @local --memory 64MiB",
        "repair " RUN " --copies --history --yes --remote @remote --local @local --memory 64MiB",
        "rollback " RUN " 1 --label back --yes --remote @remote",
        "prune " RUN " --keep-last 1 --grace 0 --yes --remote @remote --local @local",
        "import --run " RUN " --step 9 --job job --allow-node-local --remote @remote --memory 64MiB @file",
    };
    static struct end e;
    shell("printf '\\013\\0\\0\\0\\0\\0\\0\\0{         }' >'%s/file'", h->p.root);
    for (size_t i = 0; i < (few ? 2 : sizeof all / sizeof *all); i++) {
        hostile_run(h, all[i], &e);
        if (getenv("BW_TEST_TELL")) (void)printf("%s: %d in %d ms\n%s\n", all[i], e.code, (int)e.ms, e.text);
        must_have_ended_well(&e, all[i]);
    }
}

void hostile_refuses(const struct hostile *h, const char *words, const char *object, const char *what) {
    static struct end e;
    hostile_run(h, words, &e);
    must_have_ended_well(&e, words);
    if (strstr(e.text, object) == NULL || strstr(e.text, what) == NULL || e.code == 0)
        (void)fprintf(stderr, "%s: %d, wanted \"%s\" and \"%s\":\n%s\n", words, e.code, object, what, e.text);
    must_at(e.code > 0, words, "it fails", __FILE__, __LINE__);
    must_at(strstr(e.text, object) != NULL, object, "the object is named", __FILE__, __LINE__);
    must_at(strstr(e.text, what) != NULL, what, "what is wrong is said", __FILE__, __LINE__);
}
