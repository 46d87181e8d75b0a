/* SPDX-License-Identifier: Apache-2.0 */
/* The first part of a sweep: the head, what lies in the tier, which of it is dead, and since when. Nothing is deleted
 * here. */
#include "base/error.h"
#include "base/text.h"
#include "base/vec.h"
#include "checkpoint/sweep_private.h"
#include <inttypes.h>
#include <string.h>

bool bwi_sweep_has_ff(const struct bwi_swept *c, unsigned ff) {
    return (c->ff[ff / 64] >> (ff % 64) & 1) != 0;
}

static enum bwi_step wait_in(struct bwi_sweep *s, enum bwi_sweep_state in) {
    s->state = (int)in;
    return BWI_STEP_WAIT;
}

static struct bwi_store *authority(const struct bwi_sweep *s) {
    return s->ctx->tier[BWI_TIER_REMOTE];
}

/* ---- the head ---- */

/* Only who decides for a run may say what is dead: in an archive that is its own pass, and a log that is damaged at its
 * end is repaired first. */
static int check_head(const struct bwi_sweep *s, struct bw_error *err) {
    const struct bwi_head *h = &s->w->head;
    if (h->damaged)
        return bwi_error_set(err, BW_E_CORRUPT, "the newest history entry is damaged (%.200s); repair the run first",
                             h->damage);
    const struct bwi_uuid *here = &s->ctx->store_id[BWI_TIER_REMOTE];
    if (bwi_uuid_eq(&h->entry.store, here)) return 0;
    char decides[BWI_UUID_TEXT_BYTES];
    char found[BWI_UUID_TEXT_BYTES];
    bwi_uuid_text(&h->entry.store, decides);
    bwi_uuid_text(here, found);
    return bwi_error_set(err, BW_E_FOREIGN, "store %s is an archive of this run: store %s decides", found, decides);
}

static enum bwi_step have_head(struct bwi_sweep *s) {
    struct bwi_sweep_work *w = s->w;
    if (w->read.task.running) {
        if (s->task.cancel && !w->read.task.cancel) bwi_task_cancel(&w->read.task);
        return BWI_STEP_WAIT;
    }
    if (w->read.task.error.status < 0) return bwi_sweep_fail(s, &w->read.task.error);
    if (!w->head.found) return bwi_sweep_go(s, BWI_SWEEP_END); /* no history: nothing is dead */
    if (check_head(s, &s->task.error) < 0) return bwi_sweep_go(s, BWI_SWEEP_END);
    return bwi_sweep_go(s, BWI_SWEEP_LIST);
}

/* ---- what is there ---- */

/* Somebody else's entry may be seen before it is durable; what it says must outlive what is deleted for it. */
static enum bwi_step list(struct bwi_sweep *s) {
    const char *run = s->ctx->run;
    const struct bwi_key history = bwi_key_history(run);
    const struct bwi_key checkpoints = bwi_key_checkpoints(run);
    const struct bwi_key data = bwi_key_data(run);
    bwi_call_prepare(&s->w->sync, BWI_STORE_SYNC, history.s);
    bwi_call_submit(&s->w->sync, &s->task, authority(s));
    bwi_call_list(&s->w->calls[0], &s->task, bwi_sweep_store(s), checkpoints.s, NULL);
    bwi_call_list(&s->w->calls[1], &s->task, bwi_sweep_store(s), data.s, NULL);
    return wait_in(s, BWI_SWEEP_LISTED);
}

static bool is_busy(const struct bwi_sweep *s, const struct bwi_id *id) {
    for (size_t i = 0; i < s->busy_count; i++)
        if (bwi_id_eq(&s->busy[i], id)) return true;
    return false;
}

/* What the head knows, or will know, is of no interest. Ids of attempts that it does not know yet may be those of
 * another life of the run: that is told, and nothing more. */
static struct bwi_swept *add(struct bwi_sweep *s, const struct bwi_id *id, struct bw_error *err) {
    struct bwi_sweep_work *w = s->w;
    const enum bwi_fate fate = bwi_policy_fate(&w->head.entry, id);
    if ((fate != BWI_FATE_DEAD && fate != BWI_FATE_AHEAD) || is_busy(s, id)) return NULL;
    /* names come sorted, so the same one is mostly near the end */
    for (size_t i = w->count; i > 0; i--)
        if (bwi_id_eq(&w->list[i - 1].id, id)) return &w->list[i - 1];
    void *grown = w->list;
    const bool ok = bwi_vec_reserve(&grown, &w->cap, w->count + 1, sizeof *w->list);
    w->list = grown;
    if (!ok) {
        (void)bwi_error_nomem(err, sizeof *w->list, "a listing");
        return NULL;
    }
    w->list[w->count] = (struct bwi_swept){.id = *id, .dead = fate == BWI_FATE_DEAD};
    return &w->list[w->count++];
}

