package operations

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/internal/access"
	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/test/conformance"
)

// way runs an operation whose function returns an id.
type way[Tx any] func(op idempotency.Op, fn func(context.Context, Tx) (idempotency.ID, error)) (idempotency.Result[idempotency.ID], error)

// ways are the protocols: a record that is written last, where the engine has that, a claim before the function, and
// the caller's transaction.
func (e *env[Tx]) ways(o idempotency.Options) map[string]way[Tx] {
	e.Helper()
	db := access.WithOwners(e.DB, core.ManyOwners)
	s, err := idempotency.New(e.Ctx, db, o)
	e.Check(err)
	o.Isolation = sql.LevelSerializable // PostgreSQL claims first
	first, err := idempotency.New(e.Ctx, db, o)
	e.Check(err)
	return map[string]way[Tx]{
		"Do": func(op idempotency.Op, fn func(context.Context, Tx) (idempotency.ID, error)) (idempotency.Result[idempotency.ID], error) {
			return idempotency.Do(e.Ctx, s, op, fn)
		},
		"Do, serializable": func(op idempotency.Op, fn func(context.Context, Tx) (idempotency.ID, error)) (idempotency.Result[idempotency.ID], error) {
			return idempotency.Do(e.Ctx, first, op, fn)
		},
		"DoTx": func(op idempotency.Op, fn func(context.Context, Tx) (idempotency.ID, error)) (idempotency.Result[idempotency.ID], error) {
			tx := e.BeginTx(sql.LevelDefault)
			r, err := idempotency.DoTx(e.Ctx, s, tx, op, fn)
			if err == nil {
				e.EndTx(tx, true)
			} else {
				_ = e.End(e.Ctx, tx, false)
			}
			return r, err
		},
	}
}

// zoes is an operation of an owner whose rows are behind those of ben.
func zoes(key string) idempotency.Op {
	op := conformance.Op(key)
	op.Owner = "zoe"
	return op
}

// identified is a function with one effect.
func (e *env[Tx]) identified(key string) func(context.Context, Tx) (idempotency.ID, error) {
	return func(ctx context.Context, tx Tx) (idempotency.ID, error) {
		return idempotency.ID("id of " + key), e.Effect(ctx, tx, key)
	}
}

// twinRecords has another owner's records with the same hashes, as no key has. Each call is about the owner's own.
func twinRecords[Tx any](e *env[Tx]) {
	e.ManyOwners()
	s, err := idempotency.New(e.Ctx, e.DB)
	e.Check(err)
	for key, call := range e.ways(idempotency.Options{KeyTTL: time.Hour}) {
		do := func(want idempotency.Outcome) {
			e.Helper()
			e.untouched(key, func() {
				e.Helper()
				if r, err := call(zoes(key), e.identified(key)); err != nil || r.Outcome != want {
					e.Errorf("%s: %+v, %v, want %v", key, r, err, want)
				}
			})
			e.WantOnce(key)
		}
		again := func() { e.Must(`DELETE FROM effects WHERE k = $1`, []byte(key)) }
		_, err := call(zoes(key), e.identified(key))
		e.Check(err)
		again()
		e.Must(`UPDATE holdfast_records SET owner = 'ben', business_id = 'of ben', state = 4 WHERE op_key = $1`, []byte(key)) // so the key is new again
		if found, err := idempotency.Lookup[string](e.Ctx, s, zoes(key)); err != nil || found.State != idempotency.StateAbsent {
			e.Errorf("%+v, %v: it found ben's", found, err)
		}
		do(idempotency.Executed)
		do(idempotency.Replayed)
		again()
		e.Must(`UPDATE holdfast_records SET key_expires_at = 1 WHERE op_key = $1`, []byte(key)) // ben's as well
		do(idempotency.Executed)                                                                // ben's record stays where the own one goes
	}
}

// failsBesideRecords has functions that fail while there are records of another key, of another owner with the same
// hash, and of the key itself before it expired. None of them answers the call: it returns the function's error.
func failsBesideRecords[Tx any](e *env[Tx]) {
	broken := errors.New("the provider is down")
	for key, call := range e.ways(idempotency.Options{KeyTTL: time.Hour}) {
		for _, beside := range []struct{ what, key, change string }{
			{"another key's record", "another " + key, `UPDATE holdfast_records SET holder = 'h' WHERE op_key = $1`},
			{"another owner's record", key, `UPDATE holdfast_records SET owner = 'ben' WHERE op_key = $1`},
			{"its expired record", key, `UPDATE holdfast_records SET key_expires_at = 1 WHERE op_key = $1`},
		} {
			_, err := call(zoes(beside.key), e.identified(beside.key))
			e.Check(err)
			e.Must(beside.change, []byte(beside.key))
			runs := 0
			_, err = call(zoes(key), func(context.Context, Tx) (idempotency.ID, error) {
				if runs++; runs > 1 {
					return "again", nil
				}
				return "", broken
			})
			if !errors.Is(err, broken) || runs != 1 {
				e.Errorf("%s beside %s: %v after %d runs", key, beside.what, err, runs)
			}
		}
		e.Must(`DELETE FROM holdfast_records WHERE owner = 'ben'`)
	}
}

