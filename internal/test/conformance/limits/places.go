package limits

import (
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/limits"
)

// aLimit is one of several limits whose owners, names, keys and ids are those of others.
type aLimit[Tx any] struct {
	l                *limits.Limits[Tx]
	owner, name, key string
	n                int64 // its number, by which its amounts are its own
}

// id names an entry: limits of one owner and one name have ids in common, and so the key is in it.
func (p *aLimit[Tx]) id(s string) string {
	if p.key == "b" {
		return "b " + s
	}
	return s
}

func (p *aLimit[Tx]) String() string { return fmt.Sprintf("%s/%s/%s", p.owner, p.name, p.key) }

func (p *aLimit[Tx]) ask(id string, amount int64) limits.Request {
	return ask(p.key, p.id(id), amount)
}

// twins makes limits that differ in one part of their key each, in both tables. Each has an open reservation,
// an amount that was taken, and a reservation whose time has passed.
func (e *env[Tx]) twins() (all []*aLimit[Tx]) {
	e.Helper()
	e.AnyOwner()
	refunds, orders := e.open(), e.orders()
	payouts, err := limits.New(e.Ctx, e.DB, "payouts")
	e.Check(err)
	for _, of := range []struct {
		l                *limits.Limits[Tx]
		owner, name, key string
	}{
		{refunds, "anna", "refunds", "a"},
		{refunds, "bob", "refunds", "a"},
		{refunds, "bob", "refunds", "b"},
		{orders, "anna", "orders", "a"},
		{orders, "bob", "orders", "a"},
		{orders, "bob", "orders", "b"},
		{payouts, "bob", "payouts", "a"},
	} {
		p := &aLimit[Tx]{of.l.For(of.owner), of.owner, of.name, of.key, int64(len(all))}
		if of.l == orders {
			e.order(p.owner, p.key, 1000+p.n)
		} else {
			e.set(p.l, p.key, 1000+p.n)
		}
		for id, amount := range map[string]int64{"open": 10, "late": 30} {
			_, err := p.l.Reserve(e.Ctx, p.ask(id, amount+p.n))
			e.Check(err)
		}
		_, err := p.l.Take(e.Ctx, p.ask("taken", 20+p.n))
		e.Check(err)
		all = append(all, p)
	}
	e.Must(`UPDATE holdfast_limit_entries SET due_at = created_at WHERE state = 1 AND id IN ($1, $2)`, []byte("late"), []byte("b late"))
	return all
}

// kept returns the rows of each limit, and those of its entries, as text.
func (e *env[Tx]) kept() map[string]string {
	e.Helper()
	out := map[string]string{}
	for _, q := range []string{
		`SELECT owner, name, limit_key, limit_amount, reserved, captured, changed_at, 0, '' FROM holdfast_limits`,
		`SELECT shop, 'orders', order_no, paid, held, refunded, version, 0, '' FROM orders`,
		`SELECT owner, name, limit_key, amount, captured, state, due_at, COALESCE(forget_at, 0), id FROM holdfast_limit_entries ORDER BY owner, name, id`,
	} {
		e.Each(q, func(rows *sql.Rows) {
			var owner, name, key, id string
			var n [5]int64
			e.Check(rows.Scan(&owner, &name, &key, &n[0], &n[1], &n[2], &n[3], &n[4], &id))
			out[fmt.Sprintf("%s/%s/%s", owner, name, key)] += fmt.Sprintln(id, n)
		})
	}
	return out
}

