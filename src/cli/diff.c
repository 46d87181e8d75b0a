/* SPDX-License-Identifier: Apache-2.0 */
/* Merges two lists in the order of names, and streams what both have. */
#include <stdlib.h>
#include <string.h>

#include "cli/diff.h"

static void *grow(void *array, size_t count, size_t *cap, size_t bytes) {
    if (count < *cap) return array;
    *cap = *cap != 0 ? *cap * 2 : 64;
    return cli_realloc(array, *cap, bytes);
}

static void add_tensor(struct cli_diff *d, const struct cli_diff_tensor *t) {
    d->tensors = grow(d->tensors, d->tensor_count, &d->tensor_cap, sizeof *d->tensors);
    d->tensors[d->tensor_count++] = *t;
}

/* The next chosen tensor of one side at or after *at; a name of NULL when there is none. */
static int next_tensor(struct cli_diff *d, size_t side, uint64_t *at, struct bw_tensor_info *ret,
                       struct bw_error *err) {
    *ret = (struct bw_tensor_info){0};
    for (; *at < d->info[side].tensors; (*at)++) {
        struct bw_tensor_info t;
        int rc = bw_restore_tensor_at(d->reader[side], *at, &t, err);
        if (rc < 0) return rc;
        if (!cli_tensor_chosen(d->args, t.name)) continue;
        *ret = t;
        return 0;
    }
    return 0;
}

/* Below 0: only A has it. Above 0: only B. */
static int order(const char *a, const char *b) {
    if (a == NULL) return 1;
    if (b == NULL) return -1;
    return strcmp(a, b);
}

static bool same_shape(const struct bw_tensor_info *a, const struct bw_tensor_info *b) {
    if (a->dims != b->dims) return false;
    for (uint32_t d = 0; d < a->dims; d++)
        if (a->shape[d] != b->shape[d]) return false;
    return true;
}

static void classify(struct cli_diff *d, struct cli_diff_tensor *t) {
    const struct bw_tensor_info *a = &t->side[0];
    const struct bw_tensor_info *b = &t->side[1];
    const struct bw_tensor_info *any = a->name != NULL ? a : b;
    size_t element = bw_dtype_bytes((int)any->dtype);
    t->elements = element != 0 ? any->bytes / element : 0;
    if (a->name == NULL)
        t->change = CLI_ADDED;
    else if (b->name == NULL)
        t->change = CLI_REMOVED;
    else if (a->dtype != b->dtype)
        t->change = CLI_OTHER_DTYPE;
    else if (!same_shape(a, b))
        t->change = CLI_OTHER_SHAPE;
    else
        (void)atomic_fetch_add_explicit(&d->counter.total_bytes, a->bytes, memory_order_relaxed);
}

static int merge_tensors(struct cli_diff *d, struct bw_error *err) {
    struct cli_diff_tensor t = {0};
    uint64_t at[2] = {0, 0};
    int rc = next_tensor(d, 0, &at[0], &t.side[0], err);
    if (rc == 0) rc = next_tensor(d, 1, &at[1], &t.side[1], err);
    while (rc == 0 && (t.side[0].name != NULL || t.side[1].name != NULL)) {
        struct cli_diff_tensor now = t;
        int which = order(t.side[0].name, t.side[1].name);
        if (which < 0) now.side[1] = (struct bw_tensor_info){0};
        if (which > 0) now.side[0] = (struct bw_tensor_info){0};
        classify(d, &now);
        add_tensor(d, &now);
        if (which <= 0) {
            at[0]++;
            rc = next_tensor(d, 0, &at[0], &t.side[0], err);
        }
        if (rc == 0 && which >= 0) {
            at[1]++;
            rc = next_tensor(d, 1, &at[1], &t.side[1], err);
        }
    }
    return rc;
}

static uint64_t count_changed(const unsigned char *a, const unsigned char *b, size_t bytes, size_t element) {
    uint64_t changed = 0;
    if (memcmp(a, b, bytes) == 0) return 0;
    for (size_t i = 0; i < bytes; i += element) changed += memcmp(a + i, b + i, element) != 0;
    return changed;
}

static int compare_piece(void *ctx, const struct cli_piece *piece, const unsigned char *const data[CLI_STREAM_SOURCES],
                         struct bw_error *err) {
    struct cli_diff *d = ctx;
    (void)err;
    size_t element = bw_dtype_bytes((int)piece->tensor.dtype);
    d->tensors[piece->tag].elements_changed += count_changed(data[0], data[1], piece->bytes, element);
    return 0;
}

static int compare_tensors(struct cli_diff *d, struct bw_error *err) {
    struct cli_stream s = {.from = {d->reader[0], d->reader[1]},
                           .sources = 2,
                           .buffer_bytes = d->buffer_bytes,
                           .sink = compare_piece,
                           .ctx = d,
                           .counter = &d->counter};
    int rc = 0;
    cli_stream_init(&s);
    for (size_t i = 0; rc == 0 && i < d->tensor_count; i++)
        if (d->tensors[i].change == CLI_SAME) rc = cli_stream_tensor(&s, &d->tensors[i].side[0], i, err);
    if (rc == 0) rc = cli_stream_flush(&s, err);
    cli_stream_fini(&s);
    for (size_t i = 0; i < d->tensor_count; i++)
        if (d->tensors[i].elements_changed != 0) d->tensors[i].change = CLI_CHANGED;
    return rc;
}

