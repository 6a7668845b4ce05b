package sqlite

import (
	"fmt"
	"reflect"
)

// veto sets a commit hook. A cancelled statement makes SQLite roll the transaction back. The
// next statement would then commit on its own, and SQLite has no "autocommit off". While
// forbidden returns true, the hook turns every such commit into a rollback
// (SQLITE_CONSTRAINT_COMMITHOOK). See https://www.sqlite.org/c3ref/commit_hook.html.
//
// veto sets the hook by reflection, because modernc.org/sqlite and mattn/go-sqlite3 use
// different function types for it, and this package must not link a driver.
func veto(driverConn any, forbidden func() bool) (func(driverConn any), error) {
	set := func(driverConn any, f func() bool) error {
		m := reflect.ValueOf(driverConn).MethodByName("RegisterCommitHook")
		if !m.IsValid() || m.Type().NumIn() != 1 || m.Type().In(0).Kind() != reflect.Func {
			return fmt.Errorf("the SQLite driver's connection %T has no RegisterCommitHook: use modernc.org/sqlite or github.com/mattn/go-sqlite3", driverConn)
		}
		typ := m.Type().In(0)
		hook := reflect.Zero(typ)
		if f != nil {
			hook = reflect.MakeFunc(typ, func([]reflect.Value) []reflect.Value {
				answer := reflect.New(typ.Out(0)).Elem()
				if f() {
					answer.SetInt(1)
				}
				return []reflect.Value{answer}
			})
		}
		m.Call([]reflect.Value{hook})
		return nil
	}
	if err := set(driverConn, forbidden); err != nil {
		return nil, err
	}
	return func(driverConn any) { _ = set(driverConn, nil) }, nil
}
