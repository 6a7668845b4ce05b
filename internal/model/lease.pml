/*
 * The lease protocol, one key, at the level of database statements.
 *
 * A step of the model (an atomic block) is what a database does at once: one
 * statement, or the part of a statement or transaction between two row locks.
 * Anything may happen between two steps, so every client may stop for any time
 * at any place: before a request leaves, on the server before it runs, before
 * the reply is read.
 *
 * The rows, and what stands for them:
 *
 *   locks(key, owner, token, expires_at)   present, owner, tok, exp
 *   floors(token)                          floor
 *   the caller's own table                 biz
 *
 * owner is the id of one attempt, not of a client; 0 is NULL. Row locks: lX and
 * fX are exclusive, lS (a bit for each client) and fS (a count) are shared, and
 * they end with their transaction. What a transaction wrote is seen by others
 * when it commits.
 *
 * Two clocks: db is the database's, which decides; mono is the stopwatch that
 * all clients read. They tick together, except that db may gain on mono once by
 * MARGIN (the clock behaves), and with STEP may once be set back (it does not).
 * NOW is the time at which a statement began, and stands still while it waits.
 *
 * What is claimed:
 *
 *   G1  When a lease is granted, no holder of an earlier term still trusts its
 *       own: its context has ended. Not claimed once the clock was set back, and
 *       not for a term that was force-released.
 *   G2  A guarded transaction that commits does so while no later grant is
 *       committed, and has read what every earlier guarded one wrote.
 *   G3  Tokens strictly increase.
 *   OVER   A term that expired or was released is not made live by a renewal.
 *   FREE   A lease that was released, reaped or has expired can be acquired.
 *   No deadlock: every process comes to its end (Spin reports it if not).
 *
 * What is left out: more than one key (the order of several keys is not looked
 * at), failover and lost data, several database nodes with clocks of their own,
 * waiting queues and fairness, and isolation above READ COMMITTED for Holdfast's
 * own statements. The caller's transaction reads its table once and writes it
 * once, from what it read. A client that dies is one that stops for ever, and
 * its session's transaction is rolled back. Time is a few ticks, so a rate of
 * the clock is one extra tick in the whole run.
 *
 * Names in -D that plant a bug, each of which must be found, are at the foot of
 * this comment; the rest are bounds.
 *
 *   RELEASE_BY_NAME      release does not ask whose term the row is
 *   DELETE_ON_RELEASE    release deletes the row
 *   FLOOR_UNLOCKED       the insert reads the floor without locking it
 *   GUARD_AFTER_WRITE    the transaction reads and writes first, guards last
 *   GUARD_UNLOCKED       the guard looks, and locks nothing
 *   RENEW_RESURRECTS     renewal does not ask whether the term has expired
 *   RENEW_INSERTS        renewal is an upsert
 *   REAP_WITHOUT_RETEST  the reaper deletes by key what it had found expired
 *   REAP_ANY_TOKEN       it tests the expiry again, but not the token
 *   REAP_FLOOR_LAST      it deletes first and raises the floor afterwards
 *   TRUST_FROM_REPLY     the trust window is counted from the reply
 *   NO_MARGIN            the trust window is the whole TTL
 *   RESEND_SHORTENS      an attempt sent again sets the expiry, if it be earlier
 *   FREE_BY_EXPIRY       a released row is free when its expiry has passed,
 *                        not because it has no owner
 */

#ifndef CLIENTS
#define CLIENTS 2
#endif
#ifndef ROUNDS    /* attempts of a client to get the lease */
#define ROUNDS 2
#endif
#ifndef TICKS     /* of the stopwatch, in the whole run */
#define TICKS 4
#endif
#ifndef TTL
#define TTL 2
#endif
#ifndef MARGIN
#define MARGIN 1
#endif
#ifndef RENEWALS  /* of a client, in the whole run */
#define RENEWALS 1
#endif
#ifndef RENEWERS  /* clients that renew */
#define RENEWERS CLIENTS
#endif
#ifndef REAPS     /* passes of the reaper */
#define REAPS 1
#endif
#ifndef FORCES    /* force-releases */
#define FORCES 0
#endif
#ifndef STEP      /* how far db may be set back, once; 0 is never */
#define STEP 0
#endif
#ifndef LOSERS    /* clients whose replies may be lost and whose requests may outlive their wait */
#define LOSERS CLIENTS
#endif
#ifndef GUARDS    /* 1: clients run guarded transactions */
#define GUARDS 1
#endif

