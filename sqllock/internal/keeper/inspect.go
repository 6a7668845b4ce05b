package keeper

import (
	"fmt"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/auditlog"
)

// MaxValue bounds the value of a lease, in bytes, as package sqllock documents it.
const MaxValue = 4096

// CheckActor checks the Actor of a ForceRelease.
func CheckActor(who holdfast.Actor) error { return auditlog.Check("Actor.", who.By, who.Reason) }

// CheckValue checks the value of a lease.
func CheckValue(value []byte) error {
	if len(value) > MaxValue {
		return Invalid("value", fmt.Sprintf("has %d bytes, at most %d", len(value), MaxValue))
	}
	return nil
}
