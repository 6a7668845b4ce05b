package stdhandle

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"io"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/internal/core"
)

var (
	errStatement = errors.New("the statement failed")
	errLocks     = errors.New("a lock was waited for too long") // the transaction goes on
	errLost      = errors.New("the server has ended the transaction")
	errGone      = errors.New("one list says that the transaction goes on, and one that it does not")
	errRefused   = errors.New("refused")
	errAgain     = errors.New("the transaction must run again")
	errTxDone    = sql.ErrTxDone
)

// server is a driver's connection to a server that notes what it gets.
type server struct {
	sent    []string
	fails   map[string]error // by the text
	rows    driver.Rows
	old     bool // prepared statements take no context
	resets  []context.Context
	invalid bool
}

func (s *server) got(text string) error {
	s.sent = append(s.sent, text)
	return s.fails[text]
}

func (s *server) Prepare(text string) (driver.Stmt, error) {
	return s.PrepareContext(context.Background(), text)
}

func (s *server) PrepareContext(_ context.Context, text string) (driver.Stmt, error) {
	if err := s.got("prepare " + text); err != nil {
		return nil, err
	}
	if s.old {
		return oldStmt{s, text}, nil
	}
	return stmt{oldStmt{s, text}}, nil
}

func (s *server) Close() error              { return s.got("close") }
func (s *server) Begin() (driver.Tx, error) { return tx{s}, s.got("begin") }
func (s *server) IsValid() bool             { return !s.invalid }
func (s *server) Ping(context.Context) error {
	return s.got("ping")
}

func (s *server) CheckNamedValue(v *driver.NamedValue) error { return s.got("check " + v.Name) }

func (s *server) BeginTx(_ context.Context, opts driver.TxOptions) (driver.Tx, error) {
	text := "BEGIN"
	if opts.ReadOnly {
		text = "BEGIN READ ONLY"
	}
	return tx{s}, s.got(text)
}

func (s *server) ResetSession(ctx context.Context) error {
	s.resets = append(s.resets, ctx)
	return s.fails["reset"]
}

func (s *server) ExecContext(_ context.Context, text string, _ []driver.NamedValue) (driver.Result, error) {
	return driver.RowsAffected(1), s.got(text)
}

func (s *server) QueryContext(_ context.Context, text string, _ []driver.NamedValue) (driver.Rows, error) {
	return s.rows, s.got(text)
}

type tx struct{ s *server }

func (t tx) Commit() error   { return t.s.got("driver's COMMIT") }
func (t tx) Rollback() error { return t.s.got("driver's ROLLBACK") }

type oldStmt struct {
	s    *server
	text string
}

func (s oldStmt) Close() error                               { return s.s.got("close " + s.text) }
func (s oldStmt) NumInput() int                              { return -1 }
func (s oldStmt) Exec([]driver.Value) (driver.Result, error) { return nil, errors.New("the old form") }

func (s oldStmt) Query([]driver.Value) (driver.Rows, error) { return nil, errors.New("the old form") }

type stmt struct{ oldStmt }

func (s stmt) ExecContext(context.Context, []driver.NamedValue) (driver.Result, error) {
	return driver.RowsAffected(1), s.s.got("execute " + s.text)
}

func (s stmt) QueryContext(context.Context, []driver.NamedValue) (driver.Rows, error) {
	return s.s.rows, s.s.got("execute " + s.text)
}

// plain hides all that a driver's connection may have more.
type plain struct{ driver.Conn }

// bench is a connection that keeps settings, and its server.
type bench struct {
	*testing.T
	*keeping

	s *server
}

const (
	setting = "SET autocommit = 0"
	undo    = "SET autocommit = 1"
)

func newBench(t *testing.T) *bench {
	t.Helper()
	s := &server{fails: map[string]error{}}
	return &bench{t, &keeping{Conn: s}, s}
}

// mysql is the setting of a MySQL server.
func mysql(text string) core.Kept {
	return core.Kept{
		Setting: text, Implicit: true,
		Lost: func(err error) error {
			if errors.Is(err, errLost) || errors.Is(err, errGone) {
				return errLost
			}
			return nil
		},
		Survives: func(err error) bool { return errors.Is(err, errLocks) || errors.Is(err, errGone) },
		Ends:     func(text string) bool { return slices.Contains([]string{"COMMIT", "CREATE TABLE t (a INT)"}, text) },
	}
}

// keeps gives the session a setting.
func (b *bench) keeps(kept core.Kept) {
	b.Helper()
	ok, err := b.keep(kept, func() (string, error) { return undo, b.s.got(kept.Setting) }, b.s.got)
	if !ok || err != nil {
		b.Fatalf("kept: %v, %v", ok, err)
	}
}