#ifdef NO_MARGIN
#define WINDOW TTL
#else
#define WINDOW (TTL - MARGIN)
#endif

#define MAX(a, b) ((a) > (b) -> (a) : (b))

/* Outcomes of acquire, and the ways that it takes. */
#define LOST    1
#define WON     2
#define UNKNOWN 3
#define TAKE    4
#define INSERT  5

/* What a session still has to run for a client that does not wait for it. */
#define NOTHING 0
#define ACQUIRE 1
#define RENEW   2
#define RELEASE 3

/* The database. */
byte db = 2;
bool present;
byte owner, tok, exp;
byte floor;
byte biz;
bool lX, fX;
byte lS, fS;
byte bX;                /* who has the row of the caller's table locked, +1 */

/* The clients. held is "the lease's context has not ended". */
byte mono = 0;
bool held[CLIENTS];
byte trust[CLIENTS];    /* mono at which the context ends */
byte attempt[CLIENTS];
byte term[CLIENTS];     /* the token that the client was told */
byte renewals[CLIENTS];
bool done[CLIENTS];
byte nDone;

/* One request of each client that runs whether or not the client waits. */
byte wOp[CLIENTS], wAttempt[CLIENTS], wTerm[CLIENTS], wSent[CLIENTS];

/* What only the properties look at. */
byte lastGrant;         /* the greatest token that was ever given out */
byte forced;            /* the token whose term was force-released */
bool over;              /* the row's term has expired or was released */
bool stepped;           /* db was set back */

/* The expiry of a released row: NOW. Without a step back any time that has
 * passed is the same, and one value for all makes fewer states. */
#if STEP
#define ENDED db
#else
#define ENDED 0
#endif

#ifdef FREE_BY_EXPIRY
#define TAKEN(now) (exp > (now))
#else
#define TAKEN(now) (owner != 0 && exp > (now))
#endif

/* A new term, with the token in got, is committed. */
inline grant(a) {
	d_step {
		i = 0;
		do
		:: i < CLIENTS ->
			assert(stepped || !held[i] || term[i] == forced);  /* G1 */
			i++
		:: else -> break
		od;
		i = 0;
		assert(got > lastGrant);                               /* G3 */
		lastGrant = got;
		present = true;
		owner = a;
		tok = got;
		exp = now + TTL;
		over = false;
		res = WON
	}
}

/*
 * UPDATE locks SET owner = $a, token = GREATEST(token + 1, NOW), expires_at = NOW + ttl
 *  WHERE key = $k AND (owner IS NULL OR expires_at <= NOW)
 * An attempt that is sent again finds its own live term and gets it once more:
 *   SET expires_at = GREATEST(expires_at, NOW + ttl) WHERE key = $k AND owner = $a AND expires_at > NOW
 * GREATEST because the first request may be running still, with an older NOW: it
 * must not take back what the second was told. A NOW that stood still may so give
 * a term back to its attempt after it expired; nobody else had it in between.
 */
inline takeover(a) {
	if
	:: !present -> res = LOST
	:: present && TAKEN(now) && owner == a ->
#ifdef RESEND_SHORTENS
		exp = now + TTL;
#else
		exp = MAX(exp, now + TTL);
#endif
		over = false;
		got = tok;
		res = WON
	:: present && TAKEN(now) && owner != a ->
		assert(owner != 0);                                        /* FREE */
		res = LOST
	:: present && !TAKEN(now) -> got = MAX(tok + 1, now); grant(a)
	fi
}

/*
 * Acquire, one statement. It looks before it writes; what it then does with the
 * row is tested again under the row's lock.
 *
 * A row that is there and free is taken over, skipping it if it is locked (a
 * guarded transaction or the reaper has it).
 *
 * A row that is not there:
 *   WITH f AS (SELECT token FROM floors ... FOR SHARE)
 *   INSERT INTO locks SELECT $k, $a, GREATEST(f.token + 1, NOW), NOW + ttl FROM f
 *   ON CONFLICT: as takeover
 * waits for the floor, then for the key, and holds the floor meanwhile.
 */
