package limits

import (
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast/limits"
)

// reservationLife reserves, captures in whole and in part, and voids, in each form. Each call again
// returns the same and changes nothing.
func reservationLife[Tx any](e *env[Tx]) {
	l := e.open()
	e.set(l, "a", 1000)
	type form struct {
		name                   string
		reserve, capture, void func(r limits.Request) (limits.Entry, error)
	}
	tx := func(call func(tx Tx, r limits.Request) (limits.Entry, error)) func(r limits.Request) (limits.Entry, error) {
		return func(r limits.Request) (got limits.Entry, err error) {
			err = e.inTx(e.Levels()[0], func(tx Tx) (err error) { got, err = call(tx, r); return err })
			return got, err
		}
	}
	forms := []form{
		{
			"plain", func(r limits.Request) (limits.Entry, error) { return l.Reserve(e.Ctx, r) },
			func(r limits.Request) (limits.Entry, error) { return l.Capture(e.Ctx, r) },
			func(r limits.Request) (limits.Entry, error) { return l.Void(e.Ctx, r) },
		},
		{
			"tx", tx(func(tx Tx, r limits.Request) (limits.Entry, error) { return l.ReserveTx(e.Ctx, tx, r) }),
			tx(func(tx Tx, r limits.Request) (limits.Entry, error) { return l.CaptureTx(e.Ctx, tx, r) }),
			tx(func(tx Tx, r limits.Request) (limits.Entry, error) { return l.VoidTx(e.Ctx, tx, r) }),
		},
	}
	captured := int64(0)
	for _, f := range forms {
		want := func(what string, reserved, add int64, state limits.State, of int64, call func(r limits.Request) (limits.Entry, error), r limits.Request) {
			e.Helper()
			captured += add
			for again := range 2 {
				got, err := call(r)
				if err != nil || got.Key != "a" || got.ID != r.ID || got.State != state || got.Captured != of || got.Replayed != (again == 1) {
					e.Errorf("%s %s: %+v, %v", f.name, what, got, err)
				}
				e.wantStatus(l, "a", 1000, reserved, captured)
			}
		}
		id := func(s string) string { return f.name + " " + s }
		want("reserve", 100, 0, limits.Reserved, 0, f.reserve, ask("a", id("whole"), 100))
		want("reserve", 150, 0, limits.Reserved, 0, f.reserve, ask("a", id("part"), 50))
		want("reserve", 157, 0, limits.Reserved, 0, f.reserve, limits.Request{Key: "a", ID: id("void"), Amount: 7, Timeout: time.Hour})
		want("capture", 57, 100, limits.Captured, 100, f.capture, ask("a", id("whole"), 0))
		if got, err := f.reserve(ask("a", id("whole"), 100)); err != nil || got.State != limits.Captured || !got.Replayed { // what became of it
			e.Errorf("%+v, %v", got, err)
		}
		e.want(errOf(f.capture(ask("a", id("part"), 51))), limits.ErrMismatch)
		want("capture", 7, 30, limits.Captured, 30, f.capture, ask("a", id("part"), 30))
		want("void", 0, 0, limits.Voided, 0, f.void, ask("a", id("void"), 0))
		for _, r := range []limits.Request{ask("a", id("part"), 0), ask("a", id("part"), 29), ask("a", id("part"), 50)} {
			e.want(errOf(f.capture(r)), limits.ErrMismatch) // 30 were captured
		}
		e.want(errOf(f.capture(ask("a", id("none"), 0))), limits.ErrNotFound)
		e.want(errOf(f.void(ask("a", id("none"), 0))), limits.ErrNotFound)
	}
	e.set(l, "b", 10)
	e.want(errOf(l.Capture(e.Ctx, ask("b", "plain whole", 0))), limits.ErrMismatch)
	e.want(errOf(l.Void(e.Ctx, ask("b", "plain whole", 0))), limits.ErrMismatch)
	e.want(errOf(l.Take(e.Ctx, ask("a", "plain part", 50))), limits.ErrMismatch)
	_, err := l.Reserve(e.Ctx, ask("a", "open", 1))
	e.Check(err)
	e.want(errOf(l.Take(e.Ctx, ask("a", "open", 1))), limits.ErrMismatch)
}

func errOf(_ limits.Entry, err error) error { return err }

