/* SPDX-License-Identifier: Apache-2.0 */
/* Whether a stream of bytes is the pack that a placement describes. Every byte is accounted for: the header has a
 * hash, every extent has one, and what lies between is zero. Pure; any one thread at a time. */
#ifndef BWI_CHECKPOINT_PACK_DIGEST_H
#define BWI_CHECKPOINT_PACK_DIGEST_H

#include "format/content.h"

enum bwi_pack_region { BWI_REGION_HEADER, BWI_REGION_EXTENT, BWI_REGION_GAP };

struct bwi_pack_digest {
    /* out */
    uint64_t damages;      /* found so far: extents, the header, gaps */
    struct bw_error first; /* BW_E_CORRUPT: the first of them, without the pack's name */
    uint64_t *bad;         /* in: takes the numbers of damaged extents, up to bad_cap */
    size_t bad_count, bad_cap;
    /* inside */
    const struct bwi_placement *placement;
    const struct bwi_pack_ref *pack;
    uint64_t *order;  /* numbers of this pack's extents, by offset */
    size_t count, at; /* how many there are, the next one */
    uint64_t pos;     /* in the file */
    enum bwi_pack_region region;
    uint64_t region_end;
    bool region_damaged; /* a gap is reported once */
    struct bwi_xxh_state state;
};

/* Borrows the placement. BW_E_FORMAT when extents of the pack overlap, or lie outside of it or in its header. */
int bwi_pack_digest_init(struct bwi_pack_digest *d, const struct bwi_placement *p, uint32_t pack, struct bw_error *err);
void bwi_pack_digest_fini(struct bwi_pack_digest *d);
/* The next n bytes of the file; all of them together are pack->file_bytes. */
void bwi_pack_digest_update(struct bwi_pack_digest *d, const uint8_t *p, size_t n);
/* The next n bytes are known to be right: whole regions, from where one begins to where one ends. */
void bwi_pack_digest_skip(struct bwi_pack_digest *d, size_t n);
/* The pack cannot be read: all its extents are bad, whatever was found before. Says nothing in `first`. */
void bwi_pack_digest_lost(struct bwi_pack_digest *d);

#endif
