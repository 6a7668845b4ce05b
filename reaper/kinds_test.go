package reaper_test

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/test/conformance"
	"github.com/holdfast-go/holdfast/reaper"
)

// insertion returns the statements that insert a row with a time.
type insertion func(e *conformance.Env[*sql.Tx], owner, name string, second byte, at string) []string

// kind is one of the reaper's own tasks, with rows for it.
type kind struct {
	task string
	// judged is the statement that decides again, after find.
	judged string
	// grace: rows are due an hour after their time.
	grace  bool
	insert insertion
	// count counts the rows that are not cleared. On parts that do not go with their operation it fails.
	count string
	parts []string
	// kept counts what is cleared, and has something left that should have gone.
	kept string
	// aside inserts rows whose time has come, and that are not of this task.
	aside []insertion
	// spare has statements that make each row one that is not to be cleared, and take that back.
	spare [][2]string
}

func at(table, column string) [2]string {
	return [2]string{
		fmt.Sprintf(`UPDATE holdfast_%s SET %s = %s + 4000000000000000`, table, column, column),
		fmt.Sprintf(`UPDATE holdfast_%s SET %s = %s - 4000000000000000`, table, column, column),
	}
}

func hashOf(e *conformance.Env[*sql.Tx], name string, second byte) string {
	h := sha256.Sum256([]byte(name + string(rune(second))))
	return e.Blob(h[:])
}

func recordOf(results, keys string, state int) insertion {
	return func(e *conformance.Env[*sql.Tx], owner, name string, second byte, at string) []string {
		r := strings.NewReplacer("{at}", at)
		return []string{fmt.Sprintf(`INSERT INTO holdfast_records (owner, key_hash, namespace, operation, op_key, fingerprint_version, attempt, state, result, codec, request_id, created_at, finished_at, result_expires_at, key_expires_at)
 VALUES ('%s', %s, 'n', 'op', %s, 1, %s, %d, %s, 'c', 'r', 1, 2, %s, %s)`, owner, hashOf(e, name, second), e.Blob([]byte(name)), e.Blob(make([]byte, 16)), state, e.Blob([]byte(`"r"`)), r.Replace(results), r.Replace(keys))}
	}
}

func stagedOf(results, keys string, state int) insertion {
	return func(e *conformance.Env[*sql.Tx], owner, name string, second byte, at string) []string {
		r := strings.NewReplacer("{at}", at)
		hash := hashOf(e, name, second)
		return []string{
			fmt.Sprintf(`INSERT INTO holdfast_staged (owner, key_hash, namespace, operation, op_key, fingerprint_version, state, request, result, reason, request_id, token, due_at, step, mode, started, finished, accepted, restored,
 version, created_at, moved_at, finished_at, result_expires_at, key_expires_at) VALUES ('%s', %s, 'n', 'op', %s, 1, %d, %s, %s, 'w', 'r', 1, 1, '', 1, 1, 1, 0, 0, 1, 1, 2, 2, %s, %s)`,
				owner, hash, e.Blob([]byte(name)), state, e.Blob([]byte(`"q"`)), e.Blob([]byte(`"r"`)), r.Replace(results), r.Replace(keys)),
			fmt.Sprintf(`INSERT INTO holdfast_steps (owner, key_hash, name, state, provider_key, result, token, starts, begun_at, moved_at) VALUES ('%s', %s, 's', 2, '', %s, 1, 1, 1, 1)`, owner, hash, e.Blob([]byte(`"r"`))),
			fmt.Sprintf(`INSERT INTO holdfast_provider_events (owner, key_hash, event_id, kind, body, received_at) VALUES ('%s', %s, %s, 'k', %s, 1)`, owner, hash, e.Blob([]byte("1")), e.Blob([]byte("b"))),
		}
	}
}

