/*
 * A staged operation, at the level of database transactions, and a provider outside
 * of the database. As in lease.pml, anything may happen between two steps.
 *
 * Code: idempotency/staged/run.go, idempotency/staged/call.go, idempotency/staged/cancel.go, idempotency/staged/events.go.
 *
 * The operation books a row in the caller's table (Local), pays at the provider
 * (Call), closes the row (Local) and ends.
 *
 * The rows, and the variables that represent them:
 *
 *   staged(state, attempt, token, due_at, step)   state, whose, token, -, at
 *   steps(name, state, token)                   book, bookCut, close, closeCut; pay, payToken
 *
 * whose is the id of one attempt; 0 is NULL. Every transaction of a worker begins with
 *   Own: UPDATE staged SET step = $4, mode = $5, due_at = NOW + lease
 *         WHERE key_hash = $1 AND attempt = $2 AND token = $3 AND state = 1
 * and holds the row's lock until it ends. All other writers lock that row too. So a
 * transaction is one step here, at its commit. A transaction that was rolled back did
 * nothing and is sent again, which is no step. A transaction whose answer is lost is
 * sent again after it was done.
 *
 * due_at is not modelled: a test of whether it has passed may always give either
 * result. This is the worst case: every lease may have ended at any place.
 *
 * A request to the provider is carried out at any time, or never; the worker gets its
 * answer, or not. The model assumes two rules, and plants bugs that break them: a
 * request does not leave after the worker's lease has ended (the call's context has
 * ended by then), and "not done" means that it will never be done either.
 *
 * Workers represent calls of Do with the same key, and the completer. With START, the
 * operation is begun by StartTx: its row and the caller's are written in one transaction
 * of the caller, by up to two callers with the same key. That is one step at its commit,
 * too: nobody sees an uncommitted row, and the second caller's INSERT waits for it. A
 * caller may die before its commit, or after it; or run again because it did not get the
 * commit's answer.
 *
 * With ACCEPTS, the provider may answer "accepted" and carry the payment out later, or
 * refuse it later. A worker stores that and leaves the operation. Its deadline is not
 * modelled, like other times: it may have passed at any place.
 *
 * With CONTRADICTS, events may be wrong: up to two of them say that the call was paid or
 * refused, whatever it was, before the answer of the call or after it. TRUE does not hold
 * then: nobody finds out that a single answer is wrong. Two that contradict each other
 * park the operation, and an operator decides.
 *
 * With CANCEL, somebody cancels the operation, once. If it was not begun yet, a row that has ended keeps it from
 * beginning. If its call was never begun, or was not done, it ends, and what was booked is taken back in the same
 * transaction, whoever has the operation. Anything else is too late, and changes nothing.
 *
 * With PARTS, a function of this database may end its transaction itself, by COMMIT or by DDL, and fail after that
 * or not. What it did before is committed, and with it what the transaction wrote before the function: the step as
 * begun, or the cancel. A step that has begun and not ended parks the operation, and an operator, who finds what it
 * did, says that it was done.
 *
 * A lease that is renewed while a call runs needs no step: a lease may last for any time
 * here, and the call's context ends with it.
 *
 * Results are not modelled. So the model does not cover the replacement of a result
 * that a program cannot read. This happens only in an operation that is parked for it,
 * before a later step has begun, under the row's lock, and does not change the step's
 * state.
 *
 * Properties; an assertion that fails has the name:
 *
 *   PAID    There is at most one payment. TakeOver needs a provider that honours
 *           keys for that (KEYED), the other declarations do not.
 *   CALLED  Unless it is declared idempotent, a call is not made if an earlier one
 *           was, or may still be, carried out.
 *   BOOKED  A local step has its effect once.
 *   POINT   A recovery point that is committed does not change.
 *   STALE   A worker that lost the operation to another one writes nothing.
 *   FINAL   The operation ends once.
 *   TRUE    Unless an operator decides otherwise, the operation ends as succeeded only
 *           if it was booked, paid and closed, and as rejected only if it was not paid.
 *   DONE    An operation that can continue does not wait forever.
 *   STARTS  Nothing runs for a caller's transaction that has not committed.
 *   VOID    Nothing is paid, and nothing stays booked, for an operation that was cancelled.
 *   HEARD   The operation does not end by itself if it was told both "paid" and "refused".
 *   LATE    The provider's answer is taken also if an operator has ended the operation without it.
 *
 * Names in -D that plant a bug, and the property that each must violate:
 *
 *   OWN_UNTESTED      STALE   a worker's statement tests neither attempt nor token
 *   OWN_UNLOCKED      STALE   it tests them in a read that locks nothing
 *   CLAIM_UNTESTED    FINAL   taking over does not test the state
 *   CLAIM_KEEPS_TOKEN CALLED  taking over changes only the attempt
 *   LOCAL_APART       BOOKED  a local step's effect is committed before its point
 *   LOCAL_UNREAD      BOOKED  a local step sent again does not read its point
 *   LOCAL_UNCLAIMED   BOOKED  a local step is written after its function, not before it and after it
 *   BEGIN_UNWRITTEN   CALLED  the call is made before it is committed as begun
 *   DOUBT_IGNORED     CALLED  a worker that takes over always repeats the call
 *   DOUBT_FORGOTTEN   CALLED  the beginning, sent again, finds only its own token
 *   TIMEOUT_IS_NO     PAID    a call without an answer counts as not made
 *   CALL_LATE         CALLED  a request leaves after the lease has ended
 *   ASK_EARLY         PAID    the answer is "not done" while a request is on its way
 *   KEY_OF_TOKEN      PAID    the provider's key is derived from the token
 *   KEYS_IGNORED      PAID    TakeOver with a provider that does not honour keys
 *   END_OVERWRITES    POINT   a step's answer replaces the existing one
 *   NEWS_OVER_WORKER  CALLED  "not done" is accepted while a worker has the operation
 *   NEWS_FORGOTTEN    DONE    an event that comes before the operation is parked does
 *                             not prevent the parking
 *   PARK_UNTESTED     FINAL   parking does not test the state
 *   FINISH_UNTESTED   FINAL   the end, sent again, does not test the state
 *   SETTLE_PARKED     DONE    an operator's answer does not let the operation continue
 *   START_APART       STARTS  the operation's row is committed before the caller's
 *   START_OVERWRITES  FINAL   a second start resets the operation
 *   ACCEPT_OVERWRITES POINT   "accepted" replaces the answer that an event has brought
 *   ACCEPT_IS_NO      PAID    "accepted" counts as not made
 *   ACCEPT_FORGOTTEN  CALLED  past the deadline, a step that was accepted counts as new
 *   ASK_ACCEPTED      PAID    the answer is "not done" while an accepted payment may
 *                             still be carried out
 *   ANSWER_DROPPED    HEARD   the answer of a call is dropped if an event came before it
 *   EVENT_DROPPED     HEARD   an event against the known answer is refused, and forgotten
 *   EVENT_DECIDES     HEARD   a later event ends a contradiction
 *   ENDED_REFUSES     LATE    an event about an operation that has ended is refused, and delivered for ever
 *   DOUBT_NOTDONE     VOID    the answer "not done" to a call that is made again counts for the one before
 *   CANCEL_BEGUN      VOID    an operation whose call was begun is cancelled
 *   CANCEL_UNLOCKED   VOID    the call's step is read before the row is locked
 *   CANCEL_ENDED      FINAL   an operation that has ended is cancelled
 *   CANCEL_UNWRITTEN  VOID    the cancel of an operation that was not begun writes no row
 *   CANCEL_BOOKED     VOID    what was booked is not taken back
 *   CANCEL_LAST       BOOKED  the row is written after the function that takes back what was booked
 */

