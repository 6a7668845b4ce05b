package operations

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"math"
	"math/big"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/idempotency/businessrow"
	"github.com/holdfast-go/holdfast/internal/test/conformance"
	"github.com/holdfast-go/holdfast/internal/test/dbtest"
)

// comparedColumnsKeep checks that a compared value which its column changes is refused by the first
// call: otherwise the same request again would be a mismatch.
func comparedColumnsKeep[Tx any](e *env[Tx]) {
	of := func(postgres, mysql, sqlite string) string {
		return map[dbtest.Engine]string{dbtest.Postgres: postgres, dbtest.MySQL: mysql, dbtest.MariaDB: mysql, dbtest.SQLite: sqlite}[e.Engine.Kin()]
	}
	at := time.Date(2026, 11, 25, 12, 0, 0, 0, time.UTC)
	times := []time.Time{at, at.Add(123456 * time.Microsecond), at.Add(123456789), at.Add(time.Second), at.Add(120 * time.Millisecond), at.Add(1)}
	timed, zone := e.timed(), time.FixedZone("CEST", 2*60*60)
	compared(timed, "micro", of(`TIMESTAMPTZ`, `DATETIME(6)`, `DATETIME`), times...)
	compared(timed, "second", of(`TIMESTAMPTZ(0)`, `DATETIME`, `TIMESTAMP`), times...)
	compared(timed, "wall", of(`TIMESTAMP`, `DATETIME(6)`, `DATETIME`), at, at.In(zone), at.Add(time.Microsecond).In(zone), at.Add(time.Second))
	seven, zeroSeven := "7", "07"
	var amounts []amount
	for _, text := range []string{"12", "12.5", "12.505", "12.50", "12.501", "0.01"} {
		amounts = append(amounts, exactly(text))
	}
	compared(e, "amount", `DECIMAL(12,2)`, amounts...)
	compared(e, "number", `DECIMAL(12,2)`, "12.50", "12.5", "12", "12.505", "0.01")
	compared(e, "code", of(`VARCHAR(3)`, `VARCHAR(3)`, `VARCHAR(3)`), "ab", "abc", "abc ", "a ", "")
	compared(e, "name", of(`VARCHAR(3)`, `VARCHAR(3) CHARACTER SET utf8mb4`, `VARCHAR(3)`), "ab", "ä", "Ωδ", "😀")
	compared(e, "padded", of(`CHAR(4)`, `CHAR(4)`, `CHAR(4)`), "abcd", "ab", "a ", "abc")
	compared(e, "real", of(`REAL`, `FLOAT`, `REAL`), 0.5, 0.1, 16777217, 2)
	compared(e, "double", of(`DOUBLE PRECISION`, `DOUBLE`, `REAL`), 0.5, 0.1, 16777217, 1e-300)
	compared(e, "scaled", of(`DOUBLE PRECISION`, `DOUBLE(10,2)`, `REAL`), 1.5, 1.555, 1.25, 100)
	compared(e, "uuid", of(`UUID`, `CHAR(36)`, `UUID`), "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11", "A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11", "a0eebc999c0b4ef8bb6d6bb9bd380a11")
	compared(e, "whole", of(`BIGINT`, `BIGINT`, `INTEGER`), "7", "07", "-7", "+7")
	compared(e, "pointed", of(`INTEGER`, `INT`, `INTEGER`), &seven, &zeroSeven, nil)
	compared(e, "nullable", of(`SMALLINT`, `SMALLINT`, `INTEGER`), sql.NullString{String: "7", Valid: true}, sql.NullString{String: "07", Valid: true}, sql.NullString{})
	if e.Engine.Kin() != dbtest.Postgres { // which gives no text back
		compared(e, "bytes", of(``, `VARBINARY(20)`, `BLOB`), "ab", `\x6162`, "")
	}
	compared(e, "binary", of(`BYTEA`, `VARBINARY(20)`, `BLOB`), []byte("ab"), []byte(`\x6162`), []byte{})
	compared(e, "signed", of(`BIGINT`, `BIGINT`, `INTEGER`), int64(-1), 1, math.MinInt64, math.MaxInt64)
	compared(timed, "some", of(`TIMESTAMPTZ(3)`, `DATETIME(3)`, `DATETIME`), sql.NullTime{}, sql.NullTime{Time: at.Add(time.Millisecond), Valid: true}, sql.NullTime{Time: at.Add(time.Microsecond), Valid: true})
}

// valued is a row whose value is compared.
type valued[V any] struct {
	No int64 `db:"no"`
	V  V     `db:"v"`
}

func tableOfValues[V, Tx any](e *env[Tx], name, column string) *businessrow.Table[valued[V], Tx] {
	e.Helper()
	e.Must(`CREATE TABLE ` + name + ` (no BIGINT NOT NULL PRIMARY KEY, v ` + column + `)`)
	table, err := businessrow.New[valued[V]](e.Ctx, e.DB, holdfast.TableSpec{Table: name, Key: []string{"no"}}, businessrow.Options{Compare: []string{"v"}})
	if err != nil {
		e.Fatal(err)
	}
	return table
}

