package property_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/internal/test/property"
	"github.com/holdfast-go/holdfast/reaper"
)

const (
	never   = time.Duration(-1)
	longest = 100 * 365 * 24 * time.Hour
)

// records is the model of records: which operations were executed, and how long they are remembered.
type records struct {
	db

	store  *idempotency.Store[*sql.Tx]
	reaper *reaper.Reaper
	ops    []idempotency.Op
	// result, key, rejection are how long each is kept; never: for ever.
	result, key, rejection time.Duration
	rows                   map[int]*record
	runs                   int
}

// record is that of an operation. Times are until it is due.
type record struct {
	request, run int
	rejected     bool
	tombstone    bool
	result, key  time.Duration
}

func due(left time.Duration) bool { return left != never && left <= 0 }

// TestRecordsFollowTheirModel executes, rejects, replays and sweeps while time passes, with scopes that are easily taken for each other: an operation runs
// once until its key is due, however long that is and whether or not a sweep came; a sweep clears what is due and nothing else.
func TestRecordsFollowTheirModel(t *testing.T) {
	t.Parallel()
	d := onSQLite(t)
	all := records{db: d, reaper: d.Reaper(quick)}
	ttl := rapid.Custom(func(t *rapid.T) time.Duration {
		if rapid.IntRange(0, 3).Draw(t, "kind") == 3 {
			return longest - hours(rapid.IntRange(0, 100).Draw(t, "less"))
		}
		return hours(rapid.IntRange(0, 50).Draw(t, "hours"))
	})
	property.Check(t, func(t *rapid.T) {
		m := all
		m.rows, m.runs = map[int]*record{}, 0
		m.exec(t, `DELETE FROM holdfast_records`)
		o := idempotency.Options{}
		m.result, m.key, m.rejection = never, never, 30*24*time.Hour
		if rapid.Bool().Draw(t, "KeyTTL") {
			o.KeyTTL = ttl.Draw(t, "key")
			m.result, m.key, m.rejection = o.KeyTTL, o.KeyTTL, o.KeyTTL
		}
		if rapid.Bool().Draw(t, "ResultTTL") {
			o.ResultTTL = ttl.Draw(t, "result")
			if o.KeyTTL != 0 {
				o.ResultTTL = min(o.ResultTTL, o.KeyTTL)
			}
			m.result = o.ResultTTL
		}
		switch rapid.IntRange(0, 3).Draw(t, "RejectionTTL") {
		case 0:
			o.RejectionTTL = ttl.Draw(t, "rejection")
			m.rejection = o.RejectionTTL
		case 1:
			o.RejectionTTL, m.rejection = holdfast.Forever, never
		}
		var err error
		m.store, err = idempotency.New(m.Ctx, m.DB, o)
		property.Must(t, err)
		owners, names, keys := names(t, 2), names(t, 2), confused(t, 2, idempotency.MaxKey)
		for i := range 4 {
			m.ops = append(m.ops, idempotency.Op{Owner: owners[i/3], Name: names[i/2], Key: keys[i%2]})
		}
		t.Repeat(map[string]func(*rapid.T){"": m.check, "do": m.do, "do again": m.do, "pass": m.pass, "sweep": m.sweep})
	})
}

// kept returns how long a record's result and key are kept.
func (m *records) kept(rejected bool) (result, key time.Duration) {
	switch {
	case !rejected:
		return m.result, m.key
	case m.result == never || m.rejection != never && m.result > m.rejection:
		return m.rejection, m.rejection
	}
	return m.result, m.rejection
}

func (m *records) do(t *rapid.T) {
	n := rapid.IntRange(0, len(m.ops)-1).Draw(t, "op")
	request, reject := rapid.IntRange(1, 4).Draw(t, "request")/4, rapid.Bool().Draw(t, "reject")
	op := m.ops[n]
	op.Request = request
	before := m.runs
	r, err := idempotency.Do(m.Ctx, m.store, op, func(context.Context, *sql.Tx) (int, error) {
		m.runs++
		if reject {
			return 0, idempotency.Reject(fmt.Sprint("run ", m.runs), "no")
		}
		return m.runs, nil
	})
	ran := m.runs - before
	is := m.rows[n]
	if is == nil || due(is.key) { // the first one, or forgotten
		is = &record{request: request, run: before + 1, rejected: reject}
		is.result, is.key = m.kept(reject)
		m.rows[n] = is
		if ran != 1 || r.Outcome != idempotency.Executed {
			t.Fatalf("%+v ran %d times: %v, %v", op, ran, r, err)
		}
	} else if ran != 0 {
		t.Fatalf("%+v ran again: %+v, %v, %v", op, is, r, err)
	}
	var rejection *idempotency.Rejection
	var expired *idempotency.ExpiredError
	switch {
	case is.request != request:
		if !errors.Is(err, idempotency.ErrMismatch) {
			t.Fatalf("another request: %v, %v", r, err)
		}
	case is.tombstone || due(is.result):
		if !errors.As(err, &expired) || expired.Rejected != is.rejected {
			t.Fatalf("a result that is gone: %v, %v", r, err)
		}
	case is.rejected:
		if !errors.As(err, &rejection) || rejection.Code != fmt.Sprint("run ", is.run) {
			t.Fatalf("a rejection of run %d: %v, %v", is.run, r, err)
		}
	case err != nil || r.Value != is.run || (r.Outcome == idempotency.Executed) != (ran == 1):
		t.Fatalf("the result of run %d: %v, %v", is.run, r, err)
	}
}

// pass lets time pass.
func (m *records) pass(t *rapid.T) {
	var left []time.Duration
	for n := range m.ops {
		if is := m.rows[n]; is != nil {
			left = append(left, max(is.result, 0), max(is.key, 0))
		}
	}
	by := passing(t, 60, left)
	m.exec(t, `UPDATE holdfast_records SET result_expires_at = result_expires_at - $1, key_expires_at = key_expires_at - $2`, int64(by)*3_600_000_000, int64(by)*3_600_000_000)
	for _, is := range m.rows {
		for _, left := range []*time.Duration{&is.result, &is.key} {
			if *left != never {
				if *left -= time.Duration(by) * time.Hour; *left < 0 {
					*left = 0
				}
			}
		}
	}
}

func (m *records) sweep(t *rapid.T) {
	want := map[string]int64{}
	for n, is := range m.rows {
		switch {
		case due(is.key):
			want["keys"]++
			delete(m.rows, n)
		case due(is.result) && !is.tombstone:
			want["results"]++
			is.tombstone = true
		}
	}
	if got := m.db.sweep(t, m.reaper); !maps.Equal(got, want) {
		t.Fatalf("swept %v, want %v", got, want)
	}
}

// check compares the rows with the model.
func (m *records) check(t *rapid.T) {
	results := 0
	for _, is := range m.rows {
		if !is.tombstone {
			results++
		}
	}
	if rows, full := m.int(t, `SELECT COUNT(*) FROM holdfast_records`), m.int(t, `SELECT COUNT(*) FROM holdfast_records WHERE result IS NOT NULL`); rows != int64(len(m.rows)) || full != int64(results) {
		t.Fatalf("%d records, %d with a result, want %d and %d", rows, full, len(m.rows), results)
	}
}
