/* SPDX-License-Identifier: Apache-2.0 */
/* News between ranks whose checkpointers are made up: each says what it was told to happen, and counts how often it is
 * asked to look.
 *
 *     mpirun -n 3 news_probe */
#include "mpi/ranks.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct bw_event happened[8];
static unsigned count, looks;
static struct bw_mpi ranks;

/* --- in place of the library's ----------------------------------------------------------------------------------- */

int bw_checkpointer_poll(struct bw_checkpointer *ck, struct bw_event *ret_event) {
    (void)ck;
    if (count == 0) return 0;
    *ret_event = happened[0];
    memmove(happened, happened + 1, --count * sizeof *happened);
    return 1;
}

void bw_checkpointer_look(struct bw_checkpointer *ck) {
    (void)ck;
    looks++;
}

/* --- the steps --------------------------------------------------------------------------------------------------- */

static void happens(uint32_t type, uint64_t step, uint32_t level, int status) {
    happened[count++] = (struct bw_event){.type = type, .step = step, .level = level, .status = status};
}

/* All ranks move their news until nothing can be under way any more. */
static void settle(void) {
    for (int i = 0; i < 20; i++) {
        bwi_mpi_news_move(&ranks);
        MPI_Barrier(MPI_COMM_WORLD);
        bwi_mpi_pause(4);
    }
}

static void expect(const char *what, unsigned found, unsigned wanted) {
    if (found == wanted) return;
    printf("rank %u: %s: %u, not %u\n", (unsigned)ranks.rank, what, found, wanted);
    fflush(stdout);
    MPI_Abort(MPI_COMM_WORLD, 1);
}

static unsigned told_by(uint32_t rank) {
    unsigned n = 0;
    for (uint32_t i = 0; i < ranks.event_count; i++) n += ranks.events[i].rank == rank;
    return n;
}

static void the_last_arrival_makes_rank_0_look(void) {
    const unsigned rank = ranks.rank;
    if (rank != 2) happens(BW_EVENT_LEVEL, 10, BW_REMOTE, 0);
    settle();
    expect("looks before all have arrived", looks, 0);
    if (rank == 2) happens(BW_EVENT_LEVEL, 10, BW_REMOTE, 0);
    settle();
    expect("looks once all have arrived", looks, rank == 0);
}

static void a_commit_makes_the_others_look(void) {
    looks = 0;
    if (ranks.rank == 0) happens(BW_EVENT_SAVE_ENDED, 10, BW_COMMITTED, 0);
    settle();
    expect("looks after a commit", looks, ranks.rank != 0);
}

static void a_failure_is_told_to_all_once(void) {
    looks = 0;
    ranks.event_count = 0;
    if (ranks.rank == 1) happens(BW_EVENT_SAVE_ENDED, 20, BW_CAPTURED, BW_E_NOSPACE);
    settle();
    expect("events of rank 1", told_by(1), 1);
    expect("looks after a failure", looks > 0, ranks.rank != 1); /* its own session knows */
    looks = 0;
    if (ranks.rank != 1) happens(BW_EVENT_SAVE_ENDED, 20, BW_REMOTE, BW_E_ABORTED); /* as the history told all */
    if (ranks.rank == 2) happens(BW_EVENT_SAVE_ENDED, 20, BW_CAPTURED, BW_E_NOSPACE);
    settle();
    expect("events of rank 0", told_by(0), ranks.rank == 0);
    expect("looks on rank 1 after a second failure", ranks.rank == 1 ? looks : 0, 0);
}

static void what_all_read_in_the_history_nobody_tells(void) {
    looks = 0;
    ranks.event_count = 0;
    happens(BW_EVENT_SAVE_ENDED, 25, BW_REMOTE, BW_E_ABORTED);
    settle();
    expect("events", ranks.event_count, 1);
    expect("looks", looks, 0);
}

static void what_is_in_flight_is_known(void) {
    happens(BW_EVENT_LEVEL, 30, BW_CAPTURED, 0);
    settle();
    expect("in flight", bwi_mpi_news_in_flight(&ranks), 1);
    happens(BW_EVENT_SAVE_ENDED, 30, BW_CAPTURED, BW_E_ABORTED);
    settle();
    expect("in flight at the end", bwi_mpi_news_in_flight(&ranks), 0);
}

static void the_end_waits_for_all_and_not_for_ever(void) {
    struct bw_error err = BW_ERROR_INIT;
    expect("the end", bwi_mpi_news_end(&ranks, MPI_Wtime() + 20) == 0 && !ranks.abandoned, 1);
    expect("what is still being sent", ranks.sending != NULL, 0);
    ranks.last_heard = 0;
    expect("start", bwi_mpi_news_start(&ranks, &err) == 0, 1);
    MPI_Barrier(MPI_COMM_WORLD);
    if (ranks.rank != 2) expect("an end in vain", bwi_mpi_news_end(&ranks, MPI_Wtime() + 0.3) == BW_E_TIMEOUT, 1);
    if (ranks.rank != 2) expect("abandoned", ranks.abandoned, 1);
    MPI_Barrier(MPI_COMM_WORLD);
}

int main(int argc, char **argv) {
    struct bw_error err = BW_ERROR_INIT;
    MPI_Init(&argc, &argv);
    ranks.receiving = ranks.request = MPI_REQUEST_NULL;
    ranks.ck = (struct bw_checkpointer *)(void *)&ranks;
    if (bwi_mpi_duplicate(&ranks, MPI_COMM_WORLD, MPI_Wtime() + 20, &err) < 0 || bwi_mpi_news_start(&ranks, &err) < 0) {
        printf("%s\n", err.message);
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    the_last_arrival_makes_rank_0_look();
    a_commit_makes_the_others_look();
    a_failure_is_told_to_all_once();
    what_all_read_in_the_history_nobody_tells();
    what_is_in_flight_is_known();
    the_end_waits_for_all_and_not_for_ever();
    printf("rank %u is done\n", (unsigned)ranks.rank);
    fflush(stdout);
    MPI_Barrier(MPI_COMM_WORLD); /* mpirun ends the others with the first */
    _Exit(0);                    /* what was left in vain is not waited for */
}
