/*
 * One key of Do on MySQL and MariaDB, which claims first: an INSERT claims the record, the function runs,
 * and an UPDATE adds the result before COMMIT. Beside it a call of DoTx, in a transaction that its caller
 * ends one way or the other. As in lease.pml, anything may happen between two steps.
 *
 * Code: idempotency/claimfirst.go, idempotency/joined.go, idempotency/void.go, and the fence of engine_owntx.go.
 *
 * Do is
 *
 *   Look:    read the record, or expect a new key
 *   Claim:   insert the record, which waits for a row of another transaction that has not ended, and
 *            finds the key taken if that one commits
 *   the function, which writes its effect in two statements, a and b
 *   Finish:  update the record that has this attempt's id; there is none after the server has ended the
 *            transaction
 *   COMMIT
 *
 * Void is Do with a function that writes nothing, and a record that says that the operation is never done. A call
 * of Do that finds that record is refused, and a call of Void that finds another one is too late.
 *
 * With PARTS the function may commit the transaction itself between a and b, by DDL for example, and then goes on
 * or fails. Doubt reads, after the rollback, whether the record of this attempt stands.
 *
 * The server may end the transaction between a and b (a deadlock), and the function may swallow that. The
 * fence has set autocommit off, so what the function writes next is in a transaction that nothing commits.
 *
 * A connection may be lost with COMMIT on its way. Then the call is made again, by a client that
 * remembers nothing, while the transaction ends some time, one way or the other.
 *
 * Properties; an assertion that fails has the name:
 *
 *   ONCE    The operation has its effect once.
 *   WHOLE   The effect is there whole and with its record, or nothing is there.
 *   OPEN    A call is not told that its function failed while an earlier commit of it is open.
 *   VOID    An operation that was voided has no effect.
 *   PART    A call is not told that its function failed, and nothing else, if a part of its effect is committed.
 *   DONE    A call does not wait forever.
 *
 * Names in -D that plant a bug, and the property that each must violate:
 *
 *   NO_FENCE       WHOLE   autocommit is on, so that a statement after the loss is committed alone
 *   FINISH_BLIND   WHOLE   Finish does not fail where its record is gone
 *   CLAIM_PLAIN    ONCE    Claim reads whether there is a record, and does not wait for one in flight
 *   CLAIM_LATE     OPEN    Claim comes after the function
 *   ERROR_LEFT     PART    a function that has failed is not asked whether it had committed
 *   WAIT_ON        WHOLE   DoTx claims again after a wait whose end has ended the transaction
 *   VOID_OVER      VOID    Claim of Void waits for a record, and takes it over
 *   VOID_UNWRITTEN VOID    Void finds no record, and writes none
 */

/* Bounds. */
#ifndef CALLS     /* of Do */
#define CALLS 2
#endif
#ifndef VOIDS     /* calls of Void */
#define VOIDS 0
#endif
#ifndef JOINED    /* calls of DoTx */
#define JOINED 1
#endif
#define ALL (CALLS + VOIDS + JOINED)
#ifndef PARTS     /* 1: a function may commit its transaction itself */
#define PARTS 0
#endif
#ifndef TRIES     /* of a call whose connection is lost */
#define TRIES 2
#endif

/* The database: the record that is committed, the transaction that has inserted one, and the
 * effects that are committed. */
bool record;
byte inserted, doneA, doneB;
bool voided;
byte part;            /* the attempt whose function has committed, and which has no result; 0 is none */

byte open[CALLS + VOIDS + 1]; /* commits of a call that are on their way */

byte ended, ids;

/* An assertion has the name of its property. */
hidden byte ONCE, WHOLE, OPEN, VOID, PART, DONE;

inline judge() {
	ONCE = doneA <= 1 && doneB <= 1;
	assert(ONCE);
	VOID = !(voided && (doneA > 0 || doneB > 0));
	assert(VOID);
	WHOLE = part || doneA == doneB && record == (doneA || voided);
	assert(WHOLE)
}

/* The server rolls back what the transaction has. */
inline rollback() {
	d_step {
		a = 0; b = 0;
		if :: inserted == me -> inserted = 0 :: else fi
	}
}

