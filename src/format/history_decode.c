/* SPDX-License-Identifier: Apache-2.0 */
/* Decoding history entries: types and shapes here, what binds the values in history_check.c. */
#include "base/error.h"
#include "base/vec.h"
#include "format/history_private.h"
#include "format/json.h"
#include "format/rules.h"
#include <stdio.h>
#include <string.h>

#define WHAT BWI_ENTRY_WHAT
#define ANY  SIZE_MAX /* bounded by the size of the entry */

static const char *const known_entry[] = {
    "run",  "lineage", "store", "era", "n",    "prev",    "writer", "time_ms",  "host",       "event", "attempt",
    "from", "h",       "tries", "ids", "live", "shelved", "labels", "launches", "superseded", NULL,
};
static const char *const known_event[] = {"type", "ids", "label", "mode", "note", NULL};
static const char *const known_attempt[] = {"number", "nonce", "job", "launch", "world", "groups", "fan_out", NULL};
static const char *const known_from[] = {"id", "world", "groups", "fan_out", "refs", "open", NULL};
static const char *const known_kept[] = {"id", "manifest", "bytes", "time_ms", "pinned", "refs", NULL};

/* What every step needs. */
struct input {
    const json_t *o;
    bool newer; /* of a newer minor version: what is unknown is ignored */
    struct bw_error *err;
};

/* The elements of an array are copied into a fresh one of ours; none for an empty array. */
static int make_room(const struct input *in, const json_t *array, size_t size, void **ret, size_t *ret_count) {
    const size_t n = json_array_size(array);
    void *room = n > 0 ? bwi_calloc(n, size) : NULL;
    if (n > 0 && room == NULL) return bwi_error_nomem(in->err, n * size, WHAT);
    *ret = room;
    *ret_count = n;
    return 0;
}

static int bad_element(const struct input *in, const char *array, size_t i, const char *expected) {
    return bwi_error_set(in->err, BW_E_FORMAT, WHAT ": element %zu of \"%s\": expected %s", i, array, expected);
}

static int read_identity(const struct input *in, struct bwi_entry *e) {
    int rc = bwi_json_name(in->o, "run", e->run, false, WHAT, in->err);
    if (rc == 0) rc = bwi_json_uuid(in->o, "store", &e->store, WHAT, in->err);
    if (rc == 0) rc = bwi_json_u32(in->o, "era", UINT32_MAX, &e->era, WHAT, in->err);
    if (rc == 0) rc = bwi_json_u64(in->o, "n", BWI_INT_MAX, &e->n, WHAT, in->err);
    if (rc == 0) rc = bwi_json_writer(in->o, "writer", &e->writer, WHAT, in->err);
    if (rc == 0) rc = bwi_json_i64(in->o, "time_ms", &e->time_ms, WHAT, in->err);
    if (rc == 0) rc = bwi_json_text(in->o, "host", e->host, sizeof e->host, WHAT, in->err);
    if (rc == 0 && !json_is_null(json_object_get(in->o, "prev"))) {
        rc = bwi_json_sha(in->o, "prev", &e->prev, WHAT, in->err);
        if (rc == 0 && bwi_sha_is_zero(&e->prev))
            rc = bwi_error_set(in->err, BW_E_FORMAT, WHAT ": member \"prev\": expected null or a hash, found zeros");
    }
    if (rc == 0 && !json_is_null(json_object_get(in->o, "h"))) {
        rc = bwi_json_u64(in->o, "h", BWI_INT_MAX, &e->h, WHAT, in->err);
        e->h_set = true;
    }
    return rc;
}

static int read_lineage(const struct input *in, struct bwi_entry *e) {
    const json_t *a = NULL;
    void *room = NULL;
    int rc = bwi_json_array(in->o, "lineage", ANY, &a, WHAT, in->err);
    if (rc == 0) rc = make_room(in, a, sizeof *e->lineage, &room, &e->lineage_count);
    if (rc < 0) return rc;
    e->lineage = room;
    for (size_t i = 0; i < e->lineage_count; i++) {
        const json_t *row = json_array_get(a, i);
        struct bwi_lineage *l = &e->lineage[i];
        if (!bwi_json_is_row(row, 3, in->newer) || !bwi_json_value_u32(json_array_get(row, 0), UINT32_MAX, &l->era) ||
            !bwi_json_value_u64(json_array_get(row, 1), BWI_INT_MAX, &l->n) ||
            !bwi_json_value_uuid(json_array_get(row, 2), &l->uuid))
            return bad_element(in, "lineage", i, "[era, n, uuid]");
    }
    return 0;
}

