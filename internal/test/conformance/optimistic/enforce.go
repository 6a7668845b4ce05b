package optimistic

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"sync"

	"github.com/google/uuid"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/access"
	"github.com/holdfast-go/holdfast/internal/test/conformance"
	"github.com/holdfast-go/holdfast/internal/test/dbtest"
	"github.com/holdfast-go/holdfast/optimistic"
)

// raw writes as another client would, with plain SQL.
func (e *env[Tx]) raw(query string, args ...any) error {
	_, err := e.SQL.ExecContext(e.Ctx, e.Rebind(query), args...)
	return err
}

func (e *env[Tx]) wantRefused(what string, err error) {
	e.Helper()
	var refused *optimistic.RefusedError
	mapped := optimistic.AsConflict(e.DB, err)
	if !errors.Is(mapped, optimistic.ErrConflict) || !errors.As(mapped, &refused) || !errors.Is(mapped, err) || e.DB.Retryable(err) {
		e.Errorf("%s: got %v, want it refused", what, err)
	}
}

// enforceCatchesOthers runs an UPDATE by another client that does not change the version.
// Without the trigger it succeeds unnoticed; with the trigger it fails.
func enforceCatchesOthers[Tx any](e *env[Tx]) {
	dbtest.Needs(e, e.Engine, dbtest.Triggers)
	accounts := e.Accounts("a", "b")
	const naive = `UPDATE accounts SET cents = 666`
	read, err := accounts.Get(e.Ctx, conformance.Account{No: "a"})
	if err != nil {
		e.Fatal(err)
	}
	e.Must(naive)
	read.Owner = "Ada"
	if read, err = accounts.Update(e.Ctx, read); err != nil {
		e.Fatal(err)
	}
	e.WantAccount(conformance.Account{No: "a", Owner: "Ada", Version: 2}) // the other client's write is lost without an error

	for range 2 { // a second call changes nothing
		if err := accounts.Enforce(e.Ctx); err != nil {
			e.Fatal(err)
		}
	}
	if err := accounts.CheckEnforced(e.Ctx); err != nil {
		e.Error(err)
	}
	for _, query := range []string{
		naive,
		`UPDATE accounts SET cents = 666 WHERE account_no = 'a'`,
		`UPDATE accounts SET version = version + 2`,
		`UPDATE accounts SET version = version - 1`,
		`UPDATE accounts SET version = 7`,
		`UPDATE accounts SET cents = 666, version = CASE WHEN account_no = 'a' THEN version + 1 ELSE version END`,
	} {
		e.wantRefused(query, e.raw(query))
	}
	upsert := map[bool]string{true: ` ON DUPLICATE KEY UPDATE cents = 666`, false: ` ON CONFLICT (account_no) DO UPDATE SET cents = 666`}[e.InnoDB()]
	e.wantRefused("upsert", e.raw(`INSERT INTO accounts (account_no, owner, cents, version) VALUES ($1, 'x', 1, 1)`+upsert, e.TextKey("a")))
	e.WantAccount(read)
	e.WantAccount(conformance.Account{No: "b", Cents: 666, Version: 1})

	// In the program's own transactions.
	tx := e.BeginTx(sql.LevelDefault)
	_, err = e.Exec(e.Ctx, tx, naive)
	e.wantRefused("in a transaction", err)
	e.EndTx(tx, false)
	runs := 0
	err = optimistic.Retry(e.Ctx, e.DB, func(ctx context.Context, tx Tx) error {
		runs++
		_, err := e.Exec(ctx, tx, naive)
		return fmt.Errorf("booking: %w", err)
	}, optimistic.RetryOptions{Attempts: 2})
	if !errors.Is(err, optimistic.ErrConflict) || !errors.Is(err, holdfast.ErrRetry) || runs != 2 {
		e.Errorf("Retry: %v after %d runs", err, runs)
	}
	// Other errors stay unchanged.
	other := e.raw(`INSERT INTO accounts (account_no, owner, cents, version) VALUES ($1, 'x', 1, 1)`, e.TextKey("a"))
	if mapped := optimistic.AsConflict(e.DB, other); other == nil || !errors.Is(mapped, other) || errors.Is(mapped, optimistic.ErrConflict) {
		e.Errorf("a duplicate: %v", mapped)
	}
	if err := optimistic.AsConflict(e.DB, nil); err != nil {
		e.Error(err)
	}

	// A write that changes the version succeeds, here and in other tables.
	e.Must(`UPDATE accounts SET cents = 7, version = version + 1 WHERE account_no = $1 AND version = 2`, e.TextKey("a"))
	_, err = accounts.Update(e.Ctx, read)
	wantConflict(e, err, "accounts", "2", "3")
	if err := optimistic.Retry(e.Ctx, e.DB, func(ctx context.Context, tx Tx) error {
		row, err := accounts.GetTx(ctx, tx, conformance.Account{No: "a"})
		if err != nil {
			return err
		}
		row.Cents++
		_, err = accounts.UpdateTx(ctx, tx, row)
		return err
	}); err != nil {
		e.Error(err)
	}
	e.WantAccount(conformance.Account{No: "a", Owner: "Ada", Cents: 8, Version: 4})
	if made, err := accounts.Insert(e.Ctx, conformance.Account{No: "c"}); err != nil || accounts.Delete(e.Ctx, made) != nil {
		e.Errorf("insert and delete: %v", err)
	}

	for range 2 {
		if err := accounts.Unenforce(e.Ctx); err != nil {
			e.Error(err)
		}
	}
	if err := accounts.CheckEnforced(e.Ctx); !errors.Is(err, optimistic.ErrNotEnforced) {
		e.Error(err)
	}
	if err := e.raw(naive); err != nil {
		e.Errorf("after Unenforce: %v", err)
	}
}

