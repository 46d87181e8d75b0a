/* SPDX-License-Identifier: Apache-2.0 */
/* The common head of the binary formats, and the checks that their decoders make before they trust a count. */
#include "format/head.h"
#include "base/error.h"
#include "base/text.h"
#include "base/vec.h"
#include <inttypes.h>
#include <string.h>

struct bwi_blame bwi_blame_object(const struct bwi_object_head *h, struct bw_error *err) {
    return (struct bwi_blame){h->what, BW_E_FORMAT, BW_E_FORMAT, err};
}

struct bwi_blame bwi_blame_caller(const struct bwi_object_head *h, struct bw_error *err) {
    return (struct bwi_blame){h->what, BW_E_INVALID, BW_E_LIMIT, err};
}

void bwi_head_write(const struct bwi_object_head *h, struct bwi_buf *out) {
    bwi_buf_put(out, h->magic, 8);
    bwi_buf_u16(out, BWI_HEAD_MAJOR);
    bwi_buf_u16(out, BWI_HEAD_MINOR);
    bwi_buf_u32(out, 0);
}

int bwi_head_read(const struct bwi_object_head *h, struct bwi_reader *r, bool *ret_newer, struct bw_error *err) {
    const struct bwi_span magic = bwi_read_bytes(r, 8);
    const uint16_t major = bwi_read_u16(r);
    const uint16_t minor = bwi_read_u16(r);
    const uint32_t flags = bwi_read_u32(r);
    if (magic.len == 8 && memcmp(magic.ptr, h->magic, 8) != 0) {
        char found[17];
        bwi_hex_encode(magic.ptr, 8, found);
        return bwi_error_set(err, BW_E_FORMAT, "%s: expected magic \"%.8s\", found bytes %s", h->what, h->magic, found);
    }
    if (r->failed) {
        return bwi_error_set(err, BW_E_FORMAT, "%s: cut short: %zu bytes, the head alone has %d", h->what, r->in.len,
                             BWI_HEAD_BYTES);
    }
    if (major > BWI_HEAD_MAJOR) {
        return bwi_error_set(err, BW_E_VERSION, "%s: version %u.%u is newer than the newest known, %d.%d", h->what,
                             major, minor, BWI_HEAD_MAJOR, BWI_HEAD_MINOR);
    }
    if (major < BWI_HEAD_MAJOR) {
        return bwi_error_set(err, BW_E_FORMAT, "%s: version %u.%u never existed, expected %d.%d", h->what, major, minor,
                             BWI_HEAD_MAJOR, BWI_HEAD_MINOR);
    }
    if (flags != 0) {
        return bwi_error_set(err, BW_E_VERSION, "%s: flags 0x%08" PRIx32 " of a newer version, expected none", h->what,
                             flags);
    }
    *ret_newer = minor > BWI_HEAD_MINOR;
    return 0;
}

int bwi_head_whole(const struct bwi_object_head *h, const struct bwi_reader *r, struct bw_error *err) {
    if (!r->failed) return 0;
    return bwi_error_set(err, BW_E_FORMAT, "%s: cut short: %zu bytes do not hold the records that it counts", h->what,
                         r->in.len);
}

int bwi_head_end(const struct bwi_object_head *h, const struct bwi_reader *r, bool newer, struct bw_error *err) {
    const int rc = bwi_head_whole(h, r, err);
    if (rc < 0) return rc;
    const size_t left = bwi_reader_left(r);
    if (left == 0 || newer) return 0;
    return bwi_error_set(err, BW_E_FORMAT, "%s: %zu bytes after its end, expected none", h->what, left);
}

int bwi_head_room(const struct bwi_object_head *h, const struct bwi_reader *r, uint64_t least_bytes,
                  struct bw_error *err) {
    const size_t left = bwi_reader_left(r);
    if (least_bytes <= left) return 0;
    return bwi_error_set(err, BW_E_FORMAT, "%s: cut short: its records take at least %" PRIu64 " bytes, %zu are left",
                         h->what, least_bytes, left);
}

int bwi_head_limit(const struct bwi_blame *b, uint64_t found, uint64_t max, const char *what) {
    if (found <= max) return 0;
    return bwi_error_set(b->err, b->above, "%s: %" PRIu64 " %s, the limit is %" PRIu64, b->what, found, what, max);
}

int bwi_head_written(const struct bwi_object_head *h, struct bwi_buf *out, size_t start, uint64_t max_bytes,
                     struct bw_error *err) {
    if (out->failed) return bwi_error_nomem(err, out->len, h->what);
    const size_t bytes = out->len - start;
    if (bytes <= max_bytes) return 0;
    out->len = start;
    return bwi_error_set(err, BW_E_LIMIT, "%s: %zu bytes, the limit is %" PRIu64, h->what, bytes, max_bytes);
}

int bwi_head_array(const struct bwi_object_head *h, void *ret_ptr, uint64_t count, size_t size, struct bw_error *err) {
    if (count == 0) return 0;
    void *p = count <= SIZE_MAX / size ? bwi_calloc((size_t)count, size) : NULL;
    if (p == NULL) return bwi_error_nomem(err, count <= SIZE_MAX / size ? (size_t)count * size : SIZE_MAX, h->what);
    memcpy(ret_ptr, &p, sizeof p); /* any object pointer: they are alike on every system with POSIX */
    return 0;
}

const uint64_t *bwi_numbers_read(struct bwi_numbers *n, struct bwi_reader *r, size_t count) {
    if (count > n->cap - n->len || count > bwi_reader_left(r) / 8) {
        r->failed = r->failed || count > 0;
        if (count > 0) return NULL;
    }
    uint64_t *p = n->ptr + n->len;
    for (size_t i = 0; i < count; i++) p[i] = bwi_read_u64(r);
    n->len += count;
    return p;
}
