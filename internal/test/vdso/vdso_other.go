//go:build !(linux && amd64)

package vdso

import (
	"errors"
	"time"
)

// Possible reports whether this platform can move the clock of a process.
const Possible = false

var errPlatform = errors.New("no clock can be moved on this architecture")

// Move sets this process's wall clock to the machine's clock plus by.
func Move(time.Duration) error { return errPlatform }

// MoveOther does the same for another process.
func MoveOther(int, time.Duration) error { return errPlatform }
