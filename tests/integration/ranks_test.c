/* SPDX-License-Identifier: Apache-2.0 */
/* Several ranks, each a process of its own, that share nothing but the remote tier: saving in one world and restoring
 * in others, failing together, dying and coming back. */
#include "job.h"
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* What all ranks of a case know. */
struct fleet {
    struct place p;
    struct board *board;
    uint32_t world;
    bool one_local; /* all ranks are on one node */
    char launch[32];
};

static void fleet_make(struct fleet *f, uint32_t world, const char *launch) {
    place_make(&f->p);
    f->board = board_new();
    f->world = world;
    f->one_local = false;
    (void)snprintf(f->launch, sizeof f->launch, "%s", launch);
}

static void fleet_drop(struct fleet *f) {
    board_free(f->board);
    place_drop(&f->p);
}

static struct bw_checkpointer *join_fleet(struct fleet *f, uint32_t rank) {
    struct bw_options o = options_of(&f->p, f->launch, rank, f->world);
    const char *own = path_in(f->p.root, "local-%u", rank);
    if (!f->one_local) o.local_url = own;
    return open_with(&o);
}

/* --- cutting tensors into boxes ---- */

enum cut { CUT_ROWS, CUT_COLUMNS, CUT_GRID };

/* The rank's part of n things, as even as it goes; with more ranks than things some get nothing. */
static void part_of(uint64_t n, uint32_t i, uint32_t of, uint64_t *ret_offset, uint64_t *ret_extent) {
    *ret_offset = n * i / of;
    *ret_extent = n * (i + 1) / of - *ret_offset;
}

/* Rows times columns of a grid of `world` ranks, as square as it goes. */
static uint32_t grid_rows(uint32_t world) {
    uint32_t rows = 1;
    for (uint32_t r = 2; r * r <= world; r++)
        if (world % r == 0) rows = r;
    return rows;
}

static void box_of(enum cut cut, const uint64_t *shape, uint32_t rank, uint32_t world, uint64_t *offset,
                   uint64_t *extent) {
    const uint32_t rows = cut == CUT_GRID ? grid_rows(world) : cut == CUT_ROWS ? world : 1;
    const uint32_t columns = world / rows;
    part_of(shape[0], rank / columns, rows, &offset[0], &extent[0]);
    part_of(shape[1], rank % columns, columns, &offset[1], &extent[1]);
}

struct cut_tensor {
    const char *name;
    enum cut save, load;
    uint64_t shape[2];
};

static const struct cut_tensor tensors[] = {
    {"rows to rows", CUT_ROWS, CUT_ROWS, {101, 7}},
    {"rows to columns", CUT_ROWS, CUT_COLUMNS, {53, 59}},
    {"columns to rows", CUT_COLUMNS, CUT_ROWS, {64, 97}},
    {"grid to columns", CUT_GRID, CUT_COLUMNS, {37, 41}},
    {"rows to grid", CUT_ROWS, CUT_GRID, {1000, 301}},
    {"grid to grid", CUT_GRID, CUT_GRID, {127, 8}},
    {"few rows", CUT_ROWS, CUT_GRID, {3, 5}},
    {"one", CUT_GRID, CUT_ROWS, {1, 1}},
    {"nothing", CUT_ROWS, CUT_COLUMNS, {0, 9}},
    {"columns to grid", CUT_COLUMNS, CUT_GRID, {2, 1023}},
};
#define TENSORS (sizeof tensors / sizeof *tensors)

static uint64_t volume(const uint64_t *extent) {
    return extent[0] * extent[1];
}

/* The box's elements are named by their place in the whole tensor. */
static uint32_t *box_values(uint64_t seed, const uint64_t *shape, const uint64_t *offset, const uint64_t *extent) {
    uint32_t *m = malloc(volume(extent) * 4 + 4);
    must(m != NULL);
    for (uint64_t i = 0; i < extent[0]; i++)
        for (uint64_t k = 0; k < extent[1]; k++)
            m[i * extent[1] + k] = element_value(seed, (offset[0] + i) * shape[1] + offset[1] + k);
    return m;
}

