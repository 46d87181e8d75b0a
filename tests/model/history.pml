/* SPDX-License-Identifier: Apache-2.0 */
/* What a history decides, and what becomes of the data: is a valid checkpoint always one, complete, and never lost?
 *
 * What is modelled (doc/flows/): resolve, register (default, rollback, fresh, damage), save with increments, drain,
 * commit, abort, retire, sweep, node loss, and a reader; any of them may stop for ever at any point, and wake up after
 * everybody else has gone on: zombies, slow agents, late uploads.
 *
 * That a decision is a compare-and-swap on the newest entry is taken for granted here, because log.pml shows it: the
 * head is one set of variables, and each decider has a bit that says whether what it read is still the newest. Where a
 * decision needs nothing but the head, reading and creating are one step. No grace is modelled: a sweep deletes at once.
 *
 * Sizes: STEPS, ATTEMPTS, TRIES, GROUPS (1 or 2), LAUNCHES, COORDINATORS. -DROLLBACK, -DNODE_LOSS, -DDAMAGE, -DREADER add
 * events. -DBEGUN starts when two steps are committed. A guard is taken out by -DNO_...: the model must then find what the guard is for.
 */
#ifndef STEPS
#define STEPS 3
#endif
#ifndef ATTEMPTS
#define ATTEMPTS 2
#endif
#ifndef TRIES
#define TRIES 1
#endif
#ifndef GROUPS
#define GROUPS 1
#endif
#ifndef LAUNCHES
#define LAUNCHES ATTEMPTS
#endif
#ifndef COORDINATORS
#define COORDINATORS 1
#endif

/* A checkpoint here is a step of an attempt; a making is one try of it. */
#define CKPTS (STEPS * ATTEMPTS)
#define CKPT(step, attempt) (((step) - 1) * ATTEMPTS + (attempt) - 1)
#define STEP_OF(c) ((c) / ATTEMPTS + 1)
#define ATTEMPT_OF(c) ((c) % ATTEMPTS + 1)
#define MAKING(c, try) ((c) * TRIES + (try))
#define ALL_GROUPS ((1 << GROUPS) - 1)

/* ---- the data: for each making the groups that are complete, one bit each ---- */

byte on_nodes[CKPTS * TRIES];
byte in_authority[CKPTS * TRIES];
byte ref[CKPTS * TRIES];    /* the checkpoint that it refers to, plus one; 0: none */
bit failed[CKPTS * TRIES];  /* a group put `failed` */
#ifdef DAMAGE
bit damaged[CKPTS];         /* its data in the authority was damaged, and this is confirmed */
#endif

/* ---- the head: the newest entry ---- */

byte current;               /* attempt */
byte from_ckpt;             /* what it went on from, plus one; 0: nothing */
byte from_try;
bit from_open;              /* that one is not committed yet */
byte floor;                 /* h: only steps above it may be committed */
byte tries[STEPS + 1];
byte live[STEPS + 1];       /* attempt of the live checkpoint of a step; 0: none */
bit shelved[CKPTS];
byte committed_try[CKPTS];  /* of what is or was live */
byte newest;                /* highest live step; a function of `live` */
byte unchanged;             /* one bit for each coordinator: what it read is still the newest entry */

#define DECIDED unchanged = 0

/* ---- ghosts ---- */

bit was_committed[CKPTS * TRIES]; /* some entry committed it */
bit told_over[CKPTS * TRIES];     /* its ranks were told that it is aborted, or its attempt over */

/* ---- the rules, as in policy_history.c ---- */

#define IS_LIVE(c) (live[STEP_OF(c)] == ATTEMPT_OF(c))
#define IS_KEPT(c) (shelved[c] || IS_LIVE(c))
#define IS_FROM(c, try) (from_open && from_ckpt == (c) + 1 && (try) == from_try)

