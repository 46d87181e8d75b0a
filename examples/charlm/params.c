/* SPDX-License-Identifier: Apache-2.0 */
/* The tensors, their split over the ranks, and Adam. Every sum has one fixed order. */
#include "params.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "random.h"

#define LEARNING_RATE 1e-2
#define BETA1         0.9
#define BETA2         0.99
#define EPSILON       1e-8f
#define BLOCK         2048 /* gradients summed at a time: they stay in the first-level cache */

static void add(struct params *p, size_t i, const char *name, size_t rows, size_t cols) {
    struct param *t = &p->list[i];
    snprintf(t->name, sizeof t->name, "%s", name);
    t->rows = rows;
    t->cols = cols;
}

static void list_tensors(struct params *p, const struct shape *s) {
    for (size_t order = 1; order <= NGRAM_ORDERS; order++) {
        char name[24];
        snprintf(name, sizeof name, "embed.%zu", order);
        add(p, PARAM_NGRAM + order - 1, name, order == 1 ? CHARLM_SYMBOLS : s->buckets, s->embed);
    }
    add(p, PARAM_INPUT, "gru.input", s->embed, 3 * s->hidden);
    add(p, PARAM_RECURRENT, "gru.recurrent", s->hidden, 3 * s->hidden);
    add(p, PARAM_GATE_BIAS, "gru.bias", 3 * s->hidden, 1);
    add(p, PARAM_CANDIDATE_BIAS, "gru.candidate_bias", s->hidden, 1);
    add(p, PARAM_OUTPUT, "output", s->hidden, CHARLM_SYMBOLS);
    add(p, PARAM_OUTPUT_BIAS, "output.bias", CHARLM_SYMBOLS, 1);
}

/* Rank r of w owns rows [rows * r / w, rows * (r + 1) / w) of each tensor. */
static void split(struct params *p, uint32_t rank, uint32_t world) {
    for (size_t i = 0; i < PARAM_COUNT; i++) {
        struct param *t = &p->list[i];
        t->at = p->count;
        t->row0 = t->rows * rank / world;
        t->row_count = t->rows * (rank + 1) / world - t->row0;
        t->shard_at = p->shard_count;
        p->count += t->rows * t->cols;
        p->shard_count += t->row_count * t->cols;
    }
}

/* Uniform, with a spread that keeps the sum of the inputs near 1. Biases begin at 0. */
static void fill(struct params *p, const struct shape *s, uint64_t seed) {
    for (size_t i = 0; i < PARAM_COUNT; i++) {
        const struct param *t = &p->list[i];
        if (t->cols == 1) continue;
        const float spread = i < PARAM_INPUT ? 0.1f : sqrtf(1.0f / (float)(i == PARAM_INPUT ? s->embed : s->hidden));
        for (size_t k = 0; k < t->rows * t->cols; k++)
            p->weights[t->at + k] = spread * (2.0f * random_unit(&seed) - 1.0f);
    }
}

int params_init(struct params *p, const struct shape *shape, uint32_t rank, uint32_t world, uint64_t seed) {
    *p = (struct params){0};
    list_tensors(p, shape);
    split(p, rank, world);
    p->weights = calloc(p->count, sizeof *p->weights);
    p->first = calloc(p->shard_count, sizeof *p->first);
    p->second = calloc(p->shard_count, sizeof *p->second);
    if (!p->weights || !p->first || !p->second) return -1;
    fill(p, shape, seed);
    return 0;
}

size_t params_count(const struct shape *shape) {
    struct params p = {0};
    list_tensors(&p, shape);
    split(&p, 0, 1);
    return p.count;
}

void params_fini(struct params *p) {
    free(p->weights);
    free(p->first);
    free(p->second);
    *p = (struct params){0};
}

/* One block of Adam. `rate` has the corrections of both moments in it. */
static void adam(size_t n, const float *restrict gradient, float *restrict weights, float *restrict first,
                 float *restrict second, float rate, float *restrict fresh) {
    for (size_t i = 0; i < n; i++) {
        const float g = gradient[i];
        first[i] = (float)BETA1 * first[i] + (float)(1 - BETA1) * g;
        second[i] = (float)BETA2 * second[i] + (float)(1 - BETA2) * g * g;
        weights[i] -= rate * first[i] / (sqrtf(second[i]) + EPSILON);
        fresh[i] = weights[i];
    }
}

static void sum(size_t n, const float *const *gradients, uint32_t world, size_t at, float *restrict total) {
    memcpy(total, gradients[0] + at, n * sizeof *total);
    for (uint32_t r = 1; r < world; r++) {
        const float *restrict more = gradients[r] + at;
        for (size_t i = 0; i < n; i++) total[i] += more[i];
    }
}

void params_update(struct params *p, const float *const *gradients, uint32_t world, uint64_t step, float *fresh) {
    const double t = (double)step;
    const float rate = (float)(LEARNING_RATE * sqrt(1 - pow(BETA2, t)) / (1 - pow(BETA1, t)));
    float total[BLOCK];
    for (size_t i = 0; i < PARAM_COUNT; i++) {
        const struct param *tensor = &p->list[i];
        const size_t begin = tensor->at + tensor->row0 * tensor->cols, n = tensor->row_count * tensor->cols;
        for (size_t done = 0; done < n; done += BLOCK) {
            const size_t some = n - done < BLOCK ? n - done : BLOCK, at = begin + done, mine = tensor->shard_at + done;
            sum(some, gradients, world, at, total);
            adam(some, total, p->weights + at, p->first + mine, p->second + mine, rate, fresh + at);
        }
    }
}

void params_take(struct params *p, const float *fresh) {
    for (size_t i = 0; i < PARAM_COUNT; i++) {
        const struct param *t = &p->list[i];
        const size_t before = t->row0 * t->cols, mine = t->row_count * t->cols, all = t->rows * t->cols;
        memcpy(p->weights + t->at, fresh + t->at, before * sizeof *fresh);
        memcpy(p->weights + t->at + before + mine, fresh + t->at + before + mine,
               (all - before - mine) * sizeof *fresh);
    }
}

uint64_t params_fingerprint(const struct params *p) {
    uint64_t hash = UINT64_C(14695981039346656037);
    for (size_t i = 0; i < p->count; i++) {
        uint32_t bits;
        memcpy(&bits, &p->weights[i], sizeof bits);
        hash = (hash ^ bits) * UINT64_C(1099511628211);
    }
    return hash;
}
