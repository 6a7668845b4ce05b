package operations

import (
	"context"
	"database/sql"
	"errors"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/internal/access"
	"github.com/holdfast-go/holdfast/internal/test/conformance"
	"github.com/holdfast-go/holdfast/internal/test/dbtest"
)

// Lost is the suite of transactions that the engine ends while their function still runs.
func Lost[Tx any](t *testing.T, h conformance.Handle[Tx]) {
	for name, f := range map[string]func(*env[Tx]){
		"SwallowedErrorNeverStands":   swallowedErrorNeverStands[Tx],
		"SwallowedLockTimeout":        swallowedLockTimeout[Tx],
		"SwallowedSnapshotError":      swallowedSnapshotError[Tx],
		"DDLInTheFunction":            ddlInTheFunction[Tx],
		"FunctionEndsTheTransaction":  functionEndsTheTransaction[Tx],
		"FunctionBeginsAnother":       functionBeginsAnother[Tx],
		"FunctionMisbehaves":          functionMisbehaves[Tx],
		"ThreeInsertDeadlockIsHidden": threeInsertDeadlockIsHidden[Tx],
		"SettingsAreRestored":         settingsAreRestored[Tx],
		"InTxRetriesDeadlocks":        inTxRetriesDeadlocks[Tx],
		"LostInRows":                  lostInRows[Tx],
		"SurvivedErrors":              survivedErrors[Tx],
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run(t, h, f)
		})
	}
}

// lose makes the engine end the transaction in which exec runs statements. It returns the error that a careful function would see.
func lose[Tx any](e *env[Tx], exec func(ctx context.Context, query string, args ...any) error) error {
	switch {
	case e.InnoDB():
		return deadlock(e, exec)
	case e.Engine == dbtest.SQLite:
		return interrupted(e, exec)
	}
	return exec(e.Ctx, `INSERT INTO no_such_table VALUES (1)`)
}

// interrupted cancels a write while it runs, by which SQLite rolls the transaction back. On a busy machine a write
// may be cancelled before it runs: the transaction has its lock then, and another one is cancelled later.
func interrupted[Tx any](e *env[Tx], exec func(ctx context.Context, query string, args ...any) error) error {
	const write = `UPDATE pair SET n = n`
	if err := exec(e.Ctx, write); err != nil {
		return err
	}
	for bound := 100 * time.Millisecond; ; bound *= 2 {
		ctx, cancel := context.WithTimeout(e.Ctx, bound)
		err := exec(ctx, `INSERT INTO effects (k, who) WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x+1 FROM c) SELECT x'00', 'endless' FROM c`)
		cancel()
		if _, held := e.SQL.ExecContext(e.Ctx, write); held == nil || e.Ctx.Err() != nil {
			return err
		}
	}
}

// deadlock makes the transaction the victim of a deadlock (1213): InnoDB picks the transaction
// that changed fewer rows.
func deadlock[Tx any](e *env[Tx], exec func(ctx context.Context, query string, args ...any) error) error {
	other, err := e.SQL.BeginTx(e.Ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = other.Rollback() }()
	for range 30 {
		if _, err := other.Exec(`INSERT INTO heavy VALUES (1)`); err != nil {
			return err
		}
	}
	if _, err := other.Exec(`UPDATE pair SET n = n + 1 WHERE id = 2`); err != nil {
		return err
	}
	if err := exec(e.Ctx, `UPDATE pair SET n = n + 1 WHERE id = 1`); err != nil {
		return err
	}
	waiting := make(chan error, 1)
	go func() {
		_, err := other.Exec(`UPDATE pair SET n = n + 1 WHERE id = 1`)
		waiting <- err
	}()
	time.Sleep(100 * time.Millisecond)
	err = exec(e.Ctx, `UPDATE pair SET n = n + 1 WHERE id = 2`)
	if e2 := <-waiting; e2 != nil {
		return nil // InnoDB picked the other transaction
	}
	return err
}

func (e *env[Tx]) pairs() {
	e.Must(`CREATE TABLE pair (id INT PRIMARY KEY, n INT NOT NULL)`)
	e.Must(`INSERT INTO pair VALUES (1, 0), (2, 0)`)
	e.Must(`CREATE TABLE heavy (n INT)`)
}

