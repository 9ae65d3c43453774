/* SPDX-License-Identifier: MIT */
/* Model of one Create(request_id) through agentboxd, with lost replies, a provably refused
 * attempt, up to MAXCRASH daemon SIGKILLs at any step, and a cloud that boots a sandbox
 * invisibly before listing it. `reap_unknown` stands for what becomes of a sandbox that nobody claims.
 *   spin -a [-DNAIVE_RETRY | -DNO_INTENT | -DSHORT_H -DNO_SWEEP | -DACK_FIRST | -DSWEEP_EAGER] create_intent.pml
 *   cc -O2 -DSAFETY -o pan pan.c && ./pan            (assertions + end states)
 */
#ifndef MAXCRASH
#define MAXCRASH 2
#endif
#define NBOX 3
mtype = { NONE, INTENT, ACTIVE, SETTLING, CLOSED };         /* store row (durable)      */
mtype = { B_NONE, B_HIDDEN, B_LISTED, B_DEAD };             /* what the cloud holds      */
mtype = { R_NONE, R_OK, R_REFUSED, R_LOST };                /* what the daemon learns    */

mtype store = NONE;  byte store_id = 255;                   /* durable                   */
mtype box[NBOX] = B_NONE; byte accepted = 0;                     /* ground truth              */
bit inflight = 0; bit delivered = 0; byte pend_id = 255; mtype reply = R_NONE; byte reply_id = 255; /* network               */
byte crashes = 0;    bit acked = 0; byte acked_id = 255; bit up = 1; bit gaveup = 0;

#ifdef SHORT_H
#define HORIZON_PASSED true
#else
#define HORIZON_PASSED (inflight == 0 && delivered == 0 && box[0] != B_HIDDEN && box[1] != B_HIDDEN && box[2] != B_HIDDEN)
#endif

active proctype cloud() {
  byte i;
  end: do
  :: atomic { inflight == 1 && accepted < NBOX ->            /* POST reaches the API      */
       inflight = 0; i = accepted; accepted++;
       if :: box[i] = B_LISTED; delivered = 1; pend_id = i     /* listed, reply on its way  */
          :: box[i] = B_HIDDEN; reply = R_LOST                 /* booting, reply lost       */
          :: box[i] = B_LISTED; reply = R_LOST                 /* listed, reply lost        */
       fi }
  :: atomic { delivered == 1 -> delivered = 0; if :: up == 1 -> reply = R_OK; reply_id = pend_id :: else fi }
  :: atomic { inflight == 1 -> inflight = 0; reply = R_REFUSED }   /* GOAWAY/REFUSED: unprocessed */
  :: atomic { inflight == 1 -> inflight = 0; reply = R_LOST }      /* cut before the API saw it   */
  :: atomic { box[0] == B_HIDDEN -> if :: box[0] = B_LISTED :: box[0] = B_DEAD fi }
  :: atomic { box[1] == B_HIDDEN -> if :: box[1] = B_LISTED :: box[1] = B_DEAD fi }
  :: atomic { box[2] == B_HIDDEN -> if :: box[2] = B_LISTED :: box[2] = B_DEAD fi }
  od
}

inline reap_unknown() {                                     /* sweep by host tag         */
  atomic {
    if :: box[0] == B_LISTED && !(store == ACTIVE && store_id == 0) -> box[0] = B_DEAD
       :: box[1] == B_LISTED && !(store == ACTIVE && store_id == 1) -> box[1] = B_DEAD
       :: box[2] == B_LISTED && !(store == ACTIVE && store_id == 2) -> box[2] = B_DEAD
    fi }
}