/* Bounds. */
#define TAKEOVER  1
#define PARK      2
#define RECONCILE 3
#ifndef MODE      /* what becomes of a call in doubt */
#define MODE PARK
#endif
#ifndef WORKERS
#define WORKERS 2
#endif
#ifndef ATTEMPTS  /* of a worker */
#define ATTEMPTS 2
#endif
#ifndef OPERATOR  /* 1: somebody settles what is parked */
#define OPERATOR 1
#endif
#ifndef NEWS      /* 1: the provider reports, once, the outcome of the call */
#define NEWS 0
#endif

#ifndef START     /* 1: begun in a transaction of the caller */
#define START 0
#endif
#ifndef ACCEPTS   /* 1: the provider may answer that it has accepted, and pay later */
#define ACCEPTS 0
#endif

#ifndef CONTRADICTS /* 1: the provider's events may be wrong */
#define CONTRADICTS 0
#endif

#ifndef CANCEL    /* 1: somebody cancels the operation */
#define CANCEL 0
#endif

#ifndef PARTS     /* 1: a function may end its transaction itself */
#define PARTS 0
#endif

#if MODE == TAKEOVER && !defined(KEYS_IGNORED)
#define KEYED true
#else
#define KEYED false
#endif

/* States: of the operation, of its step "pay", and what a provider answers. */
#define ABSENT    0
#define PENDING   1
#define SUCCEEDED 2
#define REJECTED  3
#define PARKED    6

