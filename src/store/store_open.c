/* SPDX-License-Identifier: Apache-2.0 */
/* From a URL to a store. What is not understood is refused by name: a mistyped tier must not become a directory
 * somewhere. */
#include "base/text.h"
#include "store/store_private.h"
#include <string.h>

static int hex_value(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return -1;
}

/* Decodes %XX into `path`, which is as large as the input. */
static int decode_path(const char *url, const char *from, char *path, struct bw_error *err) {
    for (; *from; from++) {
        if (*from != '%') {
            *path++ = *from;
            continue;
        }
        int high = hex_value(from[1]), low = high < 0 ? -1 : hex_value(from[2]);
        if (low < 0)
            return bwi_error_set(err, BW_E_INVALID, "store \"%s\": expected two hex digits after '%%', found \"%.2s\"",
                                 url, from + 1);
        if (high == 0 && low == 0)
            return bwi_error_set(err, BW_E_INVALID, "store \"%s\": a path cannot hold a NUL byte", url);
        *path++ = (char)(high * 16 + low);
        from += 2;
    }
    *path = '\0';
    return 0;
}

/* file:// and the path with what is special in a URL written as %XX, so that any path has one URL that names it. */
static int encode_url(const char *path, char *url, size_t url_bytes, struct bw_error *err) {
    static const char plain[] = "/-._~!$&'()*+,;=:@";
    size_t at = strlen(strcpy(url, "file://"));
    for (const char *p = path; *p; p++) {
        if (at + 4 > url_bytes)
            return bwi_error_set(err, BW_E_LIMIT,
                                 "store \"%.200s...\": the path is too long, expected at most %zu bytes of URL", path,
                                 url_bytes - 1);
        bool letter = (*p >= 'A' && *p <= 'Z') || (*p >= 'a' && *p <= 'z') || (*p >= '0' && *p <= '9');
        if (letter || strchr(plain, *p)) {
            url[at++] = *p;
            continue;
        }
        url[at++] = '%';
        bwi_hex_encode(p, 1, url + at);
        at += 2;
    }
    url[at] = '\0';
    return 0;
}

static int open_path(char *path, const struct bwi_store_options *o, struct bwi_store **ret, struct bw_error *err) {
    char url[sizeof((struct bwi_store *)0)->url];
    for (size_t len = strlen(path); len > 1 && path[len - 1] == '/'; len--) path[len - 1] = '\0';
    int rc = encode_url(path, url, sizeof url, err);
    return rc < 0 ? rc : bwi_store_posix_open(path, url, o, ret, err);
}

/* Refuses ?name=value and #fragment. Only names are shown: values may be secrets. */
static int check_query(const char *url, struct bw_error *err) {
    const char *at = url + strcspn(url, "?#");
    if (!*at) return 0;
    int shown = (int)(at - url);
    if (*at == '#')
        return bwi_error_set(err, BW_E_INVALID, "store \"%.*s\": expected no fragment; write '#' in a path as %%23",
                             shown, url);
    int name = (int)strcspn(at + 1, "=&#");
    return bwi_error_set(err, BW_E_INVALID, "store \"%.*s\": unknown parameter \"%.*s\"; write '?' in a path as %%3F",
                         shown, url, name, at + 1);
}

static int open_file_url(const char *url, const struct bwi_store_options *o, struct bwi_store **ret,
                         struct bw_error *err) {
    char path[4 * sizeof((struct bwi_store *)0)->url];
    if (strncmp(url, "file:///", 8) != 0)
        return bwi_error_set(err, BW_E_INVALID, "store \"%s\": expected file:/// and an absolute path on this machine",
                             url);
    if (strlen(url) >= sizeof path)
        return bwi_error_set(err, BW_E_LIMIT, "store \"%.200s...\": the URL is too long", url);
    int rc = check_query(url, err);
    if (rc == 0) rc = decode_path(url, url + strlen("file://"), path, err);
    return rc < 0 ? rc : open_path(path, o, ret, err);
}

static int open_memory_url(const char *url, const struct bwi_store_options *o, struct bwi_store **ret,
                           struct bw_error *err) {
    const char *name = url + strlen("memory:");
    int rc = check_query(url, err);
    if (rc < 0) return rc;
    if (!bwi_name_valid(name))
        return bwi_error_set(err, BW_E_INVALID, "store \"%s\": expected memory: and a name of [A-Za-z0-9._-]", url);
    return bwi_store_memory_open_url(name, o, ret, err);
}

/* The scheme and its colon; 0: none. */
static size_t scheme_length(const char *url) {
    size_t n = strspn(url, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789+.-");
    return n > 0 && url[n] == ':' ? n : 0;
}

int bwi_store_open(const char *url, const struct bwi_store_options *o, struct bwi_store **ret, struct bw_error *err) {
    if (!url || !*url)
        return bwi_error_set(err, BW_E_INVALID, "store: expected a URL or an absolute path, found nothing");
    if (*url == '/') {
        char path[4 * sizeof((struct bwi_store *)0)->url];
        if (!bwi_format(path, sizeof path, "%s", url))
            return bwi_error_set(err, BW_E_LIMIT, "store \"%.200s...\": the path is too long", url);
        return open_path(path, o, ret, err);
    }
    size_t scheme = scheme_length(url);
    if (scheme == 0)
        return bwi_error_set(err, BW_E_INVALID,
                             "store \"%s\" is a relative path: expected an absolute one, or a URL such as file:///path",
                             url);
    if (strncmp(url, "file:", 5) == 0) return open_file_url(url, o, ret, err);
    if (strncmp(url, "memory:", 7) == 0) return open_memory_url(url, o, ret, err);
    if (strncmp(url, "s3:", 3) == 0)
        return bwi_error_set(err, BW_E_UNSUPPORTED, "store \"%.*s\": this build has no S3 store",
                             (int)strcspn(url, "?"), url);
    return bwi_error_set(err, BW_E_UNSUPPORTED, "store \"%.*s\": unknown scheme \"%.*s\", expected file or memory",
                         (int)strcspn(url, "?"), url, (int)scheme, url);
}
