/* SPDX-License-Identifier: Apache-2.0 */
/* What must be true of a run. It reads objects with the product's decoders, which have tests of their own; what follows
 * from them it works out for itself. */
#include "oracle.h"

#include "base/text.h"
#include "base/vec.h"
#include "format/content.h"
#include "format/manifest.h"
#include "test.h"
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

struct id_text {
    char s[BWI_ID_TEXT_BYTES];
};

static struct id_text text_of(const struct bwi_id *id) {
    struct id_text t;
    bwi_id_text(id, t.s);
    return t;
}

void oracle_violated(struct oracle *o, const char *fmt, ...) {
    va_list args;
    if (o->violation[0] != '\0') return;
    va_start(args, fmt);
    (void)vsnprintf(o->violation, sizeof o->violation, fmt, args);
    va_end(args);
}

void oracle_init(struct oracle *o, const char *run, struct bwi_bucket *authority) {
    memset(o, 0, sizeof *o);
    o->run = run;
    o->authority = authority;
}

void oracle_fini(struct oracle *o) {
    bwi_entry_fini(&o->head);
    bwi_free(o->needed);
}

struct oracle_id *oracle_find(struct oracle *o, const struct bwi_id *id) {
    for (unsigned i = 0; i < o->id_count; i++)
        if (bwi_id_eq(&o->ids[i].id, id)) return &o->ids[i];
    return NULL;
}

static struct oracle_id *account_of(struct oracle *o, const struct bwi_id *id) {
    struct oracle_id *a = oracle_find(o, id);
    if (a != NULL) return a;
    assert_true(o->id_count < ORACLE_IDS);
    a = &o->ids[o->id_count++];
    *a = (struct oracle_id){.id = *id};
    return a;
}

/* --- what a checkpoint is made of ---- */

static void need(struct oracle *o, const char *key) {
    void *list = o->needed;
    assert_true(bwi_vec_reserve(&list, &o->needed_cap, o->needed_count + 1, sizeof o->needed[0]));
    o->needed = list;
    bwi_format(o->needed[o->needed_count++], sizeof o->needed[0], "%s", key);
}

/* The object, or a violation: `what` of this checkpoint is missing. */
static bool fetch(struct oracle *o, const struct bwi_id *id, const char *key, struct bwi_span *ret) {
    need(o, key);
    if (bwi_bucket_get(o->authority, key, ret)) return true;
    if (!o->damaged) oracle_violated(o, "checkpoint %s has no object %s", text_of(id).s, key);
    return false;
}

static void need_packs(struct oracle *o, const struct bwi_id *id, struct bwi_span bytes) {
    struct bwi_placement p = {0};
    struct bw_error err = BW_ERROR_INIT;
    struct bwi_span pack;
    if (bwi_placement_decode(bytes, &p, &err) < 0) {
        if (!o->damaged) oracle_violated(o, "placement of %s: %s", text_of(id).s, err.message);
        return;
    }
    for (uint32_t i = 0; i < p.pack_count; i++) {
        char key[512];
        bwi_format(key, sizeof key, "%.*s", (int)p.packs[i].key.len, (const char *)p.packs[i].key.ptr);
        if (fetch(o, id, key, &pack) && pack.len != p.packs[i].file_bytes && !o->damaged)
            oracle_violated(o, "pack %s has %zu bytes, not %" PRIu64, key, pack.len, p.packs[i].file_bytes);
    }
    bwi_placement_fini(&p);
}

static void need_group(struct oracle *o, const struct bwi_manifest *m, uint32_t group) {
    const struct bwi_id *id = &m->id;
    const struct bwi_manifest_group *g = &m->groups[group];
    struct bwi_summary s;
    struct bwi_span bytes;
    struct bw_error err = BW_ERROR_INIT;
    if (!fetch(o, id, bwi_key_summary(o->run, id, group).s, &bytes)) return;
    if (bwi_summary_decode(bytes, &s, &err) < 0) {
        if (!o->damaged) oracle_violated(o, "summary %u of %s: %s", group, text_of(id).s, err.message);
        return;
    }
    (void)fetch(o, id, bwi_key_layout(o->run, id->attempt, id->nonce, &g->layout).s, &bytes);
    (void)fetch(o, id, bwi_key_content(o->run, m->fan_out, id, group).s, &bytes);
    if (fetch(o, id, bwi_key_placement(o->run, m->fan_out, id, group, s.writer).s, &bytes)) need_packs(o, id, bytes);
}

