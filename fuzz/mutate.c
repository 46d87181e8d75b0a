/* SPDX-License-Identifier: Apache-2.0 */
/* Small changes, a few at a time: bits, numbers at the edges of their range, digits, pieces that go, come or are
 * repeated. */
#include "replay.h"
#include <string.h>

size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t max_size);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned seed) __attribute__((weak));

static uint64_t state;

void replay_seed(uint64_t seed) {
    state = seed;
}

uint64_t replay_random(uint64_t below) {
    uint64_t z = state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return (z ^ z >> 31) % below;
}

/* A number of 1, 2, 4 or 8 bytes becomes one that is often forgotten. */
static void put_number(uint8_t *data, size_t size) {
    static const uint64_t edges[] = {0,
                                     1,
                                     2,
                                     16,
                                     0x7f,
                                     0xff,
                                     0xffff,
                                     0x10000,
                                     0x7fffffff,
                                     0xffffffff,
                                     UINT64_C(1) << 40,
                                     INT64_MAX,
                                     UINT64_C(1) << 63,
                                     UINT64_MAX};
    const size_t bytes = (size_t)1 << replay_random(4);
    if (bytes > size) return;
    uint8_t *at = data + replay_random(size - bytes + 1);
    uint64_t v = edges[replay_random(sizeof edges / sizeof *edges)];
    if (replay_random(2) == 0) {
        v = 0;
        memcpy(&v, at, bytes);
        v += replay_random(9) - 4;
    }
    memcpy(at, &v, bytes);
}

static void put_digit(uint8_t *data, size_t size) {
    static const char often[] = "0123456789\"{}[],:.-/%\\ e";
    const size_t from = replay_random(size);
    for (size_t i = 0; i < size; i++) {
        uint8_t *c = &data[(from + i) % size];
        if (*c < '0' || *c > '9') continue;
        *c = (uint8_t)often[replay_random(sizeof often - 1)];
        return;
    }
}

static size_t cut(uint8_t *data, size_t size) {
    const size_t at = replay_random(size), n = 1 + replay_random(replay_random(4) != 0 ? 4 : size);
    const size_t gone = n < size - at ? n : size - at;
    memmove(data + at, data + at + gone, size - at - gone);
    return size - gone;
}

/* A piece of `from` comes in, over what is there or before it. */
static size_t paste(uint8_t *data, size_t size, size_t max_size, const uint8_t *from, size_t from_size) {
    if (from_size == 0) return size;
    const size_t begin = replay_random(from_size), at = replay_random(size + 1);
    size_t n = 1 + replay_random(replay_random(2) != 0 ? 8 : from_size - begin);
    if (n > from_size - begin) n = from_size - begin;
    if (replay_random(2) == 0) {
        if (n > size - at) n = size - at;
        memmove(data + at, from + begin, n);
        return size;
    }
    uint8_t piece[4096];
    if (n > sizeof piece) n = sizeof piece;
    if (n > max_size - size) n = max_size - size;
    memcpy(piece, from + begin, n);
    memmove(data + at + n, data + at, size - at);
    memcpy(data + at, piece, n);
    return size + n;
}

size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t max_size) {
    if (size == 0) {
        data[0] = (uint8_t)replay_random(256);
        return max_size > 0;
    }
    switch (replay_random(6)) {
    case 0: data[replay_random(size)] ^= (uint8_t)(1 << replay_random(8)); return size;
    case 1: data[replay_random(size)] = (uint8_t)replay_random(256); return size;
    case 2: put_number(data, size); return size;
    case 3: put_digit(data, size); return size;
    case 4: return cut(data, size);
    default: return paste(data, size, max_size, data, size);
    }
}

size_t replay_mutate(uint8_t *data, size_t size, size_t max_size, const uint8_t *other, size_t other_size) {
    for (uint64_t n = 1 + replay_random(4); n > 0; n--) {
        if (LLVMFuzzerCustomMutator != NULL)
            size = LLVMFuzzerCustomMutator(data, size, max_size, (unsigned)replay_random(UINT32_MAX));
        else if (replay_random(5) == 0)
            size = paste(data, size, max_size, other, other_size);
        else
            size = LLVMFuzzerMutate(data, size, max_size);
    }
    return size;
}
