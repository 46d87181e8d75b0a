/* SPDX-License-Identifier: Apache-2.0 */
/* Commit: from all summaries of a checkpoint to the history entry that makes it live. doc/flows/commit.md. */
#include "checkpoint/commit.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/text.h"
#include "base/vec.h"
#include "checkpoint/plan.h"

/* Objects fetched at once: ten thousand of them come within seconds from a store that takes 50 ms for each, and one
 * rank of a job does this. */
#define COMMIT_WINDOW 128u
#define MISSING_NAMED 8u

enum commit_state {
    COMMIT_MARKS,
    COMMIT_MARK,
    COMMIT_GROUPS,
    COMMIT_SUMMARIES,
    COMMIT_LAYOUTS,
    COMMIT_PUT,
    COMMIT_SYNC,
    COMMIT_DECIDE,
    COMMIT_END
};

struct slot {
    struct bwi_call call;
    uint32_t index;
    bool used;
};

struct bwi_commit_work {
    struct slot slots[COMMIT_WINDOW];
    uint32_t next;                 /* of what is fetched now */
    struct bwi_summary *summaries; /* per group */
    struct bwi_layout *layouts;    /* per group, while an index is made */
    struct bwi_buf *layout_bytes;
    struct bwi_sha key;         /* of the set of layouts */
    struct bwi_index_cache own; /* where the caller has none */
    struct bwi_index_cache *cache;
    struct bwi_manifest manifest;
    struct bwi_buf manifest_bytes;
    struct bwi_sha manifest_sha;
    struct bwi_decide decide;
    bool aborting;
    bool decided_live; /* the head says that it is live, or shelved */
};

void bwi_index_cache_fini(struct bwi_index_cache *c) {
    bwi_buf_fini(&c->bytes);
    *c = (struct bwi_index_cache){0};
}

static struct bwi_store *authority(struct bwi_commit *c) {
    return c->ctx->tier[BWI_TIER_REMOTE];
}

static void free_layouts(struct bwi_commit *c) {
    struct bwi_commit_work *w = c->w;
    for (uint32_t g = 0; w->layouts && g < c->groups; g++) bwi_layout_fini(&w->layouts[g]);
    for (uint32_t g = 0; w->layout_bytes && g < c->groups; g++) bwi_buf_fini(&w->layout_bytes[g]);
    bwi_free(w->layouts);
    bwi_free(w->layout_bytes);
    w->layouts = NULL;
    w->layout_bytes = NULL;
}

void bwi_commit_fini(struct bwi_commit *c) {
    struct bwi_commit_work *w = c->w;
    if (w) {
        for (size_t i = 0; i < COMMIT_WINDOW; i++) bwi_call_fini(&w->slots[i].call);
        free_layouts(c);
        bwi_free(w->summaries);
        bwi_index_cache_fini(&w->own);
        bwi_manifest_fini(&w->manifest);
        bwi_buf_fini(&w->manifest_bytes);
        bwi_decide_fini(&w->decide);
        bwi_free(w);
    }
    c->w = NULL;
    bwi_head_fini(&c->head);
}

static enum bwi_step fail(struct bwi_commit *c, const struct bw_error *e) {
    char id[BWI_ID_TEXT_BYTES];
    bwi_id_text(&c->id, id);
    if (bwi_error_copy(&c->task.error, e) < 0) bwi_error_wrap(&c->task.error, "commit %s", id);
    bwi_error_stage(&c->task.error, BW_STAGE_COMMIT);
    c->state = COMMIT_END;
    return BWI_STEP_AGAIN;
}

static enum bwi_step finish(struct bwi_commit *c, enum bwi_commit_result result) {
    c->result = result;
    c->state = COMMIT_END;
    return BWI_STEP_AGAIN;
}

/* --- deciding ------------------------------------------------------------------------------------------------ */

static int next_entry(void *user, const struct bwi_actor *a, struct bwi_entry *ret, struct bw_error *err) {
    struct bwi_commit *c = user;
    struct bwi_commit_work *w = c->w;
    w->decided_live = a->head && bwi_policy_find_kept(a->head, &c->id) != NULL;
    if (w->decided_live) return 1;
    if (w->aborting) {
        int rc = bwi_policy_abort(a, &c->id, c->reason, ret, err);
        if (rc != BW_E_STATE) return rc;
        bw_error_clear(err);
        return 1;
    }
    if (bwi_policy_fate(a->head, &c->id) != BWI_FATE_COMMITTABLE) return 1;
    if (bwi_policy_committable(a->head, &c->id, c->kept.refs, c->kept.ref_count))
        return bwi_policy_commit(a, &c->kept, ret, err);
    w->aborting = true; /* nothing brings that back, so it would stay open for ever */
    c->reason_status = BW_E_ABORTED;
    bwi_format(c->reason, sizeof c->reason, "a checkpoint that it refers to was retired");
    return bwi_policy_abort(a, &c->id, c->reason, ret, err);
}

