package main

import (
	"context"
	"fmt"
)

// books is the content of a day's tables, counted line by line.
type books struct {
	lines, booked, entries, twice, closings int
	total                                   int64 // paid to merchants
	sum                                     int64 // of all entries: 0
}

func (d *database) audit(ctx context.Context, day string) (b books, err error) {
	for query, into := range map[string][]any{
		`SELECT COUNT(*), COALESCE(SUM(CASE WHEN state = 'booked' THEN 1 ELSE 0 END), 0) FROM settlements WHERE day = $1`: {&b.lines, &b.booked},
		`SELECT COUNT(*), COALESCE(SUM(e.amount), 0), COALESCE(SUM(CASE WHEN e.account <> 'clearing' THEN e.amount ELSE 0 END), 0)
FROM entries e JOIN settlements s ON s.settlement_no = e.settlement_no WHERE s.day = $1`: {&b.entries, &b.sum, &b.total},
		`SELECT COUNT(*) FROM (SELECT e.settlement_no FROM entries e JOIN settlements s ON s.settlement_no = e.settlement_no
WHERE s.day = $1 GROUP BY e.settlement_no, e.account HAVING COUNT(*) > 1) twice`: {&b.twice},
		`SELECT COUNT(*) FROM closings WHERE day = $1`: {&b.closings},
	} {
		if err := d.pool.QueryRowContext(ctx, d.rebind(query), day).Scan(into...); err != nil {
			return b, err
		}
	}
	return b, nil
}

// problems lists the errors in the books of a file with the given number of lines.
func (b books) problems(rows int) (all []string) {
	wrong := func(is bool, format string, args ...any) {
		if is {
			all = append(all, fmt.Sprintf(format, args...))
		}
	}
	wrong(b.lines != rows, "%d lines are in, of %d", b.lines, rows)
	wrong(b.booked != rows, "%d lines are booked, of %d", b.booked, rows)
	wrong(b.entries != 2*rows, "%d entries, want %d", b.entries, 2*rows)
	wrong(b.twice != 0, "%d entries are there twice", b.twice)
	wrong(b.sum != 0, "the entries sum to %d, want 0", b.sum)
	wrong(b.total != sum(rows), "merchants were given %d, want %d", b.total, sum(rows))
	wrong(b.closings != 1, "the day was closed %d times", b.closings)
	return all
}
