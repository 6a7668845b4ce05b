package faults_test

import (
	"bufio"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/adapters/holdfastsql"
	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/idempotency/staged"
	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/dsn"
	"github.com/holdfast-go/holdfast/internal/test/dbtest"
)

// childStaged is the environment variable that turns the test's binary into a worker of a staged
// refund. It contains the JSON of a stagedJob.
const childStaged = "HOLDFAST_FAULTS_CHILD_STAGED"

// The stages at which a worker reports and then waits until it is killed.
const (
	stagedBefore     = "before the claim"
	stagedClaimed    = "after the claim"
	stagedBooking    = "in the first transaction"
	stagedBooked     = "after the first transaction"
	stagedCalling    = "in the outside call, before the provider"
	stagedPaid       = "in the outside call, after the provider"
	stagedAnswered   = "after the outside call"
	stagedClosing    = "in the last transaction"
	stagedClosed     = "after the last transaction"
	stagedFinished   = "after the operation"
	stagedNeverThere = "nowhere"

	// Of an operation that begins in the caller's transaction, and of one that settles later.
	stagedAsking   = "in the caller's transaction, before the start"
	stagedStarting = "in the caller's transaction, after the start"
	stagedStarted  = "after the caller's transaction"
	stagedSettling = "after the provider has accepted"
)

// stagedJob tells a worker what to do.
type stagedJob struct {
	DSN, Provider, Key, Stage, Declared string
	Lease                               time.Duration
	// Starts: it begins in a transaction of its caller. Accepts: the provider settles it later.
	// Namespace keeps the completers of other subtests away.
	Starts, Accepts bool
	Namespace       string
}

// The declarations of the external call.
const (
	declaredPark      = "park"
	declaredTakeOver  = "take over"
	declaredReconcile = "reconcile"
)

// stagedRefund is the operation: booked, paid by the provider, closed.
func stagedRefund(store *idempotency.Store[*sql.Tx], engine holdfast.Engine, j stagedJob, at func(stage string)) (*staged.Runner[string, string, *sql.Tx], error) {
	effect := func(ctx context.Context, tx *sql.Tx, key string) error {
		query := core.Compile("", `INSERT INTO effects (k, who) VALUES ($1, $2)`, engine != holdfast.PostgreSQL).Text
		_, err := tx.ExecContext(ctx, query, []byte(key), "worker")
		return err
	}
	outside := staged.ExternalCall[string]{Step: "pay"}
	switch j.Declared {
	case declaredTakeOver:
		outside.OnLeaseEnd = staged.TakeOver
	case declaredReconcile:
		outside.Reconcile = func(ctx context.Context, key string) (string, error) {
			return atBank(ctx, http.MethodGet, j.Provider, key)
		}
	}
	return staged.New(store, staged.Workflow[string, string, *sql.Tx]{
		Name: "refund", Lease: j.Lease, Backoff: time.Millisecond, MaxBackoff: 10 * time.Millisecond, MaxAttempts: 50,
		Run: func(ctx context.Context, r *staged.Run[*sql.Tx], key string) (string, error) {
			at(stagedClaimed)
			if _, err := staged.Local(ctx, r, "book", func(ctx context.Context, tx *sql.Tx) (bool, error) {
				err := effect(ctx, tx, key)
				at(stagedBooking)
				return true, err
			}); err != nil {
				return "", err
			}
			at(stagedBooked)
			paid, err := staged.Call(ctx, r, outside, func(ctx context.Context, key string) (string, error) {
				at(stagedCalling)
				paid, err := atBank(ctx, http.MethodPost, j.Provider, key)
				at(stagedPaid)
				if err == nil && j.Accepts {
					err = staged.Accepted("re "+key, time.Hour)
				}
				return paid, err
			})
			if err != nil {
				return "", err
			}
			at(stagedAnswered)
			if _, err := staged.Local(ctx, r, "close", func(ctx context.Context, tx *sql.Tx) (bool, error) {
				err := effect(ctx, tx, key+" closed")
				at(stagedClosing)
				return true, err
			}); err != nil {
				return "", err
			}
			at(stagedClosed)
			return paid, nil
		},
	})
}

// atBank pays at the provider (POST), or asks it about a payment (GET).
func atBank(ctx context.Context, method, provider, key string) (string, error) {
	req, err := http.NewRequestWithContext(ctx, method, provider, http.NoBody)
	if err != nil {
		return "", err
	}
	req.Header.Set("Idempotency-Key", key)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	switch {
	case err != nil:
		return "", err
	case resp.StatusCode == http.StatusNotFound:
		return "", staged.NotDone(errors.New("no such payment"))
	case resp.StatusCode != http.StatusOK:
		return "", errors.New(resp.Status)
	}
	return string(b), nil
}