static void save_cut(struct bw_checkpointer *ck, uint32_t rank, uint32_t world) {
    struct bw_error err = BW_ERROR_INIT;
    uint32_t *m[TENSORS];
    char blob[32];
    struct bw_save *v = begin(ck, 5);
    for (size_t i = 0; i < TENSORS; i++) {
        uint64_t offset[2], extent[2];
        box_of(tensors[i].save, tensors[i].shape, rank, world, offset, extent);
        m[i] = box_values(i, tensors[i].shape, offset, extent);
        add_box(v, tensors[i].name, BW_F32, m[i], 2, tensors[i].shape, offset, extent);
    }
    (void)snprintf(blob, sizeof blob, "state of rank %u", rank);
    must_ok(bw_save_blob(v, "rng", blob, strlen(blob), &err), &err);
    commit(v);
    for (size_t i = 0; i < TENSORS; i++) free(m[i]);
}

static void load_cut(struct bw_restore *r, uint32_t rank, uint32_t world) {
    struct bw_error err = BW_ERROR_INIT;
    struct bw_slice s[TENSORS];
    uint32_t *want[TENSORS], *got[TENSORS];
    uint64_t offset[TENSORS][2], extent[TENSORS][2];
    for (size_t i = 0; i < TENSORS; i++) {
        box_of(tensors[i].load, tensors[i].shape, rank, world, offset[i], extent[i]);
        want[i] = box_values(i, tensors[i].shape, offset[i], extent[i]);
        got[i] = calloc(volume(extent[i]) + 1, 4);
        must(got[i] != NULL);
        s[i] = (struct bw_slice)BW_SLICE_INIT;
        s[i].dtype = BW_F32;
        s[i].name = tensors[i].name;
        s[i].data = got[i];
        s[i].dims = 2;
        s[i].shape = tensors[i].shape;
        s[i].offset = offset[i];
        s[i].extent = extent[i];
    }
    must_ok(bw_restore_read(r, s, TENSORS, &err), &err);
    for (size_t i = 0; i < TENSORS; i++) {
        must_at(memcmp(want[i], got[i], volume(extent[i]) * 4) == 0, tensors[i].name, "a box comes back", __FILE__,
                __LINE__);
        free(want[i]);
        free(got[i]);
    }
}

static void check_blobs(struct bw_restore *r, uint32_t saved_world) {
    struct bw_error err = BW_ERROR_INIT;
    for (uint32_t rank = 0; rank < saved_world; rank++) {
        char want[32], got[32];
        size_t bytes = 0;
        (void)snprintf(want, sizeof want, "state of rank %u", rank);
        must_ok(bw_restore_blob(r, rank, "rng", got, sizeof got, &bytes, &err), &err);
        must(bytes == strlen(want) && memcmp(want, got, bytes) == 0);
    }
}

static int save_rank(void *arg, unsigned rank) {
    struct fleet *f = arg;
    struct bw_checkpointer *ck = join_fleet(f, rank);
    must_eq(resumed_of(ck).from_checkpoint, 0);
    save_cut(ck, rank, f->world);
    close_ok(ck);
    return 0;
}

static int load_rank(void *arg, unsigned rank) {
    struct fleet *f = arg;
    struct bw_error err = BW_ERROR_INIT;
    struct bw_restore *r = NULL;
    struct bw_checkpoint_info info;
    struct bw_checkpointer *ck = join_fleet(f, rank);
    must(resumed_of(ck).from_checkpoint == 1 && resumed_of(ck).step == 5);
    must_ok(bw_restore_open(ck, &r, &err), &err);
    must_ok(bw_restore_info(r, &info, &err), &err);
    must_eq(info.tensors, TENSORS);
    must_eq(info.committed, 1);
    load_cut(r, rank, f->world);
    check_blobs(r, info.world);
    bw_restore_close(r);
    close_ok(ck);
    return 0;
}

