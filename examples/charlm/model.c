/* SPDX-License-Identifier: Apache-2.0 */
/* Forward and backward of the model. Names of gradients begin with d; gate columns are reset, update, candidate. */
#include "model.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "matmul.h"
#include "random.h"

#define DROP       0.1f /* share of n-grams that a training step leaves out: the others learn to do without */
#define NO_ROW     UINT32_MAX
#define AT(m, i)   ((m)->params->weights + (m)->params->list[i].at)
#define SLOT(m, i) ((m)->params->list[i].at)

static float *floats(size_t n) {
    return calloc(n, sizeof(float));
}

int model_init(struct model *m, const struct shape *shape, const struct params *params) {
    const size_t tokens = shape->batch * shape->time, h = shape->hidden, e = shape->embed;
    const size_t widest = 3 * h > CHARLM_SYMBOLS ? 3 * h : CHARLM_SYMBOLS;
    *m = (struct model){.shape = *shape, .params = params, .tokens = tokens};
    m->rows = calloc(tokens * NGRAM_ORDERS, sizeof *m->rows);
    m->targets = calloc(tokens, 1);
    m->x = floats(tokens * e);
    m->gates_in = floats(tokens * 3 * h);
    m->gates_rec = floats(tokens * 3 * h);
    m->reset = floats(tokens * h);
    m->update = floats(tokens * h);
    m->candidate = floats(tokens * h);
    m->h = floats((shape->batch + tokens) * h);
    m->p = floats(tokens * CHARLM_SYMBOLS);
    m->dh = floats(tokens * h);
    m->dx = floats(tokens * e);
    m->carry = floats(shape->batch * h);
    m->carry_next = floats(shape->batch * h);
    m->turned = floats(widest * (h > e ? h : e));
    const void *all[] = {m->rows, m->targets, m->x,  m->gates_in, m->gates_rec, m->reset,      m->update, m->candidate,
                         m->h,    m->p,       m->dh, m->dx,       m->carry,     m->carry_next, m->turned};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (!all[i]) return -1;
    return 0;
}

void model_fini(struct model *m) {
    void *all[] = {m->rows, m->targets, m->x,  m->gates_in, m->gates_rec, m->reset,      m->update, m->candidate,
                   m->h,    m->p,       m->dh, m->dx,       m->carry,     m->carry_next, m->turned};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) free(all[i]);
    *m = (struct model){0};
}

/* The row of the n-gram that ends at `last`. */
static uint32_t ngram_row(const unsigned char *last, size_t n, size_t buckets) {
    if (n == 1) return *last;
    uint64_t hash = n;
    for (size_t i = 0; i < n; i++) hash = (hash ^ last[-(ptrdiff_t)i]) * UINT64_C(0x9e3779b97f4a7c15);
    return (uint32_t)((hash >> 24) % buckets);
}

/* x of one token: the sum of its embeddings. */
static void embed_token(const struct model *m, const uint32_t *rows, float *x) {
    const size_t e = m->shape.embed;
    memset(x, 0, e * sizeof *x);
    for (size_t n = 0; n < NGRAM_ORDERS; n++) {
        if (rows[n] == NO_ROW) continue;
        const float *row = AT(m, PARAM_NGRAM + n) + rows[n] * e;
        for (size_t i = 0; i < e; i++) x[i] += row[i];
    }
}

static void look_up(struct model *m, const unsigned char *text, const size_t *at, uint64_t *rng) {
    const size_t batch = m->shape.batch;
    for (size_t token = 0; token < m->tokens; token++) {
        const unsigned char *last = text + at[token % batch] + token / batch;
        uint32_t *rows = m->rows + token * NGRAM_ORDERS;
        for (size_t n = 1; n <= NGRAM_ORDERS; n++) {
            rows[n - 1] = ngram_row(last, n, m->shape.buckets);
            if (n > 1 && rng && random_unit(rng) < DROP) rows[n - 1] = NO_ROW;
        }
        m->targets[token] = last[1];
        embed_token(m, rows, m->x + token * m->shape.embed);
    }
}

