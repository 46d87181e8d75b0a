/* SPDX-License-Identifier: Apache-2.0 */
/* The summary: a group's word that it is complete in this tier. Last of a group's objects, at most 1 KiB, ends with its
 * own SHA-256. doc/format/summary.md. */
#ifndef BWI_FORMAT_SUMMARY_H
#define BWI_FORMAT_SUMMARY_H

#include "format/id.h"
#include "format/limits.h"
#include <breakwater/error.h>

struct bwi_summary {
    struct bwi_uuid uuid; /* of the era of the run's lineage under which it was made */
    struct bwi_id id;
    uint32_t group, groups, world;
    bool fan_out;
    uint32_t rank_count;
    uint32_t ranks[BWI_GROUP_RANKS_MAX]; /* ascending */
    struct bwi_sha layout, content, placement;
    uint64_t layout_bytes, content_bytes, placement_bytes;
    uint64_t writer;       /* in the placement's key */
    uint64_t raw_bytes;    /* of all items, ties not counted */
    uint64_t stored_bytes; /* of all packs of its own */
    uint32_t pack_count;
    uint32_t ref_count;
    struct bwi_id refs[BWI_REFS_MAX]; /* ascending by bwi_id_cmp; never its own id */
};

int bwi_summary_encode(const struct bwi_summary *s, struct bwi_buf *out, struct bw_error *err);
int bwi_summary_decode(struct bwi_span in, struct bwi_summary *ret, struct bw_error *err);

#endif
