/* SPDX-License-Identifier: Apache-2.0 */
/* bw_restore_* and bw_reader_open. The coordinator runs on the checkpointer's loop, or, for a reader, on a loop that
 * the calling thread turns. */
#include <breakwater/restore.h>
#include <string.h>

#include "api/background.h"
#include "api/blocking.h"
#include "api/guard.h"
#include "api/reader.h"
#include "base/error.h"
#include "base/text.h"
#include "base/vec.h"
#include "checkpoint/history_head.h"
#include "checkpoint/policy_history.h"
#include "checkpoint/store_id.h"

struct bw_restore {
    struct bw_checkpointer *ck; /* NULL: a reader */
    struct bwi_host own;        /* of a reader */
    struct bwi_pulse pulse;     /* while it is opened */
    struct bwi_restore *inner;
    struct bwi_mutex mutex; /* one call at a time */
    /* one call's hand-over to the loop's thread */
    struct bwi_restore_call call;
};

static const struct bwi_host *host_of(const struct bw_restore *r) {
    return r->ck ? &r->ck->host : &r->own;
}

static void start_call(struct bw_checkpointer *ck, struct bwi_command *c) {
    struct bw_restore *r = c->arg;
    bwi_restore_call_start(&r->call, ck->host.loop, NULL);
}

static void close_inner(struct bw_checkpointer *ck, struct bwi_command *c) {
    struct bw_restore *r = c->arg;
    const uint64_t repaired = r->inner ? bwi_restore_get_stats(r->inner)->repaired_objects : 0;
    if (repaired > 0)
        bwi_session_note(ck->session, BW_E_CORRUPT, ck->target.id.step,
                         "damage on the local tier: %llu %s put right from the other one", (unsigned long long)repaired,
                         repaired == 1 ? "object was" : "objects were");
    bwi_restore_free(r->inner);
    r->inner = NULL;
}

/* Runs r->call to its end. */
static int run_call(struct bw_restore *r, struct bw_error *err) {
    r->call.r = r->inner;
    if (r->ck) {
        bwi_engine_run(r->ck, start_call, r);
        bwi_engine_watch(r->ck, &r->call.task, BWI_NEVER); /* its own deadline is io_timeout_ms */
    } else {
        bwi_restore_call_start(&r->call, r->own.loop, NULL);
        (void)bwi_block_on(&r->own, &r->call.task, NULL);
    }
    bwi_error_stage(&r->call.task.error, BW_STAGE_RESTORE);
    bwi_error_copy(err, &r->call.task.error);
    return r->call.task.error.status;
}

static int simple_call(struct bw_restore *r, enum bwi_restore_what what, const char *name, uint32_t rank,
                       struct bw_error *err) {
    r->call = (struct bwi_restore_call){.what = what, .name = name, .rank = rank};
    return run_call(r, err);
}

/* --- open and close ------------------------------------------------------------------------------------------ */

struct new_inner {
    struct bw_restore *r;
    struct bwi_restore_target target;
    struct bw_error error;
};

static void make_inner(struct bw_checkpointer *ck, struct bwi_command *c) {
    struct new_inner *n = c->arg;
    bwi_restore_new(&ck->host.ctx, &n->target, &n->r->inner, &n->error);
}

static int wrap(struct bw_restore **ret, struct bw_error *err) {
    struct bw_restore *r = bwi_calloc(1, sizeof *r);
    if (!r) return bwi_error_nomem(err, sizeof *r, "restore");
    int rc = bwi_mutex_init(&r->mutex);
    if (rc < 0) {
        bwi_free(r);
        return bwi_error_errno(err, rc, "make a lock");
    }
    *ret = r;
    return 0;
}

