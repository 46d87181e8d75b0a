/* SPDX-License-Identifier: Apache-2.0 */
/* Looking: runs, checkpoints, references, history. */
#include <string.h>

#include "api/catalog.h"
#include "api/reader.h"
#include "base/error.h"
#include "base/text.h"
#include "base/vec.h"
#include "checkpoint/policy_history.h"
#include "format/manifest.h"

/* --- runs ---------------------------------------------------------------------------------------------------- */

static void fill_run(const struct bwi_head *h, struct bw_run_info *row) {
    const struct bwi_entry *e = &h->entry;
    const struct bwi_kept *newest = bwi_policy_newest(e);
    row->attempt = e->attempt.set ? e->attempt.number : 0;
    row->live = e->live_count;
    row->shelved = e->shelved_count;
    row->newest_step = newest ? newest->id.step : UINT64_MAX;
    row->newest_unix_ms = newest ? newest->time_ms : 0;
    for (size_t i = 0; i < e->live_count; i++) row->bytes += e->live[i].bytes;
    for (size_t i = 0; i < e->shelved_count; i++) row->bytes += e->shelved[i].bytes;
    bwi_format(row->job, sizeof row->job, "%s", e->attempt.job);
    if (h->damaged) row->status = BW_E_CORRUPT;
}

/* The row of the context's run; what is wrong with its history stands in the row. */
static int add_run(struct bw_catalog *c, struct bw_list *l, struct bw_error *err) {
    struct bw_run_info row = {.newest_step = UINT64_MAX};
    struct bwi_head head = {0};
    struct bw_error e = BW_ERROR_INIT;
    bwi_format(row.run, sizeof row.run, "%s", c->host.ctx.run);
    row.status = bwi_catalog_head(c, &head, &e);
    if (row.status == 0) fill_run(&head, &row);
    bwi_head_fini(&head);
    if (row.status == BW_E_NOTFOUND || row.status == BW_E_CANCELLED) return bwi_error_copy(err, &e);
    return bwi_list_add(l, &row, err);
}

static int list_runs(struct bw_catalog *c, const struct bwi_catalog_args *a, struct bw_list **ret_list,
                     struct bw_error *err) {
    struct bw_list *l = NULL;
    struct bwi_store_names names = {0};
    (void)a;
    int rc = bwi_reader_check_stores(&c->host, err);
    if (rc == 0) rc = bwi_block_list(&c->host, BWI_TIER_REMOTE, "runs/", &names, err);
    if (rc == 0) rc = bwi_list_new(BWI_LIST_RUN, sizeof(struct bw_run_info), &l, err);
    for (size_t i = 0; rc == 0 && i < names.len; i++) {
        struct bw_error e = BW_ERROR_INIT;
        char *name = names.name[i];
        size_t n = strlen(name);
        if (n < 2 || name[n - 1] != '/') continue;
        name[n - 1] = '\0';
        if (!bwi_name_valid(name)) continue;
        bwi_format(c->host.ctx.run, sizeof c->host.ctx.run, "%s", name);
        rc = add_run(c, l, &e);
        if (rc == BW_E_NOTFOUND) rc = 0; /* a directory without a history is no run */
        if (rc < 0) bwi_error_copy(err, &e);
    }
    bwi_store_names_fini(&names);
    if (rc == 0)
        *ret_list = l;
    else
        bw_list_free(l);
    return rc;
}

int bw_catalog_runs(struct bw_catalog *catalog, struct bw_list **ret_list, struct bw_error *err) {
    const struct bwi_catalog_args a = {.run = NULL};
    bw_error_clear(err);
    if (!catalog || !ret_list)
        return bwi_error_set(err, BW_E_INVALID, "%s is null", catalog ? "the place for the result" : "catalog");
    return bwi_catalog_call(catalog, list_runs, &a, ret_list, err);
}

static int one_run(struct bw_catalog *c, const struct bwi_catalog_args *a, struct bw_list **ret_list,
                   struct bw_error *err) {
    struct bw_list *l = NULL;
    (void)a;
    int rc = bwi_list_new(BWI_LIST_RUN, sizeof(struct bw_run_info), &l, err);
    if (rc == 0) rc = add_run(c, l, err);
    if (rc == 0)
        *ret_list = l;
    else
        bw_list_free(l);
    return rc;
}

int bw_catalog_run(struct bw_catalog *catalog, const char *run, struct bw_run_info *ret_run, struct bw_error *err) {
    const struct bwi_catalog_args a = {.run = run};
    struct bw_list *l = NULL;
    int rc = bwi_catalog_check(catalog, run, ret_run, err);
    if (rc == 0) rc = bwi_catalog_call(catalog, one_run, &a, &l, err);
    if (rc == 0) (void)bw_list_run(l, 0, ret_run);
    bw_list_free(l);
    return rc;
}

