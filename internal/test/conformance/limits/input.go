package limits

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/test/conformance"
	"github.com/holdfast-go/holdfast/limits"
	"github.com/holdfast-go/holdfast/reaper"
)

// limitInput checks that bad input fails before anything is sent, and that keys and ids are their bytes.
func limitInput[Tx any](e *env[Tx]) {
	l := e.open()
	e.set(l, "a", 100)
	tx := e.BeginTx(e.Levels()[0])
	long := strings.Repeat("k", limits.MaxKey+1)
	for what, r := range map[string]limits.Request{
		"no key": ask("", "1", 1), "no id": ask("a", "", 1), "a long key": ask(long, "1", 1), "a long id": ask("a", long, 1),
		"a negative amount": ask("a", "1", -1), "the lowest number": ask("a", "1", math.MinInt64),
	} {
		for call, err := range map[string]error{
			"reserve": errOf(l.Reserve(e.Ctx, r)), "reserve in tx": errOf(l.ReserveTx(e.Ctx, tx, r)),
			"take": errOf(l.Take(e.Ctx, r)), "take in tx": errOf(l.TakeTx(e.Ctx, tx, r)),
			"capture": errOf(l.Capture(e.Ctx, r)), "capture in tx": errOf(l.CaptureTx(e.Ctx, tx, r)),
		} {
			if !errors.Is(err, holdfast.ErrInvalid) {
				e.Errorf("%s, %s: %v", what, call, err)
			}
		}
	}
	for _, err := range []error{
		errOf(l.Take(e.Ctx, ask("a", "1", 0))), errOf(l.Reserve(e.Ctx, ask("a", "1", 0))), errOf(l.VoidTx(e.Ctx, tx, ask("", "1", 0))),
		errOf(l.Reserve(e.Ctx, limits.Request{Key: "a", ID: "1", Amount: 1, Timeout: -1})),
		errOf(l.Reserve(e.Ctx, limits.Request{Key: "a", ID: "1", Amount: 1, Timeout: 10*366*24*time.Hour + 1})),
		errOf(l.Reserve(e.Ctx, limits.Request{Key: "a", ID: "1", Amount: 1, Timeout: 999})),
		second(l.Set(e.Ctx, "a", -1)), second(l.Get(e.Ctx, "")), errOf(l.Entry(e.Ctx, "")),
		errOf(l.For(strings.Repeat("o", 129)).Take(e.Ctx, ask("a", "1", 1))),
		third(core.First(1, l.Entries(e.Ctx, "a", limits.ListOptions{State: 9}))),
		opens(limits.New[Tx](e.Ctx, nil, "x")), opens(limits.New(e.Ctx, e.DB, "")), opens(limits.New(e.Ctx, e.DB, "x", limits.Options{Keep: time.Second})),
	} {
		e.want(err, holdfast.ErrInvalid)
	}
	e.EndTx(tx, true) // tx is unchanged
	e.wantStatus(l, "a", 100, 0, 0)

	for i, key := range conformance.Keys() {
		if len(key) > limits.MaxKey {
			continue
		}
		e.set(l, key, int64(i+1))
		_, err := l.Take(e.Ctx, ask(key, "id "+key, int64(i+1)))
		e.Check(err)
		_, err = l.Take(e.Ctx, ask("a", key, 1))
		e.Check(err)
	}
	for i, key := range conformance.Keys() {
		if len(key) <= limits.MaxKey {
			e.wantStatus(l, key, int64(i+1), 0, int64(i+1))
			if got, err := l.Entry(e.Ctx, "id "+key); err != nil || got.Key != key || got.Amount != int64(i+1) {
				e.Errorf("%q: %+v, %v", key, got, err)
			}
		}
	}
	e.Must(`DROP TABLE holdfast_schema`)
	if _, err := limits.New(e.Ctx, e.DB, "x"); !errors.Is(err, holdfast.ErrSchema) {
		e.Errorf("without its tables: %v", err)
	}
}

func third(_ []limits.Entry, err error) error { return err }

func opens[Tx any](_ *limits.Limits[Tx], err error) error { return err }

