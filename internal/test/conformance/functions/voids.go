package functions

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/internal/test/conformance"
	"github.com/holdfast-go/holdfast/internal/test/dbtest"
)

var voids = map[string]func(*env){
	"FunctionVoid":             functionVoid,
	"FunctionVoidTooLate":      functionVoidTooLate,
	"FunctionVoidUndone":       functionVoidUndone,
	"FunctionVoidBadArguments": functionVoidBadArguments,
	"FunctionVoidRace":         functionVoidRace,
}

const reason = `the customer's "cancel", é 😀`

// void ends the key of conformance.Op(key) in a separate transaction, for ever.
func (e *env) void(key string) (a answer, err error) {
	err = e.inTx(sql.LevelDefault, func(tx *sql.Tx) error {
		a, err = e.voidOn(tx, key, nil)
		return err
	})
	return a, err
}

func (e *env) voidOn(tx dbtest.Querier, key string, ttl any) (answer, error) {
	return e.call(tx, "void", "default", "", "refund", text(key), reason, ttl, 1_000_000)
}

func (e *env) wantVoided(s *idempotency.Store[*sql.Tx], key string) {
	e.Helper()
	a, err := e.do(key)
	e.want(fmt.Sprintf("%.40q: ", key)+"a function", a, err, "outcome", "replayed", "state", "rejected", "codec", "json")
	_, err = e.Do(s, op(key))
	var no *idempotency.Rejection
	if !errors.As(err, &no) || no.Code != idempotency.CodeVoided || no.Message != reason {
		e.Errorf("%.40q: Go: %v", key, err)
	}
	a, err = e.void(key)
	e.want(fmt.Sprintf("%.40q: ", key)+"void again", a, err, "outcome", "voided", "state", "", "result", "", "codec", "")
	if o, err := s.Void(e.Ctx, op(key), reason); err != nil || o != idempotency.Replayed {
		e.Errorf("%.40q: Go voids again: %v, %v", key, o, err)
	}
	if n := e.Effects(key); n != 0 {
		e.Errorf("%.40q: %d effects", key, n)
	}
}

// functionVoid ends keys by one kind of client, and asks for them by each.
func functionVoid(e *env) {
	s := e.Store(idempotency.Options{})
	for i, key := range conformance.Keys() {
		if key = "void " + key; len(key) > idempotency.MaxKey {
			key = "void" + key[len(key)-idempotency.MaxKey+len("void"):]
		}
		if i%2 == 0 {
			a, err := e.void(key)
			e.want(fmt.Sprintf("%.40q", key), a, err, "outcome", "voided", "state", "", "result", "", "codec", "")
		} else if o, err := s.Void(e.Ctx, op(key), reason); err != nil || o != idempotency.Executed {
			e.Errorf("%.40q: Go: %v, %v", key, o, err)
		}
		e.wantVoided(s, key)
	}
	e.Check(e.inTx(sql.LevelDefault, func(tx *sql.Tx) error {
		a, err := e.voidOn(tx, "void for a while", 50_000)
		e.want("with a TTL", a, err, "outcome", "voided")
		return err
	}))
	e.Eventually("the key is free again", func() bool {
		a, err := e.do("void for a while")
		e.Check(err)
		return a["outcome"] == "claimed"
	})
	e.WantOnce("void for a while")
}

// functionVoidTooLate voids what was done, refused, is at work or unknown.
func functionVoidTooLate(e *env) {
	s := e.Store(idempotency.Options{})
	_, err := e.do("void, done")
	e.Check(err)
	_, err = e.Do(s, op("void, done by Go"))
	e.Check(err)
	for _, key := range []string{"void, done", "void, done by Go"} {
		a, err := e.void(key)
		e.want(key, a, err, "outcome", "too_late", "state", "succeeded", "result", `"done"`, "codec", "json")
		e.WantOnce(key)
	}
	_, err = idempotency.Do(e.Ctx, s, op("void, refused"), func(context.Context, *sql.Tx) (string, error) {
		return "", idempotency.Reject("over_refund", "more than was paid")
	})
	if !errors.As(err, new(*idempotency.Rejection)) {
		e.Error(err)
	}
	a, err := e.void("void, refused")
	e.want("refused", a, err, "outcome", "too_late", "state", "rejected", "result", `{"code":"over_refund","message":"more than was paid"}`)

	e.Must(`UPDATE holdfast_records SET state = 4, result = NULL WHERE op_key = $1`, []byte("void, done by Go")) // as the reaper does
	a, err = e.void("void, done by Go")
	e.want("expired", a, err, "outcome", "too_late", "state", "succeeded", "result", "")
	e.Must(`UPDATE holdfast_records SET state = 1, result = NULL, codec = NULL, finished_at = NULL WHERE op_key = $1`, []byte("void, done"))
	a, err = e.void("void, done")
	e.want("unknown", a, err, "outcome", "unknown", "state", "")

	release := e.HoldKey("void, held")
	e.Check(e.inTx(sql.LevelDefault, func(tx *sql.Tx) error {
		a, err := e.call(tx, "void", "default", "", "refund", "void, held", reason, nil, 0)
		e.want("held", a, err, "outcome", "in_progress")
		return err
	}))
	release()
	a, err = e.void("void, held")
	e.want("after that", a, err, "outcome", "too_late", "result", `"held"`)
}

