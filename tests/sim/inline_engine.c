/* SPDX-License-Identifier: Apache-2.0 */
/* The transfer engine without threads, to be linked in place of src/io/engine.c: what was submitted is done when the
 * loop asks for what has finished, one request a time, on the loop's own thread. So whole systems on simulated disks
 * run in one thread and follow from a seed. */
#include "io/engine.h"

#include "base/error.h"
#include "base/vec.h"
#include <assert.h>
#include <errno.h>

struct bwi_io {
    struct bwi_os *os;
    struct bwi_io_req *head, *tail;
    unsigned in_flight;
};

int bwi_io_open(const struct bwi_io_options *o, struct bwi_io **ret, struct bw_error *err) {
    struct bwi_io *io = bwi_calloc(1, sizeof *io);
    if (!io) return bwi_error_nomem(err, sizeof *io, "the transfer engine");
    io->os = o && o->os ? o->os : bwi_os_system();
    *ret = io;
    return 0;
}

void bwi_io_close(struct bwi_io *io) {
    assert(!io || io->in_flight == 0);
    bwi_free(io);
}

void bwi_io_submit(struct bwi_io *io, struct bwi_io_req *req) {
    req->next = NULL;
    if (io->tail)
        io->tail->next = req;
    else
        io->head = req;
    io->tail = req;
    io->in_flight++;
}

static int64_t read_all(struct bwi_os *os, const struct bwi_io_req *req) {
    size_t got = 0;
    while (got < req->bytes) {
        int64_t n = os->pread(os, req->fd, (uint8_t *)req->buf + got, req->bytes - got, req->offset + got);
        if (n < 0) return n;
        if (n == 0) break;
        got += (size_t)n;
    }
    return (int64_t)got;
}

static void execute(struct bwi_io *io, struct bwi_io_req *req) {
    struct bwi_os *os = io->os;
    switch (req->kind) {
    case BWI_IO_READ: req->result = read_all(os, req); break;
    case BWI_IO_WRITE: req->result = os->pwrite(os, req->fd, req->buf, req->bytes, req->offset); break;
    case BWI_IO_FSYNC: req->result = os->fsync(os, req->fd); break;
    case BWI_IO_CALL: req->call(req); break;
    }
}

unsigned bwi_io_reap(struct bwi_io *io, uint64_t deadline_ns) {
    struct bwi_io_req *req = io->head;
    (void)deadline_ns; /* nothing finishes later by itself */
    if (!req) return 0;
    io->head = req->next;
    if (!io->head) io->tail = NULL;
    req->next = NULL;
    execute(io, req);
    io->in_flight--;
    req->done(req);
    return 1;
}

void bwi_io_wake(struct bwi_io *io) {
    (void)io;
}

struct bwi_os *bwi_io_os(struct bwi_io *io) {
    return io->os;
}

unsigned bwi_io_in_flight(const struct bwi_io *io) {
    return io->in_flight;
}

const char *bwi_io_backend(const struct bwi_io *io) {
    (void)io;
    return "inline";
}
