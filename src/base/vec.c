/* SPDX-License-Identifier: Apache-2.0 */
/* All of the library's heap memory comes from here, so that a test can make the n-th allocation fail and see what was
 * not given back. The three counters are global for that test's sake. */
#include "base/vec.h"
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

static atomic_ulong fail_in; /* allocations until one fails, that one included; 0: off */
static atomic_ulong made;
static atomic_long live;

/* Counts an allocation that is about to be made; true: it has to fail. */
static bool must_fail(void) {
    atomic_fetch_add_explicit(&made, 1, memory_order_relaxed);
    unsigned long left = atomic_load_explicit(&fail_in, memory_order_relaxed);
    while (left != 0) {
        if (atomic_compare_exchange_weak(&fail_in, &left, left - 1)) return left == 1;
    }
    return false;
}

static void *counted(void *p) {
    if (p != NULL) atomic_fetch_add_explicit(&live, 1, memory_order_relaxed);
    return p;
}

/* Sizes that no allocator can give are refused here, so that it is never asked. At least one byte is: NULL means
 * "out of memory" and nothing else. */
static bool usable_size(size_t n, size_t size, size_t *ret) {
    size_t bytes;
    if (__builtin_mul_overflow(n, size, &bytes) || bytes > PTRDIFF_MAX) return false;
    *ret = bytes == 0 ? 1 : bytes;
    return true;
}

void *bwi_calloc(size_t n, size_t size) {
    size_t bytes;
    return must_fail() || !usable_size(n, size, &bytes) ? NULL : counted(calloc(1, bytes));
}

void *bwi_malloc(size_t size) {
    size_t bytes;
    return must_fail() || !usable_size(1, size, &bytes) ? NULL : counted(malloc(bytes));
}

void bwi_free(void *p) {
    if (p == NULL) return;
    atomic_fetch_sub_explicit(&live, 1, memory_order_relaxed);
    free(p);
}

char *bwi_strdup(const char *s) {
    if (s == NULL) return NULL;
    const size_t bytes = strlen(s) + 1;
    char *copy = bwi_malloc(bytes);
    if (copy != NULL) memcpy(copy, s, bytes);
    return copy;
}

bool bwi_vec_reserve(void **ptr, size_t *cap, size_t want, size_t size) {
    if (want <= *cap) return true;
    const size_t doubled = *cap > SIZE_MAX / 2 ? want : *cap * 2;
    size_t next = doubled > want ? doubled : want;
    if (next < 8) next = 8;
    size_t bytes;
    if (!usable_size(next, size, &bytes)) {
        next = want; /* the exact size may still fit where the doubled one does not */
        if (!usable_size(next, size, &bytes)) return false;
    }
    if (must_fail()) return false;
    uint8_t *p = realloc(*ptr, bytes);
    if (p == NULL) return false;
    if (*ptr == NULL) counted(p);
    memset(p + *cap * size, 0, bytes - *cap * size);
    *ptr = p;
    *cap = next;
    return true;
}

unsigned long bwi_alloc_fail_at(unsigned long n) {
    atomic_store(&fail_in, n);
    return atomic_exchange(&made, 0);
}

long bwi_alloc_live(void) {
    return atomic_load(&live);
}
