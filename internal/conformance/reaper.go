package conformance

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"math"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/internal/dbtest"
	"github.com/holdfast-go/holdfast/migrations"
	"github.com/holdfast-go/holdfast/reaper"
)

// Reaper is the suite of the reaper on the idempotency records.
func Reaper[Tx any](t *testing.T, h Handle[Tx]) {
	for name, f := range map[string]func(*Env[Tx]){
		"ExactRows":               sweepExactRows[Tx],
		"AnswersAfterASweep":      answersAfterASweep[Tx],
		"BatchesAndBounds":        sweepBatches[Tx],
		"RestsAfterEachBatch":     sweepRests[Tx],
		"ReclaimedInBetween":      reclaimedInBetween[Tx],
		"RenewalInFlight":         renewalInFlight[Tx],
		"LockedRowIsPassedOver":   lockedRowIsPassedOver[Tx],
		"FourReapersAndWriters":   fourReapersAndWriters[Tx],
		"CancelledBetweenBatches": sweepCancelled[Tx],
		"GoesOnAfterAnError":      sweepGoesOn[Tx],
		"PrefixAndSchema":         sweepPrefixAndSchema[Tx],
		"OptionsAreChecked":       reaperOptions[Tx],
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			Run(t, h, f)
		})
	}
}

// quick rests hardly at all.
func quick(batch int) reaper.Options { return reaper.Options{Batch: batch, Pace: 0.01} }

// Reaper makes a reaper on a pool of its own.
func (e *Env[Tx]) Reaper(o reaper.Options, opts ...holdfast.Option) *reaper.Reaper {
	e.Helper()
	r, err := reaper.New(e.Ctx, e.Handle.Open(e.T, e.DSN, opts...).DB, o)
	if err != nil {
		e.Fatal(err)
	}
	return r
}

// Now is the database's clock in microseconds.
func (e *Env[Tx]) Now() int {
	e.Helper()
	return e.Int(`SELECT ` + e.DB.Access().Dialect.Now)
}

// blob is a literal of bytes.
func (e *Env[Tx]) blob(b []byte) string {
	if e.Engine == dbtest.Postgres {
		return fmt.Sprintf(`'\x%x'`, b)
	}
	return fmt.Sprintf(`x'%x'`, b)
}

// Records makes n succeeded records that expire at the given time, one
// microsecond after another. Their operation is op, and their keys are in
// another order than their expiries.
func (e *Env[Tx]) Records(op string, n, expires int) {
	e.Helper()
	for from := 0; from < n; from += 500 {
		var values []string
		for i := from; i < min(from+500, n); i++ {
			hash := sha256.Sum256(fmt.Appendf(nil, "%s %d", op, i))
			values = append(values, fmt.Sprintf(`(%s, %s, %s, %s, %s, 1, %s, 2, %s, 1, 2, %d, %d)`,
				e.blob(hash[:]), `'n'`, `''`, `'`+op+`'`, e.blob(fmt.Append(nil, i)), e.blob(make([]byte, 16)), e.blob([]byte(`"done"`)), expires+i, expires+i))
		}
		e.Must(`INSERT INTO holdfast_records (key_hash, namespace, tenant, operation, op_key, fingerprint_version, attempt, state,
 result, created_at, finished_at, body_expires_at, key_expires_at) VALUES ` + strings.Join(values, ", "))
	}
}

// records counts those of an operation.
func (e *Env[Tx]) records(op string) int {
	e.Helper()
	return e.Int(`SELECT COUNT(*) FROM holdfast_records WHERE operation = $1`, op)
}

// sweep sweeps and fails unless it cleared exactly so many rows.
func (e *Env[Tx]) sweep(r *reaper.Reaper, results, keys int64) reaper.Report {
	e.Helper()
	report, err := r.Sweep(e.Ctx)
	if err != nil || len(report.Tasks) != 2 || report.Tasks[0].Rows != results || report.Tasks[1].Rows != keys {
		e.Errorf("swept %+v, %v, want %d results and %d keys", report, err, results, keys)
	}
	return report
}

