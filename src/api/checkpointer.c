/* SPDX-License-Identifier: Apache-2.0 */
/* bw_checkpointer_*: checks arguments, and hands down. */
#include <breakwater/breakwater.h>
#include <string.h>

#include "api/background.h"
#include "base/checked.h"
#include "base/error.h"
#include "base/text.h"
#include "base/vec.h"

#define SAVES_IN_FLIGHT_MAX 16u
/* Beyond the deadline of a close: what may be waited for so that nothing of the caller's is touched any more. */
#define CLOSE_EXTRA_MS 30000u

#define TEXT_OF(n)      #n
#define DOTTED(a, b, c) TEXT_OF(a) "." TEXT_OF(b) "." TEXT_OF(c)

const char *bw_version(void) {
    return DOTTED(BW_VERSION_MAJOR, BW_VERSION_MINOR, BW_VERSION_PATCH);
}

/* --- options ------------------------------------------------------------------------------------------------- */

static int check_name(const char *option, const char *value, struct bw_error *err) {
    if (!value) return bwi_error_set(err, BW_E_INVALID, "option %s is missing", option);
    if (!bwi_name_valid(value))
        return bwi_error_set(err, BW_E_INVALID, "option %s is \"%.140s\": expected [A-Za-z0-9][A-Za-z0-9._-]{0,127}",
                             option, value);
    return 0;
}

static int check_range(const char *option, uint64_t value, uint64_t least, uint64_t most, struct bw_error *err) {
    if (value >= least && value <= most) return 0;
    return bwi_error_set(err, BW_E_INVALID, "option %s is %llu: expected %llu .. %llu", option,
                         (unsigned long long)value, (unsigned long long)least, (unsigned long long)most);
}

static int check_resume(const struct bw_options *o, struct bw_error *err) {
    if (o->resume == BW_RESUME_NEWEST) return 0;
    if (!o->label || !o->label[0])
        return bwi_error_set(err, BW_E_REFUSED,
                             "option resume asks for more than the newest checkpoint, which needs a label: a name for "
                             "this wish that works once");
    return check_name("label", o->label, err);
}

static int check_options(const struct bw_options *o, struct bw_error *err) {
    const uint32_t flags = BW_ALLOW_SAME_DEVICE | BW_ALLOW_NODE_LOCAL | BW_NO_RECYCLING;
    int rc = check_name("run", o->run, err);
    if (rc == 0) rc = check_name("job", o->job, err);
    if (rc == 0) rc = check_name("launch", o->launch, err);
    if (rc == 0) rc = check_range("world", o->world, 1, BWI_GROUPS_MAX, err);
    if (rc == 0) rc = check_range("rank", o->rank, 0, o->world - 1, err);
    if (rc == 0) rc = check_range("saves_in_flight_max", o->saves_in_flight_max, 1, SAVES_IN_FLIGHT_MAX, err);
    if (rc == 0) rc = check_range("on_busy", o->on_busy, 0, BW_BUSY_FAIL, err);
    if (rc == 0) rc = check_range("resume", o->resume, 0, BW_RESUME_TAKEOVER, err);
    if (rc == 0) rc = check_range("on_damage", o->on_damage, 0, BW_DAMAGE_FAIL, err);
    if (rc == 0) rc = check_range("capture", o->capture, 0, BW_CAPTURE_COW, err);
    if (rc == 0) rc = check_range("io_threads", o->io_threads, 0, 256, err);
    if (rc == 0) rc = check_range("capture_threads", o->capture_threads, 0, 256, err);
    if (rc == 0) rc = check_range("background_nice", o->background_nice, 0, 19, err);
    if (rc == 0) rc = check_range("local_io_depth", o->local_io_depth, 0, BWI_IO_DEPTH_MAX, err);
    if (rc == 0) rc = check_range("remote_io_depth", o->remote_io_depth, 0, BWI_IO_DEPTH_MAX, err);
    if (rc == 0) rc = check_range("resume_step", o->resume_step, 0, BW_STEP_MAX, err);
    if (rc == 0 && (o->flags & ~flags))
        rc = bwi_error_set(err, BW_E_INVALID, "option flags has unknown bits: %#x", o->flags & ~flags);
    if (rc == 0 && (o->retention.reserved || o->reserved))
        rc = bwi_error_set(err, BW_E_INVALID, "a reserved option is not 0");
    return rc == 0 ? check_resume(o, err) : rc;
}

