package rowlocks

import (
	"context"
	"database/sql"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/access"
	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/dialect"
	"github.com/holdfast-go/holdfast/internal/test/conformance"
	"github.com/holdfast-go/holdfast/internal/test/dbtest"
	"github.com/holdfast-go/holdfast/sqllock/rowlock"
)

// lockable creates the table accounts with rows of 100 cents.
// skip in place of a wait calls LockFreeTx.
const skip time.Duration = -100

func lockRows[R, Tx any](e *env[Tx], t *rowlock.Table[R, Tx], tx Tx, wait time.Duration, rows ...R) ([]R, error) {
	if wait == skip {
		return t.LockFreeTx(e.Ctx, tx, rows...)
	}
	return t.LockTx(e.Ctx, tx, wait, rows...)
}

func (e *env[Tx]) lockable(rows ...string) *rowlock.Table[conformance.Account, Tx] {
	e.Helper()
	e.Accounts(rows...)
	e.Must(`UPDATE accounts SET cents = 100`)
	t, err := rowlock.NewTable[conformance.Account](e.Ctx, e.DB, holdfast.TableSpec{Table: "accounts", Key: []string{"account_no"}})
	if err != nil {
		e.Fatal(err)
	}
	return t
}

// one reads one row.
func (e *env[Tx]) one(q core.Querier, query string, dest ...any) (bool, error) {
	return core.QueryRow(e.Ctx, q, dest, query)
}

func named(names ...string) (out []conformance.Account) {
	for _, n := range names {
		out = append(out, conformance.Account{No: n})
	}
	return out
}

func names(rows []conformance.Account) (out []string) {
	for _, r := range rows {
		out = append(out, r.No)
	}
	return out
}

// rowForeignKeys adds rows that refer to a locked one. FOR UPDATE would stop them on PostgreSQL; InnoDB
// has no weaker lock.
func rowForeignKeys[Tx any](e *env[Tx]) {
	if e.Engine != dbtest.Postgres {
		return
	}
	rows := e.lockable("a")
	e.Must(`CREATE TABLE bookings (no TEXT PRIMARY KEY, account_no TEXT NOT NULL REFERENCES accounts (account_no))`)
	for _, wait := range []time.Duration{holdfast.Forever, time.Second, holdfast.NoWait, skip} {
		tx := e.BeginTx(sql.LevelDefault)
		if got, err := lockRows(e, rows, tx, wait, named("a")...); err != nil || len(got) != 1 {
			e.Fatalf("%+v: %v, %v", wait, got, err)
		}
		other := e.BeginTx(sql.LevelDefault)
		for _, q := range []string{`SET LOCAL lock_timeout = 1`, `INSERT INTO bookings (no, account_no) VALUES (gen_random_uuid(), 'a')`} {
			if _, err := e.Exec(e.Ctx, other, q); err != nil {
				e.Errorf("%+v: %s: %v", wait, q, err)
			}
		}
		e.EndTx(other, true)
		for _, exclusive := range []string{`UPDATE accounts SET cents = 0`, `SELECT FROM accounts FOR UPDATE`, `SELECT FROM accounts FOR SHARE`, `DELETE FROM accounts`} {
			other := e.BeginTx(sql.LevelDefault)
			_, err := e.Exec(e.Ctx, other, `SET LOCAL lock_timeout = 1`)
			if err == nil {
				_, err = e.Exec(e.Ctx, other, exclusive)
			}
			if err == nil || access.Of(e.DB).Dialect.Classify(err) != dialect.Busy {
				e.Errorf("%+v: %s beside the lock: %v", wait, exclusive, err)
			}
			_ = e.End(e.Ctx, other, false)
		}
		e.EndTx(tx, true)
	}
}

