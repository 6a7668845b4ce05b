package faults_test

import (
	"bufio"
	"context"
	"database/sql"
	"fmt"
	"io"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/adapters/holdfastsql"
	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/idempotency/businessrow"
	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/dsn"
	"github.com/holdfast-go/holdfast/internal/test/conformance"
	"github.com/holdfast-go/holdfast/internal/test/dbtest"
)

// The environment of a child process.
const (
	childStage = "HOLDFAST_FAULTS_CHILD_STAGE" // the stage at which it stops
	childDSN   = "HOLDFAST_FAULTS_CHILD_DSN"
	childKey   = "HOLDFAST_FAULTS_CHILD_KEY"
	childWay   = "HOLDFAST_FAULTS_CHILD_WAY" // one of ways
)

// The stages at which a child reports and then waits until it is killed.
const (
	beforeClaim  = "before the claim"
	midFunction  = "after the claim"
	beforeCommit = "before COMMIT"
	afterCommit  = "after COMMIT"
	naiveClaim   = "after a claim that was committed first"
)

// child runs one operation in a separate process.
func child(stage string) {
	if err := childRun(stage, os.Getenv(childDSN), os.Getenv(childKey)); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
}

func childRun(stage, url, key string) error {
	ctx := context.Background()
	at := func(here string) {
		if here == stage {
			fmt.Println(stage)
			_, _ = io.Copy(io.Discard, os.Stdin) // until it is killed, or its parent has ended
		}
	}
	pool, _, err := dsn.Open(url)
	if err != nil {
		return err
	}
	db, err := holdfastsql.Open(ctx, pool, holdfast.Options{SingleOwner: true})
	if err != nil {
		return err
	}
	if stage == naiveClaim {
		query := core.Compile("", `INSERT INTO refunds (refund_no, amount) VALUES ($1, $2)`, db.Engine() != holdfast.PostgreSQL).Text
		if _, err := pool.ExecContext(ctx, query, key, 0); err != nil {
			return err
		}
		at(naiveClaim)
	}
	at(beforeClaim)
	_, err = ways()[os.Getenv(childWay)](ctx, db, key, func(ctx context.Context, tx *sql.Tx) error {
		at(midFunction)
		query := core.Compile("", `INSERT INTO effects (k, who) VALUES ($1, $2)`, db.Engine() != holdfast.PostgreSQL).Text
		_, err := tx.ExecContext(ctx, query, []byte(key), "child")
		at(beforeCommit)
		return err
	})
	if err != nil {
		return err
	}
	at(afterCommit)
	return fmt.Errorf("nobody killed it")
}

// way is a way to run a function once for a key and commit it with its record.
type way func(ctx context.Context, db *holdfast.DB[*sql.Tx], key string, fn func(ctx context.Context, tx *sql.Tx) error) (idempotency.Outcome, error)

// ways returns all ways that use one transaction.
func ways() map[string]way {
	done := func(fn func(ctx context.Context, tx *sql.Tx) error) func(context.Context, *sql.Tx) (string, error) {
		return func(ctx context.Context, tx *sql.Tx) (string, error) { return "done", fn(ctx, tx) }
	}
	table := func(ctx context.Context, db *holdfast.DB[*sql.Tx]) (*businessrow.Table[Refund, *sql.Tx], error) {
		return businessrow.New[Refund](ctx, db, holdfast.TableSpec{Table: "refunds", Key: []string{"refund_no"}}, businessrow.Options{Compare: []string{"amount"}})
	}
	return map[string]way{
		"Do": func(ctx context.Context, db *holdfast.DB[*sql.Tx], key string, fn func(ctx context.Context, tx *sql.Tx) error) (idempotency.Outcome, error) {
			store, err := idempotency.New(ctx, db)
			if err != nil {
				return 0, err
			}
			r, err := idempotency.Do(ctx, store, conformance.Op(key), done(fn))
			return r.Outcome, err
		},
		"DoTx": func(ctx context.Context, db *holdfast.DB[*sql.Tx], key string, fn func(ctx context.Context, tx *sql.Tx) error) (o idempotency.Outcome, err error) {
			store, err := idempotency.New(ctx, db)
			if err != nil {
				return 0, err
			}
			return o, db.InTx(ctx, func(ctx context.Context, tx *sql.Tx) error {
				r, err := idempotency.DoTx(ctx, store, tx, conformance.Op(key), done(fn))
				o = r.Outcome
				return err
			})
		},
		"Table.Do": func(ctx context.Context, db *holdfast.DB[*sql.Tx], key string, fn func(ctx context.Context, tx *sql.Tx) error) (idempotency.Outcome, error) {
			t, err := table(ctx, db)
			if err != nil {
				return 0, err
			}
			r, err := t.Do(ctx, Refund{key, 100}, fn)
			return r.Outcome, err
		},
		"Table.ClaimAllTx": func(ctx context.Context, db *holdfast.DB[*sql.Tx], key string, fn func(ctx context.Context, tx *sql.Tx) error) (o idempotency.Outcome, err error) {
			t, err := table(ctx, db)
			if err != nil {
				return 0, err
			}
			return o, db.InTx(ctx, func(ctx context.Context, tx *sql.Tx) error {
				verdicts, err := t.ClaimAllTx(ctx, tx, []Refund{{key, 100}, {key + " too", 1}})
				if err != nil {
					return err
				}
				if o = verdicts[0].Outcome; o != idempotency.Executed {
					return nil
				}
				return fn(ctx, tx)
			})
		},
	}
}

// killAt runs a child until it reaches stage, and kills it.
func killAt(t *testing.T, stage, url, way, key string) {
	t.Helper()
	out := kill(t, stage, url, way, key, func(out *bufio.Reader) string {
		line, _ := out.ReadString('\n')
		return line
	})
	if out != stage+"\n" {
		t.Fatalf("the child said %q, want %q", out, stage)
	}
}

// killWhen runs a child and kills it when happened is closed.
func killWhen(t *testing.T, happened <-chan struct{}, url, way, key string) {
	t.Helper()
	kill(t, afterCommit, url, way, key, func(*bufio.Reader) string {
		select {
		case <-happened:
		case <-time.After(dbtest.Hang):
			t.Error("nothing has happened")
		}
		return ""
	})
}

func kill(t *testing.T, stage, url, way, key string, wait func(out *bufio.Reader) string) string {
	t.Helper()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*dbtest.Hang)
	defer cancel()
	cmd := exec.CommandContext(ctx, program)
	cmd.Env = append(os.Environ(), childStage+"="+stage, childDSN+"="+url, childKey+"="+key, childWay+"="+way)
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
	said := wait(bufio.NewReader(out))
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	return said
}
