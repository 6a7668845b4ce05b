//go:build !unix || aix

package history

import "time"

var started = time.Now() //nolint:gochecknoglobals // where the process began

// now is monotonic within a process. Between processes it is as accurate as the wall clock was
// when they started.
func now() Stamp {
	return time.Duration(started.UnixNano()) + time.Since(started)
}
