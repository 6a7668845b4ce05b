package simulation

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/idempotency/staged"
	"github.com/holdfast-go/holdfast/internal/access"
	"github.com/holdfast-go/holdfast/internal/test/conformance"
)

// The same calls of staged operations, one after the other, on the store and on an engine.

// stagedStep is one call, with what its worker, its provider and its undo do.
type stagedStep struct {
	kind    stagedKind
	key     int
	another bool
	fails   int // 1: the first step; 2: after the call; 3: the operation is rejected at its end
	pays    says
	found   says // of Reconcile
}

type stagedKind int

const (
	does stagedKind = iota
	starts
	startsNot // its transaction is rolled back
	completes
	cancels
	looksUp
	ages // every lease, pause and deadline is over
	stagedKinds
)

// says is what a provider answers.
type says int

const (
	paidSays says = iota
	refuses
	nothingDone
	unclear
	accepts
	asksAgain
	saysKinds
)

// stagedSequence draws calls.
func stagedSequence(seed, n int) []stagedStep {
	rng := rand.New(rand.NewPCG(uint64(seed), 9))
	steps := make([]stagedStep, n)
	for i := range steps {
		s := stagedStep{kind: stagedKind(rng.IntN(int(stagedKinds))), key: i/12*2 + rng.IntN(2), another: rng.IntN(8) == 0}
		s.fails, s.pays, s.found = max(0, rng.IntN(8)-4), says(rng.IntN(int(saysKinds))), says(rng.IntN(int(saysKinds)))
		if rng.IntN(4) == 0 {
			s.kind = does
		}
		steps[i] = s
	}
	return steps
}

// stagedSide is the store, or an engine.
type stagedSide[Tx any] struct {
	db     *holdfast.DB[Tx]
	runner *staged.Runner[request, receipt, Tx]
	mode   doubt
	now    stagedStep
	mu     sync.Mutex     // a pass runs several operations beside each other
	values map[string]int // by key and step: how often it ran
}

// ran counts that a step ran, and returns how often it has.
func (s *stagedSide[Tx]) ran(step string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.values[step]++
	return s.values[step]
}

func newStagedSide[Tx any](ctx context.Context, db *holdfast.DB[Tx], seed int) (*stagedSide[Tx], error) {
	s := &stagedSide[Tx]{db: db, mode: doubt(seed % 3), values: map[string]int{}}
	store, err := idempotency.New(ctx, db, idempotency.Options{})
	if err != nil {
		return nil, err
	}
	// Nothing is due until it is made so.
	w := staged.Workflow[request, receipt, Tx]{Name: "refund", Run: s.refund, Lease: 12 * time.Hour, Backoff: 12 * time.Hour, MaxBackoff: 12 * time.Hour, MaxAttempts: 4}
	if seed < stagedSeeds/2 {
		w.Undo = func(_ context.Context, _ Tx, q request, op staged.Operation) error {
			s.ran(fmt.Sprint("undo ", q.Key, " ", len(op.Steps)))
			return nil
		}
	}
	s.runner, err = staged.New(store, w)
	return s, err
}

var errScripted = errors.New("it fails")

// refund is the operation.
func (s *stagedSide[Tx]) refund(ctx context.Context, r *staged.Run[Tx], q request) (done receipt, err error) {
	local := func(step string, fails bool) (n int, err error) {
		return staged.Local(ctx, r, step, func(context.Context, Tx) (int, error) {
			if fails {
				return 0, errScripted
			}
			return s.ran(q.Key + step), nil
		})
	}
	if done.Book, err = local("book", s.now.fails == 1); err != nil {
		return done, err
	}
	pay := staged.ExternalCall[int]{Step: "pay", Provider: "bank"}
	switch s.mode {
	case takesOver:
		pay.OnLeaseEnd = staged.TakeOver
	case reconciles:
		pay.Reconcile = func(_ context.Context, key string) (int, error) { return s.answer(q.Key, key, s.now.found) }
	}
	done.Pay, err = staged.Call(ctx, r, pay, func(ctx context.Context, key string) (int, error) {
		staged.SetReference(ctx, "ref "+q.Key)
		return s.answer(q.Key, key, s.now.pays)
	})
	if errors.As(err, new(*idempotency.Rejection)) {
		if _, err := local("take back", false); err != nil {
			return done, err
		}
	}
	switch {
	case err != nil:
		return done, err
	case s.now.fails == 2:
		return done, errScripted
	case s.now.fails == 3:
		return done, idempotency.Reject("no", "not wanted")
	}
	done.Close, err = local("close", false)
	return done, err
}

