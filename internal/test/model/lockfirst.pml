/*
 * One key of Do, whose record is written once, behind a lock that costs no write, and of
 * DoTx, whose claim is a row, on PostgreSQL: at the level of statements' snapshots. As in
 * lease.pml, anything may happen between two steps.
 *
 * Code: idempotency/lockfirst.go; of DoTx idempotency/joined.go; of Void idempotency/void.go.
 *
 * Do is
 *
 *   Claim:   take a snapshot of the records; lock the key, at once or after a wait. The key
 *            is the call's if the snapshot has no record and nothing was waited for.
 *   the function
 *   Finish:  insert the record, which waits for a row of another transaction that has not
 *            ended, and fails if that one commits
 *   COMMIT:  the rows become visible; after that the lock is released
 *   Doubt:   if the function fails, roll back and look, before the answer, for a record that was
 *            written before the lock: another call may have committed after the snapshot was
 *            taken. A record that was written after the rollback does not count. If the function has
 *            committed the transaction itself (PARTS), insert a record of an operation whose outcome is
 *            unknown, whether the function has failed or not
 *
 * A call that does not get the key rolls back and reads the record: if there is none, it
 * begins again. So does a call whose Finish fails.
 *
 * DoTx locks the key, then inserts its claim. Its function runs after that.
 *
 * Void is Do with a function that does nothing, and a record that says that the operation is never done. A call
 * of Do that finds that record is refused, and a call of Void that finds another one is too late.
 *
 * On SQLite (-DSQLITE=1) the lock is the engine's only write lock. Claim has it before it looks, so
 * there is nothing to read after an error.
 *
 * A function sees what is committed when it runs. If it finds its own effect there, made by
 * another call, it fails or not. It also fails for reasons of its own. Any process may die
 * before its COMMIT. A connection may be lost with COMMIT on its way: then the call is made
 * again, while the transaction ends some time, one way or the other.
 *
 * Properties; an assertion that fails has the name:
 *
 *   ONCE    The operation has its effect once, and with it a record.
 *   ALONE   The function does not run in two transactions at once.
 *   FRESH   After a wait, the function does not run for an operation that is done.
 *   TOLD    A call is not told that its function failed if the operation was done before.
 *   OWN     A call is told that its function failed if it was not done before.
 *   VOID    An operation that was voided has no effect.
 *   PART    After a call was told that its transaction is lost, which its function had committed, no
 *           call that begins runs the function.
 *   DONE    A call does not wait forever.
 *
 * Names in -D that plant a bug, and the property that each must violate:
 *
 *   DO_UNLOCKED    ALONE   Do does not lock the key
 *   TX_UNLOCKED    ALONE   DoTx inserts its claim without the lock
 *   UNLOCK_EARLY   ALONE   the lock is released before the commit is visible
 *   WAIT_TRUSTED   FRESH   after a wait, the snapshot of before counts
 *   ERROR_UNREAD   TOLD    the record is not read after the function has failed
 *   ERROR_LATE     OWN     a record counts that was written after the rollback
 *   ERROR_LEFT     PART    a function that has failed is not asked whether it had committed
 *   FINISH_BLIND   ONCE    Finish does not fail where another record is
 *   VOID_OVER      VOID    Finish of Void writes over another record
 *   VOID_UNWRITTEN VOID    Void finds no record, and writes none
 *   LOCK_KEPT      DONE    a call that does not get the key keeps its lock
 *   LOOK_FIRST     FRESH   with SQLITE, Claim looks before it has the lock
 */

/* Bounds. */
#ifndef DOS       /* calls of Do */
#define DOS 2
#endif
#ifndef VOIDS     /* calls of Void */
#define VOIDS 0
#endif
#ifndef TXS       /* calls of DoTx */
#define TXS 1
#endif
#define ALL (DOS + VOIDS + TXS)
#ifndef TRIES     /* of a call whose connection is lost */
#define TRIES 2
#endif

#ifndef SQLITE    /* 1: the lock is the only write lock */
#define SQLITE 0
#endif
#ifndef PARTS     /* 1: a function may commit its transaction itself */
#define PARTS 0
#endif
#ifndef FAILS     /* 1: a function may fail */
#define FAILS 1
#endif

/* The database: the record that is committed, the transaction that has inserted one, and the
 * one that holds the lock; 0 is none. */
bool record;
byte inserted, locked;
byte effects, running;
bool voided;
bool unknown, part;   /* the record is of an unknown outcome; a call has its error after its function had committed */

byte ended, ids;      /* of transactions */

/* An assertion has the name of its property. */
hidden byte ONCE, ALONE, FRESH, TOLD, OWN, VOID, PART, DONE;

inline unlock() {
	if
	:: locked == me -> locked = 0
	:: else
	fi
}

