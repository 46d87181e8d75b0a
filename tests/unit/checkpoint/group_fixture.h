/* SPDX-License-Identifier: Apache-2.0 */
/* Whole groups, a history that grows by the real rules, and a machine that can be stopped at any operation: for the
 * tests of publishing, draining, evicting and sweeping. */
#ifndef BW_TEST_GROUP_FIXTURE_H
#define BW_TEST_GROUP_FIXTURE_H

#include "checkpoint/policy_history.h"
#include "checkpoint/publish.h"
#include "format/manifest.h"
#include "transfer_fixture.h"

static const struct bwi_uuid LIFE = {{1, 2, 3}};
static const struct bwi_uuid OTHER_LIFE = {{7, 7, 7}};
static const struct bwi_uuid STORE = {{9}};

/* ---- one group of one checkpoint ---- */

struct made {
    struct state s;
    struct bwi_xxh headers[8];
    struct bwi_key keys[8];
    struct bwi_buf content, placement;
    struct bwi_summary sum;
    struct bwi_pack_write write;
};

static inline void made_encode(struct made *m, const struct world *w) {
    struct bw_error err = BW_ERROR_INIT;
    struct bwi_plan *p = &m->s.plan;
    struct bwi_pack_ref packs[8];
    assert_true(p->pack_count <= 8);
    bwi_buf_reset(&m->content);
    bwi_buf_reset(&m->placement);
    assert_ok(bwi_content_encode(&p->content, &m->content, &err), &err);
    m->sum.content = bwi_sha_of(bwi_buf_span(&m->content));
    m->sum.content_bytes = m->content.len;
    for (size_t i = 0; i < p->pack_count; i++) {
        m->keys[i] = bwi_key_pack(w->ctx.run, m->sum.fan_out, &m->sum.id, m->sum.group, (uint32_t)i, m->sum.writer);
        packs[i] = (struct bwi_pack_ref){bwi_span_str(m->keys[i].s), p->packs[i].file_bytes, p->packs[i].header.len,
                                         m->headers[i]};
    }
    struct bwi_placement place = {.content = m->sum.content,
                                  .writer = m->sum.writer,
                                  .pack_count = (uint32_t)p->pack_count,
                                  .packs = packs,
                                  .extent_count = p->content.extent_count,
                                  .places = p->places};
    assert_ok(bwi_placement_encode(&place, &m->placement, &err), &err);
    m->sum.placement = bwi_sha_of(bwi_buf_span(&m->placement));
    m->sum.placement_bytes = m->placement.len;
}

/* Writes the packs of a small state to a tier; the other objects are made and not put. */
static inline void made_open(struct made *m, struct world *w, enum bwi_tier tier, const struct bwi_id *id,
                             uint32_t group, uint64_t seed) {
    struct bw_error err = BW_ERROR_INIT;
    memset(m, 0, sizeof *m);
    m->s.rng = seed;
    bwi_description_init(&m->s.d);
    state_plain(&m->s, "a", BW_U8, 9000);
    state_plain(&m->s, "b", BW_U8, 9001);
    state_plan(&m->s, 16 * KIB, 16 * KIB);
    m->write = (struct bwi_pack_write){.ctx = &w->ctx, .tier = tier, .plan = &m->s.plan, .id = *id, .group = group};
    assert_ok(bwi_pack_write_start(&m->write, NULL, &err), &err);
    world_run(w);
    assert_ok(m->write.task.error.status, &m->write.task.error);
    for (size_t i = 0; i < m->s.plan.pack_count; i++) m->headers[i] = m->write.headers[i];
    m->sum = (struct bwi_summary){.uuid = LIFE,
                                  .id = *id,
                                  .group = group,
                                  .groups = group + 1,
                                  .world = group + 1,
                                  .rank_count = 1,
                                  .ranks = {0},
                                  .layout = m->s.plan.layout_sha,
                                  .layout_bytes = m->s.plan.layout_bytes.len,
                                  .writer = w->ctx.writer,
                                  .raw_bytes = m->s.plan.raw_bytes,
                                  .stored_bytes = m->s.plan.stored_bytes,
                                  .pack_count = (uint32_t)m->s.plan.pack_count};
    made_encode(m, w);
}

static inline struct bwi_publish made_publish(struct made *m, struct world *w, enum bwi_tier tier) {
    return (struct bwi_publish){.ctx = &w->ctx,
                                .store = w->ctx.tier[tier],
                                .summary = &m->sum,
                                .layout = bwi_buf_span(&m->s.plan.layout_bytes),
                                .content = bwi_buf_span(&m->content),
                                .placement = bwi_buf_span(&m->placement)};
}

static inline void made_put(struct made *m, struct world *w, enum bwi_tier tier) {
    struct bwi_publish p = made_publish(m, w, tier);
    bwi_publish_start(&p, w->loop, NULL);
    world_run(w);
    assert_ok(p.task.error.status, &p.task.error);
}

