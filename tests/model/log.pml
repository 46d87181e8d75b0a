/* SPDX-License-Identifier: Apache-2.0 */
/* The log of a run: is a decision that somebody was told of ever taken back?
 *
 * What is modelled (doc/flows/README.md, "Who decides"; decide.c, history_head.c, session_follow.c, catalog_repair.c):
 * deciders that read the head, compute the next entry and create it once; creates whose answer is lost; deciders that
 * sleep for as long as they like, and wake up when the log has moved on and was trimmed; trimming, oldest entry first;
 * a follower that reports what it reads; a newest entry that is damaged, and its repair, which begins the next era.
 *
 * An entry is the set of the commits that it holds, one bit for each. A commit is *reported* once anybody was told that
 * it is decided. The property: as long as the newest entry is sound, it holds all that was ever reported. The newest
 * entry itself cannot be told from a stray one by looking at it, so the highest name is taken, as every reader does.
 *
 * Sizes: DECIDERS, COMMITS (each, at most), KEPT entries, NAMES per era, REPAIRERS. A guard is taken out by -DNO_...
 */
#ifndef DECIDERS
#define DECIDERS 2
#endif
#ifndef COMMITS
#define COMMITS 3
#endif
#ifndef KEPT
#define KEPT 2
#endif
#ifndef NAMES
#define NAMES 7 /* DECIDERS * COMMITS + 1, and what a repair adds */
#endif
#ifndef REPAIRERS
#define REPAIRERS 0
#endif
#define ERAS (REPAIRERS > 0 -> 2 : 1)
#define NAME(era, n) ((era) * NAMES + (n))

/* What is under a name. An end of an era is put where no entry may follow. */
#define ABSENT 0
#define SOUND 1
#define DAMAGED 2
#define ERA_END 3

byte entry[2 * NAMES];     /* ABSENT, SOUND, ... */
byte holds[2 * NAMES];     /* the commits in it */
byte complete;             /* commits whose data is complete in the authority */
byte reported;             /* ghost: commits that somebody was told of */
bit damage_done;           /* one entry is damaged in a run of the model */

/* ---- the store ---- */

/* Highest name: era and n; n = 0: there is none. The listing of a store is one step here; that it comes in pages does not
 * matter, because names are only added above and removed below. */
inline list(ret_era, ret_n) {
    ret_era = 1;
    ret_n = NAMES - 1;
    do
    :: entry[NAME(ret_era, ret_n)] != ABSENT -> break
    :: else ->
        if
        :: ret_n > 1 -> ret_n--
        :: ret_n == 1 && ret_era == 1 -> ret_era = 0; ret_n = NAMES - 1
        :: else -> ret_n = 0; break
        fi
    od
}

/* The newest sound entry below a damaged one; n = 0: none. */
inline newest_sound(ret_era, ret_n) {
    list(ret_era, ret_n);
    do
    :: ret_n > 0 && entry[NAME(ret_era, ret_n)] != SOUND -> ret_n--
    :: ret_n == 0 && ret_era == 1 ->
        ret_era = 0; ret_n = NAMES - 1
    :: else -> break
    od
}

/* The property, after each step that changes what the highest name is. */
inline check() {
    list(_era, _n);
    if
    :: _n > 0 && entry[NAME(_era, _n)] == SOUND -> assert((reported & ~holds[NAME(_era, _n)]) == 0)
    :: else
    fi;
    _era = 0; _n = 0
}

/* ---- deciding ---- */

/* Is an entry (era, n) that we have seen part of the log? A listing after seeing it says so: a later era, or a name so
 * far above that (era, n) was trimmed before, mean that its creator slept through the log. */
#ifdef NO_STRAY_CHECK
#define IS_STRAY(era, n, top_era, top_n) false
#else
#ifdef STRAY_OFF_BY_ONE
#define IS_STRAY(era, n, top_era, top_n) ((top_era) > (era) || (top_n) > (n) + KEPT)
#else
#define IS_STRAY(era, n, top_era, top_n) ((top_era) > (era) || (top_n) >= (n) + KEPT)
#endif
#endif

