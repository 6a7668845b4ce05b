package idempotency_test

import (
	"bufio"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/adapters/holdfastsql"
	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/internal/dsn"
	"github.com/holdfast-go/holdfast/internal/test/conformance"
)

// The steps at which a process is killed.
const (
	beforeClaim  = "before the claim"
	midFunction  = "after the claim, in the function"
	beforeCommit = "at the function's end, before COMMIT"
	afterCommit  = "after COMMIT"
)

// TestKilledProcess kills a process (SIGKILL) at a step of Do. The next call executes or
// replays, the table has exactly one effect, and nothing is blocked: no lease has to expire
// first.
func TestKilledProcess(t *testing.T) {
	t.Parallel()
	conformance.Run(t, conformance.SQL(), func(e *conformance.Env[*sql.Tx]) {
		for _, step := range []string{beforeClaim, midFunction, beforeCommit, afterCommit} {
			if err := killAt(e.Ctx, job{DSN: e.DSN, Key: step, KillAt: step}); err != nil {
				e.Error(err)
				continue
			}
			s := e.Store(idempotency.Options{Wait: 30 * time.Second})
			want := idempotency.Executed
			if step == afterCommit {
				want = idempotency.Replayed
			}
			if r, err := e.Do(s, conformance.Op(step)); err != nil || r.Outcome != want {
				e.Errorf("killed %s: then %v, %v, want %v", step, r.Outcome, err, want)
			}
			e.WantOnce(step)
		}
	})
}

// killAt runs a process until it reports the step at which it must be killed.
func killAt(ctx context.Context, j job) error {
	b, err := json.Marshal(j)
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, os.Args[0])
	cmd.Env = append(os.Environ(), jobVariable+"="+string(b))
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err := errors.Join(cmd.Process.Kill(), err); err != nil {
		return fmt.Errorf("a process that was to be killed %s: %w", j.KillAt, err)
	}
	_ = cmd.Wait() // it was killed
	if !strings.Contains(line, j.KillAt) {
		return fmt.Errorf("a process that was to be killed %s said %q", j.KillAt, line)
	}
	return nil
}

// dieAt runs in the process: it stops at its step and waits for the kill.
func dieAt(j job) error {
	ctx, cancel := context.WithTimeout(context.Background(), conformance.Timeout)
	defer cancel()
	pool, _, err := dsn.Open(j.DSN)
	if err != nil {
		return err
	}
	defer func() { _ = pool.Close() }()
	db, err := holdfastsql.Open(ctx, pool, holdfast.Options{SingleOwner: true})
	if err != nil {
		return err
	}
	store, err := idempotency.New(ctx, db)
	if err != nil {
		return err
	}
	at := func(step string) {
		if step == j.KillAt {
			fmt.Println(step)
			<-ctx.Done()
		}
	}
	at(beforeClaim)
	_, err = idempotency.Do(ctx, store, conformance.Op(j.Key), func(ctx context.Context, tx *sql.Tx) (string, error) {
		at(midFunction)
		_, err := tx.ExecContext(ctx, insertEffect(db.Engine()), []byte(j.Key))
		at(beforeCommit)
		return "done", err
	})
	at(afterCommit)
	return err
}