#ifdef NO_TRY_CHECK
#define IS_CURRENT_TRY(c, try) true
#else
#define IS_CURRENT_TRY(c, try) ((try) == tries[STEP_OF(c)])
#endif
#ifdef NO_FLOOR
#define IS_ABOVE_FLOOR(c) (live[STEP_OF(c)] == 0 && (from_ckpt == 0 || STEP_OF(c) > STEP_OF(from_ckpt - 1)))
#else
#define IS_ABOVE_FLOOR(c) (STEP_OF(c) > floor)
#endif
/* But for its refs. */
#define MAY_COMMIT(c, try) \
    ((ATTEMPT_OF(c) == current && IS_ABOVE_FLOOR(c) && IS_CURRENT_TRY(c, try)) || IS_FROM(c, try))

#ifdef NO_NEWEST_CHECK
#define IS_NEWEST(c) false
#else
#define IS_NEWEST(c) (IS_LIVE(c) && STEP_OF(c) == newest)
#endif

/* The entry does not know it yet. */
#ifdef NO_AHEAD
#define IS_AHEAD(c, try) false
#else
#define IS_AHEAD(c, try) \
    (ATTEMPT_OF(c) > current || (ATTEMPT_OF(c) == current && (try) > tries[STEP_OF(c)]))
#endif

#define IS_REF_OF_FROM(c) (from_open && ref[MAKING(from_ckpt - 1, from_try)] == (c) + 1)
#ifdef NO_REF_OF_FROM
#define REF_OF_FROM(c) false
#else
#define REF_OF_FROM(c) IS_REF_OF_FROM(c)
#endif

#define COMPLETE(c, try) (in_authority[MAKING(c, try)] == ALL_GROUPS)
#ifdef NO_COMPLETENESS_CHECK
#define IS_RIPE(c, try) true
#else
#define IS_RIPE(c, try) COMPLETE(c, try)
#endif

/* A ref is live, or the ref of a live one. r: checkpoint plus one. */
inline ref_holds(r, ret) {
    ret = (r == 0 || IS_LIVE(r - 1));
    _i = 1;
    do
    :: !ret && _i <= STEPS ->
        if
        :: live[_i] > 0 && ref[MAKING(CKPT(_i, live[_i]), committed_try[CKPT(_i, live[_i])])] == r -> ret = true
        :: else
        fi;
        _i++
    :: else -> break
    od;
    _i = 0
}

inline is_referenced(c, ret) {
    ret = REF_OF_FROM(c);
    _i = 0;
    do
    :: !ret && _i < CKPTS ->
        if
        :: IS_KEPT(_i) && ref[MAKING(_i, committed_try[_i])] == (c) + 1 -> ret = true
        :: else
        fi;
        _i++
    :: else -> break
    od;
    _i = 0
}

inline find_newest() {
    newest = STEPS;
    do
    :: newest > 0 && live[newest] == 0 -> newest--
    :: else -> break
    od
}

/* Whatever is live or shelved is complete, and so is what it refers to; so is what the open from refers to. */
inline check_data() {
    _i = 0;
    do
    :: _i < CKPTS ->
        if
        :: IS_KEPT(_i) || IS_REF_OF_FROM(_i) ->
            assert(COMPLETE(_i, committed_try[_i]));
            if
            :: IS_KEPT(_i) && ref[MAKING(_i, committed_try[_i])] > 0 ->
                assert(COMPLETE(ref[MAKING(_i, committed_try[_i])] - 1,
                                committed_try[ref[MAKING(_i, committed_try[_i])] - 1]))
            :: else
            fi
        :: else
        fi;
        _i++
    :: else -> break
    od;
    _i = 0
}

inline any_step(s) { s = 1; do :: s < STEPS -> s++ :: break od }
inline any_making(c, t) {
    c = 0; do :: c < CKPTS - 1 -> c++ :: break od;
    t = 0; do :: t < TRIES - 1 -> t++ :: break od
}

/* ---- a launch: resolve, register, then saves ---- */

/* Resolve and register are one step: the entry counts only on the head that was resolved on, and data that goes away in
 * between (node loss) may as well go away right behind. */
