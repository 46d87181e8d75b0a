/* SPDX-License-Identifier: Apache-2.0 */
/* Opening: every rank says that it is there and what its node holds; rank 0 waits for all of them, resolves and
 * registers; the others wait for its entry. doc/flows/open.md. */
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/error.h"
#include "base/text.h"
#include "base/vec.h"
#include "checkpoint/marked.h"
#include "checkpoint/names.h"
#include "checkpoint/resolve.h"
#include "checkpoint/session_private.h"
#include "checkpoint/store_id.h"

#define OPEN_WINDOW 128u /* as a commit's */

enum open_state {
    OPEN_SPREAD, /* all ranks are started at one moment: each begins at its own */
    OPEN_STORES,
    OPEN_HOLDS, /* what this node's local tier holds */
    OPEN_LOOK,  /* the first read of the history: who is current before this launch */
    OPEN_LOOKED,
    OPEN_PENDING, /* take the next one that is held here and not committed */
    OPEN_MARKED,  /* damaged marks of what is likely to be gone on from were listed */
    OPEN_CHECKED, /* what is marked and held here was looked at, and mended */
    OPEN_PUT,
    OPEN_INVENTORY, /* created */
    OPEN_GATHER,    /* rank 0: list the launch until every group is there */
    OPEN_GATHERED,
    OPEN_READ, /* rank 0: read the inventories */
    OPEN_HEAD, /* rank 0: the head to register on */
    OPEN_RESOLVE,
    OPEN_REGISTER,
    OPEN_REGISTERED,
    OPEN_JOIN, /* others: wait for rank 0's entry */
    OPEN_JOINED,
    OPEN_SYNCED,  /* others: that entry is durable */
    OPEN_ASKED,   /* others: whether rank 0 has refused */
    OPEN_REFUSED, /* rank 0 failed, and has told them */
};

struct bwi_open {
    struct bwi_task task;
    struct bwi_session *s;
    enum open_state state;
    uint64_t begin_ns;
    struct bwi_store_ids ids;
    struct bwi_holds holds;
    struct bwi_head_read read;
    struct bwi_head head;
    struct bwi_call call;
    struct bwi_buf bytes;
    struct bwi_backoff backoff;
    struct bwi_inventory *inventories;
    uint32_t inventory_count;
    struct open_slot {
        struct bwi_call call;
        bool used;
    } * slots; /* OPEN_WINDOW of them, of rank 0 */
    uint32_t next;
    struct bwi_register reg;
    struct bwi_resolve resolve;
    struct bwi_decide decide;
    struct bwi_sha resolved_on;
    bool seen_set;
    uint32_t seen_number, seen_nonce;
    struct bwi_id likely; /* the committed one that resolve tries first, as it was at the first look; then each that
                             may still be committed */
    struct bwi_sha likely_manifest;
    uint32_t pending; /* groups of `likely`, when it is not committed */
    struct bwi_marked look;
    struct bwi_marked_group *marked;
    bool again;  /* the head moved between resolve and register */
    bool member; /* the inventory under this rank's name is this process's */
    bool told;   /* rank 0: a refusal was sent */
};

/* Only who is rank 0 of this launch may speak for it: a second start under the same launch id finds out by its
 * inventory that it is none. A member that has failed cannot come back either, so what it says is final. */
static bool refuse(struct bwi_open *o) {
    const struct bw_error *e = &o->task.error;
    if (e->status >= 0 || o->s->cfg.rank != 0 || !o->member || o->told) return false;
    struct bwi_refusal r = {.writer = o->s->ctx->writer, .status = e->status};
    bwi_format(r.launch, sizeof r.launch, "%s", o->s->cfg.launch);
    bwi_format(r.reason, sizeof r.reason, "%s", e->message);
    o->told = true;
    bwi_buf_reset(&o->bytes);
    if (bwi_refusal_encode(&r, &o->bytes, NULL) < 0) return false;
    struct bwi_key key = bwi_key_refusal(o->s->ctx->run, o->s->cfg.launch);
    o->state = OPEN_REFUSED;
    bwi_call_create(&o->call, &o->task, o->s->ctx->tier[BWI_TIER_REMOTE], key.s, bwi_buf_span(&o->bytes));
    return true;
}

