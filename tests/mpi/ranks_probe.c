/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks that do what mpi_test.py asks for, and say how it went.
 *
 *     mpirun -n N ranks_probe SCENARIO REMOTE_URL */
#include <breakwater/breakwater.h>
#include <breakwater/mpi.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define WAIT_MS 20000

static int rank, world;
static double began;

static void say(const char *what, int rc, const struct bw_error *err) {
    printf("rank %d: %s: %s after %.0f s: %s\n", rank, what, bw_status_name(rc), MPI_Wtime() - began, err->message);
    fflush(stdout);
}

static struct bw_options options_of(const char *url, uint64_t open_timeout_ms) {
    struct bw_options o = BW_OPTIONS_INIT;
    o.run = "probe", o.remote_url = url, o.memory_budget_bytes = 64 << 20, o.open_timeout_ms = open_timeout_ms;
    o.flags = BW_ALLOW_NODE_LOCAL;
    return o;
}

static struct bw_mpi *open_ranks(const struct bw_options *o) {
    struct bw_mpi *ranks = NULL;
    struct bw_resumed from;
    struct bw_error err = BW_ERROR_INIT;
    const int rc = bw_mpi_open(MPI_COMM_WORLD, o, &ranks, &err);
    say("open", rc, &err);
    if (rc < 0) return NULL;
    bw_checkpointer_resumed(bw_mpi_checkpointer(ranks), &from);
    printf("rank %d: attempt %u from step %d\n", rank, (unsigned)from.attempt,
           from.from_checkpoint ? (int)from.step : -1);
    return ranks;
}

static struct bw_save *start(struct bw_mpi *ranks, uint64_t step) {
    static double value[64];
    const uint64_t shape = 64, offset = (uint64_t)(64 * rank / world), end = (uint64_t)(64 * (rank + 1) / world);
    const uint64_t extent = end - offset;
    struct bw_tensor t = BW_TENSOR_INIT;
    struct bw_save *v = NULL;
    t.name = "value", t.dtype = BW_F64, t.dims = 1, t.shape = &shape, t.offset = &offset, t.extent = &extent;
    t.data = value + offset;
    if (bw_save_begin(bw_mpi_checkpointer(ranks), step, &v, NULL) == 0 && bw_save_tensor(v, &t, NULL) == 0)
        bw_save_start(v, NULL);
    return v;
}

static void save(struct bw_mpi *ranks, uint64_t step, int cancel) {
    struct bw_error err = BW_ERROR_INIT;
    struct bw_save *v = start(ranks, step);
    if (cancel) bw_save_cancel(v, &err);
    say(step == 1 ? "step 1" : "step 2", bw_mpi_wait(ranks, v, BW_COMMITTED, WAIT_MS, &err), &err);
    bw_save_release(v);
}

/* What other ranks have told. */
static void say_events(struct bw_mpi *ranks) {
    struct bw_mpi_event e;
    for (int i = 0; i < 500; i++, usleep(2000))
        while (bw_mpi_poll(ranks, &e))
            if (e.rank != (uint32_t)rank)
                printf("rank %d: hears of rank %u, step %d: %s: %s\n", rank, (unsigned)e.rank, (int)e.event.step,
                       bw_status_name(e.event.status), e.event.message);
}

static void end(struct bw_mpi *ranks, uint64_t timeout_ms) {
    struct bw_error err = BW_ERROR_INIT;
    const int rc = bw_mpi_close(ranks, timeout_ms, &err);
    say("close", rc, &err);
}

/* --- the scenarios --------------------------------------------------------------------------------------------- */

/* Twice in one process: each opening is a launch of its own. */
static int twice(const char *url) {
    const struct bw_options o = options_of(url, WAIT_MS);
    for (uint64_t step = 1; step <= 2; step++) {
        struct bw_mpi *ranks = open_ranks(&o);
        if (!ranks) return 1;
        save(ranks, step, 0);
        end(ranks, WAIT_MS);
    }
    return 0;
}

/* The last rank never opens. */
static int absent(const char *url) {
    const struct bw_options o = options_of(url, 1000);
    if (rank != world - 1) open_ranks(&o);
    sleep(rank == world - 1 ? 2 : 1); /* mpirun ends the others with the first */
    return 1;
}

/* Rank 1 is given an option that is refused. */
static int refused(const char *url) {
    struct bw_options o = options_of(url, 2000);
    if (rank == 1) o.saves_in_flight_max = 99;
    return open_ranks(&o) != NULL;
}

/* Rank 1 gives its save of step 1 up. */
static int cancelled(const char *url) {
    const struct bw_options o = options_of(url, WAIT_MS);
    struct bw_mpi *ranks = open_ranks(&o);
    if (!ranks) return 1;
    save(ranks, 1, rank == 1);
    say_events(ranks);
    save(ranks, 2, 0);
    end(ranks, WAIT_MS);
    return 0;
}

/* Rank 1 hangs instead of closing. */
static int hanging(const char *url) {
    const struct bw_options o = options_of(url, WAIT_MS);
    struct bw_mpi *ranks = open_ranks(&o);
    if (!ranks) return 1;
    if (rank == 1) sleep(4);
    began = MPI_Wtime();
    if (rank != 1) end(ranks, 1000);
    if (rank != 1) sleep(2);
    return 1;
}

/* What is asked of it at the wrong time or with nothing is refused. */
static int misused(const char *url) {
    struct bw_options o = options_of(url, WAIT_MS);
    struct bw_error err = BW_ERROR_INIT;
    struct bw_mpi *ranks = NULL;
    struct bw_mpi_event e;
    char id[130];
    say("null communicator", bw_mpi_open(MPI_COMM_NULL, &o, &ranks, &err), &err);
    say("null options", bw_mpi_open(MPI_COMM_WORLD, NULL, &ranks, &err), &err);
    say("null result", bw_mpi_open(MPI_COMM_WORLD, &o, NULL, &err), &err);
    say("null wait", bw_mpi_wait(NULL, NULL, BW_COMMITTED, 0, &err), &err);
    say("null close", bw_mpi_close(NULL, 0, &err), &err);
    printf("rank %d: null poll: %d\n", rank, bw_mpi_poll(NULL, &e) || bw_mpi_checkpointer(NULL));
    memset(id, 'x', sizeof id - 1);
    id[sizeof id - 1] = '\0';
    o.job = id;
    say("long job", bw_mpi_open(MPI_COMM_WORLD, &o, &ranks, &err), &err);
    o.job = id + 1;
    ranks = open_ranks(&o);
    MPI_Finalize();
    say("after the end", bw_mpi_open(MPI_COMM_WORLD, &o, &ranks, &err), &err);
    return -1;
}

int main(int argc, char **argv) {
    static const struct {
        const char *name;
        int (*run)(const char *url);
    } scenarios[] = {{"twice", twice},         {"absent", absent},   {"refused", refused},
                     {"cancelled", cancelled}, {"hanging", hanging}, {"misused", misused}};
    int rc = 2;
    if (argc != 3) return 2;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &world);
    began = MPI_Wtime();
    for (size_t i = 0; i < sizeof scenarios / sizeof *scenarios; i++)
        if (strcmp(argv[1], scenarios[i].name) == 0) rc = scenarios[i].run(argv[2]);
    if (rc < 0) return 0;
    fflush(stdout);
    if (rc == 1) _exit(0); /* the others are not to be waited for */
    return MPI_Finalize() == MPI_SUCCESS ? rc : 1;
}
