/* SPDX-License-Identifier: Apache-2.0 */
/* A session: one rank's place in one launch, as a set of step machines on one loop. The public checkpointer is a
 * session with a thread around it; tests and simulations run many sessions on one thread. doc/flows/open.md, save.md,
 * drain.md, commit.md.
 *
 *     open      inventory, wait for the others, resolve, register       (session_open.c, resolve.c)
 *     follow    reads the history: what became of my saves, am I still current (session_follow.c)
 *     save      one per save: write, publish, drain, wait for the end     (session_save.c, session_give.c)
 *     committer rank 0 only: looks at the pending checkpoints in step order (session_commit.c)
 *     keeper    rank 0 only: retention and sweep after commits            (session_keep.c)
 *     lookout   what keeps a checkpoint from being committed              (session_lookout.c)
 *     teller    marks and aborts that could not be put at once           (session_tell.c)
 *     salvage   drains what this node still holds of the open from        (session_open.c)
 *
 * Everything here runs on the loop's thread. */
#ifndef BWI_CHECKPOINT_SESSION_H
#define BWI_CHECKPOINT_SESSION_H

#include "checkpoint/commit.h"
#include "checkpoint/decide.h"
#include "checkpoint/drain.h"
#include "checkpoint/plan.h"
#include "checkpoint/publish.h"
#include "checkpoint/room.h"
#include "checkpoint/sweep.h"
#include "checkpoint/tier_probe.h"
#include "checkpoint/transfer.h"
#include <breakwater/save.h>

#define BWI_SAVES_MAX 64u /* remembered as being in flight: more than any policy allows at once */

struct bwi_session_config {
    char job[BWI_NAME_BUF], launch[BWI_NAME_BUF], label[BWI_NAME_BUF];
    uint32_t rank, world;
    enum bwi_register_mode mode;
    uint64_t resume_step;
    bool damage_fail; /* on_damage = fail */
    uint32_t flags;   /* BW_ALLOW_..., BW_NO_RECYCLING */
    uint32_t saves_in_flight_max;
    uint64_t open_deadline_ns;
    uint64_t local_quota_bytes;
    uint64_t drain_bytes_per_s;
    bool cow; /* write-protect the tensors instead of copying them at once */
    struct bw_retention retention;
    bool probe;            /* finds out the depth of the local tier, where that may be done */
    uint32_t extent_bytes; /* BWI_EXTENT_BYTES but in tests */
    uint64_t pack_bytes;
};

struct bwi_session;

/* --- one save ------------------------------------------------------------------------------------------------ */

enum bwi_save_state {
    BWI_SAVE_BEGUN,   /* being described */
    BWI_SAVE_FREEZE,  /* write-protecting the memory, then planning */
    BWI_SAVE_ROOM,    /* making room on the first tier */
    BWI_SAVE_WRITE,   /* capturing and writing packs */
    BWI_SAVE_PUBLISH, /* layout, content, placement, summary in the first tier */
    BWI_SAVE_TIDY,    /* what ROOM has left is deleted */
    BWI_SAVE_QUEUE,   /* complete locally; drains go in step order */
    BWI_SAVE_DRAIN,   /* being copied to the authority */
    BWI_SAVE_PENDING, /* complete in the authority; others decide */
    BWI_SAVE_STOP,    /* it failed or was decided about: what runs for it is being stopped */
    BWI_SAVE_CLEAN,   /* its incomplete data is being given back */
    BWI_SAVE_MARK,    /* the others are being told, by a `failed` mark */
    BWI_SAVE_ABORT,   /* ... and by an abort entry */
    BWI_SAVE_HEAR,    /* somebody else has closed it: the follower learns how */
    BWI_SAVE_GIVE,    /* it is dead: what lies of it in the authority is given back */
    BWI_SAVE_ENDED,
};