/* The others are told of rank 0's failure first, as well as that can be done: they wait for it until their deadline. */
static enum bwi_step end(struct bwi_open *o) {
    if (refuse(o)) return BWI_STEP_WAIT;
    bwi_error_stage(&o->task.error, BW_STAGE_OPEN);
    if (o->task.error.status < 0)
        bwi_error_wrap(&o->task.error, "open run \"%s\", rank %u", o->s->ctx->run, o->s->cfg.rank);
    return BWI_STEP_END;
}

static enum bwi_step fail(struct bwi_open *o, const struct bw_error *e) {
    bwi_error_copy(&o->task.error, e);
    return end(o);
}

static struct bwi_store *authority(struct bwi_open *o) {
    return o->s->ctx->tier[BWI_TIER_REMOTE];
}
static bool late(struct bwi_open *o) {
    return o->task.cancel || bwi_loop_now_ns(o->task.loop) >= o->s->cfg.open_deadline_ns;
}

/* Waits a while, then goes on in `state`. */
static enum bwi_step pause_in(struct bwi_open *o, enum open_state state) {
    uint64_t at = bwi_backoff_next(&o->backoff, o->s->ctx, bwi_loop_now_ns(o->task.loop));
    if (at > o->s->cfg.open_deadline_ns) at = o->s->cfg.open_deadline_ns;
    o->state = state;
    bwi_task_wake_at(&o->task, at);
    return BWI_STEP_WAIT;
}

/* Never for more than a part of the time that there is. */
static uint64_t spread_until(const struct bwi_open *o) {
    struct bwi_context *c = o->s->ctx;
    const uint64_t now = bwi_loop_now_ns(o->task.loop), end = o->s->cfg.open_deadline_ns;
    const uint64_t most = bwi_min_u64(c->spread_ns, end > now ? (end - now) / 8 : 0);
    return most > 0 ? now + c->env->random_u64(c->env) % most : 0;
}

static enum bwi_step look_at_stores(struct bwi_open *o) {
    if (!o->task.cancel && bwi_loop_now_ns(o->task.loop) < o->begin_ns) {
        bwi_task_wake_at(&o->task, o->begin_ns);
        return BWI_STEP_WAIT;
    }
    o->state = OPEN_STORES;
    o->ids = (struct bwi_store_ids){.ctx = o->s->ctx, .create = true};
    bwi_store_ids_start(&o->ids, o->task.loop, &o->task);
    return BWI_STEP_WAIT;
}

/* --- saying that we are here --------------------------------------------------------------------------------- */

static enum bwi_step start_holds(struct bwi_open *o) {
    if (o->ids.task.running) return BWI_STEP_WAIT;
    if (o->ids.task.error.status < 0) return fail(o, &o->ids.task.error);
    bwi_session_start_probe(
        o->s); /* the local tier is ours; while the others are waited for it has nothing else to do */
    o->state = OPEN_LOOK;
    if (!o->s->ctx->tier[BWI_TIER_LOCAL]) return BWI_STEP_AGAIN;
    o->holds = (struct bwi_holds){.ctx = o->s->ctx, .pass_over = true, .settle = true};
    bwi_holds_start(&o->holds, o->task.loop, &o->task);
    return BWI_STEP_WAIT;
}

static enum bwi_step look(struct bwi_open *o) {
    if (o->holds.task.running) return BWI_STEP_WAIT;
    if (o->holds.task.error.status < 0) return fail(o, &o->holds.task.error);
    o->read = (struct bwi_head_read){.ctx = o->s->ctx, .head = &o->head};
    o->state = OPEN_LOOKED;
    bwi_head_read_start(&o->read, o->task.loop, &o->task);
    return BWI_STEP_WAIT;
}

static void fill_register(struct bwi_open *o) {
    struct bwi_session *s = o->s;
    struct bwi_env *env = s->ctx->env;
    o->reg = (struct bwi_register){.run = s->ctx->run,
                                   .job = s->cfg.job,
                                   .launch = s->cfg.launch,
                                   .world = s->cfg.world,
                                   .groups = s->groups,
                                   .fan_out = s->groups > BWI_GROUPS_FLAT,
                                   .nonce = (uint32_t)env->random_u64(env),
                                   .uuid = bwi_uuid_random(env),
                                   .mode = s->cfg.mode,
                                   .label = s->cfg.label,
                                   .seen_set = o->seen_set,
                                   .seen_number = o->seen_number,
                                   .seen_nonce = o->seen_nonce};
}

