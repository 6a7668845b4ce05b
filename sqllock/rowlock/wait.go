package rowlock

import (
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/dialect/rowwait"
	"github.com/holdfast-go/holdfast/internal/options"
)

const maxWait = 24 * time.Hour

// modeOf returns how a call waits.
func modeOf(wait time.Duration) (rowwait.Mode, error) {
	switch wait {
	case 0, holdfast.Forever:
		return rowwait.Forever, nil
	case holdfast.NoWait:
		return rowwait.No, nil
	}
	return rowwait.UpTo, options.Wait.Or("as long as ctx, as holdfast.Forever; holdfast.NoWait does not wait").UpTo(maxWait).Check("wait", wait)
}
