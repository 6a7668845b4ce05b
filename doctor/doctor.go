// Package doctor looks for settings of a database that break or weaken what
// Holdfast promises. It only reads.
package doctor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/access"
	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/dialect"
	"github.com/holdfast-go/holdfast/internal/rowmap"
)

// Severity is how bad a finding is.
type Severity = dialect.Severity

// The severities.
const (
	// Notice: nothing is wrong, but one should know.
	Notice = dialect.Notice
	// Warning: work may be slow or stuck, or an assumption of the caller's wrong.
	Warning = dialect.Warning
	// Broken: a promise of Holdfast's does not hold.
	Broken = dialect.Broken
)

// DefaultMaxDrift is how far the clocks may be apart before it is said.
const DefaultMaxDrift = time.Second

// Options of a check; the zero value is the default.
type Options struct {
	// Tables are tables of the program's own whose rows are records, locked or
	// versioned: their keys are looked at.
	Tables []Table
	// MaxDrift is how far the process's clock may be from the database's.
	// Default: a second.
	MaxDrift time.Duration
}

// Table is a table of the program's own and its unique key.
type Table struct {
	Schema, Name string
	Key          []string
}

// Finding is something that is wrong or should be known.
type Finding struct {
	// Check is a stable name, for programs.
	Check    string
	Severity Severity
	// Problem says what is so and what follows from it, Advice what to do.
	Problem, Advice string
}

// Check looks at the server, the session, Holdfast's tables and those of o, the
// worst first. What already keeps a DB from being opened (a standby, autocommit
// off) never comes so far: see Refused.
//
// Errors: [holdfast.ErrInvalid], ctx's, the driver's. A probe that the role may
// not run is a finding.
func Check[Tx any](ctx context.Context, db *holdfast.DB[Tx], o Options) ([]Finding, error) {
	if o.MaxDrift == 0 {
		o.MaxDrift = DefaultMaxDrift
	}
	if o.MaxDrift < 0 {
		return nil, fmt.Errorf("%w: doctor: Options.MaxDrift is negative", holdfast.ErrInvalid)
	}
	a := db.Access()
	p := &patient{dialect: a.Dialect, table: a.Table, pool: a.Pool, now: time.Now}
	steps := []func(context.Context) error{
		p.probes,
		func(ctx context.Context) error { return p.indexes(ctx, db.CheckSchema) },
		func(ctx context.Context) error { return p.clock(ctx, o.MaxDrift) },
		func(ctx context.Context) error { return pooler(ctx, p, a) },
		func(ctx context.Context) error { return p.tables(ctx, db.CheckIdent, o.Tables) },
	}
	for _, step := range steps {
		if err := step(ctx); err != nil {
			f, known := Refused(err)
			if !known {
				return nil, err
			}
			if !slices.ContainsFunc(p.found, func(o Finding) bool { return o.Check == f.Check }) {
				p.found = append(p.found, f)
			}
			break // the rest would fail too, or not, by chance
		}
	}
	slices.SortStableFunc(p.found, func(x, y Finding) int { return cmp.Compare(y.Severity, x.Severity) })
	return p.found, nil
}

type patient struct {
	dialect *dialect.Dialect
	table   func(name string) string
	pool    core.Querier
	now     func() time.Time
	found   []Finding
}

func (p *patient) find(check string, s Severity, problem, advice string) {
	p.found = append(p.found, Finding{check, s, problem, advice})
}

// indexed are Holdfast's tables, with the indexes without which they grow slow.
var indexed = map[string][]string{
	"records": {"records_body_expires_at", "records_key_expires_at"}, "locks": nil, "floor": nil, "waiters": nil,
	"claims": nil, "staged": {"staged_due_at"}, "steps": {"steps_provider_key"}, "interventions": {"interventions_key_hash"},
	"sweeps": nil, "registers": nil, "news": nil,
}

// bare is a table's name without quotes and schema.
func (p *patient) bare(name string) (schema, table string) {
	quoted := p.table(name)
	unquote := func(s string) string { return strings.Trim(s, string(p.dialect.QuoteRune)) }
	if i := strings.LastIndex(quoted, "."); i >= 0 {
		return unquote(quoted[:i]), unquote(quoted[i+1:])
	}
	return "", unquote(quoted)
}

func (p *patient) probes(ctx context.Context) error {
	var names []string
	schema := ""
	for name := range indexed {
		var table string
		if schema, table = p.bare(name); p.dialect.Doctor.Prefixed { // as SQL has it
			table = p.table(name)
		}
		names = append(names, strings.ReplaceAll(table, "'", "''"))
	}
	slices.Sort(names)
	r := strings.NewReplacer("{tables}", strings.Join(names, "|"), "{schema}", strings.ReplaceAll(schema, "'", "''"))
	for _, probe := range p.dialect.Doctor.Probes {
		row := make([]string, probe.Columns)
		into := make([]any, len(row))
		for i := range row {
			into[i] = &row[i]
		}
		_, err := core.Stmt{Name: "doctor." + probe.Name, Text: r.Replace(probe.Query)}.QueryRow(ctx, p.pool, into)
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case lostPrepared(err):
			return err
		case err != nil && probe.Privileged:
			p.find(probe.Name, Notice, "it could not be looked at: "+err.Error(), "let the role read it, or look as an administrator")
			continue
		case err != nil:
			p.find(probe.Name, Warning, "it could not be looked at: "+err.Error(), "let the role read it, or look at it yourself")
			continue
		}
		if severity, problem, advice := probe.Judge(row); problem != "" {
			p.find(probe.Name, severity, problem, advice)
		}
	}
	return nil
}

