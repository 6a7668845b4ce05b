package main

import (
	"database/sql/driver"
	"fmt"
	"regexp"
	"strconv"

	"github.com/shopspring/decimal"
)

// Money is an amount of a currency with two decimal places. It is a decimal in Go and a BIGINT of
// cents in the database, so that sums are exact on every engine: SQLite has no decimal type, and a
// float is never right for money.
type Money struct{ amount decimal.Decimal } //nolint:recvcheck // what reads into it needs a pointer, and nothing else does

// moneyForm is the accepted form: no exponents (1e999999999 would fill the memory), and no more
// decimal places than the currency has.
var moneyForm = regexp.MustCompile(`^-?[0-9]{1,12}(\.[0-9]{1,2})?$`)

func parseMoney(text string) (Money, error) {
	if !moneyForm.MatchString(text) {
		return Money{}, fmt.Errorf("%.20q is not an amount such as 12.50", text)
	}
	amount, err := decimal.NewFromString(text)
	if err != nil {
		return Money{}, fmt.Errorf("%.20q is not an amount: %w", text, err)
	}
	return Money{amount}, nil
}

func fromCents(cents int64) Money { return Money{decimal.New(cents, -2)} }

// Cents is the amount in cents.
func (m Money) Cents() int64 { return m.amount.Shift(2).IntPart() }

func (m Money) String() string           { return m.amount.StringFixed(2) }
func (m Money) Plus(other Money) Money   { return Money{m.amount.Add(other.amount)} }
func (m Money) Negated() Money           { return Money{m.amount.Neg()} }
func (m Money) Positive() bool           { return m.amount.IsPositive() }
func (m Money) Exceeds(other Money) bool { return m.amount.GreaterThan(other.amount) }

// Equal treats 12.5 and 12.50 as the same money. Holdfast compares the columns of a business row
// with it.
func (m Money) Equal(other Money) bool { return m.amount.Equal(other.amount) }

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
