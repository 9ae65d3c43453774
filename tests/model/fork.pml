/* SPDX-License-Identifier: MIT */
/* Model of two forks, each of one child, in one family (a parent and a child of it: all carry the same tag, the
 * cloud tags no fork). Answers may be lost, a child is made at once or late and listed later, the daemon may be killed
 * at any step (MAXCRASH). Checked: a request is answered with a child that was made for it and with no other; what was
 * answered is in the store; one POST for each request; in the end every child has a row.
 *   attempt.c  intent, post, record, resolve; is_busy: waits while a relative may still be answered; is_mixed,
 *              close_unknown: two of one family that are both being resolved cannot be told apart and are closed
 *              together, in one transaction
 *   copying.c  known; is_behind (here too, but only so that fewer are in doubt)
 *   fork.c     take_known
 *   resolve.c  resolve_fork: what carries the tag, was not known, has no row
 *   sync.c     reconcile: what is nobody's, adopted by its tag; copying_found: not while it may be a fork's
 * Mutants: NAIVE_RETRY, NO_KNOWN, NOT_BUSY, NOT_MIXED, ALONE, SHORT_H, ACK_FIRST. */
#ifndef MAXCRASH
#define MAXCRASH 1
#endif
#define NBOX 3
#define NOBOX 7
mtype = { R_NONE, R_INTENT, R_DONE, R_UNKNOWN };	/* the row, durable */
mtype = { IDLE, LISTED, WRITTEN, POSTED, RECORDED, SETTLING };	/* memory */
mtype = { NOTHING, OK, LOST };

mtype row[2] = R_NONE, mem[2] = IDLE, reply[2] = NOTHING;
byte known[2] = 0, known_mem[2] = 0, object[2] = NOBOX, told[2] = NOBOX, reply_box[2] = NOBOX, posts[2] = 0;
bit wire[2] = 0, up = 1;
byte made = 1, made_for[NBOX] = 9;			/* the ledger; the first is of an earlier fork, closed as unknown */
byte seen = 1, tracked = 0;				/* bits of boxes: in the list; with a row (durable) */
byte crashes = 0;

#define BIT(b)	  (1 << (b))
#define NEW(i)	  (seen & ~known[i] & ~tracked & 7)
#define ONE(m)	  (m == 1 || m == 2 || m == 4)
#define FIRST(m)  (m == 1 -> 0 : (m == 2 -> 1 : 2))
#define ALL_SEEN  (seen == (1 << made) - 1)
#ifdef SHORT_H
#define HORIZON(i) true
#else
#define HORIZON(i) (!wire[i] && ALL_SEEN)
#endif

proctype cloud(byte i)
{
end:	do
	:: atomic { wire[i] && made < NBOX -> wire[i] = 0; made_for[made] = i; posts[i]++; assert(posts[i] <= 1);
		reply_box[i] = made;
		if
		:: seen = seen | BIT(made)
		:: skip						/* not listed yet */
		fi;
		made++;
		if
		:: reply[i] = (mem[i] == POSTED -> OK : NOTHING)
		:: reply[i] = (mem[i] == POSTED -> LOST : NOTHING)
		fi }
	:: atomic { wire[i] -> wire[i] = 0; reply[i] = (mem[i] == POSTED -> LOST : NOTHING) }
	:: atomic { wire[i] && mem[i] == POSTED && reply[i] == NOTHING -> reply[i] = LOST }	/* acts later */
	od
}

active proctype lister()
{
end:	do
	:: atomic { made > 0 && !(seen & 1) -> seen = seen | 1 }
	:: atomic { made > 1 && !(seen & 2) -> seen = seen | 2 }
	:: atomic { made > 2 && !(seen & 4) -> seen = seen | 4 }
	od
}

#define BEHIND(i) (mem[1 - i] == SETTLING)
#ifdef NOT_BUSY
#define BUSY(i) false
#else
#define BUSY(i) (mem[1 - i] == POSTED || mem[1 - i] == RECORDED)
#endif
#ifdef NOT_MIXED
#define MIXED(i) false
#else
#define MIXED(i) (mem[1 - i] == SETTLING)
#endif

