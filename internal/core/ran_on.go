//go:build mutants

package core

import (
	"fmt"
	"os"
	"sync"
	"time"
)

var (
	ranMu   sync.Mutex
	ranFile *os.File
	lastRan = map[string]int64{}
)

// ran writes the time and the name of a statement that runs into the file HOLDFAST_TEST_RAN, at most
// once a millisecond for each name: make mutants learns from it which test runs which statement.
func ran(name string) {
	path := os.Getenv("HOLDFAST_TEST_RAN")
	if path == "" {
		return
	}
	ranMu.Lock()
	defer ranMu.Unlock()
	if ranFile == nil {
		var err error
		if ranFile, err = os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600); err != nil {
			panic(err)
		}
	}
	now := time.Now().UnixMilli()
	if lastRan[name] != now {
		lastRan[name] = now
		fmt.Fprintf(ranFile, "%d\t%s\n", now, name)
	}
}
