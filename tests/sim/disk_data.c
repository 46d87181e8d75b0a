/* SPDX-License-Identifier: Apache-2.0 */
/* Bytes of a disk that forgets, and what a crash makes of bytes and names. */
#include "disk_private.h"

#include <stdlib.h>
#include <string.h>

uint64_t disk_random(struct disk *d, uint64_t below) {
    uint64_t z = (d->rng += UINT64_C(0x9e3779b97f4a7c15));
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return below > 0 ? (z ^ z >> 31) % below : 0;
}

void disk_bytes_resize(struct disk_bytes *b, size_t len) {
    if (len > b->cap) {
        const size_t cap = len > 2 * b->cap ? len : 2 * b->cap;
        b->ptr = disk_grow(b->ptr, cap, 1);
        memset(b->ptr + b->cap, 0, cap - b->cap);
        b->cap = cap;
    }
    if (len < b->len) memset(b->ptr + len, 0, b->len - len);
    b->len = len;
}

void disk_bytes_free(struct disk_bytes *b) {
    free(b->ptr);
    *b = (struct disk_bytes){0};
}

/* --- what a process does ---- */

static void touch(struct disk_inode *f, uint64_t from, uint64_t to) {
    const uint64_t unit = f->disk->model.block_bytes;
    const size_t blocks = (size_t)((to + unit - 1) / unit);
    if (blocks > f->blocks) {
        f->block = disk_grow(f->block, blocks, 1);
        memset(f->block + f->blocks, DISK_CLEAN, blocks - f->blocks);
        f->blocks = blocks;
    }
    for (size_t i = (size_t)(from / unit); i < blocks; i++) f->block[i] = DISK_DIRTY;
    f->mtime_ms = f->disk->env->unix_ms(f->disk->env);
}

void disk_resize(struct disk_inode *f, uint64_t size) {
    const uint64_t was = f->now.len;
    if (size == was) return;
    disk_bytes_resize(&f->now, (size_t)size);
    f->size = DISK_DIRTY;
    touch(f, size < was ? size : was, size < was ? was : size);
}

void disk_write(struct disk_inode *f, const void *buf, size_t n, uint64_t offset) {
    if (n == 0) return;
    if (offset + n > f->now.len) disk_resize(f, offset + n);
    memcpy(f->now.ptr + offset, buf, n);
    touch(f, offset, offset + n);
}

void disk_sync_data(struct disk_inode *f) {
    const size_t unit = f->disk->model.block_bytes;
    const size_t size = f->size == DISK_LOST ? f->safe.len : f->now.len;
    disk_bytes_resize(&f->safe, size);
    for (size_t i = 0; i < f->blocks; i++) {
        const size_t at = i * unit;
        const size_t end = at + unit < size ? at + unit : size;
        if (f->block[i] != DISK_DIRTY) continue;
        if (at < end && end <= f->now.len) memcpy(f->safe.ptr + at, f->now.ptr + at, end - at);
        f->block[i] = DISK_CLEAN;
    }
    if (f->size == DISK_DIRTY) f->size = DISK_CLEAN;
}

void disk_drop_data(struct disk_inode *f) {
    for (size_t i = 0; i < f->blocks; i++)
        if (f->block[i] == DISK_DIRTY) f->block[i] = DISK_LOST;
    if (f->size == DISK_DIRTY) f->size = DISK_LOST;
}

bool disk_data_is_safe(const struct disk_inode *f) {
    for (size_t i = 0; i < f->blocks; i++)
        if (f->block[i] != DISK_CLEAN) return false;
    return f->size == DISK_CLEAN;
}

/* --- a crash ---- */

static size_t torn_size(struct disk_inode *f, unsigned keep_percent) {
    struct disk *d = f->disk;
    const size_t old = f->safe.len, new = f->now.len, unit = d->model.block_bytes;
    if (f->size == DISK_CLEAN || old == new) return old;
    if (disk_random(d, 100) < keep_percent) return new;
    if (d->model.friendly || disk_random(d, 2) == 0) return old;
    const size_t low = old < new ? old : new, high = old < new ? new : old;
    return low + (size_t)disk_random(d, (high - low) / unit + 1) * unit;
}

static void old_bytes(const struct disk_inode *f, size_t at, uint8_t *to, size_t n) {
    const size_t there = at >= f->safe.len ? 0 : f->safe.len - at < n ? f->safe.len - at : n;
    if (there > 0) memcpy(to, f->safe.ptr + at, there);
}

/* The first n bytes of a block are the new ones. */
static void new_bytes(const struct disk_inode *f, size_t at, uint8_t *to, size_t n) {
    const size_t there = at >= f->now.len ? 0 : f->now.len - at < n ? f->now.len - at : n;
    if (there > 0) memcpy(to, f->now.ptr + at, there);
}

