package holdfast

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"

	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/dialect"
	"github.com/holdfast-go/holdfast/internal/trace"
)

// open identifies the server, and checks that the server, its settings and the tables keep the
// promises. It sends three queries: the version, the facts, and the shape.
func (d *DB[Tx]) open(ctx context.Context) error {
	d.pool = pinned[Tx]{d}
	err := d.overConns(ctx, func(conn core.Conn[Tx]) error {
		q := explained{d.composed(conn), d}
		engine, version, err := detect(ctx, q)
		if err != nil {
			return err
		}
		if d.dialect, err = findDialect(engine); err != nil {
			return err
		}
		d.version = version
		d.trace = &trace.Tracer{Engine: d.dialect.Name, Listeners: listeners(d.options.Tracers), Outcome: outcome}
		facts, err := d.facts(ctx, q, d.dialect.Admission.Facts+d.dialect.Admission.Vendor)
		if err != nil {
			return err
		}
		d.vendor = facts[dialect.FactVendor]
		if err := d.identify(ctx, facts); err != nil {
			return err
		}
		d.known.add(driverConn(conn))
		if dialect.Skips(ctx, dialect.RuleTables) {
			return nil
		}
		return d.checkShape(ctx, q)
	})
	if err != nil {
		return err
	}
	d.pool = explained{d.pool, d}
	return nil
}

// factsNow reads the facts about the server and the session after Open, which has read the vendor.
func (d *DB[Tx]) factsNow(ctx context.Context, q core.Querier) (dialect.Facts, error) {
	f, err := d.facts(ctx, q, d.dialect.Admission.Facts)
	if d.vendor != "" && err == nil {
		f[dialect.FactVendor] = d.vendor
	}
	return f, err
}

// facts reads the facts that query returns, and those that depend on them.
func (d *DB[Tx]) facts(ctx context.Context, q core.Querier, query string) (dialect.Facts, error) {
	f := dialect.Facts{}
	a := &d.dialect.Admission
	if err := readFacts(ctx, q, "admission", query, f); err != nil {
		if !dialect.Misunderstood(err) {
			return nil, fmt.Errorf("holdfast: reading the server's settings: %w", err)
		}
		return nil, &UnsupportedError{
			Engine: d.version, Check: "engine", What: "engine", Problem: "it does not answer what " + d.dialect.Name + " answers about itself (" + err.Error() + ")",
			Remedy: "see the table of engines in docs/reference/environments.md",
		}
	}
	if a.Prepared != "" {
		if _, err := (core.Stmt{Name: "admission.prepared", Text: a.Prepared}).Exec(ctx, q, 1); err != nil {
			f[dialect.FactPrepared] = err.Error()
		}
	}
	if a.More == nil {
		return f, nil
	}
	if more := a.More(f); more != "" {
		if err := readFacts(ctx, q, "admission.more", more, f); err != nil {
			f["error"] = err.Error()
		}
	}
	return f, nil
}

func readFacts(ctx context.Context, q core.Querier, name, query string, into dialect.Facts) error {
	rows, err := core.Stmt{Name: name, Text: query}.Query(ctx, q)
	if err != nil {
		return err
	}
	facts, err := core.Collect(rows, func(row core.Row) (f [2]string, err error) {
		err = row.Scan(&f[0], &f[1])
		return f, err
	})
	for _, f := range facts {
		into[f[0]] = f[1]
	}
	return err
}

// identify checks the server's product and the session's settings, and lets the rules change
// the dialect.
func (d *DB[Tx]) identify(ctx context.Context, f dialect.Facts) error {
	a := &d.dialect.Admission
	is := a.Identify(f)
	d.product = is.Product
	switch {
	case is.Standing == dialect.Unfit:
		return refusedEngine(is)
	case d.options.Engine != "" && d.options.Engine != d.Engine():
		return &UnsupportedError{Engine: is.Product, Check: "engine", What: "engine", Problem: "Options.Engine asks for " + string(d.options.Engine), Remedy: "name " + d.dialect.Name + ", or connect to the other server"}
	}
	d.unproven = is.Standing == dialect.Untested && d.options.Untested != is.Product && !dialect.Skips(ctx, dialect.RuleUntested)
	if d.unproven && (a.Lines == "" || dialect.Skips(ctx, dialect.RuleTables)) {
		return d.untested(is.Product)
	}
	d.rules = a.RulesOf(ctx, d.options.SingleWriter)
	if err := d.refuse(f); err != nil {
		return err
	}
	if err := checkIdent("Options.Schema", d.options.Schema, d.dialect.MaxIdent, true); err != nil {
		return err
	}
	if d.options.OwnerSetting != "" && d.dialect.SetOwner == "" {
		return &UnsupportedError{Engine: is.Product, Check: "row level security", What: "Options.OwnerSetting", Value: d.options.OwnerSetting, Problem: "it has no row level security", Remedy: "leave the option out"}
	}
	d.schema = d.options.Schema
	if d.schema == "" && !dialect.Skips(ctx, dialect.RuleNames) {
		d.schema = f["schema"]
	}
	for _, r := range d.rules {
		if r.Neutralise != nil {
			r.Neutralise(d.dialect, f)
		}
	}
	if d.options.SingleWriter {
		d.dialect.Capabilities.MultiPrimary = false
	}
	d.opened = f
	if d.unproven {
		a.AddLines(d.lines())
	}
	return nil
}