// compared claims rows with each value, and sends each again. A first call executes, and then the same
// request is replayed, or it is refused.
func compared[V, Tx any](e *env[Tx], name, column string, values ...V) {
	e.Helper()
	type row = valued[V]
	name = "compared_" + name
	table := tableOfValues[V](e, name, column)
	forms := map[string]func(row) (idempotency.Outcome, error){
		"Do": func(r row) (idempotency.Outcome, error) {
			res, err := table.Do(e.Ctx, r, func(context.Context, Tx) error { return nil })
			return res.Outcome, err
		},
		"ClaimTx": func(r row) (o idempotency.Outcome, err error) {
			err = e.DB.InTx(e.Ctx, func(ctx context.Context, tx Tx) error {
				res, err := table.ClaimTx(ctx, tx, r)
				o = res.Outcome
				return err
			})
			return o, err
		},
		"ClaimAllTx": func(r row) (o idempotency.Outcome, err error) {
			err = e.DB.InTx(e.Ctx, func(ctx context.Context, tx Tx) error {
				answers, err := table.ClaimAllTx(ctx, tx, []row{r})
				if err == nil {
					o, err = answers[0].Outcome, answers[0].Err
				}
				return err
			})
			return o, err
		},
	}
	n := int64(0)
	for how, claim := range forms { // each finds what the others have read back
		for _, v := range values {
			n++
			first, err := claim(row{n, v})
			stands := e.Int(`SELECT COUNT(*) FROM `+name+` WHERE no = $1`, n)
			if errors.Is(err, holdfast.ErrInvalid) && stands == 0 {
				continue
			}
			again, errAgain := claim(row{n, v})
			if err != nil || first != idempotency.Executed || errAgain != nil || again != idempotency.Replayed || stands != 1 {
				e.Errorf("%s, %s: %v: %v, %v, then %v, %v", name, how, v, first, err, again, errAgain)
			}
		}
	}
	if n := e.Int(`SELECT COUNT(*) FROM ` + name); n == 0 {
		e.Errorf("%s: every value is refused", name)
	}
}

// timed returns e with a pool whose driver returns times: MySQL's does with parseTime.
func (e *env[Tx]) timed() *env[Tx] {
	if !e.InnoDB() {
		return e
	}
	c := *e
	c.Pool = e.Open(conformance.Param(e.DSN, "parseTime", "true"))
	e.Cleanup(func() { c.Close() })
	return &c
}

// comparedUnderNoStrictMode checks the same where the session lets a column change what it cannot hold.
func comparedUnderNoStrictMode[Tx any](e *env[Tx]) {
	if !e.InnoDB() {
		return // the other engines refuse the value or keep all of it
	}
	changed(e, "text", `VARCHAR(8) CHARACTER SET latin1`, "abcdefg", "Ωδ")
	changed(e, "name", `TEXT CHARACTER SET latin1`, "abcdefg", "Ωδ")
	changed(e, "long", `TEXT`, "12", strings.Repeat("a", 1<<16))
	changed(e, "part", `DECIMAL(5,2)`, exactly("12.50"), exactly("1234567.50"))
	changed(e, "amount", `DECIMAL(5)`, 12, 1234567)
	changed(e, "credit", `DECIMAL(5) UNSIGNED`, 12, -12)
	changed(e, "number", `INT`, 12, 1<<32)
	changed(e, "count", `BIGINT UNSIGNED`, 12, -12)
	timed, january := e.timed(), func(year int) time.Time { return time.Date(year, 1, 1, 0, 0, 0, 0, time.UTC) }
	changed(timed, "due", `TIMESTAMP`, january(2030), january(2040))
	changed(timed, "born", `TIMESTAMP`, january(2030), january(1960))
}

// changed claims a row whose value the column keeps, and then one whose value it changes.
func changed[V, Tx any](e *env[Tx], name, column string, kept, change V) {
	e.Helper()
	table := tableOfValues[V](e, "changed_"+name, column)
	claim := func(n int64, v V) error {
		return e.DB.InTx(e.Ctx, func(ctx context.Context, tx Tx) error {
			if _, err := e.Exec(ctx, tx, `SET SESSION sql_mode = ''`); err != nil {
				return err
			}
			_, err := table.ClaimTx(ctx, tx, valued[V]{n, v})
			return err
		})
	}
	if err := claim(1, kept); err != nil {
		e.Errorf("%s: %v: %v", name, kept, err)
	}
	if err := claim(2, change); err == nil {
		e.Errorf("%s: %.20v was changed, and claimed", name, change)
	}
}

func exactly(text string) amount { return amount{exact(text)} }

// amount is what the decimals of Go's libraries are: a struct with a pointer in it, exact, which is equal by
// its method only, and reads every form that a driver has for a number.
type amount struct{ rat *big.Rat } //nolint:recvcheck // what reads into it needs a pointer, and nothing else does

func exact(text string) *big.Rat {
	r, ok := new(big.Rat).SetString(text)
	if !ok {
		panic(text + " is not a number")
	}
	return r
}

func (a amount) Equal(other amount) bool      { return a.rat.Cmp(other.rat) == 0 }
func (a amount) Value() (driver.Value, error) { return a.String(), nil }

func (a amount) String() string {
	text := a.rat.FloatString(3)
	return strings.TrimSuffix(strings.TrimRight(text, "0"), ".")
}

// Scan reads a float by its shortest form, as libraries do.
func (a *amount) Scan(src any) error {
	switch v := src.(type) {
	case int64, float64:
		a.rat = exact(fmt.Sprint(v))
	case string:
		a.rat = exact(v)
	case []byte:
		a.rat = exact(string(v))
	default:
		return fmt.Errorf("%T is not a number", src)
	}
	return nil
}
