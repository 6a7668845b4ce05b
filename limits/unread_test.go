package limits_test

import (
	"context"
	"database/sql"
	"testing"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/access"
	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/test/conformance"
	"github.com/holdfast-go/holdfast/limits"
)

// TestUnread has statements write without the reads that come before them. Each decides for itself: what has
// ended does not end again, a reservation whose time has passed is not captured, what is reserved is not erased,
// and no limit comes below what is used.
func TestUnread(t *testing.T) {
	t.Parallel()
	conformance.Run(t, conformance.SQL(), func(e *conformance.Env[*sql.Tx]) {
		e.Must(`CREATE TABLE orders (order_no ` + e.Text() + ` NOT NULL PRIMARY KEY, paid BIGINT NOT NULL, held BIGINT NOT NULL, refunded BIGINT NOT NULL)`)
		e.Must(`INSERT INTO orders (order_no, paid, held, refunded) VALUES ('a', 100, 0, 0)`)
		orders, err := limits.New(e.Ctx, e.DB, "orders", limits.Options{Table: &limits.Table{TableSpec: holdfast.TableSpec{Table: "orders", Key: []string{"order_no"}}, Limit: "paid", Reserved: "held", Captured: "refunded"}})
		e.Check(err)
		l, err := limits.New(e.Ctx, e.DB, "refunds")
		e.Check(err)
		_, err = l.Set(e.Ctx, "a", 100)
		e.Check(err)
		wrote := func(what string, want, got bool, err error) {
			e.Helper()
			if err != nil || got != want {
				e.Errorf("%s wrote: %t, %v, want %t", what, got, err, want)
			}
		}
		for _, l := range []*limits.Limits[*sql.Tx]{l, orders} {
			for _, id := range []string{"open", "voided", "captured", "expired", "late"} {
				_, err = l.Reserve(e.Ctx, limits.Request{Key: "a", ID: id, Amount: 10})
				e.Check(err)
			}
			_, err = l.Void(e.Ctx, limits.Request{Key: "a", ID: "voided"})
			e.Check(err)
			_, err = l.Capture(e.Ctx, limits.Request{Key: "a", ID: "captured"})
			e.Check(err)
			e.Must(`UPDATE holdfast_limit_entries SET due_at = created_at WHERE id IN ($1, $2)`, []byte("expired"), []byte("late"))
			got, err := l.ExpireUnread(e.Ctx, "expired")
			wrote("expire", true, got, err)
			e.Must(`UPDATE holdfast_limit_entries SET due_at = due_at + 3600000000 WHERE id IN ($1, $2, $3)`, []byte("voided"), []byte("captured"), []byte("expired"))
			for _, id := range []string{"voided", "captured", "expired"} {
				got, err := l.EndUnread(e.Ctx, id, limits.Captured, 10)
				wrote("capture of "+id, false, got, err)
				got, err = l.EndUnread(e.Ctx, id, limits.Voided, 0)
				wrote("void of "+id, false, got, err)
				got, err = l.ExpireUnread(e.Ctx, id)
				wrote("expire of "+id, false, got, err)
			}
			got, err = l.EndUnread(e.Ctx, "late", limits.Captured, 10)
			wrote("capture of late", false, got, err)
			got, err = l.EraseUnread(e.Ctx, "open")
			wrote("erase of open", false, got, err)
			// 10 are captured, and 20 or more reserved.
			got, err = l.SetUnread(e.Ctx, "a", 29)
			wrote("set below", false, got, err)
		}
	})
}

// TestSentForAnErasure counts the statements of an erasure that has nothing to erase, beside what is another
// owner's, another name's, or still reserved.
func TestSentForAnErasure(t *testing.T) {
	t.Parallel()
	conformance.Run(t, conformance.SQL(), func(e *conformance.Env[*sql.Tx]) {
		sent := &statements{}
		pool := e.Open(e.DSN, sent.observe())
		pool.DB = access.WithOwners(pool.DB, core.ManyOwners)
		refunds, err := limits.New(e.Ctx, pool.DB, "refunds")
		e.Check(err)
		payouts, err := limits.New(e.Ctx, pool.DB, "payouts")
		e.Check(err)
		for _, l := range []*limits.Limits[*sql.Tx]{refunds.For("anna"), payouts.For("bob")} {
			_, err := l.Set(e.Ctx, "a", 10)
			e.Check(err)
			_, err = l.Take(e.Ctx, limits.Request{Key: "a", ID: "1", Amount: 1})
			e.Check(err)
		}
		bob := refunds.For("bob")
		_, err = bob.Set(e.Ctx, "b", 10)
		e.Check(err)
		_, err = bob.Reserve(e.Ctx, limits.Request{Key: "b", ID: "2", Amount: 1})
		e.Check(err)
		sent.want(t, "old unused", func() error {
			_, err := bob.Erase(context.WithoutCancel(e.Ctx), holdfast.Actor{By: "olga", Reason: "asked"})
			return err
		})
	})
}