#define NONE      0
#define NOTDONE   1
#define BEGUN     2
#define PAYED     3
#define REFUSED   4
#define ACCEPTED  5
#define ENDED     (pay == PAYED || pay == REFUSED)
#define OPEN      (pay == BEGUN || pay == ACCEPTED)

#define NOSTEP    0
#define PAY       1
#define LOCAL     2

/* The database: Holdfast's rows, then the caller's. */
byte state, whose, token, at;
byte pay, payToken;
bool torn;              /* mode 5: parked, because two answers contradict each other */
bool book, close;
bool bookCut, closeCut; /* begun, and committed so */
byte booked, closed;
byte business;          /* the row that the caller writes in the transaction of StartTx */

/* The provider: requests, of a worker that waits and of one that does not any more. */
byte request[WORKERS], answer[WORKERS], stray;
byte paid;
byte later;             /* the request that it has accepted and not carried out yet */
bool paidKey[16];       /* it was paid, or refused */
byte told;              /* how many news were sent */
byte nDone;

/* What only the properties look at. */
hidden byte PAID, CALLED, BOOKED, POINT, STALE, FINAL, TRUE, DONE, STARTS, HEARD, VOID, LATE;
hidden byte i;
byte given;             /* attempts that the operation was given to; the last of them has it */
bool open;              /* a call was made and was, or may yet be, carried out */
bool cancelled;
bool heardPaid, heardRefused; /* what the operation was told since an operator decided */

#define FINISHED (state == SUCCEEDED || state == REJECTED)
#ifdef ASK_ACCEPTED
#define LATER    true
#else
#define LATER    (later == 0)
#endif
#define QUIET    (LATER && stray == 0 && request[0] == 0 && request[1] == 0 && request[WORKERS - 1] == 0)

inline ends(as) {
	FINAL = !FINISHED;
	assert(FINAL);
	state = as;
	whose = 0;
	at = NOSTEP
}

/* Own, or the row's lock; UPDATE staged SET state = 6, step = 'pay', mode = 5, attempt = NULL, token = token + 1 */
inline tears() {
	state = PARKED;
	whose = 0;
	token++;
	torn = true;
	at = (close -> NOSTEP : PAY)            /* a later step has used the first answer */
}

#define HEARS(what) \
	heardPaid = heardPaid || CONTRADICTS && what == PAYED; \
	heardRefused = heardRefused || CONTRADICTS && what == REFUSED

/* The operation is this attempt's from now on. */
inline gives() {
	STARTS = !START || business == 1;
	assert(STARTS);
	given++;
	me = given;
	whose = me;
	mine = token
}

/* Own, in found. */
#ifdef OWN_UNTESTED
#define OWNS (state == PENDING)
#else
#define OWNS (state == PENDING && whose == me && token == mine)
#endif

