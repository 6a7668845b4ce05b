package reaper

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"math"
	"strconv"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/internal/test/conformance"
	"github.com/holdfast-go/holdfast/reaper"
)

// Records is the suite of the reaper on the idempotency records.
func Records[Tx any](t *testing.T, h conformance.Handle[Tx]) {
	for name, f := range map[string]func(*env[Tx]){
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
			run(t, h, f)
		})
	}
}

// quick returns options with almost no pauses and with a fixed batch size.
func quick(batch int) reaper.Options {
	return reaper.Options{Batch: batch, BatchTime: time.Minute, Pace: 0.01}
}

// records counts the records of an operation.
func (e *env[Tx]) records(op string) int {
	e.Helper()
	return e.Int(`SELECT COUNT(*) FROM holdfast_records WHERE operation = $1`, op)
}

// sweepExactRows combines every state with every expiry: none, past and future.
func sweepExactRows[Tx any](e *env[Tx]) {
	now := e.Now()
	const hour = 3_600_000_000
	expiries := map[string]string{"never": "NULL", "past": strconv.Itoa(now - hour), "later": strconv.Itoa(now + hour)}
	want := map[string]string{}
	var results, keys int64
	for state := 1; state <= 5; state++ {
		for body, bodyAt := range expiries {
			for key, keyAt := range expiries {
				name := fmt.Sprintf("%d %s %s", state, body, key)
				result := e.Blob([]byte(`"done"`))
				if state == 1 || state >= 4 {
					result = "NULL"
				}
				hash := sha256.Sum256([]byte(name))
				e.Must(fmt.Sprintf(`INSERT INTO holdfast_records (key_hash, namespace, owner, operation, op_key, fingerprint, fingerprint_version, attempt, state,
 result, created_at, finished_at, result_expires_at, key_expires_at) VALUES (%s, 'n', '', '%s', %s, %s, 1, %s, %d, %s, 1, 2, %s, %s)`,
					e.Blob(hash[:]), name, e.Blob([]byte("k")), e.Blob(hash[:]), e.Blob(make([]byte, 16)), state, result, bodyAt, keyAt))
				switch kept := state == 2 || state == 3; {
				case state > 1 && key == "past":
					keys++
				case kept && body == "past":
					results++
					want[name] = strconv.Itoa(state+2) + " without with"
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
	if err != nil || len(dry.Tasks) != conformance.SweepTasks || dry.Tasks[0].Rows != results || dry.Tasks[1].Rows != keys || dry.Rows() != results+keys {
		e.Errorf("the dry run counted %+v, %v", dry, err)
	}
	if dry.Tasks[1].Oldest < time.Hour || dry.Tasks[1].Oldest > time.Hour+conformance.Timeout || !maps.Equal(e.table(), before) {
		e.Errorf("the dry run: %+v", dry)
	}
	report := e.Sweep(r, results, keys)
	if lag := report.Tasks[0].Oldest; lag < time.Hour || lag > time.Hour+conformance.Timeout || report.More || report.Tasks[0].Passed != 0 {
		e.Errorf("report %+v", report)
	}
	if got := e.table(); !maps.Equal(got, want) {
		e.Errorf("the table has\n%v, want\n%v", got, want)
	}
	e.Sweep(r, 0, 0)
}

// table returns for each record its state, and whether it has a result and a fingerprint.
func (e *env[Tx]) table() map[string]string {
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

// answersAfterASweep checks what Do returns for swept records.
func answersAfterASweep[Tx any](e *env[Tx]) {
	s := e.Store(idempotency.Options{ResultTTL: time.Hour, KeyTTL: 2 * time.Hour})
	for _, key := range []string{"body", "key", "live"} {
		if _, err := e.Do(s, conformance.Op(key)); err != nil {
			e.Fatal(err)
		}
	}
	_, err := idempotency.Do(e.Ctx, s, conformance.Op("rejected"), func(context.Context, Tx) (string, error) {
		return "", idempotency.Reject("no", "no")
	})
	if rej := (*idempotency.Rejection)(nil); !errors.As(err, &rej) {
		e.Fatal(err)
	}
	e.Expire("result_expires_at", "body")
	e.Expire("result_expires_at", "rejected")
	e.Expire("result_expires_at", "key")
	e.Expire("key_expires_at", "key")
	r := e.Reaper(reaper.Options{})
	e.Sweep(r, 2, 1)
	for _, key := range []string{"body", "rejected"} {
		if _, err := e.Do(s, conformance.Op(key)); !errors.Is(err, idempotency.ErrExpired) {
			e.Errorf("%s: got %v, want expired", key, err)
		}
		op := conformance.Op(key)
		op.Request = "another"
		if _, err := e.Do(s, op); !errors.Is(err, idempotency.ErrMismatch) {
			e.Errorf("%s: got %v, want a mismatch: the fingerprint stays", key, err)
		}
	}
	if r, err := e.Do(s, conformance.Op("key")); err != nil || r.Outcome != idempotency.Executed {
		e.Errorf("key: %v, %v", r, err)
	}
	if r, err := e.Do(s, conformance.Op("live")); err != nil || r.Outcome != idempotency.Replayed || r.Value != "done" {
		e.Errorf("live: %v, %v", r, err)
	}
	for key, want := range map[string]int{"body": 1, "rejected": 0, "key": 2, "live": 1} {
		if n := e.Effects(key); n != want {
			e.Errorf("%s had %d effects, want %d", key, n, want)
		}
	}
	// A tombstone's key expires like any other.
	e.Expire("key_expires_at", "body")
	e.Sweep(r, 0, 1)
	if r, err := e.Do(s, conformance.Op("body")); err != nil || r.Outcome != idempotency.Executed {
		e.Errorf("body: %v, %v", r, err)
	}
}

func sweepPrefixAndSchema[Tx any](e *env[Tx]) {
	e.Migrate(holdfast.Options{Prefix: "pay_"})
	opts := holdfast.Options{Prefix: "pay_", Schema: e.Schema()}
	e.Records("due", 7, e.Now()-1_000_000)
	const columns = `owner, key_hash, namespace, operation, op_key, fingerprint_version, attempt, state, created_at, finished_at, result_expires_at, key_expires_at`
	e.Must(`INSERT INTO pay_records (` + columns + `) SELECT ` + columns + ` FROM holdfast_records`)
	e.Must(`UPDATE pay_records SET key_expires_at = NULL WHERE op_key IN ($1, $2)`, []byte("1"), []byte("2"))
	e.Sweep(e.Reaper(reaper.Options{}, opts), 2, 5)
	if pay, own := e.Int(`SELECT COUNT(*) FROM pay_records`), e.records("due"); pay != 2 || own != 7 {
		e.Errorf("%d and %d records", pay, own)
	}
}

func reaperOptions[Tx any](e *env[Tx]) {
	for _, o := range []reaper.Options{
		{Batch: -1},
		{Batch: 2000 + 1},
		{Pace: -1},
		{Pace: math.NaN()},
		{Pace: 1000.0 + 1},
		{MaxRows: -1},
		{MaxClockJump: time.Millisecond},
		{MaxClockJump: -time.Hour},
		{MaxClockJump: 25 * time.Hour},
	} {
		if _, err := reaper.New(e.Ctx, e.DB, o); !errors.Is(err, holdfast.ErrInvalid) {
			e.Errorf("%+v: got %v", o, err)
		}
	}
	if _, err := reaper.New[Tx](e.Ctx, nil, reaper.Options{}); !errors.Is(err, holdfast.ErrInvalid) {
		e.Errorf("no DB: got %v", err)
	}
	r := e.Reaper(quick(2000))
	for _, interval := range []time.Duration{-1, time.Millisecond, 8 * 24 * time.Hour} {
		if err := r.Run(e.Ctx, reaper.RunOptions{Every: interval}); !errors.Is(err, holdfast.ErrInvalid) {
			e.Errorf("interval %v: got %v", interval, err)
		}
	}
	// The largest batch works with every driver.
	e.Records("due", 2000+1, e.Now()-1_000_000)
	if report := e.Sweep(r, 0, 2000+1); report.Tasks[1].Batches != 2 {
		e.Errorf("report %+v", report)
	}
	e.Must(`DROP TABLE holdfast_schema`)
	if _, err := reaper.New(e.Ctx, e.DB); !errors.Is(err, holdfast.ErrSchema) {
		e.Errorf("without tables: got %v", err)
	}
}
