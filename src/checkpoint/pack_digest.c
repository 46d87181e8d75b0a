/* SPDX-License-Identifier: Apache-2.0 */
/* Verifying a pack from its first byte to its last. The file is a row of regions (the header, extents, gaps between
 * them), and the calls that bring the bytes may cut it anywhere. */
#include "checkpoint/pack_digest.h"
#include "base/checked.h"
#include "base/error.h"
#include "base/vec.h"
#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static const struct bwi_place *place_at(const struct bwi_pack_digest *d, size_t i) {
    return &d->placement->places[d->order[i]];
}

static bool same_place(const struct bwi_place *a, const struct bwi_place *b) {
    return a->offset == b->offset && a->stored_bytes == b->stored_bytes;
}

/* ---- the row of extents ---- */

static int by_offset(const void *a, const void *b, void *placement) {
    const struct bwi_place *places = ((const struct bwi_placement *)placement)->places;
    const uint64_t i = *(const uint64_t *)a;
    const uint64_t j = *(const uint64_t *)b;
    if (places[i].offset != places[j].offset) return places[i].offset < places[j].offset ? -1 : 1;
    return (i > j) - (i < j);
}

static int collect(struct bwi_pack_digest *d, uint32_t pack, struct bw_error *err) {
    const struct bwi_placement *p = d->placement;
    size_t count = 0;
    bool sorted = true;
    uint64_t last = 0;
    for (uint64_t i = 0; i < p->extent_count; i++) {
        if (p->places[i].pack != pack) continue;
        sorted &= p->places[i].offset >= last;
        last = p->places[i].offset;
        count++;
    }
    if (count == 0) return 0;
    d->order = bwi_calloc(count, sizeof *d->order);
    if (d->order == NULL) return bwi_error_nomem(err, count * sizeof *d->order, "the extents of a pack");
    for (uint64_t i = 0; i < p->extent_count; i++) {
        if (p->places[i].pack == pack) d->order[d->count++] = i;
    }
    if (!sorted) qsort_r(d->order, d->count, sizeof *d->order, by_offset, &(struct bwi_placement){.places = p->places});
    return 0;
}

static int check_order(const struct bwi_pack_digest *d, struct bw_error *err) {
    uint64_t end = d->pack->header_bytes;
    if (end > d->pack->file_bytes) {
        return bwi_error_set(err, BW_E_FORMAT, "a header of %" PRIu64 " bytes in a file of %" PRIu64, end,
                             d->pack->file_bytes);
    }
    for (size_t i = 0; i < d->count; i++) {
        const struct bwi_place *p = place_at(d, i);
        if (i > 0 && same_place(p, place_at(d, i - 1))) continue;
        uint64_t next;
        if (p->stored_bytes == 0 || p->offset < end || !bwi_add_u64(p->offset, p->stored_bytes, &next) ||
            next > d->pack->file_bytes) {
            return bwi_error_set(err, BW_E_FORMAT,
                                 "extent %" PRIu64 ": %" PRIu64 " bytes at offset %" PRIu64
                                 ", expected between %" PRIu64 " and %" PRIu64,
                                 d->order[i], p->stored_bytes, p->offset, end, d->pack->file_bytes);
        }
        end = next;
    }
    return 0;
}

/* Works out what the byte at pos belongs to, and where that ends. */
static void enter_region(struct bwi_pack_digest *d) {
    bwi_xxh_init(&d->state);
    d->region_damaged = false;
    if (d->pos < d->pack->header_bytes) {
        d->region = BWI_REGION_HEADER;
        d->region_end = d->pack->header_bytes;
    } else if (d->at < d->count && place_at(d, d->at)->offset == d->pos) {
        d->region = BWI_REGION_EXTENT;
        d->region_end = d->pos + place_at(d, d->at)->stored_bytes;
    } else {
        d->region = BWI_REGION_GAP;
        d->region_end = d->at < d->count ? place_at(d, d->at)->offset : d->pack->file_bytes;
    }
}

