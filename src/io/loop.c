/* SPDX-License-Identifier: Apache-2.0 */
/* The loop: a queue of ready tasks, a pairing heap of timers, a list of sources. Every link lies in the task or the
 * source itself, so that once the loop is open nothing in here can fail. */
#include "io/loop.h"

#include "base/error.h"
#include "base/vec.h"
#include "io/engine.h"
#include "os/thread.h"
#include <assert.h>

struct bwi_loop {
    struct bwi_env *env;
    struct bwi_io *io;
    struct bwi_task *ready_head, *ready_tail;
    size_t ready_count;
    struct bwi_task *timers; /* root of the heap: the earliest */
    uint64_t timer_seq;
    struct bwi_source *sources;
    struct bwi_source *poll_next; /* the source after the one that is polled, kept right by remove */
    struct bwi_task *current;     /* whose step runs */
    bool current_woken;
    bool turning;
    unsigned tasks;
    size_t (*pick)(void *user, size_t n);
    void *pick_user;
    struct bwi_mutex lock; /* for sleeping without an engine; nobody contends for it */
    struct bwi_cond sleep;
};

int bwi_loop_open(struct bwi_env *env, struct bwi_io *io, struct bwi_loop **ret, struct bw_error *err) {
    struct bwi_loop *l = bwi_calloc(1, sizeof *l);
    if (!l) return bwi_error_nomem(err, sizeof *l, "a loop");
    l->env = env;
    l->io = io;
    int rc = bwi_mutex_init(&l->lock);
    if (rc == 0) {
        rc = bwi_cond_init(&l->sleep);
        if (rc < 0) bwi_mutex_fini(&l->lock);
    }
    if (rc < 0) {
        bwi_free(l);
        return bwi_error_errno(err, -rc, "make the lock of a loop");
    }
    *ret = l;
    return 0;
}

void bwi_loop_close(struct bwi_loop *l) {
    if (!l) return;
    assert(l->tasks == 0);
    bwi_cond_fini(&l->sleep);
    bwi_mutex_fini(&l->lock);
    bwi_free(l);
}

void bwi_loop_add_source(struct bwi_loop *l, struct bwi_source *s) {
    struct bwi_source **link = &l->sources;
    while (*link) link = &(*link)->next; /* in the order of their adding, for repeatable runs */
    s->next = NULL;
    *link = s;
}

void bwi_loop_remove_source(struct bwi_loop *l, struct bwi_source *s) {
    if (l->poll_next == s) l->poll_next = s->next;
    for (struct bwi_source **link = &l->sources; *link; link = &(*link)->next) {
        if (*link == s) {
            *link = s->next;
            return;
        }
    }
}

struct bwi_env *bwi_loop_env(struct bwi_loop *l) {
    return l->env;
}
struct bwi_io *bwi_loop_io(struct bwi_loop *l) {
    return l->io;
}
void bwi_loop_call(struct bwi_loop *l, struct bwi_io_req *req) {
    if (l->io) {
        bwi_io_submit(l->io, req);
        return;
    }
    req->call(req);
    req->done(req);
}
uint64_t bwi_loop_now_ns(struct bwi_loop *l) {
    return l->env->now_ns(l->env);
}
unsigned bwi_loop_tasks(const struct bwi_loop *l) {
    return l->tasks;
}

void bwi_loop_set_picker(struct bwi_loop *l, size_t (*pick)(void *user, size_t n), void *user) {
    l->pick = pick;
    l->pick_user = user;
}

/* ---- timers: a pairing heap ---- */

static bool earlier(const struct bwi_task *a, const struct bwi_task *b) {
    return a->wake_ns != b->wake_ns ? a->wake_ns < b->wake_ns : a->timer_seq < b->timer_seq;
}

static struct bwi_task *meld(struct bwi_task *a, struct bwi_task *b) {
    if (!a) return b;
    if (!b) return a;
    struct bwi_task *top = earlier(a, b) ? a : b, *low = top == a ? b : a;
    low->timer_prev = top; /* of a first child: its parent */
    low->timer_next = top->timer_child;
    if (low->timer_next) low->timer_next->timer_prev = low;
    top->timer_child = low;
    return top;
}

/* Melds a list of siblings into one heap: in pairs from the left, then the pairs from the right. */
static struct bwi_task *meld_all(struct bwi_task *first) {
    struct bwi_task *pairs = NULL, *root = NULL;
    while (first) {
        struct bwi_task *a = first, *b = a->timer_next;
        first = b ? b->timer_next : NULL;
        a->timer_next = a->timer_prev = NULL;
        if (b) b->timer_next = b->timer_prev = NULL;
        a = meld(a, b);
        a->timer_next = pairs;
        pairs = a;
    }
    while (pairs) {
        struct bwi_task *a = pairs;
        pairs = a->timer_next;
        a->timer_next = NULL;
        root = meld(root, a);
    }
    return root;
}

static void timer_remove(struct bwi_loop *l, struct bwi_task *t) {
    if (!t->timed) return;
    if (t != l->timers) {
        if (t->timer_prev->timer_child == t)
            t->timer_prev->timer_child = t->timer_next;
        else
            t->timer_prev->timer_next = t->timer_next;
        if (t->timer_next) t->timer_next->timer_prev = t->timer_prev;
        l->timers = meld(l->timers, meld_all(t->timer_child));
    } else {
        l->timers = meld_all(t->timer_child);
    }
    t->timer_child = t->timer_next = t->timer_prev = NULL;
    t->timed = false;
}