// twinLimits makes every call for each of the limits in turn. The call answers for this limit alone, and no
// row of another one changes: no other tenant's money moves, and none of it is seen.
func twinLimits[Tx any](e *env[Tx]) {
	all := e.twins()
	for _, p := range all { // before any of them is changed
		if got, err := p.l.Entry(e.Ctx, p.id("open")); err != nil || got.Key != p.key || got.Amount != 10+p.n {
			e.Errorf("%s: %+v, %v", p, got, err)
		}
	}
	e.Must(`UPDATE holdfast_limits SET changed_at = 1`)
	before := e.kept()
	for _, p := range all {
		// call runs one call. With wrote, it says when the limit's row was changed.
		call := func(what string, wrote bool, want error, f func() error) {
			e.Helper()
			if err := f(); !errors.Is(err, want) {
				e.Errorf("%s of %s: %v, want %v", what, p, err, want)
			}
			after := e.kept()
			if _, own := before[p.String()]; !own {
				e.Fatalf("no rows of %s", p)
			}
			for _, other := range slices.Sorted(maps.Keys(after)) {
				if other != p.String() && before[other] != after[other] {
					e.Errorf("%s of %s changed\n%s of %s to\n%s", what, p, before[other], other, after[other])
				}
			}
			if own := after[p.String()]; p.name != "orders" && wrote == strings.Contains(own, " 1 0]") {
				e.Errorf("%s of %s: the time of the change is that of a call that wrote, %t: %s", what, p, wrote, own)
			}
			if wrote {
				e.Must(`UPDATE holdfast_limits SET changed_at = 1`)
				after = e.kept()
			}
			before = after
		}
		entry := func(what string, wrote bool, want limits.Entry, f func() (limits.Entry, error)) {
			e.Helper()
			call(what, wrote, nil, func() error {
				got, err := f()
				if got.Key != p.key || got.ID != p.id(want.ID) || got.Amount != want.Amount || got.Captured != want.Captured || got.State != want.State || got.Replayed != want.Replayed {
					e.Errorf("%s of %s: %+v, want %+v", what, p, got, want)
				}
				return err
			})
		}
		exceeded := func(err error, limit, reserved, captured, asked int64) error {
			e.Helper()
			var x *limits.ExceededError
			if !errors.As(err, &x) || *x != (limits.ExceededError{Key: p.key, Limit: limit, Reserved: reserved, Captured: captured, Asked: asked, Available: limit - reserved - captured}) {
				e.Errorf("%s: %+v", p, x)
			}
			return err
		}
		limit, open, taken := 1000+p.n, 10+p.n, 20+p.n
		call("Get", false, nil, func() error {
			e.wantStatus(p.l, p.key, limit, open, taken)
			return nil
		})
		entry("Entry", false, limits.Entry{ID: "late", Amount: 30 + p.n, State: limits.Expired}, func() (limits.Entry, error) { return p.l.Entry(e.Ctx, p.id("late")) })
		entry("Entry", false, limits.Entry{ID: "open", Amount: open, State: limits.Reserved}, func() (limits.Entry, error) { return p.l.Entry(e.Ctx, p.id("open")) })
		call("a Reserve that closes what has expired, and does not fit", true, limits.ErrExceeded, func() error {
			return exceeded(errOf(p.l.Reserve(e.Ctx, p.ask("new", limit))), limit, open, taken, limit)
		})
		call("a low Set", false, limits.ErrExceeded, func() error {
			return exceeded(second(p.l.Set(e.Ctx, p.key, open+taken-1)), open+taken-1, open, taken, 0)
		})
		call("a Capture after the time", false, limits.ErrExpired, func() error { return errOf(p.l.Capture(e.Ctx, p.ask("late", 0))) })
		call("Expire", false, nil, func() error {
			n, err := p.l.Expire(e.Ctx, p.key)
			if n != 0 {
				e.Errorf("%s: %d expired again", p, n)
			}
			return err
		})
		entry("Reserve", true, limits.Entry{ID: "new", Amount: 50 + p.n, State: limits.Reserved}, func() (limits.Entry, error) { return p.l.Reserve(e.Ctx, p.ask("new", 50+p.n)) })
		entry("Reserve again", true, limits.Entry{ID: "new", Amount: 50 + p.n, State: limits.Reserved, Replayed: true}, func() (limits.Entry, error) { return p.l.Reserve(e.Ctx, p.ask("new", 50+p.n)) })
		entry("Take", true, limits.Entry{ID: "paid", Amount: 60 + p.n, Captured: 60 + p.n, State: limits.Captured}, func() (limits.Entry, error) { return p.l.Take(e.Ctx, p.ask("paid", 60+p.n)) })
		entry("Take again", true, limits.Entry{ID: "taken", Amount: taken, Captured: taken, State: limits.Captured, Replayed: true}, func() (limits.Entry, error) { return p.l.Take(e.Ctx, p.ask("taken", taken)) })
		entry("Capture", true, limits.Entry{ID: "new", Amount: 50 + p.n, Captured: 40, State: limits.Captured}, func() (limits.Entry, error) { return p.l.Capture(e.Ctx, p.ask("new", 40)) })
		entry("Void", true, limits.Entry{ID: "open", Amount: open, State: limits.Voided}, func() (limits.Entry, error) { return p.l.Void(e.Ctx, p.ask("open", 0)) })
		call("Set", true, nil, func() error { return second(p.l.Set(e.Ctx, p.key, 2000)) })
		e.wantStatus(p.l, p.key, 2000, 0, taken+60+p.n+40)
	}
}

