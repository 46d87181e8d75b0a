/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file io.h
 * How bytes move between memory and the tiers.
 *
 * Whatever is chosen, the bytes are the same, and so are the guarantees; only the speed and
 * what it costs differ. What really ran is told: by bw_save_stats of each save
 * (`write_path`), by bw_checkpointer_stats (`io_backend`), and by bw_doctor.
 */
#ifndef BW_IO_H
#define BW_IO_H

/** What carries reads, writes and syncs out. */
enum bw_io_backend {
    /**
     * An io_uring where the kernel gives one, threads where it does not: containers and
     * sysctls often forbid it (EPERM), old kernels do not know it (ENOSYS).
     */
    BW_IO_AUTO = 0,
    /** A pool of threads that call pread, pwrite and fsync: works everywhere. */
    BW_IO_THREADS = 1,
    /** An io_uring, or BW_E_UNSUPPORTED: for those who would rather know. */
    BW_IO_URING = 2,
};

/**
 * How a save gets hold of the tensors as they are at start. Which one ran is in the save's
 * statistics (`capture_mode`), and why not the other one (`capture_why`).
 */
enum bw_capture {
    /** They are copied; they must be left alone until CAPTURED. Works for every memory. */
    BW_CAPTURE_COPY = 0,
    /**
     * They are write-protected (userfaultfd) and copied in the background: they may be written as soon
     * as bw_save_wait_writable has returned. A write to a piece that has not been copied yet puts two
     * megabytes aside, or waits until they are copied where the memory budget has no room for them.
     * For memory that this process alone writes; see BW_TENSOR_DEVICE. Until CAPTURED it must not be
     * freed, unmapped, moved, re-protected or given back (MADV_DONTNEED, MADV_FREE). Copies instead,
     * where the kernel does not permit it, or where it is not worth it: on pages of 4 KiB protecting
     * costs as much as copying.
     */
    BW_CAPTURE_COW = 1,
};

#endif