/* The function's transaction ends without a commit. */
inline rollback() {
	d_step { running--; if :: inserted == me -> inserted = 0 :: else fi }
	unlock()
}

/* The function. It fails for its own reasons, and may fail where it finds its effect. */
inline function() {
	d_step {
		running++;
		ALONE = running == 1;
		assert(ALONE);
		sees = record && !unknown
	}
	if
	:: FAILS && !voids -> failed = true
	:: failed = false
	fi
}

inline commit() {
#ifdef UNLOCK_EARLY
	unlock();
#endif
	d_step {
		running--; record = true;
		if :: inserted == me -> inserted = 0 :: else fi;
		if :: voids -> voided = true :: else -> effects++ fi;
		VOID = !(voided && effects > 0);
		assert(VOID);
		ONCE = effects <= 1;
		assert(ONCE)
	}
	unlock()
}

/* A transaction whose connection is lost while its COMMIT is on its way. */
proctype Late(byte me; bool voids) {
	if
	:: rollback()
	:: commit()
	fi
}

proctype Do(byte me; bool voids) {
	bool found, waited, early, failed, sees, after;
	byte tries = TRIES;
begin:                                   /* Claim */
#if PARTS
	after = part;
#endif
#if SQLITE
#ifdef LOOK_FIRST
	found = record;
	d_step { locked == 0 -> locked = me };
#else
	skip;                                /* no jump leads into a d_step */
	d_step { locked == 0 -> locked = me; found = record };
#endif
	if
	:: found -> goto taken
	:: else
	fi;
	d_step {
		FRESH = !record;
		assert(FRESH)
	}
#else
	found = record;                      /* the snapshot */
	waited = false;
#ifndef DO_UNLOCKED
	if
	:: d_step { locked == 0 -> locked = me }
	:: locked != 0 -> waited = true; d_step { locked == 0 -> locked = me }
	fi;
#endif
	early = record;                      /* by the age of the transaction */
#ifdef WAIT_TRUSTED
	if
	:: found -> goto taken
	:: else
	fi;
#else
	if
	:: found || waited -> goto taken
	:: else
	fi;
#endif
	d_step {
		FRESH = !waited || !record;
		assert(FRESH)
	}
#endif
	function();
#if PARTS
	d_step {
		PART = !after;
		assert(PART)
	}
	if
	:: !voids ->                         /* the function commits, and fails or not */
		d_step { running--; locked = 0 };
#ifdef ERROR_LEFT
		if
		:: failed -> part = true; goto end
		:: else
		fi;
#endif
		d_step { inserted == 0 -> unknown = unknown || !record; record = true };
		part = true;
		goto end
	:: true
	fi;
#endif
	if                                   /* Doubt */
	:: failed ->
		rollback();
#ifdef ERROR_LATE
		early = record;
#endif
#ifdef ERROR_UNREAD
		early = false;
#endif
		if
		:: early ->                  /* replayed */
			d_step {
				OWN = sees || unknown;
				assert(OWN)
			}
			goto end
		:: else
		fi;
		d_step {
			TOLD = !sees;
			assert(TOLD)
		}
		goto end
	:: else
	fi;
	if                                   /* Finish */
	:: d_step { inserted == 0 && !record -> inserted = me }
#ifdef FINISH_BLIND
	:: record
#elif defined(VOID_OVER)
	:: record && voids
	:: record && !voids -> rollback(); goto read
#else
	:: record -> rollback(); goto read
#endif
	fi;
	if
	:: rollback()                        /* the process dies, or the commit does not arrive */
#ifdef VOID_UNWRITTEN
	:: voids -> voided = true; rollback()
	:: !voids -> commit()
#else
	:: commit()
#endif
	:: tries > 1 ->                      /* the connection is lost before the answer */
		atomic { tries--; run Late(me, voids); ids++; me = ids }
		goto begin
	fi;
	goto end;
taken:
#ifndef LOCK_KEPT
	unlock();
#endif
read:
	if
	:: record                            /* replayed */
	:: else -> goto begin
	fi;
end:
	ended++
}

proctype DoTx(byte me) {
	bool failed, sees, voids;
#ifndef TX_UNLOCKED
	d_step { locked == 0 -> locked = me };
#endif
	if
	:: d_step { inserted == 0 && !record -> inserted = me }
	:: record -> unlock(); goto end      /* replayed */
	fi;
	function();
	if
	:: rollback()
	:: !failed -> commit()
	fi;
end:
	ended++
}

init {
	byte i = 1;
	atomic {
		do
		:: i <= DOS + VOIDS -> run Do(i, i > DOS); i++
		:: i > DOS + VOIDS && i <= ALL -> run DoTx(i); i++
		:: i > ALL -> break
		od;
		ids = ALL
	}
	timeout;
	d_step {
		DONE = ended == ALL && locked == 0 && inserted == 0;
		assert(DONE)
	}
}
