/*
 * The lease protocol, one key, at the level of database statements.
 *
 * Code: internal/dialect/lockstmt/leases.go, and sqllock/statements.go, which sends its statements.
 *
 * A step of the model (an atomic block) is an atomic action of the database: one
 * statement, or the part of a statement or transaction between two row locks.
 * Anything may happen between two steps, so every client may stop for any time
 * at any place: before a request leaves, on the server before it runs, before
 * the reply is read.
 *
 * The rows, and the variables that represent them:
 *
 *   locks(name, attempt, token, expires_at)  present, whose, tok, left
 *   floor(token)                             floor
 *
 * whose is the id of one attempt, not of a client; 0 is NULL. lX and fX are
 * exclusive row locks, lS and fS count the shared ones; they end with their
 * transaction. Others see the writes of a transaction when it commits.
 *
 * Tokens are GREATEST(token + 1, NOW) in the statements and token + 1 here. This is
 * the worst case: a clock so far back that NOW never decides.
 *
 * There are two models of time.
 *
 *   TIMED=0   Any clock. Every comparison with NOW may give either result.
 *   TIMED=1   The clock behaves: the database's clock gains at most MARGIN (one
 *             tick) on the client's monotonic clock in a TTL; it may lag. The model
 *             counts only remaining time, so time has no bound: left of the row,
 *             lease of a statement that has begun (the time that it will grant,
 *             because NOW stands still while it waits), window of a client (its
 *             context has ended at 0).
 *
 * Properties; an assertion that fails has the name:
 *
 *   G1    When a lease is granted, no holder of an earlier term still trusts its
 *         own: its context has ended. The holder that resumes a term is granted it.
 *         It excludes a force-released term and a holder whose handle was resumed,
 *         and applies only with TIMED.
 *   G2    A guarded transaction commits only while no later grant and no
 *         force-release is committed, nobody has resumed the term from its holder,
 *         and it has read the writes of every other one.
 *   FENCE The same of a transaction without a guard whose write a trigger has
 *         tested (GUARDS=2), but for what it has read.
 *   G3    Tokens strictly increase.
 *   OVER  A renewal does not revive a term that has expired or was released.
 *   FREE  A lease that nobody holds is never reported as held.
 *   KEPT  A release or hand-over succeeds only when no later term was granted before
 *         it ran, and nobody had resumed the term from its holder, under any clock
 *         and with any lost answers. It does not apply with
 *         TOKEN_BLOCKS, where a row's token is not that of a term.
 *   DONE  No client waits forever, and no lock remains.
 *
 * Names in -D that plant a bug, and the property that each must violate:
 *
 *   GUARD_LAST           G2    the transaction reads first and guards last; so does
 *                              one whose snapshot is older than the grant
 *   GUARD_UNLOCKED       G2    the guard reads, and locks nothing
 *   GUARD_BY_ATTEMPT     G2    the guard does not test the token
 *   TRIGGER_UNLOCKED     FENCE the trigger reads the term, and locks nothing
 *   TRIGGER_ROWLESS      FENCE a write passes if its lock has no row
 *   TRIGGER_SHARES_KEY   FENCE its lock lets a hand-over and a release pass (FOR KEY
 *                              SHARE): only a takeover waits for it
 *   FORCE_BY_EXPIRY      G2    force-release only ends the expiry
 *   DELETE_ON_RELEASE    G3    release deletes the row
 *   HANDOVER_KEEPS_TOKEN G3    hand-over changes only the attempt
 *   TOKEN_BLOCKS         G3    a grant reserves a block of tokens, and within a process
 *                              a term that never called Guard is handed over without
 *                              a statement, while its context lives
 *   FLOOR_UNLOCKED       G3    the insert reads the floor without locking it
 *   REAP_ANY_TOKEN       G3    the reaper does not test the token again
 *   REAP_FLOOR_LAST      DONE  it deletes first and raises the floor afterwards
 *   FREE_BY_EXPIRY       FREE  a released row is free when its expiry has passed,
 *                              not because its attempt is NULL
 *   TAKE_UNTESTED        G1    takeover trusts what it read before it had the lock
 *   RELEASE_BY_NAME      G1    release does not test whose term the row is
 *   RELEASE_BEFORE_END   G1    the context ends after the release, not before
 *   RELEASE_TRUSTS_DOUBT KEPT  a repeated release that finds no row succeeds,
 *                              as the run with the lost answer may have done it
 *   RELEASE_BY_ATTEMPT   KEPT  it succeeds for an attempt that was sent again, and
 *                              granted again after another, without testing the token
 *   HANDOVER_BY_ATTEMPT  KEPT  so does a hand-over
 *   HANDOVER_BY_NAME     G1    hand-over does not test whose term the row is
 *   REAP_WITHOUT_RETEST  G1    the reaper does not test the expiry again
 *   TRUST_FROM_REPLY     G1    the window is counted from the reply
 *   NO_MARGIN            G1    the window is the whole TTL
 *   RESEND_SHORTENS      G1    an attempt sent again sets the expiry, even if earlier
 *   RENEW_RESURRECTS     OVER  renewal does not test whether the term has expired
 *   RENEW_INSERTS        OVER  renewal is an upsert
 *   DEAD_BY_NAME         G1    a term of a process that has ended is taken over without
 *                              testing that the row still has it
 *   SILENT_IS_DEAD       G1    so is that of a process which is only silent
 *   GUARD_BY_TOKEN       G2    the guard tests the token only, which a resumed term keeps
 *   RESUME_KEEPS_ATTEMPT KEPT  resume changes no identity, so that both hold the term
 *   RESUME_BY_TOKEN      G1    resume tests the token and not the attempt, so that one
 *                              handle, or what Inspect shows, is good for two
 *   RESUME_BY_ATTEMPT    G3    resume tests the attempt and not the token: the attempt
 *                              may have been granted again, after another
 *   RESUME_REVIVES       OVER  resume does not test whether the term has expired
 *   RELEASE_TRUSTS_ROW   KEPT  a repeated release of a holder that made a handle trusts
 *                              the row, which another may have released
 *
 * SESSIONS=1: the session of each process tells others that the process has ended. Its
 * contexts have ended then, too.
 *
 * RESUMES=1: one holder makes a handle, and every client may resume it.
 */

