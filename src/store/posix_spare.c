/* SPDX-License-Identifier: Apache-2.0 */
/* Objects that are written over instead of deleted: overwriting a file's blocks is faster than giving them back and
 * allocating others. A deletion that may keep some leaves them where they are, under the name of a temporary, and
 * remembers that; an upload takes one, or a new file. doc/flows/transfer.md.
 *
 * On disk a spare is what a deletion that was interrupted leaves, and is deleted as that by whoever finds it. So here
 * nothing is certain: a spare may be gone, and then the upload makes a new file. */
#include "base/vec.h"
#include "store/posix.h"
#include <errno.h>
#include <string.h>

#define SPARE_MIN BWI_STORE_ALIGN /* smaller ones have no block to write over */

static void lock(struct bwi_posix_spares *s) {
    bwi_mutex_lock(&s->lock);
}

static void unlock(struct bwi_posix_spares *s) {
    bwi_mutex_unlock(&s->lock);
}

int bwi_posix_init_spares(struct bwi_posix *p) {
    int rc = bwi_mutex_init(&p->spares.lock);
    if (rc < 0) return rc;
    rc = bwi_mutex_init(&p->spares.giving);
    if (rc < 0) bwi_mutex_fini(&p->spares.lock);
    return rc;
}

void bwi_posix_fini_spares(struct bwi_posix *p) {
    bwi_posix_forget_spares(p, "");
    bwi_mutex_fini(&p->spares.giving);
    bwi_mutex_fini(&p->spares.lock);
}

/* --- keeping ---- */

static bool add_spare(struct bwi_posix_spares *s, const struct bwi_posix_spare *new, uint64_t limit) {
    lock(s);
    const bool fits = s->count < BWI_POSIX_SPARES && s->bytes < limit;
    if (fits) {
        s->list[s->count++] = *new;
        s->bytes += new->bytes;
    }
    unlock(s);
    return fits;
}

static bool is_full(struct bwi_posix_spares *s, uint64_t limit) {
    lock(s);
    const bool full = s->count == BWI_POSIX_SPARES || s->bytes >= limit;
    unlock(s);
    return full;
}

/* Gives an object the name of a temporary, so that nobody opens it any more. What has holes is no better than new. */
static bool retire(struct bwi_store_op *op, int dirfd, const char *name, struct bwi_posix_spare *ret) {
    struct bwi_os *os = bwi_posix_of(op)->os;
    struct bwi_os_stat st;
    if (os->stat_at(os, dirfd, name, &st) < 0 || st.type != BWI_OS_FILE || st.nlink != 1) return false;
    if (st.size_bytes < SPARE_MIN || st.alloc_bytes < st.size_bytes) return false;
    ret->bytes = st.size_bytes;
    bwi_posix_tmp_name(op, ret->tmp);
    return os->rename_new(os, dirfd, name, ret->tmp) == 0;
}

/* No more than may be kept, and one. */
static size_t retire_all(struct bwi_store_op *op, int dirfd, struct bwi_posix_spare list[BWI_POSIX_SPARES]) {
    struct bwi_posix *p = bwi_posix_of(op);
    struct bwi_os_dir *d = NULL;
    struct bwi_os_dirent e;
    uint64_t bytes = 0;
    size_t n = 0;
    if (p->os->dir_open(p->os, dirfd, ".", &d) < 0) return 0;
    while (n < BWI_POSIX_SPARES && bytes < op->keep_bytes && p->os->dir_next(p->os, d, &e) > 0) {
        if (!bwi_store_component_valid(e.name, strlen(e.name)) || !retire(op, dirfd, e.name, &list[n])) continue;
        bytes += list[n++].bytes;
    }
    p->os->dir_close(p->os, d);
    return n;
}

/* What gets bytes of another object must not be back under its old name after a crash. */
static void keep_in(struct bwi_store_op *op, int dirfd, const char *dir) {
    struct bwi_posix *p = bwi_posix_of(op);
    struct bwi_posix_spare list[BWI_POSIX_SPARES];
    const size_t n = retire_all(op, dirfd, list);
    if (n == 0 || p->os->fsync(p->os, dirfd) < 0) return;
    for (size_t i = 0; i < n; i++) {
        list[i].dir = bwi_strdup(dir);
        if (list[i].dir == NULL || !add_spare(&p->spares, &list[i], op->keep_bytes)) bwi_free(list[i].dir);
    }
}

