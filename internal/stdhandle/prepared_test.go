package stdhandle

import (
	"database/sql"
	"testing"

	_ "modernc.org/sqlite"

	"github.com/holdfast-go/holdfast/internal/core"
)

// TestStatementThatWasLeft closes a prepared statement between get and its run, as a first connection of a Connector does.
func TestStatementThatWasLeft(t *testing.T) {
	t.Parallel()
	pool, err := sql.Open("sqlite", "file:"+t.TempDir()+"/left.db")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = pool.Close() }()
	p := NewPrepared(pool)
	q := Querier{R: pool, Prepared: p}
	const text = "SELECT ?"
	var n int
	for range often {
		if _, err := (core.Stmt{Name: "x", Text: text, Prepared: true}).QueryRow(t.Context(), q, []any{&n}, 1); err != nil {
			t.Fatal(err)
		}
	}
	p.prepare(t.Context())
	prepared := p.texts[text].stmt
	p.leave()
	if _, err := prepared.ExecContext(t.Context(), 1); !unsent(err) {
		t.Errorf("a statement that was closed before it ran: %v", err)
	}
}
