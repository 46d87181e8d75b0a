/* SPDX-License-Identifier: Apache-2.0 */
/* Verifying what belongs to no checkpoint: the log, and what launches have said of themselves. */
#include <string.h>

#include "api/catalog.h"
#include "base/error.h"
#include "base/text.h"
#include "checkpoint/names.h"

/* ---- the log ---- */

/* Where the walk along the log is. */
struct walk {
    struct bw_catalog *c;
    const struct bwi_head *head;
    struct bwi_findings *f;
    bool known; /* the entry before this one is sound, has number n, and these bytes */
    struct bwi_sha sha;
    uint64_t n;         /* of the name before this one, 0: none */
    uint64_t damaged_n; /* of the last damaged entry, and its finding */
    size_t damaged_at;
    uint64_t entries, damage;
};

/* What the log has left behind is no part of it: a power cut may bring back some of the names that were trimmed, and
 * others are free for strays. */
static bool is_behind(const struct walk *w, uint32_t era, uint64_t n) {
    const struct bwi_entry *head = &w->head->entry;
    return w->head->found && era <= head->era && n + BWI_HISTORY_KEPT <= head->n;
}

/* Entries between two that are there must be there: only the oldest ones are ever deleted. An archive has gaps. */
static void look_for_gap(struct walk *w, uint64_t n) {
    if (bwi_catalog_is_archive(w->c, w->head) || w->n == 0 || n <= w->n + 1) return;
    const struct bwi_key key = bwi_key_history(w->c->host.ctx.run);
    w->damage++;
    bwi_findings_add(w->f, 2, BW_E_CORRUPT, "remote", NULL, key.s, "", "history: entries %llu to %llu are missing",
                     (unsigned long long)w->n + 1, (unsigned long long)n - 1);
}

/* An era that has ended, and been followed by another: a repair has done without the damaged entry before its end. */
static bool is_end_of_era(struct walk *w, struct bwi_span bytes, uint32_t era, uint64_t n) {
    if (era >= w->head->entry.era || !bwi_head_is_era_end(&w->c->host.ctx, bytes, era, n)) return false;
    if (w->damaged_n + 1 == n && w->damaged_at < w->f->count) {
        w->f->list[w->damaged_at].severity = 1;
        w->damage--;
    }
    return true;
}

static int check_entry(struct walk *w, struct bwi_span bytes, uint32_t era, uint64_t n, struct bw_error *err) {
    struct bwi_head h = {0};
    int rc = bwi_head_decode(&w->c->host.ctx, bytes, era, n, &h, err);
    if (rc == 0 && w->known && n == w->n + 1 && !bwi_sha_eq(&h.entry.prev, &w->sha))
        rc = bwi_error_set(err, BW_E_CORRUPT, "it does not follow the entry before it");
    w->sha = h.sha;
    bwi_head_fini(&h);
    return rc;
}

/* The call fails only when it is cancelled. */
static int take_entry(struct walk *w, uint32_t era, uint64_t n, struct bw_error *err) {
    struct bw_error e = BW_ERROR_INIT;
    struct bwi_buf body = {0};
    const struct bwi_key key = bwi_key_entry(w->c->host.ctx.run, era, n);
    int rc = bwi_block_get(&w->c->host, BWI_TIER_REMOTE, key.s, BWI_ENTRY_BYTES_MAX, &body, &e);
    if (rc == BW_E_CANCELLED) return bwi_error_copy(err, &e);
    if (rc == BW_E_NOTFOUND) return 0; /* trimmed meanwhile */
    const bool end = rc == 0 && is_end_of_era(w, bwi_buf_span(&body), era, n);
    if (rc == 0 && !end) rc = check_entry(w, bwi_buf_span(&body), era, n, &e);
    bwi_buf_fini(&body);
    if (rc < 0) {
        w->damage++;
        w->damaged_n = n;
        w->damaged_at = w->f->count;
        bwi_findings_add(w->f, 2, rc, "remote", NULL, key.s, "", "%s", e.message);
    }
    look_for_gap(w, n);
    w->known = rc == 0 && !end;
    w->n = n;
    w->entries++;
    return 0;
}

