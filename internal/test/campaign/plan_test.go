//go:build unix

package campaign

import (
	"fmt"
	"math/rand/v2"
	"time"
)

// Settings of all clients. The margin is large because a busy machine may delay a process, which
// looks like a short stop.
const (
	ttl      = 2 * time.Second
	margin   = 800 * time.Millisecond
	shortTTL = 700 * time.Millisecond // of leases without renewal

	leaseKeys = 3 // in an epoch, plus one that all epochs share
	permits   = 2 // of the semaphore
	payKeys   = 12
)

// A job is a kind of operation.
type job string

const (
	visit    job = "visit"    // a lease, and refunds booked under its guard
	crash    job = "crash"    // the same, but it is never released
	overstay job = "overstay" // writes and releases after the lease is over
	refund   job = "refund"   // idempotency.Do
	payout   job = "payout"   // a business row, with Table.Do
	swap     job = "swap"     // a register
	erase    job = "erase"    // a register
	read     job = "read"     // a register
	inLine   job = "fair"     // a fair lock, exclusive
	shared   job = "shared"   // a fair lock, shared
	permit   job = "permit"   // of a semaphore

	pay       job = "pay"      // a staged payment, at the bank
	start     job = "start"    // the same, begun in a transaction of the caller
	cancelled job = "cancel"   // of such a payment
	complete  job = "complete" // of one that its worker left behind, beside the workers
	original  job = "original" // idempotency.Do, of a refund that others cancel
	void      job = "void"     // of such a refund
	take      job = "limit"    // of a limit, or reserve and capture
	alike     job = "similar"  // a refund with one of several keys of one intent
	batch     job = "batch"    // business rows, several in one transaction
	reap      job = "reap"     // a sweep, beside the workers of one client
	post      job = "post"     // a row and its message
	deliver   job = "deliver"  // of such a message, by a relay beside the workers
	tick      job = "tick"     // of a job that runs in all clients, beside the workers
	watch     job = "watch"    // an event of a lock, beside the workers of two clients
	offer     job = "offer"    // a lease whose handle another one may resume
	resume    job = "resume"   // of such a lease
	gather    job = "gather"   // all leases of an epoch together
	foreign   job = "foreign"  // a refund by the SQL functions, as other languages call them
)

// jobs lists the jobs with their weights, 0 for what runs beside the workers, and the keys that each has in an epoch.
var jobs = []struct {
	job
	weight int
	what   string
	keys   int
}{
	{visit, 30, "lease", leaseKeys + 1},
	{crash, 3, "lease", leaseKeys + 1},
	{overstay, 5, "lease", leaseKeys + 1},
	{refund, 26, "refund", 40},
	{payout, 9, "payout", 20},
	{swap, 9, "register", 2},
	{erase, 1, "register", 2},
	{read, 5, "register", 2},
	{inLine, 5, "fair", 1},
	{shared, 3, "shared", 1},
	{permit, 4, "semaphore", 1},
	{pay, 5, "pay", payKeys},
	{start, 5, "pay", payKeys},
	{cancelled, 5, "pay", payKeys},
	{complete, 0, "pay", payKeys},
	{original, 4, "void", 8},
	{void, 4, "void", 8},
	{take, 9, "limit", 1},
	{alike, 5, "similar", 5},
	{batch, 2, "payout", 20},
	{reap, 0, "", 1},
	{post, 5, "message", messageKeys},
	{deliver, 0, "", 1},
	{tick, 0, "", 1},
	{watch, 0, "", 1},
	{offer, 4, "handle", 2},
	{resume, 4, "handle", 2},
	{gather, 5, "lease", leaseKeys},
	{foreign, 5, "refund", 40},
}

// A plan is one operation of a worker with all its choices.
type plan struct {
	job   job
	what  string // its keys
	keys  int    // how many of them an epoch has
	key   int
	try   bool          // tries once, or again and again, instead of waiting
	wait  time.Duration // gives up after this time
	hold  time.Duration // how long it holds a lock
	think time.Duration // how long its transaction takes between reading and writing
	books int           // how often it writes under its lease
	fails bool          // its function returns an error
	pause time.Duration // afterwards
}

// A planner draws a worker's plans: the same seed, client, life and worker give the same
// sequence, regardless of the results.
type planner struct{ rng *rand.Rand }

func plannerOf(seed uint64, client, life, worker int) planner {
	return planner{rand.New(rand.NewPCG(seed, 1+uint64(client)<<40+uint64(life)<<8+uint64(worker)))}
}

func (p planner) next() plan {
	upTo := func(d time.Duration) time.Duration { return time.Duration(p.rng.Int64N(int64(d))) }
	sum := 0
	for _, j := range jobs {
		sum += j.weight
	}
	n := p.rng.IntN(sum)
	at := 0
	for n -= jobs[at].weight; n >= 0; n -= jobs[at].weight {
		at++
	}
	o := plan{
		job: jobs[at].job, what: jobs[at].what, keys: jobs[at].keys, key: p.rng.IntN(1 << 16), try: p.rng.IntN(3) == 0,
		wait: 300*time.Millisecond + upTo(3*time.Second), hold: upTo(40 * time.Millisecond), think: upTo(6 * time.Millisecond),
		books: 1 + p.rng.IntN(3), fails: p.rng.IntN(25) == 0, pause: upTo(50 * time.Millisecond),
	}
	if p.rng.IntN(20) == 0 {
		o.wait = upTo(10 * time.Millisecond) // given up while it is sent
	}
	if p.rng.IntN(12) == 0 {
		o.hold = upTo(ttl) // long enough to be renewed
	}
	return o
}

// keyOf returns the key of an operation in an epoch.
func keyOf(epoch int, what string, n int) string {
	return fmt.Sprintf("%s%s/%d", prefixOf(epoch), what, n)
}

// epochOf returns the epoch of such a key.
func epochOf(key string) (epoch int) {
	_, _ = fmt.Sscanf(key, "e%d/", &epoch)
	return epoch
}

func prefixOf(epoch int) string { return fmt.Sprintf("e%05d/", epoch) }

// always is the lease that all epochs share: its tokens are checked over the whole campaign.
const always = "always"
