package main

import (
	"os"
	"testing"

	"github.com/jmoiron/sqlx"

	"github.com/holdfast-go/holdfast/internal/test/dbtest"
)

// A storm starts its own program again as replicas and clients. In tests, that program is the
// test binary.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 {
		switch os.Args[1] {
		case "storm", "serve", "client":
			os.Exit(run(os.Args[1:]))
		}
	}
	dbtest.VerifyNoLeaks(m)
}

// openTest opens a service with one merchant, "shop", on a new database.
func openTest(t *testing.T, url string) (*service, *sqlx.DB) {
	t.Helper()
	pool, err := openPool(url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := pool.Close(); err != nil {
			t.Errorf("close the pool: %v", err)
		}
	})
	if err := migrate(t.Context(), pool); err != nil {
		t.Fatal(err)
	}
	s, err := newService(t.Context(), pool, "shop", protections[0].name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.close(t.Context()); err != nil {
			t.Errorf("close the service: %v", err)
		}
	})
	return s, pool
}

// testOrder stores an order with the amount paid.
func testOrder(t *testing.T, pool *sqlx.DB, number, paid string) {
	t.Helper()
	order := Order{Number: number, Merchant: "shop", Customer: "ada", Currency: "EUR", Paid: money(t, paid)}
	if err := createOrders(t.Context(), pool, []Order{order}); err != nil {
		t.Fatal(err)
	}
}

func money(t *testing.T, text string) Money {
	t.Helper()
	m, err := parseMoney(text)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// mustOpen opens a protection that the engine supports.
func (s *service) mustOpen(t *testing.T, name string) strategy {
	t.Helper()
	p, err := findProtection(name)
	if err != nil {
		t.Fatal(err)
	}
	opened, err := s.strategy(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	return opened
}
