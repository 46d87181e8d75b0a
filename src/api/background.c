/* SPDX-License-Identifier: Apache-2.0 */
/* The checkpointer's thread. */
#include "api/background.h"

#include <string.h>

#include "base/error.h"
#include "base/text.h"
#include "base/vec.h"

/* The thread looks around at least this often, so that nothing waits for a lost wake-up. */
#define TURN_MAX_NS (200 * BWI_NS_PER_MS)

uint64_t bwi_deadline_ns(uint64_t timeout_ms) {
    struct bwi_env *env = bwi_env_system();
    uint64_t now = env->now_ns(env);
    return timeout_ms > (BWI_NEVER - 1 - now) / BWI_NS_PER_MS ? BWI_NEVER - 1 : now + timeout_ms * BWI_NS_PER_MS;
}

void bwi_engine_lock(struct bw_checkpointer *ck) {
    bwi_mutex_lock(&ck->shared.mutex);
}
void bwi_engine_unlock(struct bw_checkpointer *ck) {
    bwi_mutex_unlock(&ck->shared.mutex);
}

bool bwi_engine_wait(struct bw_checkpointer *ck, uint64_t deadline_ns) {
    return bwi_cond_wait(&ck->shared.cond, &ck->shared.mutex, deadline_ns);
}

void bwi_engine_run(struct bw_checkpointer *ck, void (*run)(struct bw_checkpointer *, struct bwi_command *),
                    void *arg) {
    struct bwi_command c = {.run = run, .arg = arg};
    bwi_engine_lock(ck);
    *ck->shared.last = &c;
    ck->shared.last = &c.next;
    bwi_io_wake(ck->host.io);
    while (!c.done) bwi_engine_wait(ck, BWI_NEVER);
    bwi_engine_unlock(ck);
}

bool bwi_engine_watch(struct bw_checkpointer *ck, struct bwi_task *task, uint64_t deadline_ns) {
    struct bwi_watch w = {.task = task};
    bwi_engine_lock(ck);
    w.next = ck->shared.watches;
    ck->shared.watches = &w;
    bwi_io_wake(ck->host.io);
    while (!w.done && bwi_engine_wait(ck, deadline_ns)) {
    }
    bool done = w.done;
    struct bwi_watch **at = &ck->shared.watches;
    while (*at && *at != &w) at = &(*at)->next;
    if (*at) *at = w.next;
    bwi_engine_unlock(ck);
    return done;
}

/* --- publishing ---------------------------------------------------------------------------------------------- */

static void publish_save(struct bw_save *v) {
    const struct bwi_save *in = v->inner;
    if (!in) return;
    v->level = in->level;
    v->captured = in->captured;
    v->writable = in->writable || in->captured;
    v->stats = in->stats;
    v->stats.tiers = in->tiers;
    bwi_format(v->held_up, sizeof v->held_up, "%s", in->held_up);
    if (in->state != BWI_SAVE_ENDED) return;
    v->ended = true;
    if (!in->committed) v->error = in->error;
    if (in->reported) v->reported = true;
}

/* Called by the session from within its steps, on the loop's thread. */
static void take_event(void *user, const struct bw_event *e) {
    struct bw_checkpointer *ck = user;
    bwi_engine_lock(ck);
    /* Whoever takes the event and asks the handle must not be told of the time before it. */
    for (struct bw_save *v = ck->shared.saves; v; v = v->next) publish_save(v);
    uint32_t at = (ck->shared.event_at + ck->shared.event_count) % BWI_EVENTS_MAX;
    if (ck->shared.event_count == BWI_EVENTS_MAX) {
        ck->shared.event_at = (ck->shared.event_at + 1) % BWI_EVENTS_MAX;
        ck->shared.event_lost++;
    } else {
        ck->shared.event_count++;
    }
    ck->shared.events[at] = *e;
    bwi_eventfd_signal(ck->event_fd);
    bwi_engine_unlock(ck);
}

static uint64_t calls_of(const struct bwi_store *s) {
    uint64_t calls = 0;
    for (int k = 0; k <= BWI_STORE_SPACE; k++) calls += s->ops[k];
    return calls;
}

static void publish_stats(struct bw_checkpointer *ck) {
    const struct bwi_context *x = &ck->host.ctx;
    struct bw_checkpointer_stats *t = &ck->shared.stats;
    *t = ck->session->stats;
    if (x->tier[BWI_TIER_LOCAL]) {
        t->local_store_calls = calls_of(x->tier[BWI_TIER_LOCAL]);
        t->local_bytes_written = x->tier[BWI_TIER_LOCAL]->bytes_in;
    }
    t->remote_store_calls = calls_of(x->tier[BWI_TIER_REMOTE]);
    t->remote_bytes_written = x->tier[BWI_TIER_REMOTE]->bytes_in;
    t->remote_bytes_read = x->tier[BWI_TIER_REMOTE]->bytes_out;
    t->memory_budget_bytes = bwi_arena_budget(ck->host.arena);
    t->memory_peak_bytes = bwi_arena_peak(ck->host.arena);
    bwi_format(t->io_backend, sizeof t->io_backend, "%s", bwi_io_backend(ck->host.io));
    t->capture_threads = bwi_io_urgent_threads(ck->host.io);
    bwi_io_lacks(ck->host.io, t->io_lacks, sizeof t->io_lacks);
}

