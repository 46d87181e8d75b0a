/* SPDX-License-Identifier: Apache-2.0 */
/* The smaller JSON objects: store.json, the inventory of a launching group, the marks for groups that gave up or were
 * found damaged, and rank 0's refusal of a launch. */
#include "base/error.h"
#include "base/vec.h"
#include "format/history.h"
#include "format/json.h"
#include "format/rules.h"
#include <string.h>

#define MAJOR 1
#define MINOR 0

/* --- store.json --- */

#define STORE        "store.json"
#define STORE_FORMAT "breakwater-store"

int bwi_store_id_encode(const struct bwi_store_id *s, struct bwi_buf *out, struct bw_error *err) {
    bool failed = false;
    json_t *o = bwi_json_start(STORE_FORMAT, MAJOR, MINOR, &failed);
    bwi_json_set(o, "id", bwi_json_of_uuid(&s->id), &failed);
    return bwi_json_finish(o, failed, true, BWI_JSON_SMALL_MAX, STORE, out, err);
}

int bwi_store_id_decode(struct bwi_span in, struct bwi_store_id *ret, struct bw_error *err) {
    static const char *const known[] = {"id", NULL};
    json_t *o = NULL;
    int rc = bwi_json_size(in, BWI_JSON_SMALL_MAX, STORE, err);
    if (rc == 0) rc = bwi_json_decode_sealed(in, STORE, &o, err);
    if (rc < 0) return rc;
    struct bwi_store_id s;
    rc = bwi_json_head(o, STORE_FORMAT, MAJOR, MINOR, known, STORE, err);
    if (rc == 0) rc = bwi_json_uuid(o, "id", &s.id, STORE, err);
    json_decref(o);
    if (rc == 0) *ret = s;
    return rc;
}

/* --- inventories --- */

#define INVENTORY        "inventory"
#define INVENTORY_FORMAT "breakwater-inventory"
#define INVENTORY_MINOR  1 /* 1.1 added "seen" */

static int hold_cmp(const struct bwi_hold *a, const struct bwi_hold *b) {
    const int by_id = bwi_id_cmp(&a->id, &b->id);
    return by_id != 0 ? by_id : (a->group > b->group) - (a->group < b->group);
}

static int check_holds(const struct bwi_inventory *v, bool w, struct bw_error *err) {
    for (size_t i = 0; i < v->hold_count; i++) {
        const struct bwi_hold *h = &v->holds[i];
        char text[BWI_ID_TEXT_BYTES];
        bwi_id_text(&h->id, text);
        int rc = bwi_rule_id(&h->id, w, INVENTORY ": hold", err);
        if (rc < 0) return rc;
        if (h->group >= BWI_GROUPS_MAX)
            return bwi_error_set(err, bwi_rule_over(w), INVENTORY ": hold: group %u is not below %u", h->group,
                                 BWI_GROUPS_MAX);
        if (i > 0 && hold_cmp(&v->holds[i - 1], h) >= 0)
            return bwi_error_set(err, bwi_rule_bad(w), INVENTORY ": its holds do not ascend at %s of group %u", text,
                                 h->group);
        rc = bwi_rule_refs(h->refs, h->ref_count, &h->id, w, INVENTORY ": hold", err);
        if (rc < 0) return rc;
    }
    return 0;
}

static int check_inventory(const struct bwi_inventory *v, bool w, struct bw_error *err) {
    const int bad = bwi_rule_bad(w);
    if (!bwi_rule_name(v->launch)) return bwi_error_set(err, bad, INVENTORY ": its launch is no valid name");
    if (!bwi_rule_name(v->job)) return bwi_error_set(err, bad, INVENTORY ": its job is no valid name");
    if (!bwi_rule_ascii(v->host, sizeof v->host))
        return bwi_error_set(err, bad, INVENTORY ": its host is not printable ASCII");
    if (v->seen_told && v->seen_set && v->seen_number == 0)
        return bwi_error_set(err, bad, INVENTORY ": the attempt that it has seen is number 0");
    int rc = bwi_rule_world(v->world, v->groups, w, INVENTORY, err);
    if (rc == 0 && v->group >= v->groups)
        rc = bwi_error_set(err, bad, INVENTORY ": group %u is not one of %u groups", v->group, v->groups);
    if (rc == 0) rc = bwi_rule_ranks(v->ranks, v->rank_count, v->world, w, INVENTORY, err);
    if (rc == 0) rc = check_holds(v, w, err);
    return rc;
}