static void reshard_from(uint32_t saved_world) {
    static const uint32_t worlds[] = {1, 2, 5, 16};
    struct fleet f;
    fleet_make(&f, saved_world, "save");
    run_ranks(save_rank, &f, saved_world);
    for (size_t i = 0; i < FULL_OR(4, 3); i++) {
        f.world = worlds[i];
        (void)snprintf(f.launch, sizeof f.launch, "load-%u", f.world);
        run_ranks(load_rank, &f, f.world);
    }
    /* And by readers, which take part in no launch. */
    for (size_t i = 0; i < 4; i++) {
        struct bw_restore *r = reader_of(&f.p, 5);
        for (uint32_t rank = 0; rank < worlds[i]; rank++) load_cut(r, rank, worlds[i]);
        bw_restore_close(r);
    }
    fleet_drop(&f);
}

static void saved_by_one_it_is_restored_in_any_world(void **state) {
    (void)state;
    reshard_from(1);
}

static void saved_by_two_it_is_restored_in_any_world(void **state) {
    (void)state;
    reshard_from(2);
}

static void saved_by_three_it_is_restored_in_any_world(void **state) {
    (void)state;
    reshard_from(3);
}

static void saved_by_eight_it_is_restored_in_any_world(void **state) {
    (void)state;
    if (!SANITIZED) reshard_from(8);
}

/* --- replicas ---- */

enum { REPLICATED = 23 };

static uint64_t replicated_bytes(size_t i) {
    return 1000 * (i + 1) * (i % 5 + 1);
}

static int replica_rank(void *arg, unsigned rank) {
    struct fleet *f = arg;
    struct bw_error err = BW_ERROR_INIT;
    struct bw_save_stats stats;
    void *m[REPLICATED];
    struct bw_checkpointer *ck = join_fleet(f, rank);
    struct bw_save *v = begin(ck, 1);
    for (size_t i = 0; i < REPLICATED; i++) {
        struct bw_tensor t = BW_TENSOR_INIT;
        const uint64_t n = replicated_bytes(i);
        char name[32];
        (void)snprintf(name, sizeof name, "weight %zu", i);
        m[i] = malloc(n);
        must(m[i] != NULL);
        fill(m[i], n, i);
        t.dtype = BW_U8;
        t.name = name;
        t.data = m[i];
        t.dims = 1;
        t.shape = &n;
        t.replica_count = f->world;
        t.replica_index = rank;
        must_ok(bw_save_tensor(v, &t, &err), &err);
    }
    start(v);
    wait_for(v, BW_COMMITTED);
    bw_save_stats(v, &stats);
    atomic_store(&f->board->value[rank], stats.raw_bytes);
    bw_save_release(v);
    for (size_t i = 0; i < REPLICATED; i++) free(m[i]);
    close_ok(ck);
    return 0;
}

static void replicas_are_written_once_and_shared_out_by_bytes(void **state) {
    (void)state;
    struct fleet f;
    uint64_t all = 0, written = 0, least = UINT64_MAX, most = 0, largest = 0;
    fleet_make(&f, FULL_OR(4, 3), "replicas");
    f.one_local = true;
    run_ranks(replica_rank, &f, f.world);
    for (size_t i = 0; i < REPLICATED; i++) {
        all += replicated_bytes(i);
        if (replicated_bytes(i) > largest) largest = replicated_bytes(i);
    }
    for (uint32_t rank = 0; rank < f.world; rank++) {
        const uint64_t n = atomic_load(&f.board->value[rank]);
        written += n;
        least = n < least ? n : least;
        most = n > most ? n : most;
    }
    must_eq(written, all);
    must(most - least <= largest);
    struct bw_restore *r = reader_of(&f.p, 1);
    for (size_t i = 0; i < REPLICATED; i++) {
        char name[32], got[1000 * REPLICATED * 5];
        (void)snprintf(name, sizeof name, "weight %zu", i);
        read_bytes(r, name, got, replicated_bytes(i));
        must(is_filled(got, replicated_bytes(i), i));
    }
    bw_restore_close(r);
    fleet_drop(&f);
}