struct bwi_save {
    struct bwi_task task;
    struct bwi_session *session;
    struct bwi_save *next; /* ascending by the order of beginning */
    uint64_t step;
    struct bwi_id id; /* id.tri is set at start */
    enum bwi_save_state state;
    enum bw_level level; /* highest that is true */
    bool writable;       /* the memory may be written, though not yet go away */
    bool captured;       /* the memory is not read any more */
    bool started, released, cancelled;
    bool outcome_set; /* the history has decided */
    bool committed;
    bool never_live; /* the history has closed it, and nothing in between had committed it */
    bool complete;   /* its summary is in the first tier */
    bool left;       /* given up by close, but complete: left for the next launch */
    bool copy_lost;  /* the drain found the local copy damaged or gone, or it went while it was written: if the save is
                        dead, a sweep may have taken it */
    bool told_pending, told_stop, cleaned;
    char held_up[320]; /* what it waits for, to be put behind "and ": "not complete for want of rank 3"; "": unknown */
    struct bwi_id busy[BWI_SAVES_MAX];
    uint32_t tiers;        /* bit per enum bwi_tier that holds it complete */
    struct bw_error error; /* why it failed */
    bool reported;         /* the failure was returned by some call */
    struct bwi_description description;
    struct bwi_plan plan;
    bool planned;
    struct bwi_cow cow;
    struct bwi_io_req planning; /* in flight while `is_planning` */
    bool is_planning;
    struct bw_error plan_error;
    struct bwi_buf placement, content;
    struct bwi_summary summary;
    uint64_t begun_ns, start_ns, retry_ns;
    struct bw_save_stats stats;
    uint32_t drain_failures;
    struct bwi_room room;
    uint64_t room_seen; /* the session's room_changes when room was looked for last */
    struct bwi_pack_write write;
    struct bwi_resident resident; /* from the first chunk to the end of the drain */
    struct bwi_publish publish;
    struct bwi_drain drain;
    struct bwi_mark_put mark;
    struct bwi_call clean;
    struct bwi_decide decide;
    struct bwi_backoff backoff;
    uint32_t mark_failures;
    struct bwi_head_read give_read;
    struct bwi_head give_head;
    int give_state;
};

/* --- the session --------------------------------------------------------------------------------------------- */

/* What a launch goes on from. */
struct bwi_resume {
    bool from_checkpoint, committed;
    struct bwi_id id;
    uint32_t world, groups;
    bool fan_out;
    struct bwi_sha manifest; /* committed */
    struct bwi_uuid uuid;    /* of the summaries of an uncommitted one */
    char reason[256];
};

struct bwi_session {
    struct bwi_context *ctx;
    struct bwi_session_config cfg;
    /* identity, once open */
    bool opened;
    uint32_t attempt, nonce;
    uint32_t group, groups; /* a group is one rank here */
    bool fan_out;
    struct bwi_uuid uuid;
    struct bwi_resume resume;
    /* what the history said last */
    struct bwi_head head;
    bool over; /* this attempt can commit no more: over_error says why */
    struct bw_error over_error;
    bool closing, giving_up;
    /* saves */
    struct bwi_save *saves;
    struct bwi_description known; /* of a save that has ended: the next one is likely to be like it */
    struct bwi_plan known_plan;   /* made from it, or not at all */
    uint64_t highest_step;        /* begun */
    bool highest_set;
    bool local_refused;    /* the local tier was full for a save that had found room there */
    uint64_t room_changes; /* events after which there may be more room: a save ended, the history moved on */
    struct bwi_begun {
        uint64_t step;
        uint32_t tri;
    } begun[16]; /* the last ones, newest first: which tries this rank has made */
    uint32_t begun_count;
    uint64_t refused_below; /* the head's tries of steps below this have been refused */
    struct bwi_sha layout_known[BWI_TIERS];
    bool layout_known_set[BWI_TIERS];
    struct bwi_pace pace;
    /* machines */
    struct bwi_open *open;
    struct bwi_follow *follow;
    struct bwi_committer *committer;
    struct bwi_keeper *keeper;
    struct bwi_salvage *salvage;
    struct bwi_lookout *lookout;
    struct bwi_teller *teller;
    struct bwi_tier_probe *probe; /* NULL: there was none */
    struct bwi_index_cache index_cache;
    struct bw_error unheard; /* the first failure of a save whose handle was gone by then */
    /* told to the owner: levels, ends, notes. May be called from any step; must not call back into the session */
    void (*event)(void *user, const struct bw_event *e);
    void *user;
    struct bw_checkpointer_stats stats;
};

/* ctx must outlive the session. */
int bwi_session_new(struct bwi_context *ctx, const struct bwi_session_config *cfg, struct bwi_session **ret,
                    struct bw_error *err);
void bwi_session_free(struct bwi_session *s); /* no task may be running */

/* Task: opens the stores' identities, registers or joins. task->error says how it went; the session is usable when it
 * is 0. */
struct bwi_task *bwi_session_open(struct bwi_session *s, struct bwi_task *parent);

/* Saves. begin: does not wait and knows no policy (the caller counts bwi_session_places). */
int bwi_session_may_begin(struct bwi_session *s, uint64_t step, struct bw_error *err);
int bwi_session_begin(struct bwi_session *s, uint64_t step, struct bwi_save **ret, struct bw_error *err);
int bwi_session_start(struct bwi_save *v, struct bw_error *err); /* plans and starts the task */
void bwi_session_cancel(struct bwi_save *v);  /* it ends with BW_E_CANCELLED unless it is committed first, or nobody can
                                                 tell: BW_E_UNKNOWN */