static enum bwi_step listed(struct bwi_sweep *s) {
    struct bwi_sweep_work *w = s->w;
    const struct bwi_store_op *op = &w->calls[0].op;
    if (w->sync.op.error.status < 0) return bwi_sweep_fail(s, &w->sync.op.error);
    if (op->error.status < 0) return bwi_sweep_fail(s, &op->error);
    if (w->calls[1].op.error.status < 0) return bwi_sweep_fail(s, &w->calls[1].op.error);
    for (size_t i = 0; i < op->names.len && s->task.error.status == 0; i++) {
        struct bwi_id id;
        struct bwi_swept *c = bwi_names_id(&op->names, i, &id) ? add(s, &id, &s->task.error) : NULL;
        if (c != NULL) c->in_checkpoints = true;
    }
    if (s->task.error.status < 0) return bwi_sweep_go(s, BWI_SWEEP_END);
    bwi_window_begin(&w->window);
    return bwi_sweep_go(s, BWI_SWEEP_DATA);
}

static bool fan_out_of(const struct bwi_sweep *s, size_t i, uint64_t *ret_ff) {
    const char *name = s->w->calls[1].op.names.name[i];
    return strlen(name) == 3 && name[2] == '/' && bwi_hex_u64(name, 2, ret_ff);
}

static bool send_data(void *user, size_t i, struct bwi_call *call) {
    struct bwi_sweep *s = user;
    uint64_t ff;
    char key[sizeof(struct bwi_key) + 8];
    if (!fan_out_of(s, i, &ff)) return false;
    (void)bwi_format(key, sizeof key, "%s%02" PRIx64 "/", bwi_key_data(s->ctx->run).s, ff);
    bwi_call_list(call, &s->task, bwi_sweep_store(s), key, NULL);
    return true;
}

static void take_data(void *user, size_t i, struct bwi_store_op *op, struct bw_error *err) {
    struct bwi_sweep *s = user;
    uint64_t ff = 0;
    (void)bwi_error_copy(err, &op->error);
    if (!fan_out_of(s, i, &ff)) return;
    for (size_t n = 0; n < op->names.len && err->status == 0; n++) {
        struct bwi_id id;
        struct bwi_swept *c = bwi_names_id(&op->names, n, &id) ? add(s, &id, err) : NULL;
        if (c != NULL) c->ff[ff / 64] |= UINT64_C(1) << (ff % 64);
    }
}

static enum bwi_step read_data(struct bwi_sweep *s) {
    static const struct bwi_window_ops ops = {send_data, take_data};
    struct bwi_sweep_work *w = s->w;
    const int rc = bwi_window_run(&w->window, w->calls[1].op.names.len, &ops, s, &s->task.error);
    if (rc == 0) return BWI_STEP_WAIT;
    return bwi_sweep_go(s, rc < 0 ? BWI_SWEEP_END : BWI_SWEEP_LOG);
}

/* ---- since when: the log, from its end back to the first entry that is older than the grace ---- */

static int64_t cutoff_of(const struct bwi_sweep *s) {
    const int64_t now = s->ctx->env->unix_ms(s->ctx->env);
    int64_t cutoff = INT64_MIN;
    if (s->ctx->grace_ms > INT64_MAX || __builtin_sub_overflow(now, (int64_t)s->ctx->grace_ms, &cutoff)) {
        return INT64_MIN;
    }
    return cutoff;
}

/* Whether it matters since when anything is dead. */
static bool needs_times(const struct bwi_sweep *s) {
    bool any = false;
    for (size_t i = 0; i < s->w->count; i++) any = any || s->w->list[i].dead;
    return any && s->ctx->grace_ms > 0;
}

/* The authority's sweep lists it in any case: nobody else takes old temporaries away there. */
static enum bwi_step list_log(struct bwi_sweep *s) {
    if (s->tier != BWI_TIER_REMOTE && !needs_times(s)) return bwi_sweep_go(s, BWI_SWEEP_NEXT);
    const struct bwi_key history = bwi_key_history(s->ctx->run);
    s->w->cutoff_ms = cutoff_of(s);
    bwi_call_prepare(&s->w->calls[0], BWI_STORE_LIST, history.s);
    s->w->calls[0].op.tidy = !s->dry_run;
    bwi_call_submit(&s->w->calls[0], &s->task, authority(s));
    return wait_in(s, BWI_SWEEP_LOG_LISTED);
}

