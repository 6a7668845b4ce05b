package operations

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/internal/test/conformance"
	"github.com/holdfast-go/holdfast/internal/test/dbtest"
)

// Twins is the suite of records that are not the call's own, and of claims that are not any more.
func Twins[Tx any](t *testing.T, h conformance.Handle[Tx]) {
	for name, f := range map[string]func(*env[Tx]){
		"TwinRecords":          twinRecords[Tx],
		"FailsBesideRecords":   failsBesideRecords[Tx],
		"RowsOfOthers":         rowsOfOthers[Tx],
		"CopiedClaims":         copiedClaims[Tx],
		"StoredColumns":        storedColumns[Tx],
		"RenewedSince":         renewedSince[Tx],
		"TwinSimilar":          twinSimilar[Tx],
		"TwinErasure":          twinErasure[Tx],
		"FinishOfAnother":      finishOfAnother[Tx],
		"LateCallRunsNothing":  lateCallRunsNothing[Tx],
		"StoredSinceTheError":  storedSinceTheError[Tx],
		"SimilarOfOtherOwners": similarOfOtherOwners[Tx],
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run(t, h, f)
		})
	}
}

const recordColumns = `key_hash, namespace, operation, op_key, fingerprint, fingerprint_version, attempt, state, result, codec, business_id, created_at, finished_at, result_expires_at, key_expires_at, holder, program, request_id`

// ofBen returns what ben's rows are, as text.
func (e *env[Tx]) ofBen() string {
	e.Helper()
	var out strings.Builder
	for _, q := range []string{
		`SELECT op_key, state, attempt, COALESCE(result, op_key), COALESCE(business_id, '-'), created_at, COALESCE(finished_at, 0), COALESCE(key_expires_at, 0) FROM holdfast_records WHERE owner = 'ben' ORDER BY op_key`,
		`SELECT op_key, 0, attempt, key_hash, operation, claimed_at, expires_at, 0 FROM holdfast_similar WHERE owner = 'ben' ORDER BY op_key`,
	} {
		e.Each(q, func(rows *sql.Rows) {
			var key, attempt, result []byte
			var text string
			var n [4]int64
			e.Check(rows.Scan(&key, &n[0], &attempt, &result, &text, &n[1], &n[2], &n[3]))
			fmt.Fprintf(&out, "%q %x %q %s %v\n", key, attempt, result, text, n)
		})
	}
	return out.String()
}

// untouched checks that f changes nothing of ben's.
func (e *env[Tx]) untouched(what string, f func()) {
	e.Helper()
	before := e.ofBen()
	f()
	if after := e.ofBen(); before == "" || after != before {
		e.Errorf("%s: ben has\n%s, and had\n%s", what, after, before)
	}
}

// twinSimilar has another owner's row of Similar with the same hash.
func twinSimilar[Tx any](e *env[Tx]) {
	s := e.Store(idempotency.Options{})
	e.executes(s, alike("a", "order 1"))
	e.Must(`INSERT INTO holdfast_similar (owner, similar_hash, namespace, operation, key_hash, op_key, attempt, claimed_at, expires_at)
 SELECT 'ben', similar_hash, namespace, operation, key_hash, $1, `+e.Blob([]byte(strings.Repeat("b", 16)))+`, 5, expires_at FROM holdfast_similar`, []byte("of ben"))
	e.Must(`INSERT INTO holdfast_similar (owner, similar_hash, namespace, operation, key_hash, op_key, attempt, claimed_at, expires_at)
 SELECT 'ben', `+e.Blob([]byte(strings.Repeat("h", 32)))+`, namespace, operation, key_hash, $1, `+e.Blob([]byte(strings.Repeat("b", 16)))+`, 5, expires_at FROM holdfast_similar WHERE owner = ''`, []byte("another of ben"))
	e.untouched("similar", func() {
		_, err := e.Do(s, alike("b", "order 1"))
		l := e.similar(err, "a")
		if l.At.Year() < 2000 {
			e.Errorf("%+v is ben's", l)
		}
		op := alike("b", "order 1")
		op.Similar.Confirm = l.Token
		e.executes(s, op)
		_, err = e.Do(s, alike("c", "order 1"))
		e.similar(err, "b")
	})
}

// twinErasure erases what one owner has, and not what another has with the same hashes.
func twinErasure[Tx any](e *env[Tx]) {
	s := e.Store(idempotency.Options{})
	for _, key := range []string{"a", "b"} {
		e.executes(s, alike(key, key))
	}
	e.Must(`INSERT INTO holdfast_records (owner, ` + recordColumns + `) SELECT 'ben', ` + recordColumns + ` FROM holdfast_records`)
	const columns = `similar_hash, namespace, operation, key_hash, op_key, attempt, claimed_at, expires_at`
	e.Must(`INSERT INTO holdfast_similar (owner, ` + columns + `) SELECT 'ben', ` + columns + ` FROM holdfast_similar`)
	e.untouched("the erasure", func() {
		if n, err := s.EraseScope(e.Ctx, idempotency.Erasure{Keys: true, Actor: holdfast.Actor{By: "olga", Reason: "asked"}}); n != 2 || err != nil {
			e.Errorf("%d, %v", n, err)
		}
	})
	if n := e.Int(`SELECT COUNT(*) FROM holdfast_similar WHERE owner = ''`) + e.Int(`SELECT COUNT(*) FROM holdfast_records WHERE owner = '' AND result IS NOT NULL`); n != 0 {
		e.Errorf("%d rows are not erased", n)
	}
}

