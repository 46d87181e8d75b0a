/* SPDX-License-Identifier: Apache-2.0 */
/* The manifest: describes a whole checkpoint. Canonical JSON, named by its SHA-256, which the history entry holds.
 * doc/format/manifest.md. */
#ifndef BWI_FORMAT_MANIFEST_H
#define BWI_FORMAT_MANIFEST_H

#include "format/index.h"
#include "format/summary.h"

struct bwi_manifest_group {
    struct bwi_sha layout, content;
    uint64_t layout_bytes, content_bytes;
    uint64_t raw_bytes;
    const uint32_t *ranks; /* ascending; in `numbers` of a decoded manifest, in the summaries of a built one */
    uint32_t rank_count;
};

struct bwi_manifest {
    struct bwi_id id;
    struct bwi_uuid uuid;
    uint32_t world;
    bool fan_out;
    struct bwi_manifest_group *groups;
    uint32_t group_count;
    struct bwi_id refs[BWI_REFS_MAX];
    uint32_t ref_count;
    struct bwi_index_info index;
    uint64_t raw_bytes;
    uint32_t *numbers; /* decoded: holds the ranks */
};

int bwi_manifest_encode(const struct bwi_manifest *m, struct bwi_buf *out, struct bw_error *err);
int bwi_manifest_decode(struct bwi_span in, struct bwi_manifest *ret, struct bw_error *err);
void bwi_manifest_fini(struct bwi_manifest *m);
/* From all summaries of a checkpoint, group 0 .. groups - 1, and its index. Checks that they agree (id, uuid,
 * groups, world, fan-out), that every rank is in exactly one group, and joins their refs (at most BWI_REFS_MAX).
 * Pure: the same bytes whoever builds it. ranks point into the summaries. */
int bwi_manifest_build(const struct bwi_summary *summaries, uint32_t groups, const struct bwi_index_info *index,
                       struct bwi_manifest *ret, struct bw_error *err);
bool bwi_manifest_group_of_rank(const struct bwi_manifest *m, uint32_t rank, uint32_t *ret_group);

#endif
