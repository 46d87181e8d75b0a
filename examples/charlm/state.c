/* SPDX-License-Identifier: Apache-2.0 */
/* From the model's tensors to a list of parts. */
#include "state.h"

#include <stdio.h>

/* A part of tensor `t`: rows [row0, row0 + rows). */
static void add(struct state *s, const struct param *t, const char *prefix, uint64_t row0, uint64_t rows,
                uint32_t replica, uint32_t replicas, float *data) {
    struct part *part = &s->parts[s->part_count++];
    *part = (struct part){
        .dims = t->cols == 1 ? 1 : 2,
        .replicas = replicas,
        .replica = replica,
        .shape = {t->rows, t->cols},
        .offset = {row0, 0},
        .extent = {rows, t->cols},
        .data = data,
    };
    snprintf(part->name, sizeof part->name, "%s.%s", prefix, t->name);
}

void state_init(struct state *s, const struct params *p, uint32_t rank, uint32_t world, uint64_t seed) {
    *s = (struct state){.now.rng = seed};
    for (size_t i = 0; i < PARAM_COUNT; i++) {
        const struct param *t = &p->list[i];
        add(s, t, "model", 0, t->rows, rank, world, p->weights + t->at);
        add(s, t, "adam.first", t->row0, t->row_count, 0, 1, p->first + t->shard_at);
        add(s, t, "adam.second", t->row0, t->row_count, 0, 1, p->second + t->shard_at);
    }
}

uint64_t state_bytes(const struct state *s) {
    uint64_t bytes = 0;
    for (size_t i = 0; i < s->part_count; i++) bytes += s->parts[i].extent[0] * s->parts[i].extent[1] * sizeof(float);
    return bytes;
}
