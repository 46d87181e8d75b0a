/* SPDX-License-Identifier: Apache-2.0 */
/* Rank 0's refusal of a launch, behind its seal. */
#include "format/history.h"
#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    uint8_t *copy = fuzz_copy(data, size);
    fuzz_seal_json(copy, size);
    struct bwi_refusal value;
    struct bw_error err = BW_ERROR_INIT;
    if (bwi_refusal_decode(bwi_span(copy, size), &value, &err) == 0) {
        struct bwi_buf again = {0};
        fuzz_require(bwi_refusal_encode(&value, &again, &err) == 0);
        fuzz_same(&again, copy, size);
    } else {
        fuzz_require(err.status < 0 && err.message[0] != '\0');
    }
    free(copy);
    return 0;
}
