/* SPDX-License-Identifier: Apache-2.0 */
/* Boxes cut into pieces, pieces gathered into reads. */
#include <stdlib.h>
#include <string.h>

#include "cli/stream.h"

enum { ALIGN = 64 };

void cli_stream_init(struct cli_stream *s) {
    for (size_t i = 0; i < s->sources; i++) s->buffer[i] = cli_calloc(s->buffer_bytes, 1);
    s->pieces = cli_calloc(CLI_STREAM_PIECES, sizeof *s->pieces);
    s->slices = cli_calloc(CLI_STREAM_PIECES, sizeof *s->slices);
}

void cli_stream_fini(struct cli_stream *s) {
    for (size_t i = 0; i < CLI_STREAM_SOURCES; i++) {
        free(s->buffer[i]);
        s->buffer[i] = NULL;
    }
    free(s->pieces);
    free(s->slices);
    s->pieces = NULL;
    s->slices = NULL;
}

static int read_source(struct cli_stream *s, size_t source, struct bw_error *err) {
    for (size_t i = 0; i < s->count; i++) {
        const struct cli_piece *p = &s->pieces[i];
        s->slices[i] = (struct bw_slice){.struct_size = sizeof(struct bw_slice),
                                         .dtype = p->tensor.dtype,
                                         .name = p->tensor.name,
                                         .data = s->buffer[source] + p->at,
                                         .dims = p->tensor.dims,
                                         .shape = p->tensor.shape,
                                         .offset = p->tensor.dims > 0 ? p->offset : NULL,
                                         .extent = p->tensor.dims > 0 ? p->extent : NULL};
    }
    return bw_restore_read(s->from[source], s->slices, s->count, err);
}

int cli_stream_flush(struct cli_stream *s, struct bw_error *err) {
    int rc = 0;
    for (size_t i = 0; rc == 0 && s->count > 0 && i < s->sources; i++) rc = read_source(s, i, err);
    for (size_t i = 0; rc == 0 && i < s->count; i++) {
        const struct cli_piece *p = &s->pieces[i];
        const unsigned char *data[CLI_STREAM_SOURCES] = {NULL, NULL};
        for (size_t k = 0; k < s->sources; k++) data[k] = s->buffer[k] + p->at;
        rc = s->sink(s->ctx, p, data, err);
        if (rc == 0) (void)atomic_fetch_add_explicit(&s->counter->done_bytes, p->bytes, memory_order_relaxed);
    }
    s->count = 0;
    s->used = 0;
    return rc;
}

/* Room for `bytes` more, flushing if need be; they fit into an empty buffer. */
static int add_piece(struct cli_stream *s, const struct cli_piece *piece, struct bw_error *err) {
    if (s->count == CLI_STREAM_PIECES || s->buffer_bytes - s->used < piece->bytes) {
        int rc = cli_stream_flush(s, err);
        if (rc < 0) return rc;
    }
    struct cli_piece *p = &s->pieces[s->count++];
    *p = *piece;
    p->at = s->used;
    size_t end = s->used + (piece->bytes + ALIGN - 1) / ALIGN * ALIGN;
    s->used = end < s->buffer_bytes ? end : s->buffer_bytes;
    return 0;
}

/* How a box is cut: dimensions after `dim` whole, `rows` indices of `dim` at once, one index of those before. */
struct cut {
    uint32_t dim;
    uint64_t rows;
    uint64_t row_bytes; /* of one index of `dim` */
};

static struct cut choose_cut(const struct bw_box_info *box, uint32_t dims, size_t element, size_t buffer_bytes) {
    struct cut cut = {0, 1, element};
    for (uint32_t d = dims; d-- > 0;) {
        cut.dim = d;
        cut.rows = buffer_bytes / cut.row_bytes;
        if (d == 0 || cut.rows < box->extent[d]) break;
        cut.row_bytes *= box->extent[d];
    }
    if (dims > 0 && cut.rows > box->extent[cut.dim]) cut.rows = box->extent[cut.dim];
    return cut;
}

/* The next index over the dimensions before `dims`; false after the last one. */
static bool next_index(uint64_t *index, const uint64_t *extent, uint32_t dims) {
    for (uint32_t d = dims; d-- > 0;) {
        if (++index[d] < extent[d]) return true;
        index[d] = 0;
    }
    return false;
}

static int stream_box(struct cli_stream *s, const struct bw_tensor_info *t, size_t tag, const struct bw_box_info *box,
                      struct bw_error *err) {
    struct cli_piece piece = {.tensor = *t, .tag = tag};
    uint64_t index[BW_DIMS_MAX] = {0};
    size_t element = bw_dtype_bytes((int)t->dtype);
    for (uint32_t d = 0; d < t->dims; d++)
        if (box->extent[d] == 0) return 0;
    struct cut cut = choose_cut(box, t->dims, element, s->buffer_bytes);
    if (t->dims == 0) {
        piece.bytes = element;
        return add_piece(s, &piece, err);
    }
    do {
        for (uint64_t row = 0; row < box->extent[cut.dim]; row += cut.rows) {
            uint64_t rows = box->extent[cut.dim] - row < cut.rows ? box->extent[cut.dim] - row : cut.rows;
            for (uint32_t d = 0; d < t->dims; d++) {
                piece.offset[d] = box->offset[d] + (d < cut.dim ? index[d] : d == cut.dim ? row : 0);
                piece.extent[d] = d < cut.dim ? 1 : d == cut.dim ? rows : box->extent[d];
            }
            piece.bytes = (size_t)(rows * cut.row_bytes);
            int rc = add_piece(s, &piece, err);
            if (rc < 0) return rc;
        }
    } while (next_index(index, box->extent, cut.dim));
    return 0;
}

int cli_stream_tensor(struct cli_stream *s, const struct bw_tensor_info *t, size_t tag, struct bw_error *err) {
    for (uint32_t i = 0; i < t->boxes; i++) {
        struct bw_box_info box;
        int rc = bw_restore_box_at(s->from[0], t->name, i, &box, err);
        if (rc == 0) rc = stream_box(s, t, tag, &box, err);
        if (rc < 0) return rc;
    }
    return 0;
}