void bwi_session_release(struct bwi_save *v); /* frees it when it has ended */
uint32_t bwi_session_in_flight(const struct bwi_session *s); /* begun and not ended */
uint32_t bwi_session_places(const struct bwi_session *s);    /* of those, not committed */
/* A step that this rank will not save: the others learn of it. */
void bwi_session_skip(struct bwi_session *s, uint64_t step);

/* Somebody has heard that something has happened: the machines that look now and then look at once. */
void bwi_session_look(struct bwi_session *s);

/* Ends what can be ended: no more begins; saves go on until they have ended, or until `give_up` is set by
 * bwi_session_give_up; then those that are not complete locally are given up and told to the others, the rest is left
 * for the next launch. bwi_session_idle is true when nothing runs any more. */
void bwi_session_close(struct bwi_session *s);
void bwi_session_give_up(struct bwi_session *s);
bool bwi_session_idle(const struct bwi_session *s);
/* Everything that a close waits for has ended: all saves, and what this launch went on from has been brought to its
 * end. */
bool bwi_session_drained(const struct bwi_session *s);

/* What the history has said between two looks about ids: who was committed or aborted, and why. */
struct bwi_gap {
    struct {
        struct bwi_id id;
        enum bwi_event type;
        char note[128];
    } * list;
    size_t count, cap;
    bool hole; /* an entry was gone or damaged: what it said is unknown */
};
void bwi_gap_fini(struct bwi_gap *g);
bool bwi_gap_add(struct bwi_gap *g, const struct bwi_entry *e); /* the event of one entry; false: out of memory */

/* Used by the machines among each other. */
void bwi_session_note(struct bwi_session *s, int status, uint64_t step, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
/* What is tried on and on is told the 1st, 2nd, 4th, 8th ... time that it fails: the same note again and again would
 * push out of the queue of events what is told only once. */
static inline bool bwi_session_tells(uint32_t failures) {
    return (failures & (failures - 1)) == 0;
}
void bwi_session_level(struct bwi_save *v, enum bw_level level); /* announces; never goes down */
/* Offers a head that a decision has brought; takes it (and zeroes *head) if that leaves no question about a save open,
 * else the follower looks for itself. */
void bwi_session_new_head(struct bwi_session *s, struct bwi_head *head);
/* Newer than what the session knows. */
bool bwi_session_is_newer(const struct bwi_session *s, const struct bwi_head *head);
/* The follower's: drops a head that is not newer; else takes *head, with all that was said since the last one, and
 * decides what became of the saves. */
void bwi_session_apply_head(struct bwi_session *s, struct bwi_head *head, const struct bwi_gap *gap);
/* Would this head, without the entries in between, leave open what became of a save? */
bool bwi_session_needs_gap(const struct bwi_session *s, const struct bwi_head *head);
void bwi_session_over(struct bwi_session *s, const struct bw_error *e);
void bwi_session_save_ended(struct bwi_save *v);
void bwi_follow_start(struct bwi_session *s);
void bwi_follow_stop(struct bwi_session *s);
void bwi_follow_wake(struct bwi_session *s);
void bwi_follow_soon(
    struct bwi_session *s); /* there is something to wait for: it looks often, from its first pause on */
void bwi_committer_start(struct bwi_session *s);
void bwi_committer_stop(struct bwi_session *s);
void bwi_committer_wake(struct bwi_session *s);
void bwi_keeper_start(struct bwi_session *s);
void bwi_keeper_stop(struct bwi_session *s);
void bwi_keeper_wake(struct bwi_session *s);
/* Of a step that this rank will never save: puts a mark for this try. */
void bwi_session_refuse(struct bwi_session *s, uint64_t step, uint32_t tri);
/* This rank has not made this try, and never will: it is past the step, or is closing. */
bool bwi_session_never_makes(const struct bwi_session *s, const struct bwi_id *id);
/* Keeps with its save what a look has found missing, or why it could not look. */
void bwi_session_looked(struct bwi_session *s, const struct bwi_commit *look);
void bwi_lookout_start(struct bwi_session *s);
void bwi_lookout_stop(struct bwi_session *s);
void bwi_lookout_wake(struct bwi_session *s);
void bwi_salvage_start(struct bwi_session *s);
void bwi_salvage_stop(struct bwi_session *s);
size_t bwi_session_busy(const struct bwi_session *s, struct bwi_id *ret,
                        size_t cap); /* ids of saves that have not ended */

#endif
