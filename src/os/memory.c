/* SPDX-License-Identifier: Apache-2.0 */
/* Large anonymous memory, aligned to huge pages. */
#include "os/memory.h"
#include "base/checked.h"
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define HUGE ((size_t)2 << 20)

/* Whether transparent huge pages are switched on: madvise accepts the request even while they are off. */
static bool huge_pages_enabled(void) {
    const int fd = open("/sys/kernel/mm/transparent_hugepage/enabled", O_RDONLY | O_CLOEXEC);
    if (fd < 0) return false;
    char text[64];
    const ssize_t got = read(fd, text, sizeof text - 1);
    (void)close(fd);
    if (got <= 0) return false;
    text[got] = '\0';
    return strstr(text, "[always]") != NULL || strstr(text, "[madvise]") != NULL;
}

int bwi_memory_map(size_t bytes, struct bwi_memory *ret) {
    if (bytes == 0) return -EINVAL;
    if (bytes > SIZE_MAX - 2 * HUGE) return -ENOMEM;
    bytes = (size_t)bwi_round_up(bytes, HUGE);
    /* One huge page more than needed, so that an aligned part lies in it; what is in front and behind goes back. */
    char *p = mmap(NULL, bytes + HUGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) return -errno;
    const size_t front = (size_t)(-(uintptr_t)p & (HUGE - 1));
    if (front > 0) (void)munmap(p, front);
    (void)munmap(p + front + bytes, HUGE - front);
    p += front;
    const bool asked = madvise(p, bytes, MADV_HUGEPAGE) == 0;
    (void)madvise(p, bytes, MADV_DONTDUMP);
    (void)madvise(p, bytes, MADV_DONTFORK);
    *ret = (struct bwi_memory){.ptr = p, .bytes = bytes, .huge = asked && huge_pages_enabled()};
    return 0;
}

void bwi_memory_touch(struct bwi_memory *m, size_t offset, size_t bytes) {
    if (offset >= m->bytes || bytes == 0) return;
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    const size_t end = bytes > m->bytes - offset ? m->bytes : offset + bytes;
    const size_t start = offset & ~(page - 1);
    char *base = m->ptr;
#ifdef MADV_POPULATE_WRITE
    if (madvise(base + start, (size_t)bwi_round_up(end, page) - start, MADV_POPULATE_WRITE) == 0) return;
#endif
    /* An atomic "or 0" is a write that changes nothing, whatever another thread has in the page. */
    for (size_t at = start; at < end; at += page) (void)__atomic_fetch_or(base + at, 0, __ATOMIC_RELAXED);
}

void bwi_memory_unmap(struct bwi_memory *m) {
    if (m == NULL || m->ptr == NULL) return;
    (void)munmap(m->ptr, m->bytes);
    *m = (struct bwi_memory){0};
}
