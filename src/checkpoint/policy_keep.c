/* SPDX-License-Identifier: Apache-2.0 */
/* Rules of the history for keeping house: retire, pin, repair, promote; and which checkpoints retention lets go. */
#include <string.h>

#include "base/error.h"
#include "base/text.h"
#include "base/vec.h"
#include "checkpoint/policy_history.h"
#include "checkpoint/policy_next.h"

bool bwi_policy_from_needs(const struct bwi_entry *head, const struct bwi_id *id) {
    if (!head->from.set || !head->from.open) return false;
    for (uint32_t i = 0; i < head->from.ref_count; i++)
        if (bwi_id_eq(&head->from.refs[i], id)) return true;
    return false;
}

static int may_retire(const struct bwi_entry *head, const struct bwi_id *id, struct bw_error *err) {
    char text[BWI_ID_TEXT_BYTES];
    bwi_id_text(id, text);
    const struct bwi_kept *k = bwi_policy_find_kept(head, id);
    const struct bwi_kept *newest = bwi_policy_newest(head);
    if (!k) return bwi_error_set(err, BW_E_NOTFOUND, "checkpoint %s is neither live nor shelved", text);
    if (newest && bwi_id_eq(&newest->id, id))
        return bwi_error_set(err, BW_E_REFUSED, "checkpoint %s is the newest live one, which is never retired", text);
    if (k->pinned) return bwi_error_set(err, BW_E_REFUSED, "checkpoint %s is pinned", text);
    if (bwi_policy_from_needs(head, id))
        return bwi_error_set(err, BW_E_REFUSED, "checkpoint %s is needed by the one that the run resumed from", text);
    return 0;
}

int bwi_policy_retire(const struct bwi_actor *a, const struct bwi_id *ids, size_t count, struct bwi_entry *ret,
                      struct bw_error *err) {
    for (size_t i = 0; i < count; i++) {
        int rc = may_retire(a->head, &ids[i], err);
        if (rc < 0) return rc;
    }
    struct bwi_entry next = {0};
    int rc = bwi_next_begin(a, BWI_EVENT_RETIRE, NULL, NULL, &next, err);
    if (rc < 0) return rc;
    for (size_t i = 0; i < count && rc == 0; i++) {
        bwi_next_drop(next.live, &next.live_count, &ids[i]);
        bwi_next_drop(next.shelved, &next.shelved_count, &ids[i]);
        rc = bwi_next_subject(&next, &ids[i], err);
    }
    if (rc < 0) {
        bwi_entry_fini(&next);
        return rc;
    }
    *ret = next;
    return 0;
}

static bool set_pinned(struct bwi_kept *list, size_t count, const struct bwi_id *id, bool pinned) {
    for (size_t i = 0; i < count; i++) {
        if (!bwi_id_eq(&list[i].id, id)) continue;
        list[i].pinned = pinned;
        return true;
    }
    return false;
}

int bwi_policy_pin(const struct bwi_actor *a, const struct bwi_id *id, bool pinned, struct bwi_entry *ret,
                   struct bw_error *err) {
    char text[BWI_ID_TEXT_BYTES];
    bwi_id_text(id, text);
    if (!bwi_policy_find_kept(a->head, id))
        return bwi_error_set(err, BW_E_NOTFOUND, "checkpoint %s is neither live nor shelved", text);
    struct bwi_entry next = {0};
    int rc = bwi_next_begin(a, pinned ? BWI_EVENT_PIN : BWI_EVENT_UNPIN, NULL, NULL, &next, err);
    if (rc < 0) return rc;
    if (!set_pinned(next.live, next.live_count, id, pinned)) set_pinned(next.shelved, next.shelved_count, id, pinned);
    rc = bwi_next_subject(&next, id, err);
    if (rc < 0) {
        bwi_entry_fini(&next);
        return rc;
    }
    *ret = next;
    return 0;
}

/* An era begins: n + 1 of the last era's highest number, a row in the lineage, an attempt of no job, so that nobody who
 * runs can commit. */
static int begin_era(struct bwi_entry *next, uint32_t era, uint64_t n, const struct bwi_uuid *uuid, uint32_t nonce,
                     struct bw_error *err) {
    void *grown = next->lineage;
    size_t cap = next->lineage_count;
    if (!bwi_vec_reserve(&grown, &cap, next->lineage_count + 1, sizeof *next->lineage))
        return bwi_error_nomem(err, sizeof *next->lineage, "history entry");
    next->lineage = grown;
    next->lineage[next->lineage_count++] = (struct bwi_lineage){.era = era + 1, .n = n + 1, .uuid = *uuid};
    next->era = era + 1;
    next->n = n + 1;
    uint32_t number = next->attempt.set ? next->attempt.number + 1 : 1;
    next->attempt = (struct bwi_attempt){.set = true, .number = number, .nonce = nonce};
    next->from = (struct bwi_from){0};
    next->h_set = next->live_count > 0;
    next->h = next->h_set ? next->live[next->live_count - 1].id.step : 0;
    next->try_count = 0;
    return 0;
}

