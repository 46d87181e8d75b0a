/* SPDX-License-Identifier: Apache-2.0 */
/* The transfer engine without threads, to be linked in place of src/io/engine.c: whoever links it runs whole systems in
 * one thread, on virtual time, by a seed. What was submitted is done when the loop asks for what has finished, one
 * request at a time; with a delay, not before its time has come, and in the order of those times. */
#ifndef BW_SIM_INLINE_ENGINE_H
#define BW_SIM_INLINE_ENGINE_H

#include "base/env.h"
#include "io/engine.h"

/* Each request takes up to max_ns from now on. */
void inline_engine_delay(struct bwi_io *io, struct bwi_env *env, uint64_t max_ns);
uint64_t inline_engine_next_ns(const struct bwi_io *io); /* when the next one is due; BWI_NEVER */

#endif
