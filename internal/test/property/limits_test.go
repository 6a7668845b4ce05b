package property_test

import (
	"database/sql"
	"errors"
	"maps"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/holdfast-go/holdfast/internal/test/property"
	"github.com/holdfast-go/holdfast/limits"
	"github.com/holdfast-go/holdfast/reaper"
)

// sums is the model of limits: their entries.
type sums struct {
	db

	limits *limits.Limits[*sql.Tx]
	reaper *reaper.Reaper
	keys   []string
	ids    []string
	limit  map[string]int64
	// forgotten is what was captured of each limit under ids that are forgotten: it counts for good.
	forgotten map[string]int64
	entries   map[string]*entry
	// keep is how long an id is remembered; never: for ever.
	keep time.Duration
}

// entry is what an id was used for. left is the time until it expires, or until its id is forgotten.
type entry struct {
	key              string
	amount, captured int64
	state            limits.State
	take             bool
	left             time.Duration
	// closed is whether the row says that it has expired. Calls close it when it is in their way.
	closed bool
}

// TestSumsOfALimit reserves, captures, voids, takes, raises, lowers and sweeps in any order while time passes: no more is used than the limit, nothing
// falls below zero, a call is done once, and what the database says is the sum of the entries.
func TestSumsOfALimit(t *testing.T) {
	t.Parallel()
	d := onSQLite(t)
	all := sums{db: d, reaper: d.Reaper(quick)}
	property.Check(t, func(t *rapid.T) {
		m := all
		m.exec(t, `DELETE FROM holdfast_limits`)
		m.exec(t, `DELETE FROM holdfast_limit_entries`)
		m.limit, m.forgotten, m.entries, m.keep = map[string]int64{}, map[string]int64{}, map[string]*entry{}, never
		o := limits.Options{}
		if rapid.Bool().Draw(t, "forgotten") {
			o.Keep = hours(rapid.IntRange(1, 20).Draw(t, "Keep"))
			m.keep = o.Keep
		}
		l, err := limits.New(m.Ctx, m.DB, "refunds", o)
		property.Must(t, err)
		m.limits, m.keys, m.ids = l.For(names(t, 1)[0]), confused(t, 2, limits.MaxKey), confused(t, 3, 512)
		_, err = m.limits.Set(m.Ctx, m.keys[0], 100)
		property.Must(t, err)
		m.limit[m.keys[0]] = 100
		t.Repeat(map[string]func(*rapid.T){
			"reserve again": m.reserve, "capture again": m.capture,
			"": m.check, "set": m.set, "reserve": m.reserve, "take": m.take, "capture": m.capture, "void": m.void, "pass": m.pass, "expire": m.expire, "sweep": m.sweep,
		})
	})
}

func (m *sums) key(t *rapid.T) string { return rapid.SampledFrom(m.keys).Draw(t, "key") }

// request draws a call; mostly of an entry that there is, under its key.
func (m *sums) request(t *rapid.T) (limits.Request, *entry) {
	r := limits.Request{ID: rapid.SampledFrom(m.ids).Draw(t, "id"), Amount: rapid.Int64Range(1, 60).Draw(t, "amount")}
	is := m.entries[r.ID]
	if r.Key = m.keys[0]; is != nil {
		r.Key = is.key
	}
	if rapid.IntRange(0, 4).Draw(t, "elsewhere") == 4 {
		r.Key = m.key(t)
	}
	if is != nil && rapid.Bool().Draw(t, "again") {
		r.Amount = max(is.amount+rapid.SampledFrom([]int64{0, 1, -1}).Draw(t, "more"), 1)
	}
	return r, is
}

// used is what counts of a limit.
func (m *sums) used(key string) (reserved, captured int64) {
	captured = m.forgotten[key]
	for _, is := range m.entries {
		if is.key == key && is.state == limits.Reserved {
			reserved += is.amount
		}
		if is.key == key {
			captured += is.captured
		}
	}
	return reserved, captured
}

// want fails unless err is one of the refusals, or nil if there is none.
func want(t *rapid.T, what any, err error, refusal error) {
	t.Helper()
	if !errors.Is(err, refusal) {
		t.Fatalf("%+v: %v, want %v", what, err, refusal)
	}
}