int bwi_catalog_verify_log(struct bw_catalog *c, const struct bwi_head *head, struct bwi_findings *f,
                           struct bw_error *err) {
    struct bwi_store_names names = {0};
    struct walk w = {.c = c, .head = head, .f = f};
    const struct bwi_key prefix = bwi_key_history(c->host.ctx.run);
    int rc = bwi_block_list(&c->host, BWI_TIER_REMOTE, prefix.s, &names, err);
    for (size_t i = 0; rc == 0 && i < names.len; i++) {
        uint32_t era;
        uint64_t n;
        if (bwi_entry_name_parse(names.name[i], &era, &n) && !is_behind(&w, era, n)) rc = take_entry(&w, era, n, err);
    }
    bwi_store_names_fini(&names);
    if (rc == 0 && w.damage == 0)
        bwi_findings_add(f, 0, 0, "remote", NULL, prefix.s, "", "history: %llu %s sound", (unsigned long long)w.entries,
                         w.entries == 1 ? "entry is" : "entries are");
    return rc;
}

/* ---- launches ---- */

static int check_inventory(struct bwi_span bytes, const struct bwi_key_parts *p, struct bw_error *err) {
    struct bwi_inventory v;
    int rc = bwi_inventory_decode(bytes, &v, err);
    if (rc < 0) return rc;
    if (v.group != p->group || strcmp(v.launch, p->launch) != 0)
        rc = bwi_error_set(err, BW_E_CORRUPT, "it is the inventory of group %06u of launch \"%s\"", v.group, v.launch);
    bwi_inventory_fini(&v);
    return rc;
}

static int check_refusal(struct bwi_span bytes, const struct bwi_key_parts *p, struct bw_error *err) {
    struct bwi_refusal r;
    const int rc = bwi_refusal_decode(bytes, &r, err);
    if (rc == 0 && strcmp(r.launch, p->launch) != 0)
        return bwi_error_set(err, BW_E_CORRUPT, "it is the refusal of launch \"%s\"", r.launch);
    return rc;
}

static int verify_word(struct bw_catalog *c, const char *key, struct bwi_findings *f, struct bw_error *err) {
    struct bw_error e = BW_ERROR_INIT;
    struct bwi_key_parts p;
    struct bwi_buf body = {0};
    if (!bwi_key_parse(key, &p)) return 0;
    int rc = bwi_block_get(&c->host, BWI_TIER_REMOTE, key, BWI_INVENTORY_BYTES_MAX, &body, &e);
    if (rc == BW_E_CANCELLED) return bwi_error_copy(err, &e);
    if (rc == BW_E_NOTFOUND) return 0; /* swept meanwhile */
    if (rc == 0 && p.kind == BWI_KEY_INVENTORY) rc = check_inventory(bwi_buf_span(&body), &p, &e);
    if (rc == 0 && p.kind == BWI_KEY_REFUSAL) rc = check_refusal(bwi_buf_span(&body), &p, &e);
    bwi_buf_fini(&body);
    if (rc < 0)
        bwi_findings_add(f, 1, rc, "remote", NULL, key, "",
                         "%.280s; nothing that is committed depends on it, and a sweep takes it", e.message);
    return 0;
}

static int verify_launch(struct bw_catalog *c, const char *launch, struct bwi_findings *f, struct bw_error *err) {
    struct bwi_store_names names = {0};
    const struct bwi_key prefix = bwi_key_launch(c->host.ctx.run, launch);
    int rc = bwi_block_list(&c->host, BWI_TIER_REMOTE, prefix.s, &names, err);
    for (size_t i = 0; rc == 0 && i < names.len; i++) {
        struct bwi_key key;
        const int len = (int)strcspn(names.name[i], "/"); /* a directory in the place of one is looked at too */
        if (bwi_format(key.s, sizeof key.s, "%s%.*s", prefix.s, len, names.name[i])) rc = verify_word(c, key.s, f, err);
    }
    bwi_store_names_fini(&names);
    return rc;
}

int bwi_catalog_verify_launches(struct bw_catalog *c, struct bwi_findings *f, struct bw_error *err) {
    struct bwi_store_names names = {0};
    const struct bwi_key prefix = bwi_key_launches(c->host.ctx.run);
    int rc = bwi_block_list(&c->host, BWI_TIER_REMOTE, prefix.s, &names, err);
    for (size_t i = 0; rc == 0 && i < names.len; i++) {
        char launch[BWI_NAME_BUF];
        if (bwi_names_launch(&names, i, launch)) rc = verify_launch(c, launch, f, err);
    }
    bwi_store_names_fini(&names);
    return rc;
}
