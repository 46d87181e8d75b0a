/* SPDX-License-Identifier: Apache-2.0 */
/* Layouts: names, shapes and boxes from an untrusted store. */
#include "format/layout.h"
#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    uint8_t *copy = fuzz_copy(data, size);
    struct bwi_layout value;
    struct bw_error err = BW_ERROR_INIT;
    if (bwi_layout_decode(bwi_span(copy, size), &value, &err) == 0) {
        struct bwi_buf again = {0};
        fuzz_require(bwi_layout_encode(&value, &again, &err) == 0);
        fuzz_same(&again, copy, size);
        bwi_layout_fini(&value);
    } else {
        fuzz_require(err.status < 0 && err.message[0] != '\0');
    }
    free(copy);
    return 0;
}
