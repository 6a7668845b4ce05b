package core

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/holdfast-go/holdfast/internal/errcode"
)

// ErrAgain means that a transaction lost to another one, and may run again as a whole.
var ErrAgain = errors.New("holdfast: another transaction came first")

// MaxName bounds names and owners, in bytes.
const MaxName = 128

// CheckName refuses a name that a column would not store unchanged.
func CheckName(field, name string, emptyOK bool) error {
	switch {
	case name == "" && !emptyOK:
		return errcode.Invalid(field, "is missing")
	case len(name) > MaxName:
		return errcode.Invalid(field, fmt.Sprintf("has %d bytes, at most %d are allowed", len(name), MaxName))
	case !utf8.ValidString(name) || strings.ContainsRune(name, 0):
		return errcode.Invalid(field, fmt.Sprintf("%.40q is not UTF-8 without NUL bytes", name))
	}
	return nil
}

// Owners says which calls of a DB name an owner.
type Owners int

const (
	// ManyOwners: each does.
	ManyOwners Owners = iota
	// OneOwner: none does. It is holdfast.Options.SingleOwner.
	OneOwner
	// AnyOwner: each may, for people who operate on what several programs have written.
	AnyOwner
)

// Named returns the error of an owner that is missing, or given where there is only one. give says what to
// give.
func (o Owners) Named(field string, given bool, give string) error {
	switch {
	case given && o == OneOwner:
		return errcode.Invalid(field, "is given, and the DB is SingleOwner: leave one of them out")
	case !given && o == ManyOwners:
		return errcode.Invalid(field, "is missing: "+give+", or open the DB as SingleOwner")
	}
	return nil
}

// Check refuses an owner that a call may not name, or that a column would not store unchanged.
func (o Owners) Check(field, owner string) error {
	return cmp.Or(o.Named(field, owner != "", "give the authenticated owner's id"), CheckName(field, owner, true))
}

// Owner returns the owner that For was given.
func (o Owners) Owner(id string) Owner {
	return Owner{id, cmp.Or(o.Named("owner", id != "", "give the authenticated owner's id (For)"), CheckName("owner", id, true))}
}

// Owner is whose rows a handle reads and writes.
type Owner struct {
	ID string
	// Err is why it is refused. Each call that needs the owner returns it.
	Err error
}