#ifdef OWN_UNLOCKED
#define READ_OWN atomic { found = OWNS };
#define OWN      skip
#else
#define READ_OWN
#define OWN      found = OWNS
#endif

inline wrote() {
	STALE = given == me;
	assert(STALE)
}

/* A worker dies at the end of a transaction, or its answer is lost and it is sent again. */
#define COMMITTED(again) \
	if \
	:: !found -> goto next \
	:: found \
	:: found -> goto again \
	:: goto next \
	fi

/*
 * Own; INSERT the step as begun; the function; UPDATE the step with its result; COMMIT. A plain read of the step
 * comes before it, and one after Own if it is sent again, so what was done, or begun, is not done again.
 */
inline step(point, cut, effect) {
	READ_OWN
#ifdef LOCAL_APART
	atomic { effect++; BOOKED = effect == 1; assert(BOOKED) }
#endif
	atomic {
		OWN;
		if
		:: found ->
			wrote();
			at = NOSTEP;
			if
#ifdef LOCAL_UNREAD
			:: true ->
#else
			:: !point && !cut ->
#endif
#ifdef LOCAL_APART
				skip;
#else
				effect++;
				BOOKED = effect == 1;
				assert(BOOKED);
#endif
				if
				:: point = true
#if PARTS
#ifdef LOCAL_UNCLAIMED
				:: true
#else
				:: cut = true
#endif
#endif
				fi
			:: point || cut
			fi
		:: else
		fi
	}
}