/* Bounds. */
#ifndef TIMED
#define TIMED 0
#endif
#ifndef CLIENTS
#define CLIENTS 2
#endif
#ifndef ROUNDS    /* attempts of a client to get the lease */
#define ROUNDS 2
#endif
#ifndef LOSERS    /* clients that send a request and do not wait for its reply */
#define LOSERS 1
#endif
#ifndef GUARDS    /* 1: clients run guarded transactions; 2: a trigger tests their writes */
#define GUARDS 1
#endif
#ifndef REAPER    /* 1: there is a reaper */
#define REAPER 1
#endif
#ifndef FORCES    /* 1: one force-release */
#define FORCES 0
#endif
#ifndef HANDOVERS /* 1: the lease may pass to the next in the queue */
#define HANDOVERS 1
#endif
#ifndef RENEWERS  /* clients that renew, if TIMED */
#define RENEWERS 1
#endif
#ifndef SESSIONS  /* 1: a process that ends is seen to end */
#define SESSIONS 0
#endif
#ifndef RESUMES   /* 1: a holder makes a handle */
#define RESUMES 0
#endif
#ifndef TTL
#define TTL 3
#endif

#define MARGIN 1
#ifdef NO_MARGIN
#define WINDOW TTL
#else
#define WINDOW (TTL - MARGIN)
#endif

#define MAX(a, b) ((a) > (b) -> (a) : (b))

/* What a statement answers, and on its way there the branch that it takes. */
#define LOST   1
#define WON    2
#define TAKE   3
#define INSERT 4
#define DEAD   5

/* Requests that run whether or not the client waits. */
#define NOTHING  0
#define ACQUIRE  1
#define RENEW    2
#define RELEASE  3
#define HANDOVER 4
#define RESUME   5

/* Where the next in line stands. */
#define AWAY    0
#define WAITS   1  /* for its turn */
#define CHOSEN  2  /* the hand-over was sent */
#define GIVEN   3  /* and was a grant, */
#define REFUSED 4  /* or none */

/* The database. */
bool present;
byte whose, tok, floor;
bool lX, fX;
byte lS, fS;

/* The clients. */
byte attempt[CLIENTS];
byte term[CLIENTS];     /* the token that the client was told */
byte line[CLIENTS], gift[CLIENTS];
byte nDone;

#if RESUMES
byte handle, handleTerm;   /* the attempt and the token in the handle */
byte maker;                /* 1 + the client that made it */
#define MADE(c)   (maker == 1 + c)
#define PASSED(c) passedOn[c]
#define UNPASS(c) passedOn[c] = false; maker = (MADE(c) -> 1 + CLIENTS : maker)
#else
#define MADE(c)   false
#define PASSED(c) false
#define UNPASS(c) skip
#endif