// sweepExactRows: every state with every expiry, none, past and to come.
func sweepExactRows[Tx any](e *Env[Tx]) {
	now := e.Now()
	const hour = 3_600_000_000
	expiries := map[string]string{"never": "NULL", "past": strconv.Itoa(now - hour), "later": strconv.Itoa(now + hour)}
	want := map[string]string{}
	var results, keys int64
	for state := 1; state <= 4; state++ {
		for body, bodyAt := range expiries {
			for key, keyAt := range expiries {
				name := fmt.Sprintf("%d %s %s", state, body, key)
				result := e.blob([]byte(`"done"`))
				if state == 1 || state == 4 {
					result = "NULL"
				}
				hash := sha256.Sum256([]byte(name))
				e.Must(fmt.Sprintf(`INSERT INTO holdfast_records (key_hash, namespace, tenant, operation, op_key, fingerprint, fingerprint_version, attempt, state,
 result, created_at, finished_at, body_expires_at, key_expires_at) VALUES (%s, 'n', '', '%s', %s, %s, 1, %s, %d, %s, 1, 2, %s, %s)`,
					e.blob(hash[:]), name, e.blob([]byte("k")), e.blob(hash[:]), e.blob(make([]byte, 16)), state, result, bodyAt, keyAt))
				switch kept := state == 2 || state == 3; {
				case state > 1 && key == "past":
					keys++
				case kept && body == "past":
					results++
					want[name] = "4 without with"
				case kept:
					want[name] = strconv.Itoa(state) + " with with"
				default:
					want[name] = strconv.Itoa(state) + " without with"
				}
			}
		}
	}
	before := e.table()
	r := e.Reaper(reaper.Options{})
	dry, err := r.DryRun(e.Ctx)
	if err != nil || len(dry.Tasks) != 2 || dry.Tasks[0].Rows != results || dry.Tasks[1].Rows != keys || dry.Rows() != results+keys {
		e.Errorf("the dry run counted %+v, %v", dry, err)
	}
	if dry.Tasks[1].Oldest < time.Hour || dry.Tasks[1].Oldest > time.Hour+Timeout || !maps.Equal(e.table(), before) {
		e.Errorf("the dry run: %+v", dry)
	}
	report := e.sweep(r, results, keys)
	if lag := report.Tasks[0].Oldest; lag < time.Hour || lag > time.Hour+Timeout || report.More || report.Tasks[0].Passed != 0 {
		e.Errorf("report %+v", report)
	}
	if got := e.table(); !maps.Equal(got, want) {
		e.Errorf("the table has\n%v, want\n%v", got, want)
	}
	e.sweep(r, 0, 0)
}

// table says of each record its state, and whether it has result and fingerprint.
func (e *Env[Tx]) table() map[string]string {
	e.Helper()
	rows, err := e.SQL.QueryContext(e.Ctx, `SELECT operation, state, CASE WHEN result IS NULL THEN 'without' ELSE 'with' END,
 CASE WHEN fingerprint IS NULL THEN 'without' ELSE 'with' END FROM holdfast_records`)
	if err != nil {
		e.Fatal(err)
	}
	defer rows.Close()
	got := map[string]string{}
	for rows.Next() {
		var name, state, result, fingerprint string
		if err := rows.Scan(&name, &state, &result, &fingerprint); err != nil {
			e.Fatal(err)
		}
		got[name] = state + " " + result + " " + fingerprint
	}
	if rows.Err() != nil {
		e.Fatal(rows.Err())
	}
	return got
}

// expire moves the expiry of an operation's record into the past.
func (e *Env[Tx]) expire(column, key string) {
	e.Helper()
	e.Must(`UPDATE holdfast_records SET `+column+` = $1 WHERE op_key = $2`, e.Now()-1_000_000, []byte(key))
}

