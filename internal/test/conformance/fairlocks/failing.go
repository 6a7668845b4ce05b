package fairlocks

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/internal/test/dbtest"
	"github.com/holdfast-go/holdfast/sqllock"
	"github.com/holdfast-go/holdfast/sqllock/fairlock"
)

// waits are the calls that wait for a lock of a key, until their contexts end.
func waits[Tx any]() map[string]func(ctx context.Context, l *sqllock.Locker[Tx], key string) (*sqllock.Lease, error) {
	return map[string]func(ctx context.Context, l *sqllock.Locker[Tx], key string) (*sqllock.Lease, error){
		"fair": func(ctx context.Context, l *sqllock.Locker[Tx], key string) (*sqllock.Lease, error) {
			return fairlock.New(l).Acquire(ctx, key)
		},
		"shared": func(ctx context.Context, l *sqllock.Locker[Tx], key string) (*sqllock.Lease, error) {
			return fairlock.New(l).AcquireShared(ctx, key)
		},
		"semaphore": func(ctx context.Context, l *sqllock.Locker[Tx], key string) (*sqllock.Lease, error) {
			s, err := fairlock.New(l).Semaphore(key, 1)
			if err != nil {
				return nil, err
			}
			return s.Acquire(ctx, 1)
		},
	}
}

// holds takes the lock for which a call of waits waits.
func holds[Tx any](e *env[Tx], kind string, l *sqllock.Locker[Tx], key string) *sqllock.Lease {
	e.Helper()
	if kind == "shared" {
		kind = "fair"
	}
	lease, err := waits[Tx]()[kind](e.Ctx, l, key)
	e.Check(err)
	return lease
}

// ticketsFailing takes the table, and then a column of it, away under calls that wait: each ends with the
// server's words, long before its context does.
func ticketsFailing[Tx any](e *env[Tx]) {
	lockers := e.Lockers(2, sqllock.Options{})
	for what, change := range map[string][2]string{
		"table":  {`ALTER TABLE holdfast_tickets RENAME TO holdfast_gone`, `ALTER TABLE holdfast_gone RENAME TO holdfast_tickets`},
		"column": {`ALTER TABLE holdfast_tickets RENAME COLUMN units TO gone`, `ALTER TABLE holdfast_tickets RENAME COLUMN gone TO units`},
	} {
		told := map[string]chan error{}
		var held []*sqllock.Lease
		for kind, wait := range waits[Tx]() {
			key, tell := kind+" "+what, make(chan error, 1)
			held = append(held, holds(e, kind, lockers[0], key))
			go func() {
				_, err := wait(e.Ctx, lockers[1], key)
				tell <- err
			}()
			told[kind] = tell
		}
		e.Eventually("all calls wait", func() bool { return e.Tickets() == 2*len(told) })
		e.Must(change[0])
		for kind, tell := range told {
			select {
			case err := <-tell:
				if err == nil || !strings.Contains(err.Error(), "holdfast_tickets") && !strings.Contains(err.Error(), "units") {
					e.Errorf("%s without its %s: %v", kind, what, err)
				}
			case <-time.After(dbtest.Hang):
				e.Errorf("%s without its %s: it waits", kind, what)
			}
		}
		e.Must(change[1])
		for _, lease := range held {
			e.MustRelease(lease)
		}
		e.Eventually("all tickets are gone", func() bool { return e.Tickets() == 0 })
	}
}

// ticketsGiveUp lets calls wait for a lock until their contexts end: once the lock is released, it is free, for
// another process too.
func ticketsGiveUp[Tx any](e *env[Tx]) {
	lockers := e.Lockers(3, sqllock.Options{})
	for kind, wait := range waits[Tx]() {
		for i := range 10 {
			key := kind
			lease := holds(e, kind, lockers[0], key)
			ctx, cancel := context.WithCancel(e.Ctx)
			gaveUp := make(chan error, 1)
			go func() {
				_, err := wait(ctx, lockers[i%2], key)
				gaveUp <- err
			}()
			if i < 8 { // else it ends wherever it is
				e.Eventually("the call waits", func() bool { return e.Tickets() == 2 })
			}
			cancel()
			if err := <-gaveUp; !errors.Is(err, context.Canceled) {
				e.Errorf("%s: %v", kind, err)
			}
			e.MustRelease(lease)
			// After a second its ticket leaves in the background.
			e.Eventually(kind+": the ticket of a call that gave up is gone", func() bool { return e.Tickets() == 0 })
			free, err := try(e.Ctx, kind, lockers[2], key)
			if err != nil {
				e.Errorf("%s: a free lock: %v", kind, err)
				continue
			}
			e.MustRelease(free)
		}
	}
}

func try[Tx any](ctx context.Context, kind string, l *sqllock.Locker[Tx], key string) (*sqllock.Lease, error) {
	locks := fairlock.New(l)
	switch kind {
	case "shared":
		return locks.TryAcquireShared(ctx, key)
	case "semaphore":
		s, err := locks.Semaphore(key, 1)
		if err != nil {
			return nil, err
		}
		return s.TryAcquire(ctx, 1)
	}
	return locks.TryAcquire(ctx, key)
}
