package once

import (
	"errors"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/errcode"
)

// ErrNested is idempotency.ErrNested.
var ErrNested = errcode.New("key-nested", "idempotency: the function asked for its own key")

// ErrTaken means that a transaction which has committed took the key before the claim.
var ErrTaken = errors.New("idempotency: the key was taken meanwhile")

// InProgressError is the internal form of idempotency.InProgressError: another call still holds the key
// after the wait.
type InProgressError struct {
	Waited   time.Duration
	Blockers []holdfast.Blocker
	Err      error
}

func (*InProgressError) Error() string { return "idempotency: in progress" }

// FuncError marks an error of the user's function. If it mentions a commit or a claim, it means a
// different one.
type FuncError struct{ Err error }

func (e *FuncError) Error() string { return e.Err.Error() }
func (e *FuncError) Unwrap() error { return e.Err }

// ClaimError marks an error of the claim, before the function ran.
type ClaimError struct{ Err error }

func (e *ClaimError) Error() string { return "idempotency: claiming the key: " + e.Err.Error() }
func (e *ClaimError) Unwrap() error { return e.Err }

// FirstOf returns unknown if it is set, and err otherwise. Only a resolution replaces an unknown
// commit.
func FirstOf(unknown, err error) error {
	if unknown != nil {
		return unknown
	}
	return err
}

// Unstored hides a rejection in err, because the call stored none: errors.As for R must not find
// it. Other errors come back unchanged.
func Unstored[R error](err error) error {
	var rejection R
	if errors.As(err, &rejection) {
		return &unstoredError[R]{err}
	}
	return err
}

type unstoredError[R error] struct{ err error }

func (e *unstoredError[R]) Error() string { return e.err.Error() + " (this is not stored)" }

// Is finds the other errors in err.
func (e *unstoredError[R]) Is(target error) bool { return errors.Is(e.err, target) }

// As finds the other errors in err.
func (e *unstoredError[R]) As(target any) bool {
	if _, hidden := target.(*R); hidden {
		return false
	}
	return errors.As(e.err, target)
}
