package core

import (
	"database/sql"
	"time"

	"github.com/holdfast-go/holdfast/internal/errcode"
)

// Defaults that options of several packages have.
const (
	DefaultPrefix      = "holdfast_"
	DefaultLockTimeout = time.Second
	DefaultAttempts    = 10
)

// CheckIsolation returns an [errcode.InputError] for READ UNCOMMITTED, which reads rows that may be rolled back.
func CheckIsolation(field string, level sql.IsolationLevel) error {
	if level == sql.LevelReadUncommitted {
		return errcode.Invalid(field, "READ UNCOMMITTED reads what may be rolled back: use READ COMMITTED or a higher level")
	}
	return nil
}