// indexes finds tables and indexes that are not there.
func (p *patient) indexes(ctx context.Context, check func(ctx context.Context) error) error {
	if err := check(ctx); err != nil {
		if !errors.Is(err, holdfast.ErrSchema) {
			return err
		}
		p.find("schema", Broken, err.Error(), "holdfast migrate up")
		return nil
	}
	for name, want := range indexed {
		schema, table := p.bare(name)
		have, err := p.names(ctx, schema, table)
		if err != nil {
			return err
		}
		for _, index := range want {
			if p.dialect.Doctor.Prefixed {
				index = strings.TrimSuffix(table, name) + index
			}
			if !slices.Contains(have, index) {
				p.find("index", Warning, "table "+table+" lacks the index "+index+": it will be slow when it is large", "create it as holdfast migrate print has it")
			}
		}
	}
	return nil
}

func (p *patient) names(ctx context.Context, schema, table string) (list []string, err error) {
	rows, err := p.dialect.Compile("doctor.indexes", p.dialect.Doctor.Indexes).Query(ctx, p.pool, schema, table)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var name string
		if err := rows.Scan(&name); err != nil {
			return nil, err
		}
		list = append(list, name)
	}
	return list, errors.Join(rows.Err(), rows.Close())
}

// clock compares the process's clock with the database's.
func (p *patient) clock(ctx context.Context, most time.Duration) error {
	var now int64
	before := p.now()
	if _, err := (core.Stmt{Name: "doctor.clock", Text: "SELECT " + p.dialect.Now}).QueryRow(ctx, p.pool, []any{&now}); err != nil {
		return err
	}
	took := p.now().Sub(before)
	drift := time.UnixMicro(now).Sub(before.Add(took / 2))
	if drift.Abs() > most+took/2 {
		p.find("clock", Warning, fmt.Sprintf("the database's clock and this machine's are %v apart", drift.Abs().Round(time.Millisecond)),
			"run NTP on both: Holdfast goes by the database's clock alone, but logs, tokens of time and deadlines of your own do not")
	}
	return nil
}

// poolerWait is how long a second connection is waited for.
const poolerWait = 2 * time.Second

// pooler finds a proxy that gives a session to each transaction: then two
// connections of ours meet the same session of the server.
func pooler[Tx any](ctx context.Context, p *patient, a access.Access[Tx]) error {
	if p.dialect.Doctor.Session == "" {
		return nil
	}
	session := func() (id string, conn core.Conn[Tx], err error) {
		bounded, cancel := context.WithTimeout(ctx, poolerWait)
		defer cancel()
		if conn, err = a.Acquire(bounded); err != nil {
			return "", nil, err
		}
		_, err = (core.Stmt{Name: "doctor.session", Text: p.dialect.Doctor.Session}).QueryRow(bounded, conn, []any{&id})
		return id, conn, err
	}
	one, first, err := session()
	if first != nil {
		defer first.Release(false)
	}
	if err != nil {
		return err
	}
	two, second, err := session()
	if second != nil {
		defer second.Release(false)
	}
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case lostPrepared(err):
		return err
	case err != nil:
		p.find("pooler", Notice, "no second connection was to be had, so a pooler between could not be looked for", "let the pool have two connections and look again")
	case one == two:
		p.find("pooler", Warning, "two connections met one session of the server: a pooler in transaction mode (PgBouncer, ProxySQL) is between",
			"leases, guards, row locks and records work through it; give Hold and the wake-up of waiters (LISTEN) a direct connection")
	}
	return nil
}

// tables looks at the keys of the program's own tables.
func (p *patient) tables(ctx context.Context, check func(argument, name string) error, tables []Table) error {
	for _, t := range tables {
		table, err := rowmap.Describe(ctx, p.dialect, p.pool, check, t.Schema, t.Name)
		var key []rowmap.Column
		if err == nil {
			key, err = table.Key(ctx, t.Key)
		}
		switch {
		case errors.Is(err, holdfast.ErrInvalid):
			p.find("table "+t.Name, Broken, err.Error(), "declare the key NOT NULL and UNIQUE over the whole table")
			continue
		case err != nil:
			return err
		}
		for _, c := range key {
			if exact, why := p.dialect.Rows.Exact(c.Type, c.Collation); !exact {
				p.find("table "+t.Name, Broken, fmt.Sprintf("column %q: %s", c.Name, why), "two different keys would be one: change the column's type or collation")
			}
		}
	}
	return nil
}
