package dsn_test

import (
	"context"
	"database/sql"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/internal/dsn"
)

func TestParse(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		url  string
		want dsn.Config
	}{
		"postgres": {
			"postgres://u:p%40w@h:5432/db?sslmode=disable&x-migrations-table=t&default_transaction_isolation=repeatable%20read",
			dsn.Config{Engine: dsn.Postgres, Driver: "pgx", DSN: "postgres://u:p%40w@h:5432/db?sslmode=disable&default_transaction_isolation=repeatable%20read"},
		},
		"postgresql": {
			"postgresql://h/db",
			dsn.Config{Engine: dsn.Postgres, Driver: "pgx", DSN: "postgresql://h/db"},
		},
		"mysql": {
			"mysql://u:p%40w%2Fx@tcp(h:3306)/db?parseTime=true&x-tls-ca=f",
			dsn.Config{Engine: dsn.MySQL, Driver: "mysql", DSN: "u:p@w/x@tcp(h:3306)/db?parseTime=true"},
		},
		"mysql as a plain URL": {
			"mysql://u:p%40w%2Fx@h:3307/db?parseTime=true",
			dsn.Config{Engine: dsn.MySQL, Driver: "mysql", DSN: "u:p@w/x@tcp(h:3307)/db?parseTime=true"},
		},
		"mysql without a port": {
			"mysql://u@h/db",
			dsn.Config{Engine: dsn.MySQL, Driver: "mysql", DSN: "u@tcp(h:3306)/db"},
		},
		"mysql with an IPv6 address": {
			"mysql://u@[::1]:3306/db",
			dsn.Config{Engine: dsn.MySQL, Driver: "mysql", DSN: "u@tcp([::1]:3306)/db"},
		},
		"mysql with a slash in the password": {
			"mysql://u:a/b@tcp(h:3306)/db",
			dsn.Config{Engine: dsn.MySQL, Driver: "mysql", DSN: "u:a/b@tcp(h:3306)/db"},
		},
		"mariadb": {
			"mariadb://u:pw@h:3306/db",
			dsn.Config{Engine: dsn.MySQL, Driver: "mysql", DSN: "u:pw@tcp(h:3306)/db"},
		},
		"sqlite that must exist": {
			"sqlite://a b#c%.db?mode=rw",
			dsn.Config{Engine: dsn.SQLite, Driver: "sqlite", DSN: "file:a%20b%23c%25.db?_pragma=busy_timeout%285000%29&_pragma=journal_mode%28WAL%29&_pragma=foreign_keys%281%29&mode=rw"},
		},
		"sqlite": {
			"sqlite:///a b/c.db",
			dsn.Config{Engine: dsn.SQLite, Driver: "sqlite", DSN: "/a b/c.db?_pragma=busy_timeout%285000%29&_pragma=journal_mode%28WAL%29&_pragma=foreign_keys%281%29"},
		},
		"sqlite with its own pragma": {
			"sqlite://c.db?_pragma=BUSY_TIMEOUT=1",
			dsn.Config{Engine: dsn.SQLite, Driver: "sqlite", DSN: "c.db?_pragma=journal_mode%28WAL%29&_pragma=foreign_keys%281%29&_pragma=BUSY_TIMEOUT%3D1"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := dsn.Parse(test.url)
			if err != nil {
				t.Fatal(err)
			}
			if got != test.want {
				t.Errorf("got %+v, want %+v", got, test.want)
			}
		})
	}
}

func TestParseSaysWhatIsWrong(t *testing.T) {
	t.Parallel()
	for url, want := range map[string]string{
		"":                                "begins with none of",
		"u:hunter2@tcp(h)/db":             "begins with none of",
		"oracle://u:hunter2@h/x":          `unknown scheme "oracle"`,
		"postgres://u:hunter2@h":          "no database is named",
		"postgres://u:hunter2@h:99999/db": "pgx refuses",
		"postgres://u:hunter2@h/db?sslmode=hunter2":    "pgx refuses",
		"postgres://u:hun/hunter2@h/db":                "percent-encoded",
		"mysql://u:hunter2@tcp(h:3306)/":               "no database is named",
		"mysql://u:hunter2@h:3306":                     "no database is named",
		"mysql://u:hunter2@h:3x/db":                    "not of the form mysql://user:password@host:port/database",
		"mariadb://u:hunter2@h:3306/":                  "no database is named",
		"mysql://u:%zzhunter2@tcp(h)/db":               "percent-encoded",
		"mysql://u:hunter2@tcp(h)/db?parseTime=hunter": "not of the form",
		"sqlite://":              "no file is named",
		"sqlite://:memory:":      "name a file",
		"sqlite://f?_pragma=%zz": "cannot be read",
	} {
		_, err := dsn.Parse(url)
		switch {
		case !errors.Is(err, dsn.ErrInvalid):
			t.Errorf("%s: got %v", url, err)
		case !strings.Contains(err.Error(), want):
			t.Errorf("%s: %q does not say %q", url, err, want)
		case strings.Contains(err.Error(), "hunter2"):
			t.Errorf("%s: %q repeats the password", url, err)
		}
	}
}

