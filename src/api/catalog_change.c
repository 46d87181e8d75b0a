/* SPDX-License-Identifier: Apache-2.0 */
/* Changing on demand: prune, pin, roll back, drain. */
#include <string.h>

#include "api/catalog.h"
#include "base/error.h"
#include "base/text.h"
#include "base/vec.h"
#include "checkpoint/commit_all.h"
#include "checkpoint/decide.h"
#include "checkpoint/drain.h"
#include "checkpoint/store_id.h"
#include "checkpoint/sweep.h"
#include "format/manifest.h"

#define GRACE_DEFAULT_MS   UINT64_C(3600000)
#define DECIDE_PATIENCE_NS (60 * BWI_NS_PER_S)

static int decide(struct bw_catalog *c,
                  int (*next)(void *, const struct bwi_actor *, struct bwi_entry *, struct bw_error *), void *user,
                  bool *ret_created, struct bw_error *err) {
    struct bwi_env *env = c->host.ctx.env;
    struct bwi_decide d = {
        .ctx = &c->host.ctx, .next = next, .user = user, .deadline_ns = env->now_ns(env) + DECIDE_PATIENCE_NS};
    bwi_decide_start(&d, c->host.loop, NULL);
    int rc = bwi_block_on(&c->host, &d.task, err);
    if (ret_created) *ret_created = d.created;
    bwi_decide_fini(&d);
    return rc;
}

/* --- prune --------------------------------------------------------------------------------------------------- */

struct retire {
    const struct bw_prune_options *o;
    struct bwi_id *ids; /* chosen on the last head that was seen */
    size_t count;
};

static void add_once(struct retire *r, const struct bwi_id *id) {
    size_t k = 0;
    while (k < r->count && !bwi_id_eq(&r->ids[k], id)) k++;
    if (k == r->count) r->ids[r->count++] = *id;
}

static int choose(struct retire *r, const struct bwi_actor *a, struct bw_error *err) {
    bwi_free(r->ids);
    r->count = 0;
    const size_t most = a->head->live_count + a->head->shelved_count + r->o->retire_count;
    r->ids = bwi_calloc(most + 1, sizeof *r->ids);
    if (!r->ids) return bwi_error_nomem(err, most * sizeof *r->ids, "retention");
    r->count = bwi_policy_retention(a->head, &r->o->retention, 0, a->time_ms, r->ids);
    for (size_t i = 0; r->o->retire_shelved && i < a->head->shelved_count; i++) {
        const struct bwi_kept *k = &a->head->shelved[i];
        if (!k->pinned && !bwi_policy_from_needs(a->head, &k->id)) add_once(r, &k->id);
    }
    for (size_t i = 0; i < r->o->retire_count; i++) {
        struct bwi_id id;
        int rc = bwi_catalog_id(r->o->retire_ids[i], &id, err);
        if (rc < 0) return rc;
        add_once(r, &id);
    }
    return 0;
}

static int retire_next(void *user, const struct bwi_actor *a, struct bwi_entry *ret, struct bw_error *err) {
    struct retire *r = user;
    if (!a->head) return bwi_error_set(err, BW_E_NOTFOUND, "the run has no history");
    int rc = choose(r, a, err);
    if (rc < 0) return rc;
    return r->count ? bwi_policy_retire(a, r->ids, r->count, ret, err) : 1;
}

/* What a decision would do, without making it. */
static int retire_dry(struct bw_catalog *c, struct retire *r, struct bw_error *err) {
    struct bwi_head head = {0};
    struct bwi_entry next = {0};
    struct bwi_env *env = c->host.ctx.env;
    int rc = bwi_catalog_head(c, &head, err);
    struct bwi_actor a = {
        .head = &head.entry, .head_sha = head.sha, .time_ms = env->unix_ms(env), .host = c->host.ctx.host};
    if (rc == 0) rc = retire_next(r, &a, &next, err);
    bwi_entry_fini(&next);
    bwi_head_fini(&head);
    return rc < 0 ? rc : 0;
}

static int sweep(struct bw_catalog *c, enum bwi_tier tier, const struct bw_prune_options *o, struct bwi_findings *f,
                 struct bw_error *err) {
    struct bwi_sweep s = {.ctx = &c->host.ctx,
                          .tier = tier,
                          .dry_run = o->dry_run != 0,
                          .drop_foreign = o->drop_foreign != 0,
                          .findings = f};
    bwi_sweep_start(&s, c->host.loop, NULL);
    return bwi_block_on(&c->host, &s.task, err);
}

