/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The model's parameters: what tensors there are, which rows of each a rank owns, and Adam over the rows that it owns.
 *
 * Weights are replicated: every rank holds all of them. The optimizer's state (Adam's two moments) is sharded by rows:
 * of every tensor each rank holds and updates its own rows only, and hands the new weights to the others.
 */
#ifndef CHARLM_PARAMS_H
#define CHARLM_PARAMS_H

#include <stddef.h>
#include <stdint.h>

#define NGRAM_ORDERS   7   /* the last 1 .. 7 bytes each have a table of embeddings */
#define CHARLM_SYMBOLS 256 /* a symbol is a byte */

/* Sizes of the model. Multiples of 16, so that the products' tiles fit. */
struct shape {
    size_t buckets; /* rows of each hashed table of embeddings */
    size_t embed;   /* floats of an embedding */
    size_t hidden;  /* units of the recurrent layer */
    size_t batch;   /* sequences per rank and step */
    size_t time;    /* bytes of a sequence */
};

enum param_index {
    PARAM_NGRAM = 0,            /* NGRAM_ORDERS tables [buckets][embed] (order 1: [256][embed]) */
    PARAM_INPUT = NGRAM_ORDERS, /* [embed][3 * hidden]: reset, update, candidate */
    PARAM_RECURRENT,            /* [hidden][3 * hidden] */
    PARAM_GATE_BIAS,            /* [3 * hidden] */
    PARAM_CANDIDATE_BIAS,       /* [hidden] */
    PARAM_OUTPUT,               /* [hidden][256] */
    PARAM_OUTPUT_BIAS,          /* [256] */
    PARAM_COUNT
};

/* One tensor. A vector has cols 1. */
struct param {
    char name[24];
    size_t rows, cols;
    size_t at;              /* of its first element among all weights */
    size_t row0, row_count; /* the rows that this rank owns */
    size_t shard_at;        /* of the first owned element in `first` and `second` */
};

struct params {
    struct param list[PARAM_COUNT];
    size_t count;          /* elements of all tensors */
    size_t shard_count;    /* elements that this rank owns */
    float *weights;        /* [count] */
    float *first, *second; /* [shard_count] Adam's moments */
};

/* Allocates and fills with the same random weights on every rank. -1: out of memory. */
int params_init(struct params *p, const struct shape *shape, uint32_t rank, uint32_t world, uint64_t seed);
void params_fini(struct params *p);

/* Elements of all tensors of a model of that shape. */
size_t params_count(const struct shape *shape);

/*
 * One step of Adam over the rows that this rank owns: the gradient is the sum of `gradients` of all ranks, rank 0
 * first. The new weights go into this rank's weights and into `fresh`, from which the others take them.
 */
void params_update(struct params *p, const float *const *gradients, uint32_t world, uint64_t step, float *fresh);

/* Takes the rows that other ranks own out of `fresh`. */
void params_take(struct params *p, const float *fresh);

/* A number that differs when any weight differs in any bit. */
uint64_t params_fingerprint(const struct params *p);

#endif
