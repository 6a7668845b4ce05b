package rowlocks

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/access"
	"github.com/holdfast-go/holdfast/internal/test/dbtest"
	"github.com/holdfast-go/holdfast/sqllock/rowlock"
)

// Line is a row of a settlement file. A row in the state "new" is work.
type Line struct {
	File  string `db:"file"`
	No    int64  `db:"line"`
	State string `db:"state"`
	Cents int64  `db:"cents"`
}

// lines creates the table settlement, with an index for the remaining work. It holds n rows of
// file f, some rows that are done and some rows of other files.
func (e *env[Tx]) lines(n int) *rowlock.Table[Line, Tx] {
	e.Helper()
	e.Must(`CREATE TABLE settlement (file VARCHAR(20) NOT NULL, line BIGINT NOT NULL, state VARCHAR(10) NOT NULL, cents BIGINT NOT NULL, PRIMARY KEY (file, line))`)
	e.Must(`CREATE INDEX settlement_work ON settlement (file, state, line)`)
	var rows []string
	for i := 1; i <= n; i++ {
		rows = append(rows, fmt.Sprintf("('f', %d, 'new', %d), ('g', %d, 'new', 0), ('f', %d, 'done', 0)", 2*i, i, i, 2*i+1))
	}
	e.Must(`INSERT INTO settlement VALUES ` + strings.Join(rows, ", "))
	t, err := rowlock.NewTable[Line](e.Ctx, e.DB, holdfast.TableSpec{Table: "settlement", Key: []string{"file", "line"}})
	e.Check(err)
	return t
}

// work returns the condition for the lines of the file that are not done.
func work(more ...holdfast.Cond) []holdfast.Cond {
	return append([]holdfast.Cond{holdfast.Where("file", "=", "f"), holdfast.Where("state", "=", "new")}, more...)
}

// finish handles a line as a worker does: it writes the effect and marks the line as done.
func (e *env[Tx]) finish(ctx context.Context, tx Tx, lines ...Line) error {
	for _, r := range lines {
		if err := e.Effect(ctx, tx, strconv.FormatInt(r.No, 10)); err != nil {
			return err
		}
		if _, err := e.Exec(ctx, tx, `UPDATE settlement SET state = 'done' WHERE file = $1 AND line = $2`, r.File, r.No); err != nil {
			return err
		}
	}
	return nil
}

func numbers(lines []Line) (out []int64) {
	for _, r := range lines {
		out = append(out, r.No)
	}
	return out
}

// nextLevels returns the levels at which workers share work without having to run again.
func (e *env[Tx]) nextLevels() []sql.IsolationLevel {
	if e.Engine == dbtest.Postgres {
		return []sql.IsolationLevel{sql.LevelReadCommitted}
	}
	return e.Levels()
}

// nextOrder checks which rows come, and in which order.
func nextOrder[Tx any](e *env[Tx]) {
	lines := e.lines(40)
	for _, level := range e.Levels() {
		tx := e.BeginTx(level)
		want := func(n int, want []int64, conds ...holdfast.Cond) {
			e.Helper()
			got, err := lines.NextTx(e.Ctx, tx, n, conds...)
			if err != nil || !slices.Equal(numbers(got), want) {
				e.Errorf("%v: got %v, %v, want %v", level, numbers(got), err, want)
			}
			for _, r := range got {
				if r.File == "f" && r.State == "new" && r.Cents != r.No/2 {
					e.Errorf("the row is %+v", r)
				}
			}
		}
		want(3, []int64{2, 4, 6}, work()...)
		want(3, []int64{2, 4, 6}, work()...) // the transaction's own locks do not conflict
		want(2, []int64{10, 12}, work(holdfast.Where("line", ">", 8))...)
		want(5, []int64{76, 78, 80}, work(holdfast.Where("line", ">=", int64(76)))...)
		want(9, []int64{2, 4}, work(holdfast.Where("line", "<=", 4), holdfast.Where("cents", "<", 20))...)
		want(9, nil, work(holdfast.Where("line", "=", 3))...)
		want(9, nil, holdfast.Where("file", "=", "' OR ''='"))
		want(4, []int64{2, 3, 4, 5})
		want(5, []int64{2, 3, 1, 2, 3}, holdfast.Where("line", "<", 4), holdfast.Where("file", ">", "e"), holdfast.Where("line", ">=", 1))
		e.EndTx(tx, true)
	}
}

