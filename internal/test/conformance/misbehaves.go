package conformance

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/internal/test/dbtest"
)

// Misbehaved is how many functions a test makes of each call. Each is made from its number alone.
const Misbehaved = 60

// Misbehavior is one function, and what it did when it ran last.
type Misbehavior[Tx any] struct {
	*Env[Tx]
	Key   string
	steps []string
	end   string
	// Did: its effect was written, though perhaps undone.
	Did bool
}

// Misbehaving makes a function of up to four statements and an effect. It ends transactions either by commits or by
// rollbacks, and has nothing undone before its effect: what it then commits alone, in no transaction or in one of its own, is nobody's to see.
func Misbehaving[Tx any](e *Env[Tx], key string, seed uint64) *Misbehavior[Tx] {
	r := rand.New(rand.NewPCG(seed, 0))
	harmless, undo := []string{`SAVEPOINT mine`, "(cancel)"}, []string{`SELECT n FROM no_such_table`, `RELEASE SAVEPOINT mine`}
	commit := []string{`COMMIT`, `COMMIT`, `BEGIN`, `CREATE TABLE IF NOT EXISTS surprise_` + strings.ReplaceAll(key, " ", "_") + ` (n INT)`, "(commit)"}
	rollback := []string{`ROLLBACK`, `ROLLBACK`, "(roll back)"}
	if e.Engine != dbtest.SQLite {
		commit, rollback = append(commit, `COMMIT AND CHAIN`), append(rollback, `ROLLBACK AND CHAIN`)
	}
	if e.InnoDB() {
		commit = append(commit, `START TRANSACTION`, `UNLOCK TABLES`, `SET autocommit = 1`)
	}
	m := &Misbehavior[Tx]{Env: e, Key: key, end: []string{"succeeds", "fails", "rejects", "panics"}[r.IntN(4)]}
	before, after := slices.Concat(harmless, commit), slices.Concat(harmless, undo, commit)
	if r.IntN(3) == 0 {
		before, after = harmless, slices.Concat(harmless, undo, rollback)
	}
	steps := r.IntN(4) + 1
	at := r.IntN(steps + 1)
	for i := range steps {
		if i == at {
			m.steps = append(m.steps, "(effect)")
		}
		from := before
		if i >= at {
			from = after
		}
		m.steps = append(m.steps, from[r.IntN(len(from))])
	}
	if at == steps {
		m.steps = append(m.steps, "(effect)")
	}
	return m
}

func (m *Misbehavior[Tx]) String() string {
	return fmt.Sprintf("%s: %s, and %s", m.Key, strings.Join(m.steps, "; "), m.end)
}

var (
	errFails  = errors.New("it fails")
	errPanics = errors.New("it panics")
)

// Function returns the function. cancel ends its context.
func (m *Misbehavior[Tx]) Function(cancel func()) func(ctx context.Context, tx Tx) (string, error) {
	return func(ctx context.Context, tx Tx) (string, error) {
		m.Did = false
		for _, step := range m.steps {
			switch step {
			case "(effect)":
				m.Did = m.Effect(ctx, tx, m.Key) == nil
			case "(commit)", "(roll back)":
				_ = m.End(ctx, tx, step == "(commit)")
			case "(cancel)":
				cancel()
			default:
				_, _ = m.Exec(ctx, tx, step)
			}
		}
		switch m.end {
		case "fails":
			return "", errFails
		case "rejects":
			return "", idempotency.Reject("no", "it rejects")
		case "panics":
			panic(errPanics)
		}
		return "misbehaved", nil
	}
}

// Recovered returns what fn returns, or the error with which it panics.
func Recovered(fn func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = p.(error)
		}
	}()
	return fn()
}
