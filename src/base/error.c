/* SPDX-License-Identifier: Apache-2.0 */
/* Errors: filling them so that the first one wins, and describing them to people. */
#include "base/error.h"
#include "base/span.h"
#include "base/text.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>

/* For the analyser only: see error.h. */
#undef bwi_error_set
#undef bwi_error_errno
#undef bwi_error_nomem

#define MESSAGE_MAX (BW_ERROR_MESSAGE_BYTES - 1)

static bool can_set(const struct bw_error *err) {
    return err != NULL && err->status == 0;
}

static void sanitise(char *text, size_t len) {
    for (size_t at = 0; at < len;) {
        uint32_t code = 0;
        const size_t n = bwi_utf8_next(bwi_span(text + at, len - at), &code);
        if (n == 0 || !bwi_utf8_harmless(code)) memset(text + at, '?', n == 0 ? 1 : n);
        at += n == 0 ? 1 : n;
    }
}

/* Ends a message of which `full` bytes did not all fit with "...", without leaving half a character before it. */
static void mark_cut(char *text, size_t full) {
    if (full <= MESSAGE_MAX) return;
    size_t at = MESSAGE_MAX - 3;
    while (at > MESSAGE_MAX - 6 && ((uint8_t)text[at] & 0xc0) == 0x80) at--;
    memcpy(text + at, "...", 4);
}

/* Writes "<text>" or "<text>: <tail>" as the message. */
BWI_PRINTF(2, 0)
static void write_message(struct bw_error *err, const char *fmt, va_list args, const char *tail) {
    const int head = vsnprintf(err->message, sizeof err->message, fmt, args);
    size_t full = head < 0 ? 0 : (size_t)head;
    if (tail != NULL) {
        if (full < MESSAGE_MAX) (void)snprintf(err->message + full, sizeof err->message - full, ": %s", tail);
        full += 2 + strlen(tail);
    }
    mark_cut(err->message, full);
    sanitise(err->message, strlen(err->message));
}

int bwi_error_set(struct bw_error *err, int status, const char *fmt, ...) {
    if (status >= 0) status = BW_E_INTERNAL;
    if (!can_set(err)) return status;
    va_list args;
    va_start(args, fmt);
    write_message(err, fmt, args, NULL);
    va_end(args);
    err->status = status;
    return status;
}

int bwi_status_of_errno(int os_errno) {
    switch (os_errno < 0 ? -os_errno : os_errno) {
    case ENOSPC:
    case EDQUOT: return BW_E_NOSPACE;
    case EACCES:
    case EPERM:
    case EROFS: return BW_E_ACCESS;
    case ENOENT: return BW_E_NOTFOUND;
    case ENOMEM: return BW_E_NOMEM;
    case EFBIG: return BW_E_LIMIT;
    case ETIMEDOUT: return BW_E_TIMEOUT;
    default: return BW_E_IO;
    }
}

/* "no space left on device": untranslated, and like the rest of the message in lower case. */
static void describe_errno(int os_errno, char *buf, size_t buf_bytes) {
    const char *text = strerrordesc_np(os_errno);
    if (text == NULL) {
        (void)bwi_format(buf, buf_bytes, "error number %d", os_errno);
        return;
    }
    (void)bwi_format(buf, buf_bytes, "%s", text);
    const bool word = buf[0] >= 'A' && buf[0] <= 'Z' && buf[1] >= 'a' && buf[1] <= 'z';
    if (word || buf[1] == ' ') buf[0] = (char)(buf[0] | 0x20);
}

int bwi_error_errno(struct bw_error *err, int os_errno, const char *fmt, ...) {
    if (os_errno < 0) os_errno = -os_errno;
    const int status = bwi_status_of_errno(os_errno);
    if (!can_set(err)) return status;
    char text[128];
    describe_errno(os_errno, text, sizeof text);
    va_list args;
    va_start(args, fmt);
    write_message(err, fmt, args, text);
    va_end(args);
    err->os_errno = os_errno;
    err->status = status;
    return status;
}

int bwi_error_wrap(struct bw_error *err, const char *fmt, ...) {
    if (err == NULL || err->status == 0) return 0;
    char inner[BW_ERROR_MESSAGE_BYTES];
    memcpy(inner, err->message, sizeof inner);
    inner[MESSAGE_MAX] = '\0';
    va_list args;
    va_start(args, fmt);
    write_message(err, fmt, args, inner);
    va_end(args);
    return err->status;
}

void bwi_error_stage(struct bw_error *err, enum bw_stage stage) {
    if (err != NULL && err->status != 0 && err->stage == BW_STAGE_NONE) err->stage = (int32_t)stage;
}

int bwi_error_copy(struct bw_error *to, const struct bw_error *from) {
    if (from == NULL || from->status == 0) return 0;
    if (can_set(to)) *to = *from;
    return from->status;
}

int bwi_error_nomem(struct bw_error *err, size_t bytes, const char *what) {
    return bwi_error_set(err, BW_E_NOMEM, "out of memory: %zu bytes for %s", bytes, what);
}

void bw_error_clear(struct bw_error *err) {
    if (err != NULL) *err = (struct bw_error)BW_ERROR_INIT;
}

static const char *stage_text(int stage) {
    static const char *const texts[] = {NULL,    "open",   "plan",    "capture", "write",
                                        "drain", "commit", "restore", "verify",  "prune"};
    return stage > BW_STAGE_NONE && stage <= BW_STAGE_PRUNE ? texts[stage] : NULL;
}

/* The line of codes: "status BW_E_NOSPACE (-5: no space left), errno 28 (ENOSPC), stage write". */
static void describe_codes(const struct bw_error *err, char *buf, size_t buf_bytes) {
    char os[64] = "";
    char http[32] = "";
    char stage[32] = "";
    const char *name = strerrorname_np(err->os_errno);
    if (err->os_errno != 0) {
        (void)bwi_format(os, sizeof os, ", errno %d (%s)", (int)err->os_errno, name != NULL ? name : "?");
    }
    if (err->http_status != 0) (void)bwi_format(http, sizeof http, ", HTTP status %d", (int)err->http_status);
    if (stage_text(err->stage) != NULL) (void)bwi_format(stage, sizeof stage, ", stage %s", stage_text(err->stage));
    (void)bwi_format(buf, buf_bytes, "status %s (%d: %s)%s%s%s", bw_status_name(err->status), (int)err->status,
                     bw_status_text(err->status), os, http, stage);
}

size_t bw_error_format(const struct bw_error *err, char *buf, size_t buf_bytes) {
    int chars;
    if (err == NULL || err->status == 0) {
        chars = snprintf(buf, buf_bytes, "%s", bw_status_text(BW_OK));
    } else {
        char codes[256];
        describe_codes(err, codes, sizeof codes);
        const char *message = err->message[0] != '\0' ? err->message : bw_status_text(err->status);
        chars = snprintf(buf, buf_bytes, "%.*s\n%s\ntry again: %s", MESSAGE_MAX, message, codes,
                         bw_status_retry_text(err->status));
    }
    return chars < 0 ? 0 : (size_t)chars;
}
