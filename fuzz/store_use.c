/* SPDX-License-Identifier: Apache-2.0 */
/* Everything that can be done with a store, in one thread and on virtual time. */
#include "store.h"

#include "base/vec.h"
#include "checkpoint/mend.h"
#include "checkpoint/restore.h"
#include "checkpoint/room.h"
#include "checkpoint/store_id.h"
#include "checkpoint/sweep.h"
#include "cluster.h"
#include "fuzz.h"

/* An uncommitted checkpoint costs time and memory for each group that the history claims, which may be a million. */
enum { TURNS_MAX = 1 << 20, KEPT_MAX = 6, GROUPS_MAX = 64 };

struct use {
    struct cluster cluster; /* its clock and its buckets; one rank, in the end */
    struct bwi_loop *loop;
    struct bwi_context ctx;
    struct bwi_head head;
    bool chain;
    bool readable[KEPT_MAX]; /* per checkpoint: what verify has found sound, or a reader has read */
};

/* --- turning ---- */

static void run(struct use *u, struct bwi_task *t) {
    for (unsigned turns = 0; t->running; turns++) {
        fuzz_require(turns < TURNS_MAX);
        if (bwi_loop_turn(u->loop, 0)) continue;
        const uint64_t next = bwi_loop_next_ns(u->loop);
        fuzz_require(next != BWI_NEVER);
        if (next > u->cluster.env.now) u->cluster.env.now = next;
    }
    fuzz_require(t->pending == 0);
    if (t->error.status != 0) fuzz_failed(t->error);
}

/* One arena for all inputs: what was acquired is given back each time. */
static struct bwi_arena *arena(void) {
    static struct bwi_arena *kept;
    struct bw_error err = BW_ERROR_INIT;
    if (kept == NULL) fuzz_require(bwi_arena_open(BWI_ARENA_MIN_BYTES, 0, &kept, &err) == 0);
    return kept;
}

static void fill(struct bwi_bucket *b, const struct forge *f) {
    for (size_t i = 0; i < f->count; i++) {
        const struct forge_object *o = &f->objects[i];
        if (!o->gone) (void)bwi_bucket_put(b, o->key, bwi_span(o->bytes, o->len));
    }
}

static void open_all(struct use *u, const struct forge tiers[BWI_TIERS]) {
    struct bw_error err = BW_ERROR_INIT;
    cluster_init(&u->cluster, 11);
    fuzz_require(bwi_bucket_new(&u->cluster.env.env, &u->cluster.local[0]) == 0);
    fill(u->cluster.remote, &tiers[BWI_TIER_REMOTE]);
    fill(u->cluster.local[0], &tiers[BWI_TIER_LOCAL]);
    fuzz_require(bwi_loop_open(&u->cluster.env.env, NULL, &u->loop, &err) == 0);
    bwi_context_init(&u->ctx, u->loop);
    memcpy(u->ctx.run, "run", sizeof "run");
    u->ctx.arena = arena();
    u->ctx.grace_ms = 0;
    for (enum bwi_tier t = 0; t < BWI_TIERS; t++) {
        struct bwi_bucket *b = t == BWI_TIER_REMOTE ? u->cluster.remote : u->cluster.local[0];
        fuzz_require(bwi_store_memory_open(b, u->loop, bwi_tier_name(t), &u->ctx.tier[t], &err) == 0);
    }
}

static void close_all(struct use *u) {
    bwi_head_fini(&u->head);
    for (enum bwi_tier t = 0; t < BWI_TIERS; t++) u->ctx.tier[t]->close(u->ctx.tier[t]);
    fuzz_require(bwi_loop_tasks(u->loop) == 0 && bwi_arena_used(u->ctx.arena) == 0);
    bwi_loop_close(u->loop);
    bwi_bucket_free(u->cluster.local[0]);
    u->cluster.local[0] = NULL;
    bwi_bucket_free(u->cluster.remote);
}

/* --- looking ---- */

static bool read_ids(struct use *u) {
    struct bwi_store_ids ids = {.ctx = &u->ctx};
    bwi_store_ids_start(&ids, u->loop, NULL);
    run(u, &ids.task);
    return ids.task.error.status == 0;
}

static void read_head(struct use *u) {
    struct bwi_head_read read = {.ctx = &u->ctx, .head = &u->head};
    bwi_head_read_start(&read, u->loop, NULL);
    run(u, &read.task);
}

