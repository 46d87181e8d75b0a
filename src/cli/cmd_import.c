/* SPDX-License-Identifier: Apache-2.0 */
/* breakwater import: a launch of one rank that saves once. */
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "cli/import.h"
#include "cli/out_json.h"

enum { WAIT_MS = 500, CLOSE_MS = 120000 };

struct importing {
    const struct cli_args *args;
    struct cli_tiers tiers;
    struct cli_import source;
    struct bw_checkpointer *ck;
    struct bw_save_stats stats;
};

/* A run that is there must be entered under a job's name, and its newest step passed. */
static int check_run(const struct importing *im, struct bw_error *err) {
    const char *run = im->args->opt[OPT_RUN].text;
    uint64_t step = im->args->opt[OPT_STEP].number;
    struct bw_catalog *catalog = NULL;
    struct bw_list *list = NULL;
    struct bw_checkpoint_row row;
    struct bw_error why = BW_ERROR_INIT;
    int rc = cli_catalog_open(&im->tiers, BW_CATALOG_READ_ONLY, &catalog, &why);
    if (rc == 0) rc = bw_catalog_checkpoints(catalog, run, &list, &why);
    bool there = rc == 0;
    if (rc == BW_E_NOTFOUND)
        rc = 0;
    else if (rc < 0)
        *err = why;
    if (there && !im->args->opt[OPT_JOB].set)
        rc = cli_usage(err, "run \"%s\" has a history: expected --job, the job that makes this checkpoint", run);
    for (size_t i = 0; there && rc == 0 && bw_list_checkpoint(list, i, &row); i++)
        if (row.state == BW_CKPT_LIVE && row.step >= step)
            rc = cli_fail(err, BW_E_REFUSED,
                          "run \"%s\" has a live checkpoint of step %llu: expected a --step above it, found %llu", run,
                          (unsigned long long)row.step, (unsigned long long)step);
    bw_list_free(list);
    bw_catalog_close(catalog);
    return rc;
}

/* 0 means that nothing is too long. */
static uint64_t forever(uint64_t timeout_ms) {
    return timeout_ms != 0 ? timeout_ms : UINT64_MAX;
}

static int open_checkpointer(struct importing *im, struct bw_error *err) {
    struct bw_options o = BW_OPTIONS_INIT;
    uint64_t random = 0;
    char launch[96];
    if (getrandom(&random, sizeof random, 0) != (ssize_t)sizeof random)
        return cli_fail(err, BW_E_IO, "no random number for the launch id");
    (void)snprintf(launch, sizeof launch, "import-%lld-%d-%016llx", (long long)cli_now_unix_ms(), (int)getpid(),
                   (unsigned long long)random);
    o.run = im->args->opt[OPT_RUN].text;
    o.job = im->args->opt[OPT_JOB].set ? im->args->opt[OPT_JOB].text : "import";
    o.launch = launch;
    o.world = 1;
    o.local_url = im->tiers.local;
    o.remote_url = im->tiers.remote;
    o.memory_budget_bytes = im->tiers.memory_bytes;
    if (im->args->opt[OPT_TIMEOUT].set) o.open_timeout_ms = o.io_timeout_ms = forever(im->tiers.timeout_ms);
    if (im->args->opt[OPT_ALLOW_NODE_LOCAL].set) o.flags |= BW_ALLOW_NODE_LOCAL;
    if (im->args->opt[OPT_ALLOW_SAME_DEVICE].set) o.flags |= BW_ALLOW_SAME_DEVICE;
    return bw_checkpointer_open(&o, &im->ck, err);
}

/* What the library calls by its flag, the command line calls by its option. */
static void name_options(struct bw_error *err) {
    static const char *const names[][2] = {{"BW_ALLOW_SAME_DEVICE", "--allow-same-device"},
                                           {"BW_ALLOW_NODE_LOCAL", "--allow-node-local"}};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char *at = strstr(err->message, names[i][0]);
        if (at == NULL) continue;
        size_t longer = strlen(names[i][0]);
        size_t shorter = strlen(names[i][1]);
        memcpy(at, names[i][1], shorter);
        memmove(at + shorter, at + longer, strlen(at + longer) + 1);
    }
}

static int describe_file(struct bw_save *save, const struct cli_st_file *f, struct bw_error *err) {
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < f->count; i++) {
        const struct cli_st_tensor *from = &f->tensors[i];
        struct bw_tensor t = BW_TENSOR_INIT;
        t.name = from->name;
        t.dtype = from->dtype;
        t.data = from->data;
        t.dims = from->dims;
        t.shape = from->shape;
        rc = bw_save_tensor(save, &t, err);
    }
    return rc;
}

