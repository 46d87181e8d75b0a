/* SPDX-License-Identifier: Apache-2.0 */
/* The transfer engine: requests in, completions out. Submission never blocks and never fails; a request carries its own
 * queue link, so nothing is allocated. Completions are delivered by bwi_io_reap on the thread that calls it: no
 * callback ever runs on a worker.
 *
 * Backends: an io_uring, to which requests go as they are and in any number; or a thread pool (pread, pwrite, fsync on
 * worker threads), where the kernel or a container forbids the ring. CALL requests always go to the pool: they are
 * blocking work that is not a transfer (creating an object, listing, copying memory). */
#ifndef BWI_IO_ENGINE_H
#define BWI_IO_ENGINE_H

#include "os/os.h"
#include <breakwater/error.h>
#include <breakwater/io.h>
#include <stdbool.h>

enum bwi_io_kind { BWI_IO_READ, BWI_IO_WRITE, BWI_IO_FSYNC, BWI_IO_CALL };

/* Requests that may wait for the same device, such as a store. One that hangs must not take all workers with it: some
 * are left to the other lanes, and one to what has no lane, which waits for nothing but memory and processors. */
struct bwi_io_lane {
    bool no_ring;            /* handing a transfer over may hang as well (FUSE): only workers carry its requests out */
    unsigned running, calls; /* the engine's: workers that carry its requests out, and calls among those */
};

struct bwi_io_req {
    enum bwi_io_kind kind;
    int fd; /* READ, WRITE, FSYNC */
    uint64_t offset;
    void *buf; /* borrowed until done */
    size_t bytes;
    void (*call)(struct bwi_io_req *req); /* CALL: runs on a worker; sets result */
    bool urgent; /* CALL without a lane: training waits for it. Threads of its own, which do not give way */
    void *user;
    struct bwi_io_lane *lane; /* NULL: it waits for no device */
    int64_t result;           /* bytes moved (READ may be short at the end of the file), or negative errno */
    void (*done)(struct bwi_io_req *req); /* runs in bwi_io_reap; may submit again */
    struct bwi_io_req *next;              /* the engine's */
};

struct bwi_io;

struct bwi_io_options {
    struct bwi_os *os;       /* NULL: the system's. One without `admit` gets no ring */
    unsigned threads;        /* 0: 2 * CPUs, between 6 and 16 */
    unsigned urgent_threads; /* besides, for what is urgent; 0: none, it goes with the rest */
    int nice;                /* of the threads that are not for what is urgent */
    enum bw_io_backend backend;
    unsigned depth; /* transfers that the ring has in flight at once; 0: 64, at most 4096 */
};

int bwi_io_open(const struct bwi_io_options *o, struct bwi_io **ret, struct bw_error *err);
/* All requests must have been reaped. Joins the workers. */
void bwi_io_close(struct bwi_io *io);
void bwi_io_submit(struct bwi_io *io, struct bwi_io_req *req);
/* Runs done() of every finished request; when there is none, waits for one until deadline_ns (monotonic; 0 = do not
 * wait) or until bwi_io_wake. Returns how many were delivered. One thread at a time. */
unsigned bwi_io_reap(struct bwi_io *io, uint64_t deadline_ns);
/* Makes a reap that waits return. Any thread. */
void bwi_io_wake(struct bwi_io *io);
struct bwi_os *bwi_io_os(struct bwi_io *io);
unsigned bwi_io_threads(const struct bwi_io *io);        /* workers */
unsigned bwi_io_urgent_threads(const struct bwi_io *io); /* that carry out what is urgent */
unsigned bwi_io_in_flight(const struct bwi_io *io);      /* submitted and not yet delivered; loop's thread */
const char *bwi_io_backend(const struct bwi_io *io);     /* "io_uring", "threads" */
const char *bwi_io_why_not(const struct bwi_io *io);     /* there is no ring; "": there is one */
/* All that it goes without, and why: the ring, a ring that knows the memory, urgent threads that were asked for. "":
 * nothing. */
void bwi_io_lacks(const struct bwi_io *io, char *ret, size_t ret_bytes);
/* Memory that most transfers use: a ring need not look at its pages each time. Once, before the first request; a kernel
 * that does not want it (locked memory) goes on without. */
void bwi_io_register(struct bwi_io *io, void *ptr, size_t bytes);

/* For engines: carries the request out on this thread and sets its result. A READ goes on until all is there or the
 * file has ended. */
void bwi_io_execute(struct bwi_os *os, struct bwi_io_req *req);
/* What a transfer is to the table of system calls. */
enum bwi_os_call bwi_io_call_of(enum bwi_io_kind kind);

#endif