static int fill_inventory(struct bwi_open *o, struct bw_error *err) {
    struct bwi_session *s = o->s;
    struct bwi_inventory v = {.group = s->group, .groups = s->groups, .world = s->cfg.world, .rank_count = 1};
    v.seen_told = true;
    v.seen_set = o->seen_set;
    v.seen_number = o->seen_number;
    v.seen_nonce = o->seen_nonce;
    bwi_format(v.launch, sizeof v.launch, "%s", s->cfg.launch);
    bwi_format(v.job, sizeof v.job, "%s", s->cfg.job);
    bwi_format(v.host, sizeof v.host, "%s", s->ctx->host);
    v.ranks[0] = s->cfg.rank;
    v.writers[0] = s->ctx->writer;
    v.holds = o->holds.count ? bwi_calloc(o->holds.count, sizeof *v.holds) : NULL;
    if (o->holds.count && !v.holds) return bwi_error_nomem(err, o->holds.count * sizeof *v.holds, "inventory");
    for (size_t i = 0; i < o->holds.count; i++) {
        const struct bwi_summary *m = &o->holds.list[i];
        struct bwi_hold *h = &v.holds[v.hold_count++];
        *h = (struct bwi_hold){.id = m->id, .uuid = m->uuid, .group = m->group, .ref_count = m->ref_count};
        memcpy(h->refs, m->refs, sizeof h->refs);
    }
    int rc = bwi_inventory_encode(&v, &o->bytes, err);
    bwi_inventory_fini(&v);
    return rc;
}

/* What cannot be read of an old checkpoint is no copy. What may still be committed is not given up for an error that
 * may pass. */
static int tell_unread(struct bwi_open *o, const struct bwi_entry *head, struct bw_error *err) {
    for (size_t i = 0; i < o->holds.unread_count; i++) {
        const struct bwi_unread *u = &o->holds.unread[i];
        const unsigned long long step = u->id.step;
        if (head && bwi_policy_fate(head, &u->id) == BWI_FATE_COMMITTABLE) {
            bwi_error_copy(err, &u->why);
            return bwi_error_wrap(err, "what this node holds of step %llu, which may still be committed", step);
        }
        bwi_session_note(o->s, u->why.status, u->id.step, "what this node holds of step %llu is not counted: %s", step,
                         u->why.message);
    }
    return 0;
}

/* The committed checkpoint that resolve looks at first, if it comes to that; NULL: none. */
static const struct bwi_kept *likely(const struct bwi_open *o, const struct bwi_entry *head) {
    if (bwi_policy_mode(head, &o->reg) != BWI_REGISTER_ROLLBACK) return bwi_policy_newest(head);
    return bwi_policy_find_step(head, o->s->cfg.resume_step);
}

static enum bwi_step list_marks(struct bwi_open *o, const struct bwi_id *id, uint32_t pending) {
    const struct bwi_key damaged = bwi_key_damaged_dir(o->s->ctx->run, id);
    o->likely = *id;
    o->pending = pending;
    o->state = OPEN_MARKED;
    bwi_call_list(&o->call, &o->task, authority(o), damaged.s, NULL);
    return BWI_STEP_WAIT;
}

static enum bwi_step looked(struct bwi_open *o) {
    struct bw_error e = BW_ERROR_INIT;
    if (o->read.task.running) return BWI_STEP_WAIT;
    if (o->read.task.error.status < 0) return fail(o, &o->read.task.error);
    const struct bwi_entry *head = o->head.found ? &o->head.entry : NULL;
    if (head && strcmp(head->attempt.launch, o->s->cfg.launch) == 0) {
        bwi_error_set(
            &o->task.error, BW_E_NOT_MEMBER,
            "launch \"%s\" is registered already, without this process: restart all ranks under a new launch id",
            o->s->cfg.launch);
        return end(o);
    }
    o->seen_set = head && head->attempt.set;
    o->seen_number = o->seen_set ? head->attempt.number : 0;
    o->seen_nonce = o->seen_set ? head->attempt.nonce : 0;
    fill_register(o);
    if (bwi_policy_may_register(head, &o->reg, &e) < 0) return fail(o, &e);
    if (tell_unread(o, head, &e) < 0) return fail(o, &e);
    const struct bwi_kept *k = likely(o, head);
    o->state = OPEN_PENDING;
    if (!k || o->holds.count == 0) return BWI_STEP_AGAIN;
    o->likely_manifest = k->manifest;
    return list_marks(o, &k->id, 0);
}

