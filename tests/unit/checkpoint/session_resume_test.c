/* SPDX-License-Identifier: Apache-2.0 */
/* What a launch goes on from when something is damaged or cannot be read. Whole jobs, in memory and virtual time. */
#include "checkpoint/marked.h"
#include "cluster_job.h"

/* The first object of a bucket whose key contains all three parts: its key, and a copy of its bytes. */
static struct bwi_buf first_of(struct bwi_bucket *b, const char *one, const char *two, const char *three,
                               char ret_key[512]) {
    for (size_t i = 0; i < bwi_bucket_objects(b); i++) {
        struct bwi_span bytes;
        struct bwi_buf copy = {0};
        bwi_format(ret_key, 512, "%s", bwi_bucket_key(b, i));
        if (!strstr(ret_key, one) || !strstr(ret_key, two) || !strstr(ret_key, three)) continue;
        assert_true(bwi_bucket_get(b, ret_key, &bytes));
        bwi_buf_put(&copy, bytes.ptr, bytes.len);
        return copy;
    }
    fail_msg("no object \"%s\" \"%s\" \"%s\"", one, two, three);
    return (struct bwi_buf){0};
}

/* Flips a byte behind its middle. */
static void flip(struct bwi_bucket *b, const char *one, const char *two, const char *three) {
    char key[512];
    struct bwi_buf copy = first_of(b, one, two, three, key);
    copy.ptr[copy.len / 2 + 3000 < copy.len ? copy.len / 2 + 3000 : copy.len / 2] ^= 1;
    assert_true(bwi_bucket_put(b, key, bwi_buf_span(&copy)));
    bwi_buf_fini(&copy);
}

/* Damages it, once more if it has been mended meanwhile; `sound` is what the first call has found. */
static void keep_damaged(struct bwi_bucket *b, const char *one, const char *two, const char *three,
                         struct bwi_buf *sound) {
    char key[512];
    struct bwi_buf now = first_of(b, one, two, three, key);
    if (sound->len == 0) bwi_buf_put(sound, now.ptr, now.len);
    if (bwi_span_eq(bwi_buf_span(&now), bwi_buf_span(sound))) flip(b, one, two, three);
    bwi_buf_fini(&now);
}

static unsigned count(struct bwi_bucket *b, const char *one, const char *two) {
    unsigned n = 0;
    for (size_t i = 0; i < bwi_bucket_objects(b); i++)
        n += strstr(bwi_bucket_key(b, i), one) && strstr(bwi_bucket_key(b, i), two);
    return n;
}

/* Reads a tensor that all ranks have a share of: the status. */
static int read_sharded(struct cluster *c, unsigned slot) {
    static float got[ROWS][COLS];
    struct rank *r = &c->ranks[slot];
    const struct bwi_resume *m = &r->session->resume;
    struct bw_error err = BW_ERROR_INIT;
    struct bwi_restore *restore;
    struct bwi_restore_target t = {.id = m->id,
                                   .committed = m->committed,
                                   .manifest = m->manifest,
                                   .world = m->world,
                                   .groups = m->groups,
                                   .uuid = m->uuid,
                                   .may_repair = true,
                                   .io_timeout_ns = 600 * BWI_NS_PER_S};
    assert_ok(bwi_restore_new(&r->ctx, &t, &restore, &err), &err);
    struct bw_slice s = BW_SLICE_INIT;
    s.name = "sharded";
    s.dtype = BW_F32;
    s.dims = 2;
    s.data = got;
    struct bwi_restore_call call = {.r = restore, .what = BWI_RESTORE_READ, .slices = &s, .slice_count = 1};
    bwi_restore_call_start(&call, r->loop, NULL);
    assert_true(cluster_run(c, call_ended, &call.task, 600000));
    bwi_restore_free(restore);
    return call.task.error.status;
}

static void end_all(struct cluster *c, unsigned first, uint32_t world) {
    for (uint32_t r = 0; r < world; r++) cluster_end(c, first + r);
}

/* A job of `world` ranks that has committed steps 10, 20 ... and has ended. */
static void make_steps(struct cluster *c, uint32_t world, uint64_t last) {
    open_all(c, 0, &(struct launch){.launch = "made", .world = world});
    for (uint64_t step = 10; step <= last; step += 10) commit_all(c, 0, world, step);
    end_all(c, 0, world);
}

