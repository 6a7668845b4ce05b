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
	// Err is the driver's error, if any. Its text may contain keys: see [ErrorCode].
	Err error
}

// Observer is called after each statement, on the goroutine that ran it. It must be quick and
// safe for concurrent use. A panic is logged with slog.Default and ends nothing.
type Observer func(ctx context.Context, s Statement)

// observed is a Querier that reports its statements.
type observed struct {
	core.Querier
	options *Options
	engine  string
}

// observed returns q with observers, and with errors that say the remedy.
func (d *DB[Tx]) observed(q core.Querier) core.Querier {
	q = d.reported(q)
	if d.dialect != nil {
		q = explained{q, d}
	}
	return q
}

// reported returns q with observers, if there are some.
func (d *DB[Tx]) reported(q core.Querier) core.Querier {
	if len(d.options.Observers) > 0 {
		q = observed{q, &d.options, d.engineName()}
	}
	return q
}

func (o observed) Exec(ctx context.Context, query string, args ...any) (core.Result, error) {
	start := time.Now()
	r, err := o.Querier.Exec(ctx, query, args...)
	o.options.report(ctx, Statement{core.StatementName(ctx), o.engine, command(query), time.Since(start), err})
	return r, err
}

func (o observed) Query(ctx context.Context, query string, args ...any) (core.Rows, error) {
	start := time.Now()
	r, err := o.Querier.Query(ctx, query, args...)
	o.options.report(ctx, Statement{core.StatementName(ctx), o.engine, command(query), time.Since(start), err})
	return r, err
}

func (o Options) report(ctx context.Context, s Statement) {
	ctx = core.Caller(ctx)
	for _, f := range o.Observers {
		func() {
			defer caught(ctx, "an Observer")
			f(ctx, s)
		}()
	}
}

// observe times and reports a step that is not a statement of a Querier.
func (d *DB[Tx]) observe(ctx context.Context, name string, f func() error) error {
	if len(d.options.Observers) == 0 {
		return f()
	}
	start := time.Now()
	err := f()
	d.options.report(ctx, Statement{name, d.engineName(), strings.ToUpper(name), time.Since(start), err})
	return err
}

// piped reports a step, with its error, and a statement that were sent together. The duration
// counts for the statement.
func (d *DB[Tx]) piped(ctx context.Context, step string, b core.Bound, answer core.Answer, took time.Duration, err error) {
	core.Ran(b.Stmt.Name)
	if len(d.options.Observers) == 0 {
		return
	}
	of := func(name, text string, took time.Duration, err error) {
		d.options.report(ctx, Statement{name, d.engineName(), command(text), took, err})
	}
	if step == "begin" {
		of(step, step, 0, err)
	}
	if err == nil || step == "commit" {
		of(b.Stmt.Name, b.Stmt.Text, took, answer.Err)
	}
	if step == "commit" && answer.Err == nil {
		of(step, step, 0, err)
	}
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
