/* SPDX-License-Identifier: Apache-2.0 */
/* A checkpoint turned into plain safetensors files. */
#ifndef BW_CLI_EXPORT_H
#define BW_CLI_EXPORT_H

#include "cli/folder.h"
#include "cli/stream.h"

struct cli_export_tensor {
    struct bw_tensor_info info;
    const char *name; /* that it gets: the end of its own */
    uint64_t begin; /* in its file, behind the header */
};

struct cli_export_shard {
    size_t first, count; /* of the tensors */
    uint64_t bytes;      /* of the tensors */
    char name[64];
};

struct cli_export {
    /* Set by the caller. */
    const struct cli_args *args;
    struct bw_restore *reader;
    struct bw_checkpoint_info info;
    uint64_t blobs_there;
    const char *run;
    uint64_t shard_bytes;
    size_t buffer_bytes;
    struct cli_folder folder;
    struct cli_counter counter;
    /* The plan: tensors grouped by file, each group in the order of its bytes. */
    struct cli_export_tensor *tensors;
    size_t tensor_count, tensor_cap;
    struct cli_export_shard *shards;
    size_t shard_count, shard_cap;
    uint64_t total_bytes;
    struct cli_buf skipped; /* a line for each tensor that was left out */
    size_t skipped_count;
    size_t blob_count;
};

/* Chooses tensors and cuts them into files. */
int cli_export_plan(struct cli_export *x, struct bw_error *err);
/* Writes the files, and the index when there is more than one. */
int cli_export_write(struct cli_export *x, struct bw_error *err);
/* Writes blobs and metadata. */
int cli_export_blobs(struct cli_export *x, struct bw_error *err);
void cli_export_fini(struct cli_export *x);

/* Appends a name in which all bytes but letters, digits, "_", "-" and inner dots are %XX. */
void cli_percent_encode(struct cli_buf *b, const char *name);

#endif