/* Tiers that fail together, or that other nodes cannot see, are no tiers unless the caller says that this is meant. */
static int check_tiers(const struct bw_checkpointer *ck, struct bw_error *err) {
    const struct bwi_store *local = ck->host.ctx.tier[BWI_TIER_LOCAL], *remote = ck->host.ctx.tier[BWI_TIER_REMOTE];
    if (local && local->caps.device && local->caps.device == remote->caps.device &&
        !(ck->options.flags & BW_ALLOW_SAME_DEVICE))
        return bwi_error_set(err, BW_E_REFUSED,
                             "local tier \"%.120s\" and remote tier \"%.120s\" are on one device and fail together; "
                             "BW_ALLOW_SAME_DEVICE declares that this is meant",
                             local->url, remote->url);
    if (remote->caps.node_local && !(ck->options.flags & BW_ALLOW_NODE_LOCAL))
        return bwi_error_set(err, BW_E_REFUSED,
                             "remote tier \"%.200s\" is on a file system of this node, which is lost with it; "
                             "BW_ALLOW_NODE_LOCAL declares that this is meant",
                             remote->url);
    return 0;
}

static void fill_config(const struct bw_options *o, struct bwi_session_config *c) {
    static const enum bwi_register_mode mode[] = {BWI_REGISTER_DEFAULT, BWI_REGISTER_ROLLBACK, BWI_REGISTER_FRESH,
                                                  BWI_REGISTER_TAKEOVER};
    *c = (struct bwi_session_config){.rank = o->rank,
                                     .world = o->world,
                                     .mode = mode[o->resume],
                                     .resume_step = o->resume_step,
                                     .damage_fail = o->on_damage == BW_DAMAGE_FAIL,
                                     .flags = o->flags,
                                     .saves_in_flight_max = o->saves_in_flight_max,
                                     .open_deadline_ns = bwi_deadline_ns(o->open_timeout_ms),
                                     .local_quota_bytes = o->local_quota_bytes,
                                     .drain_bytes_per_s = o->drain_bytes_per_s,
                                     .cow = o->capture == BW_CAPTURE_COW,
                                     .probe = o->local_io_depth == 0,
                                     .retention = o->retention,
                                     .extent_bytes = BWI_EXTENT_BYTES,
                                     .pack_bytes = BWI_PLAN_PACK_BYTES};
    bwi_format(c->job, sizeof c->job, "%s", o->job);
    bwi_format(c->launch, sizeof c->launch, "%s", o->launch);
    bwi_format(c->label, sizeof c->label, "%s", o->label ? o->label : "");
}

/* --- open ---------------------------------------------------------------------------------------------------- */

/* The machine that opens ends at its own deadline; only a tier that hangs takes longer than that. Never 0. */
static uint64_t patience_ms(const struct bw_options *o) {
    uint64_t ms;
    return bwi_add_u64(o->open_timeout_ms, CLOSE_EXTRA_MS, &ms) ? ms : UINT64_MAX;
}

static int take_cpus(const char *list, struct bwi_cpus *ret, struct bw_error *err) {
    if (bwi_cpus_parse(list, ret) < 0)
        return bwi_error_set(err, BW_E_INVALID, "option cpus is \"%.100s\": expected a list of CPUs such as 0-3,8",
                             list);
    const int rc = bwi_cpus_check(ret);
    if (rc < 0) return bwi_error_errno(err, -rc, "option cpus: look which CPUs there are");
    if (rc == 0) return 0;
    return bwi_error_set(err, BW_E_INVALID, "option cpus is \"%.100s\": this process may not use CPU %d", list, rc - 1);
}

static int start_loop(struct bw_checkpointer *ck, struct bw_error *err) {
    struct bwi_cpus before;
    if (!ck->options.cpus) return bwi_engine_start(ck, err);
    int rc = bwi_cpus_enter(&ck->cpus, &before);
    if (rc < 0) return bwi_error_errno(err, -rc, "option cpus: run on them");
    rc = bwi_engine_start(ck, err);
    bwi_cpus_leave(&before);
    return rc;
}

static int make(const struct bw_options *o, struct bw_checkpointer *ck, struct bw_error *err) {
    struct bwi_host_options ho = {.run = o->run,
                                  .remote_url = o->remote_url,
                                  .local_url = o->local_url,
                                  .memory_budget_bytes = o->memory_budget_bytes,
                                  .io_threads = o->io_threads,
                                  .io_backend = o->io_backend,
                                  .capture_threads = o->capture_threads,
                                  .nice = o->background_nice,
                                  .cpus = o->cpus ? &ck->cpus : NULL,
                                  .cow = o->capture == BW_CAPTURE_COW,
                                  .cow_wait_ms = o->capture_wait_ms,
                                  .create = true,
                                  .touch = true};
    struct bwi_session_config cfg;
    int rc = o->cpus ? take_cpus(o->cpus, &ck->cpus, err) : 0;
    if (rc < 0) return rc;
    rc = bwi_mutex_init(&ck->shared.mutex);
    if (rc == 0 && (rc = bwi_cond_init(&ck->shared.cond)) < 0) bwi_mutex_fini(&ck->shared.mutex);
    if (rc < 0) return bwi_error_errno(err, rc, "make a lock");
    ck->shared.ready = true;
    ck->event_fd = bwi_eventfd_open();
    if (ck->event_fd < 0) return bwi_error_errno(err, ck->event_fd, "make an eventfd");
    rc = bwi_host_open_within(&ho, patience_ms(o), &ck->host, err);
    if (rc == 0) rc = check_tiers(ck, err);
    if (rc < 0) return rc;
    bwi_context_pace(&ck->host.ctx, o->rank, o->world);
    ck->host.ctx.io_depth[BWI_TIER_LOCAL] = o->local_io_depth;
    ck->host.ctx.io_depth[BWI_TIER_REMOTE] = o->remote_io_depth;
    fill_config(o, &cfg);
    rc = bwi_session_new(&ck->host.ctx, &cfg, &ck->session, err);
    return rc == 0 ? start_loop(ck, err) : rc;
}

