/* SPDX-License-Identifier: Apache-2.0 */
/* Makes a group complete in a tier: layout, content and placement side by side, then the summary. The first summary
 * counts, so whoever finds another one there looks whether it says the same. */
#include "checkpoint/publish.h"
#include "base/error.h"
#include <inttypes.h>
#include <string.h>

enum publish_state {
    PUBLISH_PARTS,
    PUBLISH_PARTS_PUT,
    PUBLISH_SYNC_PACKS,
    PUBLISH_PACKS_SYNCED,
    PUBLISH_SUMMARY,
    PUBLISH_SUMMARY_PUT,
    PUBLISH_LOOK, /* something else is there: what does its summary say? */
    PUBLISH_LOOKED,
    PUBLISH_SYNCED, /* ... the same: and it is durable */
    PUBLISH_END,
};

enum { LAYOUT, CONTENT, PLACEMENT, PARTS, SUMMARY = LAYOUT };

static enum bwi_step go(struct bwi_publish *p, enum publish_state to) {
    p->state = (int)to;
    return BWI_STEP_AGAIN;
}

static enum bwi_step wait_in(struct bwi_publish *p, enum publish_state in) {
    p->state = (int)in;
    return BWI_STEP_WAIT;
}

static enum bwi_step cancelled(struct bwi_publish *p) {
    (void)bwi_error_set(&p->task.error, BW_E_CANCELLED, "cancelled");
    return go(p, PUBLISH_END);
}

static enum bwi_step finish(struct bwi_publish *p) {
    char id[BWI_ID_TEXT_BYTES];
    bwi_id_text(&p->summary->id, id);
    (void)bwi_error_wrap(&p->task.error, "publish %s group %" PRIu32, id, p->summary->group);
    for (int i = 0; i < PARTS; i++) bwi_call_fini(&p->calls[i]);
    bwi_buf_fini(&p->bytes);
    return BWI_STEP_END;
}

/* ---- layout, content, placement ---- */

static void create_part(struct bwi_publish *p, int part) {
    const struct bwi_summary *s = p->summary;
    const char *run = p->ctx->run;
    const struct bwi_key keys[PARTS] = {
        [LAYOUT] = bwi_key_layout(run, s->id.attempt, s->id.nonce, &s->layout),
        [CONTENT] = bwi_key_content(run, s->fan_out, &s->id, s->group),
        [PLACEMENT] = bwi_key_placement(run, s->fan_out, &s->id, s->group, s->writer),
    };
    const struct bwi_span data[PARTS] = {[LAYOUT] = p->layout, [CONTENT] = p->content, [PLACEMENT] = p->placement};
    bwi_call_create(&p->calls[part], &p->task, p->store, keys[part].s, data[part]);
}

static enum bwi_step put_parts(struct bwi_publish *p) {
    if (p->task.cancel) return cancelled(p);
    for (int i = p->layout_known ? CONTENT : LAYOUT; i < PARTS; i++) create_part(p, i);
    return wait_in(p, PUBLISH_PARTS_PUT);
}

static enum bwi_step parts_put(struct bwi_publish *p) {
    for (int i = 0; i < PARTS; i++) {
        const struct bw_error *e = &p->calls[i].op.error;
        p->objects += p->calls[i].op.outcome == BWI_STORE_CREATED;
        if (e->status != BW_E_EXISTS) (void)bwi_error_copy(&p->task.error, e);
    }
    if (p->task.error.status < 0) return go(p, PUBLISH_END);
    for (int i = 0; i < PARTS; i++) (void)bwi_error_copy(&p->task.error, &p->calls[i].op.error);
    if (p->task.error.status < 0) return go(p, PUBLISH_LOOK);
    return go(p, p->sync_packs ? PUBLISH_SYNC_PACKS : PUBLISH_SUMMARY);
}

/* Whoever put the packs may have died before their names were durable. Content and placement lie beside them and have
 * been put anew by now: where an earlier try could not make theirs durable, no fsync would have vouched for them. */
static enum bwi_step sync_packs(struct bwi_publish *p) {
    const struct bwi_summary *s = p->summary;
    const struct bwi_key key = bwi_key_data_of(p->ctx->run, s->fan_out, &s->id, s->group);
    if (p->task.cancel) return cancelled(p);
    bwi_call_prepare(&p->calls[CONTENT], BWI_STORE_SYNC, key.s);
    bwi_call_submit(&p->calls[CONTENT], &p->task, p->store);
    return wait_in(p, PUBLISH_PACKS_SYNCED);
}

static enum bwi_step packs_synced(struct bwi_publish *p) {
    const bool failed = bwi_error_copy(&p->task.error, &p->calls[CONTENT].op.error) < 0;
    return go(p, failed ? PUBLISH_END : PUBLISH_SUMMARY);
}

/* ---- the summary ---- */

static enum bwi_step put_summary(struct bwi_publish *p) {
    if (p->task.cancel) return cancelled(p);
    if (bwi_summary_encode(p->summary, &p->bytes, &p->task.error) < 0) return go(p, PUBLISH_END);
    const struct bwi_key key = bwi_key_summary(p->ctx->run, &p->summary->id, p->summary->group);
    p->summary_sent = true;
    bwi_call_create(&p->calls[SUMMARY], &p->task, p->store, key.s, bwi_buf_span(&p->bytes));
    return wait_in(p, PUBLISH_SUMMARY_PUT);
}

