/* SPDX-License-Identifier: Apache-2.0 */
/* Planning a save: from the description of a rank's memory to a layout and to packs whose every offset is known before
 * the first byte is written. Pure: no I/O, no clock. doc/flows/save.md, doc/format/pack.md. */
#ifndef BWI_CHECKPOINT_PLAN_H
#define BWI_CHECKPOINT_PLAN_H

#include "base/map.h"
#include "base/pile.h"
#include "format/content.h"
#include "format/layout.h"
#include "format/pack.h"
#include <breakwater/save.h>

/* The description, filled by the API call by call. Names, shapes and strides are copies that it owns; those of a tensor
 * lie together, and in the order of description, so that whoever walks over all tensors reads memory in one go. */
struct bwi_tensor_source {
    const char *name;
    const uint64_t *shape, *offset, *extent; /* dims of each */
    const int64_t *stride;                   /* bytes */
    const uint8_t *data;                     /* borrowed: element 0 of the box */
    uint64_t bytes;                          /* of the box */
    uint64_t replica_group;
    uint32_t replica_index, replica_count;
    uint8_t dtype, dims;
    bool contiguous; /* the elements lie one behind the other, without gaps */
    bool device;     /* somebody else may write it while it is captured */
    bool mine;       /* this rank writes it; set by bwi_description_own */
};
struct bwi_blob_source {
    const char *name;
    const uint8_t *data; /* borrowed */
    uint64_t bytes;
};
struct bwi_description {
    struct bwi_tensor_source *tensors;
    size_t tensor_count, tensor_cap;
    struct bwi_blob_source *blobs;
    size_t blob_count, blob_cap;
    size_t known_tensors,
        known_blobs;                  /* of the last description: those behind the counts are still there to be taken */
    uint64_t version;                 /* another one whenever something changes that a plan rests on */
    struct bwi_map names, blob_names; /* keys borrowed from the names */
    struct bwi_pile kept, blobs_kept; /* what the sources point to, in their order */
    struct bwi_buf metadata;          /* canonical JSON, empty = none */
    uint64_t bytes;                   /* of all that was described */
};
void bwi_description_init(struct bwi_description *d);
void bwi_description_fini(struct bwi_description *d);
/* Empties it, but keeps what it knows: the same tensors in the same order are described again without any allocation,
 * and without being checked again; and so are blobs of the same names, wherever their bytes lie now. */
void bwi_description_reset(struct bwi_description *d);
/* Checks everything that save.h promises to check; changes nothing on failure. */
int bwi_description_tensor(struct bwi_description *d, const struct bw_tensor *t, struct bw_error *err);
int bwi_description_blob(struct bwi_description *d, const char *name, const void *bytes, size_t n,
                         struct bw_error *err);
int bwi_description_metadata(struct bwi_description *d, const char *json, struct bw_error *err);

/* Who writes what is replicated (checkpoint/owner.c): every rank computes the same. Tensors of one (replica_count,
 * replica_group) are taken by falling bytes, then by name, then by box, and each goes to the replica with the fewest
 * bytes so far (the lowest index among equals). Sets `mine`. */
int bwi_description_own(struct bwi_description *d, struct bw_error *err);

/* An extent's place in a pack. */
struct bwi_piece {
    uint32_t item;        /* of the layout */
    uint64_t extent;      /* number of the extent in the content */
    uint64_t item_offset; /* where it begins in the item's bytes */
    uint32_t bytes;
    uint64_t pack_offset; /* in the file */
};
/* What one write carries: begins on 4 KiB, ends on 4 KiB or at the end of the file, holds whole pieces, and zeros
 * between them. */
struct bwi_chunk {
    uint64_t pack_offset;
    uint32_t bytes; /* at most extent_bytes + BWI_PACK_ALIGN */
    uint32_t pieces;
    size_t first_piece; /* in the plan's pieces */
};
struct bwi_pack_plan {
    struct bwi_buf header; /* 8 + JSON, a multiple of 4 KiB: the file's first bytes */
    uint64_t file_bytes;
    size_t first_chunk, chunks;
};
/* Where an item's bytes come from. */
struct bwi_item_source {
    const struct bwi_tensor_source *tensor; /* NULL: a blob */
    const struct bwi_blob_source *blob;
};
struct bwi_cow;
/* What a plan was made from. */
struct bwi_plan_origin {
    const struct bwi_tensor_source *tensors;
    const struct bwi_blob_source *blobs;
    size_t tensor_count, blob_count;
    uint64_t version;
};
struct bwi_plan {
    struct bwi_plan_origin from;
    struct bwi_layout layout; /* borrows names from the description */
    struct bwi_buf layout_bytes;
    struct bwi_sha layout_sha;
    struct bwi_content content;    /* raw_bytes and numbering are set; extents are filled while capturing */
    struct bwi_item_source *items; /* per item of the layout */
    struct bwi_place *places; /* per extent: pack, codec, offset, stored_bytes; the hash is filled while capturing */
    struct bwi_piece *pieces; /* sorted by (pack, offset) */
    size_t piece_count;
    struct bwi_chunk *chunks;
    size_t chunk_count;
    struct bwi_pack_plan *packs; /* none if there is not a byte */
    size_t pack_count;
    uint64_t raw_bytes, stored_bytes;
    const struct bwi_cow *cow; /* where the memory is write-protected: what takes bytes as they were; else NULL */
};
/* From a description in which `mine` is set. The description must outlive the plan. extent_bytes: BWI_EXTENT_BYTES but
 * in tests. pack_bytes: a pack is closed before it grows above this (one tensor that is larger still goes whole into
 * one pack, unless it exceeds BWI_PACK_BYTES_MAX). */
