package main

import (
	"bytes"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/holdfast-go/holdfast/internal/test/dbtest"
)

// A day starts its own program again. In tests, that program is the test binary.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && (os.Args[1] == "feed" || os.Args[1] == "work") {
		os.Exit(run(os.Args[1:]))
	}
	dbtest.VerifyNoLeaks(m)
}

// buffer collects the output of several processes at once, as a terminal does.
type buffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// TestDay feeds the file twice and kills the feed and the workers. Each line is booked once.
func TestDay(t *testing.T) {
	dbtest.NotUnderRace(t, "its workers are processes")
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, engine dbtest.Engine) {
		var out, log buffer
		y := &day{name: newDay(), url: dbtest.DSN(t, engine), rows: 3000, workers: 3, kill: true, stdout: &out, stderr: &log}
		if err := y.run(t.Context()); err != nil {
			t.Error(err)
		}
		if want := "lines=3000 fed=2 booked=3000 duplicates=0 closings=1\n"; out.String() != want {
			t.Errorf("it says %q, want %q", out.String(), want)
		}
		for _, want := range []string{"run 1: ", "run 2: 0 lines are new and 3000 known, "} {
			if !strings.Contains(log.String(), want) {
				t.Errorf("%q is not in its log", want)
			}
		}
		if strings.Contains(log.String(), "run 1: 3000 lines are new and 0 known, 0 processes killed") {
			t.Error("nothing was killed")
		}
		t.Log(log.String())
	})
}

// TestAuditSees checks that the audit fails on wrong books.
func TestAuditSees(t *testing.T) {
	t.Parallel()
	const rows = 200
	for name, wrong := range map[string]string{
		"a line twice":       `INSERT INTO entries (settlement_no, account, amount) SELECT settlement_no, account, amount FROM entries WHERE settlement_no LIKE '%7'`,
		"a line missing":     `DELETE FROM settlements WHERE settlement_no LIKE '%7'`,
		"a line not booked":  `UPDATE settlements SET state = 'new' WHERE settlement_no LIKE '%7'`,
		"an entry missing":   `DELETE FROM entries WHERE account = 'clearing' AND settlement_no LIKE '%7'`,
		"another amount":     `UPDATE entries SET amount = amount * 2`,
		"a day closed twice": `INSERT INTO closings (day, token, line_count, total) SELECT day, token, line_count, total FROM closings`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var out, log buffer
			y := &day{name: newDay(), url: dbtest.DSN(t, dbtest.SQLite), rows: rows, workers: 1, stdout: &out, stderr: &log}
			if err := y.run(t.Context()); err != nil {
				t.Fatal(err)
			}
			d, err := open(t.Context(), y.url)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = d.close(t.Context()) }()
			if _, err := d.pool.ExecContext(t.Context(), wrong); err != nil {
				t.Fatal(err)
			}
			b, err := d.audit(t.Context(), y.name)
			if err != nil {
				t.Fatal(err)
			}
			if problems := b.problems(rows); len(problems) == 0 {
				t.Errorf("the audit finds nothing wrong with %+v", b)
			}
		})
	}
}

// TestChangedLine checks that a line with a changed amount is refused, and the first version
// stays.
func TestChangedLine(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, engine dbtest.Engine) {
		d, err := open(t.Context(), dbtest.DSN(t, engine))
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = d.close(t.Context()) }()
		feed := func(file string, want fed) {
			t.Helper()
			if got, err := d.feed(t.Context(), "today", strings.NewReader(file), func(fed) {}); err != nil || got != want {
				t.Errorf("got %+v, %v, want %+v", got, err, want)
			}
		}
		feed("a,m,1\nb,m,2\nb,m,2\n", fed{new: 2, known: 1})
		feed("a,m,100\nb,m,2\nb,m,2\n", fed{known: 2, refused: 1})
		var total int
		if err := d.pool.QueryRowContext(t.Context(), `SELECT SUM(amount) FROM settlements`).Scan(&total); err != nil || total != 3 {
			t.Errorf("the rows sum to %d, %v", total, err)
		}
	})
}

func TestArguments(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"nonsense"}, {"-rows", "0"}, {"-workers", "0"}, {"-rows"}, {"-dsn", "oracle://x"}, {"-rows", "5", "more"}} {
		if status := run(args); status != 2 {
			t.Errorf("%q: exit status %d, want 2", args, status)
		}
	}
}