/* A refusal is clear only where no answer was lost before it: what was sent first may be there, or still come. */
static bool is_refusal(const struct bwi_call *c) {
    const int status = c->op.error.status;
    return c->resent == 0 && (status == BW_E_NOSPACE || status == BW_E_ACCESS || status == BW_E_NOMEM);
}

/* Once it has been sent, the summary may count: from here on only its answer ends the task. */
static enum bwi_step summary_put(struct bwi_publish *p) {
    const struct bwi_store_op *op = &p->calls[SUMMARY].op;
    p->summary_refused = is_refusal(&p->calls[SUMMARY]);
    (void)bwi_error_copy(&p->task.error, &op->error);
    if (op->error.status == BW_E_EXISTS) return go(p, PUBLISH_LOOK);
    if (op->outcome == BWI_STORE_CREATED) p->objects++;
    /* the same bytes, unless it was ourselves whose first answer was lost */
    p->was_complete = op->outcome == BWI_STORE_SAME && p->calls[SUMMARY].resent == 0;
    return go(p, PUBLISH_END);
}

/* ---- something else is there ---- */

static enum bwi_step look(struct bwi_publish *p) {
    const struct bwi_key key = bwi_key_summary(p->ctx->run, &p->summary->id, p->summary->group);
    bwi_call_get(&p->calls[SUMMARY], &p->task, p->store, key.s, BWI_SUMMARY_BYTES_MAX);
    return wait_in(p, PUBLISH_LOOKED);
}

/* It says the same. Who put it may have died before that name, or the layout's, was durable. */
static enum bwi_step sync_other(struct bwi_publish *p) {
    const struct bwi_id *id = &p->summary->id;
    const struct bwi_key dirs[] = {bwi_key_groups(p->ctx->run, id),
                                   bwi_key_layouts_of(p->ctx->run, id->attempt, id->nonce)};
    bw_error_clear(&p->task.error);
    for (int i = 0; i < 2; i++) {
        bwi_call_prepare(&p->calls[i], BWI_STORE_SYNC, dirs[i].s);
        bwi_call_submit(&p->calls[i], &p->task, p->store);
    }
    return wait_in(p, PUBLISH_SYNCED);
}

static enum bwi_step other_synced(struct bwi_publish *p) {
    for (int i = 0; i < 2; i++) (void)bwi_error_copy(&p->task.error, &p->calls[i].op.error);
    p->was_complete = p->task.error.status == 0;
    return go(p, PUBLISH_END);
}

/* The error that brought us here stays, unless the summary that is there names our layout and content. */
static enum bwi_step looked(struct bwi_publish *p) {
    const struct bwi_store_op *op = &p->calls[SUMMARY].op;
    const struct bwi_summary *want = p->summary;
    struct bwi_summary s;
    struct bw_error e = BW_ERROR_INIT;
    const bool there = op->error.status == 0;
    if (there && bwi_summary_decode(bwi_buf_span(&op->body), &s, &e) < 0) {
        bw_error_clear(&p->task.error);
        (void)bwi_error_copy(&p->task.error, &e);
        (void)bwi_error_wrap(&p->task.error, "another summary is there: \"%s\"", op->key);
        return go(p, PUBLISH_END);
    }
    if (there && bwi_id_eq(&s.id, &want->id) && s.group == want->group && bwi_sha_eq(&s.layout, &want->layout) &&
        bwi_sha_eq(&s.content, &want->content))
        return sync_other(p);
    if (!there && op->error.status != BW_E_NOTFOUND) {
        bw_error_clear(&p->task.error);
        (void)bwi_error_copy(&p->task.error, &op->error);
    } else if (there) {
        (void)bwi_error_wrap(&p->task.error, "another summary is there, with another layout or content");
    }
    return go(p, PUBLISH_END);
}

static enum bwi_step publish_step(struct bwi_task *t) {
    struct bwi_publish *p = bwi_container_of(t, struct bwi_publish, task);
    if (t->pending > 0) return BWI_STEP_WAIT;
    switch ((enum publish_state)p->state) {
    case PUBLISH_PARTS: return put_parts(p);
    case PUBLISH_PARTS_PUT: return parts_put(p);
    case PUBLISH_SYNC_PACKS: return sync_packs(p);
    case PUBLISH_PACKS_SYNCED: return packs_synced(p);
    case PUBLISH_SUMMARY: return put_summary(p);
    case PUBLISH_SUMMARY_PUT: return summary_put(p);
    case PUBLISH_LOOK: return look(p);
    case PUBLISH_LOOKED: return looked(p);
    case PUBLISH_SYNCED: return other_synced(p);
    case PUBLISH_END: break;
    }
    return finish(p);
}

void bwi_publish_start(struct bwi_publish *p, struct bwi_loop *loop, struct bwi_task *parent) {
    p->task.step = publish_step;
    p->task.name = "publish";
    p->state = PUBLISH_PARTS;
    p->objects = 0;
    p->was_complete = p->summary_sent = p->summary_refused = false;
    memset(p->calls, 0, sizeof p->calls);
    p->bytes = (struct bwi_buf){0};
    bwi_task_start(loop, &p->task, parent);
}
