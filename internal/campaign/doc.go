// Package campaign puts Holdfast under fire: client processes of several kinds
// work on each engine while faults strike them, their connections, the server
// and the clocks, and what they saw and what is in the tables is judged.
//
//	make faults                          20 s an engine, and the controls
//	make faults DURATION=30m             a long one, with every control on every engine
//	make faults SEED=7 DURATION=20s      the schedule of seed 7 again
//
// # Clients
//
// Four processes an engine, each through a fault proxy of its own: the usual
// pool, a pool of one connection, pgx's own pool or interpolated parameters, and
// PgBouncer in transaction mode. Their workers take leases, wait or try, renew,
// crash with them, stay too long; book refunds under a lease and its guard (an
// order's balance read and then written, which only the lease makes safe); ask
// for the same refunds with Do and for the same payouts with Table.Do; swap, read
// and delete registers; stand in line for fair and shared locks and semaphores.
// Operations are given up half way, and functions fail on purpose.
//
// # Faults
//
// SIGKILL of a client, and another takes its place; SIGSTOP for longer than the
// TTL; connections cut, black-holed and slow; the answer to a COMMIT, to any
// request, or the request itself lost with its connection; the server's
// processes killed with SIGKILL and started again; the server's clock moved
// (libfaketime; not MySQL's), by milliseconds up to an hour, forward and back; a client's wall
// clock moved (see moveClock). SQLite has no server and no connection: there all
// clients are killed at once, and the file is locked for a while. What a machine
// lacks for any of these is said in the log.
//
// The server is one of the campaign's own: PostgreSQL and MariaDB from the
// binaries of this machine, MySQL in Docker. Where there is none, the one that
// the other tests use serves, and is neither killed nor moved.
//
// # What is judged
//
//   - Leases and exclusive fair locks by the linearizability checker, registers
//     by its register: package history. It is told when a process was stopped and
//     when the database's clock leapt by more than the margin, SQLite's being
//     each client's: nobody promises then that a holder's context ends in time.
//     Guarded commits, releases, renewals and tokens are judged all the same.
//   - Tokens of shared locks and semaphores, and how many permits are out.
//   - The tokens of one lease that is used all the time, over all crashes.
//   - The tables, through a connection of the auditor's own: each key one effect,
//     each effect its record with the very result that callers were told, each
//     record its effect; the ledger sums to the balances; what was acknowledged is
//     there, what was refused is not, and only "unknown" leaves it open; no
//     guarded commit has a smaller token than one before it.
//
// Epochs of five seconds have keys of their own. An epoch is judged and its
// histories are dropped as soon as no client can add to it, so a campaign may
// last for hours.
//
// # Controls
//
// TestControl plays the same campaign with one protection taken away: no guard, a
// release by name instead of by term, tokens that begin anew, a claim made after
// the work, an expiry that the holder judges by its own clock. The campaign that
// finds nothing in a minute has failed. With -duration=10m and more each control
// runs on every engine, and for that minute; else each on one engine, until it
// has found something.
//
// # What a seed repeats
//
// The schedule of the faults, to the millisecond, and the sequence of operations
// that each worker of each process chooses: kinds, keys, times. How real
// processes run into each other it cannot repeat, so a violation may take
// several runs with its seed to come again. The records and a picture of the
// history are kept when one is found.
package campaign
