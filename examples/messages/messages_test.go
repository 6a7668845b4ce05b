package messages_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	_ "modernc.org/sqlite"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/adapters/holdfastsql"
	"github.com/holdfast-go/holdfast/examples/messages"
	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/idempotency/inbox"
	"github.com/holdfast-go/holdfast/migrations"
)

// childVariable makes the test binary run as a consumer that is killed.
const childVariable = "HOLDFAST_TEST_CONSUMER"

func TestMain(m *testing.M) {
	if text := os.Getenv(childVariable); text != "" {
		log.Fatal(child(text)) // never reached: the process is killed first
	}
	slog.SetDefault(slog.New(slog.DiscardHandler)) // each lost acknowledgement is logged
	os.Exit(m.Run())
}

const subject = "refunds.made"

// world is a broker and a database.
type world struct {
	Broker, Path string
	pool         *sql.DB
	db           *holdfast.DB[*sql.Tx]
	store        *idempotency.Store[*sql.Tx]
	stream       jetstream.JetStream
}

func (w *world) open(ctx context.Context) (err error) {
	if w.pool, err = sql.Open("sqlite", "file:"+w.Path+"?_pragma=journal_mode(WAL)&_pragma=busy_timeout(10000)"); err != nil {
		return err
	}
	if err := migrations.Up(ctx, w.pool); err != nil {
		return err
	}
	if w.db, err = holdfastsql.Open(ctx, w.pool, holdfast.Options{SingleOwner: true}); err != nil {
		return err
	}
	o := idempotency.Options{LockTimeout: 10 * time.Second}
	if w.store, err = idempotency.New(ctx, w.db, o); err != nil {
		return err
	}
	conn, err := nats.Connect(w.Broker)
	if err != nil {
		return err
	}
	w.stream, err = jetstream.New(conn)
	return err
}

// newWorld starts a broker that forgets message ids soon, and soon redelivers messages that
// were not acknowledged.
func newWorld(t *testing.T) (*world, jetstream.Consumer) {
	t.Helper()
	s, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: server.RANDOM_PORT, JetStream: true, StoreDir: t.TempDir(), NoLog: true, NoSigs: true})
	must(t, err)
	s.Start()
	t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	if !s.ReadyForConnections(10 * time.Second) {
		t.Fatal("the broker did not start")
	}
	w := &world{Broker: s.ClientURL(), Path: filepath.Join(t.TempDir(), "shop.db")}
	must(t, w.open(t.Context()))
	t.Cleanup(func() { w.stream.Conn().Close(); _ = w.pool.Close() })
	_, err = w.pool.ExecContext(t.Context(), messages.Schema+`; CREATE TABLE ledger (order_no TEXT NOT NULL, by_process INTEGER NOT NULL)`)
	must(t, err)
	_, err = w.stream.CreateStream(t.Context(), jetstream.StreamConfig{Name: "REFUNDS", Subjects: []string{subject}, Duplicates: 100 * time.Millisecond})
	must(t, err)
	c, err := w.stream.CreateConsumer(t.Context(), "REFUNDS", jetstream.ConsumerConfig{
		Durable: "ledger", AckPolicy: jetstream.AckExplicitPolicy, AckWait: 500 * time.Millisecond,
	})
	must(t, err)
	return w, c
}

// consumer returns a consumer that books into the ledger.
func (w *world) consumer(c jetstream.Consumer, acknowledge func(jetstream.Msg) error) (*messages.Consumer, error) {
	in, err := inbox.New(w.store, "ledger")
	return &messages.Consumer{
		Messages: c, Inbox: in, Acknowledge: acknowledge,
		Book: func(ctx context.Context, tx *sql.Tx, event []byte) error {
			_, err := tx.ExecContext(ctx, `INSERT INTO ledger (order_no, by_process) VALUES (?, ?)`, string(event), os.Getpid())
			return err
		},
	}, err
}

func order(i int) string { return fmt.Sprintf("order-%02d", i) }

