/* SPDX-License-Identifier: Apache-2.0 */
#include "io/snapshot.h"
#include "base/checked.h"
#include "base/copy.h"
#include "base/env.h"
#include "base/error.h"
#include "base/vec.h"
#include "io/snapshot_private.h"
#include <assert.h>
#include <errno.h>
#include <string.h>

/* What one thread copies in a second, at the least: protecting that is dearer than a tenth of that is not worth it. */
#define COPY_BYTES_PER_NS UINT64_C(10)
#define WORTH             UINT64_C(10)
#define PROTECT_FREE_NS   (2 * BWI_NS_PER_MS) /* not looked at */
#define SLICE_BYTES       ((uint64_t)64 << 20)
#define EDGE_PART_BYTES   ((uint64_t)1 << 20)
#define HASH_BYTES        ((size_t)128 << 10) /* fits into a second-level cache beside what else is at work */

/* A worker reads what others may write as soon as it has said that it has done so. That this is in order only the
 * kernel knows, so the thread sanitizer is told to look away. */
#ifdef __SANITIZE_THREAD__
void AnnotateIgnoreReadsBegin(const char *file, int line);
void AnnotateIgnoreReadsEnd(const char *file, int line);
#define LOOK_AWAY()  AnnotateIgnoreReadsBegin(__FILE__, __LINE__)
#define LOOK_AGAIN() AnnotateIgnoreReadsEnd(__FILE__, __LINE__)
#else
#define LOOK_AWAY()  ((void)0)
#define LOOK_AGAIN() ((void)0)
#endif

static uint64_t now_ns(void) {
    struct bwi_env *env = bwi_env_system();
    return env->now_ns(env);
}

/* ---- the object ---- */

static int start(struct bwi_snapshots *s, struct bw_error *err) {
    s->fd = s->os->open(s->os);
    if (s->fd < 0) return bwi_error_set(err, BW_E_UNSUPPORTED, "userfaultfd: %s", strerror(-s->fd));
    s->maps = s->os->open_maps(s->os);
    if (s->maps < 0) return bwi_error_errno(err, s->maps, "open /proc/self/maps");
    s->wake_fd = bwi_eventfd_open();
    if (s->wake_fd < 0) return bwi_error_errno(err, s->wake_fd, "make an eventfd");
    int rc = bwi_mutex_init(&s->lock);
    if (rc == 0) rc = bwi_thread_start(&s->thread, "bw-protect", bwi_snapshot_answer, s);
    return rc < 0 ? bwi_error_errno(err, rc, "start the thread that answers writers") : 0;
}

int bwi_snapshots_open(const struct bwi_snapshots_options *o, struct bwi_snapshots **ret, struct bw_error *err) {
    struct bwi_snapshots *s = bwi_protect_alloc(sizeof *s);
    if (s == NULL) return bwi_error_nomem(err, sizeof *s, "write-protection");
    s->options = *o;
    s->os = o->os != NULL ? o->os : bwi_protect_system();
    s->fd = s->maps = s->wake_fd = -1;
    const int rc = start(s, err);
    if (rc < 0)
        bwi_snapshots_close(s);
    else
        *ret = s;
    return rc;
}

void bwi_snapshots_close(struct bwi_snapshots *s) {
    if (s == NULL) return;
    assert(!s->busy);
    if (s->thread.started) {
        bwi_mutex_lock(&s->lock);
        s->stop = true;
        bwi_mutex_unlock(&s->lock);
        bwi_eventfd_signal(s->wake_fd);
        bwi_thread_join(&s->thread);
        bwi_mutex_fini(&s->lock);
    }
    bwi_eventfd_close(s->wake_fd);
    s->os->close(s->os, s->maps);
    s->os->close(s->os, s->fd);
    bwi_protect_free(s->tables, s->tables_bytes);
    bwi_protect_free(s, sizeof *s);
}

bool bwi_snapshots_busy(const struct bwi_snapshots *s) {
    return s->busy;
}

/* ---- preparing ---- */

