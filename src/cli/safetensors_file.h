/* SPDX-License-Identifier: Apache-2.0 */
/* A safetensors file of somebody else, mapped and checked. */
#ifndef BW_CLI_SAFETENSORS_FILE_H
#define BW_CLI_SAFETENSORS_FILE_H

#include <breakwater/tensor.h>

#include "cli/mapped.h"

struct cli_st_tensor {
    char *name;
    uint32_t dtype;
    uint32_t dims;
    uint64_t shape[BW_DIMS_MAX];
    uint64_t begin, end;       /* behind the header */
    const unsigned char *data; /* in the map */
};

struct cli_st_file {
    char *path;
    struct cli_mapped map;
    struct cli_st_tensor *tensors; /* in the order of their bytes */
    size_t count;
    char *metadata; /* "__metadata__" as JSON text, or NULL */
};

/* Refuses what breaks the rules of the format: BW_E_FORMAT, and BW_E_UNSUPPORTED for a dtype that is not known. */
int cli_st_open(const char *path, struct cli_st_file *ret, struct bw_error *err);
/* The second half of it: reads the header. `path` and `map` are set. */
int cli_st_parse(struct cli_st_file *file, struct bw_error *err);
void cli_st_close(struct cli_st_file *file);

#endif
