// Package doctor finds database settings that break or weaken Holdfast's promises, and what waits for a person or
// for a loop that does not run. It only reads.
package doctor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/access"
	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/dialect"
	"github.com/holdfast-go/holdfast/internal/display"
	"github.com/holdfast-go/holdfast/internal/lockname"
	"github.com/holdfast-go/holdfast/internal/options"
	"github.com/holdfast-go/holdfast/internal/rowmap"
)

// Severity says how bad a finding is.
type Severity int

// The severities.
const (
	// Notice means that nothing is wrong, but the fact is worth knowing.
	Notice = Severity(dialect.Notice)
	// Warning means that work may be slow or stuck, or that an assumption of the caller may be
	// wrong.
	Warning = Severity(dialect.Warning)
	// Broken means that one of Holdfast's promises does not hold.
	Broken = Severity(dialect.Broken)
)

// String returns "notice", "warning" or "broken".
func (s Severity) String() string { return dialect.Severity(s).String() }

const defaultMaxDrift = time.Second

// Options configure Check. The zero value of each field is its default.
type Options struct {
	// Tables are tables of the program's own whose rows are records, locked or versioned. Check
	// inspects their keys.
	Tables []Table
	// Role is what the account of the pool is for: "app", "reaper", "operator" or "reader". What the
	// account lacks for it is Broken, and what it may do beyond is a Warning. Default: what the account
	// lacks of "app" is a Warning, and nothing is too much.
	Role Role
	// MaxDrift is the largest accepted difference between the process's clock and the
	// database's. A larger one is a finding. Default: a second; 1 ms to 24 h.
	MaxDrift time.Duration
}

// Table is a table of the program's own and its unique key.
type Table struct {
	Schema, Name string
	Key          []string
}

// Finding describes a problem or a fact worth knowing.
type Finding struct {
	// Check is a stable name, for programs.
	Check    string
	Severity Severity
	// Problem states the fact and its consequence. Advice says what to do.
	Problem, Advice string
}

// Check inspects the server, the session, Holdfast's tables and the tables of opts. It returns
// the findings with the worst first. Check starts with the rules of Open
// (docs/reference/environments.md). Open refuses a database that breaks one of them (see [Refused]), but
// settings may have changed since.
//
// Errors: [holdfast.ErrInvalid], the error of ctx, the driver's. A probe that the role may not
// run is a finding.
func Check[Tx any](ctx context.Context, db *holdfast.DB[Tx], opts ...Options) ([]Finding, error) {
	o, err := options.One(opts)
	if err != nil {
		return nil, err
	}
	if o.MaxDrift == 0 {
		o.MaxDrift = defaultMaxDrift
	}
	if err := options.Wait.UpTo(24*time.Hour).Check("Options.MaxDrift", o.MaxDrift); err != nil {
		return nil, err
	}
	if err := checkRole(o.Role); err != nil {
		return nil, err
	}
	a := access.Of(db)
	p := &patient{dialect: a.Dialect, table: a.Table, pool: a.Pool, catalog: a.Catalog, now: time.Now}
	steps := []func(context.Context) error{
		func(ctx context.Context) error { return p.admission(ctx, a.Admission) },
		func(ctx context.Context) error { return p.line(ctx, db.Product()) },
		p.probes,
		func(ctx context.Context) error { return p.indexes(ctx, db.CheckSchema) },
		func(ctx context.Context) error { return p.privileges(ctx, o.Role) },
		func(ctx context.Context) error { return p.clock(ctx, o.MaxDrift) },
		func(ctx context.Context) error { return pooler(ctx, p, a) },
		p.lockFamilies,
		func(ctx context.Context) error { return p.tables(ctx, o.Tables) },
		func(ctx context.Context) error { return backlog(ctx, p, db) },
	}
	for _, step := range steps {
		if err := step(ctx); err != nil {
			found, known := Refused(err)
			if !known {
				return nil, err
			}
			p.add(found)
			break // the results of the remaining steps would be unreliable
		}
	}
	slices.SortStableFunc(p.found, func(x, y Finding) int { return cmp.Compare(y.Severity, x.Severity) })
	return p.found, nil
}

type patient struct {
	dialect *dialect.Dialect
	table   func(name string) string
	pool    core.Querier
	catalog access.Catalog
	now     func() time.Time
	found   []Finding
}

func (p *patient) find(check string, s Severity, problem, advice string) {
	p.found = append(p.found, Finding{check, s, problem, advice})
}

func (p *patient) add(found []Finding) {
	for _, f := range found {
		if !slices.ContainsFunc(p.found, func(o Finding) bool { return o.Check == f.Check }) {
			p.found = append(p.found, f)
		}
	}
}