#if SESSIONS
bool gone[1 + CLIENTS * ROUNDS]; /* attempts whose process has ended */
#define DIES(c) gone[attempt[c]] = true
#else
#define DIES(c) skip
#endif

/* Statements: the clients' own and, behind those, the ones that they do not wait for. */
#define STATEMENTS (2 * CLIENTS)
#define ASIDE(c)   (CLIENTS + c)
byte wOp[CLIENTS], wAttempt[CLIENTS], wTerm[CLIENTS], wNext[CLIENTS];

#if TIMED
byte left;
byte lease[STATEMENTS];
byte window[CLIENTS];
byte renewal[CLIENTS];  /* the window that a renewal will give */
#define BEGIN(s)        lease[s] = TTL
#define END(s)          lease[s] = 0
#define EXTEND(s)       left = MAX(left, lease[s])
#define SHORTEN(s)      left = lease[s]
#define EXPIRE          left = 0
#define SEND(c)         window[c] = WINDOW
#define CANCEL(c)       window[c] = 0
#define STOP(c)         d_step { CANCEL(c) };
#define TRUSTS(c)       (window[c] > 0)
#define PASS(c)         window[NEXT(c)] = window[c]; CANCEL(c)
/* If NOW is old, a row that has expired meanwhile may be live by it. */
#define MAYBE_LIVE(s)   (left > 0 || lease[s] < TTL)
#define LIVE            (left > 0)
#define MAYBE_OVER      (left == 0)
#else
#define BEGIN(s)          skip
#define END(s)            skip
#define EXTEND(s)         skip
#define SHORTEN(s)        skip
#define EXPIRE            skip
#define SEND(c)           skip
#define CANCEL(c)         skip
#define STOP(c)
#define TRUSTS(c)       true
#define PASS(c)         skip
#define MAYBE_LIVE(s)   true
#define LIVE            true
#define MAYBE_OVER      true
#endif

/* What an UPDATE of the row that changes no key waits for. */
#ifdef TRIGGER_SHARES_KEY
#define UNSHARED true
#else
#define UNSHARED (lS == 0)
#endif

/* The row has the last token of a block. */
#ifdef TOKEN_BLOCKS
#define RESERVED 1
byte last[CLIENTS];
#define ROW(c)   last[c]
#else
#define RESERVED 0
#define ROW(c)   term[c]
#endif

/* What only the properties look at. */
hidden byte G1, G2, G3, FENCE, OVER, FREE, KEPT, DONE;
hidden byte i;
byte lastGrant;         /* the greatest token that was ever given out */
byte forced;            /* the term that was force-released */
bool fresh[CLIENTS];    /* the open transaction read, and no other committed since */
bool passedOn[CLIENTS]; /* the term that the client was told was resumed by its handle */

/* A client is granted the lock. */
inline alone() {
#if TIMED
	G1 = true;
	i = 0;
	do
	:: i < CLIENTS ->
		G1 = G1 && (term[i] == 0 || window[i] == 0 || ROW(i) == forced || PASSED(i));
		i++
	:: else -> break
	od;
	assert(G1)
#else
	skip
#endif
}

/* A new term begins. */
inline judge(t) {
	alone();
	G3 = t > lastGrant;
	assert(G3);
	lastGrant = t
}

/* A new term, with the token in got, is committed. */
inline grant(a, s) {
	d_step {
		judge(got);
		present = true;
		whose = a;
		tok = got + RESERVED;
		SHORTEN(s);
		res = WON
	}
}

#ifdef FREE_BY_EXPIRY
#define HELD(s)   MAYBE_LIVE(s)
#define UNHELD    MAYBE_OVER
#else
#define HELD(s)   (whose != 0 && MAYBE_LIVE(s))
#define UNHELD    (whose == 0 || MAYBE_OVER)
#endif

/*
 * UPDATE locks SET attempt = $a, token = GREATEST(token + 1, NOW), expires_at = NOW + ttl
 *  WHERE name = $k AND (attempt IS NULL OR expires_at <= NOW)
 *
 * An attempt that is sent again finds its own live term and gets it once more:
 * UPDATE locks SET expires_at = GREATEST(expires_at, NOW + ttl)
 *  WHERE name = $k AND attempt = $a AND expires_at > NOW
 *
 * GREATEST because the first request may be running still, with an older NOW: it
 * must not take back what the second was told. A NOW that stood still may so give
 * a term back to its attempt after it expired; no other attempt had it in between.
 */