/* With the lock held. */
static void publish(struct bw_checkpointer *ck) {
    for (struct bw_save *v = ck->shared.saves; v; v = v->next) publish_save(v);
    for (struct bwi_watch *w = ck->shared.watches; w; w = w->next) w->done = w->done || !w->task->running;
    ck->shared.unheard_inside = ck->session->unheard;
    ck->shared.drained = bwi_session_drained(ck->session);
    ck->shared.in_flight = bwi_session_in_flight(ck->session);
    ck->shared.places = bwi_session_places(ck->session);
    ck->shared.idle = bwi_session_idle(ck->session) && bwi_loop_tasks(ck->host.loop) == 0;
    publish_stats(ck);
    bwi_cond_broadcast(&ck->shared.cond);
}

/* --- the thread ---------------------------------------------------------------------------------------------- */

static bool run_commands(struct bw_checkpointer *ck) {
    bwi_engine_lock(ck);
    struct bwi_command *c = ck->shared.first;
    ck->shared.first = NULL;
    ck->shared.last = &ck->shared.first;
    bwi_engine_unlock(ck);
    bool any = c != NULL;
    while (c) {
        struct bwi_command *next = c->next; /* c is gone once it is done */
        c->run(ck, c);
        bwi_engine_lock(ck);
        c->done = true;
        publish(ck);
        bwi_engine_unlock(ck);
        c = next;
    }
    return any;
}

/* Everything that only the loop's thread uses once the handle is given up. */
static void free_inside(struct bw_checkpointer *ck) {
    bwi_session_free(ck->session);
    ck->session = NULL;
    bwi_host_close(&ck->host);
    bwi_eventfd_close(ck->event_fd);
}

static void engine_free(struct bw_checkpointer *ck) {
    free_inside(ck);
    while (ck->shared.saves) {
        struct bw_save *v = ck->shared.saves;
        ck->shared.saves = v->next;
        bwi_free(v);
    }
    if (ck->shared.ready) {
        bwi_cond_fini(&ck->shared.cond);
        bwi_mutex_fini(&ck->shared.mutex);
    }
    bwi_free(ck);
}

static void look(struct bw_checkpointer *ck) {
    bwi_engine_lock(ck);
    const bool asked = ck->shared.look;
    ck->shared.look = false;
    bwi_engine_unlock(ck);
    if (asked) bwi_session_look(ck->session);
}

static void *engine_main(void *arg) {
    struct bw_checkpointer *ck = arg;
    for (;;) {
        run_commands(ck);
        look(ck);
        uint64_t now = bwi_loop_now_ns(ck->host.loop);
        bwi_loop_turn(ck->host.loop, now + TURN_MAX_NS);
        bwi_engine_lock(ck);
        publish(ck);
        bool end = ck->shared.stop && bwi_loop_tasks(ck->host.loop) == 0 && !ck->shared.first;
        bool abandoned = ck->shared.abandoned;
        bwi_engine_unlock(ck);
        if (!end) continue;
        if (abandoned) free_inside(ck); /* the memory stays: whoever gave up may still be leaving its lock */
        return NULL;
    }
}

int bwi_engine_start(struct bw_checkpointer *ck, struct bw_error *err) {
    ck->shared.last = &ck->shared.first;
    ck->session->event = take_event;
    ck->session->user = ck;
    int rc = bwi_thread_start(&ck->thread, "bw-loop", engine_main, ck);
    return rc < 0 ? bwi_error_errno(err, rc, "start the background thread") : 0;
}

void bwi_engine_stop(struct bw_checkpointer *ck) {
    if (!ck->thread.started) {
        engine_free(ck);
        return;
    }
    bwi_engine_lock(ck);
    ck->shared.stop = true;
    bwi_io_wake(ck->host.io);
    /* What hangs in the kernel cannot be cancelled. It is not waited for longer than this; the thread frees all when it
     * comes back. */
    uint64_t patience = bwi_deadline_ns(10000);
    while (!ck->shared.idle && bwi_engine_wait(ck, patience)) {
    }
    bool hangs = !ck->shared.idle;
    ck->shared.abandoned = hangs;
    if (hangs) bwi_thread_detach(&ck->thread);
    bwi_engine_unlock(ck);
    if (hangs) return;
    bwi_thread_join(&ck->thread);
    engine_free(ck);
}
