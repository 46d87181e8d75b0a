/* SPDX-License-Identifier: Apache-2.0 */
/* Inventories of a launch, behind their seal. Reaches src/format/small.c */
#include "format/history.h"
#include "fuzz.h"

void fuzz_one(uint8_t *data, size_t size) {
    fuzz_seal_json(data, size);
    struct bwi_inventory value;
    struct bw_error err = BW_ERROR_INIT;
    if (bwi_inventory_decode(bwi_span(data, size), &value, &err) == 0) {
        struct bwi_buf again = {0};
        fuzz_require(bwi_inventory_encode(&value, &again, &err) == 0);
        fuzz_same(&again, data, size);
        bwi_inventory_fini(&value);
    } else {
        fuzz_failed(err);
    }
}