proctype Worker(byte w) {
	byte round, me, mine, seen, was, ask;
	bool found, doubt;

end:
	do
	:: FINISHED || round == ATTEMPTS -> break
	:: round < ATTEMPTS && (state == ABSENT && !START || state == PENDING) ->
		round++;
		/* INSERT ... ON CONFLICT DO NOTHING, read in the same transaction; or a plain read first. */
		if
		:: atomic { state == ABSENT && !START -> token = 1; gives(); state = PENDING }
			goto running
		:: atomic { state == PENDING -> seen = token; was = at }
		:: FINISHED || state == PARKED -> goto next
		fi;
		if
		/*
		 * UPDATE staged SET state = 6, attempt = NULL, token = token + 1
		 *  WHERE key_hash = $1 AND token = $2 AND state = 1 AND due_at <= NOW
		 */
		:: atomic {
			MODE == PARK && was == PAY ->
			if
#ifdef PARK_UNTESTED
			:: token == seen -> FINAL = !FINISHED; assert(FINAL);
#else
			:: token == seen && state == PENDING ->
#endif
				state = PARKED; whose = 0; token++
			:: else
			fi }
			goto next
		/*
		 * UPDATE staged SET token = CASE WHEN attempt = $2 THEN token ELSE token + 1 END, attempt = $2
		 *  WHERE key_hash = $1 AND state = 1 AND (attempt = $2 OR token = $5 AND due_at <= NOW)
		 */
		:: atomic {
			!(MODE == PARK && was == PAY) ->
			if
#ifdef CLAIM_UNTESTED
			:: token == seen -> FINAL = !FINISHED; assert(FINAL);
#else
			:: token == seen && state == PENDING ->
#endif
#ifndef CLAIM_KEEPS_TOKEN
				token++;
#endif
				gives()
			:: else
			fi }
			if
			:: me != 0
			:: me == 0 -> goto next
			fi
		fi;
running:
		if
		:: book -> goto booked_
		:: bookCut -> goto cutting
		:: !book && !bookCut
		fi;
booking:
		step(book, bookCut, booked);
		COMMITTED(booking);
		if
		:: !book -> goto giving                 /* it has failed, or its transaction is lost */
		:: book
		fi;
booked_:
		if
		:: ENDED -> goto paying
		:: !ENDED
		fi;
		doubt = false;
#ifdef BEGIN_UNWRITTEN
		goto calling;
#endif
beginning:
		/*
		 * Own, with the step and its mode; SELECT the step; INSERT it, or
		 * UPDATE steps SET state = 1, token = $3 WHERE key_hash = $1 AND name = $2 AND state IN (0, 1); COMMIT
		 */
		READ_OWN
		atomic {
			OWN;
			if
			:: found ->
				wrote();
				if
				:: ENDED -> at = NOSTEP
				:: else ->
#if defined(DOUBT_IGNORED)
					doubt = false;
#elif defined(DOUBT_FORGOTTEN)
					doubt = OPEN && payToken != mine;
#elif defined(ACCEPT_FORGOTTEN)
					doubt = pay == BEGUN && (payToken != mine || doubt);
#else
					/* Begun by this attempt it was by a commit in doubt, and that may have been in doubt itself. */
					doubt = OPEN && (payToken != mine || doubt);
#endif
					pay = BEGUN;
					payToken = mine;
					at = PAY
				fi
			:: else
			fi
		}
		COMMITTED(beginning);
		if
		:: ENDED -> goto paying
		:: !ENDED && !(doubt && MODE != TAKEOVER) -> goto calling
		:: !ENDED && doubt && MODE == PARK -> goto parking
		:: !ENDED && doubt && MODE == RECONCILE
		fi;
		/* The provider is asked what became of the call. */
		if
		:: paid > 0 -> ask = PAYED; goto settling
		:: later != 0 -> goto accepting
#ifdef ASK_EARLY
		:: atomic { paid == 0 -> open = false }
#else
		:: atomic { paid == 0 && QUIET -> open = false }
#endif
		:: goto giving
		fi;
calling:
		if
#ifndef CALL_LATE
		:: whose != me -> goto next             /* the context has ended */
#endif
		:: atomic {
#ifndef CALL_LATE
			whose == me ->
#endif
			CALLED = MODE == TAKEOVER || !open;
			assert(CALLED);
			open = true;
#ifdef KEY_OF_TOKEN
			request[w] = mine
#else
			request[w] = 1
#endif
			}
		fi;
		if
		:: atomic { answer[w] != 0 -> ask = answer[w]; answer[w] = 0 }
#ifdef ACCEPT_IS_NO
			ask = (ask == ACCEPTED -> NOTDONE : ask)
#else
			if
			:: ask == ACCEPTED -> goto accepting
#if MODE == TAKEOVER && !defined(DOUBT_NOTDONE)
			:: ask == NOTDONE && doubt -> goto giving
#endif
			:: else
			fi
#endif
		/* No answer, in time: the request may be on its way. */
#ifdef TIMEOUT_IS_NO
		:: atomic { stray = (request[w] != 0 -> request[w] : stray); request[w] = 0; answer[w] = 0; ask = NOTDONE }
#else
		:: MODE == PARK -> goto parking
		:: MODE != PARK -> goto giving
#endif
		:: goto next
		fi;
settling:
		/* Own; UPDATE steps SET state = $3 WHERE key_hash = $1 AND name = $2 AND state IN (0, 1); COMMIT */
		READ_OWN
		atomic {
			OWN;
			if
			:: found ->
				wrote();
				at = NOSTEP;
				HEARS(ask);
				if
#ifdef END_OVERWRITES
				:: true -> POINT = !ENDED || pay == ask; assert(POINT);
#else
				:: !ENDED ->
#endif
					pay = ask;
					open = (ask == PAYED -> open : false)
#ifndef ANSWER_DROPPED
				:: ENDED && pay != ask && ask != NOTDONE -> tears()
				:: ENDED && (pay == ask || ask == NOTDONE)
#else
				:: ENDED
#endif
				fi
			:: else
			fi
		}
		COMMITTED(settling);
		if
		:: torn -> goto next
		:: !torn
		fi;
		if
		:: !ENDED -> goto giving                /* NotDone: tried again later */
		:: ENDED
		fi;
paying:
		if
		:: pay == REFUSED || close -> goto finishing
		:: pay == PAYED && closeCut -> goto cutting
		:: pay == PAYED && !close && !closeCut
		fi;
closing:
		step(close, closeCut, closed);
		COMMITTED(closing);
		if
		:: !close -> goto giving
		:: close
		fi;
finishing:
		/* Own's condition; UPDATE staged SET state = $4, result = $5 */
		READ_OWN
		atomic {
#ifdef FINISH_UNTESTED
			found = given == me && token == mine;
#else
			OWN;
#endif
			if
			:: found ->
				wrote();
				HEARD = !(heardPaid && heardRefused);
				assert(HEARD);
				TRUE = CONTRADICTS || (pay == REFUSED -> paid == 0 : paid == 1 && booked == 1 && closed == 1);
				assert(TRUE);
				ends((pay == REFUSED -> REJECTED : SUCCEEDED))
			:: else
			fi
		}
		if
		:: goto next
		:: found -> goto finishing
		fi;
accepting:
		/*
		 * The row is locked, and the step read: an event may have settled it. Else, with Own's condition,
		 * UPDATE steps SET state = 4, reference = $4; UPDATE staged SET attempt = NULL, due_at = NOW + until the deadline
		 */
		READ_OWN
		atomic {
			OWN;
			if
			:: found ->
				wrote();
				if
#ifdef ACCEPT_OVERWRITES
				:: true -> POINT = !ENDED; assert(POINT);
#else
				:: !ENDED ->
#endif
					pay = ACCEPTED;
					whose = 0
				:: ENDED
				fi
			:: else
			fi
		}
		if
		:: found && ENDED -> goto paying
		:: goto next
		fi;
parking:
		/*
		 * The row is locked, and the step read: news may have settled it. Else, with Own's condition,
		 * UPDATE staged SET state = 6, attempt = NULL, token = token + 1
		 */
		READ_OWN
		atomic {
			OWN;
			if
#ifndef NEWS_FORGOTTEN
			:: ENDED
#endif
#ifdef NEWS_FORGOTTEN
			:: found -> wrote(); state = PARKED; whose = 0; token++
#else
			:: found && !ENDED -> wrote(); state = PARKED; whose = 0; token++
#endif
			:: else
			fi
		}
		if
		:: ENDED && state != PARKED -> goto paying
		:: goto next
		fi;
		goto next;
cutting:
		/* Own, with the step; UPDATE staged SET state = 6, attempt = NULL, token = token + 1 */
		READ_OWN
		atomic {
			OWN;
			if
			:: found -> wrote(); at = LOCAL; state = PARKED; whose = 0; token++
			:: else
			fi
		}
		goto next;
giving:
		/* Own's condition; UPDATE staged SET attempt = NULL, due_at = NOW + pause */
		READ_OWN
		atomic {
			OWN;
			if
			:: found -> wrote(); whose = 0
			:: else
			fi
		}
next:
		/* No worker waits for the answer any more. */
		atomic {
			stray = (request[w] != 0 -> request[w] : stray);
			request[w] = 0;
			answer[w] = 0;
			me = 0;
			mine = 0;
			seen = 0;
			was = 0;
			ask = 0;
			found = false;
			doubt = false
		}
	od;
	atomic { round = 0; nDone++ }
}

