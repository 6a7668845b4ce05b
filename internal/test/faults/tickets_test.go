package faults_test

import (
	"bufio"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/adapters/holdfastsql"
	"github.com/holdfast-go/holdfast/internal/access"
	"github.com/holdfast-go/holdfast/internal/dsn"
	"github.com/holdfast-go/holdfast/internal/test/conformance"
	"github.com/holdfast-go/holdfast/internal/test/dbtest"
	"github.com/holdfast-go/holdfast/internal/test/faultproxy"
	"github.com/holdfast-go/holdfast/internal/test/history"
	"github.com/holdfast-go/holdfast/sqllock"
	"github.com/holdfast-go/holdfast/sqllock/fairlock"
)

// TestTicketsLostReplies loses the reply of each statement of a queued lock, or the statement
// itself. Two calls never hold the lock together, tokens increase, and tickets left behind are
// removed long before their TTL.
func TestTicketsLostReplies(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, engine dbtest.Engine) {
		if engine == dbtest.SQLite {
			return // no connection that could break
		}
		base := conformance.New(t, conformance.SQL(), engine)
		mode := "interpolateParams=true" // with this mode each request contains the statement's text
		if engine == dbtest.Postgres {
			mode = "default_query_exec_mode=exec"
			inMode(t, base, conformance.Pgx(), mode, func(w *world[pgx.Tx]) { ticketsLostReplies(w, base.DSN) })
		}
		inMode(t, base, conformance.SQL(), mode, func(w *world[*sql.Tx]) { ticketsLostReplies(w, base.DSN) })
	})
}

func ticketsLostReplies[Tx any](w *world[Tx], direct string) {
	behind, beside := fairLocker(w, w.Pool), fairLocker(w, w.Handle.Open(w.T, direct))
	for name, match := range map[string]faultproxy.Match{
		"draw":   faultproxy.Contains("SET token = "),
		"enter":  faultproxy.Contains("holdfast_tickets"),
		"commit": faultproxy.Commit,
		"look":   faultproxy.Contains("GROUP BY c.name, c.attempt"),
		"grant":  faultproxy.Contains("SET granted_at = COALESCE"),
		"leave":  faultproxy.Contains("DELETE FROM"),
	} {
		if name == "grant" && access.Of(w.Pool.DB).Dialect.Tickets.ReleaseGrants {
			continue // the release of the other has granted
		}
		for what, lose := range map[string]func(faultproxy.Match, faultproxy.Ending, ...func()) *faultproxy.Fault{
			"reply": w.proxy.LoseReply, "request": w.proxy.LoseRequest,
		} {
			ticketsLose(w, name+" "+what, behind, beside, func() *faultproxy.Fault { return lose(match, faultproxy.Close) })
		}
	}
}

func fairLocker[Tx any](w *world[Tx], p conformance.Pool[Tx]) *fairlock.Locker[Tx] {
	w.Helper()
	l, err := sqllock.New(w.Ctx, p.DB, sqllock.Options{TTL: time.Minute})
	if err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() { _ = l.Close(context.Background()) })
	return fairlock.New(l)
}

// ticketsLose applies the fault to a call that waits for another holder, acquires the lock and
// releases it. On a busy machine the other holder may release too early; then it tries again.
func ticketsLose[Tx any](w *world[Tx], key string, l, other *fairlock.Locker[Tx], arm func() *faultproxy.Fault) {
	w.Helper()
	rec := history.New()
	first := acquireAs(w, rec.Client(1), other, key)
	fault := arm()
	for n := 0; n < 10 && !fault.Fired(); n++ {
		if n > 0 {
			first = acquireAs(w, rec.Client(1), other, key)
		}
		done := make(chan struct{})
		go func() {
			defer close(done)
			end := acquireAs(w, rec.Client(2), l, key)
			end()
		}()
		for end := time.Now().Add(dbtest.Hang); time.Now().Before(end) && !fault.Fired() && w.Int(`SELECT COUNT(*) FROM holdfast_tickets`) < 2; {
			time.Sleep(time.Millisecond)
		}
		time.Sleep(20 * time.Millisecond) // usually it has polled by now
		first()
		select {
		case <-done:
		case <-time.After(30 * time.Second): // half of the TTL
			w.Errorf("%s: the lock is stuck", key)
		}
		<-done
	}
	w.struck(fault, errors.New(key+" was granted and released"))
	last := acquireAs(w, rec.Client(1), other, key)
	last()
	w.Eventually(key+": nobody is left in line", func() bool { return w.Int(`SELECT COUNT(*) FROM holdfast_tickets`) == 0 })
	history.Check(w.T, rec.History())
}

