/* SPDX-License-Identifier: Apache-2.0 */
/* A store that is to be damaged. */
#include "damage_kit.h"
#include <errno.h>
#include <fts.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define WORLD 2u
#define ROWS  64u /* of each rank */
#define ROW   24u
#define OWN   3000u
#define BLOB  40u

/* ---- names ---- */

const char *tier_text(enum tier t) {
    static const char *const names[] = {"local", "remote", "archive"};
    return names[t];
}

const char *tier_of_list(enum tier t) {
    return t == LOCAL ? "local" : "remote";
}

const char *class_text(enum class c) {
    static const char *const names[] = {"store",    "entry", "inventory", "layout",  "summary",
                                        "manifest", "index", "pack",      "content", "placement"};
    return names[c];
}

static const char *root_of(const struct store *s, enum tier t) {
    return t == LOCAL ? s->p.local : t == REMOTE ? s->p.remote : s->archive;
}

static enum class class_of(const char *key) { static const struct {const char * part; enum class class;}
parts[] = {{"/history/", ENTRY},   {"/launches/", INVENTORY}, {"/layouts/", LAYOUT},
           {"/groups/", SUMMARY},  {"/manifest.", MANIFEST},  {"/index.", INDEX},
           {".safetensors", PACK}, {"/content", CONTENT},     {"/placement-", PLACEMENT}};
for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
    if (strstr(key, parts[i].part) != NULL) return parts[i].class;
must_at(strcmp(key, "store.json") == 0, key, "a key that the test knows", __FILE__, __LINE__);
return STORE_ID;
}

/* ---- objects ---- */

const char *object_path(const struct store *s, const struct object *o) {
    return path_in(root_of(s, o->tier), "%s", o->key);
}

static unsigned char *read_file(const char *path, size_t *ret_n) {
    FILE *f = fopen(path, "r");
    must_at(f != NULL && fseek(f, 0, SEEK_END) == 0, path, "it can be read", __FILE__, __LINE__);
    const long n = ftell(f);
    unsigned char *bytes = malloc((size_t)n + 1);
    must(bytes != NULL && fseek(f, 0, SEEK_SET) == 0 && fread(bytes, 1, (size_t)n, f) == (size_t)n);
    must_eq(fclose(f), 0);
    *ret_n = (size_t)n;
    return bytes;
}

void object_remove(const struct store *s, const struct object *o) {
    must_eq(unlink(object_path(s, o)), 0);
}

static void make_parents(const char *path) {
    char part[1500];
    (void)snprintf(part, sizeof part, "%s", path);
    for (char *at = strchr(part + 1, '/'); at != NULL; at = strchr(at + 1, '/')) {
        *at = '\0';
        must(mkdir(part, 0700) == 0 || errno == EEXIST);
        *at = '/';
    }
}

/* In place of what is there, as a file of its own. */
void object_write(const struct store *s, const struct object *o, const void *bytes, size_t n) {
    const char *path = object_path(s, o);
    if (unlink(path) != 0) (void)rmdir(path);
    FILE *f = fopen(path, "w");
    if (f == NULL) {
        make_parents(path);
        f = fopen(path, "w");
    }
    must_at(f != NULL, path, "it can be written", __FILE__, __LINE__);
    must(fwrite(bytes, 1, n, f) == n && fclose(f) == 0 && chmod(path, 0600) == 0);
}

/* ---- all objects ---- */

static bool is_object(const FTSENT *e) {
    return e->fts_info == FTS_F && strstr(e->fts_name, ".tmp") == NULL && e->fts_name[0] != '.' &&
           strcmp(e->fts_name, "lock") != 0;
}

static int by_name(const FTSENT **a, const FTSENT **b) {
    return strcmp((*a)->fts_name, (*b)->fts_name);
}

static void add_object(struct store *s, enum tier t, const char *path) {
    if (s->count == s->cap) {
        s->cap = s->cap * 2 + 256;
        s->list = realloc(s->list, s->cap * sizeof *s->list);
        must(s->list != NULL);
    }
    struct object *o = &s->list[s->count++];
    *o = (struct object){.tier = t};
    (void)snprintf(o->key, sizeof o->key, "%s", path + strlen(root_of(s, t)) + 1);
    o->class = class_of(o->key);
    o->strange = strncmp(o->key, "runs/" STRANGER "/", strlen("runs/" STRANGER "/")) == 0;
    o->bytes = read_file(path, &o->n);
}

