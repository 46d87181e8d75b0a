/* SPDX-License-Identifier: Apache-2.0 */
/* The text in memory, cut into pieces of equal length that are shuffled anew in every epoch. */
#include "corpus.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "random.h"

#define BEFORE     8  /* bytes before the first piece: the context of its first n-grams */
#define PIECES_MIN 64 /* fewer would not fill a batch */

static unsigned char *read_whole(const char *path, size_t *ret_bytes) {
    unsigned char *text = NULL;
    FILE *file = fopen(path, "rb");
    if (!file) return NULL;
    if (fseek(file, 0, SEEK_END) == 0) {
        long bytes = ftell(file);
        rewind(file);
        if (bytes > 0 && (text = malloc((size_t)bytes)) && fread(text, 1, (size_t)bytes, file) == (size_t)bytes) {
            *ret_bytes = (size_t)bytes;
        } else {
            free(text);
            text = NULL;
        }
    }
    fclose(file);
    return text;
}

/* Fisher and Yates, from a state that only the seed and the epoch decide. */
static void shuffle(struct corpus *c, uint64_t epoch) {
    uint64_t state = c->seed + epoch;
    for (size_t i = 0; i < c->pieces; i++) c->order[i] = (uint32_t)i;
    for (size_t i = c->pieces; i > 1; i--) {
        const size_t j = random_below(&state, i);
        const uint32_t kept = c->order[i - 1];
        c->order[i - 1] = c->order[j];
        c->order[j] = kept;
    }
    c->order_epoch = epoch;
}

int corpus_open(struct corpus *c, const char *path, size_t piece_bytes, uint64_t seed) {
    *c = (struct corpus){.piece_bytes = piece_bytes, .seed = seed};
    c->text = read_whole(path, &c->bytes);
    if (!c->text) return fprintf(stderr, "%s: cannot be read\n", path), -1;
    c->train_bytes = c->bytes - c->bytes / 20;
    c->pieces = c->train_bytes > BEFORE + 1 ? (c->train_bytes - BEFORE - 1) / piece_bytes : 0;
    c->order = calloc(c->pieces + 1, sizeof *c->order);
    if (c->pieces < PIECES_MIN || !c->order) {
        fprintf(stderr, "%s: %zu pieces of %zu bytes, expected at least %d\n", path, c->pieces, piece_bytes,
                PIECES_MIN);
        corpus_close(c);
        return -1;
    }
    shuffle(c, 0);
    return 0;
}

void corpus_close(struct corpus *c) {
    free(c->text);
    free(c->order);
    *c = (struct corpus){0};
}

void corpus_next(struct corpus *c, struct position *where, uint32_t rank, uint32_t world, size_t n, size_t *ret_at) {
    if (where->next + n * world > c->pieces) *where = (struct position){where->epoch + 1, 0};
    if (where->epoch != c->order_epoch) shuffle(c, where->epoch);
    for (size_t i = 0; i < n; i++)
        ret_at[i] = BEFORE + c->order[(where->next + rank * n + i) % c->pieces] * c->piece_bytes;
    where->next += n * world;
}

int corpus_held_out(const struct corpus *c, size_t i, size_t n, size_t *ret_at) {
    for (size_t k = 0; k < n; k++) {
        ret_at[k] = c->train_bytes + BEFORE + (i * n + k) * c->piece_bytes;
        if (ret_at[k] + c->piece_bytes + 1 > c->bytes) return 0;
    }
    return 1;
}
