/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Data-parallel training on MPI that goes on after anything: a rank that is killed, a job that is put back into the
 * queue, a restart with another number of ranks.
 *
 *     mpicc -std=c17 train.c $(pkg-config --cflags --libs breakwater-mpi) -lm -o train
 *     mpirun -n 4 ./train file:///lustre/bw --local file:///nvme/bw --steps 1000 --every 50
 *
 * Start the same line again and it goes on from the newest checkpoint. All ranks have the weights, each has its part of
 * the optimizer's momentum. The model is a toy; its sums have one order whatever the number of ranks, so that the last
 * line, a hash of the weights, is the same however often and with however many ranks it was restarted.
 *
 * On SIGTERM or SIGUSR1 (to any rank) all ranks save once more and end: see --signal of sbatch.
 */
#include <breakwater/breakwater.h>
#include <breakwater/mpi.h>
#include <inttypes.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define ROWS      96
#define COLS      64
#define PARTS     24 /* of a batch: what ranks share out among themselves, so at most so many ranks */
#define WAIT_MS   60000
#define GRADIENTS ((size_t)PARTS * ROWS * COLS)

struct model {
    double weights[ROWS][COLS];  /* all ranks have all */
    double momentum[ROWS][COLS]; /* a rank has the rows first_row .. last_row - 1 */
    int rank, world, first_row, last_row;
};

struct options {
    const char *remote, *local;
    uint64_t steps, every, pause_ms;
};

static volatile sig_atomic_t asked_to_stop;

static void on_signal(int number) {
    (void)number;
    asked_to_stop = 1;
}

/* --- the model ------------------------------------------------------------------------------------------------- */

static double random_of(uint64_t a, uint64_t b) {
    uint64_t z = (a << 32 ^ b) + UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return (double)((z ^ z >> 31) >> 11) / 9007199254740992.0 - 0.5;
}

/* The gradient of one part of the step's batch: one made-up sample. Returns its loss. */
static double gradient(const struct model *m, uint64_t step, int part, double *g) {
    double x[COLS], loss = 0;
    for (int k = 0; k < COLS; k++) x[k] = random_of(step * PARTS + (uint64_t)part, (uint64_t)k);
    for (int i = 0; i < ROWS; i++) {
        double y = 0, target = 0;
        for (int k = 0; k < COLS; k++) y += m->weights[i][k] * x[k];
        for (int k = 0; k < COLS; k++) target += random_of((uint64_t)i, (uint64_t)k) * x[k];
        const double wrong = y - target;
        for (int k = 0; k < COLS; k++) g[i * COLS + k] = wrong * x[k];
        loss += wrong * wrong;
    }
    return loss;
}

