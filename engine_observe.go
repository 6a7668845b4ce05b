package holdfast

import (
	"context"
	"strings"
	"time"
	"unicode"

	"github.com/holdfast-go/holdfast/internal/core"
)

// Statement describes a statement that Holdfast sent. It contains no values, so keys and
// results stay out of logs.
type Statement struct {
	// Name is Holdfast's name of the statement, "begin", "commit",
	// "rollback", or empty.
	Name string
	// Engine is the DB's [Engine]. It is empty until the engine is known.
	Engine string
	// Command is the SQL command, the first word of the statement, such as "INSERT".
	Command string
	// Duration is how long the caller waited, by the monotonic clock.
	Duration time.Duration
	// Err is the driver's error, if any. Its text may contain keys: see [ServerCode].
	Err error
}

// Observer is called after each statement, on the goroutine that ran it. It must be quick and
// safe for concurrent use. A panic is logged with slog.Default and ends nothing.
type Observer func(ctx context.Context, s Statement)

// observed is a Querier that reports its statements.
type observed struct {
	core.Querier
	reporter
}

// reporter is a DB of any kind.
type reporter interface {
	report(ctx context.Context, s Statement)
}

func (o observed) Exec(ctx context.Context, query string, args ...any) (core.Result, error) {
	start := time.Now()
	r, err := o.Querier.Exec(ctx, query, args...)
	o.report(ctx, Statement{Name: core.StatementName(ctx), Command: command(query), Duration: time.Since(start), Err: err})
	return r, err
}

func (o observed) Query(ctx context.Context, query string, args ...any) (core.Rows, error) {
	start := time.Now()
	r, err := o.Querier.Query(ctx, query, args...)
	o.report(ctx, Statement{Name: core.StatementName(ctx), Command: command(query), Duration: time.Since(start), Err: err})
	return r, err
}

// observedBoth is an observed Batcher.
type observedBoth struct {
	observed
	batcher core.Batcher
}

// Both implements core.Batcher. The duration counts for the statement that has arguments.
func (o observedBoth) Both(ctx context.Context, first, second core.Bound) (a, b core.Reply) {
	start := time.Now()
	a, b = o.batcher.Both(ctx, first, second)
	took := time.Since(start)
	ran := func(s core.Bound, err error) {
		is := Statement{Name: s.Stmt.Name, Command: command(s.Stmt.Text), Err: err}
		if len(s.Args) > 0 {
			is.Duration = took
		}
		o.report(ctx, is)
	}
	if ran(first, a.Err); a.Err == nil {
		ran(second, b.Err)
	}
	return a, b
}

func (d *DB[Tx]) report(ctx context.Context, s Statement) {
	ctx = core.Caller(ctx)
	s.Engine = d.engineName()
	for _, f := range d.options.Observers {
		func() {
			defer caught(ctx, "an Observer")
			f(ctx, s)
		}()
	}
}

// observedConn is a Conn that reports its statements.
type observedConn[Tx any] struct {
	core.Conn[Tx]
	d *DB[Tx]
}

func (o observedConn[Tx]) Exec(ctx context.Context, query string, args ...any) (core.Result, error) {
	return observed{o.Conn, o.d}.Exec(ctx, query, args...)
}

func (o observedConn[Tx]) Query(ctx context.Context, query string, args ...any) (core.Rows, error) {
	return observed{o.Conn, o.d}.Query(ctx, query, args...)
}

func (o observedConn[Tx]) Begin(ctx context.Context, opts core.TxOptions) (tx Tx, err error) {
	err = o.step(ctx, "begin", func() (err error) {
		tx, err = o.Conn.Begin(ctx, opts)
		return err
	})
	return tx, err
}

func (o observedConn[Tx]) Commit(ctx context.Context, tx Tx) error {
	return o.step(ctx, "commit", func() error { return o.Conn.Commit(ctx, tx) })
}

func (o observedConn[Tx]) Rollback(ctx context.Context, tx Tx) error {
	return o.step(ctx, "rollback", func() error { return o.Conn.Rollback(ctx, tx) })
}

// step times and reports what is not a statement of a Querier.
func (o observedConn[Tx]) step(ctx context.Context, name string, f func() error) error {
	start := time.Now()
	err := f()
	o.d.report(ctx, Statement{Name: name, Command: command(name), Duration: time.Since(start), Err: err})
	return err
}

// Native implements core.Native.
func (o observedConn[Tx]) Native() any { return driverConn(o.Conn) }

// Pipes implements core.Pipeline.
func (o observedConn[Tx]) Pipes() bool {
	p, can := o.Conn.(core.Pipeline[Tx])
	return can && p.Pipes()
}

// BeginWith implements core.Pipeline. The duration counts for the statement.
func (o observedConn[Tx]) BeginWith(ctx, life context.Context, opts core.TxOptions, first core.Bound) (Tx, core.Reply, error) {
	start := time.Now()
	tx, answer, err := o.Conn.(core.Pipeline[Tx]).BeginWith(ctx, life, opts, first) //nolint:forcetypeassert // Pipes has looked
	took := time.Since(start)
	o.piped(ctx, "begin", "begin", 0, err)
	if err == nil {
		o.piped(ctx, first.Stmt.Name, first.Stmt.Text, took, answer.Err)
	}
	return tx, answer, err
}

// CommitWith implements core.Pipeline. The duration counts for the statement.
func (o observedConn[Tx]) CommitWith(ctx context.Context, tx Tx, last core.Bound) (core.Reply, error) {
	start := time.Now()
	answer, err := o.Conn.(core.Pipeline[Tx]).CommitWith(ctx, tx, last) //nolint:forcetypeassert // Pipes has looked
	o.piped(ctx, last.Stmt.Name, last.Stmt.Text, time.Since(start), answer.Err)
	if answer.Err == nil {
		o.piped(ctx, "commit", "commit", 0, err)
	}
	return answer, err
}

func (o observedConn[Tx]) piped(ctx context.Context, name, text string, took time.Duration, err error) {
	o.d.report(ctx, Statement{Name: name, Command: command(text), Duration: took, Err: err})
}

// Timely implements core.Timely.
func (o observedConn[Tx]) Timely() bool {
	t, can := o.Conn.(core.Timely)
	return can && t.Timely()
}

// Keep implements core.Keeper.
func (o observedConn[Tx]) Keep(ctx context.Context, kept core.Kept, change func(q core.Querier) (undo string, err error)) (bool, error) {
	k, can := o.Conn.(core.Keeper)
	if !can {
		return false, nil
	}
	return k.Keep(ctx, kept, func(q core.Querier) (string, error) { return change(observed{q, o.d}) })
}

// Intact implements core.Keeper.
func (o observedConn[Tx]) Intact() (intact bool, again error) {
	if k, can := o.Conn.(core.Keeper); can {
		return k.Intact()
	}
	return false, nil
}

func (d *DB[Tx]) engineName() string {
	if d.dialect == nil {
		return ""
	}
	return d.dialect.Name
}

// command returns the first word of a statement.
func command(query string) string {
	query = strings.TrimSpace(query)
	end := strings.IndexFunc(query, func(r rune) bool { return !unicode.IsLetter(r) })
	if end < 0 {
		end = len(query)
	}
	return strings.ToUpper(query[:end])
}