/* --- failing together ---- */

#define PART (2 * MIB)

/* A rank's part of a tensor of bytes, whose values tell the step. */
static struct bw_save *begin_part(struct bw_checkpointer *ck, uint64_t step, uint32_t rank, uint32_t world,
                                  void *memory) {
    struct bw_save *v = begin(ck, step);
    const uint64_t shape = world * PART, offset = rank * PART, extent = PART;
    fill(memory, PART, step * 100 + rank);
    add_box(v, "w", BW_U8, memory, 1, &shape, &offset, &extent);
    start(v);
    return v;
}

static void check_part(struct bw_restore *r, uint64_t step, uint32_t rank, uint32_t world, void *memory) {
    struct bw_error err = BW_ERROR_INIT;
    struct bw_slice s = BW_SLICE_INIT;
    const uint64_t shape = world * PART, offset = rank * PART, extent = PART;
    s.dtype = BW_U8;
    s.name = "w";
    s.data = memory;
    s.dims = 1;
    s.shape = &shape;
    s.offset = &offset;
    s.extent = &extent;
    must_ok(bw_restore_read(r, &s, 1, &err), &err);
    must(is_filled(memory, PART, step * 100 + rank));
}

static void check_parts(struct fleet *f, uint64_t step) {
    void *memory = malloc(PART);
    struct bw_restore *r = reader_of(&f->p, step);
    for (uint32_t rank = 0; rank < f->world; rank++) check_part(r, step, rank, f->world, memory);
    bw_restore_close(r);
    free(memory);
}

static void save_part(struct bw_checkpointer *ck, uint64_t step, uint32_t rank, uint32_t world, void *memory) {
    finish(begin_part(ck, step, rank, world, memory));
}

/* The disk of one rank fails in step 2, and is well again afterwards. */
static int rank_with_a_bad_disk(void *arg, unsigned rank) {
    struct fleet *f = arg;
    struct bw_error err = BW_ERROR_INIT;
    void *memory = malloc(PART);
    (void)signal(SIGXFSZ, SIG_IGN);
    struct bw_checkpointer *ck = join_fleet(f, rank);
    save_part(ck, 1, rank, f->world, memory);
    meet(f->board, 0, f->world);
    if (rank == 1) limit_files(MIB);
    struct bw_save *v = begin_part(ck, 2, rank, f->world, memory);
    const int rc = bw_save_wait(v, BW_COMMITTED, WAIT_MS, &err);
    if (rank == 1) must_be(rc, BW_E_LIMIT, &err, "too large", "a file that may not grow", __FILE__, __LINE__);
    if (rank != 1) must_be(rc, BW_E_ABORTED, &err, "rank 1", "the others learn of it", __FILE__, __LINE__);
    must(bw_save_level(v) < BW_COMMITTED);
    bw_save_release(v);
    if (rank == 1) unlimit_files();
    save_part(ck, 2, rank, f->world, memory); /* the same step again */
    save_part(ck, 3, rank, f->world, memory);
    close_ok(ck);
    free(memory);
    return 0;
}

static void one_bad_disk_aborts_the_save_of_all_and_the_next_one_works(void **state) {
    (void)state;
    struct fleet f;
    fleet_make(&f, 3, "bad-disk");
    run_ranks(rank_with_a_bad_disk, &f, f.world);
    for (uint64_t step = 1; step <= 3; step++) check_parts(&f, step);
    must_eq(history_of(&f.p).aborts, 1);
    must_eq(history_of(&f.p).commits, 3);
    fleet_drop(&f);
}

