// Package campaign tests Holdfast under faults: client processes of several kinds work on each
// engine while faults hit them, their connections, the server and the clocks. The campaign then
// judges what the clients saw and what the tables contain.
//
//	make faults                          20 s an engine, and the controls
//	make faults DURATION=30m             a long one, with every control on every engine
//	make faults SEED=7 DURATION=20s      the schedule of seed 7 again
//
// # Clients
//
// Each engine has four processes, each with its own fault proxy: the usual pool, a pool of one
// connection, pgx's own pool or interpolated parameters, and PgBouncer in transaction mode.
// Their workers acquire leases, wait or try, renew, crash while they hold a lease, and hold it
// too long. They book refunds under a lease and its guard: they read an order's balance and then
// write it, which is safe only under the lease. They request the same refunds with Do and the
// same payouts with Table.Do; swap, read and delete registers; and wait in queues for fair and
// shared locks and semaphores. Some operations are cancelled half way, and some functions fail
// on purpose.
//
// # Faults
//
// A client is killed with SIGKILL, and another takes its place. A client is stopped with SIGSTOP
// for longer than the TTL. Connections are cut, black-holed or slow. The answer to a COMMIT, the
// answer to any request, or the request itself is lost with its connection. The server's
// processes are killed with SIGKILL and started again. The server's clock moves (libfaketime;
// not MySQL's), by milliseconds up to an hour, forward and back. A client's wall clock moves
// (see moveClock). SQLite has no server and no connection: there all clients are killed at once,
// and the file is locked for a while. The log names the faults that the machine does not
// support.
//
// The campaign starts its own server: PostgreSQL and MariaDB from the binaries of this machine,
// MySQL in Docker. If that is not possible, it uses the server of the other tests, and neither
// kills it nor moves its clock.
//
// # What is judged
//
//   - The linearizability checker judges leases and exclusive fair locks, and its register model
//     judges registers: package history. The checker knows when a process was stopped and when
//     the database's clock leapt by more than the margin (with SQLite, each client's clock):
//     then there is no promise that a holder's context ends in time. Guarded commits, releases,
//     renewals and tokens are judged all the same.
//   - For shared locks and semaphores: tokens, the number of units in use, and releases. A
//     successful release held its units until it was called, regardless of the clock.
//   - The tokens of one lease that is used all the time, over all crashes.
//   - The tables, through the auditor's own connection: each key has one effect, each effect has
//     its record with exactly the result that callers got, each record has its effect. The
//     ledger sums to the balances. Acknowledged work is present, refused work is absent, and
//     only "unknown" allows both. No guarded commit has a smaller token than one before it.
//
// Each epoch of five seconds has separate keys. An epoch is judged, and its histories are
// dropped, as soon as no client can add to it, so a campaign may last for hours.
//
// # Controls
//
// TestControl runs the same campaign with one protection removed: no guard, a release by name
// instead of by term, tokens that start again, a claim made after the work, an expiry that the
// holder judges by its own clock, a release of which any answer counts as success. A campaign
// that finds nothing in five minutes has failed. With -duration=10m and more each control runs on
// every engine, otherwise on one.
//
// # What a seed repeats
//
// A seed repeats the schedule of the faults, to the millisecond, and the sequence of operations
// that each worker of each process chooses: kinds, keys, times. It cannot repeat how real
// processes interleave, so a violation may take several runs with its seed to occur again. After
// a violation the campaign keeps the records and a picture of the history.
package campaign
