package optimistic

import (
	"database/sql"
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/test/conformance"
	"github.com/holdfast-go/holdfast/optimistic"
)

// Suite is the suite of versioned rows.
func Suite[Tx any](t *testing.T, h conformance.Handle[Tx]) {
	for name, f := range map[string]func(*env[Tx]){
		"HitMissAndNotFound":           hitMissAndNotFound[Tx],
		"HitMissAndNotFoundInTx":       hitMissAndNotFoundInTx[Tx],
		"NamedColumns":                 namedColumns[Tx],
		"SameValuesMoveTheVersion":     sameValuesMoveTheVersion[Tx],
		"ImpossibleVersionsAreRefused": impossibleVersionsAreRefused[Tx],
		"UUIDVersions":                 uuidVersions[Tx],
		"TablesAreChecked":             tablesAreChecked[Tx],
		"InsertDuplicates":             insertDuplicates[Tx],
		"NoLostUpdate":                 noLostUpdate[Tx],
		"RowIsBornAndDies":             rowIsBornAndDies[Tx],
		"LoopInOneSnapshotNeverEnds":   loopInOneSnapshotNeverEnds[Tx],
		"ConflictsAtEachIsolation":     conflictsAtEachIsolation[Tx],
		"SeveralTablesOrNone":          severalTablesOrNone[Tx],
		"SwallowedConflictNeverStands": swallowedConflictNeverStands[Tx],
		"TriggerThatKeepsTheRow":       triggerThatKeepsTheRow[Tx],
		"RetryIsBounded":               retryIsBounded[Tx],
		"RetryAfterTheEnginesErrors":   retryAfterTheEnginesErrors[Tx],
		"UnknownIsNotHidden":           unknownIsNotHidden[Tx],
		"LockedRowAndCancelledContext": lockedRowAndCancelledContext[Tx],
		"TheRowInConflictIsNamed":      theRowInConflictIsNamed[Tx],
		"VersionsOfNothing":            versionsOfNothing[Tx],
		"ReadsAfterAlter":              readsAfterAlter[Tx],
		"EmbeddedStructs":              embeddedStructs[Tx],
		"EnforceCatchesOthers":         enforceCatchesOthers[Tx],
		"NoLostUpdateOverRows":         noLostUpdateOverRows[Tx],
		"EnforceIsChecked":             enforceIsChecked[Tx],
		"EnforceNamesAndUUIDs":         enforceNamesAndUUIDs[Tx],
		"EnforceWithoutPermission":     enforceWithoutPermission[Tx],
		"ProcedureIsTheOnlyWay":        procedureIsTheOnlyWay[Tx],
		"ProcedureOfUUIDs":             procedureOfUUIDs[Tx],
		"ProcedureInput":               procedureInput[Tx],
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run(t, h, f)
		})
	}
}

func wantConflict(t testing.TB, err error, table, given, found string) {
	t.Helper()
	var c *optimistic.ConflictError
	if !errors.Is(err, optimistic.ErrConflict) || !errors.As(err, &c) || c.Table != table || c.Given != given || c.Found != found || len(c.Key) != 1 {
		t.Errorf("got %v (%+v), want a conflict in %s of %s with %s", err, c, table, given, found)
	}
}

func wantNotFound(t testing.TB, err error, table string) {
	t.Helper()
	var n *optimistic.NotFoundError
	if !errors.Is(err, optimistic.ErrNotFound) || !errors.As(err, &n) || n.Table != table || errors.Is(err, optimistic.ErrConflict) {
		t.Errorf("got %v, want not found in %s", err, table)
	}
}

func hitMissAndNotFound[Tx any](e *env[Tx]) {
	accounts := e.Accounts()
	first, err := accounts.Insert(e.Ctx, conformance.Account{No: "secret-a", Owner: "Ada", Cents: 5})
	if want := (conformance.Account{No: "secret-a", Owner: "Ada", Cents: 5, Version: 1}); err != nil || first != want {
		e.Fatalf("%+v, %v", first, err)
	}
	e.WantAccount(first)
	changed := first
	changed.Cents = 6
	second, err := accounts.Update(e.Ctx, changed)
	if want := (conformance.Account{No: "secret-a", Owner: "Ada", Cents: 6, Version: 2}); err != nil || second != want {
		e.Errorf("%+v, %v", second, err)
	}
	if there, err := accounts.Get(e.Ctx, conformance.Account{No: "secret-a"}); err != nil || there != second {
		e.Errorf("%+v, %v", there, err)
	}
	// The row no longer has the version that was read first.
	row, err := accounts.Update(e.Ctx, changed)
	wantConflict(e, err, "accounts", "1", "2")
	if row != (conformance.Account{}) || strings.Contains(err.Error(), "secret-a") {
		e.Errorf("%+v, %v", row, err)
	}
	wantConflict(e, accounts.Delete(e.Ctx, changed), "accounts", "1", "2")
	ahead := second
	ahead.Version = 9
	_, err = accounts.Update(e.Ctx, ahead)
	wantConflict(e, err, "accounts", "9", "2")
	e.WantAccount(second)

	for _, no := range []string{"none", "SECRET-A", "secret-a ", ""} {
		_, err = accounts.Update(e.Ctx, conformance.Account{No: no, Version: 1})
		wantNotFound(e, err, "accounts")
		wantNotFound(e, accounts.Delete(e.Ctx, conformance.Account{No: no, Version: 1}), "accounts")
		_, err = accounts.Get(e.Ctx, conformance.Account{No: no})
		wantNotFound(e, err, "accounts")
	}
	if err := accounts.Delete(e.Ctx, second); err != nil {
		e.Error(err)
	}
	wantNotFound(e, accounts.Delete(e.Ctx, second), "accounts")
	_, err = accounts.Update(e.Ctx, second)
	wantNotFound(e, err, "accounts")
	if n := e.Int(`SELECT COUNT(*) FROM accounts`); n != 0 {
		e.Errorf("%d rows", n)
	}
}

