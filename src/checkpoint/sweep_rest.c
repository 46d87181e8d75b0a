/* SPDX-License-Identifier: Apache-2.0 */
/* The last part of a sweep: layouts of past attempts of which no checkpoint is left in the tier, and inventories of
 * launches that are over.
 *
 * Which launches are over? One that has registered and is not the current one: nobody will ask for its inventories
 * again. One that has not registered is over once another one has since its rank 0 read the history first, as that
 * one's inventory says: it would be refused. Else it may be gathering its ranks at this moment, however old the newest
 * history entry is, since a job may come back after weeks; and no store says when an object was made. So it goes only
 * when sweeps of one process (bwi_launch_watch) have seen it unregistered for a day, longer than any launch waits for
 * its ranks. */
#include "base/error.h"
#include "base/text.h"
#include "base/vec.h"
#include "checkpoint/sweep_private.h"
#include <inttypes.h>
#include <string.h>

#define LAUNCH_IS_OVER_NS (UINT64_C(86400) * BWI_NS_PER_S)

void bwi_launch_watch_fini(struct bwi_launch_watch *w) {
    if (w == NULL) return;
    bwi_free(w->list);
    *w = (struct bwi_launch_watch){0};
}

static enum bwi_step wait_in(struct bwi_sweep *s, enum bwi_sweep_state in) {
    s->state = (int)in;
    return BWI_STEP_WAIT;
}

/* ---- launches ---- */

static bool is_registered(const struct bwi_entry *e, const char *launch) {
    for (size_t i = 0; i < e->launch_count; i++)
        if (strcmp(e->launches[i], launch) == 0) return true;
    return false;
}

/* Whether it has been seen for a day. Out of memory: it is not remembered, and stays. */
static bool is_given_up(struct bwi_sweep *s, const char *launch) {
    struct bwi_launch_watch *w = s->watch;
    const uint64_t now = bwi_loop_now_ns(s->task.loop);
    if (w == NULL) return false;
    for (size_t i = 0; i < w->count; i++) {
        if (strcmp(w->list[i].launch, launch) != 0) continue;
        w->list[i].seen = true;
        return now - w->list[i].since_ns > LAUNCH_IS_OVER_NS;
    }
    void *grown = w->list;
    const bool ok = bwi_vec_reserve(&grown, &w->cap, w->count + 1, sizeof *w->list);
    w->list = grown;
    if (!ok) return false;
    struct bwi_watched *added = &w->list[w->count++];
    *added = (struct bwi_watched){.since_ns = now, .seen = true};
    (void)bwi_format(added->launch, sizeof added->launch, "%s", launch);
    return false;
}

static void forget_unseen(struct bwi_launch_watch *w) {
    size_t kept = 0;
    for (size_t i = 0; i < w->count; i++)
        if (w->list[i].seen) w->list[kept++] = w->list[i];
    w->count = kept;
    for (size_t i = 0; i < kept; i++) w->list[i].seen = false;
}

/* By the inventory of its rank 0, which alone registers. */
static bool is_beaten(struct bwi_sweep *s, const char *launch) {
    const struct bwi_store_op *op = &s->w->sync.op;
    struct bwi_inventory v;
    if (op->error.status < 0 || bwi_inventory_decode(bwi_buf_span(&op->body), &v, NULL) < 0) return false;
    const bool sound = v.group == 0 && strcmp(v.launch, launch) == 0 && v.seen_told;
    const bool beaten = sound && bwi_policy_is_beaten(&s->w->head.entry, v.seen_set, v.seen_number);
    bwi_inventory_fini(&v);
    return beaten;
}

/* ---- layouts ---- */

/* Whether one of its checkpoints stays: in a dry run those that would be deleted are still there. */
static bool has_checkpoint(const struct bwi_sweep *s, uint32_t attempt, uint32_t nonce) {
    const struct bwi_store_names *names = &s->w->calls[1].op.names;
    if (!s->dry_run) return bwi_names_have_attempt(names, attempt, nonce);
    for (size_t i = 0; i < names->len; i++) {
        struct bwi_id id;
        if (!bwi_names_id(names, i, &id) || id.attempt != attempt || id.nonce != nonce) continue;
        size_t k = 0;
        while (k < s->w->count && !(s->w->list[k].gone && bwi_id_eq(&s->w->list[k].id, &id))) k++;
        if (k == s->w->count) return true;
    }
    return false;
}

/* ---- both ---- */

static enum bwi_step list(struct bwi_sweep *s) {
    const char *run = s->ctx->run;
    const struct bwi_key dirs = s->w->launches ? bwi_key_launches(run) : bwi_key_layouts(run);
    const struct bwi_key checkpoints = bwi_key_checkpoints(run);
    bwi_call_list(&s->w->calls[0], &s->task, bwi_sweep_store(s), dirs.s, NULL);
    if (!s->w->launches) bwi_call_list(&s->w->calls[1], &s->task, bwi_sweep_store(s), checkpoints.s, NULL);
    s->w->at = 0;
    return wait_in(s, BWI_SWEEP_REST_LISTED);
}