// admission checks again the rules that Open checks: the environment may have changed since.
func (p *patient) admission(ctx context.Context, ask func(ctx context.Context) error) error {
	err := ask(ctx)
	found, known := Refused(err)
	if !known {
		return err
	}
	p.add(found)
	return nil
}

// indexed maps tables to the indexes that keep them fast when they are large.
var indexed = map[string][]string{
	"staged": {"staged_due_at", "staged_result_expires_at", "staged_key_expires_at"},
	"steps":  {"steps_provider_key", "steps_reference"}, "interventions": {"interventions_key_hash"},
}

// bare returns a table's schema and name without quotes.
func (p *patient) bare(name string) (schema, table string) { return p.dialect.Bare(p.table(name)) }

// line asks whether anything was shown on the server's version line.
func (p *patient) line(ctx context.Context, product string) error {
	a := &p.dialect.Admission
	if a.Lines == "" || a.Versions.Names(product) {
		return nil
	}
	var proven int
	_, err := core.Compile("line.proven", `SELECT COUNT(proven_at) FROM `+p.table("servers")+` WHERE product = $0`, p.dialect.QuestionMarks).QueryRow(ctx, p.pool, []any{&proven}, product)
	if p.dialect.Classify(err) == dialect.NoTable {
		return nil // another check finds it
	}
	if err == nil && proven == 0 {
		p.find("server version", Warning, product+": no test run names it, and no run of holdfast prove is recorded: programs that do not declare it open it for Options.UpdateGrace after the update, and no longer", "run holdfast prove --record, which takes about a minute")
	}
	return err
}

func (p *patient) probes(ctx context.Context) error {
	for _, probe := range p.dialect.Doctor.Probes {
		row := make([]string, probe.Columns)
		into := make([]any, len(row))
		for i := range row {
			into[i] = &row[i]
		}
		_, err := core.Stmt{Name: "doctor." + probe.Name, Text: probe.Query}.QueryRow(ctx, p.pool, into)
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
			p.find(probe.Name, Severity(severity), problem, advice)
		}
	}
	return nil
}

// indexes finds missing tables and indexes.
func (p *patient) indexes(ctx context.Context, check func(ctx context.Context) error) error {
	if err := check(ctx); err != nil {
		switch {
		case errors.Is(err, holdfast.ErrUnsupported): // admission has found it already
		case errors.Is(err, holdfast.ErrSchema):
			p.find("schema", Broken, err.Error(), "holdfast migrate up")
			return nil
		default:
			return err
		}
	}
	indexes := maps.Clone(indexed)
	indexes["records"] = p.dialect.Sweep.Indexes
	for name, want := range indexes {
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

func (p *patient) names(ctx context.Context, schema, table string) ([]string, error) {
	rows, err := p.dialect.Compile("doctor.indexes", p.dialect.Doctor.Indexes).Query(ctx, p.pool, schema, table)
	if err != nil {
		return nil, err
	}
	return core.Collect(rows, core.Value[string])
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

// poolerWait bounds the wait for each connection.
const poolerWait = 10 * time.Second

// pooler detects a proxy that assigns a server session per transaction: two connections then
// get the same server session.
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

// lockFamilies finds keys that locks of several kinds use.
func (p *patient) lockFamilies(ctx context.Context) error {
	const most = 5
	shared, err := lockname.SharedKeys(ctx, p.pool, p.dialect, p.table("locks"), most)
	if p.dialect.Classify(err) == dialect.NoTable {
		return nil // found already
	}
	if err != nil {
		return err
	}
	if len(shared) == 0 {
		return nil
	}
	keys := make([]string, len(shared))
	for i, s := range shared {
		keys[i] = fmt.Sprintf("%s (%v and %v)", display.Text(s.Key), s.Kinds[0], s.Kinds[1])
		if s.Owner != "" {
			keys[i] += " of " + display.Text(s.Owner)
		}
	}
	p.find("lock families", Warning, "locks of different kinds use one key and do not exclude each other: "+strings.Join(keys, ", "),
		"use one kind of lock for a key, or give each kind keys of its own")
	return nil
}

// tables checks the keys of the program's own tables.
func (p *patient) tables(ctx context.Context, tables []Table) error {
	for _, t := range tables {
		table, err := rowmap.Describe(ctx, p.catalog, t.Schema, t.Name)
		var key []rowmap.Column
		if err == nil {
			key, err = table.Key(ctx, t.Key)
		}
		var unsupported *holdfast.UnsupportedError
		switch {
		case errors.As(err, &unsupported):
			f := refused(unsupported)
			f.Check = "table " + t.Name
			p.add([]Finding{f})
			continue
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
