/* SPDX-License-Identifier: Apache-2.0 */
/* Where the bytes of a checkpoint lie. */
#include <string.h>

#include "api/catalog.h"
#include "base/error.h"
#include "base/text.h"
#include "checkpoint/policy_history.h"
#include "checkpoint/source.h"
#include "format/manifest.h"

struct objects {
    struct bw_catalog *c;
    struct bw_list *list;
    struct bwi_id id;
    const struct bwi_kept *kept; /* NULL: not committed */
    uint32_t groups;
};

static int add(struct objects *o, enum bwi_tier tier, const char *kind, uint32_t group, uint64_t bytes, const char *key,
               struct bw_error *err) {
    struct bw_object_row row = {.group = group, .bytes = bytes};
    uint64_t found = 0;
    bwi_format(row.tier, sizeof row.tier, "%s", bwi_tier_name(tier));
    bwi_format(row.kind, sizeof row.kind, "%s", kind);
    bwi_format(row.key, sizeof row.key, "%s", key);
    struct bw_error e = BW_ERROR_INIT;
    int rc = bwi_block_head(&o->c->host, tier, key, &found, &e);
    if (rc < 0 && !bwi_is_damage(rc)) return bwi_error_copy(err, &e);
    if (rc == 0 && bytes == 0) row.bytes = found;
    row.present = rc == 0 && found == row.bytes;
    return bwi_list_add(o->list, &row, err);
}

/* Damage shows in the rows. Whatever else keeps an object from being read would leave out in silence what it names. */
static int unread(const struct bw_error *e, struct bw_error *err) {
    return e->status == 0 || bwi_is_damage(e->status) ? 0 : bwi_error_copy(err, e);
}

/* Manifest and index, which only the authority has. */
static int add_whole(struct objects *o, struct bw_error *err) {
    const char *run = o->c->host.ctx.run;
    struct bwi_buf body = {0};
    struct bwi_manifest m = {0};
    struct bwi_key key = bwi_key_manifest(run, &o->id, &o->kept->manifest);
    struct bw_error e = BW_ERROR_INIT;
    int rc = add(o, BWI_TIER_REMOTE, "manifest", UINT32_MAX, 0, key.s, err);
    if (rc < 0) return rc;
    (void)bwi_block_get(&o->c->host, BWI_TIER_REMOTE, key.s, BWI_MANIFEST_BYTES_MAX, &body, &e);
    if (e.status == 0 && bwi_manifest_decode(bwi_buf_span(&body), &m, &e) == 0) {
        struct bwi_key index = bwi_key_index(run, &o->id, &m.index.root);
        rc = add(o, BWI_TIER_REMOTE, "index", UINT32_MAX, m.index.bytes, index.s, err);
        o->groups = m.group_count;
    }
    bwi_manifest_fini(&m);
    bwi_buf_fini(&body);
    return rc < 0 ? rc : unread(&e, err);
}

static int add_packs(struct objects *o, enum bwi_tier tier, uint32_t group, const struct bwi_placement *p,
                     struct bw_error *err) {
    for (uint32_t i = 0; i < p->pack_count; i++) {
        char key[512];
        bwi_format(key, sizeof key, "%.*s", (int)p->packs[i].key.len, (const char *)p->packs[i].key.ptr);
        int rc = add(o, tier, "pack", group, p->packs[i].file_bytes, key, err);
        if (rc < 0) return rc;
    }
    return 0;
}

static int add_group(struct objects *o, enum bwi_tier tier, uint32_t group, struct bw_error *err) {
    const char *run = o->c->host.ctx.run;
    struct bwi_group_meta meta = {0};
    struct bwi_meta_read read = {.ctx = &o->c->host.ctx, .tier = tier, .id = o->id, .group = group, .meta = &meta};
    bwi_meta_read_start(&read, o->c->host.loop, NULL);
    struct bw_error e = BW_ERROR_INIT;
    (void)bwi_block_on(&o->c->host, &read.task, &e);
    int rc = unread(&e, err);
    if (rc < 0 || !meta.summary_ok) {
        /* On the local tier a group may well be missing; in the authority that is worth a row. */
        struct bwi_key key = bwi_key_summary(run, &o->id, group);
        bwi_group_meta_fini(&meta);
        const bool absent = e.status == BW_E_NOTFOUND && tier == BWI_TIER_LOCAL;
        return rc < 0 || absent ? rc : add(o, tier, "summary", group, 0, key.s, err);
    }
    const struct bwi_summary *s = &meta.summary;
    struct bwi_key summary = bwi_key_summary(run, &o->id, group);
    struct bwi_key layout = bwi_key_layout(run, o->id.attempt, o->id.nonce, &s->layout);
    struct bwi_key content = bwi_key_content(run, s->fan_out, &o->id, group);
    struct bwi_key placement = bwi_key_placement(run, s->fan_out, &o->id, group, s->writer);
    rc = add(o, tier, "summary", group, 0, summary.s, err);
    if (rc == 0) rc = add(o, tier, "layout", group, s->layout_bytes, layout.s, err);
    if (rc == 0) rc = add(o, tier, "content", group, s->content_bytes, content.s, err);
    if (rc == 0) rc = add(o, tier, "placement", group, s->placement_bytes, placement.s, err);
    if (rc == 0 && meta.meta_ok) rc = add_packs(o, tier, group, &meta.placement, err);
    bwi_group_meta_fini(&meta);
    return rc;
}

/* How many groups an uncommitted checkpoint has: its attempt's, as the history says. */
static void guess_groups(struct objects *o, const struct bwi_entry *e) {
    bool from = e->from.set && bwi_id_eq(&e->from.id, &o->id);
    o->groups = from ? e->from.groups : e->attempt.groups;
}

static int list_objects(struct bw_catalog *c, const struct bwi_catalog_args *a, struct bw_list **ret_list,
                        struct bw_error *err) {
    struct objects o = {.c = c};
    struct bwi_head head = {0};
    int rc = bwi_catalog_id(a->id, &o.id, err);
    if (rc == 0) rc = bwi_catalog_head(c, &head, err);
    if (rc == 0) rc = bwi_list_new(BWI_LIST_OBJECT, sizeof(struct bw_object_row), &o.list, err);
    if (rc == 0) {
        o.kept = bwi_policy_find_kept(&head.entry, &o.id);
        guess_groups(&o, &head.entry);
        if (o.kept) rc = add_whole(&o, err);
    }
    for (int t = BWI_TIERS - 1; rc == 0 && t >= 0; t--)
        for (uint32_t g = 0; rc == 0 && g < o.groups && bwi_catalog_has(c, (enum bwi_tier)t); g++)
            rc = add_group(&o, (enum bwi_tier)t, g, err);
    bwi_head_fini(&head);
    if (rc == 0)
        *ret_list = o.list;
    else
        bw_list_free(o.list);
    return rc;
}

int bw_catalog_objects(struct bw_catalog *catalog, const char *run, const char *id, struct bw_list **ret_list,
                       struct bw_error *err) {
    const struct bwi_catalog_args a = {.run = run, .id = id};
    int rc = bwi_catalog_check(catalog, run, ret_list, err);
    return rc == 0 ? bwi_catalog_call(catalog, list_objects, &a, ret_list, err) : rc;
}