func rowModes[Tx any](e *env[Tx]) {
	rows := e.lockable("a", "b", "c")
	lock := func(tx Tx, wait time.Duration, want []string, keys ...string) {
		e.Helper()
		got, err := lockRows(e, rows, tx, wait, named(keys...)...)
		if err != nil || !slices.Equal(names(got), want) {
			e.Errorf("%v with %+v: got %v, %v, want %v", keys, wait, names(got), err, want)
		}
		for _, r := range got {
			if r.Cents != 100 || r.Version != 1 {
				e.Errorf("the row is %+v", r)
			}
		}
	}
	holder := e.BeginTx(sql.LevelDefault)
	lock(holder, holdfast.Forever, []string{"b"}, "b")

	tx := e.BeginTx(sql.LevelDefault)
	rest := []string{"c", "a"}
	if !e.DB.Capabilities().RowLocks {
		rest = nil // the only writer locks all rows
	}
	lock(tx, skip, rest, "c", "b", "a")
	lock(tx, skip, nil, "b")
	lock(tx, skip, nil)
	for _, c := range []struct {
		wait time.Duration
		want error
	}{{holdfast.NoWait, rowlock.ErrLockNotAvailable}, {time.Millisecond, rowlock.ErrTimeout}, {700 * time.Millisecond, rowlock.ErrTimeout}} {
		start := time.Now()
		got, err := rows.LockTx(e.Ctx, tx, c.wait, named("b", "a")...)
		if !errors.Is(err, c.want) || got != nil {
			e.Errorf("%+v: got %v, %v", c.wait, got, err)
		}
		var now *rowlock.LockNotAvailableError
		var late *rowlock.TimeoutError
		row := 1
		if !e.DB.Capabilities().RowLocks {
			row = 0
		}
		if errors.As(err, &now) && (now.Table != "accounts" || len(now.Row) != row) ||
			errors.As(err, &late) && (late.Table != "accounts" || len(late.Row) != row) {
			e.Errorf("%+v, %+v", now, late)
		}
		e.Logf("%v after %v", err, time.Since(start).Round(time.Millisecond))
	}
	// The error distinguishes a missing row from a locked one.
	missing := []time.Duration{skip, holdfast.NoWait, time.Second, holdfast.Forever}
	if !e.DB.Capabilities().RowLocks {
		missing = nil // no session can read while another one writes
	}
	for _, wait := range missing {
		_, err := lockRows(e, rows, tx, wait, named("a", "personal")...)
		var n *rowlock.NotFoundError
		if !errors.Is(err, rowlock.ErrNotFound) || !errors.As(err, &n) || n.Table != "accounts" || len(n.Row) != 1 || strings.Contains(err.Error(), "personal") {
			e.Errorf("%+v: got %v, want not found", wait, err)
		}
	}
	var later sync.WaitGroup
	later.Go(func() {
		time.Sleep(1200 * time.Millisecond)
		e.EndTx(holder, true)
	})
	lock(tx, holdfast.Forever, []string{"c", "b", "a"}, "c", "b", "a")
	later.Wait()
	if err := e.Effect(e.Ctx, tx, "k"); err != nil {
		e.Error(err)
	}
	e.EndTx(tx, true)
	e.WantOnce("k")

	tx = e.BeginTx(sql.LevelDefault)
	if _, err := rows.LockTx(e.Ctx, tx, holdfast.Forever, named("a", "b", "a")...); !errors.Is(err, holdfast.ErrInvalid) {
		e.Errorf("a key twice: %v", err)
	}
	if _, err := rows.LockTx(e.Ctx, tx, -3, named("a")...); !errors.Is(err, holdfast.ErrInvalid) {
		e.Errorf("a negative wait: %v", err)
	}
	lock(tx, holdfast.NoWait, []string{"a"}, "a")
	for _, wait := range []time.Duration{skip, holdfast.NoWait, time.Second, holdfast.Forever} {
		if _, err := lockRows(e, rows, tx, wait, named("a", "none")...); !errors.Is(err, rowlock.ErrNotFound) {
			e.Errorf("%+v: %v", wait, err)
		}
	}
	e.EndTx(tx, true)
	if _, err := rows.LockTx(e.Ctx, tx, holdfast.Forever, named("a")...); !errors.Is(err, holdfast.ErrTxLost) {
		e.Errorf("a transaction that has ended: %v", err)
	}
	var none Tx
	if _, err := rows.LockTx(e.Ctx, none, holdfast.Forever, named("a")...); !errors.Is(err, holdfast.ErrNoTx) {
		e.Errorf("no transaction: %v", err)
	}
}

