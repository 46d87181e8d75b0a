/* SPDX-License-Identifier: Apache-2.0 */
/* See flow_kit.h. */
#include "flow_kit.h"

#include "disk_tier.h"
#include "inline_engine.h"
#include <inttypes.h>
#include <stdio.h>

#define PATIENCE_MS UINT64_C(600000) /* of virtual time */

static struct job *job_of(struct cluster *c) {
    return (void *)c; /* its first member */
}

static int open_io(struct cluster *c, unsigned node, struct bwi_io **ret, struct bw_error *err) {
    struct job *j = job_of(c);
    j->process[node] = disk_process_new(node);
    disk_attach(j->process[node], "remote", j->remote);
    disk_attach(j->process[node], "local", j->local[node]);
    assert_int_equal(bwi_os_fault_new(disk_os(j->process[node]), &j->fault[node]), 0);
    const struct bwi_io_options o = {.os = bwi_os_fault_table(j->fault[node])};
    return bwi_io_open(&o, ret, err);
}

static const struct cluster_stores on_disks = {open_io, disk_tier};

void job_init(struct job *j, uint64_t seed) {
    memset(j, 0, sizeof *j);
    cluster_init(&j->c, seed);
    j->c.stores = &on_disks;
    const struct disk_model remote = {.is_remote = true, .device = 1};
    j->remote = disk_new(&j->c.env.env, &remote);
    for (unsigned n = 0; n < FLOW_WORLD; n++) {
        const struct disk_model local = {.device = 2 + n};
        j->local[n] = disk_new(&j->c.env.env, &local);
    }
}

void job_fini(struct job *j) {
    if (j->running) job_end(j);
    disk_free(j->remote);
    for (unsigned n = 0; n < FLOW_WORLD; n++) disk_free(j->local[n]);
    cluster_fini(&j->c); /* counts what is still allocated */
}

/* ---- launches ---- */

static bool opens_ended(struct cluster *c, void *user) {
    (void)user;
    return !c->ranks[0].open->running && !c->ranks[1].open->running;
}

void job_launch(struct job *j, enum bwi_register_mode mode, uint64_t step) {
    static char names[64][16];
    char *name = names[j->launches % 64];
    bwi_format(name, sizeof names[0], "launch-%u", j->launches++);
    const struct launch l = {.launch = name,
                             .world = FLOW_WORLD,
                             .mode = mode,
                             .resume_step = step,
                             .label = mode == BWI_REGISTER_DEFAULT ? NULL : "back"};
    for (uint32_t r = 0; r < FLOW_WORLD; r++) {
        cluster_start(&j->c, r, r, r, &l);
        j->c.ranks[r].ctx.grace_ms = 0;
    }
    j->running = true;
}

void job_wait_open(struct job *j) {
    assert_true(cluster_run(&j->c, opens_ended, NULL, PATIENCE_MS));
}

bool job_is_open(const struct job *j, unsigned rank, struct bw_error *ret_why) {
    *ret_why = j->c.ranks[rank].open->error;
    return ret_why->status == 0;
}

void job_end(struct job *j) {
    for (unsigned r = 0; r < FLOW_WORLD; r++) {
        cluster_end(&j->c, r);
        assert_int_equal(disk_open_files(j->process[r]), 0);
        j->fired += bwi_os_fault_fired(j->fault[r]);
        bwi_os_fault_free(j->fault[r]);
        disk_process_free(j->process[r]);
    }
    j->running = false;
}

uint64_t job_fired(const struct job *j) {
    uint64_t n = j->fired;
    for (unsigned r = 0; r < FLOW_WORLD && j->running; r++) n += bwi_os_fault_fired(j->fault[r]);
    return n;
}

/* ---- saves ---- */

void job_begin(struct job *j, uint64_t step) {
    static struct state s;
    make_state(&s, step);
    for (uint32_t r = 0; r < FLOW_WORLD; r++) j->saves[r] = save(&j->c, r, step, &s);
}

