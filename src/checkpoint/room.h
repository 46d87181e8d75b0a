/* SPDX-License-Identifier: Apache-2.0 */
/* Making room on the local tier for a group's next save. doc/flows/prune.md.
 *
 * In this order, and only as much as is needed: dead data of this group to which nothing kept locally refers (always
 * taken); then committed checkpoints that are not the newest and to which nothing local refers, oldest first. If the
 * disk is full all the same, other groups' dead data goes, and then, after this group's own, their committed copies
 * that are not of the newest checkpoint. What may still be committed stays, with all that it refers to. An eviction
 * removes the summary first, so a crash in the middle leaves what looks incomplete and is taken by the next one.
 * Temporaries and packs of saves that died without a summary count as dead once the history says so. */
#ifndef BWI_CHECKPOINT_ROOM_H
#define BWI_CHECKPOINT_ROOM_H

#include "checkpoint/context.h"
#include "checkpoint/policy_history.h"
#include "format/summary.h"

/* What lies of one checkpoint and group on the local tier, for the policy. */
struct bwi_local_copy {
    struct bwi_id id;
    bool complete;  /* a sound summary of the run's lineage exists */
    bool foreign;   /* a summary of another life: neither dead nor counted */
    uint64_t bytes; /* of its packs; of incomplete ones 0 */
    enum bwi_fate fate;
    bool newest; /* it is the newest live checkpoint */
    bool other;  /* of another group: the quota does not count it, and it goes after this group's */
    bool stays;  /* somebody works on it, or it cannot be deleted */
    uint32_t ref_count;
    struct bwi_id refs[BWI_REFS_MAX];
    bool evict; /* out of the policy */
};
/* Pure: marks what must go so that `need` more bytes fit into `quota` (0: no quota) and into `free_bytes`. Returns true
 * if they fit then. `busy`: ids of saves in flight, never touched. Among equals this group's goes first, the oldest of
 * it. */
bool bwi_policy_evict(struct bwi_local_copy *copies, size_t count, const struct bwi_id *busy, size_t busy_count,
                      uint64_t need, uint64_t quota, uint64_t free_bytes);
/* Pure: whether deleting may wait until the save is complete, because there is room in plenty as it is: in the quota
 * with what is of no use to anybody, and on the disk for BWI_ROOM_SHARERS ranks that look at it at the same moment. */
bool bwi_policy_evict_later(struct bwi_local_copy *copies, size_t count, const struct bwi_id *busy, size_t busy_count,
                            uint64_t need, uint64_t quota, uint64_t free_bytes);
#define BWI_ROOM_SHARERS 8u
/* Pure: of what may wait, marks as much as `need` bytes can be written over, the oldest first. Whether there is any. */
bool bwi_policy_recycle(struct bwi_local_copy *copies, size_t count, const struct bwi_id *busy, size_t busy_count,
                        uint64_t need);

struct bwi_room {
    struct bwi_task task;
    /* in */
    struct bwi_context *ctx;
    uint32_t group;
    bool fan_out;
    const struct bwi_entry *head; /* borrowed; NULL: no history yet */
    const struct bwi_id *busy;    /* borrowed */
    size_t busy_count;
    uint64_t need_bytes, quota_bytes;
    uint64_t beside_bytes; /* what the file system takes beside them: metadata, directories, what blocks leave empty.
                              The disk must have room for it; the quota does not count it */
    bool may_wait; /* what is of no use may stay for now if there is room in plenty: deleting takes time, on some
                      file systems as long as writing a third of it */
    uint64_t recycle_bytes; /* of what goes, so much may be kept by the store for the packs to be written over; then
                               what may wait and is written over does not. 0: none */
    uint64_t
        leave_bytes; /* so much of what could be written over stays for the next save, if there is room in plenty */
    bool refused;    /* the disk has refused a write although it had space to show: a quota of the user, inodes,
                        others who share it. What it shows now is believed only when nothing more may go */
    /* out */
    bool fits; /* false: it does not, even after evicting all that may go (the task itself has not failed) */
    uint64_t evicted_bytes;
    uint32_t evicted;
    /* inside */
    int state;
    struct bwi_room_work *w;
};
void bwi_room_start(struct bwi_room *r, struct bwi_loop *loop, struct bwi_task *parent);

/* Task: everything of this run that is complete on the local tier, for the inventory of a launch: id, uuid, group,
 * refs. Not foreign ones of other uuids either: rank 0 sorts them out. */
struct bwi_holds {
    struct bwi_task task;
    struct bwi_context *ctx;
    struct bwi_store *store; /* NULL: the local tier */
    bool pass_over;          /* what cannot be read is passed over and named in `unread`, and fails nothing */
    bool settle;             /* names are made durable before they count: who put them may have died before that */
    /* out: owned by the caller (bwi_holds_fini) */
    struct bwi_summary *list; /* ascending by (id, group) */
    size_t count, cap;
    struct bwi_unread {
        struct bwi_id id;
        struct bw_error why;
    } * unread;
    size_t unread_count, unread_cap;
    /* inside */
    int state;
    struct bwi_holds_work *w;
};
void bwi_holds_start(struct bwi_holds *h, struct bwi_loop *loop, struct bwi_task *parent);
void bwi_holds_fini(struct bwi_holds *h);

#endif