// rowsOfOthers replays rows that stand before and behind others: each call gets the row of its key.
func rowsOfOthers[Tx any](e *env[Tx]) {
	refunds := e.Refunds()
	rows := []conformance.Refund{{No: "a", Amount: 1}, {No: "b", Amount: 2}, {No: "c", Amount: 3}}
	for _, want := range []idempotency.Outcome{idempotency.Executed, idempotency.Replayed} {
		for _, row := range rows {
			tx := e.BeginTx(sql.LevelDefault)
			r, err := refunds.ClaimTx(e.Ctx, tx, row)
			if err != nil || r.Outcome != want || r.Value.No != row.No || r.Value.Amount != row.Amount {
				e.Errorf("ClaimTx of %v: %+v, %v, want %v", row, r, err, want)
			}
			e.EndTx(tx, true)
		}
	}
	for _, row := range rows {
		if r, err := refunds.Do(e.Ctx, row, func(context.Context, Tx) error { return nil }); err != nil || r.Outcome != idempotency.Replayed || r.Value.No != row.No {
			e.Errorf("Do of %v: %+v, %v", row, r, err)
		}
	}
}

// copiedClaims has functions that copy their claim: the copies stay claims when it is finished.
func copiedClaims[Tx any](e *env[Tx]) {
	claimed := false
	for key, call := range e.ways(idempotency.Options{}) {
		copies := int64(0)
		_, err := call(zoes(key), func(ctx context.Context, tx Tx) (idempotency.ID, error) {
			for _, q := range []string{
				`INSERT INTO holdfast_records (owner, ` + recordColumns + `) SELECT 'ben', ` + recordColumns + ` FROM holdfast_records WHERE owner = 'zoe' AND op_key = $1`,
				`INSERT INTO holdfast_records (owner, ` + recordColumns + `) SELECT owner, ` + strings.Replace(recordColumns, "key_hash", e.Blob([]byte(strings.Repeat("h", 32))), 1) + ` FROM holdfast_records WHERE owner = 'zoe' AND op_key = $1`,
			} {
				n, err := e.Exec(ctx, tx, q, []byte(key))
				if err != nil {
					return "", err
				}
				copies += n
			}
			return e.identified(key)(ctx, tx)
		})
		e.WantOnce(key)
		claims := e.Int(`SELECT COUNT(*) FROM holdfast_records WHERE op_key = $1 AND state = 1 AND business_id IS NULL`, []byte(key))
		if claimed = claimed || copies > 0; err != nil || int64(claims) != copies || copies == 1 {
			e.Errorf("%s: %v, and %d of %d copies are claims", key, err, claims, copies)
		}
		e.Must(`DELETE FROM holdfast_records WHERE state = 1`)
	}
	if !claimed {
		e.Error("nothing was claimed before its function")
	}
}

// storedColumns checks what each protocol stores: the same.
func storedColumns[Tx any](e *env[Tx]) {
	start := int64(e.Now())
	near := func(micros int64, want time.Duration) bool { // PostgreSQL reads its clock for each column
		return micros >= want.Microseconds() && micros < (want+want/2).Microseconds()
	}
	e.Ctx = holdfast.WithRequestID(e.Ctx, "request")
	for key, call := range e.ways(idempotency.Options{ResultTTL: time.Minute, KeyTTL: time.Hour}) {
		_, err := call(zoes(key), e.identified(key))
		e.Check(err)
		var state, created, finished, result, expires int64
		var id, request, holder, program sql.NullString
		e.Check(e.SQL.QueryRowContext(e.Ctx, e.Rebind(`SELECT state, business_id, request_id, holder, program, created_at, finished_at, result_expires_at, key_expires_at FROM holdfast_records WHERE op_key = $1`), []byte(key)).
			Scan(&state, &id, &request, &holder, &program, &created, &finished, &result, &expires))
		if state != 2 || id.String != "id of "+key || request.String != "request" || holder.String == "" || program.String == "" {
			e.Errorf("%s: state %d, id %q, request %q, of %q %q", key, state, id.String, request.String, holder.String, program.String)
		}
		if finished < created || finished < start || finished > int64(e.Now()) || !near(result-finished, time.Minute) || !near(expires-finished, time.Hour) {
			e.Errorf("%s: begun at %d, finished at %d, ends at %d and %d", key, created, finished, result, expires)
		}
	}
}

// renewedSince has another call execute a key that had expired, after a call has read that and before it deletes the
// record: the record of the other call stays.
func renewedSince[Tx any](e *env[Tx]) {
	o := idempotency.Options{KeyTTL: time.Hour}
	other := e.Store(o)
	var armed, met atomic.Bool
	pool := e.Open(e.DSN, holdfast.Options{Observers: []holdfast.Observer{func(_ context.Context, s holdfast.Statement) {
		if s.Name == "records.look" && armed.Swap(false) {
			met.Store(true)
			if r, err := e.Do(other, conformance.Op("a")); err != nil || r.Outcome != idempotency.Executed {
				e.Errorf("the other call: %+v, %v", r, err)
			}
		}
	}}})
	s, err := idempotency.New(e.Ctx, pool.DB, o)
	e.Check(err)
	_, err = e.Do(other, conformance.Op("a"))
	e.Check(err)
	e.Must(`UPDATE holdfast_records SET key_expires_at = 1 WHERE op_key = $1`, []byte("a"))
	e.Must(`DELETE FROM effects WHERE k = $1`, []byte("a"))
	armed.Store(true)
	r, err := e.Do(s, conformance.Op("a"))
	if err != nil || r.Outcome != idempotency.Replayed || !met.Load() {
		e.Errorf("the call that came late: %+v, %v; the other one came between: %t", r, err, met.Load())
	}
	e.WantOnce("a")
}