// nextLeavesOut checks that rows locked by others are skipped, however many there are, and that
// only the returned rows are locked. The next worker gets the rows after them, and new work can
// be inserted before, between and after them.
func nextLeavesOut[Tx any](e *env[Tx]) {
	if !e.DB.Capabilities().RowLocks {
		return // the one writer locks all rows: nextWaitsForTheWriter
	}
	first := e.lines(40)
	second, err := rowlock.NewTable[Line](e.Ctx, e.DB, holdfast.TableSpec{Table: "settlement", Key: []string{"file", "line"}})
	e.Check(err)
	for i, level := range e.Levels() {
		if level == sql.LevelSerializable && e.InnoDB() {
			continue // its reads lock, which blocks if a connection for them arrives late
		}
		one, two := e.BeginTx(level), e.BeginTx(level)
		got, err := first.NextTx(e.Ctx, one, 30, work()...)
		if err != nil || len(got) != 30 {
			e.Fatalf("%v: %d rows, %v", level, len(got), err)
		}
		got, err = second.NextTx(e.Ctx, two, 4, work()...)
		if want := []int64{62, 64, 66, 68}; err != nil || !slices.Equal(numbers(got), want) {
			e.Errorf("%v: got %v, %v, want %v", level, numbers(got), err, want)
		}
		// All other rows are free, and so are the gaps.
		third := e.BeginTx(sql.LevelReadCommitted)
		var rest []Line
		for n := int64(70); n <= 80; n += 2 {
			rest = append(rest, Line{File: "f", No: n})
		}
		for n := int64(1); n <= 40; n++ {
			rest = append(rest, Line{File: "f", No: 2*n + 1}, Line{File: "g", No: n})
		}
		if free, err := first.LockFreeTx(e.Ctx, third, rest...); err != nil || len(free) != len(rest) {
			e.Errorf("%v: %d of %d other rows are free, %v", level, len(free), len(rest), err)
		}
		short, cancel := context.WithTimeout(e.Ctx, dbtest.Hang)
		for _, no := range []int{-i, 1000 + i} {
			if _, err := e.Exec(short, third, `INSERT INTO settlement VALUES ('f', $1, 'new', 0)`, no); err != nil {
				e.Errorf("%v: adding work: %v", level, err)
			}
		}
		cancel()
		e.EndTx(third, false)
		e.EndTx(one, false)
		e.EndTx(two, false)
	}
}

// nextIsTheLast checks that a row which another worker has finished is not handled again, even
// if the transaction's snapshot shows it as new, or if it was locked when the search passed it.
func nextIsTheLast[Tx any](e *env[Tx]) {
	lines := e.lines(6)
	for i, level := range e.Levels() {
		if e.Engine == dbtest.SQLite {
			level = sql.LevelDefault
		}
		tx := e.BeginTx(level)
		if level == sql.LevelSerializable && e.InnoDB() {
			// Its reads lock, so it takes no snapshot before.
		} else if _, _, err := e.ReadInt(tx, `SELECT COUNT(*) FROM settlement`); err != nil {
			e.Error(err)
		}
		e.Must(`UPDATE settlement SET state = 'done' WHERE file = 'f' AND line = $1`, 2*i+2)
		got, err := lines.NextTx(e.Ctx, tx, 2, work()...)
		if refused := !e.InnoDB() && level != sql.LevelReadCommitted; refused {
			if !errors.Is(err, holdfast.ErrRetry) {
				e.Errorf("%v: got %v, %v, want a retry", level, numbers(got), err)
			}
			e.WantRolledBack(tx)
			continue
		}
		if want := []int64{int64(2*i + 4), int64(2*i + 6)}; err != nil || !slices.Equal(numbers(got), want) {
			e.Errorf("%v: got %v, %v, want %v", level, numbers(got), err, want)
		}
		e.EndTx(tx, true)
	}
}

// nextDrain lets workers of two processes drain a table while new work is added, some workers
// fail and sessions are killed. Every line is handled once.
func nextDrain[Tx any](e *env[Tx]) {
	const rows, added = 120, 30
	for _, level := range e.nextLevels() {
		e.drain(level, rows, added)
		e.Must(`DROP TABLE settlement`)
		e.Must(`DELETE FROM effects`)
	}
}

func (e *env[Tx]) drain(level sql.IsolationLevel, rows, added int) {
	e.Helper()
	a := e.lines(rows)
	b, err := rowlock.NewTable[Line](e.Ctx, e.DB, holdfast.TableSpec{Table: "settlement", Key: []string{"file", "line"}})
	e.Check(err)
	failed := errors.New("this worker fails")
	var workers, producer sync.WaitGroup
	var runs, batches, failures, done atomic.Int64
	all := int64(rows + added)
	producer.Go(func() {
		for i := range added {
			e.Must(`INSERT INTO settlement VALUES ('f', $1, 'new', $2)`, 2*(rows+1+i), rows+1+i)
		}
	})
	for i, t := range []*rowlock.Table[Line, Tx]{a, b, a, b, a, b} {
		workers.Go(func() {
			for done.Load() < all && e.Ctx.Err() == nil {
				var took int
				err := e.DB.InTx(e.Ctx, func(ctx context.Context, tx Tx) error {
					took = 0
					runs.Add(1)
					got, err := t.NextTx(ctx, tx, 1+i, work()...)
					if err != nil || len(got) == 0 {
						return err
					}
					if err := e.finish(ctx, tx, got...); err != nil {
						return err
					}
					if batches.Add(1)%5 == 0 {
						return failed
					}
					took = len(got)
					return nil
				}, holdfast.TxOptions{Isolation: level, Attempts: 1000})
				switch {
				case errors.Is(err, failed):
					failures.Add(1)
				case err != nil:
					e.Error(err)
					return
				}
				done.Add(int64(took))
			}
		})
	}
	producer.Wait()
	workers.Wait()
	if n := e.Int(`SELECT COUNT(*) FROM settlement WHERE file = 'f' AND state = 'new'`); n != 0 {
		e.Errorf("%v: %d lines are left", level, n)
	}
	if n, once := e.Int(`SELECT COUNT(*) FROM effects`), e.Int(`SELECT COUNT(DISTINCT k) FROM effects`); n != rows+added || once != n {
		e.Errorf("%v: %d effects of %d lines, of %d different ones", level, n, rows+added, once)
	}
	if failures.Load() == 0 {
		e.Errorf("%v: no worker failed: nothing was tried", level)
	}
	again := runs.Load() - batches.Load()
	e.Logf("%v: %d transactions, %d batches, %d failed on purpose; %d found nothing or ran again", level, runs.Load(), batches.Load(), failures.Load(), again)
}

