/* SPDX-License-Identifier: Apache-2.0 */
/* The text that is learnt, and the order in which its pieces come. */
#ifndef CHARLM_CORPUS_H
#define CHARLM_CORPUS_H

#include <stddef.h>
#include <stdint.h>

/* Where training is in the text. The order of an epoch is a function of the seed and the epoch, so this is all of it.
 */
struct position {
    uint64_t epoch;
    uint64_t next; /* piece of the epoch's order that comes next, over all ranks */
};

struct corpus {
    unsigned char *text;
    size_t bytes;
    size_t train_bytes; /* the rest is held out for the final measurement */
    size_t piece_bytes;
    uint64_t seed;
    uint64_t order_epoch; /* epoch whose order is in `order` */
    uint32_t *order;
    size_t pieces;
};

/* Reads a file whole. -1, after a line on stderr: not readable, or too short to be cut into pieces. */
int corpus_open(struct corpus *c, const char *path, size_t piece_bytes, uint64_t seed);
void corpus_close(struct corpus *c);

/*
 * Gives this rank's `n` pieces of the next n * world: `ret_at[i]` is the place of a piece's first byte, which has at
 * least 8 bytes before it and one behind its last.
 */
void corpus_next(struct corpus *c, struct position *where, uint32_t rank, uint32_t world, size_t n, size_t *ret_at);

/* The same for the held-out text, in the order in which it stands: the i-th set of n pieces. 0 when there is no more.
 */
int corpus_held_out(const struct corpus *c, size_t i, size_t n, size_t *ret_at);

#endif