static json_t *ranks_of(const struct bwi_inventory *v, bool *failed) {
    json_t *a = json_array();
    for (uint32_t i = 0; i < v->rank_count; i++) {
        json_t *row = json_array();
        bwi_json_push(row, bwi_json_of_u64(v->ranks[i]), failed);
        bwi_json_push(row, bwi_json_of_hex(v->writers[i], 16), failed);
        bwi_json_push(a, row, failed);
    }
    return a;
}

static json_t *holds_of(const struct bwi_inventory *v, bool *failed) {
    json_t *a = json_array();
    for (size_t i = 0; i < v->hold_count; i++) {
        const struct bwi_hold *h = &v->holds[i];
        json_t *refs = json_array(), *row = json_array();
        for (uint32_t r = 0; r < h->ref_count; r++) bwi_json_push(refs, bwi_json_of_id(&h->refs[r]), failed);
        bwi_json_push(row, bwi_json_of_id(&h->id), failed);
        bwi_json_push(row, bwi_json_of_uuid(&h->uuid), failed);
        bwi_json_push(row, bwi_json_of_u64(h->group), failed);
        bwi_json_push(row, refs, failed);
        bwi_json_push(a, row, failed);
    }
    return a;
}

static json_t *seen_of(const struct bwi_inventory *v, bool *failed) {
    if (!v->seen_set) return json_null();
    json_t *row = json_array();
    bwi_json_push(row, bwi_json_of_u64(v->seen_number), failed);
    bwi_json_push(row, bwi_json_of_hex(v->seen_nonce, 8), failed);
    return row;
}

int bwi_inventory_encode(const struct bwi_inventory *v, struct bwi_buf *out, struct bw_error *err) {
    const int rc = check_inventory(v, true, err);
    if (rc < 0) return rc;
    bool failed = false;
    json_t *o = bwi_json_start(INVENTORY_FORMAT, MAJOR, v->seen_told ? INVENTORY_MINOR : 0, &failed);
    if (v->seen_told) bwi_json_set(o, "seen", seen_of(v, &failed), &failed);
    bwi_json_set(o, "launch", json_string(v->launch), &failed);
    bwi_json_set(o, "job", json_string(v->job), &failed);
    bwi_json_set(o, "group", bwi_json_of_u64(v->group), &failed);
    bwi_json_set(o, "groups", bwi_json_of_u64(v->groups), &failed);
    bwi_json_set(o, "world", bwi_json_of_u64(v->world), &failed);
    bwi_json_set(o, "ranks", ranks_of(v, &failed), &failed);
    bwi_json_set(o, "holds", holds_of(v, &failed), &failed);
    bwi_json_set(o, "host", json_string(v->host), &failed);
    return bwi_json_finish(o, failed, true, BWI_INVENTORY_BYTES_MAX, INVENTORY, out, err);
}

static int read_ranks(const json_t *o, bool newer, struct bwi_inventory *v, struct bw_error *err) {
    const json_t *a;
    const int rc = bwi_json_array(o, "ranks", BWI_GROUP_RANKS_MAX, &a, INVENTORY, err);
    if (rc < 0) return rc;
    v->rank_count = (uint32_t)json_array_size(a);
    for (uint32_t i = 0; i < v->rank_count; i++) {
        const json_t *row = json_array_get(a, i);
        if (!bwi_json_is_row(row, 2, newer) || !bwi_json_value_u32(json_array_get(row, 0), UINT32_MAX, &v->ranks[i]) ||
            !bwi_json_value_hex(json_array_get(row, 1), 16, &v->writers[i]))
            return bwi_error_set(err, BW_E_FORMAT, INVENTORY ": rank %u: expected [rank, 16 hex digits]", i);
    }
    return 0;
}

static bool read_hold(const json_t *row, bool newer, struct bwi_hold *h) {
    const json_t *refs = json_array_get(row, 3);
    if (!bwi_json_is_row(row, 4, newer) || !json_is_array(refs) || json_array_size(refs) > BWI_REFS_MAX) return false;
    h->ref_count = (uint32_t)json_array_size(refs);
    for (uint32_t r = 0; r < h->ref_count; r++) {
        if (!bwi_json_value_id(json_array_get(refs, r), &h->refs[r])) return false;
    }
    return bwi_json_value_id(json_array_get(row, 0), &h->id) && bwi_json_value_uuid(json_array_get(row, 1), &h->uuid) &&
           bwi_json_value_u32(json_array_get(row, 2), UINT32_MAX, &h->group);
}

