package holdfast

import (
	"context"

	"github.com/holdfast-go/holdfast/internal/access"
	"github.com/holdfast-go/holdfast/internal/core"
)

// handle is a DB as the other packages of this module see it: an access.Handle.
type handle[Tx any] struct{ d *DB[Tx] }

func (h handle[Tx]) Admission(ctx context.Context) error { return h.d.admission(ctx) }

func (h handle[Tx]) Explain(err error) error { return h.d.explain(err) }

func (h handle[Tx]) Starved(ctx context.Context, err error) error { return h.d.starved(ctx, err) }

func (h handle[Tx]) Connections() (used, most int) { return h.d.connections() }

func (h handle[Tx]) Table(name string) string { return h.d.table(name) }

func (h handle[Tx]) OnConn(ctx context.Context, before string, f func(q core.Querier) error) error {
	return h.d.onConn(ctx, before, f)
}

func (h handle[Tx]) Acquire(ctx context.Context) (core.Conn[Tx], error) {
	return h.d.connect(ctx, false)
}

func (h handle[Tx]) Join(tx Tx) (core.Querier, error) {
	return h.d.join(tx)
}

func (h handle[Tx]) Listen(ctx context.Context, statement string, ready func(), each func(payload string)) error {
	if l, ok := h.d.adapter.(core.Listener); ok {
		return l.Listen(ctx, statement, ready, each)
	}
	return core.ErrNoListener
}

func (h handle[Tx]) Side(ctx context.Context, n int, f func(q core.Querier) error) error {
	if s, ok := h.d.adapter.(core.Sparing); ok && !s.Spares(n) {
		return core.ErrNoListener
	}
	c, err := h.d.connect(ctx, false)
	if err != nil {
		return err
	}
	defer c.Release(true) // it may have a statement under way, or a lock
	return f(c)
}

func (h handle[Tx]) Alive(ctx context.Context, q core.Querier) error { return h.d.joinable(ctx, q) }

func (h handle[Tx]) Rollback(ctx context.Context, tx Tx) error {
	_, err := core.Bounded(ctx, func() error { return h.d.adapter.Rollback(ctx, tx) }, nil)
	return err
}

func (h handle[Tx]) Attempt(ctx context.Context, opts core.TxOptions, first *core.Bound, f func(ctx context.Context, tx Tx, q core.Querier, first core.Reply) error) error {
	return h.d.attempt(ctx, opts, first, f)
}

func (h handle[Tx]) Begin(ctx context.Context, opts core.TxOptions, first *core.Bound) (access.OwnTx[Tx], core.Reply, error) {
	s, answer, err := h.d.begin(ctx, opts, first, false)
	if err != nil {
		return nil, answer, err
	}
	return s, answer, nil
}
