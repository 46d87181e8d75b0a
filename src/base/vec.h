/* SPDX-License-Identifier: Apache-2.0 */
/* Growing an array by hand: `ptr`, `len`, `cap` stay visible members of their owner. */
#ifndef BWI_BASE_VEC_H
#define BWI_BASE_VEC_H

#include <stdbool.h>
#include <stddef.h>

/* Makes room for `want` elements of `size` bytes in *ptr (doubling, overflow-checked). New memory is zeroed. false: out
 * of memory, nothing changed. */
bool bwi_vec_reserve(void **ptr, size_t *cap, size_t want, size_t size);

/* calloc with overflow check under one name, so that a test can count and fail it. */
void *bwi_calloc(size_t n, size_t size);
void *bwi_malloc(size_t size);
void bwi_free(void *p);
char *bwi_strdup(const char *s);

/* Test seam: makes the n-th allocation from now (1 = next) fail; 0 switches it off. Returns how many allocations were
 * made since the last call. Process-wide and atomic; used by the fault sweep only. */
unsigned long bwi_alloc_fail_at(unsigned long n);
/* Allocations that were made and not freed: the leak check of the tests. */
long bwi_alloc_live(void);

#endif
