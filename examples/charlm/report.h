/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Measurements of a run, for the table that examples/quickstart.sh prints. None of this is needed to use Breakwater.
 *
 * A report is a text file per rank, one fact a line, NS in nanoseconds:
 *   step N NS IN_FLIGHT             a step took so long, without stalls; 1: a save was in flight when it ended
 *   save N STALL_NS CAPTURE_NS LOCAL_NS COMMITTED_NS RAW_BYTES MODE PATH
 *   failed N MESSAGE                a save that failed
 *   sync N NS BYTES                 a synchronous save of the same state
 * The tell file (a pipe, usually) gets "RANK LEVEL STEP" the moment a save reaches a level.
 */
#ifndef CHARLM_REPORT_H
#define CHARLM_REPORT_H

#include <breakwater/breakwater.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>

#define REPORT_SAVES_MAX 16

struct report {
    FILE *file; /* NULL: nothing is written */
    int tell;   /* descriptor, -1: nobody is told */
    uint32_t rank;
    struct bw_checkpointer *ck;
    struct {
        struct bw_save *save;
        uint64_t stall_ns;
    } open[REPORT_SAVES_MAX];
    size_t open_count;
    uint64_t failed;
    pthread_t watcher;
    bool watching;
    atomic_bool stop;
};

/* Nanoseconds of the monotonic clock. */
uint64_t report_now_ns(void);

/* `path` gets ".RANK" appended; both paths may be NULL. Begins to watch the events of `ck`. -1 with a line on stderr.
 */
int report_open(struct report *r, struct bw_checkpointer *ck, uint32_t rank, const char *path, const char *tell_path);

/* Takes over a save that is CAPTURED: writes its times once it has ended, and releases it. */
void report_save(struct report *r, struct bw_save *save, uint64_t stall_ns);

/* Writes the lines of saves that have ended. Never blocks. */
void report_look(struct report *r);

/* Waits until all saves have ended. 0 when none has failed since report_open. */
int report_settle(struct report *r);

void report_step(struct report *r, uint64_t step, uint64_t ns);
void report_sync(struct report *r, uint64_t step, uint64_t ns, uint64_t bytes);

/* Stops watching. Before the checkpointer is closed. */
void report_close(struct report *r);

#endif