/* The entry that retires needs room itself. Where there is none, what is dead already makes some. */
static int retire(struct bw_catalog *c, struct retire *r, struct bwi_findings *f, struct bw_error *err) {
    int rc = decide(c, retire_next, r, NULL, err);
    if (rc != BW_E_NOSPACE) return rc;
    bw_error_clear(err);
    rc = sweep(c, BWI_TIER_REMOTE, r->o, f, err);
    return rc < 0 ? rc : decide(c, retire_next, r, NULL, err);
}

static int check_prune(const struct bw_prune_options *o, struct bw_error *err) {
    if (!o) return bwi_error_set(err, BW_E_INVALID, "options is null");
    if (o->struct_size != sizeof *o)
        return bwi_error_set(err, BW_E_INVALID, "struct_size is %u, expected %zu", o->struct_size, sizeof *o);
    if (o->retire_count && !o->retire_ids) return bwi_error_set(err, BW_E_INVALID, "retire_ids is null");
    if (o->retention.reserved)
        return bwi_error_set(err, BW_E_INVALID, "retention.reserved is %u: expected 0", o->retention.reserved);
    return 0;
}

static int prune(struct bw_catalog *c, const struct bwi_catalog_args *a, struct bw_list **ret_list,
                 struct bw_error *err) {
    const struct bw_prune_options *o = &a->prune;
    struct bwi_findings f = {0};
    struct retire r = {.o = o};
    struct bwi_head head = {0};
    int rc = bwi_catalog_head(c, &head, err); /* identities too */
    bwi_head_fini(&head);
    c->host.ctx.grace_ms = o->grace_ms == UINT64_MAX ? GRACE_DEFAULT_MS : o->grace_ms;
    if (rc == 0) rc = o->dry_run ? retire_dry(c, &r, err) : retire(c, &r, &f, err);
    for (size_t i = 0; rc == 0 && i < r.count; i++)
        bwi_findings_add(&f, 0, 0, "remote", &r.ids[i], "retire", "", o->dry_run ? "would be retired" : "retired");
    if (rc == 0) rc = sweep(c, BWI_TIER_REMOTE, o, &f, err);
    if (rc == 0 && bwi_catalog_has(c, BWI_TIER_LOCAL)) rc = sweep(c, BWI_TIER_LOCAL, o, &f, err);
    bwi_free(r.ids);
    if (rc < 0) {
        bwi_findings_fini(&f);
        return rc;
    }
    return bwi_list_of_findings(&f, ret_list, err);
}

int bw_catalog_prune(struct bw_catalog *catalog, const char *run, const struct bw_prune_options *options,
                     struct bw_list **ret_list, struct bw_error *err) {
    int rc = bwi_catalog_check(catalog, run, ret_list, err);
    if (rc == 0) rc = check_prune(options, err);
    if (rc < 0) return rc;
    const struct bwi_catalog_args a = {.run = run, .changes = !options->dry_run, .prune = *options};
    return bwi_catalog_call(catalog, prune, &a, ret_list, err);
}

/* --- pin ----------------------------------------------------------------------------------------------------- */

struct pin {
    struct bwi_id id;
    bool pinned;
};

static int pin_next(void *user, const struct bwi_actor *a, struct bwi_entry *ret, struct bw_error *err) {
    const struct pin *p = user;
    if (!a->head) return bwi_error_set(err, BW_E_NOTFOUND, "the run has no history");
    const struct bwi_kept *k = bwi_policy_find_kept(a->head, &p->id);
    return k && k->pinned == p->pinned ? 1 : bwi_policy_pin(a, &p->id, p->pinned, ret, err);
}

static int pin(struct bw_catalog *c, const struct bwi_catalog_args *a, struct bw_list **ret_list,
               struct bw_error *err) {
    struct pin p = {.pinned = a->pinned};
    struct bwi_head head = {0};
    (void)ret_list;
    int rc = bwi_catalog_id(a->id, &p.id, err);
    if (rc == 0) rc = bwi_catalog_head(c, &head, err);
    bwi_head_fini(&head);
    return rc == 0 ? decide(c, pin_next, &p, NULL, err) : rc;
}

int bw_catalog_pin(struct bw_catalog *catalog, const char *run, const char *id, uint32_t pinned, struct bw_error *err) {
    const struct bwi_catalog_args a = {.run = run, .id = id, .changes = true, .pinned = pinned != 0};
    int rc = bwi_catalog_check(catalog, run, run, err);
    return rc == 0 ? bwi_catalog_call(catalog, pin, &a, NULL, err) : rc;
}

/* --- rollback ------------------------------------------------------------------------------------------------ */

struct rollback {
    struct bwi_register reg;
    char job[BWI_NAME_BUF], launch[BWI_NAME_BUF], label[BWI_NAME_BUF];
};

