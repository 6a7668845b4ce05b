package handlers

import (
	"context"
	"errors"
	"net/http"
	"slices"

	"github.com/google/uuid"

	"github.com/holdfast-go/holdfast/holdfasttest"
	"github.com/holdfast-go/holdfast/idempotency"
)

// Mistakes returns the handlers with a mistake.
func (p Program[Tx, R]) Mistakes() []Case[Tx] {
	all := append(slices.Concat(p.order(), p.outcomes(), p.names()), p.ignored())
	if !p.SQL.Fails {
		all = append(all, p.swallowed())
	}
	return all
}

func (p Program[Tx, R]) swallowed() Case[Tx] {
	return Case[Tx]{"a swallowed error", func(ctx context.Context, kit *holdfasttest.Kit[Tx], _ *Bank, key string) error {
		_, err := do(ctx, kit, refundOp(kit, key), func(ctx context.Context, tx Tx) (string, error) {
			_, _ = p.Exec(tx, ctx, insert) // mistake: a swallowed error
			return "refunded", nil
		})
		return err
	}, booked, false}
}

func (p Program[Tx, R]) ignored() Case[Tx] {
	return Case[Tx]{"an ignored error of COMMIT", func(ctx context.Context, kit *holdfasttest.Kit[Tx], _ *Bank, key string) error {
		store, err := idempotency.New(ctx, kit.DB)
		if err != nil {
			return err
		}
		tx, err := p.Begin(ctx, kit)
		if err != nil {
			return err
		}
		defer func() { _ = p.Rollback(ctx, tx) }()
		if _, err := idempotency.DoTx(ctx, store, tx, refundOp(kit, key), p.book); err != nil {
			return err
		}
		_ = p.Commit(ctx, tx) // mistake: an ignored error of COMMIT
		return nil
	}, booked, false}
}

// order has what comes too early, too late or outside of the transaction.
func (p Program[Tx, R]) order() []Case[Tx] {
	return []Case[Tx]{
		{"a call inside the transaction", func(ctx context.Context, kit *holdfasttest.Kit[Tx], b *Bank, key string) error {
			client := &http.Client{Transport: kit.Transport}
			_, err := do(ctx, kit, refundOp(kit, key), func(ctx context.Context, tx Tx) (string, error) {
				ref, err := reference(client.Do(b.request(ctx, ""))) // mistake: a call inside the transaction
				if err != nil {
					return "", err
				}
				_, err = p.book(ctx, tx)
				return ref, err
			})
			return err
		}, paid, false},
		{"a call before Do", func(ctx context.Context, kit *holdfasttest.Kit[Tx], b *Bank, key string) error {
			client := &http.Client{Transport: kit.Transport}
			if _, err := reference(client.Do(b.request(ctx, ""))); err != nil { // mistake: a call before Do
				return err
			}
			_, err := do(ctx, kit, refundOp(kit, key), p.book)
			return err
		}, paid, false},
		{"a fresh UUID in the retry", func(ctx context.Context, kit *holdfasttest.Kit[Tx], b *Bank, key string) error {
			client := &http.Client{Transport: kit.Transport}
			return p.pay(ctx, kit, key, "book", func(ctx context.Context, _ string) (string, error) {
				return reference(client.Do(b.request(ctx, uuid.NewString()))) // mistake: a fresh UUID in the retry
			})
		}, paid, false},
		{"a call without an idempotency key", func(ctx context.Context, kit *holdfasttest.Kit[Tx], b *Bank, key string) error {
			client := &http.Client{Transport: kit.Transport}
			return p.pay(ctx, kit, key, "book", func(ctx context.Context, _ string) (string, error) {
				return reference(client.Do(b.request(ctx, ""))) // mistake: a call without an idempotency key
			})
		}, paid, false},
		{"a second connection beside the transaction", func(ctx context.Context, kit *holdfasttest.Kit[Tx], _ *Bank, key string) error {
			_, err := do(ctx, kit, refundOp(kit, key), func(ctx context.Context, _ Tx) (string, error) {
				_, err := kit.Pool.ExecContext(ctx, insert) // mistake: a second connection beside the transaction
				return "refunded", err
			})
			return err
		}, booked, false},
		{"a write before Do", func(ctx context.Context, kit *holdfasttest.Kit[Tx], _ *Bank, key string) error {
			if _, err := kit.Pool.ExecContext(ctx, insert); err != nil { // mistake: a write before Do
				return err
			}
			_, err := do(ctx, kit, refundOp(kit, key), func(context.Context, Tx) (string, error) { return "refunded", nil })
			return err
		}, booked, false},
		{"a write after Do", func(ctx context.Context, kit *holdfasttest.Kit[Tx], _ *Bank, key string) error {
			store, err := idempotency.New(ctx, kit.DB)
			if err != nil {
				return err
			}
			r, err := idempotency.Do(ctx, store, refundOp(kit, key), p.book) // mistake: a write after Do
			if err == nil && r.Outcome == idempotency.Executed {
				_, err = kit.Pool.ExecContext(ctx, `INSERT INTO notes VALUES ('mail')`)
			}
			return err
		}, bookedNote, false},
		{"a COMMIT by hand", func(ctx context.Context, kit *holdfasttest.Kit[Tx], _ *Bank, key string) error {
			_, err := do(ctx, kit, refundOp(kit, key), func(ctx context.Context, tx Tx) (string, error) {
				if _, err := p.book(ctx, tx); err != nil {
					return "", err
				}
				return "refunded", p.Commit(ctx, tx) // mistake: a COMMIT by hand
			})
			return err
		}, booked, false},
		{"an unknown call treated as failure", func(ctx context.Context, kit *holdfasttest.Kit[Tx], b *Bank, key string) error {
			client := &http.Client{Transport: kit.Transport}
			return p.pay(ctx, kit, key, "book", func(ctx context.Context, key string) (string, error) {
				ref, err := reference(client.Do(b.request(ctx, key))) // mistake: an unknown call treated as failure
				if err != nil {
					return "", idempotency.Reject("bank_failed", err.Error())
				}
				return ref, nil
			})
		}, paid, false},
		{"an unknown COMMIT treated as failure", func(ctx context.Context, kit *holdfasttest.Kit[Tx], _ *Bank, key string) error {
			store, err := idempotency.New(ctx, kit.DB)
			if err != nil {
				return err
			}
			_, err = idempotency.Do(ctx, store, refundOp(kit, key), p.book) // mistake: an unknown COMMIT treated as failure
			if errors.Is(err, idempotency.ErrUnknown) {
				return idempotency.Reject("failed", "the refund has failed")
			}
			return err
		}, booked, false},
	}
}
