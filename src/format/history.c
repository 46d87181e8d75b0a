/* SPDX-License-Identifier: Apache-2.0 */
/* History entries: names of events, encoding, copying, releasing. Decoding is in history_decode.c, the rules are in
 * history_check.c. */
#include "format/history.h"
#include "base/error.h"
#include "base/vec.h"
#include "format/history_private.h"
#include "format/json.h"
#include "format/rules.h"
#include <stdlib.h>
#include <string.h>

static const char *const event_names[] = {
    [BWI_EVENT_REGISTER] = "register", [BWI_EVENT_COMMIT] = "commit",   [BWI_EVENT_ABORT] = "abort",
    [BWI_EVENT_RETIRE] = "retire",     [BWI_EVENT_PIN] = "pin",         [BWI_EVENT_UNPIN] = "unpin",
    [BWI_EVENT_REPAIR] = "repair",     [BWI_EVENT_PROMOTE] = "promote",
};

const char *bwi_event_name(enum bwi_event e) {
    return e >= BWI_EVENT_REGISTER && e <= BWI_EVENT_PROMOTE ? event_names[e] : "?";
}

enum bwi_event bwi_event_parse(const char *name) {
    for (int e = BWI_EVENT_REGISTER; e <= BWI_EVENT_PROMOTE; e++) {
        if (strcmp(name, event_names[e]) == 0) return (enum bwi_event)e;
    }
    return (enum bwi_event)0;
}

/* All ids that live and shelved checkpoints are and refer to, sorted and once each: a step is 56 bytes of text, its
 * number in this table a few, and every checkpoint may be referred to by eight others. */
struct id_table {
    struct bwi_id *ids;
    size_t count;
};

static int by_id(const void *a, const void *b) {
    return bwi_id_cmp(a, b);
}

static size_t collect(struct id_table *t, const struct bwi_kept *kept, size_t count) {
    size_t found = 0;
    for (size_t i = 0; i < count; i++) {
        found += 1 + kept[i].ref_count;
        if (t == NULL) continue;
        t->ids[t->count++] = kept[i].id;
        for (uint32_t r = 0; r < kept[i].ref_count; r++) t->ids[t->count++] = kept[i].refs[r];
    }
    return found;
}

static int id_table_make(const struct bwi_entry *e, struct id_table *ret, struct bw_error *err) {
    const size_t all = collect(NULL, e->live, e->live_count) + collect(NULL, e->shelved, e->shelved_count);
    struct id_table t = {bwi_calloc(all, sizeof *t.ids), 0};
    if (t.ids == NULL) return bwi_error_nomem(err, all * sizeof *t.ids, "the ids of a " BWI_ENTRY_WHAT);
    collect(&t, e->live, e->live_count);
    collect(&t, e->shelved, e->shelved_count);
    if (t.count > 0) qsort(t.ids, t.count, sizeof *t.ids, by_id);
    size_t unique = 0;
    for (size_t i = 0; i < t.count; i++) {
        if (unique == 0 || !bwi_id_eq(&t.ids[unique - 1], &t.ids[i])) t.ids[unique++] = t.ids[i];
    }
    t.count = unique;
    *ret = t;
    return 0;
}

static json_t *index_of(const struct id_table *t, const struct bwi_id *id) {
    const struct bwi_id *at = bsearch(id, t->ids, t->count, sizeof *t->ids, by_id);
    return at == NULL ? NULL : bwi_json_of_u64((uint64_t)(at - t->ids));
}

static json_t *ids_of(const struct bwi_id *ids, size_t count, bool *failed) {
    json_t *a = json_array();
    for (size_t i = 0; i < count; i++) bwi_json_push(a, bwi_json_of_id(&ids[i]), failed);
    return a;
}