int bwi_pack_digest_init(struct bwi_pack_digest *d, const struct bwi_placement *p, uint32_t pack,
                         struct bw_error *err) {
    *d = (struct bwi_pack_digest){.placement = p, .pack = &p->packs[pack]};
    int rc = collect(d, pack, err);
    if (rc == 0) rc = check_order(d, err);
    if (rc < 0) {
        bwi_pack_digest_fini(d);
        return rc;
    }
    enter_region(d);
    return 0;
}

void bwi_pack_digest_fini(struct bwi_pack_digest *d) {
    if (d == NULL) return;
    bwi_free(d->order);
    d->order = NULL;
    d->count = 0;
}

/* ---- the bytes ---- */

static void add_bad(struct bwi_pack_digest *d, uint64_t extent) {
    if (d->bad_count < d->bad_cap) d->bad[d->bad_count++] = extent;
}

static void damaged_header(struct bwi_pack_digest *d) {
    d->damages++;
    (void)bwi_error_set(&d->first, BW_E_CORRUPT, "the header (%" PRIu64 " bytes) does not match its hash",
                        d->pack->header_bytes);
}

static void damaged_extent(struct bwi_pack_digest *d, uint64_t extent) {
    const struct bwi_place *p = &d->placement->places[extent];
    d->damages++;
    (void)bwi_error_set(&d->first, BW_E_CORRUPT,
                        "extent %" PRIu64 " (%" PRIu64 " bytes at offset %" PRIu64 ") does not match its hash", extent,
                        p->stored_bytes, p->offset);
    add_bad(d, extent);
}

static void check_zero(struct bwi_pack_digest *d, const uint8_t *p, size_t n) {
    if (d->region_damaged || (p[0] == 0 && memcmp(p, p + 1, n - 1) == 0)) return; /* each byte equals the one before */
    size_t i = 0;
    while (p[i] == 0) i++;
    d->region_damaged = true;
    d->damages++;
    (void)bwi_error_set(&d->first, BW_E_CORRUPT,
                        "the byte at offset %" PRIu64 " belongs to no extent: expected 0, found %u", d->pos + i, p[i]);
}

/* Extents at one place share their bytes; each has its own expectation. */
static void end_extent(struct bwi_pack_digest *d) {
    const struct bwi_xxh found = bwi_xxh_final(&d->state);
    const struct bwi_place *place = place_at(d, d->at);
    for (; d->at < d->count && same_place(place_at(d, d->at), place); d->at++) {
        if (!bwi_xxh_eq(&found, &place_at(d, d->at)->stored)) damaged_extent(d, d->order[d->at]);
    }
}

static void end_region(struct bwi_pack_digest *d) {
    if (d->region == BWI_REGION_HEADER) {
        const struct bwi_xxh found = bwi_xxh_final(&d->state);
        if (!bwi_xxh_eq(&found, &d->pack->header)) damaged_header(d);
    } else if (d->region == BWI_REGION_EXTENT) {
        end_extent(d);
    }
    enter_region(d);
}

void bwi_pack_digest_update(struct bwi_pack_digest *d, const uint8_t *p, size_t n) {
    while (n > 0 && d->pos < d->pack->file_bytes) {
        const size_t take = (size_t)bwi_min_u64(n, d->region_end - d->pos);
        if (d->region == BWI_REGION_GAP) {
            check_zero(d, p, take);
        } else {
            bwi_xxh_update(&d->state, p, take);
        }
        p += take;
        n -= take;
        d->pos += take;
        if (d->pos == d->region_end) end_region(d);
    }
}

static void skip_region(struct bwi_pack_digest *d) {
    const struct bwi_place *place = d->at < d->count ? place_at(d, d->at) : NULL;
    if (d->region == BWI_REGION_EXTENT)
        while (d->at < d->count && same_place(place_at(d, d->at), place)) d->at++;
    d->pos = d->region_end;
    enter_region(d);
}

void bwi_pack_digest_skip(struct bwi_pack_digest *d, size_t n) {
    const uint64_t end = d->pos + n;
    while (d->pos < end && d->pos < d->pack->file_bytes) skip_region(d);
    assert(d->pos == end);
}

void bwi_pack_digest_lost(struct bwi_pack_digest *d) {
    d->bad_count = 0;
    for (size_t i = 0; i < d->count; i++) add_bad(d, d->order[i]);
}
