/* SPDX-License-Identifier: Apache-2.0 */
/* Tools beside the training: sweep, retire, read, drain, commit. Each does its one thing once and goes. */
#include "system.h"

#include "base/text.h"
#include "base/vec.h"
#include "test.h"
#include <inttypes.h>
#include <string.h>

struct tool {
    enum tool_kind kind;
    unsigned stage;
    struct bwi_sweep sweep;
    struct bwi_decide decide;
    struct bwi_head_read read;
    struct bwi_head head;
    struct bwi_holds holds;
    struct bwi_drain drain;
    struct bwi_commit_all commit;
    struct compare *compare;
    struct bwi_verify verify;
    struct bwi_findings findings;
    struct bwi_task *task; /* that runs */
    size_t at;
    uint64_t until_ns;
};

/* --- retire ---- */

static int retire(void *user, const struct bwi_actor *a, struct bwi_entry *ret, struct bw_error *err) {
    struct bwi_id ids[ORACLE_IDS];
    (void)user;
    if (a->head == NULL || a->head->live_count < 2 || a->head->live_count > ORACLE_IDS) return 1;
    const struct bw_retention r = {.keep_last = 1};
    const size_t n = bwi_policy_retention(a->head, &r, 0, a->time_ms, ids);
    return n > 0 ? bwi_policy_retire(a, ids, n, ret, err) : 1;
}

static void start_retire(struct system *s, struct part *p, struct tool *t) {
    t->decide = (struct bwi_decide){.ctx = &p->ctx, .next = retire, .deadline_ns = s->env.now + 60 * BWI_NS_PER_S};
    bwi_decide_start(&t->decide, p->loop, NULL);
    t->task = &t->decide.task;
}

/* --- read, drain: both begin with the head ---- */

static void start_head(struct part *p, struct tool *t) {
    t->read = (struct bwi_head_read){.ctx = &p->ctx, .head = &t->head};
    bwi_head_read_start(&t->read, p->loop, NULL);
    t->task = &t->read.task;
}

static bool start_reading(struct system *s, struct part *p, struct tool *t) {
    const struct bwi_entry *e = &t->head.entry;
    const size_t all = e->live_count + e->shelved_count;
    if (!t->head.found || all == 0) return false;
    const size_t i = system_random(s, all);
    const struct bwi_kept *k = i < e->live_count ? &e->live[i] : &e->shelved[i - e->live_count];
    const struct bwi_restore_target target = {
        .id = k->id, .committed = true, .manifest = k->manifest, .io_timeout_ns = 600 * BWI_NS_PER_S};
    t->compare = compare_new(s, p, &target);
    return true;
}

static bool start_drain(struct part *p, struct tool *t) {
    const struct bwi_entry *e = &t->head.entry;
    while (t->head.found && t->at < t->holds.count) {
        const struct bwi_summary *h = &t->holds.list[t->at++];
        if (bwi_policy_fate(e, &h->id) != BWI_FATE_COMMITTABLE || !bwi_policy_in_lineage(e, &h->uuid)) continue;
        t->drain = (struct bwi_drain){.ctx = &p->ctx, .id = h->id, .group = h->group, .fan_out = h->fan_out};
        bwi_drain_start(&t->drain, p->loop, NULL);
        t->task = &t->drain.task;
        return true;
    }
    return false;
}

/* Brings to its end what may be, beside whoever works on it. */
static void start_commit(struct part *p, struct tool *t) {
    t->commit = (struct bwi_commit_all){.ctx = &p->ctx, .patience_ns = 60 * BWI_NS_PER_S, .findings = &t->findings};
    bwi_commit_all_start(&t->commit, p->loop, NULL);
    t->task = &t->commit.task;
}

/* --- verify ---- */

static void check_findings(struct system *s, const struct tool *t) {
    for (size_t i = 0; t->kind == TOOL_VERIFY && i < t->findings.count; i++) {
        const struct bw_finding *f = &t->findings.list[i];
        if (f->severity > 1 && !s->oracle.damaged)
            violated(s, "verify found damage that nobody did: %s %s: %s", f->id, f->object, f->message);
    }
}

/* One live checkpoint after the other, on both tiers. */
static bool start_verify(struct part *p, struct tool *t) {
    const struct bwi_entry *e = &t->head.entry;
    if (t->verify.ctx != NULL) bwi_verify_fini(&t->verify);
    t->verify.ctx = NULL;
    if (!t->head.found || t->at == e->live_count) return false;
    const struct bwi_kept *k = &e->live[t->at++];
    t->verify = (struct bwi_verify){.ctx = &p->ctx,
                                    .id = k->id,
                                    .committed = true,
                                    .manifest = k->manifest,
                                    .tiers = {p->ctx.tier[0] != NULL, p->ctx.tier[1] != NULL},
                                    .findings = &t->findings};
    bwi_verify_start(&t->verify, p->loop, NULL);
    t->task = &t->verify.task;
    return true;
}