active proctype daemon() {
  byte tries = 0;
boot:
  atomic { up = 1; tries = 0;
    if :: store == INTENT -> store = SETTLING               /* may or may not have been sent */
       :: else -> skip fi }
  do
  :: up == 0 -> goto boot
  :: up == 1 && store == NONE && acked == 0 && gaveup == 0 ->
#ifdef NO_INTENT
       atomic { if :: up == 1 -> inflight = 1; reply = R_NONE :: else fi };
#else
       atomic { if :: up == 1 -> store = INTENT :: else fi };
       atomic { if :: up == 1 && store == INTENT -> inflight = 1; reply = R_NONE :: else fi };
#endif
waitreply:
       if
#ifdef SWEEP_EAGER
       :: up == 1 && delivered == 1 && store == INTENT && box[pend_id] == B_LISTED -> reap_unknown(); goto waitreply
#endif
       :: up == 0 -> goto boot
       :: up == 1 && reply == R_OK ->
#ifdef ACK_FIRST
            atomic { if :: up == 1 -> acked = 1; acked_id = reply_id :: else fi };
            atomic { if :: up == 1 -> store = ACTIVE; store_id = reply_id; reply = R_NONE :: else fi }
#else
            atomic { if :: up == 1 -> store = ACTIVE; store_id = reply_id; reply = R_NONE :: else fi };
            atomic { if :: up == 1 && store == ACTIVE -> acked = 1; acked_id = store_id :: else fi }
#endif
       :: up == 1 && reply == R_REFUSED && tries < 1 ->
            atomic { if :: up == 1 -> tries++; inflight = 1; reply = R_NONE :: else fi }; goto waitreply
       :: up == 1 && reply == R_REFUSED && tries >= 1 ->
            atomic { if :: up == 1 -> store = CLOSED; reply = R_NONE; gaveup = 1 :: else fi }
       :: up == 1 && reply == R_LOST ->
#ifdef NAIVE_RETRY
            if :: tries < 1 -> atomic { if :: up == 1 -> tries++; inflight = 1; reply = R_NONE :: else fi }; goto waitreply
               :: tries >= 1 -> atomic { if :: up == 1 -> store = SETTLING; reply = R_NONE :: else fi }
            fi
#else
            atomic { if :: up == 1 -> store = SETTLING; reply = R_NONE :: else fi }
#endif
       fi
  :: atomic { up == 1 && store == SETTLING && HORIZON_PASSED &&
              box[0] != B_LISTED && box[1] != B_LISTED && box[2] != B_LISTED -> store = CLOSED; gaveup = 1 }
  :: up == 1 && store == SETTLING && (box[0] == B_LISTED || box[1] == B_LISTED || box[2] == B_LISTED) -> reap_unknown()
#ifdef SWEEP_EAGER
#define SWEEP_GUARD (store != SETTLING)
#else
#define SWEEP_GUARD (store != SETTLING && store != INTENT)
#endif
#ifndef NO_SWEEP
  :: up == 1 && SWEEP_GUARD &&
     ((box[0] == B_LISTED && !(store == ACTIVE && store_id == 0)) ||
      (box[1] == B_LISTED && !(store == ACTIVE && store_id == 1)) ||
      (box[2] == B_LISTED && !(store == ACTIVE && store_id == 2))) -> reap_unknown()
#endif
  :: atomic { up == 1 && (store == CLOSED || store == ACTIVE) && inflight == 0 && delivered == 0 &&
              box[0] != B_HIDDEN && box[1] != B_HIDDEN && box[2] != B_HIDDEN &&
#ifndef NO_SWEEP
              (box[0] != B_LISTED || (store == ACTIVE && store_id == 0)) &&
              (box[1] != B_LISTED || (store == ACTIVE && store_id == 1)) &&
              (box[2] != B_LISTED || (store == ACTIVE && store_id == 2)) &&
#endif
              true -> break }
  od;
  /* quiescent: faults have stopped, nothing is in flight */
  assert(accepted <= 1);                                                          /* I3 one create   */
  assert(acked == 0 || (store == ACTIVE && store_id == acked_id));                /* I7 acked=durable */
  assert(store != ACTIVE || box[store_id] == B_LISTED);                           /* I4 no early kill */
  assert(box[0] != B_LISTED || (store == ACTIVE && store_id == 0));               /* I1 known/reaped */
  assert(box[1] != B_LISTED || (store == ACTIVE && store_id == 1));
  assert(box[2] != B_LISTED || (store == ACTIVE && store_id == 2));
}

active proctype killer() {                                  /* SIGKILL anywhere          */
  endk: do
  :: atomic { crashes < MAXCRASH && up == 1 -> crashes++; up = 0; reply = R_NONE }
  od
}
