/* SPDX-License-Identifier: Apache-2.0 */
/* A synchronous save as programs without a library do it: write, fsync, rename. To compare with. */
#ifndef CHARLM_PLAIN_SAVE_H
#define CHARLM_PLAIN_SAVE_H

#include "state.h"

/*
 * Writes this rank's share into one file and syncs file and directory: the moments that it owns, of replicated tensors
 * the same share of rows, and the small state. All ranks' files together hold the state once. -1 with a line on stderr.
 */
int plain_save(const struct state *s, uint32_t rank, uint32_t world, const char *path, uint64_t *ret_bytes);

#endif
