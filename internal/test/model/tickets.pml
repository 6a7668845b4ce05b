/*
 * Locks with a queue in the database (fair, shared and exclusive, semaphores), one
 * key, at the level of database statements. Steps are as in lease.pml: anything may
 * happen between two of them.
 *
 * Code: internal/dialect/lockstmt/tickets.go, sqllock/fairlock/statements.go, which sends its statements, sqllock/fairlock/ticket.go (news).
 *
 * The rows, and the variables that represent them:
 *
 *   locks(name, NULL, token)    anchor, top: a call that joins draws a token from it
 *   floor(token)                floor
 *   tickets(name, token, attempt, units, capacity, granted_at, expires_at)
 *                               there, tok, (attempt), UNITS, CAPACITY, given, left
 *
 * A ticket belongs to one attempt; its id is its index here. aX and fX are
 * exclusive row locks of the anchor and of the floor, rX of a ticket; fS and rS count
 * the shared ones. A client is one call of one process. Its units determine its kind:
 * all of the capacity is an exclusive lock, or all permits of a semaphore at once; 1
 * is a shared lock or one permit.
 *
 * Time is modelled twice, TIMED=0 and TIMED=1, as in lease.pml. With PATIENT, and any
 * clock, only tickets of clients that are gone expire, and no client gives up: so each
 * client that waits and does not die (DEATHS) must get its turn.
 *
 * A release grants the tickets that have room without it, and sends their processes the news, which may come
 * at any time or never. It may also grant none: not every engine does. A call that waits looks as well.
 *
 * A ticket that has expired never lives again unless the clock steps back. Only for
 * that case do the statements that remove tickets test the expiry twice.
 *
 * Properties; an assertion that fails has the name:
 *
 *   ROOM   Holders that trust their tickets together have no more units than the
 *          capacity: no other holder is beside an exclusive one, and at most N
 *          holders have N permits. It excludes a force-released ticket, and applies
 *          only with TIMED.
 *   TABLE  The granted tickets in the table have no more units either, under any clock.
 *   FAIR   A ticket is granted only when all live tickets that committed before it
 *          have room beside it. So a waiting call is never overtaken by a
 *          call that blocks it: a writer by readers, a call for many permits by calls
 *          for few.
 *   GUARD  A guarded transaction commits only while its ticket is there and no ticket
 *          that conflicts with it is granted. A transaction under an exclusive ticket
 *          has read the writes of every other one.
 *   TOKEN  Tokens strictly increase in the order of commits.
 *   OVER   Neither a renewal nor a grant revives an expired ticket.
 *   KEPT   A release succeeds only when no other ticket got its units before the call,
 *          under any clock and with any lost answers.
 *   DONE   No client waits forever, and no lock remains, though clients died in the
 *          queue.
 *
 * Names in -D that plant a bug, and the property that each must violate:
 *
 *   DRAW_UNLOCKED        TABLE  the anchor is not locked until the commit
 *   ENTER_OLD_SNAPSHOT   TABLE  the queue is read as it was before the anchor's lock
 *   ENTER_COUNTS_GRANTED FAIR   a call that joins counts holders, not waiting calls
 *   ENTER_COUNTS_LIVE    TABLE  a call that joins ignores expired tickets in the table
 *   LOOK_COUNTS_LIVE     TABLE  a waiting call does so too, and does not remove them
 *   LOOK_COUNTS_GRANTED  FAIR   a waiting call counts only holders
 *   CONFIRM_ANY          TABLE  a waiting call does not check the tickets before it
 *   CONFIRM_EXPIRED      OVER   a grant does not test whether the ticket has expired
 *   CLEAR_LOCKED         GUARD  the cleanup removes guarded tickets
 *   CLEAR_NEVER          DONE   no client removes dead tickets
 *   GRANT_KEEPS_OWN      TABLE  a release grants, and its own ticket stays
 *   GRANT_COUNTS_LIVE    TABLE  it ignores expired tickets in the table, so two are granted
 *   GRANT_COUNTS_GRANTED FAIR   it counts only holders, so one that waits is overtaken
 *   GRANT_EXPIRED        OVER   it grants a ticket that has expired
 *   GRANT_DEAD_STAYS     DONE   the cleanup passes over a ticket whose client died before
 *                               it knew of the grant
 *   NEWS_IS_TRUSTED      ROOM   the news of a grant begins a window of its own
 *   LEAVE_BY_NAME        ROOM   a call that leaves removes another's ticket
 *   LEAVE_BEFORE_END     ROOM   the context ends after the release, not before
 *   LEAVE_TRUSTS_DOUBT   KEPT   a repeated release that finds no row succeeds,
 *                               as the run with the lost answer may have done it
 *   GUARD_UNLOCKED       GUARD  the guard reads, and locks nothing
 *   GUARD_WAITING        GUARD  the guard passes for a ticket that waits
 *   ANCHOR_UNFLOORED     TOKEN  a new anchor starts without the floor
 *   ANCHOR_FLOOR_UNLOCKED TOKEN it reads the floor, and locks nothing
 *   ANCHOR_REAP_ANY      TOKEN  the reaper does not test the anchor's token again
 *   TRUST_FROM_REPLY     ROOM   the window is counted from the reply
 *   NO_MARGIN            ROOM   the window is the whole TTL
 *   RENEW_RESURRECTS     OVER   renewal does not test whether the ticket has expired
 *   SILENT_IS_DEAD       ROOM   the ticket of a process that is only silent is removed
 *
 * SESSIONS=1: as in lease.pml, the tickets of a process that has ended are removed before they
 * expire.
 */

