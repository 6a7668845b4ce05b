/*
 * One key of Do with ClaimLast on MySQL and MariaDB: nothing is claimed before the function runs,
 * and one INSERT writes the whole record before COMMIT. Beside it a call that claims first: DoTx, or
 * a Do of a program without the option. As in lease.pml, anything may happen between two steps.
 *
 * Code: idempotency/claimlast.go; of First idempotency/claimfirst.go and idempotency/joined.go.
 *
 * Do is
 *
 *   Look:    read the record, or expect a new key
 *   the function, which writes its effect in two statements, a and b
 *   Finish:  insert the record, which waits for a row of another transaction that has not ended,
 *            and fails if that one commits
 *   COMMIT
 *   Doubt:   after an error of the function or of Finish, roll back and read the record by a
 *            locking read, which waits for a row that is inserted and not committed. If there is
 *            one, it is replayed.
 *
 * The server may end the transaction between a and b (a deadlock). The session has autocommit off, so
 * the next statement begins another one. The connector sees the error, and refuses every further
 * statement, Holdfast's own too. The function may run a statement that commits what came before
 * (DDL): the connector does not send it.
 *
 * A connection may be lost with COMMIT on its way. Then the call is made again, by a client that
 * remembers nothing, while the transaction ends some time, one way or the other.
 *
 * Functions may run beside each other: that is what the option gives up.
 *
 * Properties; an assertion that fails has the name:
 *
 *   ONCE    The operation has its effect once.
 *   WHOLE   The effect is there whole and with its record, or nothing is there.
 *   TOLD    A call is not told that its function failed if the operation was done before.
 *   OPEN    A call is not told that its function failed while an earlier commit of it is open.
 *   DONE    A call does not wait forever.
 *
 * Names in -D that plant a bug, and the property that each must violate:
 *
 *   NO_FENCE       WHOLE   the connector does not refuse statements after the loss
 *   OWN_EXEMPT     WHOLE   it refuses the program's statements, and not Holdfast's own
 *   NO_REFUSAL     WHOLE   it sends a statement that commits
 *   ERROR_UNREAD   TOLD    the record is not read after the function has failed
 *   LOOK_PLAIN     OPEN    the read after an error does not wait for a row in flight
 *   FINISH_BLIND   ONCE    Finish does not fail where another record is
 *   LOCK_FIRST     WHOLE   without the connector: a lock that is no row of the record (of a bucket's
 *                          row, or GET_LOCK) comes before the function, in the place of a claim, and
 *                          a mark finds at the end that the transaction is another one
 */

/* Bounds. */
#ifndef LASTS     /* calls that claim last */
#define LASTS 2
#endif
#ifndef FIRSTS    /* calls that claim first */
#define FIRSTS 1
#endif
#ifndef TRIES     /* of a call whose connection is lost */
#define TRIES 2
#endif
#ifndef FAILS     /* 1: a function may fail */
#define FAILS 1
#endif
#ifndef LOSES     /* 1: the server may end a transaction, and a function may run DDL */
#define LOSES 1
#endif

/* The database: the record that is committed, the transaction that has inserted one, and the
 * effects that are committed. */
bool record;
byte inserted, doneA, doneB;
byte locked;          /* with LOCK_FIRST */

byte open[LASTS + 1]; /* commits of a call that are on their way */

byte ended, ids;

/* An assertion has the name of its property. */
hidden byte ONCE, WHOLE, TOLD, OPEN, DONE;

inline judge() {
	ONCE = doneA <= 1 && doneB <= 1;
	assert(ONCE);
	WHOLE = doneA == doneB && record == doneA;
	assert(WHOLE)
}

/* The server rolls back what the transaction has. */
inline rollback() {
	d_step {
		a = 0; b = 0;
		if :: inserted == me -> inserted = 0 :: else fi;
		if :: locked == me -> locked = 0 :: else fi
	}
}

/* The server commits what the transaction has. */
inline commit() {
	d_step {
		doneA = doneA + a; doneB = doneB + b;
		if :: inserted == me -> inserted = 0; record = true :: else fi;
		if :: locked == me -> locked = 0 :: else fi;
		a = 0; b = 0;
		judge()
	}
}

/* A transaction whose connection is lost while its COMMIT is on its way. */
proctype Late(byte me, client; byte a, b) {
	if
	:: atomic { rollback(); open[client]-- }
	:: atomic { commit(); open[client]-- }
	fi
}

proctype Last(byte me) {
	bool failed, sees, lost;
	byte a, b, client = me, tries = TRIES;
begin:
	a = 0; b = 0; lost = false; failed = false;
	if                                   /* Look, or not */
	:: record -> goto end
	:: true
	fi;
#ifdef LOCK_FIRST
	d_step { locked == 0 -> locked = me };
	if
	:: record -> rollback(); goto end
	:: else
	fi;
#endif
	sees = record;
	a = 1;
	if
	:: LOSES ->                          /* a deadlock, which the function swallows */
		rollback(); lost = true
	:: LOSES ->                          /* DDL */
#if defined(NO_REFUSAL) || defined(LOCK_FIRST)
		commit();
		lost = true
#else
		skip
#endif
	:: true
	fi;
	if
#if defined(NO_FENCE) || defined(LOCK_FIRST)
	:: true -> b = 1
#else
	:: !lost -> b = 1
	:: lost                              /* refused, and swallowed again */
#endif
	:: FAILS -> failed = true
	fi;
	if
	:: failed -> goto error
	:: else
	fi;
#ifdef LOCK_FIRST
	if                                   /* the mark is gone */
	:: lost -> goto error
	:: else
	fi;
#elif !defined(NO_FENCE) && !defined(OWN_EXEMPT) && !defined(NO_REFUSAL)
	if
	:: lost -> goto error                /* Finish is refused */
	:: else
	fi;
#endif
	if                                   /* Finish */
	:: d_step { inserted == 0 && !record -> inserted = me }
#ifdef FINISH_BLIND
	:: record
#else
	:: record -> rollback(); goto taken
#endif
	fi;
	if
	:: rollback(); goto end              /* the process dies, or the commit does not arrive */
	:: commit(); goto end
	:: tries > 1 ->                      /* the connection is lost before the answer */
		atomic { tries--; open[client]++; run Late(me, client, a, b); ids++; me = ids }
		goto begin
	fi;
error:                                   /* Doubt */
	rollback();
#ifndef LOOK_PLAIN
	inserted == 0;                       /* the locking read waits */
#endif
#ifndef ERROR_UNREAD
	if
	:: record -> goto end                /* replayed */
	:: else
	fi;
#endif
	d_step {
		TOLD = !sees;
		assert(TOLD);
		OPEN = open[client] == 0;
		assert(OPEN)
	}
	goto end;
taken:
	if
	:: record                            /* replayed */
	:: else -> goto begin
	fi;
end:
	ended++
}

/* A call that claims first. Its claim is a row from the beginning. */
proctype First(byte me) {
	byte a, b;
	if
	:: d_step { inserted == 0 && !record -> inserted = me }
	:: record -> goto end                /* replayed */
	fi;
	a = 1;
	b = 1;
	if
	:: rollback()
	:: commit()
	fi;
end:
	ended++
}

init {
	byte i = 1;
	atomic {
		do
		:: i <= LASTS -> run Last(i); i++
		:: i > LASTS && i <= LASTS + FIRSTS -> run First(i); i++
		:: i > LASTS + FIRSTS -> break
		od;
		ids = LASTS + FIRSTS
	}
	timeout;
	d_step {
		DONE = ended == LASTS + FIRSTS && inserted == 0 && locked == 0;
		assert(DONE)
	}
}
