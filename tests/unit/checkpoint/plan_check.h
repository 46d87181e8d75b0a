/* SPDX-License-Identifier: Apache-2.0 */
/* Checks a plan against what the formats ask for, with none of the planner's own code: writes every pack into memory
 * chunk by chunk, decodes what was written, and compares each item's bytes with a walk over the memory that it came
 * from. */
#ifndef BW_TEST_PLAN_CHECK_H
#define BW_TEST_PLAN_CHECK_H

#include "base/checked.h"
#include "boxes.h"
#include "format/id.h"

struct written {
    uint8_t **files;
    struct bwi_pack_header *headers;
};

static inline void written_free(struct written *w, const struct bwi_plan *p) {
    for (size_t i = 0; i < p->pack_count; i++) {
        free(w->files[i]);
        bwi_pack_header_fini(&w->headers[i]);
    }
    free(w->files);
    free(w->headers);
}

/* Chunks follow each other without a hole, on 4 KiB, to the end of the file; pieces lie in their chunk, in order. */
static inline void write_pack(struct bwi_plan *p, size_t n, uint8_t *file) {
    const struct bwi_pack_plan *pack = &p->packs[n];
    assert_int_equal(pack->header.len % 4096, 0);
    memcpy(file, pack->header.ptr, pack->header.len);
    uint64_t at = pack->header.len;
    for (size_t i = 0; i < pack->chunks; i++) {
        const struct bwi_chunk *c = &p->chunks[pack->first_chunk + i];
        assert_int_equal(c->pack_offset, at);
        assert_int_equal(at % 4096, 0);
        assert_true(c->pieces > 0 && c->bytes > 0);
        assert_true(c->bytes <= p->content.extent_bytes + 4096);
        uint64_t end = at;
        for (size_t k = 0; k < c->pieces; k++) {
            const struct bwi_piece *piece = &p->pieces[c->first_piece + k];
            assert_true(piece->pack_offset >= end && piece->bytes > 0);
            end = piece->pack_offset + piece->bytes;
            assert_int_equal(p->places[piece->extent].pack, n);
            assert_int_equal(p->places[piece->extent].offset, piece->pack_offset);
            assert_int_equal(p->places[piece->extent].stored_bytes, piece->bytes);
        }
        assert_true(end <= at + c->bytes);
        uint8_t *buffer = malloc(c->bytes); /* to the byte: a sanitizer sees what is written beside it */
        memset(buffer, 0xdb, c->bytes);
        bwi_plan_fill(p, c, buffer);
        bwi_plan_hash(p, c, buffer);
        memcpy(file + at, buffer, c->bytes);
        free(buffer);
        at += c->bytes;
    }
    assert_int_equal(at, pack->file_bytes);
}

/* Chunks and pieces are numbered through, none is left out and none belongs to two. */
static inline void check_numbering(const struct bwi_plan *p) {
    size_t chunk = 0;
    size_t piece = 0;
    for (size_t i = 0; i < p->pack_count; i++) {
        assert_int_equal(p->packs[i].first_chunk, chunk);
        for (size_t k = 0; k < p->packs[i].chunks; k++, chunk++) {
            assert_int_equal(p->chunks[chunk].first_piece, piece);
            piece += p->chunks[chunk].pieces;
        }
    }
    assert_int_equal(chunk, p->chunk_count);
    assert_int_equal(piece, p->piece_count);
    assert_int_equal(piece, p->content.extent_count);
}

static inline struct written write_packs(struct bwi_plan *p) {
    struct bw_error err = BW_ERROR_INIT;
    struct written w = {calloc(p->pack_count + 1, sizeof *w.files), calloc(p->pack_count + 1, sizeof *w.headers)};
    uint64_t stored = 0;
    check_numbering(p);
    for (size_t i = 0; i < p->pack_count; i++) {
        w.files[i] = malloc(p->packs[i].file_bytes);
        assert_non_null(w.files[i]);
        write_pack(p, i, w.files[i]);
        stored += p->packs[i].file_bytes;
        assert_ok(bwi_pack_header_decode(bwi_span(w.files[i], p->packs[i].header.len), p->packs[i].file_bytes,
                                         &w.headers[i], &err),
                  &err);
        assert_true(p->packs[i].header.len - 8 <= BWI_PACK_HEADER_MAX);
        assert_int_equal(p->packs[i].header.len + w.headers[i].data_bytes, p->packs[i].file_bytes);
        assert_true(bwi_span_eq(w.headers[i].metadata, bwi_span_str("{\"breakwater\":\"1.0\"}")));
    }
    assert_int_equal(stored, p->stored_bytes);
    return w;
}

