/* SPDX-License-Identifier: Apache-2.0 */
/* Which tensors go into which file, and where. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/export.h"

/* Readers refuse headers above 100 MB; an entry takes its name, escaped at worst, its shape, and this much. */
enum { HEADER_MAX = 99000000, ENTRY_BYTES = 96, DIGITS = 22 };

/* The name in the file. One that is nothing but the prefix stays. */
static const char *name_of(const struct cli_export *x, const struct bw_tensor_info *t) {
    const char *prefix = x->args->opt[OPT_STRIP_PREFIX].text;
    const size_t n = prefix != NULL ? strlen(prefix) : 0;
    return n > 0 && strncmp(t->name, prefix, n) == 0 && t->name[n] != '\0' ? t->name + n : t->name;
}

/* NULL, or why a safetensors file cannot hold the tensor. */
static const char *unsupported(const struct cli_export *x, const struct bw_tensor_info *t) {
    bool recent = t->dtype == BW_C64 || t->dtype == BW_F8_E8M0;
    if (recent && !x->args->opt[OPT_NEW_DTYPES].set)
        return "only recent safetensors readers know its dtype (--new-dtypes writes it)";
    if (t->dtype > BW_U64 && !recent) return "safetensors has no such dtype";
    if (strcmp(name_of(x, t), "__metadata__") == 0) return "safetensors keeps this name for itself";
    for (uint32_t d = 0; d < t->dims; d++)
        if (t->shape[d] > INT64_MAX) return "a dimension is above 2^63 - 1";
    return NULL;
}

static int take(struct cli_export *x, const struct bw_tensor_info *t, struct bw_error *err) {
    const char *why = unsupported(x, t);
    if (why != NULL && !x->args->opt[OPT_SKIP_UNSUPPORTED].set)
        return cli_fail(err, BW_E_UNSUPPORTED, "tensor \"%.128s\" (%s): %s; --skip-unsupported leaves it out", t->name,
                        bw_dtype_name((int)t->dtype), why);
    if (why != NULL) {
        cli_buf_printf(&x->skipped, "left out: ");
        cli_buf_escaped(&x->skipped, t->name);
        cli_buf_printf(&x->skipped, " (%s): %s\n", bw_dtype_name((int)t->dtype), why);
        x->skipped_count++;
        return 0;
    }
    if (x->tensor_count == x->tensor_cap) {
        x->tensor_cap = x->tensor_cap != 0 ? x->tensor_cap * 2 : 256;
        x->tensors = cli_realloc(x->tensors, x->tensor_cap, sizeof *x->tensors);
    }
    x->tensors[x->tensor_count++] = (struct cli_export_tensor){*t, name_of(x, t), 0};
    x->total_bytes += t->bytes;
    return 0;
}

static int by_name(const void *a, const void *b) {
    const struct cli_export_tensor *const *x = a;
    const struct cli_export_tensor *const *y = b;
    return strcmp((*x)->name, (*y)->name);
}

/* What is left of two names may be the same. */
static int check_names(const struct cli_export *x, struct bw_error *err) {
    if (!x->args->opt[OPT_STRIP_PREFIX].set || x->tensor_count == 0) return 0;
    const struct cli_export_tensor **sorted = cli_realloc(NULL, x->tensor_count, sizeof(void *));
    int rc = 0;
    for (size_t i = 0; i < x->tensor_count; i++) sorted[i] = &x->tensors[i];
    qsort(sorted, x->tensor_count, sizeof *sorted, by_name);
    for (size_t i = 1; i < x->tensor_count && rc == 0; i++)
        if (by_name(&sorted[i - 1], &sorted[i]) == 0)
            rc = cli_fail(err, BW_E_MISMATCH,
                          "--strip-prefix: tensors \"%.128s\" and \"%.128s\" would both be \"%.128s\"",
                          sorted[i - 1]->info.name, sorted[i]->info.name, sorted[i]->name);
    free(sorted);
    return rc;
}

