package refunds

import (
	"context"
	"database/sql"
	"net/http"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/idempotency"
)

type service struct {
	db    *holdfast.DB[*sql.Tx]
	store *idempotency.Store[*sql.Tx]
	pool  *sql.DB
	bank  *http.Client
}

func (s *service) calls(ctx context.Context, op idempotency.Op) error { // want calls:"outside: HTTP"
	_, _ = http.Get("https://bank.example/before") // outside of the transaction
	_, err := idempotency.Do(ctx, s.store, op, func(ctx context.Context, tx *sql.Tx) (int, error) {
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://bank.example", strings.NewReader(""))
		if err != nil {
			return 0, err
		}
		_, _ = s.bank.Do(req)                                       // want `HTTP call inside a transaction`
		_, _ = http.Post("https://bank.example", "text/plain", nil) // want `HTTP call inside a transaction`
		_, _ = http.DefaultTransport.RoundTrip(req)                 // want `HTTP call inside a transaction`
		func() { _, _ = s.bank.Get("https://bank.example") }()      // want `HTTP call inside a transaction`
		_, err = tx.ExecContext(ctx, `UPDATE orders SET refunded = 1`)
		return 1, err
	})
	return err
}

func (s *service) outer(ctx context.Context) error { // want outer:`outside: \*sql\.DB\.ExecContext`
	_, _ = s.pool.ExecContext(ctx, `SELECT 1`)
	return s.db.InTx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		s.pool.SetMaxOpenConns(1)
		_ = s.pool.Stats()
		rows, err := s.pool.QueryContext(ctx, `SELECT 1`) // want `\*sql\.DB\.QueryContext inside a transaction does not belong to it`
		_ = rows
		return err
	})
}

func (s *service) named(ctx context.Context) error {
	if err := s.db.InTx(ctx, s.book); err != nil {
		return err
	}
	return s.db.InTx(ctx, s.book) // the mistake is reported once
}

func (s *service) book(ctx context.Context, tx *sql.Tx) error { // want book:`outside: \*sql\.DB\.ExecContext`
	_, err := s.pool.ExecContext(ctx, `SELECT 1`) // want `\*sql\.DB\.ExecContext inside a transaction does not belong to it`
	return err
}

func keys(order, given string) []idempotency.Op {
	id := uuid.NewString()
	derived := "refund-" + id
	parsed, _ := uuid.Parse(given)
	changed := uuid.New().String()
	changed = given
	return []idempotency.Op{
		{Owner: "m", Key: idempotency.KeyOf(order, "1")},
		{Key: given},
		{Key: parsed.String()},
		{Key: changed},
		{Owner: id},
		{Key: uuid.New().String()}, // want `the idempotency key is new at each call \(uuid\.New\)`
		{Key: derived},             // want `the idempotency key is new at each call \(uuid\.NewString\)`
		{Key: idempotency.KeyOf(order, time.Now().String())}, // want `the idempotency key is new at each call \(time\.Now\)`
	}
}