static void list_holds(struct use *u, enum bwi_tier tier) {
    struct bwi_holds holds = {.ctx = &u->ctx, .store = u->ctx.tier[tier], .pass_over = true};
    bwi_holds_start(&holds, u->loop, NULL);
    run(u, &holds.task);
    for (size_t i = 1; i < holds.count; i++) fuzz_require(bwi_id_cmp(&holds.list[i - 1].id, &holds.list[i].id) <= 0);
    bwi_holds_fini(&holds);
}

static size_t kept_count(const struct use *u) {
    const size_t n = u->head.found ? u->head.entry.live_count + u->head.entry.shelved_count : 0;
    return n < KEPT_MAX ? n : KEPT_MAX;
}

static const struct bwi_kept *kept(const struct use *u, size_t i) {
    const struct bwi_entry *e = &u->head.entry;
    return i < e->live_count ? &e->live[i] : &e->shelved[i - e->live_count];
}

/* --- reading ---- */

static int ask(struct use *u, struct bwi_restore *r, struct bwi_restore_call *c) {
    c->r = r;
    bwi_restore_call_start(c, u->loop, NULL);
    run(u, &c->task);
    return c->task.error.status;
}

/* Whatever the names and shapes say: facts, boxes, blobs, metadata. */
static void read_facts(struct use *u, struct bwi_restore *r) {
    struct bw_error err = BW_ERROR_INIT;
    struct bw_checkpoint_info info;
    struct bw_tensor_info tensor;
    struct bw_box_info box;
    struct bw_blob_info blob;
    struct bwi_restore_call all = {.what = BWI_RESTORE_ALL_TENSORS}, blobs = {.what = BWI_RESTORE_BLOBS};
    struct bwi_restore_call rank = {.what = BWI_RESTORE_RANK, .rank = 1};
    const char *json;
    uint64_t count = 0;
    if (ask(u, r, &all) == 0 && bwi_restore_get_info(r, &info, &err) == 0) {
        for (uint64_t i = 0; i < info.tensors && i < 8; i++) {
            fuzz_require(bwi_restore_get_tensor_at(r, i, &tensor, &err) == 0);
            for (uint32_t k = 0; k < tensor.boxes && k < 8; k++)
                (void)bwi_restore_get_box(r, tensor.name, k, &box, &err);
        }
    }
    bw_error_clear(&err);
    if (ask(u, r, &blobs) == 0 && bwi_restore_get_blob_count(r, &count, &err) == 0)
        for (uint64_t i = 0; i < count && i < 8; i++) fuzz_require(bwi_restore_get_blob(r, i, &blob, &err) == 0);
    if (ask(u, r, &rank) == 0) fuzz_require(bwi_restore_get_metadata(r, 1, &json, &err) == 0);
}

/* The data that a job would ask for. */
static int read_data(struct use *u, struct bwi_restore *r, struct store_state *got) {
    const uint64_t shape[2] = {STORE_ROWS, STORE_COLS}, same = STORE_SAME;
    struct bw_slice s[2] = {BW_SLICE_INIT, BW_SLICE_INIT};
    s[0].name = "sharded";
    s[1].name = "same";
    s[0].dtype = s[1].dtype = BW_U32;
    s[0].dims = 2;
    s[1].dims = 1;
    s[0].shape = shape;
    s[1].shape = &same;
    s[0].data = got->sharded;
    s[1].data = got->same;
    struct bwi_restore_call read = {.what = BWI_RESTORE_READ, .slices = s, .slice_count = 2};
    struct bwi_restore_call blob = {
        .what = BWI_RESTORE_BLOB, .rank = 1, .name = "rng", .buf = got->blob, .buf_bytes = sizeof got->blob};
    const int rc = ask(u, r, &read);
    return rc != 0 ? rc : ask(u, r, &blob);
}

static int restore(struct use *u, const struct bwi_restore_target *t, bool facts) {
    struct bwi_restore *r = NULL;
    struct bw_error err = BW_ERROR_INIT;
    static struct store_state got, want;
    fuzz_require(bwi_restore_new(&u->ctx, t, &r, &err) == 0);
    if (facts) read_facts(u, r);
    memset(&got, 0, sizeof got);
    const int rc = read_data(u, r, &got);
    bwi_restore_free(r);
    store_state_of(&want, t->id.step);
    if (rc == 0 && u->chain) fuzz_require(memcmp(&got, &want, sizeof got) == 0);
    return rc;
}

static int restore_kept(struct use *u, size_t i, bool may_repair) {
    const struct bwi_restore_target t = {.id = kept(u, i)->id,
                                         .committed = true,
                                         .manifest = kept(u, i)->manifest,
                                         .may_repair = may_repair,
                                         .io_timeout_ns = 600 * BWI_NS_PER_S};
    return restore(u, &t, !may_repair);
}

