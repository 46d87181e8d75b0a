/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Saves a matrix as two ranks that hold half of the rows each, and reads it as three readers that want a third of the
 * columns each: any box of any tensor can be read from any checkpoint.
 *
 *     ./reshard file:///lustre/bw launch-1
 */
#include <breakwater/breakwater.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#define WAIT_MS 60000
#define ROWS    1000
#define COLS    1000
#define WRITERS 2
#define READERS 3

static const uint64_t shape[2] = {ROWS, COLS};

static float element(uint64_t row, uint64_t col) {
    return (float)(row * COLS + col);
}

/* Part i of n of the indices 0 .. all - 1. */
static uint64_t begin_of(uint64_t all, uint64_t i, uint64_t n) {
    return all * i / n;
}

static int save(struct bw_checkpointer *ck, uint32_t rank, struct bw_error *err) {
    static float rows[ROWS * COLS];
    const uint64_t first = begin_of(ROWS, rank, WRITERS), end = begin_of(ROWS, rank + 1, WRITERS);
    for (uint64_t r = first; r < end; r++)
        for (uint64_t c = 0; c < COLS; c++) rows[(r - first) * COLS + c] = element(r, c);
    const uint64_t offset[2] = {first, 0}, extent[2] = {end - first, COLS};
    struct bw_tensor box = BW_TENSOR_INIT;
    box.name = "matrix", box.dtype = BW_F32, box.dims = 2, box.data = rows;
    box.shape = shape, box.offset = offset, box.extent = extent; /* the whole, and what of it this rank has */
    struct bw_save *saving = NULL;
    int rc = bw_save_begin(ck, 1, &saving, err);
    if (rc == 0) rc = bw_save_tensor(saving, &box, err);
    if (rc == 0) rc = bw_save_start(saving, err);
    if (rc == 0) rc = bw_save_wait(saving, BW_COMMITTED, WAIT_MS, err);
    bw_save_release(saving);
    return rc;
}

/* One rank of the launch that saves; a process of its own, as in a real job. Gives its exit code. */
static int write_rank(uint32_t rank, const char *remote_url, const char *launch) {
    struct bw_error err = BW_ERROR_INIT;
    struct bw_checkpointer *ck = NULL;
    struct bw_options options = BW_OPTIONS_INIT;
    options.run = "reshard", options.job = "job-1", options.launch = launch;
    options.rank = rank, options.world = WRITERS, options.remote_url = remote_url;
    options.resume = BW_RESUME_FRESH, options.label = launch; /* this program never goes on from an older matrix */
    options.flags = BW_ALLOW_NODE_LOCAL;                      /* only for trying it out on one disk */
    int rc = bw_checkpointer_open(&options, &ck, &err);
    if (rc == 0) rc = save(ck, rank, &err);
    if (rc < 0) fprintf(stderr, "rank %u: %s\n", rank, err.message);
    const int closed = bw_checkpointer_close(ck, WAIT_MS, NULL);
    return bw_status_exit_code(rc < 0 ? rc : closed);
}

static int read_columns(struct bw_restore *restore, uint64_t reader, struct bw_error *err) {
    static float columns[ROWS * COLS];
    const uint64_t first = begin_of(COLS, reader, READERS), end = begin_of(COLS, reader + 1, READERS);
    const uint64_t offset[2] = {0, first}, extent[2] = {ROWS, end - first};
    struct bw_slice slice = BW_SLICE_INIT;
    slice.name = "matrix", slice.dtype = BW_F32, slice.dims = 2, slice.data = columns;
    slice.shape = shape, slice.offset = offset, slice.extent = extent;
    const int rc = bw_restore_read(restore, &slice, 1, err);
    if (rc < 0) return rc;
    uint64_t wrong = 0;
    for (uint64_t r = 0; r < ROWS; r++)
        for (uint64_t c = first; c < end; c++) wrong += columns[r * (end - first) + c - first] != element(r, c);
    printf("reader %u of %u: columns %u to %u, %u wrong elements\n", (unsigned)reader, READERS, (unsigned)first,
           (unsigned)end - 1, (unsigned)wrong);
    return wrong ? BW_E_MISMATCH : 0;
}

static int read_all(const char *remote_url) {
    struct bw_error err = BW_ERROR_INIT;
    struct bw_restore *restore = NULL;
    struct bw_reader_options options = BW_READER_OPTIONS_INIT;
    options.run = "reshard", options.remote_url = remote_url;
    int rc = bw_reader_open(&options, &restore, &err); /* takes part in no launch, disturbs no training */
    for (uint64_t reader = 0; rc == 0 && reader < READERS; reader++) rc = read_columns(restore, reader, &err);
    bw_restore_close(restore);
    if (err.status < 0) fprintf(stderr, "reshard: %s\n", err.message);
    return bw_status_exit_code(rc);
}

int main(int argc, char **argv) {
    if (argc != 3) return fprintf(stderr, "usage: reshard REMOTE_URL LAUNCH\n"), 2;
    int status = 0, failed = 0;
    for (uint32_t rank = 0; rank < WRITERS; rank++) {
        const pid_t pid = fork(); /* before anything is opened: a child must not use its parent's objects */
        if (pid == 0) return write_rank(rank, argv[1], argv[2]);
        failed |= pid < 0;
    }
    while (wait(&status) > 0) failed |= status;
    return failed ? 1 : read_all(argv[1]);
}
