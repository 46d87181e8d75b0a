/* SPDX-License-Identifier: Apache-2.0 */
/* userfaultfd, and the list of this process's mappings. What the headers of older distributions lack is written down
 * here; the kernel says at run time whether it knows it. */
#include "os/protect.h"
#include "base/env.h"
#include "os/os.h"
#include "os/system.h"
#include "os/thread.h"
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/userfaultfd.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <unistd.h>

#ifndef USERFAULTFD_IOC_NEW
#define USERFAULTFD_IOC_NEW _IO(0xAA, 0x00)
#endif
#ifndef UFFD_FEATURE_WP_UNPOPULATED
#define UFFD_FEATURE_WP_UNPOPULATED (1 << 13)
#endif

#ifndef PR_GET_MEMORY_MERGE
#define PR_GET_MEMORY_MERGE 68
#endif

/* Pages that were never written are protected as well only with the second one. */
#define FEATURES ((uint64_t)UFFD_FEATURE_PAGEFAULT_FLAG_WP | (uint64_t)UFFD_FEATURE_WP_UNPOPULATED)

/* ---- the descriptor ---- */

/* The device is for those whom its owner trusts; the system call for those who have the right to it. Either sees faults
 * of the kernel's own copies as well. */
static int new_descriptor(void) {
    const int flags = O_CLOEXEC | O_NONBLOCK;
    const int device = open("/dev/userfaultfd", O_RDWR | O_CLOEXEC);
    if (device >= 0) {
        const int fd = ioctl(device, USERFAULTFD_IOC_NEW, flags);
        const int rc = bwi_os_descriptor(fd);
        (void)close(device);
        if (rc >= 0) return rc;
    }
    const long fd = syscall(SYS_userfaultfd, flags);
    return bwi_os_descriptor((int)fd);
}

bool bwi_protect_kernel_is_sound(const char *release) {
    unsigned major = 0, minor = 0;
    if (sscanf(release, "%u.%u", &major, &minor) != 2) return false;
    return major != 6 || minor < 12 || minor > 17;
}

/* A page that KSM merges loses its protection. */
static bool may_be_merged(void) {
    return prctl(PR_GET_MEMORY_MERGE, 0, 0, 0, 0) == 1;
}

static int protect_open(struct bwi_protect *p) {
    struct utsname name;
    (void)p;
    if (sysconf(_SC_PAGESIZE) != (long)BWI_PAGE || may_be_merged()) return -EOPNOTSUPP;
    if (uname(&name) < 0 || !bwi_protect_kernel_is_sound(name.release)) return -EOPNOTSUPP;
    const int fd = new_descriptor();
    if (fd < 0) return fd;
    struct uffdio_api api = {.api = UFFD_API, .features = FEATURES};
    if (ioctl(fd, UFFDIO_API, &api) == 0 && (api.features & FEATURES) == FEATURES) return fd;
    (void)close(fd);
    return -EOPNOTSUPP;
}

static void protect_close(struct bwi_protect *p, int fd) {
    (void)p;
    if (fd >= 0) (void)close(fd);
}

/* ---- mappings ---- */

/* As of Linux 6.11: asks for one mapping, where reading the list would write down all of them. */
struct query {
    uint64_t size, flags, address;
    uint64_t start, end, vma_flags, page_bytes, offset, inode;
    uint32_t dev_major, dev_minor, name_bytes, build_id_bytes;
    uint64_t name, build_id;
};
#define QUERY         _IOWR('f', 17, struct query)
#define QUERY_SHARED  UINT64_C(0x08)
#define QUERY_OR_NEXT UINT64_C(0x10)

static int open_maps(struct bwi_protect *p) {
    (void)p;
    return bwi_os_descriptor(open("/proc/self/maps", O_RDONLY | O_CLOEXEC));
}

/* One line: "start-end rwxp offset major:minor inode name". */
static bool parse_line(const char *line, struct bwi_mapping *ret) {
    char shared = 0;
    uint64_t inode = 0;
    const int got = sscanf(line, "%" SCNx64 "-%" SCNx64 " %*c%*c%*c%c %*x %*x:%*x %" SCNu64, &ret->start, &ret->end,
                           &shared, &inode);
    ret->plain = shared == 'p' && inode == 0;
    return got == 4;
}

