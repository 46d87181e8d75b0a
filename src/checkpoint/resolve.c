/* SPDX-License-Identifier: Apache-2.0 */
/* Choosing the checkpoint to go on from: the newest one that every rank can have. doc/flows/resolve.md.
 *
 * Candidates that are not committed come from two places: what the nodes of this launch hold on their local tiers, and
 * what lies in the authority. They are tried from the newest down; the first that is whole wins. If none is, the newest
 * committed one whose manifest can be read, and that nobody has found damaged, is taken. */
#include "checkpoint/resolve.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/text.h"
#include "base/vec.h"
#include "checkpoint/marked.h"
#include "checkpoint/names.h"
#include "format/manifest.h"

enum resolve_state {
    RESOLVE_BEGIN,
    RESOLVE_LIST,              /* checkpoints/ of the authority */
    RESOLVE_CANDIDATE,         /* take the next one */
    RESOLVE_CANDIDATE_GROUPS,  /* its groups/, failed/ and damaged/ were listed */
    RESOLVE_CANDIDATE_MARKED,  /* what is marked and held by nobody was looked at */
    RESOLVE_CANDIDATE_SYNCED,  /* its groups/ is durable */
    RESOLVE_CANDIDATE_SUMMARY, /* a summary was read */
    RESOLVE_COMMITTED,         /* take the next committed one */
    RESOLVE_MANIFEST,          /* its manifest was read, damaged/ was listed */
    RESOLVE_MARKED,            /* what is marked as damaged was looked at */
};

struct bwi_resolve_work {
    struct bwi_call list, failed, damaged_dir;
    struct bwi_id *ids; /* candidates, ascending */
    size_t id_count, id_cap;
    bool *have; /* per group of the candidate: somebody holds it, or the authority has it */
    bool *in_authority;
    uint32_t group; /* whose summary is read */
    struct bwi_candidate c;
    const struct bwi_kept *kept;
    struct bwi_id at; /* committed ones are tried from here down */
    bool damage_seen;
    bool label_used; /* the wish was granted before: the default applies */
    char damage[160];
    struct bwi_candidate facts;
    struct bwi_marked look;
    struct bwi_marked_group *marked;
};

static const struct bwi_entry *entry_of(const struct bwi_resolve *r) {
    return r->head->found ? &r->head->entry : NULL;
}
static struct bwi_store *authority(struct bwi_resolve *r) {
    return r->ctx->tier[BWI_TIER_REMOTE];
}

static enum bwi_step end(struct bwi_resolve *r) {
    struct bwi_resolve_work *w = r->w;
    if (w) {
        bwi_call_fini(&w->list);
        bwi_call_fini(&w->failed);
        bwi_call_fini(&w->damaged_dir);
        bwi_free(w->ids);
        bwi_free(w->have);
        bwi_free(w->in_authority);
        bwi_free(w->marked);
        bwi_free(w);
    }
    r->w = NULL;
    return BWI_STEP_END;
}

static enum bwi_step fail(struct bwi_resolve *r, const struct bw_error *e) {
    if (bwi_error_copy(&r->task.error, e) < 0) bwi_error_wrap(&r->task.error, "resolve");
    return end(r);
}

static enum bwi_step nomem(struct bwi_resolve *r, size_t bytes) {
    bwi_error_nomem(&r->task.error, bytes, "resolve");
    return end(r);
}

static enum bwi_step done(struct bwi_resolve *r) {
    if (r->w->label_used) {
        char note[sizeof r->note];
        bwi_format(note, sizeof note, "label \"%.60s\" was used before; %.160s", r->reg->label, r->note);
        bwi_format(r->note, sizeof r->note, "%s", note);
    }
    r->reg->note = r->note;
    return end(r);
}

/* --- candidates that are not committed ----------------------------------------------------------------------- */

/* What an id alone can tell: newer than the newest live one, and the entry would let it be committed. */
static bool may_be_candidate(const struct bwi_resolve *r, const struct bwi_id *id) {
    const struct bwi_entry *e = entry_of(r);
    const struct bwi_kept *newest = bwi_policy_newest(e);
    if (!e || (newest && id->step <= newest->id.step)) return false;
    return bwi_policy_fate(e, id) == BWI_FATE_COMMITTABLE;
}