static int find_mapping(void *user, uint64_t address, struct bwi_mapping *ret) {
    struct bwi_snapshots *s = user;
    return s->os->mapping(s->os, s->maps, address, ret);
}

static int number_hulls(struct bwi_snapshots *s, struct bw_error *err) {
    const struct bwi_hulls *h = &s->hulls;
    s->hull_unit = bwi_calloc(h->hull_count + 1, sizeof *s->hull_unit);
    s->edge_at = bwi_calloc(h->edge_count + 1, sizeof *s->edge_at);
    if (s->hull_unit == NULL || s->edge_at == NULL)
        return bwi_error_nomem(err, (h->hull_count + h->edge_count + 2) * sizeof *s->edge_at, "the memory of a save");
    s->unit_count = 0;
    for (size_t i = 0; i < h->hull_count; i++) {
        s->hull_unit[i] = s->unit_count;
        s->unit_count += (size_t)((h->hulls[i].end - h->hulls[i].start) / BWI_UNIT);
    }
    for (size_t i = 0, at = 0; i < h->edge_count; i++) {
        s->edge_at[i] = at;
        at += (size_t)(h->edges[i].end - h->edges[i].start);
    }
    return 0;
}

/* Everything that is as long as the hulls, in one piece, which the next snapshot uses again. */
static int make_tables(struct bwi_snapshots *s, struct bw_error *err) {
    const size_t units = s->unit_count;
    const size_t each = sizeof *s->units + sizeof *s->wanted;
    const size_t bytes = (size_t)bwi_round_up(units * each + 4096, 4096);
    if (bytes > s->tables_bytes) {
        bwi_protect_free(s->tables, s->tables_bytes);
        s->tables_bytes = 0;
        s->tables = bwi_protect_alloc(bytes);
        if (s->tables == NULL) return bwi_error_nomem(err, bytes, "the memory of a save");
        s->tables_bytes = bytes;
    }
    s->units = s->tables;
    s->wanted = (uint32_t *)(void *)(s->units + units);
    memset(s->tables, 0, units * each);
    return 0;
}

/* How much of each unit is to be read. */
static void count_bytes(struct bwi_snapshots *s, const struct bwi_range *ranges, size_t count) {
    const struct bwi_hulls *h = &s->hulls;
    for (size_t i = 0; i < count; i++) {
        for (uint64_t at = ranges[i].start, end; at < ranges[i].end; at = end) {
            const size_t hull = bwi_range_find(h->hulls, h->hull_count, at);
            end = bwi_min_u64(ranges[i].end, at - at % BWI_UNIT + BWI_UNIT);
            if (hull == SIZE_MAX) continue;
            struct bwi_unit *u = &s->units[s->hull_unit[hull] + (at - h->hulls[hull].start) / BWI_UNIT];
            u->remaining += end - at;
            u->state = UNIT_PROTECTED;
        }
    }
}

static void forget(struct bwi_snapshots *s) {
    bwi_hulls_fini(&s->hulls);
    bwi_free(s->hull_unit);
    bwi_free(s->edge_at);
    s->hull_unit = s->edge_at = NULL;
    s->unit_count = 0;
    s->busy = false;
}

int bwi_snapshot_prepare(struct bwi_snapshots *s, const struct bwi_range *ranges, size_t count,
                         struct bwi_snapshot_need *ret, struct bw_error *err) {
    assert(!s->busy);
    int rc = bwi_hulls_make(ranges, count, find_mapping, s, &s->hulls, err);
    if (rc == 0) rc = number_hulls(s, err);
    if (rc == 0) rc = make_tables(s, err);
    if (rc < 0) {
        forget(s);
        return rc;
    }
    count_bytes(s, ranges, count);
    s->stats = (struct bwi_snapshot_stats){0};
    s->registered = 0;
    s->busy = true;
    *ret = (struct bwi_snapshot_need){s->hulls.inside_bytes, s->hulls.edge_bytes, s->hulls.hull_bytes};
    return 0;
}

/* ---- beginning ---- */

