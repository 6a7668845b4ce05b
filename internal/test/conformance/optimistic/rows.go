package optimistic

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/test/conformance"
	"github.com/holdfast-go/holdfast/optimistic"
)

// versionsOfNothing checks that a NULL which appears in the column after the check, and the zero
// of a DEFAULT 0, cause errors that say so.
func versionsOfNothing[Tx any](e *env[Tx]) {
	accounts := e.Accounts()
	e.Must(`DROP TABLE accounts`)
	e.Must(`CREATE TABLE accounts (account_no ` + e.Text() + ` NOT NULL PRIMARY KEY, owner VARCHAR(64) NOT NULL, cents BIGINT NOT NULL, version BIGINT DEFAULT 0)`)
	e.Must(`INSERT INTO accounts (account_no, owner, cents, version) VALUES ($1, '', 0, NULL)`, e.TextKey("null"))
	e.Must(`INSERT INTO accounts (account_no, owner, cents) VALUES ($1, '', 0)`, e.TextKey("zero"))
	_, err1 := accounts.Get(e.Ctx, conformance.Account{No: "null"})
	_, err2 := accounts.Update(e.Ctx, conformance.Account{No: "null", Version: 1})
	for _, err := range []error{err1, err2, accounts.Delete(e.Ctx, conformance.Account{No: "null", Version: 1})} {
		if err == nil || !strings.Contains(err.Error(), "is NULL") {
			e.Errorf("NULL: %v", err)
		}
	}
	zero, err := accounts.Get(e.Ctx, conformance.Account{No: "zero"})
	if err != nil || zero.Version != 0 {
		e.Errorf("%+v, %v", zero, err)
	}
	if _, err := accounts.Update(e.Ctx, zero); !errors.Is(err, holdfast.ErrInvalid) || !strings.Contains(err.Error(), "DEFAULT 1") {
		e.Errorf("zero: %v", err)
	}
	if err := accounts.Delete(e.Ctx, zero); !errors.Is(err, holdfast.ErrInvalid) {
		e.Errorf("zero: %v", err)
	}
	_, err = accounts.Update(e.Ctx, conformance.Account{No: "zero", Version: 1})
	wantConflict(e, err, "accounts", "1", "0")
}

// readsAfterAlter checks that a migration which changes a column's type, on PostgreSQL the type of what
// prepared statements return, fails no read and no write.
func readsAfterAlter[Tx any](e *env[Tx]) {
	accounts := e.Accounts("a")
	for _, cents := range []string{"INTEGER", "BIGINT", "SMALLINT"} {
		for range 5 { // so that connections have prepared the statement
			if _, err := accounts.Get(e.Ctx, conformance.Account{No: "a"}); err != nil {
				e.Fatal(err)
			}
		}
		e.Must(`DROP TABLE accounts`)
		e.Must(`CREATE TABLE accounts (account_no ` + e.Text() + ` NOT NULL PRIMARY KEY, owner VARCHAR(64) NOT NULL, cents ` + cents + ` NOT NULL, version BIGINT NOT NULL)`)
		e.Must(`INSERT INTO accounts (account_no, owner, cents, version) VALUES ($1, '', 0, 1)`, e.TextKey("a"))
		for range 2 {
			row, err := accounts.Get(e.Ctx, conformance.Account{No: "a"})
			if err != nil {
				e.Fatalf("%s: %v", cents, err)
			}
			if _, err := accounts.Update(e.Ctx, row); err != nil {
				e.Fatalf("%s: %v", cents, err)
			}
		}
	}
}

// embeddedStructs checks that a field hides the one of its column that is embedded, as in Go, that a nil pointer to an embedded
// struct is its zero value, and that a version is refused which a copy of the row would share with it.
func embeddedStructs[Tx any](e *env[Tx]) {
	e.Accounts("a")
	spec := holdfast.TableSpec{Table: "accounts", Key: []string{"account_no"}}
	type base struct {
		Owner string `db:"owner"`
		Cents int64  `db:"cents"`
	}
	type hiding struct {
		base

		No      string `db:"account_no"`
		Cents   int64  `db:"cents"`
		Version int64  `db:"version"`
	}
	hidden, err := optimistic.New[hiding](e.Ctx, e.DB, spec)
	e.Check(err)
	_, err = hidden.Update(e.Ctx, hiding{base{"Ada", 1}, "a", 2, 1})
	e.Check(err)
	e.WantAccount(conformance.Account{No: "a", Owner: "Ada", Cents: 2, Version: 2})

	type Base base
	type byPointer struct {
		*Base

		No      string `db:"account_no"`
		Version int64  `db:"version"`
	}
	pointers, err := optimistic.New[byPointer](e.Ctx, e.DB, spec)
	e.Check(err)
	_, err = pointers.Update(e.Ctx, byPointer{No: "a", Version: 2})
	e.Check(err)
	e.WantAccount(conformance.Account{No: "a", Version: 3})
	if read, err := pointers.Get(e.Ctx, byPointer{No: "a"}); err != nil || read.Base == nil || read.Version != 3 {
		e.Errorf("%+v, %v", read, err)
	}
	type unexported struct {
		*base

		No      string `db:"account_no"`
		Version int64  `db:"version"`
	}
	if _, err := optimistic.New[unexported](e.Ctx, e.DB, spec); !errors.Is(err, holdfast.ErrInvalid) || !strings.Contains(err.Error(), "not exported") {
		e.Errorf("a pointer that cannot be set: %v", err)
	}

	type versioned struct {
		Version int64 `db:"version"`
	}
	type shared struct {
		*versioned

		No string `db:"account_no"`
	}
	if _, err := optimistic.New[shared](e.Ctx, e.DB, spec); !errors.Is(err, holdfast.ErrInvalid) || !strings.Contains(err.Error(), "by value") {
		e.Errorf("a version behind a pointer: %v", err)
	}
	type twice struct {
		No      string `db:"account_no"`
		Cents   int64  `db:"cents"`
		Too     int64  `db:"cents"`
		Version int64  `db:"version"`
	}
	if _, err := optimistic.New[twice](e.Ctx, e.DB, spec); !errors.Is(err, holdfast.ErrInvalid) || !strings.Contains(err.Error(), "cents") {
		e.Errorf("a column twice: %v", err)
	}
}