// ownQuerier sends statements of Holdfast's.
type ownQuerier struct{ *keeping }

func (q ownQuerier) Exec(ctx context.Context, text string, _ ...any) (core.Result, error) {
	_, err := q.ExecContext(ctx, text, nil)
	return core.Result{}, err
}

func (q ownQuerier) Query(ctx context.Context, text string, _ ...any) (core.Rows, error) {
	_, err := q.QueryContext(ctx, text, nil) //nolint:gocritic // a server without rows
	return nil, err
}

// own sends a statement of Holdfast's, and program one of the program's.
func (b *bench) own(text string) error {
	_, err := core.Stmt{Name: "own", Text: text}.Exec(b.Context(), ownQuerier{b.keeping})
	return err
}

func (b *bench) program(text string) error {
	_, err := b.ExecContext(b.Context(), text, nil)
	return err
}

func (b *bench) ok(err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}

func (b *bench) is(err, want error) {
	b.Helper()
	if !errors.Is(err, want) {
		b.Fatalf("%v, want %v", err, want)
	}
}

// begin begins a transaction as database/sql does.
func (b *bench) begin() driver.Tx {
	b.Helper()
	t, err := b.BeginTx(b.Context(), driver.TxOptions{})
	b.ok(err)
	return t
}

// sends fails unless the server got these texts since it was asked last.
func (b *bench) sends(want ...string) {
	b.Helper()
	if got := b.s.sent; !slices.Equal(got, want) {
		b.Fatalf("the server got %q, want %q", got, want)
	}
	b.s.sent = nil
}

// TestAtRest checks when a session still has the setting that it was given: otherwise a transaction
// would begin without a BEGIN on a session that commits each statement.
func TestAtRest(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		do   func(b *bench)
		want []string // what the next transaction sends before its first statement
	}{
		"nothing":                     {func(*bench) {}, nil},
		"a write outside":             {func(b *bench) { b.ok(b.program("INSERT a")) }, []string{"BEGIN"}},
		"a read outside":              {func(b *bench) { b.ok(b.program("SELECT 1")) }, []string{"BEGIN"}},
		"a statement of Holdfast's":   {func(b *bench) { b.ok(b.own("SELECT 1")) }, []string{"BEGIN"}},
		"one that failed outside":     {func(b *bench) { b.s.fails["INSERT a"] = errStatement; b.is(b.program("INSERT a"), errStatement) }, []string{"BEGIN"}},
		"a setting":                   {func(b *bench) { b.ok(b.program("SET autocommit = 1")) }, []string{undo, setting}},
		"a call":                      {func(b *bench) { b.ok(b.program("CALL p()")) }, []string{undo, setting}},
		"two statements":              {func(b *bench) { b.ok(b.program("SELECT 1; SET autocommit = 1")) }, []string{undo, setting}},
		"two in a comment's disguise": {func(b *bench) { b.ok(b.program("SELECT 1 /* ' */; SET autocommit = 1 -- '")) }, []string{undo, setting}},
		"a setting of Holdfast's":     {func(b *bench) { b.ok(b.own("SET lock_wait_timeout = 1")) }, []string{"BEGIN"}},
		"a prepared setting": {func(b *bench) {
			s, err := b.PrepareContext(b.Context(), "SET autocommit = 1")
			b.ok(err)
			_, err = s.(driver.StmtExecContext).ExecContext(b.Context(), nil)
			b.ok(err)
			b.s.sent = nil
		}, []string{undo, setting}},
		"a prepared query": {func(b *bench) {
			s, err := b.PrepareContext(b.Context(), "CALL p()")
			b.ok(err)
			_, err = s.(driver.StmtQueryContext).QueryContext(b.Context(), nil) //nolint:gocritic // a server without rows
			b.ok(err)
			b.s.sent = nil
		}, []string{undo, setting}},
		"a setting in a transaction": {func(b *bench) {
			tx := b.begin()
			b.ok(b.program("SET autocommit = 1"))
			b.ok(tx.Rollback())
		}, []string{undo, setting}},
		"another setting": {func(b *bench) { b.keeps(mysql("SET other = 1")) }, []string{undo, setting}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			b.keeps(mysql(setting))
			b.sends(setting)
			c.do(b)
			b.s.sent = nil
			b.keeps(mysql(setting))
			tx := b.begin()
			b.sends(c.want...)
			b.ok(b.program("INSERT b"))
			b.ok(tx.Commit())
			if slices.Contains(c.want, "BEGIN") {
				b.sends("INSERT b", "driver's COMMIT")
				return
			}
			b.sends("INSERT b", "COMMIT")
			// A transaction that is watched leaves the session at rest.
			b.keeps(mysql(setting))
			b.ok(b.begin().Commit())
			b.sends("COMMIT")
		})
	}
}

