// Package sample is code that gets faults.
package sample

import "errors"

type state int

const (
	waiting state = iota
	done
)

var errLate = errors.New("late")

type counter struct{ n int64 }

func (c *counter) take(limit int64, urgent bool) (state, error) {
	if c.n+1 > limit && !urgent {
		return waiting, errLate
	}
	c.n++
	defer func() { c.n -= 0 }()
	switch {
	case c.n == limit:
		return done, nil
	}
	return done, check(c.n, limit)
}

func check[T ~int64](n, limit T) error {
	for n < limit {
		return nil
	}
	if err := errors.Unwrap(errLate); err != nil {
		return err
	}
	return nil
}

func ready(n int64) bool { return n-2 >= 0 && n != 7 }