static void need_checkpoint(struct oracle *o, const struct bwi_kept *k) {
    struct bwi_manifest m = {0};
    struct bwi_span bytes;
    struct bw_error err = BW_ERROR_INIT;
    if (!fetch(o, &k->id, bwi_key_manifest(o->run, &k->id, &k->manifest).s, &bytes)) return;
    const struct bwi_sha sha = bwi_sha_of(bytes);
    if (memcmp(&sha, &k->manifest, sizeof sha) != 0 || bwi_manifest_decode(bytes, &m, &err) < 0) {
        if (!o->damaged) oracle_violated(o, "manifest of %s is not the one that was committed", text_of(&k->id).s);
        return;
    }
    (void)fetch(o, &k->id, bwi_key_index(o->run, &k->id, &m.index.root).s, &bytes);
    for (uint32_t g = 0; g < m.group_count; g++) need_group(o, &m, g);
    bwi_manifest_fini(&m);
}

static void need_all(struct oracle *o) {
    o->needed_count = 0;
    for (size_t i = 0; i < o->head.live_count; i++) need_checkpoint(o, &o->head.live[i]);
    for (size_t i = 0; i < o->head.shelved_count; i++) need_checkpoint(o, &o->head.shelved[i]);
}

static void check_needed(struct oracle *o, const struct bwi_store_op *op) {
    struct bwi_span there;
    for (size_t i = 0; i < o->needed_count && !o->damaged; i++) {
        if (bwi_bucket_get(o->authority, o->needed[i], &there)) continue;
        oracle_violated(o, "deleting %s took %s, which is needed", op->key, o->needed[i]);
        return;
    }
}

/* --- entries ---- */

static const struct bwi_kept *kept_in(const struct bwi_entry *e, const struct bwi_id *id) {
    for (size_t i = 0; i < e->live_count; i++)
        if (bwi_id_eq(&e->live[i].id, id)) return &e->live[i];
    for (size_t i = 0; i < e->shelved_count; i++)
        if (bwi_id_eq(&e->shelved[i].id, id)) return &e->shelved[i];
    return NULL;
}

static void check_follows(struct oracle *o, const struct bwi_entry *e) {
    const struct bwi_entry *h = &o->head;
    if (h->n == 0) return;
    if (e->n != h->n + 1 || e->era != h->era)
        oracle_violated(o, "entry %u.%" PRIu64 " follows %u.%" PRIu64, e->era, e->n, h->era, h->n);
    else if (memcmp(&e->prev, &o->head_sha, sizeof e->prev) != 0)
        oracle_violated(o, "entry %" PRIu64 " does not name the bytes of the one before it", e->n);
}

static void account_kept(struct oracle *o, const struct bwi_entry *e, const struct bwi_kept *k) {
    struct oracle_id *a = account_of(o, &k->id);
    const bool is_new = kept_in(&o->head, &k->id) == NULL;
    if (is_new && (e->event.type != BWI_EVENT_COMMIT || !bwi_id_eq(&e->event.ids[0], &k->id)))
        oracle_violated(o, "%s is in entry %" PRIu64 ", which did not commit it", text_of(&k->id).s, e->n);
    if (is_new && a->committed) oracle_violated(o, "%s was committed twice", text_of(&k->id).s);
    if (is_new && a->told_dead)
        oracle_violated(o, "%s was committed after somebody had been told that it failed", text_of(&k->id).s);
    if (is_new && a->aborted) oracle_violated(o, "%s was committed after it had been aborted", text_of(&k->id).s);
    if (!is_new && memcmp(&a->manifest, &k->manifest, sizeof a->manifest) != 0)
        oracle_violated(o, "%s has another manifest in entry %" PRIu64, text_of(&k->id).s, e->n);
    a->committed = true;
    a->manifest = k->manifest;
}