/* Bounds. */
#ifndef TIMED
#define TIMED 0
#endif
#ifndef CLIENTS
#define CLIENTS 3
#endif
#ifndef ROUNDS    /* attempts of a client */
#define ROUNDS 1
#endif
#ifndef CAPACITY
#define CAPACITY 2
#endif
#ifndef WRITERS   /* 1: one client takes all units, the others one each */
#define WRITERS 1
#endif
#ifndef LOSERS    /* clients that do not wait for a reply */
#define LOSERS 0
#endif
#ifndef RENEWERS  /* clients that renew, if TIMED */
#define RENEWERS 0
#endif
#ifndef GUARDS    /* 1: clients run guarded transactions */
#define GUARDS 0
#endif
#ifndef REAPER    /* 1: it removes tickets and the anchor */
#define REAPER 0
#endif
#ifndef FORCES    /* 1: one force-release */
#define FORCES 0
#endif
#ifndef DEATHS    /* clients that may die at any place */
#define DEATHS CLIENTS
#endif
#ifndef PATIENT   /* 1: live clients keep their tickets and do not give up */
#define PATIENT 0
#endif
#ifndef SESSIONS  /* 1: a process that ends is seen to end */
#define SESSIONS 0
#endif
#ifndef TTL
#define TTL 2
#endif

#define MARGIN 1
#ifdef NO_MARGIN
#define WINDOW TTL
#else
#define WINDOW (TTL - MARGIN)
#endif

#define ATTEMPTS (CLIENTS * ROUNDS)
#define MAX(a, b) ((a) > (b) -> (a) : (b))
#define OF(a)     ((a) / ROUNDS)
#define UNITS(c)  ((WRITERS && (c) == 1) -> CAPACITY : 1)
#define NOBODY    255

/* Requests that run whether or not the client waits. */
#define NOTHING 0
#define COMMIT  1
#define LEAVES  2
#define RENEW   3

/* The database. */
bool anchor, aX, fX;
byte top, floor, fS;
bool there[ATTEMPTS], given[ATTEMPTS], rX[ATTEMPTS];
byte tok[ATTEMPTS], rS[ATTEMPTS];
bool news[ATTEMPTS];    /* the news that a release has granted it is under way */

/* The clients. */
byte mine[CLIENTS];     /* 1 + the attempt that is in line or has it */
bool holds[CLIENTS];    /* and that it is granted, as the client knows */
byte nDone;
#define PROVES (LOSERS > 0)     /* a release whose answer is lost runs again */

/* The clients' other connections. */
byte wOp[CLIENTS], wAttempt[CLIENTS], wTok[CLIENTS];
bool wFits[CLIENTS];

