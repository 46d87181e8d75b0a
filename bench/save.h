/* SPDX-License-Identifier: Apache-2.0 */
/* The parts of bench_save: the state that is saved, what it is measured against, and the figures. */
#ifndef BW_BENCH_SAVE_H
#define BW_BENCH_SAVE_H

#include "bench.h"
#include <breakwater/breakwater.h>
#include <stdint.h>

#define ROUNDS_MAX 64
#define TIMEOUT_MS 600000

/* --- save_state.c: tensors, and runs that save and restore them ---- */

enum layout { LARGE, SMALL, LAYOUTS }; /* 300 tensors, or 20,000, of the same memory */
extern const unsigned layout_tensors[LAYOUTS];

struct state {
    size_t bytes; /* a multiple of all that it is divided into */
    char *memory; /* on huge pages where there are any, touched */
};

void state_open(struct state *s, size_t bytes);
void state_close(struct state *s);

/* A run of its own below `dir`, both tiers on one file system. */
struct run {
    const struct state *state;
    char local[1100], remote[1100]; /* URLs */
    struct bw_checkpointer *ck;
    uint64_t step;
    char newest[1300]; /* where the newest checkpoint's data lies on the local tier; once it is committed */
};
/* budget_bytes: of the library's memory. cow: the tensors are write-protected, not copied. */
void run_open(struct run *r, const char *dir, const char *name, const struct state *s, uint64_t budget_bytes, bool cow);
void run_close(struct run *r);
void run_remove(const struct run *r); /* its directories; once it is closed */

struct save_times {
    double stall_s;              /* from begin until the tensors may be written */
    double local_s, committed_s; /* from begin */
    double local_cpu_s;          /* of the library's threads, from begin to LOCAL */
    uint64_t faults;             /* page faults of this process from begin to LOCAL */
    char write_path[32], capture_mode[16], capture_why[96];
};
void run_save(struct run *r, enum layout layout, struct save_times *ret);
/* Begins a save, and goes on when the tensors may be written; to be ended by run_finish. */
struct bw_save *run_begin(struct run *r);
void run_finish(const struct run *r, struct bw_save *save);

/* Reads all of the newest checkpoint, which has that layout, from the local tier into `into` (as large as the state),
 * seconds. */
double run_restore(const struct run *r, enum layout layout, char *into);

/* --- save_yardstick.c: what the machine does without us ---- */

double yardstick_copy(char *to, const char *from, size_t bytes, unsigned threads); /* memcpy, seconds */

bool yardstick_has_fio(void); /* else there are no yardsticks of the disk */
/* fio in `dir`, blocks of 4 MiB, 16 in flight, past the page cache; seconds of its job, fsync included. fresh: the file
 * is made anew, else it is overwritten in place. */
double yardstick_write(const char *dir, size_t bytes, bool fresh);
double yardstick_read(const char *dir, size_t bytes); /* of the file that yardstick_write has left */
void yardstick_end(const char *dir);

/* The share of the files below a directory that the page cache holds, 0 to 1. */
double resident_share(const char *dir);
void make_cold(const char *dir); /* and proves it: dies if a page stays */
void make_warm(const char *dir); /* all but 3 % of it at most */

/* A loop that computes on all CPUs, `steps` times; the times of its steps. */
struct compute {
    double total_s;
    double step_p99_s;
};
void compute(unsigned threads, unsigned steps, struct compute *ret);

/* --- save_figure.c ---- */

struct pairs {
    double ours[ROUNDS_MAX], theirs[ROUNDS_MAX];
    size_t count;
};
void pairs_add(struct pairs *p, double ours, double theirs);

struct figure {
    const char *name, *against;
    double target;
    bool at_least; /* else at most */
    size_t bytes;
};
/* A row of the table, and a line of JSON: the ratio of the medians of ours over theirs, the 95 % interval of it (by
 * drawing pairs again, 2,000 times), and whether that reaches the target. */
void figure_report(FILE *json, const struct figure *f, const struct pairs *p);
/* The same of what is no ratio of times: the median of `ours`, with the interval. */
void figure_report_value(FILE *json, const struct figure *f, const struct pairs *p);
void figure_heading(void);

#endif
