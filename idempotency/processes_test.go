package idempotency_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/adapters/holdfastsql"
	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/internal/dsn"
	"github.com/holdfast-go/holdfast/internal/test/conformance"
	"github.com/holdfast-go/holdfast/internal/test/dbtest"
)

// jobVariable makes the test binary run as one of the processes of a test.
const jobVariable = "HOLDFAST_TEST_JOB"

// job is the task of one process: a number of goroutines use one key at one instant.
type job struct {
	DSN, Key   string
	Goroutines int
	Wait       time.Duration // Op.Wait
	Start      time.Time
	KillAt     string // a separate kind of job: see crash_test.go
}

// report is the result of one process.
type report struct {
	Executed, Replayed, InProgress int

	Errors []string
	// PeakInUse is the most connections in use at once, PeakOpen the most that the pool had
	// open.
	PeakInUse, PeakOpen int
}

// TestThousandDuplicates runs 4 processes with 250 goroutines each, which all use one new key
// at the same instant. One call executes. All others replay, or return that the operation is
// in progress if they did not wait. No deadlock error reaches the caller, and no process uses
// more than a few connections.
func TestThousandDuplicates(t *testing.T) {
	t.Parallel()
	const processes, each = 4, 250
	conformance.Run(t, conformance.SQL(), func(e *conformance.Env[*sql.Tx]) {
		for round := range 3 {
			key, noWait, wait := fmt.Sprintf("round %d", round), round == 2, time.Duration(0)
			if noWait {
				wait = holdfast.NoWait
			}
			start := time.Now().Add(1500 * time.Millisecond)
			reports := make([]report, processes)
			var wg sync.WaitGroup
			for i := range reports {
				wg.Go(func() {
					if err := runJob(e.Ctx, job{DSN: e.DSN, Key: key, Goroutines: each, Wait: wait, Start: start}, &reports[i]); err != nil {
						e.Error(err)
					}
				})
			}
			wg.Wait()
			total := report{}
			together := 0
			for _, r := range reports {
				total.Executed += r.Executed
				total.Replayed += r.Replayed
				total.InProgress += r.InProgress
				total.Errors = append(total.Errors, r.Errors...)
				total.PeakInUse = max(total.PeakInUse, r.PeakInUse)
				total.PeakOpen = max(total.PeakOpen, r.PeakOpen)
				together += r.PeakInUse
			}
			e.WantOnce(key)
			// A call whose COMMIT was unknown may end as a replay, so "executed" is at most one.
			if len(total.Errors) > 0 || total.Executed > 1 || total.Executed+total.Replayed+total.InProgress != processes*each ||
				total.InProgress > 0 && !noWait {
				e.Errorf("%+v", total)
			}
			if total.PeakOpen > 3 {
				e.Errorf("%d duplicates in a process held %d connections", each, total.PeakOpen)
			}
			e.Logf("%d duplicates from %d processes (no wait: %v): executed %d, replayed %d, in progress %d; peak of connections in use: %d in a process, %d in all",
				processes*each, processes, noWait, total.Executed, total.Replayed, total.InProgress, total.PeakInUse, together)
		}
	})
}

func runJob(ctx context.Context, j job, r *report) error {
	b, err := json.Marshal(j)
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, os.Args[0])
	cmd.Env = append(os.Environ(), jobVariable+"="+string(b))
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("a process: %w", err)
	}
	return json.Unmarshal(out, r)
}

// work runs a job in the child process.
func work(text string) int {
	var j job
	r := &report{}
	err := json.Unmarshal([]byte(text), &j)
	switch {
	case err != nil:
	case j.KillAt != "":
		err = dieAt(j)
	default:
		err = r.run(j)
	}
	if err != nil {
		r.Errors = append(r.Errors, err.Error())
	}
	_ = json.NewEncoder(os.Stdout).Encode(r)
	return 0
}