static int read_holds(const json_t *o, bool newer, struct bwi_inventory *v, struct bw_error *err) {
    const json_t *a;
    const int rc = bwi_json_array(o, "holds", SIZE_MAX, &a, INVENTORY, err);
    const size_t n = rc == 0 ? json_array_size(a) : 0;
    if (n == 0) return rc;
    v->holds = bwi_calloc(n, sizeof *v->holds);
    if (v->holds == NULL) return bwi_error_nomem(err, n * sizeof *v->holds, INVENTORY);
    v->hold_count = n;
    for (size_t i = 0; i < n; i++) {
        if (!read_hold(json_array_get(a, i), newer, &v->holds[i]))
            return bwi_error_set(err, BW_E_FORMAT, INVENTORY ": hold %zu: expected [id, uuid, group, [0 to %d refs]]",
                                 i, BWI_REFS_MAX);
    }
    return 0;
}

static int read_seen(const json_t *o, bool newer, struct bwi_inventory *v, struct bw_error *err) {
    const json_t *row = json_object_get(o, "seen");
    uint64_t nonce = 0;
    if (json_is_null(row)) return 0;
    if (!bwi_json_is_row(row, 2, newer) || !bwi_json_value_u32(json_array_get(row, 0), UINT32_MAX, &v->seen_number) ||
        !bwi_json_value_hex(json_array_get(row, 1), 8, &nonce))
        return bwi_error_set(err, BW_E_FORMAT, INVENTORY ": seen: expected null or [attempt, 8 hex digits]");
    v->seen_set = true;
    v->seen_nonce = (uint32_t)nonce;
    return 0;
}

static int read_inventory(const json_t *o, struct bwi_inventory *v, struct bw_error *err) {
    static const char *const known[] = {"seen",  "launch", "job",   "group", "groups",
                                        "world", "ranks",  "holds", "host",  NULL};
    const bool newer = bwi_json_newer(o, INVENTORY_MINOR);
    v->seen_told = bwi_json_newer(o, 0);
    int rc =
        bwi_json_head(o, INVENTORY_FORMAT, MAJOR, INVENTORY_MINOR, v->seen_told ? known : known + 1, INVENTORY, err);
    if (rc == 0 && v->seen_told) rc = read_seen(o, newer, v, err);
    if (rc == 0) rc = bwi_json_name(o, "launch", v->launch, false, INVENTORY, err);
    if (rc == 0) rc = bwi_json_name(o, "job", v->job, false, INVENTORY, err);
    if (rc == 0) rc = bwi_json_u32(o, "group", UINT32_MAX, &v->group, INVENTORY, err);
    if (rc == 0) rc = bwi_json_u32(o, "groups", UINT32_MAX, &v->groups, INVENTORY, err);
    if (rc == 0) rc = bwi_json_u32(o, "world", UINT32_MAX, &v->world, INVENTORY, err);
    if (rc == 0) rc = bwi_json_text(o, "host", v->host, sizeof v->host, INVENTORY, err);
    if (rc == 0) rc = read_ranks(o, newer, v, err);
    if (rc == 0) rc = read_holds(o, newer, v, err);
    if (rc == 0) rc = check_inventory(v, false, err);
    return rc;
}

int bwi_inventory_decode(struct bwi_span in, struct bwi_inventory *ret, struct bw_error *err) {
    json_t *o = NULL;
    int rc = bwi_json_size(in, BWI_INVENTORY_BYTES_MAX, INVENTORY, err);
    if (rc == 0) rc = bwi_json_decode_sealed(in, INVENTORY, &o, err);
    if (rc < 0) return rc;
    struct bwi_inventory v = {0};
    rc = read_inventory(o, &v, err);
    json_decref(o);
    if (rc < 0) {
        bwi_inventory_fini(&v);
        return rc;
    }
    *ret = v;
    return 0;
}

void bwi_inventory_fini(struct bwi_inventory *v) {
    if (v == NULL) return;
    bwi_free(v->holds);
    *v = (struct bwi_inventory){0};
}

/* --- marks --- */