// wait reserves with the shortest timeout, and waits until the time has passed.
func (e *env[Tx]) expired(l *limits.Limits[Tx], key, id string, amount int64) {
	e.Helper()
	_, err := l.Reserve(e.Ctx, limits.Request{Key: key, ID: id, Amount: amount, Timeout: 50 * time.Millisecond})
	e.Check(err)
	e.Eventually("the time passes", func() bool {
		got, err := l.Entry(e.Ctx, id)
		e.Check(err)
		return got.State == limits.Expired
	})
}

// endedIsEnded calls everything for a reservation that was captured, voided, or has expired.
func endedIsEnded[Tx any](e *env[Tx]) {
	l := e.open()
	e.set(l, "a", 1000)
	for id, state := range map[string]limits.State{"captured": limits.Captured, "voided": limits.Voided, "expired": limits.Expired, "closed": limits.Expired} {
		switch state {
		case limits.Captured:
			_, err := l.Take(e.Ctx, ask("a", id, 10))
			e.Check(err)
		case limits.Voided:
			_, err := l.Reserve(e.Ctx, ask("a", id, 10))
			e.Check(err)
			_, err = l.Void(e.Ctx, ask("a", id, 0))
			e.Check(err)
		default:
			e.expired(l, "a", id, 10)
		}
		if id == "closed" {
			if n, err := l.Expire(e.Ctx, "a"); n != 1 || err != nil {
				e.Error(n, err)
			}
		}
		is := map[limits.State]error{limits.Captured: limits.ErrCaptured, limits.Voided: limits.ErrVoided, limits.Expired: limits.ErrExpired}[state]
		calls := map[string]error{}
		if state != limits.Captured {
			calls["take"], calls["reserve"], calls["capture"] = errOf(l.Take(e.Ctx, ask("a", id, 10))), errOf(l.Reserve(e.Ctx, ask("a", id, 10))), errOf(l.Capture(e.Ctx, ask("a", id, 10)))
		}
		if state != limits.Voided {
			calls["void"] = errOf(l.Void(e.Ctx, ask("a", id, 0)))
		}
		for call, err := range calls {
			var ended *limits.EndedError
			if !errors.Is(err, is) || !errors.As(err, &ended) || ended.Entry.State != state || ended.Entry.ID != id {
				e.Errorf("%s of what is %s: %v", call, id, err)
			}
			matches := 0
			for _, s := range []error{limits.ErrCaptured, limits.ErrVoided, limits.ErrExpired} {
				if errors.Is(err, s) {
					matches++
				}
			}
			if matches != 1 {
				e.Errorf("%s: %v is %d errors", call, err, matches)
			}
		}
		if got, err := l.Entry(e.Ctx, id); err != nil || got.State != state || got.Ended.IsZero() || got.Created.After(got.Ended) || !got.Expires.IsZero() {
			e.Errorf("%+v, %v", got, err)
		}
	}
	e.wantStatus(l, "a", 1000, 0, 10)
}

// expiredDoNotCount checks that a reservation whose time has passed hinders no call, though no reaper
// runs: each call alone, and many calls at once.
func expiredDoNotCount[Tx any](e *env[Tx]) {
	l := e.open()
	e.set(l, "a", 100)
	e.expired(l, "a", "1", 60)
	if s, err := l.Get(e.Ctx, "a"); err != nil || s.Available != 100 || s.Reserved != 0 {
		e.Errorf("%+v, %v", s, err)
	}
	_, err := l.Reserve(e.Ctx, ask("a", "2", 30)) // it fits beside the expired one
	e.Check(err)
	_, err = l.Reserve(e.Ctx, ask("a", "3", 70))
	e.Check(err)
	e.wantStatus(l, "a", 100, 100, 0)
	e.want(errOf(l.Capture(e.Ctx, ask("a", "1", 60))), limits.ErrExpired)

	// A capture that finds it closes it, and so do Set and Take.
	for i, call := range []func(key, id string) error{
		func(key, id string) error { return errOf(l.Capture(e.Ctx, ask(key, id, 0))) },
		func(key, id string) error { return errOf(l.Void(e.Ctx, ask(key, id, 0))) },
		func(key, id string) error { return errOf(l.Reserve(e.Ctx, ask(key, id, 10))) },
		func(key, _ string) error { return second(l.Set(e.Ctx, key, 9)) },
		func(key, id string) error { return errOf(l.Take(e.Ctx, ask(key, id+" other", 10))) },
	} {
		key, id := fmt.Sprint("b", i), fmt.Sprint("expired ", i)
		e.set(l, key, 10)
		e.expired(l, key, id, 10)
		want := limits.ErrExpired
		if i > 2 {
			want = nil
		}
		e.want(call(key, id), want)
		if n := e.Int(`SELECT reserved FROM holdfast_limits WHERE limit_key = $1`, []byte(key)); n != 0 {
			e.Errorf("call %d left %d reserved", i, n)
		}
	}

	// Ten calls meet the same one, each for a tenth.
	e.set(l, "c", 100)
	e.expired(l, "c", "c", 100)
	done := make(chan error)
	for i := range 10 {
		go func() { done <- errOf(l.Take(e.Ctx, ask("c", fmt.Sprint("c", i), 10))) }()
	}
	for range 10 {
		e.want(<-done, nil)
	}
	e.wantStatus(l, "c", 100, 0, 100)
}

