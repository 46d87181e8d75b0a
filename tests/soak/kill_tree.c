/* SPDX-License-Identifier: Apache-2.0 */
/* Walks over a tier's directory. */
#include "kill_tree.h"
#include <fcntl.h>
#include <fts.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define OLDER_S 259200

static void each_below(const char *dir, void (*each)(void *user, const FTSENT *e, const char *path), void *user) {
    char root[800];
    (void)snprintf(root, sizeof root, "%s", dir);
    char *const roots[] = {root, NULL};
    FTS *f = fts_open(roots, FTS_PHYSICAL | FTS_NOCHDIR, NULL);
    if (f == NULL) return;
    for (FTSENT *e; (e = fts_read(f)) != NULL;)
        if (e->fts_level > 0 && e->fts_info != FTS_DP) each(user, e, e->fts_path + strlen(root) + 1);
    (void)fts_close(f);
}

static void age(void *user, const FTSENT *e, const char *path) {
    const struct timespec t = {time(NULL) - OLDER_S, 0}, both[2] = {t, t};
    (void)user;
    (void)path;
    if (e->fts_info == FTS_F) (void)utimensat(AT_FDCWD, e->fts_accpath, both, AT_SYMLINK_NOFOLLOW);
}

void kill_tree_age(const char *dir) {
    each_below(dir, age, NULL);
}

/* --- what may lie there ---- */

struct walk {
    struct kill_account *a;
    const struct kill_needed *n;
    const char *dir;
    unsigned temporaries; /* in the tier's root */
};

/* Moves behind the next component, which is `ret` then. */
static bool next(const char **path, char ret[160]) {
    const size_t n = strcspn(*path, "/");
    (void)snprintf(ret, 160, "%.*s", (int)(n < 159 ? n : 159), *path);
    *path += n + ((*path)[n] == '/');
    return n > 0;
}

static bool is_temporary(const char *name) {
    return name[0] == '.' && strlen(name) == 21 && strcmp(name + 17, ".tmp") == 0;
}

static bool is_needed(const struct walk *w, const char *id) {
    for (unsigned i = 0; i < w->n->count; i++)
        if (strcmp(w->n->id[i], id) == 0) return true;
    return false;
}

static uint32_t attempt_of(const char *id) {
    const char *dot = strchr(id, '.');
    return dot != NULL ? (uint32_t)strtoul(dot + 1, NULL, 10) : 0;
}

/* "<attempt>-<nonce>": of the current attempt, or of one of which a checkpoint is left. */
static bool is_needed_attempt(const struct walk *w, const char *name) {
    const uint32_t attempt = (uint32_t)strtoul(name, NULL, 10);
    for (unsigned i = 0; i < w->n->count; i++)
        if (attempt_of(w->n->id[i]) == attempt) return true;
    return attempt == w->n->attempt;
}

/* The current launch's; or one whose rank 0 has left no inventory: it goes when it has been watched for a day. */
static bool is_needed_launch(const struct walk *w, const char *name) {
    char path[1000];
    (void)snprintf(path, sizeof path, "%s/runs/" KILL_RUN "/launches/%s/000000.json", w->dir, name);
    return strcmp(name, w->n->launch) == 0 || access(path, F_OK) != 0;
}

/* Behind "runs/run/". */
static bool may_lie_in_run(const struct walk *w, const char *path) {
    char what[160], name[160], id[160];
    if (!next(&path, what) || !next(&path, name)) return true;
    if (strcmp(what, "history") == 0) return !is_temporary(name);
    if (strcmp(what, "launches") == 0) return is_needed_launch(w, name);
    if (strcmp(what, "layouts") == 0) return is_needed_attempt(w, name);
    if (strcmp(what, "checkpoints") == 0) return is_needed(w, name);
    return strcmp(what, "data") == 0 && (!next(&path, id) || is_needed(w, id));
}

static bool may_lie(struct walk *w, const char *path) {
    char name[160];
    if (!next(&path, name) || strcmp(name, "store.json") == 0) return true;
    if (is_temporary(name)) return ++w->temporaries <= w->n->kills;
    if (strcmp(name, "runs") != 0) return false;
    return !next(&path, name) || (strcmp(name, KILL_RUN) == 0 && may_lie_in_run(w, path));
}

static void look(void *user, const FTSENT *e, const char *path) {
    struct walk *w = user;
    if ((e->fts_info != FTS_F && e->fts_info != FTS_D) || !may_lie(w, path))
        kill_violated(w->a, "left over after all: %s/%s", strrchr(w->dir, '/') + 1, path);
}

void kill_tree_check(struct kill_account *a, const char *dir, const struct kill_needed *n) {
    struct walk w = {a, n, dir, 0};
    each_below(dir, look, &w);
}
