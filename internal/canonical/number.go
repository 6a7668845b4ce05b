package canonical

import (
	"math"
	"strconv"
)

// exactDigits is how many digits ECMAScript writes before it uses an exponent.
const exactDigits = 21

// number returns the value of a scalar as a double. fits is false if it is beyond the range of a
// double. Integers of few digits, which are written as they are, and words are not read: 0, true.
func number(b []byte) (value float64, fits bool) {
	if asWritten(b) {
		return 0, true
	}
	value, err := strconv.ParseFloat(string(b), 64)
	return value, err == nil && !math.IsInf(value, 0)
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
	if asWritten(b) {
		if string(b) == "-0" {
			b = b[1:]
		}
		_, _ = e.w.Write(b)
		return
	}
	value, _ := number(b)
	var buf [32]byte
	_, _ = e.w.Write(appendNumber(buf[:0], value))
}

// appendNumber appends a double as ECMAScript's Number::toString writes it.
func appendNumber(b []byte, value float64) []byte {
	if value == 0 {
		return append(b, '0') // for -0, too
	}
	if abs := math.Abs(value); abs >= 1e-6 && abs < 1e21 {
		return strconv.AppendFloat(b, value, 'f', -1, 64)
	}
	b = strconv.AppendFloat(b, value, 'e', -1, 64)
	// Go writes two digits of an exponent at least: e-07 becomes e-7.
	if n := len(b); n >= 4 && b[n-4] == 'e' && b[n-2] == '0' {
		b[n-2] = b[n-1]
		b = b[:n-1]
	}
	return b
}
