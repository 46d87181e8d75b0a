/* SPDX-License-Identifier: Apache-2.0 */
/* Stores that behave badly, over stores in memory that do not. */
#include "unruly.h"

#include "base/error.h"
#include "base/text.h"
#include "base/vec.h"
#include "store/store_private.h"
#include "test.h"
#include <string.h>

#define LOCKS_MAX 16u

/* A call on its way: to the server, then back. One without a sender is the second coming of an earlier one. */
struct flight {
    struct flight *next;
    struct unruly_store *sender; /* NULL: nobody waits for an answer */
    struct bwi_bucket *bucket;
    struct bwi_store_op *outer, inner;
    int status; /* it is made to fail with this */
    bool effect, performed, held;
    uint64_t at_ns;
    char about[256]; /* the key: that of an upload goes with it */
    char *key;       /* owned, of a second coming */
    uint8_t *data;   /* the same */
};

struct server { /* the inner store of a bucket */
    struct bwi_bucket *bucket;
    struct bwi_store *store;
};

struct unruly_net {
    struct bwi_env_virtual *env;
    struct bwi_loop *loop; /* the server's */
    uint64_t rng, calls;
    struct unruly_model model;
    struct flight *coming; /* by at_ns, then by the order of sending */
    struct server servers[64];
    unsigned server_count;
    unruly_look look;
    void *user;
};

struct unruly_store {
    struct bwi_store base;
    struct bwi_source source;
    struct unruly_net *net;
    struct bwi_loop *loop;
    struct bwi_bucket *bucket;
    struct bwi_store *inner;
    struct flight *answers; /* by at_ns */
    struct bwi_store_lock *locks[LOCKS_MAX];
    struct unruly_stop *stop;
    bool dead;
};

static struct unruly_store *store_of(struct bwi_store *s) {
    return bwi_container_of(s, struct unruly_store, base);
}

/* --- chance ---- */

static bool drawn(struct unruly_net *n, uint32_t of_65536) {
    return of_65536 != 0 && test_random(&n->rng) % 65536 < of_65536;
}

static uint64_t way(struct unruly_net *n) {
    const uint64_t most = drawn(n, n->model.slow) ? n->model.slow_ns : n->model.delay_ns;
    return most == 0 ? 0 : test_random(&n->rng) % most;
}

static bool changes(enum bwi_store_verb v) {
    return v == BWI_STORE_CREATE || v == BWI_STORE_REPLACE || v == BWI_STORE_DELETE || v == BWI_STORE_DELETE_PREFIX ||
           v == BWI_STORE_FINISH;
}

static bool is_free_of_cost(enum bwi_store_verb v) {
    return v == BWI_STORE_RELEASE || v == BWI_STORE_ABORT || v == BWI_STORE_UNLOCK;
}

static void draw_fate(struct unruly_net *n, struct flight *f) {
    static const int failures[] = {BW_E_IO, BW_E_NOSPACE, BW_E_TIMEOUT};
    f->effect = true;
    if (drawn(n, n->model.fail)) {
        f->status = failures[test_random(&n->rng) % 3];
        if (f->status == BW_E_NOSPACE && !changes(f->inner.verb)) f->status = BW_E_IO;
        f->effect = false;
    } else if (drawn(n, n->model.drop)) {
        f->status = changes(f->inner.verb) ? BW_E_UNKNOWN : BW_E_TIMEOUT;
        f->effect = false;
    } else if (changes(f->inner.verb) && drawn(n, n->model.lose)) {
        f->status = BW_E_UNKNOWN;
    }
}

/* --- the server ---- */

static void insert(struct flight **list, struct flight *f) {
    while (*list != NULL && (*list)->at_ns <= f->at_ns) list = &(*list)->next;
    f->next = *list;
    *list = f;
}

