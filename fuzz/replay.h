/* SPDX-License-Identifier: Apache-2.0 */
/* Mutations for a build without libFuzzer: the same on every machine, by seed. */
#ifndef BW_FUZZ_REPLAY_H
#define BW_FUZZ_REPLAY_H

#include <stddef.h>
#include <stdint.h>

void replay_seed(uint64_t seed);
uint64_t replay_random(uint64_t below);
/* Changes data in place, up to max_size bytes, sometimes with parts of another input. Returns the new size. A target's
 * own mutator is called where it has one. */
size_t replay_mutate(uint8_t *data, size_t size, size_t max_size, const uint8_t *other, size_t other_size);

#endif