static void copy_rows(float *to, size_t rows, size_t cols, const float *row) {
    for (size_t i = 0; i < rows; i++) memcpy(to + i * cols, row, cols * sizeof *to);
}

static float sigmoid(float x) {
    return 1.0f / (1.0f + expf(-x));
}

/* The gates and the new h of one token. `in` and `rec` are its rows of gates_in and gates_rec. */
static void gate(size_t hidden, const float *in, const float *rec, const float *before, float *reset, float *update,
                 float *candidate, float *after) {
    for (size_t i = 0; i < hidden; i++) {
        reset[i] = sigmoid(in[i] + rec[i]);
        update[i] = sigmoid(in[hidden + i] + rec[hidden + i]);
        candidate[i] = tanhf(in[2 * hidden + i] + reset[i] * rec[2 * hidden + i]);
        after[i] = (1.0f - update[i]) * candidate[i] + update[i] * before[i];
    }
}

/* The recurrent part begins at 0, but for the candidate, which has a bias inside of the reset gate. */
static void start_recurrent(const struct model *m, float *rec, size_t rows) {
    const size_t h = m->shape.hidden;
    for (size_t i = 0; i < rows; i++) {
        memset(rec + i * 3 * h, 0, 2 * h * sizeof *rec);
        memcpy(rec + i * 3 * h + 2 * h, AT(m, PARAM_CANDIDATE_BIAS), h * sizeof *rec);
    }
}

static void recur(struct model *m) {
    const size_t h = m->shape.hidden, batch = m->shape.batch;
    copy_rows(m->gates_in, m->tokens, 3 * h, AT(m, PARAM_GATE_BIAS));
    matmul_add(m->tokens, 3 * h, m->shape.embed, m->x, AT(m, PARAM_INPUT), m->gates_in);
    start_recurrent(m, m->gates_rec, m->tokens);
    memset(m->h, 0, batch * h * sizeof *m->h);
    for (size_t first = 0; first < m->tokens; first += batch) {
        matmul_add(batch, 3 * h, h, m->h + first * h, AT(m, PARAM_RECURRENT), m->gates_rec + first * 3 * h);
        for (size_t k = first; k < first + batch; k++)
            gate(h, m->gates_in + k * 3 * h, m->gates_rec + k * 3 * h, m->h + k * h, m->reset + k * h,
                 m->update + k * h, m->candidate + k * h, m->h + (k + batch) * h);
    }
}

/* Logits to probabilities. */
static void softmax(float *p) {
    float top = p[0], total = 0;
    for (size_t i = 1; i < CHARLM_SYMBOLS; i++) top = p[i] > top ? p[i] : top;
    for (size_t i = 0; i < CHARLM_SYMBOLS; i++) total += p[i] = expf(p[i] - top);
    for (size_t i = 0; i < CHARLM_SYMBOLS; i++) p[i] /= total;
}

double model_forward(struct model *m, const unsigned char *text, const size_t *at, uint64_t *rng) {
    double loss = 0;
    look_up(m, text, at, rng);
    recur(m);
    copy_rows(m->p, m->tokens, CHARLM_SYMBOLS, AT(m, PARAM_OUTPUT_BIAS));
    matmul_add(m->tokens, CHARLM_SYMBOLS, m->shape.hidden, m->h + m->shape.batch * m->shape.hidden, AT(m, PARAM_OUTPUT),
               m->p);
    for (size_t k = 0; k < m->tokens; k++) {
        float *p = m->p + k * CHARLM_SYMBOLS;
        softmax(p);
        loss -= log((double)p[m->targets[k]] + 1e-30);
    }
    return loss;
}

