//go:build linux

package cluster_test

import (
	"context"
	"database/sql"
	"fmt"
	"testing"

	"github.com/holdfast-go/holdfast/migrations"
)

// audit is the content of the tables of one node.
type audit struct {
	refunds, duplicates, lost, back int
	ledger                          string // the contradictions
}

// business creates Holdfast's tables and those of the storm.
func business(t *testing.T, pool *sql.DB, bytes string) {
	t.Helper()
	if err := migrations.Up(t.Context(), pool); err != nil {
		t.Fatal(err)
	}
	for _, q := range tables(bytes) {
		if _, err := pool.ExecContext(t.Context(), q); err != nil {
			t.Fatalf("%s: %v", q, err)
		}
	}
	for no := range orders {
		for _, q := range []string{
			fmt.Sprintf(`INSERT INTO orders (order_no, refunded) VALUES (%d, 0)`, no),
			fmt.Sprintf(`INSERT INTO fences (lock_key, token, back) VALUES ('%s', 0, 0)`, lockKey(no)),
		} {
			if _, err := pool.ExecContext(t.Context(), q); err != nil {
				t.Fatalf("%s: %v", q, err)
			}
		}
	}
}

// look counts the rows on one node. Each refund that a client got an answer for must be present.
func look(ctx context.Context, conn *sql.Conn, answered map[int]bool) (a audit, err error) {
	made := map[int]int{}
	rows, err := conn.QueryContext(ctx, `SELECT refund_no, COUNT(*) FROM effects GROUP BY refund_no`)
	if err != nil {
		return a, err
	}
	defer rows.Close()
	for rows.Next() {
		var no, n int
		if err := rows.Scan(&no, &n); err != nil {
			return a, err
		}
		made[no] = n
		a.refunds++
		a.duplicates += n - 1
	}
	if err := rows.Err(); err != nil {
		return a, err
	}
	for no := range answered {
		if made[no] == 0 {
			a.lost++
		}
	}
	one := func(query string) (n int) {
		if e := conn.QueryRowContext(ctx, query).Scan(&n); e != nil && err == nil {
			err = fmt.Errorf("%s: %w", query, e)
		}
		return n
	}
	a.back = one(`SELECT COALESCE(SUM(back), 0) FROM fences`)
	for _, c := range []struct{ what, have, want string }{
		{"the orders and the effects differ", `SELECT COALESCE(SUM(refunded), 0) FROM orders`, `SELECT COALESCE(SUM(cents), 0) FROM effects`},
		{"business rows and their effects differ", `SELECT COUNT(*) FROM refunds`, `SELECT COUNT(DISTINCT refund_no) FROM effects WHERE refund_no % 3 = 1`},
		{"records and their effects differ", `SELECT COUNT(*) FROM holdfast_records`, `SELECT COUNT(DISTINCT refund_no) FROM effects WHERE refund_no % 3 = 0`},
	} {
		if have, want := one(c.have), one(c.want); have != want {
			a.ledger += fmt.Sprintf("; %s: %d, %d", c.what, have, want)
		}
	}
	return a, err
}
