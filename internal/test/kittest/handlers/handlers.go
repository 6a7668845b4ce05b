// Package handlers contains handlers of programs, right ones and mistakes, for the tests of EveryFault on every
// engine. Its lines are the program's: kittest, which runs them, is not.
package handlers

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/holdfast-go/holdfast/holdfasttest"
	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/idempotency/staged"
	"github.com/holdfast-go/holdfast/limits"
	"github.com/holdfast-go/holdfast/sqllock"
)

// Program says how a program on one driver, whose transactions are Tx, runs statements, with results R.
type Program[Tx, R any] struct {
	Exec     func(tx Tx, ctx context.Context, query string, args ...any) (R, error)
	Begin    func(ctx context.Context, kit *holdfasttest.Kit[Tx]) (Tx, error)
	Commit   func(ctx context.Context, tx Tx) error
	Rollback func(ctx context.Context, tx Tx) error
	SQL      SQL
}

// SQL is what differs between the engines.
type SQL struct {
	Tables []string // refunds (order_no), and notes with a key
	Note   string   // inserts the note 'mail' unless it is there
	Append string   // appends an argument to order_no
	Once   string   // inserts the refund 'A' unless there is one
	// Fails: an error ends the transaction, so that a COMMIT is refused, and one that is swallowed is no mistake.
	Fails bool
	// Commits: a function can commit Holdfast's transaction, which Do finds afterwards.
	Commits bool
}

// SQL of the engines.
var (
	SQLite = SQL{
		Tables: []string{`CREATE TABLE refunds (order_no TEXT)`, `CREATE TABLE notes (id TEXT PRIMARY KEY)`},
		Note:   `INSERT OR IGNORE INTO notes VALUES ('mail')`,
		Append: `UPDATE refunds SET order_no = order_no || ?`,
		Once:   `INSERT INTO refunds (order_no) SELECT 'A' WHERE NOT EXISTS (SELECT 1 FROM refunds)`,
	}
	Postgres = SQL{
		Tables: SQLite.Tables,
		Note:   `INSERT INTO notes VALUES ('mail') ON CONFLICT DO NOTHING`,
		Append: `UPDATE refunds SET order_no = order_no || $1::text`,
		Once:   SQLite.Once,
		Fails:  true, Commits: true,
	}
	MySQL = SQL{ // and MariaDB
		Tables:  []string{`CREATE TABLE refunds (order_no VARCHAR(100))`, `CREATE TABLE notes (id VARCHAR(100) PRIMARY KEY)`},
		Note:    `INSERT IGNORE INTO notes VALUES ('mail')`,
		Append:  `UPDATE refunds SET order_no = CONCAT(order_no, ?)`,
		Once:    `INSERT INTO refunds (order_no) SELECT 'A' FROM DUAL WHERE NOT EXISTS (SELECT 1 FROM refunds)`,
		Commits: true,
	}
)

// Case is a handler under test. EveryFault must name the line that ends with the name of a mistake.
type Case[Tx any] struct {
	Name            string
	Call            func(ctx context.Context, kit *holdfasttest.Kit[Tx], b *Bank, key string) error
	Invariant       func(ctx context.Context, pool *sql.DB, b *Bank) error
	OtherKeyRefused bool
}

//go:embed *.go
var sources embed.FS

// Line returns file:line of a mistake, or "".
func Line(mistake string) string {
	for _, file := range []string{"handlers.go", "mistakes.go", "misused.go"} {
		text, _ := sources.ReadFile(file)
		for n, line := range strings.Split(string(text), "\n") {
			if _, name, is := strings.Cut(line, "// mistake: "); is && name == mistake {
				return fmt.Sprintf("/%s:%d:", file, n+1)
			}
		}
	}
	return ""
}

// Bank is a payment provider, which honours keys.
type Bank struct {
	url  string
	mu   sync.Mutex
	keys map[string]bool
	paid int
}

// NewBank starts a bank, for a test.
func NewBank(t *testing.T) *Bank {
	t.Helper()
	b := &Bank{}
	server := httptest.NewServer(b)
	t.Cleanup(server.Close)
	b.url = server.URL
	return b
}

func (b *Bank) reset() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.keys, b.paid = map[string]bool{}, 0
}

// Payments counts them.
func (b *Bank) Payments() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.paid
}

// ServeHTTP implements http.Handler.
func (b *Bank) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	b.mu.Lock()
	defer b.mu.Unlock()
	key := r.Header.Get("Idempotency-Key")
	if key == "" || !b.keys[key] {
		b.keys[key] = true
		b.paid++
	}
	_, _ = io.WriteString(w, "re_42")
}

// request is the request of a refund at b; key may be empty.
func (b *Bank) request(ctx context.Context, key string) *http.Request {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, b.url+"/refunds", nil)
	if err != nil {
		panic(err)
	}
	if key != "" {
		r.Header.Set("Idempotency-Key", key)
	}
	return r
}