inline takeover(a, s) {
	if
	:: whose == a && HELD(s) ->
#ifdef RESEND_SHORTENS
		SHORTEN(s);
#else
		EXTEND(s);
#endif
		got = tok - RESERVED;
		res = WON
#ifdef TAKE_UNTESTED
	:: whose != a && HELD(s) && res == INSERT -> res = LOST
	:: UNHELD || res == TAKE -> got = tok + 1; grant(a, s)
#else
	:: whose != a && HELD(s) -> res = LOST
	:: UNHELD -> got = tok + 1; grant(a, s)
#endif
	fi
}

/*
 * Acquire, one statement. It reads before it writes; what it then does with the
 * row is tested again under the row's lock.
 */
inline look(a, s) {
	BEGIN(s);
	if
#if SESSIONS
	:: present && whose != 0 && whose != a && HELD(s) && gone[whose] -> got = whose; res = DEAD
#endif
	:: present && whose != a && HELD(s) ->
		FREE = whose != 0;
		assert(FREE);
		END(s);
		res = LOST
	:: present && (whose == a || UNHELD) -> res = TAKE
	:: !present -> res = INSERT
	fi
}

/*
 * A row that is there and free is taken over, FOR UPDATE SKIP LOCKED: it is held
 * if a guarded transaction, the reaper or another taker has it.
 *
 * A row that is not there:
 *   WITH f AS (SELECT token FROM floor FOR SHARE)
 *   INSERT INTO locks SELECT $k, $a, GREATEST(f.token + 1, NOW), NOW + ttl FROM f
 *   ON CONFLICT: as takeover
 * waits for the floor, then for the key, and holds the floor meanwhile.
 *
 * A term of a process that has ended is taken over by the statement of a hand-over,
 * WHERE name = $k AND attempt = $dead.
 */
inline write(a, s) {
	if
#if SESSIONS
	:: atomic { res == DEAD && !lX && UNSHARED ->
		if
#ifdef DEAD_BY_NAME
		:: present -> got = tok + 1; grant(a, s)
#else
		:: present && whose == got -> got = tok + 1; grant(a, s)
#endif
		:: else -> res = LOST; got = 0
		fi;
		END(s) }
#endif
	:: atomic { res == TAKE ->
		if
		:: lX || lS != 0 || !present -> res = LOST
		:: else -> takeover(a, s)
		fi;
		END(s) }
#ifdef FLOOR_UNLOCKED
	:: atomic { res == INSERT -> f = floor }
#else
	:: atomic { res == INSERT && !fX -> fS++; f = floor }
#endif
		atomic {
			!lX && lS == 0 ->
			if
			:: present -> takeover(a, s)
			:: else -> got = f + 1; grant(a, s)
			fi;
#ifdef FLOOR_UNLOCKED
			skip;
#else
			fS--;
#endif
			f = 0;
			END(s)
		}
	:: res == LOST
	fi
}

/*
 * The row is kept, and its token with it:
 * UPDATE locks SET attempt = NULL, expires_at = NOW WHERE name = $k AND attempt = $a
 */
inline release(a) {
	!lX && UNSHARED ->
	was = present && whose == a;
	if
#ifdef RELEASE_BY_NAME
	:: present ->
#else
	:: was ->
#endif
		whose = 0;
		EXPIRE;
#ifdef DELETE_ON_RELEASE
		present = false; tok = 0;
#endif
	:: else
	fi
}

/*
 * What the release says. That the row was its attempt's is enough, unless the
 * attempt was sent twice: it may have been granted twice, with another's term in
 * between. Then, and where an answer was lost, the row has to be as only its own
 * release leaves it: SELECT attempt IS NULL AND token = $t FROM locks WHERE name = $k
 */
#ifdef RELEASE_BY_ATTEMPT
#define ENOUGH(c) was
#else
#define ENOUGH(c) (was && !twice)
#endif
#if defined(RELEASE_TRUSTS_DOUBT)
#define PROVES true
#elif defined(RELEASE_TRUSTS_ROW)
#define PROVES (present && whose == 0 && tok == ROW(c))
#else
#define PROVES (present && whose == 0 && tok == ROW(c) && !MADE(c))
#endif
inline says(c, ok) {
#ifndef TOKEN_BLOCKS
	KEPT = (lastGrant == term[c] && !PASSED(c)) || !(ok);
	assert(KEPT);
#endif
	was = false
}

/*
 * UPDATE locks SET attempt = $next, token = GREATEST(token + 1, NOW), expires_at = NOW + ttl
 *  WHERE name = $k AND attempt = $a
 * Not for an attempt that was sent twice.
 */
