/* SPDX-License-Identifier: Apache-2.0 */
/* Index and manifest once more, from what both tiers still have: they are a pure function of all summaries and layouts,
 * so whoever makes them gets the same bytes. */
#include "base/error.h"
#include "base/vec.h"
#include "checkpoint/mend_private.h"
#include "checkpoint/plan.h"
#include <inttypes.h>

enum build_state { BUILD_ASK, BUILD_SUMMARY, BUILD_ASK_LAYOUT, BUILD_LAYOUT, BUILD_MAKE, BUILD_END };

static const enum bwi_tier asked[] = {BWI_TIER_REMOTE, BWI_TIER_LOCAL};

static enum bwi_step go(struct bwi_mend_build *b, enum build_state to) {
    b->state = (int)to;
    return BWI_STEP_AGAIN;
}

static enum bwi_step fail(struct bwi_mend_build *b, const struct bw_error *e) {
    if (bwi_error_copy(&b->task.error, e) < 0) (void)bwi_error_wrap(&b->task.error, "group %" PRIu32, b->group);
    return go(b, BUILD_END);
}

static bool is_fatal(int status) {
    return status == BW_E_NOMEM || status == BW_E_CANCELLED;
}

/* What this tier does not have may be on the next one. */
static enum bwi_step next_tier(struct bwi_mend_build *b, const struct bw_error *e, enum build_state then) {
    if (is_fatal(e->status)) return fail(b, e);
    (void)bwi_error_copy(&b->first, e);
    b->order++;
    while (b->order < BWI_TIERS && b->ctx->tier[asked[b->order]] == NULL) b->order++;
    return b->order == BWI_TIERS ? fail(b, &b->first) : go(b, then);
}

static void begin(struct bwi_mend_build *b) {
    b->order = 0;
    b->first = (struct bw_error)BW_ERROR_INIT;
}

/* ---- summaries ---- */

static enum bwi_step read_summary(struct bwi_mend_build *b) {
    bwi_group_meta_fini(&b->meta);
    b->read = (struct bwi_meta_read){
        .ctx = b->ctx, .tier = asked[b->order], .id = b->id, .group = b->group, .summary_only = true, .meta = &b->meta};
    bwi_meta_read_start(&b->read, b->task.loop, &b->task);
    return go(b, BUILD_SUMMARY);
}

static enum bwi_step build_ask(struct bwi_mend_build *b) {
    if (b->task.cancel) {
        (void)bwi_error_set(&b->task.error, BW_E_CANCELLED, "cancelled");
        return go(b, BUILD_END);
    }
    return b->group == b->groups ? go(b, BUILD_MAKE) : read_summary(b);
}

static enum bwi_step ask_layout(struct bwi_mend_build *b) {
    const struct bwi_summary *s = &b->summaries[b->group];
    const struct bwi_key key = bwi_key_layout(b->ctx->run, b->id.attempt, b->id.nonce, &s->layout);
    bwi_call_get(&b->call, &b->task, b->ctx->tier[asked[b->order]], key.s, s->layout_bytes);
    return go(b, BUILD_LAYOUT);
}

static enum bwi_step build_summary(struct bwi_mend_build *b) {
    if (b->read.task.running) return BWI_STEP_WAIT;
    if (b->read.task.error.status < 0) return next_tier(b, &b->read.task.error, BUILD_ASK);
    b->summaries[b->group] = b->meta.summary;
    begin(b);
    return go(b, BUILD_ASK_LAYOUT);
}

/* ---- layouts ---- */

