package main

import (
	"encoding/json"
	"strings"
	"testing"
)

func TestParseMoney(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{"12.50": "12.50", "12.5": "12.50", "0.01": "0.01", "7": "7.00", "-3.10": "-3.10", "999999999999.99": "999999999999.99"} {
		if m, err := parseMoney(text); err != nil || m.String() != want {
			t.Errorf("%s: %s, %v", text, m, err)
		}
	}
	for _, text := range []string{"", " 1", "1.234", "1e3", "1e999999999", "0x10", ".5", "1.", "1,5", "+1", "NaN", strings.Repeat("9", 13)} {
		if m, err := parseMoney(text); err == nil {
			t.Errorf("%q was read as %s", text, m)
		}
	}
}

func TestMoneyIsExact(t *testing.T) {
	t.Parallel()
	total := Money{}
	for range 1000 {
		total = total.Plus(money(t, "0.10"))
	}
	if !total.Equal(money(t, "100")) || total.Exceeds(money(t, "100")) {
		t.Errorf("a thousand times 0.10 is %s", total)
	}
}

func TestMoneyInTheDatabaseAndInJSON(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"0.01", "-12.50", "999999999999.99"} {
		m := money(t, text)
		stored, err := m.Value()
		if err != nil {
			t.Fatal(err)
		}
		var read Money
		if err := read.Scan(stored); err != nil || !read.Equal(m) {
			t.Errorf("%s was stored as %v and read as %s, %v", m, stored, read, err)
		}
		b, err := json.Marshal(m)
		if err != nil || string(b) != `"`+text+`"` {
			t.Errorf("%s, %v", b, err)
		}
		if err := json.Unmarshal(b, &read); err != nil || !read.Equal(m) {
			t.Errorf("%s was read as %s, %v", b, read, err)
		}
	}
	var m Money
	if err := m.Scan([]byte("1250")); err != nil || m.String() != "12.50" {
		t.Errorf("%s, %v", m, err)
	}
	if err := m.Scan(12.5); err == nil {
		t.Error("a float was taken for money")
	}
}