static bool is_one_of(const struct bwi_id *ids, size_t count, const struct bwi_id *id) {
    for (size_t i = 0; i < count; i++)
        if (bwi_id_eq(&ids[i], id)) return true;
    return false;
}

/* Only what a commit would have let in, had it come next; and nothing that refers to what is lost, which the rule for
 * the open from does not ask. */
static bool may_take_up(const struct bwi_entry *next, const struct bwi_repair *r, const struct bwi_kept *k) {
    if (!bwi_policy_committable(next, &k->id, k->refs, k->ref_count)) return false;
    for (uint32_t i = 0; i < k->ref_count; i++)
        if (is_one_of(r->gone, r->gone_count, &k->refs[i])) return false;
    return bwi_policy_find_live(next, k->id.step) == NULL;
}

static int apply_repair(struct bwi_entry *next, const struct bwi_repair *r, size_t *ret_found, struct bw_error *err) {
    int rc = 0;
    size_t found = 0;
    for (size_t i = 0; i < r->gone_count && rc == 0; i++) {
        bwi_next_drop(next->live, &next->live_count, &r->gone[i]);
        bwi_next_drop(next->shelved, &next->shelved_count, &r->gone[i]);
        rc = bwi_next_subject(next, &r->gone[i], err);
    }
    for (size_t i = 0; i < r->found_count && rc == 0; i++) {
        if (!may_take_up(next, r, &r->found[i])) continue;
        rc = bwi_next_commit(next, &r->found[i], err);
        found++;
    }
    *ret_found = found;
    return rc < 0 ? rc : begin_era(next, r->era, r->n, &r->uuid, r->nonce, err);
}

int bwi_policy_repair(const struct bwi_actor *a, const struct bwi_repair *r, struct bwi_entry *ret,
                      struct bw_error *err) {
    struct bwi_entry next = {0};
    size_t found;
    int rc = bwi_next_begin(a, BWI_EVENT_REPAIR, NULL, NULL, &next, err);
    if (rc < 0) return rc;
    rc = apply_repair(&next, r, &found, err);
    if (rc < 0) {
        bwi_entry_fini(&next);
        return rc;
    }
    bwi_format(next.event.note, sizeof next.event.note,
               "entry %u.%llu is damaged; %zu checkpoints lost, %zu found complete", r->era,
               (unsigned long long)r->damaged_n, r->gone_count, found);
    *ret = next;
    return 0;
}

int bwi_policy_promote(const struct bwi_actor *a, const struct bwi_uuid *uuid, uint32_t nonce, struct bwi_entry *ret,
                       struct bw_error *err) {
    if (bwi_uuid_eq(&a->head->store, &a->store))
        return bwi_error_set(err, BW_E_REFUSED, "the newest entry was decided by this store already: it is no archive");
    struct bwi_entry next = {0};
    int rc = bwi_next_begin(a, BWI_EVENT_PROMOTE, NULL, NULL, &next, err);
    if (rc == 0) rc = begin_era(&next, a->head->era, a->head->n, uuid, nonce, err);
    if (rc < 0) {
        bwi_entry_fini(&next);
        return rc;
    }
    *ret = next;
    return 0;
}

static bool keep_by_rule(const struct bwi_entry *head, const struct bw_retention *r, size_t i, uint32_t keep_last,
                         int64_t now_ms) {
    const struct bwi_kept *k = &head->live[i];
    if (head->live_count - i <= keep_last || k->pinned || bwi_policy_from_needs(head, &k->id)) return true;
    if (r->keep_every_steps && k->id.step % r->keep_every_steps == 0) return true;
    /* A commit time in the future (a clock was set back) counts as young. */
    return r->keep_younger_ms && (k->time_ms > now_ms || (uint64_t)now_ms - (uint64_t)k->time_ms < r->keep_younger_ms);
}

size_t bwi_policy_retention(const struct bwi_entry *head, const struct bw_retention *r, uint32_t in_flight,
                            int64_t now_ms, struct bwi_id *ret) {
    if (!head || r->keep_last == 0) return 0;
    uint32_t keep_last = r->keep_last > in_flight ? r->keep_last : in_flight + 1;
    size_t count = 0;
    for (size_t i = 0; i < head->live_count; i++)
        if (!keep_by_rule(head, r, i, keep_last, now_ms)) ret[count++] = head->live[i].id;
    return count;
}
