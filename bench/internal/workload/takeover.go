package workload

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/bench/internal/locks"
	"github.com/holdfast-go/holdfast/bench/internal/result"
	"github.com/holdfast-go/holdfast/bench/internal/sqlengine"
	"github.com/holdfast-go/holdfast/internal/measure"
)

// takeoversLeast is the least number of holders that a slice kills.
const takeoversLeast = 3

// A holder lives for a random time in this range while another process waits. It is longer than
// a statement with which it shows that it lives, so that the kill comes at any time in one.
const (
	killLeast = 20 * time.Millisecond
	killMost  = 1200 * time.Millisecond
)

// Takeover kills the process of a holder while another process waits, and measures the time
// from SIGKILL to the grant, beside a hand-over between two living processes.
func Takeover(ctx context.Context, p *Plan) ([]result.Table, error) {
	t := result.Table{
		Workload: "takeover", Title: "Takeover after SIGKILL of the holder's process", Clients: 2,
		Columns: []result.Column{
			{Key: "p50", Title: "SIGKILL to grant, p50 µs", Spread: true},
			{Key: "max", Title: "longest µs"},
			{Key: "x", Title: "x a hand-over", Spread: true},
			{Key: "count", Title: "holders killed a round"},
		},
		Picture: result.Bars("x", "times a hand-over between two processes, p50"),
		Notes: []string{fmt.Sprintf("The holder is a program of its own; the waiter waits for %v to %v before the kill. "+
			"The leases have a TTL of %v, which bounds the takeover where the engine cannot tell.", killLeast, killMost, locks.ShortTTL)},
	}
	for _, e := range p.Engines {
		list, err := p.takeovers(ctx, e)
		t.Rows = append(t.Rows, list...)
		if err != nil {
			return []result.Table{t}, err
		}
	}
	return []result.Table{t}, nil
}

func (p *Plan) takeovers(ctx context.Context, e *sqlengine.Engine) (list []result.Row, err error) {
	var open closers
	defer func() { err = errors.Join(err, open.close(ctx)) }()
	g := group{e.Name, &locks.World{Engine: e}}
	var entrants []*entrant
	for _, c := range locks.Handed(e.Name) {
		if c.Name != locks.OursTwo {
			continue
		}
		take, err := p.take(ctx, g, c, 2, &open)
		if err != nil {
			return nil, err
		}
		entrants = append(entrants, &entrant{
			row:    result.Row{Group: e.Name, Name: c.Name, Kind: string(c.Kind), Against: locks.OursTwo},
			engine: e, slice: func(ctx context.Context) (figures, error) { return p.handedOver(ctx, take) },
		})
	}
	for _, c := range locks.Killed(e.Name) {
		l, err := p.open(ctx, g, c, &open)
		if err != nil {
			return nil, err
		}
		entrants = append(entrants, &entrant{
			row:    result.Row{Group: e.Name, Name: c.Name, Kind: string(c.Kind), Against: locks.OursTwo},
			engine: e, slice: func(ctx context.Context) (figures, error) { return p.kills(ctx, e, c.Name, l) },
		})
	}
	err = p.rounds(ctx, e.Name, entrants)
	return rows(entrants, "p50"), err
}

// kills kills holders, one after the other, while l waits.
func (p *Plan) kills(ctx context.Context, e *sqlengine.Engine, name string, l *locks.Lock) (figures, error) {
	var took []time.Duration
	start := time.Now()
	for len(took) < takeoversLeast || time.Since(start) < p.Slice {
		d, err := kill(ctx, e, name, l, fmt.Sprintf("dies/%d", run.Add(1)))
		if err != nil {
			return nil, err
		}
		took = append(took, d)
	}
	slices.Sort(took)
	f := latency(measure.Taken{Took: took, Elapsed: time.Since(start)})
	f["max"] = us(took[len(took)-1])
	return f, nil
}

// kill measures one takeover.
func kill(ctx context.Context, e *sqlengine.Engine, name string, l *locks.Lock, key string) (took time.Duration, err error) {
	h, err := startHolder(ctx, e, name, key)
	if err != nil {
		return 0, err
	}
	defer func() { _ = h.end() }() // after an error
	type granted struct {
		release locks.Release
		at      time.Time
		err     error
	}
	next := make(chan granted, 1)
	waits, stop := context.WithCancel(ctx)
	defer stop()
	go func() {
		release, err := l.Acquire(waits, 0, key)
		next <- granted{release, time.Now(), err}
	}()
	time.Sleep(killLeast + rand.N(killMost-killLeast)) // the time for which it holds the lock
	select {
	case g := <-next:
		return 0, errors.Join(g.err, errors.New("the waiter did not wait for the holder"))
	default:
	}
	begin := time.Now()
	err = h.end()
	if err != nil {
		stop()
	}
	g := <-next // also after an error, so that no goroutine is left
	if err := errors.Join(err, g.err); err != nil {
		return 0, err
	}
	return g.at.Sub(begin), g.release(ctx)
}

// HoldArg is the first argument with which this program is a holder. Its others are those of Hold.
const HoldArg = "hold-for-takeover"

// holder is a process that holds a lock.
type holder struct {
	cmd   *exec.Cmd
	stdin io.Closer
	ended bool
}

// startHolder starts this program as a holder, and returns when that has the lock.
func startHolder(ctx context.Context, e *sqlengine.Engine, name, key string) (*holder, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, self, HoldArg, e.Name, e.Own, name, key) //nolint:gosec // this program
	var problem strings.Builder
	cmd.Stderr = &problem
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	h := &holder{cmd: cmd, stdin: stdin}
	if line, err := bufio.NewReader(stdout).ReadString('\n'); err != nil {
		_ = h.end()
		return nil, fmt.Errorf("the holder's process: %w: %.200s%.200s", err, line, problem.String())
	}
	return h, nil
}

// end kills the process with SIGKILL and waits for its end.
func (h *holder) end() error {
	if h.ended {
		return nil
	}
	h.ended = true
	err := h.cmd.Process.Kill()
	_ = h.cmd.Wait() // it was killed
	_ = h.stdin.Close()
	return err
}

// Hold holds a lock until its standard input ends. args are the engine, the name of its
// database, the name of the lock in locks.Killed, and the key.
func Hold(ctx context.Context, args []string) (err error) {
	if len(args) != 4 {
		return errors.New("this is for the workload takeover alone")
	}
	e, err := sqlengine.Attach(ctx, args[0], args[1], 16)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, e.Close(ctx)) }()
	for _, c := range locks.Killed(e.Name) {
		if c.Name != args[2] {
			continue
		}
		l, err := c.Open(ctx, &locks.World{Engine: e})
		if err != nil {
			return err
		}
		if _, err := l.Acquire(ctx, 0, args[3]); err != nil {
			return err
		}
		fmt.Println("held")
		_, err = io.Copy(io.Discard, os.Stdin)
		return err
	}
	return fmt.Errorf("no lock %q", args[2])
}
