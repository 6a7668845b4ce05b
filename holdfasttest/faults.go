package holdfasttest

import (
	"context"
	"errors"
	"sync"

	"github.com/holdfast-go/holdfast/holdfasttest/internal/everyfault"
	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/internal/core"
)

var errCommit = errors.New("holdfasttest: the connection was lost while COMMIT was under way")

// faults sits between Holdfast and the driver.
type faults struct {
	mu     sync.Mutex
	held   map[string]int // hashes of the keys that are in progress
	commit *bool          // lose the next COMMIT's answer; the value says whether to commit
	// blind are the reads that fail next. open has Holdfast's open transactions, each with the read
	// that would resolve its commit, once it has a claim.
	blind map[string]bool
	open  map[any]string
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

// statement returns the error to inject into one statement of a transaction, which may be nil.
func (f *faults) statement(ctx context.Context, args []any, tx any) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	key := ""
	if len(args) > 1 { // after the owner
		if hash, is := args[1].([]byte); is {
			key = string(hash)
		}
	}
	switch core.StatementName(ctx) {
	case "records.look", "row.look":
		if read := readOf(core.StatementName(ctx), key); f.blind[read] {
			delete(f.blind, read)
			return everyfault.ErrLook
		}
		return nil
	case "records.claim":
		key = readOf("records.look", key)
	case "row.claim":
		key = readOf("row.look", key)
	default:
		return nil
	}
	if _, own := f.open[tx]; own {
		f.open[tx] = key
	}
	if f.held[key] > 0 {
		return &idempotency.InProgressError{}
	}
	return nil
}

// readOf identifies a read of a record by its key. Reads of business rows are not told apart.
func readOf(statement, key string) string {
	if statement == "row.look" {
		return statement
	}
	return key
}

// next decides one COMMIT: nil means that it runs normally. If the transaction has a claim, the
// read that would resolve the commit fails too.
func (f *faults) next(tx any) *bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	committed := f.commit
	f.commit = nil
	if read := f.open[tx]; committed != nil && read != "" {
		if f.blind == nil {
			f.blind = map[string]bool{}
		}
		f.blind[read] = true
	}
	delete(f.open, tx)
	return committed
}

func (f *faults) began(tx any) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.open == nil {
		f.open = map[any]string{}
	}
	f.open[tx] = ""
}

func (f *faults) rolledBack(tx any) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.open, tx)
}

type adapter[Tx any] struct {
	core.Adapter[Tx]
	f *faults
}

func (a adapter[Tx]) Exec(ctx context.Context, query string, args ...any) (core.Result, error) {
	return querier{a.Adapter, a.f, nil}.Exec(ctx, query, args...)
}

func (a adapter[Tx]) Query(ctx context.Context, query string, args ...any) (core.Rows, error) {
	return querier{a.Adapter, a.f, nil}.Query(ctx, query, args...)
}

func (a adapter[Tx]) Join(tx Tx) (core.Querier, error) {
	q, err := a.Adapter.Join(tx)
	return querier{q, a.f, tx}, err
}

func (a adapter[Tx]) Acquire(ctx context.Context) (core.Conn[Tx], error) {
	c, err := a.Adapter.Acquire(ctx)
	if err != nil {
		return nil, err
	}
	return &conn[Tx]{Conn: c, f: a.f}, nil
}

type querier struct {
	q  core.Querier
	f  *faults
	tx any
}

func (q querier) Exec(ctx context.Context, query string, args ...any) (core.Result, error) {
	if err := q.f.statement(ctx, args, q.tx); err != nil {
		return core.Result{}, err
	}
	return q.q.Exec(ctx, query, args...)
}

func (q querier) Query(ctx context.Context, query string, args ...any) (core.Rows, error) {
	if err := q.f.statement(ctx, args, q.tx); err != nil {
		return nil, err
	}
	return q.q.Query(ctx, query, args...)
}

type conn[Tx any] struct {
	core.Conn[Tx]
	f *faults
}

func (c *conn[Tx]) Exec(ctx context.Context, query string, args ...any) (core.Result, error) {
	return querier{c.Conn, c.f, nil}.Exec(ctx, query, args...)
}

func (c *conn[Tx]) Query(ctx context.Context, query string, args ...any) (core.Rows, error) {
	return querier{c.Conn, c.f, nil}.Query(ctx, query, args...)
}

func (c *conn[Tx]) Begin(ctx context.Context, opts core.TxOptions) (Tx, error) {
	tx, err := c.Conn.Begin(ctx, opts)
	if err == nil {
		c.f.began(tx)
	}
	return tx, err
}

func (c *conn[Tx]) Commit(ctx context.Context, tx Tx) error {
	committed := c.f.next(tx)
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
	c.f.rolledBack(tx)
	return c.Conn.Rollback(ctx, tx)
}
