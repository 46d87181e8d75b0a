/* SPDX-License-Identifier: Apache-2.0 */
/* Reading a group's metadata from one tier: the summary first, then what it names, side by side. Each object is held
 * against the one that names it before anything in it is believed. They are hashed and decoded one per step, so that
 * other tasks get their turn in between. */
#include "base/error.h"
#include "checkpoint/source.h"
#include <inttypes.h>
#include <string.h>

enum meta_state {
    META_ASK_SUMMARY,
    META_SUMMARY,
    META_ASK_OBJECTS,
    META_LAYOUT,
    META_CONTENT,
    META_PLACEMENT,
    META_CHECK,
    META_SETTLE, /* waits for what is in flight */
};

enum { SUMMARY, LAYOUT, CONTENT, PLACEMENT, OBJECTS }; /* calls and keys */

static void fini_objects(struct bwi_group_meta *m) {
    bwi_layout_fini(&m->layout);
    bwi_content_fini(&m->content);
    bwi_placement_fini(&m->placement);
    bwi_buf_fini(&m->layout_bytes);
    bwi_buf_fini(&m->content_bytes);
    bwi_buf_fini(&m->placement_bytes);
    memset(&m->layout, 0, sizeof m->layout);
    memset(&m->content, 0, sizeof m->content);
    memset(&m->placement, 0, sizeof m->placement);
}

void bwi_group_meta_fini(struct bwi_group_meta *m) {
    if (m == NULL) return;
    fini_objects(m);
    memset(m, 0, sizeof *m);
}

static enum bwi_step go(struct bwi_meta_read *r, enum meta_state to) {
    r->state = (int)to;
    return BWI_STEP_AGAIN;
}

/* Ends the task with an error about one of the objects. */
static enum bwi_step fail(struct bwi_meta_read *r, int object, struct bw_error *cause) {
    (void)bwi_error_wrap(cause, "%s tier: \"%s\"", bwi_tier_name(r->tier), r->keys[object].s);
    (void)bwi_error_copy(&r->task.error, cause);
    return go(r, META_SETTLE);
}

static enum bwi_step damaged(struct bwi_meta_read *r, int object, const char *what) {
    struct bw_error e = BW_ERROR_INIT;
    (void)bwi_error_set(&e, BW_E_CORRUPT, "%s", what);
    return fail(r, object, &e);
}

/* The store's own messages name the key. */
static enum bwi_step store_failed(struct bwi_meta_read *r, const struct bw_error *cause) {
    struct bw_error e = *cause;
    (void)bwi_error_wrap(&e, "%s tier", bwi_tier_name(r->tier));
    (void)bwi_error_copy(&r->task.error, &e);
    return go(r, META_SETTLE);
}

static enum bwi_step cancelled(struct bwi_meta_read *r) {
    struct bw_error e = BW_ERROR_INIT;
    (void)bwi_error_set(&e, BW_E_CANCELLED, "cancelled");
    return fail(r, SUMMARY, &e);
}

static void get(struct bwi_meta_read *r, int object, uint64_t limit_bytes) {
    bwi_call_get(&r->calls[object], &r->task, r->ctx->tier[r->tier], r->keys[object].s, limit_bytes);
}

/* ---- the summary ---- */

static enum bwi_step meta_ask_summary(struct bwi_meta_read *r) {
    r->keys[SUMMARY] = bwi_key_summary(r->ctx->run, &r->id, r->group);
    get(r, SUMMARY, BWI_SUMMARY_BYTES_MAX);
    return go(r, META_SUMMARY);
}

static int check_identity(const struct bwi_meta_read *r, const struct bwi_summary *s, struct bw_error *err) {
    if (!bwi_id_eq(&s->id, &r->id)) {
        char found[BWI_ID_TEXT_BYTES];
        char want[BWI_ID_TEXT_BYTES];
        bwi_id_text(&s->id, found);
        bwi_id_text(&r->id, want);
        return bwi_error_set(err, BW_E_CORRUPT, "the summary is of checkpoint %s, expected %s", found, want);
    }
    if (s->group != r->group) {
        return bwi_error_set(err, BW_E_CORRUPT, "the summary is of group %" PRIu32 ", expected %" PRIu32, s->group,
                             r->group);
    }
    if (r->want_uuid != NULL && !bwi_uuid_eq(&s->uuid, r->want_uuid)) {
        char found[BWI_UUID_TEXT_BYTES];
        char want[BWI_UUID_TEXT_BYTES];
        bwi_uuid_text(&s->uuid, found);
        bwi_uuid_text(r->want_uuid, want);
        return bwi_error_set(err, BW_E_FOREIGN, "the summary belongs to uuid %s, expected %s", found, want);
    }
    return 0;
}