bool bwi_posix_keep(struct bwi_store_op *op) {
    struct bwi_posix *p = bwi_posix_of(op);
    char dir[BWI_STORE_KEY_MAX + 1];
    const size_t len = strlen(op->key) - 1;
    memcpy(dir, op->key, len);
    dir[len] = '\0';
    if (!p->base.caps.recycles || op->keep_bytes == 0) {
        bwi_posix_forget_spares(p, op->key);
        return false;
    }
    const int fd = is_full(&p->spares, op->keep_bytes) ? -ENOSPC : bwi_posix_open_dir(op, dir, len, false);
    if (fd >= 0) {
        keep_in(op, fd, dir);
        p->os->close(p->os, fd);
    }
    bw_error_clear(&op->error);
    return bwi_posix_has_spares(p, dir);
}

bool bwi_posix_has_spares(struct bwi_posix *p, const char *dir) {
    struct bwi_posix_spares *s = &p->spares;
    bool has = false;
    lock(s);
    for (size_t i = 0; i < s->count && !has; i++) has = strcmp(s->list[i].dir, dir) == 0;
    unlock(s);
    return has;
}

/* The names are drawn from 64 bits: the directory need not be compared. */
bool bwi_posix_is_spare(struct bwi_posix *p, const char *name) {
    struct bwi_posix_spares *s = &p->spares;
    bool is = false;
    lock(s);
    for (size_t i = 0; i < s->count && !is; i++) is = strcmp(s->list[i].tmp, name) == 0;
    unlock(s);
    return is;
}

/* Under the lock. */
static struct bwi_posix_spare remove_at(struct bwi_posix_spares *s, size_t i) {
    const struct bwi_posix_spare gone = s->list[i];
    s->list[i] = s->list[--s->count];
    s->bytes -= gone.bytes;
    return gone;
}

/* A copy with its directory; false: there are no more. */
static bool copy_at(struct bwi_posix_spares *s, size_t i, struct bwi_posix_spare *ret,
                    char dir[BWI_STORE_KEY_MAX + 1]) {
    lock(s);
    const bool is = i < s->count;
    if (is) {
        *ret = s->list[i];
        memcpy(dir, ret->dir, strlen(ret->dir) + 1);
        ret->dir = dir;
    }
    unlock(s);
    return is;
}

static bool is_there(struct bwi_store_op *op, const struct bwi_posix_spare *one) {
    struct bwi_os *os = bwi_posix_of(op)->os;
    struct bwi_os_stat st;
    const int fd = bwi_posix_open_dir(op, one->dir, strlen(one->dir), false);
    bw_error_clear(&op->error);
    if (fd < 0) return false;
    const int rc = os->stat_at(os, fd, one->tmp, &st);
    os->close(os, fd);
    return rc == 0;
}

static void forget(struct bwi_posix_spares *s, const char *tmp) {
    lock(s);
    for (size_t i = s->count; i-- > 0;)
        if (strcmp(s->list[i].tmp, tmp) == 0) bwi_free(remove_at(s, i).dir);
    unlock(s);
}

uint64_t bwi_posix_spare_bytes(struct bwi_store_op *op) {
    struct bwi_posix_spares *s = &bwi_posix_of(op)->spares;
    char dir[BWI_STORE_KEY_MAX + 1];
    struct bwi_posix_spare one;
    uint64_t bytes = 0;
    for (size_t i = 0; copy_at(s, i, &one, dir);) {
        if (is_there(op, &one)) {
            bytes += one.bytes;
            i++;
        } else {
            forget(s, one.tmp);
        }
    }
    return bytes;
}

/* --- giving them up ---- */

void bwi_posix_forget_spares(struct bwi_posix *p, const char *prefix) {
    struct bwi_posix_spares *s = &p->spares;
    const size_t len = strlen(prefix);
    lock(s);
    for (size_t i = s->count; i-- > 0;) {
        const char *dir = s->list[i].dir;
        const bool below =
            strncmp(dir, prefix, len) == 0 || (strlen(dir) == len - 1 && strncmp(dir, prefix, len - 1) == 0);
        if (below) bwi_free(remove_at(s, i).dir);
    }
    unlock(s);
}

/* The deletion that kept it is over with the last one: its directory goes, and the one above if that is empty too. */
static void leave_directory(struct bwi_store_op *op, char *dir) {
    struct bwi_posix *p = bwi_posix_of(op);
    for (unsigned up = 0; up < 2; up++) {
        char *slash = strrchr(dir, '/');
        if (slash == NULL) break;
        const int above = bwi_posix_open_dir(op, dir, (size_t)(slash - dir), false);
        const int rc = above < 0 ? above : p->os->rmdir(p->os, above, slash + 1);
        if (above >= 0) p->os->close(p->os, above);
        if (rc < 0) break;
        *slash = '\0';
    }
    bwi_posix_forget_durable(p);
    bw_error_clear(&op->error);
}

