package dialect

import (
	"context"

	"github.com/holdfast-go/holdfast/internal/core"
)

// Enforced is a table whose updates must change the version of the row.
type Enforced struct {
	// Schema and Name are unquoted, as parameters of catalog queries.
	Schema, Name string
	// Table and Column are quoted. Prefix is the quoted schema with a dot, or empty.
	Table, Prefix, Column string
	// Trigger is the quoted name of the trigger.
	Trigger string
	// UUID: the new version must be a different value. Otherwise it must be the old one plus
	// 1.
	UUID bool
}

// Enforce is the SQL of the triggers that refuse an update which does not change the version
// of the row. They run AFTER UPDATE, so they see the changes of other triggers.
type Enforce struct {
	// Body returns the trigger's text as the catalog stores it.
	Body func(t Enforced) string
	// Install creates the trigger. If Replaces is set, it replaces an existing one. Remove
	// drops the trigger if it exists.
	Replaces bool
	Install  func(t Enforced, body string) []string
	Remove   func(t Enforced) []string
	// Find looks up the trigger. Parameters, unquoted: schema ("" = current), table, trigger.
	// It returns one of the states below and the body.
	Find string
	// BoundBefore and BoundAfter surround the statements where DDL does not roll back. They
	// keep the wait for the table short, because other sessions queue behind it.
	BoundBefore, BoundAfter string
	// Denied describes the missing permission, or returns "" for any other error.
	Denied func(err error) string
}

// Create returns the statements that create the trigger. exists says that one of this name
// exists. A DROP without need could drop the trigger that another process has just created.
func (e Enforce) Create(t Enforced, exists bool) []string {
	statements := e.Install(t, e.Body(t))
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

// The states that Enforce.Find returns.
const (
	TriggerDisabled = iota
	TriggerWorks
	TriggerOther // for other events, with a condition, or similar
)

// Refusal begins the message of the triggers. It contains no name of the user's, because a
// name would need escaping in a string inside a string.
const Refusal = "holdfast: the update did not"

// Message is the message of the triggers, to be placed in single quotes.
func (t Enforced) Message() string {
	if t.UUID {
		return Refusal + " give the row another version"
	}
	return Refusal + " move the version of the row by one"
}

// Differs returns the condition under which an update is refused. isNot is an operator that
// compares two values which may be NULL, and equals is its opposite.
func (t Enforced) Differs(isNot, equals string) string {
	if t.UUID {
		return "NEW." + t.Column + equals + "OLD." + t.Column
	}
	return "NEW." + t.Column + isNot + "OLD." + t.Column + " + 1"
}
