package dbtest

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	mysqldriver "github.com/go-sql-driver/mysql"
)

// driverLog keeps the messages that go-sql-driver logs ("unexpected EOF" of a connection that a
// test has cut). A failed test shows them.
var driverLog struct {
	mu    sync.Mutex
	lines []driverLine
}

type driverLine struct {
	at   time.Time
	text string
}

// driverLines bounds the number of lines.
const driverLines = 2000

type keepLog struct{}

func init() { //nolint:gochecknoinits // before any test's pool
	_ = mysqldriver.SetLogger(keepLog{})
}

// Print keeps a line.
func (keepLog) Print(v ...any) {
	driverLog.mu.Lock()
	defer driverLog.mu.Unlock()
	if len(driverLog.lines) == driverLines {
		driverLog.lines = append(driverLog.lines[:0], driverLog.lines[driverLines/2:]...)
	}
	driverLog.lines = append(driverLog.lines, driverLine{time.Now(), strings.TrimSpace(fmt.Sprint(v...))})
}

// showDriverLog logs the driver's messages from now on, if the test fails. Tests that run at the
// same time may be their cause.
func showDriverLog(tb testing.TB) {
	tb.Helper()
	begun := time.Now()
	tb.Cleanup(func() {
		if !tb.Failed() {
			return
		}
		driverLog.mu.Lock()
		defer driverLog.mu.Unlock()
		for _, line := range driverLog.lines {
			if line.at.After(begun) {
				tb.Logf("%s go-sql-driver: %s", line.at.Format("15:04:05.000"), line.text)
			}
		}
	})
}
