/* SPDX-License-Identifier: Apache-2.0 */
/* Rank 0's refusal of a launch, behind its seal. Reaches src/format/small.c */
#include "format/history.h"
#include "fuzz.h"

void fuzz_one(uint8_t *data, size_t size) {
    fuzz_seal_json(data, size);
    struct bwi_refusal value;
    struct bw_error err = BW_ERROR_INIT;
    if (bwi_refusal_decode(bwi_span(data, size), &value, &err) == 0) {
        struct bwi_buf again = {0};
        fuzz_require(bwi_refusal_encode(&value, &again, &err) == 0);
        fuzz_same(&again, data, size);
    } else {
        fuzz_failed(err);
    }
}
