// Package history records what concurrent clients of a lock saw, and judges it:
// was there a moment with two holders, did a token go back, did a term that was
// over still release, renew or commit. The judge for registers is the same one:
// a linearizability checker ([porcupine]).
//
//	rec := history.New()
//	c := rec.Client(7) // one per goroutine
//
//	op := c.Grant(key) // before the call
//	lease, err := locker.Acquire(ctx, key)
//	if err != nil {
//		op.Unknown() // or op.Held(), when the answer was "held"
//		return
//	}
//	term := op.Won(lease.Token(), lease.Deadline())
//	stop := term.Watch(lease.Context()) // the holder's trust, as it really was
//	...
//	end := term.Release()
//	end.OK() // what Release answered: OK, Lost, or Unknown
//	stop()
//
//	history.Check(t, rec.History())
//
// Call the method that begins an operation right before it, and the one that
// says its outcome right after. An operation whose outcome nobody tells (the
// process was killed, the connection was cut, Unknown) may have happened at any
// time since its call, or never.
//
// # What a term is here
//
// A grant takes effect at some moment between its call and its return. From its
// return on the holder trusts it, until the first of these:
//
//   - its Release is called (not when it returns: a holder that asks to release
//     has stopped to trust);
//   - its context ended, where this was recorded ([Term.Watch], [Term.Observe],
//     [Term.Ended]). What counts is the last moment at which the context was
//     seen alive: a goroutine that wakes late accuses nobody;
//   - it crashed, that is, neither was recorded: then the database, which
//     cannot know of the crash, has to keep the lease until the end of the
//     trust window that the holder was told last.
//
// No other grant of the key may have to take effect within that time: grants,
// ends and all else must fit into one order in which each has its place within
// its own interval, tokens go up, a release, renewal or guarded commit finds
// its own term to be the last one granted, and "held" is answered only between
// a grant and a release.
//
// # What it cannot judge
//
// A forced release ends a term that its holder still trusts: that is an overlap
// here. So is a process that was stopped and looks at its context before its
// timer fired, unless [Outside] says when that was. Grants whose answer was lost have no token, so what they did is
// not judged, and from the first of them on a refusal of that key proves
// nothing. A release that says lost, or an attempt that says held, although the
// term had merely lapsed, is believed. Two holders that overlap by less than
// the millisecond between two looks of a watcher may escape. That waiting ends,
// or is fair, is no matter of a history.
//
// Memory grows with the square of a key's operations: 60,000 on one key take
// about a second and half a gigabyte, so spread a longer run over keys.
//
// [porcupine]: https://github.com/anishathalye/porcupine
package history