#ifdef HANDOVER_BY_ATTEMPT
#define PASSES(c) (line[NEXT(c)] == WAITS)
#else
#define PASSES(c) (line[NEXT(c)] == WAITS && !twice)
#endif
inline handover(a, next, s) {
	!lX && UNSHARED ->
	was = present && whose == a;
	if
#ifdef HANDOVER_BY_NAME
	:: present ->
#else
	:: was ->
#endif
#ifdef HANDOVER_KEEPS_TOKEN
		got = tok;
#else
		got = tok + 1;
#endif
		grant(next, s)
	:: else -> res = LOST
	fi;
	END(s)
}

#if RESUMES
/*
 * UPDATE locks SET attempt = $a, expires_at = NOW + ttl
 *  WHERE name = $k AND attempt = $handle AND token = $t AND expires_at > NOW
 */
#if defined(RESUME_BY_TOKEN)
#define IS_HANDLES (whose != 0 && tok == handleTerm)
#elif defined(RESUME_BY_ATTEMPT)
#define IS_HANDLES (whose == handle)
#else
#define IS_HANDLES (whose == handle && tok == handleTerm)
#endif
#ifdef RESUME_REVIVES
#define RESUMABLE(s) true
#else
#define RESUMABLE(s) MAYBE_LIVE(s)
#endif
inline resume(a, s) {
	!lX && UNSHARED ->
	if
	:: present && IS_HANDLES && RESUMABLE(s) ->
		OVER = MAYBE_LIVE(s);
		assert(OVER);
		G3 = tok == handleTerm;
		assert(G3);
		i = 0;
		do
		:: i < CLIENTS ->
			passedOn[i] = passedOn[i] || (term[i] == handleTerm && attempt[i] == handle);
			i++
		:: else -> break
		od;
		alone();
#ifndef RESUME_KEEPS_ATTEMPT
		whose = a;
#endif
		SHORTEN(s);
		got = handleTerm;
		res = WON
	:: !(present && IS_HANDLES) || MAYBE_OVER -> res = LOST
	fi;
	END(s)
}
#endif

/* d, the next in line, learns what came of it, if it is waiting still. */
#define NEXT(c) ((c + 1) % CLIENTS)
inline tell(d, next) {
	if
	:: line[d] == CHOSEN && attempt[d] == next -> 
		line[d] = (res == WON -> GIVEN : REFUSED);
		gift[d] = got
	:: else
	fi;
	res = 0;
	got = 0
}

#if TIMED
/*
 * UPDATE locks SET expires_at = GREATEST(expires_at, NOW + ttl)
 *  WHERE name = $k AND attempt = $a AND token = $t AND expires_at > NOW,
 * skipping it if locked; so it does not wait, and its NOW is fresh.
 */
inline renew(a, t) {
	if
	:: lX || lS != 0 -> res = LOST
#ifdef RENEW_INSERTS
	:: !lX && lS == 0 && !present ->
		OVER = false;
		assert(OVER)
#endif
#ifdef RENEW_RESURRECTS
	:: !lX && lS == 0 && present && whose == a && tok == t ->
#else
	:: !lX && lS == 0 && present && whose == a && tok == t && left > 0 ->
#endif
		OVER = left > 0;
		assert(OVER);
		left = TTL;
		res = WON
	:: else -> res = LOST
	fi
}

/* The reply is read: the context moves, if it has not ended meanwhile. */
inline prolong(c, t) {
	if
	:: res == WON && ROW(c) == t && window[c] > 0 ->
#ifdef TRUST_FROM_REPLY
		window[c] = WINDOW
#else
		window[c] = MAX(window[c], renewal[c])
#endif
	:: else
	fi;
	renewal[c] = 0
}
#endif

/*
 * SELECT 1 FROM locks WHERE name = $k AND attempt = $a AND token = $t FOR SHARE
 * The expiry is not asked: a guard that also asks it passes less often, so what
 * holds for this one holds for that one.
 */
inline guard(c) {
	atomic {
		!lX ->
#if GUARDS == 2
		/*
		 * The trigger knows no attempt, only the token that is written:
		 * SELECT token FROM locks WHERE name = $k AND attempt IS NOT NULL FOR SHARE
		 */
#ifdef TRIGGER_ROWLESS
		passed = !present || (whose != 0 && tok == ROW(c));
#else
		passed = present && whose != 0 && tok == ROW(c);
#endif
#elif defined(GUARD_BY_ATTEMPT)
		passed = present && whose == attempt[c];
#elif defined(GUARD_BY_TOKEN)
		passed = present && whose != 0 && tok == ROW(c);
#else
		passed = present && whose == attempt[c] && tok == ROW(c);
#endif
#if defined(GUARD_UNLOCKED) || defined(TRIGGER_UNLOCKED)
		skip
#else
		lS = (passed -> lS + 1 : lS)
#endif
	}
}

