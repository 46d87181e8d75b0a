/* SPDX-License-Identifier: Apache-2.0 */
/* A rank that waits for others: is what it is told about its save true, and does it stay so?
 *
 * What is modelled (doc/flows/commit.md, "How everybody learns of it"; session_follow.c): a log of entries, created once,
 * by deciders that sleep for as long as they like; trimming; strays under names that were trimmed, until their maker
 * removes them; a name that others can see before it is durable, and a power cut that takes away what is not; a follower
 * that reads the head, syncs, and where the save is in no list any more reads the entries since its last look, from the
 * newest down.
 *
 * One save. An entry says that it is pending (committable), live, or neither: then it was retired, or it died without ever
 * being live, and the entry alone does not tell which. That the head is never a stray is taken for granted (log.pml).
 *
 * The properties: who was told COMMITTED has a commit in the log that nothing takes back; who was told ABORTED never gets
 * one. UNKNOWN may always be told.
 *
 * Sizes: NAMES, KEPT entries, DECIDERS. -DPOWER_CUT adds one. A guard is taken out by -DNO_...
 */
#ifndef NAMES
#define NAMES 6
#endif
#ifndef KEPT
#define KEPT 2
#endif
#ifndef DECIDERS
#define DECIDERS 2
#endif

#define ABSENT 0
#define PENDING 1
#define LIVE 2
#define RETIRED 3
#define DEAD 4
#define IS_LISTED(s) ((s) == PENDING || (s) == LIVE)

byte entry[NAMES + 2];  /* what lies under a name */
bit stray[NAMES + 2];   /* it is no part of the log */
byte top;               /* the newest entry */
byte durable;           /* the newest that a power cut leaves */
bit dark;               /* there was a power cut */

/* ---- ghosts ---- */

byte truth[NAMES + 2];  /* what the log has said under each name */
bit told_committed, told_aborted;

inline check() {
    _i = 1; _live = false;
    do
    :: _i <= top -> _live = _live || truth[_i] == LIVE; _i++
    :: else -> break
    od;
    assert(!told_committed || _live);
    assert(!told_aborted || !_live);
    _i = 0; _live = false
}

/* ---- the log ---- */

inline follow_from(state) {
    if
    :: true /* another event */
    :: state == PENDING -> state = LIVE
    :: state == PENDING -> state = DEAD
    :: state == LIVE -> state = RETIRED
    fi
}

active [DECIDERS] proctype Decider() {
    byte n, state, _i;
    bit mine, _live;
    do
    :: atomic {
           top > 0 && top < NAMES -> n = top + 1; state = entry[top];
           follow_from(state)
       };
       /* Here it may sleep. */
       atomic {
           if
           :: entry[n] == ABSENT -> entry[n] = state; mine = true
           :: else
           fi;
           if
           :: mine && n > top -> top = n; truth[n] = state; check()
           :: mine && n <= top -> stray[n] = true /* the log was here before */
           :: else
           fi
       };
       /* And here, or for ever. */
       atomic {
           if
           :: mine && stray[n] -> entry[n] = ABSENT; stray[n] = false
           :: mine && !stray[n] && n <= top -> durable = top
           :: else
           fi;
           n = 0; state = 0; mine = false
       }
    :: atomic { break }
    od
}

/* Oldest first, by whoever created an entry. */
active proctype Trim() {
    byte i;
    do
    :: atomic {
           i = 1;
           do
           :: i + KEPT <= durable && (entry[i] == ABSENT || stray[i]) -> i++
           :: else -> break
           od;
           if
           :: i + KEPT <= durable -> entry[i] = ABSENT
           :: else
           fi;
           i = 0
       }
    :: break
    od
}

#ifdef POWER_CUT
active proctype PowerCut() {
    byte _i;
    bit _live;
    atomic {
        top > 0 -> dark = true;
        do
        :: top > durable -> entry[top] = ABSENT; truth[top] = ABSENT; top--
        :: else -> break
        od;
        check()
    }
}
#endif

/* ---- the rank: it dies in the power cut, but what it was told somebody knows ---- */

active proctype Follower() {
    byte known = 1, head, state, n, oldest, _i;
    bit hole, was_live, _live;
    do
    :: atomic { !dark && top > known -> head = top; state = entry[head] };
       atomic {
           if
           :: dark -> goto done
#ifndef NO_SYNC
           :: else -> durable = top
#else
           :: else
#endif
           fi;
           oldest = (head > KEPT -> head - KEPT + 1 : 1);
           hole = false; was_live = (state == LIVE); n = head;
#ifndef NO_GAP_READ
           if
           :: IS_LISTED(state)
           :: else ->
               n = (known + 1 > oldest -> known + 1 : oldest);
               hole = (known + 1 < oldest)
           fi;
#endif
           _i = n; n = head; oldest = _i; _i = 0 /* from n down to oldest */
       };
       do
       :: atomic {
              n > oldest ->
              n--;
              if
              :: dark -> goto done
#ifdef NO_CHAIN
              :: !dark && entry[n] != ABSENT -> was_live = was_live || entry[n] == LIVE
#else
              /* Each must be the one that the entry above it names by its hash. */
              :: !dark && entry[n] != ABSENT && !stray[n] -> was_live = was_live || entry[n] == LIVE
#endif
#ifdef NO_HOLES
              :: else
#else
              :: else -> hole = true
#endif
              fi
          }
       :: atomic {
              n <= oldest ->
              if
              :: dark -> goto done
              :: !dark && was_live -> told_committed = true
              :: !dark && !was_live && !hole && !IS_LISTED(state) -> told_aborted = true
              :: else /* pending, or unknown */
              fi;
              check();
              if /* it is told once */
              :: told_committed || told_aborted || !IS_LISTED(state) -> goto done
              :: else
              fi;
              known = head; head = 0; state = 0; n = 0; oldest = 0; hole = false; was_live = false;
              break
          }
       od
    :: break
    od;
done:
    skip
}

init {
    atomic { entry[1] = PENDING; truth[1] = PENDING; top = 1; durable = 1 }
}