// numbersAtTheEdge reserves all of the largest limit, and more: no sum overflows.
func numbersAtTheEdge[Tx any](e *env[Tx]) {
	l := e.open()
	e.set(l, "a", math.MaxInt64)
	_, err := l.Reserve(e.Ctx, ask("a", "1", math.MaxInt64-1))
	e.Check(err)
	for i, amount := range []int64{2, math.MaxInt64, math.MaxInt64 - 1} {
		id := fmt.Sprint("more ", i)
		e.want(errOf(l.Take(e.Ctx, ask("a", id, amount))), limits.ErrExceeded)
		e.want(errOf(l.Reserve(e.Ctx, ask("a", id, amount))), limits.ErrExceeded)
	}
	_, err = l.Take(e.Ctx, ask("a", "2", 1))
	e.Check(err)
	_, err = l.Capture(e.Ctx, ask("a", "1", 0))
	e.Check(err)
	e.wantStatus(l, "a", math.MaxInt64, 0, math.MaxInt64)
	e.want(second(l.Set(e.Ctx, "a", math.MaxInt64-1)), limits.ErrExceeded)
	e.set(l, "zero", 0)
	e.want(errOf(l.Take(e.Ctx, ask("zero", "3", 1))), limits.ErrExceeded)
	_, err = l.Reserve(e.Ctx, limits.Request{Key: "a", ID: "4", Amount: 1, Timeout: 10 * 366 * 24 * time.Hour})
	e.want(err, limits.ErrExceeded)
}

// limitOwners checks that owners, and names of limits, have nothing in common, and erases one of them.
func limitOwners[Tx any](e *env[Tx]) {
	e.AnyOwner()
	other, err := limits.New(e.Ctx, e.DB, "payouts")
	e.Check(err)
	all := []*limits.Limits[Tx]{e.open(), e.open().For("anna"), e.open().For("Anna"), e.open().For("anna "), other.For("anna")}
	for i, l := range all {
		e.set(l, "a", int64(10+i))
		_, err := l.Take(e.Ctx, ask("a", "1", int64(1+i)))
		e.Check(err)
		_, err = l.Reserve(e.Ctx, ask("a", "2", 5))
		e.Check(err)
	}
	for i, l := range all {
		e.wantStatus(l, "a", int64(10+i), 5, int64(1+i))
	}
	anna := all[1]
	e.set(anna, "b", 10)
	_, err = anna.Take(e.Ctx, ask("b", "3", 5))
	e.Check(err)
	if n, err := anna.Erase(e.Ctx, holdfast.Actor{By: "olga", Reason: "asked"}); n != 3 || err != nil { // what is reserved stays
		e.Error(n, err)
	}
	_, err = anna.Get(e.Ctx, "b")
	e.want(err, limits.ErrNotFound)
	_, err = anna.Void(e.Ctx, ask("a", "2", 0))
	e.Check(err)
	if n, err := anna.Erase(e.Ctx, holdfast.Actor{By: "olga", Reason: "asked"}); n != 2 || err != nil {
		e.Error(n, err)
	}
	for i, l := range all {
		if l != anna {
			e.wantStatus(l, "a", int64(10+i), 5, int64(1+i))
		}
	}
	if n := e.Int(`SELECT COUNT(*) FROM holdfast_limit_entries WHERE owner = 'anna' AND name = $1`, []byte("refunds")); n != 0 {
		e.Errorf("%d entries are left", n)
	}
}

