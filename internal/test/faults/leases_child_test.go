package faults_test

import (
	"bufio"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/test/history"
	"github.com/holdfast-go/holdfast/sqllock"
)

// childLeases is the environment variable with the order for a child process that uses leases.
const childLeases = "HOLDFAST_FAULTS_CHILD_LEASES"

// order tells such a child what to do.
type order struct {
	URL     string
	Level   string
	Options sqllock.Options
	Record  string // the file for its history

	// A visitor process runs Visitors goroutines with Visits visits each on every key, and then
	// ends.
	Keys             []string
	Visitors, Visits int
	// Hold makes the child acquire the lease on the first key and hold it until the child is
	// killed.
	Hold bool
	// Obey makes the child follow the lines of its input.
	Obey bool
}

// leasesChild runs in a separate process.
func leasesChild(text string) {
	var o order
	err := json.Unmarshal([]byte(text), &o)
	if err == nil {
		err = o.run(context.Background())
	}
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
}

func (o *order) run(ctx context.Context) error {
	rec, err := history.Create(o.Record)
	if err != nil {
		return err
	}
	p, err := join(ctx, o.URL, o.Level, o.Options, rec, nil)
	if err != nil {
		return err
	}
	switch {
	case o.Obey:
		return p.obey(ctx, os.Stdin)
	case o.Hold:
		return p.holdUntilKilled(ctx, o.Keys[0])
	}
	errs := make(chan error, o.Visitors*len(o.Keys))
	for i := range cap(errs) {
		go func() { errs <- p.visitOften(ctx, i, o) }()
	}
	for range cap(errs) {
		err = errors.Join(err, <-errs)
	}
	return errors.Join(err, p.leave(), rec.Close())
}

func (p *party) visitOften(ctx context.Context, i int, o *order) error {
	for range o.Visits {
		v := visit{key: o.Keys[i%len(o.Keys)], try: i%4 == 0, ttl: o.Options.TTL, hold: time.Duration(i%3) * time.Millisecond}
		if err := p.visit(ctx, p.rec.Client(i), v); err != nil {
			return err
		}
	}
	return nil
}

func (p *party) holdUntilKilled(ctx context.Context, key string) error {
	for {
		lease, term, err := p.get(ctx, p.rec.Client(0), visit{key: key, try: true, ttl: p.o.TTL})
		if err != nil {
			return err
		}
		switch err := p.write(ctx, lease, guarded, term); {
		case errors.Is(err, sqllock.ErrLost): // its TTL is short, and the machine was busy
			continue
		case err != nil:
			return err
		}
		fmt.Println("holding")
		_, _ = io.Copy(io.Discard, os.Stdin) // until it is killed, or its parent has ended
		return errors.New("nobody killed it")
	}
}

// obey executes each input line, and answers "ok", "lost" or the error.
func (p *party) obey(ctx context.Context, lines io.Reader) error {
	var lease *sqllock.Lease
	var tx *sql.Tx
	for in := bufio.NewScanner(lines); in.Scan(); {
		do, of, _ := strings.Cut(in.Text(), " ")
		var err error
		switch {
		case do == "acquire":
			lease, err = p.locks.Acquire(ctx, of)
		case lease == nil:
			err = errors.New("it has no lease")
		case do == "write" && of == checked && lease.Context().Err() != nil:
			err = context.Cause(lease.Context())
		case do == "write":
			err = p.write(ctx, lease, of, nil)
		case do == "begin": // a guarded commit, up to its COMMIT
			if tx, err = p.pool.BeginTx(ctx, nil); err == nil {
				err = p.put(ctx, tx, lease.Term(), guarded)
			}
		case do == "commit":
			err = tx.Commit()
		case do == "release":
			err = lease.Release(ctx)
		case do == "handle":
			var h sqllock.Handle
			if h, err = lease.Handle(); err == nil {
				fmt.Println(string(h))
			}
		default:
			err = errors.New("what?")
		}
		switch {
		case err == nil:
			fmt.Println("ok")
		case errors.Is(err, sqllock.ErrLost):
			fmt.Println("lost")
		default:
			fmt.Println(do, of, err)
		}
	}
	return nil
}

// running is a child process.
type running struct {
	t   *testing.T
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
	end func() error
}

// start starts a child. It is killed at the end of the test.
func start(t *testing.T, o order) *running {
	t.Helper()
	text, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program)
	cmd.Env = append(os.Environ(), childLeases+"="+string(text))
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	c := &running{t: t, cmd: cmd, in: in, out: bufio.NewReader(out)}
	c.end = sync.OnceValue(cmd.Wait)
	t.Cleanup(c.kill)
	return c
}

// kill ends the child with SIGKILL.
func (c *running) kill() {
	_ = c.cmd.Process.Kill()
	_ = c.end()
}

// line returns the next line of the child's output, or "" when the child has ended.
func (c *running) line() string {
	line, _ := c.out.ReadString('\n')
	return line
}

// done waits until a child ends without a signal, and fails the test unless it succeeded.
func (c *running) done() {
	c.t.Helper()
	said, _ := io.ReadAll(c.out)
	if err := c.end(); err != nil {
		c.t.Errorf("a child ended with %v: %s", err, said)
	}
}

// recorded reads the history of a child.
func recorded(t *testing.T, path string) history.History {
	t.Helper()
	h, err := history.Read(path)
	if err != nil {
		t.Fatal(err)
	}
	return h
}
