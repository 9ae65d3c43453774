/* SPDX-License-Identifier: MIT */
/* Model of the incarnations of one sandbox: a pause ends one, a resume begins the next. Users pause and connect; an
 * extension runs in the background; an answer to a GET may be read after the sandbox has changed; the daemon may be
 * killed at any step (MAXCRASH). Checked: only a user's ConnectSandbox begins an incarnation; with nothing under way the row
 * says what the cloud has.
 *   turn.c   one change at a time (slot 1 is only used without)
 *   transition.c on_asked: the state from the answer; a lost one: look by a question of its own, then judge
 *   core.c   sandbox_seen_since: an answer is not believed during a change, nor when it was asked for before its end
 *   runner.c  extends by /refreshes, which finds no paused one; never by /connect
 *   sync.c   the list at start says what became of a transition that a crash cut off
 * Mutants: EXTEND_BY_CONNECT, NO_TURNS, STALE_IS_BELIEVED, NO_LOOK. */
#ifndef MAXCRASH
#define MAXCRASH 2
#endif
#define NINC 3				/* Connects of paused ones */
mtype = { RUNNING, PAUSED };
mtype = { NOTHING, PAUSE, RESUME };
mtype = { NONE, DONE, LOST };

mtype cloud_state = RUNNING; byte inc = 0, connects = 0;	/* truth; what users asked for */
mtype row = RUNNING;
mtype transition[2] = NOTHING, wire[2] = NOTHING, reply[2] = NONE;
mtype late = NOTHING;						/* of a daemon that was killed: still on the wire */
bit extend = 0, asking = 0, got = 0, old = 0, up = 1;
mtype got_state = RUNNING;
byte crashes = 0;

inline act(what) {
	if
	:: what == PAUSE && cloud_state == RUNNING -> cloud_state = PAUSED
	:: what == RESUME && cloud_state == PAUSED -> cloud_state = RUNNING; inc++; assert(inc <= connects)
	:: else -> skip						/* 409, or a ConnectSandbox of a running one */
	fi
}

proctype message(byte i)
{
end:	do
	:: atomic { wire[i] != NOTHING -> act(wire[i]); wire[i] = NOTHING; reply[i] = DONE }
	:: atomic { wire[i] != NOTHING -> act(wire[i]); wire[i] = NOTHING; reply[i] = LOST }
	:: atomic { wire[i] != NOTHING -> wire[i] = NOTHING; reply[i] = LOST }
	od
}

active proctype cloud()
{
end:	do
	:: atomic { late != NOTHING -> act(late); late = NOTHING }
	:: atomic { late != NOTHING -> late = NOTHING }
	:: atomic { extend == 1 -> extend = 0;
#ifdef EXTEND_BY_CONNECT
		act(RESUME)
#endif
	   }
	:: atomic { asking == 1 && got == 0 -> got = 1; got_state = cloud_state }
	od
}

#define QUIET (transition[0] == NOTHING && transition[1] == NOTHING)
#ifdef NO_TURNS
#define MAY_BEGIN(i) (transition[i] == NOTHING)
#else
#define MAY_BEGIN(i) (i == 0 && QUIET)
#endif

inline over(i) {						/* box.changing, box.moved_at_ms */
	transition[i] = NOTHING; reply[i] = NONE; old = asking
}

proctype transitions(byte i)
{
end:	do
	:: atomic { up && MAY_BEGIN(i) && row == RUNNING -> transition[i] = PAUSE; wire[i] = PAUSE }
	:: atomic { up && MAY_BEGIN(i) && row == PAUSED && connects < NINC ->
		connects++; transition[i] = RESUME; wire[i] = RESUME }
	:: atomic { up && reply[i] == DONE -> row = (transition[i] == PAUSE -> PAUSED : RUNNING); over(i) }
	:: atomic { up && reply[i] == LOST ->
#ifndef NO_LOOK
		row = cloud_state;
#endif
		over(i) }
	od
}

active proctype daemon()
{
end:	do
	:: atomic { up && row == RUNNING && !extend -> extend = 1 }
	/* a GET of anybody, at any time */
	:: atomic { up && !asking -> asking = 1; old = 0 }
	:: atomic { up && got -> got = 0; asking = 0;
		if
#ifdef STALE_IS_BELIEVED
		:: QUIET -> row = got_state
#else
		:: QUIET && !old -> row = got_state
#endif
		:: else -> skip
		fi }
	/* kill -9; the start lists before it believes anything */
	:: atomic { up && crashes < MAXCRASH -> crashes++; up = 0; late = wire[0]; wire[0] = NOTHING; wire[1] = NOTHING;
		reply[0] = NONE; reply[1] = NONE; transition[0] = NOTHING; transition[1] = NOTHING; asking = 0; got = 0 }
	:: atomic { !up && late == NOTHING -> up = 1; row = cloud_state }
	od
}

active proctype observer()
{
end:	do
	:: atomic { up && QUIET && !asking -> assert(row == cloud_state) }
	od
}

init { atomic { run message(0); run message(1); run transitions(0); run transitions(1) } }
