/* SPDX-License-Identifier: Apache-2.0 */
/* Contents: hashes of extents from an untrusted store. Reaches src/format/content.c */
#include "format/content.h"
#include "fuzz.h"

void fuzz_one(uint8_t *data, size_t size) {
    struct bwi_content value;
    struct bw_error err = BW_ERROR_INIT;
    if (bwi_content_decode(bwi_span(data, size), &value, &err) == 0) {
        struct bwi_buf again = {0};
        fuzz_require(bwi_content_encode(&value, &again, &err) == 0);
        fuzz_same(&again, data, size);
        bwi_content_fini(&value);
    } else {
        fuzz_failed(err);
    }
}