static void torn_block(struct disk_inode *f, size_t at, uint8_t *to, size_t n, unsigned keep_percent) {
    struct disk *d = f->disk;
    if (disk_random(d, 100) < keep_percent) {
        new_bytes(f, at, to, n);
        return;
    }
    switch (disk_random(d, 4)) {
    case 0: break;                                                      /* as it was */
    case 1: new_bytes(f, at, to, (size_t)disk_random(d, n + 1)); break; /* half of each */
    case 2: memset(to, 0, n); break;                                    /* allocated, never written */
    default: memset(to, (int)(0x40 + disk_random(d, 16)), n); break;    /* what another file left there */
    }
}

struct disk_bytes disk_torn(struct disk_inode *f, unsigned keep_percent) {
    const size_t unit = f->disk->model.block_bytes;
    struct disk_bytes b = {0};
    if (f->disk->model.friendly) keep_percent = disk_random(f->disk, 100) < keep_percent ? 100 : 0;
    disk_bytes_resize(&b, torn_size(f, keep_percent));
    for (size_t at = 0; at < b.len; at += unit) {
        const size_t n = b.len - at < unit ? b.len - at : unit;
        old_bytes(f, at, b.ptr + at, n);
        const bool clean = at / unit >= f->blocks || f->block[at / unit] == DISK_CLEAN;
        if (clean || (f->disk->model.friendly && keep_percent == 0)) continue;
        torn_block(f, at, b.ptr + at, n, keep_percent);
    }
    return b;
}

void disk_settle_data(struct disk_inode *f, struct disk_bytes bytes) {
    disk_bytes_free(&f->now);
    f->now = bytes;
    disk_bytes_resize(&f->safe, bytes.len);
    if (bytes.len > 0) memcpy(f->safe.ptr, bytes.ptr, bytes.len);
    if (f->blocks > 0) memset(f->block, DISK_CLEAN, f->blocks);
    f->size = DISK_CLEAN;
}

/* Which of the states a name has after the crash. */
static unsigned torn_state(struct disk *d, const struct disk_entry *e, unsigned keep_percent, uint64_t cut) {
    unsigned last = e->count - 1;
    if (d->model.friendly) {
        while (last > 0 && (e->states[last].seq > cut || e->lost)) last--;
        return last;
    }
    if (disk_random(d, 100) < keep_percent) return last;
    return (unsigned)disk_random(d, e->count);
}

static void settle_entries(struct disk_inode *dir, unsigned keep_percent, uint64_t cut) {
    for (size_t k = 0; k < dir->entry_count; k++) {
        struct disk_entry *e = &dir->entries[k];
        if (e->count == 1) continue;
        e->states[e->count - 1] = e->states[torn_state(dir->disk, e, keep_percent, cut)];
        e->lost = false;
    }
    disk_sync_entries(dir);
}

static void count_names(struct disk *d) {
    for (struct disk_inode *i = d->all; i != NULL; i = i->next) i->names = 0;
    for (struct disk_inode *i = d->all; i != NULL; i = i->next)
        for (size_t k = 0; k < i->entry_count; k++) i->entries[k].states[0].inode->names++;
}

/* Some crashes lose all that they may, some nothing, and most a part: which part, each thing draws for itself. */
static unsigned draw_keep_percent(struct disk *d) {
    static const unsigned percents[] = {0, 0, 10, 50, 90, 100};
    return percents[disk_random(d, sizeof percents / sizeof *percents)];
}

void disk_crash(struct disk *d, uint64_t seed) {
    d->rng = seed;
    d->generation++;
    const unsigned keep = draw_keep_percent(d);
    const uint64_t cut = d->floor_seq + disk_random(d, d->seq - d->floor_seq + 1);
    for (struct disk_inode *i = d->all; i != NULL; i = i->next) {
        i->open = 0;
        i->lock = NULL;
        if (i->type == BWI_OS_DIR)
            settle_entries(i, keep, cut);
        else if (!disk_data_is_safe(i))
            disk_settle_data(i, disk_torn(i, keep));
    }
    disk_collect(d);
    count_names(d);
    d->fail_fsync = 0;
    d->floor_seq = d->seq;
}

/* What its cache held may have come to the server or not; the server has not synced it either way. */
void disk_lose_client(struct disk *d, unsigned client, uint64_t seed) {
    d->rng = seed;
    const unsigned keep = draw_keep_percent(d);
    if (!d->model.is_remote) return;
    for (struct disk_inode *i = d->all; i != NULL; i = i->next) {
        if (i->type != BWI_OS_FILE || i->client != client || disk_data_is_safe(i)) continue;
        const struct disk_bytes left = disk_torn(i, keep);
        disk_bytes_free(&i->now);
        i->now = left;
    }
}

void disk_fail_fsync(struct disk *d, uint64_t n) {
    d->fail_fsync = n;
    d->fail_files_only = false;
}

void disk_fail_file_fsync(struct disk *d, uint64_t n) {
    d->fail_fsync = n;
    d->fail_files_only = true;
}

void disk_set_capacity(struct disk *d, uint64_t bytes) {
    d->model.capacity_bytes = bytes;
}
