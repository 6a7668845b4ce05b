package functions

import (
	"bytes"
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/internal/test/conformance"
)

var operations = map[string]func(*env){
	"FunctionThenGo":        functionThenGo,
	"FunctionRecordsAsGo":   functionRecordsAsGo,
	"FunctionTwinKeys":      functionTwinKeys,
	"FunctionMismatch":      functionMismatch,
	"FunctionRejection":     functionRejection,
	"FunctionExpiry":        functionExpiry,
	"FunctionInProgress":    functionInProgress,
	"FunctionStampede":      functionStampede,
	"FunctionBytesAndCodec": functionBytesAndCodec,
	"FunctionBadArguments":  functionBadArguments,
	"FunctionInjection":     functionInjection,
}

func hashOf(b []byte) [sha256.Size]byte { return sha256.Sum256(b) }

// wantUnsupported fails unless err names what the engine lacks.
func wantUnsupported(t *testing.T, err error) {
	t.Helper()
	var u *holdfast.UnsupportedError
	if !errors.As(err, &u) || u.Check != "functions" || !strings.Contains(err.Error(), "docs/reference/protocol.md") {
		t.Errorf("got %v", err)
	}
}

// functionThenGo executes by one kind of client and replays by each.
func functionThenGo(e *env) {
	s := e.Store(idempotency.Options{})
	e.want("absent", e.lookup("a"), nil, "outcome", "absent")
	for i, outcome := range []string{"claimed", "replayed", "replayed"} {
		a, err := e.do("a")
		e.want(fmt.Sprint("call ", i), a, err, "outcome", outcome)
		if outcome == "replayed" {
			e.want("the result", a, err, "state", "succeeded", "result", `"done"`, "codec", "json")
		}
	}
	if r, err := e.Do(s, op("a")); err != nil || r.Outcome != idempotency.Replayed || r.Value != "done" {
		e.Errorf("Go: %+v, %v", r, err)
	}
	e.want("lookup", e.lookup("a"), nil, "outcome", "replayed", "state", "succeeded", "result", `"done"`)
	e.WantOnce("a")

	if r, err := e.Do(s, op("b")); err != nil || r.Outcome != idempotency.Executed {
		e.Errorf("Go: %+v, %v", r, err)
	}
	a, err := e.do("b")
	e.want("after Go", a, err, "outcome", "replayed", "state", "succeeded", "result", `"done"`)
	e.WantOnce("b")
}

// functionRecordsAsGo compares the rows that both write, but for times, attempt and holder.
func functionRecordsAsGo(e *env) {
	const columns = `namespace, owner, operation, fingerprint_version, state, codec`
	read := func(key string) (row [6]string, result, fingerprint []byte) {
		err := e.SQL.QueryRowContext(e.Ctx, e.Rebind(`SELECT `+columns+`, result, fingerprint FROM holdfast_records WHERE op_key = $1`), []byte(key)).
			Scan(&row[0], &row[1], &row[2], &row[3], &row[4], &row[5], &result, &fingerprint)
		e.Check(err)
		return row, result, fingerprint
	}
	s := e.Store(idempotency.Options{})
	_, err := e.do("columns")
	e.Check(err)
	ours, result, fp := read("columns")
	hash, err := s.RecordKey(op("columns"))
	e.Check(err)
	if n := e.Int(`SELECT COUNT(*) FROM holdfast_records WHERE op_key = $1 AND key_hash = $2`, []byte("columns"), hash); n != 1 {
		e.Error("the hash of the key is another one")
	}
	e.Must(`DELETE FROM holdfast_records WHERE op_key = $1`, []byte("columns"))
	_, err = e.Do(s, op("columns"))
	e.Check(err)
	theirs, result2, fp2 := read("columns")
	if ours != theirs || !bytes.Equal(result, result2) || !bytes.Equal(fp, fp2) {
		e.Errorf("a function writes %v %q %x, Go writes %v %q %x", ours, result, fp, theirs, result2, fp2)
	}
}

func functionTwinKeys(e *env) {
	s := e.Store(idempotency.Options{})
	for i, key := range conformance.Keys() {
		key = "twin " + key
		if len(key) > idempotency.MaxKey {
			key = key[len("twin "):]
		}
		if i%2 == 0 {
			a, err := e.do(key)
			e.want(key, a, err, "outcome", "claimed")
		} else if r, err := e.Do(s, op(key)); err != nil || r.Outcome != idempotency.Executed {
			e.Errorf("key %.40q: %v, %v", key, r.Outcome, err)
		}
		a, err := e.do(key)
		e.want(key, a, err, "outcome", "replayed")
		if r, err := e.Do(s, op(key)); err != nil || r.Outcome != idempotency.Replayed {
			e.Errorf("key %.40q: %v, %v", key, r.Outcome, err)
		}
		e.WantOnce(key)
	}
}

