/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The trainer's checkpoints: all that it does with Breakwater to be able to go on exactly.
 *
 *     checkpoint_open(...);                              (loads what there is to go on from)
 *     for (step = first + 1; step <= last; step++) {
 *         forward and backward                           (read the weights: a save may still be copying them)
 *         if (save) bw_save_wait(save, BW_CAPTURED ...)  (now the weights may change)
 *         update the weights
 *         if (step % every == 0) checkpoint_save(...);   (returns at once)
 *     }
 *     bw_checkpointer_close(...);                        (what is in flight gets to the end)
 */
#ifndef CHARLM_CHECKPOINT_H
#define CHARLM_CHECKPOINT_H

#include <breakwater/breakwater.h>

#include "options.h"
#include "state.h"

/*
 * Opens this rank's place in the launch and loads what the launch goes on from into the state, if there is anything.
 * 0, or a negative status with the reason in `err`. Close *ret_ck in both cases.
 */
int checkpoint_open(const struct options *from, uint32_t rank, struct state *s, struct bw_checkpointer **ret_ck,
                    struct bw_resumed *ret_resumed, struct bw_error *err);

/* Starts to save the state of `step`, which must stay as it is until *ret_save is CAPTURED. Reading it is fine. */
int checkpoint_save(struct bw_checkpointer *ck, struct state *s, uint64_t step, struct bw_save **ret_save,
                    struct bw_error *err);

#endif
