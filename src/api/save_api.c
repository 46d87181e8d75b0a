/* SPDX-License-Identifier: Apache-2.0 */
/* bw_save_*: the public side of a save. */
#include <breakwater/save.h>
#include <string.h>

#include "api/background.h"
#include "base/error.h"
#include "base/text.h"
#include "base/vec.h"

/* Cancelling and releasing wait until the caller's memory is not read any more: a buffer's copy, at most. */
#define CAPTURE_PATIENCE_MS 600000u

struct begin {
    uint64_t step;
    bool force; /* skip: for a step that will not come */
    struct bwi_save *inner;
    struct bw_save *outer;
    struct bw_error error;
    bool busy;
};

static void try_begin(struct bw_checkpointer *ck, struct bwi_command *c) {
    struct begin *b = c->arg;
    if (bwi_session_may_begin(ck->session, b->step, &b->error) < 0) return;
    b->busy = bwi_session_places(ck->session) >= ck->options.saves_in_flight_max;
    if (b->busy && !b->force) return;
    if (b->force) {
        bwi_session_skip(ck->session, b->step);
        return;
    }
    if (bwi_session_begin(ck->session, b->step, &b->inner, &b->error) < 0) return;
    b->outer->inner = b->inner;
    bwi_id_text(&b->inner->id, b->inner->stats.id);
    b->inner->stats.step = b->step;
    bwi_format(b->inner->stats.capture_mode, sizeof b->inner->stats.capture_mode, "copy"); /* until it is known */
}

/* Waits until fewer saves are in flight. */
static int wait_turn(struct bw_checkpointer *ck, uint64_t step, uint64_t deadline, struct bw_error *err) {
    bwi_engine_lock(ck);
    bool free_place = false;
    do {
        free_place = ck->shared.places < ck->options.saves_in_flight_max;
    } while (!free_place && bwi_engine_wait(ck, deadline));
    bwi_engine_unlock(ck);
    if (free_place) return 0;
    return bwi_error_set(err, BW_E_BUSY,
                         "save step %llu: as many saves as allowed (%u) were in flight until the deadline",
                         (unsigned long long)step, ck->options.saves_in_flight_max);
}

/* Whatever the policy: the step will not come from this rank, and the others must not wait for it. */
static int give_up_step(struct bw_checkpointer *ck, struct begin *b, const struct bw_error *busy,
                        struct bw_error *err) {
    b->force = true;
    bwi_engine_run(ck, try_begin, b);
    const struct bw_error *e = b->error.status < 0 ? &b->error : busy;
    bwi_error_copy(err, e);
    return e->status;
}

static int busy_by_policy(struct bw_checkpointer *ck, struct begin *b, struct bw_error *err) {
    struct bw_error busy = BW_ERROR_INIT;
    const bool skip = ck->options.on_busy == BW_BUSY_SKIP;
    bwi_error_set(&busy, skip ? BW_E_SKIPPED : BW_E_BUSY,
                  "save step %llu: %sas many saves as allowed (%u) are in flight", (unsigned long long)b->step,
                  skip ? "skipped, " : "", ck->options.saves_in_flight_max);
    return give_up_step(ck, b, &busy, err);
}

static int begin_when_free(struct bw_checkpointer *ck, struct begin *b, struct bw_error *err) {
    uint64_t deadline = bwi_deadline_ns(ck->options.busy_timeout_ms);
    for (;;) {
        bwi_engine_run(ck, try_begin, b);
        if (b->error.status < 0) {
            bwi_error_copy(err, &b->error);
            return b->error.status;
        }
        if (!b->busy) return 0;
        if (ck->options.on_busy != BW_BUSY_WAIT) return busy_by_policy(ck, b, err);
        struct bw_error late = BW_ERROR_INIT;
        if (wait_turn(ck, b->step, deadline, &late) < 0) return give_up_step(ck, b, &late, err);
    }
}

