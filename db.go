package holdfast

import (
	"cmp"
	"context"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/holdfast-go/holdfast/internal/access"
	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/dialect"
	"github.com/holdfast-go/holdfast/internal/options"
	"github.com/holdfast-go/holdfast/internal/trace"
)

const (
	// NoPrefix, as [Options].Prefix, means that the names have no prefix.
	NoPrefix = "-"
	// DefaultOwnerSetting is the setting with which migrations.PrintRowSecurity compares owners.
	DefaultOwnerSetting = "holdfast.owner"
)

// DB is Holdfast on the program's pool. Tx is the type of the pool's transactions. A DB is
// safe for concurrent use, holds no connection, and needs no Close.
type DB[Tx any] struct {
	adapter core.Adapter[Tx]
	// What Options add to connections and to transactions: the first is the innermost. An option that is
	// not set adds nothing.
	conns   []func(core.Conn[Tx]) core.Conn[Tx]
	txs     []func(core.Querier) core.Querier
	pool    core.Querier
	dialect *dialect.Dialect
	version string
	schema  string         // the schema of the tables, independent of the search path
	product string         // the server's product and version
	vendor  string         // dialect.FactVendor, read by Open
	rules   []dialect.Rule // checked on each connection
	opened  dialect.Facts  // what Open found
	known   *connections   // the admitted connections
	shaped  *atomic.Bool   // the tables have the right shape
	unsure  *atomic.Bool   // a function has swallowed an error that its transaction may not have survived
	// unproven: no test run names the server's version, and the program does not declare it.
	unproven bool
	owners   core.Owners // which calls name one
	trace    *trace.Tracer
	options  Options
}

// Options are the settings of a [DB]. The zero value is the default. Package migrations takes
// the same options.
type Options struct {
	// Engine is the expected engine. Open fails on another engine. Default: the one that the server names.
	Engine Engine
	// Prefix begins the names of Holdfast's tables. It consists of at most 32 letters, digits
	// and underscores, and does not begin with a digit; or it is NoPrefix. Default:
	// "holdfast_".
	Prefix string
	// Schema is the schema (on MySQL and MariaDB the database) of Holdfast's
	// tables. Default: the connection's own.
	Schema string
	// Untested allows one product or version that no test run covers, such as "PostgreSQL 19"
	// or "Aurora MySQL 8.0", without the run of `holdfast prove --record` on that server that allows it
	// to all programs. Copy the text from Open's error. Open still fails on any other untested product,
	// and on a product that is known to break a promise.
	Untested string
	// UpdateGrace is how long programs go on after the server was updated to a version that no test run
	// names and on which holdfast prove has not passed: so a fleet does not stop because its host
	// updated the database at night. It counts from when the first of them saw it, and only if these tables
	// were on an earlier version of the same product that may be used. Each Open then reports the event
	// "server.unproven", or logs a warning with slog.Default if it has no Tracers; after that time, Open
	// refuses. Bounds: 1 h to 90 days. Default: 14 days.
	UpdateGrace time.Duration
	// SingleWriter declares that all programs which use these tables write to one node of a
	// Galera cluster, or of a MySQL group with several primaries. It allows row locks, which do
	// not reach other nodes, and sets [Capabilities].MultiPrimary to false. When the node
	// changes, for example when a proxy fails over, two writers may overlap for a moment:
	// leases, guards, records and versioned rows stay safe, but row locks do not.
	SingleWriter bool
	// SingleOwner declares that there is only one owner, so none is named anywhere: not in an
	// idempotency.Op or an outbox.Message, and not with For of package limits, sqllock, rowlock or
	// register. An owner that is given is then [ErrInvalid]. Without SingleOwner an owner that is missing
	// is, because rows of two merchants with the same key would be one. A program with many owners names
	// one for what is its own, such as For("service") for its elections and fair locks, and Job.Owner for
	// its jobs. Default: each call names an owner.
	SingleOwner bool
	// OwnerSetting is for PostgreSQL with the policies that migrations.PrintRowSecurity prints. Holdfast
	// puts the owner whose rows a statement is about into this setting, for instance
	// [DefaultOwnerSetting], until the transaction ends. An owner that the session, or the program's own
	// transaction, has there already stays, and the database refuses the rows of another one.
	// Statements outside of a transaction then run in one, and nothing is sent together with BEGIN or
	// COMMIT: that takes one to three more round trips a statement. The name is two words of letters,
	// digits and underscores with a dot between them, at most 63 bytes. Not with SingleOwner. Default: nothing is set.
	OwnerSetting string
	// Observers receive every statement that Holdfast sends.
	Observers []Observer
	// Tracers receive calls, statements and events.
	Tracers []Tracer
	// Fields lists the fields of a row's struct that are columns, for the packages that take rows
	// as structs. Default: the fields with a `db:"column"` tag. holdfastgorm sets it.
	Fields func(row reflect.Type) ([]Field, error)
}