inline look(a) {
	if
	:: present && TAKEN(db) && owner != a ->
		assert(owner != 0);                                        /* FREE */
		res = LOST
	:: present && !(TAKEN(db) && owner != a) -> now = db; res = TAKE
	:: !present -> now = db; res = INSERT
	fi
}

inline write(a) {
	if
	:: atomic { res == TAKE ->
		if
		:: lX || lS != 0 -> res = LOST
		:: else -> takeover(a)
		fi;
		now = 0 }
#ifdef FLOOR_UNLOCKED
	:: atomic { res == INSERT -> f = floor }
#else
	:: atomic { res == INSERT && !fX -> fS++; f = floor }
#endif
		atomic {
			!lX && lS == 0 ->
			if
			:: present -> takeover(a)
			:: else -> got = MAX(f + 1, now); grant(a)
			fi;
#ifndef FLOOR_UNLOCKED
			fS--;
#endif
			f = 0;
			now = 0
		}
	:: res == LOST
	fi
}

/*
 * UPDATE locks SET owner = NULL, expires_at = NOW WHERE key = $k AND owner = $a AND token = $t
 */
inline release(a, t) {
	!lX && lS == 0 ->
	if
#ifdef RELEASE_BY_NAME
	:: present ->
#else
	:: present && owner == a && tok == t ->
#endif
		over = true;
		owner = 0;
		exp = ENDED;
#ifdef DELETE_ON_RELEASE
		present = false; tok = 0; exp = 0;
#endif
	:: else
	fi
}

/*
 * UPDATE locks SET expires_at = GREATEST(expires_at, NOW + ttl)
 *  WHERE key = $k AND owner = $a AND token = $t AND expires_at > NOW,
 * skipping it if locked; so it does not wait, and its NOW is fresh.
 */
inline renew(a, t) {
	if
	:: lX || lS != 0 -> res = LOST
#ifdef RENEW_INSERTS
	:: !lX && lS == 0 && !present ->
		present = true; owner = a; tok = t; exp = db + TTL; res = WON
#endif
#ifdef RENEW_RESURRECTS
	:: !lX && lS == 0 && present && tok == t ->
#else
	:: !lX && lS == 0 && present && owner == a && tok == t && exp > db ->
#endif
		assert(stepped || !over);                                  /* OVER */
		exp = MAX(exp, db + TTL);
		res = WON
	:: else -> res = LOST
	fi
}

/* The reply is read: the context moves, if it has not ended meanwhile. */
inline prolong(sent) {
	if
	:: res == WON && held[c] && term[c] == wTerm[c] ->
#ifdef TRUST_FROM_REPLY
		trust[c] = MAX(trust[c], mono + WINDOW)
#else
		trust[c] = MAX(trust[c], sent + WINDOW)
#endif
	:: else
	fi
}

/* The caller's transaction reads its table, later writes it from what it read. */
inline readAndWrite() {
	atomic { r = biz };
	atomic { bX == 0 -> bX = c + 1 }
}

/*
 * SELECT 1 FROM locks WHERE key = $k AND owner = $a AND token = $t FOR SHARE
 * The expiry is not asked: a guard that also asks it passes less often, so what
 * holds for this one holds for that one.
 */
inline guard() {
	atomic {
		!lX ->
		passed = present && owner == attempt[c] && tok == term[c];
#ifndef GUARD_UNLOCKED
		lS = (passed -> lS | (1 << c) : lS)
#endif
	}
}

inline commit() {
	d_step {
		assert(lastGrant == term[c]);                              /* G2, no later grant */
		assert(r == biz);                                          /* G2, nothing read stale */
		biz = r + 1;
		bX = 0;
		lS = lS & (255 - (1 << c));
		r = 0;
		passed = false
	}
}

inline rollback() {
	d_step {
		bX = (bX == c + 1 -> 0 : bX);
		lS = lS & (255 - (1 << c));
		r = 0;
		passed = false
	}
}

