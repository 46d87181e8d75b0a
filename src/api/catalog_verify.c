/* SPDX-License-Identifier: Apache-2.0 */
/* Verifying runs. */
#include "api/catalog.h"
#include "base/error.h"
#include "checkpoint/policy_history.h"

static int verify_one(struct bw_catalog *c, const struct bwi_kept *k, bool fast, struct bwi_findings *f,
                      struct bw_error *err) {
    struct bwi_verify v = {.ctx = &c->host.ctx,
                           .id = k->id,
                           .committed = true,
                           .manifest = k->manifest,
                           .fast = fast,
                           .tiers = {bwi_catalog_has(c, BWI_TIER_LOCAL), true},
                           .findings = f};
    const size_t before = f->count;
    bwi_verify_start(&v, c->host.loop, NULL);
    int rc = bwi_block_on(&c->host, &v.task, err);
    bwi_verify_fini(&v);
    bwi_findings_sort(f, before);
    c->progress.done_items++;
    return rc;
}

static int verify_list(struct bw_catalog *c, const struct bwi_kept *list, size_t count, bool fast,
                       struct bwi_findings *f, struct bw_error *err) {
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < count; i++) rc = verify_one(c, &list[i], fast, f, err);
    return rc;
}

/* What the newest entry would say of it, nobody knows where that is damaged. */
static int not_found(const struct bwi_head *head, const struct bwi_catalog_args *a, struct bw_error *err) {
    if (!head->damaged)
        return bwi_error_set(err, BW_E_NOTFOUND, "run \"%s\" has no committed checkpoint %s", a->run, a->id);
    const struct bwi_key key = bwi_key_entry(a->run, head->damaged_era, head->damaged_n);
    return bwi_error_set(err, BW_E_CORRUPT,
                         "run \"%s\" has no committed checkpoint %s, unless the newest entry, which is damaged, names "
                         "it: %s: %s",
                         a->run, a->id, key.s, head->damage);
}

static int verify(struct bw_catalog *c, const struct bwi_catalog_args *a, struct bw_list **ret_list,
                  struct bw_error *err) {
    struct bwi_head head = {0};
    struct bwi_findings f = {0};
    struct bwi_id want;
    bool fast = (a->flags & BW_VERIFY_FAST) != 0;
    int rc = a->id ? bwi_catalog_id(a->id, &want, err) : 0;
    if (rc == 0) rc = bwi_catalog_head(c, &head, err);
    if (rc < 0) return rc;
    const struct bwi_entry *e = &head.entry;
    c->progress.total_items = a->id ? 1 : e->live_count + e->shelved_count;
    rc = bwi_catalog_verify_log(c, &head, &f, err);
    if (rc == 0 && a->id) {
        const struct bwi_kept *k = bwi_policy_find_kept(e, &want);
        rc = k ? verify_one(c, k, fast, &f, err) : not_found(&head, a, err);
    } else if (rc == 0) {
        rc = bwi_catalog_verify_launches(c, &f, err);
        if (rc == 0) rc = verify_list(c, e->live, e->live_count, fast, &f, err);
        if (rc == 0) rc = verify_list(c, e->shelved, e->shelved_count, fast, &f, err);
    }
    bwi_head_fini(&head);
    if (rc == 0) return bwi_list_of_findings(&f, ret_list, err);
    bwi_findings_fini(&f);
    return rc;
}

int bw_catalog_verify(struct bw_catalog *catalog, const char *run, const char *id, uint32_t flags,
                      struct bw_list **ret_list, struct bw_error *err) {
    const struct bwi_catalog_args a = {.run = run, .id = id, .flags = flags};
    int rc = bwi_catalog_check(catalog, run, ret_list, err);
    if (rc == 0 && (flags & ~BW_VERIFY_FAST))
        rc = bwi_error_set(err, BW_E_INVALID, "flags has unknown bits: %#x", flags & ~BW_VERIFY_FAST);
    return rc == 0 ? bwi_catalog_call(catalog, verify, &a, ret_list, err) : rc;
}