static inline bool own_name_expected(const struct bwi_tensor_source *s) {
    return s->dtype <= BW_U64 && strcmp(s->name, "__metadata__") != 0 && strncmp(s->name, "bw:", 3) != 0;
}

/* The entry of a pack that begins at `offset` of its file and is not empty. */
static inline struct bwi_pack_entry entry_at(const struct bwi_plan *p, const struct written *w, size_t pack,
                                             uint64_t offset) {
    for (size_t i = 0; i < w->headers[pack].count; i++) {
        const struct bwi_pack_entry *e = &w->headers[pack].entries[i];
        if (e->end > e->begin && p->packs[pack].header.len + e->begin == offset) return *e;
    }
    fail();
    return (struct bwi_pack_entry){0};
}

/* The bytes of an item as they lie in packs, extent by extent, each with its hash. `marks`: per pack, which of its
 * bytes belong to an item. */
static inline void check_item(const struct bwi_plan *p, const struct written *w, uint32_t item, uint8_t **marks) {
    const struct bwi_item_source *src = &p->items[item];
    const uint64_t bytes = p->content.raw_bytes[item];
    uint8_t *image = src->tensor != NULL ? image_of(src->tensor) : NULL;
    const uint8_t *want = src->tensor != NULL ? image : src->blob->data;
    for (uint64_t done = 0, e = p->content.first_extent[item]; done < bytes; e++) {
        const struct bwi_place *at = &p->places[e];
        const uint64_t n = bwi_min_u64(p->content.extent_bytes, bytes - done);
        assert_int_equal(at->codec, BWI_CODEC_RAW);
        assert_int_equal(at->stored_bytes, n);
        assert_true(at->offset + n <= p->packs[at->pack].file_bytes);
        assert_memory_equal(w->files[at->pack] + at->offset, want + done, n);
        const struct bwi_xxh hash = bwi_xxh_of(bwi_span(want + done, n));
        assert_true(bwi_xxh_eq(&hash, &at->stored));
        assert_true(bwi_xxh_eq(&hash, &p->content.extents[e]));
        for (uint64_t b = 0; b < n; b++) assert_int_equal(marks[at->pack][at->offset + b]++, 0);
        done += n;
    }
    free(image);
}

static inline void check_entry(const struct bwi_plan *p, const struct written *w, uint32_t item) {
    const struct bwi_tensor_source *s = p->items[item].tensor;
    const uint64_t bytes = p->content.raw_bytes[item];
    if (bytes == 0) return;
    const struct bwi_place *at = &p->places[p->content.first_extent[item]];
    const struct bwi_pack_entry e = entry_at(p, w, at->pack, at->offset);
    assert_int_equal(e.end - e.begin, bytes);
    if (bytes >= BWI_PACK_BIG_BYTES) assert_int_equal(at->offset % 4096, 0);
    if (s == NULL || !own_name_expected(s)) {
        assert_int_equal(e.dtype, BW_U8);
        assert_int_equal(e.dims, 1);
        assert_memory_equal(e.name.ptr, "bw:", 3);
    } else {
        assert_true(bwi_span_eq(e.name, bwi_span_str(s->name)));
        assert_int_equal(e.dtype, s->dtype);
        assert_int_equal(e.dims, s->dims);
        assert_memory_equal(e.shape, s->extent, s->dims * sizeof e.shape[0]);
    }
    if (s != NULL) assert_int_equal(at->offset % bw_dtype_bytes(s->dtype), 0);
}