static void start_open(struct bw_checkpointer *ck, struct bwi_command *c) {
    (void)c;
    ck->opening = bwi_session_open(ck->session, NULL);
}

struct opened {
    struct bw_error error;
};

static void finish_open(struct bw_checkpointer *ck, struct bwi_command *c) {
    struct opened *o = c->arg;
    const struct bwi_resume *m = &ck->session->resume;
    o->error = ck->opening->error;
    if (o->error.status < 0) return;
    ck->target = *m;
    ck->resumed = (struct bw_resumed){.from_checkpoint = m->from_checkpoint,
                                      .committed = m->committed,
                                      .step = m->id.step,
                                      .attempt = ck->session->attempt,
                                      .world = m->world};
    if (m->from_checkpoint) bwi_id_text(&m->id, ck->resumed.id);
    bwi_format(ck->resumed.reason, sizeof ck->resumed.reason, "%s", m->reason);
}

static void give_up(struct bw_checkpointer *ck, struct bwi_command *c) {
    (void)c;
    bwi_session_give_up(ck->session);
}

/* Two tiers with one identity are one tier. */
static int check_identity(const struct bw_checkpointer *ck, struct bw_error *err) {
    const struct bwi_context *x = &ck->host.ctx;
    if (!x->tier[BWI_TIER_LOCAL] || !bwi_uuid_eq(&x->store_id[BWI_TIER_LOCAL], &x->store_id[BWI_TIER_REMOTE])) return 0;
    return bwi_error_set(err, BW_E_INVALID,
                         "local tier \"%.120s\" and remote tier \"%.120s\" are the same store, or a copy of each other",
                         x->tier[BWI_TIER_LOCAL]->url, x->tier[BWI_TIER_REMOTE]->url);
}

static int run_open(struct bw_checkpointer *ck, struct bw_error *err) {
    struct opened o = {BW_ERROR_INIT};
    bwi_engine_run(ck, start_open, NULL);
    if (!bwi_engine_watch(ck, ck->opening, bwi_deadline_ns(patience_ms(&ck->options))))
        return bwi_error_set(err, BW_E_TIMEOUT, "open run \"%s\": a tier does not answer", ck->host.ctx.run);
    bwi_engine_run(ck, finish_open, &o);
    if (o.error.status == 0) check_identity(ck, &o.error);
    bwi_error_copy(err, &o.error);
    return o.error.status;
}

int bw_checkpointer_open(const struct bw_options *options, struct bw_checkpointer **ret_ck, struct bw_error *err) {
    struct bw_options o = BW_OPTIONS_INIT;
    bw_error_clear(err);
    if (!ret_ck) return bwi_error_set(err, BW_E_INVALID, "ret_ck is null");
    int rc =
        bwi_options_copy(&o, options,
                         BWI_OPTIONS_SIZES(offsetof(struct bw_options, retention), offsetof(struct bw_options, capture),
                                           offsetof(struct bw_options, background_nice),
                                           offsetof(struct bw_options, local_io_depth), sizeof o),
                         err);
    if (rc == 0) rc = check_options(&o, err);
    if (rc < 0) return rc;
    struct bw_checkpointer *ck = bwi_calloc(1, sizeof *ck);
    if (!ck) return bwi_error_nomem(err, sizeof *ck, "checkpointer");
    ck->options = o;
    ck->event_fd = -1;
    struct bw_error e = BW_ERROR_INIT;
    rc = make(&o, ck, &e);
    if (rc == 0) rc = run_open(ck, &e);
    if (rc < 0) {
        if (ck->thread.started) bwi_engine_run(ck, give_up, NULL);
        bwi_engine_stop(ck);
        bwi_error_stage(&e, BW_STAGE_OPEN);
        bwi_error_copy(err, &e);
        return e.status;
    }
    *ret_ck = ck;
    return 0;
}

