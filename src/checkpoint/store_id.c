/* SPDX-License-Identifier: Apache-2.0 */
/* Reading and making store.json. */
#include "checkpoint/store_id.h"

#include <string.h>

#include "base/error.h"

#define STORE_ID_KEY "store.json"

enum store_id_state { STORE_ID_READ, STORE_ID_TAKE, STORE_ID_LOOK, STORE_ID_MADE };

struct bwi_uuid bwi_uuid_random(struct bwi_env *env) {
    uint64_t word[2] = {env->random_u64(env), env->random_u64(env)};
    struct bwi_uuid u;
    memcpy(u.b, word, sizeof u.b);
    return u;
}

static enum bwi_step end(struct bwi_store_ids *s, const struct bw_error *e) {
    if (e && bwi_error_copy(&s->task.error, e) < 0)
        bwi_error_wrap(&s->task.error, "%s store \"%.120s\"", bwi_tier_name((enum bwi_tier)s->tier),
                       s->ctx->tier[s->tier]->url);
    bwi_call_fini(&s->call);
    bwi_buf_fini(&s->bytes);
    return BWI_STEP_END;
}

#define IN_ANOTHER_STORE "move \"runs/\" into another store and promote each run there (breakwater repair --promote)"

/* Nobody mends an identity by himself: only the user knows whether this is the right place at all. */
static enum bwi_step damaged(struct bwi_store_ids *s, const struct bw_error *why) {
    struct bw_error e = BW_ERROR_INIT;
    bwi_error_set(&e, why->status, "%.160s: %s", why->message,
                  s->tier == BWI_TIER_LOCAL
                      ? "if this is the right directory, remove that file: the next launch makes a new one, and what "
                        "lies beside it stays in use"
                      : "put a sound copy of it back, or " IN_ANOTHER_STORE);
    return end(s, &e);
}

static enum bwi_step missing(struct bwi_store_ids *s) {
    struct bw_error e = BW_ERROR_INIT;
    bwi_error_set(&e, BW_E_NOTFOUND, "it is no store: there is no \"" STORE_ID_KEY "\" (%s makes one)",
                  s->tier == BWI_TIER_LOCAL ? "the next launch" : "the first launch in an empty place");
    return end(s, &e);
}

static enum bwi_step read_id(struct bwi_store_ids *s) {
    while (s->tier < BWI_TIERS && !s->ctx->tier[s->tier]) s->tier++;
    if (s->tier == BWI_TIERS) return end(s, NULL);
    s->state = STORE_ID_TAKE;
    bwi_call_get(&s->call, &s->task, s->ctx->tier[s->tier], STORE_ID_KEY, BWI_JSON_SMALL_MAX);
    return BWI_STEP_WAIT;
}

static enum bwi_step make_id(struct bwi_store_ids *s) {
    struct bw_error e = BW_ERROR_INIT;
    struct bwi_store_id id = {.id = bwi_uuid_random(s->ctx->env)};
    bwi_buf_fini(&s->bytes);
    if (bwi_store_id_encode(&id, &s->bytes, &e) < 0) return end(s, &e);
    s->state = STORE_ID_MADE;
    bwi_call_create(&s->call, &s->task, s->ctx->tier[s->tier], STORE_ID_KEY, bwi_buf_span(&s->bytes));
    return BWI_STEP_WAIT;
}

/* A history names the store that decides, so runs without an identity beside them have lost it: a new one would make
 * archives of all of them. In a local tier nothing names the store, and a new identity is as good as the old one; but
 * if there is a history, it is no local tier. */
static enum bwi_step look_for_runs(struct bwi_store_ids *s) {
    const struct bwi_key history = bwi_key_history(s->ctx->run);
    s->state = STORE_ID_LOOK;
    bwi_call_list(&s->call, &s->task, s->ctx->tier[s->tier], s->tier == BWI_TIER_LOCAL ? history.s : "runs/", NULL);
    return BWI_STEP_WAIT;
}

/* The identity is made first, so whoever sees a run may have been overtaken by its maker: it reads the identity once
 * more. */
static enum bwi_step looked_for_runs(struct bwi_store_ids *s) {
    struct bw_error e = s->call.op.error;
    if (e.status < 0) return end(s, &e);
    if (s->call.op.names.len == 0) return make_id(s);
    if (!s->looked) {
        s->looked = true;
        return read_id(s);
    }
    if (s->tier == BWI_TIER_LOCAL)
        bwi_error_set(&e, BW_E_FOREIGN,
                      "it holds the history of run \"%s\", but \"" STORE_ID_KEY "\" is missing: this is a remote store "
                      "that has lost it, choose another directory for the local tier",
                      s->ctx->run);
    else
        bwi_error_set(&e, BW_E_FOREIGN,
                      "it holds runs, but \"" STORE_ID_KEY
                      "\" is missing: put that back, or choose an empty place, or " IN_ANOTHER_STORE);
    return end(s, &e);
}

static enum bwi_step take_id(struct bwi_store_ids *s) {
    struct bw_error e = s->call.op.error;
    if (e.status == BW_E_NOTFOUND) return s->create ? look_for_runs(s) : missing(s);
    struct bwi_store_id id;
    if (e.status == 0) (void)bwi_store_id_decode(bwi_buf_span(&s->call.op.body), &id, &e);
    if (e.status == BW_E_CORRUPT || e.status == BW_E_FORMAT) return damaged(s, &e);
    if (e.status < 0) return end(s, &e);
    s->ctx->store_id[s->tier++] = id.id;
    s->looked = false;
    s->state = STORE_ID_READ;
    return BWI_STEP_AGAIN;
}

static enum bwi_step store_id_step(struct bwi_task *t) {
    struct bwi_store_ids *s = bwi_container_of(t, struct bwi_store_ids, task);
    if (t->pending) return BWI_STEP_WAIT;
    switch ((enum store_id_state)s->state) {
    case STORE_ID_READ: return read_id(s);
    case STORE_ID_TAKE: return take_id(s);
    case STORE_ID_LOOK: return looked_for_runs(s);
    case STORE_ID_MADE: break;
    }
    /* Somebody else's id may have been first: whatever is there now counts. */
    if (s->call.op.error.status < 0 && s->call.op.error.status != BW_E_EXISTS) return end(s, &s->call.op.error);
    return read_id(s);
}

void bwi_store_ids_start(struct bwi_store_ids *s, struct bwi_loop *loop, struct bwi_task *parent) {
    s->task.step = store_id_step;
    s->task.name = "store-id";
    s->state = STORE_ID_READ;
    s->tier = 0;
    s->looked = false;
    bwi_task_start(loop, &s->task, parent);
}
