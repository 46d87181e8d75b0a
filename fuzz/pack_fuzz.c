/* SPDX-License-Identifier: Apache-2.0 */
/* Headers of packs and of foreign safetensors files. These are not canonical, so what is accepted must come back equal
 * after it was encoded and decoded once more.
 * Reaches src/format/pack.c src/format/pack_decode.c
 * src/format/json_scan.c */
#include "format/pack.h"
#include "fuzz.h"

static void same_entries(const struct bwi_pack_header *a, const struct bwi_pack_header *b) {
    fuzz_require(a->count == b->count && a->data_bytes == b->data_bytes);
    fuzz_require(bwi_span_eq(a->metadata, b->metadata));
    for (size_t i = 0; i < a->count; i++) {
        const struct bwi_pack_entry *x = &a->entries[i], *y = &b->entries[i];
        fuzz_require(x->begin == y->begin && x->end == y->end && x->dtype == y->dtype && x->dims == y->dims);
        fuzz_require(x->name.len == y->name.len && memcmp(x->name.ptr, y->name.ptr, x->name.len) == 0);
        fuzz_require(memcmp(x->shape, y->shape, x->dims * sizeof x->shape[0]) == 0);
    }
}

static void check_round_trip(const struct bwi_pack_header *h) {
    struct bwi_buf text = {0};
    struct bwi_pack_header again;
    struct bw_error err = BW_ERROR_INIT;
    for (size_t i = 0; i < h->count; i++) fuzz_require(h->entries[i].end <= h->data_bytes);
    if (bwi_pack_header_encode(h, 4096, &text, &err) == 0) {
        fuzz_require(text.len % 4096 == 0);
        const uint64_t file_bytes = text.len + h->data_bytes;
        fuzz_require(bwi_pack_header_decode(bwi_span(text.ptr, text.len), file_bytes, &again, &err) == 0);
        same_entries(h, &again);
        bwi_pack_header_fini(&again);
    }
    bwi_buf_fini(&text);
}

/* The first 8 bytes of the input are the size of the file. */
void fuzz_one(uint8_t *data, size_t size) {
    uint64_t file_bytes;
    if (size < sizeof file_bytes) return;
    memcpy(&file_bytes, data, sizeof file_bytes);
    size -= sizeof file_bytes;
    uint8_t *copy = fuzz_copy(data + sizeof file_bytes, size);
    struct bwi_pack_header h;
    struct bw_error err = BW_ERROR_INIT;
    if (bwi_pack_header_decode(bwi_span(copy, size), file_bytes, &h, &err) == 0) {
        check_round_trip(&h);
        bwi_pack_header_fini(&h);
    } else {
        fuzz_failed(err);
    }
    free(copy);
}
