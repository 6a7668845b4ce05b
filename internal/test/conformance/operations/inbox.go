package operations

import (
	"context"
	"database/sql"
	"errors"
	"sync"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/idempotency/inbox"
	"github.com/holdfast-go/holdfast/internal/test/conformance"
	"github.com/holdfast-go/holdfast/internal/test/dbtest"
	"github.com/holdfast-go/holdfast/sqllock/rowlock"
)

func (e *env[Tx]) inbox(consumer string) *inbox.Inbox[Tx] {
	e.Helper()
	in, err := inbox.New(e.Store(idempotency.Options{}), consumer)
	if err != nil {
		e.Fatal(err)
	}
	return in
}

// inboxOnce delivers one message to several workers of a consumer at once, and again later. Each
// consumer processes it once.
func inboxOnce[Tx any](e *env[Tx]) {
	message := inbox.Message{ID: "m-1", Body: []byte("paid 100")}
	var wg sync.WaitGroup
	for _, consumer := range []string{"ledger", "mailer"} {
		for range 3 { // processes
			in := e.inbox(consumer)
			for range 3 { // deliveries
				wg.Go(func() {
					_, err := in.Process(e.Ctx, message, func(ctx context.Context, tx Tx) error {
						return e.Effect(ctx, tx, consumer)
					})
					if d := inbox.DispositionOf(err); d != inbox.Acknowledge {
						e.Errorf("%v: %v", d, err)
					}
				})
			}
		}
	}
	wg.Wait()
	e.WantOnce("ledger")
	e.WantOnce("mailer")

	in := e.inbox("ledger")
	process := func(m inbox.Message, err error) (idempotency.Outcome, error) {
		return in.Process(e.Ctx, m, func(ctx context.Context, tx Tx) error {
			return errors.Join(e.Effect(ctx, tx, m.ID), err)
		})
	}
	wants := func(want inbox.Disposition, effects int, m inbox.Message, err error) {
		e.Helper()
		_, got := process(m, err)
		if d := inbox.DispositionOf(got); d != want || e.Effects(m.ID) != effects {
			e.Errorf("%s: %v (%v), %d effects, want %v", m.ID, d, got, e.Effects(m.ID), want)
		}
	}
	wants(inbox.Quarantine, 0, inbox.Message{ID: "m-1", Body: []byte("paid 200")}, nil)
	wants(inbox.Quarantine, 0, inbox.Message{}, nil)
	wants(inbox.Acknowledge, 0, inbox.Message{ID: "m-1"}, nil) // without the check
	wants(inbox.Redeliver, 0, inbox.Message{ID: "m-2"}, errors.New("not now"))
	wants(inbox.Acknowledge, 1, inbox.Message{ID: "m-2"}, nil)
	wants(inbox.Acknowledge, 0, inbox.Message{ID: "m-3"}, idempotency.Reject("no", "never"))
	wants(inbox.Acknowledge, 0, inbox.Message{ID: "m-3"}, nil) // the refusal remains

	release := holdMessage(e, "m-4")
	wants(inbox.Redeliver, 0, inbox.Message{ID: "m-4", Wait: holdfast.NoWait}, nil)
	release()
	wants(inbox.Acknowledge, 1, inbox.Message{ID: "m-4", Wait: holdfast.NoWait}, nil)

	for _, bad := range []string{"", "a\x00b", string(make([]byte, 200))} {
		if _, err := inbox.New(e.Store(idempotency.Options{}), bad); !errors.Is(err, holdfast.ErrInvalid) {
			e.Errorf("consumer %q: %v", bad, err)
		}
	}
}

// holdMessage starts to process a message; release rolls it back.
func holdMessage[Tx any](e *env[Tx], id string) (release func()) {
	tx := e.BeginTx(sql.LevelDefault)
	if _, err := e.inbox("ledger").ProcessTx(e.Ctx, tx, inbox.Message{ID: id}, func(context.Context, Tx) error { return nil }); err != nil {
		e.Fatal(err)
	}
	return func() { e.EndTx(tx, false) }
}

