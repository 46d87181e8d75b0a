/* SPDX-License-Identifier: Apache-2.0 */
/* A save that the history has closed gives back what lies of it in the authority, instead of leaving it there for the
 * sweep's grace: on a store that is nearly full the next save needs its room. doc/flows/save.md, F5.
 *
 * Only its own group goes, and only what has never been live. The grace protects readers, and of a checkpoint that
 * nobody could have read there are none; nothing refers to it either, since a ref must be live. While the attempt is
 * current nobody has gone on from it. The history is read again for this: whoever slept since it was told of the end
 * must know whether all that still holds. The copy on the local tier goes when the next save makes room. */
#include "base/error.h"
#include "checkpoint/session_private.h"

enum give_state { GIVE_BEGIN, GIVE_READ, GIVE_SYNCED, GIVE_SUMMARY, GIVE_GROUPS, GIVE_DATA };

static struct bwi_context *ctx_of(const struct bwi_save *v) {
    return v->session->ctx;
}

/* Packs without a summary too: a drain may have been stopped on its way. */
static bool lies_in_authority(const struct bwi_save *v) {
    if (ctx_of(v)->tier[BWI_TIER_LOCAL]) return v->drain.ctx != NULL;
    return v->write.ctx != NULL && bwi_save_may_have_summary(v);
}

static enum bwi_step send(struct bwi_save *v, enum bwi_store_verb verb, const char *key, enum give_state then) {
    v->give_state = (int)then;
    bwi_call_prepare(&v->clean, verb, key);
    bwi_call_submit(&v->clean, &v->task, ctx_of(v)->tier[BWI_TIER_REMOTE]);
    return BWI_STEP_WAIT;
}

static enum bwi_step begin(struct bwi_save *v) {
    if (v->committed || v->session->over || !lies_in_authority(v)) return BWI_STEP_END;
    v->give_read = (struct bwi_head_read){.ctx = ctx_of(v), .head = &v->give_head};
    v->give_state = GIVE_READ;
    bwi_head_read_start(&v->give_read, ctx_of(v)->loop, &v->task);
    return BWI_STEP_WAIT;
}

static bool may_go(const struct bwi_save *v) {
    const struct bwi_head *h = &v->give_head;
    if (v->give_read.task.error.status < 0 || !h->found || h->damaged) return false;
    if (!bwi_policy_is_current(&h->entry, v->id.attempt, v->id.nonce)) return false;
    if (bwi_policy_fate(&h->entry, &v->id) != BWI_FATE_DEAD) return false;
    return v->never_live || bwi_policy_was_aborted(&h->entry, &v->id);
}

/* What is deleted because of an entry must not outlive that entry. */
static enum bwi_step was_read(struct bwi_save *v) {
    if (v->give_read.task.running) return BWI_STEP_WAIT;
    if (!may_go(v)) return BWI_STEP_END;
    const struct bwi_key history = bwi_key_history(ctx_of(v)->run);
    return send(v, BWI_STORE_SYNC, history.s, GIVE_SYNCED);
}

/* The summary first, and that for good: nothing may look complete that is not. */
enum bwi_step bwi_save_give(struct bwi_save *v) {
    const char *run = ctx_of(v)->run;
    if (v->clean.op.error.status < 0 && v->give_state > GIVE_READ) {
        bwi_session_note(v->session, v->clean.op.error.status, v->step, "leftovers stay for the next sweep: %s",
                         v->clean.op.error.message);
        return BWI_STEP_END;
    }
    switch ((enum give_state)v->give_state) {
    case GIVE_BEGIN: return begin(v);
    case GIVE_READ: return was_read(v);
    case GIVE_SYNCED: return send(v, BWI_STORE_DELETE, bwi_key_summary(run, &v->id, v->session->group).s, GIVE_SUMMARY);
    case GIVE_SUMMARY: return send(v, BWI_STORE_SYNC, bwi_key_groups(run, &v->id).s, GIVE_GROUPS);
    case GIVE_GROUPS:
        return send(v, BWI_STORE_DELETE_PREFIX, bwi_key_data_of(run, v->session->fan_out, &v->id, v->session->group).s,
                    GIVE_DATA);
    case GIVE_DATA: break;
    }
    return BWI_STEP_END;
}
