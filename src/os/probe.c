/* SPDX-License-Identifier: Apache-2.0 */
/* Asking the kernel what it allows. A feature that is compiled in may still be refused by a sysctl, a container's
 * seccomp filter or a limit, so each one is tried instead of looked up. */
#include "os/probe.h"
#include "base/env.h"
#include "base/text.h"
#include "os/memory.h"
#include "os/os.h"
#include "os/protect.h"
#include "os/thread.h"
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/io_uring.h>
#include <linux/userfaultfd.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/utsname.h>
#include <unistd.h>

#define TEXT_BYTES 8192
#define BLOCK      4096u /* what every device in use takes with O_DIRECT */
#define TRIES      8     /* of a name for a temporary file */

/* The beginning of a small file of /proc or /sys. false: it is not there. */
static bool read_text(const char *path, char ret[TEXT_BYTES]) {
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return false;
    size_t len = 0;
    ssize_t got;
    while (len < TEXT_BYTES - 1 && (got = read(fd, ret + len, TEXT_BYTES - 1 - len)) > 0) len += (size_t)got;
    (void)close(fd);
    ret[len] = '\0';
    return len > 0;
}

static uint64_t read_number(const char *path, uint64_t otherwise) {
    char text[TEXT_BYTES];
    return read_text(path, text) ? strtoull(text, NULL, 10) : otherwise;
}

/* ---- limits and memory ---- */

static uint64_t limit_of(rlim_t v) {
    return v == RLIM_INFINITY ? UINT64_MAX : (uint64_t)v;
}

static void probe_limits(struct bwi_probe_machine *m) {
    struct rlimit r;
    if (getrlimit(RLIMIT_MEMLOCK, &r) == 0) m->memlock_bytes = limit_of(r.rlim_cur);
    if (getrlimit(RLIMIT_NOFILE, &r) == 0) {
        m->descriptors = limit_of(r.rlim_cur);
        m->descriptors_max = limit_of(r.rlim_max);
    }
}

/* A line of /proc/meminfo, which counts in KiB. */
static uint64_t meminfo_bytes(const char *text, const char *key) {
    const char *line = strstr(text, key);
    return line == NULL ? 0 : strtoull(line + strlen(key), NULL, 10) * 1024;
}

static void probe_memory(struct bwi_probe_machine *m) {
    char text[TEXT_BYTES];
    struct statvfs shm;
    if (read_text("/proc/meminfo", text)) {
        m->memory_bytes = meminfo_bytes(text, "MemTotal:");
        m->memory_free_bytes = meminfo_bytes(text, "MemAvailable:");
    }
    if (read_text("/sys/kernel/mm/transparent_hugepage/enabled", text)) {
        (void)bwi_probe_choice(text, m->huge_pages, sizeof m->huge_pages);
        m->huge_page_bytes = read_number("/sys/kernel/mm/transparent_hugepage/hpage_pmd_size", 0);
    }
    if (statvfs("/dev/shm", &shm) == 0) {
        m->shm_bytes = (uint64_t)shm.f_blocks * shm.f_frsize;
        m->shm_free_bytes = (uint64_t)shm.f_bavail * shm.f_frsize;
    }
}

bool bwi_probe_choice(const char *line, char *ret, size_t ret_bytes) {
    const char *from = strchr(line, '[');
    const char *to = from == NULL ? NULL : strchr(from, ']');
    if (to == NULL || (size_t)(to - from) > ret_bytes) return false;
    const size_t len = (size_t)(to - from) - 1;
    memcpy(ret, from + 1, len);
    ret[len] = '\0';
    return true;
}

/* ---- system calls that containers refuse ---- */

/* What is registered is locked: a limit of that may be below what a handle wants. */
static int register_memory(int ring) {
    struct bwi_memory memory;
    int rc = bwi_memory_map(BWI_PROBE_MEMORY, &memory);
    if (rc < 0) return rc;
    const struct iovec part = {memory.ptr, BWI_PROBE_MEMORY};
    rc = syscall(SYS_io_uring_register, ring, IORING_REGISTER_BUFFERS, &part, 1) < 0 ? -errno : 0;
    if (rc == 0) (void)syscall(SYS_io_uring_register, ring, IORING_UNREGISTER_BUFFERS, NULL, 0);
    bwi_memory_unmap(&memory);
    return rc;
}

