package outbox

import (
	"cmp"
	"database/sql"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/access"
	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/test/conformance"
	"github.com/holdfast-go/holdfast/internal/test/rowdiff"
)

// TestTransitions tries each statement of an outbox on messages in each state that they may be in: of a relay
// that has them, of another one, of none, before and after they are due. What is refused changes nothing. What
// is not changes what is listed here, and no message of another key, outbox or owner.
func TestTransitions(t *testing.T) {
	t.Parallel()
	conformance.Run(t, conformance.SQL(), func(e *conformance.Env[*sql.Tx]) {
		box, err := New(e.Ctx, e.DB, "refunds")
		e.Check(err)
		w := &world{Env: e, sql: &box.sql, began: time.Now().UnixMicro(), all: messages()}
		w.fill()
		for _, tr := range w.transitions() {
			if tr.many {
				w.try(&tr, w.all[from])
				continue
			}
			for _, m := range w.all {
				w.try(&tr, m)
			}
		}
		w.keys()
		w.reads()
	})
}

const (
	hour   = int64(time.Hour / time.Microsecond)
	minute = hour / 60
)

var mine, theirs = "the relay's own!", "another relay's!"

// message is a message of a key.
type message struct {
	seq     int64
	state   int
	attempt string
	starts  int
	due     int64 // µs from now
}

const waits = 1

// from and to are a range of messages, which has some of each state. Its first and its last one wait.
const from, to = 8, 24

// messages are the messages of a key. One in each state is first and last in turn.
func messages() (all []message) {
	add := func(m message) {
		m.seq = int64(10 * (len(all) + 1))
		all = append(all, m)
	}
	for _, state := range []int{2, 3, 4} {
		for _, due := range []int64{-hour, -10 * minute, hour} {
			add(message{state: state, attempt: mine, starts: 2, due: due})
		}
		add(message{state: state, due: -hour}) // it was published behind another one
		if state == 3 {
			continue
		}
		for _, attempt := range []string{mine, theirs, ""} {
			for _, starts := range []int{0, 2} {
				for _, due := range []int64{-hour, hour} {
					add(message{state: waits, attempt: attempt, starts: starts, due: due})
				}
			}
		}
	}
	return all
}

type transition struct {
	name    string
	stmt    core.Stmt
	more    []any
	many    bool // it changes all that are allowed, not one
	allowed func(m message) bool
	change  rowdiff.Change
}

type world struct {
	*conformance.Env[*sql.Tx]
	sql    *statements
	began  int64
	all    []message
	before rowdiff.Rows
}

func (w *world) transitions() []transition {
	is, null, now, in := rowdiff.Is, rowdiff.Is(rowdiff.Null), rowdiff.Now(0), rowdiff.Now
	has := func(m message) bool { return m.state == waits && m.attempt == mine }
	isDead := func(m message) bool { return m.state == dead }
	from, to := w.all[from].seq, w.all[to].seq
	var all []transition
	for _, starts := range []int{0, 2} {
		all = append(all, transition{
			"take", w.sql.take,
			[]any{[]byte(mine), hour, starts},
			false,
			func(m message) bool { return m.state == waits && m.starts == starts && (m.due < 0 || starts == 0) },
			rowdiff.Change{"attempt": is(mine), "due_at": in(hour), "starts": rowdiff.Plus(1)},
		})
	}
	return append(all,
		transition{"fail", w.sql.failed, []any{[]byte(mine), 2 * hour, "boom"}, false, has, rowdiff.Change{"due_at": in(2 * hour), "attempt": null, "reason": is("boom")}},
		transition{"bury", w.sql.bury, []any{[]byte(mine), "boom"}, false, has, rowdiff.Change{"state": is(3), "due_at": now, "attempt": null, "reason": is("boom")}},
		transition{"release", w.sql.release, []any{[]byte(mine)}, false, has, rowdiff.Change{"due_at": now, "attempt": null, "starts": rowdiff.Plus(-1)}},
		transition{"requeue", w.sql.requeue, nil, false, isDead, rowdiff.Change{"state": is(1), "due_at": now, "starts": is(0)}},
		transition{"discard", w.sql.discard, nil, false, isDead, rowdiff.Change{"state": is(4), "due_at": now}},
		transition{"publish", w.sql.published, []any{to}, true, func(m message) bool { return from <= m.seq && m.seq <= to && m.state == waits }, rowdiff.Change{
			"state": is(2), "due_at": now, "attempt": null, "reason": null,
		}},
		transition{"free", w.sql.free, nil, true, func(m message) bool { return m.seq > from && m.state == waits && m.starts == 0 }, rowdiff.Change{"due_at": now}},
		transition{"put off", w.sql.postpone, []any{to, hour / 2}, true, func(m message) bool {
			return m.seq > from && m.seq <= to && m.state == waits && m.starts == 0 && m.due < 0
		}, rowdiff.Change{"due_at": in(hour / 2)}},
		transition{"delete nothing", w.sql.remove, []any{2 * hour}, true, func(message) bool { return false }, nil},
	)
}

