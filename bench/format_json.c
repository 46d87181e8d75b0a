/* SPDX-License-Identifier: Apache-2.0 */
/* The formats that are JSON: plain text, history entries, manifests; and the hashes. */
#include "base/copy.h"
#include "format/history.h"
#include "format/json.h"
#include "format/manifest.h"
#include "format_cases.h"
#include <stdlib.h>
#include <string.h>

/* ---- hashes ---- */

static int run_xxh(void *state, struct bw_error *err) {
    (void)err;
    const struct bwi_span *all = state;
    for (size_t at = 0; at < all->len; at += BWI_EXTENT_BYTES) {
        size_t n = all->len - at < BWI_EXTENT_BYTES ? all->len - at : BWI_EXTENT_BYTES;
        struct bwi_xxh h = bwi_xxh_of(bwi_span(all->ptr + at, n));
        __asm__ volatile("" : : "r"(&h) : "memory");
    }
    return 0;
}

static int run_sha(void *state, struct bw_error *err) {
    (void)err;
    struct bwi_sha h = bwi_sha_of(*(const struct bwi_span *)state);
    __asm__ volatile("" : : "r"(&h) : "memory");
    return 0;
}

struct capture {
    struct bwi_span from;
    uint8_t *to;
};

/* As a capture by copying: what was copied past the caches is hashed when all is copied. */
static int run_copy_then_hash(void *state, struct bw_error *err) {
    const struct capture *x = state;
    struct bwi_span copy = bwi_span(x->to, x->from.len);
    for (size_t at = 0; at < copy.len; at += BWI_EXTENT_BYTES) {
        size_t n = copy.len - at < BWI_EXTENT_BYTES ? copy.len - at : BWI_EXTENT_BYTES;
        bwi_copy_past_cache(x->to + at, x->from.ptr + at, n);
    }
    return run_xxh(&copy, err);
}

#define HASH_BYTES ((size_t)128 << 10)

/* As a capture of what is write-protected: what was read to be copied is hashed while it is in the cache. */
static int run_copy_and_hash(void *state, struct bw_error *err) {
    const struct capture *x = state;
    struct bwi_xxh_state hash;
    (void)err;
    bwi_xxh_init(&hash);
    for (size_t at = 0; at < x->from.len; at += HASH_BYTES) {
        size_t n = x->from.len - at < HASH_BYTES ? x->from.len - at : HASH_BYTES;
        bwi_copy_past_cache(x->to + at, x->from.ptr + at, n);
        bwi_xxh_update(&hash, x->from.ptr + at, n);
    }
    struct bwi_xxh h = bwi_xxh_final(&hash);
    __asm__ volatile("" : : "r"(&h) : "memory");
    return 0;
}

void cases_hash(struct compare *c) {
    size_t bytes = compare_size(c, (size_t)64 << 20);
    uint8_t *p = bench_alloc(bytes, 1);
    for (size_t i = 0; i < bytes; i++) p[i] = (uint8_t)(i * 2654435761u >> 24);
    struct bwi_span all = bwi_span(p, bytes);
    compare_subject(c, "hash: %zu bytes, more than a core's own caches hold", bytes);
    compare_run(c, &(struct compare_case){"XXH3-128, extent by extent", run_xxh, &all, 0, all, COMPARE_MEMCPY, 1});
    compare_run(c, &(struct compare_case){"SHA-256", run_sha, &all, 0, all, COMPARE_MEMCPY, 1});
    struct capture x = {all, bench_alloc(bytes, 1)};
    compare_run(c, &(struct compare_case){"copy, then XXH3-128", run_copy_then_hash, &x, 0, all, COMPARE_MEMCPY, 1});
    compare_run(c, &(struct compare_case){"copy and XXH3-128", run_copy_and_hash, &x, 0, all, COMPARE_MEMCPY, 1});
    free(x.to);
    free(p);
}

/* ---- JSON ---- */

struct text {
    json_t *value;
    struct bwi_buf out;
};

static int run_json_encode(void *state, struct bw_error *err) {
    struct text *t = state;
    bwi_buf_reset(&t->out);
    return bwi_json_encode(t->value, &t->out, err);
}