static inline void made_close(struct made *m) {
    bwi_pack_write_fini(&m->write);
    bwi_buf_fini(&m->content);
    bwi_buf_fini(&m->placement);
    state_free(&m->s);
}

/* A whole group, of some life, with refs. Returns the bytes of its packs. */
static inline uint64_t save_group(struct world *w, enum bwi_tier tier, const struct bwi_id *id, uint32_t group,
                                  const struct bwi_uuid *life, const struct bwi_id *ref) {
    struct made m;
    made_open(&m, w, tier, id, group, id->step + 1);
    m.sum.uuid = *life;
    if (ref != NULL) m.sum.refs[m.sum.ref_count++] = *ref;
    made_put(&m, w, tier);
    const uint64_t bytes = m.sum.stored_bytes;
    made_close(&m);
    return bytes;
}

/* Packs of a save that died before its summary. */
static inline void save_packs(struct world *w, enum bwi_tier tier, const struct bwi_id *id, uint32_t group) {
    struct made m;
    made_open(&m, w, tier, id, group, id->step + 1);
    made_close(&m);
}

/* ---- looking ---- */

static inline size_t below(const struct world *w, enum bwi_tier tier, const char *prefix) {
    size_t n = 0;
    for (size_t i = 0; i < bwi_bucket_objects(w->bucket[tier]); i++)
        n += strncmp(bwi_bucket_key(w->bucket[tier], i), prefix, strlen(prefix)) == 0;
    return n;
}

static inline bool has_summary(const struct world *w, enum bwi_tier tier, const struct bwi_id *id, uint32_t group) {
    struct bwi_span any;
    return bwi_bucket_get(w->bucket[tier], bwi_key_summary(w->ctx.run, id, group).s, &any);
}

static inline size_t data_of(const struct world *w, enum bwi_tier tier, const struct bwi_id *id, uint32_t group) {
    return below(w, tier, bwi_key_data_of(w->ctx.run, false, id, group).s);
}

static inline void check_named(const struct bwi_bucket *b, const char *key, uint64_t bytes, const struct bwi_sha *sha) {
    struct bwi_span data;
    if (!bwi_bucket_get(b, key, &data)) fail_msg("a summary names \"%s\", and it is not there", key);
    assert_int_equal(data.len, bytes);
    if (sha == NULL) return;
    const struct bwi_sha found = bwi_sha_of(data);
    assert_true(bwi_sha_eq(&found, sha));
}

static inline void check_summary(const struct world *w, const struct bwi_bucket *b, struct bwi_span bytes) {
    struct bw_error err = BW_ERROR_INIT;
    struct bwi_summary s;
    struct bwi_placement p = {0};
    struct bwi_span placement;
    assert_ok(bwi_summary_decode(bytes, &s, &err), &err);
    const char *run = w->ctx.run;
    const struct bwi_key key = bwi_key_placement(run, s.fan_out, &s.id, s.group, s.writer);
    check_named(b, bwi_key_layout(run, s.id.attempt, s.id.nonce, &s.layout).s, s.layout_bytes, &s.layout);
    check_named(b, bwi_key_content(run, s.fan_out, &s.id, s.group).s, s.content_bytes, &s.content);
    check_named(b, key.s, s.placement_bytes, &s.placement);
    assert_true(bwi_bucket_get(b, key.s, &placement));
    assert_ok(bwi_placement_decode(placement, &p, &err), &err);
    for (uint32_t i = 0; i < p.pack_count; i++) {
        struct bwi_key pack = {{0}};
        memcpy(pack.s, p.packs[i].key.ptr, p.packs[i].key.len);
        check_named(b, pack.s, p.packs[i].file_bytes, NULL);
    }
    bwi_placement_fini(&p);
}

/* Whatever a summary says is true: all that it names is there. Returns how many there are. */
static inline size_t check_tier(const struct world *w, enum bwi_tier tier) {
    const struct bwi_bucket *b = w->bucket[tier];
    size_t summaries = 0;
    for (size_t i = 0; i < bwi_bucket_objects(b); i++) {
        struct bwi_key_parts parts;
        struct bwi_span data;
        if (!bwi_key_parse(bwi_bucket_key(b, i), &parts) || parts.kind != BWI_KEY_SUMMARY) continue;
        assert_true(bwi_bucket_get(b, bwi_bucket_key(b, i), &data));
        check_summary(w, b, data);
        summaries++;
    }
    return summaries;
}

/* ---- a history ---- */

struct past {
    struct bwi_entry e;
    struct bwi_sha sha;
    bool set;
    struct bwi_uuid store;
    int64_t time_ms; /* of the next entry */
};

static inline struct bwi_actor past_actor(const struct past *p) {
    return (struct bwi_actor){.head = p->set ? &p->e : NULL,
                              .head_sha = p->sha,
                              .store = p->store,
                              .writer = 5,
                              .time_ms = p->time_ms,
                              .host = "node"};
}

