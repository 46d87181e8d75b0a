/* SPDX-License-Identifier: Apache-2.0 */
/* Around every input of every target: a copy of exactly its size, and an account of memory. The linker leads all calls
 * of malloc and its kin through here (--wrap), and jansson is told to come here too. */
#include "fuzz.h"
#include <jansson.h>
#include <malloc.h>
#include <stdatomic.h>
#include <stdio.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerInitialize(int *argc, char ***argv);

static atomic_size_t held, peak;

/* --- the account ---- */

void *__real_malloc(size_t size);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *p, size_t size);
void __real_free(void *p);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *p, size_t size);
void *__wrap_reallocarray(void *p, size_t n, size_t size);
char *__wrap_strdup(const char *text);
void __wrap_free(void *p);

static void *taken(void *p) {
    if (p == NULL) return NULL;
    const size_t now = atomic_fetch_add(&held, malloc_usable_size(p)) + malloc_usable_size(p);
    size_t most = atomic_load(&peak);
    while (now > most && !atomic_compare_exchange_weak(&peak, &most, now)) continue;
    return p;
}

void *__wrap_malloc(size_t size) {
    return taken(__real_malloc(size));
}

void *__wrap_calloc(size_t n, size_t size) {
    return taken(__real_calloc(n, size));
}

void *__wrap_realloc(void *p, size_t size) {
    const size_t before = p != NULL ? malloc_usable_size(p) : 0;
    void *bigger = __real_realloc(p, size);
    if (bigger != NULL || size == 0) atomic_fetch_sub(&held, before);
    return taken(bigger);
}

void *__wrap_reallocarray(void *p, size_t n, size_t size) {
    size_t bytes;
    return __builtin_mul_overflow(n, size, &bytes) ? NULL : __wrap_realloc(p, bytes);
}

char *__wrap_strdup(const char *text) {
    const size_t bytes = strlen(text) + 1;
    char *copy = __wrap_malloc(bytes);
    return copy != NULL ? memcpy(copy, text, bytes) : NULL;
}

void __wrap_free(void *p) {
    if (p != NULL) atomic_fetch_sub(&held, malloc_usable_size(p));
    __real_free(p);
}

/* --- one input ---- */

__attribute__((weak)) void fuzz_init(void) {}

__attribute__((weak)) size_t fuzz_memory_max(size_t size) {
    return ((size_t)1 << 20) + 256 * size;
}

int LLVMFuzzerInitialize(int *argc, char ***argv) {
    (void)argc;
    (void)argv;
    json_set_alloc_funcs(__wrap_malloc, __wrap_free);
    fuzz_init();
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    uint8_t *copy = malloc(size != 0 ? size : 1);
    if (copy == NULL) abort();
    if (size != 0) memcpy(copy, data, size);
    const size_t before = atomic_load(&held);
    atomic_store(&peak, before);
    fuzz_one(copy, size);
    fuzz_require(atomic_load(&held) == before);
    fuzz_require(atomic_load(&peak) - before <= fuzz_memory_max(size));
    free(copy);
    return 0;
}

void fuzz_require_at(bool holds, const char *what, const char *file, int line) {
    if (holds) return;
    (void)fprintf(stderr, "ERROR: %s:%d: expected %s\n", file, line, what);
    abort();
}

char *fuzz_text(const void *bytes, size_t n) {
    char *text = malloc(n + 1);
    if (text == NULL) abort();
    if (n > 0) memcpy(text, bytes, n);
    text[n] = '\0';
    return text;
}

uint64_t fuzz_take(struct fuzz_input *in, size_t bytes) {
    const struct bwi_span s = fuzz_take_span(in, bytes);
    uint64_t v = 0;
    for (size_t i = 0; i < s.len; i++) v |= (uint64_t)s.ptr[i] << 8 * i;
    return v;
}

struct bwi_span fuzz_take_span(struct fuzz_input *in, size_t bytes) {
    const size_t n = bytes < in->left ? bytes : in->left;
    const struct bwi_span s = bwi_span(in->at, n);
    in->at += n;
    in->left -= n;
    return s;
}