inline carry(key) {
	if
	:: KEYED && paidKey[key]
	:: else ->
		paidKey[key] = true;
		paid++;
		PAID = paid == 1;
		assert(PAID);
		VOID = !cancelled;
		assert(VOID)
	fi
}

#define CARRIES(w) \
	:: atomic { request[w] != 0 -> carry(request[w]); request[w] = 0; answer[w] = (paid > 0 -> PAYED : REFUSED) } \
	/* It accepts, and will carry it out, or refuse it, later. The same key again is the same payment. */ \
	:: d_step { ACCEPTS && request[w] != 0 && paid == 0 && later == 0 -> later = request[w]; request[w] = 0; answer[w] = ACCEPTED } \
	:: d_step { KEYED && request[w] != 0 && later == request[w] -> request[w] = 0; answer[w] = ACCEPTED } \
	/* It refuses for good; or does nothing, and says so. */ \
	:: d_step { request[w] != 0 && paid == 0 && later == 0 -> paidKey[request[w]] = true; request[w] = 0; answer[w] = REFUSED } \
	:: d_step { request[w] != 0 && paid == 0 && later == 0 -> request[w] = 0; answer[w] = NOTDONE }

proctype Provider() {
end:
	do
	CARRIES(0)
	CARRIES(1)
#if WORKERS > 2
	CARRIES(2)
#endif
	:: atomic { stray != 0 -> carry(stray); stray = 0 }
	:: atomic { later != 0 -> carry(later); later = 0 }
	:: d_step { later != 0 -> later = 0 }                   /* it is refused, or fails, in the end */
	:: d_step { stray != 0 -> stray = 0 }                   /* it was lost on its way */
	od
}