#if TIMED
byte left[ATTEMPTS];
byte lease[CLIENTS];    /* what the open transaction's ticket will have */
byte window[CLIENTS];
byte renewal[CLIENTS];
#define SEND(c)      window[c] = MAX(window[c], WINDOW)
#define STOP(c)      window[c] = 0
#define BEGIN(c)     lease[c] = TTL
#define END(c)       lease[c] = 0
#define SET(a, c)    left[a] = lease[c]
#define EXPIRE(a)    left[a] = 0
#define LIVE(a)      (left[a] > 0)
#define DEAD(a)      (left[a] == 0)
#else
#define SEND(c)      skip
#define STOP(c)      skip
#define BEGIN(c)     skip
#define END(c)       skip
#define SET(a, c)    skip
#define EXPIRE(a)    skip
#define LIVE(a)      (!PATIENT || mine[OF(a)] == (a) + 1)
#define DEAD(a)      (!PATIENT || mine[OF(a)] != (a) + 1)
#endif

#if SESSIONS
bool gone[ATTEMPTS];    /* the process has ended */
#define GONE(a)  (DEAD(a) || gone[a])
#define ENDS(a)   gone[a] = true
#else
#define GONE(a)  DEAD(a)
#define ENDS(a)   skip
#endif

/* What only the properties look at. */
hidden byte ROOM, TABLE, FAIR, GUARD, TOKEN, OVER, KEPT, DONE;
hidden byte i, n, m;
byte lastTok;           /* the greatest that was ever committed */
bool wasForced[ATTEMPTS];
bool fresh[CLIENTS];    /* the open transaction read, and no other committed since */
bool taken[CLIENTS];    /* what the client holds was given to others */

/* The units of the tickets that a condition on b picks. */
#define SUM(to, condition) \
	to = 0; i = 0; \
	do \
	:: i < ATTEMPTS -> to = ((there[i] && (condition)) -> to + UNITS(OF(i)) : to); i++ \
	:: else -> break \
	od

/* The client c begins to trust, or is granted a ticket: no other ticket may conflict. */
inline room(c) {
#if TIMED
	n = 0;
	i = 0;
	do
	:: i < CLIENTS ->
		n = (((holds[i] && window[i] > 0 || i == c) && !(mine[i] != 0 && wasForced[mine[i] - 1])) -> n + UNITS(i) : n);
		i++
	:: else -> break
	od;
	ROOM = n <= CAPACITY;
	assert(ROOM);
#else
	skip;
#endif
}

/* The ticket a, of client c, is committed as granted. */
inline grants(a, c) {
	SUM(n, given[i] && i != a);
	TABLE = n + UNITS(c) <= CAPACITY;
	assert(TABLE);
	SUM(n, tok[i] < tok[a] && LIVE(i));
	FAIR = n + UNITS(c) <= CAPACITY;
	assert(FAIR);
	given[a] = true;
	SUM(n, given[i]);
	i = 0;
	do
	:: i < CLIENTS -> taken[i] = taken[i] || i != c && holds[i] && !there[mine[i] - 1] && n + UNITS(i) > CAPACITY; i++
	:: else -> break
	od;
	room(c)
}

inline clean(a) {
	there[a] = false;
	given[a] = false;
	tok[a] = 0;
	EXPIRE(a)
}

/*
 * Join, one transaction. Its first statement waits for the anchor and keeps it:
 * UPDATE locks SET token = GREATEST(token + 1, NOW) WHERE name = $k
 * Without an anchor it is made, in a statement of its own:
 *   INSERT INTO locks SELECT $k, token, NULL FROM floor FOR SHARE ON CONFLICT DO NOTHING
 * which waits for the floor, then for the key.
 */
inline draw(c) {
	do
#ifdef DRAW_UNLOCKED
	:: atomic { anchor && !aX -> got = top + 1; top = got; break }
#else
	:: atomic { anchor && !aX -> aX = true; got = top + 1; break }
#endif
#ifdef ANCHOR_UNFLOORED
	:: atomic { !anchor && !aX -> anchor = true; top = 0 }
#else
#ifdef ANCHOR_FLOOR_UNLOCKED
	:: atomic { !anchor && !aX -> got = floor }
#else
	:: atomic { !anchor && !aX && !fX -> fS++; got = floor }
#endif
		atomic {
			!aX ->
			top = (anchor -> top : got);
			anchor = true;
#ifndef ANCHOR_FLOOR_UNLOCKED
			fS--;
#endif
			got = 0
		}
#endif
	od
}

