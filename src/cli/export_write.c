/* SPDX-License-Identifier: Apache-2.0 */
/* Safetensors files: header, then the tensors piece by piece to where they belong. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "cli/export.h"
#include "cli/out_json.h"

struct writing {
    struct cli_export *x;
    const struct cli_export_shard *shard;
    int fd;
    uint64_t data; /* offset of the tensors in the file */
};

static json_t *entry(const struct cli_export_tensor *t) {
    json_t *o = cli_json_object();
    json_t *offsets = cli_json_array();
    cli_json_add(offsets, cli_json_u64(t->begin));
    cli_json_add(offsets, cli_json_u64(t->begin + t->info.bytes));
    cli_json_set(o, "dtype", cli_json_text(bw_dtype_name((int)t->info.dtype)));
    cli_json_set(o, "shape", cli_json_shape(t->info.shape, t->info.dims));
    cli_json_set(o, "data_offsets", offsets);
    return o;
}

/* "format" is what loaders of PyTorch models look for. */
static json_t *metadata(const struct cli_export *x) {
    json_t *o = cli_json_object();
    struct cli_buf step = {0};
    cli_buf_printf(&step, "%llu", (unsigned long long)x->info.step);
    cli_json_set(o, "format", cli_json_text("pt"));
    cli_json_set(o, "breakwater.run", cli_json_text(x->run));
    cli_json_set(o, "breakwater.step", cli_json_text(step.data));
    cli_json_set(o, "breakwater.checkpoint", cli_json_text(x->info.id));
    cli_buf_fini(&step);
    return o;
}

/* 8 bytes of length, little-endian, and JSON that is padded with blanks to a multiple of 8. */
static void build_header(const struct cli_export *x, const struct cli_export_shard *shard, struct cli_buf *out) {
    json_t *root = cli_json_object();
    cli_json_set(root, "__metadata__", metadata(x));
    for (size_t i = 0; i < shard->count; i++) {
        const struct cli_export_tensor *t = &x->tensors[shard->first + i];
        cli_json_set(root, t->name, entry(t));
    }
    char *text = json_dumps(root, JSON_COMPACT);
    if (text == NULL) cli_out_of_memory();
    size_t n = strlen(text);
    size_t padded = (n + 7) / 8 * 8;
    for (size_t i = 0; i < 8; i++) {
        char byte = (char)(unsigned char)((uint64_t)padded >> (8 * i) & 0xff);
        cli_buf_add(out, &byte, 1);
    }
    cli_buf_add(out, text, n);
    for (; n < padded; n++) cli_buf_add(out, " ", 1);
    free(text);
    json_decref(root);
}

/* The number of trailing dimensions of the piece that are whole and so lie together in the tensor, plus one. */
static uint32_t run_dims(const struct cli_piece *p) {
    uint32_t dims = 0;
    while (dims < p->tensor.dims) {
        uint32_t d = p->tensor.dims - 1 - dims;
        dims++;
        if (p->extent[d] != p->tensor.shape[d]) break;
    }
    return dims;
}

/* Writes a piece to its places in the whole, row-major tensor: one write for each run of bytes that lie together. */
static int write_piece(void *ctx, const struct cli_piece *p, const unsigned char *const data[CLI_STREAM_SOURCES],
                       struct bw_error *err) {
    const struct writing *w = ctx;
    uint32_t dims = p->tensor.dims;
    uint32_t outer = dims - run_dims(p);
    uint64_t stride[BW_DIMS_MAX];
    uint64_t index[BW_DIMS_MAX] = {0};
    uint64_t at = bw_dtype_bytes((int)p->tensor.dtype);
    uint64_t runs = 1;
    for (uint32_t d = dims; d-- > 0;) {
        stride[d] = at;
        at *= p->tensor.shape[d];
    }
    for (uint32_t d = 0; d < outer; d++) runs *= p->extent[d];
    size_t run_bytes = p->bytes / (size_t)runs;
    for (uint64_t run = 0; run < runs; run++) {
        uint64_t offset = w->data + w->x->tensors[p->tag].begin;
        for (uint32_t d = 0; d < dims; d++) offset += (p->offset[d] + (d < outer ? index[d] : 0)) * stride[d];
        int rc = cli_write_at(w->fd, data[0] + run * run_bytes, run_bytes, offset, w->shard->name, err);
        if (rc < 0) return rc;
        for (uint32_t d = outer; d-- > 0;) {
            if (++index[d] < p->extent[d]) break;
            index[d] = 0;
        }
    }
    return 0;
}

