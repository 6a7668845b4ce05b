package functions

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/internal/access"
	"github.com/holdfast-go/holdfast/internal/test/conformance"
	"github.com/holdfast-go/holdfast/internal/test/dbtest"
	"github.com/holdfast-go/holdfast/sqllock"
)

var leases = map[string]func(*env){
	"FunctionLease":              functionLease,
	"FunctionLeaseUnderItsGuard": functionLeaseUnderItsGuard,
	"FunctionTokensRise":         functionTokensRise,
	"FunctionTakeover":           functionTakeover,
	"FunctionLeaseAlone":         functionLeaseAlone,
	"FunctionLeaseStampede":      functionLeaseStampede,
	"FunctionOneIsGranted":       functionOneIsGranted,
	"FunctionRowAtOnce":          functionRowAtOnce,
	"FunctionWakesGo":            functionWakesGo,
	"FunctionLeaseArguments":     functionLeaseArguments,
}

var errBad = driver.ErrBadConn

const minute = 60_000_000 // µs

func (e *env) locker(o sqllock.Options) *sqllock.Locker[*sql.Tx] {
	e.Helper()
	l, err := sqllock.New(e.Ctx, e.DB, o)
	e.Check(err)
	e.Cleanup(func() { _ = l.Close(context.WithoutCancel(e.Ctx)) })
	return l
}

// acquired gets a lease by the function, for a minute, and returns its token.
func (e *env) acquired(key, attempt string) int64 {
	e.Helper()
	a, err := e.call(e.SQL, "acquire", "", text(key), minute, attempt, "a function")
	e.want("acquire", a, err, "outcome", "acquired")
	token, _ := strconv.ParseInt(a["token"], 10, 64)
	return token
}

// functionLease goes through the life of a lease, beside Go.
func functionLease(e *env) {
	locks := e.locker(sqllock.Options{})
	for _, key := range []string{"lease", "lease\x00\xff", "lease "} {
		mine := newAttempt()
		token := e.acquired(key, mine)
		if again := e.acquired(key, mine); again != token {
			e.Errorf("sent again: token %d, was %d", again, token)
		}
		a, err := e.call(e.SQL, "acquire", "", text(key), minute, newAttempt(), nil)
		e.want("another", a, err, "outcome", "held", "held_by", "a function", "token", "")
		if left, _ := strconv.Atoi(a["left_us"]); left <= 0 || left > minute {
			e.Errorf("left %d", left)
		}
		var held *sqllock.HeldError
		if _, err := locks.TryAcquire(e.Ctx, key); !errors.As(err, &held) || held.Holder != "a function" {
			e.Errorf("Go: %v", err)
		}
		a, err = e.call(e.SQL, "renew", "", text(key), mine, 2*minute)
		e.want("renew", a, err, "outcome", "renewed")
		if left, _ := strconv.Atoi(a["left_us"]); left <= minute {
			e.Errorf("left %d", left)
		}
		a, err = e.call(e.SQL, "renew", "", text(key), newAttempt(), minute)
		e.want("renew of another", a, err, "outcome", "lost")
		a, err = e.call(e.SQL, "release", "", text(key), newAttempt())
		e.want("release of another", a, err, "outcome", "lost")
		a, err = e.call(e.SQL, "release", "", text(key), mine)
		e.want("release", a, err, "outcome", "released")
		a, err = e.call(e.SQL, "release", "", text(key), mine)
		e.want("release twice", a, err, "outcome", "lost")
		a, err = e.call(e.SQL, "renew", "", text(key), mine, minute)
		e.want("renew of the released", a, err, "outcome", "lost")

		lease, err := locks.TryAcquire(e.Ctx, key)
		e.Check(err)
		if lease.Token() <= token {
			e.Errorf("Go's token %d is not above %d", lease.Token(), token)
		}
		a, err = e.call(e.SQL, "acquire", "", text(key), minute, newAttempt(), nil)
		e.want("while Go has it", a, err, "outcome", "held")
		e.Check(lease.Release(e.Ctx))
	}
}

// functionTokensRise grants by turns, through releases and the reaping of the row.
func functionTokensRise(e *env) {
	locks := e.locker(sqllock.Options{})
	last := int64(0)
	for i := range 12 {
		var token int64
		if i%2 == 0 {
			mine := newAttempt()
			token = e.acquired("rising", mine)
			a, err := e.call(e.SQL, "release", "", "rising", mine)
			e.want("release", a, err, "outcome", "released")
		} else {
			lease, err := locks.TryAcquire(e.Ctx, "rising")
			e.Check(err)
			token = lease.Token()
			e.Check(lease.Release(e.Ctx))
		}
		if token <= last {
			e.Errorf("token %d after %d", token, last)
		}
		last = token
		switch i {
		case 4: // a clock that was ahead
			last += 1_000_000_000_000
			e.Must(`UPDATE holdfast_locks SET token = $1 WHERE name = $2`, last, []byte("lrising"))
		case 7: // the reaper
			e.Must(`UPDATE holdfast_floor SET token = $1 WHERE id = 1`, last)
			e.Must(`DELETE FROM holdfast_locks WHERE name = $1`, []byte("lrising"))
		}
	}
}