func (r *report) run(j job) error {
	ctx, cancel := context.WithTimeout(context.Background(), conformance.Timeout)
	defer cancel()
	pool, _, err := dsn.Open(j.DSN)
	if err != nil {
		return err
	}
	defer func() { _ = pool.Close() }()
	var mu sync.Mutex
	db, err := holdfastsql.Open(ctx, pool, holdfast.Options{SingleOwner: true, Observers: []holdfast.Observer{func(context.Context, holdfast.Statement) {
		mu.Lock()
		defer mu.Unlock()
		stats := pool.Stats()
		r.PeakInUse, r.PeakOpen = max(r.PeakInUse, stats.InUse), max(r.PeakOpen, stats.OpenConnections)
	}}})
	if err != nil {
		return err
	}
	store, err := idempotency.New(ctx, db, idempotency.Options{Wait: 30 * time.Second})
	if err != nil {
		return err
	}
	insert := insertEffect(db.Engine())
	time.Sleep(time.Until(j.Start))
	op := conformance.Op(j.Key)
	op.Wait = j.Wait
	var wg sync.WaitGroup
	for range j.Goroutines {
		wg.Go(func() {
			res, err := idempotency.Do(ctx, store, op, func(ctx context.Context, tx *sql.Tx) (string, error) {
				_, err := tx.ExecContext(ctx, insert, []byte(j.Key))
				return "done", err
			})
			mu.Lock()
			defer mu.Unlock()
			switch {
			case errors.Is(err, idempotency.ErrInProgress):
				r.InProgress++
			case err != nil:
				r.Errors = append(r.Errors, err.Error())
			case res.Outcome == idempotency.Executed:
				r.Executed++
			default:
				r.Replayed++
			}
		})
	}
	wg.Wait()
	return nil
}

func insertEffect(e holdfast.Engine) string {
	if e == holdfast.PostgreSQL {
		return `INSERT INTO effects (k, who) VALUES ($1, 'process')`
	}
	return `INSERT INTO effects (k, who) VALUES (?, 'process')`
}

// TestPoolOfOne checks that every operation works with one connection.
func TestPoolOfOne(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, engine dbtest.Engine) {
		e := conformance.New(t, conformance.SQL(), engine)
		pool := dbtest.OpenSQL(t, e.DSN)
		pool.SetMaxOpenConns(1)
		e.Pool = conformance.SQLPool(t, pool)
		s := e.Store(idempotency.Options{})
		var wg sync.WaitGroup
		for i := range 16 {
			op := conformance.Op(fmt.Sprint(i % 4))
			if i%8 == 0 {
				op.Wait = holdfast.NoWait
			}
			wg.Go(func() {
				if _, err := e.Do(s, op); err != nil && (op.Wait != holdfast.NoWait || !errors.Is(err, idempotency.ErrInProgress)) {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		// What reads after an error needs the connection of the transaction.
		boom := errors.New("boom")
		if _, err := idempotency.Do(e.Ctx, s, conformance.Op("boom"), func(context.Context, *sql.Tx) (string, error) { return "", boom }); !errors.Is(err, boom) || err.Error() != boom.Error() {
			t.Errorf("got %v, want the function's error", err)
		}
		tx, err := e.Begin(e.Ctx, sql.LevelDefault)
		if err != nil {
			t.Fatal(err)
		}
		op := conformance.Op("tx")
		op.Wait = holdfast.NoWait
		_, err = idempotency.DoTx(e.Ctx, s, tx, op, func(ctx context.Context, tx *sql.Tx) (string, error) { return "", e.Effect(ctx, tx, "tx") })
		if err := errors.Join(err, tx.Commit()); err != nil {
			t.Error(err)
		}
		if err := e.DB.InTx(e.Ctx, func(ctx context.Context, tx *sql.Tx) error { return e.Effect(ctx, tx, "intx") }); err != nil {
			t.Error(err)
		}
		for _, key := range []string{"0", "1", "2", "3", "tx", "intx"} {
			e.WantOnce(key)
		}
	})
}

// TestUnreachable checks that Open fails at once for a wrong DSN, without the password in the
// error.
func TestUnreachable(t *testing.T) {
	t.Parallel()
	for _, url := range []string{
		"postgres://user:hunter2@127.0.0.1:1/db?connect_timeout=2", "mysql://user:hunter2@tcp(127.0.0.1:1)/db?timeout=2s", "sqlite:///no/such/folder/x.db",
	} {
		pool := dbtest.OpenSQL(t, url)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		_, err := holdfastsql.Open(ctx, pool, holdfast.Options{SingleOwner: true})
		cancel()
		if err == nil {
			t.Errorf("%.12s: no error", url)
			continue
		}
		if strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%.12s: the password is in the error", url)
		}
	}
}
