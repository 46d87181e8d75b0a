/* SPDX-License-Identifier: Apache-2.0 */
/* The binary formats: layout, content and placement, index; and the header of a pack, which safetensors prescribes. */
#include "format/content.h"
#include "format/index.h"
#include "format/layout.h"
#include "format/pack.h"
#include "format_cases.h"
#include <breakwater/tensor.h>
#include <stdlib.h>
#include <string.h>

#define NAME_BYTES 64
#define LOOKUPS    ((size_t)1000)

/* Names in the order of their bytes, as those of a model are in a layout. */
static char (*names_new(size_t count))[NAME_BYTES] {
    char(*names)[NAME_BYTES] = bench_alloc(count, sizeof *names);
    for (size_t i = 0; i < count; i++) snprintf(names[i], NAME_BYTES, "model.layers.%08zu.self_attn.q_proj.weight", i);
    return names;
}

/* What a buffer holds, in memory of its own; free it. */
static struct bwi_span copy_of(const struct bwi_buf *b) {
    uint8_t *p = bench_alloc(b->len, 1);
    if (b->failed) bench_die("memory", "not enough");
    if (b->len > 0) memcpy(p, b->ptr, b->len);
    return bwi_span(p, b->len);
}

static void span_free(struct bwi_span s) {
    free((void *)(uintptr_t)s.ptr);
}

/* Names to look up, all over the list, one behind the other. */
struct lookups {
    struct bwi_buf text;
    struct bwi_span *names;
    size_t count;
};

static void lookups_init(struct lookups *l, char (*names)[NAME_BYTES], size_t count) {
    l->count = LOOKUPS;
    l->names = bench_alloc(l->count, sizeof *l->names);
    for (size_t i = 0; i < l->count; i++) {
        l->names[i] = bwi_span_str(names[i * 7919 % count]);
        bwi_buf_put(&l->text, l->names[i].ptr, l->names[i].len);
    }
    if (l->text.failed) bench_die("memory", "not enough");
}

static void lookups_drop(struct lookups *l) {
    bwi_buf_fini(&l->text);
    free(l->names);
}

/* ---- groups of a job ---- */

/* Tensors of [rows x 4096], cut into rows: tensor t is in `spread` groups in a row, from group t * spread on. */
struct job {
    size_t tensors, groups, spread;
    char (*names)[NAME_BYTES];
    uint64_t shape[2];
    uint64_t (*offsets)[2], extent[2]; /* by the number of the piece */
    struct bwi_layout *layouts;        /* by group */
    uint32_t *ranks;
};

static void job_add(struct job *j, size_t tensor, size_t piece) {
    struct bwi_layout *l = &j->layouts[(tensor * j->spread + piece) % j->groups];
    uint32_t n = l->tensor_count++;
    l->tensors[n] = (struct bwi_tensor){bwi_span_str(j->names[tensor]), BW_BF16, 2, j->shape};
    l->boxes[l->box_count++] = (struct bwi_box){n, l->ranks[0], BWI_NOT_TIED, j->offsets[piece], j->extent};
}

static void job_init(struct job *j, size_t tensors, size_t groups, size_t spread) {
    *j = (struct job){.tensors = tensors, .groups = groups, .spread = spread < groups ? spread : groups};
    size_t room = tensors * j->spread / groups + 1;
    j->names = names_new(tensors);
    j->shape[0] = 8 * j->spread, j->shape[1] = 4096;
    j->extent[0] = 8, j->extent[1] = 4096;
    j->offsets = bench_alloc(j->spread, sizeof *j->offsets);
    for (size_t p = 0; p < j->spread; p++) j->offsets[p][0] = 8 * p;
    j->layouts = bench_alloc(groups, sizeof *j->layouts);
    j->ranks = bench_alloc(groups, sizeof *j->ranks);
    for (size_t g = 0; g < groups; g++) {
        j->ranks[g] = (uint32_t)g;
        j->layouts[g] = (struct bwi_layout){.ranks = &j->ranks[g], .rank_count = 1};
        j->layouts[g].tensors = bench_alloc(room, sizeof *j->layouts[g].tensors);
        j->layouts[g].boxes = bench_alloc(room, sizeof *j->layouts[g].boxes);
    }
    for (size_t t = 0; t < tensors; t++) {
        for (size_t p = 0; p < j->spread; p++) job_add(j, t, p);
    }
}

