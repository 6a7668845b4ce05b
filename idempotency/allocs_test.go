package idempotency_test

import (
	"context"
	"strconv"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/internal/test/conformance"
	"github.com/holdfast-go/holdfast/internal/test/dbtest"
	"github.com/holdfast-go/holdfast/internal/test/race"
)

// maxAllocs bounds the allocations of a refund with four statements under Do on a native pgx pool, the
// statements' own included.
const maxAllocs = 138

type request struct{ Order, Cents int64 }

// refunds returns a refund of four statements under Do, and the same transaction bare.
func refunds(e *conformance.Env[pgx.Tx], pool interface {
	Begin(ctx context.Context) (pgx.Tx, error)
},
) (do, bare func()) {
	e.Must(`CREATE TABLE orders (id BIGINT PRIMARY KEY, paid BIGINT NOT NULL, refunded BIGINT NOT NULL)`)
	e.Must(`INSERT INTO orders VALUES (1, 1000000000, 0)`)
	e.Must(`CREATE TABLE ledger (order_id BIGINT NOT NULL, cents BIGINT NOT NULL)`)
	steps := func(ctx context.Context, tx pgx.Tx, no string) error {
		var paid, refunded int64
		if err := tx.QueryRow(ctx, `SELECT paid, refunded FROM orders WHERE id = $1 FOR UPDATE`, 1).Scan(&paid, &refunded); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, `UPDATE orders SET refunded = refunded + $2 WHERE id = $1`, 1, 5); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, `INSERT INTO refunds (refund_no, amount) VALUES ($1, $2)`, no, 5); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, `INSERT INTO ledger (order_id, cents) VALUES ($1, $2)`, 1, 5)
		return err
	}
	store := e.Store(idempotency.Options{})
	n, ctx := 0, context.WithoutCancel(e.Ctx) // as a server without deadlines has it
	do = func() {
		n++
		no := "R-" + strconv.Itoa(n)
		_, err := idempotency.Do(ctx, store, idempotency.Op{Name: "refund", Key: no, Request: request{1, 5}},
			func(ctx context.Context, tx pgx.Tx) (string, error) { return no, steps(ctx, tx, no) })
		if err != nil {
			e.Fatal(err)
		}
	}
	bare = func() {
		n++
		tx, err := pool.Begin(ctx)
		if err == nil {
			err = steps(ctx, tx, "B-"+strconv.Itoa(n))
		}
		if err == nil {
			err = tx.Commit(ctx)
		}
		if err != nil {
			e.Fatal(err)
		}
	}
	return do, bare
}

// TestAllocationsOfDo is not parallel: it counts the allocations of the whole process.
func TestAllocationsOfDo(t *testing.T) { //nolint:paralleltest // see above
	if race.Enabled {
		return // the detector allocates too
	}
	for _, engine := range dbtest.Engines() {
		if engine != dbtest.Postgres {
			continue // only pgx has native pools
		}
		e := conformance.New(t, conformance.Pgx(), engine)
		do, bare := refunds(e, dbtest.OpenPgx(t, e.DSN))
		for range 20 { // prepares the statements, and expects new keys
			do()
			bare()
		}
		got, own := testing.AllocsPerRun(200, do), testing.AllocsPerRun(200, bare)
		t.Logf("%v allocations, %v of them the bare transaction's", got, own)
		if got > maxAllocs {
			t.Errorf("%v allocations, at most %v are allowed", got, maxAllocs)
		}
	}
}
