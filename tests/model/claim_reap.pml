/* SPDX-License-Identifier: MIT */
/* Model of a sandbox whose creator went away before it was told: somebody of its uid claims it (a repeat of the
 * request id, Get), or it is reaped after unclaimed_grace by its on_release; the daemon may be killed at any step
 * (MAXCRASH), a DELETE may be lost. Checked: no DELETE reaches the cloud once somebody was told that the sandbox is
 * his; nobody is told so of one that was ended.
 *   core.c  sandbox_claim     claimed in memory at once, so that nothing is decided against it
 *   op.c    op_end_claimed     the row says so, durable, before the answer
 *   evaluate.c by_claim           only while nobody has claimed it
 *   runner.c check, decide_again  asks the cloud, then decides once more
 *   kill.c  kill_by_policy     row KILLING, then DELETE until it is answered
 * Mutants: NO_RECHECK, ACK_FIRST, SEND_FIRST, BLIND_CLAIM. */
#ifndef MAXCRASH
#define MAXCRASH 2
#endif
mtype = { UNCLAIMED, CLAIMED, KILLING };
mtype = { IDLE, ASKED, TOLD, LEFT };

mtype row = UNCLAIMED;					/* durable */
mtype mem = UNCLAIMED;					/* lost in a crash */
bit claim_commit = 0, kill_commit = 0, checking = 0;	/* under way */
mtype caller = IDLE;
bit alive = 1, del = 0, up = 1;
byte crashes = 0;

active proctype caller_process()
{
end:	do
	:: atomic { caller == IDLE -> caller = ASKED }
	:: atomic { caller == ASKED -> caller = LEFT }	/* its connection broke: nobody hears an answer */
	od
}

active proctype cloud()
{
end:	do
	:: atomic { del -> del = 0; assert(caller != TOLD || !alive); alive = 0 }
	:: atomic { del -> del = 0 }			/* lost */
	od
}

inline tell() {
	if
	:: caller == ASKED -> caller = TOLD; assert(alive)
	:: else -> skip
	fi
}

active proctype daemon()
{
end:	do
	/* a claim */
	:: atomic { up && caller == ASKED && mem == UNCLAIMED -> mem = CLAIMED; claim_commit = 1;
#ifdef ACK_FIRST
		tell();
#endif
	   }
	:: atomic { up && claim_commit -> claim_commit = 0;
		if
		:: row == UNCLAIMED -> row = CLAIMED
		:: else -> skip
		fi;
		tell() }
	:: atomic { up && caller == ASKED && mem == CLAIMED && !claim_commit -> tell() }
	:: atomic { up && caller == ASKED && mem == KILLING ->
#ifdef BLIND_CLAIM
		caller = TOLD; assert(alive)
#else
		caller = IDLE				/* SANDBOX_KILLED */
#endif
	   }
	/* the reaper */
	:: atomic { up && mem == UNCLAIMED && !checking -> checking = 1 }
	:: atomic { up && checking -> checking = 0;
		if
#ifdef NO_RECHECK
		:: mem != KILLING -> mem = KILLING; kill_commit = 1;
#else
		:: mem == UNCLAIMED -> mem = KILLING; kill_commit = 1;
#endif
#ifdef SEND_FIRST
			del = 1
#endif
		:: else -> skip
		fi }
	:: atomic { up && kill_commit -> kill_commit = 0; row = KILLING; del = 1 }
	:: atomic { up && row == KILLING && !del && alive -> del = 1 }	/* again */
	/* kill -9, and the start after it; the writer may have been through with a commit */
	:: atomic { up && crashes < MAXCRASH -> crashes++; up = 0;
		if
		:: claim_commit && row == UNCLAIMED -> row = CLAIMED
		:: skip
		fi;
		claim_commit = 0; kill_commit = 0; checking = 0 }
	:: atomic { !up -> up = 1; mem = row }
	od
}