/* Calls `each` for all files of a tier, in the order of their names. */
static void walk(const struct store *s, enum tier t, void (*each)(void *arg, enum tier t, const char *path),
                 void *arg) {
    char root[700];
    (void)snprintf(root, sizeof root, "%s", root_of(s, t));
    char *const roots[] = {root, NULL};
    FTS *f = fts_open(roots, FTS_PHYSICAL | FTS_NOCHDIR, by_name);
    must(f != NULL);
    for (FTSENT *e; (e = fts_read(f)) != NULL;)
        if (is_object(e)) each(arg, t, e->fts_path);
    must_eq(fts_close(f), 0);
}

static void keep_file(void *arg, enum tier t, const char *path) {
    add_object(arg, t, path);
}

/* The checkpoint that a key names; of an attempt's layouts the first one that was made in it. */
static void find_id(const struct store *s, struct object *o) {
    for (unsigned i = 0; i < s->checkpoint_count && o->id[0] == '\0'; i++) {
        const char *id = s->checkpoints[i].id;
        char attempt[BW_ID_BYTES];
        (void)snprintf(attempt, sizeof attempt, "/%s", strchr(id, '.') + 1);
        (void)snprintf(strrchr(attempt, '.'), 2, "/");
        if (strstr(o->key, id) != NULL || (o->class == LAYOUT && strstr(o->key, attempt) != NULL))
            (void)snprintf(o->id, sizeof o->id, "%s", id);
    }
}

/* ---- the job ---- */

struct plan {
    struct store *s;
    const char *run, *launch;
    uint64_t back_to; /* 0: go on from the newest */
    uint64_t first, last, seed;
};

static void describe(struct bw_save *v, uint32_t rank, uint64_t seed, unsigned char *m) {
    struct bw_error err = BW_ERROR_INIT;
    const uint64_t shape[2] = {WORLD * ROWS, ROW}, offset[2] = {rank * ROWS, 0}, extent[2] = {ROWS, ROW};
    const uint64_t own = OWN / 4;
    char name[32], text[64];
    fill(m, ROWS * ROW, seed + rank);
    add_box(v, "rows", BW_U8, m, 2, shape, offset, extent);
    m += ROWS * ROW;
    fill(m, OWN, seed + 10 + rank);
    (void)snprintf(name, sizeof name, "own.%u", rank);
    add_box(v, name, BW_F32, m, 1, &own, NULL, NULL);
    (void)snprintf(name, sizeof name, "tied.%u", rank);
    add_box(v, name, BW_F32, m, 1, &own, NULL, NULL);
    m += OWN;
    fill(m, BLOB, seed + 20 + rank);
    must_ok(bw_save_blob(v, "rng", m, BLOB, &err), &err);
    (void)snprintf(text, sizeof text, "{\"seed\":%u}", (unsigned)seed + rank);
    must_ok(bw_save_metadata(v, text, &err), &err);
}

static int rank_main(void *arg, unsigned rank) {
    const struct plan *p = arg;
    struct bw_options o = options_of(&p->s->p, p->launch, rank, WORLD);
    unsigned char m[ROWS * ROW + OWN + BLOB];
    o.run = p->run;
    if (p->back_to > 0) {
        o.resume = BW_RESUME_ROLLBACK;
        o.resume_step = p->back_to;
        o.label = "back";
    }
    struct bw_checkpointer *ck = open_with(&o);
    for (uint64_t step = p->first; step <= p->last; step++) {
        struct bw_save *v = begin(ck, step);
        describe(v, rank, p->seed + step * 100, m);
        commit(v);
    }
    close_ok(ck);
    return 0;
}

static void launch(struct store *s, const char *run, const char *name, uint64_t back_to, uint64_t first, uint64_t last,
                   uint64_t seed) {
    struct plan p = {s, run, name, back_to, first, last, seed};
    run_ranks(rank_main, &p, WORLD);
}

__attribute__((format(printf, 1, 2))) static void command(const char *fmt, ...) {
    char text[3000];
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    must_eq(system(text), 0);
}

static void promote(struct store *s, const char *run) {
    struct bw_error err = BW_ERROR_INIT;
    struct bw_list *list = NULL;
    struct bw_catalog *c = catalog_of(&s->p);
    must_ok(bw_catalog_repair(c, run, BW_REPAIR_PROMOTE, &list, &err), &err);
    bw_list_free(list);
    bw_catalog_close(c);
}