// acquireAs retries until it acquires the lock, and returns a function that releases it.
func acquireAs[Tx any](w *world[Tx], c *history.Client, l *fairlock.Locker[Tx], key string) (end func()) {
	w.Helper()
	for range 20 {
		op := c.Grant(key)
		lease, err := l.Acquire(w.Ctx, key)
		if err != nil { // an error of the connection
			op.Unknown()
			continue
		}
		term := op.Won(lease.Token(), time.Time{})
		return func() {
			release := term.Release()
			switch err := lease.Release(w.Ctx); {
			case err == nil:
				release.OK()
			case errors.Is(err, sqllock.ErrLost):
				release.Lost()
				w.Errorf("%s: %v", key, err)
			default:
				release.Unknown() // the release continues in the background
			}
		}
	}
	w.Errorf("%s: never granted", key)
	return func() {}
}

const childTickets = "HOLDFAST_FAULTS_CHILD_TICKETS" // the URL of the database

// TestTicketsOfKilledProcess kills a process that holds a lock and waits in the queues of others.
// The next call in each queue gets its place.
func TestTicketsOfKilledProcess(t *testing.T) {
	t.Parallel()
	conformance.Run(t, conformance.SQL(), func(e *conformance.Env[*sql.Tx]) {
		l, err := sqllock.New(e.Ctx, e.DB, sqllock.Options{TTL: 20 * time.Second})
		if err != nil {
			e.Fatal(err)
		}
		defer func() { _ = l.Close(e.Ctx) }()
		pool, err := fairlock.New(l).Semaphore("permits", 2)
		if err != nil {
			e.Fatal(err)
		}
		queue, err := fairlock.New(l).AcquireShared(e.Ctx, "queue")
		if err != nil {
			e.Fatal(err)
		}
		program, err := os.Executable()
		if err != nil {
			e.Fatal(err)
		}
		cmd := exec.CommandContext(e.Ctx, program, "-test.run", "^TestTicketsChild$")
		cmd.Env = append(os.Environ(), childTickets+"="+e.DSN)
		cmd.Stderr = os.Stderr
		in, err := cmd.StdinPipe()
		if err != nil {
			e.Fatal(err)
		}
		defer func() { _ = in.Close() }()
		out, err := cmd.StdoutPipe()
		if err != nil {
			e.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			e.Fatal(err)
		}
		var held, permits int64
		line, _ := bufio.NewReader(out).ReadString('\n')
		if _, err := fmt.Sscanf(line, "tokens %d %d", &held, &permits); err != nil {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
			e.Fatalf("the child said %q", line)
		}
		e.Eventually("the child's writer stands in line", func() bool { return e.Int(`SELECT COUNT(*) FROM holdfast_tickets`) == 4 })
		if _, err := fairlock.New(l).TryAcquire(e.Ctx, "held"); !errors.Is(err, sqllock.ErrHeld) {
			e.Errorf("the child has it: %v", err)
		}
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if err := unreleased(queue.Release(e.Ctx)); err != nil {
			e.Error(err)
		}
		after, err := fairlock.New(l).Acquire(e.Ctx, "held")
		if err != nil {
			e.Fatal(err)
		}
		both, err := pool.Acquire(e.Ctx, 2)
		if err != nil {
			e.Fatal(err)
		}
		behind, err := fairlock.New(l).AcquireShared(e.Ctx, "queue")
		if err != nil {
			e.Fatal(err)
		}
		if after.Token() <= held || both.Token() <= permits {
			e.Errorf("tokens %d after %d, %d after %d", after.Token(), held, both.Token(), permits)
		}
		if err := errors.Join(after.Release(e.Ctx), both.Release(e.Ctx), behind.Release(e.Ctx)); err != nil {
			e.Error(err)
		}
		if n := e.Int(`SELECT COUNT(*) FROM holdfast_tickets`); n != 0 {
			e.Errorf("%d rows are left", n)
		}
	})
}

// TestTicketsChild is the process that is killed; it is not a test.
func TestTicketsChild(t *testing.T) {
	url := os.Getenv(childTickets)
	if url == "" {
		return
	}
	ctx := t.Context()
	pool, _, err := dsn.Open(url)
	if err != nil {
		t.Fatal(err)
	}
	db, err := holdfastsql.Open(ctx, pool, holdfast.Options{SingleOwner: true})
	if err != nil {
		t.Fatal(err)
	}
	l, err := sqllock.New(ctx, db, sqllock.Options{TTL: 2 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	s, err := fairlock.New(l).Semaphore("permits", 2)
	if err != nil {
		t.Fatal(err)
	}
	held, err := fairlock.New(l).Acquire(ctx, "held")
	if err != nil {
		t.Fatal(err)
	}
	permit, err := s.Acquire(ctx, 1)
	if err != nil {
		t.Fatal(err)
	}
	fmt.Printf("tokens %d %d\n", held.Token(), permit.Token())
	go func() { _, _ = fairlock.New(l).Acquire(ctx, "queue") }()
	_, _ = io.Copy(io.Discard, os.Stdin) // until it is killed, or its parent has ended
	os.Exit(1)
}
