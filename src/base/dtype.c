/* SPDX-License-Identifier: Apache-2.0 */
/* The element types and levels of include/breakwater/tensor.h: names and sizes. */
#include <breakwater/tensor.h>
#include <string.h>

struct dtype {
    const char *name; /* as safetensors writes it */
    size_t bytes;
};

/* Indexed by enum bw_dtype; 0 is no dtype. */
static const struct dtype table[] = {
    [BW_BOOL] = {"BOOL", 1},
    [BW_U8] = {"U8", 1},
    [BW_I8] = {"I8", 1},
    [BW_F8_E5M2] = {"F8_E5M2", 1},
    [BW_F8_E4M3] = {"F8_E4M3", 1},
    [BW_I16] = {"I16", 2},
    [BW_U16] = {"U16", 2},
    [BW_F16] = {"F16", 2},
    [BW_BF16] = {"BF16", 2},
    [BW_I32] = {"I32", 4},
    [BW_U32] = {"U32", 4},
    [BW_F32] = {"F32", 4},
    [BW_F64] = {"F64", 8},
    [BW_I64] = {"I64", 8},
    [BW_U64] = {"U64", 8},
    [BW_C64] = {"C64", 8},
    [BW_C128] = {"C128", 16},
    [BW_F8_E4M3FNUZ] = {"F8_E4M3FNUZ", 1},
    [BW_F8_E5M2FNUZ] = {"F8_E5M2FNUZ", 1},
    [BW_F8_E8M0] = {"F8_E8M0", 1},
};
#define DTYPES ((int)(sizeof table / sizeof table[0]))

size_t bw_dtype_bytes(int dtype) {
    return dtype > 0 && dtype < DTYPES ? table[dtype].bytes : 0;
}

const char *bw_dtype_name(int dtype) {
    return dtype > 0 && dtype < DTYPES ? table[dtype].name : "?";
}

int bw_dtype_parse(const char *name) {
    if (name == NULL) return 0;
    for (int i = 1; i < DTYPES; i++) {
        if (strcmp(name, table[i].name) == 0) return i;
    }
    return 0;
}

const char *bw_level_name(int level) {
    static const char *const names[] = {"none", "captured", "local", "remote", "committed"};
    return level >= BW_LEVEL_NONE && level <= BW_COMMITTED ? names[level] : "?";
}