static int describe(struct bw_save *save, const struct cli_import *source, struct bw_error *err) {
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < source->file_count; i++) rc = describe_file(save, &source->files[i], err);
    for (size_t i = 0; rc == 0 && i < source->blob_count; i++)
        rc = bw_save_blob(save, source->blobs[i].name, source->blobs[i].map.bytes, source->blobs[i].map.n, err);
    if (rc == 0 && source->metadata != NULL) rc = bw_save_metadata(save, source->metadata, err);
    return rc;
}

/* Bytes and calls so far: as long as this changes, something is going on. */
static uint64_t activity(struct bw_checkpointer *ck) {
    struct bw_checkpointer_stats s;
    bw_checkpointer_stats(ck, &s);
    return s.local_bytes_written + s.remote_bytes_written + s.remote_bytes_read + s.local_store_calls +
           s.remote_store_calls;
}

/* A slow tier is no reason to give up, one that does not answer is. */
static int wait_committed(struct bw_checkpointer *ck, struct bw_save *save, uint64_t stall_ms, struct bw_error *err) {
    uint64_t last = activity(ck);
    for (uint64_t idle_ms = 0;;) {
        struct bw_error why = BW_ERROR_INIT;
        int rc = bw_save_wait(save, BW_COMMITTED, WAIT_MS, &why);
        uint64_t now = activity(ck);
        idle_ms = now != last ? 0 : idle_ms + WAIT_MS;
        last = now;
        if (rc == BW_E_TIMEOUT && idle_ms < stall_ms) continue;
        if (rc < 0) *err = why;
        return rc;
    }
}

static int run_import(void *ctx, struct bw_error *err) {
    struct importing *im = ctx;
    struct bw_save *save = NULL;
    int rc = bw_save_begin(im->ck, im->args->opt[OPT_STEP].number, &save, err);
    if (rc == 0) rc = describe(save, &im->source, err);
    if (rc == 0) rc = bw_save_start(save, err);
    if (rc == 0) rc = wait_committed(im->ck, save, forever(im->tiers.timeout_ms), err);
    if (rc == 0) bw_save_stats(save, &im->stats);
    bw_save_release(save);
    return rc;
}

static void read_progress(void *ctx, struct bw_progress *ret) {
    struct importing *im = ctx;
    struct bw_checkpointer_stats s;
    bw_checkpointer_stats(im->ck, &s);
    *ret = (struct bw_progress){.done_bytes = s.remote_bytes_written, .total_bytes = im->source.total_bytes};
}

static int save_and_close(struct importing *im, struct bw_error *err) {
    struct cli_call call = {"import", run_import, read_progress, im};
    struct bw_error scratch = BW_ERROR_INIT;
    int rc = open_checkpointer(im, err);
    if (rc == BW_E_REFUSED) name_options(err);
    if (rc < 0) return rc;
    rc = cli_call_long(&call, err);
    /* What failed in the background is the same failure once more. */
    int closed = bw_checkpointer_close(im->ck, CLOSE_MS, rc == 0 ? err : &scratch);
    return rc < 0 ? rc : closed;
}

static void print_json(const struct importing *im) {
    json_t *root = cli_json_begin("import");
    json_t *files = cli_json_array();
    for (size_t i = 0; i < im->source.file_count; i++) cli_json_add(files, cli_json_text(im->source.files[i].path));
    cli_json_set(root, "run", cli_json_text(im->args->opt[OPT_RUN].text));
    cli_json_set(root, "checkpoint", cli_json_text(im->stats.id));
    cli_json_set(root, "step", cli_json_u64(im->args->opt[OPT_STEP].number));
    cli_json_set(root, "tensors", cli_json_u64(im->source.tensor_count));
    cli_json_set(root, "blobs", cli_json_u64(im->source.blob_count));
    cli_json_set(root, "bytes", cli_json_u64(im->source.total_bytes));
    cli_json_set(root, "files", files);
    cli_json_print(root);
}

static void report(const struct importing *im) {
    const struct cli_import *s = &im->source;
    char size[CLI_TEXT_BYTES];
    if (im->args->opt[OPT_JSON].set) {
        print_json(im);
        return;
    }
    (void)printf("%s: %zu tensor%s, %s from %zu file%s\n", im->stats.id, s->tensor_count, cli_s(s->tensor_count),
                 cli_bytes_text(s->total_bytes, size), s->file_count, cli_s(s->file_count));
}

int cmd_import(const struct cli_args *args, struct bw_error *err) {
    struct importing im = {.args = args};
    if (!args->opt[OPT_RUN].set) return cli_usage(err, "expected --run RUN");
    if (!args->opt[OPT_STEP].set) return cli_usage(err, "expected --step STEP");
    int rc = cli_tiers(args, &im.tiers, err);
    if (rc == 0) rc = cli_import_open(args, &im.source, err);
    if (rc == 0) rc = check_run(&im, err);
    if (rc == 0) rc = save_and_close(&im, err);
    if (rc == 0) report(&im);
    cli_import_close(&im.source);
    return rc;
}
