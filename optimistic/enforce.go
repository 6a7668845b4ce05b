package optimistic

import (
	"context"
	"errors"
	"fmt"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/access"
	"github.com/holdfast-go/holdfast/internal/dialect"
	"github.com/holdfast-go/holdfast/internal/enforce"
)

// Enforce makes the database refuse every UPDATE of the table, from any client, that
// does not increase each row's version by one (a UUID: that keeps the UUID). It creates
// a trigger on the table, and on PostgreSQL a function for it, both named
// holdfast_version_ and 16 digits. If the trigger exists and works, Enforce does
// nothing, so a program may call it at each start.
//
// A refused update is an error of the client's driver; [AsConflict] makes it an
// [ErrConflict], and [Retry] does so with what its function returns.
//
// Enforce is DDL. It runs on separate connections, never in a transaction of the caller,
// and needs the privilege to create triggers. It waits for the table up to ten times, a second
// each time, and writers wait behind it during that time. While it replaces a trigger on MySQL,
// the table has none for a moment.
//
// The trigger does not see: a row that is deleted and inserted again (REPLACE, INSERT
// OR REPLACE, TRUNCATE); the cascade of a foreign key on MySQL and MariaDB; a row that
// moves to another partition, and a session with session_replication_role = replica, on
// PostgreSQL. A user with the privilege can drop the trigger: [Table.CheckEnforced]
// finds that.
//
// Errors: [ErrNotEnforced] ([*EnforceError]) names a missing privilege;
// [holdfast.ErrRetry] when the table was locked all the time; the error of ctx; the
// driver's.
func (t *Table[R, Tx]) Enforce(ctx context.Context) error {
	if err := t.noTriggers(); err != nil {
		return err
	}
	return t.explain(t.triggers().Install(ctx))
}

// Unenforce removes the trigger of [Table.Enforce], if it exists.
//
// Errors: those of [Table.Enforce].
func (t *Table[R, Tx]) Unenforce(ctx context.Context) error {
	if err := t.noTriggers(); err != nil {
		return err
	}
	return t.explain(t.triggers().Remove(ctx))
}

// EnforceSQL returns the statements of [Table.Enforce], for an administrator or for a
// migration of the program's own.
func (t *Table[R, Tx]) EnforceSQL() []string {
	return enforce.SQL(t.work.Access.Dialect, t.enforced(t.spec.Schema))
}

// CheckEnforced checks that the trigger of [Table.Enforce] exists, is enabled, and is
// the one that this version of the package creates. It reads the catalog, in which
// MySQL and MariaDB show triggers only to users with the privilege TRIGGER.
//
// Errors: [ErrNotEnforced] ([*EnforceError]) says what was found; the error of ctx; the
// driver's.
func (t *Table[R, Tx]) CheckEnforced(ctx context.Context) error {
	if err := t.noTriggers(); err != nil {
		return err
	}
	return t.explain(t.triggers().Check(ctx))
}

func (t *Table[R, Tx]) noTriggers() error {
	if t.work.Access.Dialect.Capabilities.Triggers {
		return nil
	}
	return &EnforceError{Table: t.spec.Table, Trigger: t.trigger(), Problem: string(t.work.DB.Engine()) + " has no triggers (Capabilities.Triggers): let every program change the table through this package"}
}

func (t *Table[R, Tx]) trigger() string { return enforce.Name("version", t.spec.Table) }

// enforced returns the triggers in a schema; "" leaves the schema to the session.
func (t *Table[R, Tx]) enforced(schema string) []dialect.Trigger {
	return t.work.Access.Dialect.Enforce.Versions(dialect.Versioned{
		Trigger: dialect.Trigger{Schema: schema, Table: t.spec.Table, Name: t.trigger()},
		Column:  t.column, UUID: t.version.uuid,
	})
}

func (t *Table[R, Tx]) triggers() enforce.Triggers[Tx] {
	return enforce.Triggers[Tx]{Access: t.work.Access, Retryable: t.work.DB.Retryable, Each: t.enforced(t.table.Schema)}
}

// explain makes an error of the triggers one of this package.
func (t *Table[R, Tx]) explain(err error) error {
	var problem *enforce.ProblemError
	var locked *enforce.LockedError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &problem):
		return &EnforceError{Table: t.spec.Table, Trigger: problem.Trigger, Problem: problem.Text, Err: problem.Err}
	case errors.As(err, &locked):
		return &holdfast.RetryError{Attempts: enforce.Attempts, Err: cause(locked.Err)}
	}
	return fmt.Errorf("optimistic: table %s: %w", t.spec.Table, err)
}

// AsConflict turns the error of an UPDATE that a trigger of [Table.Enforce] refused into
// an [ErrConflict] ([*RefusedError]), and returns every other error unchanged. Use it
// for statements of the program's own.
func AsConflict[Tx any](db *holdfast.DB[Tx], err error) error {
	if err == nil || errors.Is(err, ErrConflict) || access.Of(db).Dialect.Classify(err) != dialect.Refused {
		return err
	}
	return &RefusedError{Err: err}
}