/* Each that is held here and may still be committed, in order: if a reader of the launch before found it damaged, and
 * nobody lived long enough to bring it into the authority and find that out, this one would go on from it again. */
static enum bwi_step next_pending(struct bwi_open *o) {
    const struct bwi_entry *head = o->head.found ? &o->head.entry : NULL;
    for (size_t i = 0; head && i < o->holds.count; i++) {
        const struct bwi_id *id = &o->holds.list[i].id;
        struct bwi_candidate c;
        if (o->pending > 0 && bwi_id_cmp(id, &o->likely) <= 0) continue;
        if (bwi_policy_fate(head, id) != BWI_FATE_COMMITTABLE) continue;
        bwi_resolve_facts(head, id, &c);
        return list_marks(o, id, c.groups);
    }
    o->state = OPEN_PUT;
    return BWI_STEP_AGAIN;
}

/* Whether this node holds that group of the checkpoint that is looked at. */
static bool holds_group(const struct bwi_open *o, uint32_t group) {
    for (size_t i = 0; i < o->holds.count; i++)
        if (o->holds.list[i].group == group && bwi_id_eq(&o->holds.list[i].id, &o->likely)) return true;
    return false;
}

/* A reader has found groups damaged. Before this node claims that it holds them it looks, and what its copy can put
 * right in the authority is put right: the others can read only that one. */
static enum bwi_step check_marked(struct bwi_open *o) {
    const struct bwi_store_names *names = &o->call.op.names;
    if (o->call.op.error.status < 0) return fail(o, &o->call.op.error);
    o->state = OPEN_PENDING;
    bwi_free(o->marked);
    o->marked = bwi_calloc(names->len + 1, sizeof *o->marked);
    if (!o->marked) {
        bwi_error_nomem(&o->task.error, names->len * sizeof *o->marked, "marks");
        return end(o);
    }
    size_t count = 0;
    uint32_t group;
    for (size_t i = 0; i < names->len; i++)
        if (bwi_names_group(names, i, false, &group) && holds_group(o, group)) o->marked[count++].group = group;
    if (count == 0) return BWI_STEP_AGAIN;
    o->look = (struct bwi_marked){.ctx = o->s->ctx,
                                  .id = o->likely,
                                  .manifest = o->likely_manifest,
                                  .pending = o->pending,
                                  .groups = o->marked,
                                  .count = count,
                                  .held = true,
                                  .deadline_ns = o->s->cfg.open_deadline_ns};
    o->state = OPEN_CHECKED;
    bwi_marked_start(&o->look, o->task.loop, &o->task);
    return BWI_STEP_WAIT;
}

static void tell_mended(struct bwi_open *o) {
    const unsigned long long step = o->likely.step;
    if (o->look.mended)
        bwi_session_note(o->s, 0, o->likely.step, "step %llu was damaged in the authority: %llu objects were mended",
                         step, (unsigned long long)o->look.mended);
    if (o->look.lost.status < 0)
        bwi_session_note(o->s, o->look.lost.status, o->likely.step,
                         "step %llu is damaged in the authority, and this node cannot mend it: %s", step,
                         o->look.lost.message);
}

/* A copy that is damaged here too is no copy. */
static enum bwi_step checked(struct bwi_open *o) {
    if (o->look.task.running) return BWI_STEP_WAIT;
    if (o->look.task.error.status < 0) return fail(o, &o->look.task.error);
    tell_mended(o);
    size_t kept = 0;
    for (size_t i = 0; i < o->holds.count; i++) {
        const struct bwi_summary *m = &o->holds.list[i];
        bool bad = false;
        for (size_t k = 0; k < o->look.count && bwi_id_eq(&m->id, &o->likely); k++)
            bad = bad || (o->marked[k].bad[BWI_TIER_LOCAL] && o->marked[k].group == m->group);
        if (!bad) o->holds.list[kept++] = *m;
        if (bad && o->pending > 0)
            bwi_session_note(o->s, BW_E_CORRUPT, m->id.step,
                             "group %u of step %llu, which is not committed, is damaged on this node: not counted",
                             m->group, (unsigned long long)m->id.step);
    }
    o->holds.count = kept;
    o->state = OPEN_PENDING;
    return BWI_STEP_AGAIN;
}