int bw_restore_open(struct bw_checkpointer *ck, struct bw_restore **ret_restore, struct bw_error *err) {
    bw_error_clear(err);
    if (!ck || !ret_restore) return bwi_error_set(err, BW_E_INVALID, "%s is null", ck ? "ret_restore" : "ck");
    if (bwi_host_check(&ck->host, err) < 0) return BW_E_STATE;
    if (!ck->target.from_checkpoint)
        return bwi_error_set(err, BW_E_NOTFOUND, "this launch started from nothing: there is no checkpoint to restore");
    struct bw_restore *r = NULL;
    int rc = wrap(&r, err);
    if (rc < 0 || !r) return rc; /* the second for compilers that do not follow */
    const struct bwi_resume *m = &ck->target;
    struct new_inner n = {.r = r,
                          .target = {.id = m->id,
                                     .committed = m->committed,
                                     .manifest = m->manifest,
                                     .world = m->world,
                                     .groups = m->groups,
                                     .uuid = m->uuid,
                                     .wait_ns = bwi_ns_of_ms(ck->options.open_timeout_ms),
                                     .may_repair = true,
                                     .io_timeout_ns = bwi_ns_of_ms(ck->options.io_timeout_ms)}};
    r->ck = ck;
    bwi_engine_run(ck, make_inner, &n);
    if (n.error.status == 0) {
        bwi_engine_lock(ck);
        ck->shared.restores++;
        bwi_engine_unlock(ck);
        (void)simple_call(r, BWI_RESTORE_MANIFEST, NULL, 0, &n.error);
    }
    if (n.error.status < 0) {
        bool counted = r->inner != NULL;
        if (!counted) r->ck = NULL;
        bw_restore_close(r);
        bwi_error_copy(err, &n.error);
        return n.error.status;
    }
    *ret_restore = r;
    return 0;
}

void bw_restore_close(struct bw_restore *restore) {
    if (!restore || !bwi_host_is_here(host_of(restore))) return;
    if (restore->ck) {
        bwi_engine_run(restore->ck, close_inner, restore);
        bwi_engine_lock(restore->ck);
        restore->ck->shared.restores--;
        bwi_engine_unlock(restore->ck);
    } else {
        bwi_restore_free(restore->inner);
        bwi_host_close(&restore->own);
    }
    bwi_mutex_fini(&restore->mutex);
    bwi_free(restore);
}

int bwi_reader_check_stores(struct bwi_host *h, struct bw_error *err) {
    struct bwi_store_ids ids = {.ctx = &h->ctx};
    bwi_store_ids_start(&ids, h->loop, NULL);
    return bwi_block_on(h, &ids.task, err);
}

int bwi_reader_read_head(struct bwi_host *h, struct bwi_head *ret, struct bw_error *err) {
    int rc = bwi_reader_check_stores(h, err);
    if (rc < 0) return rc;
    struct bwi_head_read read = {.ctx = &h->ctx, .head = ret};
    bwi_head_read_start(&read, h->loop, NULL);
    rc = bwi_block_on(h, &read.task, err);
    if (rc == 0 && !ret->found)
        rc = bwi_error_set(err, BW_E_NOTFOUND, "there is no run \"%s\" in \"%.200s\"", h->ctx.run,
                           h->ctx.tier[BWI_TIER_REMOTE]->url);
    if (rc < 0) bwi_head_fini(ret); /* it may be full: what was given up fails afterwards */
    return rc;
}

static const struct bwi_kept *find_kept(const struct bw_reader_options *o, const struct bwi_entry *e) {
    struct bwi_id id;
    if (o->id) return bwi_id_parse(bwi_span_str(o->id), &id) ? bwi_policy_find_kept(e, &id) : NULL;
    return o->step == UINT64_MAX ? bwi_policy_newest(e) : bwi_policy_find_live(e, o->step);
}

static int no_kept(const struct bw_reader_options *o, const struct bwi_entry *e, struct bw_error *err) {
    if (o->id) return bwi_error_set(err, BW_E_NOTFOUND, "run \"%s\" has no committed checkpoint %.100s", e->run, o->id);
    if (o->step == UINT64_MAX) return bwi_error_set(err, BW_E_NOTFOUND, "nothing is committed in run \"%s\"", e->run);
    return bwi_error_set(err, BW_E_NOTFOUND, "run \"%s\" has no live checkpoint of step %llu", e->run,
                         (unsigned long long)o->step);
}