#if defined(GUARD_UNLOCKED) || defined(TRIGGER_UNLOCKED)
#define UNGUARD skip
#else
#define UNGUARD lS--
#endif

/* The caller's transaction writes what follows from what it read. */
inline commit(c) {
	d_step {
#if GUARDS == 2
		FENCE = lastGrant == term[c] && forced != term[c];
		assert(FENCE);
#else
		G2 = lastGrant == term[c] && forced != term[c] && fresh[c] && !PASSED(c);
		assert(G2);
#endif
		i = 0;
		do
		:: i < CLIENTS -> fresh[i] = false; i++
		:: else -> break
		od;
		UNGUARD;
		passed = false
	}
}

inline rollback(c) {
	d_step {
		if
		:: passed -> UNGUARD
		:: else
		fi;
		fresh[c] = false;
		passed = false
	}
}

#if defined(RELEASE_BEFORE_END)
#define LEAVE(c) skip
#define LEFT(c)  d_step { CANCEL(c); term[c] = 0; attempt[c] = 0 }
#elif defined(TOKEN_BLOCKS)
#define LEAVE(c) term[c] = 0; attempt[c] = 0; last[c] = 0
#define LEFT(c)
#else
#define LEAVE(c) term[c] = 0; attempt[c] = 0
#define LEFT(c)
#endif

