package once

import (
	"errors"
	"reflect"
	"slices"

	"github.com/holdfast-go/holdfast"
)

// Packages fill these while they are initialized.
var (
	outcomes = []error{holdfast.ErrUnknown}
	verdicts = []reflect.Type{reflect.TypeFor[*settledError]()}
)

// Outcomes declares sentinels by which an operation says what became of it.
func Outcomes(sentinels ...error) struct{} {
	outcomes = append(outcomes, sentinels...)
	return struct{}{}
}

// Verdict declares a type of errors by which a function decides about its operation, such as a rejection.
func Verdict[V error]() struct{} {
	verdicts = append(verdicts, reflect.TypeFor[V]())
	return struct{}{}
}

var publicInner = func(e *InnerError) error { return e }

// PublicInner is for package idempotency: public makes the public type of an InnerError.
func PublicInner(public func(e *InnerError) error) struct{} {
	publicInner = public
	return struct{}{}
}

// InnerError is idempotency.InnerError.
type InnerError struct{ Err error }

// Inner marks an error of a user's function that has the outcome of another operation in it. Other errors
// come back unchanged, and so does a verdict of the function itself. Each package passes the error of a
// function through Inner before anything judges it.
func Inner(err error) error {
	if err == nil || decided(err) {
		return err
	}
	var s *settledError
	if errors.As(err, &s) || slices.ContainsFunc(outcomes, func(o error) bool { return errors.Is(err, o) }) {
		return publicInner(&InnerError{err})
	}
	return err
}

func (e *InnerError) Error() string {
	return "the function failed with the outcome of another operation: " + e.Err.Error()
}

// Is finds errors in Err that are not outcomes of operations.
func (e *InnerError) Is(target error) bool {
	return !slices.ContainsFunc(outcomes, func(o error) bool { return o == target }) && errors.Is(e.Err, target)
}

// As finds errors in Err that are neither outcomes of operations nor verdicts.
func (e *InnerError) As(target any) bool {
	to := reflect.ValueOf(target).Elem()
	found := reflect.New(to.Type())
	if slices.Contains(verdicts, to.Type()) || !errors.As(e.Err, found.Interface()) || says(found.Elem().Interface()) {
		return false
	}
	to.Set(found.Elem())
	return true
}

// says reports whether err itself, not an error in it, is an outcome.
func says(err any) bool {
	is, can := err.(interface{ Is(target error) bool })
	return can && slices.ContainsFunc(outcomes, is.Is)
}

// settledError has a verdict in it that an operation has obeyed. No operation around it obeys it again.
type settledError struct{ err error }

// Settle marks the verdict in err, if it has one, as obeyed.
func Settle(err error) error {
	if err != nil && decided(err) {
		return &settledError{err}
	}
	return err
}

func (e *settledError) Error() string { return e.err.Error() }
func (e *settledError) Unwrap() error { return e.err }

// decided reports whether err has a verdict that no operation has obeyed.
func decided(err error) bool {
	return slices.ContainsFunc(verdicts[1:], func(t reflect.Type) bool { return unsettled(err, reflect.New(t)) })
}

// Decides is errors.As for a verdict that no operation has obeyed.
func Decides[V error](err error, to *V) bool { return unsettled(err, reflect.ValueOf(to)) }

func unsettled(err error, to reflect.Value) bool {
	if err == nil {
		return false
	}
	if _, over := err.(*settledError); over { //nolint:errorlint // this unwraps
		return false
	}
	if v := reflect.ValueOf(err); v.Type() == to.Type().Elem() {
		to.Elem().Set(v)
		return true
	}
	if e, can := err.(interface{ As(target any) bool }); can && e.As(to.Interface()) {
		return true
	}
	switch e := err.(type) { //nolint:errorlint // this unwraps
	case interface{ Unwrap() error }:
		return unsettled(e.Unwrap(), to)
	case interface{ Unwrap() []error }:
		return slices.ContainsFunc(e.Unwrap(), func(err error) bool { return unsettled(err, to) })
	}
	return false
}
