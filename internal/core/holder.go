package core

import (
	"os"
	"strconv"
)

// DefaultHolder names this process by its host name and process id, for display. The host name
// may be missing.
func DefaultHolder() string {
	host, _ := os.Hostname()
	return host + ":" + strconv.Itoa(os.Getpid())
}