/*
 * INSERT INTO tickets SELECT $k, $token, $attempt, $units, $capacity, granted_at
 *   CASE WHEN before_it + $units <= $capacity THEN NOW END, NOW + ttl
 *   FROM (SELECT SUM(units) AS before_it FROM tickets WHERE name = $k)
 *  WHERE not now or before_it + $units <= $capacity
 * A statement of its own, whose snapshot comes after the anchor's lock.
 */
inline enter(c) {
	BEGIN(c);
#if defined(ENTER_OLD_SNAPSHOT)
	skip;
#elif defined(ENTER_COUNTS_GRANTED)
	SUM(m, given[i]);
#elif defined(ENTER_COUNTS_LIVE)
#if TIMED
	SUM(m, LIVE(i));
#else
	SUM(m, !given[i]);      /* under any clock all that are granted may have expired */
#endif
#else
	SUM(m, true);
#endif
	fits = m + UNITS(c) <= CAPACITY;
	m = 0
}

/* COMMIT of that transaction. */
inline join(a, c, t, fit) {
	TOKEN = t > lastTok;
	assert(TOKEN);
	lastTok = t;
	there[a] = true;
	tok[a] = t;
	SET(a, c);
	END(c);
#ifndef DRAW_UNLOCKED
	top = t;
	aX = false;
#endif
	if
	:: fit -> grants(a, c)
	:: else
	fi
}

/* One of the tickets of which a condition holds. */
#ifdef GRANT_DEAD_STAYS
#define PASSED(b) news[b]
#else
#define PASSED(b) false
#endif
#define ENDED(b) (there[b] && GONE(b) && !PASSED(b))
#define TAKEN(b) (there[b] && FREE(b))
#if ATTEMPTS == 2
#define ANY(is) (is(0) || is(1))
#define ONE(is) if :: is(0) -> b = 0 :: is(1) -> b = 1 fi
#elif ATTEMPTS == 3
#define ANY(is) (is(0) || is(1) || is(2))
#define ONE(is) if :: is(0) -> b = 0 :: is(1) -> b = 1 :: is(2) -> b = 2 fi
#else
#define ANY(is) (is(0) || is(1) || is(2) || is(3))
#define ONE(is) if :: is(0) -> b = 0 :: is(1) -> b = 1 :: is(2) -> b = 2 :: is(3) -> b = 3 fi
#endif

/*
 * leave: DELETE FROM tickets WHERE name = $k AND token = $t AND attempt = $o, which waits for what guards it.
 * release: where the engine can, the same statement grants, as its snapshot shows the queue without its ticket (head):
 *   UPDATE tickets SET granted_at = NOW WHERE token IN ($next) AND granted_at IS NULL AND expires_at > NOW
 * skipping those that are locked, if it has deleted its own. It does not move their expiry. News of each goes
 * out with the commit.
 */
#define FREE(a) (!rX[a] && rS[a] == 0)
#define IN(set, b)  (((set) >> (b)) & 1)
inline head(a, set) {
	d_step {
		set = 0;
		b = 0;
		do
		:: b < ATTEMPTS ->
#if defined(GRANT_COUNTS_LIVE) && TIMED
			SUM(m, tok[i] < tok[b] && i != a && LIVE(i));
#elif defined(GRANT_COUNTS_LIVE)
			SUM(m, tok[i] < tok[b] && i != a && !given[i]);
#elif defined(GRANT_COUNTS_GRANTED)
			SUM(m, given[i] && i != a);
#else
			SUM(m, tok[i] < tok[b] && i != a);
#endif
			set = set | (((there[b] && !given[b] && b != a && m + UNITS(OF(b)) <= CAPACITY) -> 1 : 0) << b);
			b++
		:: else -> break
		od;
		b = NOBODY;
		m = 0
	}
}