/* The id of the live checkpoint of a step, from the keys of its manifest. */
static struct bwi_id id_of_step(struct cluster *c, uint64_t step) {
    struct bwi_id id = {0};
    bool found = false;
    for (size_t i = 0; i < bwi_bucket_objects(c->remote) && !found; i++) {
        struct bwi_key_parts parts;
        found = bwi_key_parse(bwi_bucket_key(c->remote, i), &parts) && parts.kind == BWI_KEY_MANIFEST &&
                parts.id.step == step;
        if (found) id = parts.id;
    }
    assert_true(found);
    return id;
}

static void put_mark_of(struct cluster *c, struct bwi_id id, uint32_t group) {
    struct bwi_mark m = {.id = id, .group = group, .writer = 7, .status = BW_E_CORRUPT, .reason = "looks bad"};
    struct bwi_buf bytes = {0};
    assert_int_equal(bwi_mark_encode(&m, true, &bytes, NULL), 0);
    assert_true(bwi_bucket_put(c->remote, bwi_key_damaged("run", &id, group).s, bwi_buf_span(&bytes)));
    bwi_buf_fini(&bytes);
}

static void put_mark(struct cluster *c, uint64_t step, uint32_t group) {
    put_mark_of(c, id_of_step(c, step), group);
}

static void start_two(struct cluster *c, unsigned first, const unsigned nodes[2], const struct launch *l) {
    for (uint32_t r = 0; r < 2; r++) cluster_start(c, first + r, nodes[r], r, l);
    cluster_open(c, first, 2);
}

static void assert_open(struct cluster *c, unsigned slot) {
    assert_ok(c->ranks[slot].open->error.status, &c->ranks[slot].open->error);
}

/* --- damage in the authority --------------------------------------------------------------------------------- */

static const struct {
    const char *one, *two, *three;
} objects[] = {{"data/00/00000000000000000020.", "/000000/", ".safetensors"},
               {"data/00/00000000000000000020.", "/000000/", "/content"},
               {"data/00/00000000000000000020.", "/000000/", "/placement-"},
               {"/checkpoints/00000000000000000020.", "/groups/", "000000"},
               {"/layouts/", "", ""}};

/* One rank finds the damage; the next launch mends it before anybody reads. */
static void what_one_node_still_holds_is_mended_in_the_authority(void **unused) {
    (void)unused;
    for (size_t i = 0; i < sizeof objects / sizeof *objects; i++) {
        struct cluster c;
        cluster_init(&c, 7 + i);
        make_steps(&c, 2, 20);
        flip(c.remote, objects[i].one, objects[i].two, objects[i].three);
        open_all(&c, 10, &(struct launch){.launch = "b", .world = 2});
        const int first = read_sharded(&c, 10);
        assert_true(first < 0 || read_sharded(&c, 11) < 0);
        assert_int_equal(count(c.remote, "/damaged/", ""), 1);
        end_all(&c, 10, 2);
        open_all(&c, 12, &(struct launch){.launch = "c", .world = 2});
        assert_int_equal(count(c.remote, "/damaged/", ""), 0);
        assert_true(c.ranks[12].notes + c.ranks[13].notes > 0);
        check_resumed(&c, 12, 20);
        check_resumed(&c, 13, 20);
        end_all(&c, 12, 2);
        /* Whoever comes later, and holds nothing, finds it sound. */
        start_two(&c, 14, (const unsigned[]){5, 6}, &(struct launch){.launch = "d", .world = 2});
        check_resumed(&c, 14, 20);
        cluster_fini(&c);
    }
}

/* Damaged packs show only once the metadata has been put right. */
static void metadata_and_packs_are_mended_in_one_launch(void **unused) {
    (void)unused;
    struct cluster c;
    cluster_init(&c, 19);
    make_steps(&c, 2, 20);
    flip(c.remote, "data/00/00000000000000000020.", "/000001/", ".safetensors");
    flip(c.remote, "data/00/00000000000000000020.", "/000001/", "/content");
    put_mark(&c, 20, 1);
    open_all(&c, 10, &(struct launch){.launch = "b", .world = 2});
    assert_int_equal(count(c.remote, "/damaged/", ""), 0);
    check_resumed(&c, 10, 20);
    check_resumed(&c, 11, 20);
    cluster_fini(&c);
}