static void probe_io_uring(struct bwi_probe_machine *m) {
    struct io_uring_params params;
    memset(&params, 0, sizeof params);
    const long fd = syscall(SYS_io_uring_setup, 4, &params);
    m->io_uring = fd < 0 ? -errno : 0;
    m->ring_memory = fd < 0 ? m->io_uring : register_memory((int)fd);
    if (fd >= 0) (void)close((int)fd);
    const uint64_t none = UINT64_MAX;
    const uint64_t disabled = read_number("/proc/sys/kernel/io_uring_disabled", none);
    m->io_uring_disabled = disabled == none ? -1 : (int)disabled;
}

#ifndef UFFD_USER_MODE_ONLY
#define UFFD_USER_MODE_ONLY 1
#endif

/* Without privileges the kernel hands out descriptors for faults of user mode only. */
static int open_userfaultfd(bool *ret_user_only) {
    const int flags = O_CLOEXEC | O_NONBLOCK;
    long fd = syscall(SYS_userfaultfd, flags);
    *ret_user_only = fd < 0 && errno == EPERM;
    if (*ret_user_only) fd = syscall(SYS_userfaultfd, flags | UFFD_USER_MODE_ONLY);
    return fd < 0 ? -errno : (int)fd;
}

static void probe_userfaultfd(struct bwi_probe_machine *m) {
    struct uffdio_api api = {.api = UFFD_API, .features = 0};
    const uint64_t none = UINT64_MAX;
    const uint64_t allowed = read_number("/proc/sys/vm/unprivileged_userfaultfd", none);
    m->userfaultfd_unprivileged = allowed == none ? -1 : (int)allowed;
    const int fd = open_userfaultfd(&m->userfaultfd_user_only);
    m->userfaultfd = fd < 0 ? fd : 0;
    if (fd < 0) {
        m->userfaultfd_user_only = false;
        return;
    }
    /* Asked for no feature, it tells all that it has. */
    if (ioctl(fd, UFFDIO_API, &api) < 0) {
        m->userfaultfd = -errno;
    } else {
        m->userfaultfd_write_protect = (api.features & UFFD_FEATURE_PAGEFAULT_FLAG_WP) != 0;
    }
    (void)close(fd);
}

/* As a handle does it, which knows kernels that forget and another way to a descriptor. */
static void probe_protection(struct bwi_probe_machine *m) {
    struct bwi_protect *os = bwi_protect_system();
    const int fd = os->open(os);
    m->protection = fd < 0 ? fd : 0;
    os->close(os, fd);
}

/* ---- threads ---- */

static void *wait_for_start(void *arg) {
    struct bwi_mutex *start = arg;
    bwi_mutex_lock(start);
    bwi_mutex_unlock(start);
    return NULL;
}

/* All at once: what a limit of processes allows is seen only beside each other. */
static void probe_threads(struct bwi_probe_machine *m) {
    struct bwi_thread threads[BWI_PROBE_THREADS] = {0};
    struct bwi_mutex start;
    m->thread_error = bwi_mutex_init(&start);
    if (m->thread_error < 0) return;
    bwi_mutex_lock(&start);
    while (m->threads < BWI_PROBE_THREADS && m->thread_error == 0) {
        m->thread_error = bwi_thread_start(&threads[m->threads], "bw-probe", wait_for_start, &start);
        m->threads += m->thread_error == 0;
    }
    bwi_mutex_unlock(&start);
    for (unsigned i = 0; i < m->threads; i++) bwi_thread_join(&threads[i]);
    bwi_mutex_fini(&start);
}

void bwi_probe_machine(struct bwi_probe_machine *ret) {
    struct utsname name;
    memset(ret, 0, sizeof *ret);
    if (uname(&name) == 0) (void)bwi_format(ret->kernel, sizeof ret->kernel, "%s %s", name.sysname, name.release);
    ret->cpus = bwi_os_cpus();
    probe_limits(ret);
    probe_memory(ret);
    probe_io_uring(ret);
    probe_userfaultfd(ret);
    probe_protection(ret);
    probe_threads(ret);
}

