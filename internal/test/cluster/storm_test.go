//go:build linux

package cluster_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/test/dbtest"
)

// storm is a set of client processes that request the same refunds at the same time.
type storm struct {
	t       *testing.T
	start   time.Time
	clients []*process
	inputs  []io.Closer
	reads   sync.WaitGroup

	mu      sync.Mutex
	answers []answer
	errors  map[string]int
	without map[int]int // by client: its calls that got an error
}

// startStorm starts the clients, each with its own configuration.
func startStorm(t *testing.T, clients []client) *storm {
	t.Helper()
	s := &storm{t: t, start: time.Now().Add(500 * time.Millisecond), errors: map[string]int{}, without: map[int]int{}}
	t.Cleanup(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		for text, n := range s.errors {
			t.Logf("%6d x %s", n, text)
		}
	})
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for i, c := range clients {
		c.Start, c.Period, c.Workers = s.start, 25*time.Millisecond, 2
		text, err := json.Marshal(c)
		if err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command(program)
		cmd.Env = append(os.Environ(), childConfig+"="+string(text))
		cmd.Stderr = os.Stderr
		in, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		cmd.Stdout = w
		s.clients = append(s.clients, start(t, cmd))
		_ = w.Close()
		s.inputs = append(s.inputs, in)
		s.reads.Go(func() { s.read(i, r) })
	}
	return s
}

func (s *storm) read(client int, r io.ReadCloser) {
	defer r.Close()
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		var a answer
		if err := json.NewDecoder(bytes.NewReader(lines.Bytes())).Decode(&a); err != nil {
			s.t.Errorf("a client said %q", lines.Text())
			continue
		}
		s.mu.Lock()
		s.answers = append(s.answers, a)
		if a.Error != "" {
			s.errors[a.Outcome+": "+digits(a.Error)]++
			s.without[client]++
		}
		s.mu.Unlock()
	}
}

// digits makes errors equal that differ only in numbers.
func digits(text string) string {
	return strings.Map(func(r rune) rune {
		if r >= '0' && r <= '9' {
			return '#'
		}
		return r
	}, text)
}

// flows waits until n more refunds were executed, which shows that writes work.
func (s *storm) flows(n int) {
	s.t.Helper()
	want := s.executed() + n
	for end := time.Now().Add(dbtest.Hang); s.executed() < want; time.Sleep(20 * time.Millisecond) {
		for i, c := range s.clients {
			if c.ended() {
				s.t.Fatalf("client %d has ended: %v", i, c.cmd.ProcessState)
			}
		}
		if time.Now().After(end) {
			s.t.Fatalf("%d of %d refunds within %v", s.executed()+n-want, n, dbtest.Hang)
		}
	}
}

// refused waits until n more calls of a client got an error.
func (s *storm) refused(client, n int) {
	s.t.Helper()
	count := func() int {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.without[client]
	}
	want := count() + n
	dbtest.Eventually(s.t, "calls get errors", func() bool { return count() >= want })
}

func (s *storm) executed() (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, a := range s.answers {
		if a.Outcome == executed {
			n++
		}
	}
	return n
}

// stop lets each client finish its requests.
func (s *storm) stop() {
	s.t.Helper()
	for _, in := range s.inputs {
		_ = in.Close()
	}
	late := time.After(dbtest.Hang)
	for i, c := range s.clients {
		select {
		case <-c.done:
			if !c.cmd.ProcessState.Success() {
				s.t.Errorf("client %d: %v", i, c.cmd.ProcessState)
			}
		case <-late:
			s.t.Errorf("client %d has no answer after %v", i, dbtest.Hang)
		}
	}
	for _, c := range s.clients {
		c.kill()
	}
	s.reads.Wait()
}

// tally counts the answers that the clients got.
type tally struct {
	requests, replays, unknown int
	answered                   map[int]bool // refunds with a definite answer
	twice                      int          // refunds that two answers report as executed
	unavailable                time.Duration
}

func (s *storm) tally() tally {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := tally{answered: map[int]bool{}}
	did := map[int]int{}
	var writes []time.Time
	for _, a := range s.answers {
		t.requests++
		switch a.Outcome {
		case executed:
			writes = append(writes, a.At)
			if did[a.No]++; did[a.No] > 1 {
				t.twice++
			}
			t.answered[a.No] = true
		case replayed:
			t.replays++
			t.answered[a.No] = true
		case unknown:
			t.unknown++
		}
	}
	slices.SortFunc(writes, time.Time.Compare)
	for i := 1; i < len(writes); i++ {
		t.unavailable = max(t.unavailable, writes[i].Sub(writes[i-1]))
	}
	return t
}

// report prints the summary of a run, and the errors that callers got.
func (s *storm) report(head string, a audit) {
	s.t.Helper()
	t := s.tally()
	tokens := "ok"
	if a.back > 0 {
		tokens = fmt.Sprintf("%d back", a.back)
	}
	fmt.Printf("%s unavailable=%.1fs orders=%d requests=%d refunds=%d replays=%d duplicates=%d lost=%d unknown=%d tokens=%s\n",
		head, t.unavailable.Seconds(), orders, t.requests, a.refunds, t.replays, a.duplicates, a.lost, t.unknown, tokens)
	if a.duplicates+a.lost+a.back+t.twice > 0 || a.ledger != "" {
		s.t.Errorf("duplicates=%d lost=%d tokens that went back=%d, executed twice by the answers=%d %s", a.duplicates, a.lost, a.back, t.twice, a.ledger)
	}
	if t.replays == 0 || a.refunds == 0 {
		s.t.Error("there was no storm")
	}
}