static inline void past_put(struct past *p, struct world *w, struct bwi_entry *next) {
    struct bw_error err = BW_ERROR_INIT;
    struct bwi_buf bytes = {0};
    assert_ok(bwi_entry_encode(next, &bytes, &err), &err);
    world_put(w, BWI_TIER_REMOTE, bwi_key_entry(w->ctx.run, next->era, next->n).s, bwi_buf_span(&bytes));
    p->sha = bwi_sha_of(bwi_buf_span(&bytes));
    bwi_buf_fini(&bytes);
    bwi_entry_fini(&p->e);
    p->e = *next;
    p->set = true;
}

static inline void past_begin(struct past *p, struct world *w) {
    memset(p, 0, sizeof *p);
    p->store = STORE;
    w->ctx.store_id[BWI_TIER_REMOTE] = STORE;
    p->time_ms = 1000000;
}

static inline void past_register(struct past *p, struct world *w, const char *launch, uint32_t nonce,
                                 enum bwi_register_mode mode) {
    struct bw_error err = BW_ERROR_INIT;
    struct bwi_entry next = {0};
    const struct bwi_actor a = past_actor(p);
    const struct bwi_kept *newest = bwi_policy_newest(a.head);
    struct bwi_register r = {.run = w->ctx.run,
                             .job = "job",
                             .launch = launch,
                             .world = 1,
                             .groups = 1,
                             .nonce = nonce,
                             .uuid = LIFE,
                             .mode = mode,
                             .label = launch,
                             .seen_set = p->set && p->e.attempt.set,
                             .note = ""};
    if (p->set) {
        r.seen_number = p->e.attempt.number;
        r.seen_nonce = p->e.attempt.nonce;
    }
    if (newest != NULL) r.target_facts = (struct bwi_candidate){.id = newest->id, .world = 1, .groups = 1};
    assert_ok(bwi_policy_register(&a, &r, &next, &err), &err);
    past_put(p, w, &next);
}

static inline void past_commit(struct past *p, struct world *w, const struct bwi_id *id, const struct bwi_id *ref) {
    struct bw_error err = BW_ERROR_INIT;
    struct bwi_entry next = {0};
    const struct bwi_actor a = past_actor(p);
    struct bwi_kept k = {
        .id = *id, .manifest = bwi_sha_of(bwi_span(id, sizeof *id)), .bytes = 1, .time_ms = p->time_ms};
    if (ref != NULL) k.refs[k.ref_count++] = *ref;
    assert_ok(bwi_policy_commit(&a, &k, &next, &err), &err);
    past_put(p, w, &next);
}

static inline void past_retire(struct past *p, struct world *w, const struct bwi_id *id) {
    struct bw_error err = BW_ERROR_INIT;
    struct bwi_entry next = {0};
    const struct bwi_actor a = past_actor(p);
    assert_ok(bwi_policy_retire(&a, id, 1, &next, &err), &err);
    past_put(p, w, &next);
}

static inline void past_end(struct past *p) {
    bwi_entry_fini(&p->e);
}

/* ---- a machine that stops ---- */

/* After so many operations, of both tiers together, nothing has an effect any more, as if the process had died. What
 * only the living need (unlocking, giving up an upload) goes through: the kernel does it for the dead. */
static struct {
    void (*submit[BWI_TIERS])(struct bwi_store *s, struct bwi_store_op *op);
    struct world *w;
    uint64_t left;
    bool last_has_effect; /* the operation at which it stops is done, and nobody hears of it */
} machine;

static inline void machine_submit(struct bwi_store *s, struct bwi_store_op *op) {
    const int tier = s == machine.w->ctx.tier[0] ? 0 : 1;
    const bool of_the_dead =
        op->verb == BWI_STORE_UNLOCK || op->verb == BWI_STORE_ABORT || op->verb == BWI_STORE_RELEASE;
    if (!of_the_dead && machine.left > 0) {
        machine.left--;
    } else if (!of_the_dead) {
        bwi_bucket_fail_next(machine.w->bucket[tier], op->verb, NULL, BW_E_IO, machine.last_has_effect);
        machine.last_has_effect = false;
    }
    machine.submit[tier](s, op);
}

static inline void machine_stops_after(struct world *w, uint64_t ops, bool last_has_effect) {
    machine.w = w;
    machine.left = ops;
    machine.last_has_effect = last_has_effect;
    for (int t = 0; t < BWI_TIERS; t++) {
        machine.submit[t] = w->ctx.tier[t]->submit;
        w->ctx.tier[t]->submit = machine_submit;
    }
}

/* Started again. */
static inline void machine_starts(struct world *w) {
    for (int t = 0; t < BWI_TIERS; t++) w->ctx.tier[t]->submit = machine.submit[t];
}

#endif
