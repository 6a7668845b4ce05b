package handlers

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/google/uuid"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/holdfasttest"
	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/limits"
	"github.com/holdfast-go/holdfast/sqllock"
)

// outcomes has outcomes that are taken for others.
func (p Program[Tx, R]) outcomes() []Case[Tx] {
	return []Case[Tx]{
		{"a limit released at an unknown outcome", func(ctx context.Context, kit *holdfasttest.Kit[Tx], b *Bank, key string) error {
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
		{"an answer before the commit", func(ctx context.Context, kit *holdfasttest.Kit[Tx], _ *Bank, key string) error {
			go func() {
				store, err := idempotency.New(ctx, kit.DB) // mistake: an answer before the commit
				if err == nil {
					_, _ = idempotency.Do(ctx, store, refundOp(kit, key), p.book)
				}
			}()
			return nil
		}, booked, false},
		{"check, then insert", func(ctx context.Context, kit *holdfasttest.Kit[Tx], _ *Bank, key string) error {
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
			_, err = idempotency.Do(ctx, store, op, p.book) // mistake: check, then insert
			return err
		}, booked, true},
		{"a goroutine that writes later", func(ctx context.Context, kit *holdfasttest.Kit[Tx], _ *Bank, key string) error {
			_, err := do(ctx, kit, refundOp(kit, key), p.book)
			if err == nil {
				go func() {
					_, _ = kit.Pool.ExecContext(ctx, p.SQL.Note) // mistake: a goroutine that writes later
				}()
			}
			return err
		}, bookedNote, false},
		{"a rejection treated as success", func(ctx context.Context, kit *holdfasttest.Kit[Tx], _ *Bank, key string) error {
			_, err := do(ctx, kit, refundOp(kit, key), func(ctx context.Context, tx Tx) (string, error) {
				if _, err := p.Exec(tx, ctx, insert); err != nil { // mistake: a rejection treated as success
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
	}
}

// names has keys, requests and steps that are other ones, or the same, than they should be.
func (p Program[Tx, R]) names() []Case[Tx] {
	return []Case[Tx]{
		{"a constant key", func(ctx context.Context, kit *holdfasttest.Kit[Tx], _ *Bank, _ string) error {
			store, err := idempotency.New(ctx, kit.DB)
			if err != nil {
				return err
			}
			_, err = idempotency.Do(ctx, store, refundOp(kit, "refund"), p.book) // mistake: a constant key
			return err
		}, booked, true},
		{"another owner", func(ctx context.Context, kit *holdfasttest.Kit[Tx], _ *Bank, key string) error {
			store, err := idempotency.New(ctx, kit.DB)
			if err != nil {
				return err
			}
			op := refundOp(kit, key)
			op.Owner = fmt.Sprint("connection ", time.Now().UnixNano())
			_, err = idempotency.Do(ctx, store, op, p.book) // mistake: another owner
			return err
		}, booked, false},
		{"a lease without a guard", func(ctx context.Context, kit *holdfasttest.Kit[Tx], _ *Bank, _ string) error {
			return underLease(ctx, kit, func(ctx context.Context, _ *sqllock.Locker[Tx], _ *sqllock.Lease) error {
				var before int
				if err := kit.Pool.QueryRowContext(ctx, `SELECT COUNT(*) FROM refunds`).Scan(&before); err != nil || before > 0 {
					return err
				}
				_, err := kit.Pool.ExecContext(ctx, insert) // mistake: a lease without a guard
				return err
			})
		}, booked, false},
		{"a loop around Do with a new key", func(ctx context.Context, kit *holdfasttest.Kit[Tx], _ *Bank, key string) error {
			store, err := idempotency.New(ctx, kit.DB)
			if err != nil {
				return err
			}
			for try := range 3 {
				_, err = idempotency.Do(ctx, store, refundOp(kit, fmt.Sprint(key, try)), p.book) // mistake: a loop around Do with a new key
				if err == nil {
					return nil
				}
			}
			return err
		}, booked, false},
		{"no key at all", func(ctx context.Context, kit *holdfasttest.Kit[Tx], _ *Bank, _ string) error {
			return kit.DB.InTx(ctx, func(ctx context.Context, tx Tx) error { // mistake: no key at all
				_, err := p.Exec(tx, ctx, insert)
				return err
			}, holdfast.TxOptions{})
		}, booked, false},
		{"the time in the request", func(ctx context.Context, kit *holdfasttest.Kit[Tx], _ *Bank, key string) error {
			store, err := idempotency.New(ctx, kit.DB)
			if err != nil {
				return err
			}
			op := refundOp(kit, key)
			op.Request = time.Now()
			_, err = idempotency.Do(ctx, store, op, p.book) // mistake: the time in the request
			return err
		}, booked, false},
		{"a step with a new name", func(ctx context.Context, kit *holdfasttest.Kit[Tx], b *Bank, key string) error {
			client := &http.Client{Transport: kit.Transport}
			return p.pay(ctx, kit, key, "book "+uuid.NewString(), func(ctx context.Context, key string) (string, error) {
				return reference(client.Do(b.request(ctx, key)))
			})
		}, paid, false},
	}
}
