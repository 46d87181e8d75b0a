/* SPDX-License-Identifier: Apache-2.0 */
/* Whether stored bytes are the extent that a placement and a content speak of, and its raw bytes. Pure; any
 * thread. */
#ifndef BWI_CHECKPOINT_EXTENT_CHECK_H
#define BWI_CHECKPOINT_EXTENT_CHECK_H

#include "format/content.h"

struct bwi_extent {
    const struct bwi_place *place;
    uint64_t raw_bytes;
    struct bwi_xxh raw;
};
struct bwi_extent bwi_extent_of(const struct bwi_content *c, const struct bwi_placement *p, uint32_t item,
                                uint64_t extent);
/* Bytes of the buffer: the stored ones from its beginning, and, with a codec, room for the raw ones behind them. Each
 * part is a multiple of 4 KiB. */
size_t bwi_extent_buffer_bytes(const struct bwi_extent *x);

#define BWI_EXTENT_WHY_BYTES 96
/* `buf` begins with the stored bytes. 0 and where the raw bytes are; BW_E_CORRUPT or BW_E_NOMEM and why. */
int bwi_extent_check(const struct bwi_extent *x, uint8_t *buf, const uint8_t **ret_raw,
                     char ret_why[BWI_EXTENT_WHY_BYTES]);
/* The same for bytes that were hashed as they came; `stored` is what that gave. The raw bytes of a codec go to `room`,
 * of raw_bytes; without one they are the stored ones, and room is not needed. */
int bwi_extent_settle(const struct bwi_extent *x, const struct bwi_xxh *stored, const uint8_t *bytes, uint8_t *room,
                      const uint8_t **ret_raw, char ret_why[BWI_EXTENT_WHY_BYTES]);

#endif