/* ---- a directory ---- */

void bwi_probe_fs_name(uint64_t fs_type, char *ret, size_t ret_bytes) {
    static const struct {
        uint32_t type;
        const char *name;
    } known[] = {
        {0xef53, "ext4"},         {0x58465342, "xfs"},     {0x9123683e, "btrfs"},    {0x01021994, "tmpfs"},
        {0x858458f6, "ramfs"},    {0x794c7630, "overlay"}, {0x2fc12fc1, "zfs"},      {0xf2f52010, "f2fs"},
        {0xca451a4e, "bcachefs"}, {0x6969, "nfs"},         {0x0bd00bd0, "lustre"},   {0x00c36400, "ceph"},
        {0x47504653, "gpfs"},     {0x19830326, "beegfs"},  {0x65735546, "fuse"},     {0xff534d42, "cifs"},
        {0xfe534d42, "smb2"},     {0x01021997, "9p"},      {0x20030528, "orangefs"}, {0xaad7aaea, "panfs"},
        {0x7461636f, "ocfs2"},    {0x01161970, "gfs2"},    {0x73717368, "squashfs"},
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        if (known[i].type != (uint32_t)fs_type) continue;
        (void)bwi_format(ret, ret_bytes, "%s", known[i].name);
        return;
    }
    (void)bwi_format(ret, ret_bytes, "0x%" PRIx32, (uint32_t)fs_type);
}

/* A file with a name, which is taken away at once. Some kernels make the file before they find that they cannot open it
 * with these flags. */
static int open_named(int dirfd, int flags) {
    struct bwi_env *env = bwi_env_system();
    for (int i = 0; i < TRIES; i++) {
        char name[32];
        (void)bwi_format(name, sizeof name, ".%016" PRIx64 ".tmp", env->random_u64(env));
        const int fd = openat(dirfd, name, flags | O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC | O_NOFOLLOW, 0600);
        const int rc = fd < 0 ? -errno : fd;
        if (rc == -EEXIST) continue;
        (void)unlinkat(dirfd, name, 0);
        return rc;
    }
    return -EEXIST;
}

static int open_scratch(int dirfd, int flags) {
    const int fd = openat(dirfd, ".", flags | O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    return fd >= 0 ? fd : open_named(dirfd, flags);
}

static int64_t whole(ssize_t n) {
    if (n < 0) return -errno;
    return n == BLOCK ? 0 : -EIO;
}

/* Writes one block and reads it back. */
static int try_file(int fd) {
    _Alignas(BLOCK) unsigned char out[BLOCK];
    _Alignas(BLOCK) unsigned char in[BLOCK];
    memset(out, 0xa5, sizeof out);
    memset(in, 0, sizeof in);
    int64_t rc = whole(pwrite(fd, out, sizeof out, 0));
    if (rc == 0) rc = whole(pread(fd, in, sizeof in, 0));
    if (rc == 0 && memcmp(in, out, sizeof in) != 0) rc = -EILSEQ;
    return (int)rc;
}

static int try_scratch(int dirfd, int flags) {
    const int fd = open_scratch(dirfd, flags);
    if (fd < 0) return fd;
    const int rc = try_file(fd);
    (void)close(fd);
    return rc;
}

int bwi_probe_dir(const char *path, struct bwi_probe_dir *ret) {
    struct bwi_os *os = bwi_os_system();
    struct bwi_os_stat st;
    struct bwi_os_space space;
    const int fd = os->open_root(os, path, false);
    if (fd < 0) return fd;
    memset(ret, 0, sizeof *ret);
    int rc = os->stat_fd(os, fd, &st);
    if (rc == 0) rc = os->space(os, fd, &space);
    if (rc == 0) {
        ret->device = st.device;
        ret->free_bytes = space.free_bytes;
        ret->total_bytes = space.total_bytes;
        bwi_probe_fs_name(space.fs_type, ret->fs_name, sizeof ret->fs_name);
        ret->write = try_scratch(fd, 0);
        ret->direct = ret->write < 0 ? ret->write : try_scratch(fd, O_DIRECT);
    }
    (void)os->close(os, fd);
    return rc;
}
