/* SPDX-License-Identifier: Apache-2.0 */
/* Sanitizers cost five to twenty times the time: the same cases run with less. */
#ifndef BW_TEST_SANITIZED_H
#define BW_TEST_SANITIZED_H

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SANITIZED 1
#endif
#endif
#ifndef SANITIZED
#define SANITIZED 0
#endif
/* Threads that the thread sanitizer has for itself. */
#if defined(__SANITIZE_THREAD__)
#define SANITIZER_THREADS 1u
#else
#define SANITIZER_THREADS 0u
#endif
#define FULL_OR(full, less) (SANITIZED ? (less) : (full))

#endif
