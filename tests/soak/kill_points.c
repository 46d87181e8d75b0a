/* SPDX-License-Identifier: Apache-2.0 */
/* Names of what a system call was about, and counts. */
#include "kill_points.h"
#include "test.h"
#include <ctype.h>
#include <inttypes.h>
#include <string.h>
#include <sys/mman.h>

static const char *const role_names[KILL_ROLES] = {"rank 0", "rank 1", "prune", "drain"};
static const char *const kind_names[KINDS] = {
    "outside", "store",  "upper directory", "entry", "inventory", "refusal", "layout",  "checkpoint", "summary",
    "mark",    "damage", "manifest",        "index", "group",     "pack",    "content", "placement",  "lock"};
static const char *const class_names[CLASSES] = {"", " temporary", " directory"};
static const char *const verb_names[VERBS] = {"create", "reserve", "write", "fsync", "link",
                                              "rename", "unlink",  "rmdir", "mkdir", "lock"};

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

enum kill_kind kill_point_kind(unsigned point) {
    return (enum kill_kind)(point / VERBS / CLASSES % KINDS);
}

void kill_point_name(unsigned point, char *ret, size_t bytes) {
    const unsigned verb = point % VERBS, class = point / VERBS % CLASSES;
    const unsigned kind = point / VERBS / CLASSES % KINDS, tier = point / VERBS / CLASSES / KINDS;
    (void)snprintf(ret, bytes, "%s %s %s%s", verb_names[verb], tier ? "local" : "remote", kind_names[kind],
                   class_names[class]);
}

/* --- the table ---- */

#define VERB(v)     (1u << VERB_##v)
#define PUT         (VERB(CREATE) | VERB(WRITE) | VERB(SYNC) | VERB(UNLINK)) /* of a temporary */
#define LINK        VERB(LINK)
#define UNLINK      VERB(UNLINK)
#define SYNC        VERB(SYNC)
#define MKDIR       VERB(MKDIR)
#define RMDIR       VERB(RMDIR)
#define RANK_0      (1u << KILL_RANK_0)
#define RANKS       (RANK_0 | 1u << KILL_RANK_1)
#define PRUNE       (1u << KILL_PRUNE)
#define DRAIN       (1u << KILL_DRAIN)
#define ALL         (RANKS | PRUNE | DRAIN)
#define REMOTE      1u
#define LOCAL       2u
#define BOTH        (REMOTE | LOCAL)
#define COUNT_OF(a) (sizeof(a) / sizeof *(a))