/* The area: edges, shadows with a word each, pages with an entry each. */
static void cut_area(struct bwi_snapshots *s, uint8_t *area, size_t area_bytes) {
    const size_t edges = (size_t)bwi_round_up(s->hulls.edge_bytes, BWI_PAGE), rest = area_bytes - edges;
    const size_t pages = (size_t)bwi_max_u64(rest / 16, (size_t)1 << 20) / (BWI_PAGE + sizeof *s->pages);
    s->area = area;
    s->page_bytes = area + edges;
    s->page_cap = (uint32_t)bwi_min_u64(pages, UINT32_MAX / 2);
    uint8_t *at = s->page_bytes + s->page_cap * BWI_PAGE;
    s->pages = (struct bwi_page *)(void *)at;
    at += bwi_round_up(s->page_cap * sizeof *s->pages, 64);
    s->shadow_count = (uint32_t)((size_t)(area + area_bytes - at) / (BWI_UNIT + sizeof *s->shadow_next));
    s->shadows = at;
    s->shadow_next = (uint32_t *)(void *)(at + s->shadow_count * BWI_UNIT);
    s->page_count = 0;
    for (uint32_t i = 0; i < s->shadow_count; i++) s->shadow_next[i] = i; /* the stack, number 0 at its end */
    s->shadow_free = s->shadow_count;
}

void bwi_snapshot_begin(struct bwi_snapshots *s, uint8_t *area, size_t area_bytes) {
    assert(s->busy && area_bytes >= s->hulls.edge_bytes + BWI_SNAPSHOT_AREA_MIN);
    bwi_mutex_lock(&s->lock);
    cut_area(s, area, area_bytes);
    s->wanted_first = s->wanted_end = s->registered = 0;
    s->wanting = false;
    s->lost = false;
    s->stats = (struct bwi_snapshot_stats){0};
    s->live = true;
    bwi_mutex_unlock(&s->lock);
}

/* A hull that another descriptor has registered (-EBUSY) is not ours, and is not to be touched: the kernel would let us
 * open it. One that could not be registered for another reason may be so in part. */
static int add_hull(struct bwi_snapshots *s, const struct bwi_range *hull) {
    const int rc = s->os->add(s->os, s->fd, hull->start, hull->end - hull->start);
    bwi_mutex_lock(&s->lock); /* whoever gives up meanwhile opens what is registered */
    if (rc != -EBUSY) s->registered++;
    bwi_mutex_unlock(&s->lock);
    return rc;
}

/* In slices, so that memory on small pages, where protecting is dear, is found out early. */
static int protect_hull(struct bwi_snapshots *s, const struct bwi_range *hull, uint64_t begin_ns, uint64_t *done) {
    int rc = add_hull(s, hull);
    for (uint64_t at = hull->start, end; rc == 0 && at < hull->end; at = end) {
        end = bwi_min_u64(at + SLICE_BYTES, hull->end);
        rc = s->os->on(s->os, s->fd, at, end - at);
        *done += end - at;
        const uint64_t fair_ns = *done / COPY_BYTES_PER_NS / WORTH / bwi_max_u64(s->options.workers, 1);
        if (!s->options.always && now_ns() - begin_ns > PROTECT_FREE_NS + fair_ns) return -EDOM;
    }
    return rc;
}

static int protect_all(struct bwi_snapshots *s) {
    const uint64_t begin_ns = now_ns();
    uint64_t done = 0;
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < s->hulls.hull_count; i++)
        rc = protect_hull(s, &s->hulls.hulls[i], begin_ns, &done);
    s->protect_ns = now_ns() - begin_ns;
    return rc;
}

int bwi_snapshot_work(struct bwi_snapshots *s, unsigned part, unsigned parts) {
    const struct bwi_hulls *h = &s->hulls;
    if (part == 0) {
        const int rc = protect_all(s);
        if (rc < 0) return rc;
    }
    for (size_t i = part; i < h->edge_count; i += parts) {
        const uint64_t n = h->edges[i].end - h->edges[i].start;
        bwi_copy_past_cache(s->area + s->edge_at[i], bwi_protect_at(h->edges[i].start), (size_t)n);
    }
    return 0;
}

/* ---- units ---- */