inline resolve_and_register() {
    r = newest; p = live[newest]; t = 0;
    if
    :: true /* default: the newest live one */
    :: true -> /* default: one that is not committed, newer, and whole */
        any_step(s);
        p = 1; do :: p < ATTEMPTS -> p++ :: break od;
        t = 0; do :: t < TRIES - 1 -> t++ :: break od;
        ok = false;
        if
        :: s > newest && MAY_COMMIT(CKPT(s, p), t) && !IS_KEPT(CKPT(s, p)) && !failed[MAKING(CKPT(s, p), t)] &&
           (on_nodes[MAKING(CKPT(s, p), t)] | in_authority[MAKING(CKPT(s, p), t)]) == ALL_GROUPS ->
            ref_holds(ref[MAKING(CKPT(s, p), t)], ok)
        :: else
        fi;
        if
        :: ok -> r = s; open = true
        :: else -> goto stop
        fi
#ifdef ROLLBACK
    :: true -> /* rollback: to a live or shelved one */
        on_demand = true; any_step(s);
        p = 1; do :: p < ATTEMPTS -> p++ :: break od;
        if
        :: IS_KEPT(CKPT(s, p)) -> r = s
        :: else -> goto stop
        fi
    :: true -> on_demand = true; r = 0; p = 0 /* fresh */
#endif
#ifdef DAMAGE
    :: newest > 0 && damaged[CKPT(newest, live[newest])] -> /* on_damage = previous */
        on_demand = true;
        do
        :: r > 0 && (live[r] == 0 || damaged[CKPT(r, live[r])]) -> r--
        :: else -> break
        od;
        if
        :: r > 0 -> p = live[r]
        :: else -> goto stop
        fi
#endif
    fi;
    /* Newest never goes backwards, but on demand or for damage. */
    assert(on_demand || r >= newest);
    me = current + 1;
    current = me;
    from_open = open; from_try = (open -> t : 0);
    if
    :: r > 0 -> from_ckpt = CKPT(r, p) + 1
    :: else -> from_ckpt = 0
    fi;
    floor = r;
    DECIDED;
    s = 1;
    do
    :: s <= STEPS ->
        tries[s] = 0;
        if
        :: live[s] > 0 && (s > r || (on_demand && r > 0 && live[r] != p)) ->
            shelved[CKPT(s, live[s])] = true; live[s] = 0
        :: else
        fi;
        s++
    :: else -> break
    od;
    if
    :: on_demand && r > 0 -> live[r] = p; shelved[CKPT(r, p)] = false
    :: else
    fi;
    find_newest();
    s = r + 1; r = 0; p = 0; t = 0; open = false; on_demand = false; ok = false
}

/* What the ranks of a save are told, when they look at the head and, where it is in no list, at the log. */
inline follow(c, try) {
    if
    :: MAY_COMMIT(c, try) || IS_AHEAD(c, try) || (IS_KEPT(c) && committed_try[c] == try)
#ifdef NO_GAP_READ
    :: else -> assert(!was_committed[MAKING(c, try)]); told_over[MAKING(c, try)] = true
#else
    :: else -> told_over[MAKING(c, try)] = !was_committed[MAKING(c, try)]
#endif
    fi
}

