/* SPDX-License-Identifier: Apache-2.0 */
/* breakwater export: plain safetensors files from a checkpoint. */
#include <stdio.h>
#include <string.h>

#include "cli/export.h"
#include "cli/out_json.h"

/* What transformers and huggingface_hub cut at, too. */
#define SHARD_BYTES_DEFAULT UINT64_C(5000000000)

static int open_reader(struct cli_export *x, struct bw_error *err) {
    enum { BUFFER_MIN = 8 << 20, BUFFER_MAX = 64 << 20 };
    struct cli_tiers tiers;
    struct cli_choice choice;
    int rc = cli_tiers(x->args, &tiers, err);
    if (rc == 0) rc = cli_choice_parse(cli_operand(x->args, 1), &choice, err);
    if (rc < 0) return rc;
    if (tiers.memory_bytes < CLI_MEMORY_MIN + BUFFER_MIN)
        return cli_usage(err, "--memory: expected at least 72MiB for an export, found \"%s\"",
                         x->args->opt[OPT_MEMORY].text);
    uint64_t buffer = tiers.memory_bytes / 8;
    if (tiers.memory_bytes - buffer < CLI_MEMORY_MIN) buffer = tiers.memory_bytes - CLI_MEMORY_MIN;
    if (buffer > BUFFER_MAX) buffer = BUFFER_MAX;
    x->buffer_bytes = (size_t)buffer;
    rc = cli_reader_open(&tiers, x->run, &choice, tiers.memory_bytes - buffer, &x->reader, err);
    return rc == 0 ? bw_restore_info(x->reader, &x->info, err) : rc;
}

static int run_export(void *ctx, struct bw_error *err) {
    struct cli_export *x = ctx;
    int rc = cli_export_write(x, err);
    if (rc == 0 && x->args->opt[OPT_WITH_BLOBS].set) rc = cli_export_blobs(x, err);
    return rc == 0 ? cli_folder_publish(&x->folder, err) : rc;
}

static void read_progress(void *ctx, struct bw_progress *ret) {
    struct cli_export *x = ctx;
    cli_counter_read(&x->counter, ret);
}

static void print_json(const struct cli_export *x) {
    json_t *root = cli_json_begin("export");
    json_t *files = cli_json_array();
    for (size_t i = 0; i < x->shard_count; i++) cli_json_add(files, cli_json_text(x->shards[i].name));
    cli_json_set(root, "run", cli_json_text(x->run));
    cli_json_set(root, "checkpoint", cli_json_text(x->info.id));
    cli_json_set(root, "step", cli_json_u64(x->info.step));
    cli_json_set(root, "folder", cli_json_text(x->args->opt[OPT_TO].text));
    cli_json_set(root, "files", files);
    cli_json_set(root, "tensors", cli_json_u64(x->tensor_count));
    cli_json_set(root, "tensors_left_out", cli_json_u64(x->skipped_count));
    cli_json_set(root, "blobs", x->args->opt[OPT_WITH_BLOBS].set ? cli_json_u64(x->blob_count) : json_null());
    cli_json_set(root, "bytes", cli_json_u64(x->total_bytes));
    cli_json_print(root);
}

static void print_text(const struct cli_export *x) {
    char size[CLI_TEXT_BYTES];
    (void)printf("%s: %zu tensor%s, %s in %zu file%s", x->info.id, x->tensor_count, cli_s(x->tensor_count),
                 cli_bytes_text(x->total_bytes, size), x->shard_count, cli_s(x->shard_count));
    if (x->args->opt[OPT_WITH_BLOBS].set) (void)printf(", %zu blob%s", x->blob_count, cli_s(x->blob_count));
    if (x->skipped_count > 0) (void)printf(", %zu tensor%s left out", x->skipped_count, cli_s(x->skipped_count));
    (void)printf("\n");
    for (size_t i = 0; i < x->shard_count; i++) {
        cli_print_escaped(x->args->opt[OPT_TO].text);
        (void)printf("/%s\n", x->shards[i].name);
    }
}

static void report(const struct cli_export *x) {
    if (x->skipped_count > 0) (void)fputs(x->skipped.data, stderr);
    if (x->args->opt[OPT_JSON].set)
        print_json(x);
    else
        print_text(x);
}

int cmd_export(const struct cli_args *args, struct bw_error *err) {
    struct cli_export x = {.args = args, .run = cli_operand(args, 0), .folder = {.fd = -1, .stage = -1}};
    struct cli_call call = {"export", run_export, read_progress, &x};
    if (!args->opt[OPT_TO].set) return cli_usage(err, "expected --to DIR");
    x.shard_bytes = args->opt[OPT_SHARD_BYTES].set ? args->opt[OPT_SHARD_BYTES].number : SHARD_BYTES_DEFAULT;
    int rc = open_reader(&x, err);
    if (rc == 0) rc = cli_export_plan(&x, err);
    if (rc == 0) rc = cli_folder_open(args->opt[OPT_TO].text, args->opt[OPT_FORCE].set, &x.folder, err);
    if (rc == 0) rc = cli_call_long(&call, err);
    if (rc == 0) report(&x);
    cli_folder_close(&x.folder);
    cli_export_fini(&x);
    bw_restore_close(x.reader);
    return rc;
}
