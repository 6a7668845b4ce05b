package operations

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/idempotency/businessrow"
	"github.com/holdfast-go/holdfast/internal/test/conformance"
	"github.com/holdfast-go/holdfast/internal/test/dbtest"
)

// BusinessRows is the suite of business rows.
func BusinessRows[Tx any](t *testing.T, h conformance.Handle[Tx]) {
	for name, f := range map[string]func(*env[Tx]){
		"RowExecutedThenReplayed":    rowExecutedThenReplayed[Tx],
		"RowOtherKeyIsNoReplay":      rowOtherKeyIsNoReplay[Tx],
		"RowOtherKeyIsLookedAtFirst": rowOtherKeyIsLookedAtFirst[Tx],
		"RowInCallersTransaction":    rowInCallersTransaction[Tx],
		"RowStampede":                rowStampede[Tx],
		"FoldingKeysAreRefused":      foldingKeysAreRefused[Tx],
		"RowWithAutoIncrement":       rowWithAutoIncrement[Tx],
		"RowWithTriggers":            rowWithTriggers[Tx],
		"RowRefusedAfterwards":       rowRefusedAfterwards[Tx],
		"RowThatTheFunctionChanges":  rowThatTheFunctionChanges[Tx],
		"RowWithoutItsNumber":        rowWithoutItsNumber[Tx],
		"KeysThatColumnsChange":      keysThatColumnsChange[Tx],
		"ComparedColumnsKeep":        comparedColumnsKeep[Tx],
		"ComparedUnderNoStrictMode":  comparedUnderNoStrictMode[Tx],
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run(t, h, f)
		})
	}
}

func rowExecutedThenReplayed[Tx any](e *env[Tx]) {
	refunds := e.Refunds()
	effect := func(ctx context.Context, tx Tx) error { return e.Effect(ctx, tx, "a") }
	row := conformance.Refund{No: "a", Amount: 5}
	for _, outcome := range []idempotency.Outcome{idempotency.Executed, idempotency.Replayed} {
		if r, err := refunds.Do(e.Ctx, row, effect); err != nil || r.Outcome != outcome || r.Value != row {
			e.Errorf("got %+v, %v, want %v", r, err, outcome)
		}
	}
	row.Amount = 6
	_, err := refunds.Do(e.Ctx, row, effect)
	var m *idempotency.MismatchError
	if !errors.As(err, &m) || len(m.Columns) != 1 || m.Columns[0] != "amount" {
		e.Errorf("another amount: %v", err)
	}
	e.WantOnce("a")
	boom := errors.New("boom")
	if _, err := refunds.Do(e.Ctx, conformance.Refund{No: "b"}, func(context.Context, Tx) error { return boom }); !errors.Is(err, boom) {
		e.Errorf("got %v", err)
	}
	if n := e.Int(`SELECT COUNT(*) FROM refunds`); n != 1 {
		e.Errorf("%d rows, want 1: an error gives the key back", n)
	}
	for _, twin := range []string{"A", "a ", "\u00e1"} {
		if r, err := refunds.Do(e.Ctx, conformance.Refund{No: twin}, effect); err != nil || r.Outcome != idempotency.Executed {
			e.Errorf("twin %q: %v, %v", twin, r, err)
		}
	}
}

// rowOtherKeyIsNoReplay: MySQL's upsert catches a conflict on any unique key.
func rowOtherKeyIsNoReplay[Tx any](e *env[Tx]) {
	refunds := e.Refunds()
	bank := sql.NullString{String: "B-1", Valid: true}
	if _, err := refunds.Do(e.Ctx, conformance.Refund{No: "a", Bank: bank, Amount: 5}, func(context.Context, Tx) error { return nil }); err != nil {
		e.Fatal(err)
	}
	_, err := refunds.Do(e.Ctx, conformance.Refund{No: "b", Bank: bank, Amount: 5}, func(ctx context.Context, tx Tx) error { return e.Effect(ctx, tx, "b") })
	if !errors.Is(err, businessrow.ErrUniqueViolation) || e.Effects("b") != 0 {
		e.Errorf("got %v", err)
	}
	tx, err := e.Begin(e.Ctx, sql.LevelDefault)
	if err != nil {
		e.Fatal(err)
	}
	if _, err := refunds.ClaimTx(e.Ctx, tx, conformance.Refund{No: "b", Bank: bank, Amount: 5}); !errors.Is(err, businessrow.ErrUniqueViolation) {
		e.Errorf("in a transaction: %v", err)
	}
	if err := e.End(e.Ctx, tx, true); err == nil {
		e.Error("the transaction was not rolled back")
	}
}

