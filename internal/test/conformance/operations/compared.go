package operations

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"math/big"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/idempotency/businessrow"
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
	if e.SQL.QueryRowContext(e.Ctx, `SELECT CURRENT_TIMESTAMP`).Scan(new(time.Time)) != nil && e.Engine.Kin() != dbtest.SQLite {
		times = nil // without parseTime, MySQL's driver has no times
	}
	compared(e, "micro", of(`TIMESTAMPTZ`, `DATETIME(6)`, `DATETIME`), times...)
	compared(e, "second", of(`TIMESTAMPTZ(0)`, `DATETIME`, `TIMESTAMP`), times...)
	var amounts []amount
	for _, text := range []string{"12", "12.5", "12.505", "12.50", "12.501", "0.01"} {
		amounts = append(amounts, amount{exact(text)})
	}
	compared(e, "amount", `DECIMAL(12,2)`, amounts...)
	compared(e, "number", `DECIMAL(12,2)`, "12.50", "12.5", "12", "12.505", "0.01")
	compared(e, "code", of(`VARCHAR(3)`, `VARCHAR(3)`, `VARCHAR(3)`), "ab", "abc", "abc ", "a ", "")
	compared(e, "padded", of(`CHAR(4)`, `CHAR(4)`, `CHAR(4)`), "abcd", "ab", "a ", "abc")
	compared(e, "real", of(`REAL`, `FLOAT`, `REAL`), 0.5, 0.1, 16777217, 2)
	compared(e, "double", of(`DOUBLE PRECISION`, `DOUBLE`, `REAL`), 0.5, 0.1, 16777217, 1e-300)
	if times == nil {
		return
	}
	compared(e, "some", of(`TIMESTAMPTZ(3)`, `DATETIME(3)`, `DATETIME`), sql.NullTime{}, sql.NullTime{Time: at.Add(time.Millisecond), Valid: true}, sql.NullTime{Time: at.Add(time.Microsecond), Valid: true})
}

// compared claims rows with each value, and sends each again. A first call executes, and then the same
// request is replayed, or it is refused.
func compared[V, Tx any](e *env[Tx], name, column string, values ...V) {
	e.Helper()
	type row struct {
		No int64 `db:"no"`
		V  V     `db:"v"`
	}
	name = "compared_" + name
	e.Must(`CREATE TABLE ` + name + ` (no BIGINT NOT NULL PRIMARY KEY, v ` + column + `)`)
	table, err := businessrow.New[row](e.Ctx, e.DB, holdfast.TableSpec{Table: name, Key: []string{"no"}}, businessrow.Options{Compare: []string{"v"}})
	if err != nil {
		e.Fatal(err)
	}
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
	if n := e.Int(`SELECT COUNT(*) FROM ` + name); n == 0 && values != nil {
		e.Errorf("%s: every value is refused", name)
	}
}

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
