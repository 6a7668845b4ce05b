package dbtest_test

import (
	"database/sql"
	"testing"

	"github.com/holdfast-go/holdfast/internal/test/dbtest"
)

// TestPrepared checks that a used database is restored, and that a database whose tables were
// changed is not used again.
func TestPrepared(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, e dbtest.Engine) {
		fills := 0
		use := func(work ...string) (url string) {
			t.Run("use", func(t *testing.T) {
				var db *sql.DB
				url, db = dbtest.Prepared(t, e, "things", func(db *sql.DB) {
					fills++
					exec(t, db, "CREATE TABLE things (id BIGINT PRIMARY KEY, name VARCHAR(10), at BIGINT)")
					exec(t, db, "INSERT INTO things (id, name) VALUES (1, 'one'), (2, 'two')")
				})
				var n, ids int
				if err := db.QueryRowContext(t.Context(), "SELECT COUNT(*), SUM(id) FROM things WHERE name IN ('one', 'two') AND at IS NULL").Scan(&n, &ids); err != nil || n != 2 || ids != 3 {
					t.Errorf("%d rows, ids %d: %v", n, ids, err)
				}
				for _, statement := range work {
					exec(t, db, statement)
				}
			})
			return url
		}
		first := use("DELETE FROM things WHERE id = 1", "UPDATE things SET name = 'three'", "INSERT INTO things (id) VALUES (4)",
			"CREATE TABLE more (id BIGINT)")
		again := use("CREATE INDEX later ON things (name)")
		if (first != again) != (e == dbtest.SQLite) {
			t.Errorf("first %s, then %s", first, again)
		}
		for _, change := range []string{
			"ALTER TABLE things ADD more BIGINT", "DROP TABLE things", "CREATE VIEW looks AS SELECT * FROM things", "ALTER TABLE things DROP COLUMN at",
		} {
			if next := use(change); next == again {
				t.Error("it is used again although its tables were changed")
			} else {
				again = next
			}
		}
		if want := 5; e != dbtest.SQLite && fills != want {
			t.Errorf("%d were made, want %d", fills, want)
		}
	})
}
