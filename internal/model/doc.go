// Package model holds a model of the lease protocol, lease.pml, and the test
// that lets Spin explore it: every order of every step within the bounds. It
// has no code that runs in a program.
//
// # What is modelled
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
// The head of lease.pml lists the properties: G1, G2 and G3 of Holdfast's
// promise, and OVER, FREE and DONE, without which a protocol that never grants
// would pass. It also lists planted bugs: rules that the protocol cannot do
// without, each with the property that is lost with it. The test runs them all,
// so a property that no longer sees its bug fails too.
//
// # Bounds
//
// The test explores, each completely (no hashing of states, no limit of depth
// reached), with the number of states that Spin 6.5.2 stores:
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
//
// # What is left out
//
//   - More than one key: the order of several guards, and of several renewals in
//     one statement.
//   - Lost data and failover, and database nodes with clocks of their own.
//   - Waiting between processes, fairness, and how long anything takes.
//   - Isolation above READ COMMITTED. A transaction of the caller whose snapshot
//     is older than the grant is a planted bug: it must be refused.
//   - More of the caller's transaction than one read and one write after the guard.
//   - Whether each engine's locks are what the statements' comments say. The
//     conformance suite asks the engines.
//   - NOW in a token, and a renewal that stops on the server between its NOW and
//     its row lock. Skipping locked rows it does not wait.
package model