static bool add_candidate(struct bwi_resolve *r, const struct bwi_id *id) {
    struct bwi_resolve_work *w = r->w;
    if (!may_be_candidate(r, id)) return true;
    size_t at = w->id_count;
    while (at > 0 && bwi_id_cmp(&w->ids[at - 1], id) > 0) at--;
    if (at > 0 && bwi_id_eq(&w->ids[at - 1], id)) return true;
    void *grown = w->ids;
    bool ok = bwi_vec_reserve(&grown, &w->id_cap, w->id_count + 1, sizeof *w->ids);
    w->ids = grown;
    if (!ok) return false;
    memmove(w->ids + at + 1, w->ids + at, (w->id_count - at) * sizeof *w->ids);
    w->ids[at] = *id;
    w->id_count++;
    return true;
}

static enum bwi_step list_authority(struct bwi_resolve *r) {
    struct bwi_key prefix = bwi_key_checkpoints(r->ctx->run);
    const struct bwi_kept *newest = bwi_policy_newest(entry_of(r));
    char after[BWI_ID_TEXT_BYTES];
    if (newest) bwi_format(after, sizeof after, "%020llu", (unsigned long long)newest->id.step);
    r->state = RESOLVE_LIST;
    bwi_call_list(&r->w->list, &r->task, authority(r), prefix.s, newest ? after : NULL);
    return BWI_STEP_WAIT;
}

static enum bwi_step collect(struct bwi_resolve *r) {
    struct bwi_store_op *op = &r->w->list.op;
    if (op->error.status < 0) return fail(r, &op->error);
    for (size_t i = 0; i < op->names.len; i++) {
        struct bwi_id id;
        size_t len = strlen(op->names.name[i]);
        if (len < 2 || op->names.name[i][len - 1] != '/' || !bwi_id_parse(bwi_span(op->names.name[i], len - 1), &id))
            continue;
        if (!add_candidate(r, &id)) return nomem(r, sizeof id);
    }
    for (size_t v = 0; v < r->inventory_count; v++)
        for (size_t h = 0; h < r->inventories[v].hold_count; h++)
            if (!add_candidate(r, &r->inventories[v].holds[h].id)) return nomem(r, sizeof(struct bwi_id));
    r->state = RESOLVE_CANDIDATE;
    return BWI_STEP_AGAIN;
}

void bwi_resolve_facts(const struct bwi_entry *e, const struct bwi_id *id, struct bwi_candidate *ret) {
    bool from = e->from.set && e->from.open && bwi_id_eq(&e->from.id, id);
    *ret = (struct bwi_candidate){.id = *id};
    ret->world = from ? e->from.world : e->attempt.world;
    ret->groups = from ? e->from.groups : e->attempt.groups;
    ret->fan_out = from ? e->from.fan_out : e->attempt.fan_out;
}

static enum bwi_step next_candidate(struct bwi_resolve *r) {
    struct bwi_resolve_work *w = r->w;
    const struct bwi_entry *e = entry_of(r);
    if (w->id_count == 0 || !e) {
        r->state = RESOLVE_COMMITTED;
        return BWI_STEP_AGAIN;
    }
    bwi_resolve_facts(e, &w->ids[--w->id_count], &w->c);
    bwi_free(w->have);
    bwi_free(w->in_authority);
    w->have = bwi_calloc(w->c.groups, sizeof *w->have);
    w->in_authority = bwi_calloc(w->c.groups, sizeof *w->in_authority);
    if (!w->have || !w->in_authority) return nomem(r, w->c.groups);
    struct bwi_key groups = bwi_key_groups(r->ctx->run, &w->c.id);
    struct bwi_key failed = bwi_key_failed_dir(r->ctx->run, &w->c.id);
    struct bwi_key damaged = bwi_key_damaged_dir(r->ctx->run, &w->c.id);
    bwi_call_list(&w->list, &r->task, authority(r), groups.s, NULL);
    bwi_call_list(&w->failed, &r->task, authority(r), failed.s, NULL);
    bwi_call_list(&w->damaged_dir, &r->task, authority(r), damaged.s, NULL);
    r->state = RESOLVE_CANDIDATE_GROUPS;
    return BWI_STEP_WAIT;
}

/* Joins refs, ascending and each once. */
static bool add_refs(struct bwi_candidate *c, const struct bwi_id *refs, uint32_t count) {
    for (uint32_t i = 0; i < count; i++) {
        uint32_t at = c->ref_count;
        while (at > 0 && bwi_id_cmp(&c->refs[at - 1], &refs[i]) > 0) at--;
        if (at > 0 && bwi_id_eq(&c->refs[at - 1], &refs[i])) continue;
        if (c->ref_count == BWI_REFS_MAX) return false;
        memmove(c->refs + at + 1, c->refs + at, (c->ref_count - at) * sizeof *c->refs);
        c->refs[at] = refs[i];
        c->ref_count++;
    }
    return true;
}