proctype Client(byte c) {
	byte round, now, f, res, got, sent, i, r;
	bool passed, early;

	do
	:: round < ROUNDS ->
#ifdef GUARD_AFTER_WRITE
		/* The caller's transaction is open before it has the lease. With the
		 * guard as its first statement that is no matter. */
		if
		:: skip
		:: early = true; readAndWrite()
		fi;
#endif
		/* A new attempt has a new owner id. The stopwatch starts before it is sent. */
		d_step {
			attempt[c] = 1 + c * ROUNDS + round;
			round++;
			sent = mono
		}
		if
		:: atomic { look(attempt[c]) } write(attempt[c])
#if LOSERS
		/* It stops waiting, and the request runs whenever it does. */
		:: d_step { c < LOSERS && wOp[c] == NOTHING -> wOp[c] = ACQUIRE; wAttempt[c] = attempt[c]; res = UNKNOWN }
#endif
		fi;
#if LOSERS
		if
		:: res == LOST || res == WON                /* the reply arrives */
		:: d_step { c < LOSERS -> got = 0; res = LOST } /* it does not, and the client gives up, */
		:: atomic { c < LOSERS -> got = 0; sent = mono; look(attempt[c]) }
			write(attempt[c])                       /* or sends the attempt again, */
		:: d_step { c < LOSERS -> got = 0; res = LOST;  /* or looks for it */
			if
			:: present && owner == attempt[c] && exp > db -> res = WON; got = tok
			:: else
			fi }
		fi;
#endif
		if
		:: d_step { res == WON ->
				/* The reply is read. A grant with no time left is no grant. */
				term[c] = got;
				got = 0;
				res = 0;
#ifdef TRUST_FROM_REPLY
				trust[c] = mono + WINDOW;
#else
				trust[c] = sent + WINDOW;
#endif
				held[c] = mono < trust[c];
				trust[c] = (held[c] -> trust[c] : 0);
				sent = 0
			}
			/* The client works, and may be past its window without having noticed. */
#if GUARDS
			if
			:: !early
			:: true ->
#ifdef GUARD_AFTER_WRITE
				if
				:: early
				:: else -> readAndWrite()
				fi;
				guard();
#else
				guard();
				if
				:: passed -> readAndWrite()
				:: else
				fi;
#endif
				if
				:: passed -> commit()
				:: rollback()
				fi;
				early = false
			fi;
#endif
			/* The context ends first; then the release is sent, or is not (the client
			 * dies), or runs whenever it does. */
			d_step { held[c] = false; trust[c] = 0 }
			if
			:: atomic { release(attempt[c], term[c]); term[c] = 0; attempt[c] = 0 }
			:: d_step { true -> term[c] = 0; attempt[c] = 0 }
#if LOSERS
			:: d_step {
				c < LOSERS && wOp[c] == NOTHING ->
				wOp[c] = RELEASE;
				wAttempt[c] = attempt[c];
				wTerm[c] = term[c];
				term[c] = 0;
				attempt[c] = 0 }
#endif
			fi
		:: d_step { res == LOST -> res = 0; sent = 0; attempt[c] = 0 }
		fi;
#ifdef GUARD_AFTER_WRITE
		if
		:: early -> rollback(); early = false
		:: else
		fi
#endif
	:: else -> break
	od;
	atomic { round = 0; done[c] = true; nDone++ }
}

/* The client's other connection: the renewal worker, and requests given up on. */
proctype Session(byte c) {
	byte now, f, res, got, i;

	do
	:: d_step {
		held[c] && c < RENEWERS && renewals[c] < RENEWALS && wOp[c] == NOTHING ->
		renewals[c]++;
		wOp[c] = RENEW;
		wAttempt[c] = attempt[c];
		wTerm[c] = term[c];
		wSent[c] = mono }
	:: atomic { wOp[c] == ACQUIRE -> look(wAttempt[c]) }
		write(wAttempt[c]);
		atomic { res = 0; got = 0; wOp[c] = NOTHING; wAttempt[c] = 0 }
	:: atomic { wOp[c] == RENEW -> renew(wAttempt[c], wTerm[c]) }
		d_step {
			prolong(wSent[c]);
			res = 0; wOp[c] = NOTHING; wAttempt[c] = 0; wTerm[c] = 0; wSent[c] = 0
		}
	:: atomic { wOp[c] == RELEASE -> release(wAttempt[c], wTerm[c]); wOp[c] = NOTHING; wAttempt[c] = 0; wTerm[c] = 0 }
	:: atomic { done[c] && wOp[c] == NOTHING -> break }
	od
}