inline release(a, set) {
	if
	:: there[a] ->
#ifdef GRANT_KEEPS_OWN
		skip;
#else
		clean(a);
#endif
		b = 0;
		do
		:: b < ATTEMPTS ->
			if
#ifdef GRANT_EXPIRED
			:: IN(set, b) && there[b] && !given[b] && FREE(b) ->
#else
			:: IN(set, b) && there[b] && !given[b] && FREE(b) && LIVE(b) ->
#endif
#if TIMED
				OVER = left[b] > 0;
				assert(OVER);
#endif
				grants(b, OF(b));
				news[b] = true
			:: else
			fi;
			b++
		:: else -> break
		od;
		b = NOBODY
	:: else
	fi;
	set = 0
}

inline leave(a) {
#ifdef LEAVE_BY_NAME
	if
	:: ANY(TAKEN) -> ONE(TAKEN); clean(b); b = NOBODY
	:: else
	fi
#else
	if
	:: there[a] -> clean(a)
	:: else
	fi
#endif
}

/*
 * What the release says. Where it ran again and found nothing, it asks whether a
 * token was drawn since: SELECT token FROM locks WHERE name = $k
 */
#ifdef LEAVE_TRUSTS_DOUBT
#define SINCE(t) false
#else
#define SINCE(t) (!anchor || top != (t))
#endif
inline says(c, ok) {
	KEPT = !taken[c] || !(ok);
	assert(KEPT)
}

/*
 * SELECT token FROM tickets WHERE name = $k AND expires_at <= NOW, without locks, then
 * DELETE FROM tickets WHERE name = $k AND token IN ($tokens) AND expires_at <= NOW,
 * skipping those that are locked. One token at a time here, which has every state
 * in between that several at once have. The ticket of a process that has ended is deleted
 * by its attempt, without the expiry.
 */
inline clear(b) {
	if
#ifdef CLEAR_LOCKED
	:: there[b] && DEAD(b) -> clean(b)
#else
	:: there[b] && GONE(b) && FREE(b) -> clean(b)
#endif
	:: else
	fi;
	b = NOBODY
}

/* What SELECT finds of those that stand before a ticket: all of them count, dead or not. */
#if defined(LOOK_COUNTS_LIVE) && TIMED
#define COUNTS(b) LIVE(b)
#elif defined(LOOK_COUNTS_LIVE)
#define COUNTS(b) (!given[b])
#elif defined(LOOK_COUNTS_GRANTED)
#define COUNTS(b) given[b]
#elif defined(CONFIRM_ANY)
#define COUNTS(b) false
#else
#define COUNTS(b) true
#endif
#define AHEAD(b, a) (there[b] && there[a] && tok[b] < tok[a] && COUNTS(b) -> UNITS(OF(b)) : 0)
#if ATTEMPTS == 2
#define BEFORE(a) (AHEAD(0, a) + AHEAD(1, a))
#elif ATTEMPTS == 3
#define BEFORE(a) (AHEAD(0, a) + AHEAD(1, a) + AHEAD(2, a))
#else
#define BEFORE(a) (AHEAD(0, a) + AHEAD(1, a) + AHEAD(2, a) + AHEAD(3, a))
#endif

#if GUARDS
/* SELECT granted_at IS NOT NULL FROM tickets WHERE name = $k AND token = $t FOR SHARE */
inline guard(a, c) {
	atomic {
		!rX[a] ->
#ifdef GUARD_WAITING
		passed = there[a];
#else
		passed = there[a] && given[a];
#endif
#ifndef GUARD_UNLOCKED
		rS[a] = (passed -> rS[a] + 1 : rS[a]);
#endif
		fresh[c] = passed
	}
}

inline unguard(a, c) {
#ifndef GUARD_UNLOCKED
	rS[a]--;
#endif
	fresh[c] = false;
	passed = false
}

inline commit(a, c) {
	d_step {
		SUM(n, given[i] && i != a);
		GUARD = there[a] && n + UNITS(c) <= CAPACITY && (fresh[c] || UNITS(c) < CAPACITY);
		assert(GUARD);
		i = 0;
		do
		:: i < CLIENTS -> fresh[i] = false; i++
		:: else -> break
		od;
		unguard(a, c)
	}
}

