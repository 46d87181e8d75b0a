/* SPDX-License-Identifier: Apache-2.0 */
/* Checking one extent: the hash of what is stored, decompression into a bounded buffer, the hash of what comes
 * out. */
#include "checkpoint/extent_check.h"
#include "base/checked.h"
#include "base/text.h"
#include <zstd.h>
#include <zstd_errors.h>

static size_t room_for(uint64_t bytes) {
    return (size_t)bwi_round_up(bytes, BWI_PACK_ALIGN);
}

struct bwi_extent bwi_extent_of(const struct bwi_content *c, const struct bwi_placement *p, uint32_t item,
                                uint64_t extent) {
    return (struct bwi_extent){&p->places[extent], bwi_content_extent_bytes(c, item, extent - c->first_extent[item]),
                               c->extents[extent]};
}

size_t bwi_extent_buffer_bytes(const struct bwi_extent *x) {
    return room_for(x->place->stored_bytes) + (x->place->codec == BWI_CODEC_ZSTD ? room_for(x->raw_bytes) : 0);
}

static int refuse(char *why, const char *text) {
    (void)bwi_format(why, BWI_EXTENT_WHY_BYTES, "%s", text);
    return BW_E_CORRUPT;
}

static int unpack(const struct bwi_extent *x, const uint8_t *stored, uint8_t *raw, char *why) {
    const size_t n = ZSTD_decompress(raw, (size_t)x->raw_bytes, stored, (size_t)x->place->stored_bytes);
    if (ZSTD_isError(n)) {
        (void)bwi_format(why, BWI_EXTENT_WHY_BYTES, "cannot be decompressed: %s", ZSTD_getErrorName(n));
        return ZSTD_getErrorCode(n) == ZSTD_error_memory_allocation ? BW_E_NOMEM : BW_E_CORRUPT;
    }
    if (n != x->raw_bytes) return refuse(why, "decompressed they are fewer bytes than the content says");
    const struct bwi_xxh found = bwi_xxh_of(bwi_span(raw, n));
    if (!bwi_xxh_eq(&found, &x->raw)) return refuse(why, "decompressed they do not match the content's hash");
    return 0;
}

int bwi_extent_settle(const struct bwi_extent *x, const struct bwi_xxh *stored, const uint8_t *bytes, uint8_t *room,
                      const uint8_t **ret_raw, char ret_why[BWI_EXTENT_WHY_BYTES]) {
    if (!bwi_xxh_eq(stored, &x->place->stored)) return refuse(ret_why, "the stored bytes do not match their hash");
    if (x->place->codec != BWI_CODEC_ZSTD) { /* the placement was checked to hold the content's own hash */
        *ret_raw = bytes;
        return 0;
    }
    const int rc = unpack(x, bytes, room, ret_why);
    if (rc == 0) *ret_raw = room;
    return rc;
}

int bwi_extent_check(const struct bwi_extent *x, uint8_t *buf, const uint8_t **ret_raw,
                     char ret_why[BWI_EXTENT_WHY_BYTES]) {
    const struct bwi_xxh stored = bwi_xxh_of(bwi_span(buf, (size_t)x->place->stored_bytes));
    return bwi_extent_settle(x, &stored, buf, buf + room_for(x->place->stored_bytes), ret_raw, ret_why);
}