/* It registers for the job that has the run, so that job's restart is right and goes on from there. */
static int rollback_next(void *user, const struct bwi_actor *a, struct bwi_entry *ret, struct bw_error *err) {
    struct rollback *r = user;
    if (!a->head) return bwi_error_set(err, BW_E_NOTFOUND, "the run has no history");
    bwi_format(r->job, sizeof r->job, "%s", a->head->attempt.job[0] ? a->head->attempt.job : "rollback");
    r->reg.job = r->job;
    r->reg.seen_set = a->head->attempt.set;
    r->reg.seen_number = a->head->attempt.number;
    r->reg.seen_nonce = a->head->attempt.nonce;
    if (bwi_policy_mode(a->head, &r->reg) != BWI_REGISTER_ROLLBACK)
        return bwi_error_set(err, BW_E_REFUSED, "label \"%s\" was used in this run before; give another one", r->label);
    return bwi_policy_register(a, &r->reg, ret, err);
}

static const struct bwi_kept *rollback_target(const struct bwi_entry *e, uint64_t step, const char *id) {
    struct bwi_id want;
    if (id) return bwi_id_parse(bwi_span_str(id), &want) ? bwi_policy_find_kept(e, &want) : NULL;
    return bwi_policy_find_live(e, step);
}

static int no_target(const struct bwi_catalog_args *a, struct bw_error *err) {
    if (a->id)
        return bwi_error_set(err, BW_E_NOTFOUND, "run \"%s\" has no committed checkpoint \"%.100s\" to go back to",
                             a->run, a->id);
    return bwi_error_set(err, BW_E_NOTFOUND, "run \"%s\" has no live checkpoint of step %llu to go back to", a->run,
                         (unsigned long long)a->step);
}

static int target_facts(struct bw_catalog *c, const struct bwi_kept *k, struct bwi_register *reg,
                        struct bw_error *err) {
    struct bwi_buf body = {0};
    struct bwi_manifest m = {0};
    struct bwi_key key = bwi_key_manifest(c->host.ctx.run, &k->id, &k->manifest);
    int rc = bwi_block_get(&c->host, BWI_TIER_REMOTE, key.s, BWI_MANIFEST_BYTES_MAX, &body, err);
    if (rc == 0) rc = bwi_manifest_decode(bwi_buf_span(&body), &m, err);
    if (rc == 0) {
        reg->target = k->id;
        reg->target_facts = (struct bwi_candidate){
            .id = k->id, .world = m.world, .groups = m.group_count, .fan_out = m.fan_out, .ref_count = m.ref_count};
        memcpy(reg->target_facts.refs, m.refs, sizeof m.refs);
        reg->world = m.world;
        reg->groups = m.group_count;
        reg->fan_out = m.fan_out;
    }
    bwi_manifest_fini(&m);
    bwi_buf_fini(&body);
    return rc;
}

static void tell_rollback(const struct bwi_entry *e, const struct bwi_kept *k, bool dry, struct bwi_findings *f) {
    bool live = bwi_policy_find_live(e, k->id.step) == k;
    bwi_findings_add(f, 0, 0, "remote", &k->id, "rollback", "", "%s the newest live checkpoint",
                     dry ? "would become" : "is now");
    for (size_t i = 0; i < e->live_count; i++)
        if (&e->live[i] != k && (!live || e->live[i].id.step > k->id.step))
            bwi_findings_add(f, 0, 0, "remote", &e->live[i].id, "shelve", "", dry ? "would be shelved" : "shelved");
}

static int rollback(struct bw_catalog *c, const struct bwi_catalog_args *a, struct bw_list **ret_list,
                    struct bw_error *err) {
    struct bwi_head head = {0};
    struct bwi_findings f = {0};
    struct rollback r = {0};
    int rc = bwi_catalog_head(c, &head, err);
    if (rc < 0) return rc;
    struct bwi_env *env = c->host.ctx.env;
    const struct bwi_kept *k = rollback_target(&head.entry, a->step, a->id);
    bwi_format(r.launch, sizeof r.launch, "rollback-%016llx", (unsigned long long)env->random_u64(env));
    bwi_format(r.label, sizeof r.label, "%s", a->label ? a->label : r.launch);
    r.reg = (struct bwi_register){.run = a->run,
                                  .launch = r.launch,
                                  .label = r.label,
                                  .mode = BWI_REGISTER_ROLLBACK,
                                  .nonce = (uint32_t)env->random_u64(env),
                                  .note = "rolled back by command"};
    if (!k) rc = no_target(a, err);
    if (rc == 0) rc = target_facts(c, k, &r.reg, err);
    if (rc == 0 && !a->dry_run) rc = decide(c, rollback_next, &r, NULL, err);
    if (rc == 0) tell_rollback(&head.entry, k, a->dry_run, &f);
    bwi_head_fini(&head);
    if (rc == 0) return bwi_list_of_findings(&f, ret_list, err);
    bwi_findings_fini(&f);
    return rc;
}