// inboxJoinsTheCaller checks that a message counts as processed only when the consumer commits.
func inboxJoinsTheCaller[Tx any](e *env[Tx]) {
	in := e.inbox("ledger")
	for _, commit := range []bool{false, true} {
		tx := e.BeginTx(sql.LevelDefault)
		for _, want := range []idempotency.Outcome{idempotency.Executed, idempotency.Replayed} {
			o, err := in.ProcessTx(e.Ctx, tx, inbox.Message{ID: "m"}, func(ctx context.Context, tx Tx) error {
				return e.Effect(ctx, tx, "m")
			})
			if err != nil || o != want {
				e.Errorf("%v, %v, want %v", o, err, want)
			}
		}
		e.EndTx(tx, commit)
	}
	e.WantOnce("m")
}

// event is a row of an outbox.
type event struct {
	ID   int64  `db:"id"`
	Body string `db:"body"`
	Sent int64  `db:"sent"`
}

// outboxRecipe writes an outbox row in the transaction of its cause. Relays lock the row and
// publish it at least once, always under one message id, so an inbox accepts it once. After a
// relay dies between publishing and COMMIT, another relay publishes the row again.
func outboxRecipe[Tx any](e *env[Tx]) {
	const messages = 24
	e.Must(`CREATE TABLE outbox (id BIGINT NOT NULL PRIMARY KEY, body VARCHAR(64) NOT NULL, sent BIGINT NOT NULL)`)
	s := e.Store(idempotency.Options{})
	for i := range messages {
		_, err := idempotency.Do(e.Ctx, s, conformance.Op(conformance.Numbered("refund", i)), func(ctx context.Context, tx Tx) (string, error) {
			_, err := e.Exec(ctx, tx, `INSERT INTO outbox (id, body, sent) VALUES ($1, $2, 0)`, i, conformance.Numbered("refund", i))
			return "done", err
		})
		if err != nil {
			e.Fatal(err)
		}
	}
	table, err := rowlock.NewTable[event](e.Ctx, e.DB, holdfast.TableSpec{Table: "outbox", Key: []string{"id"}})
	if err != nil {
		e.Fatal(err)
	}
	var mu sync.Mutex
	var queue []event // the broker's queue
	crash := errors.New("the relay died between publishing and its COMMIT")
	relay := func(dies bool) (n int, err error) {
		err = e.DB.InTx(e.Ctx, func(ctx context.Context, tx Tx) error {
			batch, err := table.NextTx(ctx, tx, 5, holdfast.Where("sent", "=", 0))
			if err != nil {
				return err
			}
			n = len(batch)
			for _, m := range batch {
				mu.Lock()
				queue = append(queue, m)
				mu.Unlock()
				if _, err := e.Exec(ctx, tx, `UPDATE outbox SET sent = 1 WHERE id = $1`, m.ID); err != nil {
					return err
				}
			}
			if dies {
				return crash
			}
			return nil
		}, holdfast.TxOptions{Isolation: e.readCommitted()})
		return n, err
	}
	if n, err := relay(true); n != 5 || !errors.Is(err, crash) {
		e.Fatalf("%d, %v", n, err)
	}
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			for e.Int(`SELECT COUNT(*) FROM outbox WHERE sent = 0`) > 0 && !e.Failed() {
				if _, err := relay(false); err != nil {
					e.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if len(queue) < messages+5 {
		e.Errorf("%d messages were published, want each, and those of the dead relay twice", len(queue))
	}
	in := e.inbox("mailer")
	for _, m := range queue {
		_, err := in.Process(e.Ctx, inbox.Message{ID: conformance.Numbered("outbox", int(m.ID)), Body: []byte(m.Body)}, func(ctx context.Context, tx Tx) error {
			return e.Effect(ctx, tx, m.Body)
		})
		if err != nil {
			e.Error(err)
		}
	}
	for i := range messages {
		e.WantOnce(conformance.Numbered("refund", i))
	}
}

// readCommitted returns the level that NextTx requires, where the driver can select a level.
func (e *env[Tx]) readCommitted() sql.IsolationLevel {
	if e.Engine == dbtest.SQLite {
		return sql.LevelDefault
	}
	return sql.LevelReadCommitted
}