static bool is_read(struct cluster *c, void *user) {
    const struct job *j = user;
    (void)c;
    return j->saves[0]->captured && j->saves[1]->captured;
}

void job_capture(struct job *j) {
    assert_true(cluster_run(&j->c, is_read, j, PATIENCE_MS));
    for (uint32_t r = 0; r < FLOW_WORLD; r++) bwi_session_release(j->saves[r]);
}

static bool both_ended(struct cluster *c, void *user) {
    const struct job *j = user;
    (void)c;
    return j->saves[0]->state == BWI_SAVE_ENDED && j->saves[1]->state == BWI_SAVE_ENDED;
}

bool job_wait(struct job *j, uint64_t limit_ms) {
    return cluster_run(&j->c, both_ended, j, limit_ms);
}

void job_finish(struct job *j, struct bw_error ret[FLOW_WORLD]) {
    if (!job_wait(j, PATIENCE_MS)) { // DBG
        for (int r = 0; r < 2; r++) {
            struct bwi_save *v = j->saves[r];
            printf("DBG rank %d state %d level %d err %d %s held %s h %d live %zu over %d n %d now %lu next %lu\n", r,
                   v->state, v->level, v->error.status, v->error.message, v->held_up,
                   (int)j->c.ranks[r].session->head.entry.h, j->c.ranks[r].session->head.entry.live_count,
                   j->c.ranks[r].session->over, (int)j->c.ranks[r].session->head.entry.n, j->c.env.now,
                   bwi_loop_next_ns(j->c.ranks[r].loop));
        } // DBG
        fail();
    } // DBG
    for (uint32_t r = 0; r < FLOW_WORLD; r++) {
        ret[r] = j->saves[r]->error;
        if (ret[r].status == 0) assert_true(j->saves[r]->committed);
        bwi_session_release(j->saves[r]);
    }
}

void job_save(struct job *j, uint64_t step) {
    struct bw_error e[FLOW_WORLD];
    job_begin(j, step);
    job_finish(j, e);
    for (unsigned r = 0; r < FLOW_WORLD; r++) assert_ok(e[r].status, &e[r]);
}

/* ---- single tasks ---- */

void job_run(struct job *j, struct bwi_task *t) {
    assert_true(cluster_run(&j->c, call_ended, t, PATIENCE_MS));
}

int job_head(struct job *j, unsigned rank, struct bwi_head *ret, struct bw_error *err) {
    struct bwi_head_read read = {.ctx = &j->c.ranks[rank].ctx, .head = ret};
    *ret = (struct bwi_head){0};
    bwi_head_read_start(&read, j->c.ranks[rank].loop, NULL);
    job_run(j, &read.task);
    return bwi_error_copy(err, &read.task.error);
}

/* The live checkpoint of a step. */
static int find_kept(struct job *j, unsigned rank, uint64_t step, struct bwi_kept *ret, struct bw_error *err) {
    struct bwi_head head;
    int rc = job_head(j, rank, &head, err);
    if (rc < 0) return rc;
    const struct bwi_kept *k = bwi_policy_find_live(&head.entry, step);
    assert_non_null(k);
    *ret = *k;
    bwi_head_fini(&head);
    return 0;
}

int job_read(struct job *j, unsigned rank, uint64_t step, struct bw_error *err) {
    struct bwi_kept k;
    int rc = find_kept(j, rank, step, &k, err);
    const struct bwi_restore_target t = {
        .id = k.id, .committed = true, .manifest = k.manifest, .io_timeout_ns = 600 * BWI_NS_PER_S};
    return rc < 0 ? rc : read_state(&j->c, rank, &t, step, err);
}

int job_verify(struct job *j, unsigned rank, uint64_t step, struct bwi_findings *f, struct bw_error *err) {
    struct bwi_kept k;
    int rc = find_kept(j, rank, step, &k, err);
    if (rc < 0) return rc;
    struct bwi_verify v = {.ctx = &j->c.ranks[rank].ctx,
                           .id = k.id,
                           .committed = true,
                           .manifest = k.manifest,
                           .tiers = {true, true},
                           .findings = f};
    bwi_verify_start(&v, j->c.ranks[rank].loop, NULL);
    job_run(j, &v.task);
    bwi_verify_fini(&v);
    return bwi_error_copy(err, &v.task.error);
}

