package dialect_test

import (
	"database/sql/driver"
	"errors"
	"fmt"
	"testing"

	mysqldriver "github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/holdfast-go/holdfast/internal/dialect"
	"github.com/holdfast-go/holdfast/internal/dialect/mysql"
	"github.com/holdfast-go/holdfast/internal/dialect/postgres"
	"github.com/holdfast-go/holdfast/internal/dialect/sqlite"
	"github.com/holdfast-go/holdfast/internal/dialect/tidb"
	"github.com/holdfast-go/holdfast/internal/dialect/vitess"
)

func pg(state string) error { return &pgconn.PgError{Code: state, Message: "m"} }

func my(number uint16) error { return &mysqldriver.MySQLError{Number: number, Message: "m"} }

// liteError has the method of modernc.org/sqlite's error.
type liteError struct{ code int }

func (e liteError) Error() string { return "no such table: x" }
func (e liteError) Code() int     { return e.code }

func lite(code int) error { return liteError{code} }

// TestErrorsMean is the table of the meanings of the engines' errors, also wrapped or joined
// as users' functions return them. At COMMIT, only allow-listed errors mean "not committed".
func TestErrorsMean(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		d          dialect.Dialect
		err        error
		class      dialect.Class
		rolledBack bool
	}{
		{postgres.Dialect, pg("40001"), dialect.Retry, true},
		{postgres.Dialect, pg("40P01"), dialect.Retry, true},
		{postgres.Dialect, pg("40003"), dialect.Other, false}, // statement completion unknown
		{postgres.Dialect, pg("55P03"), dialect.Busy, true},
		{postgres.Dialect, pg("57P01"), dialect.Cut, false}, // shutdown: may follow the commit record
		{postgres.Dialect, pg("57P02"), dialect.Cut, false},
		{postgres.Dialect, pg("57014"), dialect.Busy, true},  // statement_timeout
		{postgres.Dialect, pg("25P03"), dialect.Retry, true}, // the session ended before COMMIT arrived
		{postgres.Dialect, pg("25P04"), dialect.Retry, true},
		{postgres.Dialect, pg("42501"), dialect.Denied, true},
		{postgres.Dialect, errors.New("conn busy"), dialect.Other, true}, // not sent
		{postgres.Dialect, errors.New("error preprocessing batch (prepare): unexpected EOF"), dialect.Other, true},
		{postgres.Dialect, pg("08006"), dialect.Other, false},
		{postgres.Dialect, pg("23505"), dialect.Duplicate, true},
		{postgres.Dialect, pg("23514"), dialect.Other, true}, // a deferred constraint
		{postgres.Dialect, pg("P0001"), dialect.Other, true}, // a deferred trigger
		{postgres.Dialect, pg("25P02"), dialect.Gone, true},
		{postgres.Dialect, pg("25006"), dialect.ReadOnly, true},
		{postgres.Dialect, pg("42P01"), dialect.NoTable, true},
		{postgres.Dialect, pg("XX000"), dialect.Other, false},
		{postgres.Dialect, errors.New("conn closed"), dialect.Other, false},
		{postgres.Dialect, errors.New("unexpected EOF"), dialect.Other, false},
		{postgres.Dialect, errors.New("commit unexpectedly resulted in rollback"), dialect.Gone, true},
		{postgres.Dialect, pg("HF001"), dialect.Refused, true}, // the triggers of Enforce
		{postgres.Dialect, pg("HF002"), dialect.Fenced, true},
		{mysql.Dialect, my(1213), dialect.Retry, true},
		{mysql.Dialect, my(3101), dialect.Retry, true},
		{mysql.Dialect, my(30100), dialect.Refused, true},
		{mysql.Dialect, my(30101), dialect.Fenced, true},
		{mysql.Dialect, my(1020), dialect.Retry, true},
		{mysql.Dialect, my(1205), dialect.Busy, true},
		{mysql.Dialect, my(3572), dialect.Busy, false},
		{mysql.Dialect, my(1062), dialect.Duplicate, true},
		{mysql.Dialect, my(1146), dialect.NoTable, true},
		{mysql.Dialect, my(1290), dialect.ReadOnly, true},
		{mysql.Dialect, my(1792), dialect.ReadOnly, true},
		{mysql.Dialect, my(1142), dialect.Denied, true},
		{mysql.Dialect, my(1143), dialect.Denied, true},
		{mysql.Dialect, my(1044), dialect.Denied, false},
		{mysql.Dialect, driver.ErrBadConn, dialect.Cut, true}, // not a byte was sent
		{mysql.Dialect, my(1180), dialect.Other, false},       // seen on writes that were committed
		{mysql.Dialect, my(1317), dialect.Other, false},
		{mysql.Dialect, mysqldriver.ErrInvalidConn, dialect.Cut, false},
		{mysql.Dialect, my(4031), dialect.Cut, false},
		{mysql.Dialect, my(1153), dialect.Large, false},
		{mysql.Dialect, mysqldriver.ErrPktTooLarge, dialect.Large, false},
		{vitess.Dialect, &mysqldriver.MySQLError{Number: 1173, Message: "table 'locks' does not have a primary vindex"}, dialect.Unplaced, false},
		{vitess.Dialect, &mysqldriver.MySQLError{Number: 1105, Message: "table locks not found"}, dialect.NoTable, false},
		{vitess.Dialect, my(1213), dialect.Retry, true},
		{tidb.Dialect, my(8121), dialect.Denied, true},
		{tidb.Dialect, my(9007), dialect.Retry, true},
		{sqlite.Dialect, lite(1811), dialect.Other, true}, // a user's trigger
		{sqlite.Dialect, lite(5), dialect.Busy, true},
		{sqlite.Dialect, lite(261), dialect.Busy, true},
		{sqlite.Dialect, lite(517), dialect.Retry, true},
		{sqlite.Dialect, lite(531), dialect.Gone, true},
		{sqlite.Dialect, lite(2067), dialect.Duplicate, true},
		{sqlite.Dialect, lite(1), dialect.NoTable, true},
		{sqlite.Dialect, lite(10), dialect.Other, false}, // I/O error
		{sqlite.Dialect, lite(13), dialect.Other, false},
	} {
		for form, err := range map[string]error{
			"plain": c.err, "wrapped": fmt.Errorf("booking: %w", c.err), "joined": errors.Join(errors.New("x"), c.err),
		} {
			if got := c.d.Classify(err); got != c.class {
				t.Errorf("%s, %s %v: class %v, want %v", c.d.Name, form, c.err, got, c.class)
			}
			if got := c.d.RolledBack(err); got != c.rolledBack {
				t.Errorf("%s, %s %v at COMMIT: rolled back %v, want %v", c.d.Name, form, c.err, got, c.rolledBack)
			}
		}
		if !c.d.Disconnected(errors.New("EOF")) || c.d.Classify(errors.New("foreign")) != dialect.Other {
			t.Errorf("%s: errors without a code", c.d.Name)
		}
	}
}
