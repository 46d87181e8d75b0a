/* SPDX-License-Identifier: Apache-2.0 */
/* The ranks of a launch over MPI. Used in here only.
 *
 *     agree.c  what all ranks do together, each with a deadline: duplicate the communicator, hear of rank 0, agree
 *     news.c   messages between rank 0 and the others, one at a time, whenever somebody calls
 *     ranks.c  the public functions
 *
 * A request that MPI has not finished by its deadline cannot be taken back, and MPI may still write where it was told
 * to. Everything that a request points to therefore lies in struct bw_mpi or on the heap, and is left there for good
 * (`abandoned`) instead of being freed. */
#ifndef BWI_MPI_RANKS_H
#define BWI_MPI_RANKS_H

#include "mpi/launcher.h"
#include <breakwater/mpi.h>
#include <stdbool.h>

#define BWI_MPI_EVENTS_MAX 256u
#define BWI_MPI_STEPS_MAX  64u /* as many saves as a session knows in flight */

/* --- agreeing ------------------------------------------------------------------------------------------------- */

/* What rank 0 says to all. */
struct bwi_mpi_told {
    int32_t status; /* of finding out; then `message` says why */
    char job[BWI_MPI_ID_BYTES], launch[BWI_MPI_ID_BYTES];
    char message[BW_ERROR_MESSAGE_BYTES];
};

/* The worst status, and who has it. In the form of MPI_2INT. */
struct bwi_mpi_worst {
    int status, rank;
};

/* --- news ----------------------------------------------------------------------------------------------------- */

enum bwi_mpi_kind {
    BWI_MPI_ARRIVED = 1, /* to rank 0: this rank's data of a step is in the authority */
    BWI_MPI_FAILED,      /* to rank 0, and from there to all: a save of this rank has failed, or its attempt is over */
    BWI_MPI_COMMITTED,   /* to all: look into the history */
    BWI_MPI_LAST,        /* nothing comes after this from this rank */
};

struct bwi_mpi_news {
    uint32_t kind; /* enum bwi_mpi_kind */
    uint32_t rank; /* whose news it is */
    struct bw_event event;
};

/* News on their way, to one rank or to all others. */
struct bwi_mpi_sending {
    struct bwi_mpi_sending *next;
    struct bwi_mpi_news news;
    int count;
    MPI_Request requests[];
};

/* What is known of a step that is being saved. */
struct bwi_mpi_step {
    uint64_t step;
    uint32_t arrived; /* rank 0: so many ranks' data is in the authority */
    bool in_flight;   /* captured here, and not ended */
    bool failed;      /* a failure was passed on: the first one is enough */
};

struct bw_mpi {
    MPI_Comm comm; /* the duplicate */
    uint32_t rank, world;
    struct bw_checkpointer *ck;
    bool abandoned; /* MPI has something of it that it does not give back */
    /* agreeing */
    MPI_Request request;
    struct bwi_mpi_told told;
    struct bwi_mpi_worst worst_of_mine, worst;
    /* news */
    MPI_Request receiving;
    struct bwi_mpi_news received;
    struct bwi_mpi_sending *sending;
    struct bwi_mpi_step steps[BWI_MPI_STEPS_MAX];
    size_t next_step;    /* its place is taken next */
    bool attempt_failed; /* told already */
    uint32_t last_heard; /* how many others have sent their last */
    double look_at;      /* MPI_Wtime at which to look into the history; 0: not asked to */
    struct bw_mpi_event events[BWI_MPI_EVENTS_MAX];
    uint32_t event_at, event_count, event_lost;
};

/* Sets *err unless it is set; returns the status. */
int bwi_mpi_error(struct bw_error *err, int status, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
/* The same for what MPI has returned; 0 for MPI_SUCCESS. */
int bwi_mpi_check(int code, const char *what, struct bw_error *err);
/* Sleeps between two looks at MPI: longer the longer nothing has come, from 50 us to 5 ms. */
void bwi_mpi_pause(unsigned looks);

/* agree.c. `until` is of MPI_Wtime. 0 or a negative status; BW_E_TIMEOUT abandons. */
int bwi_mpi_duplicate(struct bw_mpi *m, MPI_Comm comm, double until, struct bw_error *err);
/* Rank 0's told on all ranks. */
int bwi_mpi_hear(struct bw_mpi *m, double until, struct bw_error *err);
/* How it went on all ranks: 0 if nowhere it failed, else the error of the rank where it went worst. */
int bwi_mpi_agree(struct bw_mpi *m, const struct bw_error *mine, double until, struct bw_error *err);

/* news.c */
int bwi_mpi_news_start(struct bw_mpi *m, struct bw_error *err);
/* Takes this rank's events and what others have sent, and passes on what is to be. Never blocks. */
void bwi_mpi_news_move(struct bw_mpi *m);
bool bwi_mpi_news_in_flight(const struct bw_mpi *m); /* a save of this rank is */
/* Nothing more is sent from here; goes on receiving until nobody sends to this rank. BW_E_TIMEOUT abandons. */
int bwi_mpi_news_end(struct bw_mpi *m, double until);

#endif