// answer is that of the provider.
func (s *stagedSide[Tx]) answer(key, providerKey string, how says) (int, error) {
	n := s.ran(providerKey)
	switch how {
	case paidSays:
		return n, nil
	case refuses:
		return 0, idempotency.Reject("refused", "the provider refused")
	case nothingDone:
		return 0, staged.NotDone(errScripted)
	case accepts:
		return 0, staged.Accepted("later "+key, 12*time.Hour)
	case asksAgain:
		return 0, staged.AskAgain(12 * time.Hour)
	}
	return 0, errScripted
}

// run makes a call, and returns what its caller learns.
func (s *stagedSide[Tx]) run(ctx context.Context, of stagedStep) string {
	s.now = of
	op, q := idempotency.Op{Key: fmt.Sprint("k", of.key), Wait: holdfast.NoWait}, request{Key: fmt.Sprint("k", of.key), Another: of.another}
	switch of.kind {
	case does:
		res, err := s.runner.Do(ctx, op, q)
		return fmt.Sprint(res.Value, res.Outcome, learned(err))
	case starts, startsNot:
		fresh := false
		err := s.db.InTx(ctx, func(ctx context.Context, t Tx) error {
			started, err := s.runner.StartTx(ctx, t, op, q)
			if err == nil {
				fresh = started.New
			}
			if err == nil && of.kind == startsNot {
				err = errNotCommitted
			}
			return err
		})
		return fmt.Sprint(fresh, learned(err))
	case completes:
		done, err := s.runner.Complete(ctx)
		errs := []string{learned(err)}
		for _, err := range done.Errs {
			errs = append(errs, learned(err))
		}
		slices.Sort(errs)
		done.Errs = nil
		return fmt.Sprint(done, errs)
	case cancels:
		o, err := s.runner.Cancel(ctx, op, "not wanted")
		return fmt.Sprint(o, learned(err))
	case ages:
		return "later"
	default:
		op.Wait, op.Request = 0, q
		found, err := s.runner.Lookup(ctx, op)
		return fmt.Sprint(found.State, found.Value, found.Rejection, learned(err))
	}
}

// learned is an error without what differs between two runs.
func learned(err error) string {
	var rej *idempotency.Rejection
	var late *idempotency.TooLateError
	var parked *staged.ParkedError
	var settles *staged.AcceptedError
	switch {
	case err == nil:
		return "ok"
	case errors.As(err, &rej):
		return "rejected: " + rej.Code + " " + rej.Message
	case errors.As(err, &late):
		return fmt.Sprint("too late: ", late.State, " ", late.Rejection, " ", late.Reason)
	case errors.As(err, &parked):
		return "parked: " + parked.Step + " " + parked.Reason
	case errors.As(err, &settles):
		return "settles: " + settles.Step
	case errors.Is(err, idempotency.ErrInProgress):
		return "in progress"
	}
	return err.Error()
}

// stagedOutcome is what came of a call.
type stagedOutcome struct {
	learned, values string
	rows            []string
}

const stagedSeeds, stagedCalls = 6, 48

