/* SPDX-License-Identifier: Apache-2.0 */
/* What the reader and the builder of an index share: its head and the least sizes of its records. */
#ifndef BWI_FORMAT_INDEX_PARTS_H
#define BWI_FORMAT_INDEX_PARTS_H

#include "format/head.h"
#include "format/index.h"
#include "format/limits.h"

extern const struct bwi_object_head BWI_INDEX_HEAD;

#define BWI_INDEX_FIXED      48u /* common head, counts, bytes */
#define BWI_INDEX_REF_BYTES  52u /* of a block, without the name */
#define BWI_INDEX_REF_MIN    53u
#define BWI_INDEX_TENSOR     12u /* without name, shape and boxes */
#define BWI_INDEX_BOX_MIN    8u
#define BWI_INDEX_TENSOR_MIN (BWI_INDEX_TENSOR + 1u + BWI_INDEX_BOX_MIN)
#define BWI_INDEX_BOXES_MAX  (BWI_INDEX_BYTES_MAX / BWI_INDEX_BOX_MIN) /* so many alone fill the largest index */

struct bwi_index_plan {
    uint64_t blocks, head_bytes, bytes;
};

/* How large an index of these tensors becomes; they are sorted by name. BW_E_LIMIT: larger than an index may be. */
int bwi_index_plan(const struct bwi_index_tensor *tensors, size_t count, struct bwi_index_plan *ret,
                   struct bw_error *err);

#endif
