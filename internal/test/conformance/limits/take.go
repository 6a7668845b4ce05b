package limits

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/limits"
)

// twoRefundsOfSixty takes 60 of 100 twice at the same moment, in each form, in both tables and at each
// isolation level. One of them wins. The naive form, which reads what is left and then adds, pays 120.
func twoRefundsOfSixty[Tx any](e *env[Tx]) {
	e.ManyOwners()
	own, orders := e.open().For("shop-7"), e.orders().For("shop-7")
	type call = func(id string) error
	run := func(what string, l *limits.Limits[Tx], key string, once call) {
		e.Helper()
		if l == orders {
			e.order("shop-7", key, 100)
		} else {
			e.set(l, key, 100)
		}
		var errs [2]error
		var both sync.WaitGroup
		start := make(chan struct{})
		for i := range errs {
			both.Go(func() {
				<-start
				errs[i] = once(fmt.Sprint(key, i))
			})
		}
		close(start)
		both.Wait()
		won, lost := 0, 0
		var exceeded *limits.ExceededError
		for _, err := range errs {
			switch {
			case err == nil:
				won++
			case errors.As(err, &exceeded) && exceeded.Available == 40 && exceeded.Asked == 60 && exceeded.Limit == 100 && exceeded.Key == key:
				lost++
			}
		}
		if won != 1 || lost != 1 {
			e.Errorf("%s: %v", what, errs)
		}
		s, err := l.Get(e.Ctx, key)
		if err != nil || s.Reserved+s.Captured != 60 || s.Available != 40 {
			e.Errorf("%s: %+v, %v", what, s, err)
		}
	}
	for i, l := range []*limits.Limits[Tx]{own, orders} {
		run("Take", l, "take", func(id string) error { _, err := l.Take(e.Ctx, ask("take", id, 60)); return err })
		run("Reserve", l, "reserve", func(id string) error { _, err := l.Reserve(e.Ctx, ask("reserve", id, 60)); return err })
		for _, level := range e.levels() {
			key := fmt.Sprint("tx ", level)
			run(fmt.Sprint(i, " TakeTx ", level), l, key, func(id string) error {
				return e.inTx(level, func(tx Tx) error { _, err := l.TakeTx(e.Ctx, tx, ask(key, id, 60)); return err })
			})
			key2 := key + " reserve"
			run(fmt.Sprint(i, " ReserveTx ", level), l, key2, func(id string) error {
				return e.inTx(level, func(tx Tx) error { _, err := l.ReserveTx(e.Ctx, tx, ask(key2, id, 60)); return err })
			})
		}
	}
	if e.DB.Capabilities().RowLocks {
		e.naive()
	}
}

// naive is what the package replaces, with the two reads before the two writes.
func (e *env[Tx]) naive() {
	e.Helper()
	e.order("naive", "1", 100)
	level := e.Levels()[0]
	txs := []Tx{e.BeginTx(level), e.BeginTx(level)}
	for _, tx := range txs {
		left, _, err := e.ReadInt(tx, `SELECT paid - refunded FROM orders WHERE shop = $1 AND order_no = $2`, "naive", "1")
		if err != nil || left < 60 {
			e.Fatal(left, err)
		}
	}
	for _, tx := range txs {
		_, err := e.Exec(e.Ctx, tx, `UPDATE orders SET refunded = refunded + 60 WHERE shop = $1 AND order_no = $2`, "naive", "1")
		e.Check(err)
		e.EndTx(tx, true)
	}
	if n := e.Int(`SELECT refunded FROM orders WHERE shop = $1`, "naive"); n != 120 {
		e.Errorf("the naive form refunded %d of 100, so this test would not find it", n)
	}
}

// staleSnapshot takes an amount in a transaction whose snapshot shows more than is left, and less.
func staleSnapshot[Tx any](e *env[Tx]) {
	if !e.DB.Capabilities().RowLocks {
		return // a second writer gets no snapshot beside the first: BUSY
	}
	l := e.open()
	for _, level := range e.levels() {
		key := fmt.Sprint(level)
		look := func(tx Tx) {
			_, _, err := e.ReadInt(tx, `SELECT COUNT(*) FROM holdfast_limits`)
			e.Check(err)
		}
		e.set(l, key, 100)
		tx := e.BeginTx(level)
		if key != "Serializable" || !e.InnoDB() { // there the look would lock what the next call writes
			look(tx)
		}
		_, err := l.Reserve(e.Ctx, ask(key, key+" first", 60))
		e.Check(err)
		_, err = l.TakeTx(e.Ctx, tx, ask(key, key+" second", 60))
		if !errors.Is(err, limits.ErrExceeded) && !errors.Is(err, holdfast.ErrRetry) {
			e.Errorf("%s: took 60 of the 40 that were left: %v", level, err)
		}
		_ = e.End(e.Ctx, tx, false)

		tx = e.BeginTx(level)
		if key != "Serializable" || !e.InnoDB() {
			look(tx)
		}
		_, err = l.Void(e.Ctx, ask(key, key+" first", 0))
		e.Check(err)
		if _, err = l.TakeTx(e.Ctx, tx, ask(key, key+" third", 100)); err != nil && !errors.Is(err, holdfast.ErrRetry) {
			e.Errorf("%s: 100 were left: %v", level, err)
		}
		_ = e.End(e.Ctx, tx, false)
		e.wantStatus(l, key, 100, 0, 0)
	}
}

