/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The smallest program that saves and restores: one rank, one tensor.
 *
 *     cc -std=c17 minimal.c $(pkg-config --cflags --libs breakwater) -o minimal
 *     ./minimal file:///nvme/bw file:///lustre/bw launch-1
 *     ./minimal file:///nvme/bw file:///lustre/bw launch-2     (a launch id is used once)
 *
 * Each start adds 1 to a counter that lives in the checkpoint, so it prints 1, 2, 3 ...
 */
#include <breakwater/breakwater.h>
#include <stdio.h>

#define WAIT_MS 60000

/* Reads the tensor back, if this launch goes on from a checkpoint. */
static int load(struct bw_checkpointer *ck, float counter[2][3], uint64_t *step, struct bw_error *err) {
    struct bw_resumed from;
    bw_checkpointer_resumed(ck, &from);
    if (!from.from_checkpoint) return 0; /* a new run */
    struct bw_restore *restore = NULL;
    int rc = bw_restore_open(ck, &restore, err);
    if (rc == 0) rc = bw_restore_read(restore, &BW_SLICE_OF("counter", BW_F32, counter, 2, 3), 1, err);
    bw_restore_close(restore);
    if (rc == 0) *step = from.step;
    return rc;
}

static int save(struct bw_checkpointer *ck, const float counter[2][3], uint64_t step, struct bw_error *err) {
    const struct bw_tensor tensor = BW_TENSOR_OF("counter", BW_F32, counter, 2, 3);
    struct bw_save *saving = NULL;
    int rc = bw_save_begin(ck, step, &saving, err);
    if (rc == 0) rc = bw_save_tensor(saving, &tensor, err);             /* describes memory; copies nothing */
    if (rc == 0) rc = bw_save_start(saving, err);                       /* returns at once */
    if (rc == 0) rc = bw_save_wait(saving, BW_CAPTURED, WAIT_MS, err);  /* now the tensor may change: train on */
    if (rc == 0) rc = bw_save_wait(saving, BW_COMMITTED, WAIT_MS, err); /* now the loss of this node loses nothing */
    bw_save_release(saving);
    return rc;
}

int main(int argc, char **argv) {
    if (argc != 4) return fprintf(stderr, "usage: minimal LOCAL_URL REMOTE_URL LAUNCH\n"), 2;
    float counter[2][3] = {{0}};
    uint64_t step = 0;
    struct bw_error err = BW_ERROR_INIT;
    struct bw_checkpointer *ck = NULL;
    struct bw_options options = BW_OPTIONS_INIT;
    options.run = "minimal", options.job = "job-1", options.launch = argv[3], options.world = 1;
    options.local_url = argv[1], options.remote_url = argv[2];
    options.flags = BW_ALLOW_SAME_DEVICE | BW_ALLOW_NODE_LOCAL; /* only for trying it out on one disk */

    int rc = bw_checkpointer_open(&options, &ck, &err);
    if (rc == 0) rc = load(ck, counter, &step, &err);
    for (int i = 0; i < 6; i++) counter[i / 3][i % 3] += 1;
    if (rc == 0) rc = save(ck, (const float(*)[3])counter, step + 1, &err);
    if (rc == 0) printf("%g\n", (double)counter[1][2]);
    if (rc < 0) fprintf(stderr, "minimal: %s\n", err.message);
    struct bw_error closing = BW_ERROR_INIT;
    const int closed = bw_checkpointer_close(ck, WAIT_MS, &closing);
    if (rc == 0 && closed < 0) fprintf(stderr, "minimal: %s\n", closing.message);
    return bw_status_exit_code(rc < 0 ? rc : closed);
}
