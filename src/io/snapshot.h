/* SPDX-License-Identifier: Apache-2.0 */
/* A part of this process's memory as it was at one moment, while its owner goes on writing to it: write-protected, and
 * copied by and by. doc/flows/capture.md says how and why it cannot deadlock.
 *
 * One object per handle, with one snapshot at a time. prepare, begin and end on the loop's thread; work and copy on any
 * worker. A thread of its own answers whoever writes to what is still protected: it copies two megabytes aside and lets
 * the writer go on. It waits for nobody.
 *
 * All is given up (`lost`) when a writer has waited for too long, or when the allocator's bookkeeping, which a writer
 * must not wait for, cannot be put aside: then everything may be written again, and what was copied is worth nothing.
 */
#ifndef BWI_IO_SNAPSHOT_H
#define BWI_IO_SNAPSHOT_H

#include "hash/hash.h"
#include "io/hull.h"

struct bwi_snapshots;

struct bwi_snapshots_options {
    struct bwi_protect *os; /* NULL: the kernel's */
    unsigned workers;       /* that would copy instead: what protecting is compared with */
    uint64_t wait_ns;       /* a writer waits no longer; BWI_NEVER: for ever */
    bool always;            /* also where protecting is as dear as copying (tests) */
};

/* Negative: BW_E_UNSUPPORTED, where userfaultfd is not to be had, with the reason. */
int bwi_snapshots_open(const struct bwi_snapshots_options *o, struct bwi_snapshots **ret, struct bw_error *err);
void bwi_snapshots_close(struct bwi_snapshots *s); /* no snapshot may be live; NULL allowed */
bool bwi_snapshots_busy(const struct bwi_snapshots *s);

/* Looks at the memory that is needed; protects nothing. How much of it can be protected, and how much has to be copied
 * at once. Each range is to be copied exactly once, whole; ranges may overlap. Until `end` the object is busy. */
struct bwi_snapshot_need {
    uint64_t inside_bytes, edge_bytes;
    uint64_t hull_bytes;
};
int bwi_snapshot_prepare(struct bwi_snapshots *s, const struct bwi_range *ranges, size_t count,
                         struct bwi_snapshot_need *ret, struct bw_error *err);

/* `area` is borrowed until `end`: the edges go there, the rest is for what writers cannot wait for. At least edge_bytes
 * and BWI_SNAPSHOT_AREA_MIN. */
#define BWI_SNAPSHOT_AREA_MIN ((size_t)8 << 20)
void bwi_snapshot_begin(struct bwi_snapshots *s, uint8_t *area, size_t area_bytes);
/* One of `parts` parts of the work, all of which may run at once: copies edges; part 0 protects. Once all have returned
 * 0 the memory may be written. Else it must not be written before `end`, and is to be copied after it: a negative
 * errno, -EDOM where protecting is not worth it. */
int bwi_snapshot_work(struct bwi_snapshots *s, unsigned part, unsigned parts);
/* Copies from one of the ranges, as it was. */
void bwi_snapshot_copy(struct bwi_snapshots *s, uint8_t *dst, const uint8_t *src, size_t n, struct bwi_xxh_state *hash);
uint64_t bwi_snapshot_protect_ns(const struct bwi_snapshots *s); /* of the part 0 of the work */
bool bwi_snapshot_wanted(const struct bwi_snapshots *s);         /* a writer waits */
bool bwi_snapshot_lost(const struct bwi_snapshots *s);
/* Opens everything. No `work` or `copy` may be running. */
struct bwi_snapshot_stats {
    uint64_t faults; /* writes that came to what was protected */
    uint64_t waits;  /* of them, those that had to wait until something was copied */
    uint64_t wait_max_ns;
    uint64_t units, pages; /* put aside */
};
void bwi_snapshot_end(struct bwi_snapshots *s, struct bwi_snapshot_stats *ret);

#endif
