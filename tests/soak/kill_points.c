/* SPDX-License-Identifier: Apache-2.0 */
/* Names of what a system call was about, and counts. */
#include "kill_points.h"
#include "test.h"
#include <ctype.h>
#include <inttypes.h>
#include <string.h>
#include <sys/mman.h>

static const char *const role_names[KILL_ROLES] = {"rank 0", "rank 1", "prune", "drain", "verify", "repair"};
static const char *const kind_names[KINDS] = {
    "outside", "store",  "upper directory", "entry", "inventory", "refusal", "layout",  "checkpoint", "summary",
    "mark",    "damage", "manifest",        "index", "group",     "pack",    "content", "placement",  "lock"};
static const char *const class_names[CLASSES] = {"", " temporary", " directory"};
static const char *const verb_names[VERBS] = {"create", "reserve", "pwrite", "fsync", "link", "rename", "unlink",
                                              "rmdir",  "mkdir",   "flock",  "open",  "read", "close",  "other"};

const char *kill_role_name(enum kill_role role) {
    return role_names[role];
}

/* --- what a path is ---- */

static bool starts(const char *text, const char *with) {
    return strncmp(text, with, strlen(with)) == 0;
}

static bool is_temporary(const char *leaf) {
    return leaf[0] == '.' && strlen(leaf) == 21 && strcmp(leaf + 17, ".tmp") == 0;
}

/* Moves behind the next component; what it was is in `ret`. false: the path is at its end. */
static bool next(const char **path, char ret[160]) {
    const size_t n = strcspn(*path, "/");
    (void)snprintf(ret, 160, "%.*s", (int)(n < 159 ? n : 159), *path);
    *path += n + ((*path)[n] == '/');
    return n > 0;
}

static enum kill_kind kind_in_group(const char *leaf) {
    const size_t n = strlen(leaf);
    if (strcmp(leaf, ".lock") == 0) return KIND_LOCK;
    if (strcmp(leaf, "content") == 0) return KIND_CONTENT;
    if (starts(leaf, "placement-")) return KIND_PLACEMENT;
    return n > 12 && strcmp(leaf + n - 12, ".safetensors") == 0 ? KIND_PACK : KIND_GROUP;
}

static enum kill_kind kind_in_checkpoint(const char *leaf) {
    if (starts(leaf, "manifest.")) return KIND_MANIFEST;
    return starts(leaf, "index.") ? KIND_INDEX : KIND_CHECKPOINT;
}

static enum kill_kind kind_of_marks(const char *name) {
    if (strcmp(name, "groups") == 0) return KIND_SUMMARY;
    if (strcmp(name, "failed") == 0) return KIND_MARK;
    return strcmp(name, "damaged") == 0 ? KIND_DAMAGED : KIND_CHECKPOINT;
}

/* Behind "checkpoints/". */
static enum kill_kind in_checkpoints(const char *at) {
    char id[160], name[160], leaf[160];
    if (!next(&at, id)) return KIND_UPPER;
    if (!next(&at, name)) return KIND_CHECKPOINT;
    const enum kill_kind marks = kind_of_marks(name);
    return next(&at, leaf) || marks != KIND_CHECKPOINT ? marks : kind_in_checkpoint(name);
}

/* Behind "data/". */
static enum kill_kind in_data(const char *at) {
    char fan[160], id[160], group[160], leaf[160];
    if (!next(&at, fan) || !next(&at, id)) return KIND_UPPER;
    if (!next(&at, group)) return KIND_CHECKPOINT;
    return next(&at, leaf) ? kind_in_group(leaf) : KIND_GROUP;
}

/* Behind "runs/<run>/". */
static enum kill_kind in_run(const char *at) {
    char what[160], name[160], leaf[160];
    if (!next(&at, what)) return KIND_UPPER;
    if (strcmp(what, "history") == 0) return KIND_ENTRY;
    if (strcmp(what, "checkpoints") == 0) return in_checkpoints(at);
    if (strcmp(what, "data") == 0) return in_data(at);
    if (!next(&at, name)) return KIND_UPPER;
    if (strcmp(what, "layouts") == 0) return KIND_LAYOUT;
    if (strcmp(what, "launches") != 0) return KIND_OUTSIDE;
    return next(&at, leaf) && strcmp(leaf, "refused.json") == 0 ? KIND_REFUSAL : KIND_INVENTORY;
}

static enum kill_kind in_tier(const char *at) {
    char what[160], run[160];
    if (!next(&at, what)) return KIND_STORE;
    if (strcmp(what, "runs") != 0) return KIND_STORE;
    return next(&at, run) ? in_run(at) : KIND_UPPER;
}

struct kill_object kill_object_of(const char *path, bool directory) {
    struct kill_object o = {.class = directory ? CLASS_DIRECTORY : CLASS_OBJECT};
    const char *leaf = strrchr(path, '/');
    char tier[160];
    if (is_temporary(leaf != NULL ? leaf + 1 : path)) o.class = CLASS_TEMPORARY;
    if (!next(&path, tier)) return o;
    o.local = starts(tier, "local");
    if (!o.local && strcmp(tier, "remote") != 0) return o;
    o.kind = in_tier(path);
    return o;
}

unsigned kill_point(const struct kill_object *o, enum kill_verb verb) {
    return (((o->local ? 1u : 0u) * KINDS + o->kind) * CLASSES + o->class) * VERBS + verb;
}

enum kill_verb kill_point_verb(unsigned point) {
    return (enum kill_verb)(point % VERBS);
}

