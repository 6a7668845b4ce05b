// Package helpers is called by package books.
package helpers

import (
	"context"
	"database/sql"
	"net/http"
	"time"

	"github.com/google/uuid"
)

type Bank struct{ Client *http.Client }

func (b *Bank) Refund(order string) error { return b.post("/refunds", order) } // want Refund:"outside: HTTP"

func (b *Bank) post(path, order string) error { // want post:"outside: HTTP"
	_, err := b.Client.Post("https://bank.example"+path, "text/plain", nil)
	return err
}

// Tell sends in the background.
func (b *Bank) Tell(order string) { go func() { _ = b.post("/told", order) }() }

type Asker interface{ Refund(order string) error }

func Ask(a Asker, order string) error { return a.Refund(order) } // not followed

func Log(pool *sql.DB, text string) error { return each(pool, text, 0) } // want Log:`outside: \*sql\.DB\.Exec`

func each(pool *sql.DB, text string, n int) error { // want each:`outside: \*sql\.DB\.Exec`
	if n > 0 {
		return Log(pool, text)
	}
	_, err := pool.Exec(`INSERT INTO log (text) VALUES (?)`, text)
	return err
}

func Book(_ context.Context, tx *sql.Tx) error { // want Book:`outside: \*sql\.DB\.Exec`
	return Log(nil, "booked")
}

func InTx(tx *sql.Tx) error {
	_, err := tx.Exec(`SELECT 1`)
	return err
}

func Name(order string) string { return order + "/" + id() } // want Name:`new at each call: helpers\.id, by uuid\.NewString`

func id() string { return uuid.NewString() } // want id:`new at each call: uuid\.NewString`

type Order struct {
	No string
	At time.Time
}

func Load(no string) Order { return Order{No: no, At: time.Now()} }

func First[T any](pool *sql.DB, all []T) T { // want First:`outside: \*sql\.DB\.Ping`
	_ = pool.Ping()
	return all[0]
}