// finishOfAnother changes the claim beneath a call, as another program could: then the call stores nothing, and
// what it did is rolled back.
func finishOfAnother[Tx any](e *env[Tx]) {
	s := e.Store(idempotency.Options{})
	claims := e.Store(idempotency.Options{Isolation: sql.LevelSerializable}) // before the function, also on PostgreSQL
	for what, change := range map[string]string{
		"another attempt":  `UPDATE holdfast_records SET attempt = ` + e.Blob([]byte(strings.Repeat("x", 16))) + ` WHERE op_key = $1`,
		"another state":    `UPDATE holdfast_records SET state = 4 WHERE op_key = $1`,
		"no record at all": `DELETE FROM holdfast_records WHERE op_key = $1`,
	} {
		for how, s := range map[string]*idempotency.Store[Tx]{"": s, ", serializable": claims, ", DoTx": s} {
			op, tx := conformance.Op(what+how), how == ", DoTx"
			changed := int64(0)
			fn := func(ctx context.Context, tx Tx) (_ string, err error) {
				if changed, err = e.Exec(ctx, tx, change, []byte(op.Key)); err != nil {
					return "", err
				}
				return "done", e.Effect(ctx, tx, op.Key)
			}
			var err error
			if tx {
				t := e.BeginTx(sql.LevelDefault)
				_, err = idempotency.DoTx(e.Ctx, s, t, op, fn)
				_ = e.End(e.Ctx, t, err == nil) // otherwise DoTx has rolled it back
			} else {
				_, err = idempotency.Do(e.Ctx, s, op, fn)
			}
			if changed == 0 { // nothing of the claim is there to change
				e.Check(err)
				e.WantOnce(op.Key)
				continue
			}
			if !errors.Is(err, holdfast.ErrTxLost) || e.Effects(op.Key) != 0 {
				e.Errorf("%s: %v, and %d effects", op.Key, err, e.Effects(op.Key))
			}
			if r, err := e.Do(s, op); err != nil || r.Outcome != idempotency.Executed {
				e.Errorf("%s, again: %v, %v", op.Key, r, err)
			}
			e.WantOnce(op.Key)
		}
	}
}

// lateCallRunsNothing has a call wait for another one, which commits. The function of the call that waited does
// not run, not even in vain: what it did outside of the transaction would not be rolled back.
func lateCallRunsNothing[Tx any](e *env[Tx]) {
	release := e.HoldKey("a")
	var ran atomic.Bool
	late := make(chan error, 1)
	go func() {
		r, err := idempotency.Do(e.Ctx, e.Store(idempotency.Options{Wait: dbtest.Hang, LockTimeout: dbtest.Hang}), conformance.Op("a"), func(context.Context, Tx) (string, error) {
			ran.Store(true)
			return "late", nil
		})
		if err == nil && (r.Outcome != idempotency.Replayed || r.Value != "held") {
			err = fmt.Errorf("%+v", r)
		}
		late <- err
	}()
	if e.Engine == dbtest.Postgres {
		// Before it waits, it may take the lock at once, and then run in vain.
		e.Eventually("it waits for the key", func() bool {
			return e.Int(`SELECT COUNT(*) FROM pg_locks l JOIN pg_stat_activity a ON a.pid = l.pid WHERE l.locktype = 'advisory' AND NOT l.granted AND a.query LIKE '%`+e.Schema()+`%'`) > 0
		})
	} else {
		time.Sleep(20 * time.Millisecond) // time to go wrong
	}
	release()
	if err := <-late; err != nil || ran.Load() {
		e.Errorf("%v, its function ran: %t", err, ran.Load())
	}
	e.WantOnce("a")
}

// storedSinceTheError has another call store the record after a function has failed: the first call answers with
// the error of its function.
func storedSinceTheError[Tx any](e *env[Tx]) {
	var armed atomic.Bool
	pool := e.Open(e.DSN, holdfast.Options{Observers: []holdfast.Observer{func(_ context.Context, s holdfast.Statement) {
		if s.Name == "rollback" && armed.Swap(false) {
			if r, err := e.Do(e.Store(idempotency.Options{}), conformance.Op("a")); err != nil || r.Outcome != idempotency.Executed {
				e.Errorf("the other call: %+v, %v", r, err)
			}
		}
	}}})
	s, err := idempotency.New(e.Ctx, pool.DB)
	e.Check(err)
	failed := errors.New("the provider is down")
	r, err := idempotency.Do(e.Ctx, s, conformance.Op("a"), func(context.Context, Tx) (string, error) {
		armed.Store(true)
		return "", failed
	})
	if armed.Load() {
		e.Fatal("no rollback was seen")
	}
	if !errors.Is(err, failed) {
		e.Errorf("%+v, %v, want the function's error", r, err)
	}
	e.WantOnce("a")
}

// similarOfOtherOwners has two owners with the same parts. Neither waits for the other, nor is it a duplicate.
func similarOfOtherOwners[Tx any](e *env[Tx]) {
	e.ManyOwners()
	if !e.DB.Capabilities().RowLocks {
		return // one writer at a time
	}
	s, err := idempotency.New(e.Ctx, e.DB)
	e.Check(err)
	of := func(owner string) idempotency.Op {
		op := alike("k", "order 1", "100")
		op.Owner, op.Wait = owner, holdfast.NoWait
		return op
	}
	r, err := idempotency.Do(e.Ctx, s, of("anna"), func(context.Context, Tx) (string, error) {
		done := make(chan error, 1)
		go func() {
			_, err := e.Do(s, of("ben"))
			done <- err
		}()
		return "done", <-done
	})
	if err != nil || r.Outcome != idempotency.Executed {
		e.Errorf("%+v, %v", r, err)
	}
	e.WantOnce("k") // ben's
}
