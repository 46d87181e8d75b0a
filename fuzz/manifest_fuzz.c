/* SPDX-License-Identifier: Apache-2.0 */
/* Manifests: what a history entry's hash leads to. Reaches src/format/manifest.c */
#include "format/manifest.h"
#include "fuzz.h"

void fuzz_one(uint8_t *data, size_t size) {
    struct bwi_manifest value;
    struct bw_error err = BW_ERROR_INIT;
    if (bwi_manifest_decode(bwi_span(data, size), &value, &err) == 0) {
        struct bwi_buf again = {0};
        fuzz_require(bwi_manifest_encode(&value, &again, &err) == 0);
        fuzz_same(&again, data, size);
        bwi_manifest_fini(&value);
    } else {
        fuzz_failed(err);
    }
}