// TestBegin checks the other ways of a BEGIN.
func TestBegin(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.keeps(mysql(setting))
	b.sends(setting)
	if _, err := b.BeginTx(t.Context(), driver.TxOptions{ReadOnly: true}); err != nil {
		t.Fatal(err)
	}
	b.sends("BEGIN READ ONLY")
	if b.whole() {
		t.Error("a transaction that is not watched is intact")
	}

	b.s.fails["BEGIN"] = errStatement
	b.ok(b.program("SELECT 1"))
	b.s.sent = nil
	if _, err := b.BeginTx(t.Context(), driver.TxOptions{}); !errors.Is(err, errStatement) || b.tx != nil {
		t.Errorf("%v: %v", err, b.tx)
	}

	// What keep did not see, as it cannot be between keep and this.
	b = newBench(t)
	b.keeps(mysql(setting))
	b.dirty = true
	b.begin()
	b.sends(setting, "BEGIN")

	explicit := newBench(t)
	kept := mysql(setting)
	kept.Implicit = false
	explicit.keeps(kept)
	explicit.ok(explicit.begin().Commit())
	explicit.sends(setting, "BEGIN", "driver's COMMIT")

	unkept := newBench(t)
	unkept.ok(unkept.program("SET a = 1"))
	unkept.ok(unkept.begin().Rollback())
	unkept.sends("SET a = 1", "BEGIN", "driver's ROLLBACK")

	old := newBench(t)
	old.Conn = plain{old.s}
	old.ok(old.begin().Commit())
	old.sends("begin", "driver's COMMIT")
	if _, err := old.BeginTx(t.Context(), driver.TxOptions{ReadOnly: true}); err == nil {
		t.Error("options that the driver does not know were dropped")
	}
	old.sends()
}

// TestKeepFails checks that a setting that could not be made, or undone, is not kept.
func TestKeepFails(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	ok, err := b.keep(mysql(setting), func() (string, error) { return undo, errStatement }, b.s.got)
	if ok || !errors.Is(err, errStatement) || b.kept.Setting != "" {
		t.Errorf("%v, %v, %q", ok, err, b.kept.Setting)
	}
	b.begin()
	b.sends("BEGIN")

	b = newBench(t)
	b.keeps(mysql(setting))
	b.s.fails[undo] = errStatement
	ok, err = b.keep(mysql("SET other = 1"), func() (string, error) { t.Error("it goes on"); return "", nil }, b.s.got)
	if ok || !errors.Is(err, errStatement) || b.kept.Setting != "" {
		t.Errorf("%v, %v, %q", ok, err, b.kept.Setting)
	}
}

// TestReset checks that a session goes back to the program as the driver made it, and to Holdfast as it
// was left.
func TestReset(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.ok(b.ResetSession(t.Context()))
	b.keeps(mysql(setting))
	b.ok(b.ResetSession(core.Keeping(t.Context())))
	b.sends(setting)
	b.ok(b.ResetSession(t.Context()))
	b.sends(undo)
	b.ok(b.ResetSession(t.Context()))
	b.sends()
	for _, ctx := range b.s.resets {
		if core.Keeps(ctx) {
			t.Error("the driver gets the mark")
		}
	}
	if len(b.s.resets) != 4 {
		t.Errorf("the driver was asked %d times", len(b.s.resets))
	}
	b.s.fails["reset"] = errStatement
	b.is(b.ResetSession(t.Context()), errStatement)
	b.s.fails = map[string]error{undo: errStatement}
	b.keeps(mysql(setting))
	b.is(b.ResetSession(t.Context()), driver.ErrBadConn)

	b = newBench(t)
	b.Conn = plain{b.s}
	b.ok(b.ResetSession(t.Context()))
	b.keeps(mysql(setting))
	b.is(b.ResetSession(t.Context()), driver.ErrBadConn)
}