static enum bwi_step decide(struct bwi_commit *c) {
    struct bwi_decide *d = &c->w->decide;
    *d = (struct bwi_decide){.ctx = c->ctx, .next = next_entry, .user = c, .deadline_ns = c->deadline_ns};
    c->state = COMMIT_DECIDE;
    bwi_decide_start(d, c->task.loop, &c->task);
    return BWI_STEP_WAIT;
}

static enum bwi_step decided(struct bwi_commit *c) {
    struct bwi_commit_work *w = c->w;
    if (w->decide.task.running) {
        if (c->task.cancel && !w->decide.task.cancel) bwi_task_cancel(&w->decide.task);
        return BWI_STEP_WAIT;
    }
    if (w->decide.task.error.status < 0) return fail(c, &w->decide.task.error);
    bwi_head_fini(&c->head);
    c->head = w->decide.head;
    w->decide.head = (struct bwi_head){0};
    bool live = w->decided_live || (w->decide.created && !w->aborting);
    c->objects += w->decide.created;
    /* Nothing is decided about a try before the lower ones of its step are aborted. */
    const bool early =
        !w->decide.created && bwi_policy_fate(c->head.found ? &c->head.entry : NULL, &c->id) == BWI_FATE_AHEAD;
    if (early) return finish(c, BWI_COMMIT_INCOMPLETE);
    if (!live && !c->reason[0]) {
        c->reason_status = BW_E_ABORTED;
        bwi_format(c->reason, sizeof c->reason,
                   "it was closed by an abort, by the commit of a later step, or by a new attempt");
    }
    return finish(c, live ? BWI_COMMIT_DONE : BWI_COMMIT_ABORTED);
}

static enum bwi_step abort_try(struct bwi_commit *c, int status, const char *reason) {
    c->w->aborting = true;
    c->reason_status = status;
    bwi_format(c->reason, sizeof c->reason, "%s", reason);
    return c->prepare_only ? finish(c, BWI_COMMIT_ABORTED) : decide(c);
}

/* --- looking ------------------------------------------------------------------------------------------------- */

static enum bwi_step list_marks(struct bwi_commit *c) {
    struct bwi_key prefix = bwi_key_failed_dir(c->ctx->run, &c->id);
    c->state = COMMIT_MARK;
    bwi_call_list(&c->w->slots[0].call, &c->task, authority(c), prefix.s, NULL);
    return BWI_STEP_WAIT;
}

/* The first call lists failed/, the second reads the first mark in it. */
static enum bwi_step look_at_mark(struct bwi_commit *c) {
    struct bwi_store_op *listed = &c->w->slots[0].call.op, *read = &c->w->slots[1].call.op;
    if (listed->error.status < 0) return fail(c, &listed->error);
    if (listed->names.len == 0) {
        struct bwi_key prefix = bwi_key_groups(c->ctx->run, &c->id);
        c->state = COMMIT_GROUPS;
        bwi_call_list(&c->w->slots[0].call, &c->task, authority(c), prefix.s, NULL);
        return BWI_STEP_WAIT;
    }
    if (!c->w->slots[1].used) {
        uint64_t group;
        c->w->slots[1].used = true;
        if (bwi_dec_padded_u64(listed->names.name[0], 6, &group)) {
            struct bwi_key key = bwi_key_failed(c->ctx->run, &c->id, (uint32_t)group);
            bwi_call_get(&c->w->slots[1].call, &c->task, authority(c), key.s, BWI_JSON_SMALL_MAX);
            return BWI_STEP_WAIT;
        }
    }
    struct bwi_mark mark = {0};
    char reason[400];
    bool told = read->error.status == 0 && read->body.len &&
                bwi_mark_decode(bwi_buf_span(&read->body), false, &mark, NULL) == 0;
    if (told)
        bwi_format(reason, sizeof reason, "group %u gave up: %.300s", mark.group, mark.reason);
    else
        bwi_format(reason, sizeof reason, "group %.6s gave up", listed->names.name[0]);
    return abort_try(c, told ? mark.status : BW_E_ABORTED, reason);
}