// stagedOnStore makes the calls on the store, and returns what it ran.
func stagedOnStore(t *testing.T) (outcomes [stagedSeeds][]stagedOutcome, logs [stagedSeeds][]logged) {
	t.Helper()
	open(t)
	kinds := map[string]bool{}
	for seed := range outcomes {
		w := &world{rng: rand.New(rand.NewPCG(uint64(seed), 44)), calm: true, ordinals: map[string]int{}}
		scene := newStagedScene(w).(*stagedScene)
		w.scene, w.gate.open, handles[0].world, handles[0].life, scene.records.logs = scene, true, w, nil, true
		side, err := newStagedSide(t.Context(), handles[0].db, seed)
		if err != nil {
			t.Fatal(err)
		}
		for _, of := range stagedSequence(seed, stagedCalls) {
			if of.kind == ages {
				scene.records.makeDue()
			}
			learned := side.run(t.Context(), of)
			kinds[strings.Trim(learned, "0123456789{}")] = true
			outcomes[seed] = append(outcomes[seed], stagedOutcome{learned, fmt.Sprint(side.values), scene.records.shown()})
		}
		if logs[seed] = scene.records.log; w.violation != "" {
			t.Fatalf("seed %d: %s", seed, w.violation)
		}
	}
	if len(kinds) < 25 {
		t.Errorf("the calls have learned too little: %q", slices.Sorted(maps.Keys(kinds)))
	}
	return outcomes, logs
}

// sameStaged makes the calls on an engine. Callers learn the same as on the store, and the rows are the same, but for times, tokens and
// the ids of attempts. What each statement does is compared by TestStagedIsSQLite, and on each engine by package staged.
func sameStaged(e *conformance.Env[*sql.Tx], outcomes [stagedSeeds][]stagedOutcome) {
	table := access.Of(e.DB).Table
	for seed := range outcomes {
		e.Must(`DELETE FROM ` + table("steps"))
		e.Must(`DELETE FROM ` + table("staged"))
		side, err := newStagedSide(e.Ctx, e.DB, seed)
		e.Check(err)
		for i, of := range stagedSequence(seed, stagedCalls) {
			if of.kind == ages {
				e.Must(`UPDATE ` + table("staged") + ` SET due_at = due_at - 172800000000 WHERE state = 1`)
			}
			want := outcomes[seed][i]
			learned := side.run(e.Ctx, of)
			if values := fmt.Sprint(side.values); learned != want.learned || values != want.values {
				e.Fatalf("seed %d, call %d, %+v: %s, and of the store %s\n%s\n%s", seed, i, of, learned, want.learned, values, want.values)
			}
			var rows []string
			e.Each(`SELECT `+opColumns+` FROM `+table("staged"), func(r *sql.Rows) { rows = append(rows, scanned(e, r, opShown)) })
			e.Each(`SELECT `+stepColumns+` FROM `+table("steps"), func(r *sql.Rows) { rows = append(rows, scanned(e, r, stepShown)) })
			if slices.Sort(rows); !slices.Equal(rows, want.rows) {
				e.Fatalf("seed %d, call %d, %+v: rows\n%q, and of the store\n%q", seed, i, of, rows, want.rows)
			}
		}
	}
}

// makeDue lets every lease, pause and deadline end.
func (r *records) makeDue() {
	if r.logs {
		r.log = append(r.log, logged{name: "make due"})
	}
	for hash, row := range r.committed.ops {
		if row[opState] == claimedState {
			row = slices.Clone(row)
			row[opDue] = as[int64](row[opDue]) - 48*hour.Microseconds()
			r.committed.ops[hash] = row
		}
	}
}

// shown are the rows of operations and of steps.
func (r *records) shown() (rows []string) {
	for _, row := range r.committed.ops {
		rows = append(rows, shown(row[1:], opShown))
	}
	for _, row := range r.committed.steps {
		rows = append(rows, shown(row[1:], stepShown))
	}
	slices.Sort(rows)
	return rows
}

// How the columns are compared: by their value, or only by whether there is one.
const (
	opShown   = "vvvvvvvvvvxxxxvvvvvvvvxxxxvvxx" // of opColumns: v a value, x whether there is one
	stepShown = "vvvvvvxvxxvvxx"                 // of stepColumns
)

func shown(row []any, how string) (text string) {
	for i, v := range row {
		switch b := blob(v); {
		case v == nil:
			text += "|-"
		case how[i] == 'x':
			text += "|some"
		case b != nil:
			text += "|" + string(b)
		default:
			text += fmt.Sprint("|", v)
		}
	}
	return text
}

func scanned(e *conformance.Env[*sql.Tx], rows *sql.Rows, how string) string {
	row, into := make([]any, len(how)), make([]any, len(how))
	for i := range row {
		into[i] = &row[i]
	}
	e.Check(rows.Scan(into...))
	return shown(row, how)
}
