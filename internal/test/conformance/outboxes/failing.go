package outboxes

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/idempotency/outbox"
	"github.com/holdfast-go/holdfast/internal/access"
	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/test/rowdiff"
)

// away takes a table away while f runs: each statement on it fails.
func (e *env[Tx]) away(table string, f func()) {
	e.Helper()
	e.Must(`ALTER TABLE ` + table + ` RENAME TO holdfast_away`)
	f()
	e.Must(`ALTER TABLE holdfast_away RENAME TO ` + table)
}

// failing takes a table away under every call. Each says so, and leaves what is stored as it was.
func failing[Tx any](e *env[Tx]) {
	e.write(message("a", 0), message("b", 0))
	e.pass(e.relay(func(_ context.Context, d outbox.Delivery) error {
		if d.Key == "a" {
			return outbox.Permanent(errBroker)
		}
		return nil
	}, outbox.Options{}))
	e.write(message("c", 0))
	letters, err := core.First(10, e.box.DeadLetters(e.Ctx))
	e.Check(err)
	published := 0
	r := e.relay(func(context.Context, outbox.Delivery) error { published++; return nil }, outbox.Options{})
	calls := map[string]func() error{
		"write": func() error {
			return e.DB.InTx(e.Ctx, func(ctx context.Context, tx Tx) error {
				if err := e.box.Write(ctx, tx, message("d", 0)); err != nil {
					return err
				}
				return e.Effect(ctx, tx, "written")
			})
		},
		"requeue": func() error { return e.box.Requeue(e.Ctx, letters[0], who) },
		"discard": func() error { return e.box.Discard(e.Ctx, letters[0], who) },
		"clear":   func() error { _, err := e.box.Clear(e.Ctx, 0); return err },
		"pass":    func() error { _, err := r.Pass(e.Ctx); return err },
		"letters": func() error { _, err := core.First(10, e.box.DeadLetters(e.Ctx)); return err },
		"stats":   func() error { _, err := e.box.Stats(e.Ctx); return err },
	}
	tables := []rowdiff.Table{{Name: "holdfast_outbox", Key: []string{"owner", "name", "message_key", "seq"}}, {Name: "holdfast_outbox_keys", Key: []string{"owner", "name", "message_key"}}}
	read := func() rowdiff.Rows {
		return rowdiff.Read(e.Ctx, e, access.Of(e.DB).Pool, func(name string) string { return name }, tables...)
	}
	before := read()
	for table, needed := range map[string][]string{
		"holdfast_outbox":      {"write", "requeue", "discard", "clear", "pass", "letters", "stats"},
		"holdfast_outbox_keys": {"write", "clear"},
		"holdfast_audit":       {"requeue", "discard"},
	} {
		e.away(table, func() {
			for _, name := range needed {
				if err := calls[name](); err == nil {
					e.Errorf("%s without %s: no error", name, table)
				}
			}
		})
		rowdiff.Check(e, "without "+table, before, read(), nil, rowdiff.Clock{})
	}
	if published != 0 || e.Effects("written") != 0 {
		e.Errorf("%d were published, %d effects", published, e.Effects("written"))
	}
}

// failingBetween takes the table away after each statement of a relay in turn, while it publishes. Its pass
// says so, and another relay publishes what was not noted: each message at least once, in order.
func failingBetween[Tx any](e *env[Tx]) {
	for after, more := 1, true; more && !e.Failed(); after++ {
		b, name := &broker{}, fmt.Sprint("outbox ", after)
		var sent atomic.Int64
		gone := false
		other := e.Handle.Open(e.T, e.DSN, holdfast.Options{Observers: []holdfast.Observer{func(_ context.Context, st holdfast.Statement) {
			if len(st.Name) > 7 && st.Name[:7] == "outbox." && sent.Add(1) == int64(after) {
				gone = true
				e.Must(`ALTER TABLE holdfast_outbox RENAME TO holdfast_away`)
			}
		}}})
		box, err := outbox.New(e.Ctx, other.DB, name)
		e.Check(err)
		for n := range 3 {
			m := message("a", n)
			e.Check(e.DB.InTx(e.Ctx, func(ctx context.Context, tx Tx) error {
				own, err := outbox.New(ctx, e.DB, name)
				if err != nil {
					return err
				}
				return own.Write(ctx, tx, m)
			}))
		}
		r, err := outbox.NewRelay(box, b.publish, outbox.Options{Batch: 2})
		e.Check(err)
		n, err := r.Pass(e.Ctx)
		statements := sent.Load()
		more = statements > int64(after)
		if (err != nil) != more || !more && n != 3 {
			e.Errorf("after %d of %d statements: %d were published, %v", after, statements, n, err)
		}
		if gone {
			e.Must(`ALTER TABLE holdfast_away RENAME TO holdfast_outbox`)
		}
		e.Must(`UPDATE holdfast_outbox SET due_at = 0 WHERE state = 1`)
		e.pass(e.other(name, b))
		if n := b.inOrder(e); n != 3 {
			e.Errorf("after %d statements: %d of 3 messages were published", after, n)
		}
		if n := e.Int(`SELECT COUNT(*) FROM holdfast_outbox WHERE name = $1 AND state <> 2`, name); n != 0 {
			e.Errorf("after %d statements: %d messages are not published", after, n)
		}
	}
}

