package holdfasttest

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/internal/core"
)

var (
	errCommit = errors.New("holdfasttest: the connection was lost while COMMIT was under way")
	// A lost connection would be retried until the store's Wait is over. This error ends the call
	// at once, with ErrUnknown.
	errLook = fmt.Errorf("holdfasttest: the database was not to be reached to ask what became of a COMMIT: %w", holdfast.ErrTxLost)
)

// faults sits between Holdfast and the driver.
type faults struct {
	mu     sync.Mutex
	held   map[string]int // hashes of the keys that are in progress
	commit *bool          // lose the next COMMIT's answer; the value says whether to commit
	claim  bool           // a claim was sent since the last transaction ended
	blind  bool           // the next read fails
}

func (f *faults) hold(key string, by int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.held == nil {
		f.held = map[string]int{}
	}
	f.held[key] = max(0, f.held[key]+by)
}

func (f *faults) loseCommit(committed bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.commit = &committed
}

// statement returns the error to inject into one statement.
func (f *faults) statement(ctx context.Context, args []any) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch core.StatementName(ctx) {
	case "records.look", "row.look":
		if f.blind {
			f.blind = false
			return errLook
		}
	case "records.claim", "row.claim":
		f.claim = true
	default:
		return nil
	}
	if len(args) > 1 { // after the owner
		if key, ok := args[1].([]byte); ok && f.held[string(key)] > 0 {
			return &idempotency.InProgressError{}
		}
	}
	return nil
}

// next decides one COMMIT: nil means that it runs normally. If the transaction has a claim, the
// read that would resolve the commit fails too. There is one writer, so the last claim belongs to
// this transaction.
func (f *faults) next() *bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	committed := f.commit
	f.commit = nil
	f.blind = f.blind || committed != nil && f.claim
	f.claim = false
	return committed
}

func (f *faults) rolledBack() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.claim = false
}

type adapter[Tx any] struct {
	core.Adapter[Tx]
	f *faults
}

func (a adapter[Tx]) Exec(ctx context.Context, query string, args ...any) (core.Result, error) {
	return querier{a.Adapter, a.f}.Exec(ctx, query, args...)
}

func (a adapter[Tx]) Query(ctx context.Context, query string, args ...any) (core.Rows, error) {
	return querier{a.Adapter, a.f}.Query(ctx, query, args...)
}

func (a adapter[Tx]) Join(tx Tx) (core.Querier, error) {
	q, err := a.Adapter.Join(tx)
	return querier{q, a.f}, err
}

func (a adapter[Tx]) Acquire(ctx context.Context) (core.Conn[Tx], error) {
	c, err := a.Adapter.Acquire(ctx)
	if err != nil {
		return nil, err
	}
	return &conn[Tx]{Conn: c, f: a.f}, nil
}

type querier struct {
	q core.Querier
	f *faults
}

func (q querier) Exec(ctx context.Context, query string, args ...any) (core.Result, error) {
	if err := q.f.statement(ctx, args); err != nil {
		return core.Result{}, err
	}
	return q.q.Exec(ctx, query, args...)
}

func (q querier) Query(ctx context.Context, query string, args ...any) (core.Rows, error) {
	if err := q.f.statement(ctx, args); err != nil {
		return nil, err
	}
	return q.q.Query(ctx, query, args...)
}

type conn[Tx any] struct {
	core.Conn[Tx]
	f *faults
}

func (c *conn[Tx]) Exec(ctx context.Context, query string, args ...any) (core.Result, error) {
	return querier{c.Conn, c.f}.Exec(ctx, query, args...)
}

func (c *conn[Tx]) Query(ctx context.Context, query string, args ...any) (core.Rows, error) {
	return querier{c.Conn, c.f}.Query(ctx, query, args...)
}

func (c *conn[Tx]) Commit(ctx context.Context, tx Tx) error {
	committed := c.f.next()
	switch {
	case committed == nil:
		return c.Conn.Commit(ctx, tx)
	case *committed:
		if err := c.Conn.Commit(ctx, tx); err != nil {
			return err
		}
	default:
		if err := c.Conn.Rollback(ctx, tx); err != nil {
			return err
		}
	}
	return errCommit
}

func (c *conn[Tx]) Rollback(ctx context.Context, tx Tx) error {
	c.f.rolledBack()
	return c.Conn.Rollback(ctx, tx)
}