// reference reads the answer to a request, as in reference(client.Do(request)).
func reference(answer *http.Response, err error) (string, error) {
	if err != nil {
		return "", err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	return string(text), err
}

const insert = `INSERT INTO refunds (order_no) VALUES ('A')`

// exactly is the invariant: so many rows, and so many payments.
func exactly(rows, notes, payments int) func(context.Context, *sql.DB, *Bank) error {
	return func(ctx context.Context, pool *sql.DB, b *Bank) error {
		var r, n int
		if err := pool.QueryRowContext(ctx, `SELECT (SELECT COUNT(*) FROM refunds), (SELECT COUNT(*) FROM notes)`).Scan(&r, &n); err != nil {
			return err
		}
		if p := b.Payments(); r != rows || n != notes || p != payments {
			return fmt.Errorf("%d refunds, %d notes and %d payments, want %d, %d and %d", r, n, p, rows, notes, payments)
		}
		return nil
	}
}

var (
	booked     = exactly(1, 0, 0)
	paid       = exactly(1, 0, 1)
	bookedNote = exactly(1, 1, 0)
)

// Setup makes the tables of the cases.
func (p Program[Tx, R]) Setup(ctx context.Context, kit *holdfasttest.Kit[Tx], b *Bank) error {
	b.reset()
	for _, table := range p.SQL.Tables {
		if _, err := kit.Pool.ExecContext(ctx, table); err != nil {
			return err
		}
	}
	refundable, err := limits.New(ctx, kit.DB, "refundable")
	if err != nil {
		return err
	}
	_, err = refundable.For(kit.Owner).Set(ctx, "A", 100)
	return err
}

func refundOp[Tx any](kit *holdfasttest.Kit[Tx], key string) idempotency.Op {
	return idempotency.Op{Owner: kit.Owner, Name: "refund", Key: key, Request: "A"}
}

// do runs fn for key.
func do[Tx any](ctx context.Context, kit *holdfasttest.Kit[Tx], op idempotency.Op, fn func(ctx context.Context, tx Tx) (string, error)) (idempotency.Outcome, error) {
	store, err := idempotency.New(ctx, kit.DB)
	if err != nil {
		return 0, err
	}
	r, err := idempotency.Do(ctx, store, op, fn)
	return r.Outcome, err
}

func (p Program[Tx, R]) book(ctx context.Context, tx Tx) (string, error) {
	_, err := p.Exec(tx, ctx, insert)
	return "refunded", err
}

// pay is a staged refund with a call, and a name for its first step.
func (p Program[Tx, R]) pay(ctx context.Context, kit *holdfasttest.Kit[Tx], key, first string, call func(ctx context.Context, key string) (string, error)) error {
	store, err := idempotency.New(ctx, kit.DB)
	if err != nil {
		return err
	}
	refunds, err := staged.New(store, staged.Workflow[string, string, Tx]{
		Name: "refund",
		Run: func(ctx context.Context, r *staged.Run[Tx], _ string) (string, error) {
			if _, err := staged.Local(ctx, r, first, p.book); err != nil { // mistake: a step with a new name
				return "", err
			}
			ref, err := staged.Call(ctx, r, staged.ExternalCall[string]{Step: "pay", OnLeaseEnd: staged.TakeOver}, call)
			if err != nil {
				return "", err
			}
			return staged.Local(ctx, r, "close", func(ctx context.Context, tx Tx) (string, error) {
				_, err := p.Exec(tx, ctx, p.SQL.Append, ref)
				return ref, err
			})
		},
	})
	if err != nil {
		return err
	}
	op := refundOp(kit, key)
	op.Request = nil
	_, err = refunds.Do(ctx, op, "A")
	return err
}

// underLease runs fn with the lease of the order.
func underLease[Tx any](ctx context.Context, kit *holdfasttest.Kit[Tx], fn func(context.Context, *sqllock.Locker[Tx], *sqllock.Lease) error) error {
	all, err := sqllock.New(ctx, kit.DB)
	if err != nil {
		return err
	}
	defer func() { _ = all.Close(context.WithoutCancel(ctx)) }()
	locker := all.For(kit.Owner)
	lease, err := locker.Acquire(ctx, "A")
	if err != nil {
		return err
	}
	return errors.Join(fn(ctx, locker, lease), lease.Release(ctx))
}

// Right returns the handlers that are right: EveryFault is silent.
func (p Program[Tx, R]) Right() []Case[Tx] {
	right := []Case[Tx]{
		{"plain refund", func(ctx context.Context, kit *holdfasttest.Kit[Tx], _ *Bank, key string) error {
			_, err := do(ctx, kit, refundOp(kit, key), p.book)
			return err
		}, booked, false},
		{"staged refund with provider", func(ctx context.Context, kit *holdfasttest.Kit[Tx], b *Bank, key string) error {
			client := &http.Client{Transport: kit.Transport}
			return p.pay(ctx, kit, key, "book", func(ctx context.Context, key string) (string, error) {
				return reference(client.Do(b.request(ctx, key)))
			})
		}, paid, false},
		{"limits", func(ctx context.Context, kit *holdfasttest.Kit[Tx], _ *Bank, key string) error {
			refundable, err := limits.New(ctx, kit.DB, "refundable")
			if err != nil {
				return err
			}
			_, err = do(ctx, kit, refundOp(kit, key), func(ctx context.Context, tx Tx) (string, error) {
				_, err := refundable.For(kit.Owner).TakeTx(ctx, tx, limits.Request{Key: "A", ID: key, Amount: 100})
				if errors.Is(err, limits.ErrExceeded) {
					return "", idempotency.Reject("over_refund", "more than was paid")
				}
				if err != nil {
					return "", err
				}
				return p.book(ctx, tx)
			})
			return err
		}, booked, true},
		{"lease with guard", func(ctx context.Context, kit *holdfasttest.Kit[Tx], _ *Bank, _ string) error {
			return underLease(ctx, kit, func(ctx context.Context, locker *sqllock.Locker[Tx], lease *sqllock.Lease) error {
				return locker.InTx(ctx, lease, func(ctx context.Context, tx Tx) error {
					_, err := p.Exec(tx, ctx, p.SQL.Once)
					return err
				})
			})
		}, booked, false},
	}
	if p.SQL.Fails {
		right = append(right, p.swallowed())
	}
	return right
}