static void job_drop(struct job *j) {
    for (size_t g = 0; g < j->groups; g++) {
        free(j->layouts[g].tensors);
        free(j->layouts[g].boxes);
    }
    free(j->layouts);
    free(j->ranks);
    free(j->offsets);
    free(j->names);
}

/* ---- layout ---- */

struct layout_state {
    struct bwi_layout *layout;
    struct bwi_buf out;
    struct lookups lookups;
};

static int run_layout_encode(void *state, struct bw_error *err) {
    struct layout_state *s = state;
    bwi_buf_reset(&s->out);
    return bwi_layout_encode(s->layout, &s->out, err);
}

static int run_layout_decode(void *state, struct bw_error *err) {
    struct bwi_layout l;
    int rc = bwi_layout_decode(*(const struct bwi_span *)state, &l, err);
    if (rc == 0) bwi_layout_fini(&l);
    return rc;
}

static int run_layout_find(void *state, struct bw_error *err) {
    (void)err;
    const struct layout_state *s = state;
    uint32_t tensor = 0;
    for (size_t i = 0; i < s->lookups.count; i++) {
        if (!bwi_layout_find(s->layout, s->lookups.names[i], &tensor)) return BW_E_INTERNAL;
    }
    return 0;
}

static void layout_of(struct compare *c, size_t tensors) {
    struct bw_error err = BW_ERROR_INIT;
    struct job j;
    job_init(&j, tensors, 1, 1);
    struct layout_state s = {.layout = &j.layouts[0]};
    lookups_init(&s.lookups, j.names, tensors);
    compare_must(run_layout_encode(&s, &err), &err, "layout");
    struct bwi_span in = copy_of(&s.out), text = bwi_buf_span(&s.lookups.text);
    compare_subject(c, "layout: %zu tensors, %zu bytes", tensors, in.len);
    compare_run(c, &(struct compare_case){"encode", run_layout_encode, &s, 0, in, COMPARE_SHA256, tensors});
    compare_run(c, &(struct compare_case){"decode", run_layout_decode, &in, 0, in, COMPARE_SHA256, tensors});
    compare_run(c, &(struct compare_case){"find names", run_layout_find, &s, 0, text, COMPARE_XXH3, LOOKUPS});
    span_free(in);
    bwi_buf_fini(&s.out);
    lookups_drop(&s.lookups);
    job_drop(&j);
}

void cases_layout(struct compare *c) {
    layout_of(c, compare_size(c, 10000));
    layout_of(c, compare_size(c, 100000));
}

/* ---- content and placement ---- */

struct bulk {
    struct bwi_content content;
    struct bwi_placement placement;
    struct bwi_id id;
    struct bwi_buf out;
};

static int run_content_encode(void *state, struct bw_error *err) {
    struct bulk *k = state;
    bwi_buf_reset(&k->out);
    return bwi_content_encode(&k->content, &k->out, err);
}

static int run_content_decode(void *state, struct bw_error *err) {
    struct bwi_content content;
    int rc = bwi_content_decode(*(const struct bwi_span *)state, &content, err);
    if (rc == 0) bwi_content_fini(&content);
    return rc;
}

static int run_placement_encode(void *state, struct bw_error *err) {
    struct bulk *k = state;
    bwi_buf_reset(&k->out);
    return bwi_placement_encode(&k->placement, &k->out, err);
}

static int run_placement_decode(void *state, struct bw_error *err) {
    struct bwi_placement placement;
    int rc = bwi_placement_decode(*(const struct bwi_span *)state, &placement, err);
    if (rc == 0) bwi_placement_fini(&placement);
    return rc;
}

static int run_placement_check(void *state, struct bw_error *err) {
    const struct bulk *k = state;
    return bwi_placement_check(&k->placement, &k->content, "bench", &k->id, NULL, 0, err);
}

