/* SPDX-License-Identifier: Apache-2.0 */
/* Placements to bytes and back, and whether a placement can be followed: into the right packs, behind their headers,
 * without overlap. */
#include "base/checked.h"
#include "base/error.h"
#include "base/map.h"
#include "base/vec.h"
#include "format/content.h"
#include "format/head.h"
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define PACK_MIN          35u /* bytes of the shortest record of a pack */
#define PLACE_BYTES       40u
#define PACK_HEADER_LEAST UINT64_C(10) /* 8 bytes of length and "{}" */
#define PACK_HEADER_MOST  (BWI_PACK_HEADER_MAX + 8)
#define ZSTD_MOST         ((UINT64_C(16) << 20) + (UINT64_C(64) << 10)) /* above the worst case for an extent */

static const struct bwi_object_head HEAD = {"BWPLACMT", "placement"};

/* ---- the rules ---- */

static int check_counts(const struct bwi_placement *p, const struct bwi_blame *b) {
    int rc = bwi_head_limit(b, p->pack_count, BWI_PACKS_MAX, "packs");
    if (rc == 0) rc = bwi_head_limit(b, p->extent_count, BWI_EXTENTS_MAX, "extents");
    return rc;
}

/* Takes a pack's key apart. The text of a key that is none is not repeated: it may be anything. */
static int parse_key(struct bwi_span key, uint32_t i, const struct bwi_blame *b, struct bwi_key_parts *ret) {
    struct bwi_key k = {{0}};
    if (key.len < sizeof k.s) {
        if (key.len > 0) memcpy(k.s, key.ptr, key.len);
        if (strlen(k.s) == key.len && bwi_key_parse(k.s, ret) && ret->kind == BWI_KEY_PACK) return 0;
    }
    return bwi_error_set(b->err, b->broken, "%s: pack %" PRIu32 ": its key is not the key of a pack", b->what, i);
}

static int check_pack(const struct bwi_pack_ref *k, uint32_t i, const struct bwi_blame *b) {
    struct bwi_key_parts parts;
    int rc = parse_key(k->key, i, b, &parts);
    if (rc == 0) rc = bwi_head_limit(b, k->file_bytes, BWI_PACK_BYTES_MAX, "bytes of a pack");
    if (rc == 0 && (k->header_bytes < PACK_HEADER_LEAST || k->header_bytes > PACK_HEADER_MOST ||
                    k->header_bytes > k->file_bytes)) {
        rc = bwi_error_set(b->err, b->broken,
                           "%s: pack %" PRIu32 ": header of %" PRIu64 " bytes in a file of %" PRIu64
                           ", expected %" PRIu64 " to %" PRIu64 " and no more than the file",
                           b->what, i, k->header_bytes, k->file_bytes, PACK_HEADER_LEAST, PACK_HEADER_MOST);
    }
    return rc;
}

static int check_packs(const struct bwi_placement *p, const struct bwi_blame *b) {
    struct bwi_map seen = {0};
    int rc = 0;
    for (uint32_t i = 0; i < p->pack_count && rc == 0; i++) {
        uint64_t old = 0;
        bool was = false;
        rc = check_pack(&p->packs[i], i, b);
        if (rc == 0 && !bwi_map_put(&seen, p->packs[i].key, i, &old, &was)) {
            rc = bwi_error_nomem(b->err, p->pack_count * sizeof(struct bwi_map_slot), "keys of packs");
        }
        if (rc == 0 && was) {
            rc = bwi_error_set(b->err, b->broken, "%s: packs %" PRIu64 " and %" PRIu32 " have the same key", b->what,
                               old, i);
        }
    }
    bwi_map_fini(&seen);
    return rc;
}

