package optimistic

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/access"
	"github.com/holdfast-go/holdfast/internal/test/conformance"
	"github.com/holdfast-go/holdfast/internal/test/dbtest"
	"github.com/holdfast-go/holdfast/optimistic"
)

// loopInOneSnapshotNeverEnds runs a compare-and-swap loop within one transaction. Under
// REPEATABLE READ on MySQL and MariaDB it reads its old snapshot forever. Retry uses a new
// transaction each time.
func loopInOneSnapshotNeverEnds[Tx any](e *env[Tx]) {
	accounts := e.Accounts("a")
	level := sql.LevelRepeatableRead
	if e.Engine == dbtest.SQLite {
		level = sql.LevelDefault // each transaction reads from one snapshot
	}
	// The naive form.
	version := func(tx Tx) (v int64) {
		q, _ := access.Of(e.DB).Join(tx)
		rows, err := q.Query(e.Ctx, e.Rebind(`SELECT version FROM accounts WHERE account_no = $1`), e.TextKey("a"))
		if err != nil {
			e.Fatal(err)
		}
		defer rows.Close()
		rows.Next()
		if err := rows.Scan(&v); err != nil {
			e.Fatal(err)
		}
		return v
	}
	tx := e.BeginTx(level)
	if v := version(tx); v != 1 {
		e.Errorf("version %d", v)
	}
	if _, err := accounts.Update(e.Ctx, conformance.Account{No: "a", Version: 1}); err != nil {
		e.Fatal(err)
	}
	for range 50 {
		n, err := e.Exec(e.Ctx, tx, `UPDATE accounts SET version = version + 1 WHERE account_no = $1 AND version = $2`, e.TextKey("a"), version(tx))
		if e.StaleWrites() && (err != nil || n != 0) {
			e.Errorf("the naive loop ended: %d rows, %v", n, err)
		}
		if !e.StaleWrites() {
			if !e.DB.Retryable(err) {
				e.Errorf("got %d rows, %v, want the engine to ask for a new transaction", n, err)
			}
			break
		}
	}
	e.EndTx(tx, false)

	runs := 0
	err := optimistic.Retry(e.Ctx, e.DB, func(ctx context.Context, tx Tx) error {
		row, err := accounts.GetTx(ctx, tx, conformance.Account{No: "a"})
		if err != nil {
			return err
		}
		if runs++; runs == 1 {
			if _, err := accounts.Update(e.Ctx, row); err != nil {
				e.Error(err)
			}
		}
		row.Cents = 5
		_, err = accounts.UpdateTx(ctx, tx, row)
		return err
	}, optimistic.RetryOptions{Isolation: level})
	if err != nil || runs != 2 {
		e.Errorf("%v after %d runs", err, runs)
	}
	e.WantAccount(conformance.Account{No: "a", Cents: 5, Version: 4})
}

// conflictsAtEachIsolation uses a transaction whose snapshot hides the current version. It gets
// a conflict or an error that asks for a new transaction, and is rolled back.
func conflictsAtEachIsolation[Tx any](e *env[Tx]) {
	accounts := e.Accounts("a", "b", "d")
	levels := []sql.IsolationLevel{sql.LevelReadCommitted, sql.LevelRepeatableRead, sql.LevelSerializable}
	switch {
	case e.Engine == dbtest.SQLite:
		levels = []sql.IsolationLevel{sql.LevelDefault}
	case e.InnoDB():
		levels = levels[:2] // SERIALIZABLE locks the rows it reads: no other session can write
	}
	for i, level := range levels {
		seen := int64(i + 1)
		for what, write := range map[string]func(tx Tx) error{
			"update": func(tx Tx) error {
				_, err := accounts.UpdateTx(e.Ctx, tx, conformance.Account{No: "a", Version: seen})
				return err
			},
			"delete": func(tx Tx) error { return accounts.DeleteTx(e.Ctx, tx, conformance.Account{No: "b", Version: seen}) },
		} {
			no := map[string]string{"update": "a", "delete": "b"}[what]
			tx := e.BeginTx(level)
			if row, err := accounts.GetTx(e.Ctx, tx, conformance.Account{No: no}); err != nil || row.Version != seen {
				e.Fatalf("%v: %+v, %v", level, row, err)
			}
			if _, err := accounts.Update(e.Ctx, conformance.Account{No: no, Version: seen}); err != nil {
				e.Fatal(err)
			}
			err := write(tx)
			if asked := e.Engine == dbtest.SQLite || !e.StaleWrites() && level != sql.LevelReadCommitted; asked {
				if !errors.Is(err, holdfast.ErrRetry) || !e.DB.Retryable(err) {
					e.Errorf("%s, %v: got %v, want to be asked to begin again", what, level, err)
				}
				var row *optimistic.RowError
				if !errors.As(err, &row) || row.Table != "accounts" || len(row.Key) != 1 || row.Key[0] != no {
					e.Errorf("%s, %v: %v does not name its row (%+v)", what, level, err, row)
				}
			} else {
				wantConflict(e, err, "accounts", fmt.Sprint(seen), fmt.Sprint(seen+1))
			}
			e.WantRolledBack(tx)
		}
	}
	// A row that another session deleted after the snapshot.
	level := levels[len(levels)-1]
	tx := e.BeginTx(level)
	row, err := accounts.GetTx(e.Ctx, tx, conformance.Account{No: "d"})
	if err != nil {
		e.Fatal(err)
	}
	if err := accounts.Delete(e.Ctx, row); err != nil {
		e.Fatal(err)
	}
	if _, err := accounts.UpdateTx(e.Ctx, tx, row); e.StaleWrites() {
		wantNotFound(e, err, "accounts")
	} else if !errors.Is(err, holdfast.ErrRetry) {
		e.Errorf("deleted: %v", err)
	}
	e.WantRolledBack(tx)
}

