/*
 * A transaction of Holdfast's whose function may do anything to it: end it, set savepoints and go back to
 * them, and swallow errors after which the server may have rolled back. On MySQL and MariaDB an error does
 * not say what it did to the transaction, and after a loss the next statement would be in another one.
 *
 * Code: engine_owntx.go, engine_owntx_end.go, and what a connection sees, internal/stdhandle/connector.go.
 *
 * The mark is a savepoint, and its release at the end proves the transaction. A connection that sees all
 * statements and errors spares it until it is needed:
 *
 *   Mark:    set the savepoint, before a statement that may end the transaction, and before the first
 *            savepoint: going back to an older one would remove the mark
 *   Doubt:   an error is seen that the transaction may not have survived
 *   Check:   at the end, if there is a doubt: with the mark, release it; it is gone with its transaction.
 *            Without, the function cannot have ended the transaction itself, so that nothing of it is
 *            committed: roll back, and run it again, with the mark at its start. A mark that is set in
 *            doubt could be another transaction's: the statement that needs it is refused instead
 *   COMMIT
 *
 * Properties; an assertion that fails has the name:
 *
 *   WHOLE   The effect, two statements a and b, is there whole, or nothing of it is, unless the function
 *           has committed a part itself. Then the call is told that its transaction is lost.
 *   ONCE    The function does not run again after a part of its effect was committed.
 *   TRUE    A call is told of a loss only if there was one.
 *
 * Names in -D that plant a bug, and the property that each must violate:
 *
 *   TRUST_ERRORS  WHOLE   an error is no doubt
 *   MARK_AFTER    WHOLE   the mark comes after the statement that may end the transaction
 *   MARK_NEVER    ONCE    there is no mark, and every doubt runs the function again
 *   MARK_LATE     WHOLE   the mark is set in doubt, too
 *   SAVED_FIRST   TRUE    a savepoint comes before the mark
 */

/* Bounds. */
#ifndef STEPS     /* of the function, between a and b */
#define STEPS 4
#endif

bool there;               /* the open transaction is the one that began */
bool mark, saved;         /* the savepoints that it has; saved is the function's */
bool a, b;                /* what it has */
bool doneA, doneB;        /* what is committed */

bool marked, doubt;       /* what the connection knows */

/* An assertion has the name of its property. */
hidden byte WHOLE, ONCE, TRUE;

/* The transaction ends, and the next statement begins another one. */
inline gone() { there = false; mark = false; saved = false; a = false; b = false }

/* Mark. It may be refused. */
inline sendMark() {
	if
	:: marked
#ifdef MARK_NEVER
	:: !marked -> marked = true
#else
#ifdef MARK_LATE
	:: !marked -> marked = true; mark = true
#else
	:: !marked && doubt -> goto again
	:: !marked && !doubt -> marked = true; mark = true
#endif
#endif
	fi
}

active proctype InTx() {
	byte n;
	bool early;
begin:
	skip;
	d_step {
		ONCE = !doneA;
		assert(ONCE);
		there = true; mark = early; saved = false; a = false; b = false;
		marked = early; doubt = false; n = 0;
		a = true
	}
	do
	:: n < STEPS ->
		n++;
		if
		:: atomic {           /* a statement that may end it: CALL, DDL, COMMIT */
#ifndef MARK_AFTER
			sendMark();
#endif
			doubt = true;
			if
			:: doneA = doneA || a; gone()
			:: true
			fi;
#ifdef MARK_AFTER
			marked = true; mark = true
#endif
		}
		:: atomic {           /* an error, which the function swallows; the server may have rolled back */
#ifndef TRUST_ERRORS
			doubt = true;
#endif
			if
			:: gone()
			:: true
			fi
		}
		:: atomic {           /* SAVEPOINT */
#ifndef SAVED_FIRST
			sendMark();
#endif
			saved = true
		}
		:: atomic {           /* ROLLBACK TO SAVEPOINT, which removes what is younger */
			saved;
#ifdef SAVED_FIRST
			mark = false
#endif
		}
		fi
	:: true -> break
	od;
	b = true;
	if                            /* Check */
	:: !doubt
#ifdef MARK_NEVER
	:: doubt -> goto again
#else
	:: doubt && marked && mark
	:: doubt && marked && !mark -> goto lost
	:: doubt && !marked -> goto again
#endif
	fi;
	d_step {                      /* COMMIT */
		doneA = doneA || a; doneB = b;
		WHOLE = doneA && doneB && there;
		assert(WHOLE)
	}
	goto end;
again:
	atomic { gone(); early = true }
	goto begin;
lost:
	atomic {
		TRUE = !there;
		assert(TRUE);
		gone();
		WHOLE = !doneB;
		assert(WHOLE)
	}
end:
	skip
}