static int choose(struct cli_export *x, struct bw_error *err) {
    for (uint64_t i = 0; i < x->info.tensors; i++) {
        struct bw_tensor_info t;
        int rc = bw_restore_tensor_at(x->reader, i, &t, err);
        if (rc == 0 && cli_tensor_chosen(x->args, t.name)) rc = take(x, &t, err);
        if (rc < 0) return rc;
    }
    if (x->tensor_count == 0 && x->skipped_count == 0 && x->args->opt[OPT_TENSORS].set)
        return cli_fail(err, BW_E_NOTFOUND, "no tensor of checkpoint \"%s\" matches --tensors", x->info.id);
    return 0;
}

static uint64_t header_bytes(const struct bw_tensor_info *t) {
    return 6 * (uint64_t)strlen(t->name) + ENTRY_BYTES + t->dims * (uint64_t)DIGITS;
}

static struct cli_export_shard *new_shard(struct cli_export *x, size_t first) {
    if (x->shard_count == x->shard_cap) {
        x->shard_cap = x->shard_cap != 0 ? x->shard_cap * 2 : 16;
        x->shards = cli_realloc(x->shards, x->shard_cap, sizeof *x->shards);
    }
    x->shards[x->shard_count] = (struct cli_export_shard){.first = first};
    return &x->shards[x->shard_count++];
}

/* In the order of names, a file is closed before it would get too large; one tensor is never cut. */
static void cut_shards(struct cli_export *x) {
    struct cli_export_shard *shard = new_shard(x, 0);
    uint64_t header = 0;
    for (size_t i = 0; i < x->tensor_count; i++) {
        const struct bw_tensor_info *t = &x->tensors[i].info;
        bool large = shard->bytes > x->shard_bytes || t->bytes > x->shard_bytes - shard->bytes;
        if (shard->count > 0 && (large || header + header_bytes(t) > HEADER_MAX)) {
            shard = new_shard(x, i);
            header = 0;
        }
        shard->count++;
        shard->bytes += t->bytes;
        header += header_bytes(t);
    }
    for (size_t i = 0; i < x->shard_count; i++) {
        char *name = x->shards[i].name;
        if (x->shard_count == 1)
            (void)snprintf(name, sizeof x->shards[i].name, "%s", CLI_SINGLE_NAME);
        else
            (void)snprintf(name, sizeof x->shards[i].name, "model-%05zu-of-%05zu.safetensors", i + 1, x->shard_count);
    }
}

/* Wide elements first, so that each tensor is aligned to its elements. */
static int by_width(const void *a, const void *b) {
    const struct cli_export_tensor *x = a;
    const struct cli_export_tensor *y = b;
    size_t wx = bw_dtype_bytes((int)x->info.dtype);
    size_t wy = bw_dtype_bytes((int)y->info.dtype);
    if (wx != wy) return wx > wy ? -1 : 1;
    return strcmp(x->info.name, y->info.name);
}

int cli_export_plan(struct cli_export *x, struct bw_error *err) {
    int rc = choose(x, err);
    if (rc == 0) rc = check_names(x, err);
    if (rc < 0) return rc;
    cut_shards(x);
    for (size_t i = 0; i < x->shard_count; i++) {
        struct cli_export_tensor *t = x->tensors + x->shards[i].first;
        uint64_t at = 0;
        if (x->shards[i].count > 0) qsort(t, x->shards[i].count, sizeof *t, by_width);
        for (size_t k = 0; k < x->shards[i].count; k++) {
            t[k].begin = at;
            at += t[k].info.bytes;
        }
    }
    atomic_store(&x->counter.total_bytes, x->total_bytes);
    atomic_store(&x->counter.total_items, x->shard_count);
    return 0;
}

void cli_export_fini(struct cli_export *x) {
    free(x->tensors);
    free(x->shards);
    cli_buf_fini(&x->skipped);
    x->tensors = NULL;
    x->shards = NULL;
}