inline goes() {
#ifdef SETTLE_PARKED
	skip
#else
	state = PENDING;
	whose = 0;
	at = NOSTEP;
	token++
#endif
}

/*
 * UPDATE steps SET state = $3 WHERE key_hash = $1 AND name = 'pay' AND state IN (0, 1), and where
 * the operation is parked:
 * UPDATE staged SET state = 1, attempt = NULL, token = token + 1 WHERE key_hash = $1 AND state = 6,
 * in one transaction that has locked the row.
 */
inline settle(as) {
	POINT = !ENDED;
	assert(POINT);
	pay = as;
	open = (as == PAYED -> open : false);
	if
	:: state == PARKED -> goes()
#ifdef NEWS_FORGOTTEN
	:: else
#else
	/* UPDATE staged SET step = '', mode = 1 WHERE key_hash = $1 AND state = 1 AND step = 'pay' */
	:: else -> at = NOSTEP
#endif
	fi
}

inline decides(as) {
	torn = false;
	heardPaid = CONTRADICTS && as == PAYED;
	heardRefused = CONTRADICTS && as == REFUSED
}

#if OPERATOR
/* It finds out what happened: "not done" only when that will not change any more. */
proctype Operator() {
end:
	do
	:: atomic { state == PARKED && at == PAY && OPEN && paid > 0 -> settle(PAYED) }
	:: atomic { state == PARKED && at == PAY && OPEN && paid == 0 && QUIET -> settle(NOTDONE) }
	:: atomic { state == PARKED && at == NOSTEP -> decides(pay); goes() }
	:: atomic { state == PARKED && at == LOCAL -> book = book || bookCut; close = close || closeCut; bookCut = false; closeCut = false; goes() }
	:: atomic { torn && at == PAY && paid > 0 -> pay = PAYED; open = true; decides(PAYED); goes() }
	:: atomic { torn && at == PAY && paid == 0 && QUIET -> pay = REFUSED; open = false; decides(REFUSED); goes() }
	/* Or ends it: UPDATE staged SET state = $2 WHERE key_hash = $1 AND state = 6. */
	:: atomic { state == PARKED && paid == 0 && QUIET -> ends(REJECTED); token++ }
	:: atomic { state == PARKED && at == PAY && OPEN && paid > 0 -> ends(SUCCEEDED); token++ }
	od
}
#endif

/* An event of a provider that contradicts itself. */
inline news(says) {
	told++;
	if
	:: says == REFUSED && pay == NOTDONE
	:: else -> HEARS(says)
	fi;
	if
	:: OPEN || pay == NOTDONE && says == PAYED -> settle(says)
	:: ENDED && FINISHED                    /* it is shown, and changes nothing */
#ifdef EVENT_DECIDES
	:: torn && !FINISHED && at == PAY -> pay = says; torn = false; goes()
#else
	:: torn && !FINISHED
#endif
#ifdef EVENT_DROPPED
	:: ENDED && !FINISHED && !torn && pay != says
#else
	:: ENDED && !FINISHED && !torn && pay != says -> tears()
#endif
	:: ENDED && !FINISHED && !torn && pay == says ->
		if
		:: state == PARKED && at == PAY -> goes()
		:: else
		fi
	:: pay == NOTDONE && says == REFUSED    /* it is delivered again */
	fi
}

#ifdef ENDED_REFUSES
#define TAKES (state == PENDING || state == PARKED)
#else
#define TAKES (state != ABSENT)
#endif

