/* SPDX-License-Identifier: Apache-2.0 */
/* An archive behind the authority: is it at each moment a valid store by itself, and of one life?
 *
 * What is modelled: the authority's log, whose entries name checkpoints; passes that read its head, copy all that it
 * names into the archive, and only then put that entry there (gaps are allowed); a sweep of the archive by the archive's
 * own head; the trimming of the authority's log; an authority that is emptied and used again, which begins another life
 * of the run; a promotion, after which the archive decides by itself. A pass or a sweep may stop at any point, for ever
 * or until long after; only that none sleeps from one life into the next is taken for granted: nothing but the archive's
 * first entry says whose it is, and two that find none would each put theirs.
 *
 * The properties: what the archive's newest entry names is complete in the archive, always; all its entries are of one
 * life; and its newest entry never goes back.
 *
 * Sizes: ENTRIES, PASSES. -DLIFE adds the second life. A guard is taken out by -DNO_...
 */
#ifndef ENTRIES
#define ENTRIES 4
#endif
#ifndef PASSES
#define PASSES 2
#endif
#define CKPTS 3             /* of each life; they are bits, each committed once, in this order, and retired for ever */
#define BIT(life, i) (1 << ((life) * CKPTS + (i)))
#define PROMOTED ENTRIES    /* where the next era's entry stands in the archive: above all of this era */
#define NONE 255

bit life;                   /* of the authority */
byte log_names[ENTRIES];    /* its entry n: the checkpoints that it names */
byte ever_at[ENTRIES];      /* all that were committed by then */
bit trimmed[ENTRIES];
byte head;                  /* its newest entry */

byte archive_data;          /* checkpoints complete in the archive */
bit archive_entry[ENTRIES + 1];
byte archive_names[ENTRIES + 1];
byte archive_ever[ENTRIES + 1];
bit archive_life;           /* of its first entry */
bit archive_begun;
byte at_work;               /* passes between their first step and their last */
byte highest;               /* ghost: its newest entry so far, plus one */

/* What the entry does not know yet was committed, or may be, after it. */
#ifdef NO_AHEAD
#define IS_KNOWN(a, b) true
#else
#define IS_KNOWN(a, b) ((archive_ever[a] & (b)) != 0)
#endif

/* Whether the authority still has it: what was retired is swept at any time. */
#define IS_THERE(b) ((log_names[head] & (b)) != 0)

inline archive_head(ret) {
    ret = ENTRIES;
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
    :: _h != NONE ->
        assert((archive_names[_h] & ~archive_data) == 0);
        assert(_h + 1 >= highest);
        highest = _h + 1
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
           i = 0;
           do
           :: i < CKPTS && (ever_at[head] & BIT(life, i)) -> i++
           :: else -> break
           od;
           if
           :: i < CKPTS ->
               ever_at[head + 1] = ever_at[head] | BIT(life, i);
               log_names[head + 1] = log_names[head] | BIT(life, i)
           :: log_names[head] > 0 ->
               i = 0; do :: i < CKPTS - 1 -> i++ :: break od;
               if
               :: (log_names[head] & BIT(life, i)) && log_names[head] >= BIT(life, i + 1)
               :: else -> i = 0; goto again
               fi;
               ever_at[head + 1] = ever_at[head];
               log_names[head + 1] = log_names[head] & ~BIT(life, i)
           fi;
           head++; i = 0
       }
    :: atomic { head > 2 && !trimmed[head - 3] -> trimmed[head - 3] = true }
#ifdef LIFE
    :: atomic { /* somebody empties it, and uses it again */
           life == 0 && at_work == 0 -> life = 1;
           i = 0;
           do
           :: i < ENTRIES -> log_names[i] = 0; ever_at[i] = 0; trimmed[i] = false; i++
           :: else -> break
           od;
           head = 0; i = 0
       }
#endif
    :: head + 1 == ENTRIES -> break
again: skip
    od
}

/* One pass: read the head, copy, put the entry that was read. */
proctype Pass() {
    byte n, names, ever, a, i, _h;
    bit its_life;
    do
    :: atomic {
           archive_head(a);
           n = head; names = log_names[n]; ever = ever_at[n]; its_life = life;
           if
#ifndef NO_LOG_CHECK
           /* It touches only an archive whose head is, byte for byte, an entry of the authority's log. */
           :: a == NONE || (a <= head && !trimmed[a] && archive_names[a] == log_names[a] && archive_life == life)
           :: else -> goto stop
#else
           :: true
#endif
           fi;
           a = 0; at_work++
       };
#ifndef ENTRY_FIRST
       i = 0;
       do
       :: i < CKPTS ->
           atomic {
               if
               :: names & BIT(its_life, i) ->
                   if
                   :: IS_THERE(BIT(its_life, i)) -> archive_data = archive_data | BIT(its_life, i)
                   :: !IS_THERE(BIT(its_life, i)) && (archive_data & BIT(its_life, i))
#ifdef NO_RETIRED_CHECK
                   :: else
#else
                   :: else -> at_work--; goto stop /* swept in the authority meanwhile: this pass ends */
#endif
                   fi
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
           :: !archive_entry[n] ->
               assert(!archive_begun || archive_life == its_life);
               archive_entry[n] = true; archive_names[n] = names; archive_ever[n] = ever;
               archive_life = its_life; archive_begun = true
           :: else
           fi;
           check(); i = 0
       }
#ifdef ENTRY_FIRST
       ; atomic { archive_data = archive_data | names }
#endif
       ; atomic { at_work--; n = 0; names = 0; ever = 0; its_life = 0 }
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
           :: a != NONE && (archive_data & BIT(archive_life, i)) && !(archive_names[a] & BIT(archive_life, i)) &&
              IS_KNOWN(a, BIT(archive_life, i))
           :: else -> a = 0; i = 0; goto again
           fi
       };
       atomic { archive_data = archive_data & ~BIT(archive_life, i); check(); a = 0; i = 0 };
again: skip
    od
}

/* On demand, at any time: this store decides from now on, and goes on from its own head, in the next era. */
active proctype Promote() {
    byte a, _h;
    atomic {
        archive_head(a);
        a != NONE -> archive_entry[PROMOTED] = true;
        archive_names[PROMOTED] = archive_names[a]; archive_ever[PROMOTED] = archive_ever[a];
        check(); a = 0
    }
}

init {
    byte i;
    atomic { do :: i < PASSES -> run Pass(); i++ :: else -> break od; i = 0 }
}
