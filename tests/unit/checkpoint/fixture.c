/* SPDX-License-Identifier: Apache-2.0 */
/* Making whole checkpoints for tests, and damaging them. */
#include "fixture.h"
#include <zstd.h>

/* ---- what is saved ---- */

void fixture_init(struct fixture *f, struct world *w, uint32_t world, enum fixture_split split) {
    memset(f, 0, sizeof *f);
    f->w = w;
    f->id = (struct bwi_id){100, 2, 0xabcd1234, 0};
    memset(f->uuid.b, 0x5a, sizeof f->uuid.b);
    f->world = world;
    f->fan_out = world > BWI_GROUPS_FLAT;
    f->split = split;
    f->extent_bytes = 4 * KIB;
    f->pack_bytes = 64 * KIB;
    f->tiers[BWI_TIER_LOCAL] = f->tiers[BWI_TIER_REMOTE] = true;
    assert_true(world <= FIXTURE_GROUPS);
}

void fixture_tensor(struct fixture *f, const char *name, int dtype, uint32_t dims, const uint64_t *shape) {
    assert_true(f->tensor_count < FIXTURE_TENSORS && dims <= 4);
    struct fixture_tensor *t = &f->tensors[f->tensor_count++];
    *t = (struct fixture_tensor){.name = name, .dtype = dtype, .dims = dims, .tied = -1};
    for (uint32_t d = 0; d < dims; d++) t->shape[d] = shape[d];
}

void fixture_tie(struct fixture *f, const char *name, int to) {
    const struct fixture_tensor of = f->tensors[to];
    fixture_tensor(f, name, of.dtype, of.dims, of.shape);
    f->tensors[f->tensor_count - 1].tied = to;
}

void fixture_blob(struct fixture *f, const char *name, uint64_t bytes) {
    assert_true(f->blob_count < 4);
    f->blobs[f->blob_count++] = (struct fixture_blob){name, bytes};
}

void fixture_small(struct fixture *f, struct world *w, uint32_t world) {
    fixture_init(f, w, world, FIXTURE_ROWS);
    fixture_tensor(f, "a", BW_F32, 2, (uint64_t[]){24, 300});
    fixture_tensor(f, "b", BW_I16, 1, (uint64_t[]){1000});
    fixture_tensor(f, "s", BW_F64, 0, NULL);
    fixture_tie(f, "a.tied", 0);
    fixture_blob(f, "rng", 5000);
    fixture_blob(f, "none", 0);
    f->metadata = "{\"lr\":0.5}";
}

void fixture_long_names(struct fixture *f, struct world *w, uint32_t world) {
    static char names[FIXTURE_TENSORS][8002];
    fixture_init(f, w, world, FIXTURE_ROWS);
    for (int i = 0; i < FIXTURE_TENSORS; i++) {
        memset(names[i], 'a' + i, 8000);
        fixture_tensor(f, names[i], BW_U8, 1, (uint64_t[]){16});
    }
}

static void share(uint64_t size, uint32_t parts, uint32_t part, uint64_t *offset, uint64_t *extent) {
    const uint64_t each = (size + parts - 1) / parts;
    *offset = each * part < size ? each * part : size;
    *extent = size - *offset < each ? size - *offset : each;
}

void fixture_box(enum fixture_split split, uint32_t dims, const uint64_t *shape, uint32_t world, uint32_t rank,
                 uint64_t *offset, uint64_t *extent) {
    uint32_t rows = 1;
    for (uint32_t d = 0; d < dims; d++) {
        offset[d] = 0;
        extent[d] = shape[d];
    }
    for (uint32_t n = 1; n * n <= world; n++) {
        if (world % n == 0) rows = n;
    }
    if (split == FIXTURE_ROWS || dims == 1) rows = world;
    if (split == FIXTURE_COLUMNS && dims > 1) rows = 1;
    if (dims == 0) return;
    share(shape[0], rows, rank / (world / rows), &offset[0], &extent[0]);
    if (dims > 1) share(shape[dims - 1], world / rows, rank % (world / rows), &offset[dims - 1], &extent[dims - 1]);
}

static uint64_t name_seed(const char *name) {
    uint64_t h = 14695981039346656037u;
    for (; *name != '\0'; name++) h = (h ^ (uint8_t)*name) * 1099511628211u;
    return h;
}

