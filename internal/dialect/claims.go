package dialect

import (
	"cmp"
	"context"
	"database/sql"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/internal/core"
)

// Lost is the insert id that a lost claim sets on MySQL and MariaDB, when the row already
// exists. The number of affected rows would be ambiguous with clientFoundRows.
const Lost = 1<<62 + 1

// Verdict says how the result of a claim statement shows whether it won.
type Verdict int

const (
	// ByAffected: the claim won if it affected one row.
	ByAffected Verdict = iota
	// ByInsertID: the statement sets LAST_INSERT_ID to Lost if the claim lost.
	ByInsertID
	// ByDuplicate: the claim lost if it failed with class Duplicate, and won if it succeeded.
	// The transaction continues in both cases.
	ByDuplicate
	// ByUnaffected: the claim won if it affected no row.
	ByUnaffected
)

// Won reports whether a claim won that returned r and no error.
func (v Verdict) Won(r core.Result) bool {
	switch v {
	case ByInsertID:
		return r.InsertID != Lost
	case ByDuplicate:
		return true
	case ByUnaffected:
		return r.Affected == 0
	default:
		return r.Affected == 1
	}
}

// noWait is how long a claim that does not wait may take on PostgreSQL and SQLite: long enough
// for the engine's own short locks, too short for a transaction.
const noWait = 20 * time.Millisecond

// Claim inserts the record of a key. Each wait is the bound of a wait for another session's
// claim; 0 means that the claim does not wait.
type Claim struct {
	dialect                  *Dialect
	insert, setting, reserve core.Stmt
	within                   func(wait time.Duration) core.Stmt // nil: see Records.ClaimWithin
	waitEnds                 core.Stmt
	whole                    *atomic.Bool // waitEnds has said so
}

// Claim compiles the claim. render puts the names of the tables into a text.
func (d *Dialect) Claim(name string, render func(text string) string) Claim {
	c := Claim{d, d.Compile(name, render(d.Records.Claim)), d.Compile(name, render(d.Records.ClaimSetting)), d.Compile(name, render(d.Records.Reserve)), nil, d.Compile(name+".wait", d.Records.WaitEnds), new(atomic.Bool)}
	if d.Records.ClaimWithin != nil {
		var compiled sync.Map // by the wait; a store has few
		c.within = func(wait time.Duration) core.Stmt {
			stmt, known := compiled.Load(wait)
			if !known {
				stmt, _ = compiled.LoadOrStore(wait, d.Compile(name, render(d.Records.ClaimWithin(d.Records.Claim, wait))))
			}
			return stmt.(core.Stmt) //nolint:forcetypeassert // it has nothing else
		}
	}
	return c
}

// LockTimeout returns the lock timeout with which the transaction of a claim begins; after is
// the one for its function. Where the claim is the only statement that can wait, its bound
// suffices for both. If the claim also renews a record, the renewal waits too.
func (c Claim) LockTimeout(wait, after time.Duration, renews bool) time.Duration {
	if renews || !c.dialect.Capabilities.DetectsInProgress {
		return least(wait)
	}
	return after
}

// Bind returns the claim to send. args are the parameters of Records.Claim, without those for
// lock timeouts. The statement bounds its own wait if it can, and then leaves after as the lock
// timeout of the transaction; 0 restores the previous one.
func (c Claim) Bind(args []any, wait, after time.Duration) core.Bound {
	if after == 0 && c.within != nil {
		return core.Bound{Stmt: c.within(least(wait)), Args: args}
	}
	bound := timeout(least(wait))
	switch {
	case !c.dialect.Records.ClaimBounds:
		return core.Bound{Stmt: c.insert, Args: args}
	case least(wait) == after:
		return core.Bound{Stmt: c.setting, Args: append(args, bound)}
	case after == 0:
		return core.Bound{Stmt: c.insert, Args: append(args, bound, ""), Counts: true}
	}
	return core.Bound{Stmt: c.insert, Args: append(args, bound, timeout(after)), Counts: true}
}

// Reserves reports whether a transaction of this level can reserve a key, instead of inserting its
// record before the function runs.
func (c Claim) Reserves(level sql.IsolationLevel) bool {
	return c.reserve.Text != "" && level <= c.dialect.Records.ReserveUpTo
}

