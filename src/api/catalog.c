/* SPDX-License-Identifier: Apache-2.0 */
/* bw_catalog_*: opening, closing, lists. What the verbs do is in catalog_look.c, catalog_objects.c, catalog_change.c
 * and catalog_repair.c. */
#include "api/catalog.h"

#include <stdlib.h>
#include <string.h>

#include "api/guard.h"
#include "api/reader.h"
#include "base/checked.h"
#include "base/error.h"
#include "base/text.h"
#include "base/vec.h"

/* --- open and close ------------------------------------------------------------------------------------------ */

#define MEMBER(m) offsetof(struct bw_catalog_options, m)

static int copy_options(const struct bw_catalog_options *options, struct bw_catalog_options *o, struct bw_error *err) {
    int rc = bwi_options_copy(o, options,
                              BWI_OPTIONS_SIZES(MEMBER(memory_budget_bytes), MEMBER(io_timeout_ms), MEMBER(io_threads),
                                                MEMBER(io_backend), sizeof *o),
                              err);
    if (rc < 0) return rc;
    if (o->flags & ~BW_CATALOG_READ_ONLY)
        return bwi_error_set(err, BW_E_INVALID, "option flags has unknown bits: %#x", o->flags & ~BW_CATALOG_READ_ONLY);
    return 0;
}

static int init_locks(struct bw_catalog *c, struct bw_error *err) {
    int rc = bwi_mutex_init(&c->mutex);
    if (rc == 0 && (rc = bwi_cond_init(&c->cond)) < 0) bwi_mutex_fini(&c->mutex);
    return rc < 0 ? bwi_error_errno(err, rc, "make a lock") : 0;
}

/* Nobody uses it any more. */
static void catalog_free(struct bw_catalog *c) {
    bwi_host_close(&c->host);
    bwi_cond_fini(&c->cond);
    bwi_mutex_fini(&c->mutex);
    bwi_free(c);
}

int bw_catalog_open(const struct bw_catalog_options *options, struct bw_catalog **ret_catalog, struct bw_error *err) {
    struct bw_catalog_options o = BW_CATALOG_OPTIONS_INIT;
    bw_error_clear(err);
    if (!ret_catalog) return bwi_error_set(err, BW_E_INVALID, "ret_catalog is null");
    int rc = copy_options(options, &o, err);
    if (rc < 0) return rc;
    struct bw_catalog *c = bwi_calloc(1, sizeof *c);
    if (!c) return bwi_error_nomem(err, sizeof *c, "catalog");
    struct bwi_host_options ho = {.remote_url = o.remote_url,
                                  .local_url = o.local_url,
                                  .memory_budget_bytes = o.memory_budget_bytes,
                                  .io_threads = o.io_threads,
                                  .io_backend = o.io_backend,
                                  .read_only = (o.flags & BW_CATALOG_READ_ONLY) != 0};
    rc = init_locks(c, err);
    if (rc < 0) {
        bwi_free(c);
        return rc;
    }
    rc = bwi_host_open_within(&ho, o.io_timeout_ms, &c->host, err);
    if (rc < 0) {
        catalog_free(c);
        return rc;
    }
    c->flags = o.flags;
    c->io_timeout_ms = o.io_timeout_ms;
    c->host.ctx.progress = &c->progress;
    c->host.pulse = &c->pulse;
    *ret_catalog = c;
    return 0;
}

void bw_catalog_close(struct bw_catalog *catalog) {
    if (!catalog || !bwi_host_is_here(&catalog->host)) return;
    bwi_mutex_lock(&catalog->mutex);
    const bool busy = catalog->busy;
    catalog->closed = true;
    bwi_mutex_unlock(&catalog->mutex);
    if (!busy) catalog_free(catalog);
}

void bw_catalog_progress(struct bw_catalog *catalog, struct bw_progress *ret_progress) {
    if (!catalog || !ret_progress) return;
    struct bwi_progress *p = &catalog->progress;
    *ret_progress = (struct bw_progress){.done_bytes = p->done_bytes,
                                         .total_bytes = p->total_bytes,
                                         .done_items = p->done_items,
                                         .total_items = p->total_items};
}

/* --- calls --------------------------------------------------------------------------------------------------- */

struct call {
    struct bwi_job job;
    struct bw_catalog *catalog;
    bwi_catalog_verb *verb;
    struct bwi_catalog_args args; /* its texts are copies, owned */
    struct bw_list *list;
};

static void call_free(struct call *x) {
    struct bw_prune_options *p = &x->args.prune;
    bwi_free((void *)(uintptr_t)x->args.run);
    bwi_free((void *)(uintptr_t)x->args.id);
    bwi_free((void *)(uintptr_t)x->args.label);
    for (size_t i = 0; p->retire_ids && i < p->retire_count; i++) bwi_free((void *)(uintptr_t)p->retire_ids[i]);
    bwi_free((void *)(uintptr_t)p->retire_ids);
    bw_list_free(x->list);
    bwi_free(x);
}

static bool copy_text(const char *from, const char **ret) {
    *ret = from ? bwi_strdup(from) : NULL;
    return !from || *ret;
}

static bool copy_ids(const char *const *from, size_t count, const char *const **ret) {
    *ret = NULL;
    if (count == 0) return true;
    const char **to = bwi_calloc(count, sizeof *to);
    *ret = to;
    bool ok = to != NULL;
    for (size_t i = 0; ok && i < count; i++) ok = copy_text(from[i], &to[i]);
    return ok;
}

static int run_call(struct bwi_job *job, struct bw_error *err) {
    struct call *x = bwi_container_of(job, struct call, job);
    struct bw_catalog *c = x->catalog;
    atomic_store(&c->pulse.given_up, false);
    bwi_format(c->host.ctx.run, sizeof c->host.ctx.run, "%s", x->args.run ? x->args.run : "");
    c->progress.done_bytes = c->progress.total_bytes = c->progress.done_items = c->progress.total_items = 0;
    return x->verb(c, &x->args, &x->list, err);
}