static bool count_holds(struct bwi_resolve *r) {
    struct bwi_resolve_work *w = r->w;
    for (size_t v = 0; v < r->inventory_count; v++) {
        const struct bwi_inventory *inv = &r->inventories[v];
        for (size_t h = 0; h < inv->hold_count; h++) {
            const struct bwi_hold *hold = &inv->holds[h];
            if (!bwi_id_eq(&hold->id, &w->c.id) || hold->group >= w->c.groups || w->have[hold->group]) continue;
            if (!bwi_policy_in_lineage(entry_of(r), &hold->uuid)) continue;
            if (!add_refs(&w->c, hold->refs, hold->ref_count)) return false;
            w->have[hold->group] = true;
        }
    }
    return true;
}

/* Who brought a group there may have died before its summary's name was durable, and the launch is going to count on
 * it. */
static enum bwi_step sync_groups(struct bwi_resolve *r) {
    const struct bwi_key groups = bwi_key_groups(r->ctx->run, &r->w->c.id);
    r->state = RESOLVE_CANDIDATE_SYNCED;
    bwi_call_prepare(&r->w->list, BWI_STORE_SYNC, groups.s);
    bwi_call_submit(&r->w->list, &r->task, authority(r));
    return BWI_STEP_WAIT;
}

static enum bwi_step begin_summaries(struct bwi_resolve *r) {
    struct bwi_resolve_work *w = r->w;
    bool all_held = true;
    for (uint32_t g = 0; g < w->c.groups; g++) all_held = all_held && w->have[g];
    w->group = 0;
    r->state = RESOLVE_CANDIDATE_SUMMARY;
    bwi_call_fini(&w->list);
    return all_held ? BWI_STEP_AGAIN : sync_groups(r);
}

/* The first `count` of w->marked, of the checkpoint that `which` names. */
static enum bwi_step look_at_groups(struct bwi_resolve *r, struct bwi_marked which, size_t count,
                                    enum resolve_state in) {
    struct bwi_resolve_work *w = r->w;
    which.ctx = r->ctx;
    which.groups = w->marked;
    which.count = count;
    which.stop_at_bad = true;
    which.deadline_ns = r->deadline_ns;
    w->look = which;
    r->state = (int)in;
    bwi_marked_start(&w->look, r->task.loop, &r->task);
    return BWI_STEP_WAIT;
}

/* Who holds a group that a reader has marked as damaged has looked at his copy before he said so. Of the others there
 * is only the authority's. */
static enum bwi_step look_at_unheld(struct bwi_resolve *r) {
    struct bwi_resolve_work *w = r->w;
    const struct bwi_store_names *names = &w->damaged_dir.op.names;
    size_t count = 0;
    uint32_t group;
    bwi_free(w->marked);
    w->marked = bwi_calloc(names->len + 1, sizeof *w->marked);
    if (!w->marked) return nomem(r, names->len * sizeof *w->marked);
    for (size_t i = 0; i < names->len; i++)
        if (bwi_names_group(names, i, false, &group) && group < w->c.groups && !w->have[group])
            w->marked[count++].group = group;
    if (count == 0) return begin_summaries(r);
    return look_at_groups(r, (struct bwi_marked){.id = w->c.id, .pending = w->c.groups}, count,
                          RESOLVE_CANDIDATE_MARKED);
}

static enum bwi_step looked_at_unheld(struct bwi_resolve *r) {
    struct bwi_resolve_work *w = r->w;
    if (w->look.task.running) {
        if (r->task.cancel && !w->look.task.cancel) bwi_task_cancel(&w->look.task);
        return BWI_STEP_WAIT;
    }
    if (w->look.task.error.status < 0) return fail(r, &w->look.task.error);
    r->state = RESOLVE_CANDIDATE;
    for (size_t i = 0; i < w->look.count; i++)
        if (w->marked[i].bad[BWI_TIER_REMOTE]) return BWI_STEP_AGAIN;
    return begin_summaries(r);
}