// Field is a field of a row's struct: its column, and its index for reflect.Value.FieldByIndex.
type Field struct {
	Column string
	Index  []int
	// Generated means that the database makes the column's value. An INSERT leaves the column out,
	// unless it belongs to the key of the [TableSpec], and an UPDATE does too.
	Generated bool
	// Fill sets the field of row, the addressable struct, before an INSERT or UPDATE that writes its
	// column. Default: the field is written as it is.
	Fill func(ctx context.Context, row reflect.Value, update bool) error
}

func (o Options) withDefaults() (Options, error) {
	switch o.Prefix {
	case "":
		o.Prefix = core.DefaultPrefix
	case NoPrefix:
		o.Prefix = ""
	}
	if err := checkPrefix(o.Prefix); err != nil {
		return o, err
	}
	if err := checkOwnerSetting(o.OwnerSetting); err != nil {
		return o, err
	}
	if err := (options.Span{Least: time.Hour, Most: 90 * 24 * time.Hour, Zero: "the default"}).Check("Options.UpdateGrace", o.UpdateGrace); err != nil {
		return o, err
	}
	o.UpdateGrace = cmp.Or(o.UpdateGrace, defaultUpdateGrace)
	if o.SingleOwner && o.OwnerSetting != "" {
		return o, &InputError{Field: "Options.OwnerSetting", Problem: "is given, and the DB is SingleOwner: leave one of them out"}
	}
	if o.Engine != "" {
		if _, err := findDialect(o.Engine); err != nil {
			return o, err
		}
	}
	o.Observers = slices.DeleteFunc(slices.Clone(o.Observers), func(f Observer) bool { return f == nil })
	o.Tracers = slices.DeleteFunc(slices.Clone(o.Tracers), func(t Tracer) bool { return t == nil })
	for _, t := range o.Tracers {
		o.Observers = append(o.Observers, t.Statement)
	}
	return o, nil
}

// Other packages of this module see a DB from the inside, and the adapters open one, through package access: the
// API shows neither.
var _ = access.Register(
	func(db any) any { return db.(inner).access() }, //nolint:forcetypeassert // it is a *DB
	func(ctx context.Context, db, adapter, opts any) error {
		return db.(inner).openOn(ctx, adapter, opts.([]Options)) //nolint:forcetypeassert // likewise
	},
	func(db any, owners core.Owners) any { return db.(inner).withOwners(owners) }) //nolint:forcetypeassert // likewise

// inner is a *DB of any type of transactions.
type inner interface {
	access() any
	openOn(ctx context.Context, adapter any, opts []Options) error
	withOwners(owners core.Owners) any
}

// openOn opens d, which is new, on its adapter, a core.Adapter.
func (d *DB[Tx]) openOn(ctx context.Context, adapter any, opts []Options) error {
	o, err := options.One(opts)
	if err != nil {
		return err
	}
	if o, err = o.withDefaults(); err != nil {
		return err
	}
	d.adapter, d.options = adapter.(core.Adapter[Tx]), o //nolint:forcetypeassert // access.Open has this type
	d.known, d.shaped, d.unsure = new(connections), new(atomic.Bool), new(atomic.Bool)
	if o.SingleOwner {
		d.owners = core.OneOwner
	}
	d.compose()
	return d.open(ctx)
}

// withOwners returns d with another rule about owners.
func (d *DB[Tx]) withOwners(owners core.Owners) any {
	with := *d
	with.owners = owners
	return &with
}