// rowOtherKeyIsLookedAtFirst claims a row whose duplicate is committed while the claim waits, where another
// unique index is older than the key's. PostgreSQL finds the duplicate in that one, and says so.
func rowOtherKeyIsLookedAtFirst[Tx any](e *env[Tx]) {
	e.Must(`CREATE TABLE transfers (bank VARCHAR(20) NOT NULL UNIQUE, no BIGINT NOT NULL UNIQUE)`)
	type transfer struct {
		Bank string `db:"bank"`
		No   int64  `db:"no"`
	}
	table, err := businessrow.New[transfer](e.Ctx, e.DB, holdfast.TableSpec{Table: "transfers", Key: []string{"no"}}, businessrow.Options{Compare: []string{"bank"}})
	if err != nil {
		e.Fatal(err)
	}
	for i, claim := range []func(row transfer) (idempotency.Outcome, error){
		func(row transfer) (idempotency.Outcome, error) {
			r, err := table.Do(e.Ctx, row, func(context.Context, Tx) error { return nil })
			return r.Outcome, err
		},
		func(row transfer) (o idempotency.Outcome, err error) {
			err = e.DB.InTx(e.Ctx, func(ctx context.Context, tx Tx) error {
				r, err := table.ClaimTx(ctx, tx, row)
				o = r.Outcome
				return err
			})
			return o, err
		},
		func(row transfer) (o idempotency.Outcome, err error) {
			err = e.DB.InTx(e.Ctx, func(ctx context.Context, tx Tx) error {
				a, err := table.ClaimAllTx(ctx, tx, []transfer{{"before" + row.Bank, -row.No - 1}, row})
				if err == nil {
					o, err = a[1].Outcome, a[1].Err
				}
				return err
			})
			return o, err
		},
	} {
		row := transfer{fmt.Sprint("B-", i), int64(i)}
		tx := e.BeginTx(sql.LevelDefault)
		// It gets the key only later, so that the claim waits for it in the other index.
		if _, err := e.Exec(e.Ctx, tx, `INSERT INTO transfers (bank, no) VALUES ($1, $2)`, row.Bank, row.No+100); err != nil {
			e.Fatal(err)
		}
		var wg sync.WaitGroup
		wg.Go(func() {
			if got, err := claim(row); err != nil || got != idempotency.Replayed {
				e.Errorf("claim %d: %v, %v", i, got, err)
			}
		})
		e.Waits()
		if _, err := e.Exec(e.Ctx, tx, `UPDATE transfers SET no = $1 WHERE bank = $2`, row.No, row.Bank); err != nil {
			e.Fatal(err)
		}
		e.EndTx(tx, true)
		wg.Wait()
	}
}

func rowInCallersTransaction[Tx any](e *env[Tx]) {
	refunds := e.Refunds()
	for _, commit := range []bool{false, true} {
		tx, err := e.Begin(e.Ctx, sql.LevelDefault)
		if err != nil {
			e.Fatal(err)
		}
		r, err := refunds.ClaimTx(e.Ctx, tx, conformance.Refund{No: "a", Amount: 5})
		if err != nil || r.Outcome != idempotency.Executed {
			e.Errorf("%v, %v", r, err)
		}
		if err := e.Effect(e.Ctx, tx, "a"); err != nil {
			e.Error(err)
		}
		if err := e.End(e.Ctx, tx, commit); err != nil {
			e.Error(err)
		}
	}
	tx, err := e.Begin(e.Ctx, sql.LevelDefault)
	if err != nil {
		e.Fatal(err)
	}
	if _, err := refunds.ClaimTx(e.Ctx, tx, conformance.Refund{No: "a", Amount: 6}); !errors.Is(err, idempotency.ErrMismatch) {
		e.Errorf("got %v, want mismatch", err)
	}
	if r, err := refunds.ClaimTx(e.Ctx, tx, conformance.Refund{No: "a", Amount: 5}); err != nil || r.Outcome != idempotency.Replayed {
		e.Errorf("after a mismatch the transaction goes on: %v, %v", r, err)
	}
	if err := e.End(e.Ctx, tx, true); err != nil {
		e.Error(err)
	}
	e.WantOnce("a")
}