static enum bwi_step put_inventory(struct bwi_open *o) {
    struct bw_error e = BW_ERROR_INIT;
    if (fill_inventory(o, &e) < 0) return fail(o, &e);
    struct bwi_key key = bwi_key_inventory(o->s->ctx->run, o->s->cfg.launch, o->s->group);
    o->state = OPEN_INVENTORY;
    bwi_call_create(&o->call, &o->task, authority(o), key.s, bwi_buf_span(&o->bytes));
    return BWI_STEP_WAIT;
}

static enum bwi_step inventory_put(struct bwi_open *o) {
    if (o->call.op.error.status == BW_E_EXISTS) {
        bwi_error_set(
            &o->task.error, BW_E_NOT_MEMBER,
            "launch \"%s\" has a rank %u already: this start is another one. Restart all ranks under a new launch id",
            o->s->cfg.launch, o->s->cfg.rank);
        return end(o);
    }
    if (o->call.op.error.status < 0) return fail(o, &o->call.op.error);
    o->member = true;
    bwi_backoff_reset(&o->backoff, o->s->ctx);
    if (o->s->cfg.rank != 0) return pause_in(o, OPEN_JOIN); /* rank 0 has not registered yet */
    o->state = OPEN_GATHER;
    return BWI_STEP_AGAIN;
}

/* --- rank 0: gathering --------------------------------------------------------------------------------------- */

static enum bwi_step gather(struct bwi_open *o) {
    struct bwi_key prefix = bwi_key_launch(o->s->ctx->run, o->s->cfg.launch);
    o->state = OPEN_GATHERED;
    bwi_call_list(&o->call, &o->task, authority(o), prefix.s, NULL);
    return BWI_STEP_WAIT;
}

static void name_missing(struct bwi_open *o, const bool *here, uint32_t count) {
    char list[160] = "";
    size_t at = 0;
    uint32_t missing = 0;
    for (uint32_t g = 0; g < o->s->groups; g++) {
        if (here[g]) continue;
        if (missing++ < 8 && at + 12 < sizeof list) {
            bwi_format(list + at, sizeof list - at, "%s%u", at ? ", " : "", g);
            at = strlen(list);
        }
    }
    bwi_error_set(
        &o->task.error, o->task.cancel ? BW_E_CANCELLED : BW_E_TIMEOUT,
        "only %u of %u ranks of launch \"%s\" have arrived; missing: %s%s. Restart all ranks under a new launch id",
        count, o->s->groups, o->s->cfg.launch, list, missing > 8 ? ", ..." : "");
}

static enum bwi_step gathered(struct bwi_open *o) {
    if (o->call.op.error.status < 0) return fail(o, &o->call.op.error);
    bool *here = bwi_calloc(o->s->groups, sizeof *here);
    if (!here) {
        bwi_error_nomem(&o->task.error, o->s->groups, "launch");
        return end(o);
    }
    uint32_t count = 0;
    for (size_t i = 0; i < o->call.op.names.len; i++) {
        uint64_t group;
        const char *name = o->call.op.names.name[i];
        if (strlen(name) != 11 || strcmp(name + 6, ".json") != 0 || !bwi_dec_padded_u64(name, 6, &group) ||
            group >= o->s->groups)
            continue;
        here[group] = true;
        count++;
    }
    if (count < o->s->groups && late(o)) {
        name_missing(o, here, count);
        bwi_free(here);
        return end(o);
    }
    bwi_free(here);
    if (count < o->s->groups) return pause_in(o, OPEN_GATHER);
    o->inventories = bwi_calloc(o->s->groups, sizeof *o->inventories);
    o->slots = bwi_calloc(OPEN_WINDOW, sizeof *o->slots);
    if (!o->inventories || !o->slots) {
        bwi_error_nomem(&o->task.error, o->s->groups * sizeof *o->inventories, "launch");
        return end(o);
    }
    o->inventory_count = o->s->groups;
    o->state = OPEN_READ;
    return BWI_STEP_AGAIN;
}

