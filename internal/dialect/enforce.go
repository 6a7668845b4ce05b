package dialect

import (
	"context"
	"strings"

	"github.com/holdfast-go/holdfast/internal/core"
)

// Enforce is the SQL of the triggers that refuse writes of any client, and of the procedure that
// may be the only way to write.
type Enforce struct {
	// Versions returns the triggers that refuse an update which does not change the version of
	// the row. Fence returns those that refuse a write without the token of a live term.
	Versions func(v Versioned) []Trigger
	Fence    func(f FencedTable) []Trigger
	// Install creates a trigger. If Replaces is set, it replaces an existing one. Remove drops
	// the trigger if it exists.
	Replaces bool
	Install  func(t Trigger) []string
	Remove   func(t Trigger) []string
	// Find looks up a trigger. Parameters, unquoted: schema ("" = current), table, trigger.
	// It returns 1 if the trigger is enabled and 0 otherwise, its shape, and its body. Shape
	// returns what Find should return as the shape.
	Find  string
	Shape func(t Trigger) string
	// Procedure returns the statements of a procedure for versioned updates. Nil means that the
	// engine has no procedures. Types returns the type of each column, for its parameters: column,
	// type. Parameters: schema ("" = current), table.
	Procedure func(p Procedure) []string
	Types     string
	// BoundBefore and BoundAfter surround the statements where DDL does not roll back. They
	// keep the wait for the table short, because other sessions queue behind it.
	BoundBefore, BoundAfter string
	// Denied describes the missing permission, or returns "" for any other error.
	Denied func(err error) string
}

// Trigger is a row trigger on one of the user's tables. It runs AFTER the write, so it sees the
// changes of other triggers. The names are not quoted.
type Trigger struct {
	// Schema "" is the session's.
	Schema, Table, Name string
	// Insert, Update and Delete are its events. Only PostgreSQL has triggers for several.
	Insert, Update, Delete bool
	// Body is its text as the catalog stores it.
	Body string
	// Definer: on PostgreSQL, the function runs with the rights of its owner. On MySQL and
	// MariaDB, each trigger does.
	Definer bool
}

// Events returns the events as SQL, joined by OR.
func (t Trigger) Events() string {
	var events []string
	for i, on := range []bool{t.Insert, t.Update, t.Delete} {
		if on {
			events = append(events, []string{"INSERT", "UPDATE", "DELETE"}[i])
		}
	}
	return strings.Join(events, " OR ")
}

// Versioned is a table whose updates must change the version of the row.
type Versioned struct {
	Trigger
	// Column is not quoted.
	Column string
	// UUID: the new version must be a different value. Otherwise it must be the old one plus
	// 1.
	UUID bool
}

// QuoteIdent quotes an identifier with q.
func QuoteIdent(q, name string) string { return q + strings.ReplaceAll(name, q, q+q) + q }

// Create returns the statements that create a trigger. exists says that one of this name
// exists. A DROP without need could drop the trigger that another process has just created.
func (e Enforce) Create(t Trigger, exists bool) []string {
	statements := e.Install(t)
	if exists && !e.Replaces {
		statements = append(e.Remove(t), statements...)
	}
	return statements
}

// RunDDL runs statements of Enforce: in one transaction if the engine rolls DDL back, and
// otherwise on one connection, where each commits on its own. inTx runs a function in a
// transaction, once; onConn is that of access.Handle.
func (d *Dialect) RunDDL(ctx context.Context, statements []string, inTx func(f func(q core.Querier) error) error,
	onConn func(ctx context.Context, before string, f func(q core.Querier) error) error,
) error {
	all := func(q core.Querier) error {
		for _, text := range statements {
			if _, err := (core.Stmt{Name: "enforce", Text: text}).Exec(ctx, q); err != nil {
				return err
			}
		}
		return nil
	}
	if d.Capabilities.TransactionalDDL {
		return inTx(all)
	}
	return onConn(ctx, d.Enforce.BoundBefore, func(q core.Querier) error {
		if err := all(q); err != nil {
			return err
		}
		_, err := (core.Stmt{Name: "enforce", Text: d.Enforce.BoundAfter}).Exec(ctx, q)
		return err
	})
}

// Refusal begins the message of the triggers of versions. It contains no name of the user's,
// because a name would need escaping in a string inside a string.
const Refusal = "holdfast: the update did not"

// Message is the message of the trigger, to be placed in single quotes.
func (v Versioned) Message() string {
	if v.UUID {
		return Refusal + " give the row another version"
	}
	return Refusal + " move the version of the row by one"
}

// Differs returns the condition under which an update is refused. column is quoted, isNot is an
// operator that compares two values which may be NULL, and equals is its opposite.
func (v Versioned) Differs(column, isNot, equals string) string {
	if v.UUID {
		return "NEW." + column + equals + "OLD." + column
	}
	return "NEW." + column + isNot + "OLD." + column + " + 1"
}