static bool fire_timers(struct bwi_loop *l, uint64_t now_ns) {
    bool any = false;
    while (l->timers && l->timers->wake_ns <= now_ns) {
        struct bwi_task *t = l->timers;
        timer_remove(l, t);
        t->wake_ns = BWI_NEVER;
        bwi_task_wake(t);
        any = true;
    }
    return any;
}

/* ---- ready tasks ---- */

static void make_ready(struct bwi_loop *l, struct bwi_task *t) {
    t->ready = true;
    t->ready_next = NULL;
    if (l->ready_tail)
        l->ready_tail->ready_next = t;
    else
        l->ready_head = t;
    l->ready_tail = t;
    l->ready_count++;
}

static struct bwi_task *take_ready(struct bwi_loop *l) {
    size_t skip = l->pick ? l->pick(l->pick_user, l->ready_count) : 0;
    assert(skip < l->ready_count);
    struct bwi_task *before = NULL, *t = l->ready_head;
    for (; skip > 0; skip--) {
        before = t;
        t = t->ready_next;
    }
    if (before)
        before->ready_next = t->ready_next;
    else
        l->ready_head = t->ready_next;
    if (l->ready_tail == t) l->ready_tail = before;
    t->ready_next = NULL;
    t->ready = false;
    l->ready_count--;
    return t;
}

static void end(struct bwi_loop *l, struct bwi_task *t) {
    timer_remove(l, t);
    t->wake_ns = BWI_NEVER;
    t->running = false;
    l->tasks--;
    if (t->parent) bwi_task_wake(t->parent);
    if (t->ended) t->ended(t); /* t may be gone */
}

static bool run_ready(struct bwi_loop *l) {
    bool any = l->ready_count > 0;
    while (l->ready_count > 0) {
        struct bwi_task *t = take_ready(l);
        l->current = t;
        l->current_woken = false;
        enum bwi_step next = t->step(t);
        l->current = NULL;
        if (next == BWI_STEP_END)
            end(l, t);
        else if (next == BWI_STEP_AGAIN || l->current_woken)
            make_ready(l, t);
    }
    return any;
}

/* ---- turning ---- */

static bool poll_sources(struct bwi_loop *l, uint64_t now_ns) {
    bool any = false;
    for (struct bwi_source *s = l->sources; s; s = l->poll_next) {
        l->poll_next = s->next;
        any |= s->poll(s, now_ns);
    }
    l->poll_next = NULL;
    return any;
}

static bool advance(struct bwi_loop *l) {
    bool any = l->io && bwi_io_reap(l->io, 0) > 0;
    uint64_t now_ns = bwi_loop_now_ns(l);
    any |= poll_sources(l, now_ns);
    any |= fire_timers(l, now_ns);
    any |= run_ready(l);
    return any;
}

uint64_t bwi_loop_next_ns(struct bwi_loop *l) {
    uint64_t next_ns = l->timers ? l->timers->wake_ns : BWI_NEVER;
    for (struct bwi_source *s = l->sources; s; s = s->next) {
        uint64_t due_ns = s->due(s);
        if (due_ns < next_ns) next_ns = due_ns;
    }
    return next_ns;
}

/* Sleeps until something can have happened. true: completions were delivered meanwhile. */
static bool wait_until(struct bwi_loop *l, uint64_t deadline_ns) {
    uint64_t next_ns = bwi_loop_next_ns(l), until_ns = next_ns < deadline_ns ? next_ns : deadline_ns;
    if (l->io) return bwi_io_reap(l->io, until_ns) > 0;
    if (until_ns == BWI_NEVER) return false; /* nothing could ever happen */
    bwi_mutex_lock(&l->lock);
    while (bwi_cond_wait(&l->sleep, &l->lock, until_ns)) {
    }
    bwi_mutex_unlock(&l->lock);
    return false;
}

bool bwi_loop_turn(struct bwi_loop *l, uint64_t deadline_ns) {
    assert(!l->turning);
    l->turning = true;
    bool any = advance(l);
    if (!any && deadline_ns != 0 && l->env == bwi_env_system()) {
        any = wait_until(l, deadline_ns);
        any |= advance(l);
    }
    l->turning = false;
    return any;
}

bool bwi_loop_run(struct bwi_loop *l, struct bwi_task *t, uint64_t deadline_ns) {
    while (t->running) {
        bool any = bwi_loop_turn(l, deadline_ns);
        if (!t->running) break;
        if (l->env == bwi_env_system()) {
            if (bwi_loop_now_ns(l) >= deadline_ns) return false;
        } else if (!any && (!l->io || bwi_io_in_flight(l->io) == 0)) {
            return false; /* time stands still: nothing more will happen */
        }
    }
    return true;
}

/* ---- tasks ---- */

void bwi_task_start(struct bwi_loop *l, struct bwi_task *t, struct bwi_task *parent) {
    *t = (struct bwi_task){.step = t->step,
                           .ended = t->ended,
                           .name = t->name,
                           .loop = l,
                           .parent = parent,
                           .wake_ns = BWI_NEVER,
                           .running = true};
    l->tasks++;
    make_ready(l, t);
}

void bwi_task_wake(struct bwi_task *t) {
    if (!t->running || t->ready) return;
    if (t == t->loop->current)
        t->loop->current_woken = true; /* queued after its step, unless it ends */
    else
        make_ready(t->loop, t);
}

void bwi_task_wake_at(struct bwi_task *t, uint64_t ns) {
    if (!t->running) return;
    timer_remove(t->loop, t);
    t->wake_ns = ns;
    if (ns == BWI_NEVER) return;
    t->timed = true;
    t->timer_seq = t->loop->timer_seq++;
    t->loop->timers = meld(t->loop->timers, t);
}

void bwi_task_cancel(struct bwi_task *t) {
    t->cancel = true;
    bwi_task_wake(t);
}