static int take_inventory(struct bwi_open *o, uint32_t group, struct bwi_store_op *op, struct bw_error *err) {
    struct bwi_inventory *v = &o->inventories[group];
    int rc = bwi_inventory_decode(bwi_buf_span(&op->body), v, err);
    if (rc == 0 && (v->world != o->s->cfg.world || v->groups != o->s->groups))
        rc = bwi_error_set(err, BW_E_INVALID, "rank %u was started with world size %u, rank 0 with %u", group, v->world,
                           o->s->cfg.world);
    if (rc == 0 && strcmp(v->job, o->s->cfg.job) != 0)
        rc = bwi_error_set(err, BW_E_INVALID, "rank %u was started as job \"%s\", rank 0 as \"%s\"", group, v->job,
                           o->s->cfg.job);
    if (rc == 0 &&
        (v->group != group || strcmp(v->launch, o->s->cfg.launch) != 0 || v->rank_count != 1 || v->ranks[0] != group))
        rc = bwi_error_set(err, BW_E_CORRUPT, "inventory \"%s\" is that of another group", op->key);
    return rc;
}

static enum bwi_step read_inventories(struct bwi_open *o) {
    unsigned in_flight = 0;
    for (size_t i = 0; i < OPEN_WINDOW; i++) {
        struct bwi_call *call = &o->slots[i].call;
        if (o->slots[i].used && !call->busy) {
            o->slots[i].used = false;
            uint64_t group = 0;
            bwi_dec_padded_u64(strrchr(call->op.key, '/') + 1, 6, &group);
            struct bw_error e = call->op.error;
            if (e.status == 0) take_inventory(o, (uint32_t)group, &call->op, &e);
            bwi_error_copy(&o->task.error, &e);
            bwi_call_fini(call);
        }
        if (!o->slots[i].used && o->next < o->s->groups && o->task.error.status == 0) {
            struct bwi_key key = bwi_key_inventory(o->s->ctx->run, o->s->cfg.launch, o->next++);
            o->slots[i].used = true;
            bwi_call_get(call, &o->task, authority(o), key.s, BWI_INVENTORY_BYTES_MAX);
        }
        in_flight += o->slots[i].used;
    }
    if (in_flight) return BWI_STEP_WAIT;
    bwi_free(o->slots);
    o->slots = NULL;
    if (o->task.error.status < 0) return end(o);
    o->state = OPEN_HEAD;
    return BWI_STEP_AGAIN;
}

/* --- rank 0: resolve and register ---------------------------------------------------------------------------- */

static enum bwi_step read_head(struct bwi_open *o) {
    o->read = (struct bwi_head_read){.ctx = o->s->ctx, .head = &o->head};
    o->state = OPEN_RESOLVE;
    bwi_head_read_start(&o->read, o->task.loop, &o->task);
    return BWI_STEP_WAIT;
}

static enum bwi_step resolve(struct bwi_open *o) {
    struct bw_error e = BW_ERROR_INIT;
    if (o->read.task.running) return BWI_STEP_WAIT;
    if (o->read.task.error.status < 0) return fail(o, &o->read.task.error);
    o->reg.mode = o->s->cfg.mode;
    if (bwi_policy_may_register(o->head.found ? &o->head.entry : NULL, &o->reg, &e) < 0) return fail(o, &e);
    o->resolved_on = o->head.sha;
    o->resolve = (struct bwi_resolve){.ctx = o->s->ctx,
                                      .head = &o->head,
                                      .inventories = o->inventories,
                                      .inventory_count = o->inventory_count,
                                      .reg = &o->reg,
                                      .rollback_step = o->s->cfg.resume_step,
                                      .damage_fail = o->s->cfg.damage_fail,
                                      .deadline_ns = o->s->cfg.open_deadline_ns};
    o->state = OPEN_REGISTER;
    bwi_resolve_start(&o->resolve, o->task.loop, &o->task);
    return BWI_STEP_WAIT;
}

static int next_entry(void *user, const struct bwi_actor *a, struct bwi_entry *ret, struct bw_error *err) {
    struct bwi_open *o = user;
    if (bwi_policy_may_register(a->head, &o->reg, err) < 0) return err->status;
    o->again = !bwi_sha_eq(&a->head_sha, &o->resolved_on);
    return o->again ? 1 : bwi_policy_register(a, &o->reg, ret, err);
}

static enum bwi_step start_register(struct bwi_open *o) {
    if (o->resolve.task.running) return BWI_STEP_WAIT;
    if (o->resolve.task.error.status < 0) return fail(o, &o->resolve.task.error);
    bwi_decide_fini(&o->decide);
    o->decide =
        (struct bwi_decide){.ctx = o->s->ctx, .next = next_entry, .user = o, .deadline_ns = o->s->cfg.open_deadline_ns};
    o->state = OPEN_REGISTERED;
    bwi_decide_start(&o->decide, o->task.loop, &o->task);
    return BWI_STEP_WAIT;
}

