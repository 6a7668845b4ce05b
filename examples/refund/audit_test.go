package main

import (
	"slices"
	"strings"
	"testing"
)

// goodBooks returns the books of an order with 12.50 refunded.
func goodBooks(t *testing.T) books {
	t.Helper()
	amount := money(t, "12.50")
	return books{
		orders:  []Order{{Number: "o", Paid: money(t, "20.00"), Refunded: amount}},
		refunds: []Refund{{ID: "r", Order: "o", Intent: "o/1", Amount: amount}},
		entries: []Entry{{"r", "merchant/m", amount.Negated()}, {"r", "customer/c", amount}},
	}
}

func TestAuditFindsWhatIsWrong(t *testing.T) {
	t.Parallel()
	if f := audit(goodBooks(t)); len(f.problems) > 0 || f.refunds != 1 || f.duplicates != 0 || f.missing != 0 {
		t.Fatalf("good books: %+v", f)
	}
	for name, c := range map[string]struct {
		spoil func(b *books)
		says  string
	}{
		"missing": {func(b *books) { b.refunds, b.entries = nil, nil }, "was not refunded"},
		"duplicate": {func(b *books) {
			again := b.refunds[0]
			again.ID = "r2"
			b.refunds = append(b.refunds, again)
		}, "made 2 times"},
		"past the paid amount":  {func(b *books) { b.orders[0].Paid = money(t, "12.49") }, "12.50 refunded of 12.49 paid"},
		"balance without rows":  {func(b *books) { b.orders[0].Refunded = money(t, "13.00") }, "says 13.00 refunded"},
		"one-sided":             {func(b *books) { b.entries = b.entries[:1] }, "1 entries instead of 2"},
		"does not sum to zero":  {func(b *books) { b.entries[0].Amount = b.entries[1].Amount }, "sum to 25.00"},
		"another amount":        {func(b *books) { b.entries[0].Amount = money(t, "-1.00") }, "is not the amount"},
		"entries of no refund":  {func(b *books) { b.entries[0].RefundID = "x" }, "is not the amount of refund x"},
		"twice in one refund's": {func(b *books) { b.entries = append(b.entries, b.entries...) }, "4 entries"},
	} {
		b := goodBooks(t)
		c.spoil(&b)
		f := audit(b)
		if !slices.ContainsFunc(f.problems, func(p string) bool { return strings.Contains(p, c.says) }) {
			t.Errorf("%s: %q is not among %q", name, c.says, f.problems)
		}
	}
}

func TestTallyComparesAnswersWithTheTable(t *testing.T) {
	t.Parallel()
	tally := newTally(1)
	tally.answer(strings.Fields("answer o executed r"))
	tally.answer(strings.Fields("answer o replayed r-lost"))
	tally.answer(strings.Fields("noise"))
	problems := tally.compare(goodBooks(t))
	if len(problems) != 1 || !strings.Contains(problems[0], "r-lost") {
		t.Error(problems)
	}
}