func functionMismatch(e *env) {
	const key = "mismatch"
	_, err := e.do(key)
	e.Check(err)
	other := fingerprint(e.T, "another")
	e.Check(e.inTx(sql.LevelDefault, func(tx *sql.Tx) error {
		a, err := e.claimOf(tx, key, other, 0)
		e.want("another request", a, err, "outcome", "mismatch", "state", "", "result", "")
		a, err = e.claimOf(tx, key, nil, 0)
		e.want("without a check", a, err, "outcome", "replayed")
		a, err = e.call(tx, "claim", "default", "", "refund", key, other, 7, 0)
		e.want("of another version", a, err, "outcome", "replayed")
		return nil
	}))
	a, err := e.call(e.SQL, "lookup", "default", "", "refund", key, other, 0)
	e.want("lookup", a, err, "outcome", "mismatch")
	o := op(key)
	o.Request = "another"
	if _, err := e.Do(e.Store(idempotency.Options{}), o); !errors.Is(err, idempotency.ErrMismatch) {
		e.Errorf("Go: %v", err)
	}
	e.WantOnce(key)
}

func functionRejection(e *env) {
	const verdict = `{"code":"over_refund","message":"more than was paid","detail":{"paid":100}}`
	e.Check(e.inTx(sql.LevelDefault, func(tx *sql.Tx) error {
		a, err := e.claim(tx, "rejected")
		e.want("claim", a, err, "outcome", "claimed")
		return e.finish(tx, a["claim"], "rejected", verdict)
	}))
	_, err := e.Do(e.Store(idempotency.Options{}), op("rejected"))
	var r *idempotency.Rejection
	if !errors.As(err, &r) || r.Code != "over_refund" || r.Message != "more than was paid" || string(r.Detail) != `{"paid":100}` {
		e.Errorf("Go: %v", err)
	}
	_, err = idempotency.Do(e.Ctx, e.Store(idempotency.Options{}), op("rejected by Go"), func(context.Context, *sql.Tx) (string, error) {
		return "", idempotency.Reject("over_refund", "more than was paid")
	})
	if !errors.As(err, &r) {
		e.Error(err)
	}
	a, err := e.do("rejected by Go")
	e.want("a function", a, err, "outcome", "replayed", "state", "rejected", "codec", "json", "result", `{"code":"over_refund","message":"more than was paid"}`)
	if n := e.Effects("rejected by Go"); n != 0 {
		e.Errorf("%d effects", n)
	}
}

func functionExpiry(e *env) {
	execute := func(key string, resultTTL, keyTTL any) (outcome string) {
		e.Check(e.inTx(sql.LevelDefault, func(tx *sql.Tx) error {
			a, err := e.claim(tx, key)
			if outcome = a["outcome"]; err != nil || outcome != "claimed" {
				return err
			}
			_, err = e.call(tx, "finish", a["claim"], "succeeded", `1`, "json", "R-1", resultTTL, keyTTL)
			return errors.Join(err, e.Effect(e.Ctx, tx, key))
		}))
		return outcome
	}
	execute("result", 50_000, nil)
	e.Eventually("the result expires", func() bool { return execute("result", 50_000, nil) == "expired" })
	e.want("lookup", e.lookup("result"), nil, "outcome", "expired", "state", "succeeded", "business_id", "R-1", "result", "")
	var gone *idempotency.ExpiredError
	if _, err := e.Do(e.Store(idempotency.Options{}), op("result")); !errors.As(err, &gone) || gone.BusinessID != "R-1" || gone.Rejected {
		e.Errorf("Go: %v", err)
	}
	e.WantOnce("result")
	e.Must(`UPDATE holdfast_records SET state = 4, result = NULL WHERE op_key = $1`, []byte("result")) // as the reaper does
	if outcome := execute("result", nil, nil); outcome != "expired" {
		e.Errorf("the tombstone: %s", outcome)
	}
	e.want("lookup of a tombstone", e.lookup("result"), nil, "outcome", "expired", "state", "succeeded", "business_id", "R-1")

	execute("key", 50_000, 50_000)
	e.Eventually("the key is free again", func() bool { return execute("key", nil, nil) == "claimed" })
	if n := e.Effects("key"); n != 2 {
		e.Errorf("%d effects, want one for each life of the key", n)
	}
	e.want("lookup", e.lookup("key"), nil, "outcome", "replayed", "business_id", "R-1")
}

