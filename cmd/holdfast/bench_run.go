package main

import (
	"context"
	"database/sql"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/internal/access"
	"github.com/holdfast-go/holdfast/internal/measure"
	"github.com/holdfast-go/holdfast/internal/refund"
	"github.com/holdfast-go/holdfast/sqllock"
)

const (
	// benchRounds is how often the measurements take turns, so that other load on the machine
	// affects all of them.
	benchRounds = 6
	// benchWarmUp is how often a client runs each operation before the measurement.
	benchWarmUp = 2
	// benchGrace is how long the last call of a slice may take.
	benchGrace = 30 * time.Second
	// enough is the number of samples that make a median.
	enough = 30
)

// work is one measured operation; each call gets a unique id.
type work struct {
	what, against string
	do            func(ctx context.Context, id string) error

	taken measure.Taken // by all slices
}

// bencher runs the measurements.
type bencher struct {
	tables           *benchTables
	clients          int
	locker           *sqllock.Locker[*sql.Tx]
	store, connected *idempotency.Store[*sql.Tx] // on the plain pool, and with Holdfast's connector
	insert, remove   string
	works            []*work
	ids              atomic.Int64
}

func newBencher(ctx context.Context, tables *benchTables, clients int) (b *bencher, err error) {
	b = &bencher{tables: tables, clients: clients}
	compile := access.Of(tables.db).Dialect.Compile
	b.insert = compile("", `INSERT INTO `+tables.rows()+` (id, cents) VALUES ($1, 1250)`).Text
	b.remove = compile("", `DELETE FROM `+tables.rows()+` WHERE id = $1`).Text
	if b.store, err = idempotency.New(ctx, tables.db, idempotency.Options{Namespace: "bench"}); err != nil {
		return nil, err
	}
	if b.connected, err = idempotency.New(ctx, tables.connected, idempotency.Options{Namespace: "bench"}); err != nil {
		return nil, err
	}
	if b.locker, err = sqllock.New(ctx, tables.db, sqllock.Options{Holder: "bench"}); err != nil {
		return nil, err
	}
	b.works = []*work{
		{what: "round trip", do: b.roundTrip},
		{what: "commit", do: b.bareInsert},
		{what: "bare lease", do: b.bareLease},
		{what: "lease", against: "bare lease", do: b.lease},
		{what: "bare refund", do: b.bareRefund},
		{what: "do, connector", against: "bare refund", do: func(ctx context.Context, id string) error { return b.ask(ctx, b.connected, id, idempotency.Executed) }},
		{what: "do, plain pool", against: "bare refund", do: func(ctx context.Context, id string) error { return b.ask(ctx, b.store, id, idempotency.Executed) }},
		{what: "replay", against: "round trip", do: b.replay},
	}
	return b, nil
}

func (b *bencher) close(ctx context.Context) error { return b.locker.Close(context.WithoutCancel(ctx)) }

// roundTrip runs a statement that reads nothing.
func (b *bencher) roundTrip(ctx context.Context, _ string) error {
	var one int
	return b.tables.pool.QueryRowContext(ctx, `SELECT 1`).Scan(&one)
}

// bareInsert runs a statement that commits itself.
func (b *bencher) bareInsert(ctx context.Context, id string) error {
	_, err := b.tables.pool.ExecContext(ctx, b.insert, id)
	return err
}

// bareLease does the minimum of a lock in a table: it inserts a row and deletes it.
func (b *bencher) bareLease(ctx context.Context, id string) error {
	if err := b.bareInsert(ctx, id); err != nil {
		return err
	}
	_, err := b.tables.pool.ExecContext(ctx, b.remove, id)
	return err
}

func (b *bencher) lease(ctx context.Context, id string) error {
	l, err := b.locker.Acquire(ctx, id)
	if err != nil {
		return err
	}
	return l.Release(ctx)
}

// bareRefund runs the transaction of Do, without a claim.
func (b *bencher) bareRefund(ctx context.Context, id string) error {
	return refund.Bare(ctx, b.tables.pool, func(tx *sql.Tx) error { return b.tables.texts.Run(ctx, tx, b.order(id), id) })
}

