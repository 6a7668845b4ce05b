package sqlite

import (
	"fmt"
	"reflect"
	"sync"
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
	typ := reflect.TypeOf(driverConn)
	h, _ := known.Load(typ)
	if h == nil {
		var err error
		if h, err = find(typ); err != nil {
			return nil, err
		}
		known.Store(typ, h)
	}
	set := h.(hooks).set //nolint:forcetypeassert // nothing else is in known
	set(driverConn, reflect.ValueOf(commit), reflect.ValueOf(lost))
	return func(driverConn any) { set(driverConn, reflect.Value{}, reflect.Value{}) }, nil
}

// hooks are the methods with which a driver sets hooks.
type hooks struct{ commit, rollback reflect.Method }

var known sync.Map // reflect.Type -> hooks: a method is found by its name once

func find(conn reflect.Type) (h hooks, err error) {
	for name, m := range map[string]*reflect.Method{"RegisterCommitHook": &h.commit, "RegisterRollbackHook": &h.rollback} {
		ok := conn != nil
		if ok {
			*m, ok = conn.MethodByName(name)
		}
		if !ok || m.Type.NumIn() != 2 || m.Type.In(1).Kind() != reflect.Func {
			return h, fmt.Errorf("the SQLite driver's connection %v has no %s: use modernc.org/sqlite or github.com/mattn/go-sqlite3", conn, name)
		}
	}
	return h, nil
}

// set sets both hooks. Invalid values remove them.
func (h hooks) set(driverConn any, commit, rollback reflect.Value) {
	conn := reflect.ValueOf(driverConn)
	h.commit.Func.Call([]reflect.Value{conn, as(commit, h.commit.Type.In(1))})
	h.rollback.Func.Call([]reflect.Value{conn, as(rollback, h.rollback.Type.In(1))})
}

// as returns f as the driver's type of function, whose result may be an int.
func as(f reflect.Value, typ reflect.Type) reflect.Value {
	switch {
	case !f.IsValid():
		return reflect.Zero(typ)
	case f.CanConvert(typ):
		return f.Convert(typ)
	}
	return reflect.MakeFunc(typ, func([]reflect.Value) []reflect.Value {
		out := f.Call(nil)
		for i := range out {
			out[i] = out[i].Convert(typ.Out(i))
		}
		return out
	})
}