static int run_json_decode(void *state, struct bw_error *err) {
    json_t *v = NULL;
    int rc = bwi_json_decode(*(const struct bwi_span *)state, "text", &v, err);
    if (rc == 0) json_decref(v);
    return rc;
}

/* Rows of a name, three numbers and a hash: what our objects are made of. */
static json_t *rows(size_t count) {
    json_t *list = json_array();
    for (size_t i = 0; i < count; i++) {
        char name[64];
        snprintf(name, sizeof name, "model.layers.%zu.mlp.weight", i);
        struct bwi_sha sha = bwi_sha_of(bwi_span_str(name));
        bool failed = false;
        json_t *row = json_array();
        bwi_json_push(row, json_string(name), &failed);
        for (size_t k = 0; k < 3; k++) bwi_json_push(row, bwi_json_of_u64(i * 4096 * (k + 1)), &failed);
        bwi_json_push(row, bwi_json_of_sha(&sha), &failed);
        bwi_json_push(list, row, &failed);
        if (failed) bench_die("json", "out of memory");
    }
    return list;
}

static void json_rows(struct compare *c, size_t count) {
    struct bw_error err = BW_ERROR_INIT;
    struct text t = {.value = rows(count)};
    compare_must(run_json_encode(&t, &err), &err, "json");
    struct bwi_span text = bwi_buf_span(&t.out);
    struct bwi_buf copy = {0};
    bwi_buf_put(&copy, text.ptr, text.len);
    if (copy.failed) bench_die("json", "out of memory");
    struct bwi_span in = bwi_buf_span(&copy);
    compare_subject(c, "json: %zu rows, %zu bytes", count, in.len);
    compare_run(c, &(struct compare_case){"encode", run_json_encode, &t, 0, in, COMPARE_SHA256, count});
    compare_run(c, &(struct compare_case){"decode", run_json_decode, &in, 0, in, COMPARE_SHA256, count});
    bwi_buf_fini(&copy);
    bwi_buf_fini(&t.out);
    json_decref(t.value);
}

static void json_brackets(struct compare *c, size_t bytes) {
    bytes += bytes % 2;
    char *p = bench_alloc(bytes, 1);
    struct bwi_span in = bwi_span(p, bytes);
    compare_subject(c, "json: %zu bytes of brackets, to be refused", bytes);
    memset(p, '[', bytes);
    compare_run(c, &(struct compare_case){"refuse depth", run_json_decode, &in, BW_E_FORMAT, in, COMPARE_SHA256, 1});
    for (size_t i = 0; i < bytes; i += 2) memcpy(p + i, "[]", 2);
    p[0] = 'x';
    compare_run(c, &(struct compare_case){"refuse width", run_json_decode, &in, BW_E_FORMAT, in, COMPARE_SHA256, 1});
    free(p);
}

void cases_json(struct compare *c) {
    json_rows(c, compare_size(c, 10000));
    json_rows(c, compare_size(c, 100000));
    json_brackets(c, compare_size(c, 2000000));
}

/* ---- history ---- */

struct log {
    struct bwi_entry entry;
    struct bwi_buf out;
    struct bwi_span *entries; /* all of a log, oldest first */
    size_t count;
};

static int run_entry_encode(void *state, struct bw_error *err) {
    struct log *l = state;
    bwi_buf_reset(&l->out);
    return bwi_entry_encode(&l->entry, &l->out, err);
}

static int run_entry_decode(void *state, struct bw_error *err) {
    struct bwi_entry e;
    int rc = bwi_entry_decode(*(const struct bwi_span *)state, &e, err);
    if (rc == 0) bwi_entry_fini(&e);
    return rc;
}

/* Whoever reads the whole log checks that each entry names the bytes of the one before. */
static int run_log_decode(void *state, struct bw_error *err) {
    const struct log *l = state;
    struct bwi_sha before = {{0}};
    for (size_t i = 0; i < l->count; i++) {
        struct bwi_entry e;
        int rc = bwi_entry_decode(l->entries[i], &e, err);
        if (rc < 0) return rc;
        bool follows = bwi_sha_eq(&e.prev, &before);
        bwi_entry_fini(&e);
        if (!follows) return BW_E_CORRUPT;
        before = bwi_sha_of(l->entries[i]);
    }
    return 0;
}