func kinds() []kind {
	claimed := func(table string, state int) [2]string {
		return [2]string{fmt.Sprintf(`UPDATE holdfast_%s SET state = 1`, table), fmt.Sprintf(`UPDATE holdfast_%s SET state = %d`, table, state)}
	}
	keyDue := func(table string) [2]string {
		return [2]string{fmt.Sprintf(`UPDATE holdfast_%s SET key_expires_at = {now}`, table), fmt.Sprintf(`UPDATE holdfast_%s SET key_expires_at = NULL`, table)}
	}
	return []kind{
		{
			task: "results", judged: "write", insert: recordOf("{at}", "NULL", 2), count: `SELECT COUNT(*) FROM holdfast_records WHERE state = 2`,
			kept:  `SELECT COUNT(*) FROM holdfast_records WHERE state = 4 AND (result IS NOT NULL OR codec IS NOT NULL OR request_id IS NOT NULL OR result_expires_at IS NOT NULL)`,
			aside: []insertion{recordOf("{at}", "NULL", 1)},
			spare: [][2]string{at("records", "result_expires_at"), claimed("records", 2), keyDue("records")},
		},
		{
			task: "keys", judged: "write", insert: recordOf("NULL", "{at}", 4), count: `SELECT COUNT(*) FROM holdfast_records WHERE state = 4`,
			aside: []insertion{recordOf("NULL", "{at}", 1)},
			spare: [][2]string{at("records", "key_expires_at"), claimed("records", 4)},
		},
		{
			task: "locks", judged: "write", grace: true, count: `SELECT COUNT(*) FROM holdfast_locks`, spare: [][2]string{at("locks", "expires_at"), at("locks", "token")},
			insert: func(e *conformance.Env[*sql.Tx], owner, name string, second byte, at string) []string {
				return []string{fmt.Sprintf(`INSERT INTO holdfast_locks (owner, name, token, holder, granted_at, expires_at) VALUES ('%s', %s, 7, 'h', 1, %s)`, owner, e.Blob(append([]byte(name), second)), at)}
			},
		},
		{
			task: "waiters", judged: "write", count: `SELECT COUNT(*) FROM holdfast_waiters`, spare: [][2]string{at("waiters", "expires_at")},
			insert: func(e *conformance.Env[*sql.Tx], owner, name string, second byte, at string) []string {
				return []string{fmt.Sprintf(`INSERT INTO holdfast_waiters (owner, name, waiter, holder, waiting, expires_at) VALUES ('%s', %s, %s, 'h', 1, %s)`, owner, e.Blob([]byte(name)), e.Blob(append(make([]byte, 15), second)), at)}
			},
		},
		{
			task: "tickets", judged: "write", grace: true, count: `SELECT COUNT(*) FROM holdfast_tickets`, spare: [][2]string{at("tickets", "expires_at")},
			insert: func(e *conformance.Env[*sql.Tx], owner, name string, second byte, at string) []string {
				attempt := sha256.Sum256(fmt.Append(nil, owner, name, second))
				return []string{fmt.Sprintf(`INSERT INTO holdfast_tickets (owner, name, token, attempt, units, capacity, holder, queued_at, expires_at) VALUES ('%s', %s, %d, %s, 1, 1, 'h', 1, %s)`,
					owner, e.Blob([]byte(name)), second, e.Blob(attempt[:16]), at)}
			},
		},
		{
			task: "staged_results", judged: "lock", insert: stagedOf("{at}", "NULL", 2), count: `SELECT COUNT(*) FROM holdfast_staged WHERE state IN (1, 2, 6)`,
			kept: `SELECT COUNT(*) FROM holdfast_staged o JOIN holdfast_provider_events v ON v.owner = o.owner AND v.key_hash = o.key_hash
WHERE o.state = 4 AND (o.request IS NOT NULL OR o.result IS NOT NULL OR o.reason IS NOT NULL OR o.request_id IS NOT NULL OR o.result_expires_at IS NOT NULL OR o.version <> 2 OR v.kind <> '')`,
			aside: []insertion{stagedOf("{at}", "NULL", 6)},
			parts: []string{`SELECT COUNT(*) FROM holdfast_steps WHERE result IS NOT NULL`, `SELECT COUNT(*) FROM holdfast_provider_events WHERE body IS NOT NULL`},
			spare: [][2]string{at("staged", "result_expires_at"), claimed("staged", 2), keyDue("staged")},
		},
		{
			task: "staged_keys", judged: "lock", insert: stagedOf("NULL", "{at}", 2), count: `SELECT COUNT(*) FROM holdfast_staged`,
			aside: []insertion{stagedOf("NULL", "{at}", 6)},
			parts: []string{`SELECT COUNT(*) FROM holdfast_steps`, `SELECT COUNT(*) FROM holdfast_provider_events`},
			spare: [][2]string{at("staged", "key_expires_at"), claimed("staged", 2)},
		},
		{
			task: "similar", judged: "write", count: `SELECT COUNT(*) FROM holdfast_similar`, spare: [][2]string{at("similar", "expires_at")},
			insert: func(e *conformance.Env[*sql.Tx], owner, name string, second byte, at string) []string {
				return []string{fmt.Sprintf(`INSERT INTO holdfast_similar (owner, similar_hash, namespace, operation, key_hash, op_key, attempt, claimed_at, expires_at) VALUES ('%s', %s, 'n', 'op', %s, %s, %s, 1, %s)`,
					owner, hashOf(e, name, second), hashOf(e, "k", second), e.Blob([]byte("k")), e.Blob(make([]byte, 16)), at)}
			},
		},
		{
			task: "limit_entries", judged: "write", count: `SELECT COUNT(*) FROM holdfast_limit_entries`, spare: [][2]string{at("limit_entries", "forget_at")},
			insert: func(e *conformance.Env[*sql.Tx], owner, name string, second byte, at string) []string {
				return []string{fmt.Sprintf(`INSERT INTO holdfast_limit_entries (owner, name, id, limit_key, amount, captured, state, created_at, due_at, forget_at) VALUES ('%s', %s, %s, %s, 1, 1, 2, 1, 1, %s)`,
					owner, e.Blob([]byte(name)), e.Blob([]byte{second}), e.Blob([]byte("l")), at)}
			},
		},
	}
}

