/* SPDX-License-Identifier: Apache-2.0 */
/* Layouts: names, shapes and boxes from an untrusted store. Reaches src/format/layout.c */
#include "format/layout.h"
#include "fuzz.h"

void fuzz_one(uint8_t *data, size_t size) {
    struct bwi_layout value;
    struct bw_error err = BW_ERROR_INIT;
    if (bwi_layout_decode(bwi_span(data, size), &value, &err) == 0) {
        struct bwi_buf again = {0};
        fuzz_require(bwi_layout_encode(&value, &again, &err) == 0);
        fuzz_same(&again, data, size);
        bwi_layout_fini(&value);
    } else {
        fuzz_failed(err);
    }
}
