/* SPDX-License-Identifier: Apache-2.0 */
/* Every object of a store is damaged in turn: found, named, served from elsewhere or refused, mended. What is damaged
 * is never handed out.
 *
 * The bits that are flipped follow from a seed: BW_TEST_SEED tries others. */
#include "damage_kit.h"
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum kind { FLIPPED, SHORTER, LONGER, SWAPPED, GONE, STRANGE, NO_FILE, DIRECTORY, KINDS };
static const char *const kind_text[KINDS] = {"one bit flipped", "a byte shorter", "a byte longer", "swapped", "gone",
                                             "of another run",  "no file",        "a directory"};

static struct { unsigned trials, found; } tally[TIERS][KINDS];

static uint64_t seed;

/* What was done to the store. */
struct damage {
    enum kind kind;
    const struct object *o, *with; /* with: the other one of a swap */
    size_t at;                     /* of a flip */
    unsigned bit;
    bool both_tiers;
};

static const char *text_of(const struct damage *d) {
    static char text[1200];
    (void)snprintf(text, sizeof text, "%s: %s %s, byte %zu, bit %u%s%s; repeat with BW_TEST_SEED=0x%llx",
                   kind_text[d->kind], tier_text(d->o->tier), d->o->key, d->at, d->bit, d->with ? ", with " : "",
                   d->with ? d->with->key : "", (unsigned long long)seed);
    return text;
}

static void must_with(const struct damage *d, bool ok, const char *more, const char *what, int line) {
    if (!ok) (void)fprintf(stderr, "%s\n", text_of(d));
    must_at(ok, more, what, __FILE__, line);
}
#define must_of(d, cond, more) must_with((d), (cond), (more), #cond, __LINE__)

/* ---- damaging ---- */

static bool is_newest_entry(const struct store *s, const struct object *o) {
    const size_t i = (size_t)(o - s->list);
    return o->class == ENTRY && (i + 1 == s->count || s->list[i + 1].class != ENTRY);
}

static bool is_oldest_entry(const struct store *s, const struct object *o) {
    return o->class == ENTRY && o > s->list && o[-1].class != ENTRY;
}

/* What the library itself leaves so, and must not be called damage: a log that was trimmed, or has not got its next
 * entry yet; the gaps of an archive; inventories that a sweep has taken; a copy that was evicted; a local tier whose
 * identity is made anew. */
static bool may_be_gone(const struct store *s, const struct object *o) {
    if (o->class == ENTRY) return o->tier == ARCHIVE || is_newest_entry(s, o) || is_oldest_entry(s, o);
    if (o->class == SUMMARY || o->class == STORE_ID) return o->tier == LOCAL;
    return o->class == INVENTORY;
}

static bool differ(const struct object *a, const struct object *b) {
    return a->n != b->n || memcmp(a->bytes, b->bytes, a->n) != 0;
}

/* Another object of the tier that could stand in its place, and has other bytes; the nearest one behind it, in a ring.
 * NULL: there is none. */
static const struct object *partner(const struct store *s, const struct object *o, bool strange) {
    const size_t i = (size_t)(o - s->list);
    const struct object *other_size = NULL;
    for (size_t k = 1; k < s->count; k++) {
        const struct object *p = &s->list[(i + k) % s->count];
        if (p->tier != o->tier || p->class != o->class || p->strange != strange || !differ(o, p)) continue;
        if (p->n == o->n) return p;
        if (other_size == NULL) other_size = p;
    }
    return strange ? other_size : NULL;
}

static void flip(const struct store *s, const struct object *o, size_t at, unsigned bit) {
    o->bytes[at] ^= (unsigned char)(1u << bit);
    object_write(s, o, o->bytes, o->n);
    o->bytes[at] ^= (unsigned char)(1u << bit);
}

static void lengthen(const struct store *s, const struct object *o) {
    unsigned char *bytes = malloc(o->n + 1);
    must(bytes != NULL);
    memcpy(bytes, o->bytes, o->n);
    bytes[o->n] = 0;
    object_write(s, o, bytes, o->n + 1);
    free(bytes);
}