/* Is it whole? Then the refs of groups that only the authority has are read from their summaries. */
static enum bwi_step weigh(struct bwi_resolve *r) {
    struct bwi_resolve_work *w = r->w;
    if (w->list.op.error.status < 0) return fail(r, &w->list.op.error);
    if (w->failed.op.error.status < 0) return fail(r, &w->failed.op.error);
    if (w->damaged_dir.op.error.status < 0) return fail(r, &w->damaged_dir.op.error);
    r->state = RESOLVE_CANDIDATE;
    if (w->failed.op.names.len > 0 || !count_holds(r)) return BWI_STEP_AGAIN;
    for (size_t i = 0; i < w->list.op.names.len; i++) {
        uint64_t group;
        const char *name = w->list.op.names.name[i];
        if (strlen(name) == 6 && bwi_dec_padded_u64(name, 6, &group) && group < w->c.groups)
            w->in_authority[group] = true;
    }
    for (uint32_t g = 0; g < w->c.groups; g++)
        if (!w->have[g] && !w->in_authority[g]) return BWI_STEP_AGAIN;
    return look_at_unheld(r);
}

static enum bwi_step groups_synced(struct bwi_resolve *r) {
    if (r->w->list.op.error.status < 0) return fail(r, &r->w->list.op.error);
    r->state = RESOLVE_CANDIDATE_SUMMARY;
    bwi_call_fini(&r->w->list);
    return BWI_STEP_AGAIN;
}

static enum bwi_step choose_newer(struct bwi_resolve *r) {
    struct bwi_resolve_work *w = r->w;
    if (!bwi_policy_committable(entry_of(r), &w->c.id, w->c.refs, w->c.ref_count)) {
        r->state = RESOLVE_CANDIDATE;
        return BWI_STEP_AGAIN;
    }
    r->newer = w->c;
    r->reg->newer = &r->newer;
    bwi_format(r->note, sizeof r->note, "step %llu is not committed yet, but all %u groups have it complete",
               (unsigned long long)w->c.id.step, w->c.groups);
    return done(r);
}

static enum bwi_step read_summaries(struct bwi_resolve *r) {
    struct bwi_resolve_work *w = r->w;
    struct bwi_store_op *op = &w->list.op;
    if (op->key) {
        struct bwi_summary s;
        bool bad =
            op->error.status == BW_E_NOTFOUND || op->error.status == BW_E_CORRUPT || op->error.status == BW_E_FORMAT;
        if (op->error.status < 0 && !bad) return fail(r, &op->error);
        bad = bad || bwi_summary_decode(bwi_buf_span(&op->body), &s, NULL) < 0 || !bwi_id_eq(&s.id, &w->c.id) ||
              !bwi_policy_in_lineage(entry_of(r), &s.uuid) || !add_refs(&w->c, s.refs, s.ref_count);
        bwi_call_fini(&w->list);
        if (bad) {
            r->state = RESOLVE_CANDIDATE;
            return BWI_STEP_AGAIN;
        }
        w->group++;
    }
    while (w->group < w->c.groups && w->have[w->group]) w->group++;
    if (w->group == w->c.groups) return choose_newer(r);
    struct bwi_key key = bwi_key_summary(r->ctx->run, &w->c.id, w->group);
    bwi_call_get(&w->list, &r->task, authority(r), key.s, BWI_SUMMARY_BYTES_MAX);
    return BWI_STEP_WAIT;
}

/* --- committed ones ------------------------------------------------------------------------------------------ */

static const struct bwi_kept *next_committed(struct bwi_resolve *r) {
    const struct bwi_entry *e = entry_of(r);
    if (r->reg->mode == BWI_REGISTER_ROLLBACK)
        return r->w->damage_seen ? NULL : bwi_policy_find_kept(e, &r->reg->target);
    const struct bwi_kept *best = NULL;
    for (size_t i = 0; e && i < e->live_count; i++)
        if (!r->w->damage_seen || bwi_id_cmp(&e->live[i].id, &r->w->at) < 0) best = &e->live[i];
    return best;
}

static enum bwi_step none_committed(struct bwi_resolve *r) {
    struct bwi_resolve_work *w = r->w;
    if (!w->damage_seen) {
        bwi_format(r->note, sizeof r->note, "nothing is committed: a start from nothing");
        return done(r);
    }
    bwi_error_set(&r->task.error, BW_E_CORRUPT, "no checkpoint that may be gone back to is sound: %s", w->damage);
    return end(r);
}

