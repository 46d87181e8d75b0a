/* SPDX-License-Identifier: Apache-2.0 */
/* Memory, errors and text of the command: what every verb needs before it can say anything. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "cli/out.h"

/* For the analyser only: see out.h. */
#undef cli_fail
#undef cli_fail_errno

void cli_out_of_memory(void) {
    static const char text[] = "breakwater: out of memory\n";
    if (write(STDERR_FILENO, text, sizeof text - 1) < 0) _exit(1);
    _exit(1);
}

void *cli_calloc(size_t n, size_t bytes) {
    void *p = calloc(n != 0 ? n : 1, bytes != 0 ? bytes : 1);
    if (p == NULL) cli_out_of_memory();
    return p;
}

void *cli_realloc(void *p, size_t n, size_t bytes) {
    void *bigger = reallocarray(p, n != 0 ? n : 1, bytes != 0 ? bytes : 1);
    if (bigger == NULL) cli_out_of_memory();
    return bigger;
}

char *cli_strdup(const char *text) {
    char *copy = strdup(text);
    if (copy == NULL) cli_out_of_memory();
    return copy;
}

__attribute__((format(printf, 3, 0))) static int fail_va(struct bw_error *err, int status, const char *fmt,
                                                         va_list args) {
    if (err != NULL && err->status == 0) {
        *err = (struct bw_error)BW_ERROR_INIT;
        err->status = status;
        (void)vsnprintf(err->message, sizeof err->message, fmt, args);
    }
    return status;
}

int cli_fail(struct bw_error *err, int status, const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    (void)fail_va(err, status, fmt, args);
    va_end(args);
    return status;
}

int cli_usage(struct bw_error *err, const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    (void)fail_va(err, BW_E_INVALID, fmt, args);
    va_end(args);
    return CLI_USAGE;
}

static int status_of_errno(int os_errno) {
    switch (os_errno) {
    case ENOSPC:
    case EDQUOT: return BW_E_NOSPACE;
    case EACCES:
    case EPERM:
    case EROFS: return BW_E_ACCESS;
    case ENOENT: return BW_E_NOTFOUND;
    case EEXIST: return BW_E_EXISTS;
    case ENOMEM: return BW_E_NOMEM;
    default: return BW_E_IO;
    }
}

int cli_fail_errno(struct bw_error *err, int os_errno, const char *fmt, ...) {
    char what[BW_ERROR_MESSAGE_BYTES];
    va_list args;
    va_start(args, fmt);
    (void)vsnprintf(what, sizeof what, fmt, args);
    va_end(args);
    const char *text = strerrordesc_np(os_errno);
    char why[64];
    (void)snprintf(why, sizeof why, "%s", text != NULL ? text : "unknown error");
    if (why[0] >= 'A' && why[0] <= 'Z') why[0] = (char)(why[0] - 'A' + 'a');
    bool first = err != NULL && err->status == 0;
    int status = cli_fail(err, status_of_errno(os_errno), "%.400s: %s", what, why);
    if (first) err->os_errno = os_errno;
    return status;
}

void cli_buf_add(struct cli_buf *b, const char *bytes, size_t n) {
    if (b->cap - b->len <= n) {
        size_t cap = b->cap * 2 > b->len + n + 1 ? b->cap * 2 : b->len + n + 64;
        b->data = cli_realloc(b->data, cap, 1);
        b->cap = cap;
    }
    if (n != 0) memcpy(b->data + b->len, bytes, n);
    b->len += n;
    b->data[b->len] = '\0';
}

void cli_buf_printf(struct cli_buf *b, const char *fmt, ...) {
    char small[512];
    va_list args;
    va_start(args, fmt);
    int chars = vsnprintf(small, sizeof small, fmt, args);
    va_end(args);
    if (chars < 0) return;
    if ((size_t)chars < sizeof small) {
        cli_buf_add(b, small, (size_t)chars);
        return;
    }
    char *big = cli_calloc((size_t)chars + 1, 1);
    va_start(args, fmt);
    (void)vsnprintf(big, (size_t)chars + 1, fmt, args);
    va_end(args);
    cli_buf_add(b, big, (size_t)chars);
    free(big);
}

void cli_buf_fini(struct cli_buf *b) {
    free(b->data);
    *b = (struct cli_buf){0};
}

const char *cli_bytes_text(uint64_t bytes, char buf[CLI_TEXT_BYTES]) {
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    size_t unit = 0;
    double value = (double)bytes;
    while (value >= 1023.95 && unit + 1 < sizeof units / sizeof units[0]) {
        value /= 1024;
        unit++;
    }
    (void)snprintf(buf, CLI_TEXT_BYTES, unit == 0 ? "%.0f %s" : "%.1f %s", value, units[unit]);
    return buf;
}

const char *cli_bytes_or_dash(uint64_t bytes, char buf[CLI_TEXT_BYTES]) {
    if (bytes != 0) return cli_bytes_text(bytes, buf);
    (void)snprintf(buf, CLI_TEXT_BYTES, "-");
    return buf;
}

const char *cli_age_text(int64_t unix_ms, int64_t now_unix_ms, char buf[CLI_TEXT_BYTES]) {
    static const struct {
        uint64_t seconds;
        const char *unit;
    } steps[] = {{86400, "d"}, {3600, "h"}, {60, "min"}, {1, "s"}};
    if (unix_ms == 0) {
        (void)snprintf(buf, CLI_TEXT_BYTES, "-");
        return buf;
    }
    /* Without sign: the time may be any number, and two of them may lie further apart than a signed one reaches. */
    uint64_t seconds = now_unix_ms > unix_ms ? ((uint64_t)now_unix_ms - (uint64_t)unix_ms) / 1000 : 0;
    size_t i = 0;
    while (i + 1 < sizeof steps / sizeof steps[0] && seconds < 2 * steps[i].seconds) i++;
    (void)snprintf(buf, CLI_TEXT_BYTES, "%llu %s", (unsigned long long)(seconds / steps[i].seconds), steps[i].unit);
    return buf;
}

const char *cli_time_text(int64_t unix_ms, char buf[CLI_TEXT_BYTES]) {
    time_t seconds = (time_t)(unix_ms / 1000);
    struct tm tm;
    if (unix_ms == 0 || gmtime_r(&seconds, &tm) == NULL || strftime(buf, CLI_TEXT_BYTES, "%Y-%m-%d %H:%M:%S", &tm) == 0)
        (void)snprintf(buf, CLI_TEXT_BYTES, "-");
    return buf;
}

const char *cli_s(uint64_t n) {
    return n == 1 ? "" : "s";
}

int64_t cli_now_unix_ms(void) {
    struct timespec now = {0};
    (void)clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

void cli_buf_shape(struct cli_buf *b, const uint64_t *shape, uint32_t dims) {
    cli_buf_add(b, "[", 1);
    for (uint32_t d = 0; d < dims; d++) cli_buf_printf(b, "%s%llu", d > 0 ? ", " : "", (unsigned long long)shape[d]);
    cli_buf_add(b, "]", 1);
}

int cli_finish_output(struct bw_error *err) {
    bool failed = ferror(stdout) != 0;
    errno = 0;
    if (fflush(stdout) != 0) failed = true;
    int os_errno = errno;
    if (fclose(stdout) != 0) {
        failed = true;
        if (os_errno == 0) os_errno = errno;
    }
    if (!failed) return 0;
    return cli_fail_errno(err, os_errno != 0 ? os_errno : EIO, "write to standard output");
}
