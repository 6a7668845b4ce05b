// Package history records what concurrent clients of a lock saw, and judges it: were there two
// holders at one moment, did a token go back, did a term that was over still release, renew or
// commit. A linearizability checker ([porcupine]) judges leases and registers alike.
//
//	rec := history.New()
//	c := rec.Client(7) // one per goroutine
//
//	op := c.Grant(key) // before the call
//	lease, err := locker.Acquire(ctx, key)
//	if err != nil {
//		op.Unknown() // or op.Held(), when the answer was "held"
//		return err
//	}
//	term := op.Won(lease.Token(), time.Time{}) // its end is watched
//	stop := term.Watch(lease.Context()) // the holder's trust, as it really was
//	...
//	end := term.Release()
//	end.OK() // what Release answered: OK, Lost, or Unknown
//	stop()
//
//	history.Check(t, rec.History())
//
// Call the method that begins an operation right before the operation, and the method that
// records its outcome right after. An operation without a recorded outcome (the process was
// killed, the connection was cut, Unknown) may have happened at any time since its call, or
// never.
//
// # What a term is here
//
// A grant takes effect at some moment between its call and its return. From its return on the
// holder trusts it, until the first of these:
//
//   - its Release is called (not when it returns: a holder that asks to release no longer trusts
//     the term);
//   - its context ended, where this was recorded ([Term.Watch], [Term.Observe], [Term.Ended]).
//     The last moment at which the context was seen alive counts: a goroutine that wakes late
//     causes no false violation;
//   - it crashed, that is, neither was recorded: then the database, which cannot know of the
//     crash, must keep the lease until the end of the last trust window that the holder
//     received.
//
// No other grant of the key may have to take effect within that time. Grants, ends and all other
// operations must fit into one order in which each takes effect within its own interval. In that
// order tokens increase; a release, renewal or guarded commit finds its own term to be the last
// one granted; and "held" is answered only between a grant and a release.
//
// # What it cannot judge
//
// A forced release ends a term that its holder still trusts: this counts as an overlap. The same
// holds for a stopped process that checks its context before its timer has fired, unless
// [Outside] gives the time of the stop. A grant whose answer was lost has no token, so its
// operations are not judged, and from the first such grant on a refusal of that key proves
// nothing. A release that reports lost, or an attempt that reports held, although the term had
// merely lapsed, is accepted. Two holders that overlap by less than the millisecond between two
// checks of a watcher may go unnoticed. A history does not show whether waiting ends, or is
// fair.
//
// Memory grows with the square of a key's operations: 60,000 on one key take about a second and
// half a gigabyte, so spread a longer run over several keys.
//
// [porcupine]: https://github.com/anishathalye/porcupine
package history
