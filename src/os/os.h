/* SPDX-License-Identifier: Apache-2.0 */
/* The table of system calls. The only code that talks to the kernel is in os/; everything above gets one of these
 * tables, so that tests can make the n-th call fail (os_fault.c) and simulate a machine that forgets what was not
 * synced.
 *
 * All calls are safe on any thread, blocking, restart on EINTR, set O_CLOEXEC, and return a negative errno on failure.
 * No descriptor is 0, 1 or 2: in a process that has closed its standard streams, what it prints would land in a store.
 * Paths are relative to a directory descriptor. No call follows a symbolic link in the last component; opening what is
 * there refuses everything that is not a regular file (a FIFO or a device in a store must not block or be read).
 *
 * A write, truncate or reserve beyond RLIMIT_FSIZE raises SIGXFSZ, which kills by default, before it gives -EFBIG.
 * Library threads block the signal and get the error; whoever calls from a thread of the application leaves that choice
 * to the application. */
#ifndef BWI_OS_OS_H
#define BWI_OS_OS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Blocks of every disk that is usual; where it is not enough, the transfer is -EINVAL. */
#define BWI_OS_DIRECT_ALIGN 4096u

enum bwi_os_type { BWI_OS_FILE, BWI_OS_DIR, BWI_OS_SYMLINK, BWI_OS_FIFO, BWI_OS_SOCKET, BWI_OS_DEVICE, BWI_OS_OTHER };

struct bwi_os_stat {
    enum bwi_os_type type;
    uint64_t size_bytes;
    uint64_t nlink;
    uint64_t device; /* st_dev */
    uint64_t inode;
    int64_t mtime_ms;     /* wall clock; only for the age of leftovers */
    uint64_t alloc_bytes; /* st_blocks * 512 */
    int64_t birth_ns;     /* wall clock; of directories that stat_fd looked at, 0 where the file system does not say */
};

struct bwi_os_space {
    uint64_t free_bytes; /* for this user */
    uint64_t total_bytes;
    uint64_t fs_type; /* statfs f_type */
};

struct bwi_os_dirent {
    char name[256];
    enum bwi_os_type type;
};

/* The kinds of calls. */
enum bwi_os_call {
    BWI_OS_OPEN,
    BWI_OS_CLOSE,
    BWI_OS_READ,
    BWI_OS_WRITE,
    BWI_OS_FSYNC,
    BWI_OS_TRUNCATE,
    BWI_OS_RESERVE,
    BWI_OS_STAT,
    BWI_OS_LINK,
    BWI_OS_RENAME,
    BWI_OS_UNLINK,
    BWI_OS_MKDIR,
    BWI_OS_RMDIR,
    BWI_OS_READDIR,
    BWI_OS_SPACE,
    BWI_OS_LOCK,
    BWI_OS_CALLS
};

struct bwi_os_dir; /* an open listing */

