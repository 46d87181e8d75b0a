/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file mpi.h
 * Breakwater for the ranks of an MPI communicator. Of a library of its own,
 * libbreakwater-mpi, which is there where Breakwater was built with an MPI;
 * breakwater.h does not include this.
 *
 *     MPI_Init(&argc, &argv);
 *     struct bw_options o = BW_OPTIONS_INIT;
 *     o.run = "gpt"; o.local_url = "/nvme/bw"; o.remote_url = "/lustre/bw";
 *     struct bw_mpi *ranks = NULL;
 *     if (bw_mpi_open(MPI_COMM_WORLD, &o, &ranks, &err) < 0) ...
 *     struct bw_checkpointer *ck = bw_mpi_checkpointer(ranks);
 *     ... bw_checkpointer_resumed, restore.h, save.h, as without MPI ...
 *     while (bw_mpi_poll(ranks, &event)) ...              (once a step: takes and sends news)
 *     bw_mpi_close(ranks, 60000, &err);
 *     MPI_Finalize();
 *
 *     mpicc -std=c17 train.c $(pkg-config --cflags --libs breakwater-mpi)
 *
 * What it does
 *   - **Who we are.** Rank and world are the communicator's. Rank 0 draws the launch id and
 *     finds out the job id, and tells both to the others.
 *   - **All or none.** The step to go on from is agreed upon through the remote store, as
 *     without MPI: the newest that all ranks can have, committed or complete on the nodes'
 *     tiers. bw_mpi_open then succeeds on all ranks, or fails on all of them.
 *   - **News at once.** Rank 0 hears by a message when the last rank's data has arrived, and
 *     looks then, not when its pause is over; so do the others when a checkpoint is committed.
 *     A save that fails on one rank is told to all, with the reason.
 *
 * What it does not do
 *   Nothing is believed because of a message: it says when to look, and what counts is what the
 *   store says. A level is announced by bw_save_wait and the events only when it is true. If no
 *   message ever arrived, all would go on as without MPI, at the pace of its looks.
 *
 * No hang
 *   - Messages go over a duplicate of the communicator, so they never meet the training's.
 *   - All communication is non-blocking and has a deadline: `open_timeout_ms` (and up to 35 s for
 *     ranks whose own opening ends at that moment), the time-out of a close. What MPI has not
 *     finished by then is left to it: the duplicate and a few hundred bytes per rank are not given
 *     back before MPI_Finalize.
 *   - What MPI itself does is not ours to change: by default a process that dies takes the whole
 *     job with it (MPI_ERRORS_ARE_FATAL, and the launcher ends the rest), which is what a
 *     checkpointed job wants: it is started again, as a new launch. Only where the launcher lets
 *     the others live are the deadlines above what ends their waits. MPI_Finalize may wait for all.
 *
 * The job id
 *   What the launcher keeps over its restarts. In this order: `job` of the options; BW_JOB in rank
 *   0's environment (in Kubernetes to be set from a label, such as the Job's controller uid: a pod
 *   does not know it otherwise); SLURM_JOB_ID with the cluster's name, which a requeued job keeps;
 *   PBS_JOBID; LSB_JOBID; else the process that started rank 0, or that started the mpirun which
 *   did: host, number, boot and start of the script or shell. Open MPI's own ids are none: mpirun
 *   derives them from its process number, and each start has another. Where rank 0 may come back on
 *   another machine, or from another shell, give `job` or BW_JOB.
 *
 * Threads
 *   There is none in here, and no MPI call but in these functions, on the thread that calls
 *   them: MPI_THREAD_SINGLE is enough. Calls on one `struct bw_mpi` must not overlap, and where MPI
 *   was initialised with less than MPI_THREAD_MULTIPLE, not with other MPI calls either.
 *   News move only while one of these functions runs.
 *
 * Caveats
 *   - All ranks run on machines with the same byte order.
 *   - Events come from bw_mpi_poll: whoever calls bw_checkpointer_poll takes away what others
 *     would have been told by message (and learn from the store a little later).
 */
#ifndef BW_MPI_H
#define BW_MPI_H

#include <breakwater/save.h>
#include <mpi.h>

#ifdef __cplusplus
extern "C" {
#endif

/** The ranks of a launch, and this rank's checkpointer. Opaque; opened by bw_mpi_open. */
struct bw_mpi;

/**
 * Opens a run for all ranks of a communicator. Every rank calls it, with the same options;
 * between MPI_Init and MPI_Finalize.
 *
 * Where one rank cannot open, all of them fail: that rank with its error, the others with the same
 * status and a message that names it. They learn of it at once if they are open themselves; while they
 * still wait in the store for that rank, at their `open_timeout_ms` (see bw_checkpointer_open).
 *
 * @param comm       an intracommunicator; duplicated, and not used beyond that
 * @param options    borrowed for the call. `rank` and `world` are taken from `comm`; `job` and `launch` may
 *                   be NULL, then rank 0 finds and draws them; where they are given, rank 0's count
 * @param ret_ranks  set on success; close with bw_mpi_close
 * @return 0; BW_E_STATE (MPI is not initialised, or is finalised); BW_E_TIMEOUT (a rank has not called
 *         it in time, or not come back from its opening); BW_E_IO (MPI refused a call); what
 *         bw_checkpointer_open returns
 */
BW_API int bw_mpi_open(MPI_Comm comm, const struct bw_options *options, struct bw_mpi **ret_ranks,
                       struct bw_error *err);

/** This rank's checkpointer: for saves and restores. It belongs to `ranks`: do not close it. */
BW_API struct bw_checkpointer *bw_mpi_checkpointer(struct bw_mpi *ranks);

/** Something that happened, here or on another rank. */
struct bw_mpi_event {
    /** What happened. Of another rank only BW_EVENT_SAVE_ENDED with its failure, and BW_EVENT_ATTEMPT. */
    struct bw_event event;
    /** The rank that tells it. An own save that failed because of that is told as well, once the store says so. */
    uint32_t rank;
    /** 0. */
    uint32_t reserved;
};

/**
 * Sends and takes news, and takes the oldest event. Call it until it returns 0, about once a step.
 * Returns 1, or 0 when there is none. Never blocks.
 */
BW_API int bw_mpi_poll(struct bw_mpi *ranks, struct bw_mpi_event *ret_event);

/**
 * bw_save_wait, with news sent and taken meanwhile. Ranks that only call bw_save_wait
 * are told the same, at the pace of the store.
 *
 * @return as bw_save_wait
 */
BW_API int bw_mpi_wait(struct bw_mpi *ranks, struct bw_save *save, enum bw_level level, uint64_t timeout_ms,
                       struct bw_error *err);

/**
 * Ends it: sends and takes news until what is in flight has ended, closes the checkpointer
 * (bw_checkpointer_close) and gives the duplicate of the communicator back once all ranks have come here;
 * who does not come is waited for no longer than `timeout_ms`, at least one second. Not to be called
 * while restore objects are open (BW_E_STATE; all stays open). Always frees `ranks` otherwise; after
 * MPI_Finalize without a word to the others.
 *
 * @return as bw_checkpointer_close
 */
BW_API int bw_mpi_close(struct bw_mpi *ranks, uint64_t timeout_ms, struct bw_error *err);

#ifdef __cplusplus
}
#endif

#endif