void fixture_element(const struct fixture *f, size_t tensor, uint64_t number, uint8_t *ret) {
    const struct fixture_tensor *t = &f->tensors[tensor];
    if (t->tied >= 0) t = &f->tensors[t->tied];
    uint64_t state = name_seed(t->name) + number + (f->salt << 32);
    const uint64_t a = test_random(&state);
    const uint64_t b = test_random(&state);
    memcpy(ret, &a, bw_dtype_bytes(t->dtype) < 8 ? bw_dtype_bytes(t->dtype) : 8);
    if (bw_dtype_bytes(t->dtype) > 8) memcpy(ret + 8, &b, 8);
}

uint8_t fixture_blob_byte(const char *name, uint32_t rank, uint64_t at) {
    return (uint8_t)(name_seed(name) + 31 * rank + 7 * at + at / 251);
}

/* ---- one group ---- */

static uint8_t *fill_box(const struct fixture *f, size_t tensor, const uint64_t *offset, const uint64_t *extent) {
    const struct fixture_tensor *t = &f->tensors[tensor];
    const size_t elem = bw_dtype_bytes(t->dtype);
    uint64_t count = 1;
    for (uint32_t d = 0; d < t->dims; d++) count *= extent[d];
    uint8_t *memory = bwi_malloc(count * elem + 1);
    assert_non_null(memory);
    for (uint64_t i = 0; i < count; i++) {
        uint64_t number = 0;
        uint64_t left = i;
        uint64_t pitch = 1;
        for (uint32_t d = t->dims; d-- > 0;) {
            number += (offset[d] + left % extent[d]) * pitch;
            left /= extent[d];
            pitch *= t->shape[d];
        }
        fixture_element(f, tensor, number, memory + i * elem);
    }
    return memory;
}

struct group {
    struct bwi_description d;
    struct bwi_plan plan;
    uint8_t *memory[FIXTURE_TENSORS + 4];
    size_t memories;
};

static void describe_tensor(struct fixture *f, struct group *g, uint32_t rank, size_t tensor, uint8_t **memory_of) {
    struct bw_error err = BW_ERROR_INIT;
    const struct fixture_tensor *t = &f->tensors[tensor];
    uint64_t offset[4];
    uint64_t extent[4];
    fixture_box(f->split, t->dims, t->shape, f->world, rank, offset, extent);
    if (t->dims == 0 && rank != 0) return; /* a scalar has one owner */
    uint8_t *memory = t->tied >= 0 ? memory_of[t->tied] : fill_box(f, tensor, offset, extent);
    if (t->tied < 0) g->memory[g->memories++] = memory;
    memory_of[tensor] = memory;
    struct bw_tensor b = BW_TENSOR_INIT;
    b.dtype = (uint32_t)t->dtype;
    b.name = t->name;
    b.data = memory;
    b.dims = t->dims;
    b.shape = t->shape;
    b.offset = offset;
    b.extent = extent;
    assert_ok(bwi_description_tensor(&g->d, &b, &err), &err);
}

static void describe(struct fixture *f, struct group *g, uint32_t rank) {
    struct bw_error err = BW_ERROR_INIT;
    uint8_t *memory_of[FIXTURE_TENSORS] = {0};
    memset(g, 0, sizeof *g);
    bwi_description_init(&g->d);
    for (size_t i = 0; i < f->tensor_count; i++) describe_tensor(f, g, rank, i, memory_of);
    for (size_t i = 0; i < f->blob_count; i++) {
        const struct fixture_blob *b = &f->blobs[i];
        uint8_t *memory = bwi_malloc(b->bytes + 1);
        assert_non_null(memory);
        for (uint64_t k = 0; k < b->bytes; k++) memory[k] = fixture_blob_byte(b->name, rank, k);
        g->memory[g->memories++] = memory;
        assert_ok(bwi_description_blob(&g->d, b->name, memory, b->bytes, &err), &err);
    }
    if (f->metadata != NULL) assert_ok(bwi_description_metadata(&g->d, f->metadata, &err), &err);
    assert_ok(bwi_description_own(&g->d, &err), &err);
    assert_ok(bwi_plan_make(&g->d, rank, f->extent_bytes, f->pack_bytes, &g->plan, &err), &err);
}

