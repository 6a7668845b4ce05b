// Package simulation runs the client of leases under a scheduler that draws everything from a seed: which statement runs next,
// which loses its answer, how much time passes. Up to three processes, each a [sqllock.Locker] with two to four goroutines, take,
// hand over, batch, renew and release one or two locks, in a bubble of testing/synctest, whose clock is virtual.
//
// The database is a map that does what the statements of SQLite's leases do. TestStoreIsSQLite compares it with SQLite, answer by answer
// and row by row, and TestStoreIsEachEngine with the statements of each engine. Everything else in the processes is
// the product: the scheduler sees what a driver sees.
//
// Whenever no goroutine can go on, the scheduler looks at the statements that wait, in an order that does not depend on
// chance, and draws one thing: a statement runs; runs, and its answer comes later, or never; fails; runs later, when its caller has its error
// already; finds the database busy; a process is not answered for a while; a caller begins its next call, or gives up; time
// passes. Then it checks what package sqllock promises:
//
//   - no two contexts of one lock are alive at a time, and tokens rise;
//   - a caller gets a term of its own, which a statement granted, and the goroutines of a process get a lock in the order of their calls;
//   - a release says ok only if its term ended by it, and lost only if another one was granted, or its time was over;
//   - without faults every call succeeds;
//   - when the faults are over, every call ends; then nothing is sent any more, and no lock is held.
//
// A seed is ten schedules, one after the other, with the same Lockers. A violation prints its seed and what happened:
//
//	go test ./internal/test/simulation -run TestSchedules -seed 7 -schedules 10
//
// Go's own chance stands outside of the scheduler there: the jitter of polls, the order of maps, and which case a select takes.
// So about one schedule in twenty goes another way when it is run again. TestExact builds the same tests with a Go whose
// chance is the seed's as well (an overlay of a few lines in package runtime), and there every seed runs twice in the same way:
//
//	make simulation DURATION=10m SEED=7
//
// TestPlanted does so with bugs in package sqllock, and wants each of them found.
package simulation