typedef int (*range_call)(struct bwi_protect *os, int fd, uint64_t address, uint64_t bytes);

/* Where something in a range was unmapped or replaced a call on the whole fails: then on ever smaller parts. That is
 * nothing unusual: an allocator gives back what lies between two tensors. */
static void each_part(struct bwi_snapshots *s, range_call call, const struct bwi_range *hull) {
    if (call(s->os, s->fd, hull->start, hull->end - hull->start) == 0) return;
    for (uint64_t unit = hull->start; unit < hull->end; unit += BWI_UNIT) {
        if (call(s->os, s->fd, unit, BWI_UNIT) == 0) continue;
        for (uint64_t page = unit; page < unit + BWI_UNIT; page += BWI_PAGE) (void)call(s->os, s->fd, page, BWI_PAGE);
    }
}

void bwi_unit_open(struct bwi_snapshots *s, struct bwi_unit *u, uint64_t address) {
    const struct bwi_range unit = {address, address + BWI_UNIT};
    if (atomic_exchange(&u->opened, 1) != 0) return;
    if (s->os->off(s->os, s->fd, address, BWI_UNIT) == 0) return;
    each_part(s, s->os->off, &unit);
    (void)s->os->wake(s->os, s->fd, address, BWI_UNIT);
}

void bwi_unit_open_pages(struct bwi_snapshots *s, struct bwi_unit *u, uint64_t address) {
    for (uint32_t i = u->pages; i != 0; i = s->pages[i - 1].next) {
        struct bwi_page *p = &s->pages[i - 1];
        if (atomic_exchange(&p->opened, 1) != 0) continue;
        atomic_fetch_sub(&u->pages_waiting, 1);
        if (s->os->off(s->os, s->fd, address + p->at, BWI_PAGE) < 0)
            (void)s->os->wake(s->os, s->fd, address + p->at, BWI_PAGE);
    }
}

void bwi_shadow_give(struct bwi_snapshots *s, uint32_t shadow) {
    uint32_t top = s->shadow_free;
    do s->shadow_next[shadow] = top;
    while (!atomic_compare_exchange_weak(&s->shadow_free, &top, shadow + 1));
}

void bwi_unit_retire(struct bwi_snapshots *s, struct bwi_unit *u, uint64_t address) {
    uint32_t state = UNIT_PROTECTED;
    if (atomic_compare_exchange_strong(&u->state, &state, UNIT_DONE)) {
        bwi_unit_open(s, u, address);
    } else if (state == UNIT_SHADOWED && atomic_compare_exchange_strong(&u->state, &state, UNIT_DONE)) {
        bwi_unit_open(s, u, address);
        bwi_shadow_give(s, u->shadow);
    } /* else it is being put aside, and whoever does that will see that nothing remains */
    if (s->wanting) bwi_eventfd_signal(s->wake_fd);
}

bool bwi_unit_patch(const struct bwi_snapshots *s, const struct bwi_unit *u, uint8_t *dst, size_t from, size_t n) {
    bool any = false;
    for (uint32_t i = u->pages; i != 0; i = s->pages[i - 1].next) {
        const size_t at = s->pages[i - 1].at;
        const size_t low = bwi_max_u64(at, from), high = bwi_min_u64(at + BWI_PAGE, from + n);
        if (low >= high) continue;
        memcpy(dst + (low - from), s->page_bytes + (i - 1) * BWI_PAGE + (low - at), high - low);
        any = true;
    }
    return any;
}

/* The last one who has read the memory opens it, for whoever could not because of him. */
static void leave(struct bwi_snapshots *s, struct bwi_unit *u, uint64_t address) {
    if (atomic_fetch_sub(&u->readers, 1) != 1) return;
    if (u->state == UNIT_SHADOWED)
        bwi_unit_open(s, u, address);
    else if (u->pages_waiting > 0)
        bwi_unit_open_pages(s, u, address);
}

