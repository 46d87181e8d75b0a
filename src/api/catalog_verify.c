/* SPDX-License-Identifier: Apache-2.0 */
/* Verifying runs. */
#include <string.h>

#include "api/catalog.h"
#include "base/error.h"
#include "base/text.h"
#include "checkpoint/policy_history.h"

/* Entries between two that are there must be there: only the oldest ones are ever deleted. An archive has gaps. */
static uint64_t find_gap(const struct bw_catalog *c, const struct bwi_head *head, uint64_t before, uint64_t n,
                         struct bwi_findings *f) {
    const bool archive = !bwi_uuid_eq(&head->entry.store, &c->host.ctx.store_id[BWI_TIER_REMOTE]);
    if (archive || before == 0 || n <= before + 1) return 0;
    struct bwi_key key = bwi_key_history(c->host.ctx.run);
    bwi_findings_add(f, 2, BW_E_CORRUPT, "remote", NULL, key.s, "", "history: entries %llu to %llu are missing",
                     (unsigned long long)before + 1, (unsigned long long)n - 1);
    return 1;
}

/* The log itself: every entry's seal, and that each names the bytes of the one before. */
static int verify_history(struct bw_catalog *c, const struct bwi_head *head, struct bwi_findings *f,
                          struct bw_error *err) {
    struct bwi_store_names names = {0};
    struct bwi_key prefix = bwi_key_history(c->host.ctx.run);
    struct bwi_sha last = {{0}};
    uint64_t last_n = 0, seen_n = 0, bad_n = 0, entries = 0, damaged = 0;
    size_t bad_at = 0;
    int rc = bwi_block_list(&c->host, BWI_TIER_REMOTE, prefix.s, &names, err);
    for (size_t i = 0; rc == 0 && i < names.len; i++) {
        uint32_t era;
        uint64_t n;
        struct bwi_buf body = {0};
        struct bwi_head h = {0};
        struct bw_error e = BW_ERROR_INIT;
        if (!bwi_entry_name_parse(names.name[i], &era, &n)) continue;
        struct bwi_key key = bwi_key_entry(c->host.ctx.run, era, n);
        int got = bwi_block_get(&c->host, BWI_TIER_REMOTE, key.s, BWI_ENTRY_BYTES_MAX, &body, &e);
        if (got == BW_E_NOTFOUND) continue; /* trimmed meanwhile */
        if (got == BW_E_CANCELLED) rc = bwi_error_copy(err, &e);
        bool ended = era < head->entry.era && bwi_head_is_era_end(&c->host.ctx, bwi_buf_span(&body), era, n);
        if (got == 0 && !ended) got = bwi_head_decode(&c->host.ctx, bwi_buf_span(&body), era, n, &h, &e);
        if (got == 0 && !ended && last_n && n == last_n + 1 && !bwi_sha_eq(&h.entry.prev, &last))
            got = bwi_error_set(&e, BW_E_CORRUPT, "it does not follow the entry before it");
        if (ended && bad_n + 1 == n && bad_at < f->count) { /* a repair has done without it */
            f->list[bad_at].severity = 1;
            damaged--;
        }
        if (got < 0) {
            damaged++;
            bad_n = n;
            bad_at = f->count;
            bwi_findings_add(f, 2, got, "remote", NULL, key.s, "", "%.380s", e.message);
        }
        damaged += find_gap(c, head, seen_n, n, f);
        seen_n = n;
        last_n = got == 0 && !ended ? n : 0;
        last = h.sha;
        entries++;
        bwi_buf_fini(&body);
        bwi_head_fini(&h);
    }
    bwi_store_names_fini(&names);
    if (rc == 0 && damaged == 0)
        bwi_findings_add(f, 0, 0, "remote", NULL, prefix.s, "", "history: %llu %s sound", (unsigned long long)entries,
                         entries == 1 ? "entry is" : "entries are");
    return rc;
}

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
    rc = verify_history(c, &head, &f, err);
    if (rc == 0 && a->id) {
        const struct bwi_kept *k = bwi_policy_find_kept(e, &want);
        rc = k ? verify_one(c, k, fast, &f, err)
               : bwi_error_set(err, BW_E_NOTFOUND, "run \"%s\" has no committed checkpoint %s", a->run, a->id);
    } else if (rc == 0) {
        rc = verify_list(c, e->live, e->live_count, fast, &f, err);
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
