package holdfast

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"runtime"
	"sync"
	"weak"

	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/dialect"
)

// connections is the set of admitted driver connections. It stores most of them, which are
// pointers, by address with a weak reference. It stores the others, such as those of some
// driver wrappers, with a strong reference, at most maxKept of them.
type connections struct {
	mu    sync.Mutex
	known map[weak.Pointer[byte]]struct{}
	kept  map[any]struct{}
}

const maxKept = 1024

func (s *connections) has(conn any) (ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p := address(conn); p != nil {
		_, ok = s.known[weak.Make(p)]
	} else if keepable(conn) {
		_, ok = s.kept[conn]
	}
	return ok
}

func (s *connections) add(conn any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := address(conn)
	if p == nil {
		s.keep(conn)
		return
	}
	if s.known == nil {
		s.known = map[weak.Pointer[byte]]struct{}{}
	}
	w := weak.Make(p)
	if _, ok := s.known[w]; !ok {
		s.known[w] = struct{}{}
		runtime.AddCleanup(p, s.forget, w)
	}
}

func (s *connections) keep(conn any) {
	if !keepable(conn) {
		return // the connection is checked each time
	}
	if s.kept == nil || len(s.kept) >= maxKept {
		s.kept = map[any]struct{}{}
	}
	s.kept[conn] = struct{}{}
}

func keepable(conn any) bool { return conn != nil && reflect.ValueOf(conn).Comparable() }

func (s *connections) forget(w weak.Pointer[byte]) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.known, w)
}

func address(conn any) *byte {
	if v := reflect.ValueOf(conn); v.Kind() == reflect.Pointer {
		return (*byte)(v.UnsafePointer())
	}
	return nil
}

// driverConn returns the driver's own connection.
func driverConn[Tx any](conn core.Conn[Tx]) any {
	if n, ok := conn.(core.Native); ok {
		return n.Native()
	}
	var c any
	_ = conn.Raw(func(driverConn any) error {
		c = driverConn
		return nil
	})
	return c
}

// connect returns an admitted connection of the pool. It skips dead connections, such as those
// after a restart of the server. If keeps, the session may have what core.Keeper has left on it. Only
// the pool sees core.Keeping's context: under it a callback of the program would get such a session.
func (d *DB[Tx]) connect(ctx context.Context, keeps bool) (core.Conn[Tx], error) {
	from := ctx
	if keeps {
		from = core.Keeping(ctx)
	}
	for n := 1; ; n++ {
		conn, err := d.acquire(from)
		if err == nil && d.known.has(driverConn(conn)) {
			return conn, nil
		}
		if err == nil && keeps {
			// admit reads the session's settings, and another DB on this pool may have left one.
			conn.Release(false)
			conn, err = d.acquire(ctx)
		}
		if err != nil {
			return nil, err
		}
		if err = d.admit(ctx, conn); err == nil {
			return conn, nil
		}
		if !d.another(ctx, conn, err, n) {
			return nil, err
		}
	}
}

// composed returns conn with what compose has put together.
func (d *DB[Tx]) composed(conn core.Conn[Tx]) core.Conn[Tx] {
	for _, wrap := range d.conns {
		conn = wrap(conn)
	}
	return conn
}

// overConns runs f on a connection of the pool, and again on another connection if that one
// was dead. f must be safe to run more than once.
func (d *DB[Tx]) overConns(ctx context.Context, f func(conn core.Conn[Tx]) error) error {
	for n := 1; ; n++ {
		conn, err := d.acquire(ctx)
		if err != nil {
			return err
		}
		if err = f(conn); !d.another(ctx, conn, err, n) {
			return err
		}
	}
}

func (d *DB[Tx]) acquire(ctx context.Context) (core.Conn[Tx], error) {
	conn, err := d.adapter.Acquire(ctx)
	if err != nil {
		return nil, fmt.Errorf("holdfast: getting a connection: %w", d.explain(d.starved(ctx, err)))
	}
	return conn, nil
}

// connections is access.Handle's.
func (d *DB[Tx]) connections() (used, most int) {
	if pool, ok := d.adapter.(core.Limited); ok {
		return pool.Connections()
	}
	return 0, 0
}

// starved adds to err what to do if ctx has ended while every connection of the pool was in use.
func (d *DB[Tx]) starved(ctx context.Context, err error) error {
	if ctx.Err() == nil {
		return err
	}
	used, n := d.connections()
	if n == 0 || used < n {
		return err
	}
	if cause := context.Cause(ctx); !errors.Is(err, cause) {
		err = fmt.Errorf("%w: %w", cause, err)
	}
	where := ""
	if core.Inside(ctx) {
		where = ", and the call runs inside the function of another call, whose transaction keeps its connection"
	}
	return fmt.Errorf("%w (%d)%s: %w: pass the transaction that is open to the form with Tx, such as DoTx, or let the pool have more connections", ErrPoolExhausted, n, where, err)
}

// another releases the nth connection that was tried, and reports whether to try another one.
func (d *DB[Tx]) another(ctx context.Context, conn core.Conn[Tx], err error, n int) bool {
	alive := err == nil || d.alive(ctx, conn)
	conn.Release(!alive || d.unready(err)) // another connection may lead to another node
	return !alive && ctx.Err() == nil && n < staleConns
}

// onConn runs f on a connection of the pool. It skips dead connections, such as those after a
// restart of the server, so f must be safe to run more than once. If a setting may still be
// waiting for its statement, onConn closes the connection.
func (d *DB[Tx]) onConn(ctx context.Context, before string, f func(q core.Querier) error) error {
	for n := 1; ; n++ {
		conn, err := d.connect(ctx, false)
		if err != nil {
			if d.unready(err) {
				return &RetryError{Attempts: 1, Err: err}
			}
			return err
		}
		q := core.Querier(d.composed(conn))
		var one *single
		if d.dialect.Single.Before != nil {
			one = &single{q, d.dialect.Single, false}
			q = one
		}
		if before != "" {
			_, err = core.Stmt{Name: "before", Text: before}.Exec(ctx, q)
		}
		if err == nil {
			err = f(q)
		}
		err = d.explain(err)
		alive := err == nil || d.alive(ctx, conn)
		if d.unready(err) {
			// The node answers, but another connection may lead to another node.
			conn.Release(true)
			return &RetryError{Attempts: 1, Err: err}
		}
		conn.Release(!alive || one != nil && one.spoiled || err != nil && before != "")
		if alive || ctx.Err() != nil || n == staleConns {
			return err
		}
	}
}

func (d *DB[Tx]) unready(err error) bool {
	return d.dialect != nil && d.dialect.Classify(err) == dialect.Unready
}