// enforceIsChecked removes, disables or changes the trigger. CheckEnforced detects it, and
// Enforce repairs it.
func enforceIsChecked[Tx any](e *env[Tx]) {
	dbtest.Needs(e, e.Engine, dbtest.Triggers)
	accounts := e.Accounts("a")
	var missing *optimistic.EnforceError
	if err := accounts.CheckEnforced(e.Ctx); !errors.As(err, &missing) {
		e.Fatalf("before Enforce: %v", err)
	}
	// Several programs start at once.
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			if err := accounts.Enforce(e.Ctx); err != nil {
				e.Error(err)
			}
		})
	}
	wg.Wait()
	trigger := missing.Trigger
	spoils := map[string][]string{"does not exist": {`DROP TRIGGER ` + trigger}}
	switch e.Engine {
	case dbtest.Postgres:
		spoils["does not exist"] = []string{`DROP TRIGGER ` + trigger + ` ON accounts`}
		spoils["disabled"] = []string{`ALTER TABLE accounts DISABLE TRIGGER ` + trigger}
		spoils["is not the one"] = []string{`CREATE OR REPLACE FUNCTION ` + trigger + `() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'`}
		spoils["that this version of Holdfast creates"] = []string{
			`DROP TRIGGER ` + trigger + ` ON accounts`,
			`CREATE TRIGGER ` + trigger + ` AFTER UPDATE ON accounts FOR EACH ROW WHEN (NEW.cents < 0) EXECUTE FUNCTION ` + trigger + `()`,
		}
	case dbtest.SQLite:
		spoils["is not the one"] = []string{`DROP TRIGGER ` + trigger, `CREATE TRIGGER ` + trigger + ` AFTER UPDATE ON accounts BEGIN SELECT 1; END`}
	default:
		spoils["is not the one"] = []string{`DROP TRIGGER ` + trigger, `CREATE TRIGGER ` + trigger + ` AFTER UPDATE ON accounts FOR EACH ROW SET @x = 1`}
		spoils["that this version of Holdfast creates"] = []string{`DROP TRIGGER ` + trigger, `CREATE TRIGGER ` + trigger + ` BEFORE INSERT ON accounts FOR EACH ROW SET @x = 1`}
	}
	for why, statements := range spoils {
		for _, s := range statements {
			e.Must(s)
		}
		if err := e.raw(`UPDATE accounts SET cents = 5`); err != nil {
			e.Errorf("%s: %v", why, err)
		}
		if err := accounts.CheckEnforced(e.Ctx); !errors.Is(err, optimistic.ErrNotEnforced) || !strings.Contains(err.Error(), why) {
			e.Errorf("%s: got %v", why, err)
		}
		if err := accounts.Enforce(e.Ctx); err != nil {
			e.Errorf("%s: %v", why, err)
		}
		e.wantRefused(why, e.raw(`UPDATE accounts SET cents = 6`))
	}
	if e.InnoDB() { // no setting of a pooled connection stays changed
		if n := e.poolInt(`SELECT @@SESSION.lock_wait_timeout - @@GLOBAL.lock_wait_timeout`); n != 0 {
			e.Errorf("lock_wait_timeout was left %d off", n)
		}
	}
	e.Eventually("every connection is back", func() bool { return e.InUse() == 0 })
}

