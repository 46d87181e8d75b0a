/* SPDX-License-Identifier: Apache-2.0 */
/* Write-protection of this process's own memory (userfaultfd): whoever writes to a protected page, the kernel's own
 * copies in read() included, waits until the page is opened; a descriptor says who waits where.
 *
 * A table, like that of the system calls, so that tests can make the n-th call fail. All calls are safe on any thread.
 * Addresses and sizes are multiples of 4 KiB. */
#ifndef BWI_OS_PROTECT_H
#define BWI_OS_PROTECT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define BWI_PAGE ((size_t)4096)

/* A mapping of this process. */
struct bwi_mapping {
    uint64_t start, end;
    /* Private to this process, no file behind it, and in pages of 4 KiB (or transparent huge ones). */
    bool plain;
};

struct bwi_protect {
    /* A descriptor; negative where there is none to be had that sees every write: -EPERM (a container, or a user who
     * may see faults of user code alone, so that a read() into protected memory would fail), -ENOSYS (the kernel, or
     * this kind of machine), -EOPNOTSUPP (Linux before 6.4, one that forgets, pages that are not of 4 KiB, memory that
     * is merged by KSM). */
    int (*open)(struct bwi_protect *p);
    void (*close)(struct bwi_protect *p, int fd);
    /* The mapping that holds the address, or the next one; -ENOENT: there is none above it. `maps` is a descriptor of
     * open_maps. */
    int (*open_maps)(struct bwi_protect *p);
    int (*mapping)(struct bwi_protect *p, int maps, uint64_t address, struct bwi_mapping *ret);
    /* From `add` on a range may be protected; `remove` ends that, and wakes nobody. */
    int (*add)(struct bwi_protect *p, int fd, uint64_t address, uint64_t bytes);
    int (*remove)(struct bwi_protect *p, int fd, uint64_t address, uint64_t bytes);
    int (*on)(struct bwi_protect *p, int fd, uint64_t address, uint64_t bytes);
    int (*off)(struct bwi_protect *p, int fd, uint64_t address, uint64_t bytes); /* and wakes who waits there */
    int (*wake)(struct bwi_protect *p, int fd, uint64_t address, uint64_t bytes);
    /* Where somebody waits. 1; 0: nobody new; or a negative errno. Does not block. */
    int (*next)(struct bwi_protect *p, int fd, uint64_t *ret_address);
};

static inline uint8_t *bwi_protect_at(uint64_t address) {
    return (uint8_t *)(uintptr_t)address;
}

/* Whether a kernel of this release keeps what it protects. Linux 6.12 began to give back pages of zeros when it splits
 * a huge page, and forgot there that they were protected; mended in 6.18 (9658d698a8a8), and in some later releases of
 * the older lines, which are not told apart here. */
bool bwi_protect_kernel_is_sound(const char *release);

/* The kernel's. Shared, immutable. */
struct bwi_protect *bwi_protect_system(void);

/* Waits until somebody waits at `fd`, or the eventfd is signalled, or the time has come (monotonic, UINT64_MAX: never).
 */
void bwi_protect_wait(int fd, int wake_fd, uint64_t deadline_ns);

/* Memory that is no part of any plain mapping, zeroed; NULL: none to be had. So it is never protected. */
void *bwi_protect_alloc(size_t bytes);
void bwi_protect_free(void *ptr, size_t bytes);

#endif