/* One step. Returns whether somebody was asked to stop; then all ranks know. */
static int train(struct model *m, uint64_t step, double *ret_loss) {
    static double all[GRADIENTS + 2];
    double rows[ROWS][COLS] = {{0}};
    memset(all, 0, sizeof all);
    for (int p = m->rank; p < PARTS; p += m->world)
        all[GRADIENTS + 1] += gradient(m, step, p, all + (size_t)p * ROWS * COLS);
    all[GRADIENTS] = asked_to_stop;
    /* Each gradient comes from one rank, and from the others zeros: no order of adding them up changes a bit. */
    MPI_Allreduce(MPI_IN_PLACE, all, GRADIENTS + 2, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    for (int i = m->first_row; i < m->last_row; i++) {
        for (int k = 0; k < COLS; k++) {
            double sum = 0;
            for (size_t p = 0; p < PARTS; p++) sum += all[(p * ROWS + (size_t)i) * COLS + (size_t)k];
            m->momentum[i][k] = 0.9 * m->momentum[i][k] + sum / PARTS;
            rows[i][k] = m->weights[i][k] - 0.1 * m->momentum[i][k];
        }
    }
    MPI_Allreduce(rows, m->weights, ROWS * COLS, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    *ret_loss = all[GRADIENTS + 1] / PARTS;
    return all[GRADIENTS] > 0;
}

static uint64_t hash_of(const void *bytes, size_t n) {
    uint64_t h = UINT64_C(14695981039346656037);
    for (size_t i = 0; i < n; i++) h = (h ^ ((const unsigned char *)bytes)[i]) * UINT64_C(1099511628211);
    return h;
}

/* --- checkpoints ----------------------------------------------------------------------------------------------- */

static int load(struct bw_mpi *ranks, struct model *m, uint64_t *ret_step, struct bw_error *err) {
    struct bw_resumed from;
    struct bw_restore *restore = NULL;
    bw_checkpointer_resumed(bw_mpi_checkpointer(ranks), &from);
    if (m->rank == 0)
        printf("%d ranks, attempt %u: %s\n", m->world, (unsigned)from.attempt,
               from.from_checkpoint ? from.reason : "a new run");
    if (!from.from_checkpoint) return 0;
    int rc = bw_restore_open(bw_mpi_checkpointer(ranks), &restore, err);
    const struct bw_slice slices[] = {BW_SLICE_OF("weights", BW_F64, m->weights, ROWS, COLS),
                                      BW_SLICE_OF("momentum", BW_F64, m->momentum, ROWS, COLS)};
    if (rc == 0) rc = bw_restore_read(restore, slices, 2, err); /* all of it: who needs less gives offset and extent */
    bw_restore_close(restore);
    if (rc == 0) *ret_step = from.step;
    return rc;
}

static int start_save(struct bw_mpi *ranks, struct model *m, uint64_t step, struct bw_save **ret,
                      struct bw_error *err) {
    const uint64_t offset[] = {(uint64_t)m->first_row, 0}, extent[] = {(uint64_t)(m->last_row - m->first_row), COLS};
    struct bw_tensor weights = BW_TENSOR_OF("weights", BW_F64, m->weights, ROWS, COLS);
    struct bw_tensor momentum = BW_TENSOR_OF("momentum", BW_F64, m->momentum[m->first_row], ROWS, COLS);
    weights.replica_count = (uint32_t)m->world; /* all have the same: one of them writes it */
    weights.replica_index = (uint32_t)m->rank;
    momentum.offset = offset;
    momentum.extent = extent;
    int rc = bw_save_begin(bw_mpi_checkpointer(ranks), step, ret, err);
    if (rc == 0) rc = bw_save_tensor(*ret, &weights, err);
    if (rc == 0) rc = bw_save_tensor(*ret, &momentum, err);
    if (rc == 0) rc = bw_save_start(*ret, err); /* returns at once */
    return rc;
}

/* A save that fails does not end the training, unless another launch has taken the run over. */
static int save(struct bw_mpi *ranks, struct model *m, uint64_t step, struct bw_error *err) {
    struct bw_save *saving = NULL;
    int rc = start_save(ranks, m, step, &saving, err);
    if (rc == 0) rc = bw_mpi_wait(ranks, saving, BW_CAPTURED, WAIT_MS, err); /* now the model may change */
    if (rc < 0 && saving) bw_save_cancel(saving, NULL);
    bw_save_release(saving);
    if (rc == BW_E_SUPERSEDED || rc == BW_E_LAUNCH_LOST) return rc;
    if (rc < 0) fprintf(stderr, "rank %d: step %" PRIu64 " is not saved: %s\n", m->rank, step, err->message);
    return 0;
}

/* Takes and sends news, and says what went wrong, here or on another rank. */
static void listen_to_news(struct bw_mpi *ranks, const struct model *m) {
    struct bw_mpi_event e;
    while (bw_mpi_poll(ranks, &e)) {
        if (m->rank == 0 && e.event.type == BW_EVENT_SAVE_ENDED && e.event.status == 0)
            printf("step %" PRIu64 " is committed\n", e.event.step);
        if (e.event.status < 0)
            fprintf(stderr, "rank %d hears from rank %u: step %" PRIu64 ": %s\n", m->rank, (unsigned)e.rank,
                    e.event.step, e.event.message);
    }
}

/* --- the loop -------------------------------------------------------------------------------------------------- */

static int run(struct bw_mpi *ranks, struct model *m, const struct options *o, struct bw_error *err) {
    uint64_t step = 0;
    int stop = 0;
    int rc = load(ranks, m, &step, err);
    while (rc == 0 && step < o->steps && !stop) {
        double loss;
        stop = train(m, ++step, &loss);
        if (m->rank == 0) printf("step %" PRIu64 " loss %.6f\n", step, loss);
        if (step % o->every == 0 || step == o->steps || stop) rc = save(ranks, m, step, err);
        listen_to_news(ranks, m);
        fflush(stdout);
        nanosleep(&(struct timespec){.tv_nsec = (long)o->pause_ms * 1000000}, NULL);
    }
    if (rc == 0 && step == o->steps && m->rank == 0)
        printf("weights %016" PRIx64 "\n", hash_of(m->weights, sizeof m->weights));
    return rc;
}

static int read_options(int argc, char **argv, struct options *o) {
    *o = (struct options){.steps = 100, .every = 10};
    for (int i = 1; i < argc; i++) {
        const int more = i + 1 < argc;
        if (more && strcmp(argv[i], "--local") == 0)
            o->local = argv[++i];
        else if (more && strcmp(argv[i], "--steps") == 0)
            o->steps = strtoull(argv[++i], NULL, 10);
        else if (more && strcmp(argv[i], "--every") == 0)
            o->every = strtoull(argv[++i], NULL, 10);
        else if (more && strcmp(argv[i], "--pause-ms") == 0)
            o->pause_ms = strtoull(argv[++i], NULL, 10);
        else if (argv[i][0] != '-' && !o->remote)
            o->remote = argv[i];
        else
            return -1;
    }
    return o->remote && o->steps && o->every && o->pause_ms < 1000 ? 0 : -1;
}

int main(int argc, char **argv) {
    static struct model m;
    struct options o;
    struct bw_mpi *ranks = NULL;
    struct bw_error err = BW_ERROR_INIT, closing = BW_ERROR_INIT;
    struct bw_options options = BW_OPTIONS_INIT;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &m.rank);
    MPI_Comm_size(MPI_COMM_WORLD, &m.world);
    if (read_options(argc, argv, &o) < 0 || m.world > PARTS) {
        if (m.rank == 0)
            fprintf(stderr, "usage: train REMOTE_URL [--local URL] [--steps N] [--every N] [--pause-ms N]; "
                            "1 .. 24 ranks\n");
        MPI_Finalize();
        return 2;
    }
    m.first_row = ROWS * m.rank / m.world;
    m.last_row = ROWS * (m.rank + 1) / m.world;
    signal(SIGTERM, on_signal);
    signal(SIGUSR1, on_signal);
    options.run = "mpi", options.remote_url = o.remote, options.local_url = o.local;
    options.memory_budget_bytes = 64 << 20;
    options.flags = BW_ALLOW_SAME_DEVICE | BW_ALLOW_NODE_LOCAL; /* only for trying it out on one machine */

    int rc = bw_mpi_open(MPI_COMM_WORLD, &options, &ranks, &err);
    printf("rank %d is process %ld\n", m.rank, (long)getpid());
    fflush(stdout);
    const int opened = rc;
    if (rc == 0) rc = run(ranks, &m, &o, &err);
    if (rc < 0) fprintf(stderr, "rank %d: %s\n", m.rank, err.message);
    if (rc < 0 && opened == 0) MPI_Abort(MPI_COMM_WORLD, bw_status_exit_code(rc)); /* the others train on */
    const int closed = bw_mpi_close(ranks, WAIT_MS, &closing);
    if (closed < 0) fprintf(stderr, "rank %d: %s\n", m.rank, closing.message);
    MPI_Finalize();
    return bw_status_exit_code(rc < 0 ? rc : closed);
}