// swallowedErrorNeverStands ignores an error that ended the transaction: 1213, or a cancelled
// statement on SQLite. The connection would then commit each later statement alone. No effect
// may remain without its claim.
func swallowedErrorNeverStands[Tx any](e *env[Tx]) {
	e.pairs()
	// The naive form loses the claim, keeps the effect, and its Commit returns nil.
	naive, err := e.SQL.BeginTx(e.Ctx, nil)
	if err != nil {
		e.Fatal(err)
	}
	run := func(ctx context.Context, query string, args ...any) error {
		_, err := naive.ExecContext(ctx, e.Rebind(query), args...)
		return err
	}
	if err := errors.Join(run(e.Ctx, `INSERT INTO effects (k, who) VALUES ($1, 'claim')`, []byte("naive claim"))); err != nil {
		e.Fatal(err)
	}
	if err := lose(e, run); err == nil {
		e.Fatal("the transaction was not lost")
	}
	_ = run(e.Ctx, `INSERT INTO effects (k, who) VALUES ($1, 'effect')`, []byte("naive effect"))
	commit := naive.Commit()
	if e.Engine != dbtest.Postgres && (e.Effects("naive claim") != 0 || e.Effects("naive effect") != 1) {
		e.Errorf("the naive form should have left an effect without its claim: claim %d, effect %d, commit %v",
			e.Effects("naive claim"), e.Effects("naive effect"), commit)
	}

	swallow := func(key string) func(ctx context.Context, tx Tx) error {
		return func(ctx context.Context, tx Tx) error {
			_ = lose(e, func(ctx context.Context, query string, args ...any) error {
				_, err := e.Exec(ctx, tx, query, args...)
				return err
			})
			_ = e.Effect(ctx, tx, key)
			return nil
		}
	}
	s := e.Store(idempotency.Options{})
	_, err = idempotency.Do(e.Ctx, s, conformance.Op("do"), func(ctx context.Context, tx Tx) (string, error) { return "", swallow("do")(ctx, tx) })
	e.WantLost("Do", err, "do")
	err = e.DB.InTx(e.Ctx, swallow("intx"))
	e.WantLost("InTx", err, "intx")
	refunds := e.Refunds()
	_, err = refunds.Do(e.Ctx, conformance.Refund{No: "row", Amount: 1}, swallow("row"))
	e.WantLost("Table.Do", err, "row")
	if n := e.Int(`SELECT COUNT(*) FROM refunds`) + e.Int(`SELECT COUNT(*) FROM holdfast_records`); n != 0 {
		e.Errorf("%d claims stand", n)
	}
	// The connections work as new ones do.
	if r, err := e.Do(s, conformance.Op("do")); err != nil || r.Outcome != idempotency.Executed {
		e.Errorf("afterwards: %v, %v", r, err)
	}
}

// swallowedLockTimeout ignores error 1205. With innodb_rollback_on_timeout it ends the whole
// transaction; without, only the statement.
func swallowedLockTimeout[Tx any](e *env[Tx]) {
	if !e.InnoDB() {
		return // no such setting; SwallowedErrorNeverStands is the general case
	}
	whole := e.Int(`SELECT @@innodb_rollback_on_timeout`) == 1
	e.Logf("innodb_rollback_on_timeout = %v", whole)
	e.pairs()
	other, err := e.SQL.BeginTx(e.Ctx, nil)
	if err != nil {
		e.Fatal(err)
	}
	defer func() { _ = other.Rollback() }()
	if _, err := other.Exec(`UPDATE pair SET n = 1 WHERE id = 1`); err != nil {
		e.Fatal(err)
	}
	_, err = idempotency.Do(e.Ctx, e.Store(idempotency.Options{}), conformance.Op("a"), func(ctx context.Context, tx Tx) (string, error) {
		if _, err := e.Exec(ctx, tx, `UPDATE pair SET n = 2 WHERE id = 1`); err == nil {
			e.Error("the row was not locked")
		}
		return "", e.Effect(ctx, tx, "a")
	})
	if whole {
		e.WantLost("Do", err, "a")
		return
	}
	if err != nil {
		e.Errorf("the transaction was still there: %v", err)
	}
	e.WantOnce("a")
}