/* The runs go to another store, which decides from there on: that is how an era ends. */
static void move_on(struct store *s) {
    struct place other = s->p;
    (void)snprintf(other.remote, sizeof other.remote, "%s/moved", s->p.root);
    (void)snprintf(other.local, sizeof other.local, "%s/unused", s->p.root);
    struct bw_options o = options_of(&other, "elsewhere", 0, 1);
    o.run = "elsewhere";
    close_ok(open_with(&o));
    command("rm -r '%s/runs' && mv '%s/runs' '%s/runs'", other.remote, s->p.remote, other.remote);
    memcpy(s->p.remote, other.remote, sizeof s->p.remote);
    promote(s, RUN);
    promote(s, STRANGER);
}

/* A place of its own with the runs of the authority. */
static void make_archive(struct store *s) {
    struct place other = s->p;
    (void)snprintf(s->archive, sizeof s->archive, "%s/archive", s->p.root);
    memcpy(other.remote, s->archive, sizeof other.remote);
    struct bw_options o = options_of(&other, "elsewhere", 0, 1);
    (void)snprintf(other.local, sizeof other.local, "%s/unused", s->p.root);
    o.run = "elsewhere";
    close_ok(open_with(&o));
    command("rm -r '%s/runs' && cp -r '%s/runs' '%s/runs'", s->archive, s->p.remote, s->archive);
}

static void save_both(struct store *s, const char *name, uint64_t back_to, uint64_t first, uint64_t last,
                      uint64_t seed) {
    char other[32];
    (void)snprintf(other, sizeof other, "strange-%s", name); /* a launch is not named twice */
    launch(s, RUN, name, back_to, first, last, seed);
    launch(s, STRANGER, other, back_to, first, last, seed + 5000);
}

/* Which checkpoints there are, and what they hold. */
static void list_checkpoints(struct store *s) {
    struct bw_error err = BW_ERROR_INIT;
    struct bw_list *list = NULL;
    struct bw_checkpoint_row row;
    struct bw_catalog *c = catalog_of(&s->p);
    unsigned shelved = 0;
    must_ok(bw_catalog_checkpoints(c, RUN, &list, &err), &err);
    for (size_t i = 0; bw_list_checkpoint(list, i, &row); i++) {
        must(row.state == BW_CKPT_LIVE || row.state == BW_CKPT_SHELVED);
        must(s->checkpoint_count < CHECKPOINTS_MAX);
        struct checkpoint *k = &s->checkpoints[s->checkpoint_count++];
        (void)snprintf(k->id, sizeof k->id, "%s", row.id);
        k->seed = row.step * 100 + row.attempt * 1000;
        shelved += row.state == BW_CKPT_SHELVED;
    }
    must_eq(s->checkpoint_count, 4);
    must_eq(shelved, 1);
    bw_list_free(list);
    bw_catalog_close(c);
}

void store_make(struct store *s) {
    *s = (struct store){0};
    place_make(&s->p);
    save_both(s, "one", 0, 1, 2, 1000);
    save_both(s, "two", 1, 2, 2, 2000);
    move_on(s); /* the promotion is attempt 3 */
    save_both(s, "four", 0, 3, 3, 4000);
    make_archive(s);
    list_checkpoints(s);
    for (unsigned t = 0; t < TIERS; t++) walk(s, (enum tier)t, keep_file, s);
    for (size_t i = 0; i < s->count; i++) find_id(s, &s->list[i]);
}

void store_drop(struct store *s) {
    for (size_t i = 0; i < s->count; i++) free(s->list[i].bytes);
    free(s->list);
    place_drop(&s->p);
}

/* ---- undoing ---- */

struct compared {
    const struct store *s;
    bool undo;
    size_t at, changed; /* the object that comes next */
};

static bool is_same(const struct object *o, const char *path) {
    size_t n;
    unsigned char *bytes = read_file(path, &n);
    const bool same = n == o->n && memcmp(bytes, o->bytes, n) == 0;
    free(bytes);
    return same;
}

static void meet_missing(struct compared *c) {
    const struct object *o = &c->s->list[c->at++];
    c->changed++;
    if (c->undo) object_write(c->s, o, o->bytes, o->n);
}