// places are the key of the subject, which is the last, and those beside it.
var places = [][3]string{{"other", "refunds", "a"}, {"shop", "payouts", "a"}, {"shop", "refunds", "b"}, {"shop", "refunds", "A"}, {"shop", "refunds", "a"}}

func (w *world) fill() {
	w.Helper()
	for _, p := range places {
		for _, m := range w.all {
			w.Must(`INSERT INTO holdfast_outbox (owner, name, message_key, seq, id, topic, body, state, starts, attempt, due_at, reason, written_at) VALUES ($1, $2, $3, $4, 'id', 'topic', $5, $6, $7, $8, $9, 'why', $10)`,
				p[0], p[1], []byte(p[2]), m.seq, []byte("body"), m.state, m.starts, orNil(m.attempt), w.began+m.due, w.began-m.seq*minute)
		}
		w.Must(`INSERT INTO holdfast_outbox_keys (owner, name, message_key, last_seq) VALUES ($1, $2, $3, 1000)`, p[0], p[1], []byte(p[2]))
	}
}

func orNil(text string) any {
	if text == "" {
		return nil
	}
	return []byte(text)
}

// within runs f in a transaction that is rolled back.
func (w *world) within(f func(q core.Querier)) {
	w.Helper()
	tx, err := w.Begin(w.Ctx, sql.LevelDefault)
	w.Check(err)
	q, err := access.Of(w.DB).Join(tx)
	w.Check(err)
	f(q)
	w.Check(w.End(w.Ctx, tx, false))
}

func (w *world) exec(q core.Querier, query string, args ...any) {
	w.Helper()
	_, err := q.Exec(w.Ctx, w.Rebind(query), args...)
	w.Check(err)
}

func (w *world) now(q core.Querier) (now int64) {
	w.Helper()
	found, err := core.QueryRow(w.Ctx, q, []any{&now}, "SELECT "+access.Of(w.DB).Dialect.Now)
	if err != nil || !found {
		w.Fatal(found, err)
	}
	return now
}

func (w *world) rows(q core.Querier) rowdiff.Rows {
	w.Helper()
	short := func(table string) string { return strings.TrimPrefix(table, "holdfast_") }
	key := []string{"owner", "name", "message_key"}
	return rowdiff.Read(w.Ctx, w, q, short, rowdiff.Table{Name: "holdfast_outbox", Key: append(key, "seq")}, rowdiff.Table{Name: "holdfast_outbox_keys", Key: key})
}

func args(more ...any) []any { return append([]any{"shop", "refunds", []byte("a")}, more...) }

// try runs a transition on a message, and on those behind it.
func (w *world) try(tr *transition, m message) {
	w.Helper()
	w.within(func(q core.Querier) {
		if w.before == nil {
			w.before = w.rows(q)
		}
		changes := rowdiff.Changes{}
		for _, each := range w.all {
			if (tr.many || each.seq == m.seq) && tr.allowed(each) {
				changes[fmt.Sprint("outbox shop refunds a ", each.seq)] = tr.change
			}
		}
		from := w.now(q)
		_, err := tr.stmt.Exec(w.Ctx, q, args(append([]any{m.seq}, tr.more...)...)...)
		w.Check(err)
		rowdiff.Check(w, fmt.Sprintf("%s %+v", tr.name, m), w.before, w.rows(q), changes, rowdiff.Clock{From: from, To: w.now(q)})
	})
}

