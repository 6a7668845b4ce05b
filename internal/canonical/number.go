package canonical

import (
	"bytes"
	"math"
	"strconv"
)

const (
	// exactDigits is how many digits ECMAScript writes before it uses an exponent.
	exactDigits = 21
	// doubleDigits is how many digits any double keeps, up to the exponent doubleExponent.
	doubleDigits, doubleExponent = 15, 300
	// least is the smallest exponent. Without it, a reader that writes a number out needs memory
	// that the number's length does not bound.
	least = -9999
)

// number checks whether a scalar is in range.
func (p *parser) number(b []byte) {
	if asWritten(b) {
		return
	}
	d := decimalOf(p.digits[:0], b)
	if len(d.digits) <= doubleDigits && d.exponent() >= -doubleExponent && d.exponent() <= doubleExponent {
		return
	}
	if _, err := strconv.ParseFloat(string(b), 64); err != nil || d.exponent() < least {
		p.large = true
	}
}

// asWritten reports whether a scalar is a word, or an integer of at most 21 digits.
func asWritten(b []byte) bool {
	if b[0] == '-' {
		b = b[1:]
	}
	if b[0] > '9' {
		return true
	}
	for _, c := range b {
		if c < '0' || c > '9' {
			return false
		}
	}
	return len(b) <= exactDigits
}

// number writes a number, or a word.
func (e *emitter) number(b []byte) {
	switch {
	case string(b) == "-0":
		_ = e.w.WriteByte('0')
		return
	case asWritten(b):
		_, _ = e.w.Write(b)
		return
	}
	e.out = decimalOf(e.digits[:0], b).append(e.out[:0])
	_, _ = e.w.Write(e.out)
}

// decimal is the number 0.digits * 10^point. Its digits neither begin nor end with 0; zero has none.
type decimal struct {
	negative bool
	digits   []byte
	point    int
}

// exponent is that of the form with one digit before the point.
func (d decimal) exponent() int { return d.point - 1 }

// decimalOf reads a JSON number. It stores the digits behind buf.
func decimalOf(buf, b []byte) (d decimal) {
	b, d.negative = bytes.CutPrefix(b, []byte("-"))
	exponent := 0
	if i := bytes.IndexAny(b, "eE"); i >= 0 {
		exponent, _ = strconv.Atoi(string(b[i+1:])) // an int's bound if it is beyond it
		exponent = max(min(exponent, math.MaxInt32), math.MinInt32)
		b = b[:i]
	}
	whole, fraction, _ := bytes.Cut(b, []byte("."))
	d.digits = bytes.TrimLeft(append(append(buf, whole...), fraction...), "0")
	d.point = len(d.digits) - len(fraction) + exponent
	d.digits = bytes.TrimRight(d.digits, "0")
	if len(d.digits) == 0 {
		return decimal{}
	}
	return d
}

// append appends d as ECMAScript's Number::toString lays out a double with these digits.
func (d decimal) append(b []byte) []byte {
	if len(d.digits) == 0 {
		return append(b, '0')
	}
	if d.negative {
		b = append(b, '-')
	}
	switch n := len(d.digits); {
	case d.point > exactDigits || d.point <= -6:
		b = append(b, d.digits[0])
		if n > 1 {
			b = append(append(b, '.'), d.digits[1:]...)
		}
		b = append(b, 'e')
		if d.exponent() > 0 {
			b = append(b, '+')
		}
		return strconv.AppendInt(b, int64(d.exponent()), 10)
	case d.point <= 0:
		b = append(append(b, "0."...), "000000"[:-d.point]...)
		return append(b, d.digits...)
	case n > d.point:
		b = append(append(b, d.digits[:d.point]...), '.')
		return append(b, d.digits[d.point:]...)
	default:
		return append(append(b, d.digits...), "000000000000000000000"[:d.point-n]...)
	}
}
