package optimistic

import (
	"context"
	"database/sql"
	"errors"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/test/conformance"
	"github.com/holdfast-go/holdfast/internal/test/dbtest"
	"github.com/holdfast-go/holdfast/internal/test/faultproxy"
	"github.com/holdfast-go/holdfast/optimistic"
)

// noLostUpdate checks that every increment of several writers on several rows is present.
func noLostUpdate[Tx any](e *env[Tx]) {
	rows := []string{"a", "b", "c"}
	accounts := e.Accounts(rows...)

	// In the naive form both writers read, then both write the value they read plus one.
	read := [2]int{e.Int(`SELECT cents FROM accounts WHERE account_no = $1`, e.TextKey("a")), e.Int(`SELECT cents FROM accounts WHERE account_no = $1`, e.TextKey("a"))}
	for _, cents := range read {
		e.Must(`UPDATE accounts SET cents = $1 WHERE account_no = $2`, cents+1, e.TextKey("a"))
	}
	if n := e.Int(`SELECT cents FROM accounts WHERE account_no = $1`, e.TextKey("a")); n != 1 {
		e.Errorf("two naive increments made %d; one was to be lost", n)
	}
	e.Must(`UPDATE accounts SET cents = 0`)

	const writers, times = 4, 5
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			for i := range times * len(rows) {
				no := rows[(w+i)%len(rows)]
				var err error
				if i%2 == 0 {
					err = optimistic.Retry(e.Ctx, e.DB, func(ctx context.Context, tx Tx) error {
						row, err := accounts.GetTx(ctx, tx, conformance.Account{No: no})
						if err != nil {
							return err
						}
						row.Cents++
						_, err = accounts.UpdateTx(ctx, tx, row)
						return err
					}, optimistic.RetryOptions{Attempts: 1000})
				} else {
					for err = optimistic.ErrConflict; errors.Is(err, optimistic.ErrConflict) || errors.Is(err, holdfast.ErrRetry); {
						var row conformance.Account
						if row, err = accounts.Get(e.Ctx, conformance.Account{No: no}); err == nil {
							row.Cents++
							_, err = accounts.Update(e.Ctx, row, "cents")
						}
					}
				}
				if err != nil {
					e.Error(err)
				}
			}
		})
	}
	wg.Wait()
	for _, no := range rows {
		e.WantAccount(conformance.Account{No: no, Cents: writers * times, Version: writers*times + 1})
	}
}