func (m *sums) set(t *rapid.T) {
	key, amount := m.key(t), rapid.Int64Range(0, 200).Draw(t, "limit")
	_, err := m.limits.Set(m.Ctx, key, amount)
	if reserved, captured := m.used(key); amount < reserved+captured {
		want(t, "set", err, limits.ErrExceeded)
		return
	}
	property.Must(t, err)
	m.limit[key] = amount
}

func (m *sums) reserve(t *rapid.T) {
	r, is := m.request(t)
	left := never
	if rapid.Bool().Draw(t, "timeout") {
		r.Timeout = hours(rapid.IntRange(0, 20).Draw(t, "hours"))
		left = r.Timeout
	}
	got, err := m.limits.Reserve(m.Ctx, r)
	m.added(t, r, is, got, err, &entry{key: r.Key, amount: r.Amount, state: limits.Reserved, left: left})
}

func (m *sums) take(t *rapid.T) {
	r, is := m.request(t)
	got, err := m.limits.Take(m.Ctx, r)
	m.added(t, r, is, got, err, &entry{key: r.Key, amount: r.Amount, captured: r.Amount, state: limits.Captured, take: true, left: m.keep})
}

// added judges a call that adds an entry.
func (m *sums) added(t *rapid.T, r limits.Request, is *entry, got limits.Entry, err error, added *entry) {
	t.Helper()
	limit, there := m.limit[r.Key]
	reserved, captured := m.used(r.Key)
	switch {
	case !there:
		want(t, r, err, limits.ErrNotFound)
	case is != nil && (is.key != r.Key || is.amount != r.Amount):
		want(t, r, err, limits.ErrMismatch)
	case is != nil && is.state == limits.Voided:
		want(t, r, err, limits.ErrVoided)
	case is != nil && is.state == limits.Expired:
		want(t, r, err, limits.ErrExpired)
	case is != nil && added.take && (is.state == limits.Reserved || is.captured != is.amount):
		want(t, r, err, limits.ErrMismatch)
	case is != nil:
		property.Must(t, err)
		if !got.Replayed || got.State != is.state || got.Captured != is.captured {
			t.Fatalf("%+v again: %+v, want %+v", r, got, is)
		}
	case reserved+captured+r.Amount > limit:
		want(t, r, err, limits.ErrExceeded)
	default:
		property.Must(t, err)
		if got.Replayed || got.Amount != r.Amount || got.State != added.state {
			t.Fatalf("%+v: %+v", r, got)
		}
		m.entries[r.ID] = added
	}
}

func (m *sums) capture(t *rapid.T) {
	r, is := m.request(t)
	if rapid.IntRange(0, 2).Draw(t, "part") == 2 {
		r.Amount = 0
	}
	_, there := m.limit[r.Key]
	got, err := m.limits.Capture(m.Ctx, r)
	switch {
	case !there || is == nil:
		want(t, r, err, limits.ErrNotFound)
	case is.key != r.Key:
		want(t, r, err, limits.ErrMismatch)
	case is.state == limits.Voided:
		want(t, r, err, limits.ErrVoided)
	case is.state == limits.Expired:
		want(t, r, err, limits.ErrExpired)
	case is.state == limits.Captured:
		if amount := r.Amount; amount != is.captured && (amount != 0 || is.captured != is.amount) {
			want(t, r, err, limits.ErrMismatch)
			return
		}
		if property.Must(t, err); !got.Replayed || got.Captured != is.captured {
			t.Fatalf("%+v again: %+v, want %+v", r, got, is)
		}
	case r.Amount > is.amount:
		want(t, r, err, limits.ErrMismatch)
	default:
		property.Must(t, err)
		if is.captured = r.Amount; r.Amount == 0 {
			is.captured = is.amount
		}
		is.state, is.left = limits.Captured, m.keep
		if got.Replayed || got.Captured != is.captured {
			t.Fatalf("%+v: %+v, want %+v", r, got, is)
		}
	}
}