static int open_reader(const struct bw_reader_options *o, struct bw_restore *r, struct bw_error *err) {
    struct bwi_host_options ho = {.run = o->run,
                                  .remote_url = o->remote_url,
                                  .local_url = o->local_url,
                                  .memory_budget_bytes = o->memory_budget_bytes,
                                  .io_threads = o->io_threads,
                                  .io_backend = o->io_backend,
                                  .read_only = true};
    struct bwi_head head = {0};
    int rc = bwi_host_open(&ho, &r->own, err);
    r->own.pulse = &r->pulse;
    if (rc == 0) rc = bwi_reader_read_head(&r->own, &head, err);
    if (rc < 0) return rc;
    const struct bwi_kept *k = find_kept(o, &head.entry);
    if (!k) {
        rc = no_kept(o, &head.entry, err);
    } else {
        struct bwi_restore_target t = {
            .id = k->id, .committed = true, .manifest = k->manifest, .io_timeout_ns = bwi_ns_of_ms(o->io_timeout_ms)};
        rc = bwi_restore_new(&r->own.ctx, &t, &r->inner, err);
    }
    if (rc == 0) rc = simple_call(r, BWI_RESTORE_MANIFEST, NULL, 0, err);
    bwi_head_fini(&head);
    return rc;
}

struct reader_opening {
    struct bwi_job job;
    struct bw_reader_options options; /* its texts are copies, owned */
    struct bw_restore *restore;
};

static void reader_opening_free(struct reader_opening *x) {
    bwi_free((void *)(uintptr_t)x->options.run);
    bwi_free((void *)(uintptr_t)x->options.remote_url);
    bwi_free((void *)(uintptr_t)x->options.local_url);
    bwi_free((void *)(uintptr_t)x->options.id);
    bw_restore_close(x->restore);
    bwi_free(x);
}

static int run_reader_opening(struct bwi_job *job, struct bw_error *err) {
    struct reader_opening *x = bwi_container_of(job, struct reader_opening, job);
    return open_reader(&x->options, x->restore, err);
}

static void discard_reader_opening(struct bwi_job *job) {
    reader_opening_free(bwi_container_of(job, struct reader_opening, job));
}

static bool copy_text(const char **text) {
    if (!*text) return true;
    *text = bwi_strdup(*text);
    return *text != NULL;
}

static int reader_opening_new(const struct bw_reader_options *o, struct reader_opening **ret, struct bw_error *err) {
    struct reader_opening *x = bwi_calloc(1, sizeof *x);
    if (!x) return bwi_error_nomem(err, sizeof *x, "opening a reader");
    *x = (struct reader_opening){.job = {run_reader_opening, discard_reader_opening}, .options = *o};
    bool copied = copy_text(&x->options.run);
    copied = copy_text(&x->options.remote_url) && copied;
    copied = copy_text(&x->options.local_url) && copied;
    copied = copy_text(&x->options.id) && copied;
    int rc = copied ? wrap(&x->restore, err) : bwi_error_nomem(err, 1, "opening a reader");
    if (rc < 0)
        reader_opening_free(x);
    else
        *ret = x;
    return rc;
}

#define MEMBER(m) offsetof(struct bw_reader_options, m)

static int copy_reader_options(const struct bw_reader_options *options, struct bw_reader_options *o,
                               struct bw_error *err) {
    int rc = bwi_options_copy(o, options,
                              BWI_OPTIONS_SIZES(MEMBER(memory_budget_bytes), MEMBER(io_timeout_ms), MEMBER(io_threads),
                                                MEMBER(io_backend), sizeof *o),
                              err);
    if (rc < 0) return rc;
    if (!o->run || !bwi_name_valid(o->run))
        return bwi_error_set(err, BW_E_INVALID, "option run is \"%.140s\": expected [A-Za-z0-9][A-Za-z0-9._-]{0,127}",
                             o->run ? o->run : "");
    struct bwi_id id;
    if (o->id && !bwi_id_parse(bwi_span_str(o->id), &id))
        return bwi_error_set(err, BW_E_INVALID, "option id \"%.100s\" is not a checkpoint id", o->id);
    return o->flags ? bwi_error_set(err, BW_E_INVALID, "a reserved option is not 0") : 0;
}