// answersAfterASweep: what Do says of swept records.
func answersAfterASweep[Tx any](e *Env[Tx]) {
	s := e.Store(idempotency.Options{BodyLife: time.Hour, KeyLife: 2 * time.Hour})
	for _, key := range []string{"body", "key", "live"} {
		if _, err := e.Do(s, Op(key)); err != nil {
			e.Fatal(err)
		}
	}
	_, err := idempotency.Do(e.Ctx, s, Op("rejected"), func(context.Context, Tx) (string, error) {
		return "", idempotency.Reject("no", "no")
	})
	if rej := (*idempotency.Rejection)(nil); !errors.As(err, &rej) {
		e.Fatal(err)
	}
	e.expire("body_expires_at", "body")
	e.expire("body_expires_at", "rejected")
	e.expire("body_expires_at", "key")
	e.expire("key_expires_at", "key")
	r := e.Reaper(reaper.Options{})
	e.sweep(r, 2, 1)
	for _, key := range []string{"body", "rejected"} {
		if _, err := e.Do(s, Op(key)); !errors.Is(err, idempotency.ErrExpired) {
			e.Errorf("%s: got %v, want expired", key, err)
		}
		op := Op(key)
		op.Request = "another"
		if _, err := e.Do(s, op); !errors.Is(err, idempotency.ErrMismatch) {
			e.Errorf("%s: got %v, want a mismatch: the fingerprint stays", key, err)
		}
	}
	if r, err := e.Do(s, Op("key")); err != nil || r.Outcome != idempotency.Executed {
		e.Errorf("key: %v, %v", r, err)
	}
	if r, err := e.Do(s, Op("live")); err != nil || r.Outcome != idempotency.Replayed || r.Value != "done" {
		e.Errorf("live: %v, %v", r, err)
	}
	for key, want := range map[string]int{"body": 1, "rejected": 0, "key": 2, "live": 1} {
		if n := e.Effects(key); n != want {
			e.Errorf("%s had %d effects, want %d", key, n, want)
		}
	}
	// A tombstone's key expires as any other.
	e.expire("key_expires_at", "body")
	e.sweep(r, 0, 1)
	if r, err := e.Do(s, Op("body")); err != nil || r.Outcome != idempotency.Executed {
		e.Errorf("body: %v, %v", r, err)
	}
}

// statements counts a DB's statements by name.
type statements struct {
	mu    sync.Mutex
	count map[string]int
	// then runs after a statement, on its goroutine.
	then func(s holdfast.Statement, nth int)
}

func (s *statements) observe() holdfast.Option {
	s.count = map[string]int{}
	return holdfast.WithObserver(func(_ context.Context, st holdfast.Statement) {
		s.mu.Lock()
		s.count[st.Name]++
		nth := s.count[st.Name]
		s.mu.Unlock()
		if s.then != nil {
			s.then(st, nth)
		}
	})
}

func sweepBatches[Tx any](e *Env[Tx]) {
	e.Records("due", 95, e.Now()-1_000_000)
	seen := &statements{}
	o := quick(10)
	o.MaxRows = 25
	r := e.Reaper(o, seen.observe())
	for i, want := range []int64{25, 25, 25, 20} {
		report := e.sweep(r, 0, want)
		if b := report.Tasks[1].Batches; b != int((want+9)/10) || report.More != (i < 3) {
			e.Errorf("sweep %d: %+v", i, report)
		}
		if left := e.records("due"); left != 95-min(25*(i+1), 95) {
			e.Errorf("sweep %d: %d rows are left", i, left)
		}
	}
	if n := seen.count["sweep.keys.write"]; n != 3+3+3+2 {
		e.Errorf("%d writes, want one a batch", n)
	}
	e.sweep(r, 0, 0)
	if n := seen.count["sweep.keys.write"]; n != 11 {
		e.Error("a sweep without work wrote")
	}
}