/* The server commits what the transaction has. */
inline commit() {
	d_step {
		doneA = doneA + a; doneB = doneB + b;
		if :: inserted == me -> inserted = 0; record = true :: else fi;
		if :: part == me -> part = 0 :: else fi;
#ifdef CLAIM_PLAIN
		record = record || a;
#endif
		a = 0; b = 0;
		voided = voided || voids;
		judge()
	}
}

/* The claim goes on at taken if the key is. */
inline claim() {
	if
#ifdef CLAIM_PLAIN
	:: d_step { !record -> if :: inserted == 0 -> inserted = me :: else fi }
#else
	:: d_step { inserted == 0 && !record -> inserted = me }
#endif
	:: record -> rollback(); goto taken
	fi
}

/* A transaction whose connection is lost while its COMMIT is on its way. */
proctype Late(byte me, client; bool voids; byte a, b) {
	if
	:: atomic { rollback(); open[client]-- }
	:: atomic { commit(); open[client]-- }
	fi
}

proctype Do(byte me; bool voids) {
	bool lost;
	byte a, b, client = me, tries = TRIES;
begin:
	a = 0; b = 0; lost = false;
	if                                   /* Look, or not */
	:: record -> goto end
	:: true
	fi;
#ifdef VOID_OVER
	if
	:: voids && record -> goto finish
	:: true
	fi;
#endif
#ifndef CLAIM_LATE
	claim();
#endif
	if
	:: voids -> goto finish
	:: else
	fi;
	a = 1;
#if PARTS
	if
	:: d_step { doneA = doneA + a; a = 0; inserted = 0; record = true; part = me; judge() }
	:: true
	fi;
#endif
	if
	:: rollback(); lost = true           /* a deadlock, which the function swallows */
	:: true
	fi;
	if
#ifdef NO_FENCE
	:: lost -> d_step { doneB++; judge() }
#else
	:: lost -> b = 1                     /* in a transaction that has no claim */
#endif
	:: !lost -> b = 1
	:: goto error                        /* the function fails */
	fi;
#ifdef CLAIM_LATE
	claim();
#endif
#ifndef FINISH_BLIND
	if                                   /* Finish */
	:: lost && part != me -> goto error
	:: else
	fi;
#endif
finish:
	if
	:: rollback(); goto end              /* the process dies, or the commit does not arrive */
#ifdef VOID_UNWRITTEN
	:: voids -> rollback(); voided = true; goto end
	:: !voids -> commit(); goto end
#else
	:: commit(); goto end
#endif
	:: tries > 1 ->                      /* the connection is lost before the answer */
		atomic { tries--; open[client]++; run Late(me, client, voids, a, b); ids++; me = ids }
		goto begin
	fi;
error:                                   /* Doubt */
	rollback();
#if PARTS
#ifndef ERROR_LEFT
	if
	:: part == me -> goto end            /* told that the transaction is lost */
	:: else
	fi;
#endif
	d_step {
		PART = part != me;
		assert(PART)
	}
#endif
	d_step {
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

/* A call of DoTx. Its caller commits, or does not. */
proctype Joined(byte me) {
	bool voids;
	byte a, b;
	a = 1;                               /* the caller's own write, before */
	if
	:: inserted != 0 ->                  /* a wait ends, and with it the transaction: innodb_rollback_on_timeout */
		rollback();
#ifdef WAIT_ON
		if
		:: d_step { inserted == 0 && !record -> doneB++; record = true; judge() }
		:: record
		fi;
#endif
		goto taken                   /* in progress: the caller begins again, or gives up */
	:: true
	fi;
	claim();
	b = 1;
	if
	:: rollback()
	:: commit()
	fi;
taken:                                   /* replayed */
	ended++
}

init {
	byte i = 1;
	atomic {
		do
		:: i <= CALLS + VOIDS -> run Do(i, i > CALLS); i++
		:: i > CALLS + VOIDS && i <= ALL -> run Joined(i); i++
		:: i > ALL -> break
		od;
		ids = ALL
	}
	timeout;
	d_step {
		DONE = ended == ALL && inserted == 0;
		assert(DONE)
	}
}
