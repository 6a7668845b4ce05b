package rowlocks

import (
	"context"
	"database/sql"
	"errors"
	"slices"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/sqllock/rowlock"
)

// givenUp checks that a transaction in which a call gave up, because its context ended while it waited, is
// over without another call: neither the rows that it held before, nor the one that it waited for, stay
// locked.
func givenUp[Tx any](e *env[Tx]) {
	const rounds = 3
	lines := e.lines(4)
	l := e.RowLocker()
	for _, key := range []string{"mine", "k"} {
		e.lockHeld(l, key)() // so that its row exists
	}
	first, second := Line{File: "f", No: 2}, Line{File: "f", No: 4}
	boom := errors.New("boom")
	for name, wait := range map[string]func(ctx context.Context, tx Tx) error{
		"a row": func(ctx context.Context, tx Tx) error {
			_, err := lines.LockTx(ctx, tx, holdfast.Forever, first)
			return err
		},
		"a key": func(ctx context.Context, tx Tx) error { return l.LockTx(ctx, tx, "k", holdfast.Forever) },
	} {
		for range rounds {
			holder, waiter := e.BeginTx(sql.LevelReadCommitted), e.BeginTx(sql.LevelReadCommitted)
			if e.DB.Capabilities().RowLocks {
				_, err := lines.LockTx(e.Ctx, waiter, holdfast.NoWait, second)
				e.Check(err)
				e.Check(l.LockTx(e.Ctx, waiter, "mine", holdfast.NoWait))
			}
			_, err := lines.LockTx(e.Ctx, holder, holdfast.NoWait, first)
			e.Check(err)
			e.Check(l.LockTx(e.Ctx, holder, "k", holdfast.NoWait))
			ctx, cancel := context.WithCancelCause(e.Ctx)
			errs := make(chan error, 1)
			go func() { errs <- wait(ctx, waiter) }()
			e.Waits()
			cancel(boom)
			if err := <-errs; !errors.Is(err, boom) {
				e.Errorf("%s: got %v, want the context's cause", name, err)
			}
			e.EndTx(holder, true)
			// The server ends the transaction when it learns that the call gave up: see the doc of rowlock.
			e.Eventually(name+" of a call that gave up is free", func() bool {
				next := e.BeginTx(sql.LevelReadCommitted)
				defer func() { _ = e.End(e.Ctx, next, false) }()
				got, err := lines.NextTx(e.Ctx, next, 2, work()...)
				e.Check(err)
				for _, key := range []string{"k", "mine"} {
					if err == nil {
						err = l.LockTx(e.Ctx, next, key, holdfast.NoWait)
					}
				}
				if err != nil && !errors.Is(err, rowlock.ErrLockNotAvailable) {
					e.Fatal(err)
				}
				return err == nil && slices.Equal(numbers(got), []int64{first.No, second.No})
			})
			_ = e.End(e.Ctx, waiter, false)
		}
	}
}