/* All ranks of a node see all of its disk, so they mend the same groups side by side. */
static void ranks_that_share_a_disk_mend_side_by_side(void **unused) {
    (void)unused;
    for (uint64_t seed = 50; seed < 70; seed++) {
        struct cluster c;
        cluster_init(&c, seed);
        c.shuffle = true;
        start_two(&c, 0, (const unsigned[]){0, 0}, &(struct launch){.launch = "a", .world = 2});
        commit_all(&c, 0, 2, 20);
        end_all(&c, 0, 2);
        bwi_bucket_model(c.remote)->jitter_ns = 50 * BWI_NS_PER_MS;
        flip(c.remote, "data/00/00000000000000000020.", "/000000/", ".safetensors");
        flip(c.remote, "data/00/00000000000000000020.", "/000001/", ".safetensors");
        flip(c.remote, "/checkpoints/00000000000000000020.", "/groups/", "000001");
        for (uint32_t g = 0; g < 2; g++) put_mark(&c, 20, g);
        start_two(&c, 10, (const unsigned[]){0, 0}, &(struct launch){.launch = "b", .world = 2});
        end_all(&c, 10, 2);
        start_two(&c, 12, (const unsigned[]){5, 6}, &(struct launch){.launch = "c", .world = 2});
        assert_int_equal(count(c.remote, "/damaged/", ""), 0);
        check_resumed(&c, 12, 20);
        cluster_fini(&c);
    }
}

/* The copy that could mend it is held, but the authority takes nothing: then the launch goes back, as if it were lost.
 */
static void what_cannot_be_mended_sends_the_launch_back(void **unused) {
    (void)unused;
    struct cluster c;
    cluster_init(&c, 20);
    make_steps(&c, 2, 20);
    flip(c.remote, "data/00/00000000000000000020.", "/000000/", ".safetensors");
    put_mark(&c, 20, 0);
    bwi_bucket_fail_next(c.remote, BWI_STORE_BEGIN, ".safetensors", BW_E_NOSPACE, false);
    open_all(&c, 10, &(struct launch){.launch = "b", .world = 2});
    assert_non_null(strstr(c.ranks[10].session->resume.reason, "could not be mended"));
    check_resumed(&c, 10, 10);
    check_resumed(&c, 11, 10);
    cluster_fini(&c);
}

/* A copy that is damaged too is no copy, and nothing of it gets into the authority. */
static void what_is_damaged_everywhere_sends_the_launch_back(void **unused) {
    (void)unused;
    struct cluster c;
    cluster_init(&c, 24);
    make_steps(&c, 2, 20);
    flip(c.remote, "data/00/00000000000000000020.", "/000000/", ".safetensors");
    flip(c.local[0], "data/00/00000000000000000020.", "/000000/", ".safetensors");
    put_mark(&c, 20, 0);
    open_all(&c, 10, &(struct launch){.launch = "b", .world = 2});
    assert_non_null(strstr(c.ranks[11].session->resume.reason, "no node holds it"));
    assert_int_equal(count(c.remote, "/damaged/", "000000"), 1);
    check_resumed(&c, 10, 10);
    check_resumed(&c, 11, 10);
    cluster_fini(&c);
}

static void with_on_damage_fail_what_cannot_be_mended_fails_the_launch(void **unused) {
    (void)unused;
    struct cluster c;
    cluster_init(&c, 21);
    make_steps(&c, 2, 20);
    flip(c.remote, "data/00/00000000000000000020.", "/000000/", ".safetensors");
    put_mark(&c, 20, 0);
    bwi_bucket_fail_next(c.remote, BWI_STORE_BEGIN, ".safetensors", BW_E_NOSPACE, false);
    struct launch l = {.launch = "b", .world = 2};
    for (uint32_t r = 0; r < 2; r++) {
        cluster_start(&c, 10 + r, r, r, &l);
        c.ranks[10 + r].session->cfg.damage_fail = true;
    }
    cluster_open(&c, 10, 2);
    for (uint32_t r = 0; r < 2; r++)
        assert_fails(c.ranks[10 + r].open->error.status, BW_E_CORRUPT, &c.ranks[10 + r].open->error, "mended");
    end_all(&c, 10, 2);
    l.launch = "c"; /* the authority has room again */
    open_all(&c, 12, &l);
    check_resumed(&c, 13, 20);
    cluster_fini(&c);
}