// Reserve returns the statement that reserves a key. args are the parameters of Records.Reserve,
// without those for lock timeouts; after is not 0.
func (c Claim) Reserve(args []any, wait, after time.Duration) core.Bound {
	return core.Bound{Stmt: c.reserve, Args: append(args, timeout(least(wait)), timeout(after)), Counts: c.dialect.Records.Before != ""}
}

// Reserved reports whether the Reserve won that returned r and no error.
func (c Claim) Reserved(r core.Result) bool { return c.dialect.Records.Reserved.Won(r) }

// Won reports whether the claim won that returned r and no error.
func (c Claim) Won(r core.Result) bool { return c.dialect.Records.Verdict.Won(r) }

// InTx claims in a caller's transaction, and leaves its lock timeout as it was. claim sends the
// claim with a wait. InTx waits in slices, because the server goes on waiting for a client that is gone. Where the
// end of a wait ends the transaction too, it returns that error, and later waits in one slice.
func (c Claim) InTx(ctx context.Context, q core.Querier, wait, slice time.Duration, claim func(wait time.Duration) (won bool, err error)) (won bool, err error) {
	if c.dialect.Records.ClaimBounds {
		return claim(wait)
	}
	if slice = min(least(wait), slice); c.whole.Load() {
		slice = least(wait)
	}
	inSlices := func() (bool, error) {
		for deadline := time.Now().Add(wait); ; {
			won, err := claim(slice)
			if c.dialect.Classify(err) != Busy || wait == 0 || ctx.Err() != nil || time.Now().After(deadline) || c.ended(ctx, q) {
				return won, err
			}
		}
	}
	if c.within != nil {
		return inSlices()
	}
	return c.Bounded(ctx, q, slice, inSlices)
}

// ended reports whether a wait that has just ended has ended the transaction too.
func (c Claim) ended(ctx context.Context, q core.Querier) bool {
	if c.waitEnds.Text == "" {
		return false
	}
	var ends int
	_, err := c.waitEnds.QueryRow(ctx, q, []any{&ends})
	if ends == 1 {
		c.whole.Store(true)
	}
	return err != nil || ends == 1
}

// Bounded runs f in a caller's transaction. Each wait of f for a lock is bounded by wait. It
// restores the bound even if ctx has ended.
func (c Claim) Bounded(ctx context.Context, q core.Querier, wait time.Duration, f func() (won bool, err error)) (won bool, err error) {
	err = c.dialect.Records.Bound.During(ctx, q, wait, func() error {
		won, err = f()
		return err
	})
	return won, err
}

// timeout is a lock timeout in PostgreSQL's form.
func timeout(d time.Duration) string {
	return string(append(strconv.AppendInt(make([]byte, 0, 24), millis(d), 10), "ms"...))
}

func least(wait time.Duration) time.Duration {
	if wait == 0 {
		return noWait
	}
	return wait
}

// Peek reads a record without waiting for the session that claims it.
type Peek struct {
	before string
	stmt   core.Stmt
}

// Peek compiles the read.
func (d *Dialect) Peek(name string, render func(text string) string) Peek {
	return Peek{d.Records.PeekBefore, d.Compile(name, render(d.Records.Look))}
}

// Run reads the record of a key into dest, even if it is not committed. onConn is that of
// access.Handle. Run finds nothing on an engine that reads only committed rows.
func (p Peek) Run(ctx context.Context, onConn func(ctx context.Context, before string, f func(q core.Querier) error) error, dest []any, args ...any) (found bool, err error) {
	if p.before == "" {
		return false, nil
	}
	err = onConn(ctx, p.before, func(q core.Querier) (err error) {
		found, err = p.stmt.QueryRow(ctx, q, dest, args...)
		return err
	})
	return found, err
}

// Untouched reports whether err is that of a statement in the form of OrFail that affected no row.
func (d *Dialect) Untouched(err error) bool {
	return d.Fence.Untouched != "" && Code(err) == d.Fence.Untouched
}

