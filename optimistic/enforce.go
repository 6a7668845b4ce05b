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

// Enforce makes the database itself refuse every UPDATE of the table, from any
// client, that does not move each row's version by one (a UUID: to another
// UUID). It puts a trigger on the table, and on PostgreSQL a function for it,
// both named holdfast_version_ and 16 digits. Where the trigger is there and
// works nothing is done, so each start of a program may call it.
//
// A refused update is an error of the client's driver; [AsConflict] makes it an
// [ErrConflict], and [Retry] does so with what its function returns.
//
// It is DDL: it runs on connections of its own, never in a transaction of the
// caller's, and takes the user that may make triggers. It waits at most a second
// at a time for the table, ten times, and writers wait behind it meanwhile. On
// MySQL there is a moment without a trigger where one that does not work is
// replaced.
//
// What it does not see: a row that is deleted and inserted again (REPLACE,
// INSERT OR REPLACE, TRUNCATE); on MySQL and MariaDB the cascade of a foreign
// key; on PostgreSQL a row that moves to another partition, and a session with
// session_replication_role = replica; and whoever may drop the trigger, which
// [Table.CheckEnforced] finds.
//
// Errors: [ErrNotEnforced] ([*EnforceError]) when a permission is missing, and
// which; [holdfast.ErrRetry] when the table was locked all the time; ctx's, the
// driver's.
func (t *Table[R, Tx]) Enforce(ctx context.Context) error {
	return t.ddl(ctx, func(bool) ([]string, error) {
		err := t.CheckEnforced(ctx)
		var found *EnforceError
		if !errors.As(err, &found) {
			return nil, err
		}
		return t.install(found.other), nil
	})
}

// Unenforce removes what [Table.Enforce] put there, or does nothing.
//
// Errors: as of [Table.Enforce].
func (t *Table[R, Tx]) Unenforce(ctx context.Context) error {
	return t.ddl(ctx, func(done bool) ([]string, error) {
		if done {
			return nil, nil
		}
		return t.access.Dialect.Enforce.Remove(t.enforced()), nil
	})
}

// EnforceSQL are the statements of [Table.Enforce], for an administrator, or for
// a migration of the program's own.
func (t *Table[R, Tx]) EnforceSQL() []string { return t.install(true) }

// install makes the trigger, where there may be another. What is dropped without
// need might be the one that somebody else has made just now.
func (t *Table[R, Tx]) install(other bool) []string {
	sql, e := t.access.Dialect.Enforce, t.enforced()
	statements := sql.Install(e, sql.Body(e))
	if other && !sql.Replaces {
		statements = append(sql.Remove(e), statements...)
	}
	return statements
}

// CheckEnforced tells whether the trigger of [Table.Enforce] is there, enabled,
// and the one that this version of the package makes. It reads the catalog, in
// which MySQL and MariaDB show triggers only to users with the privilege TRIGGER.
//
// Errors: [ErrNotEnforced] ([*EnforceError]) says what was found; ctx's, the
// driver's.
func (t *Table[R, Tx]) CheckEnforced(ctx context.Context) error {
	d := t.access.Dialect
	var state int
	var body string
	e := t.enforced()
	found, err := d.Compile("enforce.find", d.Enforce.Find).QueryRow(ctx, t.access.Pool, []any{&state, &body}, e.Schema, e.Name, t.trigger())
	var problem string
	switch {
	case err != nil:
		return fmt.Errorf("optimistic: table %s: reading about its triggers: %w", t.spec.Table, err)
	case !found:
		problem = "there is no trigger, or this user may not see it: call Enforce"
	case state == dialect.TriggerDisabled:
		problem = "the trigger is disabled: call Enforce, or ALTER TABLE … ENABLE TRIGGER"
	case state != dialect.TriggerWorks || body != d.Enforce.Body(e):
		problem = "the trigger is another than this version of Holdfast makes: call Enforce to replace it"
	default:
		return nil
	}
	return &EnforceError{Table: t.spec.Table, Trigger: t.trigger(), Problem: problem, other: found}
}

// trigger is short enough for every engine, whatever the table is called.
func (t *Table[R, Tx]) trigger() string {
	sum := sha256.Sum256([]byte(t.spec.Table))
	return "holdfast_version_" + hex.EncodeToString(sum[:8])
}

func (t *Table[R, Tx]) enforced() dialect.Enforced {
	d := t.access.Dialect
	e := dialect.Enforced{
		Schema: t.spec.Schema, Name: t.spec.Table, Table: t.table.Quoted, Prefix: "",
		Column: d.Ident(t.spec.Version), Trigger: d.Ident(t.trigger()), UUID: t.version.uuid,
	}
	if e.Schema != "" {
		e.Prefix = d.Ident(e.Schema) + "."
	}
	return e
}

// ddl runs what next says, until that is nothing; next is told whether what it
// said before was done.
func (t *Table[R, Tx]) ddl(ctx context.Context, next func(done bool) ([]string, error)) error {
	pause := core.NewBackoff()
	var err error
	for n := 1; ; n++ {
		statements, end := next(n > 1 && err == nil)
		if len(statements) == 0 {
			return end
		}
		// Two that make the same trigger at once get errors of many kinds, and
		// the next look finds it there.
		switch again := err == nil || t.db.Retryable(err); {
		case again && n > holdfast.DefaultAttempts:
			return &holdfast.RetryError{Attempts: n - 1, Err: cause(err)}
		case !again && n > 3:
			return fmt.Errorf("optimistic: table %s: making or dropping its trigger: %w", t.spec.Table, err)
		}
		if err = t.run(ctx, statements); err == nil {
			continue
		}
		if ctx.Err() != nil {
			return fmt.Errorf("%w: %w", context.Cause(ctx), err)
		}
		if problem := t.access.Dialect.Enforce.Denied(err); problem != "" {
			return &EnforceError{Table: t.spec.Table, Trigger: t.trigger(), Problem: problem, Err: err}
		}
		if err := pause.Sleep(ctx); err != nil {
			return err
		}
	}
}

// run runs DDL: in a transaction where it can be in one.
func (t *Table[R, Tx]) run(ctx context.Context, statements []string) error {
	all := func(q core.Querier) error {
		for _, text := range statements {
			if _, err := (core.Stmt{Name: "enforce", Text: text}).Exec(ctx, q); err != nil {
				return err
			}
		}
		return nil
	}
	d := t.access.Dialect
	if d.Capabilities.TransactionalDDL {
		return t.db.InTx(ctx, holdfast.TxOptions{Attempts: 1}, func(_ context.Context, tx Tx) error {
			q, err := t.access.Join(tx)
			if err != nil {
				return err
			}
			return all(q)
		})
	}
	return t.access.OnConn(ctx, d.Enforce.BoundBefore, func(q core.Querier) error {
		if err := all(q); err != nil {
			return err
		}
		_, err := (core.Stmt{Name: "enforce", Text: d.Enforce.BoundAfter}).Exec(ctx, q)
		return err
	})
}

// AsConflict makes err an [ErrConflict] ([*RefusedError]) where it is that of an
// UPDATE which a trigger of [Table.Enforce] refused, and returns every other
// error as it is. It is for statements that the program runs by itself.
func AsConflict[Tx any](db *holdfast.DB[Tx], err error) error {
	if err == nil || errors.Is(err, ErrConflict) || db.Access().Dialect.Classify(err) != dialect.Refused {
		return err
	}
	return &RefusedError{Err: err}
}
