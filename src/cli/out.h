/* SPDX-License-Identifier: Apache-2.0 */
/* What the command prints: text that grows, tables, sizes and ages for people, names made harmless. */
#ifndef BW_CLI_OUT_H
#define BW_CLI_OUT_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <breakwater/error.h>

/* Says that there is no memory left and ends the process with exit code 1. */
void cli_out_of_memory(void) __attribute__((noreturn));

/* Memory that may be counted on: a command that has none left says so and ends with exit code 1. */
void *cli_calloc(size_t n, size_t bytes);
void *cli_realloc(void *p, size_t n, size_t bytes);
char *cli_strdup(const char *text);

/* Fills *err (nullable) and returns `status`. */
int cli_fail(struct bw_error *err, int status, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
/* What a verb returns when it was called in a wrong way; *err has BW_E_INVALID. main adds the usage line. */
#define CLI_USAGE (-1000)
int cli_usage(struct bw_error *err, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Like cli_fail, for a failed system call: the status follows from `os_errno`, its text is appended. */
int cli_fail_errno(struct bw_error *err, int os_errno, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
/* The analyser does not see into out.c: it is told that these never return 0. */
#ifdef __clang_analyzer__
#define cli_fail(...)       ((void)(cli_fail)(__VA_ARGS__), BW_E_INTERNAL)
#define cli_fail_errno(...) ((void)(cli_fail_errno)(__VA_ARGS__), BW_E_INTERNAL)
#endif

/* Text that grows. Zero-initialise. */
struct cli_buf {
    char *data; /* NUL-terminated once something was added */
    size_t len, cap;
};
void cli_buf_add(struct cli_buf *b, const char *bytes, size_t n);
void cli_buf_printf(struct cli_buf *b, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Appends text that is safe on a terminal: control characters, what changes the direction of text, backslashes and
 * bytes that are not UTF-8 come as \n, \xNN or \u{NNNN}. */
void cli_buf_escaped(struct cli_buf *b, const char *text);
void cli_buf_fini(struct cli_buf *b);

/* One character of UTF-8 from text[0 .. n): its length, or 0 when the bytes are none; *ret_cp is its number. */
size_t cli_utf8(const char *text, size_t n, uint32_t *ret_cp);
/* Columns that text takes on a terminal. */
size_t cli_width(const char *text);

/* Prints a harmless form of `text` to standard output. */
void cli_print_escaped(const char *text);

/* Cells row by row; the first row is the head. A column with a name that begins with '>' is aligned to the right. */
struct cli_table {
    size_t columns;
    char **cells;
    size_t count, cap;
};
void cli_table_init(struct cli_table *t, size_t columns, const char *const *heads);
void cli_table_cell(struct cli_table *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* A cell of text that others chose. */
void cli_table_name(struct cli_table *t, const char *text);
void cli_table_print(const struct cli_table *t);
void cli_table_fini(struct cli_table *t);

/* Room for every text below. */
#define CLI_TEXT_BYTES 48
/* "1.4 GiB"; the result is `buf`. */
const char *cli_bytes_text(uint64_t bytes, char buf[CLI_TEXT_BYTES]);
/* Like it, and "-" for 0 (unknown). */
const char *cli_bytes_or_dash(uint64_t bytes, char buf[CLI_TEXT_BYTES]);
/* "3 min", "5 d"; "-" when unix_ms is 0. */
const char *cli_age_text(int64_t unix_ms, int64_t now_unix_ms, char buf[CLI_TEXT_BYTES]);
/* "2026-11-29 19:40:21" in UTC; "-" when unix_ms is 0. */
const char *cli_time_text(int64_t unix_ms, char buf[CLI_TEXT_BYTES]);
/* "[4096, 512]"; the caller frees nothing: it is appended. */
void cli_buf_shape(struct cli_buf *b, const uint64_t *shape, uint32_t dims);
int64_t cli_now_unix_ms(void);
/* The ending of a plural: "" for 1, else "s". */
const char *cli_s(uint64_t n);

/* Flushes and closes standard output; a write error at any time since the start is a failure. */
int cli_finish_output(struct bw_error *err);

#endif
