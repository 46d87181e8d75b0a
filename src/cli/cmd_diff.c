/* SPDX-License-Identifier: Apache-2.0 */
/* breakwater diff: two checkpoints side by side. */
#include <stdio.h>

#include "cli/diff.h"
#include "cli/out_json.h"

static const char *change_word(enum cli_change change) {
    static const char *const words[] = {"same", "added", "removed", "changed", "dtype", "shape"};
    return words[change];
}

/* "F32", or "F32 -> BF16". */
static void dtype_cell(struct cli_table *table, const struct cli_diff_tensor *t) {
    const struct bw_tensor_info *any = &t->side[t->side[0].name == NULL];
    if (t->change == CLI_OTHER_DTYPE)
        cli_table_cell(table, "%s -> %s", bw_dtype_name((int)t->side[0].dtype), bw_dtype_name((int)t->side[1].dtype));
    else
        cli_table_cell(table, "%s", bw_dtype_name((int)any->dtype));
}

static void shape_cell(struct cli_table *table, const struct cli_diff_tensor *t) {
    const struct bw_tensor_info *any = &t->side[t->side[0].name == NULL];
    struct cli_buf b = {0};
    cli_buf_shape(&b, any->shape, any->dims);
    if (t->change == CLI_OTHER_SHAPE) {
        cli_buf_printf(&b, " -> ");
        cli_buf_shape(&b, t->side[1].shape, t->side[1].dims);
    }
    cli_table_name(table, b.data);
    cli_buf_fini(&b);
}

static double share(uint64_t part, uint64_t whole) {
    return whole != 0 ? (double)part / (double)whole : 0;
}

static void print_tensors(const struct cli_diff *d) {
    static const char *const heads[] = {"CHANGE", "TENSOR", "DTYPE", "SHAPE", ">ELEMENTS", ">CHANGED", ">SHARE"};
    struct cli_table table;
    if (cli_diff_count(d, CLI_SAME) == d->tensor_count) return;
    cli_table_init(&table, 7, heads);
    for (size_t i = 0; i < d->tensor_count; i++) {
        const struct cli_diff_tensor *t = &d->tensors[i];
        if (t->change == CLI_SAME) continue;
        cli_table_cell(&table, "%s", change_word(t->change));
        cli_table_name(&table, t->side[t->side[0].name == NULL].name);
        dtype_cell(&table, t);
        shape_cell(&table, t);
        cli_table_cell(&table, "%llu", (unsigned long long)t->elements);
        if (t->change == CLI_CHANGED) {
            cli_table_cell(&table, "%llu", (unsigned long long)t->elements_changed);
            cli_table_cell(&table, "%.3g%%", share(t->elements_changed, t->elements) * 100);
        } else {
            cli_table_cell(&table, "-");
            cli_table_cell(&table, "-");
        }
    }
    cli_table_print(&table);
    cli_table_fini(&table);
}

static void print_blobs(const struct cli_diff *d) {
    static const char *const heads[] = {"CHANGE", ">RANK", "BLOB", ">BYTES A", ">BYTES B", ">CHANGED"};
    struct cli_table table;
    if (d->blob_count == 0) return;
    cli_table_init(&table, 6, heads);
    for (size_t i = 0; i < d->blob_count; i++) {
        const struct cli_diff_blob *b = &d->blobs[i];
        cli_table_cell(&table, "%s", change_word(b->change));
        cli_table_cell(&table, "%u", b->side[b->side[0].name == NULL].rank);
        cli_table_name(&table, b->side[b->side[0].name == NULL].name);
        for (size_t k = 0; k < 2; k++)
            if (b->side[k].name != NULL)
                cli_table_cell(&table, "%llu", (unsigned long long)b->side[k].bytes);
            else
                cli_table_cell(&table, "-");
        if (b->change == CLI_CHANGED)
            cli_table_cell(&table, "%llu", (unsigned long long)b->bytes_changed);
        else
            cli_table_cell(&table, "-");
    }
    cli_table_print(&table);
    cli_table_fini(&table);
}

static void print_text(const struct cli_diff *d) {
    for (size_t i = 0; i < 2; i++)
        (void)printf("%s  step %llu, %u rank%s, %s\n", i == 0 ? "A" : "B", (unsigned long long)d->info[i].step,
                     d->info[i].world, cli_s(d->info[i].world), d->info[i].id);
    print_tensors(d);
    print_blobs(d);
    for (size_t i = 0; i < d->rank_count; i++) (void)printf("metadata of rank %u changed\n", d->ranks[i]);
    size_t same = cli_diff_count(d, CLI_SAME);
    size_t added = cli_diff_count(d, CLI_ADDED);
    size_t removed = cli_diff_count(d, CLI_REMOVED);
    (void)printf("%zu tensor%s: %zu identical, %zu changed, %zu added, %zu removed\n", d->tensor_count,
                 cli_s(d->tensor_count), same, d->tensor_count - same - added - removed, added, removed);
    if (cli_diff_identical(d))
        (void)printf(d->blobs_compared ? "A and B are identical\n" : "what was chosen is identical\n");
}

static json_t *side_json(const struct bw_checkpoint_info *info) {
    json_t *o = cli_json_object();
    cli_json_set(o, "id", cli_json_text(info->id));
    cli_json_set(o, "step", cli_json_u64(info->step));
    cli_json_set(o, "world", cli_json_u64(info->world));
    return o;
}