int bwi_plan_make(const struct bwi_description *d, uint32_t rank, uint32_t extent_bytes, uint64_t pack_bytes,
                  struct bwi_plan *ret, struct bw_error *err);
void bwi_plan_fini(struct bwi_plan *p);
/* Whether making it again would lead to the same plan, but for where the bytes of blobs lie and for the metadata: since
 * it was made, its description has been reset and filled anew with what it had before. `mine` is as it was then. */
bool bwi_plan_fits(const struct bwi_plan *p, const struct bwi_description *d);
/* Makes such a plan what it was when it was new: nothing is captured yet. Allocates nothing. */
void bwi_plan_renew(struct bwi_plan *p, const struct bwi_description *d);
#define BWI_PLAN_PACK_BYTES (UINT64_C(64) << 30)

/* Copying (checkpoint/capture.c). Any thread; touches nothing but its arguments. */
/* Writes bytes [from, from + n) of a strided box, in row-major order of its elements, to dst. */
void bwi_gather(const struct bwi_tensor_source *s, uint64_t from, uint64_t n, uint8_t *dst);
/* The other way round: n bytes of the row-major image of a box, beginning at byte `from` of it, to strided memory. */
struct bwi_strided {
    uint8_t *data; /* element 0 of the box */
    uint8_t dims, elem_bytes;
    const uint64_t *extent;
    const int64_t *stride; /* bytes */
};
void bwi_scatter(const struct bwi_strided *d, uint64_t from, uint64_t n, const uint8_t *src);
/* The same memory, seen alike: the layout ties such tensors, and their bytes are saved once. */
bool bwi_same_view(const struct bwi_tensor_source *a, const struct bwi_tensor_source *b);
/* Fills one chunk: gathers all its pieces into `dst` (chunk->bytes) and zeroes the gaps. Where the memory is
 * write-protected it hashes them as well: nobody waits for it, and they lie in the cache. */
void bwi_plan_fill(struct bwi_plan *p, const struct bwi_chunk *c, uint8_t *dst);
/* Hashes each piece of a chunk that was filled into content.extents and places; not needed where filling did. */
void bwi_plan_hash(struct bwi_plan *p, const struct bwi_chunk *c, const uint8_t *bytes);

/* Copies the part of a saved box that a wanted box needs (checkpoint/intersect.c). src holds bytes [src_from, src_from
 * + src_bytes) of the row-major image of the saved box (box_offset, box_extent); elements that are in it, and in the
 * wanted box (want_offset, dst->extent), are written to their place in dst. Whole elements only: src_from and src_bytes
 * are multiples of the element size, unless src_bytes ends an item. Returns the number of bytes written. */
uint64_t bwi_intersect_copy(const uint64_t *box_offset, const uint64_t *box_extent, const uint8_t *src,
                            uint64_t src_from, uint64_t src_bytes, const uint64_t *want_offset,
                            const struct bwi_strided *dst);
/* Where bytes [from, from + n) of the image of the saved box belong, if the wanted box has all of them, one after the
 * other. NULL: it has not. */
uint8_t *bwi_intersect_whole(const uint64_t *box_offset, const uint64_t *box_extent, uint64_t from, uint64_t n,
                             const uint64_t *want_offset, const struct bwi_strided *dst);
/* True if bytes [from, from + n) of the image of the saved box hold any element of the wanted box; used to skip
 * extents. */
bool bwi_intersect_any(uint8_t dims, uint8_t elem_bytes, const uint64_t *box_offset, const uint64_t *box_extent,
                       uint64_t from, uint64_t n, const uint64_t *want_offset, const uint64_t *want_extent);

/* Coverage (checkpoint/coverage.c): every element of every tensor exactly once. BW_E_COVERAGE names the tensor, and the
 * boxes (with their groups) that overlap, or how many elements are missing and one of them. */
struct bwi_index_tensor;
int bwi_coverage_check(const struct bwi_index_tensor *tensors, size_t count, struct bw_error *err);

#endif
