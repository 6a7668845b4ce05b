//go:build unix

package main

import (
	"bufio"
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/adapters/holdfastsql"
	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/internal/dsn"
)

// What all clients agree on.
const (
	namespace = "polyglot"
	owner     = "shop-7"
	operation = "refund"
)

// client is Go's client. It reads lines "order cents" and answers "order outcome refund".
func client(ctx context.Context, in io.Reader, out io.Writer) error {
	pool, engine, err := dsn.Open(os.Getenv("HOLDFAST_DSN"))
	if err != nil {
		return err
	}
	defer func() { _ = pool.Close() }()
	db, err := holdfastsql.Open(ctx, pool)
	if err != nil {
		return err
	}
	store, err := idempotency.New(ctx, db, idempotency.Options{Namespace: namespace})
	if err != nil {
		return err
	}
	place := func(n int) string {
		if engine == dsn.Postgres {
			return "$" + strconv.Itoa(n)
		}
		return "?"
	}
	insert := fmt.Sprintf(`INSERT INTO polyglot_refunds (id, order_no, cents) VALUES (%s, %s, %s)`, place(1), place(2), place(3))
	read := `SELECT id FROM polyglot_refunds WHERE order_no = ` + place(1)
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		order, amount, _ := strings.Cut(lines.Text(), " ")
		cents, err := strconv.Atoi(amount)
		if err != nil {
			return err
		}
		id := "go-" + strings.ToLower(rand.Text()[:12])
		refund := func(ctx context.Context, tx *sql.Tx) (string, error) {
			_, err := tx.ExecContext(ctx, insert, id, order, cents)
			return id, err
		}
		var outcome string
		if os.Getenv("PROTECT") == none {
			outcome, id, err = naive(ctx, db, read, order, refund)
		} else {
			var res idempotency.Result[string]
			res, err = idempotency.Do(ctx, store, idempotency.Op{
				Owner: owner, Name: operation, Key: order, Request: map[string]any{"order": order, "cents": cents},
			}, refund)
			outcome, id = res.Outcome.String(), res.Value
		}
		if errors.Is(err, idempotency.ErrMismatch) {
			return err
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, "go:", err)
			outcome, id = again, "-"
		}
		fmt.Fprintln(out, order, outcome, id)
	}
	return lines.Err()
}

// naive looks whether there is a refund, and makes one if there is none.
func naive(ctx context.Context, db *holdfast.DB[*sql.Tx], read, order string, refund func(context.Context, *sql.Tx) (string, error)) (outcome, id string, err error) {
	err = db.InTx(ctx, func(ctx context.Context, tx *sql.Tx) (err error) {
		outcome = replayed
		err = tx.QueryRowContext(ctx, read, order).Scan(&id)
		if errors.Is(err, sql.ErrNoRows) {
			outcome = executed
			id, err = refund(ctx, tx)
		}
		return err
	})
	return outcome, id, err
}
