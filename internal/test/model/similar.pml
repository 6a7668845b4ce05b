/*
 * The intent guard: calls whose operations are alike (Op.Similar) and have different keys, on
 * any engine, at the level of statements. As in lockfirst.pml, anything may happen between two steps.
 *
 * Code: idempotency/similar.go.
 *
 * A call is one transaction:
 *
 *   Claim:   take a snapshot of the key's record; lock the key. The key is the call's if the
 *            snapshot has no record and nothing was waited for. (lockfirst.pml has more of this.)
 *   Intent:  lock the row of the intent, and read what is committed there. If it names another
 *            key and its window is open, the call is refused, unless it confirms what the row
 *            says. Otherwise the row is written: this key, a new token, a new window.
 *   the function
 *   COMMIT:  record, row and effect become visible; after that the locks are released
 *
 * A call that is refused rolls back and looks, before it answers, for a record of its own key
 * that was there before it had the lock: another call with this key may have committed after
 * the snapshot was taken. If its function rejects, it rolls back, the row of the intent with it,
 * and stores the rejection as the key's record in a second transaction.
 *
 * The client of a refused call may confirm: it asks again, with the token of the refusal. Calls
 * 1 and 2 have the same key; all others have keys of their own. Windows end at any time. Any
 * process may die before its COMMIT. A connection may be lost with COMMIT on its way: then the
 * call is made again with its key, while the transaction ends some time, one way or the other.
 *
 * Properties; an assertion that fails has the name:
 *
 *   ONCE    While a window is open, nothing has an effect under another key, unless confirmed.
 *   TWICE   What was confirmed has one effect, however many calls confirm it.
 *   REPLAY  A call is not refused if its own key is done.
 *   FREE    A call is refused for an effect, and not for a rejection or a transaction that ended.
 *   DONE    A call does not wait forever.
 *
 * Names in -D that plant a bug, and the property that each must violate:
 *
 *   CHECK_UNLOCKED    ONCE    the row of the intent is read before it is locked
 *   ROW_LATE          ONCE    the row is written by a transaction after the commit
 *   ROW_UNLOCKED      ONCE    the row's lock is released before the commit is visible
 *   CONFIRM_ANY       TWICE   a confirmation says yes to whatever the row names
 *   REFUSED_UNREAD    REPLAY  a refused call does not look for the record of its key
 *   REJECT_KEEPS      FREE    the rejection is stored with the row of the intent
 *   ROW_FIRST         DONE    one call locks the row of the intent before its key
 */

/* Bounds. */
#ifndef CALLS     /* the first two have the same key */
#define CALLS 3
#endif
#ifndef CONFIRMS  /* how often a client may confirm */
#define CONFIRMS 1
#endif
#ifndef ENDS      /* how many windows end */
#define ENDS 1
#endif
#ifndef LOSES     /* connections lost at COMMIT */
#define LOSES 1
#endif

#define TOKENS 12

/* The database: the records that are committed, who has locked each key, and the row of the
 * intent: whose key it names (0 is none), its token, and whether its window is open. */
bool record[6];
byte claimed[6];
byte names, token, locked;
bool open;

/* What has happened: which key's effect a window is open for, which tokens stand for an
 * effect, and how many effects each confirmed token has had. */
byte since;
bool real[TOKENS];
byte confirmed[TOKENS];

byte ended, calls, ids, losses;

/* An assertion has the name of its property. */
hidden byte ONCE, TWICE, REPLAY, FREE, DONE;

inline unlock() {
	d_step {
		if :: locked == me -> locked = 0 :: else fi;
		if :: claimed[key] == me -> claimed[key] = 0 :: else fi
	}
}

/* The row of the intent, as the transaction leaves it. */
inline write() {
	d_step { names = key; token++; open = true; real[token] = effect }
}

