package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/jmoiron/sqlx"
)

// storm holds the values of the flags.
type storm struct {
	orders, duplicates  int
	processes, replicas int
	protect             protection
	url                 string
	kill                bool
	run                 string // the merchant of this run, so that runs do not mix
}

const (
	stormPaid   = "200.00" // of each order: room for 16 refunds, so that duplicates show
	stormAmount = "12.50"
)

// stormCommand fires duplicates of refunds at several replicas, from several client processes, and
// then audits the tables.
func stormCommand(ctx context.Context, args []string) error {
	st := storm{run: "storm-" + strings.ToLower(rand.Text()[:8])}
	flags := newFlags("storm", "Many processes ask for the same refunds at once; then the tables are audited.")
	flags.IntVar(&st.orders, "orders", 50, "orders to refund")
	flags.IntVar(&st.duplicates, "duplicates", 20, "requests for each refund")
	flags.IntVar(&st.processes, "processes", 4, "client processes")
	flags.IntVar(&st.replicas, "replicas", 2, "processes of the service")
	protect := flags.String("protect", protections[0].name, "protection of the refunds: "+protectionNames())
	flags.StringVar(&st.url, "dsn", "", "database: postgres://…, mysql://…, sqlite://path (default: SQLite in a temporary file)")
	flags.BoolVar(&st.kill, "kill", false, "kill (SIGKILL) and restart replicas meanwhile")
	if err := parse(flags, args); err != nil {
		return err
	}
	if min(st.orders, st.duplicates, st.processes, st.replicas) < 1 {
		return usagef("-orders, -duplicates, -processes and -replicas are at least 1")
	}
	var err error
	if st.protect, err = findProtection(*protect); err != nil {
		return err
	}
	if st.url == "" {
		url, remove, err := temporaryDatabase()
		if err != nil {
			return err
		}
		defer remove()
		st.url = url
	}
	return st.command(ctx, os.Stdout, os.Stderr)
}

func (st *storm) command(ctx context.Context, stdout, stderr io.Writer) (err error) {
	pool, err := openPool(st.url)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, pool.Close()) }()
	// Before the replicas start, so that none of them has to migrate.
	if err := migrate(ctx, pool); err != nil {
		return err
	}
	if err := st.createOrders(ctx, pool); err != nil {
		return err
	}
	fmt.Fprintf(stderr, "%s: %d orders, %d requests each, %d clients, %d replicas, protect %s\n",
		st.run, st.orders, st.duplicates, st.processes, st.replicas, st.protect.name)
	t, err := st.fire(ctx, stderr)
	if err != nil {
		return err
	}
	books, err := readBooks(ctx, pool, st.run)
	if err != nil {
		return err
	}
	found := audit(books)
	found.problems = append(found.problems, t.compare(books)...)
	return st.report(t, found, stdout, stderr)
}

func (st *storm) createOrders(ctx context.Context, pool *sqlx.DB) error {
	paid, err := parseMoney(stormPaid)
	if err != nil {
		return err
	}
	orders := make([]Order, st.orders)
	for i := range orders {
		orders[i] = Order{
			Number: st.order(i), Merchant: st.run, Customer: fmt.Sprintf("customer-%d", i),
			Currency: "EUR", Paid: paid, Created: time.Now().UnixMicro(),
		}
	}
	return createOrders(ctx, pool, orders)
}

func (st *storm) order(i int) string { return fmt.Sprintf("%s-%05d", st.run, i) }

// shownProblems bounds the number of problems that a failed run prints.
const shownProblems = 20

// report prints the result; the last line of stdout is for scripts.
func (st *storm) report(t *tally, f findings, stdout, stderr io.Writer) error {
	for i, p := range f.problems {
		if i == shownProblems {
			fmt.Fprintf(stderr, "audit: and %d more\n", len(f.problems)-i)
			break
		}
		fmt.Fprintln(stderr, "audit:", p)
	}
	fmt.Fprintf(stdout, "orders=%d requests=%d refunds=%d replays=%d duplicates=%d unknown=%d\n",
		st.orders, st.orders*st.duplicates, f.refunds, t.outcomes[replayed], f.duplicates, t.outcomes[unknown])
	switch {
	case len(f.problems) == 0:
		return nil
	case !st.protect.safe:
		fmt.Fprintln(stderr, "audit: this is what the run without protection is to show")
		return nil
	}
	return fmt.Errorf("the audit found %d problems: %d duplicates, %d missing refunds", len(f.problems), f.duplicates, f.missing)
}