/* The steps of doc/flows, as system calls on the objects that they are about, and who makes them. */
static const struct named_row {
    const char *flow;
    enum kill_kind kind;
    enum kill_class class;
    unsigned tiers, verbs, roles;
} rows[] = {
    {"open 1", KIND_STORE, CLASS_TEMPORARY, BOTH, PUT, RANKS},
    {"open 1", KIND_STORE, CLASS_OBJECT, BOTH, LINK, RANKS},
    {"open 1", KIND_STORE, CLASS_DIRECTORY, BOTH, SYNC | MKDIR, RANKS},
    {"open 1", KIND_OUTSIDE, CLASS_DIRECTORY, REMOTE, SYNC, RANKS},
    {"first of all", KIND_UPPER, CLASS_DIRECTORY, BOTH, SYNC | MKDIR, RANKS},
    {"open 4", KIND_INVENTORY, CLASS_TEMPORARY, REMOTE, PUT, RANKS},
    {"open 4", KIND_INVENTORY, CLASS_OBJECT, REMOTE, LINK, RANKS},
    {"open 4", KIND_INVENTORY, CLASS_DIRECTORY, REMOTE, SYNC | MKDIR, RANKS},
    {"open 8'", KIND_REFUSAL, CLASS_OBJECT, REMOTE, LINK, RANK_0},
    {"decide: open 8, commit 7, save F4, retire", KIND_ENTRY, CLASS_TEMPORARY, REMOTE, PUT, RANK_0 | PRUNE | DRAIN},
    {"decide", KIND_ENTRY, CLASS_OBJECT, REMOTE, LINK, RANK_0 | PRUNE | DRAIN},
    {"decide; and whoever believes an entry", KIND_ENTRY, CLASS_DIRECTORY, REMOTE, SYNC, ALL},
    {"open 8", KIND_ENTRY, CLASS_DIRECTORY, REMOTE, MKDIR, RANK_0},
    {"save 4 and 5, drain 5 and 7", KIND_GROUP, CLASS_TEMPORARY, BOTH, PUT | VERB(RESERVE), RANKS | DRAIN},
    {"room 5 and save 4: written over", KIND_GROUP, CLASS_TEMPORARY, LOCAL, VERB(RENAME), RANKS},
    {"save 4 and 5, drain 5 and 7", KIND_GROUP, CLASS_DIRECTORY, BOTH, SYNC | MKDIR, RANKS | DRAIN},
    {"save 4, drain 5", KIND_PACK, CLASS_OBJECT, BOTH, LINK, RANKS | DRAIN},
    {"save 5, drain 7", KIND_CONTENT, CLASS_OBJECT, BOTH, LINK, RANKS | DRAIN},
    {"save 5, drain 7", KIND_PLACEMENT, CLASS_OBJECT, BOTH, LINK, RANKS | DRAIN},
    {"save 5, drain 7", KIND_LAYOUT, CLASS_TEMPORARY, BOTH, PUT, RANKS | DRAIN},
    {"save 5, drain 7", KIND_LAYOUT, CLASS_OBJECT, BOTH, LINK | SYNC, RANKS | DRAIN},
    {"save 5, drain 7, commit 6", KIND_LAYOUT, CLASS_DIRECTORY, BOTH, SYNC | MKDIR, RANKS | DRAIN},
    {"save 5, drain 8", KIND_SUMMARY, CLASS_TEMPORARY, BOTH, PUT, RANKS | DRAIN},
    {"save 5, drain 8", KIND_SUMMARY, CLASS_OBJECT, BOTH, LINK, RANKS | DRAIN},
    {"save 5, drain 8, commit 6", KIND_SUMMARY, CLASS_DIRECTORY, BOTH, SYNC | MKDIR, RANKS | DRAIN},
    {"drain 2", KIND_LOCK, CLASS_OBJECT, LOCAL, VERB(CREATE) | VERB(LOCK), RANKS | DRAIN},
    {"commit 5", KIND_CHECKPOINT, CLASS_TEMPORARY, REMOTE, PUT, RANK_0 | DRAIN},
    {"commit 5", KIND_INDEX, CLASS_OBJECT, REMOTE, LINK | SYNC, RANK_0 | DRAIN},
    {"commit 5", KIND_MANIFEST, CLASS_OBJECT, REMOTE, LINK | SYNC, RANK_0 | DRAIN},
    {"commit 5", KIND_CHECKPOINT, CLASS_DIRECTORY, REMOTE, SYNC, RANKS | DRAIN},
    {"save 5, drain 8", KIND_CHECKPOINT, CLASS_DIRECTORY, BOTH, MKDIR, RANKS},
    {"save F3, lookout 2", KIND_MARK, CLASS_TEMPORARY, REMOTE, PUT, RANKS},
    {"save F3, lookout 2", KIND_MARK, CLASS_OBJECT, REMOTE, LINK, RANKS},
    {"save F3, lookout 2", KIND_MARK, CLASS_DIRECTORY, REMOTE, SYNC | MKDIR, RANKS},
    {"sweep 6, room 4, save F5", KIND_SUMMARY, CLASS_OBJECT, BOTH, UNLINK, RANKS | PRUNE},
    {"sweep 6", KIND_SUMMARY, CLASS_DIRECTORY, BOTH, RMDIR, PRUNE},
    {"sweep 7, room 5, save F5", KIND_PACK, CLASS_OBJECT, BOTH, UNLINK, RANKS | PRUNE},
    {"sweep 7, room 5, save F5", KIND_CONTENT, CLASS_OBJECT, BOTH, UNLINK, RANKS | PRUNE},
    {"sweep 7, room 5, save F5", KIND_PLACEMENT, CLASS_OBJECT, BOTH, UNLINK, RANKS | PRUNE},
    {"sweep 7, room 5", KIND_LOCK, CLASS_OBJECT, LOCAL, UNLINK, RANKS | PRUNE},
    {"sweep 7, room 5, save F5", KIND_GROUP, CLASS_DIRECTORY, BOTH, RMDIR, RANKS | PRUNE},
    {"sweep 8", KIND_MANIFEST, CLASS_OBJECT, REMOTE, UNLINK, PRUNE},
    {"sweep 8", KIND_INDEX, CLASS_OBJECT, REMOTE, UNLINK, PRUNE},
    {"sweep 8", KIND_MARK, CLASS_OBJECT, REMOTE, UNLINK, PRUNE},
    {"sweep 8", KIND_MARK, CLASS_DIRECTORY, REMOTE, RMDIR, PRUNE},
    {"sweep 8, room 6", KIND_CHECKPOINT, CLASS_DIRECTORY, BOTH, RMDIR, PRUNE},
    {"sweep 8", KIND_CHECKPOINT, CLASS_DIRECTORY, BOTH, SYNC, PRUNE},
    {"sweep 9, room 7", KIND_LAYOUT, CLASS_OBJECT, BOTH, UNLINK, PRUNE},
    {"sweep 9, room 7", KIND_LAYOUT, CLASS_DIRECTORY, BOTH, RMDIR, PRUNE},
    {"sweep 10", KIND_INVENTORY, CLASS_OBJECT, REMOTE, UNLINK, PRUNE},
    {"sweep 10", KIND_INVENTORY, CLASS_DIRECTORY, REMOTE, RMDIR, PRUNE},
};

/* Whether a row names this point; the roles are those that come to it. */
static bool is_of_row(const struct named_row *w, unsigned point) {
    const unsigned verb = point % VERBS, class = point / VERBS % CLASSES;
    const unsigned kind = point / VERBS / CLASSES % KINDS, tier = point / VERBS / CLASSES / KINDS;
    return w->kind == kind && w->class == class && (w->verbs >> verb & 1) && (w->tiers >> tier & 1);
}

