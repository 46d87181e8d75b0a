/* SPDX-License-Identifier: Apache-2.0 */
/* What this machine and a directory of it can do, found out by trying: io_uring, userfaultfd, huge pages, limits,
 * direct I/O. A probe changes nothing that outlives it, and never fails as a whole: what cannot be found out is said
 * so, member by member. */
#ifndef BWI_OS_PROBE_H
#define BWI_OS_PROBE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define BWI_PROBE_THREADS 33u /* a handle starts no more by itself: for transfers, for capturing, and the loop */
#define BWI_PROBE_MEMORY  ((size_t)64 << 20) /* that a ring is asked to know: the least memory budget */

struct bwi_probe_machine {
    char kernel[136];               /* "Linux 6.1.0-18-amd64"; "" unknown */
    unsigned cpus;                  /* that this process may run on */
    uint64_t memory_bytes;          /* of the machine; 0 unknown */
    uint64_t memory_free_bytes;     /* available without swapping; 0 unknown */
    uint64_t memlock_bytes;         /* RLIMIT_MEMLOCK, soft; UINT64_MAX: no limit */
    uint64_t descriptors;           /* RLIMIT_NOFILE, soft; UINT64_MAX: no limit */
    uint64_t descriptors_max;       /* hard */
    int io_uring;                   /* 0: a ring could be made; else a negative errno */
    int ring_memory;                /* 0: a ring took memory to know; else a negative errno. As io_uring without one */
    int io_uring_disabled;          /* kernel.io_uring_disabled: 0, 1 (unprivileged), 2 (all); -1: no such setting */
    int userfaultfd;                /* 0: faults can be handled; else a negative errno */
    bool userfaultfd_user_only;     /* only faults in user mode: the kernel's own copies into protected memory fail */
    bool userfaultfd_write_protect; /* write faults on protected pages can be handled */
    int protection;                 /* 0: memory can be protected as a handle does it; else a negative errno */
    int userfaultfd_unprivileged;   /* vm.unprivileged_userfaultfd: 0, 1; -1: no such setting */
    unsigned threads;               /* that could be started beside each other, of BWI_PROBE_THREADS */
    int thread_error;               /* why not all of them: a negative errno; 0 */
    char huge_pages[16];            /* transparent ones: "always", "madvise", "never"; "": this kernel has none */
    uint64_t huge_page_bytes;       /* size of a transparent huge page; 0 unknown */
    uint64_t shm_bytes, shm_free_bytes; /* of /dev/shm; 0 when there is none */
};
void bwi_probe_machine(struct bwi_probe_machine *ret);

struct bwi_probe_dir {
    char fs_name[16];    /* "ext4", "xfs", "nfs"; "0x1234abcd" where it has no name here */
    uint64_t device;     /* st_dev */
    uint64_t free_bytes; /* for this user */
    uint64_t total_bytes;
    int write;  /* 0: a file could be made, written and read back; else a negative errno */
    int direct; /* the same with O_DIRECT, 4 KiB aligned. -EINVAL: it is refused. -EILSEQ: other bytes came back.
                   As `write` where no file could be made */
};
/* Tries a file without a name in the directory `path`, or one that is removed at once where there are no such files.
 * A negative errno when the directory cannot be opened or asked; *ret is void then. */
int bwi_probe_dir(const char *path, struct bwi_probe_dir *ret);

/* The mode in brackets of a line like "always [madvise] never". false: there is none, or it does not fit. */
bool bwi_probe_choice(const char *line, char *ret, size_t ret_bytes);
/* The name of a file system by its magic number; the number in hex where it is not known. */
void bwi_probe_fs_name(uint64_t fs_type, char *ret, size_t ret_bytes);

#endif