static int mapping_by_list(int maps, uint64_t address, struct bwi_mapping *ret) {
    const int copy = openat(AT_FDCWD, "/proc/self/maps", O_RDONLY | O_CLOEXEC);
    (void)maps;
    FILE *f = copy < 0 ? NULL : fdopen(copy, "r");
    char line[512];
    int rc = f == NULL ? -errno : -ENOENT;
    while (f != NULL && rc == -ENOENT && fgets(line, sizeof line, f) != NULL)
        if (parse_line(line, ret) && ret->end > address) rc = 0;
    if (f != NULL)
        (void)fclose(f);
    else if (copy >= 0)
        (void)close(copy);
    return rc;
}

static int mapping(struct bwi_protect *p, int maps, uint64_t address, struct bwi_mapping *ret) {
    struct query q = {.size = sizeof q, .flags = QUERY_OR_NEXT, .address = address};
    (void)p;
    if (ioctl(maps, QUERY, &q) == 0) {
        const bool own = (q.vma_flags & QUERY_SHARED) == 0 && q.inode == 0 && q.dev_major == 0 && q.dev_minor == 0;
        *ret = (struct bwi_mapping){q.start, q.end, own && q.page_bytes == BWI_PAGE};
        return 0;
    }
    return errno == ENOTTY ? mapping_by_list(maps, address, ret) : -errno;
}

/* ---- ranges ---- */

static int add(struct bwi_protect *p, int fd, uint64_t address, uint64_t bytes) {
    struct uffdio_register r = {.range = {address, bytes}, .mode = UFFDIO_REGISTER_MODE_WP};
    (void)p;
    return bwi_os_result(ioctl(fd, UFFDIO_REGISTER, &r));
}

static int forget(struct bwi_protect *p, int fd, uint64_t address, uint64_t bytes) {
    struct uffdio_range r = {address, bytes};
    (void)p;
    return bwi_os_result(ioctl(fd, UFFDIO_UNREGISTER, &r));
}

static int write_protect(int fd, uint64_t address, uint64_t bytes, uint64_t mode) {
    struct uffdio_writeprotect w = {.range = {address, bytes}, .mode = mode};
    int rc;
    do rc = bwi_os_result(ioctl(fd, UFFDIO_WRITEPROTECT, &w));
    while (rc == -EINTR);
    return rc;
}

static int on(struct bwi_protect *p, int fd, uint64_t address, uint64_t bytes) {
    (void)p;
    return write_protect(fd, address, bytes, UFFDIO_WRITEPROTECT_MODE_WP);
}

static int off(struct bwi_protect *p, int fd, uint64_t address, uint64_t bytes) {
    (void)p;
    return write_protect(fd, address, bytes, 0);
}

static int wake(struct bwi_protect *p, int fd, uint64_t address, uint64_t bytes) {
    struct uffdio_range r = {address, bytes};
    (void)p;
    return bwi_os_result(ioctl(fd, UFFDIO_WAKE, &r));
}

static int next(struct bwi_protect *p, int fd, uint64_t *ret_address) {
    struct uffd_msg m;
    (void)p;
    const ssize_t n = read(fd, &m, sizeof m);
    if (n < 0) return errno == EAGAIN || errno == EINTR ? 0 : -errno;
    if (n != sizeof m || m.event != UFFD_EVENT_PAGEFAULT) return 0;
    *ret_address = m.arg.pagefault.address & ~(uint64_t)(BWI_PAGE - 1);
    return 1;
}

struct bwi_protect *bwi_protect_system(void) {
    static struct bwi_protect table = {
        .open = protect_open,
        .close = protect_close,
        .open_maps = open_maps,
        .mapping = mapping,
        .add = add,
        .remove = forget,
        .on = on,
        .off = off,
        .wake = wake,
        .next = next,
    };
    return &table;
}

void bwi_protect_wait(int fd, int wake_fd, uint64_t deadline_ns) {
    struct pollfd fds[] = {{.fd = fd, .events = POLLIN}, {.fd = wake_fd, .events = POLLIN}};
    struct bwi_env *env = bwi_env_system();
    const uint64_t now = env->now_ns(env);
    int timeout_ms = -1;
    if (deadline_ns != BWI_NEVER) {
        const uint64_t ms = deadline_ns <= now ? 0 : (deadline_ns - now) / BWI_NS_PER_MS + 1;
        timeout_ms = ms > 60000 ? 60000 : (int)ms;
    }
    (void)poll(fds, 2, timeout_ms);
    if (fds[1].revents != 0) bwi_eventfd_drain(wake_fd);
}

/* ---- memory of our own ---- */

void *bwi_protect_alloc(size_t bytes) {
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return p == MAP_FAILED ? NULL : p;
}

void bwi_protect_free(void *ptr, size_t bytes) {
    if (ptr != NULL) (void)munmap(ptr, bytes);
}
