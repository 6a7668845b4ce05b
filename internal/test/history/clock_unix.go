//go:build unix && !aix

package history

import (
	"time"

	"golang.org/x/sys/unix"
)

// now reads the machine's monotonic clock, so that the stamps of several processes are
// comparable; the monotonic clock of package time starts anew in each process.
func now() Stamp {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		panic("history: no monotonic clock: " + err.Error())
	}
	return time.Duration(ts.Nano())
}