// stoppedBefore stops a relay that has just taken a message. The message is free at once, and counts no
// attempt.
func stoppedBefore[Tx any](e *env[Tx]) {
	e.write(message("a", 0), message("a", 1), message("a", 2))
	ctx, stop := context.WithCancel(e.Ctx)
	defer stop()
	other := e.Handle.Open(e.T, e.DSN, holdfast.Options{Observers: []holdfast.Observer{func(_ context.Context, st holdfast.Statement) {
		if st.Name == "outbox.take" {
			stop()
		}
	}}})
	box, err := outbox.New(e.Ctx, other.DB, name)
	e.Check(err)
	b := &broker{}
	r, err := outbox.NewRelay(box, b.publish, outbox.Options{Lease: time.Hour})
	e.Check(err)
	if n, err := r.Pass(ctx); n != 0 || err != nil && !errors.Is(err, context.Canceled) {
		e.Errorf("%d were published, %v", n, err)
	}
	if n := e.pass(e.relay(b.publish, outbox.Options{})); n != 3 {
		e.Errorf("%d were published at once, want 3", n)
	}
	for _, d := range b.all() {
		if d.Attempt != 1 {
			e.Errorf("%s is in attempt %d, want 1", d.Body, d.Attempt)
		}
	}
}

// manyKeys publishes more keys than a relay works on at a time, in one pass.
func manyKeys[Tx any](e *env[Tx]) {
	const keys = 5
	for n := range keys {
		e.write(message(fmt.Sprint("key ", n), 0))
	}
	b := &broker{}
	if n := e.pass(e.relay(b.publish, outbox.Options{Keys: 1})); n != keys {
		e.Errorf("%d were published, want %d", n, keys)
	}
}

// runRests counts what Run does while there is nothing to do, and what it logs.
func runRests[Tx any](e *env[Tx]) {
	var passes, failed atomic.Int64
	other := e.Handle.Open(e.T, e.DSN, holdfast.Options{Observers: []holdfast.Observer{func(_ context.Context, st holdfast.Statement) {
		if st.Name == "outbox.due" {
			passes.Add(1)
		}
	}}})
	box, err := outbox.New(e.Ctx, other.DB, name)
	e.Check(err)
	r, err := outbox.NewRelay(box, (&broker{}).publish, outbox.Options{Poll: time.Hour, Logger: slog.New(&counts{Handler: slog.DiscardHandler, n: &failed})})
	e.Check(err)
	ctx, stop := context.WithCancel(e.Ctx)
	var wg sync.WaitGroup
	wg.Go(func() { _ = r.Run(ctx) })
	e.Eventually("it has looked", func() bool { return passes.Load() > 0 })
	time.Sleep(20 * time.Millisecond) // for what it should not do
	if n, logged := passes.Load(), failed.Load(); n != 1 || logged != 0 {
		e.Errorf("it looked %d times and logged %d errors, want 1 and 0", n, logged)
	}
	e.Must(`ALTER TABLE holdfast_outbox RENAME TO holdfast_away`)
	r.Wake()
	e.Eventually("it has logged the error", func() bool { return failed.Load() > 0 })
	e.Must(`ALTER TABLE holdfast_away RENAME TO holdfast_outbox`)
	e.write(message("a", 0))
	r.Wake()
	e.Eventually("it goes on", func() bool {
		s, err := e.box.Stats(e.Ctx)
		e.Check(err)
		return s.Waiting == 0
	})
	stop()
	wg.Wait()
}

// counts counts the records of a logger.
type counts struct {
	slog.Handler
	n *atomic.Int64
}

func (c *counts) Enabled(context.Context, slog.Level) bool { return true }

func (c *counts) Handle(context.Context, slog.Record) error { c.n.Add(1); return nil }
