/* SPDX-License-Identifier: Apache-2.0 */
/* The sound store that every input begins with. */
#include "store.h"

#include "cluster.h"
#include "fuzz.h"
#include <stdio.h>

static struct cluster cluster;

void store_state_of(struct store_state *s, uint64_t step) {
    memset(s, 0, sizeof *s);
    for (uint32_t i = 0; i < STORE_ROWS; i++)
        for (uint32_t k = 0; k < STORE_COLS; k++) s->sharded[i][k] = (uint32_t)step * 1000000 + i * STORE_COLS + k;
    for (uint32_t k = 0; k < STORE_SAME; k++) s->same[k] = (uint32_t)step * 3000000 + k;
    (void)snprintf(s->blob, sizeof s->blob, "rng-%llu", (unsigned long long)step);
}

static void describe(struct bwi_save *v, const struct store_state *s, uint32_t rank) {
    struct bw_error err = BW_ERROR_INIT;
    const uint64_t shape[2] = {STORE_ROWS, STORE_COLS}, half[2] = {STORE_ROWS / 2, STORE_COLS};
    const uint64_t offset[2] = {rank * half[0], 0}, same = STORE_SAME;
    struct bw_tensor t = BW_TENSOR_INIT, r = BW_TENSOR_INIT;
    t.name = "sharded";
    r.name = "same";
    t.dtype = r.dtype = BW_U32;
    t.dims = 2;
    t.shape = shape;
    t.offset = offset;
    t.extent = half;
    t.data = s->sharded[offset[0]];
    r.dims = 1;
    r.shape = &same;
    r.data = s->same;
    r.replica_count = 2;
    r.replica_index = rank;
    fuzz_require(bwi_description_tensor(&v->description, &t, &err) == 0);
    fuzz_require(bwi_description_tensor(&v->description, &r, &err) == 0);
    fuzz_require(bwi_description_blob(&v->description, "rng", s->blob, sizeof s->blob, &err) == 0);
    fuzz_require(bwi_description_metadata(&v->description, "{\"lr\":0.5}", &err) == 0);
}

static bool ended(struct cluster *c, void *save) {
    (void)c;
    return ((struct bwi_save *)save)->state == BWI_SAVE_ENDED;
}

static bool complete(struct cluster *c, void *save) {
    (void)c;
    return ((struct bwi_save *)save)->level >= BW_REMOTE;
}

static struct bwi_save *begin(unsigned slot, uint64_t step, const struct store_state *s, uint32_t rank) {
    struct bw_error err = BW_ERROR_INIT;
    struct bwi_save *v = NULL;
    fuzz_require(bwi_session_begin(cluster.ranks[slot].session, step, &v, &err) == 0);
    describe(v, s, rank);
    fuzz_require(bwi_session_start(v, &err) == 0);
    return v;
}

static void commit(unsigned first, uint64_t step) {
    struct store_state s;
    struct bwi_save *v[2];
    store_state_of(&s, step);
    for (uint32_t r = 0; r < 2; r++) v[r] = begin(first + r, step, &s, r);
    for (uint32_t r = 0; r < 2; r++) {
        fuzz_require(cluster_run(&cluster, ended, v[r], 600000) && v[r]->committed);
        bwi_session_release(v[r]);
    }
}

static void open_launch(unsigned first, const struct launch *l) {
    for (uint32_t r = 0; r < l->world; r++) cluster_start(&cluster, first + r, 0, r, l);
    cluster_open(&cluster, first, l->world);
}

static void copy_out(const struct bwi_bucket *b, struct forge *f) {
    for (size_t i = 0; i < bwi_bucket_objects(b); i++) {
        const char *key = bwi_bucket_key(b, i);
        struct bwi_span bytes;
        fuzz_require(bwi_bucket_get(b, key, &bytes));
        (void)forge_add(f, key, bytes.ptr, bytes.len);
    }
}

void store_make(struct forge tiers[BWI_TIERS]) {
    const struct launch one = {.job = "a", .launch = "one", .world = 2};
    const struct launch two = {
        .job = "a", .launch = "two", .world = 2, .mode = BWI_REGISTER_ROLLBACK, .resume_step = 2, .label = "back"};
    struct store_state s;
    cluster_init(&cluster, 7);
    open_launch(0, &one);
    for (uint64_t step = 1; step <= 3; step++) commit(0, step);
    for (unsigned r = 0; r < 2; r++) cluster_end(&cluster, r);
    open_launch(0, &two);
    commit(0, 4);
    store_state_of(&s, 5);
    struct bwi_save *v = begin(0, 5, &s, 0);
    fuzz_require(cluster_run(&cluster, complete, v, 600000));
    copy_out(cluster.local[0], &tiers[BWI_TIER_LOCAL]);
    copy_out(cluster.remote, &tiers[BWI_TIER_REMOTE]);
    bwi_session_release(v);
    for (unsigned r = 0; r < 2; r++) cluster_end(&cluster, r);
    cluster_fini(&cluster);
}
