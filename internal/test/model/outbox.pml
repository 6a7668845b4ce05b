/*
 * The outbox, at the level of single statements, with one key and a broker outside of
 * the database. Writers, relays, an operator. Anything may happen between two steps.
 *
 * Code: idempotency/outbox/run.go, and idempotency/outbox/outbox.go of the writers.
 *
 * The rows, and the variables that represent them:
 *
 *   outbox_keys(last_seq)                  last, lane: whose transaction has locked it
 *   outbox(seq, state, starts, attempt)    there, state, starts, whose
 *
 * A writer locks the key (Bump), inserts its message under the next seq, and commits.
 * What it inserted is visible from then on. Transactions that roll back are not
 * modelled: they leave nothing.
 *
 * A relay reads the key's first message that is waiting or dead (Head), takes it if it
 * is waiting (Take), reads it with those behind it (Run), and publishes them. Then it takes
 * the next one, notes the others as published (Published), and goes on; after the last one it
 * reads again, for a message that came later. It may die anywhere, and a message may fail.
 *
 * due_at is modelled in two ways. With PATIENT a lease ends when its relay is dead, and
 * not before. Without it any lease may have ended at any place: this is the worst case
 * of relays that are paused. A relay that finds the first message held puts off those
 * behind it (Postpone): off, for ever, until they are taken or the operator decides.
 *
 * The operator discards a dead message.
 *
 * Properties; an assertion that fails has the name:
 *
 *   ORDER   When a message is published first, or again, each message whose transaction
 *           committed before was published, or was discarded.
 *   LOST    A message that is noted as published was published.
 *   ONCE    With PATIENT: a message is published again only if a relay died.
 *   BLAME   A message is dead only if it failed.
 *   DONE    At the end a pass finds the messages that are waiting, if no relay died and
 *           none failed. Otherwise it finds them when what they were put off for is over.
 *
 * Names in -D that plant a bug, and the property that each must violate:
 *
 *   LANE_UNLOCKED  ORDER  a writer does not lock the key until it commits
 *   HEAD_SKIPS_DEAD ORDER a dead message does not hold up those behind it
 *   HEAD_IS_ANY    ORDER  a relay takes any message that is waiting
 *   FAILED_SKIPPED LOST   a batch goes on behind a message that failed
 *   NOTED_FIRST    LOST   a batch is noted as published before it is
 *   TAKE_UNTESTED  ONCE   taking tests neither the starts nor the lease
 *   LATER_STEALS   ONCE   the relay that reads again takes what another relay has
 *   PUT_OFF_ALL    DONE   a relay also puts off messages that its pass did not find
 *   LATER_UNREAD   DONE   a relay whose list is at its end does not read again
 */

/* Bounds. */
#ifndef WRITERS
#define WRITERS 3
#endif
#ifndef RELAYS
#define RELAYS 2
#endif
#ifndef PASSES    /* of each relay */
#define PASSES 2
#endif
#ifndef PATIENT
#define PATIENT 1
#endif
#ifndef FAILS     /* messages that fail */
#define FAILS 1
#endif
#ifndef DEATHS
#define DEATHS 1
#endif

#define SIZE 4    /* WRITERS + 1 */
#define NONE 0
#define WAITING 1
#define PUBLISHED 2
#define DEAD 3
#define DISCARDED 4

byte last, lane, commits, fails, deaths, running;
bool there[SIZE];
byte state[SIZE], starts[SIZE], whose[SIZE], committed[SIZE], sent[SIZE];
bool failed[SIZE], off[SIZE], gone[8]; /* relays */

/* An assertion has the name of its property. */
hidden byte ORDER, LOST, ONCE, BLAME, DONE;

proctype Writer(byte me) {
	byte seq;
	atomic {
#ifndef LANE_UNLOCKED
		lane == 0 -> lane = me;
#endif
		last++; seq = last; state[seq] = WAITING
	}
	atomic { commits++; committed[seq] = commits; there[seq] = true; lane = 0; running-- }
}

/* The first message that is waiting or dead; 0 for none. */
inline readHead(from) {
	d_step {
		head = 0; i = from;
		do
		:: i < SIZE && head == 0 ->
			if
#ifdef HEAD_SKIPS_DEAD
			:: there[i] && state[i] == WAITING -> head = i
#else
			:: there[i] && (state[i] == WAITING || state[i] == DEAD) -> head = i
#endif
			:: else
			fi;
			i++
		:: else -> break
		od;
		i = 0;
		blocked = 0;
		if
		:: head != 0 && state[head] == DEAD -> blocked = head; head = 0
		:: else
		fi;
		if
		:: head != 0 -> seen = starts[head]
		:: else
		fi
	}
}

/* Whether a message may be taken, as far as its lease goes. */
#define FREE(m) (whose[m] == 0 || gone[whose[m]] || !PATIENT)

/* Take: the relay has m, if got. */
inline take(m) {
	d_step {
#ifdef TAKE_UNTESTED
		got = state[m] == WAITING;
#else
#ifdef LATER_STEALS
		got = state[m] == WAITING && starts[m] == seen;
#else
		got = state[m] == WAITING && starts[m] == seen && (seen == 0 || FREE(m));
#endif
#endif
		if
		:: got -> starts[m]++; whose[m] = me; off[m] = false
		:: else
		fi
	}
}

/* Due: the last message of the key that a pass finds; 0 for none. */
inline due() {
	d_step {
		most = 0; i = 1;
		do
		:: i < SIZE ->
			if
			:: there[i] && state[i] == WAITING && !off[i] && (starts[i] == 0 || FREE(i)) -> most = i
			:: else
			fi;
			i++
		:: else -> break
		od;
		i = 0
	}
}

