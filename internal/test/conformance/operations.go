package conformance

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/idempotency"
)

// Op is an operation on key.
func Op(key string) idempotency.Op {
	return idempotency.Op{Name: "refund", Key: key, Request: key}
}

// Store opens a store on the environment's handle.
func (e *Env[Tx]) Store(o idempotency.Options) *idempotency.Store[Tx] {
	e.Helper()
	return e.StoreOn(e.DB, o)
}

// StoreOn opens a store. Stores share no memory, as in two processes.
func (e *Env[Tx]) StoreOn(db *holdfast.DB[Tx], o idempotency.Options) *idempotency.Store[Tx] {
	e.Helper()
	s, err := idempotency.New(e.Ctx, db, o)
	if err != nil {
		e.Fatal(err)
	}
	return s
}

// Do runs an operation whose function makes one effect and returns "done".
func (e *Env[Tx]) Do(s *idempotency.Store[Tx], op idempotency.Op) (idempotency.Result[string], error) {
	return idempotency.Do(e.Ctx, s, op, func(ctx context.Context, tx Tx) (string, error) {
		return "done", e.Effect(ctx, tx, op.Key)
	})
}

// DoTx is Do in the transaction tx.
func (e *Env[Tx]) DoTx(s *idempotency.Store[Tx], tx Tx, op idempotency.Op) (idempotency.Result[string], error) {
	return idempotency.DoTx(e.Ctx, s, tx, op, func(ctx context.Context, tx Tx) (string, error) {
		return "done", e.Effect(ctx, tx, op.Key)
	})
}

// HoldKey claims key in another session and leaves the claim uncommitted until release is called.
func (e *Env[Tx]) HoldKey(key string) (release func()) {
	started, free, ended := make(chan struct{}), make(chan struct{}), make(chan struct{})
	s := e.Store(idempotency.Options{})
	go func() {
		defer close(ended)
		_, err := idempotency.Do(e.Ctx, s, Op(key), func(ctx context.Context, tx Tx) (string, error) {
			if err := e.Effect(ctx, tx, key); err != nil {
				return "", err
			}
			close(started)
			<-free
			return "held", nil
		})
		if err != nil {
			e.Errorf("the holder: %v", err)
		}
	}()
	select {
	case <-started:
	case <-ended:
		e.Fatal("the holder did not start")
	}
	return sync.OnceFunc(func() { close(free); <-ended })
}

// TooMany fails unless err says that owner has reached the limit.
func (e *Env[Tx]) TooMany(what string, err error, limit int, held bool) {
	e.Helper()
	var many *idempotency.TooManyError
	if !errors.Is(err, idempotency.ErrTooMany) || !errors.As(err, &many) || many.Limit != limit || many.Held != held || many.RetryAfter <= 0 || many.RetryAfter > time.Hour {
		e.Errorf("%s: %v (%+v), want too many of %d, held %v", what, err, many, limit, held)
	}
}
