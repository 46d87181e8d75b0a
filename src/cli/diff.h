/* SPDX-License-Identifier: Apache-2.0 */
/* What two checkpoints have in common and what not. */
#ifndef BW_CLI_DIFF_H
#define BW_CLI_DIFF_H

#include "cli/stream.h"

enum cli_change { CLI_SAME, CLI_ADDED, CLI_REMOVED, CLI_CHANGED, CLI_OTHER_DTYPE, CLI_OTHER_SHAPE };

/* A tensor of either side; the pointers of `side` are valid while the readers are open. */
struct cli_diff_tensor {
    enum cli_change change;
    struct bw_tensor_info side[2]; /* a name of NULL: not there */
    uint64_t elements;
    uint64_t elements_changed;
};

struct cli_diff_blob {
    enum cli_change change;
    struct bw_blob_info side[2];
    uint64_t bytes_changed; /* of the longer one */
};

struct cli_diff {
    /* Set by the caller. */
    const struct cli_args *args;
    struct bw_restore *reader[2];
    struct bw_checkpoint_info info[2];
    uint64_t blobs_there[2];
    size_t buffer_bytes;
    struct cli_counter counter;
    /* The result: of tensors all that were looked at, of blobs and metadata only what differs. */
    struct cli_diff_tensor *tensors;
    size_t tensor_count, tensor_cap;
    struct cli_diff_blob *blobs;
    size_t blob_count, blob_cap;
    uint32_t *ranks; /* whose metadata differ */
    size_t rank_count, rank_cap;
    bool blobs_compared; /* and metadata: unless --tensors chooses */
};

int cli_diff_run(struct cli_diff *diff, struct bw_error *err);
void cli_diff_fini(struct cli_diff *diff);
bool cli_diff_identical(const struct cli_diff *diff);
size_t cli_diff_count(const struct cli_diff *diff, enum cli_change change);

#endif