// sweepRests compares each rest with the batch before it, so that a slow
// machine is slow in both.
func sweepRests[Tx any](e *Env[Tx]) {
	const pace = 4
	e.Records("due", 30, e.Now()-1_000_000)
	var began, ended time.Time
	rests := 0
	seen := &statements{then: func(s holdfast.Statement, _ int) {
		switch s.Name {
		case "sweep.keys.find":
			start := time.Now().Add(-s.Duration)
			if work, rest := ended.Sub(began), start.Sub(ended); !ended.IsZero() {
				rests++
				if rest < pace*work {
					e.Errorf("a batch took %v, and the rest after it %v", work, rest)
				}
			}
			began = start
		case "commit":
			ended = time.Now()
		}
	}}
	e.sweep(e.Reaper(reaper.Options{Batch: 10, Pace: pace}, seen.observe()), 0, 30)
	if rests != 3 {
		e.Errorf("%d rests, want one after each batch", rests)
	}
}

// reclaimedInBetween: between the find and the write of a batch, records are
// claimed anew by another process. The naive write by key alone deletes them.
func reclaimedInBetween[Tx any](e *Env[Tx]) {
	s := e.Store(idempotency.Options{BodyLife: time.Hour, KeyLife: time.Hour})
	keys := []string{"reclaimed", "naive", "due"}
	for _, key := range keys {
		if _, err := e.Do(s, Op(key)); err != nil {
			e.Fatal(err)
		}
		e.expire("key_expires_at", key)
	}
	found := false
	seen := &statements{then: func(st holdfast.Statement, _ int) {
		switch {
		case st.Name == "sweep.keys.find":
			found = true
		case st.Name == "begin" && found:
			found = false
			for _, key := range keys[:2] {
				if r, err := e.Do(s, Op(key)); err != nil || r.Outcome != idempotency.Executed {
					e.Errorf("claiming %s anew: %v, %v", key, r, err)
				}
			}
		}
	}}
	report := e.sweep(e.Reaper(reaper.Options{}, seen.observe()), 0, 1)
	if p := report.Tasks[1].Passed; p != 2 {
		e.Errorf("%d rows passed over, want the two that were claimed anew", p)
	}
	// What was found was found: by the key alone it is deleted.
	e.Must(`DELETE FROM holdfast_records WHERE op_key IN ($1)`, []byte("naive"))
	for key, outcome := range map[string]idempotency.Outcome{
		"reclaimed": idempotency.Replayed,
		"naive":     idempotency.Executed, // for the third time, within its life
		"due":       idempotency.Executed, // for the second time, after it
	} {
		if r, err := e.Do(s, Op(key)); err != nil || r.Outcome != outcome {
			e.Errorf("%s: %v, %v, want %v", key, r.Outcome, err, outcome)
		}
	}
}

// naiveDelete is the form without the repeated test of the expiry: on
// PostgreSQL the list is a subquery, which is not evaluated again.
func (e *Env[Tx]) naiveDelete(op string) (int64, error) {
	text := `DELETE FROM holdfast_records WHERE key_hash IN (SELECT key_hash FROM holdfast_records WHERE operation = '` + op + `' AND key_expires_at <= ` + strconv.Itoa(e.Now()) + ` ORDER BY key_expires_at LIMIT 500)`
	if e.Engine != dbtest.Postgres {
		hash := sha256.Sum256(fmt.Appendf(nil, "%s 0", op)) // found before
		text = `DELETE FROM holdfast_records WHERE key_hash IN (` + e.blob(hash[:]) + `)`
	}
	r, err := e.SQL.ExecContext(e.Ctx, text)
	if err != nil {
		return 0, err
	}
	return r.RowsAffected()
}