/* fts sorts each directory; so do the objects, that came from the same walk. */
static size_t find_from(const struct compared *c, enum tier t, const char *key) {
    for (size_t i = c->at; i < c->s->count && c->s->list[i].tier == t; i++)
        if (strcmp(c->s->list[i].key, key) == 0) return i;
    return SIZE_MAX;
}

static void compare_file(void *arg, enum tier t, const char *path) {
    struct compared *c = arg;
    const size_t i = find_from(c, t, path + strlen(root_of(c->s, t)) + 1);
    if (i == SIZE_MAX) { /* too many */
        c->changed++;
        if (c->undo) must_eq(unlink(path), 0);
        return;
    }
    while (c->at < i) meet_missing(c);
    const struct object *o = &c->s->list[c->at++];
    if (is_same(o, path)) return;
    c->changed++;
    if (c->undo) object_write(c->s, o, o->bytes, o->n);
}

static size_t compare_tier(const struct store *s, enum tier t, bool undo) {
    struct compared c = {.s = s, .undo = undo};
    while (c.at < s->count && s->list[c.at].tier != t) c.at++;
    walk(s, t, compare_file, &c);
    while (c.at < s->count && s->list[c.at].tier == t) meet_missing(&c);
    return c.changed;
}

void store_undo(const struct store *s) {
    for (unsigned t = 0; t < TIERS; t++) (void)compare_tier(s, (enum tier)t, true);
}

size_t store_changed(const struct store *s, enum tier t) {
    return compare_tier(s, t, false);
}

/* ---- restoring ---- */

static bool read_tensor(struct bw_restore *r, const char *name, enum bw_dtype dtype, uint32_t dims,
                        const uint64_t *shape, void *to, struct bw_error *err) {
    struct bw_slice s = BW_SLICE_INIT;
    s.dtype = dtype;
    s.name = name;
    s.data = to;
    s.dims = dims;
    s.shape = shape;
    return bw_restore_read(r, &s, 1, err) == 0;
}

static enum restored restore_rank(struct bw_restore *r, uint32_t rank, uint64_t seed, struct bw_error *err) {
    const uint64_t own = OWN / 4;
    unsigned char m[OWN];
    char name[32], text[64];
    const char *json;
    size_t n;
    for (unsigned tied = 0; tied < 2; tied++) {
        (void)snprintf(name, sizeof name, tied ? "tied.%u" : "own.%u", rank);
        if (!read_tensor(r, name, BW_F32, 1, &own, m, err)) return REFUSED;
        if (!is_filled(m, OWN, seed + 10 + rank)) return WRONG;
    }
    if (bw_restore_blob(r, rank, "rng", m, sizeof m, &n, err) < 0) return REFUSED;
    if (n != BLOB || !is_filled(m, BLOB, seed + 20 + rank)) return WRONG;
    if (bw_restore_metadata(r, rank, &json, err) < 0) return REFUSED;
    (void)snprintf(text, sizeof text, "{\"seed\":%u}", (unsigned)seed + rank);
    return strcmp(json, text) == 0 ? RIGHT : WRONG;
}

enum restored restore_with(struct bw_restore *r, uint64_t seed, struct bw_error *err) {
    const uint64_t shape[2] = {WORLD * ROWS, ROW};
    unsigned char rows[WORLD * ROWS * ROW];
    if (!read_tensor(r, "rows", BW_U8, 2, shape, rows, err)) return REFUSED;
    for (uint32_t rank = 0; rank < WORLD; rank++)
        if (!is_filled(rows + (size_t)rank * ROWS * ROW, ROWS * ROW, seed + rank)) return WRONG;
    enum restored all = RIGHT;
    for (uint32_t rank = 0; rank < WORLD && all == RIGHT; rank++) all = restore_rank(r, rank, seed, err);
    return all;
}

enum restored restore_all(const struct store *s, enum tier of, bool with_local, const struct checkpoint *c,
                          struct bw_error *err) {
    struct bw_reader_options o = BW_READER_OPTIONS_INIT;
    struct bw_restore *r = NULL;
    o.run = RUN;
    o.remote_url = root_of(s, of);
    o.local_url = with_local ? s->p.local : NULL;
    o.id = c->id;
    o.memory_budget_bytes = 64 * MIB;
    o.io_threads = 1;
    *err = (struct bw_error)BW_ERROR_INIT;
    if (bw_reader_open(&o, &r, err) < 0) return REFUSED;
    const enum restored is = restore_with(r, c->seed, err);
    bw_restore_close(r);
    return is;
}
