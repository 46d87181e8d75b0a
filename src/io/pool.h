/* SPDX-License-Identifier: Apache-2.0 */
/* A pool of threads that carries out requests of an engine. One lock guards two queues of requests (transfers, calls)
 * and one of completions; all links are the requests' own. Calls may take long, so they never occupy every worker, and
 * workers take from both queues in turn: neither kind starves. Nor does a lane (io/engine.h): of the workers, and of
 * those for calls, two are out of reach of each lane, and one of all lanes together, as far as there are that many.
 *
 * What is urgent has threads of its own where they were asked for, which do nothing else. */
#ifndef BWI_IO_POOL_H
#define BWI_IO_POOL_H

#include "io/engine.h"

struct bwi_pool;

struct bwi_pool_options {
    unsigned threads;
    unsigned urgent_threads; /* besides; 0: none */
    int nice;                /* of the others */
};

/* wake_fd: an eventfd that is signalled when there is a first completion to take; -1: bwi_pool_wait is used instead. */
int bwi_pool_open(struct bwi_os *os, const struct bwi_pool_options *o, int wake_fd, struct bwi_pool **ret,
                  struct bw_error *err);
unsigned bwi_pool_urgent_threads(const struct bwi_pool *p); /* as many as could be had */
int bwi_pool_urgent_error(const struct bwi_pool *p);        /* why not as many as were asked for: a negative errno; 0 */
unsigned bwi_pool_threads(const struct bwi_pool *p);        /* but the urgent ones */
void bwi_pool_close(struct bwi_pool *p);                    /* joins the workers; NULL allowed */
void bwi_pool_submit(struct bwi_pool *p, struct bwi_io_req *req);
/* All that has finished, as a list; NULL: nothing. */
struct bwi_io_req *bwi_pool_take(struct bwi_pool *p);
/* Waits until something has finished, until bwi_pool_wake, or until deadline_ns (monotonic). A wake-up is used up by a
 * wait that finds nothing else. */
void bwi_pool_wait(struct bwi_pool *p, uint64_t deadline_ns);
void bwi_pool_wake(struct bwi_pool *p);  /* any thread */
bool bwi_pool_woken(struct bwi_pool *p); /* uses a wake-up up, for those who wait at the eventfd */

#endif