static int check_place(const struct bwi_placement *p, uint64_t e, const struct bwi_blame *b) {
    const struct bwi_place *at = &p->places[e];
    if (at->pack >= p->pack_count) {
        return bwi_error_set(b->err, b->broken, "%s: extent %" PRIu64 " is in pack %" PRIu32 ", there are %" PRIu32,
                             b->what, e, at->pack, p->pack_count);
    }
    if (at->codec != BWI_CODEC_RAW && at->codec != BWI_CODEC_ZSTD) {
        return bwi_error_set(b->err, b->broken, "%s: extent %" PRIu64 ": unknown codec %u", b->what, e, at->codec);
    }
    const uint64_t most = at->codec == BWI_CODEC_RAW ? BWI_EXTENT_BYTES_MAX : ZSTD_MOST;
    if (at->stored_bytes == 0 || at->stored_bytes > most) {
        return bwi_error_set(b->err, b->broken,
                             "%s: extent %" PRIu64 ": %" PRIu64 " stored bytes, expected 1 to %" PRIu64, b->what, e,
                             at->stored_bytes, most);
    }
    const struct bwi_pack_ref *k = &p->packs[at->pack];
    uint64_t end;
    if (at->offset >= k->header_bytes && bwi_add_u64(at->offset, at->stored_bytes, &end) && end <= k->file_bytes)
        return 0;
    return bwi_error_set(b->err, b->broken,
                         "%s: extent %" PRIu64 ": %" PRIu64 " bytes at %" PRIu64 " leave pack %" PRIu32
                         ", whose data is from %" PRIu64 " to %" PRIu64,
                         b->what, e, at->stored_bytes, at->offset, at->pack, k->header_bytes, k->file_bytes);
}

static int check(const struct bwi_placement *p, const struct bwi_blame *b) {
    int rc = check_counts(p, b);
    if (rc == 0) rc = check_packs(p, b);
    for (uint64_t e = 0; e < p->extent_count && rc == 0; e++) rc = check_place(p, e, b);
    return rc;
}

/* ---- encoding ---- */

static void put_pack(struct bwi_buf *out, const struct bwi_pack_ref *k) {
    bwi_buf_u64(out, k->file_bytes);
    bwi_buf_u64(out, k->header_bytes);
    bwi_buf_put(out, k->header.b, sizeof k->header.b);
    bwi_buf_u16(out, (uint16_t)k->key.len);
    bwi_buf_put(out, k->key.ptr, k->key.len);
}

static void put_place(struct bwi_buf *out, const struct bwi_place *at) {
    bwi_buf_u32(out, at->pack);
    bwi_buf_u8(out, at->codec);
    bwi_buf_zero(out, 3);
    bwi_buf_u64(out, at->offset);
    bwi_buf_u64(out, at->stored_bytes);
    bwi_buf_put(out, at->stored.b, sizeof at->stored.b);
}

int bwi_placement_encode(const struct bwi_placement *p, struct bwi_buf *out, struct bw_error *err) {
    const struct bwi_blame b = bwi_blame_caller(&HEAD, err);
    const int rc = check(p, &b);
    if (rc < 0) return rc;
    const size_t start = out->len;
    bwi_head_write(&HEAD, out);
    bwi_buf_put(out, p->content.b, sizeof p->content.b);
    bwi_buf_u64(out, p->writer);
    bwi_buf_u32(out, p->pack_count);
    bwi_buf_u32(out, 0);
    bwi_buf_u64(out, p->extent_count);
    for (uint32_t i = 0; i < p->pack_count; i++) put_pack(out, &p->packs[i]);
    for (uint64_t e = 0; e < p->extent_count; e++) put_place(out, &p->places[e]);
    return bwi_head_written(&HEAD, out, start, BWI_PLACEMENT_BYTES_MAX, err);
}

/* ---- decoding ---- */

static int read_fixed(struct bwi_reader *r, struct bwi_placement *p, struct bw_error *err) {
    const struct bwi_blame b = bwi_blame_object(&HEAD, err);
    bwi_read_into(r, p->content.b, sizeof p->content.b);
    p->writer = bwi_read_u64(r);
    p->pack_count = bwi_read_u32(r);
    const uint32_t zero = bwi_read_u32(r);
    p->extent_count = bwi_read_u64(r);
    int rc = bwi_head_whole(&HEAD, r, err);
    if (rc == 0 && zero != 0) rc = bwi_error_set(err, BW_E_FORMAT, "placement: padding is not zero");
    if (rc == 0) rc = check_counts(p, &b);
    /* No overflow: both counts are bounded now. */
    const uint64_t least = (uint64_t)p->pack_count * PACK_MIN + p->extent_count * PLACE_BYTES;
    if (rc == 0) rc = bwi_head_room(&HEAD, r, least, err);
    return rc;
}

