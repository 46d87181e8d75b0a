/* SPDX-License-Identifier: Apache-2.0 */
/* Tasks and single store operations, run to their end on the calling thread: for handles that have no thread of their
 * own. */
#ifndef BWI_API_BLOCKING_H
#define BWI_API_BLOCKING_H

#include "api/host.h"

/* Turns the loop until the task has ended; its error goes to err. Once the host is given up the task is told to end,
 * and BW_E_CANCELLED keeps the caller from beginning the next one. */
int bwi_block_on(struct bwi_host *h, struct bwi_task *t, struct bw_error *err);

int bwi_block_get(struct bwi_host *h, enum bwi_tier tier, const char *key, uint64_t limit_bytes, struct bwi_buf *ret,
                  struct bw_error *err);
int bwi_block_list(struct bwi_host *h, enum bwi_tier tier, const char *prefix, struct bwi_store_names *ret,
                   struct bw_error *err);
int bwi_block_head(struct bwi_host *h, enum bwi_tier tier, const char *key, uint64_t *ret_bytes, struct bw_error *err);
/* CREATE, DELETE, DELETE_PREFIX, REPLACE, SYNC. */
int bwi_block_do(struct bwi_host *h, enum bwi_tier tier, enum bwi_store_verb verb, const char *key,
                 struct bwi_span data, enum bwi_store_outcome *ret_outcome, struct bw_error *err);

#endif
