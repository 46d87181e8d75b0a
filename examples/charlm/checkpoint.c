/* SPDX-License-Identifier: Apache-2.0 */
/*
 * This is the file to copy: how a training state gets into a checkpoint, and out of it again.
 *
 * The state is a list of boxes of tensors (state.h). Which rank holds which box is the program's business: here weights
 * are replicated and Adam's moments are split by rows. Breakwater is told what each rank holds, writes every byte once,
 * and would give the boxes back in any other division as well (reshard.c).
 */
#include "checkpoint.h"

static int load(struct bw_checkpointer *ck, uint32_t rank, struct state *s, struct bw_error *err) {
    struct bw_restore *restore = NULL;
    struct bw_slice slices[STATE_PARTS_MAX] = {0};
    size_t n = 0;
    for (struct bw_slice *slice = slices; n < s->part_count; slice++, n++) {
        const struct part *p = &s->parts[n];
        slice->struct_size = sizeof *slice, slice->name = p->name, slice->dtype = BW_F32, slice->data = p->data;
        slice->dims = p->dims, slice->shape = p->shape, slice->offset = p->offset, slice->extent = p->extent;
    }
    int rc = bw_restore_open(ck, &restore, err);
    if (rc == 0) rc = bw_restore_read(restore, slices, n, err); /* every byte is checked against its hash */
    if (rc == 0) rc = bw_restore_blob(restore, rank, "rng and position", &s->now, sizeof s->now, &n, err);
    bw_restore_close(restore);
    return rc;
}

int checkpoint_open(const struct options *from, uint32_t rank, struct state *s, struct bw_checkpointer **ret_ck,
                    struct bw_resumed *ret_resumed, struct bw_error *err) {
    struct bw_options o = from->tuning; /* BW_OPTIONS_INIT, and what the command line changes of it */
    o.run = from->run, o.job = from->job, o.launch = from->launch, o.rank = rank, o.world = from->world;
    o.local_url = from->local_url, o.remote_url = from->remote_url;
    o.flags = BW_ALLOW_SAME_DEVICE | BW_ALLOW_NODE_LOCAL; /* one disk plays both tiers: for demonstrations only */
    if (bw_checkpointer_open(&o, ret_ck, err) < 0) return err->status;
    bw_checkpointer_resumed(*ret_ck, ret_resumed);
    return ret_resumed->from_checkpoint ? load(*ret_ck, rank, s, err) : 0;
}

int checkpoint_save(struct bw_checkpointer *ck, struct state *s, uint64_t step, struct bw_save **ret_save,
                    struct bw_error *err) {
    int rc = bw_save_begin(ck, step, ret_save, err);
    s->saved = s->now; /* a copy, because the next step changes the original before the save is CAPTURED */
    if (rc == 0) rc = bw_save_blob(*ret_save, "rng and position", &s->saved, sizeof s->saved, err);
    for (const struct part *p = s->parts; rc == 0 && p < s->parts + s->part_count; p++) {
        struct bw_tensor tensor = BW_TENSOR_INIT;
        tensor.name = p->name, tensor.dtype = BW_F32, tensor.data = p->data, tensor.dims = p->dims;
        tensor.shape = p->shape, tensor.offset = p->offset, tensor.extent = p->extent;
        tensor.replica_count = p->replicas, tensor.replica_index = p->replica;
        rc = bw_save_tensor(*ret_save, &tensor, err); /* describes memory; copies nothing */
    }
    return rc == 0 ? bw_save_start(*ret_save, err) : rc; /* returns at once */
}
