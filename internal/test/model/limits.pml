/*
 * A limit, at the level of single statements: the row with its counters, and the entries of three ids
 * with one unit each. The limit is two units.
 *
 * Code: limits/reserve.go, limits/capture.go, limits/expire.go.
 *
 * The rows, and the variables that represent them:
 *
 *   limits(reserved, captured)         reserved, captured, row: whose transaction has locked it
 *   limit_entries(state, due_at)       state, due: whether its time has passed, entry: who has locked it
 *
 * A transaction reserves, takes, captures or voids one id, and then commits or rolls back, or its process
 * dies, which rolls back. The first statement of each locks the row of the limit, so what it has written
 * is its own until it ends: was* is what a rollback restores. Only the insert of an entry waits for
 * another lock than that of the row, of the transaction that inserts the same id for another limit, which
 * is not modelled.
 *
 *   Reserve, Take  adds the unit if it fits, on the row as it is with the lock (Reserve), and inserts
 *                  the entry. If the id is there, it takes the unit back and answers. If the unit did
 *                  not fit, it closes what is due (Due, Expire), and tries again.
 *   Capture, Void  locks the row (Lock), reads the entry, ends it (End), and moves the counters
 *
 * Time may pass for a reservation between any two statements.
 *
 * Properties; an assertion that fails has the name:
 *
 *   SUM    At each commit reserved + captured does not exceed the limit.
 *   COUNT  At each commit the counters are the sums of the entries.
 *   LATE   Nothing is captured whose time has passed.
 *   ONCE   An id is added once.
 *   FULL   An amount is refused only if it does not fit beside what has not expired.
 *   CYCLE  No two transactions wait for each other.
 *   DONE   At the end each transaction has ended.
 *
 * Names in -D that plant a bug, and the property that each must violate:
 *
 *   CHECK_THEN_UPDATE  SUM    the amount is tested by a read, and added without a condition
 *   EXPIRED_TWICE      COUNT  what is due is read before the lock, and closed in any state
 *   CAPTURE_EXPIRED    LATE   a capture does not test the time
 *   CAPTURE_UNTESTED   COUNT  a capture has read the entry before the lock, and does not test its state
 *   REPLAY_COUNTED     ONCE   an id that was used keeps what was added for it
 *   EXPIRY_SKIPPED     FULL   an amount that does not fit is refused at once
 *   ENTRY_FIRST        CYCLE  a capture locks the entry before the row
 */

/* Bounds. */
#ifndef CLIENTS
#define CLIENTS 3
#endif
#ifndef CALLS      /* of each client */
#define CALLS 2
#endif
#ifndef DEATHS
#define DEATHS 1
#endif

#define LIMIT 2
#define IDS 4      /* one more than there are */
#define NONE 0
#define RESERVED 1
#define CAPTURED 2
#define VOIDED 3
#define EXPIRED 4

byte row, deaths, running;
short reserved, captured, wasReserved, wasCaptured;
byte state[IDS], wasState[IDS], entry[IDS], waits[8], added[IDS], wasAdded[IDS];
bool due[IDS], wasDue[IDS];

/* An assertion has the name of its property. */
hidden byte SUM, COUNT, LATE, ONCE, FULL, CYCLE, DONE;

/* The transaction has the row, or waits for it. */
inline lockRow() {
	d_step {
		waits[me] = row;
		CYCLE = row == 0 || row == me || waits[row] != me;
		assert(CYCLE)
	}
	atomic {
		row == 0 || row == me ->
		waits[me] = 0;
		if
		:: row == 0 ->
			row = me;
			wasReserved = reserved; wasCaptured = captured;
			i = 1;
			do
			:: i < IDS -> wasState[i] = state[i]; wasAdded[i] = added[i]; i++
			:: else -> break
			od;
			i = 0
		:: else
		fi
	}
}

/* The same of an entry. Without ENTRY_FIRST it never waits. */
inline lockEntry(id) {
	d_step {
		waits[me] = entry[id];
		CYCLE = entry[id] == 0 || entry[id] == me || waits[entry[id]] != me;
		assert(CYCLE)
	}
	atomic { entry[id] == 0 || entry[id] == me -> waits[me] = 0; entry[id] = me }
}

/* The end of the transaction. */
inline finish(commits) {
	d_step {
		if
		:: row == me && commits ->
			SUM = reserved + captured <= LIMIT; assert(SUM);
			sumReserved = 0; sumCaptured = 0; i = 1;
			do
			:: i < IDS ->
				if
				:: state[i] == RESERVED -> sumReserved++
				:: state[i] == CAPTURED -> sumCaptured++
				:: else
				fi;
				ONCE = added[i] <= 1; assert(ONCE);
				i++
			:: else -> break
			od;
			COUNT = reserved == sumReserved && captured == sumCaptured; assert(COUNT)
		:: row == me && !commits ->
			reserved = wasReserved; captured = wasCaptured; i = 1;
			do
			:: i < IDS -> state[i] = wasState[i]; added[i] = wasAdded[i]; i++
			:: else -> break
			od
		:: else
		fi;
		i = 1;
		do
		:: i < IDS ->
			if
			:: entry[i] == me -> entry[i] = 0
			:: else
			fi;
			i++
		:: else -> break
		od;
		i = 0; sumReserved = 0; sumCaptured = 0; seen = NONE; first = 0; stale = 0;
		if
		:: row == me -> row = 0
		:: else
		fi
	}
}

