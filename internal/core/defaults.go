package core

import (
	"time"
)

// Defaults that options of several packages have.
const (
	DefaultPrefix      = "holdfast_"
	DefaultLockTimeout = time.Second
	DefaultAttempts    = 10
)