/* The caller's transaction, or none. */
inline guarded(a, c) {
	if
	:: true
	:: guard(a, c);
		if
		:: passed -> commit(a, c)
		:: d_step { passed -> unguard(a, c) }
		:: !passed
		fi
	fi
}
#endif

/* The client stops forever: its open transaction is rolled back. */
#define DIES(c) (c < DEATHS)

proctype Client(byte c) {
	byte round, a, got, mark, next, b = NOBODY;
	bool fits, passed;

	do
	:: d_step {
		round < ROUNDS ->
		a = c * ROUNDS + round;
		round++;
		mine[c] = a + 1 }
		/* The stopwatch starts before the request is sent. */
		SEND(c);
#ifdef ENTER_OLD_SNAPSHOT
		d_step { SUM(m, true); b = m; m = 0 }
#endif
		draw(c);
		atomic {
#ifdef ENTER_OLD_SNAPSHOT
			m = b;
			b = NOBODY;
#endif
			enter(c)
		}
		if
		:: atomic { join(a, c, got, fits); mark = (PROVES && c < LOSERS -> got : 0); got = 0 }
		/* Now or not at all; or the engine rolls back; or the client dies. */
		:: d_step { aX = false; END(c); got = 0; fits = false } goto out
#if LOSERS
		/* The commit runs when it does; the ticket is given up, and taken out of line. */
		:: d_step {
			c < LOSERS && wOp[c] == NOTHING ->
			wOp[c] = COMMIT;
			wAttempt[c] = a;
			wTok[c] = got;
			wFits[c] = fits;
			got = 0;
			fits = false }
			goto out
#endif
		fi;
		if
		:: fits -> goto granted
		:: else
		fi;

		/* In line. Each look is a plain read, and what follows is on what it said. */
		do
		:: atomic {
			/* Gone, or it has expired: it asks anew, or gives up. */
			!there[a] || DEAD(a) -> fits = false }
			goto away
		:: atomic { DIES(c) -> STOP(c); ENDS(a) } goto out
		:: !PATIENT -> goto away           /* the caller's context ends */
		:: atomic {
			/* By a grant whose reply was lost. */
			there[a] && given[a] && LIVE(a) ->
#if TIMED
			window[c] = (left[a] - MARGIN > window[c] -> left[a] - MARGIN : window[c])
#endif
			}
			goto granted
		/* By a release. Its own window goes on. The row is not read. */
		:: atomic {
			news[a] ->
			news[a] = false;
#ifdef NEWS_IS_TRUSTED
			SEND(c)
#endif
			}
			goto granted
		:: atomic { there[a] && !given[a] && BEFORE(a) + UNITS(c) <= CAPACITY -> got = 1 }
#if TIMED
			d_step { renewal[c] = (c < RENEWERS -> renewal[c] : WINDOW) };
#endif
			/*
			 * UPDATE tickets SET granted_at = NOW, expires_at = GREATEST(expires_at, NOW + ttl)
			 *  WHERE name = $k AND token = $t AND attempt = $o AND expires_at > NOW
			 */
			atomic {
				FREE(a) ->
				got = 0;
				if
#ifdef CONFIRM_EXPIRED
				:: there[a] ->
#else
				:: there[a] && LIVE(a) ->
#endif
#if TIMED
					OVER = left[a] > 0;
					assert(OVER);
					left[a] = TTL;
#endif
					grants(a, c);
					fits = true
				:: !there[a] || DEAD(a)
				fi
			}
			if
			:: fits ->
#if TIMED
				d_step { window[c] = (c < RENEWERS -> window[c] : MAX(window[c], renewal[c])); renewal[c] = (c < RENEWERS -> renewal[c] : 0) };
#endif
				goto granted
			/* The reply is lost, or there was nothing to grant. */
			:: d_step {
				fits = false;
#if TIMED
				renewal[c] = (c < RENEWERS -> renewal[c] : 0)
#endif
			}
			fi
#ifndef CLEAR_NEVER
		/* Dead tickets are in the way. */
		:: atomic { ANY(ENDED) && there[a] && BEFORE(a) + UNITS(c) > CAPACITY ->
			ONE(ENDED) }
			atomic { clear(b) }
#endif
#if GUARDS
		:: GUARDS == 2 -> guarded(a, c)
#endif
		od;

granted:
		/* The reply is read. If no time is left the client does not return the lease. */
		atomic {
#ifdef TRUST_FROM_REPLY
			SEND(c);
#endif
#if TIMED
			if
			:: window[c] > 0 -> holds[c] = true; room(c)
			:: else
			fi;
#else
			holds[c] = true;
#endif
			fits = false
		}
#if GUARDS
		guarded(a, c);
#endif
away:
#ifdef LEAVE_BEFORE_END
		skip;
#else
		atomic { STOP(c); holds[c] = false };
#endif
		/* It leaves, or dies, or the request is under way. */
		if
		:: atomic { FREE(a) -> says(c, there[a]); leave(a) }
		:: head(a, next); atomic { FREE(a) -> says(c, there[a]); release(a, next) }
		:: atomic { DIES(c) -> ENDS(a) }
#if LOSERS
		:: d_step { c < LOSERS && wOp[c] == NOTHING -> wOp[c] = LEAVES; wAttempt[c] = a }
			/* The answer is lost. It gives up, or leaves again and says what it found. */
			if
			:: true
			:: atomic { FREE(a) -> fits = there[a]; leave(a) }
				atomic { says(c, fits || !SINCE(mark)); fits = false }
			fi
#endif
		fi;
out:
		atomic {
			STOP(c);
			holds[c] = false;
			taken[c] = false;
			mine[c] = 0;
#ifndef GRANT_DEAD_STAYS
			news[a] = false;
#endif
			a = 0;
			got = 0;
			mark = 0;
			b = NOBODY
		}
	:: round == ROUNDS -> break
	od;
	atomic { round = 0; nDone++ }
}