static void check_lists(struct oracle *o, const struct bwi_entry *e) {
    for (size_t i = 0; i + 1 < e->live_count; i++)
        if (e->live[i].id.step >= e->live[i + 1].id.step)
            oracle_violated(o, "two live checkpoints of step %" PRIu64, e->live[i].id.step);
    for (size_t i = 0; i < e->live_count; i++) account_kept(o, e, &e->live[i]);
    for (size_t i = 0; i < e->shelved_count; i++) account_kept(o, e, &e->shelved[i]);
}

static bool is_on_demand(const struct bwi_entry *e) {
    return e->event.type == BWI_EVENT_REGISTER && strcmp(e->event.mode, "default") != 0 &&
           strcmp(e->event.mode, "takeover") != 0;
}

static void check_newest(struct oracle *o, const struct bwi_entry *e) {
    const struct bwi_entry *h = &o->head;
    if (h->n == 0 || h->live_count == 0 || is_on_demand(e)) return;
    const struct bwi_id *was = &h->live[h->live_count - 1].id;
    const struct bwi_id *is = e->live_count > 0 ? &e->live[e->live_count - 1].id : NULL;
    if (is == NULL || is->step < was->step || (is->step == was->step && !bwi_id_eq(is, was)))
        oracle_violated(o, "the newest went from %s to %s", text_of(was).s, is != NULL ? text_of(is).s : "nothing");
    if (e->event.type != BWI_EVENT_REGISTER) return;
    if (!e->from.set || e->from.id.step < was->step || (!e->from.open && !bwi_id_eq(&e->from.id, was)))
        oracle_violated(o, "entry %" PRIu64 " goes on from %s, the newest was %s", e->n,
                        e->from.set ? text_of(&e->from.id).s : "nothing", text_of(was).s);
}

/* A launch replaces the attempt that its rank 0 saw first, or nobody's; a superseded job comes back only by a takeover.
 */
static void check_register(struct oracle *o, const struct bwi_entry *e) {
    const struct bwi_attempt *was = &o->head.attempt, *is = &e->attempt;
    struct bwi_inventory v = {0};
    struct bwi_span bytes;
    struct bw_error err = BW_ERROR_INIT;
    for (size_t i = 0; i < o->head.superseded_count; i++)
        if (strcmp(o->head.superseded[i], is->job) == 0 && strcmp(e->event.mode, "takeover") != 0)
            oracle_violated(o, "superseded job %s has registered again", is->job);
    if (is->number != (was->set ? was->number + 1 : 1))
        oracle_violated(o, "attempt %u follows attempt %u", is->number, was->number);
    if (!bwi_bucket_get(o->authority, bwi_key_inventory(o->run, is->launch, 0).s, &bytes) ||
        bwi_inventory_decode(bytes, &v, &err) < 0) {
        oracle_violated(o, "launch %s has registered without an inventory", is->launch);
        return;
    }
    if (v.seen_set != was->set || (was->set && (v.seen_number != was->number || v.seen_nonce != was->nonce)))
        oracle_violated(o, "launch %s registered over attempt %u, which came after it had looked", is->launch,
                        was->number);
    bwi_inventory_fini(&v);
}

static void take_entry(struct oracle *o, const char *key, struct bwi_span bytes) {
    struct bwi_entry e = {0};
    struct bw_error err = BW_ERROR_INIT;
    if (bwi_entry_decode(bytes, &e, &err) < 0) {
        oracle_violated(o, "entry %s cannot be read: %s", key, err.message);
        return;
    }
    check_follows(o, &e);
    check_lists(o, &e);
    check_newest(o, &e);
    if (e.event.type == BWI_EVENT_REGISTER) check_register(o, &e);
    if (e.event.type == BWI_EVENT_ABORT) account_of(o, &e.event.ids[0])->aborted = true;
    bwi_entry_fini(&o->head);
    o->head = e;
    o->head_sha = bwi_sha_of(bytes);
    o->entries++;
    need_all(o);
}

