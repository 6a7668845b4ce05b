package sqlite_test

import (
	"database/sql"
	"strings"
	"testing"
	"unicode/utf8"

	_ "modernc.org/sqlite" // the driver

	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/dialect"
)

// FuzzIdent checks that SQLite reads a quoted name as exactly that name, and that the
// parameters next to it are counted correctly.
func FuzzIdent(f *testing.F) {
	for _, s := range []string{`a`, `a"b`, `"`, `""`, `a'; DROP TABLE t; --`, "`", `$1`, `?`, `'`, `a\`, `{now}`, "\n", "\u00e9", `select`, `a.b`, `/*`} {
		f.Add(s)
	}
	db, err := sql.Open("sqlite", ":memory:")
	if err != nil {
		f.Fatal(err)
	}
	db.SetMaxOpenConns(1)
	f.Cleanup(func() { _ = db.Close() })
	d := dialect.Dialect{QuoteRune: '"', QuestionMarks: true}
	f.Fuzz(func(t *testing.T, name string) {
		if name == "" || !utf8.ValidString(name) || strings.ContainsRune(name, 0) || len(name) > 128 || strings.HasPrefix(strings.ToLower(name), "sqlite_") {
			return // CheckIdent refuses the name, or SQLite reserves it
		}
		at := d.Ident(name)
		tx, err := db.Begin()
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = tx.Rollback() }()
		if _, err := tx.Exec(`CREATE TABLE ` + at + ` (` + at + ` TEXT NOT NULL)`); err != nil {
			t.Fatalf("%q: %v", name, err)
		}
		stmt := d.Compile("insert", `INSERT INTO `+at+` (`+at+`) SELECT $2 WHERE '$3' = $1`)
		if n := strings.Count(stmt.Text, "?") - 2*strings.Count(at, "?"); n != 2 {
			t.Fatalf("%q: %d parameters in %s", name, n, stmt.Text)
		}
		if _, err := tx.Exec(stmt.Text, name, "$3"); err != nil {
			t.Fatalf("%q: %v", name, err)
		}
		var table, value string
		if err := tx.QueryRow(core.Compile("", `SELECT m.name, x.`+at+` FROM `+at+` x, sqlite_master m WHERE m.type = 'table'`, true).Text).Scan(&table, &value); err != nil || table != name || value != name {
			t.Fatalf("%q: the table %q has %q, %v", name, table, value, err)
		}
		// InnoDB's quotes, without a server to check them.
		mysql := dialect.Dialect{QuoteRune: '`', QuestionMarks: true}
		if text := mysql.Compile("", mysql.Ident(name)+` = $1`).Text; text != mysql.Ident(name)+` = ?` {
			t.Fatalf("%q: %s", name, text)
		}
	})
}
