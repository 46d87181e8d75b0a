/* SPDX-License-Identifier: Apache-2.0 */
/* Files of other programs, as `breakwater import` reads them: tensors lie one behind the other from the header to the
 * end of the file, each as large as its dtype and shape say. Reaches src/cli/safetensors_file.c */
#include "cli/safetensors_file.h"
#include "fuzz.h"

static void check_tensor(const struct cli_st_file *f, const struct cli_st_tensor *t, uint64_t at) {
    uint64_t bytes = bw_dtype_bytes((int)t->dtype);
    fuzz_require(t->begin == at && t->end >= t->begin && t->dims <= BW_DIMS_MAX && bytes > 0);
    fuzz_require(t->data >= f->map.bytes && t->data + (t->end - t->begin) <= f->map.bytes + f->map.n);
    for (uint32_t d = 0; d < t->dims; d++) bytes = t->shape[d] == 0 ? 0 : bytes;
    for (uint32_t d = 0; d < t->dims && bytes > 0; d++)
        fuzz_require(!__builtin_mul_overflow(bytes, t->shape[d], &bytes));
    fuzz_require(bytes == t->end - t->begin);
}

void fuzz_one(uint8_t *data, size_t size) {
    struct bw_error err = BW_ERROR_INIT;
    struct cli_st_file f = {.path = cli_strdup("input"), .map = {data, size}};
    if (cli_st_parse(&f, &err) == 0) {
        uint64_t at = 0;
        for (size_t i = 0; i < f.count; i++) {
            check_tensor(&f, &f.tensors[i], at);
            at = f.tensors[i].end;
        }
        fuzz_require(at <= size - 8);
    } else {
        fuzz_failed(err);
    }
    f.map.n = 0; /* not a map to give back */
    cli_st_close(&f);
}
