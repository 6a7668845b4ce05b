package history

import (
	"encoding/json"
	"os"
	"slices"
	"sync"
	"time"
)

// A Recorder collects the operations of a process. It is safe for concurrent
// use.
type Recorder struct {
	mu   sync.Mutex
	ops  History
	file *os.File
}

// New returns a recorder that keeps what it hears in memory.
func New() *Recorder { return &Recorder{} }

// Create returns a recorder that also writes to a new file as it hears, each
// call before it is made: what a killed process recorded can be [Read], and
// what it was about to do is an operation of unknown outcome.
func Create(path string) (*Recorder, error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600) //nolint:gosec // the test's own file
	if err != nil {
		return nil, err
	}
	return &Recorder{file: file}, nil
}

// Close closes the file of a recorder made by [Create].
func (r *Recorder) Close() error {
	if r.file == nil {
		return nil
	}
	return r.file.Close()
}

// History returns what was recorded so far.
func (r *Recorder) History() History {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.ops)
}

// Client returns the client of this id, which names it in messages: take
// another id for each goroutine.
func (r *Recorder) Client(id int) *Client { return &Client{r: r, id: id} }

// write appends op to the file. A test whose record has holes proves nothing,
// so it panics where it cannot.
func (r *Recorder) write(op Op) {
	if r.file == nil {
		return
	}
	line, err := json.Marshal(op)
	if err == nil {
		_, err = r.file.Write(append(line, '\n'))
	}
	if err != nil {
		panic("history: " + err.Error())
	}
}

// begin records a call.
func (r *Recorder) begin(op Op) pending {
	r.mu.Lock()
	defer r.mu.Unlock()
	op.ID = len(r.ops)
	if op.Call == 0 {
		op.Call = now()
	}
	r.ops = append(r.ops, op)
	r.write(op)
	return pending{r: r, id: op.ID}
}

// A Client records what one goroutine does.
type Client struct {
	r  *Recorder
	id int
}

func (c *Client) begin(kind Kind, key string) pending {
	return c.r.begin(Op{Client: c.id, Kind: kind, Key: Key(key)})
}

// Grant begins an attempt to get a lease.
func (c *Client) Grant(key string) *Grant {
	return &Grant{pending: c.begin(KindGrant, key), c: c, key: key}
}

// Read begins a read of a register.
func (c *Client) Read(key string) *Access { return &Access{c.begin(KindRead, key)} }

// Write begins a write of a register.
func (c *Client) Write(key, value string) *Access {
	return &Access{c.r.begin(Op{Client: c.id, Kind: KindWrite, Key: Key(key), Value: value})}
}

// Swap begins a compare-and-swap of a register: value is written where expect
// is found.
func (c *Client) Swap(key, expect, value string) *Access {
	return &Access{c.r.begin(Op{Client: c.id, Kind: KindSwap, Key: Key(key), Expect: expect, Value: value})}
}

// pending is an operation whose outcome is not known, yet or for good.
type pending struct {
	r  *Recorder
	id int
}

// end records the outcome. The moment is that of its call.
func (p pending) end(outcome Outcome, set func(*Op)) Stamp {
	at := now()
	p.r.mu.Lock()
	defer p.r.mu.Unlock()
	op := &p.r.ops[p.id]
	if op.Outcome != "" {
		panic("history: two outcomes of one operation: " + op.describe())
	}
	op.Return, op.Outcome = at, outcome
	if set != nil {
		set(op)
	}
	p.r.write(*op)
	return at
}

// Unknown says that the outcome is not known: the operation may take effect at
// any time, or never. It may be called, or not, or late.
func (pending) Unknown() {}

// Failed says that the operation surely did nothing and never will.
func (p pending) Failed() { p.end(Failed, nil) }

// A Grant is an attempt to get a lease.
type Grant struct {
	pending

	c   *Client
	key string
}

// Won says that the lease was granted with this token, and that its context
// does not outlive until unless it is renewed. A zero until says that this is
// not known.
func (g *Grant) Won(token int64, until time.Time) *Term {
	at := g.end(OK, func(op *Op) { op.Token, op.Until = token, stampOf(until) })
	return &Term{c: g.c, key: g.key, token: token, alive: at}
}

// Held says that somebody else has the lease.
func (g *Grant) Held() { g.end(Refused, nil) }

// An Access is an operation on a register.
type Access struct{ pending }

// Got says what was read.
func (a *Access) Got(value string) { a.end(OK, func(op *Op) { op.Value = value }) }

// OK says that a write or swap was done.
func (a *Access) OK() { a.end(OK, nil) }

// Swapped says that a swap was done whose caller learns only now what it
// replaced, and with what.
func (a *Access) Swapped(expect, value string) {
	a.end(OK, func(op *Op) { op.Expect, op.Value = expect, value })
}

// Refused says that a swap found another value than it expected.
func (a *Access) Refused() { a.end(Refused, nil) }

func stampOf(t time.Time) Stamp {
	if t.IsZero() {
		return 0
	}
	return now() + time.Until(t)
}