proctype fork(byte i)
{
end:	do
	:: atomic { up && row[i] == R_NONE && mem[i] == IDLE && !BEHIND(i) -> mem[i] = LISTED;
#ifdef NO_KNOWN
		known_mem[i] = 0
#else
		known_mem[i] = seen | tracked
#endif
	   }
	:: atomic { up && mem[i] == LISTED -> row[i] = R_INTENT; known[i] = known_mem[i]; mem[i] = WRITTEN }
	:: atomic { up && mem[i] == WRITTEN -> wire[i] = 1; mem[i] = POSTED }
	:: atomic { up && mem[i] == POSTED && reply[i] == OK -> reply[i] = NOTHING; object[i] = reply_box[i];
		mem[i] = RECORDED;
#ifdef ACK_FIRST
		told[i] = object[i]
#endif
	   }
	:: atomic { up && mem[i] == RECORDED -> row[i] = R_DONE; tracked = tracked | BIT(object[i]); mem[i] = IDLE }
	:: atomic { up && row[i] == R_DONE && mem[i] == IDLE && told[i] == NOBOX -> told[i] = object[i] }
	:: atomic { up && mem[i] == POSTED && reply[i] == LOST -> reply[i] = NOTHING;
#ifdef NAIVE_RETRY
		wire[i] = 1
#else
		mem[i] = SETTLING
#endif
	   }
	/* settle */
	:: atomic { up && mem[i] == SETTLING && !BUSY(i) && !MIXED(i) && ONE(NEW(i)) ->
		object[i] = FIRST(NEW(i)); mem[i] = RECORDED }
	:: atomic { up && mem[i] == SETTLING && !BUSY(i) && !MIXED(i) && NEW(i) && !ONE(NEW(i)) ->
		row[i] = R_UNKNOWN; mem[i] = IDLE }
	:: atomic { up && mem[i] == SETTLING && !BUSY(i) && !MIXED(i) && !NEW(i) && HORIZON(i) ->
		row[i] = R_UNKNOWN; mem[i] = IDLE }
	:: atomic { up && mem[i] == SETTLING && MIXED(i) && HORIZON(i) && HORIZON(1 - i) ->
#ifdef ALONE
		row[i] = R_UNKNOWN; mem[i] = IDLE
#else
		row[0] = R_UNKNOWN; row[1] = R_UNKNOWN; mem[0] = IDLE; mem[1] = IDLE
#endif
	   }
	od
}

/* Unknown ones that no open fork may have made. */
#define FREE(b) (seen & BIT(b) && !(tracked & BIT(b)) && !MAY(0, b) && !MAY(1, b))
#define MAY(i, b) ((mem[i] == POSTED || mem[i] == RECORDED || mem[i] == SETTLING) && !(known[i] & BIT(b)))

active proctype daemon()
{
end:	do
	:: atomic { up && FREE(0) -> tracked = tracked | 1 }
	:: atomic { up && FREE(1) -> tracked = tracked | 2 }
	:: atomic { up && FREE(2) -> tracked = tracked | 4 }
	:: atomic { up && crashes < MAXCRASH -> crashes++; up = 0; mem[0] = IDLE; mem[1] = IDLE;
		reply[0] = NOTHING; reply[1] = NOTHING; object[0] = (row[0] == R_DONE -> object[0] : NOBOX);
		object[1] = (row[1] == R_DONE -> object[1] : NOBOX) }
	:: atomic { !up -> up = 1;
		mem[0] = (row[0] == R_INTENT -> SETTLING : IDLE);
		mem[1] = (row[1] == R_INTENT -> SETTLING : IDLE) }
	od
}

#define RIGHT(i) (told[i] == NOBOX || (made_for[told[i]] == i && row[i] == R_DONE && object[i] == told[i]))

active proctype observer()
{
end:	do
	:: atomic { !RIGHT(0) || !RIGHT(1) -> assert(false) }
	:: atomic { timeout -> assert(!up || (ALL_SEEN && tracked == seen)) }
	od
}

init { atomic { run cloud(0); run cloud(1); run fork(0); run fork(1) } }