/* What belongs to no item is zero, and lies in pads that end on 4 KiB. Format names count through each pack. */
static inline void check_pads(const struct bwi_plan *p, const struct written *w, uint8_t **marks) {
    for (size_t i = 0; i < p->pack_count; i++) {
        const uint64_t header = p->packs[i].header.len;
        unsigned unnamed = 0;
        for (size_t k = 0; k < w->headers[i].count; k++) {
            const struct bwi_pack_entry *e = &w->headers[i].entries[k];
            char name[32];
            snprintf(name, sizeof name, "bw:%u", unnamed);
            const bool is_next = bwi_span_eq(e->name, bwi_span_str(name));
            if (e->name.len >= 3 && memcmp(e->name.ptr, "bw:", 3) == 0) assert_true(is_next);
            unnamed += is_next;
            if (e->begin == e->end || marks[i][header + e->begin] != 0) continue;
            assert_true(is_next && e->end - e->begin < 4096 && e->end % 4096 == 0);
            assert_true(k + 1 < w->headers[i].count);
            for (uint64_t b = header + e->begin; b < header + e->end; b++) {
                assert_int_equal(w->files[i][b] | marks[i][b], 0);
            }
        }
    }
}

/* Encodes and decodes layout, content and placement and lets their own checks judge them. */
static inline void check_formats(const struct bwi_plan *p) {
    struct bw_error err = BW_ERROR_INIT;
    struct bwi_layout l;
    assert_ok(bwi_layout_decode(bwi_buf_span(&p->layout_bytes), &l, &err), &err);
    const struct bwi_sha sha = bwi_sha_of(bwi_buf_span(&p->layout_bytes));
    assert_true(bwi_sha_eq(&sha, &p->layout_sha) && bwi_sha_eq(&sha, &p->content.layout));
    struct bwi_buf bytes = {0};
    struct bwi_content c;
    assert_ok(bwi_content_encode(&p->content, &bytes, &err), &err);
    assert_ok(bwi_content_decode(bwi_buf_span(&bytes), &c, &err), &err);
    assert_ok(bwi_content_check(&c, &l, &err), &err);

    const struct bwi_id id = {7, 1, 0xabcd, 0};
    struct bwi_pack_ref *refs = calloc(p->pack_count + 1, sizeof *refs);
    struct bwi_key *keys = calloc(p->pack_count + 1, sizeof *keys);
    for (size_t i = 0; i < p->pack_count; i++) {
        keys[i] = bwi_key_pack("run", false, &id, 0, (uint32_t)i, 99);
        refs[i] = (struct bwi_pack_ref){bwi_span_str(keys[i].s), p->packs[i].file_bytes, p->packs[i].header.len,
                                        bwi_xxh_of(bwi_buf_span(&p->packs[i].header))};
    }
    const struct bwi_placement placement = {bwi_sha_of(bwi_buf_span(&bytes)), 99,       (uint32_t)p->pack_count, refs,
                                            p->content.extent_count,          p->places};
    assert_ok(bwi_placement_check(&placement, &c, "run", &id, NULL, 0, &err), &err);
    free(refs);
    free(keys);
    bwi_buf_fini(&bytes);
    bwi_content_fini(&c);
    bwi_layout_fini(&l);
}

static inline void check_plan(struct bwi_plan *p) {
    struct written w = write_packs(p);
    uint8_t **marks = calloc(p->pack_count + 1, sizeof *marks);
    for (size_t i = 0; i < p->pack_count; i++) marks[i] = calloc(p->packs[i].file_bytes, 1);
    uint64_t raw = 0;
    for (uint32_t i = 0; i < p->content.item_count; i++) {
        check_item(p, &w, i, marks);
        check_entry(p, &w, i);
        raw += p->content.raw_bytes[i];
    }
    assert_int_equal(raw, p->raw_bytes);
    check_pads(p, &w, marks);
    check_formats(p);
    for (size_t i = 0; i < p->pack_count; i++) free(marks[i]);
    free(marks);
    written_free(&w, p);
}

#endif