/* An entry with `live` checkpoints, each but the first eight with eight refs. */
static void entry_init(struct bwi_entry *e, size_t live) {
    *e = (struct bwi_entry){.run = "bench", .era = 1, .n = 1, .writer = 1, .time_ms = 1, .host = "node"};
    e->lineage = bench_alloc(1, sizeof *e->lineage);
    e->lineage[0] = (struct bwi_lineage){.era = 1, .n = 1};
    e->lineage_count = 1;
    e->event.type = BWI_EVENT_COMMIT;
    e->event.ids = bench_alloc(1, sizeof *e->event.ids);
    e->event.ids[0] = (struct bwi_id){.step = 1, .attempt = 1, .nonce = 5};
    e->event.id_count = 1;
    e->attempt = (struct bwi_attempt){.set = true, .number = 1, .nonce = 5, .job = "job", .launch = "launch"};
    e->attempt.world = e->attempt.groups = 8;
    e->live = bench_alloc(live, sizeof *e->live);
    e->live_count = live;
    for (uint64_t i = 0; i < live; i++) {
        struct bwi_kept *k = &e->live[i];
        k->id = (struct bwi_id){.step = 1000 * i, .attempt = 1, .nonce = 5};
        k->manifest = bwi_sha_of(bwi_span(&i, sizeof i));
        k->bytes = 80000000000 + i, k->time_ms = 1760000000000 + (int64_t)i;
        k->ref_count = i < 8 ? (uint32_t)i : 8;
        for (uint64_t r = 0; r < k->ref_count; r++) k->refs[r] = e->live[i - k->ref_count + r].id;
    }
}

static void entry_drop(struct bwi_entry *e) {
    free(e->lineage);
    free(e->event.ids);
    free(e->live);
}

static void history_entry(struct compare *c, size_t live) {
    struct bw_error err = BW_ERROR_INIT;
    struct log l = {0};
    entry_init(&l.entry, live);
    l.entry.n = 2, l.entry.prev.b[0] = 1;
    compare_must(run_entry_encode(&l, &err), &err, "history entry");
    struct bwi_buf copy = {0};
    bwi_buf_put(&copy, l.out.ptr, l.out.len);
    if (copy.failed) bench_die("history", "out of memory");
    struct bwi_span in = bwi_buf_span(&copy);
    compare_subject(c, "history: an entry of %zu live checkpoints, eight refs each, %zu bytes", live, in.len);
    compare_run(c, &(struct compare_case){"encode", run_entry_encode, &l, 0, in, COMPARE_SHA256, live});
    compare_run(c, &(struct compare_case){"decode", run_entry_decode, &in, 0, in, COMPARE_SHA256, live});
    bwi_buf_fini(&copy);
    bwi_buf_fini(&l.out);
    entry_drop(&l.entry);
}

static void history_log(struct compare *c, size_t count, size_t live) {
    struct bw_error err = BW_ERROR_INIT;
    struct log l = {.count = count};
    struct bwi_sha before = {{0}};
    size_t *ends = bench_alloc(count, sizeof *ends);
    l.entries = bench_alloc(count, sizeof *l.entries);
    entry_init(&l.entry, live);
    for (size_t i = 0; i < count; i++) {
        size_t begin = l.out.len;
        l.entry.n = i + 1, l.entry.prev = before;
        compare_must(bwi_entry_encode(&l.entry, &l.out, &err), &err, "history log");
        before = bwi_sha_of(bwi_span(l.out.ptr + begin, l.out.len - begin));
        ends[i] = l.out.len;
    }
    for (size_t i = 0, begin = 0; i < count; begin = ends[i++])
        l.entries[i] = bwi_span(l.out.ptr + begin, ends[i] - begin);
    struct bwi_span in = bwi_buf_span(&l.out);
    compare_subject(c, "history: a log of %zu entries, %zu live checkpoints each, %zu bytes", count, live, in.len);
    compare_run(c, &(struct compare_case){"decode, check the chain", run_log_decode, &l, 0, in, COMPARE_SHA256, count});
    bwi_buf_fini(&l.out);
    entry_drop(&l.entry);
    free(l.entries);
    free(ends);
}

void cases_history(struct compare *c) {
    history_entry(c, compare_size(c, 100));
    history_entry(c, compare_size(c, 1000));
    history_entry(c, compare_size(c, 20000));
    history_log(c, compare_size(c, BWI_HISTORY_KEPT), 10);
}