/* Asked before reserving: a file system may take all that is free from everybody before it says no. */
static bool is_beyond_free(int fd, uint64_t bytes) {
    struct statvfs fs;
    return fstatvfs(fd, &fs) == 0 && fs.f_blocks > 0 && fs.f_frsize > 0 && bytes / fs.f_frsize > fs.f_bfree;
}

/* A full disk is found before the first byte where the file system can tell. */
static int reserve(int fd, uint64_t bytes, const char *name, struct bw_error *err) {
    if (bytes > INT64_MAX)
        return cli_fail(err, BW_E_LIMIT, "write \"%s\": %llu bytes are too many for a file", name,
                        (unsigned long long)bytes);
    if (is_beyond_free(fd, bytes))
        return cli_fail_errno(err, ENOSPC, "write \"%s\" of %llu bytes", name, (unsigned long long)bytes);
    if (ftruncate(fd, (off_t)bytes) != 0) return cli_fail_errno(err, errno, "write \"%s\"", name);
    if (bytes > 0 && fallocate(fd, 0, 0, (off_t)bytes) != 0 && (errno == ENOSPC || errno == EDQUOT))
        return cli_fail_errno(err, errno, "write \"%s\" of %llu bytes", name, (unsigned long long)bytes);
    return 0;
}

static int stream_shard(struct writing *w, struct bw_error *err) {
    struct cli_export *x = w->x;
    struct cli_stream s = {.from = {x->reader, NULL},
                           .sources = 1,
                           .buffer_bytes = x->buffer_bytes,
                           .sink = write_piece,
                           .ctx = w,
                           .counter = &x->counter};
    int rc = 0;
    cli_stream_init(&s);
    for (size_t i = 0; rc == 0 && i < w->shard->count; i++)
        rc = cli_stream_tensor(&s, &x->tensors[w->shard->first + i].info, w->shard->first + i, err);
    if (rc == 0) rc = cli_stream_flush(&s, err);
    cli_stream_fini(&s);
    return rc;
}

static int write_shard(struct cli_export *x, const struct cli_export_shard *shard, struct bw_error *err) {
    struct writing w = {.x = x, .shard = shard, .fd = -1};
    struct cli_buf header = {0};
    build_header(x, shard, &header);
    w.data = header.len;
    int rc = cli_folder_create(&x->folder, shard->name, &w.fd, err);
    if (rc == 0) rc = reserve(w.fd, w.data + shard->bytes, shard->name, err);
    if (rc == 0) rc = cli_write_at(w.fd, header.data, header.len, 0, shard->name, err);
    cli_buf_fini(&header);
    if (rc == 0) rc = stream_shard(&w, err);
    if (rc == 0)
        rc = cli_folder_finish(&x->folder, w.fd, shard->name, err);
    else if (w.fd >= 0)
        (void)close(w.fd);
    if (rc == 0) (void)atomic_fetch_add_explicit(&x->counter.done_items, 1, memory_order_relaxed);
    return rc;
}

static int write_index(struct cli_export *x, struct bw_error *err) {
    json_t *root = cli_json_object();
    json_t *map = cli_json_object();
    json_t *facts = cli_json_object();
    struct cli_buf text = {0};
    int fd = -1;
    for (size_t i = 0; i < x->shard_count; i++)
        for (size_t k = 0; k < x->shards[i].count; k++)
            cli_json_set(map, x->tensors[x->shards[i].first + k].name, cli_json_text(x->shards[i].name));
    cli_json_set(facts, "total_size", cli_json_u64(x->total_bytes));
    cli_json_set(root, "metadata", facts);
    cli_json_set(root, "weight_map", map);
    char *dumped = json_dumps(root, JSON_INDENT(2) | JSON_SORT_KEYS);
    if (dumped == NULL) cli_out_of_memory();
    cli_buf_printf(&text, "%s\n", dumped);
    free(dumped);
    int rc = cli_folder_create(&x->folder, CLI_INDEX_NAME, &fd, err);
    if (rc == 0) rc = cli_write_at(fd, text.data, text.len, 0, CLI_INDEX_NAME, err);
    if (rc == 0)
        rc = cli_folder_finish(&x->folder, fd, CLI_INDEX_NAME, err);
    else if (fd >= 0)
        (void)close(fd);
    cli_buf_fini(&text);
    json_decref(root);
    return rc;
}

int cli_export_write(struct cli_export *x, struct bw_error *err) {
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < x->shard_count; i++) rc = write_shard(x, &x->shards[i], err);
    if (rc == 0 && x->shard_count > 1) rc = write_index(x, err);
    return rc;
}