// TestDoubt checks after what a transaction is surely the one that began: only then a write that was
// answered stands with the record of the operation.
func TestDoubt(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		do     func(b *bench)
		intact bool
		lost   bool
	}{
		"nothing":                           {func(*bench) {}, true, false},
		"a write":                           {func(b *bench) { b.ok(b.program("INSERT a")) }, true, false},
		"a COMMIT":                          {func(b *bench) { b.ok(b.program("COMMIT")) }, false, false},
		"a CREATE":                          {func(b *bench) { b.ok(b.program("CREATE TABLE t (a INT)")) }, false, false},
		"the same of Holdfast's":            {func(b *bench) { b.ok(b.own("CREATE TABLE t (a INT)")) }, true, false},
		"nobody knows what ends it":         {func(b *bench) { b.kept.Ends = nil; b.ok(b.program("INSERT a")) }, false, false},
		"an error":                          {func(b *bench) { b.fail("INSERT a", errStatement) }, false, false},
		"an error of Holdfast's":            {func(b *bench) { b.s.fails["SELECT 1"] = errStatement; b.is(b.own("SELECT 1"), errStatement) }, false, false},
		"one that leaves it":                {func(b *bench) { b.fail("INSERT a", errLocks) }, true, false},
		"nobody knows whether one does":     {func(b *bench) { b.judge.Survives = nil; b.fail("INSERT a", errLocks) }, false, false},
		"one that ends it":                  {func(b *bench) { b.fail("INSERT a", errLost) }, false, true},
		"one that may end it":               {func(b *bench) { b.fail("INSERT a", errGone) }, false, true},
		"one that ends it, and another":     {func(b *bench) { b.fail("INSERT a", errLost); b.s.fails["x"] = errLocks; b.is(b.own("x"), errLocks) }, false, true},
		"a statement that is skipped":       {func(b *bench) { b.fail("INSERT a", driver.ErrSkip) }, true, false},
		"an error while rows are read":      {func(b *bench) { b.read(errLost, nil, nil) }, false, true},
		"one that leaves it, while reading": {func(b *bench) { b.read(errLocks, nil, nil) }, true, false},
		"the end of the rows":               {func(b *bench) { b.read(io.EOF, nil, nil) }, true, false},
		"an error when rows are closed":     {func(b *bench) { b.read(nil, errLost, nil) }, false, true},
		"an error of the next result":       {func(b *bench) { b.read(nil, nil, errLost) }, false, true},
		"an error of a query":               {func(b *bench) { b.s.fails["SELECT 1"] = errLost; b.is(b.query("SELECT 1"), errLost) }, false, true},
		"an error of a prepared statement": {func(b *bench) {
			s := b.prepared("INSERT a")
			b.s.fails["execute INSERT a"] = errLost
			_, err := s.ExecContext(b.Context(), nil)
			b.is(err, errLost)
		}, false, true},
		"an error of a prepared query": {func(b *bench) {
			s := b.prepared("SELECT 1")
			b.s.fails["execute SELECT 1"] = errLost
			_, err := s.QueryContext(b.Context(), nil) //nolint:gocritic // a server without rows
			b.is(err, errLost)
		}, false, true},
		"an error while its rows are read": {func(b *bench) {
			b.s.rows = &rows{next: errLost}
			r, err := b.prepared("SELECT 1").QueryContext(b.Context(), nil)
			b.ok(err)
			b.is(r.Next(nil), errLost)
		}, false, true},
		"a statement that runs unseen": {func(b *bench) {
			b.s.old = true
			_, err := b.PrepareContext(b.Context(), "INSERT a")
			b.ok(err)
		}, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			b.keeps(mysql(setting))
			tx := b.begin()
			c.do(b)
			if b.whole() != c.intact {
				t.Errorf("intact: %v", b.whole())
			}
			b.s.sent = nil
			err := b.program("INSERT next")
			if c.lost {
				b.is(err, errLost)
				b.sends() // it would be committed alone
				if prepared := b.prepared("INSERT next"); true {
					_, e := prepared.ExecContext(t.Context(), nil)
					_, q := prepared.QueryContext(t.Context(), nil) //nolint:gocritic // a server without rows
					b.is(e, errLost)
					b.is(q, errLost)
					b.is(b.query("SELECT next"), errLost)
				}
				b.sends("prepare INSERT next")
				b.ok(b.own("SELECT proof"))
			} else {
				b.ok(err)
			}
			b.ok(tx.Rollback())
			b.is(tx.Rollback(), errTxDone)
			b.is(tx.Commit(), errTxDone)
			if b.whole() {
				t.Error("no transaction is intact")
			}
			// What comes after a transaction says nothing of it, nor it of the next one.
			b.s.sent = nil
			b.s.fails["SELECT later"] = errLost
			b.is(b.query("SELECT later"), errLost)
			next := b.begin()
			if raw := b.raw; b.whole() == raw && b.tx != nil {
				t.Errorf("the next one: intact %v, raw %v", b.whole(), raw)
			}
			b.ok(next.Rollback())
		})
	}
}

