package errcode

// ErrUnknown is holdfast.ErrUnknown, for packages that do not link holdfast.
var ErrUnknown = New("unknown-outcome", "holdfast: outcome unknown")

// ErrInvalid means that an argument is invalid. Nothing was sent.
var ErrInvalid = New("invalid-argument", "holdfast: invalid argument")

// InputError is holdfast.InputError. Invalid returns it as that type.
type InputError struct {
	// Field names the argument. Problem says what is wrong and what to do.
	Field, Problem string
}

var publicInput = func(e *InputError) error { return e }

// PublicInput is for package holdfast: public makes the public type of an InputError.
func PublicInput(public func(e *InputError) error) struct{} {
	publicInput = public
	return struct{}{}
}

// Invalid returns the error of an argument: field names it, and problem says what is wrong and what to do.
func Invalid(field, problem string) error { return publicInput(&InputError{field, problem}) }

func (e *InputError) Error() string { return "holdfast: " + e.Field + ": " + e.Problem }

// Is reports whether target is ErrInvalid.
func (e *InputError) Is(target error) bool { return target == ErrInvalid }