/* Postpone, behind m: what the pass has found. Later messages may be behind one that is published by
 * now, whose relay does not know of them. */
inline putOff(m) {
	d_step {
		i = m + 1;
		do
#ifdef PUT_OFF_ALL
		:: i < SIZE ->
#else
		:: i <= most ->
#endif
			if
			:: there[i] && state[i] == WAITING && starts[i] == 0 -> off[i] = true
			:: else
			fi;
			i++
		:: else -> break
		od;
		i = 0
	}
}

/* Published, for the messages from..to. */
inline note(from, to) {
	d_step {
		i = from;
		do
		:: i <= to ->
			if
			:: there[i] && state[i] == WAITING -> LOST = sent[i] > 0; assert(LOST); state[i] = PUBLISHED; whose[i] = 0
			:: else
			fi;
			i++
		:: else -> break
		od;
		i = 0
	}
}

/* The broker has m. */
inline publish(m) {
	d_step {
		i = 1;
		do
		:: i < SIZE ->
			ORDER = !(there[i] && committed[i] < committed[m]) || sent[i] > 0 || state[i] == DISCARDED;
			assert(ORDER);
			i++
		:: else -> break
		od;
		i = 0;
		ONCE = sent[m] == 0 || deaths > 0 || !PATIENT;
		assert(ONCE);
		if
		:: sent[m] < 2 -> sent[m]++
		:: else
		fi
	}
}

proctype Relay(byte me) {
	byte pass, head, blocked, seen, most, m, next, i;
	bool got, bad;
	do
	:: pass == PASSES -> break
	:: pass < PASSES ->
		pass++;
		head = 0; got = false;
		due();
		if
		:: most != 0 ->
			readHead(1);
#ifdef HEAD_IS_ANY
			if
			:: there[2] && state[2] == WAITING -> d_step { head = 2; seen = starts[2] }
			:: true
			fi;
#endif
			if
			:: head != 0 && (seen == 0 || FREE(head)) -> take(head)
			:: head != 0 && seen != 0 && !FREE(head) -> putOff(head)
			:: head == 0 && blocked != 0 -> putOff(blocked)
			:: else
			fi
		:: else
		fi;
		do
		:: !got -> break
		:: got ->
			/* Run: those from head to m - 1 are published, m is the next one. */
			m = head; bad = false;
#ifdef NOTED_FIRST
			note(head, head);
#endif
			do
			:: atomic { deaths < DEATHS -> deaths++; gone[me] = true; goto dead }
			:: atomic { fails < FAILS && !bad && m < SIZE && there[m] && state[m] == WAITING && sent[m] == 0 -> fails++; failed[m] = true; bad = true };
#ifdef FAILED_SKIPPED
				m++
#else
				break
#endif
			:: m < SIZE && there[m] && state[m] == WAITING -> publish(m); m++;
				/* a message that was begun before is published alone */
				if
				:: starts[head] > 1 -> break
				:: starts[head] <= 1
				fi
			:: m >= SIZE || !there[m] || state[m] != WAITING -> break
			:: m > head -> break /* a batch may end anywhere */
			od;
			got = false;
			if
			:: m == head -> /* it failed, or another relay was here */
				d_step {
					if
					:: bad && whose[head] == me && state[head] == WAITING ->
						BLAME = failed[head]; assert(BLAME);
						state[head] = DEAD; whose[head] = 0
					:: else
					fi
				}
			:: m > head ->
				next = 0;
				if
				:: m < SIZE && (bad || there[m] && state[m] == WAITING) ->
					d_step { next = m; seen = starts[m] };
					take(next)
				:: else
				fi;
				note(head, m - 1);
				if
				:: next != 0 -> head = next
				:: next == 0 ->
#ifdef LATER_UNREAD
					head = 0
#else
					readHead(m);
					if
#ifdef LATER_STEALS
					:: head != 0 -> take(head)
#else
					:: head != 0 && seen == 0 -> take(head)
#endif
					:: else
					fi
#endif
				fi;
				if
				:: got && bad ->
					d_step {
						BLAME = failed[head]; assert(BLAME);
						if
						:: whose[head] == me && state[head] == WAITING -> state[head] = DEAD; whose[head] = 0
						:: else
						fi
					}
					got = false
				:: else
				fi
			fi
		od
	od;
dead:
	running--
}

proctype Operator() {
	byte n, i;
	do
	:: n == FAILS -> break
	:: n < FAILS ->
		n++;
		atomic {
			if
			:: state[1] == DEAD -> state[1] = DISCARDED
			:: state[2] == DEAD -> state[2] = DISCARDED
			:: state[3] == DEAD -> state[3] = DISCARDED
			:: running == 0 -> goto none
			fi;
			off[1] = false; off[2] = false; off[3] = false
		}
	od;
none:
	skip
}

init {
	byte i, head;
	atomic {
		running = WRITERS + RELAYS;
		i = 1;
		do
		:: i <= WRITERS -> run Writer(i); i++
		:: else -> break
		od;
		i = 1;
		do
		:: i <= RELAYS -> run Relay(i); i++
		:: else -> break
		od;
		run Operator()
	}
	running == 0 && _nr_pr == 1;
	d_step {
		head = 0; i = 1;
		do
		:: i < SIZE && head == 0 ->
			if
			:: state[i] == WAITING || state[i] == DEAD -> head = i
			:: else
			fi;
			i++
		:: else -> break
		od;
		DONE = head == 0 || deaths > 0 || fails > 0 || state[head] == DEAD || !off[head];
		assert(DONE)
	}
}
