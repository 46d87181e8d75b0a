/* SPDX-License-Identifier: Apache-2.0 */
/* A job of two ranks on two nodes, in one thread and on virtual time, whose stores are directories on simulated disks,
 * with a table in front of each rank's system calls that makes one of them fail. */
#ifndef BW_SIM_FLOW_KIT_H
#define BW_SIM_FLOW_KIT_H

#include "checkpoint/decide.h"
#include "checkpoint/mend.h"
#include "checkpoint/sweep.h"
#include "cluster_job.h"
#include "disk.h"
#include "io/engine.h"

#define FLOW_WORLD 2u

struct job {
    struct cluster c; /* first */
    struct disk *remote, *local[FLOW_WORLD];
    struct disk_process *process[FLOW_WORLD];
    struct bwi_os_fault *fault[FLOW_WORLD];
    struct bwi_save *saves[FLOW_WORLD];
    unsigned launches; /* so far */
    bool running;
    uint64_t fired; /* faults of launches that have ended */
};

void job_init(struct job *j, uint64_t seed);
void job_fini(struct job *j); /* nothing may have leaked */

/* Starts a launch. job_wait_open: runs until both opens have ended, however. */
void job_launch(struct job *j, enum bwi_register_mode mode, uint64_t step);
void job_wait_open(struct job *j);
bool job_is_open(const struct job *j, unsigned rank, struct bw_error *ret_why);
/* Ends the launch; no file may be open afterwards. */
void job_end(struct job *j);
uint64_t job_fired(const struct job *j); /* faults that were delivered, in all launches */

/* A save of a step on both ranks: begins; waits until both have ended, for so long; takes their errors, status 0:
 * committed. job_capture lets both go instead once their memory has been read. */
void job_begin(struct job *j, uint64_t step);
bool job_wait(struct job *j, uint64_t limit_ms);
void job_finish(struct job *j, struct bw_error ret[FLOW_WORLD]);
void job_capture(struct job *j);
void job_save(struct job *j, uint64_t step); /* all of it, and it must be committed */

/* Runs a task on a rank to its end. */
void job_run(struct job *j, struct bwi_task *t);
/* The head as a rank reads it; fini by the caller. */
int job_head(struct job *j, unsigned rank, struct bwi_head *ret, struct bw_error *err);
/* Reads a live checkpoint on a rank: 0 and the right bytes, or the error. Wrong bytes fail the case. */
int job_read(struct job *j, unsigned rank, uint64_t step, struct bw_error *err);
/* Verifies a live checkpoint on both tiers; findings are added. */
int job_verify(struct job *j, unsigned rank, uint64_t step, struct bwi_findings *f, struct bw_error *err);
/* Mends it. */
int job_mend(struct job *j, unsigned rank, uint64_t step, struct bwi_findings *f, struct bw_error *err);
int job_sweep(struct job *j, unsigned rank, enum bwi_tier tier, struct bw_error *err);
int job_retire(struct job *j, unsigned rank, uint64_t step, struct bw_error *err);

/* How many packs of a step lie on all disks. */
unsigned job_packs_of(struct job *j, uint64_t step);
/* Changes a byte in the middle of the pack of rank 0 at a step, on its local disk. */
void job_damage_pack(struct job *j, uint64_t step);

#endif
