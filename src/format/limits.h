/* SPDX-License-Identifier: Apache-2.0 */
/* Every bound of every format in one place, with where the number comes from. A reader refuses what is above with
 * BW_E_FORMAT; a writer with BW_E_LIMIT. Normative in doc/format/README.md. */
#ifndef BWI_FORMAT_LIMITS_H
#define BWI_FORMAT_LIMITS_H

#include <stdint.h>

#define BWI_EXTENT_BYTES_MAX (UINT32_C(16) << 20) /* what a reader must be able to hold to verify one extent */
#define BWI_EXTENT_BYTES                                                                                               \
    (UINT32_C(4) << 20) /* what writers use: large enough for full bandwidth, small enough to overlap */
#define BWI_PACK_ALIGN          UINT64_C(4096)       /* O_DIRECT on every device in use */
#define BWI_PACK_BIG_BYTES      (UINT64_C(1) << 20)  /* tensors from here on start on BWI_PACK_ALIGN */
#define BWI_PACK_HEADER_MAX     (UINT64_C(16) << 20) /* JSON of one pack; readers of safetensors allow 100 MB */
#define BWI_PACK_BYTES_MAX      (UINT64_C(1) << 40)  /* one pack; below every file system's limit */
#define BWI_DIMS_MAX            16
#define BWI_TENSOR_NAME_MAX     8192
#define BWI_TENSORS_MAX         (UINT32_C(1) << 24) /* per group; 16 million */
#define BWI_BOXES_MAX           (UINT32_C(1) << 24)
#define BWI_BLOBS_MAX           (UINT32_C(1) << 20)
#define BWI_METADATA_MAX        (UINT32_C(1) << 20) /* user metadata of a rank, JSON text */
#define BWI_EXTENTS_MAX         (UINT64_C(1) << 28) /* per group: 1 PiB at 4 MiB */
#define BWI_PACKS_MAX           (UINT32_C(1) << 16) /* per group */
#define BWI_REFS_MAX            8
#define BWI_GROUPS_MAX          999999u /* six digits in keys */
#define BWI_ERA_MAX             999999u /* the same */
#define BWI_WORLD_MAX           (UINT32_C(1) << 24)
#define BWI_GROUP_RANKS_MAX     64u /* ranks of one group; a node has at most 16 devices today */
#define BWI_LAYOUT_BYTES_MAX    (UINT64_C(4) << 30)
#define BWI_CONTENT_BYTES_MAX   (UINT64_C(5) << 30)
#define BWI_PLACEMENT_BYTES_MAX (UINT64_C(12) << 30)
#define BWI_SUMMARY_BYTES_MAX   1024u
#define BWI_INDEX_BYTES_MAX     (UINT64_C(16) << 30)
#define BWI_INDEX_BLOCK_BYTES   (UINT32_C(64) << 10) /* aimed at; one tensor with many boxes may be larger */
#define BWI_MANIFEST_BYTES_MAX  (UINT64_C(512) << 20)
#define BWI_ENTRY_BYTES_MAX     (UINT64_C(64) << 20)
#define BWI_JSON_SMALL_MAX      (UINT64_C(1) << 20) /* store.json, marks, refusals */
#define BWI_INVENTORY_BYTES_MAX (UINT64_C(16) << 20)
#define BWI_LAUNCHES_KEPT       1000u /* launch ids remembered in an entry */
#define BWI_HISTORY_KEPT        900u  /* entries kept: one page of every object store's listing */
#define BWI_NAME_BYTES          128   /* [A-Za-z0-9][A-Za-z0-9._-]{0,127} and its NUL makes 129 */
#define BWI_NAME_BUF            132
#define BWI_GROUPS_FLAT         64u /* up to here all data lies below "00" */

#endif
