package simulation

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/dialect"
)

// The statements of records, one after the other, on a store and on an engine.

// recordStatements are those of an engine.
type recordStatements struct {
	claim                            dialect.Claim
	look, lock, renew, finish, write core.Stmt
	lockFirst                        bool
}

func recordsOf(d *dialect.Dialect, table func(string) string) *recordStatements {
	r := strings.NewReplacer("{records}", table("records"), "{now}", d.Now, "{lockspace}", dialect.Lockspace(table("records")))
	compile := func(name, text string) core.Stmt { return d.Compile(name, r.Replace(text)) }
	s := &recordStatements{
		claim: d.Claim("records.claim", r.Replace),
		look:  d.Look("records.look", r.Replace(d.Records.Look)), lock: compile("records.lock", d.Records.Lock),
		renew: compile("records.renew", d.Records.Renew), finish: compile("records.finish", d.Records.Finish), write: compile("records.finish", d.Records.Record),
	}
	s.lockFirst = s.claim.Reserves(0)
	return s
}

// recordKind is a statement, or what one transaction does with a few.
type recordKind int

const (
	claims recordKind = iota // of DoTx
	finishes
	reserves
	executes // Do's statements but for BEGIN and COMMIT
	looks
	locks
	renews
	recordKinds
)

// recordStep is one step with what it is drawn with.
type recordStep struct {
	kind    recordKind
	session int
	end     string // instead: begin, commit, rollback, savepoint, release, rollback to
	key     byte
	attempt byte
	print   any // a fingerprint; nil for none
	state   int
	result  any
	ttl     any // µs; nil for ever
}

// recordSequence draws steps of two sessions.
func recordSequence(seed uint64, n int) []recordStep {
	rng := rand.New(rand.NewPCG(seed, 8))
	steps := make([]recordStep, n)
	for i := range steps {
		s := recordStep{kind: recordKind(rng.IntN(int(recordKinds))), session: rng.IntN(2), key: byte(rng.IntN(3)), attempt: byte(rng.IntN(2)), state: 2 + rng.IntN(2)}
		if rng.IntN(2) == 0 {
			s.end = []string{"begin", "begin", "commit", "commit", "rollback", "savepoint", "release", "rollback to"}[rng.IntN(8)]
		}
		if rng.IntN(2) == 0 {
			s.print = bytes.Repeat([]byte{s.key}, 32)
		}
		if rng.IntN(4) > 0 {
			s.result = []byte(fmt.Sprint(i))
		}
		if rng.IntN(2) == 0 {
			s.ttl = hour.Microseconds()
		}
		steps[i] = s
	}
	return steps
}

// run runs a step, and returns what its caller learns.
func (s *recordStatements) run(ctx context.Context, q core.Querier, of recordStep) (any, error) {
	row := []any{"o", bytes.Repeat([]byte{of.key}, 32)}
	attempt := append(make([]byte, 15), of.attempt)
	with := func(more ...any) []any { return append(slices.Clip(row), more...) }
	result := with(attempt, of.state, of.result, of.ttl, of.ttl, "json", "b", "holder", nil, "r")
	identity := []any{"space", "refund", []byte{of.key}, of.print, 7}
	switch of.kind {
	case claims:
		return s.claim.InTx(ctx, q, 0, time.Second, func(wait time.Duration) (bool, error) {
			a := s.claim.Bind(append(with(identity...), attempt), wait, 0).Run(ctx, q)
			return a.Err == nil && s.claim.Won(a.Result), a.Err
		})
	case finishes:
		r, err := s.finish.Exec(ctx, q, result...)
		return r.Affected, err
	case reserves:
		a := s.claim.Reserve(with(), time.Second, time.Second).Run(ctx, q)
		return a.Err == nil && s.claim.Reserved(a.Result), a.Err
	case executes:
		a := s.claim.Reserve(with(), time.Second, time.Second).Run(ctx, q)
		if a.Err != nil || !s.claim.Reserved(a.Result) {
			return false, a.Err
		}
		r, err := s.write.Exec(ctx, q, append(append(result, identity...), int64(5), a.Text)...)
		return r.Affected == 1, err
	case looks:
		return s.read(ctx, q, s.look, row)
	case locks:
		return s.read(ctx, q, s.lock, row)
	default:
		r, err := s.renew.Exec(ctx, q, row...)
		return r.Affected, err
	}
}

func (*recordStatements) read(ctx context.Context, q core.Querier, stmt core.Stmt, row []any) (any, error) {
	var state, version, resultOver, keyOver int
	var fingerprint, result []byte
	var codec, business, request string
	found, err := stmt.QueryRow(ctx, q, []any{&state, &fingerprint, &version, &result, &codec, &business, &request, &resultOver, &keyOver}, row...)
	return fmt.Sprint(found, state, string(fingerprint), version, string(result), codec, business, request, resultOver, keyOver), err
}
