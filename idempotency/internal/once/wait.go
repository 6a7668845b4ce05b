package once

import (
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/options"
)

// CheckWait checks a wait for another call that holds the key. zero says what 0 means.
func CheckWait(field, zero string, wait time.Duration) error {
	if wait == holdfast.NoWait {
		return nil
	}
	return options.Wait.Or(zero+"; holdfast.NoWait does not wait").Check(field, wait)
}
