// Package reach writes down what runs and when, so that make mutants learns which test runs what.
package reach

import (
	"fmt"
	"os"
	"sync"
	"time"
)

var (
	path = os.Getenv("HOLDFAST_TEST_RAN")
	mu   sync.Mutex
	file *os.File
	last = map[string]int64{}
)

// Ran writes the time and the name of what runs into the file HOLDFAST_TEST_RAN, at most once in
// 50 milliseconds for each name.
func Ran(name string) {
	if path == "" {
		return
	}
	mu.Lock()
	defer mu.Unlock()
	if file == nil {
		var err error
		if file, err = os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600); err != nil { //nolint:gosec // make mutants names it
			panic(err)
		}
	}
	const pause = 50
	now := time.Now().UnixMilli()
	if now-last[name] >= pause {
		last[name] = now
		fmt.Fprintf(file, "%d\t%s\n", now, name)
	}
}
