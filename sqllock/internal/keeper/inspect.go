package keeper

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// Bounds, as package sqllock documents them.
const (
	MaxReason = 500
	MaxValue  = 4096
)

// CheckReason checks the reason of a ForceRelease.
func CheckReason(reason string) error {
	if reason == "" || len(reason) > MaxReason || !utf8.ValidString(reason) || strings.ContainsRune(reason, 0) {
		return Invalid("reason", fmt.Sprintf("is not 1 to %d bytes of UTF-8 without NUL: say why, for those who look later", MaxReason))
	}
	return nil
}

// CheckValue checks the value of a lease.
func CheckValue(value []byte) error {
	if len(value) > MaxValue {
		return Invalid("value", fmt.Sprintf("has %d bytes, at most %d", len(value), MaxValue))
	}
	return nil
}