func second(_ limits.Status, err error) error { return err }

// manyExpired meets more of them than one statement closes.
func manyExpired[Tx any](e *env[Tx]) {
	l := e.open()
	e.set(l, "a", 300)
	e.Check(e.inTx(e.Levels()[0], func(tx Tx) error {
		for i := range 300 {
			if _, err := l.ReserveTx(e.Ctx, tx, limits.Request{Key: "a", ID: fmt.Sprint(i), Amount: 1, Timeout: 50*time.Millisecond + time.Duration(i)*time.Microsecond}); err != nil {
				return err
			}
		}
		return nil
	}))
	e.Eventually("the time passes", func() bool {
		s, err := l.Get(e.Ctx, "a")
		e.Check(err)
		return s.Available == 300
	})
	_, err := l.Take(e.Ctx, ask("a", "some", 150)) // it closes as many batches as it needs
	e.Check(err)
	if n := e.Int(`SELECT reserved FROM holdfast_limits`); n != 44 {
		e.Errorf("%d reserved, want what two batches of 128 leave", n)
	}
	if n, err := l.Expire(e.Ctx, "a"); n != 44 || err != nil {
		e.Error(n, err)
	}
	e.wantStatus(l, "a", 300, 0, 150)
}

// setRaisesAndLowers changes a limit, never below what is used.
func setRaisesAndLowers[Tx any](e *env[Tx]) {
	l := e.open()
	_, err := l.Get(e.Ctx, "a")
	e.want(err, limits.ErrNotFound)
	for _, amount := range []int64{0, 100, 100, 200, 100} {
		if s, err := l.Set(e.Ctx, "a", amount); err != nil || s != (limits.Status{Limit: amount, Available: amount}) {
			e.Errorf("%+v, %v", s, err)
		}
	}
	_, err = l.Take(e.Ctx, ask("a", "1", 40))
	e.Check(err)
	_, err = l.Reserve(e.Ctx, ask("a", "2", 20))
	e.Check(err)
	s, err := l.Set(e.Ctx, "a", 60)
	if err != nil || s != (limits.Status{Limit: 60, Captured: 40, Reserved: 20}) {
		e.Errorf("%+v, %v", s, err)
	}
	_, err = l.Set(e.Ctx, "a", 59)
	var below *limits.ExceededError
	if !errors.As(err, &below) || below.Limit != 59 || below.Captured != 40 || below.Reserved != 20 || below.Available != -1 || below.Asked != 0 {
		e.Errorf("%+v, %v", below, err)
	}
	stop := errors.New("stop")
	for _, level := range e.levels() {
		e.want(e.inTx(level, func(tx Tx) error {
			if _, err := l.SetTx(e.Ctx, tx, "a", 70); err != nil {
				return err
			}
			if _, err := l.TakeTx(e.Ctx, tx, ask("a", "3", 10)); err != nil {
				return err
			}
			if _, err := l.SetTx(e.Ctx, tx, "a", 69); !errors.Is(err, limits.ErrExceeded) {
				return err
			}
			return stop
		}), stop)
	}
	e.wantStatus(l, "a", 60, 20, 40)

	// Many set it while others take: the limit is never below what is used.
	done := make(chan error)
	for i := range 8 {
		go func() {
			if i%2 == 0 {
				done <- second(l.Set(e.Ctx, "b", 50))
				return
			}
			err := errOf(l.Take(e.Ctx, ask("b", fmt.Sprint("b", i), 20)))
			if errors.Is(err, limits.ErrNotFound) || errors.Is(err, limits.ErrExceeded) {
				err = nil
			}
			done <- err
		}()
	}
	for range 8 {
		e.want(<-done, nil)
	}
}
