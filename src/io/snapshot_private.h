/* SPDX-License-Identifier: Apache-2.0 */
/* What the files behind snapshot.h share. All of it lies in memory that is never protected (bwi_protect_alloc), because
 * the thread that answers writers must not come to wait for itself. */
#ifndef BWI_IO_SNAPSHOT_PRIVATE_H
#define BWI_IO_SNAPSHOT_PRIVATE_H

#include "io/snapshot.h"
#include "os/thread.h"
#include <stdatomic.h>

enum bwi_unit_state {
    UNIT_FREE,      /* nothing of a tensor in it */
    UNIT_PROTECTED, /* readers take its memory */
    UNIT_SHADOWING, /* so they do while it is being put aside */
    UNIT_SHADOWED,  /* readers take the shadow */
    UNIT_DONE,      /* everything has been read */
};

/* Two megabytes of a hull. `readers` is raised before the state is looked at, and the state is changed before `readers`
 * is: so nobody opens a unit whose memory somebody reads (both in one order for all threads). */
struct bwi_unit {
    _Atomic uint32_t state, readers;
    _Atomic uint32_t opened;        /* somebody opens it, or has done so */
    _Atomic uint32_t pages;         /* first page that was put aside, plus 1 */
    _Atomic uint32_t pages_waiting; /* of those, not opened yet */
    uint32_t shadow;                /* its number */
    _Atomic uint64_t remaining;     /* bytes to be read */
    uint64_t wanted_ns;             /* since when a writer has waited; 0: none. The answering thread's */
};

/* A page that was put aside alone. */
struct bwi_page {
    uint32_t next; /* of the unit, plus 1 */
    uint32_t at;   /* bytes from the unit's beginning */
    _Atomic uint32_t opened;
};

struct bwi_snapshots {
    struct bwi_protect *os;
    struct bwi_snapshots_options options;
    int fd, maps, wake_fd;
    struct bwi_thread thread;
    struct bwi_mutex lock; /* the answering thread holds it while it looks at what is below */
    bool stop, live;       /* under the lock */
    bool busy;             /* from prepare to end; the loop's */
    _Atomic bool lost;
    struct bwi_hulls hulls;
    size_t registered; /* hulls, from the first one on, that are ours: others may be somebody else's */
    size_t *hull_unit; /* number of each hull's first unit */
    size_t *edge_at;   /* place of each edge in the area */
    uint8_t *area;
    struct bwi_unit *units;
    size_t unit_count;
    /* the area behind the edges: shadows, then pages */
    uint8_t *shadows, *page_bytes;
    uint32_t shadow_count, page_cap, page_count;
    _Atomic uint32_t shadow_free; /* a stack: pushed by all, popped by one; plus 1 */
    uint32_t *shadow_next;
    struct bwi_page *pages;
    /* units whose writers wait, in order */
    uint32_t *wanted;
    size_t wanted_first, wanted_end;
    _Atomic bool wanting;
    void *tables; /* units, shadow_next, pages, wanted */
    size_t tables_bytes;
    uint64_t protect_ns;
    struct bwi_snapshot_stats stats; /* under the lock */
};

static inline uint64_t bwi_unit_address(const struct bwi_snapshots *s, size_t hull, size_t unit) {
    return s->hulls.hulls[hull].start + (unit - s->hull_unit[hull]) * BWI_UNIT;
}

/* snapshot.c */
/* Exactly one of those who call it opens the unit. */
void bwi_unit_open(struct bwi_snapshots *s, struct bwi_unit *u, uint64_t address);
/* The same of single pages of it. */
void bwi_unit_open_pages(struct bwi_snapshots *s, struct bwi_unit *u, uint64_t address);
void bwi_shadow_give(struct bwi_snapshots *s, uint32_t shadow); /* any thread; only the answering one takes */
/* Whoever finds that everything of a unit has been read: opens it, or gives its shadow back. */
void bwi_unit_retire(struct bwi_snapshots *s, struct bwi_unit *u, uint64_t address);
/* Puts pages of [from, from + n) of a unit, whose bytes were copied to dst, in their old state. */
bool bwi_unit_patch(const struct bwi_snapshots *s, const struct bwi_unit *u, uint8_t *dst, size_t from, size_t n);
/* Opens all that is ours, whatever is mapped there now, and wakes all. They stay registered: nobody else may protect
 * them while a worker might still open a unit. */
void bwi_snapshot_open_hulls(struct bwi_snapshots *s);

/* snapshot_answer.c: the thread. */
void *bwi_snapshot_answer(void *arg);

#endif
