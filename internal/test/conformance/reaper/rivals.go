package reaper

import (
	"crypto/sha256"
	"database/sql"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/internal/test/conformance"
	"github.com/holdfast-go/holdfast/internal/test/dbtest"
	"github.com/holdfast-go/holdfast/reaper"
)

// reclaimedInBetween lets another process claim records again between the read and the write of
// a batch. The naive write by key alone deletes them.
func reclaimedInBetween[Tx any](e *env[Tx]) {
	s := e.Store(idempotency.Options{ResultTTL: time.Hour, KeyTTL: time.Hour})
	keys := []string{"reclaimed", "naive", "due"}
	for _, key := range keys {
		if _, err := e.Do(s, conformance.Op(key)); err != nil {
			e.Fatal(err)
		}
		e.Expire("key_expires_at", key)
	}
	found := false
	seen := &statements{then: func(st holdfast.Statement, _ int) {
		switch {
		case st.Name == "sweep.keys.find":
			found = true
		case st.Name == "begin" && found:
			found = false
			for _, key := range keys[:2] {
				if r, err := e.Do(s, conformance.Op(key)); err != nil || r.Outcome != idempotency.Executed {
					e.Errorf("claiming %s anew: %v, %v", key, r, err)
				}
			}
		}
	}}
	report := e.Sweep(e.Reaper(reaper.Options{}, seen.observe()), 0, 1)
	if p := report.Tasks[1].Passed; p != 2 {
		e.Errorf("%d rows passed over, want the two that were claimed anew", p)
	}
	// The row was found before, so the delete by key alone removes it.
	e.Must(`DELETE FROM holdfast_records WHERE op_key IN ($1)`, []byte("naive"))
	for key, outcome := range map[string]idempotency.Outcome{
		"reclaimed": idempotency.Replayed,
		"naive":     idempotency.Executed, // for the third time, before its key expired
		"due":       idempotency.Executed, // for the second time, after its key expired
	} {
		if r, err := e.Do(s, conformance.Op(key)); err != nil || r.Outcome != outcome {
			e.Errorf("%s: %v, %v, want %v", key, r.Outcome, err, outcome)
		}
	}
}

// naiveDelete is the form that does not test the expiry again: on PostgreSQL the list is a
// subquery, which is not evaluated again.
func (e *env[Tx]) naiveDelete(op string) (int64, error) {
	text := `DELETE FROM holdfast_records WHERE key_hash IN (SELECT key_hash FROM holdfast_records WHERE operation = '` + op + `' AND key_expires_at <= ` + strconv.Itoa(e.Now()) + ` ORDER BY key_expires_at LIMIT 500)`
	if e.Engine != dbtest.Postgres {
		hash := sha256.Sum256(fmt.Appendf(nil, "%s 0", op)) // found before
		text = `DELETE FROM holdfast_records WHERE owner = '' AND key_hash IN (` + e.Blob(hash[:]) + `)`
	}
	r, err := e.SQL.ExecContext(e.Ctx, text)
	if err != nil {
		return 0, err
	}
	return r.RowsAffected()
}

// renewalInFlight extends a record in another session, which has not committed when the reaper's
// write reaches the record.
func renewalInFlight[Tx any](e *env[Tx]) {
	for _, naive := range []bool{true, false} {
		op := fmt.Sprintf("naive-%v", naive)
		e.Records(op, 1, e.Now()-1_000_000)
		found, free := make(chan struct{}), make(chan struct{})
		tx := e.BeginTx(sql.LevelDefault)
		renew := func() {
			if n, err := e.Exec(e.Ctx, tx, `UPDATE holdfast_records SET result_expires_at = NULL, key_expires_at = NULL WHERE operation = $1`, op); n != 1 || err != nil {
				e.Errorf("renewing: %d, %v", n, err)
			}
		}
		sweep := func() (n int64, err error) {
			renew()
			close(found)
			<-free
			return e.naiveDelete(op)
		}
		if !naive {
			// SQLite runs one write transaction at a time, so there the renewal begins after the
			// read.
			var once sync.Once
			seen := &statements{then: func(s holdfast.Statement, _ int) {
				if s.Name == "begin" {
					once.Do(func() { renew(); close(found) })
				}
			}}
			r := e.Reaper(quick(10), seen.observe())
			sweep = func() (int64, error) {
				report, err := r.Sweep(e.Ctx)
				return report.Rows(), err
			}
		}
		var rows int64
		var err error
		var wg sync.WaitGroup
		wg.Go(func() { rows, err = sweep() })
		<-found
		if naive {
			close(free)
		}
		time.Sleep(300 * time.Millisecond) // the write waits, or has skipped the row
		e.EndTx(tx, true)
		wg.Wait()
		if want := map[bool]int64{true: 1}[naive]; err != nil || rows != want || e.records(op) != int(1-want) {
			e.Errorf("naive %v: deleted %d, %v, want %d", naive, rows, err, want)
		}
	}
}

