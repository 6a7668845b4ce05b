// Package model holds models of Holdfast's protocols, and the test that lets Spin
// explore them: every order of every step within the bounds. It has no code that
// runs in a program. lease.pml is of leases, claims.pml of fair and shared locks and
// semaphores, staged.pml of staged operations.
//
// # Leases: what is modelled
//
// One key, statement by statement: acquire (a takeover, or an insert above the
// token floor), the same attempt sent again or looked for, renewal, guard,
// release, hand-over to the next in line of the process, force-release, and the
// reaper. Replies are late or lost, requests run after their client gave up,
// clients stop for ever at any place. Time is modelled twice: as a clock that
// may say anything, which is what G2 and G3 are shown under, and as one that
// gains at most its margin, which G1 needs.
//
// # What is claimed
//
// The head of each file lists its properties, and of lease.pml: G1, G2 and G3 of Holdfast's
// promise, and OVER, FREE and DONE, without which a protocol that never grants
// would pass. It also lists planted bugs: rules that the protocol cannot do
// without, each with the property that is lost with it. The test runs them all,
// so a property that no longer sees its bug fails too.
//
// # Bounds
//
// The test explores, each completely (no hashing of states, no limit of depth
// reached), with the number of states that Spin 6.5.2 stores, of leases:
//
//	any clock, 2 clients, 2 attempts each                                5,194,113
//	any clock, 2 clients, 1 attempt, force-release                         628,995
//	margin 1 of TTL 3, 2 clients, 1 attempt, reaper                      4,264,319
//	margin 1 of TTL 3, 2 clients, 2 attempts, no reaper                  4,317,815
//	margin 1 of TTL 3, 2 clients, 1 attempt, force-release, no reaper      683,741
//
// In each of them one client loses replies and one renews (which, under a clock
// that may say anything, changes nothing). -bound=large adds:
//
//	any clock, 2 clients, 2 attempts each, force-release                29,651,520
//	any clock, 3 clients, 1 attempt                                      7,171,762
//	any clock, 2 clients, 1 attempt, both lose replies, force-release   12,472,533
//	margin 1 of TTL 3, 2 clients, 1 attempt, reaper, guards              8,223,583
//	margin 1 of TTL 2, 2 clients, 1 attempt, reaper, force-release       6,040,783
//	margin 1 of TTL 3, 2 clients, 2 attempts, no reaper, token blocks    8,460,587
//
// The last is of an experiment: a grant reserves a block of tokens, and a process
// hands over from it without a statement. It stands while the clock behaves and
// nobody forces a release; under any other clock, and with a force-release under
// each, a process that does not know of the later grant gives a token out that is
// less than that one's (TOKEN_BLOCKS).
//
// # Lines: fair and shared locks, semaphores
//
// claims.pml is of one key: the anchor from which tokens are drawn and its floor,
// joining in a transaction, looking, the grant, clearing the dead away, renewal,
// guard, leaving, force-release, the reaper. Clients die in line and as holders,
// commits are lost, claims are granted whose reply is lost. Readers and a writer,
// or a semaphore of two permits for three clients:
//
//	any clock, 3 clients, guards                                           169,272
//	any clock, 3 clients, one loses replies, force-release                 563,902
//	any clock, 2 clients, reaper, one loses replies                         86,868
//	margin 1 of TTL 2, 3 clients                                         2,213,814
//	margin 1 of TTL 2, 2 clients, one renews and loses replies              51,560
//	margin 1 of TTL 2, 2 clients, one renews, reaper (large)             2,332,277
//
// The others that the test has are as large, or belong to -bound=large.
//
// # Staged operations
//
// staged.pml is of an operation with two local steps and a call, by two workers of
// two attempts each, with an operator, the provider's news, and any clock: every
// lease may have ended at any place. Every commit may be in doubt, every request
// lost or late:
//
//	a call in doubt is parked                                              566,091
//	it is taken over, and the provider honours keys                        379,260
//	it is reconciled                                                       245,587
//
// It found that a worker which took a call over, and lost the answer to that commit,
// took its doubt for none (DOUBT_FORGOTTEN), and that news which came before the
// lease's end left an operation parked for good (NEWS_FORGOTTEN).
//
// # What is left out
//
//   - More than one key: the order of several guards, and of several renewals in
//     one statement.
//   - Lost data and failover, and database nodes with clocks of their own.
//   - How long anything takes; of lines, batches of claims that join together, and
//     calls with another capacity.
//   - Of staged operations: MaxAttempts, more than one call, erasure, restores.
//   - Isolation above READ COMMITTED. A transaction of the caller whose snapshot
//     is older than the grant is a planted bug: it must be refused.
//   - More of the caller's transaction than one read and one write after the guard.
//   - Whether each engine's locks are what the statements' comments say. The
//     conformance suite asks the engines.
//   - NOW in a token, and a renewal that stops on the server between its NOW and
//     its row lock. Skipping locked rows it does not wait.
package model
