/* SPDX-License-Identifier: Apache-2.0 */
/* An io_uring: transfers that the kernel carries out by itself, many at once, without a thread for each.
 *
 * Requests are queued and handed to the kernel together by the next bwi_ring_reap. One thread at a time; which one may
 * change between calls. A ring that a container, a sysctl or an old kernel refuses is an error of bwi_ring_open, and
 * the caller goes on without one. */
#ifndef BWI_OS_RING_H
#define BWI_OS_RING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct bwi_ring;

enum bwi_ring_verb { BWI_RING_READ, BWI_RING_WRITE, BWI_RING_FSYNC };

struct bwi_ring_op {
    enum bwi_ring_verb verb;
    int fd;
    uint64_t offset;
    void *buf;    /* borrowed until the operation is done */
    size_t bytes; /* at most BWI_RING_BYTES_MAX */
    void *user;   /* not NULL; comes back */
};
#define BWI_RING_BYTES_MAX ((size_t)1 << 30) /* the kernel moves no more than 2 GiB at once */

struct bwi_ring_done {
    void *user;
    /* Bytes moved, fewer than asked for at any place the kernel likes; or a negative errno. -EAGAIN and -ECANCELED say
     * that the kernel could not carry it out in this way, mostly for want of a thread, and nothing of the file. */
    int32_t result;
};

/* `depth` operations may be in flight. `wake_fd`: an eventfd; whoever signals it ends a reap that waits. It stays the
 * caller's. 0, or a negative errno: -ENOSYS and -EPERM where rings are not to be had, -ENOMEM where their memory cannot
 * be locked. */
int bwi_ring_open(unsigned depth, int wake_fd, struct bwi_ring **ret);
void bwi_ring_close(struct bwi_ring *r); /* nothing may be in flight; NULL allowed */

/* 0, or a negative errno: a reap has heard that the kernel takes nothing any more. Nothing is to be queued then. A reap
 * still waits for the eventfd, and gives back what the kernel had taken when that is done, and the rest as
 * -ECANCELED. */
int bwi_ring_broken(const struct bwi_ring *r);

/* Tells the kernel of memory that many operations will use, so that it need not look at the pages each time. A negative
 * errno where it may not be locked: all works without it. Once. */
int bwi_ring_register(struct bwi_ring *r, void *ptr, size_t bytes);

bool bwi_ring_has_room(const struct bwi_ring *r);                      /* fewer than `depth` are in flight */
void bwi_ring_queue(struct bwi_ring *r, const struct bwi_ring_op *op); /* there must be room */

/* Hands over what is queued and takes up to `max` results; when there are none it waits for one, or for a signal, until
 * deadline_ns (monotonic; 0: not at all, UINT64_MAX: without end). ret_woken: the eventfd was signalled, and has been
 * drained. Returns how many. */
unsigned bwi_ring_reap(struct bwi_ring *r, struct bwi_ring_done *ret, unsigned max, uint64_t deadline_ns,
                       bool *ret_woken);

#endif