static void a_rollback_is_mended_like_the_newest(void **unused) {
    (void)unused;
    struct cluster c;
    cluster_init(&c, 22);
    make_steps(&c, 2, 30);
    flip(c.remote, "data/00/00000000000000000020.", "/000001/", ".safetensors");
    put_mark(&c, 20, 1);
    open_all(
        &c, 10,
        &(struct launch){.launch = "b", .world = 2, .mode = BWI_REGISTER_ROLLBACK, .label = "back", .resume_step = 20});
    check_resumed(&c, 10, 20);
    check_resumed(&c, 11, 20);
    cluster_fini(&c);
}

/* The newest is lost; of the one before a node holds what the authority has damaged. Two launches, not more. */
static void an_older_one_that_a_node_holds_is_mended_at_the_launch_after(void **unused) {
    (void)unused;
    struct cluster c;
    cluster_init(&c, 23);
    make_steps(&c, 2, 30);
    flip(c.remote, "data/00/00000000000000000030.", "/000000/", ".safetensors");
    flip(c.local[0], "data/00/00000000000000000030.", "/000000/", ".safetensors");
    flip(c.remote, "data/00/00000000000000000020.", "/000000/", ".safetensors");
    put_mark(&c, 30, 0);
    put_mark(&c, 20, 0);
    open_all(&c, 10, &(struct launch){.launch = "b", .world = 2});
    assert_int_equal(c.ranks[11].session->resume.id.step, 20);
    assert_true(read_sharded(&c, 11) < 0);
    end_all(&c, 10, 2);
    open_all(&c, 12, &(struct launch){.launch = "c", .world = 2});
    check_resumed(&c, 12, 20);
    check_resumed(&c, 13, 20);
    cluster_fini(&c);
}

static void a_takeover_goes_back_where_the_newest_is_damaged(void **unused) {
    (void)unused;
    struct cluster c;
    cluster_init(&c, 6);
    open_all(&c, 0, &(struct launch){.job = "one", .launch = "a", .world = 1});
    commit_all(&c, 0, 1, 10);
    cluster_end(&c, 0);
    open_all(&c, 1, &(struct launch){.job = "two", .launch = "b", .world = 1});
    commit_all(&c, 1, 1, 20);
    cluster_end(&c, 1);
    flip(c.remote, "/00000000000000000020.", "/manifest.", "");
    struct launch take = {.job = "one", .launch = "c", .world = 1, .mode = BWI_REGISTER_TAKEOVER, .label = "take"};
    open_all(&c, 2, &take);
    check_resumed(&c, 2, 10);
    commit_all(&c, 2, 1, 30);
    cluster_end(&c, 2);
    take.launch = "d"; /* the label is used, but the job is current */
    open_all(&c, 3, &take);
    cluster_end(&c, 3);
    cluster_start(&c, 4, 0, 0, &(struct launch){.job = "two", .launch = "e", .world = 1});
    cluster_open(&c, 4, 1);
    assert_fails(c.ranks[4].open->error.status, BW_E_SUPERSEDED, &c.ranks[4].open->error, "two");
    cluster_fini(&c);
}

/* --- damage of what is not committed -------------------------------------------------------------------------- */

/* A job that has committed step 10 and died when step 20 had this level on both ranks. */
static struct bwi_id leave_at(struct cluster *c, enum bw_level level) {
    struct bwi_save *v[2];
    make_steps(c, 2, 10);
    open_all(c, 2, &(struct launch){.launch = "late", .world = 2});
    bwi_bucket_model(c->remote)->latency_ns = BWI_NS_PER_S;
    save_all(c, 2, 2, 20, v);
    for (unsigned r = 0; r < 2; r++) wait_level(c, v[r], level);
    const struct bwi_id id = v[0]->id;
    for (unsigned r = 0; r < 2; r++) assert_true(v[r]->level < BW_COMMITTED);
    for (unsigned r = 0; r < 2; r++) cluster_kill(c, 2 + r);
    bwi_bucket_model(c->remote)->latency_ns = 0;
    return id;
}