// ofKinds runs f for each task, with a time at which the reapers of open stand.
func ofKinds(t *testing.T, f func(e *conformance.Env[*sql.Tx], i int, k kind, now int, open func(o reaper.Options, seen func(statement string)) *reaper.Reaper)) {
	t.Helper()
	for i, k := range kinds() {
		t.Run(k.task, func(t *testing.T) {
			t.Parallel()
			conformance.Run(t, conformance.SQL(), func(e *conformance.Env[*sql.Tx]) {
				now := e.Now()
				f(e, i, k, now, func(o reaper.Options, seen func(statement string)) *reaper.Reaper {
					o.Pace, o.BatchTime, o.MaxClockJump = 0.01, time.Minute, 24*time.Hour
					r := e.Reaper(o, holdfast.Options{Observers: []holdfast.Observer{func(_ context.Context, s holdfast.Statement) { seen(s.Name) }}})
					r.SetClock(func(context.Context, func(context.Context) (int64, error)) (int64, error) { return int64(now), nil })
					return r
				})
			})
		})
	}
}

func (k *kind) due(now int) int {
	if k.grace {
		return now - int(time.Hour.Microseconds())
	}
	return now
}

// left counts the rows that are not cleared.
func (k *kind) left(e *conformance.Env[*sql.Tx]) int {
	e.Helper()
	n := e.Int(k.count)
	for _, q := range k.parts {
		if of := e.Int(q); of != n {
			e.Errorf("%d operations, and %d parts: %s", n, of, q)
		}
	}
	if k.kept != "" {
		if n := e.Int(k.kept); n != 0 {
			e.Errorf("%d rows are cleared in part", n)
		}
	}
	return n
}