// functionVoidUndone rolls a void back, and voids where there is no transaction.
func functionVoidUndone(e *env) {
	undo := errors.New("undo")
	err := e.inTx(sql.LevelDefault, func(tx *sql.Tx) error {
		a, err := e.voidOn(tx, "void, undone", nil)
		e.want("void", a, err, "outcome", "voided")
		return errors.Join(undo, err)
	})
	if !errors.Is(err, undo) {
		e.Error(err)
	}
	a, err := e.do("void, undone")
	e.want("the key is free", a, err, "outcome", "claimed")
	e.WantOnce("void, undone")

	a, err = e.voidOn(e.SQL, "void, alone", nil)
	if e.Engine == dbtest.Postgres { // where a statement is a transaction, whatever functions it calls
		e.want("with autocommit", a, err, "outcome", "voided")
		e.wantVoided(e.Store(idempotency.Options{}), "void, alone")
		return
	}
	e.refused("with autocommit", err, "outside a transaction")
	e.want("with autocommit", e.lookup("void, alone"), nil, "outcome", "absent")
}

func functionVoidBadArguments(e *env) {
	for what, args := range map[string][]any{
		"reason has 0 bytes":         {"", nil, 0},
		"reason has no bytes":        {nil, nil, 0},
		"reason has 501 bytes":       {strings.Repeat("x", 501), nil, 0},
		"a TTL is not between 50 ms": {reason, 0, 0},
		"wait_us is not":             {reason, nil, -1},
	} {
		err := e.inTx(sql.LevelDefault, func(tx *sql.Tx) error {
			_, err := e.call(tx, "void", append([]any{"default", "", "refund", "void, bad"}, args...)...)
			return err
		})
		e.refused(what, err, what)
	}
	e.want("nothing is voided", e.lookup("void, bad"), nil, "outcome", "absent")
}

// functionVoidRace sends originals and cancels of both kinds of clients at new keys, at the same moment.
func functionVoidRace(e *env) {
	stores := []*idempotency.Store[*sql.Tx]{e.Store(idempotency.Options{}), e.Store(idempotency.Options{}), e.Store(idempotency.Options{})}
	for round := range 10 {
		key := fmt.Sprint("void race ", round)
		start := make(chan struct{})
		var wg sync.WaitGroup
		var mu sync.Mutex
		voided := 0
		for i := range 8 {
			wg.Go(func() {
				<-start
				mine, err := e.originalOrCancel(stores, i, key)
				mu.Lock()
				defer mu.Unlock()
				if mine {
					voided++
				}
				if err != nil {
					e.Errorf("client %d: %v", i, err)
				}
			})
		}
		close(start)
		wg.Wait()
		if n := e.Effects(key); n > 1 || (n == 1) == (voided > 0) {
			e.Errorf("%.40q: %d effects, and %d say that it is voided", key, n, voided)
		}
	}
}

// originalOrCancel says whether the client got the answer that the operation is voided: each does, or none.
func (e *env) originalOrCancel(stores []*idempotency.Store[*sql.Tx], i int, key string) (voided bool, err error) {
	for {
		var a answer
		switch i % 4 {
		case 0:
			if a, err = e.void(key); a["outcome"] == "in_progress" {
				err = holdfast.ErrRetry
			}
			voided = a["outcome"] == "voided"
		case 1:
			_, err = stores[i%len(stores)].Void(e.Ctx, op(key), reason)
			if voided = err == nil; errors.Is(err, idempotency.ErrTooLate) {
				err = nil
			}
		default:
			if voided, err = e.originalOf(stores, i, key); err != nil {
				return false, err
			}
		}
		if err == nil || !errors.Is(err, holdfast.ErrRetry) && !errors.Is(err, idempotency.ErrInProgress) && !e.DB.Retryable(err) {
			return voided, err
		}
	}
}

// originalOf is oneOf for a key that may be voided.
func (e *env) originalOf(stores []*idempotency.Store[*sql.Tx], i int, key string) (voided bool, err error) {
	_, err = e.oneOf(stores, i, key)
	if no := (*idempotency.Rejection)(nil); errors.As(err, &no) && no.Code == idempotency.CodeVoided {
		return true, nil
	}
	if err != nil || i%4 != 3 {
		return false, err
	}
	return e.lookup(key)["state"] == "rejected", nil // a function answers "replayed" for both
}