// swallowedSnapshotError checks MariaDB with innodb_snapshot_isolation (the default since 11.6),
// which rolls back with 1020 when a row changed after the snapshot.
func swallowedSnapshotError[Tx any](e *env[Tx]) {
	if e.Engine != dbtest.MariaDB {
		return // only MariaDB has 1020
	}
	e.pairs()
	e.Pool = e.Open(dbtest.With(e.DSN, "innodb_snapshot_isolation=ON"))
	_, err := idempotency.Do(e.Ctx, e.Store(idempotency.Options{}), conformance.Op("a"), func(ctx context.Context, tx Tx) (string, error) {
		q, _ := access.Of(e.DB).Join(tx)
		rows, err := q.Query(ctx, `SELECT n FROM pair`)
		if err != nil {
			return "", err
		}
		_ = rows.Close()
		e.Must(`UPDATE pair SET n = n + 1 WHERE id = 1`)
		if _, err := e.Exec(ctx, tx, `UPDATE pair SET n = n + 1 WHERE id = 1`); !e.DB.Retryable(err) {
			e.Errorf("got %v, want 1020", err)
		}
		return "", e.Effect(ctx, tx, "a")
	})
	e.WantLost("Do", err, "a")
}

// threeInsertDeadlockIsHidden makes three inserts of one key and rolls the first one back.
// InnoDB then reports a deadlock to one of the other two, and Do runs that call again.
func threeInsertDeadlockIsHidden[Tx any](e *env[Tx]) {
	stores := []*idempotency.Store[Tx]{e.Store(idempotency.Options{}), e.Store(idempotency.Options{}), e.Store(idempotency.Options{})}
	for round := range 5 {
		key := "deadlock " + string(rune('a'+round))
		release := make(chan struct{})
		inside := make(chan struct{})
		results := make(chan error, 3)
		go func() {
			_, err := idempotency.Do(e.Ctx, stores[0], conformance.Op(key), func(context.Context, Tx) (string, error) {
				close(inside)
				<-release
				return "", errors.New("gives up")
			})
			if err == nil {
				results <- errors.New("the first should have failed")
				return
			}
			results <- nil
		}()
		<-inside
		for _, s := range stores[1:] {
			go func() {
				_, err := e.Do(s, conformance.Op(key))
				results <- err
			}()
		}
		time.Sleep(100 * time.Millisecond)
		close(release)
		for range 3 {
			if err := <-results; err != nil {
				e.Error(err)
			}
		}
		e.WantOnce(key)
	}
}

// settingsAreRestored checks that every way to end a call restores the session settings before
// the connection returns to the pool.
func settingsAreRestored[Tx any](e *env[Tx]) {
	read := func() (settings string) {
		conn, err := access.Of(e.DB).Acquire(e.Ctx)
		if err != nil {
			e.Fatal(err)
		}
		defer conn.Release(false)
		query := map[dbtest.Engine]string{
			dbtest.Postgres: `SELECT current_setting('lock_timeout') || current_setting('transaction_isolation')`,
			dbtest.MySQL:    `SELECT CONCAT(@@autocommit, ' ', @@innodb_lock_wait_timeout, ' ', @@transaction_isolation)`,
			dbtest.MariaDB:  `SELECT CONCAT(@@autocommit, ' ', @@innodb_lock_wait_timeout, ' ', @@tx_isolation)`,
			dbtest.SQLite:   `SELECT timeout || '' FROM pragma_busy_timeout`,
		}[e.Engine.Kin()]
		rows, err := conn.Query(e.Ctx, query)
		if err != nil {
			e.Fatal(err)
		}
		defer rows.Close()
		if rows.Next() {
			if err := rows.Scan(&settings); err != nil {
				e.Fatal(err)
			}
		}
		return settings
	}
	before := read()
	s := e.Store(idempotency.Options{LockTimeout: 3 * time.Second})
	ends := map[string]func(context.Context, context.CancelFunc) (string, error){
		"ok":       func(context.Context, context.CancelFunc) (string, error) { return "", nil },
		"rejected": func(context.Context, context.CancelFunc) (string, error) { return "", idempotency.Reject("no", "") },
		"failed":   func(context.Context, context.CancelFunc) (string, error) { return "", errors.New("boom") },
		"cancelled": func(_ context.Context, cancel context.CancelFunc) (string, error) {
			cancel()
			return "", nil
		},
	}
	for name, end := range ends {
		ctx, cancel := context.WithCancel(e.Ctx)
		_, _ = idempotency.Do(ctx, s, conformance.Op(name), func(ctx context.Context, _ Tx) (string, error) { return end(ctx, cancel) })
		tx, err := e.Begin(e.Ctx, sql.LevelDefault)
		if err != nil {
			e.Fatal(err)
		}
		_, _ = idempotency.DoTx(e.Ctx, s, tx, conformance.Op("tx "+name), func(ctx context.Context, _ Tx) (string, error) { return end(ctx, func() {}) })
		_ = e.End(e.Ctx, tx, true)
		cancel()
		e.Eventually("the connection is back", func() bool { return e.InUse() == 0 })
		if after := read(); after != before {
			e.Errorf("after a call that %s the session has %q, before it had %q", name, after, before)
		}
		// Autocommit still works.
		conn, err := access.Of(e.DB).Acquire(e.Ctx)
		if err != nil {
			e.Fatal(err)
		}
		_, err = conn.Exec(e.Ctx, e.Rebind(`INSERT INTO effects (k, who) VALUES ($1, 'after')`), []byte(name))
		e.Check(err)
		conn.Release(false)
		e.WantOnce(name)
	}
}