/* `extents` whole ones, a hundred an item, in eight packs. */
static void bulk_init(struct bulk *k, size_t extents, struct bwi_key *keys, struct bwi_pack_ref *packs) {
    struct bwi_content *t = &k->content;
    struct bwi_placement *p = &k->placement;
    size_t items = (extents + 99) / 100, per_pack = (extents + 7) / 8;
    static struct bwi_span meta; /* of one rank: none */
    k->id = (struct bwi_id){.step = 7, .attempt = 1, .nonce = 5};
    *t = (struct bwi_content){.extent_bytes = BWI_EXTENT_BYTES, .item_count = (uint32_t)items, .meta_count = 1};
    t->meta = &meta, t->extent_count = extents;
    t->raw_bytes = bench_alloc(items, sizeof *t->raw_bytes);
    t->first_extent = bench_alloc(items + 1, sizeof *t->first_extent);
    t->extents = bench_alloc(extents, sizeof *t->extents);
    for (size_t i = 0; i <= items; i++) t->first_extent[i] = i * 100 < extents ? i * 100 : extents;
    for (size_t i = 0; i < items; i++)
        t->raw_bytes[i] = (t->first_extent[i + 1] - t->first_extent[i]) * BWI_EXTENT_BYTES;
    *p = (struct bwi_placement){.writer = 1, .pack_count = 8, .packs = packs, .extent_count = extents};
    p->places = bench_alloc(extents, sizeof *p->places);
    for (uint32_t i = 0; i < 8; i++) {
        keys[i] = bwi_key_pack("bench", false, &k->id, 0, i, 1);
        packs[i] = (struct bwi_pack_ref){bwi_span_str(keys[i].s), 4096 + per_pack * BWI_EXTENT_BYTES, 4096, {{0}}};
    }
    for (size_t e = 0; e < extents; e++) {
        t->extents[e] = bwi_xxh_of(bwi_span(&e, sizeof e));
        p->places[e] = (struct bwi_place){(uint32_t)(e / per_pack), BWI_CODEC_RAW,
                                          4096 + e % per_pack * BWI_EXTENT_BYTES, BWI_EXTENT_BYTES, t->extents[e]};
    }
}

static void bulk_drop(struct bulk *k) {
    free(k->content.raw_bytes);
    free(k->content.first_extent);
    free(k->content.extents);
    free(k->placement.places);
    bwi_buf_fini(&k->out);
}

static void content_of(struct compare *c, size_t n) {
    struct bw_error err = BW_ERROR_INIT;
    struct bulk k = {0};
    struct bwi_key keys[8];
    struct bwi_pack_ref packs[8];
    bulk_init(&k, n, keys, packs);
    compare_must(run_content_encode(&k, &err), &err, "content");
    struct bwi_span in = copy_of(&k.out);
    k.placement.content = bwi_sha_of(in);
    compare_subject(c, "content: %zu extents of 4 MiB, %zu bytes", n, in.len);
    compare_run(c, &(struct compare_case){"encode", run_content_encode, &k, 0, in, COMPARE_SHA256, n});
    compare_run(c, &(struct compare_case){"decode", run_content_decode, &in, 0, in, COMPARE_SHA256, n});
    span_free(in);
    compare_must(run_placement_encode(&k, &err), &err, "placement");
    in = copy_of(&k.out);
    compare_subject(c, "placement: %zu extents of 4 MiB in eight packs, %zu bytes", n, in.len);
    compare_run(c, &(struct compare_case){"encode", run_placement_encode, &k, 0, in, COMPARE_SHA256, n});
    compare_run(c, &(struct compare_case){"decode", run_placement_decode, &in, 0, in, COMPARE_SHA256, n});
    compare_run(c, &(struct compare_case){"check against content", run_placement_check, &k, 0, in, COMPARE_SHA256, n});
    span_free(in);
    bulk_drop(&k);
}

void cases_content(struct compare *c) {
    content_of(c, compare_size(c, 100000));
}

/* ---- index ---- */

struct index_state {
    const struct job *job;
    struct bwi_index_builder *builder; /* all groups in it, sorted */
    struct bwi_buf out;
    struct bwi_index_info info;
    struct bwi_span in;
    struct bwi_index_head head;
    struct lookups lookups;
    uint32_t blocks; /* to look tensors up in */
};

static int build(const struct job *j, struct bwi_index_builder **ret, struct bw_error *err) {
    int rc = bwi_index_builder_new(ret, err);
    for (size_t g = 0; g < j->groups && rc == 0; g++)
        rc = bwi_index_builder_add(*ret, (uint32_t)g, &j->layouts[g], err);
    return rc;
}

static int run_index_build(void *state, struct bw_error *err) {
    struct index_state *s = state;
    struct bwi_index_builder *b = NULL;
    int rc = build(s->job, &b, err);
    bwi_buf_reset(&s->out);
    if (rc == 0) rc = bwi_index_builder_encode(b, &s->out, &s->info, err);
    bwi_index_builder_free(b);
    return rc;
}

