/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A character-level language model: which byte comes next?
 *
 *   x(t)      = sum over n = 1 .. 7 of table n [hash of the last n bytes]    (n-gram embeddings, some dropped in
 * training) h(t)      = GRU(x(t), h(t - 1))                                          (a gated recurrent layer) p(t + 1)
 * = softmax(output * h(t) + bias)
 *
 * Most of its parameters are in the tables, of which a step touches few rows; so its state is large and a step is
 * quick. Forward and backward are written by hand; float32; one thread.
 */
#ifndef CHARLM_MODEL_H
#define CHARLM_MODEL_H

#include "corpus.h"
#include "params.h"

struct model {
    struct shape shape;
    const struct params *params;
    size_t tokens;             /* batch * time; token t * batch + b is byte t of sequence b */
    uint32_t *rows;            /* [tokens][NGRAM_ORDERS] row in each table, UINT32_MAX: dropped */
    unsigned char *targets;    /* [tokens] */
    float *x;                  /* [tokens][embed] */
    float *gates_in;           /* [tokens][3 * hidden] input's part of the gates; then its gradient */
    float *gates_rec;          /* [tokens][3 * hidden] recurrent part; then its gradient */
    float *reset, *update;     /* [tokens][hidden] */
    float *candidate;          /* [tokens][hidden] */
    float *h;                  /* [batch + tokens][hidden], the first rows are h(-1) = 0 */
    float *p;                  /* [tokens][256] probabilities; then gradient of the logits */
    float *dh;                 /* [tokens][hidden] */
    float *dx;                 /* [tokens][embed] */
    float *carry, *carry_next; /* [batch][hidden] */
    float *turned;             /* a transposed matrix */
};

/* -1: out of memory. */
int model_init(struct model *m, const struct shape *shape, const struct params *params);
void model_fini(struct model *m);

/* Runs the pieces at `at` and gives the sum of -ln p(next byte). `rng` drops n-grams; NULL: none is dropped. */
double model_forward(struct model *m, const unsigned char *text, const size_t *at, uint64_t *rng);

/* Adds the gradient of (that sum * scale) to `gradient`, laid out like the weights. */
void model_backward(struct model *m, float scale, float *gradient);

/* Sets those parts of `gradient` to 0 that the last model_backward touched. */
void model_clear_gradient(const struct model *m, float *gradient);

/* Writes `n` bytes of text of the model's own after `prompt` (at least 8 bytes) into `out`. Uses the model's buffers.
 */
void model_write(struct model *m, const char *prompt, uint64_t seed, char *out, size_t n);

#endif
