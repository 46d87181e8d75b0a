/* SPDX-License-Identifier: Apache-2.0 */
/* The loop that drives step machines. It owns no thread: whoever calls bwi_loop_turn is the outermost loop (a thread of
 * api/, a command, a test that plays one interleaving after another).
 *
 * A task is a step machine. Its step function is called when something that it waits for has happened; it looks at its
 * own state, issues requests, and says whether it wants to be called again at once, waits, or has ended:
 *
 *     static enum bwi_step open_step(struct bwi_task *t) {
 *         struct open *o = bwi_container_of(t, struct open, task);
 *         switch (o->state) { ... }
 *     }
 *
 * Requests (store operations, buffers, children) call bwi_task_wake from their completion; a task may also set a time.
 * A step may be called without a cause ("spurious"), so it checks what it waits for. All of it on one thread; nothing
 * here locks. */
#ifndef BWI_IO_LOOP_H
#define BWI_IO_LOOP_H

#include "base/env.h"
#include <breakwater/error.h>
#include <stdbool.h>
#include <stddef.h>

#define bwi_container_of(ptr, type, member) ((type *)(void *)((char *)(ptr)-offsetof(type, member)))

enum bwi_step {
    BWI_STEP_AGAIN, /* call me again in this turn */
    BWI_STEP_WAIT,  /* call me when somebody wakes me or at my time */
    BWI_STEP_END,   /* I have ended; t->error says how */
};

struct bwi_loop;
struct bwi_task;

struct bwi_task {
    enum bwi_step (*step)(struct bwi_task *t);
    void (*ended)(struct bwi_task *t); /* called once after END, last of all: may free the task. NULL allowed */
    const char *name;                  /* for messages and traces; static */
    struct bwi_loop *loop;
    struct bwi_task *parent; /* woken when this one ends; NULL allowed */
    struct bw_error error;   /* first error of the task */
    uint64_t wake_ns;        /* earliest time at which it is called by itself; BWI_NEVER */
    unsigned pending;        /* requests in flight, counted by whoever issues them for this task */
    bool running;            /* started and not ended */
    bool cancel;             /* somebody wants it to end soon; the machine honours it where it safely can */
    /* the loop's */
    bool ready;
    struct bwi_task *ready_next;
    struct bwi_task *timer_child, *timer_next, *timer_prev; /* in the heap of timers: nothing is allocated for it */
    uint64_t timer_seq; /* timers of one time fire in the order in which they were set */
    bool timed;
};

/* Something that completes requests: the io engine, a memory store with modelled latency. */
struct bwi_source {
    bool (*poll)(struct bwi_source *s, uint64_t now_ns); /* delivers what is due; true if there was something */
    uint64_t (*due)(struct bwi_source *s);               /* time of the next delivery, BWI_NEVER */
    struct bwi_source *next;
};

struct bwi_io;
struct bwi_io_req;

/* io may be NULL (tests on virtual time). */
int bwi_loop_open(struct bwi_env *env, struct bwi_io *io, struct bwi_loop **ret, struct bw_error *err);
void bwi_loop_close(struct bwi_loop *l); /* no task may be running */
void bwi_loop_add_source(struct bwi_loop *l, struct bwi_source *s);
void bwi_loop_remove_source(struct bwi_loop *l, struct bwi_source *s);

struct bwi_env *bwi_loop_env(struct bwi_loop *l);
struct bwi_io *bwi_loop_io(struct bwi_loop *l);
/* Hands a CALL over to a worker. Without an engine it is carried out at once, and `done` has run when this returns. */
void bwi_loop_call(struct bwi_loop *l, struct bwi_io_req *req);
uint64_t bwi_loop_now_ns(struct bwi_loop *l);

/* Delivers completions and runs every ready task until none is ready. Waits for the next completion or timer, no longer
 * than deadline_ns (0: does not wait), when there was nothing to do. With an env of virtual time it never sleeps: the
 * caller moves the time. Returns false if nothing happened. Not to be called from a step or a completion. */
bool bwi_loop_turn(struct bwi_loop *l, uint64_t deadline_ns);
/* The next timer or source's due time, BWI_NEVER if there is none: what a test on virtual time jumps to. */
uint64_t bwi_loop_next_ns(struct bwi_loop *l);
unsigned bwi_loop_tasks(const struct bwi_loop *l); /* running */

/* Test seam: picks which of n ready tasks runs next (0..n-1). NULL: in the order of their waking. */
void bwi_loop_set_picker(struct bwi_loop *l, size_t (*pick)(void *user, size_t n), void *user);

/* step, name and ended are set; the rest is reset. */
void bwi_task_start(struct bwi_loop *l, struct bwi_task *t, struct bwi_task *parent);
void bwi_task_wake(struct bwi_task *t); /* ready in this turn or the next; harmless when it has ended */
/* Moves its timer; BWI_NEVER: none. A timer that fires is reset to BWI_NEVER. */
void bwi_task_wake_at(struct bwi_task *t, uint64_t ns);
void bwi_task_cancel(struct bwi_task *t); /* sets cancel and wakes it */

/* Runs the loop until the task has ended or deadline_ns has passed (the system's clock only). true when it has ended.
 * For commands and tests without a thread of their own. The task outlives the call: its ended() must not free it. */
bool bwi_loop_run(struct bwi_loop *l, struct bwi_task *t, uint64_t deadline_ns);

#endif