// RowClaim inserts business rows. An error of class Duplicate means that a unique key other than
// the claimed one refused a row.
type RowClaim struct {
	dialect *Dialect
	columns int
	text    string
	one     core.Stmt
}

// RowClaim compiles the insert. The names are quoted already.
func (d *Dialect) RowClaim(table string, columns, key []string) RowClaim {
	text := d.Rows.Insert(table, columns, key)
	return RowClaim{d, len(columns), text, d.Compile("row.claim", text)}
}

// InsertClaim compiles an insert of one row, which Run sends. key are the columns of its key.
func (d *Dialect) InsertClaim(name, insert, key string) RowClaim {
	if d.Rows.Verdict != ByDuplicate { // else a plain insert tells whether it won, and the number of rows does not
		insert += " " + d.Fragments.OrIgnore(key, "name")
	}
	return RowClaim{dialect: d, one: d.Compile(name, insert)}
}

// Run inserts one row. It does not win if a row with this key exists. On MySQL and MariaDB it
// does not win either if another unique key refused the row: a read of the claimed key tells.
func (c RowClaim) Run(ctx context.Context, q core.Querier, args ...any) (won bool, err error) {
	return c.Won(c.Bind(args...).Run(ctx, q))
}

// Bind returns the insert of one row, to send, and Won what its answer says, as Run does.
func (c RowClaim) Bind(args ...any) core.Bound { return core.Bound{Stmt: c.one, Args: args} }

// Won is for the answer of Bind's statement.
func (c RowClaim) Won(a core.Reply) (won bool, err error) {
	if a.Err != nil {
		return false, c.lost(a.Err)
	}
	return c.dialect.Rows.Verdict.Won(a.Result), nil
}

// RunAll inserts n rows, all of them or none. It inserts none if a key exists, also another unique key, or if a
// row is refused and the transaction surely goes on: Run tells which.
func (c RowClaim) RunAll(ctx context.Context, q core.Querier, n int, args ...any) (all bool, err error) {
	tuples := make([]string, n)
	for i := range tuples {
		tuples[i] = Tuple(i*c.columns+1, c.columns)
	}
	insert := c.dialect.Compile("row.claim", strings.Replace(c.text, Tuple(1, c.columns), strings.Join(tuples, ", "), 1))
	insert.Prepared = false                    // there are too many texts
	if c.dialect.Rows.Verdict == ByDuplicate { // a refused statement is undone as a whole
		_, err := insert.Exec(ctx, q, args...)
		if survives := c.dialect.Fence.Survives; survives != nil && survives(err) {
			return false, nil
		}
		return err == nil, c.lost(err)
	}
	// The statement skips existing rows.
	if _, err := (core.Stmt{Name: "row.savepoint", Text: `SAVEPOINT holdfast_batch`}).Exec(ctx, q); err != nil {
		return false, err
	}
	r, err := insert.Exec(ctx, q, args...)
	// One that is refused may be there by now: one by one, they are looked for.
	if c.refused(err) != nil {
		return false, err
	}
	all = err == nil && r.Affected == int64(n)
	end := `RELEASE SAVEPOINT holdfast_batch`
	if !all {
		end = `ROLLBACK TO SAVEPOINT holdfast_batch`
	}
	if _, endErr := (core.Stmt{Name: "row.savepoint end", Text: end}).Exec(ctx, q); endErr != nil {
		return false, cmp.Or(err, endErr)
	}
	return all, nil
}

// lost returns nil if err only means that the claim lost.
func (c RowClaim) lost(err error) error {
	if c.dialect.Rows.Verdict == ByDuplicate && c.dialect.Classify(err) == Duplicate {
		return nil
	}
	return err
}

// refused returns nil if err only means that the server refused a row.
func (c RowClaim) refused(err error) error {
	if err != nil && (c.dialect.Classify(err) == Duplicate || c.dialect.Refuses(err)) {
		return nil
	}
	return err
}

// Tuple returns ($from, $from+1, …) with n parameters.
func Tuple(from, n int) string {
	p := make([]string, n)
	for i := range p {
		p[i] = "$" + strconv.Itoa(from+i)
	}
	return "(" + strings.Join(p, ", ") + ")"
}