/* Groups [from, to) are missing. */
static void miss(struct bwi_commit *c, uint32_t from, uint32_t to) {
    for (uint32_t g = from; g < to && c->missing + (g - from) <= MISSING_NAMED; g++) {
        const size_t at = strlen(c->missing_list);
        const uint32_t nth = c->missing + (g - from);
        char *end = c->missing_list + at;
        if (nth == MISSING_NAMED)
            bwi_format(end, sizeof c->missing_list - at, ", ...");
        else
            bwi_format(end, sizeof c->missing_list - at, "%s%u", nth ? ", " : "", g);
    }
    if (from < to && c->missing == 0) c->first_missing = from;
    c->missing += to - from;
}

static enum bwi_step count_groups(struct bwi_commit *c) {
    struct bwi_store_op *listed = &c->w->slots[0].call.op;
    if (listed->error.status < 0) return fail(c, &listed->error);
    uint32_t next = 0; /* names come in order */
    c->missing = 0;
    c->missing_list[0] = '\0';
    for (size_t i = 0; i < listed->names.len; i++) {
        uint64_t group;
        if (strlen(listed->names.name[i]) != 6 || !bwi_dec_padded_u64(listed->names.name[i], 6, &group) ||
            group >= c->groups || group < next)
            continue;
        miss(c, next, (uint32_t)group);
        next = (uint32_t)group + 1;
    }
    miss(c, next, c->groups);
    if (c->missing > 0 || c->look_only) return finish(c, BWI_COMMIT_INCOMPLETE);
    for (size_t i = 0; i < COMMIT_WINDOW; i++) c->w->slots[i].used = false;
    c->w->next = 0;
    c->state = COMMIT_SUMMARIES;
    return BWI_STEP_AGAIN;
}

/* --- fetching in a window ------------------------------------------------------------------------------------ */

/* Keeps COMMIT_WINDOW gets of `total` objects in flight. Each answer goes to take(). 1: all have been taken; 0: wait;
 * negative: an error, when nothing is in flight any more. */
static int fetch(struct bwi_commit *c, uint32_t total,
                 bool (*key_of)(struct bwi_commit *, uint32_t, struct bwi_key *, uint64_t *),
                 int (*take)(struct bwi_commit *, uint32_t, struct bwi_store_op *, struct bw_error *),
                 struct bw_error *err) {
    struct bwi_commit_work *w = c->w;
    for (size_t i = 0; i < COMMIT_WINDOW; i++) {
        struct slot *s = &w->slots[i];
        if (s->used && s->call.busy) continue;
        if (s->used) {
            s->used = false;
            if (s->call.op.error.status < 0)
                bwi_error_copy(err, &s->call.op.error);
            else
                take(c, s->index, &s->call.op, err);
            bwi_call_fini(&s->call);
        }
        struct bwi_key key;
        uint64_t limit;
        while (!err->status && w->next < total && !key_of(c, w->next, &key, &limit)) w->next++;
        if (err->status || w->next >= total) continue;
        s->used = true;
        s->index = w->next++;
        bwi_call_get(&s->call, &c->task, authority(c), key.s, limit);
    }
    for (size_t i = 0; i < COMMIT_WINDOW; i++)
        if (w->slots[i].used) return 0;
    return err->status ? err->status : 1;
}

static bool summary_key(struct bwi_commit *c, uint32_t g, struct bwi_key *key, uint64_t *limit) {
    *key = bwi_key_summary(c->ctx->run, &c->id, g);
    *limit = BWI_SUMMARY_BYTES_MAX;
    return true;
}

static int take_summary(struct bwi_commit *c, uint32_t g, struct bwi_store_op *op, struct bw_error *err) {
    struct bwi_summary *s = &c->w->summaries[g];
    int rc = bwi_summary_decode(bwi_buf_span(&op->body), s, err);
    if (rc == 0 && (!bwi_id_eq(&s->id, &c->id) || s->group != g || s->groups != c->groups))
        rc = bwi_error_set(err, BW_E_CORRUPT, "it belongs to group %u of %u of step %llu", s->group, s->groups,
                           (unsigned long long)s->id.step);
    if (rc == 0 && !bwi_policy_in_lineage(c->lineage_of, &s->uuid))
        rc = bwi_error_set(err, BW_E_FOREIGN, "it was made in another life of run \"%s\"", c->ctx->run);
    if (rc < 0) (void)bwi_error_wrap(err, "summary \"%s\"", op->key);
    return rc;
}