static void read_packs(struct bwi_reader *r, struct bwi_placement *p) {
    for (uint32_t i = 0; i < p->pack_count && !r->failed; i++) {
        struct bwi_pack_ref *k = &p->packs[i];
        k->file_bytes = bwi_read_u64(r);
        k->header_bytes = bwi_read_u64(r);
        bwi_read_into(r, k->header.b, sizeof k->header.b);
        k->key = bwi_read_bytes(r, bwi_read_u16(r));
    }
}

static int read_places(struct bwi_reader *r, struct bwi_placement *p, struct bw_error *err) {
    for (uint64_t e = 0; e < p->extent_count && !r->failed; e++) {
        struct bwi_place *at = &p->places[e];
        at->pack = bwi_read_u32(r);
        const uint32_t codec = bwi_read_u32(r); /* one byte and three of padding */
        at->codec = (uint8_t)codec;
        at->offset = bwi_read_u64(r);
        at->stored_bytes = bwi_read_u64(r);
        bwi_read_into(r, at->stored.b, sizeof at->stored.b);
        if (codec > UINT8_MAX) {
            return bwi_error_set(err, BW_E_FORMAT, "placement: extent %" PRIu64 ": padding is not zero", e);
        }
    }
    return bwi_head_whole(&HEAD, r, err);
}

int bwi_placement_decode(struct bwi_span in, struct bwi_placement *ret, struct bw_error *err) {
    const struct bwi_blame b = bwi_blame_object(&HEAD, err);
    struct bwi_placement p = {0};
    struct bwi_reader r = bwi_reader(in);
    bool newer = false;
    int rc = bwi_head_limit(&b, in.len, BWI_PLACEMENT_BYTES_MAX, "bytes");
    if (rc == 0) rc = bwi_head_read(&HEAD, &r, &newer, err);
    if (rc == 0) rc = read_fixed(&r, &p, err);
    if (rc == 0) rc = bwi_head_array(&HEAD, &p.packs, p.pack_count, sizeof *p.packs, err);
    if (rc == 0) rc = bwi_head_array(&HEAD, &p.places, p.extent_count, sizeof *p.places, err);
    if (rc == 0) {
        read_packs(&r, &p);
        rc = read_places(&r, &p, err);
    }
    if (rc == 0) rc = bwi_head_end(&HEAD, &r, newer, err);
    if (rc == 0) rc = check(&p, &b);
    if (rc < 0) {
        bwi_placement_fini(&p);
        return rc;
    }
    *ret = p;
    return 0;
}

void bwi_placement_fini(struct bwi_placement *p) {
    if (p == NULL) return;
    bwi_free(p->packs);
    bwi_free(p->places);
    *p = (struct bwi_placement){0};
}

/* ---- against content, run and refs ---- */

static int check_owners(const struct bwi_placement *p, const char *run, const struct bwi_id *own,
                        const struct bwi_id *refs, size_t ref_count, const struct bwi_blame *b) {
    for (uint32_t i = 0; i < p->pack_count; i++) {
        struct bwi_key_parts parts;
        const int rc = parse_key(p->packs[i].key, i, b, &parts);
        if (rc < 0) return rc;
        if (strcmp(parts.run, run) != 0) {
            return bwi_error_set(b->err, b->broken, "%s: pack %" PRIu32 " belongs to run \"%s\", expected \"%s\"",
                                 b->what, i, parts.run, run);
        }
        bool known = bwi_id_eq(&parts.id, own);
        for (size_t k = 0; k < ref_count && !known; k++) known = bwi_id_eq(&parts.id, &refs[k]);
        if (!known) {
            char found[BWI_ID_TEXT_BYTES];
            char want[BWI_ID_TEXT_BYTES];
            bwi_id_text(&parts.id, found);
            bwi_id_text(own, want);
            return bwi_error_set(b->err, b->broken,
                                 "%s: pack %" PRIu32 " belongs to checkpoint %s, expected %s or one of its %zu refs",
                                 b->what, i, found, want, ref_count);
        }
    }
    return 0;
}

