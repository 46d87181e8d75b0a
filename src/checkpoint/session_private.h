/* SPDX-License-Identifier: Apache-2.0 */
/* Making and freeing the machines of a session. Used by session*.c only. */
#ifndef BWI_CHECKPOINT_SESSION_PRIVATE_H
#define BWI_CHECKPOINT_SESSION_PRIVATE_H

#include "checkpoint/session.h"

struct bwi_open *bwi_open_new(void);
void bwi_open_free(struct bwi_open *o);
struct bwi_follow *bwi_follow_new(void);
void bwi_follow_free(struct bwi_follow *f);
struct bwi_committer *bwi_committer_new(void);
void bwi_committer_free(struct bwi_committer *c);
struct bwi_keeper *bwi_keeper_new(void);
void bwi_keeper_free(struct bwi_keeper *k);
struct bwi_salvage *bwi_salvage_new(void);
void bwi_salvage_free(struct bwi_salvage *v);
struct bwi_teller *bwi_teller_new(void);
void bwi_teller_free(struct bwi_teller *t);
struct bwi_lookout *bwi_lookout_new(void);
void bwi_lookout_free(struct bwi_lookout *l);
/* Takes what open has found on the local tier: the groups of the open from are remembered. */
int bwi_salvage_hold(struct bwi_session *s, const struct bwi_summary *held, size_t count, struct bw_error *err);
bool bwi_follow_running(const struct bwi_session *s);
bool bwi_committer_running(const struct bwi_session *s);
bool bwi_keeper_running(const struct bwi_session *s);
bool bwi_salvage_running(const struct bwi_session *s);
bool bwi_teller_running(const struct bwi_session *s);
bool bwi_lookout_running(const struct bwi_session *s);
bool bwi_lookout_owes(const struct bwi_session *s); /* the look that a close begins with */

/* checkpoint/session_probe.c */
void bwi_session_tell_depths(struct bwi_session *s); /* the statistics say what is in flight to each tier */
/* Finds out what the local tier wants in flight, if the configuration asks for it. Nobody waits for it. */
void bwi_session_start_probe(struct bwi_session *s);
void bwi_session_stop_probe(struct bwi_session *s); /* what it has not found out by now it will not */
bool bwi_session_probes(const struct bwi_session *s);

/* checkpoint/session_capture.c */
/* What the next save is likely to describe and to plan again is what the last one did. One save has it at a time. */
void bwi_save_recall(struct bwi_save *v);
void bwi_save_remember(struct bwi_save *v);                  /* takes both from a save that has ended */
int bwi_save_plan(struct bwi_save *v, struct bw_error *err); /* any thread; then, on the loop's: */
void bwi_save_planned(struct bwi_save *v);
/* Write-protects and plans, step by step; true when both have ended, plan_error says how. */
bool bwi_save_freeze(struct bwi_save *v);
/* No save before it is to be captured still. */
bool bwi_save_is_next(const struct bwi_save *v);
/* Announces that it is captured, once it is. */
void bwi_save_watch_capture(struct bwi_save *v);

/* Starts the task of a save that has failed before it was started, so that the others are told. */
void bwi_save_fail(struct bwi_save *v, const struct bw_error *e);
/* The state BWI_SAVE_GIVE. */
enum bwi_step bwi_save_give(struct bwi_save *v);
/* The others are told of this group, sooner or later: by a `failed` mark, and where `abort` is set by the abort entry
 * too. */
void bwi_session_owe(struct bwi_session *s, const struct bwi_id *id, uint32_t group, int status, const char *reason,
                     bool abort);
void bwi_teller_wake(struct bwi_session *s);
void bwi_teller_stop(struct bwi_session *s);
/* A summary that was sent may be there. */
bool bwi_save_may_have_summary(const struct bwi_save *v);
/* There may be more room: whoever waits for it looks at once. */
void bwi_session_room_changed(struct bwi_session *s);
/* The history has decided about this save: committed, or not. */
void bwi_save_outcome(struct bwi_save *v, bool committed, int status, const char *why);

#endif