static enum bwi_step look_at_committed(struct bwi_resolve *r) {
    struct bwi_resolve_work *w = r->w;
    w->kept = next_committed(r);
    if (!w->kept) return none_committed(r);
    w->at = w->kept->id;
    struct bwi_key manifest = bwi_key_manifest(r->ctx->run, &w->kept->id, &w->kept->manifest);
    struct bwi_key damaged = bwi_key_damaged_dir(r->ctx->run, &w->kept->id);
    bwi_call_get(&w->list, &r->task, authority(r), manifest.s, BWI_MANIFEST_BYTES_MAX);
    bwi_call_list(&w->failed, &r->task, authority(r), damaged.s, NULL);
    r->state = RESOLVE_MANIFEST;
    return BWI_STEP_WAIT;
}

static enum bwi_step step_down(struct bwi_resolve *r, const char *why) {
    struct bwi_resolve_work *w = r->w;
    char id[BWI_ID_TEXT_BYTES];
    bwi_id_text(&w->kept->id, id);
    if (r->damage_fail) {
        bwi_error_set(&r->task.error, BW_E_CORRUPT, "checkpoint %s is damaged: %.300s", id, why);
        return end(r);
    }
    if (!w->damage_seen) bwi_format(w->damage, sizeof w->damage, "%s: %.90s", id, why);
    w->damage_seen = true;
    r->state = RESOLVE_COMMITTED;
    return BWI_STEP_AGAIN;
}

static enum bwi_step choose_committed(struct bwi_resolve *r) {
    struct bwi_resolve_work *w = r->w;
    r->reg->target = w->kept->id;
    r->reg->target_facts = w->facts;
    if (w->damage_seen) {
        r->reg->mode = BWI_REGISTER_DAMAGE;
        bwi_format(r->note, sizeof r->note, "went back to step %llu: %s", (unsigned long long)w->kept->id.step,
                   w->damage);
    } else if (r->reg->mode == BWI_REGISTER_ROLLBACK) {
        bwi_format(r->note, sizeof r->note, "back to step %llu on demand", (unsigned long long)w->kept->id.step);
    } else {
        bwi_format(r->note, sizeof r->note, "step %llu is the newest committed one",
                   (unsigned long long)w->kept->id.step);
    }
    return done(r);
}

static int manifest_facts(struct bwi_resolve *r, struct bw_error *err) {
    struct bwi_resolve_work *w = r->w;
    struct bwi_span body = bwi_buf_span(&w->list.op.body);
    struct bwi_sha sha = bwi_sha_of(body);
    struct bwi_manifest m = {0};
    if (!bwi_sha_eq(&sha, &w->kept->manifest))
        return bwi_error_set(err, BW_E_CORRUPT, "manifest \"%s\" is damaged", w->list.op.key);
    int rc = bwi_manifest_decode(body, &m, err);
    if (rc < 0) return rc;
    w->facts = (struct bwi_candidate){
        .id = m.id, .world = m.world, .groups = m.group_count, .fan_out = m.fan_out, .ref_count = m.ref_count};
    memcpy(w->facts.refs, m.refs, sizeof w->facts.refs);
    bwi_manifest_fini(&m);
    return 0;
}

static bool held(const struct bwi_resolve *r, uint32_t group) {
    for (size_t v = 0; v < r->inventory_count; v++)
        for (size_t h = 0; h < r->inventories[v].hold_count; h++)
            if (r->inventories[v].holds[h].group == group && bwi_id_eq(&r->inventories[v].holds[h].id, &r->w->kept->id))
                return true;
    return false;
}

/* Groups that a reader has marked as damaged are looked at here before anybody believes it. First those that nobody
 * holds: if one of them is damaged, the others need not be read. */
static enum bwi_step look_at_marked(struct bwi_resolve *r) {
    struct bwi_resolve_work *w = r->w;
    const struct bwi_store_names *names = &w->failed.op.names;
    size_t count = 0;
    bwi_free(w->marked);
    w->marked = bwi_calloc(names->len, sizeof *w->marked);
    if (!w->marked) return nomem(r, names->len * sizeof *w->marked);
    for (int holding = 0; holding < 2; holding++)
        for (size_t i = 0; i < names->len; i++) {
            uint32_t group;
            if (!bwi_names_group(names, i, false, &group) || group >= w->facts.groups) continue;
            if (held(r, group) == (holding == 1)) w->marked[count++].group = group;
        }
    if (count == 0) return choose_committed(r);
    return look_at_groups(r, (struct bwi_marked){.id = w->kept->id, .manifest = w->kept->manifest}, count,
                          RESOLVE_MARKED);
}