#ifdef SILENT_IS_DEAD
proctype Silence() {
end:
	d_step { mine[0] != 0 && holds[0] -> gone[mine[0] - 1] = true }
}
#endif

/* The client's other connection. */
proctype Session(byte c) {
	byte next, b = NOBODY;

end:
	do
	:: false
#if LOSERS
	/* A commit in doubt; then it is taken out of line by its client, or that comes to nothing. */
	:: atomic { wOp[c] == COMMIT -> join(wAttempt[c], c, wTok[c], wFits[c]); wOp[c] = LEAVES; wTok[c] = 0; wFits[c] = false }
	:: d_step { wOp[c] == COMMIT -> aX = false; END(c); wOp[c] = NOTHING; wAttempt[c] = 0; wTok[c] = 0; wFits[c] = false }
	:: atomic { wOp[c] == LEAVES && FREE(wAttempt[c]) -> head(wAttempt[c], next); release(wAttempt[c], next); wOp[c] = NOTHING; wAttempt[c] = 0 }
	:: d_step { wOp[c] == LEAVES -> wOp[c] = NOTHING; wAttempt[c] = 0 }
#endif
#if TIMED
	/*
	 * UPDATE tickets SET expires_at = GREATEST(expires_at, NOW + ttl)
	 *  WHERE name IN ($names) AND attempt IN ($attempts) AND expires_at > NOW, skipping it if locked
	 */
	:: d_step {
		c < RENEWERS && mine[c] != 0 && there[mine[c] - 1] && window[c] > 0 && wOp[c] == NOTHING ->
		renewal[c] = WINDOW;
		wOp[c] = RENEW;
		wAttempt[c] = mine[c] - 1 }
	:: atomic {
		wOp[c] == RENEW ->
		wOp[c] = NOTHING;
		if
#ifdef RENEW_RESURRECTS
		:: there[wAttempt[c]] && FREE(wAttempt[c]) ->
#else
		:: there[wAttempt[c]] && FREE(wAttempt[c]) && LIVE(wAttempt[c]) ->
#endif
			OVER = left[wAttempt[c]] > 0;
			assert(OVER);
			left[wAttempt[c]] = TTL;
			wOp[c] = RENEW + 1
		:: else -> renewal[c] = 0
		fi;
		wAttempt[c] = (wOp[c] == NOTHING -> 0 : wAttempt[c]) }
	/* The reply is read. */
	:: d_step {
		wOp[c] == RENEW + 1 ->
		window[c] = ((mine[c] == wAttempt[c] + 1 && window[c] > 0) -> MAX(window[c], renewal[c]) : window[c]);
		renewal[c] = 0;
		wOp[c] = NOTHING;
		wAttempt[c] = 0 }
#endif
	od
}