// TestMark checks when the mark of a transaction is set, and what nothing can tell without it.
func TestMark(t *testing.T) {
	t.Parallel()
	const mark = "SAVEPOINT mark"
	for name, c := range map[string]struct {
		do    func(b *bench)
		sends []string
		again bool // nothing can tell
	}{
		"nothing":                   {func(*bench) {}, nil, false},
		"writes":                    {func(b *bench) { b.ok(b.program("INSERT a")) }, []string{"INSERT a"}, false},
		"a statement that may end":  {func(b *bench) { b.ok(b.program("COMMIT")) }, []string{mark, "COMMIT"}, false},
		"two of them":               {func(b *bench) { b.ok(b.program("COMMIT")); b.ok(b.program("COMMIT")) }, []string{mark, "COMMIT", "COMMIT"}, false},
		"a savepoint":               {func(b *bench) { b.ok(b.program("SAVEPOINT a")) }, []string{mark, "SAVEPOINT a"}, false},
		"a savepoint of Holdfast's": {func(b *bench) { b.ok(b.own("SAVEPOINT a")) }, []string{mark, "SAVEPOINT a"}, false},
		"the mark itself":           {func(b *bench) { b.ok(b.own(mark)); b.ok(b.program("COMMIT")) }, []string{mark, "COMMIT"}, false},
		"an error":                  {func(b *bench) { b.fail("INSERT a", errStatement) }, []string{"INSERT a"}, true},
		"an error that leaves it":   {func(b *bench) { b.fail("INSERT a", errLocks) }, []string{"INSERT a"}, false},
		"an error that ends it":     {func(b *bench) { b.fail("INSERT a", errLost) }, []string{"INSERT a"}, false},
		"an error behind the mark":  {func(b *bench) { b.ok(b.program("SAVEPOINT a")); b.fail("INSERT a", errStatement) }, []string{mark, "SAVEPOINT a", "INSERT a"}, false},
		"the mark fails":            {func(b *bench) { b.s.fails[mark] = errStatement; b.is(b.program("COMMIT"), errStatement) }, []string{mark}, true},
		"the mark cannot be set":    {func(b *bench) { b.s.fails[mark] = errLost; b.is(b.program("COMMIT"), errLost) }, []string{mark}, false},
		"in doubt, one that may end": {func(b *bench) {
			b.fail("INSERT a", errStatement)
			b.is(b.program("COMMIT"), errAgain)
			b.is(b.program("INSERT b"), errAgain)
		}, []string{"INSERT a"}, true},
		"in doubt, a savepoint": {func(b *bench) { b.fail("INSERT a", errStatement); b.is(b.own("SAVEPOINT a"), errAgain) }, []string{"INSERT a"}, true},
		"a statement that runs unseen": {func(b *bench) {
			b.s.old = true
			_, err := b.PrepareContext(b.Context(), "INSERT a")
			b.ok(err)
		}, []string{"prepare INSERT a", mark}, false},
		"in doubt, one that runs unseen": {func(b *bench) {
			b.fail("INSERT a", errStatement)
			b.s.old = true
			_, err := b.PrepareContext(b.Context(), "INSERT b")
			b.is(err, errAgain)
		}, []string{"INSERT a", "prepare INSERT b", "close INSERT b"}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			kept := mysql(setting)
			kept.Mark, kept.Again = mark, func(error) error { return errAgain }
			b.keeps(kept)
			tx := b.begin()
			b.s.sent = nil
			c.do(b)
			b.sends(c.sends...)
			if _, again := b.intact(); errors.Is(again, errAgain) != c.again {
				t.Errorf("again: %v, want %v", again, c.again)
			}
			b.ok(tx.Rollback())
			b.begin()
			if intact, again := b.intact(); intact == b.raw || again != nil {
				t.Errorf("the next one: %v, %v", intact, again)
			}
		})
	}
}

// TestAlive checks when a question about the program's transaction is not sent.
func TestAlive(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		do   func(b *bench)
		sent bool
	}{
		"nothing":                      {func(*bench) {}, false},
		"writes":                       {func(b *bench) { b.ok(b.program("INSERT a")) }, false},
		"Holdfast's own":               {func(b *bench) { b.ok(b.own("COMMIT")) }, false},
		"an error that leaves it":      {func(b *bench) { b.fail("INSERT a", errLocks) }, false},
		"an error":                     {func(b *bench) { b.fail("INSERT a", errStatement) }, true},
		"an error that ends it":        {func(b *bench) { b.fail("INSERT a", errLost) }, true},
		"an error, and a statement":    {func(b *bench) { b.fail("INSERT a", errStatement); b.ok(b.program("INSERT b")) }, true},
		"an error while rows are read": {func(b *bench) { b.read(errLost, nil, nil) }, true},
		"a statement that may end it":  {func(b *bench) { b.ok(b.program("COMMIT")) }, true},
		"the same, of a prepared one":  {func(b *bench) { _, err := b.prepared("COMMIT").ExecContext(b.Context(), nil); b.ok(err) }, true},
		"a statement that runs unseen": {func(b *bench) { b.s.old = true; _, err := b.PrepareContext(b.Context(), "INSERT a"); b.ok(err) }, true},
		"BEGIN fails": {func(b *bench) {
			b.s.fails["BEGIN"] = errRefused
			_, err := b.BeginTx(b.Context(), driver.TxOptions{})
			b.is(err, errRefused)
		}, true},
		"the connection is another caller's": {func(b *bench) { b.ok(b.ResetSession(b.Context())) }, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			ask := func(sent bool) {
				b.Helper()
				b.s.sent = nil
				if _, err := b.ExecContext(core.Asking(b.Context()), "SAVEPOINT alive", nil); err != nil || sent != slices.Equal(b.s.sent, []string{"SAVEPOINT alive"}) {
					b.Errorf("the server got %q (%v)", b.s.sent, err)
				}
			}
			begin := func() {
				b.Helper()
				_, err := b.BeginTx(b.Context(), driver.TxOptions{})
				b.ok(err)
			}
			begin()
			ask(true) // no statement has told yet what errors mean
			b.keeps(mysql(setting))
			b.ok(b.ResetSession(b.Context()))
			begin()
			ask(false)
			c.do(b)
			ask(c.sent)
		})
	}
}