proctype Launch(bit runs) {
    byte me, s, t, r, p, _i;
    bit open, on_demand, ok;
    if
    :: atomic { runs -> me = 1; s = 3 }
    :: atomic { !runs && current < ATTEMPTS -> resolve_and_register() }
    fi;
    do
    :: atomic { s <= STEPS -> s++; t = 0 }
    :: atomic {
           s <= STEPS ->
           /* plan: the try is the larger of the next own one and that of the head; the base follows from the head */
           if
           :: current == me && t < tries[s] -> t = tries[s]
           :: current == me && t >= tries[s]
           :: else -> goto stop
           fi;
           if
           :: t < TRIES && in_authority[MAKING(CKPT(s, me), t)] == 0 && on_nodes[MAKING(CKPT(s, me), t)] == 0
           :: else -> goto stop
           fi;
           p = 0;
           if
           :: true
           :: any_step(p);
              if
              :: live[p] > 0 -> p = CKPT(p, live[p]) + 1
              :: else -> goto stop
              fi
           :: newest > 0 && ref[MAKING(CKPT(newest, live[newest]), committed_try[CKPT(newest, live[newest])])] > 0 ->
               p = ref[MAKING(CKPT(newest, live[newest]), committed_try[CKPT(newest, live[newest])])]
           fi;
           ref[MAKING(CKPT(s, me), t)] = p; p = 0
       };
       /* write and publish: the summaries come last, so a group is there or not */
       atomic {
           if
           :: on_nodes[MAKING(CKPT(s, me), t)] = ALL_GROUPS
           :: GROUPS > 1 -> on_nodes[MAKING(CKPT(s, me), t)] = 1; failed[MAKING(CKPT(s, me), t)] = true
           :: TRIES > 1 -> /* an answer was lost: it failed, and is complete */
              on_nodes[MAKING(CKPT(s, me), t)] = ALL_GROUPS;
              failed[MAKING(CKPT(s, me), t)] = true
           :: true -> failed[MAKING(CKPT(s, me), t)] = true
           :: goto stop
           fi
       };
       atomic {
           if
           :: follow(CKPT(s, me), t); t = 0; s++
           :: failed[MAKING(CKPT(s, me), t)] && t + 1 < TRIES -> t++ /* again, before the abort is entered */
           fi
       }
    :: atomic { goto stop }
    od;
stop:
    skip;
    d_step { me = 0; s = 0; t = 0; r = 0; p = 0; open = false; on_demand = false; ok = false }
}

/* ---- abort: whoever sees the mark; and tells those who wait ---- */

active proctype Abort() {
    byte c, t;
    do
    :: atomic {
           any_making(c, t);
           if
           :: failed[MAKING(c, t)] && MAY_COMMIT(c, t) ->
               if
               :: IS_FROM(c, t) -> from_open = false
               :: else -> tries[STEP_OF(c)] = t + 1
               fi;
               DECIDED;
               assert(!was_committed[MAKING(c, t)]);
               told_over[MAKING(c, t)] = true
           :: else
           fi;
           c = 0; t = 0
       }
    od
}

/* ---- commit: rank 0 of any attempt, alive or a zombie, or somebody who finishes what a dead job left ---- */

active [COORDINATORS] proctype Coordinator() {
    byte c, t, before, _i;
    bit ok;
    do
    :: atomic { /* look */
           any_making(c, t);
           ok = false;
           if
           :: MAY_COMMIT(c, t) && IS_RIPE(c, t) ->
#ifdef NO_REF_CHECK
               ok = true
#else
               ref_holds(ref[MAKING(c, t)], ok)
#endif
           :: else
           fi;
           if
           :: ok -> unchanged = unchanged | (1 << _pid)
           :: else -> c = 0; t = 0; goto again
           fi
       };
       if /* decide */
       :: d_step {
#ifndef NO_COMPARE_AND_SWAP
              ((unchanged >> _pid) & 1) ->
#endif
              DECIDED;
              assert(live[STEP_OF(c)] == 0);          /* no two valid checkpoints of a step */
              assert(!was_committed[MAKING(c, t)]);   /* what was retired is gone for ever */
              assert(!told_over[MAKING(c, t)]);       /* what was reported as aborted stays so */
              live[STEP_OF(c)] = ATTEMPT_OF(c);
              committed_try[c] = t; was_committed[MAKING(c, t)] = true;
              from_open = false;
              if
              :: STEP_OF(c) > floor -> floor = STEP_OF(c)
              :: else
              fi;
              before = newest; find_newest();
              assert(newest >= before);
              check_data();
              c = 0; t = 0; before = 0; ok = false
          }
       :: d_step { !((unchanged >> _pid) & 1) -> c = 0; t = 0; ok = false }
       fi;
again: skip
    od
}

/* ---- drain: any upload at any time of whatever is on a node, the dead included ---- */

active proctype Drain() {
    byte c, t;
    do
    :: atomic {
           any_making(c, t);
           if
           :: on_nodes[MAKING(c, t)] & 1 -> in_authority[MAKING(c, t)] = in_authority[MAKING(c, t)] | 1
           :: on_nodes[MAKING(c, t)] & 2 -> in_authority[MAKING(c, t)] = in_authority[MAKING(c, t)] | 2
           :: else
           fi;
           c = 0; t = 0
       }
    od
}

/* ---- retire: retention, or a person ---- */

