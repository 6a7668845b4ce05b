package main

import (
	"database/sql/driver"
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// Money is an amount of a currency with two decimal places. It is a number of cents in Go, and a BIGINT
// in the database, so that sums are exact on every engine: SQLite has no decimal type, and a float is
// never right for money.
type Money struct{ cents int64 } //nolint:recvcheck // what reads into it needs a pointer, and nothing else does

// moneyForm is the accepted form: no exponents (1e999999999 would fill the memory), and no more
// decimal places than the currency has.
var moneyForm = regexp.MustCompile(`^-?[0-9]{1,12}(\.[0-9]{1,2})?$`)

func parseMoney(text string) (Money, error) {
	if !moneyForm.MatchString(text) {
		return Money{}, fmt.Errorf("%.20q is not an amount such as 12.50", text)
	}
	whole, part, _ := strings.Cut(text, ".")
	cents, err := strconv.ParseInt(whole+(part + "00")[:2], 10, 64)
	return Money{cents}, err
}

func fromCents(cents int64) Money { return Money{cents} }

// Cents is the amount in cents.
func (m Money) Cents() int64 { return m.cents }

func (m Money) String() string {
	sign := ""
	if m.cents < 0 {
		sign, m.cents = "-", -m.cents
	}
	return fmt.Sprintf("%s%d.%02d", sign, m.cents/100, m.cents%100)
}

func (m Money) Plus(other Money) Money   { return Money{m.cents + other.cents} }
func (m Money) Negated() Money           { return Money{-m.cents} }
func (m Money) Positive() bool           { return m.cents > 0 }
func (m Money) Exceeds(other Money) bool { return m.cents > other.cents }

// Equal is what Holdfast compares the columns of a business row with.
func (m Money) Equal(other Money) bool { return m == other }

// MarshalText makes the JSON form a string, "12.50", because many clients would read a JSON number
// as a float.
func (m Money) MarshalText() ([]byte, error) { return []byte(m.String()), nil }

// UnmarshalText parses the form that MarshalText writes.
func (m *Money) UnmarshalText(text []byte) (err error) {
	*m, err = parseMoney(string(text))
	return err
}

// Value returns the form for the database.
func (m Money) Value() (driver.Value, error) { return m.Cents(), nil }

// Scan reads the form of the database.
func (m *Money) Scan(src any) error {
	switch v := src.(type) {
	case int64:
		*m = fromCents(v)
		return nil
	case []byte:
		cents, err := strconv.ParseInt(string(v), 10, 64)
		*m = fromCents(cents)
		return err
	}
	return fmt.Errorf("money cannot be read from a column of type %T", src)
}