static const char *flow_of(unsigned point) {
    for (size_t i = 0; i < COUNT_OF(rows); i++)
        if (is_of_row(&rows[i], point)) return rows[i].flow;
    return NULL;
}

static bool comes_to(unsigned role, unsigned point) {
    for (size_t i = 0; i < COUNT_OF(rows); i++)
        if ((rows[i].roles >> role & 1) && is_of_row(&rows[i], point)) return true;
    return false;
}

struct kill_named kill_named_at(uint64_t random) {
    static struct kill_named all[KILL_ROLES * KILL_POINTS];
    static size_t count;
    static bool listed;
    for (unsigned p = 0; !listed && p < KILL_POINTS; p++)
        for (unsigned r = 0; r < KILL_ROLES; r++)
            if (comes_to(r, p)) all[count++] = (struct kill_named){p, (enum kill_role)r};
    listed = true;
    return all[random % count];
}

/* --- counts ---- */

struct kill_counts *kill_counts_new(void) {
    struct kill_counts *c = mmap(NULL, sizeof *c, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return c == MAP_FAILED ? NULL : c;
}

static void load_line(struct kill_counts *c, const char *line) {
    unsigned role, point, seen, before, after;
    unsigned long long calls;
    if (sscanf(line, "point %u %u %u %u %u", &role, &point, &seen, &before, &after) == 5) {
        if (role >= KILL_ROLES || point >= KILL_POINTS) return;
        c->seen[role][point] = seen;
        c->hits[role][point][0] = before;
        c->hits[role][point][1] = after;
    } else if (sscanf(line, "role %u %u %u %llu", &role, &before, &after, &calls) == 4 && role < KILL_ROLES) {
        c->kills[role] = before;
        c->wholes[role] = after;
        c->whole_calls[role] = calls;
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

static void write_counts(const struct kill_counts *c, FILE *f) {
    for (unsigned r = 0; r < KILL_ROLES; r++) {
        fprintf(f, "role %u %u %u %llu\n", r, c->kills[r], c->wholes[r], c->whole_calls[r]);
        for (unsigned p = 0; p < KILL_POINTS; p++)
            if (c->seen[r][p] + c->hits[r][p][0] + c->hits[r][p][1] > 0)
                fprintf(f, "point %u %u %u %u %u\n", r, p, c->seen[r][p], c->hits[r][p][0], c->hits[r][p][1]);
    }
    fprintf(f, "other %u %u\n", c->frozen, c->at_end);
}

void kill_counts_save(struct kill_counts *c, const char *path) {
    char name[800];
    if (atomic_exchange(&c->saving, true)) return;
    (void)snprintf(name, sizeof name, "%s.new", path);
    FILE *f = fopen(name, "w");
    if (f != NULL) {
        write_counts(c, f);
        if (fclose(f) == 0) (void)rename(name, path);
    }
    atomic_store(&c->saving, false);
}

struct row {
    unsigned seen, before, after;
    unsigned by[KILL_ROLES];
};

static struct row row_of(const struct kill_counts *c, unsigned point) {
    struct row w = {0};
    for (unsigned r = 0; r < KILL_ROLES; r++) {
        const unsigned before = c->hits[r][point][0], after = c->hits[r][point][1];
        w.seen += c->seen[r][point];
        w.before += before;
        w.after += after;
        w.by[r] = before + after;
    }
    return w;
}

static void print_point(const struct kill_counts *c, unsigned point, FILE *to, unsigned *never) {
    char name[96];
    const struct row w = row_of(c, point);
    const char *flow = flow_of(point), *note = "";
    if (flow == NULL && w.seen + w.before + w.after == 0) return;
    if (w.before + w.after == 0) note = "  NEVER HIT";
    *never += flow != NULL && w.before + w.after == 0;
    kill_point_name(point, name, sizeof name);
    fprintf(to, "%-36s %7u %7u %7u %7u %7u %7u  %s%s\n", name, w.before, w.after, w.by[0], w.by[1], w.by[2], w.by[3],
            flow != NULL ? flow : "(not in the table)", note);
}

void kill_counts_print(const struct kill_counts *c, FILE *to) {
    unsigned never = 0, kills = 0;
    fprintf(to, "%-36s %7s %7s %7s %7s %7s %7s  %s\n", "point", "before", "after", "rank 0", "rank 1", "prune", "drain",
            "flow");
    for (unsigned p = 0; p < KILL_POINTS; p++) print_point(c, p, to, &never);
    for (unsigned r = 0; r < KILL_ROLES; r++) {
        const unsigned wholes = c->wholes[r];
        kills += c->kills[r];
        fprintf(to, "%s: %u times; %llu calls in one that was not hit\n", kill_role_name((enum kill_role)r),
                c->kills[r], wholes > 0 ? c->whole_calls[r] / wholes : 0);
    }
    fprintf(to, "%u processes hit: %u stopped and woken later, %u at their end; %u named points never hit\n", kills,
            c->frozen, c->at_end, never);
}
