/* SPDX-License-Identifier: Apache-2.0 */
/* A launch: is there ever more than one process in a rank's place, and does who was beaten stay so?
 *
 * What is modelled (doc/flows/open.md; session_open.c, policy_history.c, sweep_rest.c): the ranks of some launches, which
 * look at the head, create their inventories, gather, register, join, and may sleep for as long as they like, or for
 * ever, between any two steps; processes that are started a second time under a launch id that was used; the sweep of
 * inventories, which decides long before it deletes; a register entry that is seen before it is durable, and a power cut.
 *
 * Two ranks. Launches 0 and 2 are of one job, launch 1 of another (-DONE_JOB: all of one). That an entry is created once, on the newest head, is
 * taken for granted (log.pml): reading the head and creating is one step. A launch id that has never registered is not
 * used for a second start: launch ids are unique, and what a second use of one can do is prevented only so far as the
 * history remembers it.
 *
 * The properties: at most one process works in a rank's place of an attempt; a launch never registers over one that
 * registered since it had looked; a job that another one has replaced never registers again; whoever registers finds the
 * inventories of all ranks there; who works does so in an attempt that nothing takes back.
 *
 * Sizes: LAUNCHES. -DTWICE starts each rank of launch 0 twice, -DLATER once more when it has registered, -DSWEEP sweeps inventories of launches that have
 * registered, -DSWEEP_BEATEN also those of launches that were beaten, -DPOWER_CUT adds one. A guard is taken out by
 * -DNO_...
 */
#ifndef LAUNCHES
#define LAUNCHES 2
#endif
#define RANKS 2
#define PLACE(x, rank) ((x) * RANKS + (rank))
#ifdef ONE_JOB
#define JOB(launch) 1
#else
#define JOB(launch) (1 << ((launch) % 2))
#endif
#define ATTEMPTS (LAUNCHES + 2)
#define NOBODY 0

/* ---- the store ---- */

byte inventory[LAUNCHES * RANKS]; /* the writer that created it */
byte seen_by[LAUNCHES];           /* the attempt that rank 0 saw first, as its inventory tells */
byte current;                     /* the newest attempt; 0: none */
byte durable;                     /* the newest that a power cut leaves */
byte launch_of[ATTEMPTS + 1];     /* plus one */
byte used;                        /* launches that have registered */
byte superseded;                  /* jobs */

#define IS_CURRENT(launch) (current > 0 && launch_of[current] == (launch) + 1)

/* ---- ghosts ---- */

byte works[(ATTEMPTS + 1) * RANKS]; /* processes in each place */
byte looked;                        /* launches whose rank 0 has looked, and that have not registered */
byte overtaken;                     /* another one has registered since */
byte replaced;                      /* jobs that another one has replaced */
bit dark;                           /* there was a power cut: whoever ran then is dead */

#ifdef NO_LAUNCH_ID_CHECK
#define IS_UNUSED(launch) true
#else
#define IS_UNUSED(launch) (!(used & (1 << (launch))))
#endif
#ifdef NO_SEEN_CHECK
#define NOBODY_WON(seen) true
#else
#define NOBODY_WON(seen) (current == (seen))
#endif
#ifdef NO_SUPERSEDED_CHECK
#define IS_WELCOME(launch) true
#else
#define IS_WELCOME(launch) (!(superseded & JOB(launch)))
#endif
#define MAY_REGISTER(launch, seen) (IS_UNUSED(launch) && NOBODY_WON(seen) && IS_WELCOME(launch))

inline work(attempt, rank) {
    works[PLACE(attempt, rank)]++;
    assert(works[PLACE(attempt, rank)] == 1)
}

inline create_register() {
    assert(inventory[PLACE(launch, 0)] != NOBODY && inventory[PLACE(launch, 1)] != NOBODY);
    assert(!(overtaken & (1 << launch)));
    assert(!(replaced & JOB(launch)));
    if
    :: current > 0 && JOB(launch_of[current] - 1) != JOB(launch) ->
        superseded = superseded | JOB(launch_of[current] - 1);
        replaced = replaced | JOB(launch_of[current] - 1)
    :: else
    fi;
    current++;
    launch_of[current] = launch + 1;
    used = used | (1 << launch);
    looked = looked & ~(1 << launch);
    overtaken = overtaken | looked;
    attempt = current
}