/* What every rank reads from the entry: who it is, and what to go on from. */
static void adopt(struct bwi_open *o, const struct bwi_head *h) {
    struct bwi_session *s = o->s;
    const struct bwi_entry *e = &h->entry;
    s->attempt = e->attempt.number;
    s->nonce = e->attempt.nonce;
    s->fan_out = e->attempt.fan_out;
    s->uuid = *bwi_policy_uuid(e);
    struct bwi_resume *m = &s->resume;
    bool own_event = e->event.type == BWI_EVENT_REGISTER && e->event.note[0];
    *m = (struct bwi_resume){.from_checkpoint = e->from.set};
    bwi_format(m->reason, sizeof m->reason, "%s",
               own_event     ? e->event.note
               : e->from.set ? "chosen by rank 0"
                             : "a start from nothing");
    if (!e->from.set) return;
    const struct bwi_kept *k = bwi_policy_find_kept(e, &e->from.id);
    m->id = e->from.id;
    m->world = e->from.world;
    m->groups = e->from.groups;
    m->fan_out = e->from.fan_out;
    m->uuid = s->uuid;
    m->committed = k != NULL;
    if (k) m->manifest = k->manifest;
}

static enum bwi_step open_now(struct bwi_open *o, struct bwi_head *h) {
    adopt(o, h);
    if (bwi_salvage_hold(o->s, o->holds.list, o->holds.count, &o->task.error) < 0) return end(o);
    bwi_session_new_head(o->s, h);
    o->s->opened = true;
    bwi_follow_start(o->s);
    bwi_salvage_start(o->s);
    bwi_lookout_start(o->s);
    if (o->s->cfg.rank == 0) {
        bwi_committer_start(o->s);
        bwi_keeper_start(o->s);
    }
    return end(o);
}

static enum bwi_step registered(struct bwi_open *o) {
    if (o->decide.task.running) return BWI_STEP_WAIT;
    if (o->decide.task.error.status < 0) return fail(o, &o->decide.task.error);
    if (!o->decide.created) {
        bwi_head_fini(&o->head);
        o->state = late(o) ? OPEN_REGISTERED : OPEN_HEAD;
        if (!late(o)) return BWI_STEP_AGAIN;
        bwi_error_set(&o->task.error, BW_E_TIMEOUT, "the history went on changing until the deadline");
        return end(o);
    }
    return open_now(o, &o->decide.head);
}

/* --- the others ---------------------------------------------------------------------------------------------- */

static enum bwi_step join(struct bwi_open *o) {
    o->read = (struct bwi_head_read){.ctx = o->s->ctx, .known = o->head.found ? &o->head : NULL, .head = &o->head};
    o->state = OPEN_JOINED;
    bwi_head_read_start(&o->read, o->task.loop, &o->task);
    return BWI_STEP_WAIT;
}

/* Rank 0 may have died between creating its entry and making it durable, and what follows here counts on it. */
static enum bwi_step sync_history(struct bwi_open *o) {
    struct bwi_key prefix = bwi_key_history(o->s->ctx->run);
    o->state = OPEN_SYNCED;
    bwi_call_prepare(&o->call, BWI_STORE_SYNC, prefix.s);
    bwi_call_submit(&o->call, &o->task, authority(o));
    return BWI_STEP_WAIT;
}

static enum bwi_step synced(struct bwi_open *o) {
    const struct bw_error *e = &o->call.op.error;
    return e->status < 0 ? fail(o, e) : open_now(o, &o->head);
}

static enum bwi_step joined(struct bwi_open *o) {
    struct bw_error e = BW_ERROR_INIT;
    if (o->read.task.running) return BWI_STEP_WAIT;
    if (o->read.task.error.status < 0) return fail(o, &o->read.task.error);
    const struct bwi_entry *head = o->head.found ? &o->head.entry : NULL;
    if (head && head->attempt.set && strcmp(head->attempt.launch, o->s->cfg.launch) == 0) return sync_history(o);
    if (bwi_policy_may_register(head, &o->reg, &e) < 0) return fail(o, &e);
    struct bwi_key key = bwi_key_refusal(o->s->ctx->run, o->s->cfg.launch);
    o->state = OPEN_ASKED;
    bwi_call_get(&o->call, &o->task, authority(o), key.s, BWI_JSON_SMALL_MAX);
    return BWI_STEP_WAIT;
}

