package outbox_test

import (
	"bufio"
	"context"
	"database/sql"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/adapters/holdfastsql"
	"github.com/holdfast-go/holdfast/idempotency/outbox"
	"github.com/holdfast-go/holdfast/internal/test/conformance"
	"github.com/holdfast-go/holdfast/internal/test/dbtest"
)

// childVariable makes the test binary run as a relay that is killed, on the database that it names.
const childVariable = "HOLDFAST_TEST_RELAY"

func TestMain(m *testing.M) {
	if dsn := os.Getenv(childVariable); dsn != "" {
		if err := child(dsn); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	dbtest.VerifyNoLeaks(m)
}

// child publishes to its standard output, and stops for ever within the third message.
func child(dsn string) error {
	ctx := context.Background()
	pool, err := dbtest.OpenURL(dsn)
	if err != nil {
		return err
	}
	db, err := holdfastsql.Open(ctx, pool, holdfast.Options{SingleOwner: true})
	if err != nil {
		return err
	}
	box, err := outbox.New(ctx, db, "refunds")
	if err != nil {
		return err
	}
	relay, err := outbox.NewRelay(box, func(_ context.Context, d outbox.Delivery) error {
		fmt.Printf("%s\n", d.Body)
		if string(d.Body) == "a/2" {
			select {}
		}
		return nil
	}, outbox.Options{Lease: time.Second})
	if err != nil {
		return err
	}
	return relay.Run(ctx)
}

// TestKilledRelay kills the process of a relay in the middle of a batch. Another relay publishes what
// it had not noted, in order, and each message was published.
func TestKilledRelay(t *testing.T) {
	t.Parallel()
	conformance.Run(t, conformance.SQL(), func(e *conformance.Env[*sql.Tx]) {
		box, err := outbox.New(e.Ctx, e.DB, "refunds")
		e.Check(err)
		for n := range 5 {
			m := outbox.Message{Key: "a", Body: []byte(fmt.Sprint("a/", n))}
			e.Check(e.DB.InTx(e.Ctx, func(ctx context.Context, tx *sql.Tx) error { return box.Write(ctx, tx, m) }))
		}
		relay := exec.CommandContext(e.Ctx, os.Args[0])
		relay.Env = append(os.Environ(), childVariable+"="+e.DSN)
		relay.Stderr = os.Stderr
		out, err := relay.StdoutPipe()
		e.Check(err)
		e.Check(relay.Start())
		var published []string
		for lines := bufio.NewScanner(out); len(published) < 3 && lines.Scan(); {
			published = append(published, lines.Text())
		}
		e.Check(relay.Process.Kill())
		_ = relay.Wait() // it was killed
		other, err := outbox.NewRelay(box, func(_ context.Context, d outbox.Delivery) error {
			published = append(published, string(d.Body))
			return nil
		})
		e.Check(err)
		e.Eventually("another relay goes on", func() bool {
			_, err := other.Pass(e.Ctx)
			e.Check(err)
			s, err := box.Stats(e.Ctx)
			e.Check(err)
			return s.Waiting == 0
		})
		if got := strings.Join(published, " "); got != "a/0 a/1 a/2 a/0 a/1 a/2 a/3 a/4" {
			e.Errorf("published %s", got)
		}
	})
}