static int run_index_encode(void *state, struct bw_error *err) {
    struct index_state *s = state;
    bwi_buf_reset(&s->out);
    return bwi_index_builder_encode(s->builder, &s->out, &s->info, err);
}

static int run_index_head(void *state, struct bw_error *err) {
    const struct index_state *s = state;
    struct bwi_index_head h;
    int rc = bwi_index_head_decode(bwi_span(s->in.ptr, s->info.head_bytes), &h, err);
    if (rc == 0) bwi_index_head_fini(&h);
    return rc;
}

static struct bwi_span block_of(const struct index_state *s, uint32_t n) {
    return bwi_span(s->in.ptr + s->head.blocks[n].offset, s->head.blocks[n].bytes);
}

static int run_index_decode(void *state, struct bw_error *err) {
    const struct index_state *s = state;
    int rc = run_index_head(state, err);
    for (uint32_t i = 0; i < s->head.block_count && rc == 0; i++) {
        struct bwi_index_block b;
        rc = bwi_index_block_decode(block_of(s, i), &s->head.blocks[i], &b, err);
        if (rc == 0) bwi_index_block_fini(&b);
    }
    return rc;
}

static int run_index_find(void *state, struct bw_error *err) {
    (void)err;
    const struct index_state *s = state;
    uint32_t block = 0;
    for (size_t i = 0; i < s->lookups.count; i++) {
        if (!bwi_index_head_find(&s->head, s->lookups.names[i], &block)) return BW_E_INTERNAL;
    }
    return 0;
}

/* What a reader of one tensor does: finds its block, checks and decodes that. The first tensors of the first blocks, so
 * that the bytes read lie in a row and can be hashed for comparison. */
static int run_index_read(void *state, struct bw_error *err) {
    const struct index_state *s = state;
    for (uint32_t i = 0; i < s->blocks; i++) {
        uint32_t n = 0;
        struct bwi_index_block b;
        if (!bwi_index_head_find(&s->head, s->head.blocks[i].first_name, &n) || n != i) return BW_E_INTERNAL;
        int rc = bwi_index_block_decode(block_of(s, n), &s->head.blocks[n], &b, err);
        if (rc < 0) return rc;
        bool found = b.tensor_count > 0 && bwi_span_eq(b.tensors[0].name, s->head.blocks[i].first_name);
        bwi_index_block_fini(&b);
        if (!found) return BW_E_INTERNAL;
    }
    return 0;
}

static void index_figures(struct compare *c, struct index_state *s) {
    const struct job *j = s->job;
    struct bwi_span head = bwi_span(s->in.ptr, s->info.head_bytes), text = bwi_buf_span(&s->lookups.text);
    const struct bwi_index_block_ref *last = &s->head.blocks[s->blocks - 1];
    struct bwi_span read = bwi_span(s->in.ptr + head.len, last->offset + last->bytes - head.len);
    size_t boxes = s->info.boxes;
    compare_subject(c, "index: %zu tensors in %zu groups, %zu boxes, %u blocks, %zu bytes", j->tensors, j->groups,
                    boxes, s->head.block_count, s->in.len);
    compare_run(c, &(struct compare_case){"build and encode", run_index_build, s, 0, s->in, COMPARE_SHA256, boxes});
    compare_run(c, &(struct compare_case){"encode", run_index_encode, s, 0, s->in, COMPARE_SHA256, boxes});
    compare_run(c, &(struct compare_case){"decode", run_index_decode, s, 0, s->in, COMPARE_SHA256, boxes});
    compare_run(c, &(struct compare_case){"decode the head", run_index_head, s, 0, head, COMPARE_SHA256, 1});
    compare_run(c, &(struct compare_case){"find blocks", run_index_find, s, 0, text, COMPARE_XXH3, LOOKUPS});
    compare_run(c, &(struct compare_case){"read one tensor", run_index_read, s, 0, read, COMPARE_SHA256, s->blocks});
}

static void index_of(struct compare *c, size_t tensors, size_t groups, size_t spread) {
    struct bw_error err = BW_ERROR_INIT;
    struct job j;
    job_init(&j, tensors, groups, spread);
    struct index_state s = {.job = &j};
    lookups_init(&s.lookups, j.names, tensors);
    compare_must(build(&j, &s.builder, &err), &err, "index");
    compare_must(run_index_encode(&s, &err), &err, "index");
    s.in = copy_of(&s.out);
    compare_must(bwi_index_head_decode(bwi_span(s.in.ptr, s.info.head_bytes), &s.head, &err), &err, "index");
    s.blocks = s.head.block_count < 64 ? s.head.block_count : 64;
    index_figures(c, &s);
    bwi_index_head_fini(&s.head);
    bwi_index_builder_free(s.builder);
    span_free(s.in);
    bwi_buf_fini(&s.out);
    lookups_drop(&s.lookups);
    job_drop(&j);
}

