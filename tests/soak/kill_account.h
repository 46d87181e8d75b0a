/* SPDX-License-Identifier: Apache-2.0 */
/* What all processes of one experiment have been told by the library, in memory that outlives each of them, and what
 * follows from it for whoever opens the run next. */
#ifndef BW_TEST_KILL_ACCOUNT_H
#define BW_TEST_KILL_ACCOUNT_H

#include <breakwater/breakwater.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define KILL_RANKS       2u
#define KILL_LAUNCHES    5u
#define KILL_SAVES       4u /* of a launch */
#define KILL_RUN         "run"
#define KILL_SPEED       25u
#define KILL_STORY_BYTES 16384u
#define KILL_HANG_MS     50000u /* of the machine's time: nothing here takes so long */

/* What becomes of a save on purpose. */
enum kill_fate { FATE_SAVED, FATE_SKIPPED, FATE_CANCELLED };

struct kill_save_plan {
    enum kill_fate fate;
    unsigned by;         /* FATE_SKIPPED, FATE_CANCELLED: the rank that does it */
    enum bw_level until; /* how long to wait before the next one */
};

/* What one rank was told about one of its saves. The level is set last. */
struct kill_told {
    uint64_t step;
    char id[BW_ID_BYTES];
    atomic_uint level;
    bool late; /* the next launch had begun */
};

struct kill_launch {
    char name[24];
    unsigned saves;
    struct kill_save_plan plan[KILL_SAVES];
    uint32_t keep_last;
    uint64_t quota_bytes;
    bool hurried; /* opening has little time */
    bool calm;    /* nobody dies: all must go well */
    bool no_rank; /* no rank dies before the others have ended: all must go well for the ranks */
    atomic_uint attempt;
    struct kill_one {
        atomic_bool opened, ended;
        struct bw_resumed resumed;
        struct kill_told told[KILL_SAVES];
    } rank[KILL_RANKS];
};

struct kill_account {
    uint64_t seed;
    char remote[700], local[700]; /* local "": there is no such tier */
    struct kill_launch launch[KILL_LAUNCHES];
    atomic_uint now;     /* the launch that runs */
    atomic_bool hit;     /* its victim has been hit */
    atomic_bool no_more; /* tools are to end */
    atomic_bool violated;
    uint32_t keep_least; /* no retention keeps fewer; 0: nothing is ever retired */
    bool talk;
    char message[400];
    atomic_uint story_bytes; /* what was told, for the case that something is violated */
    char story[KILL_STORY_BYTES];
};

/* Keeps the first one. */
void kill_violated(struct kill_account *a, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* A line of the story: shown at once (talk), or once something is violated. */
void kill_tell(struct kill_account *a, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

void kill_show_story(const struct kill_account *a);

/* What a launch goes on from: never less than anybody was told to be committed, nor than all ranks were told to be
 * local, nor than an earlier launch went on from. */
void kill_judge_resumed(struct kill_account *a, unsigned launch, const struct bw_resumed *r);
/* Calls `each` for every checkpoint that somebody of the first so many launches was told to be committed. */
void kill_each_committed(const struct kill_account *a, unsigned launches,
                         void (*each)(void *user, const struct kill_told *t), void *user);
/* The launch whose attempt this is; NULL: of none that opened. */
const struct kill_launch *kill_launch_of(const struct kill_account *a, uint32_t attempt);

#endif
