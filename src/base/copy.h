/* SPDX-License-Identifier: Apache-2.0 */
/* Copying much memory that nobody on this processor will look at soon. */
#ifndef BWI_BASE_COPY_H
#define BWI_BASE_COPY_H

#include <stddef.h>

/* memcpy, past the caches where the processor can: writing around them spares the reading of what is overwritten, and
 * the working set of whoever computes beside it stays where it is. All of it is visible to other threads by the time it
 * returns, as after memcpy. Short copies are memcpy. */
void bwi_copy_past_cache(void *dst, const void *src, size_t n);
/* The same with no more than every processor of the architecture has; what the other is chosen over. */
void bwi_copy_past_cache_baseline(void *dst, const void *src, size_t n);
/* A copy that no sanitizer looks at: of memory whose owner may have said that there is nothing in it, or that another
 * thread may write once we let it. n is a multiple of 64. */
void bwi_copy_blind(void *dst, const void *src, size_t n);

#endif