void kill_point_name(unsigned point, char *ret, size_t bytes) {
    const unsigned verb = point % VERBS, class = point / VERBS % CLASSES;
    const unsigned kind = point / VERBS / CLASSES % KINDS, tier = point / VERBS / CLASSES / KINDS;
    (void)snprintf(ret, bytes, "%s %s %s%s", verb_names[verb], tier ? "local" : "remote", kind_names[kind],
                   class_names[class]);
}

/* --- counts ---- */

struct kill_counts *kill_counts_new(void) {
    static const unsigned calls[KILL_ROLES] = {3000, 2500, 900, 700, 1500, 1500};
    struct kill_counts *c = mmap(NULL, sizeof *c, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (c == MAP_FAILED) return NULL;
    for (unsigned r = 0; r < KILL_ROLES; r++) c->calls[r] = calls[r];
    return c;
}

static void load_line(struct kill_counts *c, const char *line) {
    unsigned role, point, seen, before, after;
    if (sscanf(line, "point %u %u %u %u %u", &role, &point, &seen, &before, &after) == 5) {
        if (role >= KILL_ROLES || point >= KILL_POINTS) return;
        c->seen[role][point] = seen;
        c->hits[role][point][0] = before;
        c->hits[role][point][1] = after;
    } else if (sscanf(line, "role %u %u %u", &role, &before, &after) == 3 && role < KILL_ROLES) {
        c->kills[role] = before;
        c->calls[role] = after;
    } else if (sscanf(line, "other %u %u", &before, &after) == 2) {
        c->frozen = before;
        c->at_end = after;
    }
}

void kill_counts_load(struct kill_counts *c, const char *path) {
    char line[256];
    FILE *f = fopen(path, "r");
    if (f == NULL) return;
    while (fgets(line, sizeof line, f) != NULL) load_line(c, line);
    (void)fclose(f);
}

void kill_counts_save(struct kill_counts *c, const char *path) {
    char name[800];
    if (atomic_exchange(&c->saving, true)) return;
    (void)snprintf(name, sizeof name, "%s.new", path);
    FILE *f = fopen(name, "w");
    if (f != NULL) {
        for (unsigned r = 0; r < KILL_ROLES; r++) {
            fprintf(f, "role %u %u %u\n", r, c->kills[r], c->calls[r]);
            for (unsigned p = 0; p < KILL_POINTS; p++)
                if (c->seen[r][p] + c->hits[r][p][0] + c->hits[r][p][1] > 0)
                    fprintf(f, "point %u %u %u %u %u\n", r, p, c->seen[r][p], c->hits[r][p][0], c->hits[r][p][1]);
        }
        fprintf(f, "other %u %u\n", c->frozen, c->at_end);
        if (fclose(f) == 0) (void)rename(name, path);
    }
    atomic_store(&c->saving, false);
}

struct row {
    unsigned seen, before, after;
    unsigned by[3]; /* rank 0, rank 1, tools */
};

static struct row row_of(const struct kill_counts *c, unsigned point) {
    struct row w = {0};
    for (unsigned r = 0; r < KILL_ROLES; r++) {
        const unsigned before = c->hits[r][point][0], after = c->hits[r][point][1];
        w.seen += c->seen[r][point];
        w.before += before;
        w.after += after;
        w.by[r < 2 ? r : 2] += before + after;
    }
    return w;
}

void kill_counts_print(const struct kill_counts *c, FILE *to) {
    unsigned named = 0, never = 0, least = UINT32_MAX;
    fprintf(to, "%-42s %9s %8s %8s %8s %8s %8s\n", "point", "seen", "before", "after", "rank 0", "rank 1", "tools");
    for (unsigned p = 0; p < KILL_POINTS; p++) {
        char name[96];
        const struct row w = row_of(c, p);
        if (kill_point_verb(p) >= VERB_CHANGES || w.seen + w.before + w.after == 0) continue;
        const unsigned less = w.before < w.after ? w.before : w.after;
        named++;
        never += less == 0;
        if (less < least) least = less;
        kill_point_name(p, name, sizeof name);
        fprintf(to, "%-42s %9u %8u %8u %8u %8u %8u%s\n", name, w.seen, w.before, w.after, w.by[0], w.by[1], w.by[2],
                less == 0 ? "  <- not hit both before and after" : "");
    }
    unsigned kills = 0;
    for (unsigned r = 0; r < KILL_ROLES; r++) {
        kills += c->kills[r];
        fprintf(to, "%s: %u killed, %u calls in a whole run\n", kill_role_name((enum kill_role)r), c->kills[r],
                c->calls[r]);
    }
    fprintf(to, "%u kill points, %u of them stopped and woken later, %u at the end of the process\n", kills, c->frozen,
            c->at_end);
    fprintf(to, "%u named points that change something: %u not hit both before and after, the least is %u\n", named,
            never, named > 0 ? least : 0);
}

bool kill_counts_choose(const struct kill_counts *c, enum kill_role role, uint64_t *random, unsigned *ret_point,
                        bool *ret_after) {
    unsigned least = UINT32_MAX, equals = 0;
    for (unsigned i = 0; i < KILL_POINTS * 2; i++) {
        const unsigned point = i / 2, hits = c->hits[role][point][i % 2];
        if (c->seen[role][point] == 0 || kill_point_verb(point) >= VERB_CHANGES || hits > least) continue;
        equals = hits < least ? 1 : equals + 1;
        least = hits;
        if (test_random(random) % equals > 0) continue;
        *ret_point = point;
        *ret_after = i % 2 == 1;
    }
    return equals > 0;
}