/* ---- manifest ---- */

struct whole {
    struct bwi_summary *summaries;
    uint32_t groups;
    struct bwi_index_info index;
    struct bwi_manifest built;
    struct bwi_buf out;
    uint64_t draw; /* of ranks to look up */
};

static int run_manifest_build(void *state, struct bw_error *err) {
    struct whole *w = state;
    struct bwi_manifest m;
    int rc = bwi_manifest_build(w->summaries, w->groups, &w->index, &m, err);
    if (rc == 0) bwi_manifest_fini(&m);
    return rc;
}

static int run_manifest_encode(void *state, struct bw_error *err) {
    struct whole *w = state;
    bwi_buf_reset(&w->out);
    return bwi_manifest_encode(&w->built, &w->out, err);
}

static int run_manifest_decode(void *state, struct bw_error *err) {
    struct bwi_manifest m;
    int rc = bwi_manifest_decode(*(const struct bwi_span *)state, &m, err);
    if (rc == 0) bwi_manifest_fini(&m);
    return rc;
}

static int run_manifest_rank(void *state, struct bw_error *err) {
    (void)err;
    struct whole *w = state;
    uint32_t group = 0;
    w->draw = w->draw * 6364136223846793005u + 1442695040888963407u;
    return bwi_manifest_group_of_rank(&w->built, (uint32_t)(w->draw >> 33) % w->built.world, &group) ? 0
                                                                                                     : BW_E_INTERNAL;
}

/* Groups of eight ranks that lie next to each other, as the devices of a node do. */
static struct bwi_summary *summaries_new(uint32_t groups) {
    struct bwi_summary *all = bench_alloc(groups, sizeof *all);
    for (uint32_t g = 0; g < groups; g++) {
        struct bwi_summary *s = &all[g];
        s->id = (struct bwi_id){.step = 500, .attempt = 1, .nonce = 5};
        s->group = g, s->groups = groups, s->world = groups * 8, s->fan_out = true, s->rank_count = 8;
        for (uint32_t i = 0; i < 8; i++) s->ranks[i] = 8 * g + i;
        s->layout = bwi_sha_of(bwi_span(&g, sizeof g));
        s->content = bwi_sha_of(bwi_span(s->layout.b, sizeof s->layout.b));
        s->layout_bytes = 123456, s->content_bytes = 9876, s->raw_bytes = UINT64_C(80000000000) + g;
    }
    return all;
}

static void manifest_of(struct compare *c, uint32_t groups) {
    struct bw_error err = BW_ERROR_INIT;
    struct whole w = {.groups = groups, .index = {.bytes = 1000, .head_bytes = 100, .tensors = 5, .boxes = 9}};
    w.summaries = summaries_new(groups);
    compare_must(bwi_manifest_build(w.summaries, groups, &w.index, &w.built, &err), &err, "manifest");
    compare_must(run_manifest_encode(&w, &err), &err, "manifest");
    struct bwi_buf copy = {0};
    bwi_buf_put(&copy, w.out.ptr, w.out.len);
    if (copy.failed) bench_die("manifest", "out of memory");
    struct bwi_span in = bwi_buf_span(&copy), table = bwi_span(w.built.groups, groups * sizeof *w.built.groups);
    compare_subject(c, "manifest: %u groups of eight ranks, %zu bytes", groups, in.len);
    compare_run(c, &(struct compare_case){"build", run_manifest_build, &w, 0, in, COMPARE_SHA256, groups});
    compare_run(c, &(struct compare_case){"encode", run_manifest_encode, &w, 0, in, COMPARE_SHA256, groups});
    compare_run(c, &(struct compare_case){"decode", run_manifest_decode, &in, 0, in, COMPARE_SHA256, groups});
    compare_run(c, &(struct compare_case){"look a rank up", run_manifest_rank, &w, 0, table, COMPARE_MEMCPY, 1});
    bwi_buf_fini(&copy);
    bwi_buf_fini(&w.out);
    bwi_manifest_fini(&w.built);
    free(w.summaries);
}

void cases_manifest(struct compare *c) {
    manifest_of(c, (uint32_t)compare_size(c, 1024));
    manifest_of(c, (uint32_t)compare_size(c, 10000));
}
