/* SPDX-License-Identifier: Apache-2.0 */
/* Summaries: a group's word that it is complete. */
#include "format/summary.h"
#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    uint8_t *copy = fuzz_copy(data, size);
    fuzz_seal_binary(copy, size);
    struct bwi_summary value;
    struct bw_error err = BW_ERROR_INIT;
    if (bwi_summary_decode(bwi_span(copy, size), &value, &err) == 0) {
        struct bwi_buf again = {0};
        fuzz_require(bwi_summary_encode(&value, &again, &err) == 0);
        fuzz_same(&again, copy, size);
    } else {
        fuzz_require(err.status < 0 && err.message[0] != '\0');
    }
    free(copy);
    return 0;
}
