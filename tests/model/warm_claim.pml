/* SPDX-License-Identifier: MIT */
/* Model of a ready sandbox and two Creates that may claim it; the daemon may be killed at any step (MAXCRASH), and once the database is
 * lost while nothing runs (MAXLOSS), STATE/claims with it or not. Checked: it is never told to two; who was told of it has it in the row
 * or on record as long as these are there; after a loss without a record it is told to nobody, and neither kept alive nor ended.
 *   warm_claim.c  warm_take        the sandbox leaves its entry in memory, then row and line are handed over
 *   writer.c      write_batch      the commit, then the line, each synced
 *   warm_claim.c  on_claimed       the answer
 *   warm_claim.c  warm_loaded      READY is given again; a claim without its line gets it before anybody is told
 *   warm_claim.c  give_or_keep_apart, warm_adopted     rows in doubt: whose the record says, else quarantine
 * Mutants: ACK_FIRST, NO_RECORD, NO_LOCK, NO_AGAIN, GIVES_OLD. */
#ifndef MAXCRASH
#define MAXCRASH 2
#endif
#ifndef MAXLOSS
#define MAXLOSS 1
#endif
#define NOBODY 2

mtype = { NONE, READY, CLAIMED, QUARANTINED };
mtype = { IDLE, TAKEN, ROW, WRITTEN };		/* how far the claim under way is */

mtype row = READY; byte row_of = NOBODY;	/* durable */
byte line = NOBODY;				/* STATE/claims, durable */
mtype mem = READY; byte mem_of = NOBODY;	/* lost in a crash */
mtype step = IDLE; byte taker = NOBODY;
bit up = 1;
bit told[2];
bit was_claimed = 0;				/* a claim of it was committed */
bit forgot = 0;					/* rows and lines were lost after that */
byte crashes = 0, losses = 0;

inline tell(who) {
	assert(!told[1 - who]);				/* given twice */
	assert(row == CLAIMED && row_of == who);	/* not before it is kept … */
	assert(line == who);				/* … in both */
	told[who] = 1
}

active [2] proctype caller()
{
end:	do
	/* its entry gives it: nobody else has it from here on */
	:: atomic { up && step == IDLE &&
#ifdef NO_LOCK
		    (mem == READY || (mem == CLAIMED && !told[mem_of])) && mem_of != _pid ->
#else
		    mem == READY ->
#endif
		assert(!was_claimed && !forgot);
		mem = CLAIMED; mem_of = _pid; taker = _pid; step = TAKEN;
#ifdef ACK_FIRST
		tell(_pid)
#endif
	   }
	/* a repeat of its request */
	:: atomic { up && step == IDLE && mem == CLAIMED && mem_of == _pid && !told[_pid] ->
		if
#ifdef NO_AGAIN
		:: true -> tell(_pid)
#else
		:: line == _pid -> tell(_pid)
		:: line != _pid -> taker = _pid; step = ROW	/* its line is written first */
#endif
		fi }
	od
}

active proctype daemon()
{
end:	do
	:: atomic { up && step == TAKEN -> row = CLAIMED; row_of = taker; was_claimed = 1; step = ROW }
	:: atomic { up && step == ROW ->
#ifndef NO_RECORD
		line = taker;
#endif
		step = WRITTEN }
	:: atomic { up && step == WRITTEN -> step = IDLE;
		if
		:: !told[taker] -> tell(taker)
		:: else -> skip
		fi }
	/* kept alive while it waits */
	:: atomic { up && step == IDLE && mem == READY -> assert(!forgot && !was_claimed) }
	/* kill -9 */
	:: atomic { up && crashes < MAXCRASH -> crashes++; up = 0; step = IDLE }
	/* the loss, while nothing runs */
	:: atomic { !up && losses < MAXLOSS -> losses++;
		row = NONE; row_of = NOBODY;
		if
		:: skip
		:: line = NOBODY
		fi;
		if
		:: line == NOBODY -> forgot = 1; told[0] = 0; told[1] = 0	/* nobody can say it any more */
		:: else -> skip
		fi }
	:: atomic { !up -> up = 1; step = IDLE;
		if
		:: row == NONE && line != NOBODY -> mem = CLAIMED; mem_of = line; row = CLAIMED; row_of = line
		:: row == NONE && line == NOBODY ->
#ifdef GIVES_OLD
			mem = READY; mem_of = NOBODY; row = READY
#else
			mem = QUARANTINED; mem_of = NOBODY; row = QUARANTINED
#endif
		:: row == READY -> mem = READY; mem_of = NOBODY
		:: row == CLAIMED -> mem = CLAIMED; mem_of = row_of
		:: row == QUARANTINED -> mem = QUARANTINED; mem_of = NOBODY
		fi }
	od
}