// lockedRowIsPassedOver checks that one locked row does not stop the reaper from clearing other
// rows. On SQLite the reaper waits for the writer.
func lockedRowIsPassedOver[Tx any](e *env[Tx]) {
	e.Records("due", 20, e.Now()-1_000_000)
	tx := e.BeginTx(sql.LevelDefault)
	hash := sha256.Sum256([]byte("due 7"))
	if _, err := e.Exec(e.Ctx, tx, `UPDATE holdfast_records SET finished_at = 3 WHERE owner = $1 AND key_hash = $2`, conformance.OwnerOf(7), hash[:]); err != nil {
		e.Fatal(err)
	}
	if e.DB.Capabilities().RowLocks {
		r := e.Reaper(quick(8))
		report := e.Sweep(r, 0, 19)
		if report.Tasks[1].Passed != 1 || e.records("due") != 1 {
			e.Errorf("report %+v", report)
		}
		e.EndTx(tx, true)
		e.Sweep(r, 0, 1)
		return
	}
	released := false
	seen := &statements{then: func(s holdfast.Statement, _ int) {
		if s.Name == "sweep.keys.write" && s.Err != nil && !released {
			released = true
			e.EndTx(tx, true)
		}
	}}
	e.Sweep(e.Reaper(quick(8), seen.observe()), 0, 20)
	if !released {
		e.Error("a write went past another session that holds the writer")
	}
}

// fourReapersAndWriters runs reapers side by side, together with new operations and calls that
// repeat expired ones.
func fourReapersAndWriters[Tx any](e *env[Tx]) {
	const due, live, again = 3000, 1000, 60
	now := e.Now()
	e.Records("due", due, now-10_000_000)
	e.Records("live", live, now+3_600_000_000)
	s := e.Store(idempotency.Options{ResultTTL: time.Hour, KeyTTL: time.Hour})
	key := func(i int) string { return fmt.Sprint("again ", i) }
	for i := range again {
		if _, err := e.Do(s, conformance.Op(key(i))); err != nil {
			e.Fatal(err)
		}
	}
	e.Must(`UPDATE holdfast_records SET key_expires_at = created_at WHERE operation = 'refund'`)

	var swept atomic.Int64
	var wg sync.WaitGroup
	for range 4 {
		r := e.Reaper(reaper.Options{Batch: 50})
		wg.Go(func() {
			report, err := r.Sweep(e.Ctx)
			if err != nil {
				e.Errorf("a reaper: %+v, %v", report, err)
			}
			swept.Add(report.Rows())
		})
	}
	for w := range 4 {
		s := e.Store(idempotency.Options{ResultTTL: time.Hour, KeyTTL: time.Hour})
		wg.Go(func() {
			for i := w; i < again; i += 4 {
				for _, key := range []string{key(i), fmt.Sprint("new ", i)} {
					if r, err := e.Do(s, conformance.Op(key)); err != nil || r.Outcome != idempotency.Executed {
						e.Errorf("%s: %v, %v", key, r.Outcome, err)
					}
				}
			}
		})
	}
	wg.Wait()
	if n := swept.Load(); n < due || n > due+again {
		e.Errorf("the reapers deleted %d rows, want each of the %d once and at most %d more", n, due, again)
	}
	if n := e.records("due"); n != 0 {
		e.Errorf("%d rows are left", n)
	}
	if n := e.records("live"); n != live {
		e.Errorf("%d live rows, want %d", n, live)
	}
	for i := range again {
		for key, effects := range map[string]int{key(i): 2, fmt.Sprint("new ", i): 1} {
			if r, err := e.Do(s, conformance.Op(key)); err != nil || r.Outcome != idempotency.Replayed || e.Effects(key) != effects {
				e.Errorf("%s: %v, %v, %d effects", key, r.Outcome, err, e.Effects(key))
			}
		}
	}
	e.Sweep(e.Reaper(reaper.Options{}), 0, 0)
}