void bw_checkpointer_resumed(struct bw_checkpointer *ck, struct bw_resumed *ret_info) {
    if (ck && ret_info) *ret_info = ck->resumed;
}

/* --- close --------------------------------------------------------------------------------------------------- */

static void begin_close(struct bw_checkpointer *ck, struct bwi_command *c) {
    (void)c;
    bwi_session_close(ck->session);
}

static void release_all(struct bw_checkpointer *ck, struct bwi_command *c) {
    (void)c;
    while (ck->session->saves) {
        struct bwi_save *v = ck->session->saves;
        if (v->state != BWI_SAVE_ENDED) break;
        bwi_session_release(v);
    }
    for (struct bw_save *v = ck->shared.saves; v; v = v->next) v->inner = NULL;
}

/* Waits until everything has been brought to its end. With the lock held. */
static void wait_drained(struct bw_checkpointer *ck, uint64_t deadline) {
    while (!ck->shared.drained && bwi_engine_wait(ck, deadline)) {
    }
}

/* Waits until no save is in flight, after those that were have been given up. With the lock held. */
static bool wait_ended(struct bw_checkpointer *ck, uint64_t deadline) {
    while (ck->shared.in_flight > 0 && bwi_engine_wait(ck, deadline)) {
    }
    return ck->shared.in_flight == 0;
}

static void first_unheard(struct bw_checkpointer *ck, struct bw_error *e) {
    bwi_error_copy(e, &ck->shared.unheard);
    bwi_error_copy(e, &ck->shared.unheard_inside);
    for (struct bw_save *v = ck->shared.saves; v; v = v->next)
        if (v->ended && v->error.status < 0 && !v->reported) bwi_error_copy(e, &v->error);
}

int bw_checkpointer_close(struct bw_checkpointer *ck, uint64_t timeout_ms, struct bw_error *err) {
    struct bw_error e = BW_ERROR_INIT;
    bw_error_clear(err);
    if (!ck) return 0;
    if (bwi_host_check(&ck->host, err) < 0) return BW_E_STATE;
    bwi_engine_lock(ck);
    uint32_t restores = ck->shared.restores;
    bwi_engine_unlock(ck);
    if (restores)
        return bwi_error_set(
            err, BW_E_STATE,
            "%u restore objects of this checkpointer are open: close them first; the checkpointer is still open",
            restores);
    uint64_t deadline = bwi_deadline_ns(timeout_ms);
    bwi_engine_run(ck, begin_close, NULL);
    bwi_engine_lock(ck);
    wait_drained(ck, deadline);
    bwi_engine_unlock(ck);
    bwi_engine_run(ck, give_up, NULL);
    bwi_engine_lock(ck);
    bool hangs = !wait_ended(ck, bwi_deadline_ns(CLOSE_EXTRA_MS));
    first_unheard(ck, &e);
    bwi_engine_unlock(ck);
    if (hangs) bwi_error_set(&e, BW_E_TIMEOUT, "a tier does not answer: what was in flight may or may not be complete");
    bwi_engine_run(ck, release_all, NULL);
    bwi_engine_stop(ck);
    bwi_error_copy(err, &e);
    return e.status;
}

/* --- events and counters ------------------------------------------------------------------------------------- */

int bw_checkpointer_fd(struct bw_checkpointer *ck) {
    return ck ? ck->event_fd : -1;
}

int bw_checkpointer_poll(struct bw_checkpointer *ck, struct bw_event *ret_event) {
    if (!ck || !ret_event || !bwi_host_is_here(&ck->host)) return 0;
    bwi_engine_lock(ck);
    bool any = ck->shared.event_count > 0;
    if (any) {
        *ret_event = ck->shared.events[ck->shared.event_at];
        ret_event->lost = ck->shared.event_lost;
        ck->shared.event_lost = 0;
        ck->shared.event_at = (ck->shared.event_at + 1) % BWI_EVENTS_MAX;
        ck->shared.event_count--;
    }
    if (ck->shared.event_count == 0) bwi_eventfd_drain(ck->event_fd);
    bwi_engine_unlock(ck);
    return any;
}

void bw_checkpointer_look(struct bw_checkpointer *ck) {
    if (!ck || !bwi_host_is_here(&ck->host)) return;
    bwi_engine_lock(ck);
    ck->shared.look = true;
    bwi_engine_unlock(ck);
    bwi_io_wake(ck->host.io);
}

void bw_checkpointer_stats(struct bw_checkpointer *ck, struct bw_checkpointer_stats *ret_stats) {
    if (!ck || !ret_stats || !bwi_host_is_here(&ck->host)) return;
    bwi_engine_lock(ck);
    *ret_stats = ck->shared.stats;
    bwi_engine_unlock(ck);
}