// renewalInFlight: another session has given a record more time and has not
// committed when the write comes to it.
func renewalInFlight[Tx any](e *Env[Tx]) {
	for _, naive := range []bool{true, false} {
		op := fmt.Sprintf("naive-%v", naive)
		e.Records(op, 1, e.Now()-1_000_000)
		found, free := make(chan struct{}), make(chan struct{})
		tx := e.begin(sql.LevelDefault)
		renew := func() {
			if n, err := e.Exec(e.Ctx, tx, `UPDATE holdfast_records SET body_expires_at = NULL, key_expires_at = NULL WHERE operation = $1`, op); n != 1 || err != nil {
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
			// SQLite's transactions exclude each other, so there the renewal
			// begins after the find.
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
		e.end(tx, true)
		wg.Wait()
		if want := map[bool]int64{true: 1}[naive]; err != nil || rows != want || e.records(op) != int(1-want) {
			e.Errorf("naive %v: deleted %d, %v, want %d", naive, rows, err, want)
		}
	}
}

// lockedRowIsPassedOver: where there are row locks one locked row keeps the
// reaper from no other; SQLite's writer is waited for.
func lockedRowIsPassedOver[Tx any](e *Env[Tx]) {
	e.Records("due", 20, e.Now()-1_000_000)
	tx := e.begin(sql.LevelDefault)
	hash := sha256.Sum256([]byte("due 7"))
	if _, err := e.Exec(e.Ctx, tx, `UPDATE holdfast_records SET finished_at = 3 WHERE key_hash = $1`, hash[:]); err != nil {
		e.Fatal(err)
	}
	if e.DB.Capabilities().RowLocks {
		r := e.Reaper(quick(8))
		report := e.sweep(r, 0, 19)
		if report.Tasks[1].Passed != 1 || e.records("due") != 1 {
			e.Errorf("report %+v", report)
		}
		e.end(tx, true)
		e.sweep(r, 0, 1)
		return
	}
	released := false
	seen := &statements{then: func(s holdfast.Statement, _ int) {
		if s.Name == "sweep.keys.write" && s.Err != nil && !released {
			released = true
			e.end(tx, true)
		}
	}}
	e.sweep(e.Reaper(quick(8), seen.observe()), 0, 20)
	if !released {
		e.Error("a write went past another session that holds the writer")
	}
}

// fourReapersAndWriters: reapers side by side, and meanwhile new operations
// and expired ones which are asked for again.
func fourReapersAndWriters[Tx any](e *Env[Tx]) {
	const due, live, again = 3000, 1000, 60
	now := e.Now()
	e.Records("due", due, now-10_000_000)
	e.Records("live", live, now+3_600_000_000)
	s := e.Store(idempotency.Options{BodyLife: time.Hour, KeyLife: time.Hour})
	key := func(i int) string { return fmt.Sprint("again ", i) }
	for i := range again {
		if _, err := e.Do(s, Op(key(i))); err != nil {
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
		s := e.Store(idempotency.Options{BodyLife: time.Hour, KeyLife: time.Hour})
		wg.Go(func() {
			for i := w; i < again; i += 4 {
				for _, key := range []string{key(i), fmt.Sprint("new ", i)} {
					if r, err := e.Do(s, Op(key)); err != nil || r.Outcome != idempotency.Executed {
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
			if r, err := e.Do(s, Op(key)); err != nil || r.Outcome != idempotency.Replayed || e.Effects(key) != effects {
				e.Errorf("%s: %v, %v, %d effects", key, r.Outcome, err, e.Effects(key))
			}
		}
	}
	e.sweep(e.Reaper(reaper.Options{}), 0, 0)
}

func sweepCancelled[Tx any](e *Env[Tx]) {
	e.Records("due", 50, e.Now()-1_000_000)
	ctx, cancel := context.WithCancel(e.Ctx)
	defer cancel()
	seen := &statements{then: func(s holdfast.Statement, nth int) {
		if s.Name == "commit" && nth == 2 {
			cancel()
		}
	}}
	r := e.Reaper(quick(10), seen.observe())
	report, err := r.Sweep(ctx)
	if !errors.Is(err, context.Canceled) || report.Rows() != 20 || e.records("due") != 30 {
		e.Errorf("%+v, %v, and %d rows are left", report, err, e.records("due"))
	}
	for _, f := range []func(context.Context) (reaper.Report, error){r.Sweep, r.DryRun} {
		if report, err := f(ctx); !errors.Is(err, context.Canceled) || report.Rows() != 0 {
			e.Errorf("a context that has ended: %+v, %v", report, err)
		}
	}
	e.sweep(r, 0, 30)
}

// sweepGoesOn: an error ends a sweep with the report so far, and the next one
// needs to know nothing of it.
func sweepGoesOn[Tx any](e *Env[Tx]) {
	e.Records("due", 50, e.Now()-1_000_000)
	seen := &statements{then: func(s holdfast.Statement, nth int) {
		if s.Name == "commit" && nth == 2 {
			e.Must(`ALTER TABLE holdfast_records RENAME TO away`)
		}
	}}
	r := e.Reaper(quick(10), seen.observe())
	report, err := r.Sweep(e.Ctx)
	if !errors.Is(err, holdfast.ErrSchema) || report.Rows() != 20 || len(report.Tasks) != 2 {
		e.Errorf("%+v, %v", report, err)
	}
	if _, err := r.DryRun(e.Ctx); !errors.Is(err, holdfast.ErrSchema) {
		e.Errorf("dry run: %v", err)
	}
	e.Must(`ALTER TABLE away RENAME TO holdfast_records`)
	e.sweep(r, 0, 30)
}

func sweepPrefixAndSchema[Tx any](e *Env[Tx]) {
	e.Migrate(migrations.WithPrefix("pay_"))
	opts := []holdfast.Option{holdfast.WithPrefix("pay_")}
	if schema := e.schema(); schema != "" {
		opts = append(opts, holdfast.WithSchema(schema))
	}
	e.Records("due", 7, e.Now()-1_000_000)
	e.Must(`INSERT INTO pay_records SELECT * FROM holdfast_records`)
	e.Must(`UPDATE pay_records SET key_expires_at = NULL WHERE op_key IN ($1, $2)`, []byte("1"), []byte("2"))
	e.sweep(e.Reaper(reaper.Options{}, opts...), 2, 5)
	if pay, own := e.Int(`SELECT COUNT(*) FROM pay_records`), e.records("due"); pay != 2 || own != 7 {
		e.Errorf("%d and %d records", pay, own)
	}
}

func reaperOptions[Tx any](e *Env[Tx]) {
	for _, o := range []reaper.Options{
		{Batch: -1},
		{Batch: reaper.MaxBatch + 1},
		{Pace: -1},
		{Pace: math.NaN()},
		{Pace: reaper.MaxPace + 1},
		{MaxRows: -1},
		{MaxClockLeap: time.Millisecond},
		{MaxClockLeap: -time.Hour},
		{MaxClockLeap: 25 * time.Hour},
	} {
		if _, err := reaper.New(e.Ctx, e.DB, o); !errors.Is(err, holdfast.ErrInvalid) {
			e.Errorf("%+v: got %v", o, err)
		}
	}
	if _, err := reaper.New[Tx](e.Ctx, nil, reaper.Options{}); !errors.Is(err, holdfast.ErrInvalid) {
		e.Errorf("no DB: got %v", err)
	}
	r := e.Reaper(quick(reaper.MaxBatch))
	for _, interval := range []time.Duration{-1, 0, time.Millisecond, 8 * 24 * time.Hour} {
		if err := r.Run(e.Ctx, interval); !errors.Is(err, holdfast.ErrInvalid) {
			e.Errorf("interval %v: got %v", interval, err)
		}
	}
	// The largest batch goes through every driver.
	e.Records("due", reaper.MaxBatch+1, e.Now()-1_000_000)
	if report := e.sweep(r, 0, reaper.MaxBatch+1); report.Tasks[1].Batches != 2 {
		e.Errorf("report %+v", report)
	}
	e.Must(`DROP TABLE holdfast_schema`)
	if _, err := reaper.New(e.Ctx, e.DB, reaper.Options{}); !errors.Is(err, holdfast.ErrSchema) {
		e.Errorf("without tables: got %v", err)
	}
}
