package main

import (
	"errors"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/jmoiron/sqlx"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/internal/test/dbtest"
	"github.com/holdfast-go/holdfast/internal/test/faultproxy"
	"github.com/holdfast-go/holdfast/sqllock"
)

// openBehindProxy opens a service whose connections the test can cut.
func openBehindProxy(t *testing.T, url string) (*service, *faultproxy.Proxy) {
	t.Helper()
	server := regexp.MustCompile(`@(?:tcp\()?([^/?()]+)`).FindStringSubmatch(url)
	if server == nil {
		t.Fatal("the database's URL has no host:port")
	}
	proxy, err := faultproxy.New(server[1])
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(proxy.Close)
	s, _ := openTest(t, strings.Replace(url, server[1], proxy.Addr(), 1))
	return s, proxy
}

type outcome struct {
	refund   Refund
	replayed bool
	err      error
}

// insist repeats a request until the answer is not "in progress". On a slow machine that
// answer may come several times.
func insist(t *testing.T, s *service, protect string, req Request) outcome {
	p, err := findProtection(protect)
	if err != nil {
		return outcome{err: err}
	}
	refundOnce, err := s.strategy(t.Context(), p)
	if err != nil {
		return outcome{err: err}
	}
	for {
		refund, replayed, err := refundOnce(t.Context(), req)
		if !errors.Is(err, idempotency.ErrInProgress) {
			return outcome{refund, replayed, err}
		}
	}
}

// ask runs insist in the background.
func ask(t *testing.T, s *service, protect string, req Request) <-chan outcome {
	answer := make(chan outcome, 1)
	go func() { answer <- insist(t, s, protect, req) }()
	return answer
}

// The connection breaks while a COMMIT is in flight. Another replica that gets the same refund
// waits until the outcome is certain.
func TestCommitInDoubtIsSettledByAskingAgain(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, e dbtest.Engine) {
		if e == dbtest.SQLite {
			return // it has no connection that could break
		}
		url := dbtest.DSN(t, e)
		second, pool := openTest(t, url)
		first, proxy := openBehindProxy(t, url)
		for _, p := range protections {
			if !p.safe {
				continue
			}
			testOrder(t, pool, p.name, "100.00")
			req := Request{Merchant: "shop", Order: p.name, Number: "1", Amount: money(t, "12.50")}

			commit := proxy.Hold(faultproxy.Commit, faultproxy.Close)
			inDoubt := ask(t, first, p.name, req)
			<-commit.Struck()
			again := ask(t, second, p.name, req)
			select {
			case got := <-again:
				t.Errorf("%s: answered while the commit was in doubt: %+v", p.name, got)
				continue
			case <-time.After(300 * time.Millisecond):
			}
			if err := commit.Deliver(); err != nil {
				t.Fatal(err)
			}
			if got := <-again; got.err != nil || !got.replayed {
				t.Errorf("%s: asked again: %+v", p.name, got)
			}
			if got := <-inDoubt; got.err != nil && !errors.Is(got.err, holdfast.ErrUnknown) {
				t.Errorf("%s: in doubt: %+v", p.name, got)
			}
		}
		auditTest(t, pool)
	})
}

// When a lease is lost while its guarded transaction runs, the transaction still commits: the
// refund is made, and the client gets that answer.
func TestLeaseLostBehindTheGuard(t *testing.T) {
	dbtest.NotUnderRace(t, "its lease is short")
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, e dbtest.Engine) {
		s, pool := openTest(t, dbtest.DSN(t, e))
		testOrder(t, pool, "order", "100.00")
		const ttl = 2 * time.Second // long enough for the guard to run within it on any machine
		locks, err := sqllock.New(t.Context(), s.db, sqllock.Options{TTL: ttl})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = locks.Close(t.Context()) }()
		short, err := openLease(t.Context(), &service{pool: pool, db: s.db, refunds: s.refunds, locks: locks})
		if err != nil {
			t.Fatal(err)
		}
		slow := &service{strategies: map[string]strategy{"lease": short}}

		// The guarded transaction waits for this one, and a guarded row cannot be renewed.
		holder, err := pool.Beginx()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := holder.Exec(`UPDATE orders SET version = version + 1`); err != nil {
			t.Fatal(err)
		}
		req := Request{Merchant: "shop", Order: "order", Number: "1", Amount: money(t, "12.50")}
		answer := ask(t, slow, "lease", req)
		time.Sleep(2 * ttl)
		if err := holder.Commit(); err != nil {
			t.Fatal(err)
		}
		if got := <-answer; got.err != nil || got.replayed || got.refund.ID == "" {
			t.Errorf("%+v", got)
		}
		auditTest(t, pool)
	})
}

// auditTest checks that the merchant's books have no error.
func auditTest(t *testing.T, pool *sqlx.DB) {
	t.Helper()
	books, err := readBooks(t.Context(), pool, "shop")
	if err != nil {
		t.Fatal(err)
	}
	if problems := audit(books).problems; len(problems) > 0 {
		t.Error(problems)
	}
}