proctype Client(byte c) {
	byte round, f, res, got, next;
	bool passed, twice, was, again;
#ifdef TOKEN_BLOCKS
	bool guarded;
#endif

	do
	:: d_step {
		/* A new attempt has a new id. */
		round < ROUNDS ->
		attempt[c] = 1 + c * ROUNDS + round;
		UNPASS(c);
		round++;
		line[c] = WAITS }
#ifdef GUARD_LAST
		/* The caller's transaction is open before it has the lease. */
		fresh[c] = true;
#endif
		if
		/* The stopwatch starts before the request is sent. */
		:: d_step { line[c] == WAITS -> line[c] = AWAY; SEND(c) }
			if
			:: atomic { look(attempt[c], c) } write(attempt[c], c)
#if LOSERS
			:: d_step { c < LOSERS && wOp[c] == NOTHING -> wOp[c] = ACQUIRE; wAttempt[c] = attempt[c] }
				if
				:: res = LOST                       /* It gives up, */
#if SESSIONS
				:: d_step { DIES(c); CANCEL(c); res = LOST } /* or dies, */
#endif
				:: d_step { SEND(c); twice = true } /* or sends the attempt again, */
					atomic { look(attempt[c], c) }
					write(attempt[c], c)
				:: atomic {                         /* or looks for it. */
					if
					:: present && whose == attempt[c] && LIVE -> res = WON; got = tok - RESERVED
					:: !(present && whose == attempt[c]) || MAYBE_OVER -> res = LOST
					fi }
				fi
#endif
			fi
#if RESUMES
		/* It has the handle. */
		:: d_step { line[c] == WAITS && handle != 0 -> line[c] = AWAY; SEND(c); BEGIN(c) }
			if
			:: atomic { resume(attempt[c], c) }
#if LOSERS
			:: d_step { c < LOSERS && wOp[c] == NOTHING -> wOp[c] = RESUME; wAttempt[c] = attempt[c]; BEGIN(ASIDE(c)); END(c) }
				if
				:: res = LOST                  /* It gives up, */
				:: d_step { BEGIN(c) }         /* or sends it again, and looks. */
					atomic { resume(attempt[c], c) }
					atomic {
						if
						:: res == LOST && present && whose == attempt[c] && LIVE -> res = WON; got = tok
						:: res == WON || !(present && whose == attempt[c]) || MAYBE_OVER
						fi }
				fi
#endif
			fi
#endif
#if HANDOVERS
		:: d_step { line[c] == GIVEN -> line[c] = AWAY; res = WON; got = gift[c]; gift[c] = 0 }
		:: d_step { line[c] >= CHOSEN -> line[c] = AWAY; gift[c] = 0; res = LOST }
#endif
		fi;
		if
		:: d_step { res == WON ->
				/* The reply is read. If no time is left the client may not notice. */
				term[c] = got;
#ifdef TOKEN_BLOCKS
				last[c] = (last[c] == 0 -> got + RESERVED : last[c]);
				guarded = false;
#endif
#ifdef TRUST_FROM_REPLY
				SEND(c);
#endif
				got = 0;
				res = 0
			}
#if RESUMES
			if
			:: true
			:: d_step { maker == 0 -> maker = 1 + c; handle = attempt[c]; handleTerm = term[c] }
			fi;
#endif
#if GUARDS
			if
			:: true
#ifdef TOKEN_BLOCKS
			:: guarded = true; guard(c);
#else
			:: guard(c);
#endif
				if
#ifdef GUARD_LAST
				:: passed -> commit(c)
#else
				:: passed -> fresh[c] = true; commit(c)
#endif
				:: rollback(c)
				fi
			fi;
#endif
#ifdef TOKEN_BLOCKS
			if
			:: d_step {
				!guarded && term[c] < last[c] && line[NEXT(c)] == WAITS && TRUSTS(c) ->
				line[NEXT(c)] = GIVEN;
				attempt[NEXT(c)] = attempt[c];
				last[NEXT(c)] = last[c];
				gift[NEXT(c)] = term[c] + 1;
				PASS(c);
				LEAVE(c);
				judge(gift[NEXT(c)]) }
				goto gone
			:: true
			fi;
#endif
			/* The context ends first; then the release is sent, or is not (the client
			 * dies), or runs whenever it does; or the lease goes to the next in line. */
#ifdef RELEASE_BEFORE_END
			skip;
#else
			STOP(c)
#endif
			if
			:: atomic { release(attempt[c]); says(c, ENOUGH(c)); LEAVE(c) }
			:: d_step { DIES(c); LEAVE(c) }
#if HANDOVERS
			:: d_step {
				PASSES(c) ->
				line[NEXT(c)] = CHOSEN;
				next = attempt[NEXT(c)];
				SEND(NEXT(c));
				BEGIN(c) }
				atomic {
					handover(attempt[c], next, c);
#ifndef TOKEN_BLOCKS
					KEPT = !was || got == ROW(c) + 1;
					assert(KEPT);
#endif
					was = false;
					tell(NEXT(c), next);
					next = 0;
					LEAVE(c) }
#endif
#if LOSERS
			:: d_step {
				c < LOSERS && wOp[c] == NOTHING ->
				wOp[c] = RELEASE;
				wAttempt[c] = attempt[c] }
				/* Its answer is lost: it gives up, or is sent again. */
				if
				:: d_step { LEAVE(c) }
				:: atomic { release(attempt[c]); again = !ENOUGH(c); says(c, !again) }
					atomic { says(c, again && PROVES); again = false; LEAVE(c) }
				fi
#if HANDOVERS
			:: d_step {
				c < LOSERS && wOp[c] == NOTHING && PASSES(c) ->
				line[NEXT(c)] = CHOSEN;
				wOp[c] = HANDOVER;
				wAttempt[c] = attempt[c];
				wNext[c] = attempt[NEXT(c)];
				SEND(NEXT(c));
				BEGIN(ASIDE(c));
				LEAVE(c) }
#endif
#endif
			fi;
			d_step { twice = false };
			LEFT(c)
#ifdef TOKEN_BLOCKS
gone:			skip
#endif
		:: d_step { res == LOST -> CANCEL(c); res = 0; attempt[c] = 0; twice = false }
		fi
	:: else -> break
	od;
	atomic { round = 0; nDone++ }
}

/* The client's other connection: its renewals, and requests that it does not wait for. */
proctype Session(byte c) {
	byte f, res, got;
	bool was;

end:
	do
#if LOSERS
	:: atomic { wOp[c] == ACQUIRE -> look(wAttempt[c], ASIDE(c)) }
		write(wAttempt[c], ASIDE(c));
		d_step { res = 0; got = 0; wOp[c] = NOTHING; wAttempt[c] = 0 }
	:: atomic { wOp[c] == RELEASE -> release(wAttempt[c]); was = false; wOp[c] = NOTHING; wAttempt[c] = 0 }
#if HANDOVERS
	:: atomic {
		wOp[c] == HANDOVER ->
		handover(wAttempt[c], wNext[c], ASIDE(c));
		was = false;
		tell(NEXT(c), wNext[c]);
		wOp[c] = NOTHING; wAttempt[c] = 0; wNext[c] = 0 }
#endif
#endif
#if RESUMES && LOSERS
	:: atomic { wOp[c] == RESUME -> resume(wAttempt[c], ASIDE(c)); res = 0; got = 0; wOp[c] = NOTHING; wAttempt[c] = 0 }
#endif
#if TIMED
	:: d_step {
		c < RENEWERS && term[c] != 0 && window[c] > 0 && wOp[c] == NOTHING ->
		renewal[c] = WINDOW;
		wOp[c] = RENEW;
		wAttempt[c] = attempt[c];
		wTerm[c] = ROW(c) }
	:: atomic { wOp[c] == RENEW -> renew(wAttempt[c], wTerm[c]) }
		d_step { prolong(c, wTerm[c]); res = 0; wOp[c] = NOTHING; wAttempt[c] = 0; wTerm[c] = 0 }
#endif
	od
}

