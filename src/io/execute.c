/* SPDX-License-Identifier: Apache-2.0 */
/* One request, carried out on the thread that asks for it. */
#include "io/engine.h"
#include <errno.h>

/* What is left at the end of a file is no whole block, which a read past the page cache may be refused for. */
static int64_t read_all(struct bwi_os *os, const struct bwi_io_req *req) {
    size_t got = 0;
    while (got < req->bytes) {
        int64_t n = os->pread(os, req->fd, (uint8_t *)req->buf + got, req->bytes - got, req->offset + got);
        if (n == 0 || (n == -EINVAL && got > 0)) break;
        if (n < 0) return n;
        got += (size_t)n;
    }
    return (int64_t)got;
}

void bwi_io_execute(struct bwi_os *os, struct bwi_io_req *req) {
    if (req->bytes > INT64_MAX) {
        req->result = -EINVAL;
        return;
    }
    switch (req->kind) {
    case BWI_IO_READ: req->result = read_all(os, req); break;
    case BWI_IO_WRITE: req->result = os->pwrite(os, req->fd, req->buf, req->bytes, req->offset); break;
    case BWI_IO_FSYNC: req->result = os->fsync(os, req->fd); break;
    case BWI_IO_CALL: req->call(req); break;
    }
}

enum bwi_os_call bwi_io_call_of(enum bwi_io_kind kind) {
    return kind == BWI_IO_READ ? BWI_OS_READ : kind == BWI_IO_WRITE ? BWI_OS_WRITE : BWI_OS_FSYNC;
}