/* The statement that adds a unit, if it fits. */
inline addIfItFits() {
	d_step {
		if
#ifdef CHECK_THEN_UPDATE
		:: true -> fits = room || reserved + captured + 1 <= LIMIT
#else
		:: true -> fits = reserved + captured + 1 <= LIMIT
#endif
		fi;
		if
		:: fits && take -> captured++; added[id]++
		:: fits && !take -> reserved++; added[id]++
		:: else
		fi
	}
}

/* Due; a batch of one. */
inline findDue() {
	d_step {
		first = 0; i = 1;
		do
		:: i < IDS ->
			if
			:: first == 0 && state[i] == RESERVED && due[i] -> first = i
			:: else
			fi;
			i++
		:: else -> break
		od;
		i = 0
	}
}

/* Closes one reservation that is due. */
inline expireOne() {
	findDue();
#ifdef EXPIRED_TWICE
	d_step {
		if
		:: stale != 0 -> first = stale; stale = 0
		:: else
		fi
	}
#endif
	if
	:: first != 0 -> lockEntry(first); d_step { state[first] = EXPIRED; reserved-- }
	:: first == 0
	fi
}

inline add() {
#ifdef CHECK_THEN_UPDATE
	room = reserved + captured + 1 <= LIMIT;
#endif
#ifdef EXPIRED_TWICE
	findDue();
	stale = first;
#endif
	lockRow();
	d_step { /* what has expired by now may not be in the way */
		i = 1;
		do
		:: i < IDS -> wasDue[i] = due[i]; i++
		:: else -> break
		od;
		i = 0
	}
	addIfItFits();
	if
	:: !fits -> skip
#ifndef EXPIRY_SKIPPED
		;
		do
		:: !fits -> expireOne();
			if
			:: first == 0 -> break
			:: else
			fi;
			addIfItFits()
		:: fits -> break
		od
#endif
	:: fits
	fi;
	if
	:: fits && state[id] == NONE -> lockEntry(id); d_step { due[id] = false; state[id] = (take -> CAPTURED : RESERVED) }
	:: fits && state[id] != NONE ->
#ifdef REPLAY_COUNTED
		skip
#else
		d_step {
			added[id]--;
			if
			:: take -> captured--
			:: !take -> reserved--
			fi
		}
#endif
	:: !fits && state[id] == NONE ->
		d_step {
			sumReserved = captured; i = 1;
			do
			:: i < IDS ->
				if
				:: state[i] == RESERVED && !wasDue[i] -> sumReserved++
				:: else
				fi;
				i++
			:: else -> break
			od;
			i = 0;
			FULL = sumReserved + 1 > LIMIT; assert(FULL);
			sumReserved = 0
		}
	:: !fits && state[id] != NONE
	fi
}

/* Ends the reservation of id: with take it is captured, else voided. */
inline end() {
#ifdef ENTRY_FIRST
	lockEntry(id);
#endif
#ifdef CAPTURE_UNTESTED
	seen = state[id];
#endif
	lockRow();
#ifndef CAPTURE_UNTESTED
	seen = state[id];
#endif
	if
	:: seen == RESERVED && take ->
		lockEntry(id);
		d_step {
#ifdef CAPTURE_EXPIRED
			fits = true;
#else
			fits = !due[id];
#endif
			if
			:: fits -> LATE = !due[id]; assert(LATE); state[id] = CAPTURED; reserved--; captured++
			:: !fits -> state[id] = EXPIRED; reserved--
			fi
		}
	:: seen == RESERVED && !take ->
		lockEntry(id);
		d_step {
			if
			:: due[id] -> state[id] = EXPIRED
			:: else -> state[id] = VOIDED
			fi;
			reserved--
		}
	:: seen != RESERVED
	fi
}

proctype Client(byte me) {
	byte call, id, i, seen, first, stale;
	short sumReserved, sumCaptured;
	bool take, fits, room;
	do
	:: call == CALLS -> break
	:: call < CALLS ->
		call++;
		if
		:: id = 1
		:: id = 2
		:: id = 3
		fi;
		if
		:: take = true
		:: take = false
		fi;
		if
		:: add()
		:: end()
		fi;
		if
		:: finish(true)
		:: finish(false)
		:: atomic { deaths < DEATHS -> deaths++; finish(false); break }
		fi;
		d_step { id = 0; take = false; fits = false; room = false }
	od;
	running--
}

/* Time passes for a reservation. */
proctype Clock() {
	do
	:: atomic { state[1] == RESERVED && !due[1] -> due[1] = true }
	:: atomic { state[2] == RESERVED && !due[2] -> due[2] = true }
	:: atomic { state[3] == RESERVED && !due[3] -> due[3] = true }
	:: running == 0 -> break
	od
}

init {
	byte i;
	atomic {
		running = CLIENTS;
		i = 1;
		do
		:: i <= CLIENTS -> run Client(i); i++
		:: else -> break
		od;
		run Clock()
	}
	running == 0 && _nr_pr == 1;
	d_step { DONE = row == 0 && entry[1] == 0 && entry[2] == 0 && entry[3] == 0; assert(DONE) }
}