/* The one that was never committed, as the history speaks of it. */
static void restore_from(struct use *u) {
    const struct bwi_from *f = &u->head.entry.from;
    if (!u->head.found || !f->set || u->head.entry.lineage_count == 0) return;
    if (f->groups > GROUPS_MAX) return;
    const struct bwi_restore_target t = {.id = f->id,
                                         .world = f->world,
                                         .groups = f->groups,
                                         .uuid = u->head.entry.lineage[u->head.entry.lineage_count - 1].uuid,
                                         .wait_ns = 10 * BWI_NS_PER_S,
                                         .io_timeout_ns = 600 * BWI_NS_PER_S};
    (void)restore(u, &t, false);
}

/* --- verifying, mending, sweeping ---- */

static bool is_clean(const struct bwi_findings *f) {
    for (size_t i = 0; i < f->count; i++)
        if (f->list[i].severity == 2) return false;
    return !f->failed;
}

static bool verify(struct use *u, size_t i) {
    struct bwi_findings found = {0};
    struct bwi_verify v = {.ctx = &u->ctx,
                           .id = kept(u, i)->id,
                           .committed = true,
                           .manifest = kept(u, i)->manifest,
                           .tiers = {true, true},
                           .findings = &found};
    bwi_verify_start(&v, u->loop, NULL);
    run(u, &v.task);
    const bool sound = v.task.error.status == 0 && is_clean(&found);
    bwi_verify_fini(&v);
    bwi_findings_fini(&found);
    return sound;
}

/* Afterwards it is sound, or it was said what is lost. */
static void mend(struct use *u, size_t i) {
    struct bwi_findings found = {0};
    struct bwi_mend m = {.ctx = &u->ctx, .id = kept(u, i)->id, .manifest = kept(u, i)->manifest, .findings = &found};
    bwi_mend_start(&m, u->loop, NULL);
    run(u, &m.task);
    const bool says_sound = m.task.error.status == 0 && is_clean(&found);
    bwi_mend_fini(&m);
    bwi_findings_fini(&found);
    if (says_sound) fuzz_require(verify(u, i));
}

static void sweep(struct use *u, enum bwi_tier tier, bool dry) {
    struct bwi_findings found = {0};
    struct bwi_sweep s = {.ctx = &u->ctx, .tier = tier, .dry_run = dry, .findings = &found};
    bwi_sweep_start(&s, u->loop, NULL);
    run(u, &s.task);
    bwi_findings_fini(&found);
}

/* --- a job ---- */

static void open_job(struct use *u) {
    const struct launch l = {.job = "a", .launch = "again", .world = 1};
    struct rank *r = &u->cluster.ranks[0];
    cluster_start(&u->cluster, 0, 0, 0, &l);
    cluster_open(&u->cluster, 0, 1);
    if (r->open->error.status != 0)
        fuzz_failed(r->open->error);
    else
        fuzz_require(r->session->opened);
    cluster_end(&u->cluster, 0);
}

static void look_at_all(struct use *u) {
    restore_from(u);
    for (size_t i = 0; i < kept_count(u); i++) {
        const bool sound = verify(u, i);
        u->readable[i] = restore_kept(u, i, false) == 0;
        if (u->chain && sound) fuzz_require(u->readable[i]);
    }
}

static void change_all(struct use *u, unsigned without) {
    for (size_t i = 0; i < kept_count(u) && (without & STORE_NO_MEND) == 0; i++) mend(u, i);
    for (enum bwi_tier t = 0; t < BWI_TIERS && (without & STORE_NO_SWEEP) == 0; t++) {
        sweep(u, t, true);
        sweep(u, t, false);
    }
    /* Neither takes away what could be read. */
    for (size_t i = 0; i < kept_count(u); i++)
        if (u->readable[i] && restore_kept(u, i, true) != 0) fuzz_require(!u->chain);
}

void store_use(const struct forge tiers[BWI_TIERS], bool chain, unsigned without) {
    static struct use u;
    memset(&u, 0, sizeof u);
    u.chain = chain;
    open_all(&u, tiers);
    if (read_ids(&u)) {
        read_head(&u);
        for (enum bwi_tier t = 0; t < BWI_TIERS; t++) list_holds(&u, t);
        if ((without & STORE_NO_READ) == 0) look_at_all(&u);
        change_all(&u, without);
    }
    if ((without & STORE_NO_JOB) == 0) open_job(&u);
    close_all(&u);
}