// takenOnceForAnID asks many times at once under one id, some in transactions that are rolled back.
func takenOnceForAnID[Tx any](e *env[Tx]) {
	l := e.open()
	e.set(l, "a", 100)
	e.set(l, "b", 100)
	var all sync.WaitGroup
	var mu sync.Mutex
	first, again := 0, 0
	for i := range 6 {
		all.Go(func() {
			stop := errors.New("stop")
			if i%2 == 0 {
				err := e.inTx(e.Levels()[0], func(tx Tx) error {
					if _, err := l.TakeTx(e.Ctx, tx, ask("a", "1", 30)); err != nil {
						return err
					}
					return stop
				})
				e.want(err, stop)
			}
			got, err := l.Take(e.Ctx, ask("a", "1", 30))
			if err != nil || got.State != limits.Captured || got.Captured != 30 {
				e.Errorf("%+v, %v", got, err)
			}
			mu.Lock()
			defer mu.Unlock()
			if got.Replayed {
				again++
			} else {
				first++
			}
		})
	}
	all.Wait()
	if first != 1 || again != 5 {
		e.Errorf("%d took it, %d replayed it", first, again)
	}
	e.wantStatus(l, "a", 100, 0, 30)

	// Also where nothing is left, and from another program.
	_, err := l.Take(e.Ctx, ask("a", "2", 70))
	e.Check(err)
	other := e.Open(e.DSN)
	l2, err := limits.New(e.Ctx, other.DB, "refunds")
	e.Check(err)
	if got, err := l2.Take(e.Ctx, ask("a", "1", 30)); err != nil || !got.Replayed || got.Created.IsZero() || got.Ended.IsZero() {
		e.Errorf("%+v, %v", got, err)
	}
	for what, r := range map[string]limits.Request{
		"another amount": ask("a", "1", 31), "another limit": ask("b", "1", 30),
	} {
		got, err := l.Take(e.Ctx, r)
		var m *limits.MismatchError
		if !errors.As(err, &m) || !errors.Is(err, limits.ErrMismatch) || m.Found.Amount != 30 || m.Found.Key != "a" || got != (limits.Entry{}) {
			e.Errorf("%s: %+v, %v", what, got, err)
		}
	}
	e.wantStatus(l, "a", 100, 0, 100)
	e.wantStatus(l, "b", 100, 0, 0)
	_, err = l.Take(e.Ctx, ask("none", "3", 1))
	var gone *limits.NotFoundError
	if !errors.As(err, &gone) || gone.Key != "none" || gone.ID != "" {
		e.Error(err)
	}
	_, err = l.Take(e.Ctx, ask("a", "3", 1))
	e.want(err, limits.ErrExceeded)
	_, err = l.Entry(e.Ctx, "3")
	e.want(err, limits.ErrNotFound)
}

// refusalsLeaveTheTx checks that a transaction goes on after each refusal, and that what it wrote before
// and writes afterwards is committed.
func refusalsLeaveTheTx[Tx any](e *env[Tx]) {
	l := e.open()
	e.set(l, "a", 100)
	_, err := l.Take(e.Ctx, ask("a", "taken", 60))
	e.Check(err)
	_, err = l.Reserve(e.Ctx, ask("a", "voided", 10))
	e.Check(err)
	_, err = l.Void(e.Ctx, ask("a", "voided", 0))
	e.Check(err)
	for _, level := range e.levels() {
		key := fmt.Sprint("effect ", level)
		id := fmt.Sprint("small ", level)
		e.Check(e.inTx(level, func(tx Tx) error {
			if err := e.Effect(e.Ctx, tx, key); err != nil {
				return err
			}
			for want, call := range map[error]func() (limits.Entry, error){
				limits.ErrExceeded: func() (limits.Entry, error) { return l.TakeTx(e.Ctx, tx, ask("a", "big", 60)) },
				limits.ErrNotFound: func() (limits.Entry, error) { return l.CaptureTx(e.Ctx, tx, ask("a", "none", 0)) },
				limits.ErrMismatch: func() (limits.Entry, error) { return l.ReserveTx(e.Ctx, tx, ask("a", "taken", 6)) },
				limits.ErrVoided:   func() (limits.Entry, error) { return l.CaptureTx(e.Ctx, tx, ask("a", "voided", 10)) },
				limits.ErrCaptured: func() (limits.Entry, error) { return l.VoidTx(e.Ctx, tx, ask("a", "taken", 0)) },
				errInvalid:         func() (limits.Entry, error) { return l.VoidTx(e.Ctx, tx, ask("a", "", 0)) },
			} {
				if _, err := call(); !errors.Is(err, want) {
					if e.DB.Retryable(err) {
						return err
					}
					return fmt.Errorf("got %w, want %w", err, want)
				}
			}
			_, err := l.TakeTx(e.Ctx, tx, ask("a", id, 1))
			return err
		}))
		e.WantOnce(key)
	}
	e.wantStatus(l, "a", 100, 0, 60+int64(len(e.levels())))
	var none Tx
	_, err = l.TakeTx(e.Ctx, none, ask("a", "x", 1))
	e.want(err, holdfast.ErrNoTx)

	// What is no refusal rolls the transaction back.
	tx := e.BeginTx(e.Levels()[0])
	e.Check(e.Effect(e.Ctx, tx, "beside"))
	ended, cancel := context.WithCancel(e.Ctx)
	cancel()
	_, err = l.TakeTx(ended, tx, ask("a", "x", 1))
	e.want(err, context.Canceled)
	_ = e.End(e.Ctx, tx, true)
	if n := e.Effects("beside"); n != 0 {
		e.Errorf("%d effects beside an amount that was not taken", n)
	}
}