static struct bwi_store *server_of(struct unruly_net *n, struct bwi_bucket *b) {
    struct bw_error err = BW_ERROR_INIT;
    unsigned i = 0;
    while (i < n->server_count && n->servers[i].bucket != b) i++;
    if (i < n->server_count) return n->servers[i].store;
    assert_true(i < sizeof n->servers / sizeof n->servers[0]);
    n->servers[i].bucket = b;
    assert_ok(bwi_store_memory_open(b, n->loop, "server", &n->servers[i].store, &err), &err);
    n->server_count++;
    return n->servers[i].store;
}

static void inner_done(struct bwi_store_op *op) {
    ((struct flight *)op->user)->performed = true;
}

static void free_flight(struct flight *f) {
    bwi_buf_fini(&f->inner.body);
    bwi_store_names_fini(&f->inner.names);
    bwi_free(f->key);
    bwi_free(f->data);
    bwi_free(f);
}

/* What was sent arrives a second time: a client that had no answer sent it again, and the first one was on its way all
 * the time. Or it arrives for the first time, when its sender has given up waiting for an answer. */
static void send_again(struct unruly_net *n, const struct flight *f) {
    const struct bwi_store_op *op = &f->inner;
    struct flight *g = bwi_calloc(1, sizeof *g);
    assert_non_null(g);
    g->key = bwi_strdup(op->key);
    g->data = bwi_malloc(op->data.len + 1);
    assert_true(g->key != NULL && g->data != NULL);
    if (op->data.len > 0) memcpy(g->data, op->data.ptr, op->data.len);
    g->bucket = f->bucket;
    g->effect = true;
    g->inner = (struct bwi_store_op){.verb = op->verb, .key = g->key, .data = bwi_span(g->data, op->data.len)};
    g->at_ns = n->env->now + way(n) + way(n);
    insert(&n->coming, g);
}

static bool comes_again(struct unruly_net *n, const struct flight *f) {
    if (f->sender == NULL || !changes(f->inner.verb) || f->inner.verb == BWI_STORE_FINISH) return false;
    if (f->status == BW_E_UNKNOWN && !f->effect) return test_random(&n->rng) % 2 == 0;
    return f->effect && drawn(n, n->model.again);
}

static void perform(struct unruly_net *n, struct flight *f) {
    struct bwi_store *server = server_of(n, f->bucket);
    if (f->status != 0) bwi_bucket_fail_next(f->bucket, f->inner.verb, NULL, f->status, f->effect);
    f->inner.done = inner_done;
    f->inner.user = f;
    bwi_store_submit(server, &f->inner);
    while (!f->performed) (void)bwi_loop_turn(n->loop, 0);
    n->calls++;
    if (changes(f->inner.verb) && f->effect) n->look(n->user, f->bucket, &f->inner);
    if (comes_again(n, f)) send_again(n, f);
}

/* What came out, as the sender will see it. */
static void hand_over(struct flight *f) {
    struct bwi_store_op *o = f->outer, *i = &f->inner;
    o->outcome = i->outcome;
    o->body = i->body;
    o->names = i->names;
    o->free_bytes = i->free_bytes;
    o->total_bytes = i->total_bytes;
    o->error = i->error;
    if (i->verb == BWI_STORE_HEAD) o->size_bytes = i->size_bytes;
    if (i->verb == BWI_STORE_BEGIN) o->upload = i->upload;
    if (i->verb == BWI_STORE_LOCK) o->lock = i->lock;
    i->body = (struct bwi_buf){0};
    i->names = (struct bwi_store_names){0};
}

static void keep_lock(struct unruly_store *s, struct bwi_store_lock *lock) {
    unsigned i = 0;
    while (i < LOCKS_MAX && s->locks[i] != NULL) i++;
    assert_true(i < LOCKS_MAX);
    s->locks[i] = lock;
}

static bool forget_lock(struct unruly_store *s, const struct bwi_store_lock *lock) {
    for (unsigned i = 0; i < LOCKS_MAX; i++) {
        if (s->locks[i] == NULL || s->locks[i] != lock) continue;
        s->locks[i] = NULL;
        return true;
    }
    return false;
}

