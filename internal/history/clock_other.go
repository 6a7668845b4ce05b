//go:build !unix || aix

package history

import "time"

var started = time.Now() //nolint:gochecknoglobals // where the process began

// now is monotonic within a process; between processes it is as good as the
// wall clock was when they began.
func now() Stamp {
	return time.Duration(started.UnixNano()) + time.Since(started)
}