static int read_blob(struct bw_restore *reader, const struct bw_blob_info *blob, unsigned char *bytes,
                     struct bw_error *err) {
    size_t got = 0;
    return bw_restore_blob(reader, blob->rank, blob->name, bytes, (size_t)blob->bytes, &got, err);
}

static int compare_blob(struct cli_diff *d, struct cli_diff_blob *b, struct bw_error *err) {
    uint64_t shorter = b->side[0].bytes < b->side[1].bytes ? b->side[0].bytes : b->side[1].bytes;
    uint64_t longer = b->side[0].bytes < b->side[1].bytes ? b->side[1].bytes : b->side[0].bytes;
    unsigned char *bytes[2];
    int rc = 0;
    for (size_t i = 0; i < 2; i++) bytes[i] = cli_calloc((size_t)b->side[i].bytes, 1);
    for (size_t i = 0; rc == 0 && i < 2; i++) rc = read_blob(d->reader[i], &b->side[i], bytes[i], err);
    if (rc == 0) b->bytes_changed = count_changed(bytes[0], bytes[1], (size_t)shorter, 1) + (longer - shorter);
    if (b->bytes_changed != 0) b->change = CLI_CHANGED;
    for (size_t i = 0; i < 2; i++) free(bytes[i]);
    return rc;
}

static int next_blob(struct cli_diff *d, size_t side, uint64_t at, struct bw_blob_info *ret, struct bw_error *err) {
    *ret = (struct bw_blob_info){0};
    return at < d->blobs_there[side] ? bw_restore_blob_at(d->reader[side], at, ret, err) : 0;
}

static int blob_order(const struct bw_blob_info *a, const struct bw_blob_info *b) {
    if (a->name != NULL && b->name != NULL && a->rank != b->rank) return a->rank < b->rank ? -1 : 1;
    return order(a->name, b->name);
}

static int merge_blobs(struct cli_diff *d, struct bw_error *err) {
    struct cli_diff_blob b = {0};
    uint64_t at[2] = {0, 0};
    int rc = next_blob(d, 0, 0, &b.side[0], err);
    if (rc == 0) rc = next_blob(d, 1, 0, &b.side[1], err);
    while (rc == 0 && (b.side[0].name != NULL || b.side[1].name != NULL)) {
        struct cli_diff_blob now = b;
        int which = blob_order(&b.side[0], &b.side[1]);
        if (which < 0) now.side[1] = (struct bw_blob_info){0};
        if (which > 0) now.side[0] = (struct bw_blob_info){0};
        if (which == 0)
            rc = compare_blob(d, &now, err);
        else
            now.change = which < 0 ? CLI_REMOVED : CLI_ADDED;
        if (now.change != CLI_SAME) {
            d->blobs = grow(d->blobs, d->blob_count, &d->blob_cap, sizeof *d->blobs);
            d->blobs[d->blob_count++] = now;
        }
        if (rc == 0 && which <= 0) rc = next_blob(d, 0, ++at[0], &b.side[0], err);
        if (rc == 0 && which >= 0) rc = next_blob(d, 1, ++at[1], &b.side[1], err);
    }
    return rc;
}

static int compare_metadata(struct cli_diff *d, struct bw_error *err) {
    uint32_t ranks = d->info[0].world > d->info[1].world ? d->info[0].world : d->info[1].world;
    for (uint32_t rank = 0; rank < ranks; rank++) {
        const char *json[2] = {"{}", "{}"};
        for (size_t i = 0; i < 2; i++) {
            int rc = rank < d->info[i].world ? bw_restore_metadata(d->reader[i], rank, &json[i], err) : 0;
            if (rc < 0) return rc;
        }
        if (strcmp(json[0], json[1]) == 0) continue;
        d->ranks = grow(d->ranks, d->rank_count, &d->rank_cap, sizeof *d->ranks);
        d->ranks[d->rank_count++] = rank;
    }
    return 0;
}

int cli_diff_run(struct cli_diff *d, struct bw_error *err) {
    int rc = merge_tensors(d, err);
    if (rc == 0 && d->tensor_count == 0 && d->args->opt[OPT_TENSORS].set)
        return cli_fail(err, BW_E_NOTFOUND, "no tensor of either checkpoint matches --tensors");
    if (rc == 0) rc = compare_tensors(d, err);
    d->blobs_compared = !d->args->opt[OPT_TENSORS].set;
    if (rc == 0 && d->blobs_compared) rc = merge_blobs(d, err);
    if (rc == 0 && d->blobs_compared) rc = compare_metadata(d, err);
    return rc;
}

void cli_diff_fini(struct cli_diff *d) {
    free(d->tensors);
    free(d->blobs);
    free(d->ranks);
    d->tensors = NULL;
    d->blobs = NULL;
    d->ranks = NULL;
}

size_t cli_diff_count(const struct cli_diff *d, enum cli_change change) {
    size_t n = 0;
    for (size_t i = 0; i < d->tensor_count; i++) n += d->tensors[i].change == change;
    return n;
}

bool cli_diff_identical(const struct cli_diff *d) {
    return cli_diff_count(d, CLI_SAME) == d->tensor_count && d->blob_count == 0 && d->rank_count == 0;
}