// limitEntriesByPage lists the entries of a limit, a few at a time.
func limitEntriesByPage[Tx any](e *env[Tx]) {
	l := e.open()
	e.set(l, "a", 100)
	e.set(l, "b", 100)
	_, err := l.Take(e.Ctx, ask("b", "of another limit", 1))
	e.Check(err)
	for i := range 5 {
		id := fmt.Sprint(i)
		_, err := l.Take(e.Ctx, ask("a", "taken "+id, 1))
		e.Check(err)
		_, err = l.Reserve(e.Ctx, limits.Request{Key: "a", ID: "later " + id, Amount: 1, Timeout: time.Duration(9-i) * time.Hour})
		e.Check(err)
		_, err = l.Reserve(e.Ctx, ask("a", "void "+id, 1))
		e.Check(err)
	}
	for i := range 2 {
		_, err := l.Void(e.Ctx, ask("a", fmt.Sprint("void ", i), 0))
		e.Check(err)
	}
	read := func(limit int, o limits.ListOptions) (ids []string) {
		for {
			page, err := core.First(limit, l.Entries(e.Ctx, "a", o))
			e.Check(err)
			for _, entry := range page {
				if entry.Key != "a" || entry.Created.IsZero() || entry.Replayed || (entry.State == limits.Reserved) == !entry.Ended.IsZero() {
					e.Errorf("%+v", entry)
				}
				ids = append(ids, entry.ID)
				o.After = entry
			}
			if len(page) < limit {
				return ids
			}
		}
	}
	open := "later 4, later 3, later 2, later 1, later 0, void 2, void 3, void 4"
	taken := "taken 0, taken 1, taken 2, taken 3, taken 4"
	for _, limit := range []int{1, 2, 16} {
		for state, want := range map[limits.State]string{0: open + ", " + taken + ", void 0, void 1", limits.Reserved: open, limits.Captured: taken, limits.Voided: "void 0, void 1", limits.Expired: ""} {
			if got := strings.Join(read(limit, limits.ListOptions{State: state}), ", "); got != want {
				e.Errorf("%s, %d at a time: %s, want %s", state, limit, got, want)
			}
		}
	}
	got, err := l.Entry(e.Ctx, "later 0")
	if err != nil || got.Expires.Sub(got.Created) < 9*time.Hour || got.Expires.Sub(got.Created) > 9*time.Hour+conformance.Timeout || got.State != limits.Reserved {
		e.Errorf("%+v, %v", got, err)
	}
	if got, err := l.Entry(e.Ctx, "void 4"); err != nil || !got.Expires.IsZero() {
		e.Errorf("%+v, %v", got, err)
	}
}

// forgottenByTheSweep checks that the reaper deletes entries past Keep, and that the counters stay.
func forgottenByTheSweep[Tx any](e *env[Tx]) {
	l := e.open(limits.Options{Keep: time.Hour})
	forever := e.open()
	e.set(l, "a", 100)
	_, err := l.Take(e.Ctx, ask("a", "taken", 10))
	e.Check(err)
	_, err = forever.Take(e.Ctx, ask("a", "kept", 10))
	e.Check(err)
	for _, id := range []string{"voided", "captured", "open"} {
		_, err = l.Reserve(e.Ctx, ask("a", id, 10))
		e.Check(err)
	}
	e.expired(l, "a", "expired", 10)
	e.expired(l, "a", "overdue", 10)
	_, err = l.Void(e.Ctx, ask("a", "voided", 0))
	e.Check(err)
	_, err = l.Capture(e.Ctx, ask("a", "captured", 0))
	e.Check(err)
	e.want(errOf(l.Capture(e.Ctx, ask("a", "expired", 0))), limits.ErrExpired)
	r := e.Reaper(reaper.Options{})
	swept := func(want int64) {
		e.Helper()
		report, err := r.Sweep(e.Ctx)
		if err != nil || report.Rows() != want {
			e.Errorf("%+v, %v, want %d rows", report, err, want)
		}
	}
	swept(0)
	if n := e.Int(`SELECT COUNT(*) FROM holdfast_limit_entries WHERE forget_at IS NOT NULL AND forget_at - due_at BETWEEN 3600000000 AND 3660000000`); n != 4 {
		e.Errorf("%d entries end at some time, want 4", n)
	}
	e.Must(`UPDATE holdfast_limit_entries SET forget_at = 1 WHERE forget_at IS NOT NULL`)
	swept(4)
	for _, id := range []string{"taken", "voided", "captured", "expired"} {
		e.want(errOf(l.Entry(e.Ctx, id)), limits.ErrNotFound)
	}
	for _, id := range []string{"kept", "open", "overdue"} {
		e.want(errOf(l.Entry(e.Ctx, id)), nil)
	}
	if s, err := l.Get(e.Ctx, "a"); err != nil || s != (limits.Status{Limit: 100, Reserved: 10, Captured: 30, Available: 60}) {
		e.Errorf("%+v, %v", s, err)
	}
}