// poolInt reads one number on the handle's pool.
func (e *env[Tx]) poolInt(query string) (n int) {
	e.Helper()
	rows, err := access.Of(e.DB).Pool.Query(e.Ctx, query)
	if err != nil {
		e.Fatal(err)
	}
	defer rows.Close()
	if !rows.Next() || rows.Scan(&n) != nil {
		e.Fatal(rows.Err())
	}
	return n
}

// enforceNamesAndUUIDs checks that names are quoted everywhere, and that an update must replace
// a UUID version by a different one.
func enforceNamesAndUUIDs[Tx any](e *env[Tx]) {
	dbtest.Needs(e, e.Engine, dbtest.Triggers)
	table, column := "or\"der's `x` \\ $1 ?", `ver"sion`
	quote := func(name string) string {
		if e.InnoDB() {
			return "`" + strings.ReplaceAll(name, "`", "``") + "`"
		}
		return `"` + strings.ReplaceAll(name, `"`, `""`) + `"`
	}
	id := map[dbtest.Engine]string{dbtest.Postgres: "uuid", dbtest.MySQL: "BINARY(16)", dbtest.MariaDB: "UUID", dbtest.SQLite: "TEXT"}[e.Engine.Kin()]
	type number struct {
		No string `db:"no"`
		V  int64  `db:"ver\"sion"`
	}
	type id16 struct {
		No string    `db:"no"`
		V  uuid.UUID `db:"version"`
	}
	exec := func(query string) error {
		_, err := e.SQL.ExecContext(e.Ctx, query) // sent unchanged: ? and $1 are part of a name
		return err
	}
	if err := errors.Join(
		exec(`CREATE TABLE `+quote(table)+` (no `+e.Text()+` NOT NULL PRIMARY KEY, n INT, `+quote(column)+` BIGINT NOT NULL)`),
		exec(`CREATE TABLE ids (no `+e.Text()+` NOT NULL PRIMARY KEY, n INT, version `+id+` NOT NULL)`),
	); err != nil {
		e.Fatal(err)
	}
	numbers, err := optimistic.New[number](e.Ctx, e.DB, holdfast.TableSpec{Table: table, Schema: e.Schema(), Key: []string{"no"}}, optimistic.Options{Version: column})
	if err != nil {
		e.Fatal(err)
	}
	ids, err := optimistic.New[id16](e.Ctx, e.DB, holdfast.TableSpec{Table: "ids", Key: []string{"no"}})
	if err != nil {
		e.Fatal(err)
	}
	if err := errors.Join(numbers.Enforce(e.Ctx), numbers.CheckEnforced(e.Ctx), ids.Enforce(e.Ctx), ids.CheckEnforced(e.Ctx)); err != nil {
		e.Fatal(err)
	}
	one, err1 := numbers.Insert(e.Ctx, number{No: "a"})
	two, err2 := ids.Insert(e.Ctx, id16{No: "a"})
	if err := errors.Join(err1, err2); err != nil {
		e.Fatal(err)
	}
	for range 3 {
		one, err1 = numbers.Update(e.Ctx, one)
		two, err2 = ids.Update(e.Ctx, two)
		if err := errors.Join(err1, err2); err != nil {
			e.Error(err)
		}
	}
	e.wantRefused("a quoted table", exec(`UPDATE `+quote(table)+` SET n = 1`))
	e.wantRefused("a UUID", exec(`UPDATE ids SET n = 1`))
	if there, err := ids.Get(e.Ctx, two); err != nil || there != two {
		e.Errorf("%+v, %v", there, err)
	}
	if err := errors.Join(numbers.Unenforce(e.Ctx), ids.Unenforce(e.Ctx), exec(`UPDATE `+quote(table)+` SET n = 1`), exec(`UPDATE ids SET n = 1`)); err != nil {
		e.Error(err)
	}
}