static int check_want(const struct bwi_sha *want, const struct bwi_sha *found, const char *what, struct bw_error *err) {
    if (want == NULL || bwi_sha_eq(want, found)) return 0;
    char want_hex[BWI_SHA_HEX_BYTES];
    char found_hex[BWI_SHA_HEX_BYTES];
    bwi_sha_hex(want, want_hex);
    bwi_sha_hex(found, found_hex);
    return bwi_error_set(err, BW_E_CORRUPT, "the summary names %s %.16s, the manifest %.16s", what, found_hex,
                         want_hex);
}

/* The chain of hashes leads past a summary, so it may say anything of the whole checkpoint; whoever builds the manifest
 * again from the summaries counts on that. */
static int check_whole(const struct bwi_manifest *m, const struct bwi_summary *s, struct bw_error *err) {
    if (m == NULL) return 0;
    const uint64_t raw_bytes = m->groups[s->group].raw_bytes;
    if (s->world == m->world && s->groups == m->group_count && s->raw_bytes == raw_bytes) return 0;
    return bwi_error_set(err, BW_E_CORRUPT,
                         "the summary speaks of %" PRIu64 " bytes, %" PRIu32 " groups and %" PRIu32
                         " ranks, the manifest of %" PRIu64 ", %" PRIu32 " and %" PRIu32,
                         s->raw_bytes, s->groups, s->world, raw_bytes, m->group_count, m->world);
}

static enum bwi_step meta_summary(struct bwi_meta_read *r) {
    const struct bwi_store_op *op = &r->calls[SUMMARY].op;
    if (r->calls[SUMMARY].busy) return BWI_STEP_WAIT;
    if (op->error.status != 0) return store_failed(r, &op->error);
    r->objects++;
    struct bw_error e = BW_ERROR_INIT;
    struct bwi_summary s;
    int rc = bwi_summary_decode(bwi_buf_span(&op->body), &s, &e);
    if (rc == 0) rc = check_identity(r, &s, &e);
    if (rc == 0) rc = check_want(r->want_layout, &s.layout, "layout", &e);
    if (rc == 0) rc = check_want(r->want_content, &s.content, "content", &e);
    if (rc == 0) rc = check_whole(r->want_whole, &s, &e);
    if (rc < 0) return fail(r, SUMMARY, &e);
    r->meta->summary = s;
    r->meta->summary_ok = true;
    return go(r, r->summary_only ? META_SETTLE : META_ASK_OBJECTS);
}

/* ---- what it names ---- */

static enum bwi_step meta_ask_objects(struct bwi_meta_read *r) {
    const struct bwi_summary *s = &r->meta->summary;
    const char *run = r->ctx->run;
    if (r->task.cancel) return cancelled(r);
    r->keys[LAYOUT] = bwi_key_layout(run, r->id.attempt, r->id.nonce, &s->layout);
    r->keys[CONTENT] = bwi_key_content(run, s->fan_out, &r->id, r->group);
    r->keys[PLACEMENT] = bwi_key_placement(run, s->fan_out, &r->id, r->group, s->writer);
    get(r, LAYOUT, s->layout_bytes);
    get(r, CONTENT, s->content_bytes);
    get(r, PLACEMENT, s->placement_bytes);
    return go(r, META_LAYOUT);
}

/* Takes an object over if it is the one that the summary names. The store's BW_E_FORMAT says that it is larger than
 * it should be. */
static bool take(struct bwi_meta_read *r, int object, uint64_t bytes, const struct bwi_sha *sha, struct bwi_buf *ret) {
    struct bwi_store_op *op = &r->calls[object].op;
    struct bw_error e = BW_ERROR_INIT;
    const int status = op->error.status;
    if (status == BW_E_NOTFOUND) {
        (void)damaged(r, object, "the summary names it, and it is missing");
        return false;
    }
    if (status != 0 && status != BW_E_FORMAT) {
        (void)store_failed(r, &op->error);
        return false;
    }
    if (status == BW_E_FORMAT) {
        (void)bwi_error_set(&e, BW_E_CORRUPT, "more than the %" PRIu64 " bytes that the summary names", bytes);
    } else if (op->body.len != bytes) {
        (void)bwi_error_set(&e, BW_E_CORRUPT, "%zu bytes, the summary names %" PRIu64, op->body.len, bytes);
    } else {
        const struct bwi_sha found = bwi_sha_of(bwi_buf_span(&op->body));
        if (!bwi_sha_eq(&found, sha))
            (void)bwi_error_set(&e, BW_E_CORRUPT, "does not match the SHA-256 in the summary");
    }
    if (e.status != 0) {
        (void)fail(r, object, &e);
        return false;
    }
    r->objects++;
    *ret = op->body;
    op->body = (struct bwi_buf){0};
    return true;
}