static enum bwi_step log_listed(struct bwi_sweep *s) {
    struct bwi_sweep_work *w = s->w;
    const struct bwi_store_op *op = &w->calls[0].op;
    if (op->error.status < 0) return bwi_sweep_fail(s, &op->error);
    if (!needs_times(s)) return bwi_sweep_go(s, BWI_SWEEP_NEXT);
    w->log_count = op->names.len;
    w->log = bwi_calloc(w->log_count + 1, sizeof *w->log);
    if (w->log == NULL) {
        w->log_count = 0;
        (void)bwi_error_nomem(&s->task.error, op->names.len * sizeof *w->log, "the log");
        return bwi_sweep_go(s, BWI_SWEEP_END);
    }
    w->log_want = 0;
    bwi_window_begin(&w->window);
    return bwi_sweep_go(s, BWI_SWEEP_LOG_READ);
}

static bool send_entry(void *user, size_t i, struct bwi_call *call) {
    struct bwi_sweep *s = user;
    const struct bwi_store_names *names = &s->w->calls[0].op.names;
    uint32_t era;
    uint64_t n;
    if (!bwi_head_name(names, names->len - 1 - i, &era, &n)) return false;
    const struct bwi_key key = bwi_key_entry(s->ctx->run, era, n);
    bwi_call_get(call, &s->task, authority(s), key.s, BWI_ENTRY_BYTES_MAX);
    return true;
}

/* One that is damaged or has been trimmed meanwhile tells no time: the next newer one does, and that keeps longer. */
static void take_entry(void *user, size_t i, struct bwi_store_op *op, struct bw_error *err) {
    struct bwi_sweep *s = user;
    struct bwi_sweep_work *w = s->w;
    const int rc = op->error.status;
    if (rc == BW_E_NOTFOUND || rc == BW_E_CORRUPT || rc == BW_E_FORMAT) return;
    if (bwi_error_copy(err, &op->error) < 0) return;
    struct bw_error e = BW_ERROR_INIT;
    if (bwi_entry_decode(bwi_buf_span(&op->body), &w->log[i], &e) < 0) {
        w->log[i] = (struct bwi_entry){0};
        if (e.status == BW_E_NOMEM) (void)bwi_error_copy(err, &e);
        return;
    }
    if (w->log[i].time_ms <= w->cutoff_ms) w->log_ends = true;
}

/* Oldest first, and without the gaps. */
static void turn_log(struct bwi_sweep_work *w) {
    size_t kept = 0;
    for (size_t i = 0; i < w->log_count; i++) {
        const struct bwi_entry e = w->log[i];
        if (e.run[0] == '\0') continue;
        w->log[i] = (struct bwi_entry){0};
        w->log[kept++] = e;
    }
    w->log_count = kept;
    for (size_t i = 0; i < kept / 2; i++) {
        const struct bwi_entry e = w->log[i];
        w->log[i] = w->log[kept - 1 - i];
        w->log[kept - 1 - i] = e;
    }
}

static void free_log(struct bwi_sweep_work *w) {
    for (size_t i = 0; i < w->log_count; i++) bwi_entry_fini(&w->log[i]);
    bwi_free(w->log);
    w->log = NULL;
    w->log_count = 0;
}

static enum bwi_step read_log(struct bwi_sweep *s) {
    static const struct bwi_window_ops ops = {send_entry, take_entry};
    struct bwi_sweep_work *w = s->w;
    const int rc = bwi_window_run(&w->window, w->log_want, &ops, s, &s->task.error);
    if (rc == 0) return BWI_STEP_WAIT;
    if (rc > 0 && !w->log_ends && w->log_want < w->log_count) {
        w->log_want += BWI_WINDOW_SLOTS;
        if (w->log_want > w->log_count) w->log_want = w->log_count;
        return BWI_STEP_AGAIN;
    }
    if (rc > 0) {
        turn_log(w);
        for (size_t i = 0; i < w->count; i++)
            if (w->list[i].dead)
                w->list[i].dead = bwi_policy_dead_since(w->log, w->log_count, &w->list[i].id) <= w->cutoff_ms;
    }
    free_log(w);
    return bwi_sweep_go(s, rc < 0 ? BWI_SWEEP_END : BWI_SWEEP_NEXT);
}

enum bwi_step bwi_sweep_find(struct bwi_sweep *s) {
    switch (s->state) {
    case BWI_SWEEP_HEAD: return have_head(s);
    case BWI_SWEEP_LIST: return list(s);
    case BWI_SWEEP_LISTED: return listed(s);
    case BWI_SWEEP_DATA: return read_data(s);
    case BWI_SWEEP_LOG: return list_log(s);
    case BWI_SWEEP_LOG_LISTED: return log_listed(s);
    default: break;
    }
    return read_log(s);
}