/* A context ends when the stopwatch says so: the process runs. */
inline expire() {
	i = 0;
	do
	:: i < CLIENTS ->
		if
		:: held[i] && mono >= trust[i] -> held[i] = false; trust[i] = 0
		:: else
		fi;
		i++
	:: else -> break
	od;
	i = 0;
	if
	:: present && owner != 0 && exp <= db -> over = true
	:: else
	fi
}

proctype Clock() {
	byte i, gained;

	do
	:: d_step { mono < TICKS -> mono++; db++; expire() }
	:: d_step { gained < MARGIN -> gained++; db++; expire() }
#if STEP
	:: d_step { !stepped -> stepped = true; db = db - STEP }
#endif
	:: nDone == CLIENTS -> break
	od
}

/*
 * One pass: SELECT key, token ... WHERE expires_at <= NOW, without locks. Then
 * BEGIN; UPDATE floors SET token = GREATEST(token, $found), not waiting for it;
 * DELETE FROM locks WHERE key = $k AND expires_at <= NOW AND token <= $floor,
 * skipping it if locked; COMMIT. Without grace: the worst case.
 *
 * The token is tested because a takeover does not touch the floor: between the
 * two statements the row may have become a later term, and that released.
 */
proctype Reaper() {
	byte passes, found, raised;
	bool deleted;

	do
	:: atomic { passes < REAPS && present && exp <= db -> found = tok; passes++ }
#ifdef REAP_FLOOR_LAST
		atomic {
			if
			:: !lX && lS == 0 && present && exp <= db -> lX = true; deleted = true
			:: else
			fi
		}
		if
		:: deleted -> atomic { !fX && fS == 0 -> fX = true; raised = MAX(floor, tok) }
		:: else
		fi;
#else
		atomic {
			if
			:: fX || fS != 0
			:: else -> fX = true; raised = MAX(floor, found)
			fi
		}
		atomic {
			if
#if defined(REAP_WITHOUT_RETEST)
			:: fX && !lX && lS == 0 && present ->
#elif defined(REAP_ANY_TOKEN)
			:: fX && !lX && lS == 0 && present && exp <= db ->
#else
			:: fX && !lX && lS == 0 && present && exp <= db && tok <= raised ->
#endif
				lX = true; deleted = true
			:: else
			fi
		}
#endif
		d_step {
			if
			:: deleted -> present = false; owner = 0; tok = 0; exp = 0; over = false; lX = false; floor = raised
			:: fX && !deleted -> floor = raised
			:: else
			fi;
			fX = false;
			deleted = false;
			found = 0;
			raised = 0
		}
	:: nDone == CLIENTS -> break
	od
}

/*
 * UPDATE locks SET owner = NULL, token = GREATEST(token + 1, NOW), expires_at = NOW WHERE key = $k
 */
proctype Operator() {
	byte forces;

	do
	:: d_step {
		forces < FORCES && present && owner != 0 && !lX && lS == 0 ->
		forces++;
		forced = tok;
		over = true;
		tok = MAX(tok + 1, db);
		lastGrant = tok;
		owner = 0;
		exp = ENDED }
	:: nDone == CLIENTS -> break
	od
}

init {
	byte now, f, res, got, i;

	atomic {
		i = 0;
		do
		:: i < CLIENTS -> run Client(i); run Session(i); i++
		:: else -> break
		od;
		i = 0;
		run Clock();
#if REAPS
		run Reaper();
#endif
#if FORCES
		run Operator();
#endif
	}

	/* When all is quiet no lock is left, and the lease can be had: at once if
	 * nobody has it, else when it has expired. */
	_nr_pr == 1;
	assert(!lX && !fX && lS == 0 && fS == 0 && bX == 0);
	atomic { db = (present && owner != 0 -> MAX(db, exp) : db) }
	atomic { look(255) }
	write(255);
	assert(res == WON)                                             /* FREE */
}
