package fence

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"unicode/utf8"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/access"
	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/dialect"
	"github.com/holdfast-go/holdfast/internal/enforce"
	"github.com/holdfast-go/holdfast/internal/lockname"
	"github.com/holdfast-go/holdfast/internal/rowmap"
)

const defaultToken = "fence"

// Spec names a table of the program's own, and the lease that protects each of its rows. A table
// has one fence.
type Spec struct {
	// Table is the name of the table. Schema is its schema (on MySQL and MariaDB its
	// database). Schema "" is the schema that Open found.
	Table, Schema string
	// Token is the column that holds the token of the term that wrote the row last: BIGINT NOT
	// NULL. Give it DEFAULT 0. Default: "fence".
	Token string
	// Key is the key of a row's lease, as the program gives it to Acquire. A column in braces
	// stands for its value: "order/{id}". {{ is a brace. The columns must be NOT NULL, and hold
	// integers, text, bytes or a UUID. A number or a UUID stands for its text as the database
	// prints it. Without a column all rows belong to one lease.
	Key string
	// Owner is the owner of the key (see [sqllock.Locker.For]), in the same form. Required, unless the DB is
	// SingleOwner.
	Owner string
	// UnfencedInserts lets a row with the token 0 be inserted by programs that hold no lease.
	// Then a row that is deleted and inserted again passes as well. Default: false.
	UnfencedInserts bool
	// UnfencedDeletes lets any program delete rows. Default: false. Call Unenforce before Enforce
	// after it was changed.
	UnfencedDeletes bool
}

// Table is a table whose writes the database fences. It is safe for concurrent use and needs no
// closing.
type Table[Tx any] struct {
	db     *holdfast.DB[Tx]
	access access.Access[Tx]
	spec   Spec
	schema string // as the catalog knows it
	fenced dialect.FencedTable
}

// New checks that the table can be fenced. It changes nothing.
//
// Errors: [holdfast.ErrInvalid] says what is refused and what to declare; [holdfast.ErrSchema] when
// Holdfast's tables are missing; [holdfast.ErrUnsupported] when the table's kind or storage engine
// cannot roll back; the error of ctx; the driver's.
func New[Tx any](ctx context.Context, db *holdfast.DB[Tx], spec Spec) (*Table[Tx], error) {
	if db == nil {
		return nil, invalid("db", "is nil")
	}
	if err := db.CheckSchema(ctx); err != nil {
		return nil, err
	}
	spec.Token = cmp.Or(spec.Token, defaultToken)
	t := &Table[Tx]{db: db, access: access.Of(db), spec: spec}
	if err := t.access.Owners.Named("Spec.Owner", spec.Owner != "", "give it as the program gives it to For, such as {merchant}"); err != nil {
		return nil, err
	}
	table, err := rowmap.Describe(ctx, t.access.Catalog, spec.Schema, spec.Table)
	if err != nil {
		return nil, err
	}
	t.schema = table.Schema
	t.fenced = dialect.FencedTable{
		Token: spec.Token, Kind: byte(lockname.Lease), Locks: t.access.Table("locks"),
		UnfencedInserts: spec.UnfencedInserts, UnfencedDeletes: spec.UnfencedDeletes,
	}
	if err := t.checkToken(table); err != nil {
		return nil, err
	}
	if t.fenced.Key, err = parts(table, "Spec.Key", spec.Key, lockname.MaxKey); err != nil {
		return nil, err
	}
	if len(t.fenced.Key) == 0 {
		return nil, invalid("Spec.Key", "is empty: give the key as the program gives it to Acquire, such as order/{id}")
	}
	t.fenced.Owner, err = parts(table, "Spec.Owner", spec.Owner, core.MaxName)
	return t, err
}

func (t *Table[Tx]) checkToken(table *rowmap.Table) error {
	c, err := table.Column("Spec.Token", t.spec.Token)
	switch {
	case err != nil:
		return err
	case t.access.Dialect.Rows.Version(strings.ToLower(c.Type)).Last < math.MaxInt64:
		return invalid("Spec.Token", fmt.Sprintf("column %q is a %s, which cannot hold every token: use BIGINT", c.Name, c.Type))
	case !c.NotNull:
		return invalid("Spec.Token", fmt.Sprintf("column %q allows NULL: declare it NOT NULL DEFAULT 0", c.Name))
	}
	return nil
}

// parts splits a pattern into texts and columns.
func parts(table *rowmap.Table, field, pattern string, most int) (all []dialect.NamePart, err error) {
	if len(pattern) > most || !utf8.ValidString(pattern) || strings.ContainsRune(pattern, 0) {
		return nil, invalid(field, fmt.Sprintf("%.40q is not UTF-8 of at most %d bytes without NUL bytes", pattern, most))
	}
	text := ""
	for rest := pattern; rest != ""; {
		switch {
		case strings.HasPrefix(rest, "{{") || strings.HasPrefix(rest, "}}"):
			text, rest = text+rest[:1], rest[2:]
		case rest[0] == '}':
			return nil, invalid(field, "has a } without a {: write }} for a brace")
		case rest[0] == '{':
			name, after, closed := strings.Cut(rest[1:], "}")
			if !closed {
				return nil, invalid(field, "has a { without a }: write {{ for a brace")
			}
			part, err := column(table, field, name)
			if err != nil {
				return nil, err
			}
			if text != "" {
				all = append(all, dialect.NamePart{Text: text})
			}
			all, text, rest = append(all, part), "", after
		default:
			text, rest = text+rest[:1], rest[1:]
		}
	}
	if text != "" {
		all = append(all, dialect.NamePart{Text: text})
	}
	return all, nil
}