// inTxRetriesDeadlocks checks that InTx reruns a function that returns the engine's error.
func inTxRetriesDeadlocks[Tx any](e *env[Tx]) {
	if !e.InnoDB() {
		return // only InnoDB deadlocks here; see RetryAsked for the others
	}
	e.pairs()
	runs := 0
	err := e.DB.InTx(e.Ctx, func(ctx context.Context, tx Tx) error {
		if runs++; runs == 1 {
			return lose(e, func(ctx context.Context, query string, args ...any) error {
				_, err := e.Exec(ctx, tx, query, args...)
				return err
			})
		}
		return e.Effect(ctx, tx, "a")
	})
	if err != nil || runs != 2 {
		e.Errorf("%v after %d runs", err, runs)
	}
	e.WantOnce("a")
}

// lostInRows loses the transaction in a query, whose error comes with the rows, and swallows it.
func lostInRows[Tx any](e *env[Tx]) {
	if !e.InnoDB() {
		return // its deadlock is InnoDB's
	}
	e.pairs()
	for key, reads := range map[string]bool{"reads the rows": true, "closes the rows": false} {
		_, err := idempotency.Do(e.Ctx, e.Store(idempotency.Options{}), conformance.Op(key), func(ctx context.Context, tx Tx) (string, error) {
			if err := e.Effect(ctx, tx, key); err != nil {
				return "", err
			}
			q, err := access.Of(e.DB).Join(tx)
			if err != nil {
				return "", err
			}
			err = deadlock(e, func(ctx context.Context, query string, args ...any) error {
				if query != `UPDATE pair SET n = n + 1 WHERE id = 2` {
					_, err := q.Exec(ctx, query, args...)
					return err
				}
				rows, err := q.Query(ctx, `SELECT n FROM pair WHERE id > 1 FOR UPDATE`)
				if err != nil {
					return err
				}
				for reads && rows.Next() {
					if err := rows.Scan(new(int)); err != nil {
						return err
					}
				}
				err = rows.Err()
				return errors.Join(err, rows.Close())
			})
			e.Logf("%s: %v", key, err)
			_ = e.Effect(ctx, tx, key)
			return "", nil
		})
		e.WantLost("Do", err, key)
		if n := e.Int(`SELECT COUNT(*) FROM holdfast_records`); n != 0 {
			e.Errorf("%s: %d records without their effect", key, n)
		}
	}
}

// survivedErrors swallows errors that end no transaction.
func survivedErrors[Tx any](e *env[Tx]) {
	if !e.InnoDB() {
		return // PostgreSQL ends a transaction after each error
	}
	e.Must(`CREATE TABLE once (id INT PRIMARY KEY, n TINYINT NOT NULL)`)
	_, err := idempotency.Do(e.Ctx, e.Store(idempotency.Options{}), conformance.Op("a"), func(ctx context.Context, tx Tx) (string, error) {
		for _, text := range []string{`INSERT INTO once VALUES (1, 1)`, `INSERT INTO once VALUES (1, 1)`, `INSERT INTO once VALUES (2, 1000)`, `INSERT INTO nowhere VALUES (1)`, `SELECT FROM`} {
			_, _ = e.Exec(ctx, tx, text)
		}
		return "", e.Effect(ctx, tx, "a")
	})
	if err != nil || e.Int(`SELECT COUNT(*) FROM once`) != 1 {
		e.Errorf("%v, %d rows", err, e.Int(`SELECT COUNT(*) FROM once`))
	}
	e.WantOnce("a")
}
