package optimistic

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/dialect"
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
	if !t.work.Access.Dialect.Capabilities.Triggers {
		return t.noTriggers()
	}
	return t.ddl(ctx, func(bool) ([]string, error) {
		err := t.CheckEnforced(ctx)
		var found *EnforceError
		if !errors.As(err, &found) {
			return nil, err
		}
		return t.work.Access.Dialect.Enforce.Create(t.enforced(), found.other), nil
	})
}

// Unenforce removes the trigger of [Table.Enforce], if it exists.
//
// Errors: those of [Table.Enforce].
func (t *Table[R, Tx]) Unenforce(ctx context.Context) error {
	return t.ddl(ctx, func(done bool) ([]string, error) {
		if done {
			return nil, nil
		}
		return t.work.Access.Dialect.Enforce.Remove(t.enforced()), nil
	})
}

// EnforceSQL returns the statements of [Table.Enforce], for an administrator or for a
// migration of the program's own.
func (t *Table[R, Tx]) EnforceSQL() []string {
	return t.work.Access.Dialect.Enforce.Create(t.enforcedIn(t.spec.Schema), true)
}

// CheckEnforced checks that the trigger of [Table.Enforce] exists, is enabled, and is
// the one that this version of the package creates. It reads the catalog, in which
// MySQL and MariaDB show triggers only to users with the privilege TRIGGER.
//
// Errors: [ErrNotEnforced] ([*EnforceError]) says what was found; the error of ctx; the
// driver's.
func (t *Table[R, Tx]) CheckEnforced(ctx context.Context) error {
	d := t.work.Access.Dialect
	if !d.Capabilities.Triggers {
		return t.noTriggers()
	}
	var state int
	var body string
	e := t.enforced()
	found, err := d.Compile("enforce.find", d.Enforce.Find).QueryRow(ctx, t.work.Access.Pool, []any{&state, &body}, e.Schema, e.Name, t.trigger())
	var problem string
	switch {
	case err != nil:
		return fmt.Errorf("optimistic: table %s: reading about its triggers: %w", t.spec.Table, err)
	case !found:
		problem = "the trigger does not exist, or this user may not see it: call Enforce"
	case state == dialect.TriggerDisabled:
		problem = "the trigger is disabled: call Enforce, or ALTER TABLE … ENABLE TRIGGER"
	case state != dialect.TriggerWorks || body != d.Enforce.Body(e):
		problem = "the trigger is not the one that this version of Holdfast creates: call Enforce to replace it"
	default:
		return nil
	}
	return &EnforceError{Table: t.spec.Table, Trigger: t.trigger(), Problem: problem, other: found}
}

func (t *Table[R, Tx]) noTriggers() error {
	return &EnforceError{Table: t.spec.Table, Trigger: t.trigger(), Problem: string(t.work.DB.Engine()) + " has no triggers (Capabilities.Triggers): let every program change the table through this package"}
}

// trigger is the trigger's name, short enough for every engine.
func (t *Table[R, Tx]) trigger() string {
	sum := sha256.Sum256([]byte(t.spec.Table))
	return "holdfast_version_" + hex.EncodeToString(sum[:8])
}

func (t *Table[R, Tx]) enforced() dialect.Enforced { return t.enforcedIn(t.table.Schema) }

// enforcedIn describes the table in a schema; "" leaves the schema to the session.
func (t *Table[R, Tx]) enforcedIn(schema string) dialect.Enforced {
	d := t.work.Access.Dialect
	e := dialect.Enforced{
		Schema: schema, Name: t.spec.Table, Column: d.Ident(t.column), Trigger: d.Ident(t.trigger()), UUID: t.version.uuid,
	}
	if schema != "" {
		e.Prefix = d.Ident(schema) + "."
	}
	e.Table = e.Prefix + d.Ident(e.Name)
	return e
}

// ddl runs the statements that next returns, until it returns none. done tells next
// whether its last statements succeeded.
func (t *Table[R, Tx]) ddl(ctx context.Context, next func(done bool) ([]string, error)) error {
	pause := core.NewBackoff()
	var err error
	for n := 1; ; n++ {
		statements, end := next(n > 1 && err == nil)
		if len(statements) == 0 {
			return end
		}
		// Two processes that create the same trigger at once get errors of many
		// kinds. The next check finds the trigger.
		switch again := err == nil || t.work.DB.Retryable(err); {
		case again && n > holdfast.DefaultAttempts:
			return &holdfast.RetryError{Attempts: n - 1, Err: cause(err)}
		case !again && n > 3:
			return fmt.Errorf("optimistic: table %s: creating or dropping its trigger: %w", t.spec.Table, err)
		}
		if err = t.run(ctx, statements); err == nil {
			continue
		}
		if ctx.Err() != nil {
			return fmt.Errorf("%w: %w", context.Cause(ctx), err)
		}
		if problem := t.work.Access.Dialect.Enforce.Denied(err); problem != "" {
			return &EnforceError{Table: t.spec.Table, Trigger: t.trigger(), Problem: problem, Err: err}
		}
		if err := pause.Sleep(ctx); err != nil {
			return err
		}
	}
}

// run runs DDL.
func (t *Table[R, Tx]) run(ctx context.Context, statements []string) error {
	inTx := func(f func(q core.Querier) error) error {
		return t.work.DB.InTx(ctx, func(_ context.Context, tx Tx) error {
			q, err := t.work.Access.Join(tx)
			if err != nil {
				return err
			}
			return f(q)
		}, holdfast.TxOptions{Attempts: 1})
	}
	return t.work.Access.Dialect.RunDDL(ctx, statements, inTx, t.work.Access.OnConn)
}

// AsConflict turns the error of an UPDATE that a trigger of [Table.Enforce] refused into
// an [ErrConflict] ([*RefusedError]), and returns every other error unchanged. Use it
// for statements of the program's own.
func AsConflict[Tx any](db *holdfast.DB[Tx], err error) error {
	if err == nil || errors.Is(err, ErrConflict) || db.Access().Dialect.Classify(err) != dialect.Refused {
		return err
	}
	return &RefusedError{Err: err}
}