// column refuses a column whose value has no single text.
func column(table *rowmap.Table, field, name string) (p dialect.NamePart, err error) {
	c, err := table.Column(field, name)
	if err != nil {
		return p, err
	}
	if !c.NotNull {
		return p, invalid(field, fmt.Sprintf("column %q allows NULL, and then a row has no lock: declare it NOT NULL", name))
	}
	typ, _, _ := strings.Cut(strings.ToLower(c.Type), "(")
	switch strings.TrimSpace(typ) {
	case "tinyint", "smallint", "mediumint", "int", "integer", "bigint", "int2", "int4", "int8",
		"char", "varchar", "bpchar", "tinytext", "text", "mediumtext", "longtext", "uuid":
		return dialect.NamePart{Column: name}, nil
	case "binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob", "bytea":
		return dialect.NamePart{Column: name, Bytes: true}, nil
	}
	return p, invalid(field, fmt.Sprintf("column %q is a %s: a part of a key is an integer, text, bytes or a UUID", name, c.Type))
}

// Enforce creates the triggers, named holdfast_fence_ and 16 digits, and on PostgreSQL a function
// of that name, unless they exist and work. So a program may call it at each start.
//
// A refused write is an error of the client's driver: SQLSTATE HF002 on PostgreSQL, error 30101
// (SQLSTATE 45000) on MySQL and MariaDB, code 1811 on SQLite, each with a message that begins
// "holdfast fence:". [AsLost] makes it a [sqllock.ErrLost].
//
// The triggers run with the rights of the user who calls Enforce, or who runs EnforceSQL: on
// PostgreSQL the function is SECURITY DEFINER with a fixed search_path. That user needs the
// privilege to create triggers, and SELECT and UPDATE on Holdfast's table of locks (MySQL and
// MariaDB: SELECT). The writers need no privilege on Holdfast's tables.
//
// Enforce is DDL. It runs on separate connections, never in a transaction of the caller. It waits
// for the table up to ten times, a second each time, and writers wait behind it during that time.
// While it replaces a trigger on MySQL, the table has none for a moment.
//
// Errors: [ErrNotEnforced] ([*EnforceError]) names a missing privilege, or an engine that cannot
// enforce it; [holdfast.ErrRetry] when the table was locked all the time; the error of ctx; the
// driver's.
func (t *Table[Tx]) Enforce(ctx context.Context) error {
	if err := t.able(); err != nil {
		return err
	}
	return t.explain(t.triggers().Install(ctx))
}

// Unenforce removes the triggers of [Table.Enforce], if they exist.
//
// Errors: those of [Table.Enforce].
func (t *Table[Tx]) Unenforce(ctx context.Context) error {
	if err := t.able(); err != nil {
		return err
	}
	all := t.triggers()
	fenced := t.fenced
	fenced.UnfencedDeletes = false // Enforce may have been called with another Spec
	all.Each = t.with(fenced, t.schema)
	return t.explain(all.Remove(ctx))
}

// EnforceSQL returns the statements of [Table.Enforce], for an administrator or for a
// migration of the program's own. They replace triggers that exist.
func (t *Table[Tx]) EnforceSQL() []string {
	return enforce.SQL(t.access.Dialect, t.with(t.fenced, t.spec.Schema))
}

// CheckEnforced checks that the triggers of [Table.Enforce] exist, are enabled, and are those that
// this version of the package creates for this Spec. It reads the catalog, in which
// MySQL and MariaDB show triggers only to users with the privilege TRIGGER.
//
// Errors: [ErrNotEnforced] ([*EnforceError]) says what was found; the error of ctx; the
// driver's.
func (t *Table[Tx]) CheckEnforced(ctx context.Context) error {
	if err := t.able(); err != nil {
		return err
	}
	return t.explain(t.triggers().Check(ctx))
}

// able returns an error where no trigger can enforce the fence.
func (t *Table[Tx]) able() error {
	problem := ""
	switch c := t.access.Dialect.Capabilities; {
	case !c.Triggers:
		problem = string(t.db.Engine()) + " has no triggers (Capabilities.Triggers): call Guard in each transaction"
	case c.MultiPrimary:
		problem = "a lock of a trigger does not reach the other nodes that accept writes (Capabilities.MultiPrimary): call Guard in each transaction, or open with Options.SingleWriter if one node gets all writes"
	default:
		return nil
	}
	return &EnforceError{Table: t.spec.Table, Trigger: t.name(), Problem: problem}
}

func (t *Table[Tx]) name() string { return enforce.Name("fence", t.spec.Table) }

// with returns the triggers in a schema; "" leaves the schema to the session.
func (t *Table[Tx]) with(f dialect.FencedTable, schema string) []dialect.Trigger {
	f.Trigger = dialect.Trigger{Schema: schema, Table: t.spec.Table, Name: t.name()}
	return t.access.Dialect.Enforce.Fence(f)
}

func (t *Table[Tx]) triggers() enforce.Triggers[Tx] {
	return enforce.Triggers[Tx]{Access: t.access, Retryable: t.db.Retryable, Each: t.with(t.fenced, t.schema)}
}

// explain makes an error of the triggers one of this package.
func (t *Table[Tx]) explain(err error) error {
	var problem *enforce.ProblemError
	var locked *enforce.LockedError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &problem):
		return &EnforceError{Table: t.spec.Table, Trigger: problem.Trigger, Problem: problem.Text, Err: problem.Err}
	case errors.As(err, &locked):
		return &holdfast.RetryError{Attempts: enforce.Attempts, Err: locked.Err}
	}
	return fmt.Errorf("fence: table %s: %w", t.spec.Table, err)
}
