// Package taken contains the suite that takes a table, a column or a right away under calls that wait or
// work in the background: each ends with the server's words, or reports them, and none sends statements that
// fail as fast as it can.
package taken

import (
	"context"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/test/conformance"
	"github.com/holdfast-go/holdfast/internal/test/dbtest"
	"github.com/holdfast-go/holdfast/sqllock"
)

// env is one call of the test's process. What is taken away is taken away from that process.
type env[Tx any] struct {
	*conformance.Env[Tx]
	// others is another process.
	others *conformance.Env[Tx]
	// theirs has the locks for which the calls of mine wait.
	theirs, mine *sqllock.Locker[Tx]
	call         string
	ready        func()
	tell         func(error)
	free         func() // what the call waits for
}

// change takes something away from all calls.
type change struct {
	name string
	// do and undo take it and give it back, from the table; column is one of its columns.
	do, undo func(table, column, account string) string
	words    func(table, column string) string // what the server says names it
	server   bool                              // it needs accounts
}

func renamed(text string) func(table, column, account string) string {
	return func(table, column, account string) string {
		return strings.NewReplacer("{table}", table, "{column}", column, "{account}", account).Replace(text)
	}
}

var changes = []change{
	{
		name: "table", do: renamed(`ALTER TABLE {table} RENAME TO {table}_gone`), undo: renamed(`ALTER TABLE {table}_gone RENAME TO {table}`),
		words: func(table, _ string) string { return table },
	},
	{
		name: "column", do: renamed(`ALTER TABLE {table} RENAME COLUMN {column} TO gone`), undo: renamed(`ALTER TABLE {table} RENAME COLUMN gone TO {column}`),
		words: func(_, column string) string { return column },
	},
	{
		name: "right", do: renamed(`REVOKE SELECT, INSERT, UPDATE, DELETE ON {table} FROM {account}`), undo: renamed(`GRANT SELECT, INSERT, UPDATE, DELETE ON {table} TO {account}`),
		words: func(string, string) string { return "denied" }, server: true,
	},
}

// Suite makes each change under all calls at once, through one handle.
func Suite[Tx any](t *testing.T, h conformance.Handle[Tx]) {
	t.Helper()
	for _, c := range changes {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			conformance.Run(t, h, func(e *conformance.Env[Tx]) { takes(e, c) })
		})
	}
}

func takes[Tx any](e *conformance.Env[Tx], c change) {
	if c.server && e.Engine == dbtest.SQLite {
		return // it has no accounts
	}
	all, account, mine, failed := calls[Tx](), "", *e, atomic.Int64{}
	dsn := e.DSN
	if c.server {
		name, pool, drop := e.Role()
		pool.Close()
		defer drop()
		account, dsn = name, regexp.MustCompile(`//[^@]*@`).ReplaceAllString(e.DSN, "//"+name+":pw@")
	}
	mine.Pool = e.Handle.Open(e.T, dsn, holdfast.Options{Observers: []holdfast.Observer{func(_ context.Context, s holdfast.Statement) {
		if s.Err != nil {
			failed.Add(1)
		}
	}}})
	theirs, locks := e.Lockers(1, sqllock.Options{})[0], mine.Lockers(1, sqllock.Options{})[0]

	told, tables, ends := map[string]chan error{}, map[string]string{}, []func(){}
	for _, name := range Names() {
		ctx, cancel := context.WithCancel(e.Ctx)
		waits, first, done := make(chan struct{}), make(chan error, 1), make(chan struct{})
		of := &env[Tx]{
			Env: &mine, others: e, theirs: theirs, mine: locks, call: name,
			ready: sync.OnceFunc(func() { close(waits) }), free: func() {},
			tell: func(err error) {
				if err == nil {
					return
				}
				select {
				case first <- err:
				default:
				}
			},
		}
		run := all[name].start(of)
		go func() {
			defer close(done)
			of.tell(run(ctx))
		}()
		await(e, name+" waits", waits)
		told[name], tables[all[name].table] = first, all[name].column
		ends = append(ends, func() { of.free(); cancel(); await(e, name+" ends", done) })
	}
	e.Eventually("the calls wait for locks", func() bool { return e.Tickets() >= 2*tickets && e.Int(`SELECT COUNT(*) FROM holdfast_waiters`) >= 2 })
	failed.Store(0)
	began := time.Now()
	for table, column := range tables {
		e.Must(c.do(table, column, account))
	}
	for name, tell := range told {
		call := all[name]
		select {
		case err := <-tell:
			words := []string{c.words(call.table, call.column)}
			if call.table == "holdfast_tickets" { // a ticket is numbered in the locks' table, and that is gone too
				words = append(words, c.words("holdfast_locks", tables["holdfast_locks"]))
			}
			if name == "reaper.Reaper.Run" { // a pass works on all tables, and more than one is gone
				words = nil
				for table, column := range tables {
					words = append(words, c.words(table, column))
				}
			}
			if !slices.ContainsFunc(words, func(w string) bool { return strings.Contains(err.Error(), w) }) {
				e.Errorf("%s, which lost its %s, said %v: without %q", name, c.name, err, words)
			}
		case <-time.After(dbtest.Hang):
			e.Errorf("%s, which lost its %s, says nothing", name, c.name)
		}
	}
	// Those that go on, go on for a while: long enough that a loop without a pause shows.
	e.Eventually("some seconds are over", func() bool { return time.Since(began) > 3*time.Second })
	if n, most := failed.Load(), int64(200+100*time.Since(began).Seconds()); n > most {
		e.Errorf("%d statements failed in %v, at most %d", n, time.Since(began), most)
	}
	for table, column := range tables {
		e.Must(c.undo(table, column, account))
	}
	for _, end := range slices.Backward(ends) {
		end()
	}
}

func await[Tx any](e *conformance.Env[Tx], what string, event <-chan struct{}) {
	e.Helper()
	select {
	case <-event:
	case <-time.After(dbtest.Hang):
		e.Fatalf("not within %v: %s", dbtest.Hang, what)
	}
}
