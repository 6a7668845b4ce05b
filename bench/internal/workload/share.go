package workload

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/bench/internal/locks"
	"github.com/holdfast-go/holdfast/bench/internal/servers"
	"github.com/holdfast-go/holdfast/bench/internal/sqlengine"
)

// ShareArg is the first argument with which this program is one of the processes that share a key. Its second
// is a sharing.
const ShareArg = "share-a-key"

// sharing tells a process which part of which competitor it is. For each share on its standard input it
// answers with a shared.
type sharing struct {
	Group     string              `json:"group"`
	Own       string              `json:"own"`
	Lock      string              `json:"lock"`
	Conns     int                 `json:"conns"`
	Addresses map[string][]string `json:"addresses"`
	First     int                 `json:"first"`
	Steps     int                 `json:"steps"`
	Clients   int                 `json:"clients"`
}

// shareLeast is how long processes compete for a key at least: they learn of each other by polls, in its first tenths of a
// second.
const shareLeast = time.Second

// share is one key and how long its clients compete for it. Paced: they hold it for a while, and rest after it.
type share struct {
	Key    string        `json:"key"`
	Length time.Duration `json:"length"`
	Paced  bool          `json:"paced"`
}

type shared struct {
	Turns []turn `json:"turns"`
	Trips int64  `json:"trips"`
	Error string `json:"error"`
}

// sharer is a process that shares a key.
type sharer struct {
	cmd     *exec.Cmd
	stdin   io.WriteCloser
	answers *json.Decoder
	problem strings.Builder
}

// shared opens a competitor in processes of their own. If a peer is not available, it returns nil.
func (p *Plan) shared(ctx context.Context, g group, c locks.Competitor, clients int, open *closers) (takes, error) {
	s := sharing{Group: g.name, Lock: c.Name, Steps: c.Processes, Clients: clients}
	if e := g.world.Engine; e != nil {
		s.Own, s.Conns = e.Own, max(4, e.Conns/c.Processes) // together they have as many as one process
	} else {
		s.Addresses = g.world.Servers.Addresses
	}
	var all []*sharer
	for s.First = range min(c.Processes, clients) {
		one, err := startSharer(ctx, s)
		if err != nil {
			return nil, err
		}
		open.later(one.end)
		all = append(all, one)
	}
	return func(_ context.Context, what share) (turns []turn, trips int64, err error) {
		answers, errs := make([]shared, len(all)), make([]error, len(all))
		var running sync.WaitGroup
		for i, one := range all {
			running.Go(func() { answers[i], errs[i] = one.take(what) })
		}
		running.Wait()
		for _, a := range answers {
			turns, trips = append(turns, a.Turns...), trips+a.Trips
		}
		return turns, trips, errors.Join(errs...)
	}, nil
}

func startSharer(ctx context.Context, s sharing) (*sharer, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(s)
	if err != nil {
		return nil, err
	}
	one := &sharer{cmd: exec.CommandContext(ctx, self, ShareArg, string(text))} //nolint:gosec // this program
	one.cmd.Stderr = &one.problem
	if one.stdin, err = one.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	stdout, err := one.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	one.answers = json.NewDecoder(stdout)
	return one, one.cmd.Start()
}

func (s *sharer) take(what share) (got shared, err error) {
	if err := json.NewEncoder(s.stdin).Encode(what); err != nil {
		return got, err
	}
	if err := s.answers.Decode(&got); err != nil {
		return got, fmt.Errorf("a process that shares the key: %w", err)
	}
	if got.Error != "" {
		return got, errors.New(got.Error)
	}
	return got, nil
}

// end lets the process end.
func (s *sharer) end(context.Context) error {
	_ = s.stdin.Close()
	if err := s.cmd.Wait(); err != nil {
		return fmt.Errorf("a process that shares the key: %w: %.300s", err, s.problem.String())
	}
	return nil
}

// Share is one of the processes that share a key, until its standard input ends.
func Share(ctx context.Context, args []string) (err error) {
	var s sharing
	if len(args) != 1 || json.Unmarshal([]byte(args[0]), &s) != nil {
		return errors.New("this is for the workloads hot, handover and takeover alone")
	}
	w := &locks.World{Servers: &servers.Set{Addresses: s.Addresses}}
	if s.Own != "" {
		if w.Engine, err = sqlengine.Attach(ctx, s.Group, s.Own, s.Conns); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, w.Engine.Close(ctx)) }()
	}
	for _, c := range slices.Concat(locks.Hot(s.Group), locks.Handed(s.Group)) {
		if c.Name == s.Lock {
			return s.serve(ctx, w, c)
		}
	}
	return fmt.Errorf("no lock %q", s.Lock)
}

// serve takes a share of each key that it reads.
func (s sharing) serve(ctx context.Context, w *locks.World, c locks.Competitor) (err error) {
	l, err := c.Open(ctx, w)
	if err != nil {
		return err
	}
	if l.Close != nil {
		defer func() { err = errors.Join(err, l.Close(ctx)) }()
	}
	in, out := json.NewDecoder(os.Stdin), json.NewEncoder(os.Stdout)
	for {
		var what share
		if err := in.Decode(&what); err != nil {
			return nil // the end of the input
		}
		before := w.Trips()
		all, err := compete(ctx, l, what, s.First, s.Steps, s.Clients)
		answer := shared{Turns: all, Trips: w.Trips() - before}
		if err != nil {
			answer.Error = err.Error()
		}
		if err := out.Encode(answer); err != nil {
			return err
		}
	}
}