/* --- index and manifest -------------------------------------------------------------------------------------- */

static void layouts_key(struct bwi_commit *c) {
    struct bwi_sha_state s;
    bwi_sha_init(&s);
    for (uint32_t g = 0; g < c->groups; g++)
        bwi_sha_update(&s, c->w->summaries[g].layout.b, sizeof c->w->summaries[g].layout.b);
    c->w->key = bwi_sha_final(&s);
}

static bool layout_key(struct bwi_commit *c, uint32_t g, struct bwi_key *key, uint64_t *limit) {
    const struct bwi_summary *s = &c->w->summaries[g];
    *key = bwi_key_layout(c->ctx->run, c->id.attempt, c->id.nonce, &s->layout);
    *limit = s->layout_bytes < BWI_LAYOUT_BYTES_MAX ? s->layout_bytes : BWI_LAYOUT_BYTES_MAX;
    return true;
}

static int take_layout(struct bwi_commit *c, uint32_t g, struct bwi_store_op *op, struct bw_error *err) {
    struct bwi_commit_work *w = c->w;
    w->layout_bytes[g] = op->body;
    op->body = (struct bwi_buf){0};
    struct bwi_sha sha = bwi_sha_of(bwi_buf_span(&w->layout_bytes[g]));
    int rc = 0;
    if (!bwi_sha_eq(&sha, &w->summaries[g].layout))
        rc = bwi_error_set(err, BW_E_CORRUPT, "its SHA-256 is not that in the summary of group %u", g);
    if (rc == 0) rc = bwi_layout_decode(bwi_buf_span(&w->layout_bytes[g]), &w->layouts[g], err);
    if (rc < 0) (void)bwi_error_wrap(err, "layout \"%s\"", op->key);
    return rc;
}

static enum bwi_step summaries(struct bwi_commit *c) {
    struct bw_error e = c->task.error;
    int rc = fetch(c, c->groups, summary_key, take_summary, &e);
    c->task.error = e;
    if (rc == 0) return BWI_STEP_WAIT;
    if (rc < 0) {
        struct bw_error first = c->task.error;
        c->task.error = (struct bw_error)BW_ERROR_INIT;
        return fail(c, &first);
    }
    layouts_key(c);
    c->state = COMMIT_LAYOUTS;
    c->w->next = 0;
    if (c->w->cache->set && bwi_sha_eq(&c->w->cache->key, &c->w->key)) {
        c->state = COMMIT_PUT;
        return BWI_STEP_AGAIN;
    }
    c->w->layouts = bwi_calloc(c->groups, sizeof *c->w->layouts);
    c->w->layout_bytes = bwi_calloc(c->groups, sizeof *c->w->layout_bytes);
    if (c->w->layouts && c->w->layout_bytes) return BWI_STEP_AGAIN;
    bwi_error_nomem(&e, c->groups * sizeof *c->w->layouts, "layouts");
    return fail(c, &e);
}

/* Coverage is checked here, once per set of layouts; the index that comes out is kept with it. */
static int make_index(struct bwi_commit *c, struct bw_error *err) {
    struct bwi_commit_work *w = c->w;
    struct bwi_index_builder *b = NULL;
    const struct bwi_index_tensor *tensors;
    size_t count;
    int rc = bwi_index_builder_new(&b, err);
    for (uint32_t g = 0; rc == 0 && g < c->groups; g++) rc = bwi_index_builder_add(b, g, &w->layouts[g], err);
    if (rc == 0) rc = bwi_index_builder_tensors(b, &tensors, &count, err);
    if (rc == 0) rc = bwi_coverage_check(tensors, count, err);
    if (rc == 0) {
        bwi_index_cache_fini(w->cache);
        rc = bwi_index_builder_encode(b, &w->cache->bytes, &w->cache->info, err);
    }
    if (rc == 0) {
        w->cache->set = true;
        w->cache->key = w->key;
    }
    bwi_index_builder_free(b);
    return rc;
}

static enum bwi_step layouts(struct bwi_commit *c) {
    struct bw_error e = c->task.error;
    int rc = fetch(c, c->groups, layout_key, take_layout, &e);
    c->task.error = e;
    if (rc == 0) return BWI_STEP_WAIT;
    c->task.error = (struct bw_error)BW_ERROR_INIT;
    if (rc > 0) rc = make_index(c, &e);
    free_layouts(c);
    if (rc == BW_E_COVERAGE) return abort_try(c, rc, e.message);
    if (rc < 0) return fail(c, &e);
    c->state = COMMIT_PUT;
    return BWI_STEP_AGAIN;
}