// TestToTheMicrosecond has rows whose time is a microsecond before the reaper's, the same, and one later.
func TestToTheMicrosecond(t *testing.T) {
	t.Parallel()
	ofKinds(t, func(e *conformance.Env[*sql.Tx], i int, k kind, now int, open func(o reaper.Options, seen func(string)) *reaper.Reaper) {
		insert := func(name string, insert insertion, at int) {
			for _, q := range insert(e, "anna", name, 1, fmt.Sprint(at)) {
				e.Must(q)
			}
		}
		for _, by := range []int{-1, 0, 1} {
			insert(fmt.Sprint("by ", by), k.insert, k.due(now)+by)
		}
		want, left := map[int]int64{i: 2}, 1
		for _, aside := range k.aside {
			insert("aside", aside, now)
			if strings.HasPrefix(k.task, "staged") {
				left++ // with its parts
			}
		}
		switch k.task { // what goes as a whole needs no other task first
		case "results":
			insert("key now", recordOf("{at}", "{at}", 2), now)
			insert("key later", recordOf("{at}", fmt.Sprint(now+1), 2), now)
			want = map[int]int64{i: 3, i + 1: 1}
		case "staged_results":
			insert("key now", stagedOf("{at}", "{at}", 2), now)
			insert("key later", stagedOf("{at}", fmt.Sprint(now+1), 2), now)
			want = map[int]int64{i: 3, i + 1: 1}
		}
		r := open(reaper.Options{}, func(string) {})
		counted(e, "the dry run", r.DryRun, want, k, i, now)
		counted(e, "the sweep", r.Sweep, want, k, i, now)
		if n := k.left(e); n != left {
			e.Errorf("%d rows are left, want the one whose time is later, and those of no task", n)
		}
		counted(e, "the sweep after it", r.Sweep, nil, k, i, now)
	})
}

func counted(e *conformance.Env[*sql.Tx], what string, pass func(context.Context) (reaper.Report, error), want map[int]int64, k kind, i, now int) {
	e.Helper()
	report, err := pass(e.Ctx)
	e.Check(err)
	for n, task := range report.Tasks {
		if task.Rows != want[n] || task.Passed != 0 {
			e.Errorf("%s: %+v, want %d rows", what, task, want[n])
		}
	}
	oldest := time.Duration(now-k.due(now)+1) * time.Microsecond
	if got := report.Tasks[i].Oldest; want != nil && got != oldest {
		e.Errorf("%s: the oldest is %v past its time, want %v", what, got, oldest)
	}
}

// TestEachRowOnce has pages of rows that share their time, and owners, names and keys. Between find and write they
// become rows that are not to be cleared: each is passed over, once. Then they are due, and no pass clears more
// than MaxRows.
func TestEachRowOnce(t *testing.T) {
	t.Parallel()
	const rows = 8
	ofKinds(t, func(e *conformance.Env[*sql.Tx], i int, k kind, now int, open func(o reaper.Options, seen func(string)) *reaper.Reaper) {
		insert := func(owners ...string) {
			for _, owner := range owners {
				for _, name := range []string{"one", "two"} {
					for second := range byte(2) {
						for _, q := range k.insert(e, owner, name, second+1, fmt.Sprint(k.due(now)-5)) {
							e.Must(q)
						}
					}
				}
			}
		}
		insert("anna", "ben")
		for n, spare := range k.spare {
			for _, batch := range []int{3, 2, 1}[:max(1, 3-2*n)] {
				spared, judged, finds := false, false, 0
				r := open(reaper.Options{Batch: batch}, func(statement string) {
					switch statement {
					case "sweep." + k.task + ".find":
						if finds++; !spared && finds <= (rows+batch-1)/batch { // no row comes after these
							e.Must(strings.ReplaceAll(spare[0], "{now}", fmt.Sprint(now)))
							spared, judged = true, false
						}
					case "sweep." + k.task + "." + k.judged:
						judged = true
					case "commit":
						if spared && judged {
							e.Must(spare[1])
							spared = false
						}
					}
				})
				report, err := r.Sweep(e.Ctx)
				if spared {
					e.Must(spare[1])
				}
				if err != nil || report.Rows() != 0 || report.Tasks[i].Passed != rows {
					e.Errorf("%s, %d at a time: %+v, %v, want %d passed over", spare[0], batch, report.Tasks[i], err, rows)
				}
				if n := k.left(e); n != rows {
					e.Fatalf("%s, %d at a time: %d rows are left", spare[0], batch, n)
				}
			}
		}
		// Each owner has four rows: batches have one or two of an owner, and then of the next one.
		insert("carl", "dora", "emil")
		left := 2*rows + rows/2
		for _, most := range []int{1, 3, 3, 3, 3, 3, 3, 1} {
			report, err := open(reaper.Options{MaxRows: int64(most)}, func(string) {}).Sweep(e.Ctx)
			left -= most
			if err != nil || report.Rows() != int64(most) || k.left(e) != left {
				e.Fatalf("%+v, %v, and %d rows are left, want %d cleared and %d left", report, err, k.left(e), most, left)
			}
		}
	})
}