/* A FIFO or a link into nowhere, in turn; or a directory. */
static void put_no_file(const struct store *s, const struct damage *d) {
    const char *path = object_path(s, d->o);
    object_remove(s, d->o);
    if (d->kind == DIRECTORY)
        must_eq(mkdir(path, 0700), 0);
    else
        must_eq((d->o - s->list) % 2 == 0 ? mkfifo(path, 0600) : symlink("nowhere", path), 0);
}

/* false: this object cannot be damaged so. */
static bool inflict(const struct store *s, struct damage *d) {
    if (d->kind == GONE && may_be_gone(s, d->o)) return false;
    if (d->kind == SWAPPED || d->kind == STRANGE) d->with = partner(s, d->o, d->kind == STRANGE);
    if ((d->kind == SWAPPED || d->kind == STRANGE) && d->with == NULL) return false;
    if (d->kind == FLIPPED) flip(s, d->o, d->at, d->bit);
    if (d->kind == SHORTER) object_write(s, d->o, d->o->bytes, d->o->n - 1);
    if (d->kind == LONGER) lengthen(s, d->o);
    if (d->kind == GONE) object_remove(s, d->o);
    if (d->kind == NO_FILE || d->kind == DIRECTORY) put_no_file(s, d);
    if (d->with != NULL) object_write(s, d->o, d->with->bytes, d->with->n);
    if (d->kind == SWAPPED) object_write(s, d->with, d->o->bytes, d->o->n);
    return true;
}

static void restore_object(const struct store *s, const struct object *o) {
    if (o != NULL && !o->strange) object_write(s, o, o->bytes, o->n);
}

/* Where nothing but the damage has changed the store. */
static void undo_damage(const struct store *s, const struct damage *d) {
    restore_object(s, d->o);
    restore_object(s, d->with);
}

/* ---- where to flip ---- */

