package main

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/sqllock/rowlock"
)

const (
	// workBatch is the number of lines that a worker takes at a time, and that other workers take
	// over if it dies.
	workBatch = 200
	// idle is how long a worker pauses if it finds no lines.
	idle = 20 * time.Millisecond
)

// workCommand runs one worker: it books lines until the day is closed, and campaigns to be the one
// that closes it.
func workCommand(ctx context.Context, args []string) (err error) {
	flags := flag.NewFlagSet("work", flag.ContinueOnError)
	day := flags.String("day", "", "the day")
	if err := parse(flags, args); err != nil {
		return err
	}
	d, err := open(ctx, os.Getenv(environmentURL))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.close(ctx)) }()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	closed := make(chan error, 1)
	go func() { closed <- d.closeDay(ctx, *day) }()
	go func() { // ends with the parent
		_, _ = os.Stdin.Read(make([]byte, 1))
		cancel(errors.New("the parent is gone"))
	}()
	err = d.work(ctx, *day, func(n int) { fmt.Println("booked", n) })
	if err != nil {
		cancel(err)
	}
	return errors.Join(err, <-closed)
}

// work books new lines until the day is closed.
func (d *database) work(ctx context.Context, day string, progress func(n int)) error {
	settlements, err := rowlock.NewTable[Settlement](ctx, d.db, holdfast.TableSpec{Table: "settlements", Key: []string{"settlement_no"}})
	if err != nil {
		return err
	}
	for {
		n := 0
		err := d.db.InTx(ctx, func(ctx context.Context, tx *sql.Tx) error {
			// Skip lines that other workers have locked. The lines of a killed worker are free
			// again when its transaction is gone.
			lines, err := settlements.NextTx(ctx, tx, workBatch, holdfast.Where("day", "=", day), holdfast.Where("state", "=", "new"))
			if n = len(lines); err != nil || n == 0 {
				return err
			}
			return d.book(ctx, tx, lines)
		}, holdfast.TxOptions{Isolation: sql.LevelReadCommitted})
		switch {
		case err != nil:
			return err
		case n > 0:
			progress(n)
			continue
		}
		if over, err := d.isClosed(ctx, day); err != nil || over {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(idle):
		}
	}
}

// book writes the entries of lines, moves the balances, and marks the lines.
func (d *database) book(ctx context.Context, tx *sql.Tx, lines []Settlement) error {
	var entries, marks []any
	moved := map[string]int64{}
	for _, l := range lines {
		entries = append(entries, l.No, l.Merchant, l.Amount, l.No, "clearing", -l.Amount)
		marks = append(marks, l.No)
		moved[l.Merchant] += l.Amount
		moved["clearing"] -= l.Amount
	}
	exec := func(query string, args ...any) (changed int64, err error) {
		r, err := tx.ExecContext(ctx, d.rebind(query), args...)
		if err != nil {
			return 0, err
		}
		return r.RowsAffected()
	}
	if _, err := exec(`INSERT INTO entries (settlement_no, account, amount) VALUES `+rowsOf(2*len(lines), 3), entries...); err != nil {
		return err
	}
	// In the same order everywhere, so that two workers do not deadlock.
	for _, account := range slices.Sorted(maps.Keys(moved)) {
		if moved[account] == 0 {
			continue // MySQL would count no row
		}
		if n, err := exec(`UPDATE balances SET amount = amount + $1 WHERE account = $2`, moved[account], account); err != nil || n != 1 {
			return cmp.Or(err, fmt.Errorf("account %q has no balance: nothing of its lines is booked", account))
		}
	}
	_, err := exec(`UPDATE settlements SET state = 'booked' WHERE settlement_no IN `+rowsOf(1, len(lines)), marks...)
	return err
}

// createBalances creates the accounts, once.
func (d *database) createBalances(ctx context.Context) error {
	accounts := []string{"clearing"}
	for i := range merchants {
		accounts = append(accounts, "merchant-"+strconv.Itoa(i))
	}
	for _, account := range accounts {
		if _, err := d.pool.ExecContext(ctx, d.rebind(`INSERT INTO balances (account, amount)
SELECT $1, 0 WHERE NOT EXISTS (SELECT 1 FROM balances WHERE account = $2)`), account, account); err != nil {
			return fmt.Errorf("create the accounts: %w", err)
		}
	}
	return nil
}

// rowsOf writes the parameters of the given number of rows: ($1, $2), ($3, $4).
func rowsOf(rows, columns int) string {
	var b strings.Builder
	for i := range rows * columns {
		switch {
		case i%columns != 0:
			b.WriteString(", $")
		case i > 0:
			b.WriteString("), ($")
		default:
			b.WriteString("($")
		}
		b.WriteString(strconv.Itoa(i + 1))
	}
	return b.String() + ")"
}

// placeholder matches the parameters of the queries, which are in order.
var placeholder = regexp.MustCompile(`\$\d+`)
