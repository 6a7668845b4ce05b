package sqlite

import (
	"fmt"
	"reflect"
)

// veto sets a commit hook and a rollback hook. A cancelled statement makes SQLite roll the transaction
// back. The next statement would then commit on its own, and SQLite has no "autocommit off". While
// forbidden returns true, the commit hook turns every such commit into a rollback
// (SQLITE_CONSTRAINT_COMMITHOOK). A function that rolls back and begins again is found by lost. See
// https://www.sqlite.org/c3ref/commit_hook.html.
//
// veto sets the hooks by reflection, because modernc.org/sqlite and mattn/go-sqlite3 use different
// function types for them, and this package must not link a driver.
func veto(driverConn any, forbidden func() bool, lost func()) (func(driverConn any), error) {
	commit := func() int32 {
		if forbidden() {
			return 1
		}
		return 0
	}
	for method, f := range map[string]any{"RegisterCommitHook": commit, "RegisterRollbackHook": lost} {
		if err := hook(driverConn, method, reflect.ValueOf(f)); err != nil {
			return nil, err
		}
	}
	return func(driverConn any) {
		_ = hook(driverConn, "RegisterCommitHook", reflect.Value{})
		_ = hook(driverConn, "RegisterRollbackHook", reflect.Value{})
	}, nil
}

// hook calls the driver's method that sets a hook. The invalid value removes it.
func hook(driverConn any, method string, f reflect.Value) error {
	m := reflect.ValueOf(driverConn).MethodByName(method)
	if !m.IsValid() || m.Type().NumIn() != 1 || m.Type().In(0).Kind() != reflect.Func {
		return fmt.Errorf("the SQLite driver's connection %T has no %s: use modernc.org/sqlite or github.com/mattn/go-sqlite3", driverConn, method)
	}
	typ := m.Type().In(0)
	arg := reflect.Zero(typ)
	if f.IsValid() {
		arg = reflect.MakeFunc(typ, func([]reflect.Value) []reflect.Value {
			out := f.Call(nil)
			for i := range out {
				out[i] = out[i].Convert(typ.Out(i)) // int, or int32
			}
			return out
		})
	}
	m.Call([]reflect.Value{arg})
	return nil
}