void oracle_look(struct oracle *o, const struct bwi_store_op *op) {
    struct bwi_key_parts parts;
    struct bwi_span bytes;
    if (op->verb == BWI_STORE_DELETE || op->verb == BWI_STORE_DELETE_PREFIX) {
        check_needed(o, op);
        return;
    }
    if (op->verb == BWI_STORE_FINISH || !bwi_key_parse(op->key, &parts) || parts.kind != BWI_KEY_ENTRY) return;
    if (!bwi_bucket_get(o->authority, op->key, &bytes)) return;   /* it had no effect */
    if (parts.era == o->head.era && parts.n <= o->head.n) return; /* a name that is taken */
    take_entry(o, op->key, bytes);
}

/* --- what participants are told ---- */

/* Ends that say for certain that the save will never be live. After the others a new launch, or another rank, may still
 * bring it to its end. */
static bool is_certain(int status) {
    return status != BW_E_UNKNOWN && status != BW_E_LAUNCH_LOST && status != BW_E_SUPERSEDED && status != BW_E_TIMEOUT;
}

void oracle_told(struct oracle *o, const struct bwi_id *id, int status) {
    struct oracle_id *a = account_of(o, id);
    if (status == 0) {
        if (!a->committed) oracle_violated(o, "COMMITTED was told of %s, which no entry has", text_of(id).s);
        a->told_committed = true;
    } else if (is_certain(status)) {
        if (a->committed)
            oracle_violated(o, "%s is committed, and a rank was told %s", text_of(id).s, bw_status_name(status));
        a->told_dead = true;
    }
}

/* --- what may lie around ---- */

static bool id_may_lie(const struct oracle *o, const struct bwi_id *id) {
    const struct bwi_entry *h = &o->head;
    if (kept_in(h, id) != NULL) return true;
    if (h->from.set && h->from.open && bwi_id_eq(&h->from.id, id)) return true;
    if (id->attempt > h->attempt.number) return true;
    if (id->attempt != h->attempt.number || id->nonce != h->attempt.nonce) return false;
    if (h->h_set && id->step <= h->h) return false;
    for (size_t i = 0; i < h->try_count; i++)
        if (h->tries[i].step == id->step) return id->tri >= h->tries[i].tri;
    return true;
}

static bool layout_may_lie(const struct oracle *o, const struct bwi_key_parts *k) {
    const struct bwi_entry *h = &o->head;
    if (k->attempt > h->attempt.number || (k->attempt == h->attempt.number && k->nonce == h->attempt.nonce))
        return true;
    if (h->from.set && h->from.id.attempt == k->attempt && h->from.id.nonce == k->nonce) return true;
    for (size_t i = 0; i < h->live_count; i++)
        if (h->live[i].id.attempt == k->attempt && h->live[i].id.nonce == k->nonce) return true;
    for (size_t i = 0; i < h->shelved_count; i++)
        if (h->shelved[i].id.attempt == k->attempt && h->shelved[i].id.nonce == k->nonce) return true;
    return false;
}

bool oracle_may_lie(const struct oracle *o, const char *key) {
    struct bwi_key_parts k;
    if (!bwi_key_parse(key, &k)) return strchr(key, '/') == NULL; /* the store's own identity */
    switch (k.kind) {
    case BWI_KEY_ENTRY: return true;
    case BWI_KEY_INVENTORY:
    case BWI_KEY_REFUSAL: return true; /* those that never registered stay under watch for a day */
    case BWI_KEY_LAYOUT: return layout_may_lie(o, &k);
    case BWI_KEY_SUMMARY:
    case BWI_KEY_FAILED:
    case BWI_KEY_DAMAGED:
    case BWI_KEY_MANIFEST:
    case BWI_KEY_INDEX:
    case BWI_KEY_PACK:
    case BWI_KEY_CONTENT:
    case BWI_KEY_PLACEMENT: return id_may_lie(o, &k.id);
    }
    return false;
}