// keys writes to keys that are there and to new ones, and clears.
func (w *world) keys() {
	w.Helper()
	check := func(what string, q core.Querier, changes rowdiff.Changes, f func()) {
		w.Helper()
		before, from := w.rows(q), w.now(q)
		f()
		rowdiff.Check(w, what, before, w.rows(q), changes, rowdiff.Clock{From: from, To: w.now(q)})
	}
	exec := func(q core.Querier, stmt core.Stmt, args ...any) func() {
		return func() {
			_, err := stmt.Exec(w.Ctx, q, args...)
			w.Check(err)
		}
	}
	const key, fresh = "outbox_keys shop refunds a", "outbox_keys shop refunds new"
	for _, last := range []int64{1000, 1 << 60} { // the clock is after it, and before it
		w.within(func(q core.Querier) {
			w.exec(q, `UPDATE holdfast_outbox_keys SET last_seq = $1 WHERE owner = 'shop' AND name = 'refunds' AND message_key = $2`, last, []byte("a"))
			check("bump", q, rowdiff.Changes{key: {"last_seq": rowdiff.Raised}}, exec(q, w.sql.bump, args()...))
			seq := w.rows(q)[key]["last_seq"]
			check("insert", q, rowdiff.Changes{"outbox shop refunds a " + seq: {
				"state": rowdiff.Is(1), "starts": rowdiff.Is(0), "due_at": rowdiff.Now(0), "written_at": rowdiff.Now(0), "id": rowdiff.Is("id"), "topic": rowdiff.Is("topic"), "body": rowdiff.Is("body"), "attempt": rowdiff.Is(rowdiff.Null),
			}}, exec(q, w.sql.insert, args("id", "topic", nil, []byte("body"))...))
			check("bump a new one", q, rowdiff.Changes{fresh: {"last_seq": rowdiff.Now(0)}}, exec(q, w.sql.bump, "shop", "refunds", []byte("new")))
		})
	}
	w.within(func(q core.Querier) {
		check("delete the key of a later message", q, nil, exec(q, w.sql.removeKey, args(999)...))
		check("delete the key", q, rowdiff.Changes{key: nil}, exec(q, w.sql.removeKey, args(1000)...))
	})
	for _, last := range []int64{w.all[0].seq, w.all[len(w.all)-1].seq} {
		w.within(func(q core.Querier) {
			changes := rowdiff.Changes{}
			for _, m := range w.all {
				if m.seq <= last && (m.state == 2 || m.state == 4) && m.due < -30*minute {
					changes[fmt.Sprint("outbox shop refunds a ", m.seq)] = nil
				}
			}
			check("delete what is old", q, changes, exec(q, w.sql.remove, args(last, 30*minute)...))
		})
	}
}

// list runs a statement and returns its rows as text.
func (w *world) list(q core.Querier, columns int, stmt core.Stmt, args ...any) (all []string) {
	w.Helper()
	found, err := stmt.Query(w.Ctx, q, args...)
	w.Check(err)
	names, err := found.Columns()
	w.Check(err)
	all, err = core.Collect(found, func(r core.Row) (string, error) {
		values, to := make([]any, len(names)), make([]any, len(names))
		for i := range values {
			to[i] = &values[i]
		}
		err := r.Scan(to...)
		var texts []string
		for _, v := range values[:columns] {
			if b, ok := v.([]byte); ok {
				v = string(b)
			}
			texts = append(texts, fmt.Sprint(v))
		}
		return strings.Join(texts, " "), err
	})
	w.Check(err)
	return all
}

// these returns the messages for which f holds, as the statements list them that read all owners.
func (w *world) these(f func(m message) bool) (all []string) {
	for _, p := range places {
		for _, m := range w.all {
			if p[1] == "refunds" && f(m) {
				all = append(all, fmt.Sprint(p[0], " ", p[2], " ", m.seq))
			}
		}
	}
	slices.Sort(all)
	return all
}

