package books

import (
	"context"
	"database/sql"

	"helpers"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/idempotency"
)

func refund(ctx context.Context, store *idempotency.Store[*sql.Tx], db *holdfast.DB[*sql.Tx], pool *sql.DB, bank *helpers.Bank, order string) error { // want refund:"outside: HTTP"
	_ = bank.Refund(order)                                         // outside of a transaction
	op := idempotency.Op{Name: "refund", Key: helpers.Name(order)} // want `the idempotency key is new at each call \(helpers\.Name, by helpers\.id, by uuid\.NewString\)`
	_, err := idempotency.Do(ctx, store, op, func(ctx context.Context, tx *sql.Tx) (string, error) {
		if err := bank.Refund(order); err != nil { // want `Refund: HTTP call inside a transaction`
			return "", err
		}
		bank.Tell(order)
		_ = helpers.Ask(bank, order)
		_ = helpers.First(pool, []int{1})   // want `First: \*sql\.DB\.Ping inside a transaction`
		if err := audit(pool); err != nil { // want `audit: \*sql\.DB\.Exec inside a transaction`
			return "", err
		}
		return "refunded", helpers.InTx(tx)
	})
	if err != nil {
		return err
	}
	if err := db.InTx(ctx, helpers.Book); err != nil { // want `Book: \*sql\.DB\.Exec inside a transaction`
		return err
	}
	_, err = idempotency.Do(ctx, store, idempotency.Op{Key: helpers.Load(order).No}, book)
	return err
}

func audit(pool *sql.DB) error { return helpers.Log(pool, "refund") } // want audit:`outside: \*sql\.DB\.Exec`

func book(ctx context.Context, tx *sql.Tx) (string, error) { return "", nil }

func dropped(ctx context.Context, store *idempotency.Store[*sql.Tx], db *holdfast.DB[*sql.Tx], op idempotency.Op) {
	idempotency.Do(ctx, store, op, book)                                  // want `the error of idempotency\.Do is dropped`
	_, _ = idempotency.Do(ctx, store, op, book)                           // want `the error of idempotency\.Do is dropped`
	res, _ := idempotency.Do(ctx, store, op, book)                        // want `the error of idempotency\.Do is dropped`
	_ = db.InTx(ctx, func(context.Context, *sql.Tx) error { return nil }) // want `the error of holdfast\.InTx is dropped`
	_ = res
	_ = idempotency.KeyOf("a")
	_, err := idempotency.Do(ctx, store, op, book)
	_ = err // it was read
}
