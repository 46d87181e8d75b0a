/* SPDX-License-Identifier: Apache-2.0 */
/* Entries of the history, behind their seal. Reaches src/format/history.c src/format/history_check.c
 * src/format/history_decode.c */
#include "format/history.h"
#include "fuzz.h"

void fuzz_one(uint8_t *data, size_t size) {
    fuzz_seal_json(data, size);
    struct bwi_entry value;
    struct bw_error err = BW_ERROR_INIT;
    if (bwi_entry_decode(bwi_span(data, size), &value, &err) == 0) {
        struct bwi_buf again = {0};
        fuzz_require(bwi_entry_encode(&value, &again, &err) == 0);
        fuzz_same(&again, data, size);
        bwi_entry_fini(&value);
    } else {
        fuzz_failed(err);
    }
}
