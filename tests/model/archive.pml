/* SPDX-License-Identifier: Apache-2.0 */
/* An archive behind the authority: is it at each moment a valid store by itself?
 *
 * What is modelled: the authority's log, whose entries name checkpoints; passes that read its head, copy all that it
 * names into the archive, and only then put that entry there (gaps are allowed); a sweep of the archive by the archive's
 * own head; the trimming of the authority's log; a promotion, after which the archive decides by itself. A pass or a sweep
 * may stop at any point, for ever or until long after.
 *
 * The property: what the archive's newest entry names is complete in the archive, always. And after a promotion nothing
 * that the old authority still does changes the archive's head or its data.
 *
 * Sizes: ENTRIES, PASSES. A guard is taken out by -DNO_...
 */
#ifndef ENTRIES
#define ENTRIES 5
#endif
#ifndef PASSES
#define PASSES 2
#endif
#define CKPTS 4             /* checkpoints are bits; each is committed once, in this order, and retired for ever */
#define PROMOTED ENTRIES    /* where the next era's entries begin in archive_names: above all of this era */
#define NONE 255

byte log_names[ENTRIES];    /* the authority's entry n: the checkpoints that it names */
byte head;                  /* its newest entry */
byte ever;                  /* checkpoints that were ever committed by then */
byte ever_at[ENTRIES];      /* the same for each entry */
bit trimmed[ENTRIES];

byte archive_data;          /* checkpoints complete in the archive */
byte archive_names[ENTRIES + 2];
bit archive_entry[ENTRIES + 2];
bit promoted;

#define IN_LOG(n) ((n) <= head && !trimmed[n])

/* What the entry does not know yet was committed, or may be, after it. */
#ifdef NO_AHEAD
#define IS_KNOWN(a, i) true
#else
#define IS_KNOWN(a, i) ((ever_at[a] & (1 << (i))) != 0)
#endif

inline archive_head(ret) {
    ret = ENTRIES + 1;
    do
    :: archive_entry[ret] -> break
    :: else ->
        if
        :: ret == 0 -> ret = NONE; break
        :: else -> ret--
        fi
    od
}

inline check() {
    archive_head(_h);
    if
    :: _h != NONE -> assert((archive_names[_h] & ~archive_data) == 0)
    :: else
    fi;
    _h = 0
}

/* The authority: each entry commits the next checkpoint, or retires one that is not the newest. */
active proctype Authority() {
    byte i;
    do
    :: atomic {
           head + 1 < ENTRIES ->
           if
           :: ever < (1 << CKPTS) - 1 ->
               i = 0; do :: ever & (1 << i) -> i++ :: else -> break od;
               ever = ever | (1 << i);
               log_names[head + 1] = log_names[head] | (1 << i)
           :: log_names[head] > 0 ->
               i = 0; do :: i < CKPTS - 1 -> i++ :: break od;
               if
               :: (log_names[head] & (1 << i)) && (log_names[head] >> i) > 1
               :: else -> i = 0; goto again
               fi;
               log_names[head + 1] = log_names[head] & ~(1 << i)
           fi;
           head++; ever_at[head] = ever; i = 0
       }
    :: atomic { head > 2 && !trimmed[head - 3] -> trimmed[head - 3] = true }
    :: head + 1 == ENTRIES -> break
again: skip
    od
}

/* One pass: read the head, copy, put the entry. */
proctype Pass() {
    byte n, a, i, _h;
    do
    :: atomic {
           archive_head(a); n = head;
           if /* it touches only an archive whose head is an entry of the authority's log, and never a promoted one */
#ifndef NO_LOG_CHECK
           :: a == NONE || (a < ENTRIES && IN_LOG(a) && archive_names[a] == log_names[a])
           :: else -> goto stop
#else
           :: true
#endif
           fi;
           a = 0
       };
#ifndef ENTRY_FIRST
       i = 0;
       do
       :: i < CKPTS ->
           atomic {
               if
               :: log_names[n] & (1 << i) ->
#ifndef NO_RETIRED_CHECK
                   /* The copy fails where the authority has swept it: then this pass ends. */
                   if
                   :: log_names[head] & (1 << i) -> archive_data = archive_data | (1 << i)
                   :: archive_data & (1 << i)
                   :: goto stop
                   fi
#else
                   archive_data = archive_data | (1 << i)
#endif
               :: else
               fi;
               i++
           }
       :: else -> break
       od;
#endif
       /* The create is refused by the name only. What was copied may have been swept meanwhile, by a newer head. */
       atomic {
           if
           :: !archive_entry[n] -> archive_entry[n] = true; archive_names[n] = log_names[n]
           :: else
           fi;
           check(); n = 0; i = 0
       }
#ifdef ENTRY_FIRST
       ; atomic { archive_data = archive_data | log_names[head] }
#endif
    :: break
    od;
stop:
    skip
}

/* The archive's sweep decides on the archive's head: dead is what that entry knows of and does not name. */
active proctype Sweep() {
    byte a, i, _h;
    do
    :: atomic {
           archive_head(a);
           i = 0; do :: i < CKPTS - 1 -> i++ :: break od;
           if
           :: a != NONE && a < ENTRIES && (archive_data & (1 << i)) && !(archive_names[a] & (1 << i)) && IS_KNOWN(a, i)
           :: else -> a = 0; i = 0; goto again
           fi
       };
       atomic { archive_data = archive_data & ~(1 << i); check(); a = 0; i = 0 };
again: skip
    od
}

/* On demand, at any time: this store decides from now on, and goes on from its own head. */
active proctype Promote() {
    byte a, _h;
    atomic {
        archive_head(a);
        a != NONE -> archive_entry[PROMOTED] = true; archive_names[PROMOTED] = archive_names[a]; promoted = true;
        check(); a = 0
    };
    /* Its own sweep, as an authority: only what its head knows and does not name. It is the same as above. */
}

init {
    byte i;
    atomic { do :: i < PASSES -> run Pass(); i++ :: else -> break od; i = 0 }
}