// theRowInConflictIsNamed checks that the error names the row in conflict by its key when
// several rows of one table are written.
func theRowInConflictIsNamed[Tx any](e *env[Tx]) {
	rows := []string{"a", "b", "c", "d"}
	accounts := e.Accounts(rows...)
	e.Must(`UPDATE accounts SET version = 5 WHERE account_no = $1`, e.TextKey("c"))
	err := optimistic.Retry(e.Ctx, e.DB, func(ctx context.Context, tx Tx) error {
		for _, no := range rows {
			if _, err := accounts.UpdateTx(ctx, tx, conformance.Account{No: no, Version: 1}); err != nil {
				return fmt.Errorf("settling: %w", err)
			}
		}
		return nil
	}, optimistic.RetryOptions{Attempts: 2})
	wantConflict(e, err, "accounts", "1", "5")
	named := func(key []any, want string) {
		e.Helper()
		if len(key) != 1 || fmt.Sprintf("%s", key[0]) != want {
			e.Errorf("the error names %v, want %s", key, want)
		}
	}
	var conflict *optimistic.ConflictError
	if errors.As(err, &conflict) {
		named(conflict.Key, "c")
	}
	err = e.DB.InTx(e.Ctx, func(ctx context.Context, tx Tx) error {
		if _, err := accounts.UpdateTx(ctx, tx, conformance.Account{No: "a", Version: 1}); err != nil {
			return err
		}
		return accounts.DeleteTx(ctx, tx, conformance.Account{No: "none", Version: 1})
	})
	var none *optimistic.NotFoundError
	if !errors.As(err, &none) {
		e.Fatalf("got %v", err)
	}
	named(none.Key, "none")
	_, err = accounts.Insert(e.Ctx, conformance.Account{No: "d"})
	var double *optimistic.DuplicateError
	if !errors.As(err, &double) {
		e.Fatalf("got %v", err)
	}
	named(double.Key, "d")
	if n := e.Int(`SELECT SUM(version) FROM accounts`); n != 8 {
		e.Errorf("the versions sum to %d, want 8: nothing was to move", n)
	}
}

// noLostUpdateOverRows runs transactions that write two of several rows each, in random order.
// Another client writes without the package and is refused. Each row then holds the sum of the
// committed changes, and its version counts them.
func noLostUpdateOverRows[Tx any](e *env[Tx]) {
	rows := []string{"a", "b", "c", "d"}
	accounts := e.Accounts(rows...)
	enforced := e.DB.Capabilities().Triggers
	if enforced {
		if err := accounts.Enforce(e.Ctx); err != nil {
			e.Fatal(err)
		}
	}
	const writers, times = 4, 8
	var mu sync.Mutex
	cents, writes := map[string]int64{}, map[string]int64{}
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			for i := range times {
				from, to, amount := rows[(w+i)%len(rows)], rows[(w+2*i+1+i/4)%len(rows)], int64(i+1)
				if from == to {
					continue
				}
				err := optimistic.Retry(e.Ctx, e.DB, func(ctx context.Context, tx Tx) error {
					for no, delta := range map[string]int64{from: -amount, to: amount} {
						row, err := accounts.GetTx(ctx, tx, conformance.Account{No: no})
						if err != nil {
							return err
						}
						row.Cents += delta
						if _, err := accounts.UpdateTx(ctx, tx, row); err != nil {
							return err
						}
					}
					return nil
				}, optimistic.RetryOptions{Attempts: 1000})
				if err != nil {
					e.Error(err)
					continue
				}
				mu.Lock()
				cents[from] -= amount
				cents[to] += amount
				writes[from]++
				writes[to]++
				mu.Unlock()
			}
		})
	}
	wg.Go(func() {
		for n := 0; n < times && enforced; n++ {
			// The write is refused or loses a lock conflict; it never succeeds.
			if err := e.raw(`UPDATE accounts SET cents = 666`); err == nil {
				e.Error("a write past the package was let through")
			}
		}
	})
	wg.Wait()
	total := int64(0)
	for _, no := range rows {
		total += writes[no]
		e.WantAccount(conformance.Account{No: no, Cents: cents[no], Version: 1 + writes[no]})
	}
	if total < writers*times {
		e.Errorf("only %d rows were written", total)
	}
}