static void group_free(struct group *g) {
    bwi_plan_fini(&g->plan);
    bwi_description_fini(&g->d);
    for (size_t i = 0; i < g->memories; i++) bwi_free(g->memory[i]);
}

static void put_summary(struct fixture *f, enum bwi_tier tier, struct bwi_summary *s, struct bwi_placement *p) {
    struct bw_error err = BW_ERROR_INIT;
    const char *run = f->w->ctx.run;
    struct bwi_buf bytes = {0};
    assert_ok(bwi_placement_encode(p, &bytes, &err), &err);
    s->placement = bwi_sha_of(bwi_buf_span(&bytes));
    s->placement_bytes = bytes.len;
    s->writer = p->writer;
    s->pack_count = p->pack_count;
    world_put(f->w, tier, bwi_key_placement(run, f->fan_out, &f->id, s->group, p->writer).s, bwi_buf_span(&bytes));
    bwi_buf_reset(&bytes);
    assert_ok(bwi_summary_encode(s, &bytes, &err), &err);
    world_put(f->w, tier, bwi_key_summary(run, &f->id, s->group).s, bwi_buf_span(&bytes));
    bwi_buf_fini(&bytes);
}

void fixture_place(struct fixture *f, enum bwi_tier tier, struct bwi_group_meta *m) {
    put_summary(f, tier, &m->summary, &m->placement);
}

static void put_metadata(struct fixture *f, struct group *g, uint32_t group, enum bwi_tier tier,
                         const struct bwi_xxh *headers) {
    struct bw_error err = BW_ERROR_INIT;
    const char *run = f->w->ctx.run;
    struct bwi_plan *plan = &g->plan;
    struct bwi_buf content = {0};
    assert_ok(bwi_content_encode(&plan->content, &content, &err), &err);
    struct bwi_summary s = {.uuid = f->uuid,
                            .id = f->id,
                            .group = group,
                            .groups = f->world,
                            .world = f->world,
                            .fan_out = f->fan_out,
                            .rank_count = 1,
                            .ranks = {group},
                            .layout = plan->layout_sha,
                            .content = bwi_sha_of(bwi_buf_span(&content)),
                            .layout_bytes = plan->layout_bytes.len,
                            .content_bytes = content.len,
                            .raw_bytes = plan->raw_bytes,
                            .stored_bytes = plan->stored_bytes};
    world_put(f->w, tier, bwi_key_layout(run, f->id.attempt, f->id.nonce, &s.layout).s,
              bwi_buf_span(&plan->layout_bytes));
    world_put(f->w, tier, bwi_key_content(run, f->fan_out, &f->id, group).s, bwi_buf_span(&content));
    struct bwi_key *keys = bwi_calloc(plan->pack_count + 1, sizeof *keys);
    struct bwi_pack_ref *packs = bwi_calloc(plan->pack_count + 1, sizeof *packs);
    assert_true(keys != NULL && packs != NULL);
    for (uint32_t i = 0; i < plan->pack_count; i++) {
        keys[i] = bwi_key_pack(run, f->fan_out, &f->id, group, i, f->w->ctx.writer);
        packs[i] = (struct bwi_pack_ref){bwi_span_str(keys[i].s), plan->packs[i].file_bytes, plan->packs[i].header.len,
                                         headers[i]};
    }
    struct bwi_placement p = {s.content, f->w->ctx.writer,           (uint32_t)plan->pack_count,
                              packs,     plan->content.extent_count, plan->places};
    put_summary(f, tier, &s, &p);
    bwi_free(keys);
    bwi_free(packs);
    bwi_buf_fini(&content);
}

void fixture_save_group(struct fixture *f, uint32_t group, enum bwi_tier tier) {
    struct bw_error err = BW_ERROR_INIT;
    struct group g;
    describe(f, &g, group);
    struct bwi_pack_write pw = {
        .ctx = &f->w->ctx, .tier = tier, .plan = &g.plan, .id = f->id, .group = group, .fan_out = f->fan_out};
    assert_ok(bwi_pack_write_start(&pw, NULL, &err), &err);
    world_run(f->w);
    assert_ok(pw.task.error.status, &pw.task.error);
    put_metadata(f, &g, group, tier, pw.headers);
    bwi_pack_write_fini(&pw);
    group_free(&g);
}

/* ---- the whole ---- */

