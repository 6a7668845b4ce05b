// Package errcode gives errors their stable codes. Package catalog says what each code means.
package errcode

import (
	"errors"
	"reflect"
)

// Packages fill these while they are initialized.
var (
	sentinels []sentinel
	types     []func(err error) string
)

type sentinel struct {
	err  error
	code string
}

// New returns a sentinel error with a code. It is for the initialization of packages.
func New(code, text string) error {
	err := errors.New(text)
	sentinels = append(sentinels, sentinel{err, code})
	return err
}

// Type gives the errors of a type a code of their own. It is for the initialization of packages.
func Type[E error](code string) struct{} {
	types = append(types, func(err error) string {
		if _, is := err.(E); is { //nolint:errorlint // Of unwraps
			return code
		}
		return ""
	})
	return struct{}{}
}

// Of returns the code of the outermost error of err's tree that has one, or "".
func Of(err error) string {
	if err == nil {
		return ""
	}
	if code := own(err); code != "" {
		return code
	}
	switch e := err.(type) { //nolint:errorlint // this unwraps
	case interface{ Unwrap() error }:
		return Of(e.Unwrap())
	case interface{ Unwrap() []error }:
		for _, below := range e.Unwrap() {
			if code := Of(below); code != "" {
				return code
			}
		}
	}
	return ""
}

// own returns the code of err itself: the one that it says, that of its type, or else of the sentinel that it is.
func own(err error) string {
	if coded, says := err.(interface{ HoldfastCode() string }); says {
		return coded.HoldfastCode()
	}
	for _, code := range types {
		if code := code(err); code != "" {
			return code
		}
	}
	compares := reflect.TypeOf(err).Comparable()
	is, says := err.(interface{ Is(target error) bool })
	for _, s := range sentinels {
		if compares && err == s.err || says && is.Is(s.err) { //nolint:errorlint // Of unwraps
			return s.code
		}
	}
	return ""
}
