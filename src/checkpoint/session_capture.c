/* SPDX-License-Identifier: Apache-2.0 */
/* How a save gets hold of the caller's memory. Where it is write-protected that comes before all else, planning
 * included, because it is all that training waits for. doc/flows/capture.md. */
#include "base/checked.h"
#include "base/error.h"
#include "base/text.h"
#include "checkpoint/session_private.h"

void bwi_save_recall(struct bwi_save *v) {
    struct bwi_session *s = v->session;
    v->description = s->known;
    v->plan = s->known_plan;
    bwi_description_init(&s->known);
    s->known_plan = (struct bwi_plan){0};
}

void bwi_save_remember(struct bwi_save *v) {
    struct bwi_session *s = v->session;
    bwi_plan_fini(&s->known_plan);
    bwi_description_fini(&s->known);
    s->known_plan = v->plan;
    s->known = v->description;
    bwi_description_reset(&s->known);
}

int bwi_save_plan(struct bwi_save *v, struct bw_error *err) {
    const struct bwi_session_config *c = &v->session->cfg;
    if (bwi_plan_fits(&v->plan, &v->description)) {
        bwi_plan_renew(&v->plan, &v->description);
        return 0;
    }
    bwi_plan_fini(&v->plan);
    return bwi_plan_make(&v->description, c->rank, c->extent_bytes, c->pack_bytes, &v->plan, err);
}

void bwi_save_planned(struct bwi_save *v) {
    v->planned = true;
    v->stats.raw_bytes = v->plan.raw_bytes;
}

/* --- freezing ------------------------------------------------------------------------------------------------ */

/* On a worker. */
static void plan(struct bwi_io_req *r) {
    struct bwi_save *v = r->user;
    r->result = bwi_save_plan(v, &v->plan_error);
}

static void planned(struct bwi_io_req *r) {
    struct bwi_save *v = r->user;
    if (r->result == 0)
        bwi_save_planned(v);
    else
        bwi_error_stage(&v->plan_error, BW_STAGE_PLAN);
    v->is_planning = false;
    bwi_task_wake(&v->task);
}

static void start_planning(struct bwi_save *v) {
    v->is_planning = true;
    v->planning = (struct bwi_io_req){.kind = BWI_IO_CALL, .call = plan, .done = planned, .user = v};
    bwi_loop_call(v->task.loop, &v->planning);
}

static void note_capture(struct bwi_save *v) {
    const struct bwi_cow *c = &v->cow;
    struct bw_save_stats *t = &v->stats;
    t->copied_bytes = c->ran ? c->copied_bytes : 0;
    t->writes_caught = c->ran ? c->stats.faults : 0;
    t->writes_waited = c->ran ? c->stats.waits : 0;
    t->write_wait_max_ns = c->ran ? c->stats.wait_max_ns : 0;
    t->protect_ns = c->ran ? c->protect_ns : 0;
    bwi_format(t->capture_mode, sizeof t->capture_mode, "%s", c->ran ? "cow" : "copy");
    bwi_format(t->capture_why, sizeof t->capture_why, "%s", c->why_not);
}

static uint64_t since_start_ns(const struct bwi_save *v) {
    return bwi_max_u64(bwi_loop_now_ns(v->session->ctx->loop) - v->start_ns, 1);
}

bool bwi_save_freeze(struct bwi_save *v) {
    if (v->cow.ctx == NULL) {
        v->cow.ctx = v->session->ctx;
        v->cow.description = &v->description;
        v->cow.must_copy = !bwi_save_is_next(v);
        bwi_cow_start(&v->cow, &v->task);
    }
    if (v->cow.task.running) return false;
    if (v->planning.call == NULL) {
        v->writable = v->cow.frozen;
        if (v->writable) v->stats.stall_ns = since_start_ns(v);
        note_capture(v);
        start_planning(v);
    }
    return !v->is_planning;
}

/* --- captured ------------------------------------------------------------------------------------------------ */

void bwi_save_watch_capture(struct bwi_save *v) {
    if (v->captured || !v->write.captured || v->write.task.error.status < 0) return;
    v->captured = true;
    v->stats.arena_wait_ns = v->write.arena_wait_ns;
    note_capture(v);
    bwi_session_level(v, BW_CAPTURED);
    if (!v->cow.ran) v->stats.stall_ns = v->stats.capture_ns;
}