// functionInProgress holds a key by one kind of client, and asks for it by the other.
func functionInProgress(e *env) {
	release := e.HoldKey("held by Go")
	for _, wait := range []int64{0, 30_000} {
		e.Check(e.inTx(sql.LevelDefault, func(tx *sql.Tx) error {
			a, err := e.claimOf(tx, "held by Go", nil, wait)
			e.want(fmt.Sprint("wait ", wait), a, err, "outcome", "in_progress")
			if a["detail"] == "" {
				e.Error("it does not say who")
			}
			if strings.Contains(a["detail"], "rolled back") { // innodb_rollback_on_timeout
				return nil
			}
			key := fmt.Sprint("after a wait of ", wait)
			a, err = e.claim(tx, key)
			e.want("the transaction goes on", a, err, "outcome", "claimed")
			return e.finish(tx, a["claim"], "succeeded", `1`)
		}))
	}
	release()
	a, err := e.do("held by Go")
	e.want("after Go", a, err, "outcome", "replayed", "result", `"held"`)

	held, free, ended := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	go func() {
		ended <- e.inTx(sql.LevelDefault, func(tx *sql.Tx) error {
			a, err := e.claim(tx, "held")
			e.want("holder", a, err, "outcome", "claimed")
			close(held)
			<-free
			return errors.Join(e.finish(tx, a["claim"], "succeeded", `"held"`), e.Effect(e.Ctx, tx, "held"))
		})
	}()
	<-held
	o := op("held")
	o.Wait = holdfast.NoWait
	if _, err := e.Do(e.Store(idempotency.Options{}), o); !errors.Is(err, idempotency.ErrInProgress) {
		e.Errorf("Go: %v", err)
	}
	close(free)
	e.Check(<-ended)
	if r, err := e.Do(e.Store(idempotency.Options{}), o); err != nil || r.Value != "held" || r.Outcome != idempotency.Replayed {
		e.Errorf("Go: %+v, %v", r, err)
	}
	e.WantOnce("held")
}

// functionStampede sends both kinds of clients at new keys, at the same moment.
func functionStampede(e *env) {
	stores := []*idempotency.Store[*sql.Tx]{e.Store(idempotency.Options{}), e.Store(idempotency.Options{}), e.Store(idempotency.Options{})}
	for round := range 5 {
		key := fmt.Sprint("stampede ", round)
		var wg sync.WaitGroup
		var mu sync.Mutex
		executed := 0
		start := make(chan struct{})
		for i := range 12 {
			wg.Go(func() {
				<-start
				mine, err := e.oneOf(stores, i, key)
				mu.Lock()
				defer mu.Unlock()
				if executed += mine; err != nil {
					e.Error(err)
				}
			})
		}
		close(start)
		wg.Wait()
		e.WantOnce(key)
		if executed != 1 {
			e.Errorf("%d have executed", executed)
		}
	}
}

// oneOf calls as one of three kinds of clients: Do, DoTx, or the functions. It returns 1 if it executed.
func (e *env) oneOf(stores []*idempotency.Store[*sql.Tx], i int, key string) (int, error) {
	for {
		var executed bool
		var err error
		switch i % 4 {
		case 0, 2:
			var r idempotency.Result[string]
			r, err = e.Do(stores[i%4], op(key))
			executed = r.Outcome == idempotency.Executed
		case 1:
			err = e.inTx(sql.LevelReadCommitted, func(tx *sql.Tx) error {
				r, err := e.DoTx(stores[1], tx, op(key))
				executed = r.Outcome == idempotency.Executed
				return err
			})
		default:
			var a answer
			a, err = e.do(key)
			executed = a["outcome"] == "claimed"
			if err == nil && a["outcome"] != "claimed" && a["outcome"] != "replayed" {
				err = fmt.Errorf("outcome %q: %w", a["outcome"], holdfast.ErrRetry)
			}
		}
		switch {
		case err == nil && executed:
			return 1, nil
		case err == nil:
			return 0, nil
		case !errors.Is(err, holdfast.ErrRetry) && !errors.Is(err, idempotency.ErrInProgress) && !e.DB.Retryable(err):
			return 0, err
		}
		time.Sleep(time.Millisecond)
	}
}

func functionBytesAndCodec(e *env) {
	stored := []byte{0, 255, 16}
	e.Check(e.inTx(sql.LevelDefault, func(tx *sql.Tx) error {
		a, err := e.claim(tx, "bytes")
		e.Check(err)
		_, err = e.call(tx, "finish", a["claim"], "succeeded", stored, "bytes", "", nil, nil)
		return err
	}))
	r, err := idempotency.Do(e.Ctx, e.Store(idempotency.Options{}), op("bytes"), func(context.Context, *sql.Tx) ([]byte, error) { return nil, nil })
	if err != nil || !bytes.Equal(r.Value, stored) {
		e.Errorf("Go: %v, %v", r, err)
	}
	a, err := e.do("bytes")
	e.want("a function", a, err, "outcome", "replayed", "codec", "bytes", "data", string(stored), "result", "", "business_id", "")

	for i, value := range []string{`{"refund":"R-1","amount":12.5}`, `"a\\b\n\u0000 '\"; é 😀"`, `null`, ` [ 1 , 2 ] `} {
		key := fmt.Sprint("json ", i)
		e.Check(e.inTx(sql.LevelDefault, func(tx *sql.Tx) error {
			a, err := e.claim(tx, key)
			e.Check(err)
			return e.finish(tx, a["claim"], "succeeded", value)
		}))
		var want any
		e.Check(json.Unmarshal([]byte(value), &want))
		r, err := idempotency.Do(e.Ctx, e.Store(idempotency.Options{}), op(key), func(context.Context, *sql.Tx) (any, error) { return nil, nil })
		if err != nil || fmt.Sprint(r.Value) != fmt.Sprint(want) {
			e.Errorf("Go: %v, %v, want %v", r, err, want)
		}
		a, err := e.do(key)
		e.want("a function", a, err, "result", value)
	}
}
