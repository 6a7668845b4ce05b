package core

import (
	"context"
	"strconv"
	"strings"
)

// Stmt is one statement of a dialect. Its source text numbers the parameters $1, $2, … on
// every engine, so one argument list fits all engines. A text may also name $0, the owner, which
// is then the first argument. On an engine that uses question marks, order maps each question
// mark to its argument.
type Stmt struct {
	Name string
	Text string
	// Prepared: a handle of database/sql keeps the statement prepared on each connection.
	Prepared bool

	order []int
	owned bool // the first argument is the owner
}

// Compile converts the numbered parameters of text to the engine's form.
func Compile(name, text string, questionMarks bool) Stmt {
	var shift int // of the numbers, if there is a $0
	if strings.Contains(text, "$0") {
		parameters(text, func(n int) string {
			if n == 0 {
				shift = 1
			}
			return ""
		})
	}
	owned := shift == 1
	if !questionMarks && !owned {
		return Stmt{Name: name, Text: text}
	}
	var order []int
	text = parameters(text, func(n int) string {
		if !questionMarks {
			return "$" + strconv.Itoa(n+shift)
		}
		order = append(order, n-1+shift)
		return "?"
	})
	return Stmt{Name: name, Text: text, order: order, owned: owned}
}

// parameters replaces each numbered parameter of text.
func parameters(text string, replace func(n int) string) string {
	var b strings.Builder
	b.Grow(len(text))
	quote, copied := byte(0), 0
	for i := 0; i < len(text); i++ {
		// A quoted name or string may contain a dollar sign.
		switch c := text[i]; {
		case quote != 0 && c == quote:
			quote = 0
		case quote == 0 && (c == '\'' || c == '"' || c == '`'):
			quote = c
		}
		if quote != 0 || text[i] != '$' {
			continue
		}
		j := i + 1
		for j < len(text) && text[j] >= '0' && text[j] <= '9' {
			j++
		}
		if j == i+1 {
			continue
		}
		n, _ := strconv.Atoi(text[i+1 : j])
		b.WriteString(text[copied:i])
		b.WriteString(replace(n))
		copied, i = j, j-1
	}
	b.WriteString(text[copied:])
	return b.String()
}

// Bound is a statement with its arguments.
type Bound struct {
	Stmt Stmt
	// OrFail is Stmt in a form that fails if it affects no row: see Pipeline.
	OrFail Stmt
	Args   []any
	// Counts: Stmt is a query, whose row has the number of affected rows and a text.
	Counts bool
	// Dest, if not nil, gets the first row of Stmt, which is a query.
	Dest []any
}

// Reply is the result of a statement, or its error.
type Reply struct {
	Result

	Text  string // of a Bound that Counts
	Found bool   // there was a row for the Dest of a Bound
	Err   error
}

// With returns b with arguments.
func (b Bound) With(args ...any) Bound {
	b.Args = args
	return b
}

// Run runs b.
func (b Bound) Run(ctx context.Context, q Querier) (a Reply) {
	switch {
	case b.Counts:
		_, a.Err = b.Stmt.QueryRow(ctx, q, []any{&a.Affected, &a.Text}, b.Args...)
	case b.Dest != nil:
		a.Found, a.Err = b.Stmt.QueryRow(ctx, q, b.Dest, b.Args...)
	default:
		a.Result, a.Err = b.Stmt.Exec(ctx, q, b.Args...)
	}
	return a
}

// Both runs second after first, unless first failed: in one round trip if q can.
func Both(ctx context.Context, q Querier, first, second Bound) (a, b Reply) {
	if batcher, can := q.(Batcher); can {
		Ran(first.Stmt.Name)
		Ran(second.Stmt.Name)
		return batcher.Both(ctx, first, second)
	}
	if a = first.Run(ctx, q); a.Err == nil {
		b = second.Run(ctx, q)
	}
	return a, b
}

func (s Stmt) args(args []any) []any {
	if s.order == nil {
		return args
	}
	out := make([]any, len(s.order))
	for i, n := range s.order {
		out[i] = args[n]
	}
	return out
}

// running is the context of a Stmt that runs.
type running struct {
	context.Context

	name     string
	prepared bool
	owner    any // nil if the statement names none
}

type runningKey struct{}

// Value implements context.Context.
func (r *running) Value(key any) any {
	if key == (runningKey{}) {
		return r
	}
	return r.Context.Value(key)
}