static int read_tries(const struct input *in, struct bwi_entry *e) {
    const json_t *a = NULL;
    void *room = NULL;
    int rc = bwi_json_array(in->o, "tries", ANY, &a, WHAT, in->err);
    if (rc == 0) rc = make_room(in, a, sizeof *e->tries, &room, &e->try_count);
    if (rc < 0) return rc;
    e->tries = room;
    for (size_t i = 0; i < e->try_count; i++) {
        const json_t *row = json_array_get(a, i);
        if (!bwi_json_is_row(row, 2, in->newer) ||
            !bwi_json_value_u64(json_array_get(row, 0), BWI_INT_MAX, &e->tries[i].step) ||
            !bwi_json_value_u32(json_array_get(row, 1), UINT32_MAX, &e->tries[i].tri))
            return bad_element(in, "tries", i, "[step, try]");
    }
    return 0;
}

static int read_names(const struct input *in, const char *key, size_t max, char (**ret)[BWI_NAME_BUF],
                      size_t *ret_count) {
    const json_t *a = NULL;
    void *room = NULL;
    int rc = bwi_json_array(in->o, key, max, &a, WHAT, in->err);
    if (rc == 0) rc = make_room(in, a, BWI_NAME_BUF, &room, ret_count);
    if (rc < 0) return rc;
    *ret = room;
    for (size_t i = 0; i < *ret_count; i++) {
        const char *s;
        if (!bwi_json_value_str(json_array_get(a, i), &s) || !bwi_rule_name(s))
            return bad_element(in, key, i, "a name");
        memcpy((*ret)[i], s, strlen(s) + 1);
    }
    return 0;
}

/* Up to BWI_REFS_MAX ids, written as text. */
static int read_refs(const struct input *in, const json_t *o, const char *what, struct bwi_id *refs,
                     uint32_t *ret_count) {
    const json_t *a = NULL;
    const int rc = bwi_json_array(o, "refs", BWI_REFS_MAX, &a, what, in->err);
    if (rc < 0) return rc;
    *ret_count = (uint32_t)json_array_size(a);
    for (size_t i = 0; i < *ret_count; i++) {
        if (!bwi_json_value_id(json_array_get(a, i), &refs[i])) return bad_element(in, "refs", i, "a checkpoint id");
    }
    return 0;
}

/* A name or null; names of modes are names too. */
static int read_mode(const struct input *in, const json_t *o, struct bwi_event_info *v) {
    char text[BWI_NAME_BUF];
    const int rc = bwi_json_name(o, "mode", text, true, WHAT ": event", in->err);
    if (rc < 0) return rc;
    if (strlen(text) >= sizeof v->mode)
        return bwi_error_set(in->err, BW_E_FORMAT, WHAT ": there is no mode \"%s\" of register", text);
    memcpy(v->mode, text, strlen(text) + 1);
    return 0;
}

static int read_event(const struct input *in, struct bwi_event_info *v) {
    static const char what[] = WHAT ": event";
    const json_t *o = json_object_get(in->o, "event"), *ids;
    const char *type;
    void *room = NULL;
    int rc = bwi_json_known(o, known_event, in->newer, what, in->err);
    if (rc == 0) rc = bwi_json_str(o, "type", &type, what, in->err);
    if (rc < 0) return rc;
    v->type = bwi_event_parse(type);
    if (v->type == 0) return bwi_error_set(in->err, BW_E_FORMAT, WHAT ": there is no event \"%.40s\"", type);
    rc = bwi_json_name(o, "label", v->label, true, what, in->err);
    if (rc == 0) rc = read_mode(in, o, v);
    if (rc == 0) rc = bwi_json_text(o, "note", v->note, sizeof v->note, what, in->err);
    if (rc == 0) rc = bwi_json_array(o, "ids", ANY, &ids, what, in->err);
    if (rc == 0) rc = make_room(in, ids, sizeof *v->ids, &room, &v->id_count);
    if (rc < 0) return rc;
    v->ids = room;
    for (size_t i = 0; i < v->id_count; i++) {
        if (!bwi_json_value_id(json_array_get(ids, i), &v->ids[i])) return bad_element(in, "ids", i, "a checkpoint id");
    }
    return 0;
}