// compose puts together what stands between Holdfast's statements and the driver, from the inside:
//
//	ownerInTx, ownerOnConn   Options.OwnerSetting   the owner is set before each statement that names one
//	observed, observedConn   Observers, Tracers     each statement, BEGIN, COMMIT and ROLLBACK is reported
//	explained                always                 errors get their remedy
//	single                   dialect.Single         a write outside a transaction gets its setting
func (d *DB[Tx]) compose() {
	if d.options.OwnerSetting != "" {
		d.conns = append(d.conns, func(c core.Conn[Tx]) core.Conn[Tx] { return ownerOnConn[Tx]{c, d} })
		d.txs = append(d.txs, func(q core.Querier) core.Querier { return ownerInTx[Tx]{q, d} })
	}
	if len(d.options.Observers) > 0 {
		d.conns = append(d.conns, func(c core.Conn[Tx]) core.Conn[Tx] { return observedConn[Tx]{c, d} })
		d.txs = append(d.txs, func(q core.Querier) core.Querier {
			if b, can := q.(core.Batcher); can {
				return observedBoth{observed{q, d}, b}
			}
			return observed{q, d}
		})
	}
}

// Engine returns the engine of the server.
func (d *DB[Tx]) Engine() Engine { return Engine(d.dialect.Name) }

// Version returns the version text of the server.
func (d *DB[Tx]) Version() string { return d.version }

// Product returns the server's product with the first numbers of its version, such as
// "PostgreSQL 18" or "Aurora MySQL 8.0". [Options].Untested takes this text.
func (d *DB[Tx]) Product() string { return d.product }

// Capabilities returns what the engine can do.
func (d *DB[Tx]) Capabilities() Capabilities { return Capabilities(d.dialect.Capabilities) }

// access returns an access.Access.
func (d *DB[Tx]) access() any {
	return access.Access[Tx]{
		Handle:  handle[Tx]{d},
		Dialect: d.dialect,
		Trace:   d.trace,
		Catalog: access.Catalog{Dialect: d.dialect, Pool: d.pool, Schema: d.schema, Check: d.CheckIdent, Unsupported: d.unsupported, Fields: d.fields},
		Pool:    d.pool,
		Owners:  d.owners,
	}
}

// fields is Options.Fields; nil for none.
func (d *DB[Tx]) fields(row reflect.Type) (list []access.Field, err error) {
	if d.options.Fields == nil {
		return nil, nil
	}
	found, err := d.options.Fields(row)
	for _, f := range found {
		list = append(list, access.Field(f))
	}
	if err == nil && len(list) == 0 {
		err = &InputError{Field: "R", Problem: fmt.Sprintf("%v has no field that Options.Fields names", row)}
	}
	return list, err
}

// table returns the quoted name of one of Holdfast's own tables.
func (d *DB[Tx]) table(name string) string {
	t := d.dialect.Ident(d.options.Prefix + name)
	if d.schema != "" {
		t = d.dialect.Ident(d.schema) + "." + t
	}
	return t
}

func checkPrefix(prefix string) error {
	ok := len(prefix) <= 32 && (prefix == "" || prefix[0] < '0' || prefix[0] > '9')
	for _, r := range prefix {
		ok = ok && (r == '_' || r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z')
	}
	if !ok {
		return &InputError{Field: "Options.Prefix", Problem: fmt.Sprintf("%.40q: use letters, digits and underscores, at most 32, not beginning with a digit", prefix)}
	}
	return nil
}

// CheckIdent returns an [InputError] if name cannot be the name of a table or column on d's
// engine: it is empty, too long, not UTF-8, or contains a NUL byte. Every other name is valid,
// because Holdfast quotes it. field names the argument in the error.
func (d *DB[Tx]) CheckIdent(field, name string) error {
	return checkIdent(field, name, d.dialect.MaxIdent, false)
}

func checkIdent(field, name string, limit int, emptyOK bool) error {
	switch {
	case name == "" && !emptyOK:
		return &InputError{Field: field, Problem: "a name is missing"}
	case len(name) > limit:
		return &InputError{Field: field, Problem: fmt.Sprintf("%.20q… has %d bytes, the engine takes %d", name, len(name), limit)}
	case !utf8.ValidString(name) || strings.ContainsRune(name, 0):
		return &InputError{Field: field, Problem: fmt.Sprintf("%.40q is not valid UTF-8 without NUL bytes", name)}
	}
	return nil
}
