package staged_test

import (
	"bytes"
	"context"
	"database/sql"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/idempotency/staged"
	"github.com/holdfast-go/holdfast/internal/test/conformance"
	"github.com/holdfast-go/holdfast/internal/test/dbtest"
)

// lines is a log.
type lines struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *lines) has(words string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Contains(l.text.String(), words)
}

// TestCompleterLogs runs a completer without an OnPass, and takes its tables away: it logs what the server
// says. First its passes fail; then passes find operations, and none can be taken.
func TestCompleterLogs(t *testing.T) {
	var log lines
	before := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(&log, nil)))
	t.Cleanup(func() { slog.SetDefault(before) })
	e := conformance.New(t, conformance.SQL(), dbtest.SQLite)
	r, err := staged.New(e.Store(idempotency.Options{}), staged.Workflow[string, string, *sql.Tx]{
		Name: "refund", Lease: 50 * time.Millisecond,
		Run: func(context.Context, *staged.Run[*sql.Tx], string) (string, error) { return "done", nil },
	})
	e.Check(err)
	e.Check(e.DB.InTx(e.Ctx, func(ctx context.Context, tx *sql.Tx) error {
		_, err := r.StartTx(ctx, tx, idempotency.Op{Key: "a"}, "a")
		return err
	}))
	for what, change := range map[string][2]string{
		"no such table: main.holdfast_staged": {`ALTER TABLE holdfast_staged RENAME TO holdfast_gone`, `ALTER TABLE holdfast_gone RENAME TO holdfast_staged`},
		"not now": {
			`CREATE TRIGGER busy BEFORE UPDATE ON holdfast_staged BEGIN SELECT RAISE(ABORT, 'not now'); END`,
			`DROP TRIGGER busy`,
		},
	} {
		e.Must(change[0])
		ctx, cancel := context.WithCancel(e.Ctx)
		ended := make(chan error, 1)
		go func() { ended <- r.RunCompleter(ctx, staged.RunOptions{Every: 10 * time.Millisecond}) }()
		e.Eventually("the log says "+what, func() bool { return log.has(what) })
		cancel()
		<-ended
		e.Must(change[1])
	}
}