static bool same_ranks(const struct bwi_layout *l, const struct bwi_summary *s) {
    return l->rank_count == s->rank_count && memcmp(l->ranks, s->ranks, s->rank_count * sizeof *s->ranks) == 0;
}

static enum bwi_step meta_layout(struct bwi_meta_read *r) {
    struct bwi_group_meta *m = r->meta;
    if (r->calls[LAYOUT].busy) return BWI_STEP_WAIT;
    if (!take(r, LAYOUT, m->summary.layout_bytes, &m->summary.layout, &m->layout_bytes)) return BWI_STEP_AGAIN;
    struct bw_error e = BW_ERROR_INIT;
    if (bwi_layout_decode(bwi_buf_span(&m->layout_bytes), &m->layout, &e) < 0) return fail(r, LAYOUT, &e);
    if (!same_ranks(&m->layout, &m->summary)) return damaged(r, LAYOUT, "its ranks are not those of the summary");
    return go(r, META_CONTENT);
}

static enum bwi_step meta_content(struct bwi_meta_read *r) {
    struct bwi_group_meta *m = r->meta;
    if (r->calls[CONTENT].busy) return BWI_STEP_WAIT;
    if (!take(r, CONTENT, m->summary.content_bytes, &m->summary.content, &m->content_bytes)) return BWI_STEP_AGAIN;
    struct bw_error e = BW_ERROR_INIT;
    if (bwi_content_decode(bwi_buf_span(&m->content_bytes), &m->content, &e) < 0) return fail(r, CONTENT, &e);
    if (!bwi_sha_eq(&m->content.layout, &m->summary.layout)) return damaged(r, CONTENT, "it belongs to another layout");
    if (bwi_content_check(&m->content, &m->layout, &e) < 0) return fail(r, CONTENT, &e);
    return go(r, META_PLACEMENT);
}

static enum bwi_step meta_placement(struct bwi_meta_read *r) {
    struct bwi_group_meta *m = r->meta;
    if (r->calls[PLACEMENT].busy) return BWI_STEP_WAIT;
    if (!take(r, PLACEMENT, m->summary.placement_bytes, &m->summary.placement, &m->placement_bytes)) {
        return BWI_STEP_AGAIN;
    }
    struct bw_error e = BW_ERROR_INIT;
    if (bwi_placement_decode(bwi_buf_span(&m->placement_bytes), &m->placement, &e) < 0) return fail(r, PLACEMENT, &e);
    if (!bwi_sha_eq(&m->placement.content, &m->summary.content)) {
        return damaged(r, PLACEMENT, "it belongs to another content");
    }
    if (m->placement.writer != m->summary.writer) return damaged(r, PLACEMENT, "its writer is not that of the summary");
    return go(r, META_CHECK);
}

static enum bwi_step meta_check(struct bwi_meta_read *r) {
    struct bwi_group_meta *m = r->meta;
    struct bw_error e = BW_ERROR_INIT;
    if (bwi_placement_check(&m->placement, &m->content, r->ctx->run, &r->id, m->summary.refs, m->summary.ref_count,
                            &e) < 0) {
        return fail(r, PLACEMENT, &e);
    }
    m->meta_ok = true;
    return go(r, META_SETTLE);
}

/* ---- the task ---- */

static enum bwi_step meta_settle(struct bwi_meta_read *r) {
    if (r->task.pending > 0) return BWI_STEP_WAIT;
    for (int i = 0; i < OBJECTS; i++) bwi_call_fini(&r->calls[i]);
    if (!r->meta->meta_ok) fini_objects(r->meta);
    return BWI_STEP_END;
}

static enum bwi_step meta_step(struct bwi_task *t) {
    struct bwi_meta_read *r = bwi_container_of(t, struct bwi_meta_read, task);
    switch ((enum meta_state)r->state) {
    case META_ASK_SUMMARY: return meta_ask_summary(r);
    case META_SUMMARY: return meta_summary(r);
    case META_ASK_OBJECTS: return meta_ask_objects(r);
    case META_LAYOUT: return meta_layout(r);
    case META_CONTENT: return meta_content(r);
    case META_PLACEMENT: return meta_placement(r);
    case META_CHECK: return meta_check(r);
    case META_SETTLE: return meta_settle(r);
    }
    return BWI_STEP_END;
}

void bwi_meta_read_start(struct bwi_meta_read *r, struct bwi_loop *loop, struct bwi_task *parent) {
    bwi_group_meta_fini(r->meta);
    memset(r->calls, 0, sizeof r->calls);
    r->state = META_ASK_SUMMARY;
    r->objects = 0;
    r->task.step = meta_step;
    r->task.name = "meta read";
    bwi_task_start(loop, &r->task, parent);
}
