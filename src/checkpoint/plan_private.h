/* SPDX-License-Identifier: Apache-2.0 */
/* What the files behind plan.h share. */
#ifndef BWI_CHECKPOINT_PLAN_PRIVATE_H
#define BWI_CHECKPOINT_PLAN_PRIVATE_H

#include "checkpoint/plan.h"

/* checkpoint/plan_pack.c. Lays the items of a plan out in packs: from layout, content (numbered) and items it makes
 * places, pieces, chunks, packs and stored_bytes. What was made before a failure is left to bwi_plan_fini. */
int bwi_plan_pack(struct bwi_plan *p, uint64_t pack_bytes, struct bw_error *err);

/* checkpoint/capture.c. Copies `count` units of `unit` bytes, `*_step` bytes apart. The two sides do not overlap. */
void bwi_copy_row(uint8_t *dst, int64_t dst_step, const uint8_t *src, int64_t src_step, uint64_t unit, uint64_t count);

#endif
