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

// New returns a recorder that keeps its operations in memory.
func New() *Recorder { return &Recorder{} }

// Create returns a recorder that also writes each record to a new file at once, and each call
// before it is made. [Read] reads the records of a killed process; a call in progress is an
// operation of unknown outcome.
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

// History returns the operations recorded so far.
func (r *Recorder) History() History {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.ops)
}

// Client returns the client with this id, which messages contain: use a different id for each
// goroutine.
func (r *Recorder) Client(id int) *Client { return &Client{r: r, id: id} }

// write appends op to the file. It panics if it cannot, because a test with gaps in its record
// proves nothing.
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

// A Client records the operations of one goroutine.
type Client struct {
	r  *Recorder
	id int
}

func (c *Client) begin(kind Kind, key string) pending {
	return c.r.begin(Op{Client: c.id, Kind: kind, Key: Key(key)})
}

// Grant begins an attempt to acquire a lease.
func (c *Client) Grant(key string) *Grant {
	return &Grant{pending: c.begin(KindGrant, key), c: c, key: key}
}

// GrantUnits begins an attempt to acquire units of a lock's capacity, which [Room] judges.
func (c *Client) GrantUnits(key string, units int) *Grant {
	return &Grant{pending: c.r.begin(Op{Client: c.id, Kind: KindGrant, Key: Key(key), Units: units}), c: c, key: key}
}

// Read begins a read of a register.
func (c *Client) Read(key string) *Access { return &Access{c.begin(KindRead, key)} }

// Write begins a write of a register.
func (c *Client) Write(key, value string) *Access {
	return &Access{c.r.begin(Op{Client: c.id, Kind: KindWrite, Key: Key(key), Value: value})}
}

// Swap begins a compare-and-swap of a register: it writes value if it finds expect.
func (c *Client) Swap(key, expect, value string) *Access {
	return &Access{c.r.begin(Op{Client: c.id, Kind: KindSwap, Key: Key(key), Expect: expect, Value: value})}
}

// pending is an operation whose outcome is unknown, for now or forever.
type pending struct {
	r  *Recorder
	id int
}

// end records the outcome, at the time of this call.
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

// Unknown means that the outcome is unknown: the operation may take effect at any time, or
// never. The call is optional and may come late.
func (pending) Unknown() {}

// Failed means that the operation certainly did nothing and never will.
func (p pending) Failed() { p.end(Failed, nil) }

// A Grant is an attempt to acquire a lease.
type Grant struct {
	pending

	c   *Client
	key string
}

// Won records that the lease was granted with this token, and that its context ends by until
// unless it is renewed. A zero until means that this is not known.
func (g *Grant) Won(token int64, until time.Time) *Term {
	at := g.end(OK, func(op *Op) { op.Token, op.Until = token, stampOf(until) })
	return &Term{c: g.c, key: g.key, token: token, alive: at}
}

// Held records that another client has the lease.
func (g *Grant) Held() { g.end(Refused, nil) }

// An Access is an operation on a register.
type Access struct{ pending }

// Got records the value that was read.
func (a *Access) Got(value string) { a.end(OK, func(op *Op) { op.Value = value }) }

// OK records that a write or swap was done.
func (a *Access) OK() { a.end(OK, nil) }

// Swapped records a swap whose caller learns only now which value it replaced, and by which
// value.
func (a *Access) Swapped(expect, value string) {
	a.end(OK, func(op *Op) { op.Expect, op.Value = expect, value })
}

// Refused records that a swap found another value than it expected.
func (a *Access) Refused() { a.end(Refused, nil) }

func stampOf(t time.Time) Stamp {
	if t.IsZero() {
		return 0
	}
	return now() + time.Until(t)
}