/* A local tier whose directory has become a file. */
static int rank_without_a_disk(void *arg, unsigned rank) {
    struct fleet *f = arg;
    struct bw_error err = BW_ERROR_INIT;
    void *memory = malloc(PART);
    const char *data = path_in(f->p.root, "local-%u/runs/" RUN "/data", rank);
    const char *aside = path_in(f->p.root, "local-%u/aside", rank);
    struct bw_checkpointer *ck = join_fleet(f, rank);
    save_part(ck, 1, rank, f->world, memory);
    meet(f->board, 0, f->world);
    if (rank == 0) {
        must_eq(rename(data, aside), 0);
        FILE *in_the_way = fopen(data, "w");
        must(in_the_way != NULL && fclose(in_the_way) == 0);
    }
    struct bw_save *v = begin_part(ck, 2, rank, f->world, memory);
    const int rc = bw_save_wait(v, BW_COMMITTED, WAIT_MS, &err);
    must_be(rc, rank == 0 ? BW_E_IO : BW_E_ABORTED, &err, NULL, "a lost disk", __FILE__, __LINE__);
    bw_save_release(v);
    if (rank == 0) must(unlink(data) == 0 && rename(aside, data) == 0);
    save_part(ck, 3, rank, f->world, memory);
    close_ok(ck);
    free(memory);
    return 0;
}

static void a_lost_local_tier_aborts_the_save_of_all_and_the_next_one_works(void **state) {
    (void)state;
    struct fleet f;
    fleet_make(&f, 2, "no-disk");
    run_ranks(rank_without_a_disk, &f, f.world);
    check_parts(&f, 1);
    check_parts(&f, 3);
    fleet_drop(&f);
}

static int rank_that_skips(void *arg, unsigned rank) {
    struct fleet *f = arg;
    struct bw_error err = BW_ERROR_INIT;
    void *memory = malloc(PART);
    struct bw_checkpointer *ck = join_fleet(f, rank);
    save_part(ck, 1, rank, f->world, memory);
    struct bw_save *v = NULL;
    if (rank == 1) {
        v = begin(ck, 2); /* never started: the others must not wait for it */
    } else {
        v = begin_part(ck, 2, rank, f->world, memory);
    }
    if (rank == 1) {
        bw_save_release(v);
    } else {
        must_fail(bw_save_wait(v, BW_COMMITTED, WAIT_MS, &err), BW_E_ABORTED, &err, NULL);
        bw_save_release(v);
    }
    save_part(ck, 3, rank, f->world, memory);
    v = begin_part(ck, 4, rank, f->world, memory);
    if (rank == 1) must_ok(bw_save_cancel(v, &err), &err);
    if (rank == 0) {
        const int rc = bw_save_wait(v, BW_COMMITTED, WAIT_MS, &err);
        must(rc == BW_E_ABORTED || rc == 0);
    }
    bw_save_release(v);
    save_part(ck, 5, rank, f->world, memory);
    close_ok(ck);
    free(memory);
    return 0;
}

static void a_save_that_one_rank_drops_ends_on_all(void **state) {
    (void)state;
    struct fleet f;
    fleet_make(&f, 2, "skip");
    run_ranks(rank_that_skips, &f, f.world);
    check_parts(&f, 5);
    fleet_drop(&f);
}

/* --- looking ---- */

static uint64_t remote_calls(struct bw_checkpointer *ck) {
    struct bw_checkpointer_stats stats;
    bw_checkpointer_stats(ck, &stats);
    return stats.remote_store_calls;
}

/* By itself one that has nothing to wait for looks every two seconds. */
static void a_checkpointer_that_is_told_to_looks_at_once(void **state) {
    (void)state;
    struct place p;
    place_make(&p);
    struct bw_checkpointer *ck = open_alone(&p, "look");
    bw_checkpointer_look(NULL);
    const uint64_t began = clock_ms();
    for (int i = 0; i < 20; i++) {
        const uint64_t before = remote_calls(ck);
        bw_checkpointer_look(ck);
        while (remote_calls(ck) == before && clock_ms() - began < WAIT_MS) sleep_ms(2);
    }
    must(clock_ms() - began < 20000);
    close_ok(ck);
    place_drop(&p);
}