/* --- checkpoints --------------------------------------------------------------------------------------------- */

struct look {
    struct bw_catalog *c;
    struct bwi_head head;
    struct bwi_holds holds;
    struct bw_list *list;
};

static uint32_t state_of(enum bwi_fate f) {
    switch (f) {
    case BWI_FATE_LIVE: return BW_CKPT_LIVE;
    case BWI_FATE_SHELVED: return BW_CKPT_SHELVED;
    case BWI_FATE_COMMITTABLE: return BW_CKPT_PENDING;
    case BWI_FATE_AHEAD: return BW_CKPT_AHEAD;
    case BWI_FATE_REFERENCED:
    case BWI_FATE_DEAD: break;
    }
    return BW_CKPT_DEAD;
}

static void facts_of_summary(const struct look *k, const struct bwi_summary *s, struct bw_checkpoint_row *row) {
    row->world = s->world;
    row->groups = s->groups;
    row->refs = s->ref_count;
    if (!bwi_policy_in_lineage(&k->head.entry, &s->uuid)) row->state = BW_CKPT_FOREIGN;
}

static int count_names(struct look *k, const char *prefix, uint32_t *ret, uint32_t *ret_first, struct bw_error *err) {
    struct bwi_store_names names = {0};
    int rc = bwi_block_list(&k->c->host, BWI_TIER_REMOTE, prefix, &names, err);
    if (rc < 0) return rc;
    for (size_t i = 0; i < names.len; i++) {
        uint64_t group;
        if (strlen(names.name[i]) != 6 || !bwi_dec_padded_u64(names.name[i], 6, &group)) continue;
        if (ret_first && *ret == 0) *ret_first = (uint32_t)group;
        (*ret)++;
    }
    bwi_store_names_fini(&names);
    return 0;
}

static int look_remote(struct look *k, const struct bwi_id *id, struct bw_checkpoint_row *row, struct bw_error *err) {
    const char *run = k->c->host.ctx.run;
    uint32_t first = 0;
    struct bwi_key groups = bwi_key_groups(run, id), failed = bwi_key_failed_dir(run, id),
                   damaged = bwi_key_damaged_dir(run, id);
    int rc = count_names(k, groups.s, &row->groups_remote, &first, err);
    if (rc == 0) rc = count_names(k, failed.s, &row->failed, NULL, err);
    if (rc == 0) rc = count_names(k, damaged.s, &row->damaged, NULL, err);
    if (rc < 0 || row->groups_remote == 0) return rc;
    struct bwi_buf body = {0};
    struct bwi_summary s;
    struct bwi_key key = bwi_key_summary(run, id, first);
    /* A summary that cannot be read leaves the facts unknown; verify tells why. */
    if (bwi_block_get(&k->c->host, BWI_TIER_REMOTE, key.s, BWI_SUMMARY_BYTES_MAX, &body, NULL) == 0 &&
        bwi_summary_decode(bwi_buf_span(&body), &s, NULL) == 0)
        facts_of_summary(k, &s, row);
    bwi_buf_fini(&body);
    return 0;
}

static void look_local(struct look *k, const struct bwi_id *id, struct bw_checkpoint_row *row) {
    for (size_t i = 0; i < k->holds.count; i++) {
        if (!bwi_id_eq(&k->holds.list[i].id, id)) continue;
        row->groups_local++;
        if (!row->world) facts_of_summary(k, &k->holds.list[i], row);
    }
}

static int add_checkpoint(struct look *k, const struct bwi_id *id, struct bw_error *err) {
    struct bw_checkpoint_row row = {.step = id->step, .attempt = id->attempt, .save_try = id->tri};
    const struct bwi_kept *kept = bwi_policy_find_kept(&k->head.entry, id);
    bwi_id_text(id, row.id);
    row.state = state_of(bwi_policy_fate(&k->head.entry, id));
    int rc = look_remote(k, id, &row, err);
    if (rc < 0) return rc;
    look_local(k, id, &row);
    if (kept) {
        row.bytes = kept->bytes;
        row.unix_ms = kept->time_ms;
        row.pinned = kept->pinned;
        row.refs = kept->ref_count;
        row.level = BW_COMMITTED;
    } else if (row.groups && row.groups_remote == row.groups) {
        row.level = BW_REMOTE;
    } else if (row.groups && row.groups_local == row.groups) {
        row.level = BW_LOCAL;
    }
    return bwi_list_add(k->list, &row, err);
}

/* Ids from three places: what the history holds, what lies in the authority, what the local tier holds. */
struct ids {
    struct bwi_id *list;
    size_t count, cap;
};