#if TIMED
#if CLIENTS == 2
#define RUNS_OUT (left + window[0] + window[1] + renewal[0] + renewal[1] + lease[0] + lease[1] + lease[2] + lease[3])
#else
#define RUNS_OUT (left + window[0] + window[1] + window[2] + renewal[0] + renewal[1] + renewal[2] \
	+ lease[0] + lease[1] + lease[2] + lease[3] + lease[4] + lease[5])
#endif
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
	:: i < STATEMENTS -> DOWN(lease[i]); i++
	:: else -> break
	od;
	DOWN(left)
}

/* The server gives up the session of a process that lives. */
#ifdef SILENT_IS_DEAD
proctype Silence() {
end:
	d_step { term[0] != 0 && window[0] > 0 -> gone[attempt[0]] = true }
}
#endif

/* It stops when nothing is left to run out, so that a deadlock is seen. */
proctype Clock() {
	byte since = TTL;       /* the database gained a tick */

end:
	do
	:: d_step { RUNS_OUT > 0 || since < TTL -> stopwatch(); database() }
	:: d_step { RUNS_OUT > 0 -> stopwatch() }
	:: d_step { RUNS_OUT > 0 && since == TTL -> since = 0; database() }
	od
}
#endif

/*
 * One pass: SELECT name, token FROM locks WHERE expires_at <= NOW, without locks. Then
 * BEGIN; UPDATE floor SET token = GREATEST(token, $found), not waiting for it;
 * DELETE FROM locks WHERE name = $k AND expires_at <= NOW AND token <= $floor,
 * skipping it if locked; COMMIT. Without grace: the worst case.
 *
 * The token is tested because a takeover does not touch the floor: between the
 * two statements the row may have become a later term, and that released.
 */
proctype Reaper() {
	byte found, raised;
	bool deleted;

end:
	do
	:: atomic { present && MAYBE_OVER -> found = tok }
#ifdef REAP_FLOOR_LAST
		atomic {
			if
			:: !lX && lS == 0 && present && MAYBE_OVER -> lX = true; deleted = true
			:: true
			fi
		}
		if
		:: deleted -> atomic { !fX && fS == 0 -> fX = true; raised = MAX(floor, tok) }
		:: !deleted
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
			:: fX && !lX && lS == 0 && present && tok <= raised ->
#elif defined(REAP_ANY_TOKEN)
			:: fX && !lX && lS == 0 && present && MAYBE_OVER ->
#else
			:: fX && !lX && lS == 0 && present && MAYBE_OVER && tok <= raised ->
#endif
				lX = true; deleted = true
			:: true
			fi
		}
#endif
		d_step {
			if
			:: deleted -> present = false; whose = 0; tok = 0; EXPIRE; lX = false
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

/*
 * UPDATE locks SET attempt = NULL, token = GREATEST(token + 1, NOW), expires_at = NOW
 *  WHERE name = $k AND attempt IS NOT NULL
 */
proctype Operator() {
end:
	d_step {
		present && whose != 0 && !lX && UNSHARED ->
		forced = tok;
#ifdef FORCE_BY_EXPIRY
		skip;
#else
		tok = tok + 1;
		lastGrant = tok;
		whose = 0;
#endif
		EXPIRE
	}
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
#ifdef SILENT_IS_DEAD
		run Silence();
#endif
#endif
#if REAPER
		run Reaper();
#endif
#if FORCES
		run Operator();
#endif
	}

	/* Nothing can run any more: all have come to their end, or wait for each other. */
	atomic {
		timeout ->
		DONE = nDone == CLIENTS && !lX && !fX && lS == 0 && fS == 0;
		i = 0;
		do
		:: i < CLIENTS -> DONE = DONE && wOp[i] == NOTHING; i++
		:: else -> break
		od;
		assert(DONE)
	}
}
