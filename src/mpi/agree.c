/* SPDX-License-Identifier: Apache-2.0 */
/* What all ranks do together. Every collective is a non-blocking one that is asked for until it is done or its deadline
 * has passed. doc/flows/mpi.md. */
#include "mpi/ranks.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

int bwi_mpi_error(struct bw_error *err, int status, const char *fmt, ...) {
    if (!err || err->status < 0) return status;
    err->status = status;
    va_list args;
    va_start(args, fmt);
    vsnprintf(err->message, sizeof err->message, fmt, args);
    va_end(args);
    return status;
}

int bwi_mpi_check(int code, const char *what, struct bw_error *err) {
    char text[MPI_MAX_ERROR_STRING] = "";
    int n = 0;
    if (code == MPI_SUCCESS) return 0;
    if (MPI_Error_string(code, text, &n) != MPI_SUCCESS) snprintf(text, sizeof text, "error %d", code);
    return bwi_mpi_error(err, BW_E_IO, "%s: %.300s", what, text);
}

void bwi_mpi_pause(unsigned looks) {
    const unsigned doublings = looks / 4 < 7 ? looks / 4 : 7;
    const long ns = 50000L << doublings;
    const struct timespec t = {.tv_nsec = ns < 5000000L ? ns : 5000000L};
    nanosleep(&t, NULL);
}

static int finish(struct bw_mpi *m, const char *what, double until, struct bw_error *err) {
    for (unsigned looks = 0;; looks++) {
        int done = 0;
        const int rc = bwi_mpi_check(MPI_Test(&m->request, &done, MPI_STATUS_IGNORE), what, err);
        if (rc < 0) m->abandoned = true;
        if (rc < 0 || done) return rc;
        if (MPI_Wtime() > until) break;
        bwi_mpi_pause(looks);
    }
    m->abandoned = true;
    return bwi_mpi_error(err, BW_E_TIMEOUT, "%s: not all of the %u ranks have come by the deadline", what,
                         (unsigned)m->world);
}

int bwi_mpi_duplicate(struct bw_mpi *m, MPI_Comm comm, double until, struct bw_error *err) {
    static const char what[] = "duplicate the communicator";
    int rank = 0, world = 0;
    int rc = bwi_mpi_check(MPI_Comm_rank(comm, &rank), "ask for the rank", err);
    if (rc == 0) rc = bwi_mpi_check(MPI_Comm_size(comm, &world), "ask for the number of ranks", err);
    m->rank = (uint32_t)rank;
    m->world = (uint32_t)world;
    if (rc == 0) rc = bwi_mpi_check(MPI_Comm_idup(comm, &m->comm, &m->request), what, err);
    if (rc == 0) rc = finish(m, what, until, err);
    return rc == 0 ? bwi_mpi_check(MPI_Comm_set_errhandler(m->comm, MPI_ERRORS_RETURN), what, err) : rc;
}

static int broadcast(struct bw_mpi *m, int from, const char *what, double until, struct bw_error *err) {
    const int rc =
        bwi_mpi_check(MPI_Ibcast(&m->told, (int)sizeof m->told, MPI_BYTE, from, m->comm, &m->request), what, err);
    return rc == 0 ? finish(m, what, until, err) : rc;
}

int bwi_mpi_hear(struct bw_mpi *m, double until, struct bw_error *err) {
    const int rc = broadcast(m, 0, "hear from rank 0 which launch this is", until, err);
    if (rc < 0 || m->told.status == 0) return rc;
    return bwi_mpi_error(err, m->told.status, "rank 0: %.400s", m->told.message);
}

int bwi_mpi_agree(struct bw_mpi *m, const struct bw_error *mine, double until, struct bw_error *err) {
    static const char what[] = "hear from all ranks whether they are open";
    m->worst_of_mine = (struct bwi_mpi_worst){mine->status, (int)m->rank};
    int rc = bwi_mpi_check(MPI_Iallreduce(&m->worst_of_mine, &m->worst, 1, MPI_2INT, MPI_MINLOC, m->comm, &m->request),
                           what, err);
    if (rc == 0) rc = finish(m, what, until, err);
    if (rc < 0 || m->worst.status >= 0) return rc;
    m->told = (struct bwi_mpi_told){.status = mine->status};
    memcpy(m->told.message, mine->message, sizeof m->told.message);
    rc = broadcast(m, m->worst.rank, what, until, err);
    return rc < 0 ? rc : bwi_mpi_error(err, m->worst.status, "rank %d: %.450s", m->worst.rank, m->told.message);
}
