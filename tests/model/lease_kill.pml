/* SPDX-License-Identifier: MIT */
/* Model of one lease against one kill by policy: an owner that asks, holds, releases or dies at any step, a
 * daemon that may be killed at any step (MAXCRASH), a DELETE that may be lost. Checked: no DELETE reaches the cloud
 * while its owner was told that it holds the lease; nobody is told so of a sandbox that was ended.
 *   runner.c    look, check (GET), decide again, row KILLING, DELETE until it is answered
 *   op_lease.c counted at once, row of the lease, then the answer
 *   holder.c   after a restart a lease goes on if its process is proved to live
 * Mutants: NO_RECHECK, ACK_FIRST, NO_PROOF, SEND_FIRST, LATE_COUNT. */
#ifndef MAXCRASH
#define MAXCRASH 2
#endif
mtype = { RUNNING, KILLING };
mtype = { IDLE, ASKED, HELD, DEAD };

mtype row = RUNNING; bit lease_row = 0;				/* durable */
mtype mem = RUNNING; bit lease_mem = 0;				/* lost in a crash */
bit lease_commit = 0, kill_commit = 0, checking = 0;
mtype owner = IDLE;
bit alive = 1, del = 0, up = 1;
byte crashes = 0;

#ifdef NO_RECHECK
#define MAY_KILL (mem == RUNNING)
#else
#define MAY_KILL (mem == RUNNING && lease_mem == 0)
#endif

active proctype owner_process()
{
end:	do
	:: atomic { owner == IDLE -> owner = ASKED }
	:: atomic { owner == HELD && up -> owner = IDLE; lease_mem = 0; lease_row = 0 }	/* releases */
	:: atomic { owner != DEAD -> owner = DEAD }
	od
}

active proctype cloud()
{
end:	do
	:: atomic { del -> del = 0; assert(owner != HELD || !alive); alive = 0 }
	:: atomic { del -> del = 0 }						/* lost */
	od
}

inline told() {
	if
	:: owner == ASKED -> owner = HELD; assert(alive)
	:: else -> skip
	fi
}

active proctype daemon()
{
end:	do
	/* Acquire */
	:: atomic { up && owner == ASKED && !lease_mem && !lease_commit && mem == RUNNING ->
#ifndef LATE_COUNT
		lease_mem = 1;
#endif
		lease_commit = 1;
#ifdef ACK_FIRST
		told();
#endif
	   }
	:: atomic { up && owner == ASKED && mem != RUNNING -> owner = IDLE }	/* refused */
	:: atomic { up && lease_commit -> lease_commit = 0; lease_row = 1; lease_mem = 1; told() }
	/* its process died */
	:: atomic { up && owner == DEAD && lease_mem && !lease_commit -> lease_mem = 0; lease_row = 0 }
	/* the policy */
	:: atomic { up && !lease_mem && !checking && mem == RUNNING -> checking = 1 }
	:: atomic { up && checking -> checking = 0;
		if
		:: MAY_KILL -> mem = KILLING; kill_commit = 1;
#ifdef SEND_FIRST
			del = 1
#endif
		:: else -> skip
		fi }
	:: atomic { up && kill_commit -> kill_commit = 0; row = KILLING; del = 1 }
	:: atomic { up && row == KILLING && !del && alive -> del = 1 }		/* again */
	/* kill -9, and the start after it */
	:: atomic { up && crashes < MAXCRASH -> crashes++; up = 0; lease_commit = 0; kill_commit = 0; checking = 0 }
	:: atomic { !up -> up = 1; mem = row;
#ifdef NO_PROOF
		lease_mem = 0;
#else
		lease_mem = (lease_row && owner != DEAD -> 1 : 0);
#endif
		lease_row = lease_mem }
	od
}