static int read_attempt(const struct input *in, struct bwi_attempt *a) {
    static const char what[] = WHAT ": attempt";
    const json_t *o = json_object_get(in->o, "attempt");
    if (json_is_null(o)) return 0;
    uint64_t nonce;
    int rc = bwi_json_known(o, known_attempt, in->newer, what, in->err);
    if (rc == 0 && !bwi_json_value_hex(json_object_get(o, "nonce"), 8, &nonce))
        rc = bwi_error_set(in->err, BW_E_FORMAT, "%s: member \"nonce\": expected 8 hex digits", what);
    if (rc < 0) return rc;
    a->set = true;
    a->nonce = (uint32_t)nonce;
    rc = bwi_json_u32(o, "number", UINT32_MAX, &a->number, what, in->err);
    if (rc == 0) rc = bwi_json_name(o, "job", a->job, true, what, in->err);
    if (rc == 0) rc = bwi_json_name(o, "launch", a->launch, true, what, in->err);
    if (rc == 0) rc = bwi_json_u32(o, "world", UINT32_MAX, &a->world, what, in->err);
    if (rc == 0) rc = bwi_json_u32(o, "groups", UINT32_MAX, &a->groups, what, in->err);
    if (rc == 0) rc = bwi_json_bool(o, "fan_out", &a->fan_out, what, in->err);
    return rc;
}

static int read_from(const struct input *in, struct bwi_from *f) {
    static const char what[] = WHAT ": from";
    const json_t *o = json_object_get(in->o, "from");
    if (json_is_null(o)) return 0;
    f->set = true;
    int rc = bwi_json_known(o, known_from, in->newer, what, in->err);
    if (rc == 0) rc = bwi_json_id(o, "id", &f->id, what, in->err);
    if (rc == 0) rc = bwi_json_u32(o, "world", UINT32_MAX, &f->world, what, in->err);
    if (rc == 0) rc = bwi_json_u32(o, "groups", UINT32_MAX, &f->groups, what, in->err);
    if (rc == 0) rc = bwi_json_bool(o, "fan_out", &f->fan_out, what, in->err);
    if (rc == 0) rc = read_refs(in, o, what, f->refs, &f->ref_count);
    if (rc == 0) rc = bwi_json_bool(o, "open", &f->open, what, in->err);
    return rc;
}

/* The table of ids while the lists that use it are read. */
struct id_table {
    struct bwi_id *ids;
    bool *used;
    size_t count;
};

static void id_table_fini(struct id_table *t) {
    bwi_free(t->ids);
    bwi_free(t->used);
}

static int read_id_table(const struct input *in, struct id_table *t) {
    const json_t *a = NULL;
    void *ids = NULL, *used = NULL;
    int rc = bwi_json_array(in->o, "ids", ANY, &a, WHAT, in->err);
    if (rc == 0) rc = make_room(in, a, sizeof *t->ids, &ids, &t->count);
    if (rc < 0) return rc;
    t->ids = ids;
    rc = make_room(in, a, sizeof *t->used, &used, &t->count);
    if (rc < 0) return rc;
    t->used = used;
    for (size_t i = 0; i < t->count; i++) {
        if (!bwi_json_value_id(json_array_get(a, i), &t->ids[i])) return bad_element(in, "ids", i, "a checkpoint id");
        if (i > 0 && bwi_id_cmp(&t->ids[i - 1], &t->ids[i]) >= 0)
            return bad_element(in, "ids", i, "an id above the one before it");
    }
    return 0;
}

static bool look_up(struct id_table *t, const json_t *v, struct bwi_id *ret) {
    uint64_t i;
    if (t->count == 0 || !bwi_json_value_u64(v, t->count - 1, &i)) return false;
    t->used[i] = true;
    *ret = t->ids[i];
    return true;
}