func rowStampede[Tx any](e *env[Tx]) {
	refunds := e.Refunds()
	tables := []*businessrow.Table[conformance.Refund, Tx]{refunds, e.Refunds()}
	var wg sync.WaitGroup
	var mu sync.Mutex
	peak := 0
	for i := range 64 {
		wg.Go(func() {
			_, err := tables[i%2].Do(e.Ctx, conformance.Refund{No: "a", Amount: 5}, func(ctx context.Context, tx Tx) error {
				time.Sleep(50 * time.Millisecond)
				mu.Lock()
				peak = max(peak, e.InUse())
				mu.Unlock()
				return e.Effect(ctx, tx, "a")
			})
			if err != nil {
				e.Error(err)
			}
		})
	}
	wg.Wait()
	e.WantOnce("a")
	if peak > 4 {
		e.Errorf("64 duplicates held %d connections", peak)
	}
	_, err := refunds.Do(e.Ctx, conformance.Refund{No: "b"}, func(ctx context.Context, _ Tx) error {
		_, err := refunds.Do(ctx, conformance.Refund{No: "b"}, func(context.Context, Tx) error { return nil })
		return err
	})
	if !errors.Is(err, idempotency.ErrNested) {
		e.Errorf("asking for its own key: %v", err)
	}
}