func (w *world) publish(t *testing.T, n int) {
	t.Helper()
	for i := range n {
		_, err := w.stream.Publish(t.Context(), subject, []byte(order(i)), jetstream.WithMsgID("id-"+order(i)))
		must(t, err)
	}
}

// drained waits until the broker counts every message as acknowledged.
func drained(t *testing.T, c jetstream.Consumer) {
	t.Helper()
	for t.Context().Err() == nil {
		info, err := c.Info(t.Context())
		must(t, err)
		if info.NumPending == 0 && info.NumAckPending == 0 {
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
	t.Fatal("the messages were not all acknowledged")
}

func (w *world) int(t *testing.T, query string) (n int) {
	t.Helper()
	must(t, w.pool.QueryRowContext(t.Context(), query).Scan(&n))
	return n
}

// bookedOnce checks that the table has n bookings, each once.
func (w *world) bookedOnce(t *testing.T, n int) {
	t.Helper()
	all, orders := w.int(t, `SELECT COUNT(*) FROM ledger`), w.int(t, `SELECT COUNT(DISTINCT order_no) FROM ledger`)
	if all != n || orders != n {
		t.Errorf("%d bookings of %d orders, want %d of %d", all, orders, n, n)
	}
}

// run runs consumers until every message to book is acknowledged.
func (w *world) run(t *testing.T, c jetstream.Consumer, consumers int, acknowledge func(jetstream.Msg) error) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for range consumers {
		consumer, err := w.consumer(c, acknowledge)
		must(t, err)
		wg.Go(func() {
			if err := consumer.Run(ctx); err != nil {
				t.Error(err)
			}
		})
	}
	drained(t, c)
	stop()
	wg.Wait()
}

// TestAcknowledgementsAreLost loses the first two acknowledgements of each message. The broker
// delivers each message three times, and it is booked once.
func TestAcknowledgementsAreLost(t *testing.T) {
	t.Parallel()
	const n = 40
	w, c := newWorld(t)
	w.publish(t, n)
	var mu sync.Mutex
	deliveries, lost := map[string]int{}, errors.New("the acknowledgement was lost")
	w.run(t, c, 3, func(m jetstream.Msg) error {
		mu.Lock()
		id := m.Headers().Get(jetstream.MsgIDHeader)
		deliveries[id]++
		last := deliveries[id] > 2
		mu.Unlock()
		if !last {
			return lost
		}
		return m.Ack()
	})
	all := 0
	for id, d := range deliveries {
		if all += d; d < 3 {
			t.Errorf("%s was delivered %d times", id, d)
		}
	}
	w.bookedOnce(t, n)
	t.Logf("%d messages, delivered %d times, booked %d times", n, all, w.int(t, `SELECT COUNT(*) FROM ledger`))
}

// TestConsumerIsKilled kills consumer processes between COMMIT and acknowledgement. The next
// consumer gets the message again.
func TestConsumerIsKilled(t *testing.T) {
	t.Parallel()
	const n, kills = 12, 4
	w, c := newWorld(t)
	w.publish(t, n)
	text, err := json.Marshal(w)
	must(t, err)
	for i := range kills {
		cmd := exec.CommandContext(t.Context(), os.Args[0])
		cmd.Env = append(os.Environ(), childVariable+"="+string(text))
		cmd.Stderr = os.Stderr
		if err := cmd.Run(); err == nil || cmd.ProcessState.Exited() {
			t.Fatalf("consumer %d ended by itself: %v", i, err)
		}
		if info, err := c.Info(t.Context()); err != nil || info.NumAckPending == 0 {
			t.Errorf("consumer %d left nothing to deliver again: %v", i, err)
		}
	}
	booked := w.int(t, `SELECT COUNT(*) FROM ledger`)
	if booked < kills {
		t.Errorf("%d consumers were killed after COMMIT, and %d bookings stand", kills, booked)
	}
	again := 0
	w.run(t, c, 1, func(m jetstream.Msg) error {
		if meta, err := m.Metadata(); err == nil && meta.NumDelivered > 1 {
			again++
		}
		return m.Ack()
	})
	if again < kills {
		t.Errorf("%d messages were delivered again after %d kills", again, kills)
	}
	w.bookedOnce(t, n)
	t.Logf("%d messages, %d consumers killed after COMMIT, %d delivered again, booked %d times", n, kills, again, w.int(t, `SELECT COUNT(*) FROM ledger`))
}

// child is a consumer that kills itself after it has committed its second message and before
// it acknowledges it.
func child(text string) error {
	w := &world{}
	ctx := context.Background()
	if err := errors.Join(json.Unmarshal([]byte(text), w), w.open(ctx)); err != nil {
		return err
	}
	c, err := w.stream.Consumer(ctx, "REFUNDS", "ledger")
	if err != nil {
		return err
	}
	seen := 0
	consumer, err := w.consumer(c, func(m jetstream.Msg) error {
		if seen++; seen < 2 {
			return m.DoubleAck(ctx)
		}
		self, err := os.FindProcess(os.Getpid())
		if err != nil {
			return err
		}
		if err := self.Kill(); err != nil {
			return err
		}
		select {}
	})
	if err != nil {
		return err
	}
	return consumer.Run(ctx)
}

// TestOutbox requests each refund twice; it is made once, with its event. A relay dies after
// publishing. Its events are published again after the broker has forgotten their ids, and
// each is booked once.
func TestOutbox(t *testing.T) {
	t.Parallel()
	const n, batch = 20, 5
	w, c := newWorld(t)
	for i := range n {
		for _, want := range []idempotency.Outcome{idempotency.Executed, idempotency.Replayed} {
			if o, err := messages.Refund(t.Context(), w.store, order(i), 100); err != nil || o != want {
				t.Fatalf("%v, %v, want %v", o, err, want)
			}
		}
	}
	if events := w.int(t, `SELECT COUNT(*) FROM outbox WHERE sent = 0`); events != n {
		t.Fatalf("%d events of %d refunds", events, n)
	}
	dying, stop := context.WithCancel(t.Context())
	relay, err := messages.NewRelay(t.Context(), w.db, &diesAfter{JetStream: w.stream, left: batch, die: stop}, subject)
	must(t, err)
	if _, err := relay.Send(dying, batch); !errors.Is(err, context.Canceled) {
		t.Fatalf("the relay did not die: %v", err)
	}
	if sent := w.int(t, `SELECT COUNT(*) FROM outbox WHERE sent = 1`); sent != 0 {
		t.Fatalf("%d events are marked as sent", sent)
	}
	time.Sleep(300 * time.Millisecond) // longer than the broker remembers ids
	var wg sync.WaitGroup
	for range 2 {
		relay, err := messages.NewRelay(t.Context(), w.db, w.stream, subject)
		must(t, err)
		wg.Go(func() {
			for {
				sent, err := relay.Send(t.Context(), batch)
				if err != nil {
					t.Error(err)
				}
				if sent == 0 || err != nil {
					return
				}
			}
		})
	}
	wg.Wait()
	s, err := w.stream.Stream(t.Context(), "REFUNDS")
	must(t, err)
	published := s.CachedInfo().State.Msgs
	if published < n+batch || w.int(t, `SELECT COUNT(*) FROM outbox WHERE sent = 0`) != 0 {
		t.Errorf("%d messages for %d events, of which %d were published twice", published, n, batch)
	}
	w.run(t, c, 2, jetstream.Msg.Ack)
	w.bookedOnce(t, n)
	t.Logf("%d refunds, %d messages published, booked %d times", n, published, w.int(t, `SELECT COUNT(*) FROM ledger`))
}

// diesAfter is a broker client whose process dies after publishing a given number of messages.
type diesAfter struct {
	jetstream.JetStream
	left int
	die  func()
}

func (d *diesAfter) Publish(ctx context.Context, subject string, data []byte, opts ...jetstream.PublishOpt) (*jetstream.PubAck, error) {
	ack, err := d.JetStream.Publish(ctx, subject, data, opts...)
	if d.left--; d.left == 0 {
		d.die()
	}
	return ack, err
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
