/* SPDX-License-Identifier: Apache-2.0 */
/* A group's objects on two tiers: does a summary always prove that all it names is there, and durable?
 *
 * What is modelled (doc/flows/save.md, drain.md, commit.md, prune.md): the save of one group, which fails where it likes
 * and then gives its bytes back; a summary that is sent and arrives later, although its answer was lost; drains of the
 * same group by several processes at once (the rank's own, the next launch's salvage); the commit; the eviction of the
 * local copy; giving back what died; a name that others see before it is durable, a kernel that writes whatever it likes
 * whenever it likes, and a power cut, after which others go on. Whoever takes part may sleep between any two steps.
 *
 * The group has three kinds of objects: packs; layout, content and placement ("parts"); the summary. The history is
 * pending (committable), committed or dead, and is right for ever (history.pml).
 *
 * The properties: on a tier where the summary can be seen, so can all the rest, unless the history calls it dead; a
 * committed group is durable in the authority; so is one of which REMOTE was told; one of which LOCAL was told stays on
 * its tier until it is committed or dead.
 *
 * Sizes: DRAINS. -DPOWER_CUT adds one. A guard is taken out by -DNO_...
 */
#ifndef DRAINS
#define DRAINS 2
#endif

#define LOCAL 0
#define AUTHORITY 1

/* Of an object: whether it can be seen, and whether a power cut leaves it. */
#define SEEN 1
#define DURABLE 2
#define IS_SEEN(o) (((o) & SEEN) != 0)
#define IS_DURABLE(o) ((o) == (SEEN | DURABLE))
#define CREATE(o) o = o | SEEN
#define DELETE(o) o = o & DURABLE
#define SYNC(o) o = (IS_SEEN(o) -> SEEN | DURABLE : 0)

byte packs[2], parts[2], summary[2];

#define PENDING 0
#define COMMITTED 1
#define DEAD 2
byte history;

bit sent;         /* the local summary is under way */
bit told_local, told_remote;
bit cut;          /* there was a power cut */

#define ALL_SEEN(t) (IS_SEEN(packs[t]) && IS_SEEN(parts[t]))
#define ALL_DURABLE(t) (IS_DURABLE(packs[t]) && IS_DURABLE(parts[t]) && IS_DURABLE(summary[t]))

inline check() {
    assert(history == DEAD || !IS_SEEN(summary[LOCAL]) || ALL_SEEN(LOCAL));
    assert(history == DEAD || !IS_SEEN(summary[AUTHORITY]) || ALL_SEEN(AUTHORITY));
    assert(history != COMMITTED || ALL_DURABLE(AUTHORITY));
    assert(history == DEAD || !told_remote || ALL_DURABLE(AUTHORITY));
    assert(history != PENDING || !told_local || ALL_DURABLE(LOCAL))
}

/* Whoever ran before the power cut is dead; drains and the commit are begun again by others. */
#define STEP(label) atomic { if :: before != cut -> goto label :: else fi

/* ---- the save: packs, parts, then the summary; it may stop for ever at any step ---- */

active proctype Save() {
    bit before;
    if :: STEP(ended); CREATE(packs[LOCAL]) } :: goto stopped fi;
#ifndef NO_SYNC_OF_DATA
    if :: STEP(ended); SYNC(packs[LOCAL]) } :: goto stopped fi;
#endif
    if :: STEP(ended); CREATE(parts[LOCAL]) } :: goto stopped fi;
#ifndef NO_SYNC_OF_DATA
    if :: STEP(ended); SYNC(parts[LOCAL]) } :: goto stopped fi;
#endif
    if :: STEP(ended); sent = true } :: goto stopped fi;
    STEP(ended);
        if
        :: IS_SEEN(summary[LOCAL]) && history == PENDING -> SYNC(summary[LOCAL]); told_local = true; check(); goto ended
        :: true /* its answer is lost */
        fi
    };
stopped:
    /* It is dead; or it has failed, and what nobody can count goes at once. */
    STEP(ended);
        if
#ifdef NO_SENT_CHECK
        :: true
#else
        :: !sent
#endif
        :: goto ended
        fi
    };
    STEP(ended); DELETE(packs[LOCAL]); check() };
    STEP(ended); DELETE(parts[LOCAL]); check() };
ended:
    skip
}

/* The request may arrive whenever it likes, as long as the machine runs. */
active proctype Late() {
end:
    atomic { sent && !cut -> CREATE(summary[LOCAL]); check() }
}

/* ---- drains ---- */

proctype Drain() {
    bit before, skipped;
again:
    atomic { before = cut; skipped = false };
    STEP(again); /* look in the authority, then here */
        if
        :: IS_SEEN(summary[AUTHORITY]) -> goto is_there
        :: !IS_SEEN(summary[AUTHORITY]) && IS_SEEN(summary[LOCAL])
        :: goto stop
        fi
    };
#ifdef SUMMARY_FIRST
    STEP(again); CREATE(summary[AUTHORITY]); SYNC(summary[AUTHORITY]); check() };