static json_t *kept_of(const struct bwi_kept *kept, size_t count, const struct id_table *t, bool *failed) {
    json_t *a = json_array();
    for (size_t i = 0; i < count; i++) {
        const struct bwi_kept *k = &kept[i];
        json_t *refs = json_array();
        for (uint32_t r = 0; r < k->ref_count; r++) bwi_json_push(refs, index_of(t, &k->refs[r]), failed);
        json_t *o = json_object();
        bwi_json_set(o, "id", index_of(t, &k->id), failed);
        bwi_json_set(o, "manifest", bwi_json_of_sha(&k->manifest), failed);
        bwi_json_set(o, "bytes", bwi_json_of_u64(k->bytes), failed);
        bwi_json_set(o, "time_ms", json_integer(k->time_ms), failed);
        bwi_json_set(o, "pinned", json_boolean(k->pinned), failed);
        bwi_json_set(o, "refs", refs, failed);
        bwi_json_push(a, o, failed);
    }
    return a;
}

static json_t *lineage_of(const struct bwi_entry *e, bool *failed) {
    json_t *a = json_array();
    for (size_t i = 0; i < e->lineage_count; i++) {
        json_t *row = json_array();
        bwi_json_push(row, bwi_json_of_u64(e->lineage[i].era), failed);
        bwi_json_push(row, bwi_json_of_u64(e->lineage[i].n), failed);
        bwi_json_push(row, bwi_json_of_uuid(&e->lineage[i].uuid), failed);
        bwi_json_push(a, row, failed);
    }
    return a;
}

static json_t *tries_of(const struct bwi_entry *e, bool *failed) {
    json_t *a = json_array();
    for (size_t i = 0; i < e->try_count; i++) {
        json_t *row = json_array();
        bwi_json_push(row, bwi_json_of_u64(e->tries[i].step), failed);
        bwi_json_push(row, bwi_json_of_u64(e->tries[i].tri), failed);
        bwi_json_push(a, row, failed);
    }
    return a;
}

static json_t *names_of(char (*names)[BWI_NAME_BUF], size_t count, bool *failed) {
    json_t *a = json_array();
    for (size_t i = 0; i < count; i++) bwi_json_push(a, json_string(names[i]), failed);
    return a;
}

static json_t *event_of(const struct bwi_event_info *v, bool *failed) {
    json_t *o = json_object();
    bwi_json_set(o, "type", json_string(bwi_event_name(v->type)), failed);
    bwi_json_set(o, "ids", ids_of(v->ids, v->id_count, failed), failed);
    bwi_json_set(o, "label", bwi_json_of_name(v->label), failed);
    bwi_json_set(o, "mode", bwi_json_of_name(v->mode), failed);
    bwi_json_set(o, "note", json_string(v->note), failed);
    return o;
}

static json_t *attempt_of(const struct bwi_attempt *v, bool *failed) {
    if (!v->set) return json_null();
    json_t *o = json_object();
    bwi_json_set(o, "number", bwi_json_of_u64(v->number), failed);
    bwi_json_set(o, "nonce", bwi_json_of_hex(v->nonce, 8), failed);
    bwi_json_set(o, "job", bwi_json_of_name(v->job), failed);
    bwi_json_set(o, "launch", bwi_json_of_name(v->launch), failed);
    bwi_json_set(o, "world", bwi_json_of_u64(v->world), failed);
    bwi_json_set(o, "groups", bwi_json_of_u64(v->groups), failed);
    bwi_json_set(o, "fan_out", json_boolean(v->fan_out), failed);
    return o;
}

static json_t *from_of(const struct bwi_from *v, bool *failed) {
    if (!v->set) return json_null();
    json_t *o = json_object();
    bwi_json_set(o, "id", bwi_json_of_id(&v->id), failed);
    bwi_json_set(o, "world", bwi_json_of_u64(v->world), failed);
    bwi_json_set(o, "groups", bwi_json_of_u64(v->groups), failed);
    bwi_json_set(o, "fan_out", json_boolean(v->fan_out), failed);
    bwi_json_set(o, "refs", ids_of(v->refs, v->ref_count, failed), failed);
    bwi_json_set(o, "open", json_boolean(v->open), failed);
    return o;
}