static void fill_kept(struct bwi_commit *c) {
    const struct bwi_manifest *m = &c->w->manifest;
    struct bwi_env *env = c->ctx->env;
    c->kept = (struct bwi_kept){.id = c->id,
                                .manifest = c->w->manifest_sha,
                                .bytes = m->raw_bytes,
                                .time_ms = env->unix_ms(env),
                                .ref_count = m->ref_count};
    memcpy(c->kept.refs, m->refs, sizeof c->kept.refs);
}

static enum bwi_step put(struct bwi_commit *c) {
    struct bwi_commit_work *w = c->w;
    struct bw_error e = BW_ERROR_INIT;
    int rc = bwi_manifest_build(w->summaries, c->groups, &w->cache->info, &w->manifest, &e);
    if (rc == BW_E_COVERAGE) return abort_try(c, rc, e.message);
    if (rc == 0) rc = bwi_manifest_encode(&w->manifest, &w->manifest_bytes, &e);
    if (rc < 0) return fail(c, &e);
    w->manifest_sha = bwi_sha_of(bwi_buf_span(&w->manifest_bytes));
    fill_kept(c);
    if (c->dry_run) return finish(c, BWI_COMMIT_DONE);
    struct bwi_key index = bwi_key_index(c->ctx->run, &c->id, &w->cache->info.root);
    struct bwi_key manifest = bwi_key_manifest(c->ctx->run, &c->id, &w->manifest_sha);
    struct bwi_key groups = bwi_key_groups(c->ctx->run, &c->id);
    struct bwi_key layouts_of = bwi_key_layouts_of(c->ctx->run, c->id.attempt, c->id.nonce);
    bwi_call_create(&w->slots[0].call, &c->task, authority(c), index.s, bwi_buf_span(&w->cache->bytes));
    bwi_call_create(&w->slots[1].call, &c->task, authority(c), manifest.s, bwi_buf_span(&w->manifest_bytes));
    /* Others made those names, and may have died before they were durable. */
    bwi_call_prepare(&w->slots[2].call, BWI_STORE_SYNC, groups.s);
    bwi_call_submit(&w->slots[2].call, &c->task, authority(c));
    bwi_call_prepare(&w->slots[3].call, BWI_STORE_SYNC, layouts_of.s);
    bwi_call_submit(&w->slots[3].call, &c->task, authority(c));
    c->state = COMMIT_SYNC;
    return BWI_STEP_WAIT;
}

static enum bwi_step put_done(struct bwi_commit *c) {
    for (size_t i = 0; i < 4; i++)
        if (c->w->slots[i].call.op.error.status < 0) return fail(c, &c->w->slots[i].call.op.error);
    c->objects += 2;
    return c->prepare_only ? finish(c, BWI_COMMIT_DONE) : decide(c);
}

static enum bwi_step commit_step(struct bwi_task *t) {
    struct bwi_commit *c = bwi_container_of(t, struct bwi_commit, task);
    bool windowed = c->state == COMMIT_SUMMARIES || c->state == COMMIT_LAYOUTS;
    if (t->pending && !windowed) return BWI_STEP_WAIT;
    switch ((enum commit_state)c->state) {
    case COMMIT_MARKS: return list_marks(c);
    case COMMIT_MARK: return look_at_mark(c);
    case COMMIT_GROUPS: return count_groups(c);
    case COMMIT_SUMMARIES: return summaries(c);
    case COMMIT_LAYOUTS: return layouts(c);
    case COMMIT_PUT: return put(c);
    case COMMIT_SYNC: return put_done(c);
    case COMMIT_DECIDE: return decided(c);
    case COMMIT_END: break;
    }
    return BWI_STEP_END;
}

void bwi_commit_start(struct bwi_commit *c, struct bwi_loop *loop, struct bwi_task *parent) {
    c->task.step = commit_step;
    c->task.name = "commit";
    c->state = COMMIT_MARKS;
    c->head = (struct bwi_head){0};
    bwi_task_start(loop, &c->task, parent);
    c->w = bwi_calloc(1, sizeof *c->w);
    if (c->w) c->w->summaries = bwi_calloc(c->groups, sizeof *c->w->summaries);
    if (!c->w || !c->w->summaries) {
        bwi_error_nomem(&c->task.error, c->groups * sizeof(struct bwi_summary), "commit");
        c->state = COMMIT_END;
        return;
    }
    c->w->cache = c->cache ? c->cache : &c->w->own;
}
