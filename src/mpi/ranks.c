/* SPDX-License-Identifier: Apache-2.0 */
/* bw_mpi_*: the ranks of a communicator as the ranks of a launch. doc/flows/mpi.md. */
#include "mpi/ranks.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Opening may end so much after its deadline, where a mount does not answer; and a moment for hearing of it. */
#define OPEN_EXTRA_S  35.0
#define CLOSE_LEAST_S 1.0
#define SLICE_MS      5u

static double deadline(uint64_t timeout_ms) {
    return MPI_Wtime() + (double)timeout_ms / 1000;
}

static uint64_t left_ms(double until) {
    const double left = (until - MPI_Wtime()) * 1000;
    return left <= 0 ? 0 : left > 1e15 ? UINT64_C(1000000000000000) : (uint64_t)left;
}

static bool mpi_lives(void) {
    int initialized = 0, finalized = 0;
    return MPI_Initialized(&initialized) == MPI_SUCCESS && MPI_Finalized(&finalized) == MPI_SUCCESS && initialized &&
           !finalized;
}

static void free_ranks(struct bw_mpi *m) {
    if (m->abandoned) return; /* MPI may still write to it */
    if (m->comm != MPI_COMM_NULL) MPI_Comm_free(&m->comm);
    free(m);
}

/* --- open -------------------------------------------------------------------------------------------------------- */

/* Given by the caller: too long, it would be cut to one that is another's. */
static void take_given(struct bwi_mpi_told *told, char ret[BWI_MPI_ID_BYTES], const char *option, const char *given) {
    const int n = snprintf(ret, BWI_MPI_ID_BYTES, "%s", given);
    if (n < (int)BWI_MPI_ID_BYTES || told->status < 0) return;
    told->status = BW_E_INVALID;
    snprintf(told->message, sizeof told->message, "option %s has %d bytes: expected %u at most", option, n,
             BWI_MPI_ID_BYTES - 1);
}

/* What rank 0 tells the others. What else is wrong with ids is found by every rank's opening. */
static void find_out(struct bwi_mpi_told *told, const struct bw_options *o) {
    int rc = 0;
    *told = (struct bwi_mpi_told){0};
    if (o->job)
        take_given(told, told->job, "job", o->job);
    else
        bwi_mpi_job(told->job);
    if (o->launch)
        take_given(told, told->launch, "launch", o->launch);
    else
        rc = bwi_mpi_draw_launch(told->launch);
    if (rc == 0) return;
    told->status = BW_E_IO;
    snprintf(told->message, sizeof told->message, "draw a launch id: %s", strerror(rc));
}

/* The caller may have been compiled against an older header; bw_checkpointer_open says what it thinks of the size. */
static struct bw_options options_of(const struct bw_mpi *m, const struct bw_options *given, double until) {
    struct bw_options o = BW_OPTIONS_INIT;
    memcpy(&o, given, given->struct_size < sizeof o ? given->struct_size : sizeof o);
    o.struct_size = given->struct_size;
    o.rank = m->rank;
    o.world = m->world;
    o.job = m->told.job;
    o.launch = m->told.launch;
    o.open_timeout_ms = left_ms(until);
    return o;
}

static int open_all(struct bw_mpi *m, MPI_Comm comm, const struct bw_options *given, struct bw_error *err) {
    struct bw_options defaults = BW_OPTIONS_INIT, o;
    struct bw_error own = BW_ERROR_INIT, theirs = BW_ERROR_INIT;
    memcpy(&defaults, given, given->struct_size < sizeof defaults ? given->struct_size : sizeof defaults);
    const double until = deadline(defaults.open_timeout_ms);
    int rc = bwi_mpi_duplicate(m, comm, until, err);
    if (rc < 0) return rc;
    if (m->rank == 0) find_out(&m->told, &defaults);
    rc = bwi_mpi_hear(m, until, err);
    if (rc < 0) return rc;
    o = options_of(m, given, until);
    bw_checkpointer_open(&o, &m->ck, &own);
    rc = bwi_mpi_agree(m, &own, until + OPEN_EXTRA_S, &theirs);
    if (rc == 0) rc = bwi_mpi_news_start(m, &theirs);
    if (rc == 0) return 0;
    if (err) *err = own.status < 0 ? own : theirs;
    return own.status < 0 ? own.status : rc;
}

