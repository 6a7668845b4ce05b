package conformance

import (
	"database/sql"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/idempotency/businessrow"
	"github.com/holdfast-go/holdfast/internal/test/dbtest"
	"github.com/holdfast-go/holdfast/optimistic"
)

// Refund is a row of the table refunds.
type Refund struct {
	No     string         `db:"refund_no"`
	Bank   sql.NullString `db:"bank_ref"`
	Amount int64          `db:"amount"`
}

// Refunds opens the table refunds.
func (e *Env[Tx]) Refunds() *businessrow.Table[Refund, Tx] {
	e.Helper()
	t, err := businessrow.New[Refund](e.Ctx, e.DB, holdfast.TableSpec{Table: "refunds", Key: []string{"refund_no"}},
		businessrow.Options{Compare: []string{"amount"}})
	if err != nil {
		e.Fatal(err)
	}
	return t
}

// Account is a row of the table accounts.
type Account struct {
	No      string `db:"account_no"`
	Owner   string `db:"owner"`
	Cents   int64  `db:"cents"`
	Version int64  `db:"version"`
}

// Accounts creates the table accounts with rows in version 1.
func (e *Env[Tx]) Accounts(rows ...string) *optimistic.Table[Account, Tx] {
	e.Helper()
	t := e.AccountsIn("accounts")
	for _, no := range rows {
		if _, err := t.Insert(e.Ctx, Account{No: no}); err != nil {
			e.Fatal(err)
		}
	}
	return t
}

// AccountsIn creates an empty table of accounts under another name.
func (e *Env[Tx]) AccountsIn(table string) *optimistic.Table[Account, Tx] {
	e.Helper()
	e.Must(`CREATE TABLE ` + table + ` (account_no ` + e.Text() + ` NOT NULL PRIMARY KEY, owner VARCHAR(64) NOT NULL, cents BIGINT NOT NULL, version BIGINT NOT NULL)`)
	t, err := optimistic.New[Account](e.Ctx, e.DB, holdfast.TableSpec{Table: table, Key: []string{"account_no"}})
	if err != nil {
		e.Fatal(err)
	}
	return t
}

// WantAccount reads a row of accounts with plain SQL, and fails if it differs.
func (e *Env[Tx]) WantAccount(want Account) {
	e.Helper()
	got := Account{No: want.No}
	err := e.SQL.QueryRowContext(e.Ctx, e.Rebind(`SELECT owner, cents, version FROM accounts WHERE account_no = $1`), e.TextKey(want.No)).Scan(&got.Owner, &got.Cents, &got.Version)
	if err != nil || got != want {
		e.Errorf("the row is %+v, want %+v: %v", got, want, err)
	}
}

// TextKey returns a text key in the form that the audit pool returns.
func (e *Env[Tx]) TextKey(no string) any {
	if e.InnoDB() {
		return []byte(no)
	}
	return no
}

// Schema returns the schema of the test's database, where the engine has schemas.
func (e *Env[Tx]) Schema() (name string) {
	query := `SELECT current_schema()`
	switch {
	case e.InnoDB():
		query = `SELECT DATABASE()`
	case e.Engine == dbtest.SQLite:
		return ""
	}
	if err := e.SQL.QueryRowContext(e.Ctx, query).Scan(&name); err != nil {
		e.Fatal(err)
	}
	return name
}