static int take_layout(struct bwi_mend_build *b, struct bw_error *err) {
    const struct bwi_summary *s = &b->summaries[b->group];
    struct bwi_buf *bytes = &b->layout_bytes[b->group];
    int rc = bwi_error_copy(err, &b->call.op.error);
    if (rc == 0) {
        const struct bwi_sha found = bwi_sha_of(bwi_buf_span(&b->call.op.body));
        if (!bwi_sha_eq(&found, &s->layout)) rc = bwi_error_set(err, BW_E_CORRUPT, "its SHA-256 is another one");
    }
    if (rc == 0) {
        *bytes = b->call.op.body;
        b->call.op.body = (struct bwi_buf){0};
        rc = bwi_layout_decode(bwi_buf_span(bytes), &b->layouts[b->group], err);
        if (rc < 0) bwi_buf_fini(bytes);
    }
    if (rc < 0) (void)bwi_error_wrap(err, "layout \"%s\"", b->call.key.s);
    return rc;
}

static enum bwi_step build_layout(struct bwi_mend_build *b) {
    struct bw_error e = BW_ERROR_INIT;
    if (take_layout(b, &e) < 0) return next_tier(b, &e, BUILD_ASK_LAYOUT);
    begin(b);
    b->group++;
    return go(b, BUILD_ASK);
}

/* ---- index and manifest ---- */

static enum bwi_step build_make(struct bwi_mend_build *b) {
    struct bwi_manifest m = {0};
    struct bw_error *err = &b->task.error;
    int rc = bwi_index_make(b->layouts, b->groups, &b->index, &b->info, err);
    if (rc == 0) rc = bwi_manifest_build(b->summaries, b->groups, &b->info, &m, err);
    if (rc == 0) (void)bwi_manifest_encode(&m, &b->manifest, err); /* the task's error tells */
    bwi_manifest_fini(&m);
    return go(b, BUILD_END);
}

static void free_parts(struct bwi_mend_build *b) {
    for (uint32_t g = 0; b->layouts != NULL && g < b->groups; g++) bwi_layout_fini(&b->layouts[g]);
    for (uint32_t g = 0; b->layout_bytes != NULL && g < b->groups; g++) bwi_buf_fini(&b->layout_bytes[g]);
    bwi_free(b->layouts);
    bwi_free(b->layout_bytes);
    bwi_free(b->summaries);
    b->layouts = NULL;
    b->layout_bytes = NULL;
    b->summaries = NULL;
    bwi_group_meta_fini(&b->meta);
    bwi_call_fini(&b->call);
}

static enum bwi_step build_step(struct bwi_task *t) {
    struct bwi_mend_build *b = bwi_container_of(t, struct bwi_mend_build, task);
    if (t->pending > 0) return BWI_STEP_WAIT;
    if (t->cancel && b->read.task.running && !b->read.task.cancel) bwi_task_cancel(&b->read.task);
    switch ((enum build_state)b->state) {
    case BUILD_ASK: return build_ask(b);
    case BUILD_SUMMARY: return build_summary(b);
    case BUILD_ASK_LAYOUT: return ask_layout(b);
    case BUILD_LAYOUT: return build_layout(b);
    case BUILD_MAKE: return build_make(b);
    case BUILD_END: break;
    }
    free_parts(b);
    return BWI_STEP_END;
}

void bwi_mend_build_start(struct bwi_mend_build *b, struct bwi_loop *loop, struct bwi_task *parent) {
    b->task.step = build_step;
    b->task.name = "mend build";
    b->state = BUILD_ASK;
    b->group = 0;
    begin(b);
    b->summaries = bwi_calloc(b->groups, sizeof *b->summaries);
    b->layouts = bwi_calloc(b->groups, sizeof *b->layouts);
    b->layout_bytes = bwi_calloc(b->groups, sizeof *b->layout_bytes);
    bwi_task_start(loop, &b->task, parent);
    if (b->summaries != NULL && b->layouts != NULL && b->layout_bytes != NULL) return;
    (void)bwi_error_nomem(&b->task.error, b->groups * sizeof *b->summaries, "all summaries and layouts");
    b->state = BUILD_END;
}

void bwi_mend_build_fini(struct bwi_mend_build *b) {
    free_parts(b);
    bwi_buf_fini(&b->index);
    bwi_buf_fini(&b->manifest);
}