/* dh of the output layer, and that layer's own gradients. */
static void back_output(struct model *m, float scale, float *gradient) {
    const size_t h = m->shape.hidden;
    for (size_t k = 0; k < m->tokens; k++) {
        float *p = m->p + k * CHARLM_SYMBOLS;
        p[m->targets[k]] -= 1.0f;
        for (size_t i = 0; i < CHARLM_SYMBOLS; i++) p[i] *= scale;
    }
    matmul_tn_add(h, CHARLM_SYMBOLS, m->tokens, m->h + m->shape.batch * h, m->p, gradient + SLOT(m, PARAM_OUTPUT));
    column_sums_add(m->tokens, CHARLM_SYMBOLS, m->p, gradient + SLOT(m, PARAM_OUTPUT_BIAS));
    transpose(h, CHARLM_SYMBOLS, AT(m, PARAM_OUTPUT), m->turned);
    memset(m->dh, 0, m->tokens * h * sizeof *m->dh);
    matmul_add(m->tokens, h, CHARLM_SYMBOLS, m->p, m->turned, m->dh);
}

/* Backward through gate(): in, rec become their gradients, `carry` the gradient of h(t - 1) but for the product's part.
 */
static void back_gate(size_t hidden, float *in, float *rec, const float *before, const float *reset,
                      const float *update, const float *candidate, const float *dh, float *carry) {
    for (size_t i = 0; i < hidden; i++) {
        const float d = dh[i] + carry[i], z = update[i], c = candidate[i], r = reset[i];
        const float dc = d * (1.0f - z) * (1.0f - c * c);
        const float dz = d * (before[i] - c) * z * (1.0f - z);
        const float dr = dc * rec[2 * hidden + i] * r * (1.0f - r);
        in[i] = rec[i] = dr;
        in[hidden + i] = rec[hidden + i] = dz;
        in[2 * hidden + i] = dc;
        rec[2 * hidden + i] = dc * r;
        carry[i] = d * z;
    }
}

/* Time runs backwards; afterwards gates_in and gates_rec hold their gradients. */
static void back_recur(struct model *m) {
    const size_t h = m->shape.hidden, batch = m->shape.batch;
    transpose(h, 3 * h, AT(m, PARAM_RECURRENT), m->turned);
    memset(m->carry, 0, batch * h * sizeof *m->carry);
    for (size_t first = m->tokens; first > 0; first -= batch) {
        for (size_t b = 0; b < batch; b++) {
            const size_t k = first - batch + b;
            back_gate(h, m->gates_in + k * 3 * h, m->gates_rec + k * 3 * h, m->h + k * h, m->reset + k * h,
                      m->update + k * h, m->candidate + k * h, m->dh + k * h, m->carry + b * h);
        }
        matmul_add(batch, h, 3 * h, m->gates_rec + (first - batch) * 3 * h, m->turned, m->carry);
    }
}

/* The gradient of a sum of rows is the same for each row. */
static void back_embed(struct model *m, float *gradient) {
    const size_t e = m->shape.embed;
    transpose(e, 3 * m->shape.hidden, AT(m, PARAM_INPUT), m->turned);
    memset(m->dx, 0, m->tokens * e * sizeof *m->dx);
    matmul_add(m->tokens, e, 3 * m->shape.hidden, m->gates_in, m->turned, m->dx);
    for (size_t k = 0; k < m->tokens * NGRAM_ORDERS; k++) {
        if (m->rows[k] == NO_ROW) continue;
        float *to = gradient + SLOT(m, PARAM_NGRAM + k % NGRAM_ORDERS) + m->rows[k] * e;
        const float *dx = m->dx + k / NGRAM_ORDERS * e;
        for (size_t i = 0; i < e; i++) to[i] += dx[i];
    }
}