/* A raw extent is stored as it is: same length, same hash. */
static int check_raw(const struct bwi_placement *p, const struct bwi_content *c, const struct bwi_blame *b) {
    for (uint32_t item = 0; item < c->item_count; item++) {
        for (uint64_t e = c->first_extent[item]; e < c->first_extent[item + 1]; e++) {
            const struct bwi_place *at = &p->places[e];
            const uint64_t raw = bwi_content_extent_bytes(c, item, e - c->first_extent[item]);
            if (at->codec != BWI_CODEC_RAW) continue;
            if (at->stored_bytes != raw) {
                return bwi_error_set(b->err, b->broken,
                                     "%s: extent %" PRIu64 " is raw: %" PRIu64
                                     " stored bytes, its content has %" PRIu64,
                                     b->what, e, at->stored_bytes, raw);
            }
            if (!bwi_xxh_eq(&at->stored, &c->extents[e])) {
                return bwi_error_set(b->err, b->broken, "%s: extent %" PRIu64 " is raw: its hash is not the content's",
                                     b->what, e);
            }
        }
    }
    return 0;
}

static int place_cmp(const struct bwi_place *a, const struct bwi_place *b) {
    if (a->pack != b->pack) return a->pack < b->pack ? -1 : 1;
    if (a->offset != b->offset) return a->offset < b->offset ? -1 : 1;
    return (a->stored_bytes > b->stored_bytes) - (a->stored_bytes < b->stored_bytes);
}

static int place_order(const void *va, const void *vb) {
    const struct bwi_place *const *a = va;
    const struct bwi_place *const *b = vb;
    return place_cmp(*a, *b);
}

/* Neighbours in order: apart, or one and the same. */
static int check_apart(const struct bwi_place *a, const struct bwi_place *b, const struct bwi_blame *blame) {
    if (a->pack != b->pack || a->offset + a->stored_bytes <= b->offset) return 0;
    if (place_cmp(a, b) == 0 && a->codec == b->codec && bwi_xxh_eq(&a->stored, &b->stored)) return 0;
    return bwi_error_set(blame->err, blame->broken,
                         "%s: extents overlap in pack %" PRIu32 ": %" PRIu64 " bytes at %" PRIu64 " and %" PRIu64
                         " at %" PRIu64,
                         blame->what, a->pack, a->stored_bytes, a->offset, b->stored_bytes, b->offset);
}

/* Writers put extents in ascending order, so sorting is rarely needed. */
static bool in_order(const struct bwi_placement *p) {
    for (uint64_t e = 1; e < p->extent_count; e++) {
        if (place_cmp(&p->places[e - 1], &p->places[e]) > 0) return false;
    }
    return true;
}

static int check_overlap(const struct bwi_placement *p, const struct bwi_blame *b) {
    const struct bwi_place **order = NULL;
    int rc = 0;
    if (!in_order(p)) {
        rc = bwi_head_array(&HEAD, &order, p->extent_count, sizeof *order, b->err);
        if (rc < 0) return rc;
        for (uint64_t e = 0; e < p->extent_count; e++) order[e] = &p->places[e];
        qsort(order, (size_t)p->extent_count, sizeof *order, place_order);
    }
    for (uint64_t e = 1; e < p->extent_count && rc == 0; e++) {
        rc = order == NULL ? check_apart(&p->places[e - 1], &p->places[e], b) : check_apart(order[e - 1], order[e], b);
    }
    bwi_free(order);
    return rc;
}

int bwi_placement_check(const struct bwi_placement *p, const struct bwi_content *c, const char *run,
                        const struct bwi_id *own, const struct bwi_id *refs, size_t ref_count, struct bw_error *err) {
    const struct bwi_blame b = bwi_blame_object(&HEAD, err);
    if (p->extent_count != c->extent_count) {
        return bwi_error_set(err, BW_E_FORMAT, "placement: %" PRIu64 " extents, its content has %" PRIu64,
                             p->extent_count, c->extent_count);
    }
    int rc = check(p, &b);
    if (rc == 0) rc = check_owners(p, run, own, refs, ref_count, &b);
    if (rc == 0) rc = check_raw(p, c, &b);
    if (rc == 0) rc = check_overlap(p, &b);
    return rc;
}