static int class_of_byte(unsigned char c) {
    if ((c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z')) return 1;
    return c == 0 ? 2 : 3;
}

/* Where something begins: each word, number and mark of a text; each fourth byte of what is none. */
static bool begins(const struct object *o, size_t i) {
    if (i == 0 || i + 1 == o->n) return true;
    const bool text = o->class == ENTRY || o->class == INVENTORY || o->class == MANIFEST || o->class == STORE_ID ||
                      (o->class == PACK && i >= 8 && i < 4096);
    if (text) return class_of_byte(o->bytes[i]) != class_of_byte(o->bytes[i - 1]);
    return i % 4 == 0 && (o->class != PACK || i < 8 || i % 512 == 0);
}

/* At most this many of an object's fields, evenly spread, its first and last byte among them. */
#define FLIPS FULL_OR(10u, 4u)

static size_t choose_bytes(const struct object *o, uint64_t *random, size_t *ret) {
    size_t fields = 0, n = 0;
    for (size_t i = 0; i < o->n; i++) fields += begins(o, i);
    const size_t stride = fields <= FLIPS - 2 ? 1 : (fields + FLIPS - 3) / (FLIPS - 2);
    const size_t phase = test_random(random) % stride;
    size_t field = 0;
    for (size_t i = 0; i < o->n; i++) {
        if (!begins(o, i)) continue;
        if (i == 0 || i + 1 == o->n || field % stride == phase) ret[n++] = i;
        field++;
    }
    must(n >= 2 && n <= FLIPS);
    return n;
}

/* ---- finding ---- */

struct eye {
    const struct store *s;
    enum tier tier;
    struct bw_catalog *c;
};

static int eye_open(struct eye *e, const struct store *s, enum tier t, struct bw_error *err) {
    struct bw_catalog_options o = BW_CATALOG_OPTIONS_INIT;
    *e = (struct eye){.s = s, .tier = t};
    o.remote_url = t == ARCHIVE ? s->archive : s->p.remote;
    o.local_url = s->p.local;
    o.memory_budget_bytes = 64 * MIB;
    o.io_threads = 1;
    return bw_catalog_open(&o, &e->c, err);
}

/* Which of the objects that were damaged a finding names; NULL: none. */
static const struct object *named_by(const struct bw_finding *f, const struct damage *d) {
    char number[32];
    const struct object *o = d->o;
    if (strcmp(f->tier, tier_of_list(o->tier)) != 0 && !d->both_tiers) return NULL;
    if (strcmp(f->object, o->key) == 0) return o;
    if (d->kind == SWAPPED && strcmp(f->object, d->with->key) == 0) return d->with;
    if (d->kind != GONE || o->class != ENTRY) return NULL;
    (void)snprintf(number, sizeof number, "entries %u to ", (unsigned)strtoul(o->key + strlen(o->key) - 10, NULL, 10));
    return strstr(f->message, number) != NULL ? o : NULL;
}

/* What follows from damage, and is no object: the checkpoint as a whole. */
static bool is_whole(const struct bw_finding *f) {
    return f->object[0] != '\0' && f->object[strlen(f->object) - 1] == '/';
}

/* An inventory that cannot be read does no harm once its launch has begun. */
static uint32_t severity_of(const struct object *o) {
    return o->class == INVENTORY ? 1 : 2;
}

static void print_findings(const struct bw_list *list) {
    struct bw_finding f;
    for (size_t i = 0; bw_list_finding(list, i, &f); i++)
        (void)fprintf(stderr, "  %u %s %s %s: %s\n", f.severity, bw_status_name(f.status), f.tier, f.object, f.message);
}

/* Each damaged object is named, and nothing that is sound is. */
static bool is_found_in(const struct bw_list *list, const struct damage *d) {
    struct bw_finding f;
    bool first = false, second = d->kind != SWAPPED;
    for (size_t i = 0; bw_list_finding(list, i, &f); i++) {
        if (f.severity == 0) continue;
        const struct object *o = named_by(&f, d);
        if (o == NULL && is_whole(&f)) continue;
        if (o == NULL) return false;
        if (f.severity != severity_of(o)) return false;
        first = first || o == d->o;
        second = second || o == d->with;
    }
    return first && second;
}

static bool is_refused(const struct eye *e, const struct damage *d) {
    struct bw_error err = BW_ERROR_INIT;
    struct eye again;
    const int rc = eye_open(&again, e->s, e->tier, &err);
    struct bw_list *list = NULL;
    const int verified = rc == 0 ? bw_catalog_verify(again.c, RUN, NULL, 0, &list, &err) : rc;
    if (rc == 0) bw_catalog_close(again.c);
    if (verified == 0) {
        print_findings(list);
        bw_list_free(list);
        return false;
    }
    must_of(d, strstr(err.message, d->o->key) != NULL, err.message);
    return true;
}

/* A checkpoint's objects are looked for in that checkpoint: the others are not touched. */
static const char *where_of(const struct damage *d) {
    const bool apart = d->with != NULL && !d->with->strange && strcmp(d->with->id, d->o->id) != 0;
    return d->o->id[0] == '\0' || apart ? NULL : d->o->id;
}

static bool is_found(const struct eye *e, const struct damage *d) {
    struct bw_error err = BW_ERROR_INIT;
    struct bw_list *list = NULL;
    if (d->o->class == STORE_ID) return is_refused(e, d);
    const int rc = bw_catalog_verify(e->c, RUN, where_of(d), 0, &list, &err);
    must_of(d, rc == 0, err.message);
    const bool found = is_found_in(list, d);
    if (!found) print_findings(list);
    bw_list_free(list);
    return found;
}

static void try_to_find(const struct eye *e, struct damage *d) {
    if (!inflict(e->s, d)) return;
    const bool found = is_found(e, d);
    tally[d->o->tier][d->kind].trials++;
    tally[d->o->tier][d->kind].found += found;
    if (!found) (void)fprintf(stderr, "not found, or not named: %s\n", text_of(d));
    undo_damage(e->s, d);
}

static void find_in_object(const struct eye *e, const struct object *o, uint64_t *random) {
    size_t at[FLIPS];
    const size_t n = choose_bytes(o, random, at);
    for (size_t i = 0; i < n; i++) {
        struct damage d = {.kind = FLIPPED, .o = o, .at = at[i], .bit = test_random(random) % 8};
        try_to_find(e, &d);
    }
    for (unsigned kind = SHORTER; kind < KINDS; kind++) {
        struct damage d = {.kind = (enum kind)kind, .o = o};
        try_to_find(e, &d);
    }
}

static void print_tally(void) {
    unsigned trials = 0, found = 0;
    for (unsigned t = 0; t < TIERS; t++) {
        for (unsigned k = 0; k < KINDS; k++) {
            (void)printf("  %-8s %-16s found %4u of %4u\n", tier_text((enum tier)t), kind_text[k], tally[t][k].found,
                         tally[t][k].trials);
            trials += tally[t][k].trials;
            found += tally[t][k].found;
        }
    }
    (void)printf("  found %u of %u: %u %%\n", found, trials, trials == 0 ? 0 : 100 * found / trials);
}

/* How many objects of a tier can be damaged so. */
static unsigned expected_trials(const struct store *s, enum tier t, enum kind k) {
    unsigned n = 0;
    for (size_t i = 0; i < s->count; i++) {
        const struct object *o = &s->list[i];
        if (o->tier != t || o->strange) continue;
        if (k == GONE && may_be_gone(s, o)) continue;
        if (k == SWAPPED || k == STRANGE)
            n += partner(s, o, k == STRANGE) != NULL;
        else
            n++;
    }
    return n;
}

static void every_damage_of_every_object_is_found_and_named(void **state) {
    const struct store *s = *state;
    uint64_t random = seed;
    for (unsigned t = 0; t < TIERS; t++) {
        struct bw_error err = BW_ERROR_INIT;
        struct eye e;
        must_ok(eye_open(&e, s, (enum tier)t, &err), &err);
        for (size_t i = 0; i < s->count; i++)
            if (s->list[i].tier == t && !s->list[i].strange) find_in_object(&e, &s->list[i], &random);
        bw_catalog_close(e.c);
        must_eq(store_changed(s, (enum tier)t), 0);
    }
    print_tally();
    for (unsigned t = 0; t < TIERS; t++) {
        for (unsigned k = 0; k < KINDS; k++) {
            const unsigned objects = expected_trials(s, (enum tier)t, (enum kind)k);
            must(objects > 20);
            if (k == FLIPPED)
                must(tally[t][k].trials >= 2 * objects);
            else
                must_eq(tally[t][k].trials, objects);
            must_eq(tally[t][k].found, tally[t][k].trials);
        }
    }
}

/* ---- serving and mending ---- */

static bool is_of_checkpoint(const struct object *o) {
    return !o->strange && o->class != STORE_ID && o->class != ENTRY && o->class != INVENTORY;
}

static const struct checkpoint *checkpoint_of(const struct store *s, const char *id) {
    for (unsigned i = 0; i < s->checkpoint_count; i++)
        if (strcmp(s->checkpoints[i].id, id) == 0) return &s->checkpoints[i];
    return NULL;
}

static bool is_damage(int status) {
    return status == BW_E_CORRUPT || status == BW_E_FORMAT || status == BW_E_NOTFOUND;
}

static bool names(const struct bw_error *err, const struct damage *d) {
    return strstr(err->message, d->o->key) != NULL || (d->with != NULL && strstr(err->message, d->with->key) != NULL);
}

/* What a reader must do, who has this checkpoint's tiers before him. */
static void must_serve_or_refuse(const struct store *s, const struct damage *d, const char *id, bool with_local) {
    const struct checkpoint *c = checkpoint_of(s, id);
    const bool other = d->o->tier == LOCAL || (with_local && d->o->class != MANIFEST) || d->o->class == INDEX;
    struct bw_error err;
    const enum restored is = restore_all(s, REMOTE, with_local, c, &err);
    must_of(d, is != WRONG, "wrong bytes were handed out");
    if (is == RIGHT) return;
    must_of(d, !other || d->both_tiers, err.message);
    must_of(d, is_damage(err.status), err.message);
    must_of(d, names(&err, d), err.message);
}

static struct bw_list *repaired(const struct eye *e, uint32_t what) {
    struct bw_error err = BW_ERROR_INIT;
    struct bw_list *list = NULL;
    must_ok(bw_catalog_repair(e->c, RUN, what, &list, &err), &err);
    return list;
}

/* The worst that a list says of a key on a tier; -1: nothing. */
static int worst_of(const struct bw_list *list, const struct object *o) {
    struct bw_finding f;
    int worst = -1;
    for (size_t i = 0; bw_list_finding(list, i, &f); i++)
        if (strcmp(f.tier, tier_of_list(o->tier)) == 0 && strcmp(f.object, o->key) == 0 && (int)f.severity > worst)
            worst = (int)f.severity;
    return worst;
}

static bool is_clean(const struct eye *e) {
    struct bw_error err = BW_ERROR_INIT;
    struct bw_list *list = NULL;
    struct bw_finding f;
    bool clean = true;
    must_ok(bw_catalog_verify(e->c, RUN, NULL, 0, &list, &err), &err);
    for (size_t i = 0; bw_list_finding(list, i, &f); i++) clean = clean && f.severity == 0;
    if (!clean) print_findings(list);
    bw_list_free(list);
    return clean;
}

static void must_mend(const struct eye *e, const struct damage *d) {
    struct bw_list *list = repaired(e, BW_REPAIR_COPIES);
    const bool told = worst_of(list, d->o) == 0 && (d->kind != SWAPPED || worst_of(list, d->with) == 0);
    if (!told) print_findings(list);
    must_of(d, told, "it is said to be mended");
    bw_list_free(list);
    must_of(d, is_clean(e), "it is clean afterwards");
    must_of(d, store_changed(e->s, LOCAL) + store_changed(e->s, REMOTE) == 0, "it is what it was");
}

static void serve_and_mend(const struct eye *e, struct damage *d, unsigned *mended) {
    if (!inflict(e->s, d)) return;
    for (unsigned with_local = 0; with_local < 2; with_local++) {
        must_serve_or_refuse(e->s, d, d->o->id, with_local);
        if (d->kind == SWAPPED && strcmp(d->with->id, d->o->id) != 0)
            must_serve_or_refuse(e->s, d, d->with->id, with_local);
    }
    must_mend(e, d);
    must_eq(store_changed(e->s, d->o->tier), 0);
    (*mended)++;
}

/* A byte that somebody has saved. */
static size_t byte_of_data(const struct object *o) {
    return o->class == PACK ? 4096 + (o->n - 4096) / 2 : o->n / 2;
}

/* The same object on the other tier; NULL: there is none. */
static const struct object *other_copy(const struct store *s, const struct object *o) {
    for (size_t i = 0; i < s->count && is_of_checkpoint(o); i++) {
        const struct object *p = &s->list[i];
        if (p->tier != o->tier && p->tier != ARCHIVE && strcmp(p->key, o->key) == 0) return p;
    }
    return NULL;
}

static void what_is_damaged_is_served_from_the_other_tier_or_refused_and_mended(void **state) {
    const struct store *s = *state;
    struct bw_error err = BW_ERROR_INIT;
    struct eye e;
    unsigned mended = 0, objects = 0;
    must_ok(eye_open(&e, s, REMOTE, &err), &err);
    for (size_t i = 0; i < s->count; i++) {
        const struct object *o = &s->list[i];
        if (o->tier == ARCHIVE || !is_of_checkpoint(o)) continue;
        if (i % FULL_OR(1u, 4u) != 0) continue;
        objects++;
        for (unsigned k = 0; k < 2; k++) { /* the next object has the next kinds */
            struct damage d = {.kind = (enum kind)((2 * objects + k) % DIRECTORY), .o = o, .at = byte_of_data(o)};
            d.bit = (unsigned)(objects % 8);
            serve_and_mend(&e, &d, &mended);
        }
    }
    bw_catalog_close(e.c);
    (void)printf("  %u objects, %u times damaged and mended\n", objects, mended);
    must(objects >= FULL_OR(80u, 20u) && mended > objects);
}

static void what_is_damaged_on_both_tiers_is_refused_and_said_to_be_lost(void **state) {
    const struct store *s = *state;
    struct bw_error err = BW_ERROR_INIT;
    struct eye e;
    unsigned lost = 0;
    must_ok(eye_open(&e, s, REMOTE, &err), &err);
    for (size_t i = 0; i < s->count; i++) {
        const struct object *o = &s->list[i], *copy = other_copy(s, o);
        if (o->tier != LOCAL || copy == NULL || i % FULL_OR(2u, 6u) != 0) continue;
        struct damage d = {.kind = FLIPPED, .o = o, .at = byte_of_data(o), .both_tiers = true};
        flip(s, o, d.at, 0);
        flip(s, copy, d.at, 7);
        must_serve_or_refuse(s, &d, o->id, true);
        struct bw_list *list = repaired(&e, BW_REPAIR_COPIES);
        must_of(&d, worst_of(list, o) == 2 && worst_of(list, copy) == 2, "both are said to be lost");
        bw_list_free(list);
        must_of(&d, is_found(&e, &d), "they are still found");
        restore_object(s, o);
        restore_object(s, copy);
        must_eq(store_changed(s, LOCAL) + store_changed(s, REMOTE), 0);
        lost++;
    }
    bw_catalog_close(e.c);
    must(lost >= FULL_OR(15u, 4u));
}

/* ---- what is no damage, and what nothing mends ---- */

static void what_the_library_itself_removes_is_not_missed(void **state) {
    const struct store *s = *state;
    struct bw_error err;
    struct eye e;
    must_ok(eye_open(&e, s, REMOTE, &err), &err);
    for (size_t i = 0; i < s->count; i++) {
        const struct object *o = &s->list[i];
        if (o->tier == ARCHIVE || o->strange || !may_be_gone(s, o) || o->class == STORE_ID) continue;
        object_remove(s, o);
        must_at(is_clean(&e), o->key, "nobody misses it", __FILE__, __LINE__);
        if (o->class == SUMMARY) must_eq(restore_all(s, REMOTE, true, checkpoint_of(s, o->id), &err), RIGHT);
        restore_object(s, o);
    }
    bw_catalog_close(e.c);
    must_eq(store_changed(s, LOCAL) + store_changed(s, REMOTE), 0);
}

/* What a list says of an object, "" if nothing. Static storage. */
static const char *said_of(const struct bw_list *list, const char *key, uint32_t severity) {
    static struct bw_finding f;
    for (size_t i = 0; bw_list_finding(list, i, &f); i++)
        if (strcmp(f.object, key) == 0 && f.severity == severity) return f.message;
    return "";
}

/* Whether a repair that may do all says this of each object of a class that is no newest entry, and changes nothing. */
static void must_stay(const struct store *s, enum tier t, enum class class, uint32_t severity, const char *part) {
    struct bw_error err = BW_ERROR_INIT;
    struct eye e;
    must_ok(eye_open(&e, s, t, &err), &err);
    for (size_t i = 0; i < s->count; i++) {
        const struct object *o = &s->list[i];
        if (o->tier != t || o->strange || o->class != class || is_newest_entry(s, o)) continue;
        struct damage d = {.kind = FLIPPED, .o = o, .at = byte_of_data(o)};
        must(inflict(s, &d));
        struct bw_list *list = repaired(&e, BW_REPAIR_COPIES | BW_REPAIR_HISTORY);
        must_of(&d, strstr(said_of(list, o->key, severity), part) != NULL, said_of(list, o->key, severity));
        bw_list_free(list);
        must_eq(store_changed(s, t), 1);
        restore_object(s, o);
    }
    bw_catalog_close(e.c);
}

static void a_repair_says_what_it_cannot_mend(void **state) {
    must_stay(*state, REMOTE, ENTRY, 2, "not to be mended: no other copy; newer entries say all that counts");
    must_stay(*state, REMOTE, INVENTORY, 1, "not to be mended: a sweep takes it");
    must_stay(*state, ARCHIVE, ENTRY, 2, "not to be mended: copy it again from the store that decides");
}

static const struct object *newest_entry(const struct store *s, enum tier t) {
    size_t i = 0;
    while (i + 1 < s->count && (s->list[i].tier != t || s->list[i].strange || !is_newest_entry(s, &s->list[i]))) i++;
    return &s->list[i];
}

/* An entry that only the archive had would keep that of the authority out for ever. */
static void an_archive_begins_no_era(void **state) {
    const struct store *s = *state;
    const struct object *o = newest_entry(s, ARCHIVE);
    struct bw_error err = BW_ERROR_INIT;
    struct eye e;
    struct damage d = {.kind = FLIPPED, .o = o, .at = byte_of_data(o)};
    must(inflict(s, &d));
    must_ok(eye_open(&e, s, ARCHIVE, &err), &err);
    struct bw_list *list = repaired(&e, BW_REPAIR_COPIES | BW_REPAIR_HISTORY | BW_REPAIR_PROMOTE);
    must_of(&d, strstr(said_of(list, o->key, 2), "copy it again from the store that decides") != NULL, "it says what");
    bw_list_free(list);
    must_eq(store_changed(s, ARCHIVE), 1);
    object_remove(s, o); /* as it says where there is no authority any more */
    list = repaired(&e, BW_REPAIR_PROMOTE);
    bw_list_free(list);
    must(is_clean(&e));
    bw_catalog_close(e.c);
    store_undo(s);
}

static void a_checkpoint_that_the_damaged_newest_entry_names_is_not_just_unknown(void **state) {
    const struct store *s = *state;
    const struct object *o = newest_entry(s, REMOTE);
    struct bw_error err = BW_ERROR_INIT;
    struct bw_list *list = NULL;
    struct eye e;
    struct damage d = {.kind = FLIPPED, .o = o, .at = byte_of_data(o)};
    must(inflict(s, &d));
    must_ok(eye_open(&e, s, REMOTE, &err), &err);
    const struct checkpoint *newest = &s->checkpoints[s->checkpoint_count - 1];
    must_fail(bw_catalog_verify(e.c, RUN, newest->id, 0, &list, &err), BW_E_CORRUPT, &err, o->key);
    must_eq(restore_all(s, REMOTE, true, newest, &err), REFUSED);
    must_eq(restore_all(s, REMOTE, true, &s->checkpoints[0], &err), RIGHT);
    bw_catalog_close(e.c);
    restore_object(s, o);
}

/* ---- launches ---- */

static struct bw_checkpointer *try_to_open(const struct store *s, struct bw_error *err) {
    static unsigned n;
    static char launch[32];
    struct bw_checkpointer *ck = NULL;
    (void)snprintf(launch, sizeof launch, "probe-%u", n++);
    const struct bw_options o = options_of(&s->p, launch, 0, 1);
    *err = (struct bw_error)BW_ERROR_INIT;
    return bw_checkpointer_open(&o, &ck, err) == 0 ? ck : NULL;
}

/* What a launch goes on from, it gets; and it can save. */
static enum restored resume_and_save(const struct store *s, struct bw_checkpointer *ck, struct bw_error *err) {
    static const unsigned char byte = 1;
    struct bw_restore *r = NULL;
    const struct bw_resumed from = resumed_of(ck);
    const struct checkpoint *c = checkpoint_of(s, from.id);
    must_at(c != NULL, from.reason, "it is one of the job's", __FILE__, __LINE__);
    *err = (struct bw_error)BW_ERROR_INIT;
    enum restored is = bw_restore_open(ck, &r, err) == 0 ? RIGHT : REFUSED;
    if (is == RIGHT) is = restore_with(r, c->seed, err);
    bw_restore_close(r);
    save_bytes(ck, from.step + 1, &byte, 1);
    close_ok(ck);
    return is;
}

/* Who cannot be opened says why; who is opened has what was saved, or refuses it. */
static bool launch_over(const struct store *s, const struct damage *d) {
    struct bw_error err;
    struct bw_checkpointer *ck = try_to_open(s, &err);
    if (ck == NULL) {
        must_of(d, d->o->class == STORE_ID || is_newest_entry(s, d->o), err.message);
        must_of(d, err.status == BW_E_CORRUPT || err.status == BW_E_FORMAT || err.status == BW_E_FOREIGN, err.message);
        return false;
    }
    const enum restored is = resume_and_save(s, ck, &err);
    struct stat st;
    must_of(d, is != WRONG, "wrong bytes were handed out");
    if (is_of_checkpoint(d->o) && d->o->tier == LOCAL && d->kind == NO_FILE)
        must_of(d, lstat(object_path(s, d->o), &st) == 0 && S_ISREG(st.st_mode), "the copy was put right");
    must_of(d, is == RIGHT || (d->o->tier == REMOTE && d->o->class == MANIFEST), err.message);
    return is == RIGHT;
}

/* All that a launch looks at: what belongs to the run, and to its newest checkpoint. */
static bool is_looked_at(const struct store *s, const struct object *o) {
    if (o->tier == ARCHIVE || o->strange) return false;
    return !is_of_checkpoint(o) || strcmp(o->id, s->checkpoints[s->checkpoint_count - 1].id) == 0;
}

static void a_launch_goes_on_from_what_is_sound_or_says_why_not(void **state) {
    const struct store *s = *state;
    unsigned went_on = 0, refused = 0;
    for (size_t i = 0; i < s->count; i++) {
        const struct object *o = &s->list[i];
        if (!is_looked_at(s, o) || i % FULL_OR(1u, 3u) != 0) continue;
        const enum kind kind = i % 2 == 0 ? FLIPPED : NO_FILE;
        struct damage d = {.kind = kind, .o = o, .at = byte_of_data(o), .bit = (unsigned)(i % 8)};
        must(inflict(s, &d));
        if (launch_over(s, &d))
            went_on++;
        else
            refused++;
        store_undo(s);
    }
    (void)printf("  %u launches went on, %u did not\n", went_on, refused);
    must(went_on >= FULL_OR(30u, 8u) && (SANITIZED || refused > 0));
}

static void what_is_lost_everywhere_makes_the_next_launch_go_back(void **state) {
    const struct store *s = *state;
    const struct checkpoint *newest = &s->checkpoints[s->checkpoint_count - 1];
    unsigned went_back = 0;
    for (size_t i = 0; i < s->count; i++) {
        const struct object *o = &s->list[i], *copy = other_copy(s, o);
        struct bw_error err;
        if (o->tier != LOCAL || copy == NULL || strcmp(o->id, newest->id) != 0) continue;
        struct damage d = {.kind = FLIPPED, .o = o, .at = byte_of_data(o), .both_tiers = true};
        flip(s, o, d.at, 0);
        flip(s, copy, d.at, 7);
        struct bw_checkpointer *ck = try_to_open(s, &err);
        must_of(&d, ck != NULL, err.message);
        struct bw_restore *r = NULL;
        must_ok(bw_restore_open(ck, &r, &err), &err);
        const bool refused = restore_with(r, newest->seed, &err) == REFUSED;
        must_of(&d, strcmp(resumed_of(ck).id, newest->id) != 0 || (refused && names(&err, &d)), err.message);
        bw_restore_close(r);
        close_ok(ck);
        ck = try_to_open(s, &err);
        must_of(&d, ck != NULL, err.message);
        must_of(&d, strcmp(resumed_of(ck).id, newest->id) != 0, resumed_of(ck).reason);
        must_of(&d, resume_and_save(s, ck, &err) == RIGHT, err.message);
        store_undo(s);
        went_back++;
    }
    must_eq(went_back, 10); /* two groups of five objects */
}

static int setup(void **state) {
    static struct store s;
    seed = test_seed(0x6272656163686573);
    store_make(&s);
    *state = &s;
    return 0;
}

static int teardown(void **state) {
    store_drop(*state);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_damage_of_every_object_is_found_and_named),
        cmocka_unit_test(what_is_damaged_is_served_from_the_other_tier_or_refused_and_mended),
        cmocka_unit_test(what_is_damaged_on_both_tiers_is_refused_and_said_to_be_lost),
        cmocka_unit_test(what_the_library_itself_removes_is_not_missed),
        cmocka_unit_test(a_repair_says_what_it_cannot_mend),
        cmocka_unit_test(an_archive_begins_no_era),
        cmocka_unit_test(a_checkpoint_that_the_damaged_newest_entry_names_is_not_just_unknown),
        cmocka_unit_test(a_launch_goes_on_from_what_is_sound_or_says_why_not),
        cmocka_unit_test(what_is_lost_everywhere_makes_the_next_launch_go_back),
    };
    return test_run(tests, getenv("BW_TEST_CASE"), setup, teardown);
}