// foldingKeysAreRefused checks that a key which treats different values as equal, misses rows or
// allows NULL is refused when the table is opened. It would lose a refund.
func foldingKeysAreRefused[Tx any](e *env[Tx]) {
	type K struct {
		No string `db:"no"`
	}
	bad := map[dbtest.Engine][]string{
		dbtest.Postgres: {
			`no char(20) NOT NULL UNIQUE`, `no text UNIQUE`, `no text NOT NULL`, `no text NOT NULL UNIQUE DEFERRABLE`,
			`no text NOT NULL, other int NOT NULL, UNIQUE (no, other)`, `no text COLLATE fold NOT NULL UNIQUE`,
			`no text NOT NULL) ; CREATE UNIQUE INDEX ON {t} (no) WHERE no > 'm' --`, `no text NOT NULL); CREATE UNIQUE INDEX ON {t} (lower(no)) --`,
		},
		dbtest.MySQL: {
			`no VARCHAR(50) NOT NULL UNIQUE`, `no VARCHAR(50) COLLATE utf8mb4_bin NOT NULL UNIQUE`, `no CHAR(50) COLLATE utf8mb4_0900_bin NOT NULL UNIQUE`,
			`no VARBINARY(50) UNIQUE`, `no VARBINARY(50) NOT NULL`, `no VARBINARY(50) NOT NULL, UNIQUE (no(10))`, `no BINARY(50) NOT NULL UNIQUE`,
			`no VARBINARY(50) NOT NULL, UNIQUE ((LOWER(no)))`,
		},
		dbtest.MariaDB: {
			`no VARCHAR(50) NOT NULL UNIQUE`, `no VARCHAR(50) COLLATE utf8mb4_bin NOT NULL UNIQUE`, `no CHAR(50) COLLATE utf8mb4_nopad_bin NOT NULL UNIQUE`,
			`no VARBINARY(50) UNIQUE`, `no VARBINARY(50) NOT NULL`, `no VARBINARY(50) NOT NULL, UNIQUE (no(10))`, `no BINARY(50) NOT NULL UNIQUE`,
		},
		dbtest.SQLite: {
			`no TEXT UNIQUE`, `no TEXT NOT NULL`, `no TEXT COLLATE NOCASE NOT NULL UNIQUE`, `no DECIMAL NOT NULL UNIQUE`, `no NOT NULL UNIQUE`,
			`no TEXT NOT NULL); CREATE UNIQUE INDEX part ON {t} (no) WHERE no > 'm'; --`, `no TEXT NOT NULL); CREATE UNIQUE INDEX low ON {t} (lower(no)); --`,
			`no TEXT NOT NULL); CREATE UNIQUE INDEX nocase ON {t} (no COLLATE NOCASE); --`,
		},
	}
	good := map[dbtest.Engine][]string{
		dbtest.Postgres: {`no text NOT NULL UNIQUE`, `no varchar(50) PRIMARY KEY`, `no text NOT NULL); CREATE UNIQUE INDEX ON {t} (no) --`},
		dbtest.MySQL:    {`no VARBINARY(50) NOT NULL UNIQUE`, `no VARCHAR(50) COLLATE utf8mb4_0900_bin PRIMARY KEY`},
		dbtest.MariaDB:  {`no VARBINARY(50) NOT NULL UNIQUE`, `no VARCHAR(50) COLLATE utf8mb4_nopad_bin PRIMARY KEY`},
		dbtest.SQLite:   {`no TEXT NOT NULL UNIQUE`, `no TEXT NOT NULL PRIMARY KEY`, `no BLOB NOT NULL UNIQUE`},
	}
	if e.Engine == dbtest.Postgres {
		e.Must(`CREATE COLLATION fold (provider = icu, locale = 'und-u-ks-level2', deterministic = false)`)
	}
	try := func(n int, kind, columns string) error {
		table := kind + string(rune('a'+n))
		e.Must(strings.ReplaceAll(`CREATE TABLE `+table+` (`+columns+`)`, "{t}", table))
		k, err := businessrow.New[K](e.Ctx, e.DB, holdfast.TableSpec{Table: table, Key: []string{"no"}})
		if err != nil {
			return err
		}
		for _, no := range []string{"a", "A", "a ", "\u00e1"} {
			if r, err := k.Do(e.Ctx, K{no}, func(context.Context, Tx) error { return nil }); err != nil || r.Outcome != idempotency.Executed {
				e.Errorf("%s, %q: %v, %v", columns, no, r, err)
			}
		}
		return nil
	}
	for n, columns := range bad[e.Engine.Kin()] {
		if err := try(n, "bad", columns); !errors.Is(err, holdfast.ErrInvalid) {
			e.Errorf("%s: got %v, want a refusal", columns, err)
		}
	}
	for n, columns := range good[e.Engine.Kin()] {
		if err := try(n, "good", columns); err != nil {
			e.Errorf("%s: %v", columns, err)
		}
	}
	for name, spec := range map[string]holdfast.TableSpec{
		"a table that is not there":   {Table: "nowhere", Key: []string{"no"}},
		"a column that is not there":  {Table: "refunds", Key: []string{"no"}},
		"no key":                      {Table: "refunds"},
		"a field that is not there":   {Table: "refunds", Key: []string{"refund_no"}},
		"a table's name with a quote": {Table: `x"; DROP TABLE effects; --`, Key: []string{"no"}},
		"a table's name with a NUL":   {Table: "x\x00", Key: []string{"no"}},
	} {
		if _, err := businessrow.New[K](e.Ctx, e.DB, spec); !errors.Is(err, holdfast.ErrInvalid) {
			e.Errorf("%s: got %v", name, err)
		}
	}
}

// rowWithAutoIncrement checks that the new id in MySQL's OK packet is not read as the result of
// the claim.
func rowWithAutoIncrement[Tx any](e *env[Tx]) {
	id := map[dbtest.Engine]string{
		dbtest.Postgres: `BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY`, dbtest.SQLite: `INTEGER PRIMARY KEY`,
		dbtest.MySQL: `BIGINT AUTO_INCREMENT PRIMARY KEY`, dbtest.MariaDB: `BIGINT AUTO_INCREMENT PRIMARY KEY`,
	}[e.Engine.Kin()]
	e.Must(`CREATE TABLE numbered (id ` + id + `, no ` + e.Text() + ` NOT NULL UNIQUE)`)
	type row struct {
		No string `db:"no"`
	}
	k, err := businessrow.New[row](e.Ctx, e.DB, holdfast.TableSpec{Table: "numbered", Key: []string{"no"}})
	if err != nil {
		e.Fatal(err)
	}
	for _, no := range []string{"a", "b", "c"} {
		for range 3 {
			tx, err := e.Begin(e.Ctx, sql.LevelDefault)
			if err != nil {
				e.Fatal(err)
			}
			r, err := k.ClaimTx(e.Ctx, tx, row{no})
			if err == nil && r.Outcome == idempotency.Executed {
				err = e.Effect(e.Ctx, tx, no)
			}
			if err := errors.Join(err, e.End(e.Ctx, tx, true)); err != nil {
				e.Error(err)
			}
		}
		e.WantOnce(no)
	}
}