// bank is the provider: it pays once for each idempotency key.
type bank struct {
	*httptest.Server

	mu   sync.Mutex
	paid map[string]int // by key: the number of requests to pay
}

func newBank(t *testing.T) *bank {
	t.Helper()
	b := &bank{paid: map[string]int{}}
	b.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		key := r.Header.Get("Idempotency-Key")
		b.mu.Lock()
		defer b.mu.Unlock()
		if r.Method == http.MethodPost {
			b.paid[key]++
		} else if b.paid[key] == 0 {
			http.NotFound(w, r)
			return
		}
		fmt.Fprint(w, "paid with "+key)
	}))
	t.Cleanup(func() {
		http.DefaultClient.CloseIdleConnections()
		b.Close()
	})
	return b
}

// payments returns the number of payments for one operation's key.
func (b *bank) payments(key string) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return min(b.paid[key], 1)
}

func (b *bank) keys() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.paid)
}

// stagedChild runs the worker's process.
func stagedChild(text string) {
	if err := stagedChildRun(text); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
}

func stagedChildRun(text string) error {
	var j stagedJob
	if err := json.Unmarshal([]byte(text), &j); err != nil {
		return err
	}
	at := func(stage string) {
		if stage == j.Stage {
			fmt.Println(stage)
			_, _ = io.Copy(io.Discard, os.Stdin) // until it is killed, or its parent has ended
		}
	}
	ctx := context.Background()
	pool, _, err := dsn.Open(j.DSN)
	if err != nil {
		return err
	}
	db, err := holdfastsql.Open(ctx, pool, holdfast.Options{SingleOwner: true})
	if err != nil {
		return err
	}
	store, err := idempotency.New(ctx, db, idempotency.Options{Namespace: j.Namespace})
	if err != nil {
		return err
	}
	s, err := stagedRefund(store, db.Engine(), j, at)
	if err != nil {
		return err
	}
	at(stagedBefore)
	if j.Starts {
		return stagedStartRun(ctx, db, s, j, at)
	}
	if _, err = s.Do(ctx, idempotency.Op{Key: j.Key}, j.Key); err != nil {
		return err
	}
	at(stagedFinished)
	return errors.New("nobody killed it")
}

// stagedStartRun asks for the operation in a transaction, and continues it.
func stagedStartRun(ctx context.Context, db *holdfast.DB[*sql.Tx], s *staged.Runner[string, string, *sql.Tx], j stagedJob, at func(stage string)) error {
	go func() { _ = s.RunCompleter(ctx, staged.RunOptions{Every: time.Hour}) }() // it goes by what it is told
	st, err := stagedAsk(ctx, db, s, j, at)
	if err != nil {
		return err
	}
	at(stagedStarted)
	_, err = st.Wait(ctx)
	var accepted *staged.AcceptedError
	switch {
	case errors.As(err, &accepted):
		at(stagedSettling)
	case err == nil:
		at(stagedFinished)
	default:
		return err
	}
	return errors.New("nobody killed it")
}

// stagedAsk begins the operation with an effect of its caller, in one transaction.
func stagedAsk(ctx context.Context, db *holdfast.DB[*sql.Tx], s *staged.Runner[string, string, *sql.Tx], j stagedJob, at func(stage string)) (st *staged.Started[string], err error) {
	err = db.InTx(ctx, func(ctx context.Context, tx *sql.Tx) (err error) {
		at(stagedAsking)
		if st, err = s.StartTx(ctx, tx, idempotency.Op{Key: j.Key}, j.Key); err != nil || !st.New {
			return err
		}
		query := core.Compile("", `INSERT INTO effects (k, who) VALUES ($1, $2)`, db.Engine() != holdfast.PostgreSQL).Text
		_, err = tx.ExecContext(ctx, query, []byte(j.Key+" asked for"), "caller")
		at(stagedStarting)
		return err
	})
	return st, err
}

// killStaged runs a worker until it reaches its stage, or until happened is closed, and kills
// it.
func killStaged(t *testing.T, j stagedJob, happened <-chan struct{}) {
	t.Helper()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	b, err := json.Marshal(j)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*dbtest.Hang)
	defer cancel()
	cmd := exec.CommandContext(ctx, program)
	cmd.Env = append(os.Environ(), childStaged+"="+string(b))
	cmd.Stderr = os.Stderr
	if _, err := cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	said := ""
	if happened != nil {
		select {
		case <-happened:
		case <-ctx.Done():
			t.Error("nothing has happened")
		}
	} else {
		said, _ = bufio.NewReader(out).ReadString('\n')
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	if happened == nil && said != j.Stage+"\n" {
		t.Fatalf("the worker said %q, want %q", said, j.Stage)
	}
}