static const char *mark_format(bool damaged) {
    return damaged ? "breakwater-damaged" : "breakwater-failed";
}
static const char *mark_what(bool damaged) {
    return damaged ? "damaged mark" : "failed mark";
}

static int check_mark(const struct bwi_mark *m, bool w, const char *what, struct bw_error *err) {
    const int rc = bwi_rule_id(&m->id, w, what, err);
    if (rc < 0) return rc;
    if (m->group >= BWI_GROUPS_MAX)
        return bwi_error_set(err, bwi_rule_over(w), "%s: group %u is not below %u", what, m->group, BWI_GROUPS_MAX);
    if (m->status >= 0)
        return bwi_error_set(err, bwi_rule_bad(w), "%s: expected a negative status, found %d", what, m->status);
    if (!bwi_rule_line(m->reason, sizeof m->reason))
        return bwi_error_set(err, bwi_rule_bad(w), "%s: its reason is not one line of UTF-8", what);
    return 0;
}

int bwi_mark_encode(const struct bwi_mark *m, bool damaged, struct bwi_buf *out, struct bw_error *err) {
    const char *what = mark_what(damaged);
    const int rc = check_mark(m, true, what, err);
    if (rc < 0) return rc;
    bool failed = false;
    json_t *o = bwi_json_start(mark_format(damaged), MAJOR, MINOR, &failed);
    bwi_json_set(o, "id", bwi_json_of_id(&m->id), &failed);
    bwi_json_set(o, "group", bwi_json_of_u64(m->group), &failed);
    bwi_json_set(o, "writer", bwi_json_of_hex(m->writer, 16), &failed);
    bwi_json_set(o, "status", json_integer(m->status), &failed);
    bwi_json_set(o, "reason", json_string(m->reason), &failed);
    return bwi_json_finish(o, failed, true, BWI_JSON_SMALL_MAX, what, out, err);
}

static int read_status(const json_t *o, int32_t *ret, const char *what, struct bw_error *err) {
    int64_t wide;
    const int rc = bwi_json_i64(o, "status", &wide, what, err);
    if (rc < 0) return rc;
    if (wide < INT32_MIN || wide > INT32_MAX)
        return bwi_error_set(err, BW_E_FORMAT, "%s: member \"status\": expected 32 bits, found %lld", what,
                             (long long)wide);
    *ret = (int32_t)wide;
    return 0;
}

int bwi_mark_decode(struct bwi_span in, bool damaged, struct bwi_mark *ret, struct bw_error *err) {
    static const char *const known[] = {"id", "group", "writer", "status", "reason", NULL};
    const char *what = mark_what(damaged);
    json_t *o = NULL;
    int rc = bwi_json_size(in, BWI_JSON_SMALL_MAX, what, err);
    if (rc == 0) rc = bwi_json_decode_sealed(in, what, &o, err);
    if (rc < 0) return rc;
    struct bwi_mark m = {0};
    rc = bwi_json_head(o, mark_format(damaged), MAJOR, MINOR, known, what, err);
    if (rc == 0) rc = bwi_json_id(o, "id", &m.id, what, err);
    if (rc == 0) rc = bwi_json_u32(o, "group", UINT32_MAX, &m.group, what, err);
    if (rc == 0) rc = bwi_json_writer(o, "writer", &m.writer, what, err);
    if (rc == 0) rc = read_status(o, &m.status, what, err);
    if (rc == 0) rc = bwi_json_text(o, "reason", m.reason, sizeof m.reason, what, err);
    if (rc == 0) rc = check_mark(&m, false, what, err);
    json_decref(o);
    if (rc == 0) *ret = m;
    return rc;
}

/* --- refusals --- */

#define REFUSAL        "refusal"
#define REFUSAL_FORMAT "breakwater-refused"

static int check_refusal(const struct bwi_refusal *r, bool w, struct bw_error *err) {
    const int bad = bwi_rule_bad(w);
    if (!bwi_rule_name(r->launch)) return bwi_error_set(err, bad, REFUSAL ": its launch is no valid name");
    if (r->status >= 0) return bwi_error_set(err, bad, REFUSAL ": expected a negative status, found %d", r->status);
    if (!bwi_rule_line(r->reason, sizeof r->reason))
        return bwi_error_set(err, bad, REFUSAL ": its reason is not one line of UTF-8");
    return 0;
}