/* A launch that found the damage and died of it has left a mark. The next one looks before it goes on from there. */
static void what_is_not_committed_is_looked_at_where_it_is_marked(void **unused) {
    static const struct {
        enum bw_level level;
        bool local, remote, elsewhere; /* what is damaged; and whether the launch runs on other nodes */
        uint64_t step;                 /* that it goes on from */
    } cases[] = {{BW_LOCAL, false, false, false, 20}, {BW_LOCAL, true, false, false, 10},
                 {BW_REMOTE, true, false, false, 20}, {BW_REMOTE, true, true, false, 10},
                 {BW_REMOTE, false, false, true, 20}, {BW_REMOTE, false, true, true, 10}};
    (void)unused;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct cluster c;
        cluster_init(&c, 40 + i);
        put_mark_of(&c, leave_at(&c, cases[i].level), 1);
        if (cases[i].local) flip(c.local[1], "data/00/00000000000000000020.", "/000001/", ".safetensors");
        if (cases[i].remote) flip(c.remote, "data/00/00000000000000000020.", "/000001/", ".safetensors");
        start_two(&c, 10, (const unsigned[]){cases[i].elsewhere ? 5 : 0, cases[i].elsewhere ? 6 : 1},
                  &(struct launch){.launch = "next", .world = 2});
        for (unsigned r = 10; r < 12; r++) {
            assert_open(&c, r);
            assert_int_equal(c.ranks[r].session->resume.id.step, cases[i].step);
            check_resumed(&c, r, cases[i].step);
        }
        cluster_fini(&c);
    }
}

/* Both ranks say that they hold all of it. */
static struct bwi_save *save_what_does_not_fit(struct cluster *c, unsigned slot, uint64_t step, const struct state *s) {
    struct bw_error err = BW_ERROR_INIT;
    struct bwi_save *v;
    uint64_t shape[2] = {ROWS, COLS};
    struct bw_tensor t = BW_TENSOR_INIT;
    assert_ok(bwi_session_begin(c->ranks[slot].session, step, &v, &err), &err);
    t.name = "sharded", t.dtype = BW_F32, t.dims = 2, t.shape = shape, t.data = s->sharded;
    assert_ok(bwi_description_tensor(&v->description, &t, &err), &err);
    assert_ok(bwi_session_start(v, &err), &err);
    return v;
}

/* Ranks of one node; a trainer that dies at once when it cannot read what it is to go on from says nothing itself. */
static void what_does_not_fit_together_is_gone_on_from_once_at_most(void **unused) {
    (void)unused;
    struct cluster c;
    struct bwi_save *v[2];
    static struct state s;
    const unsigned one_node[2] = {0, 0};
    cluster_init(&c, 48);
    make_steps(&c, 2, 10);
    start_two(&c, 2, one_node, &(struct launch){.launch = "late", .world = 2});
    bwi_bucket_model(c.remote)->latency_ns = BWI_NS_PER_S;
    make_state(&s, 20);
    for (unsigned r = 0; r < 2; r++) v[r] = save_what_does_not_fit(&c, 2 + r, 20, &s);
    for (unsigned r = 0; r < 2; r++) wait_level(&c, v[r], BW_LOCAL);
    for (unsigned r = 0; r < 2; r++) cluster_kill(&c, 2 + r);
    start_two(&c, 10, one_node, &(struct launch){.launch = "next", .world = 2});
    assert_open(&c, 10);
    assert_int_equal(c.ranks[10].session->resume.id.step, 20);
    const unsigned entries = count(c.remote, "history/", ".json");
    assert_int_equal(read_sharded(&c, 10), BW_E_COVERAGE);
    assert_int_equal(count(c.remote, "history/", ".json"), entries); /* nobody has come as far as to enter the abort */
    for (unsigned r = 10; r < 12; r++) cluster_kill(&c, r);
    bwi_bucket_model(c.remote)->latency_ns = 0;
    start_two(&c, 12, one_node, &(struct launch){.launch = "then", .world = 2});
    for (unsigned r = 12; r < 14; r++) {
        assert_open(&c, r);
        check_resumed(&c, r, 10);
    }
    cluster_fini(&c);
}