int bw_save_begin(struct bw_checkpointer *ck, uint64_t step, struct bw_save **ret_save, struct bw_error *err) {
    bw_error_clear(err);
    if (!ck || !ret_save) return bwi_error_set(err, BW_E_INVALID, "%s is null", ck ? "ret_save" : "ck");
    if (bwi_host_check(&ck->host, err) < 0) return BW_E_STATE;
    struct begin b = {.step = step, .outer = bwi_calloc(1, sizeof *b.outer)};
    if (!b.outer) return bwi_error_nomem(err, sizeof *b.outer, "save");
    int rc = begin_when_free(ck, &b, err);
    if (rc < 0) {
        bwi_free(b.outer);
        return rc;
    }
    b.outer->ck = ck;
    bwi_engine_lock(ck);
    b.outer->next = ck->shared.saves;
    ck->shared.saves = b.outer;
    bwi_engine_unlock(ck);
    *ret_save = b.outer;
    return 0;
}

/* --- describing ---------------------------------------------------------------------------------------------- */

/* What every function about a save asks first: BW_E_INVALID, BW_E_STATE. */
static int check_save(const struct bw_save *save, struct bw_error *err) {
    bw_error_clear(err);
    return save ? bwi_host_check(&save->ck->host, err) : bwi_error_set(err, BW_E_INVALID, "save is null");
}

/* The description belongs to the caller's thread until start; the lock serialises callers among each other. */
static int may_describe(struct bw_save *v, struct bw_error *err) {
    if (v->started)
        return bwi_error_set(err, BW_E_STATE, "save step %llu was started already", (unsigned long long)v->inner->step);
    return 0;
}

int bw_save_tensor(struct bw_save *save, const struct bw_tensor *tensor, struct bw_error *err) {
    int rc = check_save(save, err);
    if (rc == 0 && !tensor) rc = bwi_error_set(err, BW_E_INVALID, "tensor is null");
    if (rc < 0) return rc;
    bwi_engine_lock(save->ck);
    rc = may_describe(save, err);
    if (rc == 0) rc = bwi_description_tensor(&save->inner->description, tensor, err);
    bwi_engine_unlock(save->ck);
    return rc;
}

int bw_save_blob(struct bw_save *save, const char *name, const void *bytes, size_t n, struct bw_error *err) {
    int rc = check_save(save, err);
    if (rc < 0) return rc;
    bwi_engine_lock(save->ck);
    rc = may_describe(save, err);
    if (rc == 0) rc = bwi_description_blob(&save->inner->description, name, bytes, n, err);
    bwi_engine_unlock(save->ck);
    return rc;
}

int bw_save_metadata(struct bw_save *save, const char *json, struct bw_error *err) {
    int rc = check_save(save, err);
    if (rc < 0) return rc;
    bwi_engine_lock(save->ck);
    rc = may_describe(save, err);
    if (rc == 0) rc = bwi_description_metadata(&save->inner->description, json, err);
    bwi_engine_unlock(save->ck);
    return rc;
}

/* --- running ------------------------------------------------------------------------------------------------- */

struct start {
    struct bw_save *save;
    struct bw_error error;
};

static void start_inner(struct bw_checkpointer *ck, struct bwi_command *c) {
    struct start *s = c->arg;
    (void)ck;
    bwi_session_start(s->save->inner, &s->error);
}

int bw_save_start(struct bw_save *save, struct bw_error *err) {
    struct start s = {save, BW_ERROR_INIT};
    int rc = check_save(save, err);
    if (rc < 0) return rc;
    bwi_engine_lock(save->ck);
    rc = may_describe(save, err);
    save->started = true;
    bwi_engine_unlock(save->ck);
    if (rc < 0) return rc;
    bwi_engine_run(save->ck, start_inner, &s);
    bwi_error_copy(err, &s.error);
    return s.error.status;
}

int bw_save_wait(struct bw_save *save, enum bw_level level, uint64_t timeout_ms, struct bw_error *err) {
    int rc = check_save(save, err);
    if (rc < 0) return rc;
    if (level < BW_LEVEL_NONE || level > BW_COMMITTED)
        return bwi_error_set(err, BW_E_INVALID, "level is %d: expected 0 .. 4", (int)level);
    uint64_t deadline = bwi_deadline_ns(timeout_ms);
    bwi_engine_lock(save->ck);
    if (!save->started && level > BW_LEVEL_NONE) rc = bwi_error_set(err, BW_E_STATE, "the save was not started");
    bool in_time = true;
    while (rc == 0 && save->level < level && !save->ended && in_time) in_time = bwi_engine_wait(save->ck, deadline);
    if (rc == 0 && save->level < level) {
        if (save->ended && save->error.status < 0) {
            rc = bwi_error_copy(err, &save->error);
            save->reported = true;
        } else {
            rc = bwi_error_set(err, BW_E_TIMEOUT, "save %s is %s, not yet %s%s%s; it goes on", save->stats.id,
                               bw_level_name((int)save->level), bw_level_name((int)level),
                               save->held_up[0] ? ", and " : "", save->held_up);
        }
    }
    bwi_engine_unlock(save->ck);
    return rc;
}