func hitMissAndNotFoundInTx[Tx any](e *env[Tx]) {
	accounts := e.Accounts("a", "b")
	for _, commit := range []bool{false, true} {
		tx := e.BeginTx(sql.LevelDefault)
		row, err := accounts.GetTx(e.Ctx, tx, conformance.Account{No: "a"})
		if err != nil {
			e.Fatal(err)
		}
		for range 3 { // a row may be written more than once
			row.Cents++
			if row, err = accounts.UpdateTx(e.Ctx, tx, row); err != nil {
				e.Error(err)
			}
		}
		if _, err := accounts.InsertTx(e.Ctx, tx, conformance.Account{No: "c"}); err != nil {
			e.Error(err)
		}
		if err := accounts.DeleteTx(e.Ctx, tx, conformance.Account{No: "b", Version: 1}); err != nil {
			e.Error(err)
		}
		_, err = accounts.GetTx(e.Ctx, tx, conformance.Account{No: "b"})
		wantNotFound(e, err, "accounts") // the transaction continues
		e.EndTx(tx, commit)
		if !commit {
			e.WantAccount(conformance.Account{No: "a", Version: 1})
			e.WantAccount(conformance.Account{No: "b", Version: 1})
		}
	}
	e.WantAccount(conformance.Account{No: "a", Cents: 3, Version: 4})
	e.WantAccount(conformance.Account{No: "c", Version: 1})

	stale, none := conformance.Account{No: "a", Version: 1}, conformance.Account{No: "b", Version: 1}
	for what, write := range map[string]func(tx Tx, row conformance.Account) error{
		"update": func(tx Tx, row conformance.Account) error { _, err := accounts.UpdateTx(e.Ctx, tx, row); return err },
		"delete": func(tx Tx, row conformance.Account) error { return accounts.DeleteTx(e.Ctx, tx, row) },
	} {
		for _, row := range []conformance.Account{stale, none} {
			tx := e.BeginTx(sql.LevelDefault)
			if err := e.Effect(e.Ctx, tx, what); err != nil {
				e.Error(err)
			}
			if err := write(tx, row); row == stale {
				wantConflict(e, err, "accounts", "1", "4")
			} else {
				wantNotFound(e, err, "accounts")
			}
			e.WantRolledBack(tx) // so that the caller cannot commit the rest
		}
		if n := e.Effects(what); n != 0 {
			e.Errorf("%d effects beside a conflict", n)
		}
	}
	var nothing Tx
	if _, err := accounts.UpdateTx(e.Ctx, nothing, stale); !errors.Is(err, holdfast.ErrNoTx) {
		e.Errorf("no transaction: %v", err)
	}
	if _, err := accounts.GetTx(e.Ctx, nothing, stale); !errors.Is(err, holdfast.ErrNoTx) {
		e.Errorf("no transaction: %v", err)
	}
}