// rowWithTriggers checks that triggers of the table neither hide the winner nor fire for a claim
// that lost.
func rowWithTriggers[Tx any](e *env[Tx]) {
	dbtest.Needs(e, e.Engine, dbtest.Triggers)
	e.Must(`CREATE TABLE touched (n INT NOT NULL)`)
	switch e.Engine {
	case dbtest.Postgres:
		e.Must(`CREATE FUNCTION touch() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN INSERT INTO touched VALUES (1); RETURN NEW; END'`)
		e.Must(`CREATE TRIGGER touch BEFORE UPDATE ON refunds FOR EACH ROW EXECUTE FUNCTION touch()`)
	case dbtest.SQLite:
		e.Must(`CREATE TRIGGER touch BEFORE UPDATE ON refunds BEGIN INSERT INTO touched VALUES (1); END`)
	default:
		e.Must(`CREATE TRIGGER touch BEFORE UPDATE ON refunds FOR EACH ROW INSERT INTO touched VALUES (1)`)
	}
	refunds := e.Refunds()
	for i := range 3 {
		tx := e.BeginTx(sql.LevelDefault)
		r, err := refunds.ClaimTx(e.Ctx, tx, conformance.Refund{No: "a", Amount: 5})
		if want := []idempotency.Outcome{idempotency.Executed, idempotency.Replayed, idempotency.Replayed}[i]; err != nil || r.Outcome != want {
			e.Errorf("call %d: %v, %v", i, r, err)
		}
		e.EndTx(tx, true)
	}
	var wg sync.WaitGroup
	for range 16 {
		table := e.Refunds() // as in another process
		wg.Go(func() {
			if _, err := table.Do(e.Ctx, conformance.Refund{No: "b", Amount: 5}, func(ctx context.Context, tx Tx) error { return e.Effect(ctx, tx, "b") }); err != nil {
				e.Error(err)
			}
		})
	}
	wg.Wait()
	e.WantOnce("b")
	if n := e.Int(`SELECT COUNT(*) FROM touched`); n != 0 {
		e.Errorf("claims that lost fired %d triggers", n)
	}
}

// keysThatColumnsChange checks that a column which truncates or rounds keys cannot merge two of
// them.
func keysThatColumnsChange[Tx any](e *env[Tx]) {
	type text struct {
		No string `db:"no"`
	}
	e.Must(`CREATE TABLE numbers (no BIGINT NOT NULL UNIQUE)`)
	if _, err := businessrow.New[text](e.Ctx, e.DB, holdfast.TableSpec{Table: "numbers", Key: []string{"no"}}); !errors.Is(err, holdfast.ErrInvalid) {
		e.Errorf("text on a number's column: %v", err)
	}
	short := map[dbtest.Engine]string{
		dbtest.Postgres: `varchar(3)`, dbtest.MySQL: `VARCHAR(3) COLLATE utf8mb4_0900_bin`,
		dbtest.MariaDB: `VARCHAR(3) COLLATE utf8mb4_nopad_bin`, dbtest.SQLite: `VARCHAR(3)`, // the column truncates nothing there
	}[e.Engine.Kin()]
	e.Must(`CREATE TABLE short (no ` + short + ` NOT NULL UNIQUE)`)
	table, err := businessrow.New[text](e.Ctx, e.DB, holdfast.TableSpec{Table: "short", Key: []string{"no"}})
	if err != nil {
		e.Fatal(err)
	}
	for _, no := range []string{"abc ", "abc"} {
		r, err := table.Do(e.Ctx, text{no}, func(ctx context.Context, tx Tx) error { return e.Effect(ctx, tx, no) })
		if no == "abc " && e.Engine != dbtest.SQLite {
			if !errors.Is(err, holdfast.ErrInvalid) || e.Effects(no) != 0 {
				e.Errorf("%q was cut: %v, %v", no, r, err)
			}
		} else if err != nil || r.Outcome != idempotency.Executed {
			e.Errorf("%q: %v, %v", no, r, err)
		}
	}
}
