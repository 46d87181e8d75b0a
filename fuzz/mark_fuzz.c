/* SPDX-License-Identifier: Apache-2.0 */
/* Marks of groups that failed or were found damaged, the identity of a store, and the end of an era, behind their
 * seals.
 * Reaches src/format/small.c */
#include "format/history.h"
#include "fuzz.h"

static void read_mark(const uint8_t *data, size_t size, bool damaged) {
    struct bwi_mark value;
    struct bw_error err = BW_ERROR_INIT;
    if (bwi_mark_decode(bwi_span(data, size), damaged, &value, &err) == 0) {
        struct bwi_buf again = {0};
        fuzz_require(bwi_mark_encode(&value, damaged, &again, &err) == 0);
        fuzz_same(&again, data, size);
    } else {
        fuzz_failed(err);
    }
}

static void read_store_id(const uint8_t *data, size_t size) {
    struct bwi_store_id value;
    struct bw_error err = BW_ERROR_INIT;
    if (bwi_store_id_decode(bwi_span(data, size), &value, &err) == 0) {
        struct bwi_buf again = {0};
        fuzz_require(bwi_store_id_encode(&value, &again, &err) == 0);
        fuzz_same(&again, data, size);
    } else {
        fuzz_failed(err);
    }
}

static void read_era_end(const uint8_t *data, size_t size) {
    struct bwi_era_end value;
    struct bw_error err = BW_ERROR_INIT;
    if (bwi_era_end_decode(bwi_span(data, size), &value, &err) == 0) {
        struct bwi_buf again = {0};
        fuzz_require(bwi_era_end_encode(&value, &again, &err) == 0);
        fuzz_same(&again, data, size);
    } else {
        fuzz_failed(err);
    }
}

void fuzz_one(uint8_t *data, size_t size) {
    fuzz_seal_json(data, size);
    read_mark(data, size, false);
    read_mark(data, size, true);
    read_store_id(data, size);
    read_era_end(data, size);
}