static enum bwi_step was_refused(struct bwi_open *o) {
    struct bwi_refusal r;
    struct bw_error e = BW_ERROR_INIT;
    int rc = bwi_refusal_decode(bwi_buf_span(&o->call.op.body), &r, &e);
    if (rc == 0 && strcmp(r.launch, o->s->cfg.launch) != 0)
        rc = bwi_error_set(&e, BW_E_CORRUPT, "it is that of launch \"%s\"", r.launch);
    if (rc < 0)
        bwi_error_wrap(&e, "rank 0 refused, but \"%s\" does not tell why", o->call.op.key);
    else
        bwi_error_set(&e, r.status, "rank 0 refused: %s", r.reason);
    return fail(o, &e);
}

/* A refusal that cannot be read now is asked for again. */
static enum bwi_step asked(struct bwi_open *o) {
    if (o->call.op.error.status == 0) return was_refused(o);
    if (!late(o)) return pause_in(o, OPEN_JOIN);
    bwi_error_set(&o->task.error, o->task.cancel ? BW_E_CANCELLED : BW_E_TIMEOUT,
                  "rank 0 has not registered launch \"%s\" by the deadline. Restart all ranks under a new launch id",
                  o->s->cfg.launch);
    return end(o);
}

static void pass_cancel_on(struct bwi_open *o) {
    struct bwi_task *children[] = {&o->holds.task, &o->look.task, &o->resolve.task, &o->decide.task};
    for (size_t i = 0; o->task.cancel && i < sizeof children / sizeof *children; i++)
        if (children[i]->running && !children[i]->cancel) bwi_task_cancel(children[i]);
}

static enum bwi_step open_step(struct bwi_task *t) {
    struct bwi_open *o = bwi_container_of(t, struct bwi_open, task);
    pass_cancel_on(o);
    if (t->pending && o->state != OPEN_READ) return BWI_STEP_WAIT;
    switch (o->state) {
    case OPEN_SPREAD: return look_at_stores(o);
    case OPEN_STORES: return start_holds(o);
    case OPEN_HOLDS:
    case OPEN_LOOK: return look(o);
    case OPEN_LOOKED: return looked(o);
    case OPEN_PENDING: return next_pending(o);
    case OPEN_MARKED: return check_marked(o);
    case OPEN_CHECKED: return checked(o);
    case OPEN_PUT: return put_inventory(o);
    case OPEN_INVENTORY: return inventory_put(o);
    case OPEN_GATHER: return gather(o);
    case OPEN_GATHERED: return gathered(o);
    case OPEN_READ: return read_inventories(o);
    case OPEN_HEAD: return read_head(o);
    case OPEN_RESOLVE: return resolve(o);
    case OPEN_REGISTER: return start_register(o);
    case OPEN_REGISTERED: return registered(o);
    case OPEN_JOIN: return join(o);
    case OPEN_JOINED: return joined(o);
    case OPEN_SYNCED: return synced(o);
    case OPEN_ASKED: return asked(o);
    case OPEN_REFUSED: break;
    }
    return end(o);
}

void bwi_open_free(struct bwi_open *o) {
    if (!o) return;
    bwi_holds_fini(&o->holds);
    bwi_free(o->marked);
    bwi_head_fini(&o->head);
    bwi_call_fini(&o->call);
    bwi_buf_fini(&o->bytes);
    for (uint32_t i = 0; i < o->inventory_count; i++) bwi_inventory_fini(&o->inventories[i]);
    bwi_free(o->inventories);
    bwi_free(o->slots);
    bwi_decide_fini(&o->decide);
    bwi_free(o);
}

struct bwi_task *bwi_session_open(struct bwi_session *s, struct bwi_task *parent) {
    struct bwi_open *o = s->open;
    o->s = s;
    o->task.step = open_step;
    o->task.name = "open";
    o->state = OPEN_SPREAD;
    bwi_task_start(s->ctx->loop, &o->task, parent);
    o->begin_ns = spread_until(o);
    return &o->task;
}

struct bwi_open *bwi_open_new(void) {
    return bwi_calloc(1, sizeof(struct bwi_open));
}