static int read_one_kept(const struct input *in, const json_t *o, struct id_table *t, const char *what,
                         struct bwi_kept *k) {
    const json_t *refs;
    int rc = bwi_json_known(o, known_kept, in->newer, what, in->err);
    if (rc == 0) rc = bwi_json_sha(o, "manifest", &k->manifest, what, in->err);
    if (rc == 0) rc = bwi_json_u64(o, "bytes", BWI_INT_MAX, &k->bytes, what, in->err);
    if (rc == 0) rc = bwi_json_i64(o, "time_ms", &k->time_ms, what, in->err);
    if (rc == 0) rc = bwi_json_bool(o, "pinned", &k->pinned, what, in->err);
    if (rc == 0) rc = bwi_json_array(o, "refs", BWI_REFS_MAX, &refs, what, in->err);
    if (rc < 0) return rc;
    if (!look_up(t, json_object_get(o, "id"), &k->id))
        return bwi_error_set(in->err, BW_E_FORMAT, "%s: member \"id\": expected a number of one of %zu ids", what,
                             t->count);
    k->ref_count = (uint32_t)json_array_size(refs);
    for (size_t i = 0; i < k->ref_count; i++) {
        if (!look_up(t, json_array_get(refs, i), &k->refs[i]))
            return bwi_error_set(in->err, BW_E_FORMAT, "%s: ref %zu: expected a number of one of %zu ids", what, i,
                                 t->count);
    }
    return 0;
}

static int read_kept(const struct input *in, const char *key, struct id_table *t, struct bwi_kept **ret,
                     size_t *ret_count) {
    const json_t *a = NULL;
    void *room = NULL;
    int rc = bwi_json_array(in->o, key, ANY, &a, WHAT, in->err);
    if (rc == 0) rc = make_room(in, a, sizeof **ret, &room, ret_count);
    if (rc != 0 || room == NULL) return rc; /* NULL: there are none */
    *ret = room;
    for (size_t i = 0; i < *ret_count && rc == 0; i++) {
        char what[64];
        (void)snprintf(what, sizeof what, WHAT ": %s %zu", key, i);
        rc = read_one_kept(in, json_array_get(a, i), t, what, &(*ret)[i]);
    }
    return rc;
}

static int read_checkpoints(const struct input *in, struct bwi_entry *e) {
    struct id_table t = {0};
    int rc = read_id_table(in, &t);
    if (rc == 0) rc = read_kept(in, "live", &t, &e->live, &e->live_count);
    if (rc == 0) rc = read_kept(in, "shelved", &t, &e->shelved, &e->shelved_count);
    for (size_t i = 0; i < t.count && rc == 0; i++) {
        if (!t.used[i]) rc = bad_element(in, "ids", i, "every id to be used");
    }
    id_table_fini(&t);
    return rc;
}

static int read_entry(const struct input *in, struct bwi_entry *e) {
    int rc = read_identity(in, e);
    if (rc == 0) rc = read_lineage(in, e);
    if (rc == 0) rc = read_event(in, &e->event);
    if (rc == 0) rc = read_attempt(in, &e->attempt);
    if (rc == 0) rc = read_from(in, &e->from);
    if (rc == 0) rc = read_tries(in, e);
    if (rc == 0) rc = read_checkpoints(in, e);
    if (rc == 0) rc = read_names(in, "labels", ANY, &e->labels, &e->label_count);
    if (rc == 0) rc = read_names(in, "launches", BWI_LAUNCHES_KEPT, &e->launches, &e->launch_count);
    if (rc == 0) rc = read_names(in, "superseded", ANY, &e->superseded, &e->superseded_count);
    return rc;
}

int bwi_entry_decode(struct bwi_span in, struct bwi_entry *ret, struct bw_error *err) {
    json_t *o = NULL;
    int rc = bwi_json_size(in, BWI_ENTRY_BYTES_MAX, WHAT, err);
    if (rc == 0) rc = bwi_json_decode_sealed(in, WHAT, &o, err);
    if (rc < 0) return rc;

    struct bwi_entry e = {0};
    rc = bwi_json_head(o, BWI_ENTRY_FORMAT, BWI_ENTRY_MAJOR, BWI_ENTRY_MINOR, known_entry, WHAT, err);
    const struct input input = {o, bwi_json_newer(o, BWI_ENTRY_MINOR), err};
    if (rc == 0) rc = read_entry(&input, &e);
    if (rc == 0) rc = bwi_entry_check(&e, false, err);
    json_decref(o);
    if (rc < 0) {
        bwi_entry_fini(&e);
        return rc;
    }
    *ret = e;
    return 0;
}