static enum bwi_step listed(struct bwi_sweep *s) {
    struct bwi_sweep_work *w = s->w;
    if (w->calls[0].op.error.status < 0) return bwi_sweep_fail(s, &w->calls[0].op.error);
    if (w->calls[1].op.error.status < 0) return bwi_sweep_fail(s, &w->calls[1].op.error);
    return bwi_sweep_go(s, BWI_SWEEP_REST_NEXT);
}

/* Layouts: the directory of the i-th name, if it goes. */
static bool goes(struct bwi_sweep *s, size_t i, struct bwi_key *ret) {
    const struct bwi_store_names *names = &s->w->calls[0].op.names;
    uint32_t attempt, nonce;
    if (!bwi_names_attempt(names, i, &attempt, &nonce)) return false;
    if (!bwi_policy_layouts_dead(&s->w->head.entry, attempt, nonce) || has_checkpoint(s, attempt, nonce)) return false;
    *ret = bwi_key_layouts_of(s->ctx->run, attempt, nonce);
    return true;
}

/* Layouts are in both tiers, inventories only in the authority. */
static enum bwi_step end_of_list(struct bwi_sweep *s) {
    if (!s->w->launches && s->tier == BWI_TIER_REMOTE) {
        s->w->launches = true;
        return bwi_sweep_go(s, BWI_SWEEP_REST);
    }
    if (s->w->launches && s->watch != NULL) forget_unseen(s->watch);
    return bwi_sweep_go(s, BWI_SWEEP_END);
}

static enum bwi_step look(struct bwi_sweep *s) {
    bwi_call_list(&s->w->sync, &s->task, bwi_sweep_store(s), s->w->dir.s, NULL);
    return wait_in(s, BWI_SWEEP_REST_LOOKED);
}

static enum bwi_step ask(struct bwi_sweep *s, size_t i) {
    struct bwi_sweep_work *w = s->w;
    const struct bwi_entry *e = &w->head.entry;
    if (!bwi_names_launch(&w->calls[0].op.names, i, w->launch)) return BWI_STEP_AGAIN;
    if (strcmp(e->attempt.launch, w->launch) == 0) return BWI_STEP_AGAIN;
    w->dir = bwi_key_launch(s->ctx->run, w->launch);
    if (is_registered(e, w->launch)) return look(s);
    const struct bwi_key key = bwi_key_inventory(s->ctx->run, w->launch, 0);
    bwi_call_get(&w->sync, &s->task, bwi_sweep_store(s), key.s, BWI_INVENTORY_BYTES_MAX);
    return wait_in(s, BWI_SWEEP_REST_ASKED);
}

static enum bwi_step next(struct bwi_sweep *s) {
    struct bwi_sweep_work *w = s->w;
    if (s->task.cancel) {
        (void)bwi_error_set(&s->task.error, BW_E_CANCELLED, "cancelled");
        return bwi_sweep_go(s, BWI_SWEEP_END);
    }
    if (w->at == w->calls[0].op.names.len) return end_of_list(s);
    if (w->launches) return ask(s, w->at++);
    return goes(s, w->at++, &w->dir) ? look(s) : BWI_STEP_AGAIN;
}

static enum bwi_step asked(struct bwi_sweep *s) {
    const char *launch = s->w->launch;
    if (is_beaten(s, launch) || is_given_up(s, launch)) return look(s);
    return bwi_sweep_go(s, BWI_SWEEP_REST_NEXT);
}

static enum bwi_step pass_over(struct bwi_sweep *s) {
    (void)bwi_error_copy(&s->w->first, &s->w->sync.op.error);
    return bwi_sweep_go(s, BWI_SWEEP_REST_NEXT);
}

static enum bwi_step done(struct bwi_sweep *s) {
    struct bwi_sweep_work *w = s->w;
    s->objects += w->objects;
    if (s->findings != NULL)
        bwi_findings_add(s->findings, 0, 0, bwi_tier_name(s->tier), NULL, w->dir.s, NULL, "%s, %s: %" PRIu64 " objects",
                         w->launches ? "inventories of a launch that is over" : "layouts of a past attempt",
                         s->dry_run ? "would be deleted" : "deleted", w->objects);
    return bwi_sweep_go(s, BWI_SWEEP_REST_NEXT);
}

static enum bwi_step looked(struct bwi_sweep *s) {
    struct bwi_sweep_work *w = s->w;
    if (w->sync.op.error.status < 0) return pass_over(s);
    w->objects = w->sync.op.names.len;
    if (s->dry_run) return done(s);
    bwi_sweep_delete_prefix(s, &w->sync, w->dir.s);
    return wait_in(s, BWI_SWEEP_REST_GONE);
}

enum bwi_step bwi_sweep_rest(struct bwi_sweep *s) {
    switch (s->state) {
    case BWI_SWEEP_REST: return list(s);
    case BWI_SWEEP_REST_LISTED: return listed(s);
    case BWI_SWEEP_REST_NEXT: return next(s);
    case BWI_SWEEP_REST_ASKED: return asked(s);
    case BWI_SWEEP_REST_LOOKED: return looked(s);
    default: break;
    }
    return s->w->sync.op.error.status < 0 ? pass_over(s) : done(s);
}
