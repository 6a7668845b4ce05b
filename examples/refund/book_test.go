package main

import (
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/internal/test/dbtest"
)

// Partial refunds with different numbers are all made, and their sum never exceeds the paid
// amount, with every protection and on every engine.
func TestPartialRefundsStayWithinThePaidAmount(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, e dbtest.Engine) {
		s, pool := openTest(t, dbtest.DSN(t, e))
		for _, p := range protections {
			order := "order-" + p.name
			testOrder(t, pool, order, "100.00")
			var wg sync.WaitGroup
			var mu sync.Mutex
			made, refused := 0, 0
			for n := range 12 { // the order has room for 8
				wg.Go(func() {
					req := Request{Merchant: "shop", Order: order, Number: fmt.Sprint(n), Amount: money(t, "12.50")}
					err := insist(t, s, p.name, req).err
					var rejection *idempotency.Rejection
					mu.Lock()
					defer mu.Unlock()
					switch {
					case err == nil:
						made++
					case errors.As(err, &rejection) && rejection.Code == "over_refund":
						refused++
					case p.safe:
						t.Errorf("%s: %v", p.name, err)
					}
				})
			}
			wg.Wait()
			if p.safe && (made != 8 || refused != 4) {
				t.Errorf("%s: %d made, %d refused", p.name, made, refused)
			}
		}
		auditTest(t, pool)
	})
}

func TestSecondRequestGetsTheFirstOnesRefund(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, e dbtest.Engine) {
		s, pool := openTest(t, dbtest.DSN(t, e))
		for _, p := range protections {
			testOrder(t, pool, p.name, "100.00")
			req := Request{Merchant: "shop", Order: p.name, Number: "1", Amount: money(t, "12.50")}
			first, replayed, err := s.mustOpen(t, p.name)(t.Context(), req)
			if err != nil || replayed {
				t.Fatalf("%s: replayed %v, %v", p.name, replayed, err)
			}
			req.Amount = money(t, "12.5") // the same amount, spelled differently
			second, replayed, err := s.mustOpen(t, p.name)(t.Context(), req)
			if err != nil || !replayed || second.ID != first.ID || !second.Amount.Equal(first.Amount) {
				t.Errorf("%s: %+v, then %+v, %v", p.name, first, second, err)
			}
			req.Amount = money(t, "13.00")
			if _, _, err := s.mustOpen(t, p.name)(t.Context(), req); p.safe && !errors.Is(err, idempotency.ErrMismatch) {
				t.Errorf("%s: another amount: %v", p.name, err)
			}
		}
	})
}

// The tables compare names by their bytes, as the intents do.
func TestTwinsAreTwoRefunds(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, e dbtest.Engine) {
		s, pool := openTest(t, dbtest.DSN(t, e))
		testOrder(t, pool, "order", "100.00")
		for _, p := range protections {
			for _, number := range []string{"a", "A", "á", "a ", "a/", "a%2F"} {
				req := Request{Merchant: "shop", Order: "order", Number: p.name + number, Amount: money(t, "1.00")}
				if _, replayed, err := s.mustOpen(t, p.name)(t.Context(), req); err != nil || replayed {
					t.Errorf("%s %q: replayed %v, %v", p.name, number, replayed, err)
				}
			}
		}
	})
}

func TestNobodyElsesOrder(t *testing.T) {
	t.Parallel()
	s, pool := openTest(t, dbtest.DSN(t, dbtest.SQLite))
	testOrder(t, pool, "order", "100.00")
	for _, p := range protections {
		own := Request{Merchant: "shop", Order: "order", Number: p.name, Amount: money(t, "1.00")}
		if _, _, err := s.mustOpen(t, p.name)(t.Context(), own); err != nil {
			t.Errorf("%s: %v", p.name, err)
		}
		for _, req := range []Request{
			{Merchant: "other", Order: "order", Number: p.name, Amount: own.Amount}, // the owner of that name has already made it
			{Merchant: "other", Order: "order", Number: "1", Amount: own.Amount},
			{Merchant: "shop", Order: "none", Number: "1", Amount: own.Amount},
		} {
			if _, _, err := s.mustOpen(t, p.name)(t.Context(), req); !errors.Is(err, errNoOrder) {
				t.Errorf("%s: %+v: %v", p.name, req, err)
			}
		}
	}
	books, err := readBooks(t.Context(), pool, "shop")
	if err != nil || len(books.refunds) != len(protections) {
		t.Errorf("%d refunds, %v", len(books.refunds), err)
	}
}