inline commit(asked) {
#ifdef ROW_UNLOCKED
	d_step { if :: locked == me -> locked = 0 :: else fi };
#endif
	d_step {
		ONCE = since == 0 || since == key || (asked != 0);
		assert(ONCE);
		if
		:: asked != 0 ->
			confirmed[asked]++;
			TWICE = confirmed[asked] == 1;
			assert(TWICE)
		:: else
		fi;
		record[key] = true; since = key; effect = true;
#ifndef ROW_LATE
		names = key; token++; open = true; real[token] = true
#endif
	}
	unlock();
#ifdef ROW_LATE
	d_step { locked == 0 -> locked = me };
	write();
	unlock();
#endif
}

/* A transaction whose connection is lost while its COMMIT is on its way. */
proctype Late(byte me; byte key; byte asked) {
	bool effect;
	if
	:: unlock()
	:: commit(asked)
	fi
}

proctype Call(byte me; byte key) {
	bool found, waited, early, alive, effect;
	byte other, seen, confirm, asked, confirms;
begin:
	asked = 0; effect = false;
#ifdef ROW_FIRST
	if
	:: me == 1 -> d_step { locked == 0 -> locked = me }
	:: else
	fi;
#endif
	found = record[key];                 /* the snapshot */
	waited = false;
	if
	:: d_step { claimed[key] == 0 -> claimed[key] = me }
	:: claimed[key] != 0 && claimed[key] != me -> waited = true; d_step { claimed[key] == 0 -> claimed[key] = me }
	fi;
	early = record[key];
	if
	:: found || waited -> unlock(); goto read
	:: else
	fi;
	/* Intent */
#ifdef CHECK_UNLOCKED
	d_step { other = names; seen = token; alive = open };
#endif
	if
	:: locked == me
	:: d_step { locked == 0 -> locked = me }
	fi;
#ifndef CHECK_UNLOCKED
	d_step { other = names; seen = token; alive = open };
#endif
	if
	:: other != 0 && other != key && alive ->
		if
#ifdef CONFIRM_ANY
		:: confirm != 0 -> asked = confirm
#else
		:: confirm != 0 && confirm == seen -> asked = confirm
#endif
		:: else -> goto refused
		fi
	:: else
	fi;
	/* the function */
	if
	:: unlock(); goto end                /* it fails, or the process dies */
	:: unlock(); goto rejected
	:: commit(asked); goto end
	:: losses < LOSES ->                 /* the connection is lost before the answer */
		atomic {
			losses++; run Late(me, key, asked); ids++;
			me = ids
		}
		goto begin
	fi;
rejected:
	skip;                                /* no jump leads into a d_step */
	d_step { claimed[key] == 0 -> claimed[key] = me };
	if
	:: record[key] -> unlock(); goto end /* replayed */
	:: else
	fi;
#ifdef REJECT_KEEPS
	d_step { locked == 0 -> locked = me };
	write();
#endif
	record[key] = true;
	unlock();
	goto end;
refused:
	skip;
	unlock();
#ifndef REFUSED_UNREAD
	if
	:: early -> goto end                 /* replayed */
	:: else
	fi;
#endif
	d_step {
		REPLAY = !early;
		assert(REPLAY);
		FREE = real[seen];
		assert(FREE)
	}
	if
	:: confirms < CONFIRMS -> confirms++; confirm = seen; goto begin
	:: goto end
	fi;
read:
	if
	:: record[key]                       /* replayed */
	:: else -> goto begin
	fi;
end:
	ended++
}

/* A window ends, for the effect and in the row at once: both are the same time. */
proctype Clock() {
	byte n;
	do
	:: n < ENDS && ended < CALLS && since != 0 && open -> d_step { since = 0; open = false; n++ }
	:: break
	od
}

init {
	byte i = 1;
	atomic {
		ids = CALLS;
		do
		:: i <= CALLS -> run Call(i, (i <= 2 -> 1 : i - 1)); i++
		:: else -> break
		od;
		run Clock()
	}
	timeout;
	d_step {
		DONE = ended == CALLS && locked == 0;
		assert(DONE)
	}
}
