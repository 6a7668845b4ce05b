package limits

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/test/dbtest"
	"github.com/holdfast-go/holdfast/limits"
)

const (
	stormClients = 6
	stormCalls   = 40
	stormIDs     = 60 // of each limit, so that many calls meet an id that was used
)

// storm makes random calls from several clients on two limits, one in each table. Some transactions are
// rolled back, and of some the session is killed. No reader ever sees more used than the limit. At the
// end the counters are the sums of the entries.
func storm[Tx any](e *env[Tx]) {
	e.ManyOwners()
	own, orders := e.open().For("shop"), e.orders().For("shop")
	e.set(own, "k", 100)
	e.order("shop", "k", 100)
	all := []*limits.Limits[Tx]{own, orders}
	var clients sync.WaitGroup
	var kills atomic.Int64
	for c := range stormClients {
		clients.Go(func() {
			r := rand.New(rand.NewPCG(7, uint64(c)))
			for n := range stormCalls {
				which := r.IntN(len(all))
				e.stormCall(r, all[which], fmt.Sprint("id ", r.IntN(stormIDs)), n%8 == 7, &kills)
			}
		})
	}
	stopped := make(chan struct{})
	go func() { defer close(stopped); clients.Wait() }()
	for looks := 0; ; looks++ {
		for _, q := range []string{
			`SELECT COUNT(*) FROM holdfast_limits WHERE reserved + captured > limit_amount OR reserved < 0 OR captured < 0`,
			`SELECT COUNT(*) FROM orders WHERE held + refunded > paid OR held < 0 OR refunded < 0`,
		} {
			if n := e.Int(q); n != 0 {
				e.Fatalf("%d limits are exceeded: %s", n, q)
			}
		}
		select {
		case <-stopped:
			for _, l := range all {
				_, err := l.Expire(e.Ctx, "k")
				e.Check(err)
			}
			e.audit(`SELECT reserved, captured FROM holdfast_limits`, "refunds")
			if kills.Load() == 0 && e.Engine != dbtest.SQLite && dbtest.Has(e.Engine, dbtest.Kill) {
				e.Error("no session was killed")
			}
			e.audit(`SELECT held, refunded FROM orders`, "orders")
			return
		default:
		}
	}
}

// audit compares counters with the entries under a name.
func (e *env[Tx]) audit(counters, name string) {
	e.Helper()
	var reserved, captured int
	e.Check(e.SQL.QueryRowContext(e.Ctx, counters).Scan(&reserved, &captured))
	sum := func(what string) int {
		return e.Int(`SELECT COALESCE(SUM(`+what+`), 0) FROM holdfast_limit_entries WHERE state IN (1, 2) AND name = $1`, []byte(name))
	}
	if r, c := sum(`CASE WHEN state = 1 THEN amount ELSE 0 END`), sum(`captured`); r != reserved || c != captured {
		e.Errorf("the counters are %d reserved and %d captured, the entries %d and %d", reserved, captured, r, c)
	}
	if captured == 0 {
		e.Error("nothing was captured")
	}
}

// stormCall makes one call. Its transaction commits, is rolled back, or is killed.
func (e *env[Tx]) stormCall(r *rand.Rand, l *limits.Limits[Tx], id string, kill bool, kills *atomic.Int64) {
	amount := int64(1 + len(id)*7%13) // the same for the same id
	req := limits.Request{Key: "k", ID: id, Amount: amount, Timeout: []time.Duration{0, 50 * time.Millisecond, time.Hour}[r.IntN(3)]}
	part := req
	part.Amount = r.Int64N(amount + 1)
	calls := []func(ctx context.Context, tx Tx) (limits.Entry, error){
		func(ctx context.Context, tx Tx) (limits.Entry, error) { return l.ReserveTx(ctx, tx, req) },
		func(ctx context.Context, tx Tx) (limits.Entry, error) { return l.ReserveTx(ctx, tx, req) },
		func(ctx context.Context, tx Tx) (limits.Entry, error) { return l.TakeTx(ctx, tx, req) },
		func(ctx context.Context, tx Tx) (limits.Entry, error) { return l.CaptureTx(ctx, tx, part) },
		func(ctx context.Context, tx Tx) (limits.Entry, error) { return l.VoidTx(ctx, tx, req) },
	}
	call := calls[r.IntN(len(calls))]
	levels := e.levels()
	level := levels[r.IntN(len(levels))]
	tx, err := e.Begin(e.Ctx, level)
	if err != nil {
		e.Error(err)
		return
	}
	defer func() { _ = e.End(context.WithoutCancel(e.Ctx), tx, false) }() // fails if it has ended
	_, err = call(e.Ctx, tx)
	switch {
	case errors.Is(err, holdfast.ErrRetry), errors.Is(err, limits.ErrExceeded), errors.Is(err, limits.ErrNotFound), errors.Is(err, limits.ErrMismatch),
		errors.Is(err, limits.ErrExpired), errors.Is(err, limits.ErrVoided), errors.Is(err, limits.ErrCaptured):
	case err != nil:
		e.Errorf("%s at %s: %v", id, level, err)
		return
	}
	switch {
	case errors.Is(err, holdfast.ErrRetry):
	case kill && e.kill(tx):
		kills.Add(1)
	case r.IntN(4) == 0: // rolled back
	default:
		_ = e.End(e.Ctx, tx, true) // a serialization failure rolls back
	}
}

// kill ends the session of a transaction, where the engine has sessions.
func (e *env[Tx]) kill(tx Tx) bool {
	if e.Engine == dbtest.SQLite || !dbtest.Has(e.Engine, dbtest.Kill) {
		return false
	}
	id, err := strconv.ParseInt(e.SessionOf(tx), 10, 64)
	e.Check(err)
	e.EndSession(id)
	return true
}