func (b *bench) whole() bool {
	intact, again := b.intact()
	b.ok(again) // there is no mark
	return intact
}

// fail sends a statement of the program's that fails.
func (b *bench) fail(text string, err error) {
	b.Helper()
	b.s.fails[text] = err
	b.is(b.program(text), err)
}

func (b *bench) query(text string) error {
	_, err := b.QueryContext(b.Context(), text, nil) //nolint:gocritic // a server without rows
	return err
}

func (b *bench) prepared(text string) contextStmt {
	b.Helper()
	s, err := b.PrepareContext(b.Context(), text)
	b.ok(err)
	return s.(contextStmt)
}

// read reads rows that fail at some point.
func (b *bench) read(next, closed, result error) {
	b.Helper()
	b.s.rows = &rows{next: next, closed: closed, result: result}
	r, err := b.QueryContext(b.Context(), "SELECT 1", nil)
	b.ok(err)
	more, can := r.(driver.RowsNextResultSet)
	if !can || !more.HasNextResultSet() {
		b.Fatal("no more results")
	}
	b.is(r.Next(nil), next)
	b.is(more.NextResultSet(), result)
	b.is(r.Close(), closed)
}

type rows struct{ next, closed, result error }

func (r *rows) Columns() []string                                  { return []string{"a"} }
func (r *rows) Next([]driver.Value) error                          { return r.next }
func (r *rows) Close() error                                       { return r.closed }
func (r *rows) HasNextResultSet() bool                             { return !errors.Is(r.result, io.EOF) }
func (r *rows) NextResultSet() error                               { return r.result }
func (r *rows) ColumnTypeScanType(int) reflect.Type                { return reflect.TypeFor[int]() }
func (r *rows) ColumnTypeDatabaseTypeName(int) string              { return "BIGINT" }
func (r *rows) ColumnTypeLength(int) (int64, bool)                 { return 7, true }
func (r *rows) ColumnTypeNullable(int) (nullable, ok bool)         { return true, true }
func (r *rows) ColumnTypePrecisionScale(int) (p, s int64, ok bool) { return 8, 9, true }