static json_t *tensor_json(const struct cli_diff_tensor *t) {
    static const char *const dtypes[] = {"dtype_a", "dtype_b"};
    static const char *const shapes[] = {"shape_a", "shape_b"};
    bool counted = t->change == CLI_CHANGED;
    json_t *o = cli_json_object();
    cli_json_set(o, "change", cli_json_text(change_word(t->change)));
    cli_json_set(o, "name", cli_json_text(t->side[t->side[0].name == NULL].name));
    for (size_t k = 0; k < 2; k++) {
        const struct bw_tensor_info *side = &t->side[k];
        bool there = side->name != NULL;
        cli_json_set(o, dtypes[k], there ? cli_json_text(bw_dtype_name((int)side->dtype)) : json_null());
        cli_json_set(o, shapes[k], there ? cli_json_shape(side->shape, side->dims) : json_null());
    }
    cli_json_set(o, "elements", cli_json_u64(t->elements));
    cli_json_set(o, "elements_changed", counted ? cli_json_u64(t->elements_changed) : json_null());
    cli_json_set(o, "share", counted ? json_real(share(t->elements_changed, t->elements)) : json_null());
    return o;
}

static json_t *blob_json(const struct cli_diff_blob *b) {
    static const char *const sizes[] = {"bytes_a", "bytes_b"};
    json_t *o = cli_json_object();
    cli_json_set(o, "change", cli_json_text(change_word(b->change)));
    cli_json_set(o, "rank", cli_json_u64(b->side[b->side[0].name == NULL].rank));
    cli_json_set(o, "name", cli_json_text(b->side[b->side[0].name == NULL].name));
    for (size_t k = 0; k < 2; k++)
        cli_json_set(o, sizes[k], b->side[k].name != NULL ? cli_json_u64(b->side[k].bytes) : json_null());
    cli_json_set(o, "bytes_changed", b->change == CLI_CHANGED ? cli_json_u64(b->bytes_changed) : json_null());
    return o;
}

static void print_json(const struct cli_diff *d, const char *run) {
    json_t *root = cli_json_begin("diff");
    json_t *tensors = cli_json_array();
    json_t *blobs = cli_json_array();
    json_t *ranks = cli_json_array();
    for (size_t i = 0; i < d->tensor_count; i++)
        if (d->tensors[i].change != CLI_SAME) cli_json_add(tensors, tensor_json(&d->tensors[i]));
    for (size_t i = 0; i < d->blob_count; i++) cli_json_add(blobs, blob_json(&d->blobs[i]));
    for (size_t i = 0; i < d->rank_count; i++) cli_json_add(ranks, cli_json_u64(d->ranks[i]));
    cli_json_set(root, "run", cli_json_text(run));
    cli_json_set(root, "a", side_json(&d->info[0]));
    cli_json_set(root, "b", side_json(&d->info[1]));
    cli_json_set(root, "identical", cli_json_bool(cli_diff_identical(d)));
    cli_json_set(root, "tensors_compared", cli_json_u64(d->tensor_count));
    cli_json_set(root, "tensors_identical", cli_json_u64(cli_diff_count(d, CLI_SAME)));
    cli_json_set(root, "tensors", tensors);
    cli_json_set(root, "blobs_compared", cli_json_bool(d->blobs_compared));
    cli_json_set(root, "blobs", blobs);
    cli_json_set(root, "metadata_ranks", ranks);
    cli_json_print(root);
}

static int run_diff(void *ctx, struct bw_error *err) {
    return cli_diff_run(ctx, err);
}

static void read_progress(void *ctx, struct bw_progress *ret) {
    struct cli_diff *d = ctx;
    cli_counter_read(&d->counter, ret);
}

/* Two readers and two buffers share the budget. */
static int open_readers(struct cli_diff *d, const struct cli_tiers *tiers, struct bw_error *err) {
    enum { BUFFER_MIN = 8 << 20, BUFFER_MAX = 64 << 20 };
    const char *run = cli_operand(d->args, 0);
    if (tiers->memory_bytes < 2 * (CLI_MEMORY_MIN + BUFFER_MIN))
        return cli_usage(err, "--memory: expected at least 144MiB for two checkpoints, found \"%s\"",
                         d->args->opt[OPT_MEMORY].text);
    uint64_t buffer = tiers->memory_bytes / 16;
    if (tiers->memory_bytes / 2 - buffer < CLI_MEMORY_MIN) buffer = tiers->memory_bytes / 2 - CLI_MEMORY_MIN;
    d->buffer_bytes = (size_t)(buffer < BUFFER_MAX ? buffer : BUFFER_MAX);
    uint64_t memory = tiers->memory_bytes / 2 - d->buffer_bytes;
    for (size_t i = 0; i < 2; i++) {
        struct cli_choice choice;
        int rc = cli_choice_parse(cli_operand(d->args, i + 1), &choice, err);
        if (rc == 0) rc = cli_reader_open(tiers, run, &choice, memory, &d->reader[i], err);
        if (rc == 0) rc = bw_restore_info(d->reader[i], &d->info[i], err);
        if (rc == 0) rc = bw_restore_blob_count(d->reader[i], &d->blobs_there[i], err);
        if (rc < 0) return rc;
    }
    return 0;
}

int cmd_diff(const struct cli_args *args, struct bw_error *err) {
    struct cli_tiers tiers;
    struct cli_diff diff = {.args = args};
    struct cli_call call = {"diff", run_diff, read_progress, &diff};
    int rc = cli_tiers(args, &tiers, err);
    if (rc == 0) rc = open_readers(&diff, &tiers, err);
    if (rc == 0) rc = cli_call_long(&call, err);
    if (rc == 0) {
        if (args->opt[OPT_JSON].set)
            print_json(&diff, cli_operand(args, 0));
        else
            print_text(&diff);
    }
    cli_diff_fini(&diff);
    for (size_t i = 0; i < 2; i++) bw_restore_close(diff.reader[i]);
    return rc;
}