/* --- marks --------------------------------------------------------------------------------------------------- */

static void a_mark_that_proves_wrong_is_removed(void **unused) {
    (void)unused;
    struct cluster c;
    cluster_init(&c, 30);
    make_steps(&c, 2, 20);
    put_mark(&c, 20, 0);
    open_all(&c, 10, &(struct launch){.launch = "b", .world = 2}); /* by the node that holds it */
    assert_int_equal(count(c.remote, "/damaged/", ""), 0);
    check_resumed(&c, 11, 20);
    end_all(&c, 10, 2);
    put_mark(&c, 20, 1);
    start_two(&c, 12, (const unsigned[]){5, 6}, &(struct launch){.launch = "c", .world = 2}); /* by rank 0 */
    assert_int_equal(count(c.remote, "/damaged/", ""), 0);
    check_resumed(&c, 13, 20);
    cluster_fini(&c);
}

/* An error is neither damage nor soundness. */
static void a_mark_stays_where_the_group_could_not_be_read(void **unused) {
    (void)unused;
    struct cluster c;
    cluster_init(&c, 31);
    make_steps(&c, 2, 20);
    put_mark(&c, 20, 1);
    bwi_bucket_fail_next(c.remote, BWI_STORE_READ, ".safetensors", BW_E_IO, false);
    start_two(&c, 10, (const unsigned[]){5, 6}, &(struct launch){.launch = "b", .world = 2});
    assert_open(&c, 10);
    assert_int_equal(count(c.remote, "/damaged/", "000001"), 1);
    check_resumed(&c, 10, 20);
    cluster_fini(&c);
}

static void looking_at_marks_survives_running_out_of_memory(void **unused) {
    (void)unused;
    struct cluster c;
    struct bwi_buf pack = {0}, content = {0};
    cluster_init(&c, 35);
    make_steps(&c, 2, 20);
    open_all(&c, 10, &(struct launch){.launch = "b", .world = 2});
    for (unsigned r = 10; r < 12; r++) { /* what they allocate would be counted, too */
        bwi_follow_stop(c.ranks[r].session);
        bwi_lookout_stop(c.ranks[r].session);
        bwi_committer_stop(c.ranks[r].session);
    }
    bool whole = false;
    for (uint64_t n = 1; !whole; n++) {
        struct bwi_marked_group groups[2] = {{.group = 0}, {.group = 1}};
        struct bwi_marked m = {.ctx = &c.ranks[10].ctx,
                               .id = id_of_step(&c, 20),
                               .manifest = c.ranks[10].session->resume.manifest,
                               .groups = groups,
                               .count = 2,
                               .held = true,
                               .deadline_ns = BWI_NEVER};
        assert_true(n < 3000);
        keep_damaged(c.remote, "data/00/00000000000000000020.", "/000000/", ".safetensors", &pack);
        keep_damaged(c.remote, "data/00/00000000000000000020.", "/000000/", "/content", &content);
        for (uint32_t g = 0; g < 2; g++) put_mark(&c, 20, g);
        (void)bwi_alloc_fail_at(n);
        bwi_marked_start(&m, c.ranks[10].loop, NULL);
        bool ended = cluster_run(&c, call_ended, &m.task, 600000);
        whole = bwi_alloc_fail_at(0) < n;
        assert_true(ended);
        if (m.task.error.status < 0) assert_fails(m.task.error.status, BW_E_NOMEM, &m.task.error, NULL);
    }
    assert_int_equal(count(c.remote, "/damaged/", ""), 0);
    check_resumed(&c, 11, 20);
    bwi_buf_fini(&pack);
    bwi_buf_fini(&content);
    cluster_fini(&c);
}

#define MANY 8u