// refuse returns the errors of a session that breaks a rule.
func (d *DB[Tx]) refuse(f dialect.Facts) error { return d.refused(dialect.Refuse(d.rules, f)) }

func (d *DB[Tx]) refused(findings []dialect.Finding) error {
	var all []error
	for _, f := range findings {
		all = append(all, d.unsupported(f))
	}
	return joined(all)
}

func (d *DB[Tx]) unsupported(r dialect.Finding) error {
	return &UnsupportedError{Engine: d.product, Check: r.Check, What: r.Setting, Value: r.Value, Problem: r.Breaks, Remedy: r.Remedy}
}

// joined is errors.Join, except that it returns a single error unchanged.
func joined(all []error) error {
	if len(all) == 1 {
		return all[0]
	}
	return errors.Join(all...)
}

// admit checks a connection that the pool made after Open. It checks each connection once.
func (d *DB[Tx]) admit(ctx context.Context, conn core.Conn[Tx]) error {
	if d.known.has(driverConn(conn)) {
		return nil
	}
	f, err := d.factsNow(ctx, explained{d.composed(conn), d})
	if err != nil {
		return err
	}
	if is := d.dialect.Admission.Identify(f); is.Product != d.product {
		if err := d.updated(ctx, explained{d.composed(conn), d}, is); err != nil {
			return err
		}
	}
	if err := d.refused(append(dialect.Refuse(d.rules, f), dialect.Changed(d.rules, d.opened, f)...)); err != nil {
		return err
	}
	d.known.add(driverConn(conn))
	return nil
}

// admission returns the error with which Open would refuse the environment now.
func (d *DB[Tx]) admission(ctx context.Context) error {
	return d.overConns(ctx, func(conn core.Conn[Tx]) error {
		f, err := d.factsNow(ctx, explained{d.composed(conn), d})
		if err != nil {
			return err
		}
		d.shaped.Store(false)
		return errors.Join(d.refuse(f), d.checkShape(ctx, explained{d.composed(conn), d}))
	})
}

// pinned runs each statement on an admitted connection. It replaces a connection that turns
// out to be dead before anything was sent, as database/sql does.
type pinned[Tx any] struct{ d *DB[Tx] }

func (p pinned[Tx]) Exec(ctx context.Context, query string, args ...any) (r core.Result, err error) {
	err = p.on(ctx, func(conn core.Conn[Tx]) (err error) {
		one := &single{conn, p.d.dialect.Single, false}
		if one.setting.Before == nil {
			r, err = conn.Exec(ctx, query, args...)
		} else {
			r, err = one.Exec(ctx, query, args...)
		}
		if !errors.Is(err, driver.ErrBadConn) {
			conn.Release(one.spoiled)
		}
		return err
	})
	return r, err
}

func (p pinned[Tx]) Query(ctx context.Context, query string, args ...any) (rows core.Rows, err error) {
	err = p.on(ctx, func(conn core.Conn[Tx]) error {
		r, err := conn.Query(ctx, query, args...)
		if err != nil {
			if !errors.Is(err, driver.ErrBadConn) {
				conn.Release(false)
			}
			return err
		}
		rows = &pinnedRows[Tx]{Rows: r, conn: conn}
		return nil
	})
	return rows, err
}

// on runs f with a connection. f releases the connection unless it returns driver.ErrBadConn;
// then on closes the connection and tries another one.
func (p pinned[Tx]) on(ctx context.Context, f func(conn core.Conn[Tx]) error) error {
	for n := 1; ; n++ {
		conn, err := p.d.connect(ctx, false)
		if err != nil {
			return err
		}
		err = f(p.d.composed(conn))
		if !errors.Is(err, driver.ErrBadConn) {
			return err
		}
		conn.Release(true)
		if n == staleConns || ctx.Err() != nil {
			return err
		}
	}
}

// pinnedRows release their connection when they are closed.
type pinnedRows[Tx any] struct {
	core.Rows
	conn core.Conn[Tx]
}

func (r *pinnedRows[Tx]) Close() error {
	err := r.Rows.Close()
	if r.conn != nil {
		r.conn.Release(false)
		r.conn = nil
	}
	return err
}