void fixture_meta(struct fixture *f, uint32_t group, enum bwi_tier tier, struct bwi_group_meta *ret) {
    memset(ret, 0, sizeof *ret);
    struct bwi_meta_read r = {.ctx = &f->w->ctx, .tier = tier, .id = f->id, .group = group, .meta = ret};
    bwi_meta_read_start(&r, f->w->loop, NULL);
    world_run(f->w);
    assert_ok(r.task.error.status, &r.task.error);
}

static void put_manifest(struct fixture *f, const struct bwi_summary *summaries, const struct bwi_index_info *info) {
    struct bw_error err = BW_ERROR_INIT;
    struct bwi_manifest m = {0};
    struct bwi_buf bytes = {0};
    assert_ok(bwi_manifest_build(summaries, f->world, info, &m, &err), &err);
    assert_ok(bwi_manifest_encode(&m, &bytes, &err), &err);
    f->manifest = bwi_sha_of(bwi_buf_span(&bytes));
    world_put(f->w, BWI_TIER_REMOTE, bwi_key_manifest(f->w->ctx.run, &f->id, &f->manifest).s, bwi_buf_span(&bytes));
    bwi_buf_fini(&bytes);
    bwi_manifest_fini(&m);
}

void fixture_commit(struct fixture *f) {
    struct bw_error err = BW_ERROR_INIT;
    struct bwi_group_meta *metas = bwi_calloc(f->world, sizeof *metas);
    struct bwi_summary *summaries = bwi_calloc(f->world, sizeof *summaries);
    struct bwi_index_builder *b = NULL;
    struct bwi_index_info info;
    struct bwi_buf index = {0};
    assert_true(metas != NULL && summaries != NULL);
    assert_ok(bwi_index_builder_new(&b, &err), &err);
    for (uint32_t g = 0; g < f->world; g++) {
        fixture_meta(f, g, BWI_TIER_REMOTE, &metas[g]);
        summaries[g] = metas[g].summary;
        assert_ok(bwi_index_builder_add(b, g, &metas[g].layout, &err), &err);
    }
    assert_ok(bwi_index_builder_encode(b, &index, &info, &err), &err);
    f->root = info.root;
    world_put(f->w, BWI_TIER_REMOTE, bwi_key_index(f->w->ctx.run, &f->id, &info.root).s, bwi_buf_span(&index));
    put_manifest(f, summaries, &info);
    bwi_index_builder_free(b);
    bwi_buf_fini(&index);
    for (uint32_t g = 0; g < f->world; g++) bwi_group_meta_fini(&metas[g]);
    bwi_free(metas);
    bwi_free(summaries);
}

void fixture_save(struct fixture *f) {
    for (uint32_t g = 0; g < f->world; g++) {
        for (int t = 0; t < BWI_TIERS; t++) {
            if (f->tiers[t]) fixture_save_group(f, g, (enum bwi_tier)t);
        }
    }
    fixture_commit(f);
}

/* ---- other placements ---- */

static void add_extent(struct bwi_buf *data, struct bwi_place *place, struct bwi_span raw, uint8_t codec,
                       uint64_t header_bytes) {
    place->pack = 0;
    place->codec = codec;
    place->offset = header_bytes + data->len;
    if (codec == BWI_CODEC_RAW) {
        place->stored_bytes = raw.len;
        bwi_buf_put(data, raw.ptr, raw.len);
    } else {
        assert_true(bwi_buf_reserve(data, ZSTD_compressBound(raw.len)));
        const size_t n = ZSTD_compress(data->ptr + data->len, ZSTD_compressBound(raw.len), raw.ptr, raw.len, 3);
        assert_false(ZSTD_isError(n));
        place->stored_bytes = n;
        data->len += n;
    }
    place->stored = bwi_xxh_of(bwi_span(data->ptr + data->len - place->stored_bytes, place->stored_bytes));
}

/* A header of one U8 entry over n bytes; at 4 KiB it always fits. */
static void make_header(uint64_t n, struct bwi_buf *out) {
    struct bw_error err = BW_ERROR_INIT;
    struct bwi_pack_entry e = {.name = bwi_span_str("bw:0"), .dtype = BW_U8, .dims = 1, .shape = {n}, .end = n};
    const struct bwi_pack_header h = {.entries = &e, .count = 1, .cap = 1, .data_bytes = n};
    assert_ok(bwi_pack_header_encode(&h, BWI_PACK_ALIGN, out, &err), &err);
    assert_int_equal(out->len, BWI_PACK_ALIGN);
}