active proctype Retire() {
    byte c, t, _i;
    do
    :: atomic {
           any_making(c, t);
           t = 0;
           if
           :: IS_KEPT(c) && !REF_OF_FROM(c) && !IS_NEWEST(c) ->
              _i = newest; DECIDED;
              if
              :: IS_LIVE(c) -> live[STEP_OF(c)] = 0
              :: else -> shelved[c] = false
              fi;
              find_newest();
              assert(newest >= _i); _i = 0
           :: else
           fi;
           c = 0
       }
    od
}

/* ---- sweep: decides on the head, and deletes when it gets to it ---- */

active proctype Sweep() {
    byte c, t, _i;
    bit ok;
    do
    :: atomic {
           any_making(c, t);
           is_referenced(c, ok);
#ifdef NO_REFERENCE_CHECK
           ok = false;
#endif
           ok = in_authority[MAKING(c, t)] != 0 && !ok && !(IS_KEPT(c) && committed_try[c] == t) &&
                !MAY_COMMIT(c, t) && !IS_AHEAD(c, t);
           if
           :: ok
           :: else -> c = 0; t = 0; goto again
           fi
       };
       d_step { in_authority[MAKING(c, t)] = 0; check_data(); c = 0; t = 0; ok = false };
again: skip
    od
}

#ifdef NODE_LOSS
/* Each group has a node of its own. */
active proctype NodeLoss() {
    byte m;
    do
    :: atomic {
           m = 0; do :: m < CKPTS * TRIES - 1 -> m++ :: break od;
           if
           :: on_nodes[m] = on_nodes[m] & 2
           :: on_nodes[m] = on_nodes[m] & 1
           fi;
           m = 0
       }
    od
}
#endif

#ifdef DAMAGE
active proctype Damage() {
    byte s;
    atomic { any_step(s); live[s] > 0 -> damaged[CKPT(s, live[s])] = true; s = 0 }
}
#endif

#ifdef READER
/* Reads group by group. What is missing sends it back to the head; it ends with groups of one checkpoint only, and that
 * one was committed. */
active proctype Reader() {
    byte c, t, g, got[GROUPS];
    do
    :: atomic {
           newest > 0 -> c = CKPT(newest, live[newest]); t = committed_try[c]; g = 0
       };
       do
       :: atomic {
              g < GROUPS ->
              if
              :: in_authority[MAKING(c, t)] & (1 << g) -> got[g] = MAKING(c, t) + 1; g++
#ifndef NO_RESTART
              :: else -> break /* swept meanwhile: again, all of it */
#else
              :: else -> c = CKPT(newest, live[newest]); t = committed_try[c]
#endif
              fi
          }
       :: atomic {
              g == GROUPS -> g = 0;
              assert(was_committed[got[0] - 1]);
              do
              :: g < GROUPS -> assert(got[g] == got[0]); g++
              :: else -> break
              od;
              goto done
          }
       od;
       atomic { g = 0; do :: g < GROUPS -> got[g] = 0; g++ :: else -> break od; g = 0; c = 0; t = 0 }
    od;
done:
    skip
}
#endif

/* Steps 1 and 2 are committed by the attempt that runs; 2 may refer to 1. */
inline begin_later() {
    current = 1;
    i = 1;
    do
    :: i <= 2 ->
        on_nodes[MAKING(CKPT(i, 1), 0)] = ALL_GROUPS;
        in_authority[MAKING(CKPT(i, 1), 0)] = ALL_GROUPS;
        live[i] = 1;
        was_committed[MAKING(CKPT(i, 1), 0)] = true;
        i++
    :: else -> break
    od;
    if
    :: ref[MAKING(CKPT(2, 1), 0)] = CKPT(1, 1) + 1
    :: true
    fi;
    floor = 2; newest = 2;
    i = 0
}

init {
    byte i;
    atomic {
#ifdef BEGUN
        begin_later();
#endif
        do
        :: i < LAUNCHES ->
#ifdef BEGUN
            run Launch(i == 0);
#else
            run Launch(false);
#endif
            i++
        :: else -> break
        od;
        i = 0
    }
}
