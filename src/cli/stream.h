/* SPDX-License-Identifier: Apache-2.0 */
/* Tensors in pieces through bounded memory: for diff and export.
 *
 * A tensor is walked box by box, as it was saved, and each box in pieces that fit into the buffer, so that every extent
 * is read about once whatever the sharding. Pieces of small tensors share one read. */
#ifndef BW_CLI_STREAM_H
#define BW_CLI_STREAM_H

#include "cli/tiers.h"

enum { CLI_STREAM_SOURCES = 2, CLI_STREAM_PIECES = 256 };

struct cli_piece {
    struct bw_tensor_info tensor; /* as the first source has it */
    size_t tag;                   /* of the caller */
    uint64_t offset[BW_DIMS_MAX];
    uint64_t extent[BW_DIMS_MAX];
    size_t at;    /* in the buffers */
    size_t bytes; /* row-major without gaps */
};

struct cli_stream {
    /* Set by the caller. With two sources, both must have the tensor with the same dtype and shape. */
    struct bw_restore *from[CLI_STREAM_SOURCES];
    size_t sources;
    size_t buffer_bytes; /* of one source */
    int (*sink)(void *ctx, const struct cli_piece *piece, const unsigned char *const data[CLI_STREAM_SOURCES],
                struct bw_error *err);
    void *ctx;
    struct cli_counter *counter; /* done_bytes is counted up */
    /* Its own. */
    unsigned char *buffer[CLI_STREAM_SOURCES];
    struct cli_piece *pieces;
    struct bw_slice *slices;
    size_t count;
    size_t used;
};

/* After the members of the caller are set. */
void cli_stream_init(struct cli_stream *stream);
/* Queues the tensor, and reads when the buffer is full. */
int cli_stream_tensor(struct cli_stream *stream, const struct bw_tensor_info *tensor, size_t tag, struct bw_error *err);
/* Reads what is queued and hands it to the sink. */
int cli_stream_flush(struct cli_stream *stream, struct bw_error *err);
void cli_stream_fini(struct cli_stream *stream);

#endif
