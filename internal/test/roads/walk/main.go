// Command walk makes one warm, uncontended call of each kind on SQLite, several times, and writes the
// coverage counters of each, and how many goroutines it started, into a folder of its argument: <call>/<time>.
// It is built with -cover.
package main

import (
	"context"
	"database/sql"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime/coverage"
	"runtime/metrics"
	"strconv"
	"strings"
	"time"

	_ "modernc.org/sqlite"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/adapters/holdfastsql"
	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/idempotency/idemhttp"
	"github.com/holdfast-go/holdfast/idempotency/staged"
	"github.com/holdfast-go/holdfast/migrations"
	"github.com/holdfast-go/holdfast/sqllock"
)

// times is how often each call is measured: what runs beside it in the background does not do so every time.
const times = 5

func must[T any](v T, err error) T {
	check(err)
	return v
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}

// measure counts what f enters, between prepare and clean.
func measure(name string, prepare, f, clean func()) {
	for i := range times {
		prepare()
		check(coverage.ClearCounters())
		before := goroutines()
		f()
		started := goroutines() - before
		dir := filepath.Join(os.Args[1], name, strconv.Itoa(i))
		check(os.MkdirAll(dir, 0o700)) //nolint:gosec // the folder is the caller's
		check(coverage.WriteMetaDir(dir))
		check(coverage.WriteCountersDir(dir))
		check(os.WriteFile(filepath.Join(dir, "goroutines"), []byte(strconv.FormatUint(started, 10)), 0o600)) //nolint:gosec // the folder is the caller's
		clean()
	}
}

func nothing() {}

// goroutines returns how many have been started.
func goroutines() uint64 {
	s := []metrics.Sample{{Name: "/sched/goroutines-created:goroutines"}}
	metrics.Read(s)
	return s[0].Value.Uint64()
}

func main() {
	ctx, cancel := context.WithCancel(context.Background()) // as the context of a request
	defer cancel()
	pool := must(sql.Open("sqlite", "file:"+filepath.Join(os.Args[1], "walk.db")+"?_pragma=journal_mode(WAL)&_pragma=busy_timeout(10000)"))
	check(migrations.Up(ctx, pool))
	must(pool.ExecContext(ctx, "CREATE TABLE effects (a INT)"))
	db := must(holdfastsql.Open(ctx, pool, holdfast.Options{SingleOwner: true}))
	effect := func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, "INSERT INTO effects VALUES (1)")
		return err
	}
	no := 0
	key := func() string { no++; return strconv.Itoa(no) }
	store := must(idempotency.New(ctx, db))
	refund := func(ctx context.Context, tx *sql.Tx) (string, error) { return "ok", effect(ctx, tx) }
	op := func() idempotency.Op {
		return idempotency.Op{Name: "refund", Key: key(), Request: map[string]int{"cents": 1}}
	}

	do := func() { must(idempotency.Do(ctx, store, op(), refund)) }
	for range 12 { // prepares the statements, and expects new keys
		do()
	}
	measure("Do", nothing, do, nothing)

	var tx *sql.Tx
	begin := func() { tx = must(pool.BeginTx(ctx, nil)) }
	doTx := func() { must(idempotency.DoTx(ctx, store, tx, op(), refund)) }
	commit := func() { check(tx.Commit()) }
	for range 4 {
		begin()
		doTx()
		commit()
	}
	measure("DoTx", begin, doTx, commit)

	locks := must(sqllock.New(ctx, db, sqllock.Options{TTL: time.Hour}))
	var lease *sqllock.Lease
	acquire := func() { lease = must(locks.Acquire(ctx, "k")) }
	release := func() { check(lease.Release(ctx)) }
	for range 4 {
		acquire()
		release()
	}
	measure("Acquire", nothing, acquire, release)
	measure("Release", acquire, release, nothing)
	acquire()
	measure("InTx with a guard", nothing, func() { check(locks.InTx(ctx, lease, effect)) }, nothing)
	release()
	check(locks.Close(ctx))

	runner := must(staged.New(store, staged.Workflow[string, string, *sql.Tx]{Name: "walk", Run: func(ctx context.Context, r *staged.Run[*sql.Tx], _ string) (string, error) {
		must(staged.Local(ctx, r, "book", refund))
		return staged.Call(ctx, r, staged.ExternalCall[string]{Step: "pay"}, func(context.Context, string) (string, error) { return "ref", nil })
	}}))
	operation := func() { must(runner.Do(ctx, idempotency.Op{Key: key()}, "r")) }
	operation()
	measure("staged operation", nothing, operation, nothing)

	handler := must(idemhttp.New(store, idemhttp.Operation("http"), idemhttp.Options{})).Handler(func(w http.ResponseWriter, r *http.Request, tx *sql.Tx) error {
		if err := effect(r.Context(), tx); err != nil {
			return err
		}
		_, err := w.Write([]byte(`{"a":1}`))
		return err
	})
	post := func() {
		r := httptest.NewRequestWithContext(ctx, http.MethodPost, "/x", strings.NewReader(`{"cents":1}`))
		r.Header.Set("Idempotency-Key", key())
		r.Header.Set("Content-Type", "application/json")
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		if w.Code != http.StatusOK {
			panic(w.Body.String())
		}
	}
	post()
	measure("POST", nothing, post, nothing)
}