void model_backward(struct model *m, float scale, float *gradient) {
    const size_t h = m->shape.hidden, e = m->shape.embed;
    back_output(m, scale, gradient);
    back_recur(m);
    matmul_tn_add(h, 3 * h, m->tokens, m->h, m->gates_rec, gradient + SLOT(m, PARAM_RECURRENT));
    matmul_tn_add(e, 3 * h, m->tokens, m->x, m->gates_in, gradient + SLOT(m, PARAM_INPUT));
    column_sums_add(m->tokens, 3 * h, m->gates_in, gradient + SLOT(m, PARAM_GATE_BIAS));
    float *candidate_bias = gradient + SLOT(m, PARAM_CANDIDATE_BIAS);
    for (size_t k = 0; k < m->tokens; k++)
        for (size_t i = 0; i < h; i++) candidate_bias[i] += m->gates_rec[k * 3 * h + 2 * h + i];
    back_embed(m, gradient);
}

void model_clear_gradient(const struct model *m, float *gradient) {
    const size_t e = m->shape.embed, dense = SLOT(m, PARAM_INPUT);
    memset(gradient + dense, 0, (m->params->count - dense) * sizeof *gradient);
    for (size_t k = 0; k < m->tokens * NGRAM_ORDERS; k++)
        if (m->rows[k] != NO_ROW)
            memset(gradient + SLOT(m, PARAM_NGRAM + k % NGRAM_ORDERS) + m->rows[k] * e, 0, e * sizeof *gradient);
}

/* to[cols] += row[k] * matrix[k][cols] */
static void row_times(size_t cols, size_t k, const float *row, const float *matrix, float *to) {
    for (size_t i = 0; i < k; i++)
        for (size_t j = 0; j < cols; j++) to[j] += row[i] * matrix[i * cols + j];
}

/* Reads one byte: `h` goes on by a step, m->p gets the probabilities of what follows. */
static void read_byte(struct model *m, const unsigned char *last, float *h) {
    const size_t hidden = m->shape.hidden;
    for (size_t n = 1; n <= NGRAM_ORDERS; n++) m->rows[n - 1] = ngram_row(last, n, m->shape.buckets);
    embed_token(m, m->rows, m->x);
    memcpy(m->gates_in, AT(m, PARAM_GATE_BIAS), 3 * hidden * sizeof(float));
    row_times(3 * hidden, m->shape.embed, m->x, AT(m, PARAM_INPUT), m->gates_in);
    start_recurrent(m, m->gates_rec, 1);
    row_times(3 * hidden, hidden, h, AT(m, PARAM_RECURRENT), m->gates_rec);
    gate(hidden, m->gates_in, m->gates_rec, h, m->reset, m->update, m->candidate, h);
    memcpy(m->p, AT(m, PARAM_OUTPUT_BIAS), CHARLM_SYMBOLS * sizeof(float));
    row_times(CHARLM_SYMBOLS, hidden, h, AT(m, PARAM_OUTPUT), m->p);
    softmax(m->p);
}

/* Draws a byte, the likelier ones more often than the model says: p squared. */
static char draw(const float *p, uint64_t *rng) {
    float total = 0;
    for (size_t i = 0; i < CHARLM_SYMBOLS; i++) total += p[i] * p[i];
    float left = random_unit(rng) * total;
    for (size_t i = 0; i < CHARLM_SYMBOLS; i++)
        if ((left -= p[i] * p[i]) < 0) return i >= ' ' && i < 127 ? (char)i : ' ';
    return ' ';
}

void model_write(struct model *m, const char *prompt, uint64_t seed, char *out, size_t n) {
    unsigned char text[256];
    const size_t given = strlen(prompt), end = given + n < sizeof text ? given + n : sizeof text;
    memcpy(text, prompt, given);
    memset(m->h, 0, m->shape.hidden * sizeof *m->h);
    for (size_t i = NGRAM_ORDERS - 1; i < given; i++) read_byte(m, text + i, m->h);
    for (size_t i = given; i < end; i++) {
        text[i] = (unsigned char)draw(m->p, &seed);
        read_byte(m, text + i, m->h);
    }
    memcpy(out, text + given, end - given);
    out[end - given] = 0;
}