int bwi_entry_encode(const struct bwi_entry *e, struct bwi_buf *out, struct bw_error *err) {
    struct id_table ids = {NULL, 0};
    int rc = bwi_entry_check(e, true, err);
    if (rc == 0) rc = id_table_make(e, &ids, err);
    if (rc < 0) return rc;

    bool failed = false;
    json_t *o = bwi_json_start(BWI_ENTRY_FORMAT, BWI_ENTRY_MAJOR, BWI_ENTRY_MINOR, &failed);
    bwi_json_set(o, "run", json_string(e->run), &failed);
    bwi_json_set(o, "lineage", lineage_of(e, &failed), &failed);
    bwi_json_set(o, "store", bwi_json_of_uuid(&e->store), &failed);
    bwi_json_set(o, "era", bwi_json_of_u64(e->era), &failed);
    bwi_json_set(o, "n", bwi_json_of_u64(e->n), &failed);
    bwi_json_set(o, "prev", bwi_sha_is_zero(&e->prev) ? json_null() : bwi_json_of_sha(&e->prev), &failed);
    bwi_json_set(o, "writer", bwi_json_of_hex(e->writer, 16), &failed);
    bwi_json_set(o, "time_ms", json_integer(e->time_ms), &failed);
    bwi_json_set(o, "host", json_string(e->host), &failed);
    bwi_json_set(o, "event", event_of(&e->event, &failed), &failed);
    bwi_json_set(o, "attempt", attempt_of(&e->attempt, &failed), &failed);
    bwi_json_set(o, "from", from_of(&e->from, &failed), &failed);
    bwi_json_set(o, "h", e->h_set ? bwi_json_of_u64(e->h) : json_null(), &failed);
    bwi_json_set(o, "tries", tries_of(e, &failed), &failed);
    bwi_json_set(o, "ids", ids_of(ids.ids, ids.count, &failed), &failed);
    bwi_json_set(o, "live", kept_of(e->live, e->live_count, &ids, &failed), &failed);
    bwi_json_set(o, "shelved", kept_of(e->shelved, e->shelved_count, &ids, &failed), &failed);
    bwi_json_set(o, "labels", names_of(e->labels, e->label_count, &failed), &failed);
    bwi_json_set(o, "launches", names_of(e->launches, e->launch_count, &failed), &failed);
    bwi_json_set(o, "superseded", names_of(e->superseded, e->superseded_count, &failed), &failed);
    bwi_free(ids.ids);
    return bwi_json_finish(o, failed, true, BWI_ENTRY_BYTES_MAX, BWI_ENTRY_WHAT, out, err);
}

void bwi_entry_fini(struct bwi_entry *e) {
    if (e == NULL) return;
    bwi_free(e->lineage);
    bwi_free(e->event.ids);
    bwi_free(e->tries);
    bwi_free(e->live);
    bwi_free(e->shelved);
    bwi_free(e->labels);
    bwi_free(e->launches);
    bwi_free(e->superseded);
    *e = (struct bwi_entry){0};
}

static void *copy_of(const void *src, size_t n, size_t size, bool *failed) {
    if (n == 0 || *failed) return NULL;
    void *copy = bwi_calloc(n, size);
    if (copy == NULL)
        *failed = true;
    else
        memcpy(copy, src, n * size);
    return copy;
}

int bwi_entry_copy(const struct bwi_entry *from, struct bwi_entry *ret, struct bw_error *err) {
    bool failed = false;
    struct bwi_entry to = *from;
    to.lineage = copy_of(from->lineage, from->lineage_count, sizeof *to.lineage, &failed);
    to.event.ids = copy_of(from->event.ids, from->event.id_count, sizeof *to.event.ids, &failed);
    to.tries = copy_of(from->tries, from->try_count, sizeof *to.tries, &failed);
    to.live = copy_of(from->live, from->live_count, sizeof *to.live, &failed);
    to.shelved = copy_of(from->shelved, from->shelved_count, sizeof *to.shelved, &failed);
    to.labels = copy_of(from->labels, from->label_count, sizeof *to.labels, &failed);
    to.launches = copy_of(from->launches, from->launch_count, sizeof *to.launches, &failed);
    to.superseded = copy_of(from->superseded, from->superseded_count, sizeof *to.superseded, &failed);
    if (failed) {
        bwi_entry_fini(&to);
        return bwi_error_nomem(err, from->live_count * sizeof *from->live, "a copy of a " BWI_ENTRY_WHAT);
    }
    *ret = to;
    return 0;
}