// changedByAnother has another program write to the counters: then no call brings them below zero.
func changedByAnother[Tx any](e *env[Tx]) {
	l, shop := e.open(), e.orders().For("shop")
	e.set(l, "a", 100)
	e.order("shop", "a", 100)
	for _, of := range []struct {
		l                *limits.Limits[Tx]
		change, captured string
	}{
		{l, `UPDATE holdfast_limits SET reserved = 5`, ``}, // the table refuses what is below zero
		{shop, `UPDATE orders SET held = 5`, `UPDATE orders SET held = 10, refunded = -1`},
	} {
		for again := range 2 {
			got, err := of.l.Reserve(e.Ctx, ask("a", "open", 10))
			if err != nil || got.Replayed != (again == 1) {
				e.Errorf("%+v, %v: a counter may be zero", got, err)
			}
		}
		_, err := of.l.Take(e.Ctx, ask("a", "taken", 20))
		e.Check(err)
		refused := func(what string, call func() error) {
			e.Helper()
			before := e.kept()
			if err := call(); err == nil || !strings.Contains(err.Error(), "counters of the limit are not the sums") {
				e.Errorf("%s: %v", what, err)
			}
			if after := e.kept(); !maps.Equal(before, after) {
				e.Errorf("%s wrote: %v, was %v", what, after, before)
			}
		}
		e.Must(of.change)
		refused("Capture", func() error { return errOf(of.l.Capture(e.Ctx, ask("a", "open", 0))) })
		refused("Void", func() error { return errOf(of.l.Void(e.Ctx, ask("a", "open", 0))) })
		if of.captured != "" {
			e.Must(of.captured)
			refused("Take again", func() error { return errOf(of.l.Take(e.Ctx, ask("a", "taken", 20))) })
		}
	}
}

// closedLater reads the expired reservations by page while others are closed, whose time had passed before: what is
// closed later comes behind the last one, and no reader misses it.
func closedLater[Tx any](e *env[Tx]) {
	l := e.open()
	e.set(l, "a", 100)
	for _, id := range []string{"1", "2"} {
		_, err := l.Reserve(e.Ctx, ask("a", id, 10))
		e.Check(err)
	}
	e.Must(`UPDATE holdfast_limit_entries SET due_at = created_at`)
	e.Must(`UPDATE holdfast_limit_entries SET due_at = due_at - 1000000 WHERE id = $1`, []byte("2"))
	var last limits.Entry
	for _, id := range []string{"1", "2"} {
		e.want(errOf(l.Capture(e.Ctx, ask("a", id, 0))), limits.ErrExpired)
		page, err := core.First(9, l.Entries(e.Ctx, "a", limits.ListOptions{State: limits.Expired, After: last}))
		if err != nil || len(page) != 1 || page[0].ID != id {
			e.Fatalf("after %q: %+v, %v, want %s", last.ID, page, err, id)
		}
		last = page[0]
	}
}
