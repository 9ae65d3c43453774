/* SPDX-License-Identifier: MIT */
/* Model of two daemons with one identity: a state directory (or the machine with it) was copied while its daemon had
 * a sandbox whose owner lives there. Both run on one account; the copy may be killed at any step of its start or
 * later (MAXCRASH). Checked: neither ends what the other made.
 *   store.c    become_another: database and second copy are moved aside, then host-id is written, with where it is
 *   hostid.c   hostid_is_elsewhere: the file was made on another machine or in another directory
 *   recover.c  recover_open: without a database the second copy becomes it; neither if it is another host's
 *   holder.c   a lease of a process that is not proved to live here has ended: released
 *   plan.c     plan_make: what carries our tag and has no row is adopted; nothing else is touched
 *   runner.c    what is released, or adopted and claimed by nobody, gets its on_release: DELETE
 * Mutants: NO_CLONE_CHECK, KEEPS_ID, ANY_TAG; and without the second line of defence, NO_HOST_CHECK: BACKUP_STAYS,
 * ID_FIRST. */
#ifndef MAXCRASH
#define MAXCRASH 2
#endif
#define OLD 1
#define NEW 2
#define NOBODY 0

/* the copy's directory: durable */
byte file_host = OLD; bit file_elsewhere = 1, db = 1, backup = 1;	/* db, backup: with the original's rows */
/* the copy's memory */
bit up = 0, ready = 0, knows = 0, moved = 0;
byte host = NOBODY, crashes = 0;
/* the cloud: the original's sandbox, the copy's, and their tags */
bit one = 1, two = 0; byte two_tag = NOBODY;
bit mine = 0;								/* the copy's row of its own sandbox, durable */

#ifdef NO_HOST_CHECK
#define KNOWS (db)
#else
#define KNOWS (db && file_host == OLD)
#endif

inline delete_one() { assert(false) }					/* its owner lives with the original */

#ifdef ANY_TAG
#define OURS(tag) true
#else
#define OURS(tag) (tag == host)
#endif

active proctype copy()
{
end:	do
	:: atomic { !up -> up = 1; ready = 0; knows = 0; moved = 0; host = file_host }
	/* read_hostid */
#ifndef NO_CLONE_CHECK
	:: atomic { up && !ready && !moved && file_elsewhere ->
#ifdef ID_FIRST
		file_host = NEW; file_elsewhere = 0;
#endif
		moved = 1 }
#endif
	:: atomic { up && !ready && moved && db && host == OLD -> db = 0 }
	:: atomic { up && !ready && moved && !db && backup && host == OLD ->
#ifndef BACKUP_STAYS
		backup = 0;
#endif
#ifdef KEEPS_ID
		skip
#else
		host = NEW
#endif
	   }
#ifdef KEEPS_ID
	:: atomic { up && !ready && moved && !db && !backup -> ready = 1; file_elsewhere = 0 }
#endif
	:: atomic { up && !ready && moved && !db && !backup && host == OLD -> host = NEW }	/* a crash came between */
	/* recover_open, then host-id is written */
	:: atomic { up && !ready && moved && host == NEW ->
		if
		:: backup -> db = 1
		:: else -> skip
		fi;
		file_host = NEW; file_elsewhere = 0; ready = 1; knows = KNOWS }
	:: atomic { up && !ready && !moved &&
#ifdef NO_CLONE_CHECK
		true
#else
		!file_elsewhere
#endif
		-> ready = 1; knows = KNOWS }
	/* rows of the original: no process of theirs lives here */
	:: atomic { up && ready && knows && one -> delete_one() }
	/* reconcile, and what nobody claims */
	:: atomic { up && ready && !knows && one && OURS(OLD) -> delete_one() }
	/* it makes one of its own */
	:: atomic { up && ready && !two && !mine -> two = 1; two_tag = host; mine = 1 }
	:: atomic { up && crashes < MAXCRASH -> crashes++; up = 0 }
	od
}

active proctype original()
{
end:	do
	:: atomic { two && two_tag == OLD -> assert(false) }	/* it has our tag and no row: adopted, and claimed by nobody */
	:: false
	od
}