// replay repeats an operation that the warm-up executed.
func (b *bencher) replay(ctx context.Context, id string) error {
	client, _, _ := strings.Cut(id, "/")
	return b.ask(ctx, b.store, client, idempotency.Replayed)
}

func (b *bencher) ask(ctx context.Context, store *idempotency.Store[*sql.Tx], id string, want idempotency.Outcome) error {
	order := b.order(id)
	r, err := idempotency.Do(ctx, store, idempotency.Op{Name: "refund", Key: id, Request: [2]int64{order, refund.Cents}},
		func(ctx context.Context, tx *sql.Tx) (string, error) {
			return id, b.tables.texts.Run(ctx, tx, order, id)
		})
	if err == nil && r.Outcome != want {
		return fmt.Errorf("%v instead of %v", r.Outcome, want)
	}
	return err
}

// run measures for duration in total.
func (b *bencher) run(ctx context.Context, duration time.Duration, p *progress) error {
	ctx, cancel := context.WithTimeoutCause(ctx, duration+benchGrace, fmt.Errorf("the database took %v too long", benchGrace))
	defer cancel()
	end := time.Now().Add(duration)
	p.sayf("warming up")
	for client := range b.clients { // the operations that replay repeats
		if err := b.ask(ctx, b.store, strconv.Itoa(client), idempotency.Executed); err != nil {
			return err
		}
	}
	for _, w := range b.works { // one at a time: SQLite refuses a transaction that reads before another pool's writes
		if err := measure.Each(ctx, b.clients, func(ctx context.Context, client int) error {
			for range benchWarmUp {
				if err := w.do(ctx, b.id(client)); err != nil {
					return fmt.Errorf("%s: %w", w.what, err)
				}
			}
			return nil
		}); err != nil {
			return b.cause(ctx, err)
		}
	}
	left := benchRounds * len(b.works)
	for round := range benchRounds {
		for i := range b.works {
			w := b.works[i]
			if round%2 == 1 { // alternate the order, so that none always follows the same one
				w = b.works[len(b.works)-1-i]
			}
			p.sayf("%s, %s left", w.what, time.Until(end).Round(time.Second))
			if err := b.slice(ctx, w, max(0, time.Until(end))/time.Duration(left)); err != nil {
				return b.cause(ctx, fmt.Errorf("%s: %w", w.what, err))
			}
			left--
		}
	}
	return nil
}

// cause returns the reason why ctx ended, or err if ctx has not ended.
func (b *bencher) cause(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	return err
}

// slice has all clients run w for the given length, and at least once.
func (b *bencher) slice(ctx context.Context, w *work, length time.Duration) error {
	t, err := measure.Slice(ctx, b.clients, length, func(ctx context.Context, client int) error {
		return w.do(ctx, b.id(client))
	})
	w.taken.Join(t)
	return err
}

// id returns a new id that begins with the client's number.
func (b *bencher) id(client int) string { return fmt.Sprintf("%d/%d", client, b.ids.Add(1)) }

// order returns the order that a call refunds: clients share none.
func (b *bencher) order(id string) int64 {
	client, n, _ := strings.Cut(id, "/")
	first, _ := strconv.ParseInt(client, 10, 64) // as id makes it
	count, _ := strconv.ParseInt(n, 10, 64)
	each := int64(refund.Orders / b.clients)
	return 1 + first*each + count%each
}

func (b *bencher) results() []measured {
	var list []measured
	at := map[string]time.Duration{}
	us := func(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1000 }
	for _, w := range b.works {
		t := &w.taken
		at[w.what] = t.Percentile(50)
		m := measured{
			What: w.what, Count: len(t.Took), P50US: us(t.Percentile(50)), P95US: us(t.Percentile(95)), P99US: us(t.Percentile(99)),
			PerSecond: t.PerSecond(), Against: w.against,
		}
		if bare := at[w.against]; bare > 0 {
			m.Ratio = float64(at[w.what]) / float64(bare)
			m.AddedUS = us(at[w.what] - bare)
		}
		list = append(list, m)
	}
	return list
}
