/* SPDX-License-Identifier: Apache-2.0 */
/* A whole small system on disks that forget: its parts, what strikes it, and an account of what participants were told,
 * which must still be true afterwards. */
#ifndef BW_SOAK_LOST_H
#define BW_SOAK_LOST_H

#include "disk.h"
#include "soak.h"
#include "system.h"

#define LOST_RUN "run"
#define LOST_IDS 128u

/* What participants were told about one checkpoint. */
struct lost_id {
    struct bwi_id id;
    uint32_t world;
    uint32_t local, remote; /* ranks that were told so, and whose word still binds */
    uint64_t held_ns;       /* when the last of them was; BWI_NEVER: not all were */
    bool committed, dead;
    bool resumed; /* a launch was told that it goes on from it */
};

struct lost_account {
    struct lost_id ids[LOST_IDS];
    unsigned count;
    uint32_t attempt, nonce; /* of the newest launch of which a rank has opened */
    bool opened;
    uint64_t opened_ns; /* when it did */
    uint32_t levels;    /* told in all, for the count of what was seen */
};

enum blow {
    BLOW_KILL,    /* one process */
    BLOW_NODE,    /* the power of one node: its processes, its disk, what its cache had not sent to the server */
    BLOW_NODES,   /* of all nodes */
    BLOW_SERVER,  /* of the server: nobody's mount comes back, so all processes go */
    BLOW_ALL,     /* of everything */
    BLOW_DESTROY, /* one node, for good: another one comes in its place, with an empty disk */
    BLOWS
};

struct lost {
    struct system s; /* first */
    struct soak_run *r;
    struct lost_account account;
    struct disk *remote, *local[NODES_MAX];
    struct disk_process *processes[PARTS_MAX];
    struct lost_aim {
        struct lost *x;
        struct part *part;
        bool at_name;
    } aims[PARTS_MAX];
    unsigned blows_left; /* that may still fall at a call of somebody, or when somebody is told something */
    uint64_t launch_ns[LAUNCHES_MAX]; /* when each was started */
    uint64_t destroyed_ns;            /* when a node was, last */
    uint64_t blow_ns;                 /* when one falls whatever anybody does; BWI_NEVER */
    bool failing_syncs;               /* some fsyncs fail: then a node's word is not looked at, only the history's */
    bool friendly;
    uint64_t capacity; /* of a node's disk; 0: no limit. One that is full fails saves */
    uint64_t grace_ms, delay_ns;
    uint32_t device;
    uint64_t blows, changes; /* so far */
    unsigned hidden;         /* temporaries that nobody took away */
};

/* lost_disks.c */
void lost_open_disks(struct lost *x);
void lost_close_disks(struct lost *x);
void lost_strike(struct lost *x, enum blow blow, unsigned node, struct part *part);
void lost_fail_syncs(struct lost *x); /* draws them anew */
extern const struct system_hooks lost_hooks;

/* lost_account.c */
void lost_told(struct system *s, struct part *p, const struct bwi_save *v, enum bw_level level, int status);
void lost_opened(struct system *s, struct part *p, const struct bwi_session *x);
void lost_destroyed(struct lost *x, unsigned node); /* the word of its ranks does not bind any more */
/* The newest entry that can be seen, into s.oracle.head; false: there is none. */
bool lost_read_head(struct lost *x);
void lost_check_history(struct lost *x); /* against all that was told */
void lost_check_leftovers(struct lost *x);

static inline struct lost *lost_of(struct system *s) {
    return (void *)s; /* its first member */
}

#endif
