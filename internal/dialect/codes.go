package dialect

import (
	"errors"
	"reflect"
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

// Code is the engine's code of a driver's error, as people look it up; "" where
// it has none.
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

// walk visits err and what it wraps, until f is satisfied.
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