static void unlock(struct unruly_net *n, struct bwi_bucket *b, struct bwi_store_lock *lock) {
    struct flight f = {.bucket = b, .effect = true, .inner = {.verb = BWI_STORE_UNLOCK, .lock = lock}};
    perform(n, &f);
}

/* A lock that comes to one who has died meanwhile is nobody's. */
static void take_lock(struct unruly_store *s, struct flight *f) {
    if (f->inner.lock == NULL) return;
    if (!s->dead) {
        keep_lock(s, f->inner.lock);
        return;
    }
    unlock(s->net, s->bucket, f->inner.lock);
    f->inner.lock = NULL;
    (void)bwi_error_set(&f->inner.error, BW_E_IO, "the process has died");
}

static void arrive(struct unruly_net *n, struct flight *f) {
    struct unruly_store *s = f->sender;
    perform(n, f);
    if (s == NULL) {
        free_flight(f);
        return;
    }
    if (f->inner.verb == BWI_STORE_LOCK) take_lock(s, f);
    hand_over(f);
    f->at_ns = s->dead ? n->env->now : n->env->now + way(n);
    insert(&s->answers, f);
}

bool unruly_net_turn(struct unruly_net *n) {
    bool any = false;
    while (n->coming != NULL && n->coming->at_ns <= n->env->now) {
        struct flight *f = n->coming;
        n->coming = f->next;
        arrive(n, f);
        any = true;
    }
    return any;
}

uint64_t unruly_net_next_ns(const struct unruly_net *n) {
    return n->coming != NULL ? n->coming->at_ns : BWI_NEVER;
}

uint64_t unruly_net_calls(const struct unruly_net *n) {
    return n->calls;
}

struct unruly_model *unruly_model_of(struct unruly_net *n) {
    return &n->model;
}

struct unruly_net *unruly_net_new(struct bwi_env_virtual *env, uint64_t seed, unruly_look look, void *user) {
    struct bw_error err = BW_ERROR_INIT;
    struct unruly_net *n = bwi_calloc(1, sizeof *n);
    assert_non_null(n);
    n->env = env;
    n->rng = seed;
    n->look = look;
    n->user = user;
    assert_ok(bwi_loop_open(&env->env, NULL, &n->loop, &err), &err);
    return n;
}

void unruly_net_free(struct unruly_net *n) {
    while (n->coming != NULL) {
        struct flight *f = n->coming;
        n->coming = f->next;
        assert_null(f->sender);
        free_flight(f);
    }
    for (unsigned i = 0; i < n->server_count; i++) n->servers[i].store->close(n->servers[i].store);
    bwi_loop_close(n->loop);
    bwi_free(n);
}

/* --- a participant's store ---- */

/* Counts a call down; true when the participant is to stop at it. */
static bool reaches_stop(struct unruly_store *s, const struct flight *f, bool after) {
    struct unruly_stop *stop = s->stop;
    const struct bwi_store_op *op = f->outer;
    if (stop == NULL || stop->calls == 0 || stop->after != after || is_free_of_cost(op->verb)) return false;
    if (--stop->calls > 0) return false;
    stop->reached = true;
    stop->verb = op->verb;
    bwi_format(stop->key, sizeof stop->key, "%s", f->about);
    return true;
}

static void submit(struct bwi_store *store, struct bwi_store_op *op) {
    struct unruly_store *s = store_of(store);
    struct unruly_net *n = s->net;
    struct flight *f = bwi_calloc(1, sizeof *f);
    assert_non_null(f);
    f->sender = s;
    f->bucket = s->bucket;
    f->outer = op;
    f->inner = *op;
    f->inner.handle = NULL; /* nothing is kept open */
    const char *key = bwi_store_op_key(op);
    bwi_format(f->about, sizeof f->about, "%s", key != NULL ? key : "");
    f->effect = true;
    f->at_ns = n->env->now;
    if (op->verb == BWI_STORE_UNLOCK && !forget_lock(s, op->lock)) f->inner.lock = NULL;
    if (s->dead && !is_free_of_cost(op->verb)) {
        f->status = BW_E_IO;
        f->effect = false;
    } else if (!is_free_of_cost(op->verb)) {
        draw_fate(n, f);
        f->at_ns += way(n);
        if (f->status == BW_E_UNKNOWN) f->at_ns += way(n);
    }
    if (!s->dead && reaches_stop(s, f, false)) f->held = true;
    if (f->at_ns <= n->env->now && (s->dead || is_free_of_cost(op->verb)))
        arrive(n, f);
    else if (f->held)
        insert(&s->answers, f); /* sent by the first poll after the participant goes on */
    else
        insert(&n->coming, f);
}