// functionTakeover takes leases over after their expiry by the database's clock, from Go and by Go.
func functionTakeover(e *env) {
	ttl := conformance.ShortTTL
	locks := e.locker(sqllock.Options{TTL: ttl})
	lease, err := locks.Acquire(e.Ctx, "takeover", sqllock.AcquireOptions{NoRenewal: true})
	e.Check(err)
	mine, began := newAttempt(), time.Now()
	var a answer
	e.Eventually("the lease is taken over", func() bool {
		a, err = e.call(e.SQL, "acquire", "", "takeover", ttl.Microseconds(), mine, nil)
		return err == nil && a["outcome"] == "acquired"
	})
	token, _ := strconv.ParseInt(a["token"], 10, 64)
	if token <= lease.Token() {
		e.Errorf("token %d after %d", token, lease.Token())
	}
	if took := time.Since(began); took > dbtest.Hang {
		e.Errorf("after %v", took)
	}
	err = e.DB.InTx(e.Ctx, func(_ context.Context, tx *sql.Tx) error { return locks.Guard(e.Ctx, tx, lease.Term()) })
	if !errors.Is(err, sqllock.ErrLost) {
		e.Errorf("Go's guard: %v", err)
	}

	// An expired lease is over, also before another attempt has it.
	brief := newAttempt()
	a, err = e.call(e.SQL, "acquire", "", "brief", 50_000, brief, nil)
	e.want("a brief one", a, err, "outcome", "acquired")
	e.Eventually("it expires", func() bool {
		return e.Int(`SELECT COUNT(*) FROM holdfast_locks WHERE name = $1 AND expires_at <= `+access.Of(e.DB).Dialect.Now, []byte("lbrief")) == 1
	})
	a, err = e.call(e.SQL, "renew", "", "brief", brief, minute)
	e.want("renew of an expired lease", a, err, "outcome", "lost")

	next, err := locks.Acquire(e.Ctx, "takeover")
	e.Check(err)
	a, err = e.call(e.SQL, "renew", "", "takeover", mine, minute)
	e.want("renew of a lost lease", a, err, "outcome", "lost")
	e.refused("guard of a lost lease", e.guard("takeover", token, func(*sql.Tx) { e.Error("it runs") }), "the lease is lost")
	e.Check(e.guard("takeover", next.Token(), func(*sql.Tx) {})) // a token is a token
	e.Check(next.Release(e.Ctx))
	e.refused("guard of a released lease", e.guard("takeover", next.Token(), func(*sql.Tx) {}), "the lease is lost")
	e.refused("guard without a row", e.guard("no row", 1, func(*sql.Tx) {}), "the lease is lost")
}

// functionLeaseAlone calls a lease's functions in a transaction.
func functionLeaseAlone(e *env) {
	mine := newAttempt()
	e.acquired("alone", mine)
	for call, args := range map[string][]any{
		"acquire": {"", "alone too", minute, newAttempt(), nil}, "renew": {"", "alone", mine, minute}, "release": {"", "alone", mine},
	} {
		err := e.inTx(sql.LevelDefault, func(tx *sql.Tx) error {
			_, err := e.call(tx, call, args...)
			return err
		})
		e.refused(call, err, "inside a transaction")
	}
	a, err := e.call(e.SQL, "release", "", "alone", mine)
	e.want("release", a, err, "outcome", "released")
}

// functionLeaseStampede lets both kinds of clients increment a number that only the lease protects.
func functionLeaseStampede(e *env) {
	locks := e.locker(sqllock.Options{})
	e.Must(`INSERT INTO refunds (refund_no, amount) VALUES ('stampede', 0)`)
	var wg sync.WaitGroup
	const clients, rounds = 6, 5
	increment := func() {
		n := e.Int(`SELECT amount FROM refunds WHERE refund_no = 'stampede'`)
		e.Must(`UPDATE refunds SET amount = $1 WHERE refund_no = 'stampede'`, n+1)
	}
	for i := range clients {
		wg.Go(func() {
			for range rounds {
				if i%2 == 0 {
					err := locks.Do(e.Ctx, "lease stampede", func(context.Context, *sqllock.Lease) error { increment(); return nil })
					if err != nil {
						e.Error(err)
					}
					continue
				}
				mine := newAttempt()
				for {
					a, err := e.call(e.SQL, "acquire", "", "lease stampede", minute, mine, nil)
					if err == nil && a["outcome"] == "acquired" {
						break
					}
					if err != nil && !e.DB.Retryable(err) {
						e.Error(err)
						return
					}
					time.Sleep(time.Millisecond)
				}
				increment()
				if a, err := e.call(e.SQL, "release", "", "lease stampede", mine); err != nil || a["outcome"] != "released" {
					e.Errorf("release: %v, %v", a, err)
				}
			}
		})
	}
	wg.Wait()
	if n := e.Int(`SELECT amount FROM refunds WHERE refund_no = 'stampede'`); n != clients*rounds {
		e.Errorf("%d of %d increments", n, clients*rounds)
	}
}