func namedColumns[Tx any](e *env[Tx]) {
	accounts := e.Accounts("a")
	row, err := accounts.Update(e.Ctx, conformance.Account{No: "a", Owner: "Ada", Cents: 7, Version: 1}, "cents")
	if err != nil || row.Version != 2 {
		e.Errorf("%+v, %v", row, err)
	}
	e.WantAccount(conformance.Account{No: "a", Cents: 7, Version: 2})
	if _, err = accounts.Update(e.Ctx, conformance.Account{No: "a", Owner: "Ada", Cents: 8, Version: 2}, "cents", "owner"); err != nil {
		e.Error(err)
	}
	e.WantAccount(conformance.Account{No: "a", Owner: "Ada", Cents: 8, Version: 3})
	for _, columns := range [][]string{{"version"}, {"account_no"}, {"none"}, {"cents", "cents"}, {`cents = 9, owner`}, {""}} {
		if _, err := accounts.Update(e.Ctx, conformance.Account{No: "a", Owner: "Eve", Cents: 9, Version: 3}, columns...); !errors.Is(err, holdfast.ErrInvalid) {
			e.Errorf("%q: %v", columns, err)
		}
	}
	e.WantAccount(conformance.Account{No: "a", Owner: "Ada", Cents: 8, Version: 3})

	// A key of two columns, and a row whose only other column is its version.
	e.Must(`CREATE TABLE days (merchant ` + e.Text() + ` NOT NULL, day INT NOT NULL, v INT NOT NULL, UNIQUE (day, merchant))`)
	type day struct {
		Merchant string `db:"merchant"`
		Day      int    `db:"day"`
		V        uint16 `db:"v"`
	}
	days, err := optimistic.New[day](e.Ctx, e.DB, holdfast.TableSpec{Table: "days", Schema: e.Schema(), Key: []string{"merchant", "day"}}, optimistic.Options{Version: "v"})
	if err != nil {
		e.Fatal(err)
	}
	for _, d := range []day{{"a", 1, 0}, {"a", 2, 0}, {"b", 1, 0}} {
		if _, err := days.Insert(e.Ctx, d); err != nil {
			e.Error(err)
		}
	}
	if d, err := days.Update(e.Ctx, day{"a", 2, 1}); err != nil || d != (day{"a", 2, 2}) {
		e.Errorf("%+v, %v", d, err)
	}
	if n := e.Int(`SELECT SUM(v) FROM days`); n != 4 {
		e.Errorf("the versions sum to %d, want 4: one row was to move", n)
	}
	if _, err := days.Update(e.Ctx, day{"b", 2, 1}); !errors.Is(err, optimistic.ErrNotFound) {
		e.Error(err)
	}
}

// sameValuesMoveTheVersion updates a row with equal values. MySQL then reports 0 affected rows
// unless clientFoundRows is set, and the naive form treats this as a conflict.
func sameValuesMoveTheVersion[Tx any](e *env[Tx]) {
	accounts := e.Accounts("a")
	tx := e.BeginTx(sql.LevelDefault)
	naive, err := e.Exec(e.Ctx, tx, `UPDATE accounts SET cents = 0 WHERE account_no = $1 AND version = 1`, e.TextKey("a"))
	if err != nil {
		e.Fatal(err)
	}
	e.EndTx(tx, false)
	if ambiguous := e.InnoDB() && !strings.Contains(e.Handle.Name, "clientFoundRows"); ambiguous != (naive == 0) {
		e.Errorf("the naive form touched %d rows", naive)
	}
	row := conformance.Account{No: "a", Version: 1}
	for want := int64(2); want < 5; want++ {
		if row, err = accounts.Update(e.Ctx, row); err != nil || row.Version != want {
			e.Errorf("%+v, %v", row, err)
		}
		e.WantAccount(row)
	}
	_, err = accounts.Update(e.Ctx, conformance.Account{No: "a", Version: 1})
	wantConflict(e, err, "accounts", "1", "4")
}

func insertDuplicates[Tx any](e *env[Tx]) {
	accounts := e.Accounts("a")
	wantDuplicate := func(err error) {
		e.Helper()
		var d *optimistic.DuplicateError
		if !errors.Is(err, optimistic.ErrDuplicate) || !errors.As(err, &d) || d.Table != "accounts" || d.Err == nil {
			e.Errorf("got %v", err)
		}
	}
	_, err := accounts.Insert(e.Ctx, conformance.Account{No: "a", Owner: "Eve", Cents: 9})
	wantDuplicate(err)
	tx := e.BeginTx(sql.LevelDefault)
	if err := e.Effect(e.Ctx, tx, "a"); err != nil {
		e.Error(err)
	}
	_, err = accounts.InsertTx(e.Ctx, tx, conformance.Account{No: "a", Owner: "Eve", Cents: 9, Version: 7})
	wantDuplicate(err)
	e.WantRolledBack(tx)
	e.WantAccount(conformance.Account{No: "a", Version: 1})
	if n := e.Effects("a"); n != 0 {
		e.Errorf("%d effects", n)
	}
	// Of several concurrent updates, one succeeds.
	var wg sync.WaitGroup
	errs := make(chan error, 8)
	for range cap(errs) {
		wg.Go(func() {
			_, err := accounts.Insert(e.Ctx, conformance.Account{No: "b"})
			errs <- err
		})
	}
	wg.Wait()
	close(errs)
	in := 0
	for err := range errs {
		if err == nil {
			in++
			continue
		}
		wantDuplicate(err)
	}
	if in != 1 {
		e.Errorf("%d inserts of one key", in)
	}
	if row, err := accounts.Insert(e.Ctx, conformance.Account{No: "c", Version: 7}); err != nil || row.Version != 7 {
		e.Errorf("a version to begin with: %+v, %v", row, err)
	}
}