int bwi_refusal_encode(const struct bwi_refusal *r, struct bwi_buf *out, struct bw_error *err) {
    const int rc = check_refusal(r, true, err);
    if (rc < 0) return rc;
    bool failed = false;
    json_t *o = bwi_json_start(REFUSAL_FORMAT, MAJOR, MINOR, &failed);
    bwi_json_set(o, "launch", json_string(r->launch), &failed);
    bwi_json_set(o, "writer", bwi_json_of_hex(r->writer, 16), &failed);
    bwi_json_set(o, "status", json_integer(r->status), &failed);
    bwi_json_set(o, "reason", json_string(r->reason), &failed);
    return bwi_json_finish(o, failed, true, BWI_JSON_SMALL_MAX, REFUSAL, out, err);
}

int bwi_refusal_decode(struct bwi_span in, struct bwi_refusal *ret, struct bw_error *err) {
    static const char *const known[] = {"launch", "writer", "status", "reason", NULL};
    json_t *o = NULL;
    int rc = bwi_json_size(in, BWI_JSON_SMALL_MAX, REFUSAL, err);
    if (rc == 0) rc = bwi_json_decode_sealed(in, REFUSAL, &o, err);
    if (rc < 0) return rc;
    struct bwi_refusal r = {0};
    rc = bwi_json_head(o, REFUSAL_FORMAT, MAJOR, MINOR, known, REFUSAL, err);
    if (rc == 0) rc = bwi_json_name(o, "launch", r.launch, false, REFUSAL, err);
    if (rc == 0) rc = bwi_json_writer(o, "writer", &r.writer, REFUSAL, err);
    if (rc == 0) rc = read_status(o, &r.status, REFUSAL, err);
    if (rc == 0) rc = bwi_json_text(o, "reason", r.reason, sizeof r.reason, REFUSAL, err);
    if (rc == 0) rc = check_refusal(&r, false, err);
    json_decref(o);
    if (rc == 0) *ret = r;
    return rc;
}

/* --- ends of eras --- */

#define ERA_END        "end of era"
#define ERA_END_FORMAT "breakwater-era-end"

static int check_era_end(const struct bwi_era_end *e, bool w, struct bw_error *err) {
    const int bad = bwi_rule_bad(w);
    if (!bwi_rule_name(e->run)) return bwi_error_set(err, bad, ERA_END ": its run is no valid name");
    if (e->era == 0 || e->era > BWI_ERA_MAX)
        return bwi_error_set(err, bad, ERA_END ": expected an era from 1 to %u, found %u", BWI_ERA_MAX, e->era);
    if (e->n == 0) return bwi_error_set(err, bad, ERA_END ": expected an n above 0, found 0");
    return 0;
}

int bwi_era_end_encode(const struct bwi_era_end *e, struct bwi_buf *out, struct bw_error *err) {
    const int rc = check_era_end(e, true, err);
    if (rc < 0) return rc;
    bool failed = false;
    json_t *o = bwi_json_start(ERA_END_FORMAT, MAJOR, MINOR, &failed);
    bwi_json_set(o, "run", json_string(e->run), &failed);
    bwi_json_set(o, "era", bwi_json_of_u64(e->era), &failed);
    bwi_json_set(o, "n", bwi_json_of_u64(e->n), &failed);
    return bwi_json_finish(o, failed, true, BWI_JSON_SMALL_MAX, ERA_END, out, err);
}

int bwi_era_end_decode(struct bwi_span in, struct bwi_era_end *ret, struct bw_error *err) {
    static const char *const known[] = {"run", "era", "n", NULL};
    json_t *o = NULL;
    int rc = bwi_json_size(in, BWI_JSON_SMALL_MAX, ERA_END, err);
    if (rc == 0) rc = bwi_json_decode_sealed(in, ERA_END, &o, err);
    if (rc < 0) return rc;
    struct bwi_era_end e = {0};
    rc = bwi_json_head(o, ERA_END_FORMAT, MAJOR, MINOR, known, ERA_END, err);
    if (rc == 0) rc = bwi_json_name(o, "run", e.run, false, ERA_END, err);
    if (rc == 0) rc = bwi_json_u32(o, "era", UINT32_MAX, &e.era, ERA_END, err);
    if (rc == 0) rc = bwi_json_u64(o, "n", BWI_INT_MAX, &e.n, ERA_END, err);
    if (rc == 0) rc = check_era_end(&e, false, err);
    json_decref(o);
    if (rc == 0) *ret = e;
    return rc;
}