void fixture_repack(struct fixture *f, uint32_t group, enum bwi_tier tier, uint8_t codec, const struct bwi_id *into) {
    struct bwi_group_meta m;
    struct bwi_buf data = {0};
    struct bwi_buf file = {0};
    fixture_meta(f, group, tier, &m);
    struct bwi_buf *packs = bwi_calloc(m.placement.pack_count + 1, sizeof *packs);
    struct bwi_place *places = bwi_calloc(m.placement.extent_count, sizeof *places);
    assert_true(packs != NULL && places != NULL);
    if (into != NULL) bwi_buf_put(&data, "bytes of somebody else, not zero", 32);
    for (uint32_t i = 0; i < m.placement.pack_count; i++) {
        struct bwi_key key = {{0}};
        memcpy(key.s, m.placement.packs[i].key.ptr, m.placement.packs[i].key.len);
        assert_true(world_get(f->w, tier, key.s, &packs[i]));
    }
    for (uint64_t e = 0; e < m.placement.extent_count; e++) {
        const struct bwi_place *from = &m.placement.places[e];
        add_extent(&data, &places[e], bwi_span(packs[from->pack].ptr + from->offset, from->stored_bytes), codec,
                   BWI_PACK_ALIGN);
    }
    make_header(data.len, &file);
    const struct bwi_xxh header = bwi_xxh_of(bwi_buf_span(&file));
    bwi_buf_put(&file, data.ptr, data.len);
    const struct bwi_id *id = into == NULL ? &f->id : into;
    const uint64_t writer = f->w->ctx.writer + 1;
    const struct bwi_key key = bwi_key_pack(f->w->ctx.run, f->fan_out, id, group, 0, writer);
    world_put(f->w, tier, key.s, bwi_buf_span(&file));
    struct bwi_pack_ref ref = {bwi_span_str(key.s), file.len, BWI_PACK_ALIGN, header};
    struct bwi_placement p = {m.summary.content, writer, 1, &ref, m.placement.extent_count, places};
    if (into != NULL) {
        m.summary.ref_count = 1;
        m.summary.refs[0] = *into;
    }
    put_summary(f, tier, &m.summary, &p);
    for (uint32_t i = 0; i < m.placement.pack_count; i++) bwi_buf_fini(&packs[i]);
    bwi_free(packs);
    bwi_free(places);
    bwi_buf_fini(&data);
    bwi_buf_fini(&file);
    bwi_group_meta_fini(&m);
}

void fixture_save_repacked(struct fixture *f, uint8_t codec, const struct bwi_id *into) {
    for (uint32_t g = 0; g < f->world; g++) {
        for (int t = 0; t < BWI_TIERS; t++) fixture_save_group(f, g, (enum bwi_tier)t);
        fixture_repack(f, g, BWI_TIER_REMOTE, codec, into);
    }
    fixture_commit(f);
}

/* ---- damage ---- */

const char *fixture_damage_name(enum fixture_damage d) {
    static const char *const names[] = {"flip", "truncate", "extend", "delete", "swap"};
    return names[d];
}

void fixture_damage(struct world *w, enum bwi_tier tier, const char *key, enum fixture_damage d, uint64_t at) {
    struct bwi_buf bytes = {0};
    if (d == FIXTURE_DELETE) {
        struct single s = {0};
        bwi_call_prepare(&s.call, BWI_STORE_DELETE, key);
        single_run(w, &s, tier);
        assert_ok(s.call.op.error.status, &s.call.op.error);
        return;
    }
    assert_true(world_get(w, tier, key, &bytes));
    assert_true(bytes.len > 0);
    if (at == UINT64_MAX) at = bytes.len / 2;
    if (d == FIXTURE_FLIP) bytes.ptr[at] ^= 0x10;
    if (d == FIXTURE_TRUNCATE) bytes.len--;
    if (d == FIXTURE_EXTEND) bwi_buf_u8(&bytes, 0);
    if (d == FIXTURE_SWAP) {
        for (size_t i = 0; i < bytes.len; i++) bytes.ptr[i] = (uint8_t)(bytes.ptr[i] ^ 0xa5);
    }
    world_put(w, tier, key, bwi_buf_span(&bytes));
    bwi_buf_fini(&bytes);
}
