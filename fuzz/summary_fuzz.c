/* SPDX-License-Identifier: Apache-2.0 */
/* Summaries: a group's word that it is complete. Reaches src/format/summary.c */
#include "format/summary.h"
#include "fuzz.h"

void fuzz_one(uint8_t *data, size_t size) {
    fuzz_seal_binary(data, size);
    struct bwi_summary value;
    struct bw_error err = BW_ERROR_INIT;
    if (bwi_summary_decode(bwi_span(data, size), &value, &err) == 0) {
        struct bwi_buf again = {0};
        fuzz_require(bwi_summary_encode(&value, &again, &err) == 0);
        fuzz_same(&again, data, size);
    } else {
        fuzz_failed(err);
    }
}