func TestOpenSQLite(t *testing.T) {
	t.Parallel()
	db, engine, err := dsn.Open("sqlite://" + filepath.Join(t.TempDir(), "my file.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	if engine != dsn.SQLite {
		t.Errorf("engine: %s", engine)
	}
	for pragma, want := range map[string]string{"journal_mode": "wal", "busy_timeout": "5000", "foreign_keys": "1"} {
		if got := queryString(t, db, "PRAGMA "+pragma); got != want {
			t.Errorf("%s: got %s, want %s", pragma, got, want)
		}
	}
}

// TestExisting checks that a mistyped path is refused and leaves no file, with any characters.
func TestExisting(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"a.db", "a b#c%41.db", "é.db"} {
		path := filepath.Join(t.TempDir(), name)
		url, err := dsn.Existing("sqlite://" + path + "?_pragma=busy_timeout(1)")
		if !errors.Is(err, dsn.ErrInvalid) || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: got %q, %v", name, url, err)
		}
		made, _, err := dsn.Open("sqlite://" + path)
		if err == nil {
			_, err = made.ExecContext(t.Context(), `CREATE TABLE made (a INTEGER)`)
		}
		if err != nil {
			t.Fatal(err)
		}
		_ = made.Close()
		if url, err = dsn.Existing("sqlite://" + path); err != nil {
			t.Fatal(err)
		}
		pool, _, err := dsn.Open(url)
		if err != nil {
			t.Fatal(err)
		}
		if got := queryString(t, pool, `SELECT name FROM sqlite_master`); got != "made" {
			t.Errorf("%s: it has the table %q", name, got)
		}
		_ = pool.Close()

		// The file goes between the check and the first connection.
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		if pool, _, err = dsn.Open(url); err != nil {
			t.Fatal(err)
		}
		if err := pool.PingContext(t.Context()); err == nil {
			t.Errorf("%s: it was opened", name)
		}
		_ = pool.Close()
		if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: it was made: %v", name, err)
		}
	}
	for _, url := range []string{"postgres://h/db", "mysql://u@tcp(h)/db", "mariadb://h/db"} {
		if got, err := dsn.Existing(url); got != url || err != nil {
			t.Errorf("%s: got %s, %v", url, got, err)
		}
	}
}

func TestOpenRefuses(t *testing.T) {
	t.Parallel()
	if _, _, err := dsn.Open("oracle://x"); !errors.Is(err, dsn.ErrInvalid) {
		t.Errorf("got %v", err)
	}
}

// FuzzParse looks for a URL whose error contains the password.
func FuzzParse(f *testing.F) {
	const secret = "S3cr3tOfTheBank"
	f.Add("postgres://u:", "@h/db")
	f.Add("mysql://u:", "@tcp(h:1)/db?tls=x")
	f.Add("sqlite://", "")
	f.Add("://", "")
	f.Fuzz(func(t *testing.T, before, after string) {
		config, err := dsn.Parse(before + secret + after)
		if err == nil && (config.Driver == "" || config.DSN == "" || config.Engine == "") {
			t.Errorf("neither an error nor a result: %+v", config)
		}
		// The error quotes the scheme, which is no place for a password.
		scheme, _, _ := strings.Cut(before+secret+after, "://")
		if err != nil && strings.Contains(err.Error(), secret) && !strings.Contains(scheme, secret) {
			t.Errorf("the error repeats the password: %v", err)
		}
	})
}

func queryString(t *testing.T, db *sql.DB, query string) string {
	t.Helper()
	var text string
	if err := db.QueryRowContext(t.Context(), query).Scan(&text); err != nil {
		t.Fatal(err)
	}
	return text
}

// TestOpenThrough checks that a network connection uses the caller's dial function, and a file
// does not.
func TestOpenThrough(t *testing.T) {
	t.Parallel()
	refused := errors.New("refused")
	for url, want := range map[string]string{
		"postgres://u:S3cr3t@127.0.0.1:5432/db":     "tcp 127.0.0.1:5432",
		"mysql://u:S3cr3t@tcp(127.0.0.1:3306)/db":   "tcp 127.0.0.1:3306",
		"mysql://u:S3cr3t@unix(/run/mysql.sock)/db": "unix /run/mysql.sock",
	} {
		dialed := ""
		pool, err := dsn.OpenThrough(url, func(_ context.Context, network, address string) (net.Conn, error) {
			dialed = network + " " + address
			return nil, refused
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := pool.PingContext(t.Context()); !errors.Is(err, refused) || dialed != want {
			t.Errorf("%s: dialed %q: %v", url, dialed, err)
		}
		pool.Close()
	}
	pool, err := dsn.OpenThrough("sqlite://"+filepath.Join(t.TempDir(), "a.db"), func(context.Context, string, string) (net.Conn, error) { return nil, refused })
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	if err := pool.PingContext(t.Context()); err != nil {
		t.Error(err)
	}
	if _, err := dsn.OpenThrough("nothing", nil); !errors.Is(err, dsn.ErrInvalid) {
		t.Errorf("got %v", err)
	}
}