static enum bwi_step look_at_manifest(struct bwi_resolve *r) {
    struct bwi_resolve_work *w = r->w;
    struct bw_error e = w->list.op.error;
    if (e.status == 0) manifest_facts(r, &e);
    if (e.status == BW_E_NOTFOUND || e.status == BW_E_CORRUPT || e.status == BW_E_FORMAT)
        return step_down(r, e.message);
    if (e.status < 0) return fail(r, &e);
    if (w->failed.op.error.status < 0) return fail(r, &w->failed.op.error);
    return w->failed.op.names.len ? look_at_marked(r) : choose_committed(r);
}

/* Of the first one that is tried the holders have mended what they could before they said what they hold. Of an older
 * one a copy on some node is enough: if readers meet the damage, that node mends it at the next launch. */
static enum bwi_step looked_at(struct bwi_resolve *r) {
    struct bwi_resolve_work *w = r->w;
    if (w->look.task.running) {
        if (r->task.cancel && !w->look.task.cancel) bwi_task_cancel(&w->look.task);
        return BWI_STEP_WAIT;
    }
    if (w->look.task.error.status < 0) return fail(r, &w->look.task.error);
    for (size_t i = 0; i < w->look.count; i++) {
        char why[96];
        const struct bwi_marked_group *g = &w->marked[i];
        const bool here = held(r, g->group);
        if (!g->bad[BWI_TIER_REMOTE] || (here && w->damage_seen)) continue;
        bwi_format(why, sizeof why, "group %u is damaged in the authority, and %s", g->group,
                   here ? "could not be mended" : "no node holds it");
        return step_down(r, why);
    }
    return choose_committed(r);
}

static enum bwi_step begin(struct bwi_resolve *r) {
    const struct bwi_entry *e = entry_of(r);
    enum bwi_register_mode wish = r->reg->mode;
    r->reg->mode = bwi_policy_mode(e, r->reg);
    r->w->label_used = wish != r->reg->mode && wish != BWI_REGISTER_TAKEOVER;
    r->reg->takeover = r->reg->mode == BWI_REGISTER_TAKEOVER;
    r->reg->newer = NULL;
    if (r->reg->mode == BWI_REGISTER_FRESH) {
        bwi_format(r->note, sizeof r->note, "from nothing on demand");
        return done(r);
    }
    if (r->reg->mode != BWI_REGISTER_ROLLBACK) return list_authority(r);
    const struct bwi_kept *k = bwi_policy_find_step(e, r->rollback_step);
    if (!k) {
        bwi_error_set(&r->task.error, BW_E_NOTFOUND, "no committed checkpoint of step %llu to go back to",
                      (unsigned long long)r->rollback_step);
        return end(r);
    }
    r->reg->target = k->id;
    r->state = RESOLVE_COMMITTED;
    return BWI_STEP_AGAIN;
}

static enum bwi_step resolve_step(struct bwi_task *t) {
    struct bwi_resolve *r = bwi_container_of(t, struct bwi_resolve, task);
    if (t->pending) return BWI_STEP_WAIT;
    if (!r->w) return end(r);
    if (t->cancel && r->state != RESOLVE_MARKED && r->state != RESOLVE_CANDIDATE_MARKED) {
        (void)bwi_error_set(&t->error, BW_E_CANCELLED, "resolve: cancelled");
        return end(r);
    }
    switch ((enum resolve_state)r->state) {
    case RESOLVE_BEGIN: return begin(r);
    case RESOLVE_LIST: return collect(r);
    case RESOLVE_CANDIDATE: return next_candidate(r);
    case RESOLVE_CANDIDATE_GROUPS: return weigh(r);
    case RESOLVE_CANDIDATE_MARKED: return looked_at_unheld(r);
    case RESOLVE_CANDIDATE_SYNCED: return groups_synced(r);
    case RESOLVE_CANDIDATE_SUMMARY: return read_summaries(r);
    case RESOLVE_COMMITTED: return look_at_committed(r);
    case RESOLVE_MANIFEST: return look_at_manifest(r);
    case RESOLVE_MARKED: break;
    }
    return looked_at(r);
}

void bwi_resolve_start(struct bwi_resolve *r, struct bwi_loop *loop, struct bwi_task *parent) {
    r->task.step = resolve_step;
    r->task.name = "resolve";
    r->state = RESOLVE_BEGIN;
    bwi_task_start(loop, &r->task, parent);
    r->w = bwi_calloc(1, sizeof *r->w);
    if (!r->w) bwi_error_nomem(&r->task.error, sizeof *r->w, "resolve");
}