void cases_index(struct compare *c) {
    size_t some = compare_size(c, 1024), many = compare_size(c, 10000);
    index_of(c, compare_size(c, 10000), some, 8);
    index_of(c, compare_size(c, 100000), many, 8);
    index_of(c, compare_size(c, 1000), some, some); /* every tensor cut over all groups */
}

/* ---- header of a pack ---- */

struct pack_state {
    struct bwi_pack_header header;
    struct bwi_buf out;
    struct bwi_span in;
    uint64_t file_bytes;
};

static int run_pack_encode(void *state, struct bw_error *err) {
    struct pack_state *s = state;
    bwi_buf_reset(&s->out);
    return bwi_pack_header_encode(&s->header, BWI_PACK_ALIGN, &s->out, err);
}

static int run_pack_decode(void *state, struct bw_error *err) {
    const struct pack_state *s = state;
    struct bwi_pack_header h;
    int rc = bwi_pack_header_decode(s->in, s->file_bytes, &h, err);
    if (rc == 0) bwi_pack_header_fini(&h);
    return rc;
}

static void pack_of(struct compare *c, size_t tensors) {
    struct bw_error err = BW_ERROR_INIT;
    struct pack_state s = {.header = {.count = tensors, .data_bytes = 12 * tensors}};
    char(*names)[NAME_BYTES] = names_new(tensors);
    s.header.entries = bench_alloc(tensors, sizeof *s.header.entries);
    for (size_t i = 0; i < tensors; i++) {
        struct bwi_pack_entry *e = &s.header.entries[i];
        e->name = bwi_span_str(names[i]), e->dtype = BW_F32, e->dims = 1, e->shape[0] = 3;
        e->begin = 12 * i, e->end = e->begin + 12;
    }
    compare_must(run_pack_encode(&s, &err), &err, "pack");
    s.in = copy_of(&s.out);
    s.file_bytes = s.in.len + s.header.data_bytes;
    compare_subject(c, "pack: header of %zu tensors, %zu bytes", tensors, s.in.len);
    compare_run(c, &(struct compare_case){"encode", run_pack_encode, &s, 0, s.in, COMPARE_SHA256, tensors});
    compare_run(c, &(struct compare_case){"decode", run_pack_decode, &s, 0, s.in, COMPARE_SHA256, tensors});
    span_free(s.in);
    bwi_buf_fini(&s.out);
    free(s.header.entries);
    free(names);
}

/* A header full of one text over and over, after `head`. */
static void pack_hostile(struct compare *c, const char *name, const char *head, const char *text, int want) {
    size_t bytes = compare_size(c, BWI_PACK_HEADER_MAX), at = 8 + strlen(head), part = strlen(text);
    uint8_t *p = bench_alloc(8 + bytes, 1);
    bwi_put_le64(p, bytes);
    memset(p + 8, ' ', bytes);
    memcpy(p + 8, head, strlen(head));
    for (; at + part + 1 <= 8 + bytes; at += part) memcpy(p + at, text, part);
    if (p[at - 1] == ',') p[at - 1] = '}'; /* so that only what is meant is wrong with it */
    struct pack_state s = {.in = bwi_span(p, 8 + bytes), .file_bytes = 8 + bytes};
    compare_run(c, &(struct compare_case){name, run_pack_decode, &s, want, s.in, COMPARE_SHA256, 1});
    free(p);
}

void cases_pack(struct compare *c) {
    pack_of(c, compare_size(c, 10000));
    pack_of(c, compare_size(c, 100000));
    compare_subject(c, "pack: hostile headers of %zu bytes, to be refused", compare_size(c, BWI_PACK_HEADER_MAX));
    pack_hostile(c, "refuse depth", "{\"a\":", "[", BW_E_FORMAT);
    pack_hostile(c, "refuse nested objects", "", "{\"a\":", BW_E_UNSUPPORTED);
    pack_hostile(c, "refuse repeated names", "{", "\"a\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]},",
                 BW_E_FORMAT);
}
