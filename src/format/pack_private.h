/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the encoder and the decoder of pack headers. */
#ifndef BWI_FORMAT_PACK_PRIVATE_H
#define BWI_FORMAT_PACK_PRIVATE_H

#include "format/pack.h"

#define BWI_PACK_WHAT         "pack header"
#define BWI_PACK_LENGTH_BYTES 8u
#define BWI_PACK_METADATA_KEY "__metadata__"

/* Arguments for "%.*s": a name, cut to what a message can hold. */
#define BWI_PACK_SHOWN 80
#define BWI_PACK_NAME(e)                                                                                               \
    (int)((e)->name.len < BWI_PACK_SHOWN ? (e)->name.len : BWI_PACK_SHOWN), (const char *)(e)->name.ptr

/* The rules for entries in order of their bytes: names, sizes that follow from shape and dtype, no hole, no
 * overlap, no name twice. */
int bwi_pack_check(const struct bwi_pack_header *h, bool writing, struct bw_error *err);

#endif