// rowIsBornAndDies runs writers that insert, update and delete one row. They never overwrite
// each other: each step sees the effect of the step before.
func rowIsBornAndDies[Tx any](e *env[Tx]) {
	accounts := e.Accounts()
	var mu sync.Mutex
	var wg sync.WaitGroup
	steps, expected := 0, int64(0) // the sum of the committed steps
	for range 4 {
		wg.Go(func() {
			for range 10 {
				var delta int64
				err := optimistic.Retry(e.Ctx, e.DB, func(ctx context.Context, tx Tx) error {
					row, err := accounts.GetTx(ctx, tx, conformance.Account{No: "a"})
					switch {
					case errors.Is(err, optimistic.ErrNotFound):
						delta = 1
						_, err = accounts.InsertTx(ctx, tx, conformance.Account{No: "a", Cents: 1})
					case err == nil && row.Cents >= 3:
						delta = -row.Cents
						err = accounts.DeleteTx(ctx, tx, row)
					case err == nil:
						delta = 1
						row.Cents++
						_, err = accounts.UpdateTx(ctx, tx, row)
					}
					return err
				}, optimistic.RetryOptions{Attempts: 1000})
				switch {
				case errors.Is(err, optimistic.ErrDuplicate), errors.Is(err, optimistic.ErrNotFound):
					continue // another writer was first; the caller decides what that means
				case err != nil:
					e.Error(err)
				}
				mu.Lock()
				steps++
				expected += delta
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	if sum := int64(e.Int(`SELECT COALESCE(SUM(cents), 0) FROM accounts`)); sum != expected {
		e.Errorf("after %d steps the row holds %d, the steps that committed sum to %d", steps, sum, expected)
	}
}

func retryIsBounded[Tx any](e *env[Tx]) {
	accounts := e.Accounts("a")
	stale := conformance.Account{No: "a", Version: 9}
	conflict := func(runs *int) func(ctx context.Context, tx Tx) error {
		return func(ctx context.Context, tx Tx) error {
			*runs++
			_, err := accounts.UpdateTx(ctx, tx, stale)
			return err
		}
	}
	for attempts, want := range map[int]int{0: core.DefaultAttempts, 1: 1, 3: 3} {
		runs := 0
		err := optimistic.Retry(e.Ctx, e.DB, conflict(&runs), optimistic.RetryOptions{Attempts: attempts})
		var r *holdfast.RetryError
		if !errors.As(err, &r) || r.Attempts != want || runs != want {
			e.Errorf("%d attempts: %d runs, %v", attempts, runs, err)
		}
		wantConflict(e, err, "accounts", "9", "1")
	}
	// The context ends the retries, in a pause or in the function.
	ctx, cancel := context.WithCancel(e.Ctx)
	defer cancel()
	runs := 0
	fail := conflict(&runs)
	err := optimistic.Retry(ctx, e.DB, func(ctx context.Context, tx Tx) error {
		if runs == 2 {
			cancel()
		}
		return fail(ctx, tx)
	}, optimistic.RetryOptions{Attempts: 1_000_000})
	if err == nil || !errors.Is(err, context.Canceled) && !errors.Is(err, optimistic.ErrConflict) || runs != 3 {
		e.Errorf("%v after %d runs", err, runs)
	}
	// An error that is no conflict is not retried.
	boom := errors.New("boom")
	for _, fail := range []error{boom, optimistic.ErrNotFound, optimistic.ErrDuplicate, holdfast.ErrUnknown, &holdfast.UnknownError{Err: optimistic.ErrConflict}, holdfast.ErrTxLost} {
		runs = 0
		err := optimistic.Retry(e.Ctx, e.DB, func(context.Context, Tx) error { runs++; return fail })
		if !errors.Is(err, fail) || runs != 1 {
			e.Errorf("%v: %d runs, %v", fail, runs, err)
		}
	}
	for _, o := range []optimistic.RetryOptions{{Attempts: -1}, {LockTimeout: -1}, {LockTimeout: 1 << 62}} {
		if err := optimistic.Retry(e.Ctx, e.DB, conflict(&runs), o); !errors.Is(err, holdfast.ErrInvalid) {
			e.Errorf("%+v: %v", o, err)
		}
	}
	if err := optimistic.Retry[Tx](e.Ctx, nil, conflict(&runs)); !errors.Is(err, holdfast.ErrInvalid) {
		e.Error(err)
	}
	e.Eventually("every connection is back", func() bool { return e.InUse() == 0 })
}

// retryAfterTheEnginesErrors writes two rows in opposite orders. After the deadlock, both writes
// succeed.
func retryAfterTheEnginesErrors[Tx any](e *env[Tx]) {
	accounts := e.Accounts("a", "b")
	both := make(chan struct{}, 2)
	var wg sync.WaitGroup
	var mu sync.Mutex
	runs := 0
	for _, order := range [][]string{{"a", "b"}, {"b", "a"}} {
		wg.Go(func() {
			met := false
			err := optimistic.Retry(e.Ctx, e.DB, func(ctx context.Context, tx Tx) error {
				mu.Lock()
				runs++
				mu.Unlock()
				for i, no := range order {
					row, err := accounts.GetTx(ctx, tx, conformance.Account{No: no})
					if err != nil {
						return err
					}
					row.Cents++
					if _, err := accounts.UpdateTx(ctx, tx, row); err != nil {
						return err
					}
					if i == 0 && !met && e.Engine != dbtest.SQLite { // it has one writer
						met = true
						both <- struct{}{}
						for len(both) < 2 && ctx.Err() == nil {
							time.Sleep(time.Millisecond)
						}
					}
				}
				return nil
			}, optimistic.RetryOptions{Attempts: 100})
			if err != nil {
				e.Error(err)
			}
		})
	}
	wg.Wait()
	if e.Engine != dbtest.SQLite && runs < 3 {
		e.Errorf("%d runs: there was no deadlock", runs)
	}
	for _, no := range []string{"a", "b"} {
		e.WantAccount(conformance.Account{No: no, Cents: 2, Version: 3})
	}
}

// hostPort finds the server's address in a URL: …@host:port/… or …@tcp(host:port)/…
var hostPort = regexp.MustCompile(`@(?:tcp\()?([^@/()]+)\)?/`)

// unknownIsNotHidden loses the answer to COMMIT. The table shows the outcome, and the caller
// gets an error that says the outcome is unknown.
func unknownIsNotHidden[Tx any](e *env[Tx]) {
	if e.Engine == dbtest.SQLite {
		return // its commit is a call in this process: no answer can be lost
	}
	e.Accounts("a")
	address := hostPort.FindStringSubmatch(e.DSN)[1]
	proxy, err := faultproxy.New(address)
	if err != nil {
		e.Fatal(err)
	}
	e.Cleanup(proxy.Close)
	through := e.Handle.Open(e.T, strings.Replace(e.DSN, address, proxy.Addr(), 1))
	accounts, err := optimistic.New[conformance.Account](e.Ctx, through.DB, holdfast.TableSpec{Table: "accounts", Key: []string{"account_no"}})
	if err != nil {
		e.Fatal(err)
	}
	runs := 0
	for what, write := range map[string]func(row conformance.Account) error{
		"Update": func(row conformance.Account) error { _, err := accounts.Update(e.Ctx, row); return err },
		"Retry": func(row conformance.Account) error {
			return optimistic.Retry(e.Ctx, through.DB, func(ctx context.Context, tx Tx) error {
				runs++
				_, err := accounts.UpdateTx(ctx, tx, row)
				return err
			})
		},
	} {
		for _, applied := range []bool{true, false} {
			row, err := accounts.Get(e.Ctx, conformance.Account{No: "a"})
			if err != nil {
				e.Fatal(err)
			}
			before := row
			row.Cents++
			var fault *faultproxy.Fault
			if applied {
				fault = proxy.LoseReply(faultproxy.Commit, faultproxy.Close)
			} else {
				fault = proxy.LoseRequest(faultproxy.Commit, faultproxy.Close)
			}
			if err := write(row); !errors.Is(err, holdfast.ErrUnknown) || errors.Is(err, optimistic.ErrConflict) {
				e.Errorf("%s, applied %v: got %v, want unknown", what, applied, err)
			}
			if !fault.Fired() {
				e.Errorf("%s: no commit was cut", what)
			}
			if applied {
				row.Version++
			} else {
				row = before
			}
			e.WantAccount(row)
		}
	}
	if runs != 2 {
		e.Errorf("%d runs: an unknown commit is not run again", runs)
	}
}

// lockedRowAndCancelledContext waits for a row that another session locks. The wait is bounded,
// and the end of the context ends it.
func lockedRowAndCancelledContext[Tx any](e *env[Tx]) {
	accounts := e.Accounts("a")
	holder := e.BeginTx(sql.LevelDefault)
	held, err := accounts.UpdateTx(e.Ctx, holder, conformance.Account{No: "a", Cents: 1, Version: 1})
	if err != nil {
		e.Fatal(err)
	}
	row := conformance.Account{No: "a", Cents: 2, Version: 1}
	err = optimistic.Retry(e.Ctx, e.DB, func(ctx context.Context, tx Tx) error {
		_, err := accounts.UpdateTx(ctx, tx, row)
		return err
	}, optimistic.RetryOptions{Attempts: 1, LockTimeout: 50 * time.Millisecond})
	if !errors.Is(err, holdfast.ErrRetry) || errors.Is(err, optimistic.ErrConflict) {
		e.Errorf("a row that is locked: %v", err)
	}
	tx := e.BeginTx(sql.LevelDefault)
	for what, call := range map[string]func(context.Context) error{
		"Update":   func(ctx context.Context) error { _, err := accounts.Update(ctx, row); return err },
		"Delete":   func(ctx context.Context) error { return accounts.Delete(ctx, row) },
		"UpdateTx": func(ctx context.Context) error { _, err := accounts.UpdateTx(ctx, tx, row); return err },
		"Retry": func(ctx context.Context) error {
			return optimistic.Retry(ctx, e.DB, func(ctx context.Context, tx Tx) error {
				_, err := accounts.UpdateTx(ctx, tx, row)
				return err
			}, optimistic.RetryOptions{Attempts: 1000})
		},
	} {
		ctx, cancel := context.WithTimeout(e.Ctx, 150*time.Millisecond)
		start := time.Now()
		err := call(ctx)
		cancel()
		if !errors.Is(err, context.DeadlineExceeded) {
			e.Errorf("%s: got %v", what, err)
		}
		// In a caller's transaction SQLite waits for its busy_timeout (5 s here), also when the
		// context ends earlier.
		if d := time.Since(start); d > dbtest.Slack && (e.Engine != dbtest.SQLite || what != "UpdateTx") {
			e.Errorf("%s took %v", what, d)
		}
		ended, end := context.WithCancel(e.Ctx)
		end()
		if what != "UpdateTx" { // tx has ended
			if err := call(ended); !errors.Is(err, context.Canceled) {
				e.Errorf("%s, cancelled before: got %v", what, err)
			}
		}
	}
	e.WantRolledBack(tx)
	e.EndTx(holder, true)
	e.WantAccount(held)
	_, err = accounts.Update(e.Ctx, row)
	wantConflict(e, err, "accounts", "1", "2")
	e.Eventually("every connection is back", func() bool { return e.InUse() == 0 })
}