/* Whoever runs may stop for ever at any step. */
#define OR_STOP :: goto stop

proctype Rank(byte launch; byte rank; byte writer; bit again) {
    byte seen, attempt;
    /* look */
    if
    :: atomic {
           !dark && current < ATTEMPTS && (!again || (used & (1 << launch))) ->
           if
           :: IS_CURRENT(launch) -> goto stop /* registered, and without this process */
           :: else
           fi;
           seen = current;
           if
           :: MAY_REGISTER(launch, seen)
           :: else -> goto stop
           fi;
           if
           :: rank == 0 -> looked = looked | (1 << launch); overtaken = overtaken & ~(1 << launch)
           :: else
           fi
       }
    OR_STOP
    fi;
    /* inventory */
    if
    :: atomic {
           !dark ->
           if
           :: inventory[PLACE(launch, rank)] == NOBODY -> inventory[PLACE(launch, rank)] = writer
#ifndef NO_WRITER_CHECK
           :: else -> goto stop /* another process has this place */
#else
           :: else
#endif
           fi;
           if
           :: rank == 0 -> seen_by[launch] = seen
           :: else -> goto join
           fi
       }
    OR_STOP
    fi;
    /* gather */
    if
    :: atomic { !dark && inventory[PLACE(launch, 1)] != NOBODY }
    OR_STOP
    fi;
    /* register */
    if
    :: atomic {
           !dark && current < ATTEMPTS ->
           if
           :: MAY_REGISTER(launch, seen)
           :: else -> goto stop
           fi;
           create_register()
       }
    OR_STOP
    fi;
    /* The name can be seen, and is not durable yet. */
    atomic {
        if
        :: !dark -> durable = (attempt > durable -> attempt : durable); work(attempt, 0)
        :: else
        fi;
        goto stop
    };
join:
    if
    :: atomic { !dark && IS_CURRENT(launch) -> attempt = current }
    OR_STOP
    fi;
    if
    :: atomic {
           !dark ->
#ifndef NO_SYNC
           durable = current;
#endif
           work(attempt, rank)
       }
    OR_STOP
    fi;
stop:
    skip;
    atomic { seen = 0; attempt = 0 }
}

#ifdef SWEEP
/* Decides on the head, and deletes when it gets to it. */
active proctype Sweep() {
    byte launch;
    bit over;
    do
    :: atomic {
           launch = 0; do :: launch < LAUNCHES - 1 -> launch++ :: break od;
#ifdef NO_CURRENT_CHECK
           over = (used & (1 << launch)) != 0;
#else
           over = (used & (1 << launch)) != 0 && !IS_CURRENT(launch);
#endif
#ifdef SWEEP_BEATEN
#ifdef NO_BEATEN_CHECK
           over = over || (inventory[PLACE(launch, 0)] != NOBODY && !IS_CURRENT(launch));
#else
           over = over || (inventory[PLACE(launch, 0)] != NOBODY && !IS_CURRENT(launch) && seen_by[launch] < current);
#endif
#endif
           if
           :: over
           :: else -> launch = 0; goto again
           fi
       };
       atomic {
           inventory[PLACE(launch, 0)] = NOBODY; inventory[PLACE(launch, 1)] = NOBODY;
           launch = 0; over = false
       };
again: skip
    od
}
#endif

#ifdef POWER_CUT
active proctype PowerCut() {
end:
    atomic {
        current > 0 -> dark = true;
        do
        :: current > durable ->
            assert(works[PLACE(current, 0)] == 0 && works[PLACE(current, 1)] == 0);
            current--
        :: else -> break
        od
    }
}
#endif

init {
    byte i, w = 1;
    atomic {
        do
        :: i < LAUNCHES ->
            run Rank(i, 0, w, false); run Rank(i, 1, w + 1, false);
            w = w + 2; i++
        :: else -> break
        od;
#ifdef TWICE
        run Rank(0, 0, w, false); run Rank(0, 1, w + 1, false);
#endif
#ifdef LATER
        /* A launcher uses the id once more. */
        run Rank(0, 0, w + 2, true); run Rank(0, 1, w + 3, true);
#endif
        i = 0; w = 0
    }
}