static void answer(struct unruly_store *s, struct flight *f) {
    struct bwi_store_op *op = f->outer;
    (void)s;
    free_flight(f);
    bwi_store_complete(op); /* may close the store */
}

static bool poll(struct bwi_source *source, uint64_t now_ns) {
    struct unruly_store *s = bwi_container_of(source, struct unruly_store, source);
    struct flight *due = NULL, **end = &due;
    while (s->answers != NULL && s->answers->at_ns <= now_ns) {
        struct flight *f = s->answers;
        if (!f->held && !s->dead && reaches_stop(s, f, true)) break; /* it never hears of it, or later */
        s->answers = f->next;
        f->next = NULL;
        *end = f;
        end = &f->next;
    }
    bool any = due != NULL;
    while (due != NULL) {
        struct flight *f = due;
        due = f->next;
        if (f->held) {
            f->held = false;
            insert(&s->net->coming, f);
        } else {
            answer(s, f);
        }
    }
    return any;
}

static uint64_t next_due(struct bwi_source *source) {
    const struct unruly_store *s = bwi_container_of(source, struct unruly_store, source);
    return s->answers != NULL ? s->answers->at_ns : BWI_NEVER;
}

static void close_store(struct bwi_store *store) {
    struct unruly_store *s = store_of(store);
    assert_null(s->answers);
    bwi_loop_remove_source(s->loop, &s->source);
    bwi_free(s);
}

void unruly_stop_at(struct bwi_store *s, struct unruly_stop *stop) {
    store_of(s)->stop = stop;
}

/* What was on its way is as good as sent, or it was still in a buffer of the one who died. */
static void settle_flights(struct unruly_store *s) {
    for (struct flight *f = s->net->coming; f != NULL; f = f->next) {
        if (f->sender != s || test_random(&s->net->rng) % 2 == 0) continue;
        f->status = BW_E_IO;
        f->effect = false;
    }
    for (struct flight *f = s->answers; f != NULL; f = f->next) {
        if (!f->held) continue;
        f->status = BW_E_IO;
        f->effect = false;
    }
}

void unruly_died(struct bwi_store *store) {
    struct unruly_store *s = store_of(store);
    s->dead = true;
    settle_flights(s);
    for (unsigned i = 0; i < LOCKS_MAX; i++) {
        if (s->locks[i] == NULL) continue;
        unlock(s->net, s->bucket, s->locks[i]);
        s->locks[i] = NULL;
    }
}

int unruly_open(struct unruly_net *n, struct bwi_bucket *b, struct bwi_loop *loop, const char *name,
                struct bwi_store **ret, struct bw_error *err) {
    struct unruly_store *s = bwi_calloc(1, sizeof *s);
    if (s == NULL) return bwi_error_nomem(err, sizeof *s, "a store");
    s->base.submit = submit;
    s->base.close = close_store;
    s->base.caps = (struct bwi_store_caps){.has_space = true};
    bwi_format(s->base.url, sizeof s->base.url, "memory:%s", name);
    s->source = (struct bwi_source){.poll = poll, .due = next_due};
    s->net = n;
    s->loop = loop;
    s->bucket = b;
    s->inner = server_of(n, b);
    bwi_loop_add_source(loop, &s->source);
    *ret = &s->base;
    return 0;
}
