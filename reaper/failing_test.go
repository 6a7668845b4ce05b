package reaper_test

import (
	"bytes"
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/test/conformance"
	"github.com/holdfast-go/holdfast/internal/test/dbtest"
	"github.com/holdfast-go/holdfast/reaper"
)

// TestFailingPassesAreLogged takes a table away from a reaper without an OnError.
func TestFailingPassesAreLogged(t *testing.T) {
	var log bytes.Buffer // written by Run's goroutine, and read when it has ended
	before := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(&log, nil)))
	t.Cleanup(func() { slog.SetDefault(before) })
	e := conformance.New(t, conformance.SQL(), dbtest.SQLite)
	ctx, cancel := context.WithCancel(e.Ctx)
	passes := 0
	r := e.Reaper(reaper.Options{OnReport: func(reaper.Report) {
		if passes++; passes == 3 {
			cancel()
		}
	}})
	e.Must(`ALTER TABLE holdfast_records RENAME TO holdfast_gone`)
	began := time.Now()
	_ = r.Run(ctx, 100*time.Millisecond)
	if !bytes.Contains(log.Bytes(), []byte("holdfast_records")) {
		t.Errorf("the log says nothing: %s", log.String())
	}
	if took := time.Since(began); took < 450*time.Millisecond { // 200 and 400 ms, each less a quarter
		t.Errorf("three passes that failed took %v", took)
	}
}