static void end_call(struct bw_catalog *c) {
    bwi_mutex_lock(&c->mutex);
    c->busy = false;
    const bool closed = c->closed;
    bwi_cond_signal(&c->cond);
    bwi_mutex_unlock(&c->mutex);
    if (closed) catalog_free(c);
}

static void discard_call(struct bwi_job *job) {
    struct call *x = bwi_container_of(job, struct call, job);
    struct bw_catalog *c = x->catalog;
    call_free(x);
    end_call(c);
}

static int call_new(struct bw_catalog *c, bwi_catalog_verb *verb, const struct bwi_catalog_args *a, struct call **ret,
                    struct bw_error *err) {
    struct call *x = bwi_calloc(1, sizeof *x);
    if (!x) return bwi_error_nomem(err, sizeof *x, "a call");
    *x = (struct call){.job = {run_call, discard_call}, .catalog = c, .verb = verb, .args = *a};
    const struct bw_prune_options *p = &a->prune;
    bool ok = copy_text(a->run, &x->args.run);
    ok = copy_text(a->id, &x->args.id) && ok;
    ok = copy_text(a->label, &x->args.label) && ok;
    ok = copy_ids(p->retire_ids, p->retire_count, &x->args.prune.retire_ids) && ok;
    if (!ok) {
        call_free(x);
        return bwi_error_nomem(err, 1, "a call");
    }
    *ret = x;
    return 0;
}

/* A call that nobody waited for any longer may still have the host. */
static int take_turn(struct bw_catalog *c, struct bw_error *err) {
    struct bwi_env *env = bwi_env_system();
    const uint64_t begin = env->now_ns(env);
    bool in_time = true;
    bwi_mutex_lock(&c->mutex);
    while (c->busy && in_time) {
        const uint64_t heard = bwi_max_u64(begin, atomic_load(&c->pulse.heard_ns));
        const uint64_t end = bwi_patience_end_ns(heard, c->io_timeout_ms);
        in_time = env->now_ns(env) < end;
        if (in_time) (void)bwi_cond_wait(&c->cond, &c->mutex, end);
    }
    const bool free_now = !c->busy;
    c->busy = true;
    bwi_mutex_unlock(&c->mutex);
    if (free_now) return 0;
    return bwi_error_set(err, BW_E_TIMEOUT, "an earlier call of this catalog has not come back for %llu ms",
                         (unsigned long long)c->io_timeout_ms);
}

int bwi_catalog_check(struct bw_catalog *c, const char *run, const void *ret, struct bw_error *err) {
    bw_error_clear(err);
    if (!c) return bwi_error_set(err, BW_E_INVALID, "catalog is null");
    if (!run || !bwi_name_valid(run))
        return bwi_error_set(err, BW_E_INVALID, "run is \"%.140s\": expected [A-Za-z0-9][A-Za-z0-9._-]{0,127}",
                             run ? run : "");
    return ret ? 0 : bwi_error_set(err, BW_E_INVALID, "the place for the result is null");
}

int bwi_catalog_call(struct bw_catalog *c, bwi_catalog_verb *verb, const struct bwi_catalog_args *a,
                     struct bw_list **ret_list, struct bw_error *err) {
    struct call *x = NULL;
    bool gone = false;
    if (bwi_host_check(&c->host, err) < 0) return BW_E_STATE;
    if (a->changes && (c->flags & BW_CATALOG_READ_ONLY))
        return bwi_error_set(err, BW_E_ACCESS, "the catalog was opened read-only");
    int rc = call_new(c, verb, a, &x, err);
    if (rc < 0) return rc;
    rc = take_turn(c, err);
    if (rc < 0) {
        call_free(x);
        return rc;
    }
    rc = bwi_guard(&x->job, c->io_timeout_ms, &c->pulse, &gone, err);
    if (gone) {
        (void)bwi_error_wrap(err, "the tiers of the catalog");
        return rc;
    }
    if (rc == 0 && ret_list) {
        *ret_list = x->list;
        x->list = NULL;
    }
    call_free(x);
    end_call(c);
    return rc;
}

int bwi_catalog_id(const char *text, struct bwi_id *ret, struct bw_error *err) {
    if (text && bwi_id_parse(bwi_span_str(text), ret)) return 0;
    return bwi_error_set(err, BW_E_INVALID, "\"%.100s\" is not a checkpoint id", text ? text : "");
}

bool bwi_catalog_has(const struct bw_catalog *c, enum bwi_tier tier) {
    return c->host.ctx.tier[tier] != NULL;
}

bool bwi_catalog_is_archive(const struct bw_catalog *c, const struct bwi_head *head) {
    return !bwi_uuid_eq(&head->entry.store, &c->host.ctx.store_id[BWI_TIER_REMOTE]);
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

/* -1, 0, 1. A row without a tensor comes after those that name one: it sums up. */
static int finding_cmp(const void *left, const void *right) {
    const struct bw_finding *a = left;
    const struct bw_finding *b = right;
    int order = strcmp(a->tier, b->tier);
    if (order == 0) order = strcmp(a->object, b->object);
    if (order == 0) order = (a->tensor[0] == '\0') - (b->tensor[0] == '\0');
    if (order == 0) order = strcmp(a->tensor, b->tensor);
    return order != 0 ? order : strcmp(a->message, b->message);
}

void bwi_findings_sort(struct bwi_findings *f, size_t n) {
    if (f->count > n) qsort(f->list + n, f->count - n, sizeof *f->list, finding_cmp);
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
