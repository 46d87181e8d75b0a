/* SPDX-License-Identifier: Apache-2.0 */
/* What an import is made of. */
#ifndef BW_CLI_IMPORT_H
#define BW_CLI_IMPORT_H

#include "cli/safetensors_file.h"
#include "cli/tiers.h"

enum { CLI_METADATA_MAX = 1 << 20 }; /* what a save takes */

struct cli_import_blob {
    char *name;
    struct cli_mapped map;
};

struct cli_import {
    struct cli_st_file *files;
    size_t file_count, file_cap;
    struct cli_import_blob *blobs;
    size_t blob_count, blob_cap;
    char *metadata; /* JSON text for the rank, or NULL */
    size_t tensor_count;
    uint64_t total_bytes;
};

/* Opens what the operands name: files, or folders with a model in them. No tensor may come twice. */
int cli_import_open(const struct cli_args *args, struct cli_import *ret, struct bw_error *err);
void cli_import_close(struct cli_import *m);
/* Blobs and metadata of rank 0 that an export left in a folder. A second rank is BW_E_UNSUPPORTED. */
int cli_import_blobs(struct cli_import *m, const char *folder, struct bw_error *err);

#endif
