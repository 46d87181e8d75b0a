/* SPDX-License-Identifier: Apache-2.0 */
/* Filling struct bw_error. All of them accept err == NULL, return the status so that a caller can write
 * `return bwi_error_set(...)`, and leave an error that is set already untouched: the first error wins. */
#ifndef BWI_BASE_ERROR_H
#define BWI_BASE_ERROR_H

#include <breakwater/error.h>
#include <stdarg.h>

#define BWI_PRINTF(fmt, first) __attribute__((format(printf, fmt, first)))

/* Status and message; returns `status`. Control characters, invalid UTF-8, and the code points that break or reorder a
 * line are replaced by '?', so that a hostile name cannot forge a second line. A message that is cut ends with "...". A
 * status that is not negative would turn a failure into a success: it becomes BW_E_INTERNAL. */
int bwi_error_set(struct bw_error *err, int status, const char *fmt, ...) BWI_PRINTF(3, 4);

/* As above with the status that belongs to an errno value (bwi_status_of_errno) and ": <strerror>" appended, in lower
 * case and English whatever the locale. `os_errno` may be negative, as the table of system calls returns it. */
int bwi_error_errno(struct bw_error *err, int os_errno, const char *fmt, ...) BWI_PRINTF(3, 4);

/* Puts "<text>: " before the message of an error that is set; does nothing when none is. Returns err->status,
 * 0 for NULL. */
int bwi_error_wrap(struct bw_error *err, const char *fmt, ...) BWI_PRINTF(2, 3);

/* Sets the stage of an error that is set and has none yet: called by the flow on its way out. */
void bwi_error_stage(struct bw_error *err, enum bw_stage stage);

/* Copies `from` into `to` unless `to` is set already or `from` is not set. Returns the status of `from`. */
int bwi_error_copy(struct bw_error *to, const struct bw_error *from);

/* ENOSPC, EDQUOT -> BW_E_NOSPACE; EACCES, EPERM, EROFS -> BW_E_ACCESS; ENOENT -> BW_E_NOTFOUND; ENOMEM ->
 * BW_E_NOMEM; EFBIG -> BW_E_LIMIT; ETIMEDOUT -> BW_E_TIMEOUT; everything else -> BW_E_IO. The sign does not matter. */
int bwi_status_of_errno(int os_errno);

/* Out of memory, with the number of bytes and what they were for. */
int bwi_error_nomem(struct bw_error *err, size_t bytes, const char *what);

/* The analyser does not see into error.c: it is told that these never return 0. */
#ifdef __clang_analyzer__
#define bwi_error_set(...)   ((void)(bwi_error_set)(__VA_ARGS__), BW_E_INTERNAL)
#define bwi_error_errno(...) ((void)(bwi_error_errno)(__VA_ARGS__), BW_E_INTERNAL)
#define bwi_error_nomem(...) ((void)(bwi_error_nomem)(__VA_ARGS__), BW_E_NOMEM)
#endif

#endif
