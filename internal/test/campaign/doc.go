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
// connection, pgx's own pool or interpolated parameters, and PgBouncer in transaction mode or the
// usual pool. One of the usual pools has the adapter's connector. The leases of the third process
// end with its connection (ReleaseOnDisconnect; not with SQLite).
//
// Their workers draw from the jobs in plan_test.go:
//
//   - They acquire leases, wait or try, renew, crash while they hold a lease, and hold it too
//     long; acquire several together; leave a lease to whoever resumes its handle; and wait in
//     queues for fair and shared locks and semaphores. They book refunds under a lease and its
//     guard: they read an order's balance and then write it, which is safe only under the lease.
//   - They request the same refunds with Do and with the SQL functions for other languages, the
//     same payouts with Table.Do and ClaimAllTx, the same intent under several keys with Similar,
//     and refunds that others cancel with Store.Void.
//   - They request staged payments with Runner.Do, or with StartTx in a transaction of their own,
//     and cancel them. The bank that pays runs in the campaign's process, which no fault hits and
//     no rollback takes back. It honours idempotency keys, and some of its requests and answers
//     are lost.
//   - They take parts of a limit, reserve, capture and void; swap, read and delete registers; and
//     write rows with messages.
//
// Some operations are cancelled half way, and some functions fail on purpose. Beside the workers
// each process runs a completer of payments, a relay of messages and a job of package cron; one
// runs the reaper, with the shortest grace; two watch the lease that is used all the time.
//
// After all clients have ended, a last process completes and publishes what is left. By then the
// clock is later than any fault has set it.
//
// # Faults
//
// A client is killed with SIGKILL, and another takes its place. A client is stopped with SIGSTOP
// for longer than the TTL. Connections are cut, black-holed or slow. The answer to a COMMIT, the
// answer to any request, or the request itself is lost with its connection. The server's
// processes are killed with SIGKILL and started again. PostgreSQL also fails over: the primary is killed, its
// synchronous standby is promoted, all proxies lead there, and the old primary becomes the standby. All
// connections of the server are taken, and the clients' are cut. The disk is full: in Docker the server has a small one of its own, and is killed if it
// still waits for space when there is some; elsewhere the disk is full as far as processes can tell
// (PostgreSQL; SQLite, once its file is larger than the clients' records). The server's clock moves, by
// milliseconds up to an hour, forward and back (libfaketime; in Docker package vdso, by ten seconds at most,
// if the campaign runs as root). A client's wall clock moves (package vdso). SQLite has no server and no
// connection: there all clients are killed at once, and the file is locked for a while. The log names the
// faults that the machine does not support.
//
// The campaign starts its own server: PostgreSQL and MariaDB from the binaries of this machine, MySQL in
// Docker, and MariaDB too where there are no binaries. If that is not possible, it uses the server of the
// other tests, and neither kills it, nor takes its connections and its disk, nor moves its clock.
//
// The own PostgreSQL has its standby from the start. Each commit waits for it (synchronous_standby_names), so all that
// was acknowledged survives a failover. Only from a promotion until the copy of the new primary is made do commits not
// wait, and the server is not killed meanwhile. The standby counts again once a commit was seen to wait for it, and
// a failover begins when it has all that the primary has written. MySQL and MariaDB have no such fault: their clusters
// have storms, in package cluster.
//
// # What is judged
//
//   - The linearizability checker judges leases and exclusive fair locks, and its register model
//     judges registers: package history. The checker knows when a process was stopped and when
//     the database's clock leapt by more than the margin (with SQLite, each client's clock):
//     then there is no promise that a holder's context ends in time. Guarded commits, releases,
//     renewals and tokens are judged all the same. The contexts of leases that end with a session
//     are judged too, except for four seconds after a fault that may have ended it.
//   - For shared locks and semaphores: tokens, the number of units in use, and releases. A
//     successful release held its units until it was called, regardless of the clock.
//   - The tokens of one lease that is used all the time, over all crashes.
//   - Payments, by the bank, the tables and what callers were told: paid at most once, never both
//     paid and cancelled, booked as they ended, none stuck. So too for refunds and Store.Void.
//   - Limits: what was taken never exceeds them, and their counters are the sums of their entries.
//   - An intent of Similar has one effect, a tick has one, a handle is resumed once and not after
//     its release.
//   - Messages: the bank has got each one that is marked as published, in the end each that was
//     committed and no other, and first in the order of its key.
//   - Watches: tokens rise, and at least the terms that the histories know between two events were
//     reported as missed.
//   - The tables, through the auditor's own connection: each key has one effect, each effect has
//     its record with exactly the result that callers got, each record has its effect. The
//     ledger sums to the balances. Acknowledged work is present, refused work is absent, and
//     only "unknown" allows both. No guarded commit has a smaller token than one before it.
//
// The last line counts how often each job has succeeded. In a campaign of two minutes and more
// each must have.
//
// Each epoch of five seconds has separate keys. An epoch is judged, and its histories are
// dropped, as soon as no client can add to it, so a campaign may last for hours.
//
// # Controls
//
// TestControl runs the same campaign with one protection removed: see allControls. Among them are
// no guard, a release by name instead of by term, tokens that start again, a claim made after the
// work, a new key for each call of the bank, a cancel that stores nothing, a message that is
// marked before it was handed over. ReleaseOnDisconnect has two: a session is taken for ended that nobody
// has asked for, and a lease is trusted after its session was lost. A campaign that finds nothing in ten
// minutes has failed. With -duration=10m and more each control runs on every engine that has what it
// omits, otherwise on one.
//
// # What a seed repeats
//
// A seed repeats the schedule of the faults, to the millisecond, and the sequence of operations
// that each worker of each process chooses: kinds, keys, times. It cannot repeat how real
// processes interleave, so a violation may take several runs with its seed to occur again. After
// a violation the campaign keeps the records and a picture of the history.
package campaign