#endif
    STEP(again); /* packs: one that is there is skipped; its maker may not have synced it */
        if
        :: IS_SEEN(packs[AUTHORITY]) -> skipped = true
        :: !IS_SEEN(packs[AUTHORITY]) && IS_SEEN(packs[LOCAL]) -> CREATE(packs[AUTHORITY])
        :: else -> goto again
        fi
    };
    STEP(again);
#ifdef NO_SYNC_OF_PACKS
        if :: !skipped -> SYNC(packs[AUTHORITY]) :: else fi
#else
        SYNC(packs[AUTHORITY])
#endif
    };
    STEP(again); if :: IS_SEEN(parts[LOCAL]) -> CREATE(parts[AUTHORITY]) :: else -> goto again fi };
    STEP(again); SYNC(parts[AUTHORITY]) };
#ifndef SUMMARY_FIRST
    STEP(again); CREATE(summary[AUTHORITY]); check() };
    STEP(again); SYNC(summary[AUTHORITY]) };
#endif
    goto tell;
is_there:
#ifndef NO_SYNC_OF_GROUPS
    STEP(again); SYNC(summary[AUTHORITY]) };
#endif
    skip;
tell:
    STEP(again);
        if
        :: history != DEAD -> told_remote = true; check()
        :: else
        fi;
        goto again
    };
stop:
    skip
}

/* ---- the history ---- */

active proctype Commit() {
    bit before;
again:
    before = cut;
    STEP(again); if :: history == PENDING && IS_SEEN(summary[AUTHORITY]) :: goto stop fi };
#ifndef NO_SYNC_BEFORE_COMMIT
    STEP(again); SYNC(summary[AUTHORITY]) };
#endif
    STEP(again);
        if
        :: history == PENDING && IS_SEEN(summary[AUTHORITY]) -> history = COMMITTED; check()
        :: else
        fi
    };
    goto again;
stop:
    skip
}

active proctype Abort() {
    if
    :: atomic { history == PENDING -> history = DEAD }
    :: true
    fi
}

/* ---- deleting ---- */

/* Room on the local tier: what is committed goes, its summary first, and that for good. */
active proctype Evict() {
    bit before;
end:
#ifdef NO_COMMITTED_CHECK
    atomic { IS_SEEN(summary[LOCAL]) && told_local -> before = cut };
#else
    atomic { IS_SEEN(summary[LOCAL]) && history == COMMITTED -> before = cut };
#endif
#ifdef DATA_FIRST
    STEP(ended); DELETE(packs[LOCAL]); check() };
#endif
    STEP(ended); DELETE(summary[LOCAL]); check() };
#ifndef NO_SYNC_OF_EVICTION
    STEP(ended); SYNC(summary[LOCAL]) };
#endif
    STEP(ended); DELETE(packs[LOCAL]); check() };
    STEP(ended); DELETE(parts[LOCAL]); check() };
ended:
    skip
}

/* Giving back, and the sweep of the authority: what is dead. */
active proctype GiveBack() {
end:
#ifdef NO_DEAD_CHECK
    IS_SEEN(packs[AUTHORITY]);
#else
    history == DEAD;
#endif
    atomic { DELETE(summary[AUTHORITY]); check() };
    atomic { SYNC(summary[AUTHORITY]) };
    atomic { DELETE(packs[AUTHORITY]); check() };
    atomic { DELETE(parts[AUTHORITY]); check() }
}

#ifdef POWER_CUT
/* The kernel writes whatever it likes whenever it likes. */
active proctype Kernel() {
    do
    :: atomic { !cut && packs[LOCAL] % 3 != 0 -> SYNC(packs[LOCAL]) }
    :: atomic { !cut && parts[LOCAL] % 3 != 0 -> SYNC(parts[LOCAL]) }
    :: atomic { !cut && summary[LOCAL] % 3 != 0 -> SYNC(summary[LOCAL]) }
    :: atomic { !cut && packs[AUTHORITY] % 3 != 0 -> SYNC(packs[AUTHORITY]) }
    :: atomic { !cut && parts[AUTHORITY] % 3 != 0 -> SYNC(parts[AUTHORITY]) }
    :: atomic { !cut && summary[AUTHORITY] % 3 != 0 -> SYNC(summary[AUTHORITY]) }
    :: break
    od
}

#define LOSE(o) o = ((o & DURABLE) -> SEEN | DURABLE : 0)
active proctype PowerCut() {
    atomic {
        cut = true;
        LOSE(packs[LOCAL]); LOSE(parts[LOCAL]); LOSE(summary[LOCAL]);
        LOSE(packs[AUTHORITY]); LOSE(parts[AUTHORITY]); LOSE(summary[AUTHORITY]);
        check()
    }
}
#endif

init {
    byte i;
    atomic { do :: i < DRAINS -> run Drain(); i++ :: else -> break od; i = 0 }
}