/* Done with one that is on the list no more. fd: of its directory, or negative. */
static void let_go(struct bwi_store_op *op, struct bwi_posix_spare *s, int fd, bool delete) {
    struct bwi_posix *p = bwi_posix_of(op);
    if (fd >= 0 && delete) p->os->unlink(p->os, fd, s->tmp);
    if (fd >= 0) p->os->close(p->os, fd);
    if (!bwi_posix_has_spares(p, s->dir)) leave_directory(op, s->dir);
    bw_error_clear(&op->error);
    bwi_free(s->dir);
}

/* Whoever comes while others are deleted waits until that room is there. */
static void give_up(struct bwi_store_op *op, uint64_t bytes) {
    struct bwi_posix_spares *s = &bwi_posix_of(op)->spares;
    uint64_t given = 0;
    bwi_mutex_lock(&s->giving);
    while (given < bytes) {
        struct bwi_posix_spare gone = {0};
        lock(s);
        if (s->count > 0) gone = remove_at(s, s->count - 1);
        unlock(s);
        if (gone.dir == NULL) break;
        given += gone.bytes;
        let_go(op, &gone, bwi_posix_open_dir(op, gone.dir, strlen(gone.dir), false), true);
    }
    atomic_fetch_add(&s->given_up, given);
    bwi_mutex_unlock(&s->giving);
}

uint64_t bwi_posix_given_up(struct bwi_store_op *op) {
    return atomic_load(&bwi_posix_of(op)->spares.given_up);
}

bool bwi_posix_makes_room(struct bwi_store_op *op, uint64_t before) {
    give_up(op, UINT64_MAX);
    return bwi_posix_given_up(op) != before;
}

/* --- taking one ---- */

/* The smallest that is large enough, else the largest. One that is twice as large, or half, would cost more to adapt
 * than it is worth. */
static bool choose(struct bwi_posix_spares *s, uint64_t bytes, struct bwi_posix_spare *ret) {
    size_t best = SIZE_MAX;
    lock(s);
    for (size_t i = 0; i < s->count; i++) {
        const uint64_t has = s->list[i].bytes;
        if (has / 2 > bytes || bytes / 2 > has) continue;
        const uint64_t kept = best == SIZE_MAX ? 0 : s->list[best].bytes;
        const bool better = kept < bytes ? has > kept : has >= bytes && has < kept;
        if (best == SIZE_MAX || better) best = i;
    }
    if (best != SIZE_MAX) *ret = remove_at(s, best);
    unlock(s);
    return best != SIZE_MAX;
}

/* The kernel has said that nobody has it open. A name that it got until it was moved stands for its bytes all the
 * same. */
static int has_one_name(struct bwi_os *os, int fd) {
    struct bwi_os_stat st;
    const int rc = os->stat_fd(os, fd, &st);
    return rc < 0 ? rc : st.nlink == 1 ? 0 : -EBUSY;
}

/* Only what nobody else has open may change: a reader that came before it was retired, or that maps it, goes on with
 * what it opened, and the file goes when that is done. */
static int claim(struct bwi_store_op *op, const struct bwi_posix_spare *s, int from, int dirfd,
                 char tmp[BWI_POSIX_TMP_BYTES]) {
    struct bwi_os *os = bwi_posix_of(op)->os;
    const int fd = from < 0 ? from : os->open_alone(os, from, s->tmp);
    if (fd < 0) return fd;
    bwi_posix_tmp_name(op, tmp);
    int rc = os->move_new(os, from, s->tmp, dirfd, tmp);
    if (rc < 0) {
        os->close(os, fd);
        return rc;
    }
    rc = has_one_name(os, fd);
    if (rc == 0 && s->bytes > op->size_bytes) rc = os->truncate(os, fd, op->size_bytes);
    if (rc == 0) return fd;
    os->close(os, fd);
    os->unlink(os, dirfd, tmp);
    return rc;
}

static bool has_any(struct bwi_posix_spares *s) {
    lock(s);
    const bool any = s->count > 0;
    unlock(s);
    return any;
}

int bwi_posix_take_spare(struct bwi_store_op *op, int dirfd, char tmp[BWI_POSIX_TMP_BYTES]) {
    struct bwi_posix *p = bwi_posix_of(op);
    struct bwi_posix_spare s;
    op->recycled_bytes = 0; /* of a first try, that found the disk full */
    if (op->size_bytes < SPARE_MIN) return -ENOENT;
    while (choose(&p->spares, op->size_bytes, &s)) {
        const int from = bwi_posix_open_dir(op, s.dir, strlen(s.dir), false);
        const int fd = claim(op, &s, from, dirfd, tmp);
        let_go(op, &s, from, fd < 0);
        if (fd >= 0) op->recycled_bytes = s.bytes < op->size_bytes ? s.bytes : op->size_bytes;
        if (fd >= 0) return fd;
    }
    if (has_any(&p->spares)) give_up(op, op->size_bytes); /* none fits: a new file needs their room */
    return -ENOENT;
}