proctype Decider(byte me) {
    byte era, n, next, top_era, top_n, left = COMMITS, commit;
    byte _era, _n;
    commit = 1 << (me * COMMITS);
read_head:
    atomic {
        list(era, n);
        if
        :: n > 0 && entry[NAME(era, n)] != SOUND -> goto stop /* writers refuse */
        :: n > 0 && (holds[NAME(era, n)] & commit) -> reported = reported | commit; check(); goto done
        :: n + 1 >= NAMES -> goto stop
        :: else -> next = holds[NAME(era, n)] | commit; complete = complete | commit
        fi
    };
    /* Here it may sleep. A lost answer is asked for by sending the same bytes again, which changes nothing. */
create:
    atomic {
        if
        :: entry[NAME(era, n + 1)] == ABSENT ->
            entry[NAME(era, n + 1)] = SOUND; holds[NAME(era, n + 1)] = next
        :: else -> era = 0; n = 0; next = 0; goto read_head /* taken: start over */
        fi
    };
    /* And here. */
    atomic {
        list(top_era, top_n);
        if
        :: IS_STRAY(era, n + 1, top_era, top_n) ->
            entry[NAME(era, n + 1)] = ABSENT;
            era = 0; n = 0; next = 0; top_era = 0; top_n = 0; goto read_head
        :: else
        fi;
        reported = reported | commit; check()
    };
    /* Oldest first, one by one, and it may stop after any of them. */
    top_n = 1;
    do
    :: top_n + KEPT <= n + 1 -> atomic { entry[NAME(era, top_n)] = ABSENT; check() }; top_n++
    :: break
    od;
done:
    atomic {
        left--; commit = commit << 1; era = 0; n = 0; next = 0; top_era = 0; top_n = 0;
        if
        :: left > 0 -> goto read_head
        :: else
        fi
    };
stop:
    skip
}

/* Ranks that learn of commits by reading: they list, read the highest, and list again before they believe it. */
active proctype Follower() {
    byte era, n, seen, top_era, top_n;
    byte _era, _n;
    do
    :: atomic { list(era, n); if :: n > 0 :: else -> goto again fi };
       atomic { if :: entry[NAME(era, n)] == SOUND -> seen = holds[NAME(era, n)] :: else -> goto again fi };
       atomic {
#ifndef NO_LISTING_AFTER_READING
           list(top_era, top_n);
#else
           top_era = era; top_n = n;
#endif
           if
           :: !(IS_STRAY(era, n, top_era, top_n)) -> reported = reported | seen; check()
           :: else
           fi
       };
again: atomic { era = 0; n = 0; seen = 0; top_era = 0; top_n = 0 }
    od
}

#if REPAIRERS > 0
/* Any sound entry that is the newest at that moment. */
active proctype Damage() {
    byte era, n;
    atomic {
        list(era, n);
        (n > 0 && entry[NAME(era, n)] == SOUND) -> entry[NAME(era, n)] = DAMAGED; damage_done = 1; era = 0; n = 0
    }
}

/* On demand: the next era begins from the newest sound entry, with all that is complete. */
proctype Repairer() {
    byte era, n, base_era, base_n, state, found;
    byte _era, _n;
read_head:
    atomic {
        list(era, n);
        if
        :: n > 0 && entry[NAME(era, n)] != SOUND && era == 0
        :: else -> goto stop /* nothing to repair */
        fi;
#ifndef NO_END_OF_ERA
        if
        :: entry[NAME(era, n)] == ERA_END -> n-- /* another repair has ended it: go on from there */
        :: else
        fi
#endif
    };
#ifndef NO_END_OF_ERA
    /* Whoever read the head before it was damaged would create n + 1 of the old era: now nobody can. */
    atomic {
        if
        :: entry[NAME(era, n + 1)] == ABSENT -> entry[NAME(era, n + 1)] = ERA_END
        :: entry[NAME(era, n + 1)] == ERA_END
        :: else -> era = 0; n = 0; goto read_head
        fi
    };
    n++;
#endif
    atomic { newest_sound(base_era, base_n); state = holds[NAME(base_era, base_n)] };
    atomic { found = complete & ~state };
    atomic {
        if
        :: n + 1 < NAMES && entry[NAME(era + 1, n + 1)] == ABSENT ->
            entry[NAME(era + 1, n + 1)] = SOUND; holds[NAME(era + 1, n + 1)] = state | found; check()
        :: else
        fi
    };
stop:
    skip
}
#endif

init {
    byte i;
    atomic {
        i = 0;
        do
        :: i < DECIDERS -> run Decider(i); i++
        :: else -> break
        od;
#if REPAIRERS > 0
        i = 0;
        do
        :: i < REPAIRERS -> run Repairer(); i++
        :: else -> break
        od;
#endif
        i = 0
    }
}