// functionOneIsGranted sends many attempts at one lease at the same moment: to a key without a row, then
// to one that was released.
func functionOneIsGranted(e *env) {
	for round := range 10 {
		for _, key := range []string{fmt.Sprint("one of many ", round), "one of many"} {
			var wg sync.WaitGroup
			var mu sync.Mutex
			var granted []string
			start := make(chan struct{})
			for range 12 {
				wg.Go(func() {
					mine := newAttempt()
					<-start
					a, err := e.call(e.SQL, "acquire", "", key, minute, mine, nil)
					mu.Lock()
					defer mu.Unlock()
					if err != nil && !e.DB.Retryable(err) {
						e.Error(err)
					}
					if a["outcome"] == "acquired" {
						granted = append(granted, mine)
					}
				})
			}
			close(start)
			wg.Wait()
			if len(granted) != 1 {
				e.Fatalf("%s: %d are granted", key, len(granted))
			}
			a, err := e.call(e.SQL, "release", "", key, granted[0])
			e.want("release", a, err, "outcome", "released")
		}
	}
}

// functionRowAtOnce asks for a key whose row another session has inserted and not committed.
func functionRowAtOnce(e *env) {
	tx, err := e.SQL.BeginTx(e.Ctx, nil)
	e.Check(err)
	now := access.Of(e.DB).Dialect.Now
	theirs, err := hex.DecodeString(newAttempt())
	e.Check(err)
	_, err = tx.ExecContext(e.Ctx, e.Rebind(`INSERT INTO holdfast_locks (owner, name, token, attempt, holder, granted_at, expires_at) VALUES ('', $1, 7, $2, 'they', `+now+`, `+now+` + 60000000)`),
		[]byte("lat once"), theirs)
	e.Check(err)
	type result struct {
		a   answer
		err error
	}
	got := make(chan result, 1)
	go func() {
		a, err := e.call(e.SQL, "acquire", "", "at once", minute, newAttempt(), nil)
		got <- result{a, err}
	}()
	time.Sleep(50 * time.Millisecond) // time to grant it
	e.Check(tx.Commit())
	r := <-got
	e.want("acquire", r.a, r.err, "outcome", "held", "held_by", "they")
}

// functionWakesGo releases a lease for which a Go program waits.
func functionWakesGo(e *env) {
	locks := e.locker(sqllock.Options{})
	mine := newAttempt()
	e.acquired("awaited", mine)
	got := make(chan error, 1)
	go func() {
		lease, err := locks.Acquire(e.Ctx, "awaited")
		if err == nil {
			err = lease.Release(e.Ctx)
		}
		got <- err
	}()
	e.Eventually("Go waits", func() bool {
		return e.Int(`SELECT COUNT(*) FROM holdfast_waiters WHERE name = $1`, []byte("lawaited")) > 0
	})
	a, err := e.call(e.SQL, "release", "", "awaited", mine)
	e.want("release", a, err, "outcome", "released")
	e.Check(<-got)
}

func functionLeaseArguments(e *env) {
	for what, args := range map[string][]any{
		"no key": {"", "", minute, newAttempt(), nil}, "short TTL": {"", "k", 49_999, newAttempt(), nil}, "long TTL": {"", "k", 86_400_000_001, newAttempt(), nil},
		"no attempt": {"", "k", minute, nil, nil}, "short attempt": {"", "k", minute, "00", nil}, "no owner": {nil, "k", minute, newAttempt(), nil},
		"long holder": {"", "k", minute, newAttempt(), string(make256())},
	} {
		_, err := e.call(e.SQL, "acquire", args...)
		e.refused(what, err, "")
	}
	for _, call := range []string{"renew", "release"} {
		args := []any{"", "k", "x"}
		if call == "renew" {
			args = append(args, minute)
		}
		_, err := e.call(e.SQL, call, args...)
		e.refused(call, err, "attempt")
	}
	e.refused("guard", e.guard("", 1, func(*sql.Tx) {}), "key")
}

func make256() []byte {
	b := make([]byte, 256)
	for i := range b {
		b[i] = 'h'
	}
	return b
}

// functionLeaseUnderItsGuard sends acquire again while the holder's own guarded transaction has the row, so
// that the term cannot be extended: its client must not be told that it has the new time.
func functionLeaseUnderItsGuard(e *env) {
	mine := newAttempt()
	first, err := e.call(e.SQL, "acquire", "", "again", minute, mine, nil)
	e.want("first", first, err, "outcome", "acquired")
	tx, err := e.SQL.BeginTx(e.Ctx, nil)
	e.Check(err)
	_, err = e.call(tx, "guard", "", "again", first["token"])
	e.Check(err)
	again, err := e.call(e.SQL, "acquire", "", "again", 10*minute, mine, nil)
	e.want("under its guard", again, err, "outcome", "held")
	e.Check(tx.Commit())
	again, err = e.call(e.SQL, "acquire", "", "again", minute, mine, nil)
	e.want("after it", again, err, "outcome", "acquired", "token", first["token"])
}