int bw_catalog_rollback(struct bw_catalog *catalog, const char *run, uint64_t step, const char *id, const char *label,
                        uint32_t dry_run, struct bw_list **ret_list, struct bw_error *err) {
    const struct bwi_catalog_args a = {
        .run = run, .id = id, .label = label, .step = step, .changes = !dry_run, .dry_run = dry_run != 0};
    int rc = bwi_catalog_check(catalog, run, ret_list, err);
    if (rc == 0 && label && !bwi_name_valid(label))
        rc = bwi_error_set(err, BW_E_INVALID, "label is \"%.140s\": expected [A-Za-z0-9][A-Za-z0-9._-]{0,127}", label);
    return rc == 0 ? bwi_catalog_call(catalog, rollback, &a, ret_list, err) : rc;
}

/* --- drain --------------------------------------------------------------------------------------------------- */

/* What is only told of a finding must not go on once nobody waits for the call. */
static bool is_given_up(const struct bw_catalog *c) {
    return atomic_load(&c->pulse.given_up);
}

static int given_up(struct bw_error *err) {
    return bwi_error_set(err, BW_E_CANCELLED, "nobody waits for the call any more");
}

static int drain_held(struct bw_catalog *c, const struct bwi_entry *e, const struct bwi_holds *holds,
                      struct bwi_findings *f, struct bw_error *err) {
    for (size_t i = 0; i < holds->count; i++) {
        const struct bwi_summary *s = &holds->list[i];
        if (bwi_policy_fate(e, &s->id) != BWI_FATE_COMMITTABLE || !bwi_policy_in_lineage(e, &s->uuid)) continue;
        struct bwi_drain d = {.ctx = &c->host.ctx, .id = s->id, .group = s->group, .fan_out = s->fan_out};
        struct bw_error de = BW_ERROR_INIT;
        char object[32];
        bwi_format(object, sizeof object, "group %u", s->group);
        bwi_drain_start(&d, c->host.loop, NULL);
        int rc = bwi_block_on(&c->host, &d.task, &de);
        if (is_given_up(c)) return given_up(err);
        if (rc < 0)
            bwi_findings_add(f, 2, rc, "local", &s->id, object, "", "%s", de.message);
        else
            bwi_findings_add(f, 0, 0, "local", &s->id, object, "",
                             d.was_complete ? "was in the authority already" : "copied to the authority");
    }
    return 0;
}

static int commit_all(struct bw_catalog *c, struct bwi_findings *f, struct bw_error *err) {
    struct bwi_commit_all all = {.ctx = &c->host.ctx, .patience_ns = DECIDE_PATIENCE_NS, .findings = f};
    bwi_commit_all_start(&all, c->host.loop, NULL);
    const int rc = bwi_block_on(&c->host, &all.task, err);
    bwi_commit_all_fini(&all);
    return rc;
}

static int drain(struct bw_catalog *c, const struct bwi_catalog_args *a, struct bw_list **ret_list,
                 struct bw_error *err) {
    struct bwi_head head = {0};
    struct bwi_findings f = {0};
    struct bwi_holds holds = {0};
    (void)a;
    int rc = bwi_catalog_head(c, &head, err);
    if (rc == 0 && bwi_catalog_has(c, BWI_TIER_LOCAL)) {
        holds.ctx = &c->host.ctx;
        bwi_holds_start(&holds, c->host.loop, NULL);
        rc = bwi_block_on(&c->host, &holds.task, err);
        if (rc == 0) rc = drain_held(c, &head.entry, &holds, &f, err);
    }
    if (rc == 0) rc = commit_all(c, &f, err);
    bwi_holds_fini(&holds);
    bwi_head_fini(&head);
    if (rc == 0) return bwi_list_of_findings(&f, ret_list, err);
    bwi_findings_fini(&f);
    return rc;
}

int bw_catalog_drain(struct bw_catalog *catalog, const char *run, struct bw_list **ret_list, struct bw_error *err) {
    const struct bwi_catalog_args a = {.run = run, .changes = true};
    int rc = bwi_catalog_check(catalog, run, ret_list, err);
    return rc == 0 ? bwi_catalog_call(catalog, drain, &a, ret_list, err) : rc;
}
