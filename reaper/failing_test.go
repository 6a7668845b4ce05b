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

// TestFailingPassesAreLogged takes a table away from a reaper without an OnPass.
func TestFailingPassesAreLogged(t *testing.T) {
	e := conformance.New(t, conformance.SQL(), dbtest.SQLite)
	ctx, cancel := context.WithCancel(e.Ctx)
	log := logged{enough: 3, cancel: cancel}
	before := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(&log, nil)))
	t.Cleanup(func() { slog.SetDefault(before) })
	r := e.Reaper(reaper.Options{})
	e.Must(`ALTER TABLE holdfast_records RENAME TO holdfast_gone`)
	began := time.Now()
	_ = r.Run(ctx, reaper.RunOptions{Every: 100 * time.Millisecond})
	if !bytes.Contains(log.Bytes(), []byte("holdfast_records")) {
		t.Errorf("the log says nothing: %s", log.String())
	}
	if took := time.Since(began); took < 450*time.Millisecond { // 200 and 400 ms, each less a quarter
		t.Errorf("three passes that failed took %v", took)
	}
}

// logged is what is logged, by one goroutine. It cancels after enough lines.
type logged struct {
	bytes.Buffer

	enough int
	cancel context.CancelFunc
}

func (l *logged) Write(line []byte) (int, error) {
	if l.enough--; l.enough == 0 {
		l.cancel()
	}
	return l.Buffer.Write(line)
}