// rowTransfers moves money between rows named in any order: no two transactions deadlock, and
// none runs twice.
func rowTransfers[Tx any](e *env[Tx]) {
	nos := []string{"a", "b", "c", "d"}
	rows := e.lockable(nos...)
	const workers, times = 8, 20
	level := e.Levels()[0]
	var runs atomic.Int64
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			for range times {
				pick := rand.Perm(len(nos))
				err := e.DB.InTx(e.Ctx, func(ctx context.Context, tx Tx) error {
					runs.Add(1)
					r, err := rows.LockTx(ctx, tx, holdfast.Forever, named(nos[pick[0]], nos[pick[1]], nos[pick[2]])...)
					if err != nil {
						return err
					}
					for i, change := range []int64{2, -1, -1} {
						if _, err := e.Exec(ctx, tx, `UPDATE accounts SET cents = $1, version = $2 WHERE account_no = $3`, r[i].Cents+change, r[i].Version+1, e.TextKey(r[i].No)); err != nil {
							return err
						}
					}
					return nil
				}, holdfast.TxOptions{Isolation: level, Attempts: 1000})
				if err != nil {
					e.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if n := e.Int(`SELECT SUM(cents) FROM accounts`); n != 400 {
		e.Errorf("%d cents, want 400", n)
	}
	if n := e.Int(`SELECT SUM(version) FROM accounts`); n != 4+3*workers*times {
		e.Errorf("the versions sum to %d, want %d: updates were lost", n, 4+3*workers*times)
	}
	if n := runs.Load(); e.DB.Capabilities().RowLocks && n != workers*times {
		e.Errorf("%d runs of %d transactions: some deadlocked", n, workers*times)
	}
}

// rowIsTheLast uses a transaction whose snapshot is older than the row.
func rowIsTheLast[Tx any](e *env[Tx]) {
	rows := e.lockable("a")
	for i, level := range e.Levels() {
		if level == sql.LevelSerializable && e.InnoDB() {
			continue // its reads lock, so no session can commit in between
		}
		tx := e.BeginTx(level)
		q, _ := access.Of(e.DB).Join(tx)
		plain := func() (cents int) {
			if _, err := e.one(q, `SELECT cents FROM accounts`, &cents); err != nil {
				e.Error(err)
			}
			return cents
		}
		before := plain()
		e.Must(`UPDATE accounts SET cents = $1`, before+1+i)
		got, err := rows.LockTx(e.Ctx, tx, holdfast.Forever, named("a")...)
		if refused := !e.StaleWrites() && level != sql.LevelReadCommitted; refused {
			if !errors.Is(err, holdfast.ErrRetry) {
				e.Errorf("%v: got %v, want a retry", level, err)
			}
			e.WantRolledBack(tx)
			continue
		}
		if err != nil || len(got) != 1 || got[0].Cents != int64(before+1+i) {
			e.Errorf("%v: %+v, %v", level, got, err)
		}
		if now, old := plain(), level == sql.LevelRepeatableRead; old != (now == before) {
			e.Errorf("%v: a plain read shows %d", level, now)
		}
		e.EndTx(tx, true)
	}
}

// rowKeys uses keys of several columns and types.
func rowKeys[Tx any](e *env[Tx]) {
	e.Must(`CREATE TABLE days (merchant ` + e.Text() + ` NOT NULL, day INT NOT NULL, paid BOOLEAN, UNIQUE (day, merchant))`)
	type day struct {
		Merchant string `db:"merchant"`
		Day      int    `db:"day"`
		Paid     *bool  `db:"paid"`
	}
	days, err := rowlock.NewTable[day](e.Ctx, e.DB, holdfast.TableSpec{Table: "days", Key: []string{"merchant", "day"}})
	if err != nil {
		e.Fatal(err)
	}
	e.Must(`INSERT INTO days VALUES ($1, 1, NULL), ($2, 2, NULL), ($3, 1, NULL), ($4, 10, NULL)`, e.TextKey("a"), e.TextKey("a"), e.TextKey("b"), e.TextKey("b"))
	tx := e.BeginTx(sql.LevelDefault)
	got, err := days.LockTx(e.Ctx, tx, holdfast.Forever, day{"b", 10, nil}, day{"a", 2, nil}, day{"b", 1, nil})
	if err != nil || len(got) != 3 || got[0] != (day{"b", 10, nil}) || got[1] != (day{"a", 2, nil}) || got[2] != (day{"b", 1, nil}) {
		e.Errorf("%+v, %v", got, err)
	}
	if _, err := days.LockTx(e.Ctx, tx, holdfast.Forever, day{"a", 10, nil}); !errors.Is(err, rowlock.ErrNotFound) {
		e.Error(err)
	}
	// Only the named rows are locked.
	if e.DB.Capabilities().RowLocks {
		other := e.BeginTx(sql.LevelReadCommitted)
		if got, err := days.LockFreeTx(e.Ctx, other, day{"a", 1, nil}, day{"a", 2, nil}, day{"b", 1, nil}, day{"b", 10, nil}); err != nil || len(got) != 1 || got[0].Merchant != "a" || got[0].Day != 1 {
			e.Errorf("%+v, %v", got, err)
		}
		e.EndTx(other, true)
	}
	e.EndTx(tx, true)
}

// rowTablesAreChecked checks that tables without row locks are refused, and that names are only
// ever used as names.
func rowTablesAreChecked[Tx any](e *env[Tx]) {
	rows := e.lockable("a")
	e.Must(`CREATE TABLE loose (id INT, no ` + e.Text() + ` NOT NULL UNIQUE, n INT NOT NULL)`)
	type loose struct {
		ID sql.NullInt64 `db:"id"`
		No string        `db:"no"`
		N  int           `db:"n"`
	}
	type number struct {
		No int `db:"no"`
	}
	type unknown struct {
		No   string `db:"no"`
		None string `db:"none"`
	}
	spec := func(table string, key ...string) holdfast.TableSpec {
		return holdfast.TableSpec{Table: table, Key: key}
	}
	open := map[string]func() error{
		"no table":      func() error { _, err := rowlock.NewTable[loose](e.Ctx, e.DB, spec("", "no")); return err },
		"unknown table": func() error { _, err := rowlock.NewTable[loose](e.Ctx, e.DB, spec("none", "no")); return err },
		"injected table": func() error {
			_, err := rowlock.NewTable[loose](e.Ctx, e.DB, spec("loose; DROP TABLE effects", "no"))
			return err
		},
		"quoted table": func() error { _, err := rowlock.NewTable[loose](e.Ctx, e.DB, spec("loose\" --`", "no")); return err },
		"NUL in table": func() error { _, err := rowlock.NewTable[loose](e.Ctx, e.DB, spec("loose\x00", "no")); return err },
		"no key":       func() error { _, err := rowlock.NewTable[loose](e.Ctx, e.DB, spec("loose")); return err },
		"key not in struct": func() error {
			_, err := rowlock.NewTable[loose](e.Ctx, e.DB, spec("loose", "no = no OR no"))
			return err
		},
		"key that allows NULL": func() error { _, err := rowlock.NewTable[loose](e.Ctx, e.DB, spec("loose", "id")); return err },
		"key without an index": func() error { _, err := rowlock.NewTable[loose](e.Ctx, e.DB, spec("loose", "n")); return err },
		"number for a text":    func() error { _, err := rowlock.NewTable[number](e.Ctx, e.DB, spec("loose", "no")); return err },
		"unknown column":       func() error { _, err := rowlock.NewTable[unknown](e.Ctx, e.DB, spec("loose", "no")); return err },
		"no struct":            func() error { _, err := rowlock.NewTable[int](e.Ctx, e.DB, spec("loose", "no")); return err },
		"no database":          func() error { _, err := rowlock.NewTable[loose, Tx](e.Ctx, nil, spec("loose", "no")); return err },
	}
	for what, f := range open {
		if err := f(); !errors.Is(err, holdfast.ErrInvalid) {
			e.Errorf("%s: %v", what, err)
		}
	}
	if _, err := rowlock.NewTable[loose](e.Ctx, e.DB, spec("loose", "no")); err != nil {
		e.Error(err)
	}
	// Values that contain SQL are only values.
	tx := e.BeginTx(sql.LevelDefault)
	for _, no := range []string{"' OR ''='", "a'; DROP TABLE effects; --", "a\x00"} {
		if strings.Contains(no, "\x00") && e.Engine == dbtest.Postgres {
			continue // it has no such text
		}
		if _, err := rows.LockTx(e.Ctx, tx, holdfast.Forever, conformance.Account{No: no}); !errors.Is(err, rowlock.ErrNotFound) {
			e.Errorf("%q: %v", no, err)
		}
	}
	e.EndTx(tx, true)
	// A table and columns whose names need quoting.
	odd := access.Of(e.DB).Dialect.Ident("odd`\"; --")
	column := access.Of(e.DB).Dialect.Ident("a b`\"")
	e.Must(`CREATE TABLE ` + odd + ` (` + column + ` INT NOT NULL PRIMARY KEY)`)
	type strange struct {
		N int `db:"a b\x60\""`
	}
	oddly, err := rowlock.NewTable[strange](e.Ctx, e.DB, spec("odd`\"; --", "a b`\""))
	if err != nil {
		e.Fatal(err)
	}
	e.Must(`INSERT INTO ` + odd + ` VALUES (7)`)
	tx = e.BeginTx(sql.LevelDefault)
	if got, err := oddly.LockTx(e.Ctx, tx, holdfast.NoWait, strange{7}); err != nil || len(got) != 1 {
		e.Errorf("%v, %v", got, err)
	}
	e.EndTx(tx, true)
	if e.InnoDB() && e.Engine != dbtest.TiDB { // which has one kind of table
		e.Must(`CREATE TABLE plain (no VARBINARY(99) NOT NULL PRIMARY KEY) ENGINE=MyISAM`)
		type row struct {
			No string `db:"no"`
		}
		if _, err := rowlock.NewTable[row](e.Ctx, e.DB, spec("plain", "no")); !errors.Is(err, holdfast.ErrUnsupported) {
			e.Errorf("a table without row locks: %v", err)
		}
	}
}