/* While what was read lies in the processor's cache it is hashed at a third of what it costs later. */
static void copy_hashed(uint8_t *dst, const uint8_t *src, size_t n, struct bwi_xxh_state *hash) {
    for (size_t at = 0; at < n; at += HASH_BYTES) {
        const size_t part = (size_t)bwi_min_u64(n - at, HASH_BYTES);
        bwi_copy_past_cache(dst + at, src + at, part);
        bwi_xxh_update(hash, src + at, part);
    }
}

/* Where single pages were given back before, the memory is not what is copied. */
static void copy_unit(struct bwi_snapshots *s, size_t hull, uint64_t from, uint8_t *dst, size_t n,
                      struct bwi_xxh_state *hash) {
    const size_t number = s->hull_unit[hull] + (size_t)((from - s->hulls.hulls[hull].start) / BWI_UNIT);
    struct bwi_unit *u = &s->units[number];
    const uint64_t address = bwi_unit_address(s, hull, number);
    const size_t at = (size_t)(from - address);
    atomic_fetch_add(&u->readers, 1);
    const bool from_memory = u->state != UNIT_SHADOWED;
    if (from_memory) {
        const struct bwi_xxh_state before = *hash;
        LOOK_AWAY();
        copy_hashed(dst, bwi_protect_at(from), n, hash);
        LOOK_AGAIN();
        if (bwi_unit_patch(s, u, dst, at, n)) {
            *hash = before;
            bwi_xxh_update(hash, dst, n);
        }
    }
    leave(s, u, address);
    if (!from_memory) copy_hashed(dst, s->shadows + u->shadow * BWI_UNIT + at, n, hash);
    if (atomic_fetch_sub(&u->remaining, n) == n) bwi_unit_retire(s, u, address);
}

void bwi_snapshot_copy(struct bwi_snapshots *s, uint8_t *dst, const uint8_t *src, size_t n,
                       struct bwi_xxh_state *hash) {
    const struct bwi_hulls *h = &s->hulls;
    while (n > 0) {
        const uint64_t from = (uint64_t)(uintptr_t)src;
        const size_t hull = bwi_range_find(h->hulls, h->hull_count, from);
        size_t part;
        if (hull != SIZE_MAX) {
            part = (size_t)bwi_min_u64(n, BWI_UNIT - from % BWI_UNIT);
            copy_unit(s, hull, from, dst, part, hash);
        } else {
            const size_t edge = bwi_range_find(h->edges, h->edge_count, from);
            assert(edge != SIZE_MAX);
            part = (size_t)bwi_min_u64(n, h->edges[edge].end - from);
            copy_hashed(dst, s->area + s->edge_at[edge] + (from - h->edges[edge].start), part, hash);
        }
        src += part;
        dst += part;
        n -= part;
    }
}

uint64_t bwi_snapshot_protect_ns(const struct bwi_snapshots *s) {
    return s->protect_ns;
}

bool bwi_snapshot_wanted(const struct bwi_snapshots *s) {
    return s->wanting;
}

bool bwi_snapshot_lost(const struct bwi_snapshots *s) {
    return s->lost;
}

/* ---- ending ---- */

void bwi_snapshot_open_hulls(struct bwi_snapshots *s) {
    for (size_t i = 0; i < s->registered; i++) each_part(s, s->os->off, &s->hulls.hulls[i]);
    for (size_t i = 0; i < s->registered; i++) each_part(s, s->os->wake, &s->hulls.hulls[i]);
}

/* Unregistering wakes nobody, so that comes last but for one more waking. */
static void release_hulls(struct bwi_snapshots *s) {
    bwi_snapshot_open_hulls(s);
    for (size_t i = 0; i < s->registered; i++) each_part(s, s->os->remove, &s->hulls.hulls[i]);
    for (size_t i = 0; i < s->registered; i++) each_part(s, s->os->wake, &s->hulls.hulls[i]);
}

void bwi_snapshot_end(struct bwi_snapshots *s, struct bwi_snapshot_stats *ret) {
    bwi_mutex_lock(&s->lock);
    const bool live = s->live;
    s->live = false;
    if (live) release_hulls(s);
    *ret = s->stats;
    bwi_mutex_unlock(&s->lock);
    forget(s);
}