int bw_reader_open(const struct bw_reader_options *options, struct bw_restore **ret_restore, struct bw_error *err) {
    struct bw_reader_options o = BW_READER_OPTIONS_INIT;
    bw_error_clear(err);
    if (!ret_restore) return bwi_error_set(err, BW_E_INVALID, "ret_restore is null");
    struct reader_opening *x = NULL;
    struct bw_error e = BW_ERROR_INIT;
    bool gone = false;
    int rc = copy_reader_options(options, &o, err);
    if (rc == 0) rc = reader_opening_new(&o, &x, err);
    if (rc < 0 || !x) return rc;
    rc = bwi_guard(&x->job, o.io_timeout_ms, &x->restore->pulse, &gone, &e);
    if (gone)
        (void)bwi_error_wrap(&e, "open a reader of run \"%s\"", o.run);
    else if (rc == 0)
        *ret_restore = x->restore;
    if (rc < 0) bwi_error_stage(&e, BW_STAGE_RESTORE);
    bwi_error_copy(err, &e);
    if (gone) return rc;
    if (rc == 0) x->restore = NULL;
    reader_opening_free(x);
    return rc;
}

/* --- looking ------------------------------------------------------------------------------------------------- */

#define LOCKED(r, err, what)                                                                                           \
    bw_error_clear(err);                                                                                               \
    if (!(r) || !(what)) return bwi_error_set(err, BW_E_INVALID, "%s is null", (r) ? #what : "restore");               \
    if (bwi_host_check(host_of(r), err) < 0) return BW_E_STATE;                                                        \
    bwi_mutex_lock(&(r)->mutex)

int bw_restore_info(struct bw_restore *restore, struct bw_checkpoint_info *ret_info, struct bw_error *err) {
    LOCKED(restore, err, ret_info);
    int rc = simple_call(restore, BWI_RESTORE_MANIFEST, NULL, 0, err);
    if (rc == 0) rc = bwi_restore_get_info(restore->inner, ret_info, err);
    bwi_mutex_unlock(&restore->mutex);
    return rc;
}

int bw_restore_tensor_at(struct bw_restore *restore, uint64_t i, struct bw_tensor_info *ret_tensor,
                         struct bw_error *err) {
    LOCKED(restore, err, ret_tensor);
    int rc = simple_call(restore, BWI_RESTORE_ALL_TENSORS, NULL, 0, err);
    if (rc == 0) rc = bwi_restore_get_tensor_at(restore->inner, i, ret_tensor, err);
    bwi_mutex_unlock(&restore->mutex);
    return rc;
}

int bw_restore_tensor(struct bw_restore *restore, const char *name, struct bw_tensor_info *ret_tensor,
                      struct bw_error *err) {
    bw_error_clear(err);
    if (!name) return bwi_error_set(err, BW_E_INVALID, "name is null");
    LOCKED(restore, err, ret_tensor);
    int rc = simple_call(restore, BWI_RESTORE_TENSOR, name, 0, err);
    if (rc == 0) rc = bwi_restore_get_tensor(restore->inner, name, ret_tensor, err);
    bwi_mutex_unlock(&restore->mutex);
    return rc;
}

int bw_restore_box_at(struct bw_restore *restore, const char *name, uint32_t i, struct bw_box_info *ret_box,
                      struct bw_error *err) {
    bw_error_clear(err);
    if (!name) return bwi_error_set(err, BW_E_INVALID, "name is null");
    LOCKED(restore, err, ret_box);
    int rc = simple_call(restore, BWI_RESTORE_TENSOR, name, 0, err);
    if (rc == 0) rc = bwi_restore_get_box(restore->inner, name, i, ret_box, err);
    bwi_mutex_unlock(&restore->mutex);
    return rc;
}

int bw_restore_check(struct bw_restore *restore, const struct bw_expected *expected, size_t n, uint32_t flags,
                     struct bw_error *err) {
    static const struct bw_expected none;
    const struct bw_expected *list = n ? expected : &none;
    LOCKED(restore, err, list);
    int rc = flags & ~BW_CHECK_SUBSET ? bwi_error_set(err, BW_E_INVALID, "flags has unknown bits: %#x", flags) : 0;
    if (rc == 0) rc = simple_call(restore, BWI_RESTORE_ALL_TENSORS, NULL, 0, err);
    if (rc == 0) rc = bwi_restore_compare(restore->inner, list, n, flags, err);
    bwi_mutex_unlock(&restore->mutex);
    return rc;
}

/* --- reading ------------------------------------------------------------------------------------------------- */

/* The workers of a checkpointer must not come to wait at memory that they themselves are to capture: it is captured
 * first. */
static int wait_captured(struct bw_checkpointer *ck, struct bw_error *err) {
    const uint64_t deadline = bwi_deadline_ns(ck->options.io_timeout_ms ? ck->options.io_timeout_ms : UINT64_MAX);
    bool capturing;
    bwi_engine_lock(ck);
    do {
        capturing = false;
        for (const struct bw_save *v = ck->shared.saves; v; v = v->next)
            capturing |= v->started && !v->captured && !v->ended;
    } while (capturing && bwi_engine_wait(ck, deadline));
    bwi_engine_unlock(ck);
    if (!capturing) return 0;
    return bwi_error_set(err, BW_E_TIMEOUT,
                         "a save of this checkpointer is being captured, and does not come to its end");
}

int bw_restore_read(struct bw_restore *restore, const struct bw_slice *slices, size_t n, struct bw_error *err) {
    static const struct bw_slice none;
    const struct bw_slice *list = n ? slices : &none;
    LOCKED(restore, err, list);
    restore->call = (struct bwi_restore_call){.what = BWI_RESTORE_READ, .slices = list, .slice_count = n};
    int rc = n && restore->ck ? wait_captured(restore->ck, err) : 0;
    if (rc == 0 && n) rc = run_call(restore, err);
    bwi_mutex_unlock(&restore->mutex);
    return rc;
}

int bw_restore_blob_count(struct bw_restore *restore, uint64_t *ret_count, struct bw_error *err) {
    LOCKED(restore, err, ret_count);
    int rc = simple_call(restore, BWI_RESTORE_BLOBS, NULL, 0, err);
    if (rc == 0) rc = bwi_restore_get_blob_count(restore->inner, ret_count, err);
    bwi_mutex_unlock(&restore->mutex);
    return rc;
}

int bw_restore_blob_at(struct bw_restore *restore, uint64_t i, struct bw_blob_info *ret_blob, struct bw_error *err) {
    LOCKED(restore, err, ret_blob);
    int rc = simple_call(restore, BWI_RESTORE_BLOBS, NULL, 0, err);
    if (rc == 0) rc = bwi_restore_get_blob(restore->inner, i, ret_blob, err);
    bwi_mutex_unlock(&restore->mutex);
    return rc;
}

int bw_restore_blob(struct bw_restore *restore, uint32_t rank, const char *name, void *buf, size_t buf_bytes,
                    size_t *ret_bytes, struct bw_error *err) {
    bw_error_clear(err);
    if (!name || (!buf && buf_bytes)) return bwi_error_set(err, BW_E_INVALID, "%s is null", name ? "buf" : "name");
    LOCKED(restore, err, ret_bytes);
    restore->call = (struct bwi_restore_call){
        .what = BWI_RESTORE_BLOB, .name = name, .rank = rank, .buf = buf, .buf_bytes = buf_bytes};
    int rc = restore->ck ? wait_captured(restore->ck, err) : 0;
    if (rc == 0) rc = run_call(restore, err);
    if (rc == 0 || rc == BW_E_LIMIT) *ret_bytes = restore->call.got_bytes;
    bwi_mutex_unlock(&restore->mutex);
    return rc;
}

int bw_restore_metadata(struct bw_restore *restore, uint32_t rank, const char **ret_json, struct bw_error *err) {
    LOCKED(restore, err, ret_json);
    int rc = simple_call(restore, BWI_RESTORE_RANK, NULL, rank, err);
    if (rc == 0) rc = bwi_restore_get_metadata(restore->inner, rank, ret_json, err);
    bwi_mutex_unlock(&restore->mutex);
    return rc;
}

void bw_restore_stats(struct bw_restore *restore, struct bw_restore_stats *ret_stats) {
    if (!restore || !ret_stats || !bwi_host_is_here(host_of(restore))) return;
    bwi_mutex_lock(&restore->mutex);
    *ret_stats = *bwi_restore_get_stats(restore->inner);
    bwi_mutex_unlock(&restore->mutex);
}