static int add_id(struct ids *ids, const struct bwi_id *id, struct bw_error *err) {
    size_t at = ids->count;
    while (at > 0 && bwi_id_cmp(&ids->list[at - 1], id) > 0) at--;
    if (at > 0 && bwi_id_eq(&ids->list[at - 1], id)) return 0;
    void *grown = ids->list;
    bool ok = bwi_vec_reserve(&grown, &ids->cap, ids->count + 1, sizeof *id);
    ids->list = grown;
    if (!ok) return bwi_error_nomem(err, sizeof *id, "list");
    memmove(ids->list + at + 1, ids->list + at, (ids->count - at) * sizeof *id);
    ids->list[at] = *id;
    ids->count++;
    return 0;
}

static int collect_ids(struct look *k, struct ids *ids, struct bw_error *err) {
    const struct bwi_entry *e = &k->head.entry;
    struct bwi_store_names names = {0};
    struct bwi_key prefix = bwi_key_checkpoints(k->c->host.ctx.run);
    int rc = bwi_block_list(&k->c->host, BWI_TIER_REMOTE, prefix.s, &names, err);
    for (size_t i = 0; rc == 0 && i < names.len; i++) {
        struct bwi_id id;
        size_t n = strlen(names.name[i]);
        if (n > 1 && names.name[i][n - 1] == '/' && bwi_id_parse(bwi_span(names.name[i], n - 1), &id))
            rc = add_id(ids, &id, err);
    }
    for (size_t i = 0; rc == 0 && i < e->live_count; i++) rc = add_id(ids, &e->live[i].id, err);
    for (size_t i = 0; rc == 0 && i < e->shelved_count; i++) rc = add_id(ids, &e->shelved[i].id, err);
    for (size_t i = 0; rc == 0 && i < k->holds.count; i++) rc = add_id(ids, &k->holds.list[i].id, err);
    bwi_store_names_fini(&names);
    return rc;
}

static int look_holds(struct look *k, struct bw_error *err) {
    if (!bwi_catalog_has(k->c, BWI_TIER_LOCAL)) return 0;
    k->holds = (struct bwi_holds){.ctx = &k->c->host.ctx};
    bwi_holds_start(&k->holds, k->c->host.loop, NULL);
    return bwi_block_on(&k->c->host, &k->holds.task, err);
}

static int list_checkpoints(struct bw_catalog *c, const struct bwi_catalog_args *a, struct bw_list **ret_list,
                            struct bw_error *err) {
    struct look k = {.c = c};
    struct ids ids = {0};
    (void)a;
    int rc = bwi_catalog_head(c, &k.head, err);
    if (rc == 0) rc = look_holds(&k, err);
    if (rc == 0) rc = collect_ids(&k, &ids, err);
    if (rc == 0) rc = bwi_list_new(BWI_LIST_CHECKPOINT, sizeof(struct bw_checkpoint_row), &k.list, err);
    for (size_t i = 0; rc == 0 && i < ids.count; i++) rc = add_checkpoint(&k, &ids.list[i], err);
    bwi_free(ids.list);
    bwi_holds_fini(&k.holds);
    bwi_head_fini(&k.head);
    if (rc == 0)
        *ret_list = k.list;
    else
        bw_list_free(k.list);
    return rc;
}

int bw_catalog_checkpoints(struct bw_catalog *catalog, const char *run, struct bw_list **ret_list,
                           struct bw_error *err) {
    const struct bwi_catalog_args a = {.run = run};
    int rc = bwi_catalog_check(catalog, run, ret_list, err);
    return rc == 0 ? bwi_catalog_call(catalog, list_checkpoints, &a, ret_list, err) : rc;
}

/* --- references ---------------------------------------------------------------------------------------------- */

static int add_refs(struct bw_list *l, const struct bwi_kept *list, size_t count, struct bw_error *err) {
    for (size_t i = 0; i < count; i++) {
        for (uint32_t r = 0; r < list[i].ref_count; r++) {
            struct bw_ref_row row = {{0}, {0}};
            bwi_id_text(&list[i].id, row.from);
            bwi_id_text(&list[i].refs[r], row.to);
            int rc = bwi_list_add(l, &row, err);
            if (rc < 0) return rc;
        }
    }
    return 0;
}

