package fairlock_test

import (
	"context"
	"database/sql"
	"errors"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/adapters/holdfastsql"
	"github.com/holdfast-go/holdfast/internal/test/dbtest"
	"github.com/holdfast-go/holdfast/migrations"
	"github.com/holdfast-go/holdfast/sqllock"
	"github.com/holdfast-go/holdfast/sqllock/fairlock"
	"github.com/holdfast-go/holdfast/sqllock/internal/keeper"
)

func openLocker(t *testing.T, engine dbtest.Engine) *sqllock.Locker[*sql.Tx] {
	t.Helper()
	pool := dbtest.OpenSQL(t, dbtest.DSN(t, engine))
	if err := migrations.Up(t.Context(), pool); err != nil {
		t.Fatal(err)
	}
	db, err := holdfastsql.Open(t.Context(), pool, holdfast.Options{SingleOwner: true})
	if err != nil {
		t.Fatal(err)
	}
	l, err := sqllock.New(t.Context(), db, sqllock.Options{TTL: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// lapses ends a lease's trust window although its timer has not fired, as in a process that
// was stopped and continues.
func lapses(l *sqllock.Lease) {
	(*keeper.Lease)(l).Lapse()
}

// TestContextBeforeTimer checks that the context's error follows the clock, although the timer of
// the lease has not fired.
func TestContextBeforeTimer(t *testing.T) {
	t.Parallel()
	l := openLocker(t, dbtest.SQLite)
	defer func() { _ = l.Close(context.Background()) }()
	for name, acquire := range map[string]func(context.Context, string, ...sqllock.AcquireOptions) (*sqllock.Lease, error){
		"lease": l.Acquire, "fair": fairlock.New(l).Acquire,
	} {
		lease, err := acquire(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(lease.Context())
		if err := lease.Context().Err(); err != nil {
			t.Errorf("%s: %v before the end", name, err)
		}
		lapses(lease)
		if err, cause := lease.Context().Err(), context.Cause(ctx); !errors.Is(err, context.Canceled) || !errors.Is(cause, sqllock.ErrLost) || ctx.Err() == nil {
			t.Errorf("%s: %v, cause %v, and of a child %v", name, err, cause, ctx.Err())
		}
		cancel()
	}
}

// TestReleaseBeforeTimer checks that a lease whose trust window has ended is reported as lost
// at its release, at the end of Do and at an inner release, although its timer has not fired.
func TestReleaseBeforeTimer(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, engine dbtest.Engine) {
		l := openLocker(t, engine)
		defer func() { _ = l.Close(context.Background()) }()
		s, err := fairlock.New(l).Semaphore("key", 2)
		if err != nil {
			t.Fatal(err)
		}
		for name, k := range map[string]struct {
			acquire func(context.Context) (*sqllock.Lease, error)
			do      func(context.Context, func(context.Context, *sqllock.Lease) error) error
		}{
			"lease": {
				func(ctx context.Context) (*sqllock.Lease, error) { return l.Acquire(ctx, "key") },
				func(ctx context.Context, f func(context.Context, *sqllock.Lease) error) error {
					return l.Do(ctx, "key", f)
				},
			},
			"fair": {
				func(ctx context.Context) (*sqllock.Lease, error) { return fairlock.New(l).Acquire(ctx, "key") },
				func(ctx context.Context, f func(context.Context, *sqllock.Lease) error) error {
					return fairlock.New(l).Do(ctx, "key", f)
				},
			},
			"shared": {
				func(ctx context.Context) (*sqllock.Lease, error) { return fairlock.New(l).AcquireShared(ctx, "key") },
				func(ctx context.Context, f func(context.Context, *sqllock.Lease) error) error {
					return fairlock.New(l).DoShared(ctx, "key", f)
				},
			},
			"semaphore": {
				func(ctx context.Context) (*sqllock.Lease, error) { return s.Acquire(ctx, 1) },
				func(ctx context.Context, f func(context.Context, *sqllock.Lease) error) error { return s.Do(ctx, 1, f) },
			},
		} {
			lease, err := k.acquire(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			lapses(lease)
			if err := lease.Release(t.Context()); err != nil {
				t.Errorf("%s, nobody else had it: %v", name, err)
			}
			if cause := context.Cause(lease.Context()); !errors.Is(cause, sqllock.ErrLost) {
				t.Errorf("%s: the context ended with %v, want sqllock.ErrLost", name, cause)
			}
			err = k.do(t.Context(), func(_ context.Context, lease *sqllock.Lease) error { lapses(lease); return nil })
			if !errors.Is(err, sqllock.ErrLost) {
				t.Errorf("%s: Do says %v, want sqllock.ErrLost", name, err)
			}
		}
		again := sqllock.AcquireOptions{Reentry: sqllock.NewReentry()}
		for range 2 {
			if _, err := l.Acquire(t.Context(), "again", again); err != nil {
				t.Fatal(err)
			}
		}
		lease, err := l.Acquire(t.Context(), "again", again)
		if err != nil {
			t.Fatal(err)
		}
		if err := lease.Release(t.Context()); err != nil {
			t.Errorf("an inner release: %v", err)
		}
		lapses(lease)
		if err := lease.Release(t.Context()); !errors.Is(err, sqllock.ErrLost) {
			t.Errorf("an inner release of a lease that is lost: %v", err)
		}
		_ = lease.Release(t.Context())
	})
}

// TestDoFindsItsLeaseTaken checks that Do reports that its lease was taken away, even if only
// the release detects it.
func TestDoFindsItsLeaseTaken(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, engine dbtest.Engine) {
		l := openLocker(t, engine)
		defer func() { _ = l.Close(context.Background()) }()
		err := l.Do(t.Context(), "key", func(context.Context, *sqllock.Lease) error {
			_, err := l.ForceRelease(t.Context(), "key", 0, holdfast.Actor{By: "test", Reason: "a test"})
			return err
		})
		if !errors.Is(err, sqllock.ErrLost) {
			t.Errorf("lease: %v, want sqllock.ErrLost", err)
		}
		err = fairlock.New(l).Do(t.Context(), "key", func(_ context.Context, lease *sqllock.Lease) error {
			_, err := fairlock.New(l).ForceRelease(t.Context(), "key", lease.Token(), holdfast.Actor{By: "test", Reason: "a test"})
			return err
		})
		if !errors.Is(err, sqllock.ErrLost) {
			t.Errorf("fair: %v, want sqllock.ErrLost", err)
		}
	})
}
