/* SPDX-License-Identifier: Apache-2.0 */
/* For tests/integration/pack_safetensors.py: writes a pack of its own, and says what it reads in one.
 *
 * pack_tool write FILE   a pack with every dtype, odd names and odd shapes; data byte k of the file's data is 31 *
 * k + 7 pack_tool read FILE    metadata, then a line for each tensor: name in hex, dtype, shape, begin, end
 *  */
#include "base/text.h"
#include "format/pack.h"
#include <breakwater/tensor.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ALIGN 4096u

static int failed(const struct bw_error *err, const char *what) {
    (void)fprintf(stderr, "pack_tool: %s: %s\n", what, err->message);
    return 1;
}

/* --- write --- */

#define NAMED   10
#define ENTRIES (NAMED + BW_U64)

static struct bwi_pack_entry entry_of(const char *name, uint8_t dtype, size_t dims, const uint64_t *shape) {
    struct bwi_pack_entry e = {.name = bwi_span_str(name), .dtype = dtype, .dims = (uint8_t)dims};
    uint64_t bytes = bw_dtype_bytes(dtype);
    for (size_t d = 0; d < dims; d++) {
        e.shape[d] = shape[d];
        bytes *= shape[d];
    }
    e.end = bytes; /* its length, until it is placed */
    return e;
}

static void fill_entries(struct bwi_pack_entry *entries, char dtype_names[][32]) {
    static const char *const names[NAMED] = {
        "weight",           "..",   "a/b",      " ", "quote\"back\\slash", "tab\tline\n\x01", "gr\303\266\303\237e",
        "\xf0\x9f\x98\x80", "bw:0", "metadata",
    };
    static const uint64_t shape[] = {2, 3, 1, 5};
    static const uint64_t empty[] = {4, 0, 7};
    for (size_t i = 0; i < NAMED; i++) entries[i] = entry_of(names[i], i % 2 == 0 ? BW_F32 : BW_U8, i % 5, shape);
    entries[3] = entry_of(names[3], BW_F32, 3, empty);
    for (uint8_t dtype = BW_BOOL; dtype <= BW_U64; dtype++) {
        char *name = dtype_names[dtype - 1];
        (void)snprintf(name, 32, "dtype.%s", bw_dtype_name(dtype));
        entries[NAMED + dtype - 1] = entry_of(name, dtype, 2, shape);
    }
}

static int write_file(const char *path, const struct bwi_buf *head, uint64_t data_bytes) {
    FILE *f = fopen(path, "wb");
    if (f == NULL) return 1;
    bool ok = fwrite(head->ptr, 1, head->len, f) == head->len;
    for (uint64_t k = 0; k < data_bytes; k++) ok = fputc((int)((31 * k + 7) & 0xff), f) != EOF && ok;
    return fclose(f) == 0 && ok ? 0 : 1;
}

static int write_pack(const char *path) {
    struct bwi_pack_entry entries[ENTRIES];
    char dtype_names[BW_U64][32];
    fill_entries(entries, dtype_names);
    uint64_t at = 0;
    for (size_t i = 0; i < ENTRIES; i++) {
        entries[i].begin = at;
        at = entries[i].end += at;
    }
    const struct bwi_pack_header h = {.entries = entries,
                                      .count = ENTRIES,
                                      .data_bytes = at,
                                      .metadata = bwi_span_str("{\"k\\\"\":\"v\\n\xc3\xa9\",\"z\":\"\"}")};
    struct bw_error err = BW_ERROR_INIT;
    struct bwi_buf head = {0};
    int rc = bwi_pack_header_encode(&h, ALIGN, &head, &err);
    rc = rc < 0 ? failed(&err, path) : write_file(path, &head, at);
    bwi_buf_fini(&head);
    return rc;
}

/* --- read --- */

static int read_file(const char *path, struct bwi_buf *ret) {
    FILE *f = fopen(path, "rb");
    if (f == NULL) return 1;
    char part[65536];
    for (size_t got; (got = fread(part, 1, sizeof part, f)) > 0;) bwi_buf_put(ret, part, got);
    return fclose(f) == 0 && !ret->failed ? 0 : 1;
}

static void print_entry(const struct bwi_pack_entry *e) {
    for (size_t i = 0; i < e->name.len; i++) printf("%02x", e->name.ptr[i]);
    printf(" %s [", bw_dtype_name(e->dtype));
    for (uint32_t d = 0; d < e->dims; d++) printf(d > 0 ? ",%" PRIu64 : "%" PRIu64, e->shape[d]);
    printf("] %" PRIu64 " %" PRIu64 "\n", e->begin, e->end);
}

static int read_pack(const char *path) {
    struct bw_error err = BW_ERROR_INIT;
    struct bwi_buf file = {0};
    struct bwi_pack_header h = {0};
    int rc = read_file(path, &file);
    if (rc == 0 && bwi_pack_header_decode(bwi_buf_span(&file), file.len, &h, &err) < 0) rc = failed(&err, path);
    if (rc == 0) {
        printf("%.*s\n", (int)h.metadata.len, (const char *)h.metadata.ptr);
        for (size_t i = 0; i < h.count; i++) print_entry(&h.entries[i]);
    }
    bwi_pack_header_fini(&h);
    bwi_buf_fini(&file);
    return rc;
}

int main(int argc, char **argv) {
    if (argc == 3 && strcmp(argv[1], "write") == 0) return write_pack(argv[2]);
    if (argc == 3 && strcmp(argv[1], "read") == 0) return read_pack(argv[2]);
    (void)fprintf(stderr, "usage: pack_tool write|read FILE\n");
    return 2;
}