struct bwi_os {
    /* Files. mode of new files 0600, of new directories 0700, whatever the umask says. */
    /* -> descriptor of a directory; symlinks are followed here only. create: makes what is missing (mkdir -p) and syncs
     * the directory above each one that it made and above the deepest one that it found. */
    int (*open_root)(struct bwi_os *os, const char *path, bool create);
    int (*open_dir)(struct bwi_os *os, int dirfd, const char *path); /* O_DIRECTORY | O_NOFOLLOW */
    int (*open_read)(struct bwi_os *os, int dirfd,
                     const char *path); /* regular files only, else -EINVAL (symlinks too) */
    int (*open_new)(struct bwi_os *os, int dirfd, const char *path); /* O_CREAT | O_EXCL | O_RDWR */
    /* A regular file to lock, made when it is missing. For reading and writing: NFS locks no other descriptor. */
    int (*open_lock)(struct bwi_os *os, int dirfd, const char *path);
    /* A regular file whose bytes are to be written over, for reading and writing, if it is nobody else's: -EBUSY where
     * another descriptor or a mapping has it open, or where it has a second name, another owner or another mode than
     * open_new would give it. Who opens it later sees it change. -EOPNOTSUPP where the kernel cannot tell, or NULL. */
    int (*open_alone)(struct bwi_os *os, int dirfd, const char *path);
    /* The file behind a descriptor opened a second time, past the page cache: for writing, else for reading. Offsets,
     * sizes and addresses of what moves through it are multiples of BWI_OS_DIRECT_ALIGN. Negative where it cannot, as
     * on file systems without it, or NULL. */
    int (*open_direct)(struct bwi_os *os, int fd, bool write);
    /* What addresses have to be multiples of on a descriptor for reading that open_direct gave: a power of two, at most
     * BWI_OS_DIRECT_ALIGN, which NULL stands for. */
    unsigned (*direct_memory)(struct bwi_os *os, int fd);
    /* How many of these bytes the page cache holds, to whole pages. Reads nothing. Negative, or NULL: nobody says. */
    int64_t (*cached)(struct bwi_os *os, int fd, uint64_t offset, uint64_t bytes);
    int (*close)(struct bwi_os *os, int fd);
    int64_t (*pread)(struct bwi_os *os, int fd, void *buf, size_t n,
                     uint64_t offset); /* may be short at the end only */
    int64_t (*pwrite)(struct bwi_os *os, int fd, const void *buf, size_t n,
                      uint64_t offset); /* n, or negative: never short */
    int (*fsync)(struct bwi_os *os, int fd);
    int (*truncate)(struct bwi_os *os, int fd, uint64_t size);
    int (*reserve)(struct bwi_os *os, int fd, uint64_t bytes); /* allocates [0, bytes) and makes the file as large, at
                                                                  least; -EOPNOTSUPP where it cannot */
    int (*stat_fd)(struct bwi_os *os, int fd, struct bwi_os_stat *ret);
    int (*stat_at)(struct bwi_os *os, int dirfd, const char *path, struct bwi_os_stat *ret); /* no follow */
    int (*link)(struct bwi_os *os, int dirfd, const char *from, const char *to); /* -EEXIST if `to` exists */
    int (*rename_new)(struct bwi_os *os, int dirfd, const char *from,
                      const char *to); /* -EEXIST; -EOPNOTSUPP where it cannot */
    int (*rename_over)(struct bwi_os *os, int dirfd, const char *from,
                       const char *to); /* repair of a damaged copy only */
    /* From one directory to another one. -EEXIST if `to` exists; -EOPNOTSUPP where it cannot, or NULL. */
    int (*move_new)(struct bwi_os *os, int from_dirfd, const char *from, int to_dirfd, const char *to);
    int (*unlink)(struct bwi_os *os, int dirfd, const char *path);
    int (*mkdir)(struct bwi_os *os, int dirfd, const char *path);
    int (*rmdir)(struct bwi_os *os, int dirfd, const char *path);
    int (*dir_open)(struct bwi_os *os, int dirfd, const char *path, struct bwi_os_dir **ret);
    int (*dir_next)(struct bwi_os *os, struct bwi_os_dir *d,
                    struct bwi_os_dirent *ret); /* 1, 0 at the end, negative; without . and .. */
    void (*dir_close)(struct bwi_os *os, struct bwi_os_dir *d);
    int (*space)(struct bwi_os *os, int fd, struct bwi_os_space *ret);
    int (*lock)(struct bwi_os *os, int fd);   /* flock exclusive, not waiting: -EWOULDBLOCK when taken */
    int (*unlock)(struct bwi_os *os, int fd); /* at once: a forked child keeps what close alone would let go of */
    int (*advise_done)(struct bwi_os *os, int fd, uint64_t offset,
                       uint64_t bytes); /* the page cache may drop these bytes */
    /* Begins to bring to the disk what has been written there, and waits for nothing. NULL: nobody begins. */
    int (*write_behind)(struct bwi_os *os, int fd, uint64_t offset, uint64_t bytes);
    /* Whether a ring of the kernel's may carry out a read, write or fsync on a descriptor of this table in the table's
     * stead: 0, or the error that the call has to give. NULL: it may not. */
    int (*admit)(struct bwi_os *os, enum bwi_os_call call);
};

/* The kernel's. Shared, immutable. */
struct bwi_os *bwi_os_system(void);

/* A table in front of another one that counts calls and makes one of them fail. */
struct bwi_os_fault;
int bwi_os_fault_new(struct bwi_os *below, struct bwi_os_fault **ret);
void bwi_os_fault_free(struct bwi_os_fault *f);
struct bwi_os *bwi_os_fault_table(struct bwi_os_fault *f);
/* The n-th call from now (1 = next) of the kinds in `mask` (bit per enum bwi_os_call) fails with `err`; for `repeat`
 * calls (UINT64_MAX: from then on for ever). n = 0 switches it off. A failing pwrite has written half of its bytes. A
 * failing close has closed; nothing else that fails has happened. A listing counts as READDIR, its opening too;
 * cached counts as STAT. unlock, advise_done, write_behind, direct_memory and dir_close are not counted and never fail.
 * The sign of `err` does not matter. */
void bwi_os_fault_at(struct bwi_os_fault *f, uint64_t n, uint64_t repeat, uint32_t mask, int err);
uint64_t bwi_os_fault_fired(const struct bwi_os_fault *f);                        /* how often a fault was delivered */
uint64_t bwi_os_fault_count(const struct bwi_os_fault *f, enum bwi_os_call call); /* calls of a kind since the start */

/* This process, as bwi_host_check tells a forked child from the one that made a handle. A system call. */
uint64_t bwi_os_process(void);
/* The same without a system call: a word on a page of its own, 1 here and 0 in every child that has a copy of this
 * memory, because the kernel wipes the page, however the child was made. A child that shares the memory itself (vfork,
 * CLONE_VM) sees 1, and is right: whoever serves the parent there serves it too. NULL: the kernel cannot, or there is
 * no memory. */
const volatile uint32_t *bwi_os_birthmark(void);
void bwi_os_birthmark_free(const volatile uint32_t *mark);
/* The host's name, "unknown" where the kernel does not say. */
void bwi_os_hostname(char *buf, size_t buf_bytes);
/* Resident set and huge pages of this process, in bytes; 0 where /proc is not there. */
uint64_t bwi_os_rss_bytes(void);
unsigned bwi_os_cpus(void); /* CPUs this process may run on, at least 1 */

#endif
