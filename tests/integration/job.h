/* SPDX-License-Identifier: Apache-2.0 */
/* A training job as a test sees it: tiers in a scratch directory, ranks that are processes, patterns that tell where a
 * byte belongs.
 *
 * Everything here works in the test's own process and in a rank: `must` ends a case in the first and the process in the
 * second. */
#ifndef BW_TEST_JOB_H
#define BW_TEST_JOB_H

#include "sanitized.h"
#include "test.h"
#include <breakwater/breakwater.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/types.h>

#define MIB     UINT64_C(1048576)
#define WAIT_MS UINT64_C(60000) /* longer than anything here takes: a wait that ends by it is a hang */

/* --- checks ---- */

#define must(cond)                       must_at((cond), NULL, #cond, __FILE__, __LINE__)
#define must_ok(call, err)               must_be((call), 0, (err), NULL, #call, __FILE__, __LINE__)
#define must_fail(call, want, err, part) must_be((call), (want), (err), (part), #call, __FILE__, __LINE__)
#define must_eq(a, b)                    must_equal((long long)(a), (long long)(b), #a " == " #b, __FILE__, __LINE__)
void must_at(bool ok, const char *more, const char *what, const char *file, int line);
void must_be(int rc, int want, const struct bw_error *err, const char *part, const char *what, const char *file,
             int line);
void must_equal(long long a, long long b, const char *what, const char *file, int line);

/* The cases of a program, or those whose name matches $BW_TEST_CASE, such as "*_dtype_*". */
#define run_cases(tests) test_run(tests, getenv("BW_TEST_CASE"), NULL, NULL)

/* --- places ---- */

struct place {
    char root[600];
    char remote[700]; /* paths, which are URLs as well */
    char local[700];
};
void place_make(struct place *p);
void place_drop(struct place *p);
/* A path below a place's root. The text is static storage of 8 slots in turn. */
const char *path_in(const char *dir, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* --- checkpointers ---- */

#define RUN "run"

/* One rank of a launch of job "job" in run RUN, with both tiers, the least memory, and all that a test on one disk has
 * to declare. */
struct bw_options options_of(const struct place *p, const char *launch, uint32_t rank, uint32_t world);
struct bw_checkpointer *open_with(const struct bw_options *o);
struct bw_checkpointer *open_alone(const struct place *p, const char *launch);
void close_ok(struct bw_checkpointer *ck);
struct bw_resumed resumed_of(struct bw_checkpointer *ck);
struct bw_save *begin(struct bw_checkpointer *ck, uint64_t step);
/* A box of a tensor; offset and extent NULL: all of it. Its memory is dense. */
void add_box(struct bw_save *v, const char *name, enum bw_dtype dtype, const void *data, uint32_t dims,
             const uint64_t *shape, const uint64_t *offset, const uint64_t *extent);
/* A tensor of bytes under a name. */
void add_bytes(struct bw_save *v, const char *name, const void *data, uint64_t n);
void start(struct bw_save *v);
void wait_for(struct bw_save *v, enum bw_level level);
void finish(struct bw_save *v); /* waits until it is committed, and lets it go */
void commit(struct bw_save *v); /* starts and finishes it */
/* A whole save of one tensor "w", until it is committed. */
void save_bytes(struct bw_checkpointer *ck, uint64_t step, const void *data, uint64_t n);
/* The same of n bytes that the step is the seed of, which check_bytes looks for. begin_filled: in the caller's memory,
 * and only started. */
void save_filled(struct bw_checkpointer *ck, uint64_t step, uint64_t n);
struct bw_save *begin_filled(struct bw_checkpointer *ck, uint64_t step, void *m, uint64_t n);
/* The newest live checkpoint, or that of a step (UINT64_MAX: the newest). */
struct bw_restore *reader_of(const struct place *p, uint64_t step);
void read_bytes(struct bw_restore *r, const char *name, void *to, uint64_t n);
/* Reads "w" of a step with a reader and compares it with the pattern of the seed. */
void check_bytes(const struct place *p, uint64_t step, uint64_t n, uint64_t seed);
struct bw_catalog *catalog_of(const struct place *p);
/* Rows of the history: how many registrations, and whether jobs alternate in them. */
struct history_facts {
    size_t registers, commits, aborts, changes_of_job;
    uint64_t live; /* after the newest entry */
};
struct history_facts history_of(const struct place *p);
/* Verifies all that is live or shelved, and the history, in the authority: nothing is damaged, nothing missing. */
void must_be_sound(const struct place *p);
/* The state of a checkpoint in the catalog (enum bw_checkpoint_state), 0: it is not there. */
uint32_t state_of(const struct place *p, const char *id);

/* --- patterns ---- */

void fill(void *to, uint64_t n, uint64_t seed);
bool is_filled(const void *at, uint64_t n, uint64_t seed);
uint32_t element_value(uint64_t seed, uint64_t linear); /* of an element of a tensor, by its place in the whole */

/* --- processes ---- */

/* Memory that all ranks of a test share: for what a real job would never have, and a test needs to look behind the
 * scenes. */
struct board {
    atomic_uint arrived[64];
    atomic_int status[64];
    atomic_ullong value[64];
    char text[64][512];
};
struct board *board_new(void);
void board_free(struct board *b);
/* Waits until `count` processes have arrived at this place; a minute at most. */
void meet(struct board *b, unsigned place, unsigned count);
void raise_flag(atomic_int *flag);
void await_flag(atomic_int *flag);
void sleep_ms(unsigned ms);
uint64_t clock_ms(void);
/* No file of this process grows beyond so many bytes (BW_E_LIMIT, as from a quota of the file system). */
void limit_files(uint64_t bytes);
void unlimit_files(void);

/* Runs main(arg, i) in a process of its own. */
pid_t spawn(int (*main)(void *arg, unsigned i), void *arg, unsigned i);
/* Waits for its end: the exit status, or minus the signal. A process that does not end in a minute is killed, and the
 * case fails. */
int reap(pid_t pid);
/* Runs n of them, and all must end with 0. */
void run_ranks(int (*main)(void *arg, unsigned i), void *arg, unsigned n);

#endif