func (w *world) reads() {
	w.Helper()
	const limit = 10_000
	want := func(what string, got, want []string) {
		w.Helper()
		if !slices.Equal(got, want) {
			w.Errorf("%s: %q, want %q", what, got, want)
		}
	}
	sorted := func(list []string) []string { slices.Sort(list); return list }
	w.within(func(q core.Querier) {
		due := w.these(func(m message) bool { return m.state == waits && m.due < 0 })
		want("due", sorted(w.list(q, 3, w.sql.due, "refunds", limit)), due)
		want("dead", sorted(w.list(q, 3, w.sql.dead, "refunds", 0, "", []byte{}, 0, limit)), w.these(func(m message) bool { return m.state == dead }))
		if n := len(w.list(q, 3, w.sql.due, "refunds", 2)) + len(w.list(q, 3, w.sql.dead, "refunds", 0, "", []byte{}, 0, 2)); n != 4 {
			w.Errorf("%d rows, the limits are 2", n)
		}
		for _, state := range []int{2, 4} {
			want(fmt.Sprint("old in state ", state), sorted(w.list(q, 3, w.sql.old, "refunds", state, 30*minute, limit)),
				w.these(func(m message) bool { return m.state == state && m.due < -30*minute }))
		}
		number := map[int]int{}
		for _, m := range w.all {
			number[m.state] += 4
		}
		want("counts", sorted(w.list(q, 2, w.sql.stats, "refunds")), []string{fmt.Sprint("1 ", number[1]), fmt.Sprint("3 ", number[3])})
		for n, m := range w.all {
			// The messages from here on are all that is left of the key.
			w.exec(q, `DELETE FROM holdfast_outbox WHERE owner = 'shop' AND name = 'refunds' AND message_key = $1 AND seq < $2`, []byte("a"), m.seq)
			first := func(state int) int {
				return slices.IndexFunc(w.all[n:], func(m message) bool { return m.state == state })
			}
			var head, run []string
			if i, d := first(waits), first(dead); i >= 0 {
				m, letter := w.all[n+i], int64(0)
				if d >= 0 {
					letter = w.all[n+d].seq
				}
				head = []string{fmt.Sprintf("%d %d %d", m.seq, m.starts, letter)}
			}
			var got []string
			for _, line := range w.list(q, 4, w.sql.head, args()...) {
				f := strings.Fields(line) // the third is how long it is held
				got = append(got, fmt.Sprintf("%s %s %s", f[0], f[1], f[3]))
			}
			want(fmt.Sprint("the head from ", m.seq), got, head)
			for _, from := range []int{n, min(n+3, len(w.all)-1)} {
				run = nil
				for _, m := range w.all[from:] {
					if (m.state == waits || m.state == dead) && len(run) < 3 {
						run = append(run, fmt.Sprintf("shop a %d %d", m.seq, m.state))
					}
				}
				want(fmt.Sprint("the run from ", w.all[from].seq), w.list(q, 4, w.sql.run, args(w.all[from].seq, 3)...), run)
			}
		}
	})
	// How long it is held, and how old the oldest one is.
	w.within(func(q core.Querier) {
		var state, n int
		var age, seq, starts, held, letter int64
		found, err := w.sql.stats.QueryRow(w.Ctx, q, []any{&state, &n, &age}, "refunds")
		if oldest := slices.MaxFunc(w.all, func(a, b message) int { return cmp.Compare(a.seq, b.seq) }); !found || err != nil || age < oldest.seq*minute-hour {
			w.Error(found, err, age)
		}
		found, err = w.sql.head.QueryRow(w.Ctx, q, []any{&seq, &starts, &held, &letter}, args()...)
		if i := slices.IndexFunc(w.all, func(m message) bool { return m.state == waits }); !found || err != nil || (held > 0) != (w.all[i].due > 0) {
			w.Error(found, err, held)
		}
	})
}
