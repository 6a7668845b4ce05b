package core

import "errors"

// ErrInvalid means that an argument is invalid. Nothing was sent.
var ErrInvalid = errors.New("holdfast: invalid argument")

// InputError reports an invalid argument. errors.Is(err, ErrInvalid) holds.
type InputError struct {
	// Field names the argument. Problem says what is wrong and what to do.
	Field, Problem string
}

func (e *InputError) Error() string { return "holdfast: " + e.Field + ": " + e.Problem }

// Is reports whether target is ErrInvalid.
func (e *InputError) Is(target error) bool { return target == ErrInvalid }