/* --- coverage ---- */

struct wrong_boxes {
    struct fleet f;
    uint64_t begins; /* of the box of the last rank; right is 10 */
    const char *part;
};

static int rank_with_wrong_boxes(void *arg, unsigned rank) {
    struct wrong_boxes *w = arg;
    struct fleet *f = &w->f;
    struct bw_error err = BW_ERROR_INIT;
    uint32_t memory[32] = {0};
    struct bw_checkpointer *ck = join_fleet(f, rank);
    for (uint64_t step = 1; step <= 3; step++) {
        const uint64_t shape = 20, end = 20;
        const uint64_t last_begins = step == 2 ? w->begins : 10;
        const uint64_t offset = rank == 0 ? 0 : last_begins, extent = rank == 0 ? 10 : end - last_begins;
        struct bw_save *v = begin(ck, step);
        add_box(v, "layer.weight", BW_F32, memory, 1, &shape, &offset, &extent);
        start(v);
        const int rc = bw_save_wait(v, BW_COMMITTED, WAIT_MS, &err);
        if (step != 2) must_be(rc, 0, &err, NULL, "the boxes are right", __FILE__, __LINE__);
        if (step == 2 && rank == 0) must_be(rc, BW_E_COVERAGE, &err, w->part, "rank 0 finds it", __FILE__, __LINE__);
        if (step == 2 && rank == 0) must(strstr(err.message, "layer.weight") != NULL);
        if (step == 2 && rank != 0)
            must_be(rc, BW_E_ABORTED, &err, "layer.weight", "the others learn", __FILE__, __LINE__);
        bw_save_release(v);
    }
    close_ok(ck);
    return 0;
}

static void wrong_coverage(uint64_t begins, const char *part) {
    struct wrong_boxes w = {.begins = begins, .part = part};
    fleet_make(&w.f, 2, "coverage");
    run_ranks(rank_with_wrong_boxes, &w, 2);
    struct history_facts h = history_of(&w.f.p);
    must_eq(h.commits, 2);
    must_eq(h.aborts, 1);
    must_eq(h.live, 2);
    fleet_drop(&w.f);
}

static void a_gap_is_never_committed(void **state) {
    (void)state;
    wrong_coverage(13, "3 of 20 elements are in no box");
}

static void an_overlap_is_never_committed(void **state) {
    (void)state;
    wrong_coverage(8, "overlap");
}

/* --- dying ---- */

/* Saves as fast as it can, for ever; somebody kills it. */
static int rank_that_dies(void *arg, unsigned rank) {
    struct fleet *f = arg;
    struct bw_error err = BW_ERROR_INIT;
    void *memory = malloc(PART);
    struct bw_checkpointer *ck = join_fleet(f, rank);
    const struct bw_resumed from = resumed_of(ck);
    atomic_store(&f->board->value[rank], from.from_checkpoint ? from.step : 0);
    (void)snprintf(f->board->text[rank], sizeof f->board->text[rank], "%s", from.id);
    if (from.from_checkpoint) {
        struct bw_restore *r = NULL;
        must_ok(bw_restore_open(ck, &r, &err), &err);
        check_part(r, from.step, rank, f->world, memory);
        bw_restore_close(r);
    }
    meet(f->board, 1, f->world);
    for (uint64_t step = from.step + 1;; step++) {
        struct bw_save *v = begin_part(ck, step, rank, f->world, memory);
        must_ok(bw_save_wait(v, BW_CAPTURED, WAIT_MS, &err), &err);
        bw_save_release(v);
    }
    return 0;
}

static void kill_and_reap(pid_t pid) {
    (void)kill(pid, SIGKILL);
    must_eq(reap(pid), -SIGKILL);
}

