package main

import (
	"context"
	"database/sql"
	"fmt"
	"strings"

	"github.com/holdfast-go/holdfast/idempotency"
)

// key is the operation's key of a movement.
func key(p request) string { return idempotency.KeyOf(p.Order, p.Kind) }

// readRows reads the service's rows whose orders begin with prefix.
func readRows(ctx context.Context, pool *sql.DB, prefix string) (all []row, err error) {
	rows, err := pool.QueryContext(ctx, `SELECT order_no, kind, state, reference, reversed FROM payments ORDER BY order_no, kind`)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var r row
		if err := rows.Scan(&r.Order, &r.Kind, &r.State, &r.Reference, &r.Reversed); err != nil {
			return nil, err
		}
		if strings.HasPrefix(r.Order, prefix) {
			all = append(all, r)
		}
	}
	return all, rows.Err()
}

// findings is the result of an audit.
type findings struct {
	moved, twice, lost, open int
	problems                 []string
}

// audit compares the bank's books with the service's: each movement that a client asked for is in both
// once, with the same outcome, the same reference, and the reversal that the bank has reported.
func audit(asked []request, rows []row, entries []payment) (f findings) {
	paid, refused := map[request][]payment{}, map[request]bool{}
	for _, e := range entries {
		switch e.State {
		case "declined":
			refused[e.request] = true
		default: // pending, too: it will move
			paid[e.request] = append(paid[e.request], e)
		}
	}
	ours := map[request]row{}
	for _, r := range rows {
		ours[r.request] = r
	}
	problem := func(count *int, format string, args ...any) {
		*count++
		f.problems = append(f.problems, fmt.Sprintf(format, args...))
	}
	for _, p := range asked {
		r, there := ours[p]
		at := paid[p]
		f.moved += len(at)
		switch {
		case len(at) > 1:
			problem(&f.twice, "%v was paid %d times", p, len(at))
		case !there:
			problem(&f.lost, "%v is not in the books", p)
		case r.State == "asked":
			problem(&f.open, "%v has not ended", p)
		case len(at) == 1 && (r.State != "done" || r.Reference != at[0].Reference):
			problem(&f.lost, "%v was paid as %s, the books say %s %s", p, at[0].Reference, r.State, r.Reference)
		case len(at) == 1 && r.Reversed != at[0].reversed:
			problem(&f.lost, "%v: reversed at the bank is %v, in the books %v", p, at[0].reversed, r.Reversed)
		case len(at) == 0 && r.State != "declined":
			problem(&f.lost, "%v is %s in the books, and the bank has no payment", p, r.State)
		}
	}
	return f
}