int bw_mpi_open(MPI_Comm comm, const struct bw_options *options, struct bw_mpi **ret_ranks, struct bw_error *err) {
    bw_error_clear(err);
    if (!options || !ret_ranks || comm == MPI_COMM_NULL)
        return bwi_mpi_error(err, BW_E_INVALID, "%s is null",
                             !options     ? "options"
                             : !ret_ranks ? "ret_ranks"
                                          : "the communicator");
    if (!mpi_lives()) return bwi_mpi_error(err, BW_E_STATE, "MPI is not initialised, or is finalised already");
    struct bw_mpi *m = calloc(1, sizeof *m);
    if (!m) return bwi_mpi_error(err, BW_E_NOMEM, "no memory for %zu bytes (ranks)", sizeof *m);
    m->comm = MPI_COMM_NULL;
    m->request = m->receiving = MPI_REQUEST_NULL;
    const int rc = open_all(m, comm, options, err);
    if (rc < 0) {
        if (m->ck) bw_checkpointer_close(m->ck, 0, NULL);
        free_ranks(m);
        return rc;
    }
    *ret_ranks = m;
    return 0;
}

struct bw_checkpointer *bw_mpi_checkpointer(struct bw_mpi *ranks) {
    return ranks ? ranks->ck : NULL;
}

/* --- meanwhile --------------------------------------------------------------------------------------------------- */

int bw_mpi_poll(struct bw_mpi *ranks, struct bw_mpi_event *ret_event) {
    if (!ranks || !ret_event) return 0;
    if (mpi_lives()) bwi_mpi_news_move(ranks);
    if (ranks->event_count == 0) return 0;
    *ret_event = ranks->events[ranks->event_at];
    ret_event->event.lost += ranks->event_lost;
    ranks->event_lost = 0;
    ranks->event_at = (ranks->event_at + 1) % BWI_MPI_EVENTS_MAX;
    ranks->event_count--;
    return 1;
}

int bw_mpi_wait(struct bw_mpi *ranks, struct bw_save *save, enum bw_level level, uint64_t timeout_ms,
                struct bw_error *err) {
    bw_error_clear(err);
    if (!ranks) return bwi_mpi_error(err, BW_E_INVALID, "ranks is null");
    const double until = deadline(timeout_ms);
    for (;;) {
        if (mpi_lives()) bwi_mpi_news_move(ranks);
        const uint64_t left = left_ms(until);
        const int rc = bw_save_wait(save, level, left < SLICE_MS ? left : SLICE_MS, err);
        if (rc == 0 && mpi_lives()) bwi_mpi_news_move(ranks);
        if (rc != BW_E_TIMEOUT || left == 0) return rc;
    }
}

/* --- close ------------------------------------------------------------------------------------------------------- */

int bw_mpi_close(struct bw_mpi *ranks, uint64_t timeout_ms, struct bw_error *err) {
    bw_error_clear(err);
    if (!ranks) return 0;
    const double until = deadline(timeout_ms);
    const bool lives = mpi_lives();
    for (unsigned looks = 0; lives && left_ms(until) > 0; looks++) {
        bwi_mpi_news_move(ranks);
        if (!bwi_mpi_news_in_flight(ranks)) break;
        bwi_mpi_pause(looks);
    }
    const int rc = bw_checkpointer_close(ranks->ck, left_ms(until), err);
    if (rc == BW_E_STATE) return rc; /* it is still open */
    ranks->ck = NULL;
    const double least = MPI_Wtime() + CLOSE_LEAST_S;
    if (!lives)
        ranks->abandoned = true;
    else
        bwi_mpi_news_end(ranks, until > least ? until : least);
    free_ranks(ranks);
    return rc;
}
