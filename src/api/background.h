/* SPDX-License-Identifier: Apache-2.0 */
/* The outermost loop of a checkpointer: a thread that turns the loop, runs commands that other threads hand in, and
 * publishes what the session says.
 *
 * One mutex guards all that more than one thread sees (the struct `shared`). The loop's own world (host, session,
 * tasks) is touched by the loop's thread alone: callers hand in a command and wait until it has run. After each turn
 * the thread copies what callers may ask for into `shared` and wakes who waits. */
#ifndef BWI_API_BACKGROUND_H
#define BWI_API_BACKGROUND_H

#include "api/host.h"
#include "checkpoint/restore.h"
#include "checkpoint/session.h"
#include "os/thread.h"

#define BWI_EVENTS_MAX 256u

/* Runs on the loop's thread. */
struct bwi_command {
    void (*run)(struct bw_checkpointer *ck, struct bwi_command *c);
    void *arg;
    bool done;
    struct bwi_command *next;
};

/* Waits for a task of the loop from outside. */
struct bwi_watch {
    struct bwi_task *task;
    bool done;
    struct bwi_watch *next;
};

/* The public side of a save. */
struct bw_save {
    struct bw_checkpointer *ck;
    struct bwi_save *inner; /* the loop's; NULL once it is gone */
    struct bw_save *next;
    /* guarded by shared.mutex */
    enum bw_level level;
    bool ended, writable, captured, reported;
    struct bw_error error;
    struct bw_save_stats stats;
    char held_up[320]; /* as in struct bwi_save */
    bool started;
};

struct bw_checkpointer {
    /* immutable once open */
    struct bwi_host host;
    struct bwi_cpus cpus;      /* where the option names them */
    struct bw_options options; /* strings of it are not used any more */
    struct bwi_thread thread;
    int event_fd;
    struct bw_resumed resumed;
    struct bwi_resume target;
    /* the loop's thread */
    struct bwi_session *session;
    struct bwi_task *opening;
    /* guarded by the mutex */
    struct {
        struct bwi_mutex mutex;
        struct bwi_cond cond;
        bool ready; /* mutex and cond exist */
        struct bwi_command *first, **last;
        struct bwi_watch *watches;
        struct bw_save *saves;
        uint32_t in_flight;
        uint32_t places; /* taken: what the policy for one save too many counts */
        bool drained;    /* nothing is left that a close waits for */
        bool idle;       /* the session has nothing that runs */
        bool stop, abandoned;
        bool look; /* a caller has heard of something: the session is to look now */
        struct bw_event events[BWI_EVENTS_MAX];
        uint32_t event_at, event_count, event_lost;
        struct bw_checkpointer_stats stats;
        struct bw_error unheard; /* the first failure of a save whose handle is gone and that no call has reported */
        struct bw_error unheard_inside; /* the same, as the session keeps it */
        uint32_t restores;              /* open restore objects */
    } shared;
};

int bwi_engine_start(struct bw_checkpointer *ck, struct bw_error *err);
/* Stops the thread and frees everything, unless something still hangs in the kernel: then the thread does it once that
 * returns. */
void bwi_engine_stop(struct bw_checkpointer *ck);

void bwi_engine_lock(struct bw_checkpointer *ck);
void bwi_engine_unlock(struct bw_checkpointer *ck);
/* Waits for a change; false when deadline_ns (monotonic) has passed. With the lock held. */
bool bwi_engine_wait(struct bw_checkpointer *ck, uint64_t deadline_ns);
/* Runs a command on the loop's thread and waits for it. Without the lock. */
void bwi_engine_run(struct bw_checkpointer *ck, void (*run)(struct bw_checkpointer *, struct bwi_command *), void *arg);
/* Waits until a task that a command has started has ended; false at the deadline (the watch is taken back). Without the
 * lock. */
bool bwi_engine_watch(struct bw_checkpointer *ck, struct bwi_task *task, uint64_t deadline_ns);
/* now + timeout_ms, without overflow. */
uint64_t bwi_deadline_ns(uint64_t timeout_ms);

#endif