#if NEWS
proctype News() {
end:
	do
#if CONTRADICTS
	:: atomic { told < 2 && pay != NONE && TAKES -> if :: news(PAYED) :: news(REFUSED) fi }
#else
	:: atomic { !told && OPEN && paid > 0 && TAKES -> told = true; settle(PAYED) }
#ifdef NEWS_OVER_WORKER
	:: atomic { !told && OPEN && paid == 0 && QUIET && TAKES -> told = true; settle(NOTDONE) }
#else
	:: atomic { !told && OPEN && paid == 0 && QUIET && (state != PENDING || whose == 0) && TAKES -> told = true; settle(NOTDONE) }
#endif
#endif
	od
}
#endif

#if START
/*
 * The caller's row; INSERT staged ... ON CONFLICT DO NOTHING, with a lease that is over; COMMIT. If the
 * operation is there already, the caller writes nothing.
 */
proctype Starter() {
	byte round;
end:
	do
	:: round < 2 ->
		round++;
#ifdef START_APART
		atomic { if :: state == ABSENT -> state = PENDING; token = 1 :: else fi }
#endif
		if
#ifdef START_APART
		:: atomic { business == 0 -> business = 1 }
#else
		:: atomic { state == ABSENT -> state = PENDING; token = 1; business++; BOOKED = business == 1; assert(BOOKED) }
#endif
#ifdef START_OVERWRITES
		:: atomic { state != ABSENT -> FINAL = !FINISHED; assert(FINAL); state = PENDING; whose = 0; at = NOSTEP }
#else
		:: state != ABSENT
#endif
		:: skip                                 /* it died before the commit */
		fi
	:: else -> break
	od
}
#endif

#if CANCEL
/*
 * INSERT staged, with state 3, ON CONFLICT DO NOTHING; SELECT it FOR UPDATE; SELECT its steps; the function, which
 * takes back what was booked; UPDATE staged SET state = 3, attempt = NULL, token = token + 1 WHERE state IN (1, 6)
 */
#ifdef CANCEL_UNLOCKED
#define UNSENT unsent
#else
#define UNSENT ((pay == NONE || pay == NOTDONE) && !bookCut)
#endif

proctype Cancel() {
	bool unsent;
#ifdef CANCEL_LAST
	byte takenBack;
again:
#endif
	unsent = pay == NONE || pay == NOTDONE;
	atomic {
		if
		:: state == ABSENT ->
			cancelled = true;
#ifndef CANCEL_UNWRITTEN
			token = 1;
			ends(REJECTED)
#endif
#ifdef CANCEL_ENDED
		:: state != ABSENT && UNSENT ->
#elif defined(CANCEL_BEGUN)
		:: state == PENDING || state == PARKED ->
#else
		:: (state == PENDING || state == PARKED) && UNSENT ->
#endif
#ifdef CANCEL_LAST
			takenBack++;
			BOOKED = takenBack == 1;
			assert(BOOKED);
			if
			:: skip
			:: PARTS -> goto again          /* it has ended its transaction itself */
			fi;
#endif
			cancelled = true;
			ends(REJECTED);
			token++;
#ifndef CANCEL_BOOKED
			booked = 0
#endif
		:: else                                 /* too late */
		fi;
		VOID = !cancelled || paid == 0 && booked == 0;
		assert(VOID)
	}
}
#endif

init {
	atomic {
		i = 0;
		do
		:: i < WORKERS -> run Worker(i); i++
		:: else -> break
		od;
		run Provider();
#if START
		run Starter();
#endif
#if OPERATOR
		run Operator();
#endif
#if CANCEL
		run Cancel();
#endif
#if NEWS
		run News();
#endif
	}

	/* Nothing can run any more. */
	atomic {
		timeout ->
		DONE = nDone == WORKERS || START && state == ABSENT || state == PARKED && !OPERATOR;
		assert(DONE);
		LATE = !NEWS || CONTRADICTS || told || !OPEN || !FINISHED;
		assert(LATE)
	}
}
