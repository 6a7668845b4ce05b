package holdfast

import (
	"context"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/holdfast-go/holdfast/internal/access"
	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/dialect"
	"github.com/holdfast-go/holdfast/internal/trace"
)

// DefaultPrefix begins the names of Holdfast's tables.
const DefaultPrefix = "holdfast_"

// DB is a pool that Holdfast works on; Tx is the type of its transactions.
// It is safe for concurrent use, holds no connection and needs no closing.
type DB[Tx any] struct {
	adapter core.Adapter[Tx]
	pool    core.Querier
	dialect *dialect.Dialect
	version string
	trace   *trace.Tracer
	options options
}

type options struct {
	engine    Engine
	prefix    string
	schema    string
	observers []Observer
	tracers   []trace.Listener
	oneWriter bool
}

// Option changes how a DB is opened.
type Option func(*options)

// WithEngine names the engine instead of asking the server.
func WithEngine(e Engine) Option { return func(o *options) { o.engine = e } }

// WithPrefix begins the names of Holdfast's tables: letters, digits and
// underscores, at most 32, not beginning with a digit. Default: "holdfast_".
func WithPrefix(prefix string) Option { return func(o *options) { o.prefix = prefix } }

// WithSchema puts Holdfast's tables into a schema (on MySQL and MariaDB a
// database). Default: the connection's own.
func WithSchema(schema string) Option { return func(o *options) { o.schema = schema } }

// WithSingleWriter declares that all programs which use these tables send their
// writes to one node of a Galera cluster, so that row locks, which end at their
// node, are not refused: [Capabilities].MultiPrimary is false then. Where the
// node changes, as when a proxy fails over, two writers may overlap for a moment;
// leases, guards, records and versioned rows are safe then too, row locks are not.
func WithSingleWriter() Option { return func(o *options) { o.oneWriter = true } }

// WithObserver has every statement of Holdfast's reported. It may be given several times.
func WithObserver(f Observer) Option {
	return func(o *options) {
		if f != nil {
			o.observers = append(o.observers, f)
		}
	}
}

// New opens a DB on an adapter. Programs call Open of an adapter package
// instead: holdfastsql, holdfastsqlx or holdfastpgx.
func New[Tx any](ctx context.Context, adapter core.Adapter[Tx], opts ...Option) (*DB[Tx], error) {
	d := &DB[Tx]{adapter: adapter, options: options{prefix: DefaultPrefix}}
	for _, o := range opts {
		o(&d.options)
	}
	if err := checkPrefix(d.options.prefix); err != nil {
		return nil, err
	}
	d.pool = d.observed(adapter)
	engine := d.options.engine
	if engine == "" {
		var err error
		if engine, d.version, err = detect(ctx, d.pool); err != nil {
			return nil, err
		}
	}
	var err error
	if d.dialect, err = findDialect(engine); err != nil {
		return nil, err
	}
	d.pool = d.observed(adapter) // by its engine's name
	d.trace = &trace.Tracer{Engine: d.dialect.Name, Listeners: d.options.tracers, Outcome: outcome}
	if err := checkIdent("WithSchema", d.options.schema, d.dialect.MaxIdent, true); err != nil {
		return nil, err
	}
	if err := d.checkSettings(ctx); err != nil {
		return nil, err
	}
	return d, nil
}

// Engine is the engine that was detected or named.
func (d *DB[Tx]) Engine() Engine { return Engine(d.dialect.Name) }

// Version is the server's own version text; empty when the engine was named.
func (d *DB[Tx]) Version() string { return d.version }

// Capabilities are the engine's.
func (d *DB[Tx]) Capabilities() Capabilities { return Capabilities(d.dialect.Capabilities) }

// Access gives the packages of this module what they build on. It is not for
// programs: its types are internal and change without notice.
func (d *DB[Tx]) Access() access.Access[Tx] {
	return access.Access[Tx]{
		Pool: d.pool,
		Join: func(tx Tx) (core.Querier, error) {
			q, ok := d.adapter.Join(tx)
			if !ok {
				return nil, ErrNoTx
			}
			return d.observed(q), nil
		},
		Rollback: d.adapter.Rollback,
		Attempt:  d.attempt,
		OnConn:   d.onConn,
		Listen:   d.listen,
		Alive:    d.joinable,
		Acquire:  d.adapter.Acquire,
		Dialect:  d.dialect,
		Table:    d.table,
		Trace:    d.trace,
	}
}

func (d *DB[Tx]) listen(ctx context.Context, statement string, ready func(), each func(payload string)) error {
	if l, ok := d.adapter.(core.Listener); ok {
		return l.Listen(ctx, statement, ready, each)
	}
	return core.ErrNoListener
}

// table is the quoted name of one of Holdfast's own tables.
func (d *DB[Tx]) table(name string) string {
	t := d.dialect.Ident(d.options.prefix + name)
	schema := d.options.schema
	if schema == "" && d.Engine() == SQLite {
		schema = "main" // a bare name may be found in an attached database
	}
	if schema != "" {
		t = d.dialect.Ident(schema) + "." + t
	}
	return t
}

func (d *DB[Tx]) checkSettings(ctx context.Context) error {
	if d.dialect.Settings == "" {
		return nil
	}
	rows, err := d.pool.Query(ctx, d.dialect.Settings)
	if err != nil {
		return fmt.Errorf("holdfast: reading the server's settings: %w", err)
	}
	defer rows.Close()
	columns, err := rows.Columns()
	if err != nil || !rows.Next() {
		return fmt.Errorf("holdfast: reading the server's settings: %w", firstError(err, rows.Err()))
	}
	values := make([]string, len(columns))
	dest := make([]any, len(columns))
	for i := range values {
		dest[i] = &values[i]
	}
	if err := rows.Scan(dest...); err != nil {
		return fmt.Errorf("holdfast: reading the server's settings: %w", err)
	}
	if err := d.dialect.CheckSettings(values); err != nil {
		return &UnsupportedError{d.dialect.Name, "settings", err.Error()}
	}
	if d.dialect.Cluster != nil {
		d.dialect.Cluster(d.dialect, values)
		d.dialect.Capabilities.MultiPrimary = d.dialect.Capabilities.MultiPrimary && !d.options.oneWriter
	}
	return rows.Close()
}

func firstError(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

func checkPrefix(prefix string) error {
	ok := len(prefix) <= 32 && (prefix == "" || prefix[0] < '0' || prefix[0] > '9')
	for _, r := range prefix {
		ok = ok && (r == '_' || r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z')
	}
	if !ok {
		return &InputError{"WithPrefix", fmt.Sprintf("%.40q: use letters, digits and underscores, at most 32, not beginning with a digit", prefix)}
	}
	return nil
}

// CheckIdent refuses what cannot be a table's or column's name on d's engine:
// empty, too long, not UTF-8, or with a NUL byte. All else is quoted.
func (d *DB[Tx]) CheckIdent(field, name string) error {
	return checkIdent(field, name, d.dialect.MaxIdent, false)
}

func checkIdent(field, name string, limit int, emptyOK bool) error {
	switch {
	case name == "" && !emptyOK:
		return &InputError{field, "a name is missing"}
	case len(name) > limit:
		return &InputError{field, fmt.Sprintf("%.20q… has %d bytes, the engine takes %d", name, len(name), limit)}
	case !utf8.ValidString(name) || strings.ContainsRune(name, 0):
		return &InputError{field, fmt.Sprintf("%.40q is not valid UTF-8 without NUL bytes", name)}
	}
	return nil
}