/* One life of all ranks; a rank is killed after a while, the others a little later, as a launcher does it. */
static uint64_t one_life(struct fleet *f, unsigned round, unsigned ms, uint64_t *ret_committed) {
    pid_t pids[3];
    (void)snprintf(f->launch, sizeof f->launch, "life-%u", round);
    memset(f->board, 0, sizeof *f->board);
    for (unsigned i = 0; i < f->world; i++) pids[i] = spawn(rank_that_dies, f, i);
    for (unsigned i = 0; atomic_load(&f->board->arrived[1]) < f->world; i++) {
        must(i < WAIT_MS);
        sleep_ms(1);
    }
    for (uint32_t i = 1; i < f->world; i++) must(strcmp(f->board->text[0], f->board->text[i]) == 0);
    sleep_ms(ms);
    kill_and_reap(pids[round % f->world]);
    sleep_ms(round % 2 ? 0 : 30);
    for (unsigned i = 0; i < f->world; i++)
        if (i != round % f->world) kill_and_reap(pids[i]);
    *ret_committed = 0;
    struct bw_error err = BW_ERROR_INIT;
    struct bw_list *list = NULL;
    struct bw_checkpoint_row row;
    struct bw_catalog *c = catalog_of(&f->p);
    must_ok(bw_catalog_checkpoints(c, RUN, &list, &err), &err);
    for (size_t i = 0; bw_list_checkpoint(list, i, &row); i++)
        if (row.state == BW_CKPT_LIVE && row.step > *ret_committed) *ret_committed = row.step;
    bw_list_free(list);
    bw_catalog_close(c);
    return atomic_load(&f->board->value[0]);
}

static void killed_ranks_resume_from_one_checkpoint(bool one_local) {
    struct fleet f;
    uint64_t committed = 0, before = 0, seed = test_seed(11);
    fleet_make(&f, 3, "life");
    f.one_local = one_local;
    for (unsigned round = 0; round < FULL_OR(8, 3); round++) {
        const uint64_t from = one_life(&f, round, (unsigned)(test_random(&seed) % FULL_OR(400, 1500)), &committed);
        must(from >= before); /* nothing that was committed is ever lost */
        if (committed > 0) check_parts(&f, committed);
        must(committed >= before);
        before = committed;
    }
    must(before > 0);
    fleet_drop(&f);
}

static void ranks_killed_in_a_save_resume_from_exactly_one_checkpoint(void **state) {
    (void)state;
    killed_ranks_resume_from_one_checkpoint(false);
}

static void ranks_of_one_node_killed_in_a_save_resume_from_exactly_one_checkpoint(void **state) {
    (void)state;
    killed_ranks_resume_from_one_checkpoint(true);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(saved_by_one_it_is_restored_in_any_world),
        cmocka_unit_test(saved_by_two_it_is_restored_in_any_world),
        cmocka_unit_test(saved_by_three_it_is_restored_in_any_world),
        cmocka_unit_test(saved_by_eight_it_is_restored_in_any_world),
        cmocka_unit_test(replicas_are_written_once_and_shared_out_by_bytes),
        cmocka_unit_test(one_bad_disk_aborts_the_save_of_all_and_the_next_one_works),
        cmocka_unit_test(a_lost_local_tier_aborts_the_save_of_all_and_the_next_one_works),
        cmocka_unit_test(a_save_that_one_rank_drops_ends_on_all),
        cmocka_unit_test(a_checkpointer_that_is_told_to_looks_at_once),
        cmocka_unit_test(a_gap_is_never_committed),
        cmocka_unit_test(an_overlap_is_never_committed),
        cmocka_unit_test(ranks_killed_in_a_save_resume_from_exactly_one_checkpoint),
        cmocka_unit_test(ranks_of_one_node_killed_in_a_save_resume_from_exactly_one_checkpoint),
    };
    return run_cases(tests);
}
