/* SPDX-License-Identifier: Apache-2.0 */
/* bw_catalog_*: opening, closing, lists. What the verbs do is in catalog_look.c, catalog_objects.c, catalog_change.c
 * and catalog_repair.c. */
#include "api/catalog.h"

#include <string.h>

#include "api/reader.h"
#include "base/error.h"
#include "base/text.h"
#include "base/vec.h"

int bw_catalog_open(const struct bw_catalog_options *options, struct bw_catalog **ret_catalog, struct bw_error *err) {
    struct bw_catalog_options o = BW_CATALOG_OPTIONS_INIT;
    bw_error_clear(err);
    if (!ret_catalog) return bwi_error_set(err, BW_E_INVALID, "ret_catalog is null");
    int rc = bwi_options_copy(&o, sizeof o, options, offsetof(struct bw_catalog_options, memory_budget_bytes),
                              "options", err);
    if (rc < 0) return rc;
    if ((o.flags & ~BW_CATALOG_READ_ONLY) || o.reserved)
        return bwi_error_set(err, BW_E_INVALID, "option flags has unknown bits: %#x", o.flags);
    struct bw_catalog *c = bwi_calloc(1, sizeof *c);
    if (!c) return bwi_error_nomem(err, sizeof *c, "catalog");
    struct bwi_host_options ho = {.remote_url = o.remote_url,
                                  .local_url = o.local_url,
                                  .memory_budget_bytes = o.memory_budget_bytes,
                                  .io_threads = o.io_threads,
                                  .read_only = (o.flags & BW_CATALOG_READ_ONLY) != 0};
    rc = bwi_host_open(&ho, &c->host, err);
    if (rc < 0) {
        bwi_free(c);
        return rc;
    }
    c->flags = o.flags;
    c->host.ctx.progress = &c->progress;
    *ret_catalog = c;
    return 0;
}

void bw_catalog_close(struct bw_catalog *catalog) {
    if (!catalog) return;
    bwi_host_close(&catalog->host);
    bwi_free(catalog);
}

void bw_catalog_progress(struct bw_catalog *catalog, struct bw_progress *ret_progress) {
    if (!catalog || !ret_progress) return;
    struct bwi_progress *p = &catalog->progress;
    *ret_progress = (struct bw_progress){.done_bytes = p->done_bytes,
                                         .total_bytes = p->total_bytes,
                                         .done_items = p->done_items,
                                         .total_items = p->total_items};
}

bool bwi_catalog_has(const struct bw_catalog *c, enum bwi_tier tier) {
    return c->host.ctx.tier[tier] != NULL;
}

int bwi_catalog_begin(struct bw_catalog *c, const char *run, const void *ret, struct bw_error *err) {
    bw_error_clear(err);
    if (!c || !ret) return bwi_error_set(err, BW_E_INVALID, "%s is null", c ? "the place for the result" : "catalog");
    if (!run || !bwi_name_valid(run))
        return bwi_error_set(err, BW_E_INVALID, "run is \"%.140s\": expected [A-Za-z0-9][A-Za-z0-9._-]{0,127}",
                             run ? run : "");
    bwi_format(c->host.ctx.run, sizeof c->host.ctx.run, "%s", run);
    c->progress.done_bytes = c->progress.total_bytes = c->progress.done_items = c->progress.total_items = 0;
    return 0;
}

int bwi_catalog_begin_change(struct bw_catalog *c, const char *run, struct bw_error *err) {
    int rc = bwi_catalog_begin(c, run, run ? run : "", err);
    if (rc == 0 && (c->flags & BW_CATALOG_READ_ONLY))
        rc = bwi_error_set(err, BW_E_ACCESS, "the catalog was opened read-only");
    return rc;
}

int bwi_catalog_head(struct bw_catalog *c, struct bwi_head *ret, struct bw_error *err) {
    return bwi_reader_read_head(&c->host, ret, err);
}

/* --- lists --------------------------------------------------------------------------------------------------- */

int bwi_list_new(enum bwi_list_kind kind, size_t row_bytes, struct bw_list **ret, struct bw_error *err) {
    struct bw_list *l = bwi_calloc(1, sizeof *l);
    if (!l) return bwi_error_nomem(err, sizeof *l, "list");
    l->kind = kind;
    l->row_bytes = row_bytes;
    *ret = l;
    return 0;
}

int bwi_list_add(struct bw_list *l, const void *row, struct bw_error *err) {
    if (!bwi_vec_reserve(&l->rows, &l->cap, l->count + 1, l->row_bytes))
        return bwi_error_nomem(err, l->row_bytes, "list");
    memcpy((char *)l->rows + l->count++ * l->row_bytes, row, l->row_bytes);
    return 0;
}

int bwi_list_of_findings(struct bwi_findings *f, struct bw_list **ret, struct bw_error *err) {
    if (f->failed) {
        bwi_findings_fini(f);
        return bwi_error_nomem(err, sizeof(struct bw_finding), "findings");
    }
    int rc = bwi_list_new(BWI_LIST_FINDING, sizeof(struct bw_finding), ret, err);
    if (rc == 0) {
        (*ret)->rows = f->list;
        (*ret)->count = f->count;
        (*ret)->cap = f->cap;
        *f = (struct bwi_findings){0};
    }
    bwi_findings_fini(f);
    return rc;
}

void bw_list_free(struct bw_list *list) {
    if (!list) return;
    bwi_free(list->rows);
    bwi_free(list);
}

size_t bw_list_count(const struct bw_list *list) {
    return list ? list->count : 0;
}

static bool take(const struct bw_list *list, enum bwi_list_kind kind, size_t i, void *ret) {
    if (!list || !ret || list->kind != kind || i >= list->count) return false;
    memcpy(ret, (const char *)list->rows + i * list->row_bytes, list->row_bytes);
    return true;
}

bool bw_list_run(const struct bw_list *list, size_t i, struct bw_run_info *ret_run) {
    return take(list, BWI_LIST_RUN, i, ret_run);
}
bool bw_list_checkpoint(const struct bw_list *list, size_t i, struct bw_checkpoint_row *ret_row) {
    return take(list, BWI_LIST_CHECKPOINT, i, ret_row);
}
bool bw_list_object(const struct bw_list *list, size_t i, struct bw_object_row *ret_row) {
    return take(list, BWI_LIST_OBJECT, i, ret_row);
}
bool bw_list_ref(const struct bw_list *list, size_t i, struct bw_ref_row *ret_row) {
    return take(list, BWI_LIST_REF, i, ret_row);
}
bool bw_list_history(const struct bw_list *list, size_t i, struct bw_history_row *ret_row) {
    return take(list, BWI_LIST_HISTORY, i, ret_row);
}
bool bw_list_finding(const struct bw_list *list, size_t i, struct bw_finding *ret_finding) {
    return take(list, BWI_LIST_FINDING, i, ret_finding);
}