// enforceWithoutPermission checks that the error names the missing permission and the SQL that
// an administrator can run.
func enforceWithoutPermission[Tx any](e *env[Tx]) {
	dbtest.Needs(e, e.Engine, dbtest.Triggers)
	if e.Engine == dbtest.SQLite {
		return // it has no users
	}
	admin := e.Accounts("a")
	user := regexp.MustCompile(`hf_[a-z0-9]+`).FindString(e.DSN) + "_u"
	address := regexp.MustCompile(`//[^@]*@`)
	want := "TRIGGER"
	if e.Engine == dbtest.Postgres {
		e.Must(`CREATE ROLE ` + user + ` LOGIN PASSWORD 'pw'`)
		defer e.Must(`DROP OWNED BY ` + user + `; DROP ROLE ` + user)
		e.Must(`GRANT SELECT, UPDATE ON accounts TO ` + user)
		e.Must(`GRANT USAGE ON SCHEMA "` + e.Schema() + `" TO ` + user)
	} else {
		e.Must(`CREATE USER ` + user + ` IDENTIFIED BY 'pw'`)
		defer e.Must(`DROP USER ` + user)
		grants := `SELECT, UPDATE`
		if e.Engine == dbtest.MySQL && e.Int(`SELECT @@log_bin = 1 AND @@log_bin_trust_function_creators = 0`) == 1 {
			grants, want = `SELECT, UPDATE, TRIGGER`, "log_bin_trust_function_creators"
		}
		e.Must(`GRANT ` + grants + ` ON ` + e.Schema() + `.* TO ` + user)
	}
	pool := e.Handle.Open(e.T, address.ReplaceAllString(e.DSN, "//"+user+":pw@"))
	defer pool.Close()
	accounts, err := optimistic.New[conformance.Account](e.Ctx, pool.DB, holdfast.TableSpec{Table: "accounts", Key: []string{"account_no"}})
	if err != nil {
		e.Fatal(err)
	}
	var denied *optimistic.EnforceError
	if err := accounts.Enforce(e.Ctx); !errors.Is(err, optimistic.ErrNotEnforced) || !errors.As(err, &denied) || denied.Err == nil || !strings.Contains(err.Error(), want) {
		e.Errorf("got %v, want %s in it", err, want)
	}
	for _, s := range accounts.EnforceSQL() {
		e.Must(s)
	}
	if err := admin.CheckEnforced(e.Ctx); err != nil {
		e.Error(err)
	}
	_, err = access.Of(pool.DB).Pool.Exec(e.Ctx, e.Rebind(`UPDATE accounts SET cents = 666 WHERE account_no = $1`), e.TextKey("a"))
	e.wantRefused("by that user", err)
}
