package service_test

import (
	"fmt"
	"testing"

	"github.com/holdfast-go/holdfast/examples/service/provider"
)

// order and row are rows of the service's tables.
type (
	order struct{ paid, reserved, refunded int64 }
	row   struct {
		order string
		cents int64
		state string
	}
)

// books are what is known at the end.
type books struct {
	accepted, rejected []provider.Refund // as the clients were told
	orders             map[string]order
	rows               map[string]row
	bank               []payment
	stuck              []string
}

// findings are what is wrong, and how much there was.
type findings struct {
	twice, lost, stuck, over int
	paid, refused, again     int
	problems                 []string
}

func (f *findings) addf(count *int, format string, args ...any) {
	*count++
	f.problems = append(f.problems, fmt.Sprintf(format, args...))
}

// left returns what may still be refunded of each order.
func (b books) left() map[string]int64 {
	left := map[string]int64{}
	for no, o := range b.orders {
		left[no] = o.paid - o.reserved - o.refunded
	}
	return left
}

// audit compares the books. Every refund that was accepted is paid once, or refused and compensated.
func (b books) audit() findings {
	var f findings
	payments, sums := map[string][]payment{}, map[string]int64{}
	for _, p := range b.bank {
		payments[p.refund.ID] = append(payments[p.refund.ID], p)
		f.again += p.asked - 1
		if p.answer.State == provider.Paid {
			f.paid++
			sums[p.refund.Order] += p.refund.Cents
		} else {
			f.refused++
		}
	}
	accepted := map[string]bool{}
	for _, a := range b.accepted {
		accepted[a.ID] = true
		of, r := payments[a.ID], b.rows[a.ID]
		switch {
		case len(of) == 0:
			f.addf(&f.lost, "%s: accepted, and the bank was never asked", a.ID)
		case of[0].refund != a:
			f.addf(&f.lost, "%s: the bank was asked for %+v", a.ID, of[0].refund)
		case r != row{a.Order, a.Cents, of[0].answer.State}:
			f.addf(&f.lost, "%s: the bank says %s, and the row is %+v", a.ID, of[0].answer.State, r)
		}
	}
	for _, r := range b.rejected {
		if _, have := b.rows[r.ID]; have || len(payments[r.ID]) > 0 {
			f.addf(&f.over, "%s: refused, and yet there", r.ID)
		}
	}
	for id, of := range payments {
		if len(of) > 1 {
			f.addf(&f.twice, "%s: refunded under %d keys", id, len(of))
		}
		if !accepted[id] {
			f.addf(&f.lost, "%s: nobody asked for it", id)
		}
	}
	for no, o := range b.orders {
		if sums[no] > o.paid {
			f.addf(&f.over, "order %s: %d of %d refunded", no, sums[no], o.paid)
		}
		if o.refunded != sums[no] || o.reserved != 0 {
			f.addf(&f.lost, "order %s: the bank paid %d, and it says %+v", no, sums[no], o)
		}
	}
	for _, s := range b.stuck {
		f.addf(&f.stuck, "%s", s)
	}
	return f
}

// TestAudit plants each fault.
func TestAudit(t *testing.T) {
	t.Parallel()
	refund := provider.Refund{Shop: shop, Order: "1", ID: "a", Cents: 60}
	good := func() books {
		return books{
			accepted: []provider.Refund{refund}, rejected: []provider.Refund{{Shop: shop, Order: "1", ID: "b", Cents: 60}},
			orders: map[string]order{"1": {paid: 100, refunded: 60}}, rows: map[string]row{"a": {"1", 60, provider.Paid}},
			bank: []payment{{refund, provider.Answer{State: provider.Paid}, 2}},
		}
	}
	for name, c := range map[string]struct {
		plant                    func(b *books)
		twice, lost, stuck, over int
	}{
		"nothing":        {plant: func(*books) {}},
		"two keys":       {func(b *books) { b.bank = append(b.bank, b.bank[0]); b.orders["1"] = order{120, 0, 120} }, 1, 0, 0, 0},
		"never asked":    {func(b *books) { b.bank = nil; b.orders["1"] = order{paid: 100} }, 0, 1, 0, 0},
		"another amount": {func(b *books) { b.bank[0].refund.Cents = 70; b.orders["1"] = order{100, 0, 70} }, 0, 1, 0, 0},
		"refused, no void": {func(b *books) {
			b.bank[0].answer.State = provider.Refused
			b.rows["a"] = row{"1", 60, provider.Refused}
		}, 0, 1, 0, 0},
		"row left behind": {func(b *books) { b.rows["a"] = row{"1", 60, "asked"} }, 0, 1, 0, 0},
		"row lost":        {func(b *books) { delete(b.rows, "a") }, 0, 1, 0, 0},
		"reserved":        {func(b *books) { b.orders["1"] = order{100, 40, 60} }, 0, 1, 0, 0},
		"nobody asked":    {func(b *books) { b.accepted = nil }, 0, 1, 0, 0},
		"open":            {func(b *books) { b.stuck = []string{"a"} }, 0, 0, 1, 0},
		"refused, paid":   {func(b *books) { b.rejected[0].ID = "a" }, 0, 0, 0, 1},
		"more than paid":  {func(b *books) { b.orders["1"] = order{50, 0, 60} }, 0, 0, 0, 1},
	} {
		b := good()
		c.plant(&b)
		if f := b.audit(); f.twice != c.twice || f.lost != c.lost || f.stuck != c.stuck || f.over != c.over {
			t.Errorf("%s: %+v", name, f)
		}
	}
}
