package holdfasttest_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/holdfasttest"
	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/idempotency/staged"
	"github.com/holdfast-go/holdfast/internal/test/dbtest"
	"github.com/holdfast-go/holdfast/limits"
	"github.com/holdfast-go/holdfast/sqllock"
)

type sqlKit = holdfasttest.Kit[*sql.Tx]

// bank is a payment provider, which honours keys.
type bank struct {
	url  string
	mu   sync.Mutex
	keys map[string]bool
	paid int
}

func newBank(t *testing.T) *bank {
	t.Helper()
	b := &bank{}
	server := httptest.NewServer(b)
	t.Cleanup(server.Close)
	b.url = server.URL
	return b
}

func (b *bank) reset() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.keys, b.paid = map[string]bool{}, 0
}

func (b *bank) payments() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.paid
}

func (b *bank) ServeHTTP(w http.ResponseWriter, r *http.Request) {
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
func (b *bank) request(ctx context.Context, key string) *http.Request {
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

const longUnderRace = "TestRefundSurvivesEveryFault has the same memory, in less time"

// handler is a handler under test, with a bank.
type handler func(ctx context.Context, kit *sqlKit, b *bank, key string) error

const (
	insert = `INSERT INTO refunds (order_no) VALUES ('A')`
	tables = `CREATE TABLE refunds (order_no TEXT); CREATE TABLE notes (id TEXT PRIMARY KEY)`
)

// exactly is the invariant: so many rows, and so many payments.
func exactly(rows, notes, payments int) func(context.Context, *sqlKit, *bank) error {
	return func(ctx context.Context, kit *sqlKit, b *bank) error {
		var r, n int
		if err := kit.Pool.QueryRowContext(ctx, `SELECT (SELECT COUNT(*) FROM refunds), (SELECT COUNT(*) FROM notes)`).Scan(&r, &n); err != nil {
			return err
		}
		if p := b.payments(); r != rows || n != notes || p != payments {
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

// everyFault tests a handler.
func everyFault(t *testing.T, tb holdfasttest.TB, call handler, invariant func(context.Context, *sqlKit, *bank) error, otherKeyRefused bool) int {
	t.Helper()
	b := newBank(t)
	return holdfasttest.EveryFault(tb, holdfasttest.Handler{
		Setup:           func(ctx context.Context, kit *sqlKit) error { return setup(ctx, kit, b) },
		Call:            func(ctx context.Context, kit *sqlKit, key string) error { return call(ctx, kit, b, key) },
		Invariant:       func(ctx context.Context, kit *sqlKit) error { return invariant(ctx, kit, b) },
		OtherKeyRefused: otherKeyRefused,
	})
}

func setup(ctx context.Context, kit *sqlKit, b *bank) error {
	b.reset()
	if _, err := kit.Pool.ExecContext(ctx, tables); err != nil {
		return err
	}
	refundable, err := limits.New(ctx, kit.DB, "refundable")
	if err != nil {
		return err
	}
	_, err = refundable.For(kit.Owner).Set(ctx, "A", 100)
	return err
}

func refundOp(kit *sqlKit, key string) idempotency.Op {
	return idempotency.Op{Owner: kit.Owner, Name: "refund", Key: key, Request: "A"}
}

// do runs fn for key.
func do(ctx context.Context, kit *sqlKit, op idempotency.Op, fn func(ctx context.Context, tx *sql.Tx) (string, error)) (idempotency.Outcome, error) {
	store, err := idempotency.New(ctx, kit.DB)
	if err != nil {
		return 0, err
	}
	r, err := idempotency.Do(ctx, store, op, fn)
	return r.Outcome, err
}

func book(ctx context.Context, tx *sql.Tx) (string, error) {
	_, err := tx.ExecContext(ctx, insert)
	return "refunded", err
}

// pay is a staged refund with a call, and a name for its first step.
func pay(ctx context.Context, kit *sqlKit, key, first string, call func(ctx context.Context, key string) (string, error)) error {
	store, err := idempotency.New(ctx, kit.DB)
	if err != nil {
		return err
	}
	refunds, err := staged.New(store, staged.Workflow[string, string, *sql.Tx]{
		Name: "refund",
		Run: func(ctx context.Context, r *staged.Run[*sql.Tx], _ string) (string, error) {
			if _, err := staged.Local(ctx, r, first, book); err != nil { // mistake: a step with a new name
				return "", err
			}
			ref, err := staged.Call(ctx, r, staged.ExternalCall[string]{Step: "pay", OnLeaseEnd: staged.TakeOver}, call)
			if err != nil {
				return "", err
			}
			return staged.Local(ctx, r, "close", func(ctx context.Context, tx *sql.Tx) (string, error) {
				_, err := tx.ExecContext(ctx, `UPDATE refunds SET order_no = order_no || ?`, ref)
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

// The handlers that are right: EveryFault is silent.
var right = []struct {
	name            string
	call            handler
	invariant       func(context.Context, *sqlKit, *bank) error
	otherKeyRefused bool
}{
	{"plain refund", func(ctx context.Context, kit *sqlKit, _ *bank, key string) error {
		_, err := do(ctx, kit, refundOp(kit, key), book)
		return err
	}, booked, false},
	{"staged refund with provider", func(ctx context.Context, kit *sqlKit, b *bank, key string) error {
		client := &http.Client{Transport: kit.Transport}
		return pay(ctx, kit, key, "book", func(ctx context.Context, key string) (string, error) {
			return reference(client.Do(b.request(ctx, key)))
		})
	}, paid, false},
	{"limits", func(ctx context.Context, kit *sqlKit, _ *bank, key string) error {
		refundable, err := limits.New(ctx, kit.DB, "refundable")
		if err != nil {
			return err
		}
		_, err = do(ctx, kit, refundOp(kit, key), func(ctx context.Context, tx *sql.Tx) (string, error) {
			_, err := refundable.For(kit.Owner).TakeTx(ctx, tx, limits.Request{Key: "A", ID: key, Amount: 100})
			if errors.Is(err, limits.ErrExceeded) {
				return "", idempotency.Reject("over_refund", "more than was paid")
			}
			if err != nil {
				return "", err
			}
			return book(ctx, tx)
		})
		return err
	}, booked, true},
	{"lease with guard", func(ctx context.Context, kit *sqlKit, _ *bank, _ string) error {
		return underLease(ctx, kit, func(ctx context.Context, locker *sqllock.Locker[*sql.Tx], lease *sqllock.Lease) error {
			return locker.InTx(ctx, lease, func(ctx context.Context, tx *sql.Tx) error {
				_, err := tx.ExecContext(ctx, `INSERT INTO refunds (order_no) SELECT 'A' WHERE NOT EXISTS (SELECT 1 FROM refunds)`)
				return err
			})
		})
	}, booked, false},
}

// underLease runs fn with the lease of the order.
func underLease(ctx context.Context, kit *sqlKit, fn func(context.Context, *sqllock.Locker[*sql.Tx], *sqllock.Lease) error) error {
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

func TestEveryFaultOfRightHandlers(t *testing.T) {
	dbtest.NotUnderRace(t, longUnderRace)
	t.Parallel()
	for _, c := range right {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			start := time.Now()
			n := everyFault(t, t, c.call, c.invariant, c.otherKeyRefused)
			t.Logf("%d points, %v", n, time.Since(start))
		})
	}
}

// The mistakes. EveryFault must name the line that ends with the mistake's name.
var mistakes = []struct {
	name            string
	call            handler
	invariant       func(context.Context, *sqlKit, *bank) error
	otherKeyRefused bool
}{
	{"a call inside the transaction", func(ctx context.Context, kit *sqlKit, b *bank, key string) error {
		client := &http.Client{Transport: kit.Transport}
		_, err := do(ctx, kit, refundOp(kit, key), func(ctx context.Context, tx *sql.Tx) (string, error) {
			ref, err := reference(client.Do(b.request(ctx, ""))) // mistake: a call inside the transaction
			if err != nil {
				return "", err
			}
			_, err = book(ctx, tx)
			return ref, err
		})
		return err
	}, paid, false},
	{"a call before Do", func(ctx context.Context, kit *sqlKit, b *bank, key string) error {
		client := &http.Client{Transport: kit.Transport}
		if _, err := reference(client.Do(b.request(ctx, ""))); err != nil { // mistake: a call before Do
			return err
		}
		_, err := do(ctx, kit, refundOp(kit, key), book)
		return err
	}, paid, false},
	{"a swallowed error", func(ctx context.Context, kit *sqlKit, _ *bank, key string) error {
		_, err := do(ctx, kit, refundOp(kit, key), func(ctx context.Context, tx *sql.Tx) (string, error) {
			_, _ = tx.ExecContext(ctx, insert) // mistake: a swallowed error
			return "refunded", nil
		})
		return err
	}, booked, false},
	{"a fresh UUID in the retry", func(ctx context.Context, kit *sqlKit, b *bank, key string) error {
		client := &http.Client{Transport: kit.Transport}
		return pay(ctx, kit, key, "book", func(ctx context.Context, _ string) (string, error) {
			return reference(client.Do(b.request(ctx, uuid.NewString()))) // mistake: a fresh UUID in the retry
		})
	}, paid, false},
	{"a call without an idempotency key", func(ctx context.Context, kit *sqlKit, b *bank, key string) error {
		client := &http.Client{Transport: kit.Transport}
		return pay(ctx, kit, key, "book", func(ctx context.Context, _ string) (string, error) {
			return reference(client.Do(b.request(ctx, ""))) // mistake: a call without an idempotency key
		})
	}, paid, false},
	{"a second connection beside the transaction", func(ctx context.Context, kit *sqlKit, _ *bank, key string) error {
		_, err := do(ctx, kit, refundOp(kit, key), func(ctx context.Context, _ *sql.Tx) (string, error) {
			_, err := kit.Pool.ExecContext(ctx, insert) // mistake: a second connection beside the transaction
			return "refunded", err
		})
		return err
	}, booked, false},
	{"a write before Do", func(ctx context.Context, kit *sqlKit, _ *bank, key string) error {
		if _, err := kit.Pool.ExecContext(ctx, insert); err != nil { // mistake: a write before Do
			return err
		}
		_, err := do(ctx, kit, refundOp(kit, key), func(context.Context, *sql.Tx) (string, error) { return "refunded", nil })
		return err
	}, booked, false},
	{"a write after Do", func(ctx context.Context, kit *sqlKit, _ *bank, key string) error {
		store, err := idempotency.New(ctx, kit.DB)
		if err != nil {
			return err
		}
		r, err := idempotency.Do(ctx, store, refundOp(kit, key), book) // mistake: a write after Do
		if err == nil && r.Outcome == idempotency.Executed {
			_, err = kit.Pool.ExecContext(ctx, `INSERT INTO notes VALUES ('mail')`)
		}
		return err
	}, bookedNote, false},
	{"a COMMIT by hand", func(ctx context.Context, kit *sqlKit, _ *bank, key string) error {
		_, err := do(ctx, kit, refundOp(kit, key), func(ctx context.Context, tx *sql.Tx) (string, error) {
			if _, err := book(ctx, tx); err != nil {
				return "", err
			}
			return "refunded", tx.Commit() // mistake: a COMMIT by hand
		})
		return err
	}, booked, false},
	{"an ignored error of COMMIT", func(ctx context.Context, kit *sqlKit, _ *bank, key string) error {
		store, err := idempotency.New(ctx, kit.DB)
		if err != nil {
			return err
		}
		tx, err := kit.Pool.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer func() { _ = tx.Rollback() }()
		if _, err := idempotency.DoTx(ctx, store, tx, refundOp(kit, key), book); err != nil {
			return err
		}
		_ = tx.Commit() // mistake: an ignored error of COMMIT
		return nil
	}, booked, false},
	{"an unknown call treated as failure", func(ctx context.Context, kit *sqlKit, b *bank, key string) error {
		client := &http.Client{Transport: kit.Transport}
		return pay(ctx, kit, key, "book", func(ctx context.Context, key string) (string, error) {
			ref, err := reference(client.Do(b.request(ctx, key))) // mistake: an unknown call treated as failure
			if err != nil {
				return "", idempotency.Reject("bank_failed", err.Error())
			}
			return ref, nil
		})
	}, paid, false},
	{"an unknown COMMIT treated as failure", func(ctx context.Context, kit *sqlKit, _ *bank, key string) error {
		store, err := idempotency.New(ctx, kit.DB)
		if err != nil {
			return err
		}
		_, err = idempotency.Do(ctx, store, refundOp(kit, key), book) // mistake: an unknown COMMIT treated as failure
		if errors.Is(err, idempotency.ErrUnknown) {
			return idempotency.Reject("failed", "the refund has failed")
		}
		return err
	}, booked, false},
	{"a limit released at an unknown outcome", func(ctx context.Context, kit *sqlKit, b *bank, key string) error {
		client := &http.Client{Transport: kit.Transport}
		all, err := limits.New(ctx, kit.DB, "refundable")
		if err != nil {
			return err
		}
		refundable, amount := all.For(kit.Owner), limits.Request{Key: "A", ID: key, Amount: 100}
		if _, err := refundable.Reserve(ctx, amount); err != nil {
			return err
		}
		if _, err := reference(client.Do(b.request(ctx, key))); err != nil { // mistake: a limit released at an unknown outcome
			_, _ = refundable.Void(ctx, amount)
			return idempotency.Reject("bank_failed", err.Error())
		}
		_, err = refundable.Capture(ctx, amount)
		return err
	}, exactly(0, 0, 1), true},
	{"an answer before the commit", func(ctx context.Context, kit *sqlKit, _ *bank, key string) error {
		go func() {
			store, err := idempotency.New(ctx, kit.DB) // mistake: an answer before the commit
			if err == nil {
				_, _ = idempotency.Do(ctx, store, refundOp(kit, key), book)
			}
		}()
		return nil
	}, booked, false},
	{"check, then insert", func(ctx context.Context, kit *sqlKit, _ *bank, key string) error {
		store, err := idempotency.New(ctx, kit.DB)
		if err != nil {
			return err
		}
		op := refundOp(kit, key)
		if found, err := idempotency.Lookup[string](ctx, store, op); err == nil && found.State == idempotency.StateSucceeded {
			return nil
		}
		var before int
		if err := kit.Pool.QueryRowContext(ctx, `SELECT COUNT(*) FROM refunds`).Scan(&before); err != nil || before > 0 {
			return errors.Join(err, errors.New("refunded already"))
		}
		_, err = idempotency.Do(ctx, store, op, book) // mistake: check, then insert
		return err
	}, booked, true},
	{"a goroutine that writes later", func(ctx context.Context, kit *sqlKit, _ *bank, key string) error {
		_, err := do(ctx, kit, refundOp(kit, key), book)
		if err == nil {
			go func() {
				_, _ = kit.Pool.ExecContext(ctx, `INSERT OR IGNORE INTO notes VALUES ('mail')`) // mistake: a goroutine that writes later
			}()
		}
		return err
	}, bookedNote, false},
	{"a rejection treated as success", func(ctx context.Context, kit *sqlKit, _ *bank, key string) error {
		_, err := do(ctx, kit, refundOp(kit, key), func(ctx context.Context, tx *sql.Tx) (string, error) {
			if _, err := tx.ExecContext(ctx, insert); err != nil { // mistake: a rejection treated as success
				return "", idempotency.Reject("duplicate", "it was there")
			}
			return "refunded", nil
		})
		var no *idempotency.Rejection
		if errors.As(err, &no) {
			return nil
		}
		return err
	}, booked, false},
	{"a constant key", func(ctx context.Context, kit *sqlKit, _ *bank, _ string) error {
		store, err := idempotency.New(ctx, kit.DB)
		if err != nil {
			return err
		}
		_, err = idempotency.Do(ctx, store, refundOp(kit, "refund"), book) // mistake: a constant key
		return err
	}, booked, true},
	{"another owner", func(ctx context.Context, kit *sqlKit, _ *bank, key string) error {
		store, err := idempotency.New(ctx, kit.DB)
		if err != nil {
			return err
		}
		op := refundOp(kit, key)
		op.Owner = fmt.Sprint("connection ", time.Now().UnixNano())
		_, err = idempotency.Do(ctx, store, op, book) // mistake: another owner
		return err
	}, booked, false},
	{"a lease without a guard", func(ctx context.Context, kit *sqlKit, _ *bank, _ string) error {
		return underLease(ctx, kit, func(ctx context.Context, _ *sqllock.Locker[*sql.Tx], _ *sqllock.Lease) error {
			var before int
			if err := kit.Pool.QueryRowContext(ctx, `SELECT COUNT(*) FROM refunds`).Scan(&before); err != nil || before > 0 {
				return err
			}
			_, err := kit.Pool.ExecContext(ctx, insert) // mistake: a lease without a guard
			return err
		})
	}, booked, false},
	{"a loop around Do with a new key", func(ctx context.Context, kit *sqlKit, _ *bank, key string) error {
		store, err := idempotency.New(ctx, kit.DB)
		if err != nil {
			return err
		}
		for try := range 3 {
			_, err = idempotency.Do(ctx, store, refundOp(kit, fmt.Sprint(key, try)), book) // mistake: a loop around Do with a new key
			if err == nil {
				return nil
			}
		}
		return err
	}, booked, false},
	{"no key at all", func(ctx context.Context, kit *sqlKit, _ *bank, _ string) error {
		return kit.DB.InTx(ctx, func(ctx context.Context, tx *sql.Tx) error { // mistake: no key at all
			_, err := tx.ExecContext(ctx, insert)
			return err
		}, holdfast.TxOptions{})
	}, booked, false},
	{"the time in the request", func(ctx context.Context, kit *sqlKit, _ *bank, key string) error {
		store, err := idempotency.New(ctx, kit.DB)
		if err != nil {
			return err
		}
		op := refundOp(kit, key)
		op.Request = time.Now()
		_, err = idempotency.Do(ctx, store, op, book) // mistake: the time in the request
		return err
	}, booked, false},
	{"a step with a new name", func(ctx context.Context, kit *sqlKit, b *bank, key string) error {
		client := &http.Client{Transport: kit.Transport}
		return pay(ctx, kit, key, "book "+uuid.NewString(), func(ctx context.Context, key string) (string, error) {
			return reference(client.Do(b.request(ctx, key)))
		})
	}, paid, false},
}

// TestEveryFaultCountsPoints compares the number of points with what Holdfast's observers, the program and
// the bank count in a call.
func TestEveryFaultCountsPoints(t *testing.T) {
	dbtest.NotUnderRace(t, longUnderRace)
	t.Parallel()
	for _, c := range right {
		own, is := map[string]int{"plain refund": 1, "staged refund with provider": 2, "limits": 1}[c.name] // statements of the program
		if !is {
			continue // its lease is renewed in the background
		}
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			b := newBank(t)
			var mu sync.Mutex
			counts, counted := false, 0
			observe := func(_ context.Context, s holdfast.Statement) {
				mu.Lock()
				defer mu.Unlock()
				if counts && s.Name != "begin" && s.Name != "rollback" {
					counted++
				}
			}
			calls := 0
			got := holdfasttest.EveryFault(t, holdfasttest.Handler{
				Setup: func(ctx context.Context, kit *sqlKit) error { return setup(ctx, kit, b) },
				Call: func(ctx context.Context, kit *sqlKit, key string) error {
					mu.Lock()
					calls++
					counts = calls == 1
					mu.Unlock()
					err := c.call(ctx, kit, b, key)
					mu.Lock()
					if counts {
						counted += b.payments()
					}
					counts = false
					mu.Unlock()
					return err
				},
				Invariant: func(context.Context, *sqlKit) error { return nil },
			}, holdfast.Options{Observers: []holdfast.Observer{observe}})
			if want := counted + own; got != want {
				t.Errorf("%d points, and %d were counted", got, want)
			}
		})
	}
}

// failing records that EveryFault has ended a test.
type failing struct {
	*testing.T
	said string
}

func (f *failing) Fatalf(format string, args ...any) {
	f.said = fmt.Sprintf(format, args...)
	runtime.Goexit()
}

func TestEveryFaultFindsMistakes(t *testing.T) {
	dbtest.NotUnderRace(t, longUnderRace)
	t.Parallel()
	source, err := os.ReadFile("everyfault_test.go")
	if err != nil {
		t.Fatal(err)
	}
	lines := map[string]int{}
	for n, line := range strings.Split(string(source), "\n") {
		if _, name, is := strings.Cut(line, "// mistake: "); is {
			lines[name] = n + 1
		}
	}
	for _, c := range mistakes {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			start := time.Now()
			tb := &failing{T: t}
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				everyFault(t, tb, c.call, c.invariant, c.otherKeyRefused)
			}()
			<-ended
			want := fmt.Sprintf("everyfault_test.go:%d:", lines[c.name])
			if lines[c.name] == 0 || !strings.Contains(tb.said, want) {
				t.Errorf("%q, want %s", tb.said, want)
			}
			t.Logf("%v: %s", time.Since(start), tb.said)
		})
	}
}
