/* SPDX-License-Identifier: Apache-2.0 */
/* The kernel's table of system calls: what the page cache holds of a file, and the way past it. */
#include "base/checked.h"
#include "base/text.h"
#include "os/system.h"
#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

/* ---- past it ---- */

/* By its link in /proc, which leads to that very file, whatever has become of its name. Where pages or blocks are
 * larger than the alignment, what goes through the page cache would share some with what does not. */
int bwi_os_system_open_direct(struct bwi_os *os, int fd, bool write) {
    char path[32];
    struct stat st;
    int direct;
    (void)os;
    if (fstat(fd, &st) != 0) return -errno;
    if (st.st_blksize > (long)BWI_OS_DIRECT_ALIGN || sysconf(_SC_PAGESIZE) > (long)BWI_OS_DIRECT_ALIGN)
        return -EOPNOTSUPP;
    (void)bwi_format(path, sizeof path, "/proc/self/fd/%d", fd);
    do {
        direct = open(path, (write ? O_WRONLY : O_RDONLY) | O_DIRECT | O_NOCTTY | O_CLOEXEC);
    } while (direct < 0 && errno == EINTR);
    return direct < 0 ? -errno : bwi_os_descriptor(direct);
}

unsigned bwi_os_system_direct_memory(struct bwi_os *os, int fd) {
    (void)os;
#ifdef STATX_DIOALIGN
    struct statx x;
    if (statx(fd, "", AT_EMPTY_PATH, STATX_DIOALIGN, &x) == 0 && (x.stx_mask & STATX_DIOALIGN) &&
        x.stx_dio_mem_align > 0 && x.stx_dio_mem_align < BWI_OS_DIRECT_ALIGN)
        return x.stx_dio_mem_align;
#else
    (void)fd;
#endif
    return BWI_OS_DIRECT_ALIGN;
}

/* ---- what it holds ---- */

#ifndef SYS_cachestat
#define SYS_cachestat 451 /* Linux 6.5; the C library's headers are older */
#endif

/* By count, whatever the size of the pages. Negative: the kernel does not know the call, or will not tell. */
static int64_t count_cached(int fd, uint64_t offset, uint64_t bytes) {
    const struct { uint64_t offset, bytes; } range = {offset, bytes};
    struct {
        uint64_t cached, dirty, writeback, evicted, recently_evicted; /* pages */
    } found;
    if (syscall(SYS_cachestat, fd, &range, &found, 0) != 0) return -errno;
    return (int64_t)(found.cached * (uint64_t)sysconf(_SC_PAGESIZE));
}

#define LOOK_PAGES ((size_t)1024)

/* Page by page, and without touching one. */
static int64_t look_cached(const uint8_t *mapped, size_t bytes, size_t page) {
    unsigned char in[LOOK_PAGES];
    int64_t cached = 0;
    for (size_t at = 0; at < bytes; at += LOOK_PAGES * page) {
        const size_t n = (size_t)bwi_min_u64(bytes - at, LOOK_PAGES * page);
        if (mincore((void *)(uintptr_t)(mapped + at), n, in) != 0) return -errno;
        for (size_t i = 0; i < (size_t)bwi_div_ceil(n, page); i++) cached += (in[i] & 1) ? (int64_t)page : 0;
    }
    return cached;
}

/* To others than the owner mincore says that all is there, lest they learn what somebody else reads. */
static bool may_look(int fd) {
    struct stat st;
    return geteuid() == 0 || (fstat(fd, &st) == 0 && st.st_uid == geteuid());
}

/* A file system on top of another one has no pages of its own, and no count; a mapping leads to where they are. */
int64_t bwi_os_system_cached(struct bwi_os *os, int fd, uint64_t offset, uint64_t bytes) {
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    const uint64_t before = offset % page;
    (void)os;
    if (bytes == 0 || offset > INT64_MAX || bytes > INT64_MAX - offset) return bytes == 0 ? 0 : -EINVAL;
    const int64_t counted = count_cached(fd, offset, bytes);
    if (counted > 0 || !may_look(fd)) return counted;
    void *mapped = mmap(NULL, bytes + before, PROT_READ, MAP_SHARED, fd, (off_t)(offset - before));
    if (mapped == MAP_FAILED) return counted == 0 ? 0 : -errno;
    const int64_t found = look_cached(mapped, bytes + before, page);
    (void)munmap(mapped, bytes + before);
    return found;
}

int bwi_os_system_advise_done(struct bwi_os *os, int fd, uint64_t offset, uint64_t bytes) {
    (void)os;
    if (offset > INT64_MAX || bytes > INT64_MAX - offset) return -EINVAL;
    return -posix_fadvise(fd, (off_t)offset, (off_t)bytes, POSIX_FADV_DONTNEED);
}

int bwi_os_system_write_behind(struct bwi_os *os, int fd, uint64_t offset, uint64_t bytes) {
    (void)os;
    if (offset > INT64_MAX || bytes > INT64_MAX - offset) return -EINVAL;
    return sync_file_range(fd, (off_t)offset, (off_t)bytes, SYNC_FILE_RANGE_WRITE) == 0 ? 0 : -errno;
}
