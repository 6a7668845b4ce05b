package locks

import (
	"context"
	"encoding/hex"
	"errors"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
)

// lookAgain is how long a waiter waits for a notification before it tries again. It covers
// notifications that are lost with their connection.
const lookAgain = time.Second

// freeAndNotify frees the row and notifies the waiters in one statement, so that the
// notification goes out with its commit. Two statements take a round trip more.
const freeAndNotify = `WITH freed AS (UPDATE bare_locks SET attempt = NULL, expires_at = 0 WHERE name = $1 AND attempt = $2 RETURNING name)
SELECT pg_notify('bare_locks', encode(name, 'hex')) FROM freed`

// listenByHand is the lease row of the bare statements, whose waiters are notified. A process
// has one connection that listens.
func listenByHand(ctx context.Context, w *World) (*Lock, error) {
	d, pool := dialectOf(w.Engine.Name), w.Engine.Pgx
	bell, err := listen(ctx, pool.Config().ConnConfig)
	if err != nil {
		return nil, err
	}
	return &Lock{
		Acquire: func(ctx context.Context, _ int, key string) (Release, error) {
			name, id := []byte(key), newAttempt()
			for {
				rung := bell.hear(key) // before the statement, so that no release between is missed
				var token int64
				err := pool.QueryRow(ctx, d.take, name, id[:], ttl).Scan(&token)
				if err == nil {
					return func(ctx context.Context) error {
						tag, err := pool.Exec(ctx, freeAndNotify, name, id[:])
						return one(tag.RowsAffected(), err)
					}, nil
				}
				if !errors.Is(err, pgx.ErrNoRows) {
					return nil, err
				}
				if err := rung.wait(ctx); err != nil {
					return nil, err
				}
			}
		},
		Close: bell.close,
	}, nil
}

// bell passes notifications on to the waiters of one process.
type bell struct {
	stop  context.CancelFunc
	ended chan struct{}

	mu    sync.Mutex
	rings map[string]chan struct{} // by key in hex; closed by a notification
}

type ring chan struct{}

// listen opens the connection and receives until close.
func listen(ctx context.Context, config *pgx.ConnConfig) (*bell, error) {
	c, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return nil, err
	}
	if _, err := c.Exec(ctx, `LISTEN bare_locks`); err != nil {
		return nil, errors.Join(err, c.Close(ctx))
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(ctx))
	b := &bell{stop: stop, ended: make(chan struct{}), rings: map[string]chan struct{}{}}
	go func() {
		defer close(b.ended)
		defer func() { _ = c.Close(context.WithoutCancel(ctx)) }()
		for {
			n, err := c.WaitForNotification(ctx)
			if err != nil {
				return
			}
			b.mu.Lock()
			if r := b.rings[n.Payload]; r != nil {
				close(r)
				delete(b.rings, n.Payload)
			}
			b.mu.Unlock()
		}
	}()
	return b, nil
}

// hear returns what the next notification for key closes.
func (b *bell) hear(key string) ring {
	name := hex.EncodeToString([]byte(key))
	b.mu.Lock()
	defer b.mu.Unlock()
	r := b.rings[name]
	if r == nil {
		r = make(chan struct{})
		b.rings[name] = r
	}
	return r
}

func (r ring) wait(ctx context.Context) error {
	t := time.NewTimer(lookAgain)
	defer t.Stop()
	select {
	case <-r:
	case <-t.C:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	return nil
}

func (b *bell) close(context.Context) error {
	b.stop()
	<-b.ended
	return nil
}