/* A checkpoint of many groups, all marked, in an authority so slow that only some of them can be looked at in time. */
static void make_slow(struct cluster *c, uint64_t seed) {
    cluster_init(c, seed);
    make_steps(c, MANY, 10);
    for (uint32_t g = 0; g < MANY; g++) put_mark(c, 10, g);
    bwi_bucket_model(c->remote)->bytes_per_s = 1000;
}

static void looks_at_marks_that_end_at_the_deadline_spare_the_next_launch_that_much(void **unused) {
    (void)unused;
    struct cluster c;
    unsigned slot = 10, left = MANY, launches = 0;
    make_slow(&c, 32);
    for (bool open = false; !open; slot++, launches++) {
        char launch[8];
        assert_true(launches < 4);
        bwi_format(launch, sizeof launch, "l%u", launches);
        uint64_t start = c.env.now;
        cluster_start(&c, slot, 9, 0, &(struct launch){.launch = launch, .world = 1, .deadline_ms = 60000});
        cluster_open(&c, slot, 1);
        open = c.ranks[slot].open->error.status == 0;
        if (open) break;
        assert_fails(c.ranks[slot].open->error.status, BW_E_TIMEOUT, &c.ranks[slot].open->error, "marked as damaged");
        assert_true(c.env.now - start < 90000 * BWI_NS_PER_MS);
        assert_true(count(c.remote, "/damaged/", "") < left);
        left = count(c.remote, "/damaged/", "");
        cluster_end(&c, slot);
    }
    assert_true(launches > 0);
    assert_int_equal(count(c.remote, "/damaged/", ""), 0);
    cluster_fini(&c);
}

static bool looks_at_marks(struct cluster *c, void *user) {
    return c->env.now >= *(uint64_t *)user;
}

static void cancel_reaches_a_look_at_marks(void **unused) {
    (void)unused;
    struct cluster c;
    make_slow(&c, 33);
    cluster_start(&c, 10, 9, 0, &(struct launch){.launch = "b", .world = 1, .deadline_ms = 3600000});
    uint64_t at = c.env.now + 45000 * BWI_NS_PER_MS;
    assert_true(cluster_run(&c, looks_at_marks, &at, 60000));
    assert_true(c.ranks[10].open->running);
    bwi_task_cancel(c.ranks[10].open);
    cluster_open(&c, 10, 1);
    assert_fails(c.ranks[10].open->error.status, BW_E_CANCELLED, &c.ranks[10].open->error, "marked as damaged");
    assert_true(c.env.now - at < 30000 * BWI_NS_PER_MS);
    assert_int_equal(count(c.remote, "/damaged/", ""), MANY);
    cluster_fini(&c);
}

/* The same on a node that holds them, whose own look comes before. */
static void cancel_reaches_a_holder_that_looks_at_marks(void **unused) {
    (void)unused;
    struct cluster c;
    make_slow(&c, 34);
    cluster_start(&c, 10, 0, 0, &(struct launch){.launch = "b", .world = 1, .deadline_ms = 3600000});
    uint64_t at = c.env.now + 12000 * BWI_NS_PER_MS;
    assert_true(cluster_run(&c, looks_at_marks, &at, 60000));
    assert_true(c.ranks[10].open->running);
    assert_int_equal(count(c.remote, "launches/b", ""), 0);
    bwi_task_cancel(c.ranks[10].open);
    cluster_open(&c, 10, 1);
    assert_fails(c.ranks[10].open->error.status, BW_E_CANCELLED, &c.ranks[10].open->error, "marked as damaged");
    cluster_fini(&c);
}

/* --- joining, and what cannot be read here -------------------------------------------------------------------- */

/* Rank 0's create makes its own entry durable; whoever only reads it makes sure for itself. */
static void a_rank_that_reads_the_registration_makes_it_durable_first(void **unused) {
    (void)unused;
    struct cluster c;
    cluster_init(&c, 40);
    bwi_bucket_fail_next(c.remote, BWI_STORE_SYNC, "history/", BW_E_IO, false);
    start_two(&c, 0, (const unsigned[]){0, 1}, &(struct launch){.launch = "a", .world = 2});
    assert_open(&c, 0);
    assert_fails(c.ranks[1].open->error.status, BW_E_IO, &c.ranks[1].open->error, NULL);
    cluster_fini(&c);
}

