/* SPDX-License-Identifier: Apache-2.0 */
/* The store in memory: a source of the loop that delivers operations when they are due. */
#include "store/store_memory.h"

#include "base/vec.h"
#include "store/memory_bucket.h"
#include <assert.h>
#include <stdio.h>

struct memory_store {
    struct bwi_store base;
    struct bwi_source source;
    struct bwi_bucket *bucket;
    struct bwi_loop *loop;
    struct bwi_store_op *head, *tail; /* by due time, then by submission */
    unsigned in_flight;
    bool read_only;
};

/* An operation's own place for what was decided about it: the request that only stores on files use. */
static void keep_fate(struct bwi_store_op *op, struct bwi_memory_fate fate) {
    op->req = (struct bwi_io_req){.result = fate.status, .fd = fate.effect};
}
static int fate_status(const struct bwi_store_op *op) {
    return (int)op->req.result;
}
static bool fate_effect(const struct bwi_store_op *op) {
    return op->req.fd != 0;
}
static bool effect_done(const struct bwi_store_op *op) {
    return op->req.bytes != 0;
}

static void enqueue(struct memory_store *s, struct bwi_store_op *op) {
    struct bwi_store_op **link = &s->head;
    if (s->tail && s->tail->due_ns <= op->due_ns) link = &s->tail->next;
    while (*link && (*link)->due_ns <= op->due_ns) link = &(*link)->next;
    op->next = *link;
    *link = op;
    if (!op->next) s->tail = op;
}

static void submit(struct bwi_store *store, struct bwi_store_op *op) {
    struct memory_store *s = bwi_container_of(store, struct memory_store, base);
    struct bwi_bucket *b = s->bucket;
    bool refused = bwi_store_check(op, s->read_only) < 0;
    bool free_of_cost =
        refused || op->verb == BWI_STORE_RELEASE || op->verb == BWI_STORE_ABORT || op->verb == BWI_STORE_UNLOCK;
    op->due_ns = bwi_loop_now_ns(s->loop);
    keep_fate(op, (struct bwi_memory_fate){0, false});
    if (!free_of_cost) {
        bwi_bucket_hold(b);
        keep_fate(op, bwi_memory_fate_locked(b, op));
        op->due_ns = bwi_memory_due_locked(b, op, op->due_ns);
        bwi_bucket_let_go(b);
    }
    if (op->verb == BWI_STORE_WRITE && op->upload) bwi_store_write_begun(op);
    s->in_flight++;
    enqueue(s, op);
}

/* Has the effect, or fails. false: its answer is lost, which shows later. */
static bool perform_locked(struct memory_store *s, struct bwi_store_op *op) {
    struct bwi_bucket *b = s->bucket;
    int status = fate_status(op);
    if (op->error.status != 0) return true; /* refused at submission */
    if (!effect_done(op) && (status == 0 || fate_effect(op))) bwi_memory_run_locked(b, op);
    if (status == BW_E_UNKNOWN && fate_effect(op) && !effect_done(op)) {
        op->req.bytes = 1;
        bwi_memory_undo_locked(b, op);
        op->due_ns += bwi_memory_delay_locked(b);
        return false;
    }
    if (status == 0) return true;
    bwi_memory_undo_locked(b, op);
    bwi_store_fail(op, status, status == BW_E_UNKNOWN ? "no answer came (injected)" : "injected failure");
    return true;
}

static void drop_upload_locked(struct bwi_store_op *op) {
    bool ends = op->verb == BWI_STORE_FINISH || op->verb == BWI_STORE_ABORT;
    if (!ends || !op->upload) return;
    assert(op->upload->writes == 0);
    bwi_bucket_drop_upload(bwi_container_of(op->upload, struct bwi_memory_upload, base));
}

static void deliver(struct memory_store *s, struct bwi_store_op *op) {
    struct bwi_bucket *b = s->bucket;
    bwi_bucket_hold(b);
    bool complete = perform_locked(s, op);
    if (complete) drop_upload_locked(op);
    bwi_bucket_let_go(b);
    if (!complete) {
        enqueue(s, op);
        return;
    }
    if (op->verb == BWI_STORE_WRITE && op->upload) bwi_store_write_ended(op);
    s->in_flight--;
    bwi_store_complete(op); /* may close the store: nothing of it is used below */
}

/* Delivers what is due now. What completions submit in turn is for the next poll, however soon it is due. */
static bool poll(struct bwi_source *source, uint64_t now_ns) {
    struct memory_store *s = bwi_container_of(source, struct memory_store, source);
    struct bwi_store_op *due = s->head, **link = &due;
    while (*link && (*link)->due_ns <= now_ns) link = &(*link)->next;
    s->head = *link;
    if (!s->head) s->tail = NULL;
    *link = NULL;
    bool any = due != NULL;
    while (due) {
        struct bwi_store_op *op = due;
        due = op->next;
        op->next = NULL;
        deliver(s, op);
    }
    return any;
}

static uint64_t next_due(struct bwi_source *source) {
    const struct memory_store *s = bwi_container_of(source, struct memory_store, source);
    return s->head ? s->head->due_ns : BWI_NEVER;
}

static void close_store(struct bwi_store *store) {
    struct memory_store *s = bwi_container_of(store, struct memory_store, base);
    struct bwi_bucket *b = s->bucket;
    assert(s->in_flight == 0);
    bwi_loop_remove_source(s->loop, &s->source);
    bwi_free(s);
    if (b->shared)
        bwi_registry_detach(b);
    else
        b->attached--;
}

int bwi_memory_attach(struct bwi_bucket *b, const char *name, const struct bwi_store_options *o, struct bwi_store **ret,
                      struct bw_error *err) {
    struct memory_store *s = bwi_calloc(1, sizeof *s);
    if (!s) return bwi_error_nomem(err, sizeof *s, "a store");
    s->base.submit = submit;
    s->base.close = close_store;
    s->base.caps = (struct bwi_store_caps){.has_space = true};
    snprintf(s->base.url, sizeof s->base.url, "memory:%s", name);
    s->source = (struct bwi_source){.poll = poll, .due = next_due};
    s->bucket = b;
    s->loop = o->loop;
    s->read_only = o->read_only;
    bwi_loop_add_source(o->loop, &s->source);
    *ret = &s->base;
    return 0;
}

int bwi_store_memory_open(struct bwi_bucket *b, struct bwi_loop *loop, const char *name, struct bwi_store **ret,
                          struct bw_error *err) {
    struct bwi_store_options o = {.loop = loop};
    int rc = bwi_memory_attach(b, name, &o, ret, err);
    if (rc == 0) b->attached++;
    return rc;
}