#if TIMED
#define DOWN(x) x = (x > 0 -> x - 1 : 0)

inline stopwatch() {
	i = 0;
	do
	:: i < CLIENTS -> DOWN(window[i]); DOWN(renewal[i]); i++
	:: else -> break
	od;
	since = (since < TTL -> since + 1 : TTL)
}

inline database() {
	i = 0;
	do
	:: i < CLIENTS -> DOWN(lease[i]); i++
	:: else -> break
	od;
	i = 0;
	do
	:: i < ATTEMPTS -> DOWN(left[i]); i++
	:: else -> break
	od;
	i = 0
}

#define AT(a) (window[a] + renewal[a] + lease[a])
#if CLIENTS == 2
#define RUNS_OUT (AT(0) + AT(1) + OF_ALL)
#else
#define RUNS_OUT (AT(0) + AT(1) + AT(2) + OF_ALL)
#endif
#if ATTEMPTS == 2
#define OF_ALL (left[0] + left[1])
#elif ATTEMPTS == 3
#define OF_ALL (left[0] + left[1] + left[2])
#else
#define OF_ALL (left[0] + left[1] + left[2] + left[3])
#endif

/* The database's clock gains at most a tick in a TTL; it may lag. */
proctype Clock() {
	byte since = TTL;

end:
	do
	:: d_step { RUNS_OUT > 0 || since < TTL -> stopwatch(); database() }
	:: d_step { RUNS_OUT > 0 -> stopwatch() }
	:: d_step { RUNS_OUT > 0 && since == TTL -> since = 0; database() }
	od
}
#endif

/*
 * Tickets as in clear; the anchor as a lease's row: it raises the floor first and
 * deletes in the same transaction, not waiting, after testing the token again.
 */
proctype Reaper() {
	byte b = NOBODY, found, raised;
	bool deleted;

end:
	do
	:: atomic {
		ANY(ENDED) ->
		ONE(ENDED) }
		atomic { clear(b) }
	:: atomic { anchor -> found = top }
		atomic {
			if
			:: fX || fS != 0
			:: else -> fX = true; raised = MAX(floor, found)
			fi
		}
		atomic {
			if
#ifdef ANCHOR_REAP_ANY
			:: fX && !aX && anchor -> aX = true; deleted = true
#else
			:: fX && !aX && anchor && top <= raised -> aX = true; deleted = true
#endif
			:: true
			fi
		}
		d_step {
			if
			:: deleted -> anchor = false; top = 0; aX = false
			:: else
			fi;
			floor = (fX -> raised : floor);
			fX = false;
			deleted = false;
			found = 0;
			raised = 0
		}
	:: break
	od
}

/* DELETE FROM tickets WHERE name = $k AND token = $t, held or not; then what is recorded of it. */
proctype Operator() {
	byte b = NOBODY;
end:
	atomic { ANY(TAKEN) -> ONE(TAKEN); rX[b] = true }
	d_step { rX[b] = false; wasForced[b] = true; clean(b); b = NOBODY }
}

init {
	atomic {
		i = 0;
		do
		:: i < CLIENTS -> run Client(i); i++
		:: else -> break
		od;
		i = 0;
		do
		:: i < LOSERS || i < RENEWERS * TIMED -> run Session(i); i++
		:: else -> break
		od;
#if TIMED
		run Clock();
#endif
#if REAPER
		run Reaper();
#endif
#if FORCES
		run Operator();
#endif
#ifdef SILENT_IS_DEAD
		run Silence();
#endif
	}

	/* Nothing can run any more: all have come to their end, or wait for each other. */
	atomic {
		timeout ->
		DONE = nDone == CLIENTS && !aX && !fX && fS == 0;
		i = 0;
		do
		:: i < CLIENTS -> DONE = DONE && (wOp[i] == NOTHING); i++
		:: else -> break
		od;
		i = 0;
		do
		:: i < ATTEMPTS -> DONE = DONE && FREE(i); i++
		:: else -> break
		od;
		assert(DONE)
	}
}