int bw_save_wait_writable(struct bw_save *save, uint64_t timeout_ms, struct bw_error *err) {
    int rc = check_save(save, err);
    if (rc < 0) return rc;
    uint64_t deadline = bwi_deadline_ns(timeout_ms);
    bwi_engine_lock(save->ck);
    if (!save->started) rc = bwi_error_set(err, BW_E_STATE, "the save was not started");
    bool in_time = true;
    while (rc == 0 && !save->writable && !save->ended && in_time) in_time = bwi_engine_wait(save->ck, deadline);
    if (rc == 0 && save->ended && save->error.status < 0) {
        rc = bwi_error_copy(err, &save->error);
        save->reported = true;
    } else if (rc == 0 && !save->writable) {
        rc = bwi_error_set(err, BW_E_TIMEOUT, "save %s: its tensors may not be written yet%s%s; it goes on",
                           save->stats.id, save->held_up[0] ? ", and " : "", save->held_up);
    }
    bwi_engine_unlock(save->ck);
    return rc;
}

enum bw_level bw_save_level(struct bw_save *save) {
    if (!save || !bwi_host_is_here(&save->ck->host)) return BW_LEVEL_NONE;
    bwi_engine_lock(save->ck);
    enum bw_level level = save->level;
    bwi_engine_unlock(save->ck);
    return level;
}

int bw_save_error(struct bw_save *save, struct bw_error *err) {
    if (!save || !bwi_host_is_here(&save->ck->host)) return check_save(save, err);
    bwi_engine_lock(save->ck);
    int rc = save->ended ? save->error.status : 0;
    if (rc < 0) {
        if (err) *err = save->error;
        save->reported = true;
    }
    bwi_engine_unlock(save->ck);
    return rc;
}

void bw_save_stats(struct bw_save *save, struct bw_save_stats *ret_stats) {
    if (!save || !ret_stats || !bwi_host_is_here(&save->ck->host)) return;
    bwi_engine_lock(save->ck);
    *ret_stats = save->stats;
    bwi_engine_unlock(save->ck);
}

static void cancel_inner(struct bw_checkpointer *ck, struct bwi_command *c) {
    struct bw_save *v = c->arg;
    (void)ck;
    bwi_session_cancel(v->inner);
}

/* With the lock held. */
static bool wait_captured(struct bw_save *v) {
    uint64_t deadline = bwi_deadline_ns(CAPTURE_PATIENCE_MS);
    bool in_time = true;
    while (!v->captured && !v->ended && in_time) in_time = bwi_engine_wait(v->ck, deadline);
    return v->captured || v->ended;
}

int bw_save_cancel(struct bw_save *save, struct bw_error *err) {
    int rc = check_save(save, err);
    if (rc < 0) return rc;
    bwi_engine_run(save->ck, cancel_inner, save);
    bwi_engine_lock(save->ck);
    save->started = true;
    save->reported = true;
    rc = wait_captured(save)
             ? 0
             : bwi_error_set(err, BW_E_TIMEOUT, "the capture does not come to its end: the memory is still read");
    bwi_engine_unlock(save->ck);
    return rc;
}

static void release_inner(struct bw_checkpointer *ck, struct bwi_command *c) {
    struct bw_save *v = c->arg;
    bwi_engine_lock(ck);
    if (v->ended && v->error.status < 0 && !v->reported) bwi_error_copy(&ck->shared.unheard, &v->error);
    struct bw_save **at = &ck->shared.saves;
    while (*at && *at != v) at = &(*at)->next;
    if (*at) *at = v->next;
    bwi_engine_unlock(ck);
    v->inner->reported = v->inner->reported || v->reported;
    bwi_session_release(v->inner);
}

void bw_save_release(struct bw_save *save) {
    if (!save || !bwi_host_is_here(&save->ck->host)) return;
    bwi_engine_lock(save->ck);
    if (save->started) wait_captured(save);
    bwi_engine_unlock(save->ck);
    bwi_engine_run(save->ck, release_inner, save);
    bwi_free(save);
}
