/* SPDX-License-Identifier: Apache-2.0 */
/* Four pages are copied side by side, a cache line of each in turn: so more of the memory's banks are busy at once than
 * with one stream. */
#include "base/copy.h"
#include <stdint.h>
#include <string.h>

#ifdef __x86_64__
#include <immintrin.h>

#define LINE  ((size_t)64)
#define PAGE  ((size_t)4096)
#define PAGES ((size_t)4)
#define SHORT PAGE /* below, reading what is overwritten costs less than waiting for the stores */

/* How lines go past the caches: of PAGES pages in turn, or of `bytes` bytes one after the other. */
struct way {
    void (*pages)(uint8_t *dst, const uint8_t *src);
    void (*lines)(uint8_t *dst, const uint8_t *src, size_t bytes);
};

__attribute__((target("avx"))) static void line_avx(uint8_t *dst, const uint8_t *src) {
    const __m256i low = _mm256_loadu_si256((const __m256i *)(const void *)src);
    const __m256i high = _mm256_loadu_si256((const __m256i *)(const void *)(src + 32));
    _mm256_stream_si256((__m256i *)(void *)dst, low);
    _mm256_stream_si256((__m256i *)(void *)(dst + 32), high);
}

__attribute__((target("avx"))) static void pages_avx(uint8_t *dst, const uint8_t *src) {
    for (size_t at = 0; at < PAGE; at += LINE)
        for (size_t page = 0; page < PAGES; page++) line_avx(dst + page * PAGE + at, src + page * PAGE + at);
}

__attribute__((target("avx"))) static void lines_avx(uint8_t *dst, const uint8_t *src, size_t bytes) {
    for (size_t at = 0; at < bytes; at += LINE) line_avx(dst + at, src + at);
}

static void line_sse2(uint8_t *dst, const uint8_t *src) {
    for (size_t at = 0; at < LINE; at += 16) {
        const __m128i part = _mm_loadu_si128((const __m128i *)(const void *)(src + at));
        _mm_stream_si128((__m128i *)(void *)(dst + at), part);
    }
}

static void pages_sse2(uint8_t *dst, const uint8_t *src) {
    for (size_t at = 0; at < PAGE; at += LINE)
        for (size_t page = 0; page < PAGES; page++) line_sse2(dst + page * PAGE + at, src + page * PAGE + at);
}

static void lines_sse2(uint8_t *dst, const uint8_t *src, size_t bytes) {
    for (size_t at = 0; at < bytes; at += LINE) line_sse2(dst + at, src + at);
}

static const struct way avx = {pages_avx, lines_avx}, sse2 = {pages_sse2, lines_sse2};

static void copy(uint8_t *dst, const uint8_t *src, size_t n, const struct way *way) {
    if (n >= SHORT) {
        const size_t head = (size_t)(-(uintptr_t)dst & (LINE - 1));
        memcpy(dst, src, head);
        size_t at = head;
        for (; n - at >= PAGES * PAGE; at += PAGES * PAGE) way->pages(dst + at, src + at);
        const size_t lines = (n - at) & ~(LINE - 1);
        way->lines(dst + at, src + at, lines);
        at += lines;
        _mm_sfence();
        dst += at;
        src += at;
        n -= at;
    }
    memcpy(dst, src, n);
}

void bwi_copy_past_cache(void *dst, const void *src, size_t n) {
    copy(dst, src, n, __builtin_cpu_supports("avx") ? &avx : &sse2);
}

void bwi_copy_past_cache_baseline(void *dst, const void *src, size_t n) {
    copy(dst, src, n, &sse2);
}

#else

void bwi_copy_past_cache(void *dst, const void *src, size_t n) {
    memcpy(dst, src, n);
}

void bwi_copy_past_cache_baseline(void *dst, const void *src, size_t n) {
    memcpy(dst, src, n);
}

#endif

/* Words of a type that may stand for anything, so that the compiler makes no call of memcpy of it. */
typedef uint64_t __attribute__((may_alias, aligned(1))) bwi_word;

__attribute__((no_sanitize("address", "thread", "undefined"))) void bwi_copy_blind(void *dst, const void *src,
                                                                                   size_t n) {
    volatile bwi_word *to = dst;
    const bwi_word *from = src;
    for (size_t i = 0; i < n / sizeof *from; i += 8)
        for (size_t k = 0; k < 8; k++) to[i + k] = from[i + k];
}