/* --- all of them ---- */

static void start(struct system *s, struct part *p, struct tool *t) {
    switch (t->kind) {
    case TOOL_SWEEP_REMOTE:
    case TOOL_SWEEP_LOCAL:
        t->sweep =
            (struct bwi_sweep){.ctx = &p->ctx, .tier = t->kind == TOOL_SWEEP_LOCAL ? BWI_TIER_LOCAL : BWI_TIER_REMOTE};
        bwi_sweep_start(&t->sweep, p->loop, NULL);
        t->task = &t->sweep.task;
        break;
    case TOOL_RETIRE: start_retire(s, p, t); break;
    case TOOL_COMMIT: start_commit(p, t); break;
    case TOOL_READ:
    case TOOL_DRAIN:
    case TOOL_VERIFY:
    case TOOLS: start_head(p, t); break;
    }
}

/* The head is there: what comes next. false: nothing. */
static bool go_on(struct system *s, struct part *p, struct tool *t) {
    if (p->dead) return false;
    t->stage++;
    if (t->kind == TOOL_READ) return t->stage == 1 && start_reading(s, p, t);
    if (t->kind == TOOL_VERIFY) return start_verify(p, t);
    if (t->kind != TOOL_DRAIN) return false;
    if (t->stage > 1) return start_drain(p, t);
    t->holds.ctx = &p->ctx;
    bwi_holds_start(&t->holds, p->loop, NULL);
    t->task = &t->holds.task;
    return true;
}

/* A reader may find that what it reads is swept meanwhile; what it must not find is damage that nobody did. */
static void check_reading(struct system *s, const struct part *p, const struct bw_error *e) {
    if (e->status == 0) return;
    system_tell(s, p, "reading: %s", e->message);
    if (!s->oracle.damaged && !p->dead && (e->status == BW_E_CORRUPT || e->status == BW_E_FORMAT))
        violated(s, "a reader found damage that nobody did: %s", e->message);
}

static bool turn(struct system *s, struct part *p) {
    struct tool *t = p->tool;
    if (t->compare != NULL) {
        struct bw_error err = BW_ERROR_INIT;
        if (!compare_has_ended(s, t->compare, &err)) return false;
        t->compare = NULL;
        check_reading(s, p, &err);
        p->gone = true;
        return true;
    }
    if (t->task->running) {
        if (p->dead && !t->task->cancel) bwi_task_cancel(t->task);
        return false;
    }
    if (t->task->error.status != 0) system_tell(s, p, "ended: %s", t->task->error.message);
    check_findings(s, t);
    if (!go_on(s, p, t)) p->gone = bwi_loop_tasks(p->loop) == 0;
    return true;
}

static void end(struct system *s, struct part *p) {
    struct tool *t = p->tool;
    (void)s;
    if (t->kind == TOOL_RETIRE) bwi_decide_fini(&t->decide);
    if (t->commit.ctx != NULL) bwi_commit_all_fini(&t->commit);
    if (t->holds.ctx != NULL) bwi_holds_fini(&t->holds);
    if (t->verify.ctx != NULL) bwi_verify_fini(&t->verify);
    bwi_findings_fini(&t->findings);
    bwi_head_fini(&t->head);
    bwi_free(t);
    p->tool = NULL;
}

/* Who the stores are, as opening them would have told. */
static void know_store(struct system *s, struct part *p, enum bwi_tier tier, const struct bwi_bucket *b) {
    struct bwi_store_id id;
    struct bwi_span bytes;
    struct bw_error err = BW_ERROR_INIT;
    if (s->hooks != NULL) p->ctx.store_id[tier] = s->hooks->identity(s, tier, p->node);
    if (b != NULL && bwi_bucket_get(b, "store.json", &bytes) && bwi_store_id_decode(bytes, &id, &err) == 0)
        p->ctx.store_id[tier] = id.id;
}

struct part *tool_new(struct system *s, enum tool_kind kind, unsigned node, uint64_t grace_ms) {
    static const char *const names[] = {
        "sweep of the authority", "sweep of a node", "retire", "reader", "drain", "commit", "?", "verify"};
    if (s->single_tier && (kind == TOOL_SWEEP_LOCAL || kind == TOOL_DRAIN)) return NULL;
    struct part *p = part_new(s, node, names[kind]);
    if (p == NULL) return NULL;
    p->tool = bwi_calloc(1, sizeof *p->tool);
    assert_non_null(p->tool);
    p->tool->kind = kind;
    p->ctx.grace_ms = grace_ms;
    know_store(s, p, BWI_TIER_REMOTE, s->remote);
    know_store(s, p, BWI_TIER_LOCAL, s->local[node]);
    p->turn = turn;
    p->end = end;
    system_tell(s, p, "starts");
    start(s, p, p->tool);
    return p;
}