// nextCrash checks that the rows of a killed worker become available again.
func nextCrash[Tx any](e *env[Tx]) {
	lines := e.lines(4)
	if e.Engine == dbtest.SQLite {
		tx := e.BeginTx(sql.LevelDefault)
		got, err := lines.NextTx(e.Ctx, tx, 2, work()...)
		if err != nil || len(got) != 2 {
			e.Errorf("%v, %v", got, err)
		}
		e.Check(e.finish(e.Ctx, tx, got...))
		e.EndTx(tx, false)
	} else {
		worker := e.Handle.Open(e.T, e.DSN)
		tx, err := worker.Begin(e.Ctx, sql.LevelDefault)
		e.Check(err)
		theirs, err := rowlock.NewTable[Line](e.Ctx, worker.DB, holdfast.TableSpec{Table: "settlement", Key: []string{"file", "line"}})
		e.Check(err)
		got, err := theirs.NextTx(e.Ctx, tx, 3, work()...)
		if err != nil || len(got) != 3 {
			e.Fatalf("%v, %v", got, err)
		}
		var session int64
		q, err := access.Of(worker.DB).Join(tx)
		e.Check(err)
		id := `SELECT CONNECTION_ID()`
		if e.Engine == dbtest.Postgres {
			id = `SELECT pg_backend_pid()`
		}
		_, err = e.one(q, id, &session)
		e.Check(err)
		e.EndSession(session)
		_ = worker.End(e.Ctx, tx, false)
	}
	var got []Line
	e.Eventually("the rows of a dead worker come back", func() bool {
		tx := e.BeginTx(sql.LevelReadCommitted)
		defer e.EndTx(tx, false)
		var err error
		got, err = lines.NextTx(e.Ctx, tx, 9, work()...)
		e.Check(err)
		return len(got) == 4
	})
	if want := []int64{2, 4, 6, 8}; !slices.Equal(numbers(got), want) {
		e.Errorf("got %v, want %v", numbers(got), want)
	}
}

func nextInput[Tx any](e *env[Tx]) {
	lines := e.lines(2)
	tx := e.BeginTx(sql.LevelDefault)
	for _, c := range []struct {
		n    int
		cond holdfast.Cond
	}{
		{0, holdfast.Where("line", "=", 1)},
		{1000 + 1, holdfast.Where("line", "=", 1)},
		{1, holdfast.Where("line", "", 1)},
		{1, holdfast.Where("line", "<>", 1)},
		{1, holdfast.Where("line", "= 1 OR line =", 1)},
		{1, holdfast.Where("none", "=", 1)},
		{1, holdfast.Where("", "=", 1)},
		{1, holdfast.Where("line = line OR line", "=", 1)},
		{1, holdfast.Where("state", "=", nil)},
		{1, holdfast.Where("state", "=", (*string)(nil))},
		{1, holdfast.Where("state", "=", sql.NullString{})},
		{1, holdfast.Where("state", "=", 0)}, // equals every text on MySQL and MariaDB
		{1, holdfast.Where("line", "=", "x")},
		{1, holdfast.Cond{}},
	} {
		if got, err := lines.NextTx(e.Ctx, tx, c.n, c.cond); !errors.Is(err, holdfast.ErrInvalid) || got != nil {
			e.Errorf("%d, %+v: %v, %v", c.n, c.cond, got, err)
		}
	}
	var none Tx
	if _, err := lines.NextTx(e.Ctx, none, 1); !errors.Is(err, holdfast.ErrNoTx) {
		e.Errorf("no transaction: %v", err)
	}
	if got, err := lines.NextTx(e.Ctx, tx, 1, holdfast.Where("state", "=", []byte("new"))); err != nil || len(got) != 1 {
		e.Errorf("after what was refused, the transaction goes on: %v, %v", got, err)
	}
	e.EndTx(tx, true)
	if _, err := lines.NextTx(e.Ctx, tx, 1); !errors.Is(err, holdfast.ErrTxLost) {
		e.Errorf("a transaction that has ended: %v", err)
	}
}