static int list_refs(struct bw_catalog *c, const struct bwi_catalog_args *a, struct bw_list **ret_list,
                     struct bw_error *err) {
    struct bwi_head head = {0};
    struct bw_list *l = NULL;
    (void)a;
    int rc = bwi_catalog_head(c, &head, err);
    if (rc == 0) rc = bwi_list_new(BWI_LIST_REF, sizeof(struct bw_ref_row), &l, err);
    if (rc == 0) rc = add_refs(l, head.entry.live, head.entry.live_count, err);
    if (rc == 0) rc = add_refs(l, head.entry.shelved, head.entry.shelved_count, err);
    bwi_head_fini(&head);
    if (rc == 0)
        *ret_list = l;
    else
        bw_list_free(l);
    return rc;
}

int bw_catalog_refs(struct bw_catalog *catalog, const char *run, struct bw_list **ret_list, struct bw_error *err) {
    const struct bwi_catalog_args a = {.run = run};
    int rc = bwi_catalog_check(catalog, run, ret_list, err);
    return rc == 0 ? bwi_catalog_call(catalog, list_refs, &a, ret_list, err) : rc;
}

/* --- history ------------------------------------------------------------------------------------------------- */

static void fill_history(const struct bwi_entry *e, struct bw_history_row *row) {
    row->unix_ms = e->time_ms;
    row->attempt = e->attempt.set ? e->attempt.number : 0;
    bwi_format(row->event, sizeof row->event, "%s", bwi_event_name(e->event.type));
    bwi_format(row->mode, sizeof row->mode, "%s", e->event.mode);
    if (e->event.id_count) bwi_id_text(&e->event.ids[0], row->subject);
    row->subjects = (uint32_t)e->event.id_count;
    row->live = e->live_count;
    row->shelved = e->shelved_count;
    bwi_format(row->job, sizeof row->job, "%s", e->attempt.job);
    bwi_format(row->launch, sizeof row->launch, "%s", e->attempt.launch);
    bwi_format(row->label, sizeof row->label, "%s", e->event.label);
    bwi_format(row->host, sizeof row->host, "%s", e->host);
    bwi_format(row->note, sizeof row->note, "%s", e->event.note);
}

static int add_history(struct bw_catalog *c, struct bw_list *l, const char *name, struct bw_error *err) {
    struct bw_history_row row = {0};
    struct bwi_head h = {0};
    struct bwi_buf body = {0};
    struct bw_error e = BW_ERROR_INIT;
    if (!bwi_entry_name_parse(name, &row.era, &row.n)) return 0;
    struct bwi_key key = bwi_key_entry(c->host.ctx.run, row.era, row.n);
    row.status = bwi_block_get(&c->host, BWI_TIER_REMOTE, key.s, BWI_ENTRY_BYTES_MAX, &body, &e);
    if (row.status == BW_E_NOTFOUND) return 0; /* trimmed meanwhile */
    if (row.status == BW_E_CANCELLED) return bwi_error_copy(err, &e);
    if (row.status == 0) row.status = bwi_head_decode(&c->host.ctx, bwi_buf_span(&body), row.era, row.n, &h, &e);
    if (bwi_head_is_era_end(&c->host.ctx, bwi_buf_span(&body), row.era, row.n)) {
        row.status = 0;
        bwi_format(row.event, sizeof row.event, "era-end");
    } else if (row.status == 0)
        fill_history(&h.entry, &row);
    else
        bwi_format(row.note, sizeof row.note, "%.250s", e.message);
    bwi_buf_fini(&body);
    bwi_head_fini(&h);
    return bwi_list_add(l, &row, err);
}

static int list_history(struct bw_catalog *c, const struct bwi_catalog_args *a, struct bw_list **ret_list,
                        struct bw_error *err) {
    struct bwi_store_names names = {0};
    struct bw_list *l = NULL;
    struct bwi_key prefix = bwi_key_history(a->run);
    int rc = bwi_block_list(&c->host, BWI_TIER_REMOTE, prefix.s, &names, err);
    if (rc == 0) rc = bwi_list_new(BWI_LIST_HISTORY, sizeof(struct bw_history_row), &l, err);
    for (size_t i = 0; rc == 0 && i < names.len; i++) rc = add_history(c, l, names.name[i], err);
    if (rc == 0 && l->count == 0)
        rc = bwi_error_set(err, BW_E_NOTFOUND, "there is no run \"%s\" in \"%.200s\"", a->run,
                           c->host.ctx.tier[BWI_TIER_REMOTE]->url);
    bwi_store_names_fini(&names);
    if (rc == 0)
        *ret_list = l;
    else
        bw_list_free(l);
    return rc;
}

int bw_catalog_history(struct bw_catalog *catalog, const char *run, struct bw_list **ret_list, struct bw_error *err) {
    const struct bwi_catalog_args a = {.run = run};
    int rc = bwi_catalog_check(catalog, run, ret_list, err);
    return rc == 0 ? bwi_catalog_call(catalog, list_history, &a, ret_list, err) : rc;
}
