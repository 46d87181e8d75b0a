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

#endif