static void an_old_copy_that_cannot_be_read_holds_no_launch_up(void **unused) {
    (void)unused;
    static const struct {
        enum bwi_store_verb verb;
        const char *part;
    } failing[] = {{BWI_STORE_GET, "00000000000000000010."}, {BWI_STORE_LIST, "00000000000000000010."}};
    for (size_t i = 0; i < sizeof failing / sizeof *failing; i++) {
        struct cluster c;
        cluster_init(&c, 41 + i);
        make_steps(&c, 2, 20);
        bwi_bucket_fail_next(c.local[1], failing[i].verb, failing[i].part, BW_E_IO, false);
        open_all(&c, 10, &(struct launch){.launch = "b", .world = 2});
        assert_int_equal(c.ranks[11].notes, 1);
        check_resumed(&c, 11, 20);
        cluster_fini(&c);
    }
}

/* Passing it over would give up what may still be committed, for an error that may pass. */
static void a_copy_that_may_still_be_committed_is_not_passed_over(void **unused) {
    (void)unused;
    struct cluster c;
    struct bwi_save *v[2];
    cluster_init(&c, 43);
    open_all(&c, 0, &(struct launch){.launch = "a", .world = 2});
    commit_all(&c, 0, 2, 10);
    bwi_bucket_fail_next(c.remote, BWI_STORE_BEGIN, "/000001/", BW_E_IO, false);
    bwi_bucket_model(c.remote)->latency_ns = 3600 * BWI_NS_PER_S;
    save_all(&c, 0, 2, 20, v);
    for (int r = 0; r < 2; r++) wait_level(&c, v[r], BW_LOCAL);
    cluster_kill(&c, 0);
    cluster_kill(&c, 1);
    bwi_bucket_model(c.remote)->latency_ns = 0;
    bwi_bucket_fail_next(c.local[1], BWI_STORE_GET, "00000000000000000020.", BW_E_IO, false);
    struct launch l = {.launch = "b", .world = 2, .deadline_ms = 5000};
    start_two(&c, 10, (const unsigned[]){0, 1}, &l);
    assert_fails(c.ranks[11].open->error.status, BW_E_IO, &c.ranks[11].open->error, "step 20");
    end_all(&c, 10, 2);
    l.launch = "c";
    open_all(&c, 12, &l);
    check_resumed(&c, 13, 20);
    for (int r = 0; r < 2; r++) bwi_session_release(v[r]);
    cluster_fini(&c);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_one_node_still_holds_is_mended_in_the_authority),
        cmocka_unit_test(metadata_and_packs_are_mended_in_one_launch),
        cmocka_unit_test(ranks_that_share_a_disk_mend_side_by_side),
        cmocka_unit_test(what_cannot_be_mended_sends_the_launch_back),
        cmocka_unit_test(what_is_damaged_everywhere_sends_the_launch_back),
        cmocka_unit_test(with_on_damage_fail_what_cannot_be_mended_fails_the_launch),
        cmocka_unit_test(a_rollback_is_mended_like_the_newest),
        cmocka_unit_test(an_older_one_that_a_node_holds_is_mended_at_the_launch_after),
        cmocka_unit_test(a_takeover_goes_back_where_the_newest_is_damaged),
        cmocka_unit_test(what_is_not_committed_is_looked_at_where_it_is_marked),
        cmocka_unit_test(what_does_not_fit_together_is_gone_on_from_once_at_most),
        cmocka_unit_test(a_mark_that_proves_wrong_is_removed),
        cmocka_unit_test(a_mark_stays_where_the_group_could_not_be_read),
        cmocka_unit_test(looking_at_marks_survives_running_out_of_memory),
        cmocka_unit_test(looks_at_marks_that_end_at_the_deadline_spare_the_next_launch_that_much),
        cmocka_unit_test(cancel_reaches_a_look_at_marks),
        cmocka_unit_test(cancel_reaches_a_holder_that_looks_at_marks),
        cmocka_unit_test(a_rank_that_reads_the_registration_makes_it_durable_first),
        cmocka_unit_test(an_old_copy_that_cannot_be_read_holds_no_launch_up),
        cmocka_unit_test(a_copy_that_may_still_be_committed_is_not_passed_over),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