// severalTablesOrNone checks that one conflict undoes all writes and names its table.
func severalTablesOrNone[Tx any](e *env[Tx]) {
	accounts, other := e.Accounts("a", "b"), e.AccountsIn("others")
	if _, err := other.Insert(e.Ctx, conformance.Account{No: "a"}); err != nil {
		e.Fatal(err)
	}
	write := func(ctx context.Context, tx Tx, last conformance.Account) error {
		for _, no := range []string{"a", "b"} {
			if _, err := accounts.UpdateTx(ctx, tx, conformance.Account{No: no, Cents: 9, Version: 1}); err != nil {
				return err
			}
		}
		_, err := other.UpdateTx(ctx, tx, last)
		return err
	}
	stale := conformance.Account{No: "a", Cents: 9, Version: 3}
	err := e.DB.InTx(e.Ctx, func(ctx context.Context, tx Tx) error { return write(ctx, tx, stale) })
	wantConflict(e, err, "others", "3", "1")
	err = optimistic.Retry(e.Ctx, e.DB, func(ctx context.Context, tx Tx) error { return write(ctx, tx, stale) }, optimistic.RetryOptions{Attempts: 2})
	wantConflict(e, err, "others", "3", "1")
	tx := e.BeginTx(sql.LevelDefault)
	wantConflict(e, write(e.Ctx, tx, stale), "others", "3", "1")
	e.WantRolledBack(tx)
	err = e.DB.InTx(e.Ctx, func(ctx context.Context, tx Tx) error {
		return write(ctx, tx, conformance.Account{No: "none", Version: 1})
	})
	wantNotFound(e, err, "others")
	e.WantAccount(conformance.Account{No: "a", Version: 1})
	e.WantAccount(conformance.Account{No: "b", Version: 1})
	if err := optimistic.Retry(e.Ctx, e.DB, func(ctx context.Context, tx Tx) error {
		return write(ctx, tx, conformance.Account{No: "a", Cents: 9, Version: 1})
	}); err != nil {
		e.Error(err)
	}
	e.WantAccount(conformance.Account{No: "b", Cents: 9, Version: 2})
	if n := e.Int(`SELECT version FROM others`); n != 2 {
		e.Errorf("version %d", n)
	}
}

// swallowedConflictNeverStands ignores a conflict. The naive form checks the row count, ignores
// it and commits the rest. Here the transaction is already rolled back.
func swallowedConflictNeverStands[Tx any](e *env[Tx]) {
	accounts := e.Accounts("a")
	stale := conformance.Account{No: "a", Version: 9}
	naive := e.BeginTx(sql.LevelDefault)
	_, err1 := e.Exec(e.Ctx, naive, `UPDATE accounts SET version = 10 WHERE version = 9`)
	if err := errors.Join(err1, e.Effect(e.Ctx, naive, "naive")); err != nil {
		e.Fatal(err)
	}
	e.EndTx(naive, true)
	e.WantOnce("naive") // although the row was not written

	swallow := func(key string) func(ctx context.Context, tx Tx) error {
		return func(ctx context.Context, tx Tx) error {
			if err := e.Effect(ctx, tx, key); err != nil {
				return err
			}
			_, _ = accounts.UpdateTx(ctx, tx, stale)
			_ = e.Effect(ctx, tx, key)
			return nil
		}
	}
	e.WantLost("InTx", e.DB.InTx(e.Ctx, swallow("intx")), "intx")
	e.WantLost("Retry", optimistic.Retry(e.Ctx, e.DB, swallow("retry")), "retry")
	tx := e.BeginTx(sql.LevelDefault)
	_ = swallow("caller")(e.Ctx, tx)
	e.WantRolledBack(tx)
	if n := e.Effects("caller"); n != 0 {
		e.Errorf("%d effects stand", n)
	}
	// The connections work as new ones do.
	for range 3 {
		row, err := accounts.Get(e.Ctx, stale)
		if err == nil {
			_, err = accounts.Update(e.Ctx, row)
		}
		if err != nil {
			e.Error(err)
		}
	}
}

// triggerThatKeepsTheRow checks that a write which a trigger skips is an error, although the
// version matches.
func triggerThatKeepsTheRow[Tx any](e *env[Tx]) {
	accounts := e.Accounts("a")
	switch e.Engine {
	case dbtest.Postgres:
		e.Must(`CREATE FUNCTION keep() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'`)
		e.Must(`CREATE TRIGGER keep BEFORE UPDATE ON accounts FOR EACH ROW EXECUTE FUNCTION keep()`)
	case dbtest.SQLite:
		e.Must(`CREATE TRIGGER keep BEFORE UPDATE ON accounts BEGIN SELECT RAISE(IGNORE); END`)
	default:
		return // a MySQL trigger cannot skip a row
	}
	_, err := accounts.Update(e.Ctx, conformance.Account{No: "a", Owner: "Ada", Cents: 5, Version: 1})
	wantConflict(e, err, "accounts", "1", "1")
	if !strings.Contains(err.Error(), "trigger") {
		e.Error(err)
	}
	e.WantAccount(conformance.Account{No: "a", Version: 1})
}
