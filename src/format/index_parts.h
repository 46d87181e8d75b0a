/* SPDX-License-Identifier: Apache-2.0 */
/* What the reader and the builder of an index share: its head and the least sizes of its records. */
#ifndef BWI_FORMAT_INDEX_PARTS_H
#define BWI_FORMAT_INDEX_PARTS_H

#include "format/head.h"

extern const struct bwi_object_head BWI_INDEX_HEAD;

#define BWI_INDEX_FIXED      48u /* common head, counts, bytes */
#define BWI_INDEX_REF_BYTES  52u /* of a block, without the name */
#define BWI_INDEX_REF_MIN    53u
#define BWI_INDEX_TENSOR     12u /* without name, shape and boxes */
#define BWI_INDEX_BOX_MIN    8u
#define BWI_INDEX_TENSOR_MIN (BWI_INDEX_TENSOR + 1u + BWI_INDEX_BOX_MIN)

#endif