func (m *sums) void(t *rapid.T) {
	r, is := m.request(t)
	_, there := m.limit[r.Key]
	got, err := m.limits.Void(m.Ctx, r)
	switch {
	case !there || is == nil:
		want(t, r, err, limits.ErrNotFound)
	case is.key != r.Key:
		want(t, r, err, limits.ErrMismatch)
	case is.state == limits.Captured:
		want(t, r, err, limits.ErrCaptured)
	case is.state == limits.Expired:
		want(t, r, err, limits.ErrExpired)
	default:
		property.Must(t, err)
		if got.Replayed != (is.state == limits.Voided) || got.State != limits.Voided {
			t.Fatalf("%+v: %+v, want %+v", r, got, is)
		}
		if is.state == limits.Reserved {
			is.state, is.left = limits.Voided, m.keep
		}
	}
}

// pass lets time pass.
func (m *sums) pass(t *rapid.T) {
	var left []time.Duration
	for _, id := range m.ids {
		if is := m.entries[id]; is != nil && is.left != never {
			left = append(left, is.left)
		}
	}
	by := passing(t, 30, left)
	m.exec(t, `UPDATE holdfast_limit_entries SET created_at = created_at - $1, due_at = due_at - $2, forget_at = forget_at - $3`,
		int64(by)*3_600_000_000, int64(by)*3_600_000_000, int64(by)*3_600_000_000)
	for _, is := range m.entries {
		if is.left == never {
			continue
		}
		if is.left = max(is.left-time.Duration(by)*time.Hour, 0); is.left == 0 && is.state == limits.Reserved {
			is.state, is.left = limits.Expired, never
		}
	}
}

func (m *sums) expire(t *rapid.T) {
	if rapid.Bool().Draw(t, "late") {
		m.pass(t)
	}
	key := m.key(t)
	_, err := m.limits.Expire(m.Ctx, key)
	if _, there := m.limit[key]; !there {
		want(t, "expire", err, limits.ErrNotFound)
		return
	}
	property.Must(t, err)
}

// sweep forgets ids. What was captured under them counts for good.
func (m *sums) sweep(t *rapid.T) {
	if rapid.Bool().Draw(t, "late") {
		m.pass(t)
		m.check(t)
	}
	want := map[string]int64{}
	for id, is := range m.entries {
		if is.left == 0 && (is.state != limits.Expired || is.closed) {
			want["limit_entries"]++
			m.forgotten[is.key] += is.captured
			delete(m.entries, id)
		}
	}
	if got := m.db.sweep(t, m.reaper); !maps.Equal(got, want) {
		t.Fatalf("swept %v, want %v", got, want)
	}
}

// check compares each limit and each entry with the model, and the row with its own bounds.
func (m *sums) check(t *rapid.T) {
	if n := m.int(t, `SELECT COUNT(*) FROM holdfast_limits WHERE reserved < 0 OR captured < 0 OR reserved + captured > limit_amount`); n > 0 {
		t.Fatal("a limit is exceeded")
	}
	for id, is := range m.entries {
		got, err := m.limits.Entry(m.Ctx, id)
		if err != nil || got.State != is.state || got.Amount != is.amount || got.Captured != is.captured || got.Key != is.key {
			t.Fatalf("%q is %+v, %v, want %+v", id, got, err, is)
		}
		if is.state == limits.Expired && !is.closed && m.int(t, `SELECT state FROM holdfast_limit_entries WHERE id = $1`, []byte(id)) == 4 {
			is.closed, is.left = true, m.keep
		}
	}
	if n := m.int(t, `SELECT COUNT(*) FROM holdfast_limit_entries`); n != int64(len(m.entries)) {
		t.Fatalf("%d entries, want %d", n, len(m.entries))
	}
	for key, limit := range m.limit {
		reserved, captured := m.used(key)
		is, err := m.limits.Get(m.Ctx, key)
		if wanted := (limits.Status{Limit: limit, Reserved: reserved, Captured: captured, Available: limit - reserved - captured}); err != nil || is != wanted {
			t.Fatalf("%q is %+v, %v, want %+v", key, is, err, wanted)
		}
	}
	if n := m.int(t, `SELECT COUNT(*) FROM holdfast_limits l WHERE reserved <> (SELECT COALESCE(SUM(amount), 0) FROM holdfast_limit_entries e WHERE e.owner = l.owner AND e.name = l.name AND e.limit_key = l.limit_key AND state = 1)`); n > 0 {
		t.Fatal("a limit is not the sum of its entries")
	}
}