int job_mend(struct job *j, unsigned rank, uint64_t step, struct bwi_findings *f, struct bw_error *err) {
    struct bwi_kept k;
    int rc = find_kept(j, rank, step, &k, err);
    if (rc < 0) return rc;
    struct bwi_mend m = {.ctx = &j->c.ranks[rank].ctx, .id = k.id, .manifest = k.manifest, .findings = f};
    bwi_mend_start(&m, j->c.ranks[rank].loop, NULL);
    job_run(j, &m.task);
    bwi_mend_fini(&m);
    return bwi_error_copy(err, &m.task.error);
}

int job_sweep(struct job *j, unsigned rank, enum bwi_tier tier, struct bw_error *err) {
    struct bwi_sweep s = {.ctx = &j->c.ranks[rank].ctx, .tier = tier};
    bwi_sweep_start(&s, j->c.ranks[rank].loop, NULL);
    job_run(j, &s.task);
    return bwi_error_copy(err, &s.task.error);
}

static int retire(void *user, const struct bwi_actor *a, struct bwi_entry *ret, struct bw_error *err) {
    const struct bwi_kept *k = bwi_policy_find_live(a->head, *(const uint64_t *)user);
    return k == NULL ? 1 : bwi_policy_retire(a, &k->id, 1, ret, err);
}

int job_retire(struct job *j, unsigned rank, uint64_t step, struct bw_error *err) {
    struct bwi_decide d = {
        .ctx = &j->c.ranks[rank].ctx, .next = retire, .user = &step, .deadline_ns = j->c.env.now + 60 * BWI_NS_PER_S};
    bwi_decide_start(&d, j->c.ranks[rank].loop, NULL);
    job_run(j, &d.task);
    bwi_decide_fini(&d);
    return bwi_error_copy(err, &d.task.error);
}

/* ---- damage ---- */

struct pack {
    uint64_t step;
    unsigned count;
    char path[512]; /* of the last one */
};

static void look_for_pack(void *user, const char *path, uint64_t bytes) {
    struct pack *p = user;
    char step[32];
    (void)bytes;
    bwi_format(step, sizeof step, "/%020" PRIu64 ".", p->step);
    if (strstr(path, ".safetensors") == NULL || strstr(path, step) == NULL) return;
    bwi_format(p->path, sizeof p->path, "%s", path);
    p->count++;
}

unsigned job_packs_of(struct job *j, uint64_t step) {
    struct pack p = {.step = step};
    disk_each(j->remote, look_for_pack, &p);
    for (unsigned r = 0; r < FLOW_WORLD; r++) disk_each(j->local[r], look_for_pack, &p);
    return p.count;
}

void job_damage_pack(struct job *j, uint64_t step) {
    struct pack p = {.step = step};
    size_t n = 0;
    disk_each(j->local[0], look_for_pack, &p);
    const uint8_t *now = disk_peek(j->local[0], p.path, &n);
    assert_non_null(now);
    uint8_t *bytes = bwi_malloc(n);
    memcpy(bytes, now, n);
    bytes[n - n / 4] ^= 16;
    struct disk_process *somebody = disk_process_new(0);
    disk_attach(somebody, "local", j->local[0]);
    struct bwi_os *os = disk_os(somebody);
    const int root = os->open_root(os, "/local", false);
    assert_int_equal(os->unlink(os, root, p.path), 0);
    const int fd = os->open_new(os, root, p.path);
    assert_int_equal(os->pwrite(os, fd, bytes, n, 0), n);
    assert_int_equal(os->close(os, fd) + os->close(os, root), 0);
    disk_process_free(somebody);
    bwi_free(bytes);
}