// TestRowsLookTheSame checks that the rows of a watched query say of their columns what the driver's say.
func TestRowsLookTheSame(t *testing.T) {
	t.Parallel()
	of := func(r driver.Rows) []any {
		all := []any{}
		if typed, can := r.(driver.RowsColumnTypeScanType); can {
			all = append(all, typed.ColumnTypeScanType(0))
		}
		w, can := r.(*watched)
		if !can {
			own := r.(*rows)
			w = &watched{Rows: own}
		}
		length, hasLength := w.ColumnTypeLength(0)
		nullable, hasNullable := w.ColumnTypeNullable(0)
		p, s, hasScale := w.ColumnTypePrecisionScale(0)
		return append(all, w.ColumnTypeDatabaseTypeName(0), length, hasLength, nullable, hasNullable, p, s, hasScale, w.HasNextResultSet())
	}
	b := newBench(t)
	b.keeps(mysql(setting))
	b.begin()
	b.s.rows = &rows{}
	r, err := b.QueryContext(t.Context(), "SELECT 1", nil)
	b.ok(err)
	want := []any{reflect.TypeFor[int](), "BIGINT", int64(7), true, true, true, int64(8), int64(9), true, true}
	if got := of(r); !reflect.DeepEqual(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	b.s.rows = &rows{result: io.EOF}
	r, err = b.QueryContext(t.Context(), "SELECT 1", nil)
	b.ok(err)
	if r.(driver.RowsNextResultSet).HasNextResultSet() {
		t.Error("there is no next result")
	}
	b.s.rows = struct{ driver.Rows }{&rows{}}
	r, err = b.QueryContext(t.Context(), "SELECT 1", nil)
	b.ok(err)
	want = []any{reflect.TypeFor[any](), "", int64(0), false, false, false, int64(0), int64(0), false, false}
	if got := of(r); !reflect.DeepEqual(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	if err := r.(driver.RowsNextResultSet).NextResultSet(); err != io.EOF { //nolint:errorlint // as drivers return it
		t.Error(err)
	}
}

// TestRowsOfATransactionThatEnded checks that an error of rows says nothing of the next transaction.
func TestRowsOfATransactionThatEnded(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.keeps(mysql(setting))
	tx := b.begin()
	b.s.rows = &rows{next: errLost}
	r, err := b.QueryContext(t.Context(), "SELECT 1", nil)
	b.ok(err)
	b.ok(tx.Commit())
	if outside, err := b.QueryContext(t.Context(), "SELECT 1", nil); err != nil || outside != b.s.rows {
		t.Errorf("%v, %v", outside, err)
	}
	b.keeps(mysql(setting + ";"))
	b.begin()
	b.is(r.Next(nil), errLost)
	if !b.whole() {
		t.Error("the next transaction is blamed")
	}
}

// TestOwnStatementsArePrepared checks that a statement of Holdfast's is prepared when it is sent often, and
// is sent as it is where that fails.
func TestOwnStatementsArePrepared(t *testing.T) {
	t.Parallel()
	send := func(b *bench, text string) {
		b.Helper()
		_, err := core.Stmt{Name: "own", Text: text, Prepared: true}.Exec(t.Context(), ownQuerier{b.keeping})
		b.ok(err)
	}
	b := newBench(t)
	for range often + 1 {
		send(b, "INSERT ?")
	}
	b.sends("INSERT ?", "INSERT ?", "prepare INSERT ?", "execute INSERT ?", "execute INSERT ?")
	b.s.rows = &rows{}
	if _, err := (core.Stmt{Name: "own", Text: "INSERT ?", Prepared: true}).Query(t.Context(), ownQuerier{b.keeping}); err != nil { //nolint:gocritic // a server without rows
		t.Error(err)
	}
	b.sends("execute INSERT ?")
	b.ok(b.program("INSERT ?"))
	b.sends("INSERT ?")
	for range often {
		b.s.fails["prepare UPDATE ?"] = errStatement
		send(b, "UPDATE ?")
	}
	b.sends("UPDATE ?", "UPDATE ?", "prepare UPDATE ?", "UPDATE ?")
	b.s.old = true
	for range often {
		send(b, "DELETE ?")
	}
	b.sends("DELETE ?", "DELETE ?", "prepare DELETE ?", "close DELETE ?", "DELETE ?")
	b.Conn = plain{b.s}
	for range often + 1 {
		_, err := core.Stmt{Name: "own", Text: "SELECT ?", Prepared: true}.Exec(t.Context(), ownQuerier{b.keeping})
		b.is(err, driver.ErrSkip)
	}
	b.is(b.query("SELECT 1"), driver.ErrSkip)
	b.sends()
}

// TestTextsAreBounded checks that texts which were sent once are forgotten, and prepared ones are not.
func TestTextsAreBounded(t *testing.T) {
	t.Parallel()
	all := texts[int]{}
	kept := all.of("kept")
	kept.prepared = true
	for i := range 3 * maxTexts {
		all.of(strings.Repeat("x", i+1))
		if len(all) > maxTexts {
			t.Fatalf("%d texts", len(all))
		}
	}
	if all.of("kept") != kept || kept.sent != 2 {
		t.Error("a prepared text was forgotten")
	}
	all.of("a")
	all.of("b")
	if all.of("a").sent != 2 {
		t.Error("a text is not counted after many others")
	}
	few := texts[int]{}
	few.of("a")
	few.of("b")
	if few.of("a").sent != 2 {
		t.Error("a text is not counted beside another")
	}
	for i := range maxTexts + 1 {
		if few.of(strings.Repeat("z", i+1)); i == maxTexts-3 && few["a"] == nil {
			t.Error("a text is forgotten while there is room")
		}
	}
	for _, x := range all {
		x.prepared = true
	}
	for i := 0; len(all) < maxTexts; i++ {
		all.of(strings.Repeat("y", i+1)).prepared = true
	}
	if first, again := all.of("z").sent, all.of("z").sent; first+again != 2 || len(all) != maxTexts {
		t.Error("one more is counted")
	}
}

// TestLate checks what database/sql gets of a transaction whose BEGIN travels with its first statement.
func TestLate(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	l := &late{}
	b.late = l
	if tx := b.begin(); tx != driver.Tx(l) {
		t.Errorf("%v", tx)
	}
	b.sends()
	if tx := b.begin(); tx == driver.Tx(l) {
		t.Error("it begins twice")
	}
	b.sends("BEGIN")
	b.ok(l.Commit()) // nothing has begun
	b.ok(l.Rollback())
	b.sends()
	l.Tx = tx{b.s}
	b.ok(l.Rollback())
	b.ok(l.Commit())
	b.sends("driver's ROLLBACK", "driver's COMMIT")
	b.s.fails = map[string]error{"driver's COMMIT": errLost, "driver's ROLLBACK": errLocks}
	b.is(l.Commit(), errLost)
	b.is(l.Rollback(), errLocks)
	b.s.sent = nil
	l.committed, l.err = true, errStatement
	b.is(l.Commit(), errStatement)
	b.is(l.Rollback(), errStatement)
	b.sends()
	b.ok(b.ResetSession(t.Context()))
	if b.late != nil {
		t.Error("the next one gets its transaction")
	}
}

// TestDriversOwn checks that the connection has what the driver's has.
func TestDriversOwn(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	if !b.IsValid() {
		t.Error("not valid")
	}
	b.s.invalid = true
	if b.IsValid() {
		t.Error("valid")
	}
	b.s.fails = map[string]error{"ping": errStatement, "check a": errRefused, "prepare x": errLocks}
	b.is(b.Ping(t.Context()), errStatement)
	b.is(b.CheckNamedValue(&driver.NamedValue{Name: "a"}), errRefused)
	_, err := b.PrepareContext(t.Context(), "x")
	b.is(err, errLocks)
	if b.raw {
		t.Error("nothing was prepared")
	}
	b.is(b.prepared("y").(driver.NamedValueChecker).CheckNamedValue(&driver.NamedValue{Name: "a"}), errRefused)
	if b.Unwrap() != driver.Conn(b.s) {
		t.Error("another connection")
	}
	if !b.raw {
		t.Error("what is sent there is not seen")
	}
	b.raw = false

	b.Conn = plain{b.s}
	if !b.IsValid() {
		t.Error("a driver that does not say is not valid")
	}
	b.ok(b.Ping(t.Context()))
	b.is(b.CheckNamedValue(&driver.NamedValue{Name: "a"}), driver.ErrSkip)
	b.s.sent = nil
	if _, err := b.PrepareContext(t.Context(), "z"); err != nil {
		t.Error(err)
	}
	b.sends("prepare z")
}

type checking struct{ stmt }

func (s checking) CheckNamedValue(*driver.NamedValue) error { return errRefused }

type converting struct{ stmt }

func (converting) ColumnConverter(int) driver.ValueConverter { return nil }

// TestStatementsOfTheProgram checks whose rules hold for the arguments of a prepared statement.
func TestStatementsOfTheProgram(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		stmt driver.Stmt
		want bool
	}{
		"modern": {stmt{}, true}, "checks": {checking{}, true}, "converts": {converting{}, false}, "old": {oldStmt{}, false},
		"checks and converts": {struct {
			contextStmt
			driver.NamedValueChecker
			driver.ColumnConverter
		}{stmt{}, checking{}, converting{}}, true},
	} {
		if _, ok := takesContext(c.stmt); ok != c.want {
			t.Errorf("%s: %v", name, ok)
		}
	}
	b := newBench(t)
	p := &program{contextStmt: checking{}, k: b.keeping}
	b.is(p.CheckNamedValue(&driver.NamedValue{}), errRefused)
	b.sends()
}

type opener struct {
	*server

	err error
}

func (o opener) Connect(ctx context.Context) (driver.Conn, error) {
	if core.Keeps(ctx) {
		return nil, errors.New("the driver gets the mark")
	}
	return o.server, o.err
}

func (o opener) Driver() driver.Driver { return nil }

// TestConnector checks that a connector opens and closes what the driver's does.
func TestConnector(t *testing.T) {
	t.Parallel()
	s := &server{}
	c, err := Connector(opener{s, nil}).Connect(core.Keeping(t.Context()))
	if err != nil {
		t.Fatal(err)
	}
	if own, k := unwrap(c); own != driver.Conn(s) || k == nil {
		t.Errorf("%v, %v", own, k)
	}
	if own, k := unwrap(s); own != any(s) || k != nil {
		t.Errorf("%v, %v", own, k)
	}
	if c, err := Connector(opener{s, errLost}).Connect(t.Context()); c != nil || !errors.Is(err, errLost) {
		t.Errorf("%v, %v", c, err)
	}
	s.fails = map[string]error{"close": errLocks}
	if err := Connector(opener{s, nil}).(io.Closer).Close(); !errors.Is(err, errLocks) {
		t.Error(err)
	}
	if err := Connector(struct{ driver.Connector }{opener{s, nil}}).(io.Closer).Close(); err != nil {
		t.Error(err)
	}
}
