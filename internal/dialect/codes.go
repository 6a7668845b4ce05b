package dialect

import (
	"errors"
	"reflect"
	"slices"
	"strconv"
)

// SQLState finds the SQLSTATE of a PostgreSQL driver's error (pgx and lib/pq
// both have the method), without linking the driver.
func SQLState(err error) string {
	if err == nil {
		return ""
	}
	var e interface{ SQLState() string }
	if errors.As(err, &e) {
		return e.SQLState()
	}
	return ""
}

// MySQLNumber finds the error number of go-sql-driver's *MySQLError. The type
// has fields only, so it is read by reflection: a program on PostgreSQL must
// not link MySQL's driver.
func MySQLNumber(err error) (number uint16) {
	walk(err, func(e error) bool {
		v := reflect.Indirect(reflect.ValueOf(e))
		if v.Kind() != reflect.Struct || v.Type().Name() != "MySQLError" {
			return false
		}
		f := v.FieldByName("Number")
		if f.IsValid() && f.Kind() == reflect.Uint16 {
			number, _ = reflect.TypeAssert[uint16](f)
			return true
		}
		return false
	})
	return number
}

// SQLiteCode finds the extended result code of a SQLite driver's error:
// modernc.org/sqlite has the method Code, mattn/go-sqlite3 the field ExtendedCode.
func SQLiteCode(err error) (code int) {
	if err == nil {
		return 0
	}
	var coder interface{ Code() int }
	if errors.As(err, &coder) {
		return coder.Code()
	}
	walk(err, func(e error) bool {
		v := reflect.Indirect(reflect.ValueOf(e))
		if v.Kind() != reflect.Struct {
			return false
		}
		f := v.FieldByName("ExtendedCode")
		if f.IsValid() && f.CanInt() {
			code = int(f.Int())
			return true
		}
		return false
	})
	return code
}

// Code returns the engine's code of a driver's error in the form that its manual uses, or ""
// if the error has none.
func Code(err error) string {
	if state := SQLState(err); state != "" {
		return "SQLSTATE " + state
	}
	if n := MySQLNumber(err); n != 0 {
		return "error " + strconv.Itoa(int(n))
	}
	if n := SQLiteCode(err); n != 0 {
		return "SQLite code " + strconv.Itoa(n)
	}
	return ""
}

// Misunderstood reports whether err means that the server does not know a name in the
// statement, or does not accept its syntax.
func Misunderstood(err error) bool {
	return slices.Contains([]string{"42601", "42883", "42P01", "42703", "3F000", "0A000"}, SQLState(err)) ||
		slices.Contains([]uint16{1049, 1054, 1064, 1105, 1109, 1146, 1193, 1235, 1305}, MySQLNumber(err))
}

// bounds maps the code of an error to the limit that ended the statement or the session.
var bounds = map[string]string{
	"SQLSTATE 25P03": "the server's idle_in_transaction_session_timeout",
	"SQLSTATE 25P04": "the server's transaction_timeout",
	"SQLSTATE 57014": "the server's statement_timeout, or a request to cancel,",
	"SQLSTATE 55P03": "LockTimeout of the options, or lock_timeout in a transaction that the caller began,",
	"error 1205":     "LockTimeout of the options, or innodb_lock_wait_timeout in a transaction that the caller began,",
	"error 1969":     "the server's max_statement_time",
	"error 3024":     "the server's max_execution_time",
}

// EndedBy says which limit caused err. It returns "" if no limit did.
func EndedBy(err error) string { return bounds[Code(err)] }

// walk calls f with err and with each error that it wraps, until f returns true.
func walk(err error, f func(error) bool) bool {
	for err != nil {
		if f(err) {
			return true
		}
		if many, ok := err.(interface{ Unwrap() []error }); ok {
			for _, e := range many.Unwrap() {
				if walk(e, f) {
					return true
				}
			}
			return false
		}
		err = errors.Unwrap(err)
	}
	return false
}