// StatementName returns the dialect's name of the statement that runs under ctx, for
// observers.
func StatementName(ctx context.Context) string {
	if r, ok := ctx.Value(runningKey{}).(*running); ok {
		return r.name
	}
	return ""
}

// StatementOwner returns the owner that the statement names which runs under ctx.
func StatementOwner(ctx context.Context) (owner string, ok bool) {
	if r, running := ctx.Value(runningKey{}).(*running); running {
		owner, ok = r.owner.(string)
	}
	return owner, ok
}

// Caller returns the context under which the statement was sent that runs under ctx. Callbacks of the
// program get it: what they send under it is not a statement of Holdfast's.
func Caller(ctx context.Context) context.Context {
	if r, running := ctx.Value(runningKey{}).(*running); running {
		return r.Context
	}
	return ctx
}

// NotRunning returns ctx without the mark of a statement that runs. It ends when ctx does, which may be sooner than
// Caller's.
func NotRunning(ctx context.Context) context.Context {
	return context.WithValue(ctx, runningKey{}, nil)
}

// Running reports whether a statement of Holdfast's runs under ctx.
func Running(ctx context.Context) bool { return ctx.Value(runningKey{}) != nil }

type askingKey struct{}

// Asking returns a context whose statement only asks whether its transaction is alive. A connection that
// knows need not send it.
func Asking(ctx context.Context) context.Context { return context.WithValue(ctx, askingKey{}, true) }

// Asks reports whether ctx is that of Asking.
func Asks(ctx context.Context) bool { return ctx.Value(askingKey{}) != nil }

// Prepared reports whether the statement that runs under ctx stays prepared.
func Prepared(ctx context.Context) bool {
	r, ok := ctx.Value(runningKey{}).(*running)
	return ok && r.prepared
}

func (s Stmt) under(ctx context.Context, args []any) context.Context {
	Ran(s.Name)
	return &running{ctx, s.Name, s.Prepared, s.owner(args)}
}

func (s Stmt) owner(args []any) any {
	if !s.owned || len(args) == 0 {
		return nil
	}
	return args[0]
}

// StmtRun is one run of a Stmt, as a part of an object that the caller allocates anyway.
type StmtRun struct{ running }

// Exec is Stmt.Exec.
func (c *StmtRun) Exec(ctx context.Context, s *Stmt, q Querier, args []any) (Result, error) {
	return q.Exec(c.of(ctx, s, args), s.Text, s.args(args)...)
}

// QueryRow is Stmt.QueryRow.
func (c *StmtRun) QueryRow(ctx context.Context, s *Stmt, q Querier, dest, args []any) (bool, error) {
	return QueryRow(c.of(ctx, s, args), q, dest, s.Text, s.args(args)...)
}

func (c *StmtRun) of(ctx context.Context, s *Stmt, args []any) context.Context {
	Ran(s.Name)
	c.running = running{ctx, s.Name, s.Prepared, s.owner(args)}
	return &c.running
}

// Exec runs s as a write.
func (s Stmt) Exec(ctx context.Context, q Querier, args ...any) (Result, error) {
	return q.Exec(s.under(ctx, args), s.Text, s.args(args)...)
}

// QueryRow runs s and scans its first row. It returns false if there is no row.
func (s Stmt) QueryRow(ctx context.Context, q Querier, dest []any, args ...any) (bool, error) {
	return QueryRow(s.under(ctx, args), q, dest, s.Text, s.args(args)...)
}

// Query runs s. The caller must close the rows.
func (s Stmt) Query(ctx context.Context, q Querier, args ...any) (Rows, error) {
	return q.Query(s.under(ctx, args), s.Text, s.args(args)...)
}

// QueryRow runs query and scans its first row. It returns false if there is no row.
func QueryRow(ctx context.Context, q Querier, dest []any, query string, args ...any) (found bool, err error) {
	if r, ok := q.(RowQuerier); ok {
		return r.QueryRow(ctx, dest, query, args...)
	}
	rows, err := q.Query(ctx, query, args...)
	if err != nil {
		return false, err
	}
	defer func() {
		if e := rows.Close(); err == nil {
			err = e
		}
	}()
	if !rows.Next() {
		return false, rows.Err()
	}
	return true, rows.Scan(dest...)
}
