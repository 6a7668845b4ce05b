// Package model contains models of Holdfast's protocols, and the test that lets Spin explore them:
// every order of every step within the bounds. No program uses the package. lockfirst.pml models a claim
// of Do that writes its record once, claimfirst.pml one that claims by an insert, similar.pml the guard
// against one intent under two keys, lease.pml models leases, tickets.pml fair and shared locks and
// semaphores, staged.pml staged operations, outbox.pml the outbox and its relays, limits.pml limits
// with reservations.
//
// # Leases: what is modelled
//
// The model has one key, statement by statement: acquire (a takeover, or an insert above the
// token floor), the same attempt sent again or looked up, renewal, guard, release, hand-over to
// the next in the queue of the process, takeover from a process that has ended, force-release,
// resume by a handle, and the reaper. Replies are late or lost,
// requests run after their client gave up, clients stop forever at any place. Time is modelled
// twice: as a clock with arbitrary readings, under which G2 and G3 hold, and as a clock that
// gains at most its margin, which G1 needs.
//
// # Properties
//
// The head of each file lists its properties. Those of lease.pml are: G1, G2 and G3 of
// Holdfast's promise; KEPT, about the result of a release; and OVER, FREE and DONE, without
// which a protocol that never grants would pass. The head also lists planted bugs: each removes
// one rule of the protocol and names the property that then fails. The test runs them all, so it
// fails if a property no longer detects its bug.
//
// # Bounds
//
// The test explores each of these models of leases completely (no hashing of states, no limit of
// depth reached). The numbers are the states that Spin 6.5.2 stores:
//
//	any clock, 2 clients, 2 attempts each                                6,004,837
//	any clock, 2 clients, 1 attempt, force-release                         881,415
//	the same, a trigger tests the writes                                   881,415
//	margin 1 of TTL 3, 2 clients, 1 attempt, reaper                      5,221,254
//	margin 1 of TTL 3, 2 clients, 2 attempts, no reaper                  4,717,535
//	margin 1 of TTL 3, 2 clients, 1 attempt, force-release, no reaper      831,251
//	any clock, 2 clients, 1 attempt, processes are seen to end             314,406
//	margin 1 of TTL 3, 2 clients, 1 attempt, the same, no reaper           457,538
//	any clock, 2 clients, 1 attempt, a handle                              758,651
//	margin 1 of TTL 3, 2 clients, 2 attempts, a handle, no lost replies  3,512,373
//	margin 1 of TTL 3, 2 clients, 1 attempt, a handle                      945,707
//
// Those with a handle and a margin are without reaper and hand-over. In each of them, but where it says
// otherwise, one client loses replies and one renews (which changes nothing under a clock
// with arbitrary readings). -bound=large adds:
//
//	any clock, 2 clients, 2 attempts each, force-release                33,919,205
//	any clock, 3 clients, 1 attempt                                     10,794,381
//	any clock, 2 clients, 1 attempt, both lose replies, force-release   21,709,482
//	margin 1 of TTL 3, 2 clients, 1 attempt, reaper, guards              9,972,761
//	margin 1 of TTL 2, 2 clients, 1 attempt, reaper, force-release       7,708,785
//	margin 1 of TTL 3, 2 clients, 2 attempts, a handle                  27,525,604
//	margin 1 of TTL 3, 2 clients, 2 attempts, no reaper, token blocks    9,755,439
//
// The last model is an experiment: a grant reserves a block of tokens, and a process hands over
// from it without a statement. It is correct while the clock behaves and no client forces a
// release. Under any other clock, and with a force-release under each clock, a process that does
// not know of the later grant issues a token that is less than the later one (TOKEN_BLOCKS).
//
// # Queues: fair and shared locks, semaphores
//
// tickets.pml has one key. It models the anchor from which tokens are drawn and its floor,
// joining in a transaction, polling, the grant, the release that grants to the next, the removal of dead tickets, renewal, guard,
// leaving, force-release and the reaper. Clients die in the queue and as holders, commits are
// lost, tickets are granted whose reply is lost. The clients are readers and a writer, or three
// clients of a semaphore with two permits:
//
//	any clock, 3 clients, guards                                           446,169
//	any clock, 3 clients, one loses replies, force-release               2,386,673
//	any clock, 2 clients, reaper, one loses replies                        274,209
//	margin 1 of TTL 2, 3 clients                                         4,548,058
//	margin 1 of TTL 2, 2 clients, one renews and loses replies              92,939
//	any clock, 3 clients, guards, processes are seen to end                593,122
//	margin 1 of TTL 2, 3 clients, the same                               5,939,641
//	margin 1 of TTL 2, 2 clients, one renews, reaper (large)             3,786,881
//
// The other models of the test are as large, or belong to -bound=large.
//
// # Staged operations
//
// staged.pml has one operation with two local steps and a call, run by two workers with two
// attempts each, with an operator, provider events, and any clock: a lease may have ended at any
// place. Every commit may be in doubt, every request lost or late:
//
//	a call in doubt is parked                                              668,428
//	it is taken over, and the provider honours keys                        430,875
//	it is reconciled                                                       274,987
//	parked, begun in a caller's transaction (StartTx)                    1,909,208
//	parked, the provider may accept and pay later                        1,183,337
//	taken over, the provider may accept and pay later                      937,616
//	reconciled, the provider may accept and pay later                      443,729
//	parked, events may be wrong and contradict the answer, 1 attempt each  392,092
//	reconciled, the same, 2 attempts each                                2,990,875
//	parked, an operator cancels it                                       1,233,171
//	taken over, an operator cancels it                                     772,451
//	reconciled, an operator cancels it                                     516,735
//	the same, begun by StartTx                                           1,476,673
//	parked, the provider may pay later, an operator cancels it (large)   3,690,481
//	parked, events may contradict the answer, 2 attempts each (large)    8,875,567
//	reconciled, may pay later, by StartTx, 3 attempts each (large)       5,872,495
//
// The model found three bugs. A worker that took a call over, and lost the answer to that commit,
// treated a call in doubt as one that was never made (DOUBT_FORGOTTEN). An event that came
// before the lease's end left an operation parked forever (NEWS_FORGOTTEN). The answer "not done" to a call
// that is made again, while the one before may yet be done, made an operation look as if it had called nothing, so
// that it could be cancelled (DOUBT_NOTDONE). It knew no event after the end: an operation that an operator had
// ended without an answer of its call refused the answer for ever (ENDED_REFUSES).
//
// # Claims
//
// lockfirst.pml has one key, for which two calls of Do and one of DoTx ask. Its steps are the snapshots of
// statements, the lock, the function, the insert and the end of the commit. Connections are lost with
// COMMIT on its way:
//
//	2 calls of Do                                                            8,843
//	2 calls of Do, 1 of DoTx                                                64,168
//	the same on SQLite                                                       8,546
//	1 call of Do, 1 of Void, 1 of DoTx                                      61,857
//	1 call of Do, 2 of Void, 1 of DoTx on SQLite                           141,151
//	2 calls of Do, 1 of Void, 1 of DoTx (large)                          4,381,943
//	3 calls of Do, 1 of DoTx, 2 connections lost each (large)           43,873,232
//
// claimfirst.pml has the order of MySQL and MariaDB: a claim by an INSERT, the function, the result by an
// UPDATE, COMMIT. Transactions are lost inside the function, which may swallow that, or commit the transaction
// itself; beside it runs a call of DoTx:
//
//	2 calls of Do                                                            2,561
//	2 calls of Do, 1 of DoTx                                                16,860
//	the same, functions may commit                                          64,968
//	1 call of Do, 2 of Void, 1 of DoTx                                     155,772
//	3 calls of Do, 1 of DoTx (large)                                       744,250
//
// fence.pml has the mark that proves a transaction of MySQL and MariaDB on a connection which sees every
// statement and error: when it must be set, and when a function may run again:
//
//	4 steps of a function                                                      375
//	8 steps (large)                                                            791
//
// # Two keys, one intent
//
// similar.pml has calls whose operations are alike, two of them with one key. Their clients confirm a
// refusal once, windows end at any time, functions fail and reject, and a connection is lost with COMMIT
// on its way:
//
//	3 calls of 2 keys, a window ends, a connection is lost               3,001,894
//	4 calls of 3 keys                                                    2,491,628
//	4 calls of 3 keys, a window ends (large)                            11,160,614
//	4 calls of 3 keys, none confirms, a connection is lost (large)      8,086,361
//
// # Outbox
//
// outbox.pml has one key, three writers of a message each, two relays with one pass each (two where
// nothing dies), a message that fails, and an operator:
//
//	one relay dies                                                       1,456,846
//	any lease may have ended at any place                                5,242,997
//	none dies, two passes                                                6,105,147
//
// The model found a bug: a relay that was slow to put off the messages behind a held one also put off
// those that came after that one was published, for the length of its lease (PUT_OFF_ALL).
//
// # Limits
//
// limits.pml has a limit of two units and three ids of one unit each. Clients reserve, take, capture and
// void, roll back and die, and time passes for a reservation between any two statements:
//
//	2 clients, 2 calls each                                              2,558,956
//	3 clients, 1 call each                                               2,493,037
//
// # What is left out
//
//   - More than one key: the order of several guards, and of several renewals in one statement.
//   - Lost data and failover, and database nodes with different clocks.
//   - Durations; for queues, batches of tickets that join together, and calls with another
//     capacity.
//   - For staged operations: MaxAttempts, more than one call, erasure, restores, a reversal after
//     success (a fact that is added, and changes no state).
//   - Isolation above READ COMMITTED. A caller's transaction whose snapshot is older than the
//     grant is a planted bug: it must be refused.
//   - More of the caller's transaction than one read and one write after the guard.
//   - Whether each engine's locks behave as the comments of the statements describe. The
//     conformance suite tests the engines.
//   - NOW in a token, and a renewal that stops on the server between its NOW and its row lock.
//     It skips locked rows, so it does not wait.
package model
