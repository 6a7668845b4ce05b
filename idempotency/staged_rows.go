package idempotency

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/dialect"
)

// The states of a staged operation: those of a record, but
const (
	pending = 1
	parked  = 6 // unknown
)

// The states of a step.
const (
	stepNotDone  = 0
	stepBegun    = 1
	stepDone     = 2
	stepRejected = 3
)

// What may be done with a step that has begun, once the lease has ended.
const (
	modeTakeOver  = 1
	modePark      = 2
	modeReconcile = 3
)

// stagedRows is the table of the staged operations: each method is one transition.
type stagedRows[Tx any] struct {
	store *Store[Tx]
	sql   stagedSQL
}

type stagedSQL struct {
	look, insert, claim, own, finish, release, park, parkDue, due core.Stmt
	stepLook, stepInsert, stepBegin, stepEnd, stepFind, steps     core.Stmt
	touch, settle, known, closing                                 core.Stmt
	newsLook, newsInsert, newsList, intervene, interventions      core.Stmt
	intervened                                                    core.Stmt
	erase, eraseSteps, eraseNews, eraseKey                        core.Stmt
}

// stagedTables puts the tables' names into a statement's text.
func stagedTables(table func(string) string, now string) *strings.Replacer {
	var pairs []string
	for _, t := range []string{"staged", "steps", "news", "interventions", "records", "locks", "claims", "waiters", "floor"} {
		pairs = append(pairs, "{"+t+"}", table(t))
	}
	return strings.NewReplacer(append(pairs, "{now}", now)...)
}

func newStagedRows[Tx any](s *Store[Tx]) *stagedRows[Tx] {
	d := &s.dialect().Staged
	r := stagedTables(s.access.Table, s.dialect().Now)
	x := func(name, text string) core.Stmt { return s.dialect().Compile("staged."+name, r.Replace(text)) }
	return &stagedRows[Tx]{store: s, sql: stagedSQL{
		look: x("look", d.Look), insert: x("insert", d.Insert), claim: x("claim", d.Claim), own: x("own", d.Own),
		finish: x("finish", d.Finish), release: x("release", d.Release), park: x("park", d.Park),
		parkDue: x("park due", d.ParkDue), due: x("due", d.Due),
		stepLook: x("step.look", d.StepLook), stepInsert: x("step.insert", d.StepInsert), stepBegin: x("step.begin", d.StepBegin),
		stepEnd: x("step.end", d.StepEnd), stepFind: x("step.find", d.StepFind), steps: x("steps", d.Steps),
		touch: x("touch", d.Touch), settle: x("settle", d.Settle), known: x("known", d.Known), closing: x("close", d.Close),
		newsLook: x("news.look", d.NewsLook), newsInsert: x("news.insert", d.NewsInsert), newsList: x("news.list", d.NewsList),
		intervene: x("intervene", d.Intervene), interventions: x("interventions", d.Interventions), intervened: x("intervened", d.Intervened),
		erase: x("erase", d.Erase), eraseSteps: x("erase.steps", d.EraseSteps), eraseNews: x("erase.news", d.EraseNews),
		eraseKey: x("erase.key", d.EraseKey),
	}}
}

// stagedRow is what the table says of an operation.
type stagedRow struct {
	state                  int
	print                  []byte
	printVersion           int
	request, result, owner []byte
	token, left            int64
	step                   string
	mode                   int
	started, finished      int
	restored               int
	reason                 string
	mine                   bool
	until                  time.Time // of the lease, by this process's stopwatch
}

// own finds out whether the row is this attempt's. until was reckoned from before
// the claim was sent, so the lease ends here before it does in the database.
func (r *stagedRow) own(owner []byte, until time.Time) {
	r.mine = r.state == pending && bytes.Equal(r.owner, owner)
	r.until = until
}

// look reads a row; nil for none.
func (s *stagedRows[Tx]) look(ctx context.Context, q core.Querier, key hash) (*stagedRow, error) {
	var r stagedRow
	found, err := s.sql.look.QueryRow(ctx, q, []any{
		&r.state, &r.print, &r.printVersion, &r.request, &r.result, &r.owner, &r.token, &r.left,
		&r.step, &r.mode, &r.started, &r.finished, &r.restored, &r.reason,
	}, key[:])
	if err != nil {
		return nil, s.explain(err)
	}
	if !found {
		return nil, nil
	}
	return &r, nil
}

func (s *stagedRows[Tx]) explain(err error) error {
	if err != nil && s.store.dialect().Classify(err) == dialect.NoTable {
		return &holdfast.SchemaError{Table: s.store.access.Table("staged"), Err: err}
	}
	return err
}

// write runs one transaction until its outcome is certain. f must find, when it is
// run again after a commit in doubt, what that commit may have done: each
// transition here says how.
func (s *stagedRows[Tx]) write(ctx context.Context, f func(ctx context.Context, tx Tx, q core.Querier) error) error {
	o := &s.store.options
	opts := holdfast.TxOptions{Isolation: o.Isolation, LockTimeout: o.LockTimeout, Attempts: o.Attempts}
	var unknown error
	end, pause := time.Now().Add(o.Wait), core.NewBackoff()
	for {
		err := s.store.db.InTx(ctx, opts, func(ctx context.Context, tx Tx) error {
			q, err := s.store.access.Join(tx)
			if err != nil {
				return err
			}
			return f(ctx, tx, q)
		})
		var inFunc *funcError
		switch {
		case err == nil:
			return nil
		case errors.Is(err, holdfast.ErrRetry):
			return err
		case errors.As(err, &inFunc):
			return inFunc.err
		case errors.Is(err, holdfast.ErrUnknown):
			unknown = err
		case unknown != nil && s.store.dialect().Disconnected(err) && !isVerdict(err):
			// ask again until the wait is over
		default:
			return s.explain(err)
		}
		if time.Now().After(end) || ctx.Err() != nil || pause.Sleep(ctx) != nil {
			return unknown
		}
	}
}

// isVerdict: an error of this package's is an answer, whatever the dialect makes
// of an error without a code.
func isVerdict(err error) bool {
	return errors.Is(err, ErrStale) || errors.Is(err, ErrState) || errors.Is(err, ErrNotFound) || errors.Is(err, holdfast.ErrInvalid)
}

// claim takes an operation whose time has come. Sent again, it finds its own term.
func (s *stagedRows[Tx]) claim(ctx context.Context, key hash, owner []byte, holder string, lease time.Duration, seen int64) (row *stagedRow, err error) {
	err = s.write(ctx, func(ctx context.Context, _ Tx, q core.Querier) (err error) {
		if _, err = s.sql.claim.Exec(ctx, q, key[:], owner, holder, lease.Microseconds(), seen); err == nil {
			row, err = s.found(ctx, q, key)
		}
		return err
	})
	return row, err
}

// parkDue parks what its worker left. Sent again, it finds another token.
func (s *stagedRows[Tx]) parkDue(ctx context.Context, key hash, seen int64, reason string) (row *stagedRow, err error) {
	err = s.write(ctx, func(ctx context.Context, _ Tx, q core.Querier) (err error) {
		if _, err = s.sql.parkDue.Exec(ctx, q, key[:], seen, reason); err == nil {
			row, err = s.found(ctx, q, key)
		}
		return err
	})
	return row, err
}

func (s *stagedRows[Tx]) found(ctx context.Context, q core.Querier, key hash) (*stagedRow, error) {
	row, err := s.look(ctx, q, key)
	if err == nil && row == nil {
		err = ErrNotFound
	}
	return row, err
}

// finish ends the operation. Sent again, it finds the end with its own token.
func (s *stagedRows[Tx]) finish(ctx context.Context, r *Run[Tx], state int, result []byte) error {
	return s.move(ctx, r, "", func(now *stagedRow) bool { return now.state == state && now.token == r.token },
		func(ctx context.Context, q core.Querier) (core.Result, error) {
			return s.sql.finish.Exec(ctx, q, r.hash[:], r.owner, r.token, state, result)
		})
}

// release gives the operation back, to be tried again after a pause.
func (s *stagedRows[Tx]) release(ctx context.Context, r *Run[Tx], pause time.Duration, reason string) error {
	return s.move(ctx, r, "", func(now *stagedRow) bool { return now.owner == nil && now.token == r.token },
		func(ctx context.Context, q core.Querier) (core.Result, error) {
			return s.sql.release.Exec(ctx, q, r.hash[:], r.owner, r.token, pause.Microseconds(), reason)
		})
}

// park leaves the operation to a person, unless the provider's news have come
// while its call was made: row is then the step's answer.
func (s *stagedRows[Tx]) park(ctx context.Context, r *Run[Tx], step, reason string) (row *stepRow, err error) {
	return row, s.move(ctx, r, "", func(now *stagedRow) bool { return now.state == parked },
		func(ctx context.Context, q core.Querier) (core.Result, error) {
			if _, err := s.sql.touch.Exec(ctx, q, r.hash[:]); err != nil {
				return core.Result{}, err
			}
			found, err := s.step(ctx, q, r.hash, step)
			if err != nil {
				return core.Result{}, err
			}
			if row = nil; found != nil && (found.state == stepDone || found.state == stepRejected) {
				row = found
				return core.Result{Affected: 1}, nil
			}
			return s.sql.park.Exec(ctx, q, r.hash[:], r.owner, r.token, reason)
		})
}

// move is one statement under the worker's token. before tells from the row, when
// the statement did not find it, that it was done by a commit in doubt.
func (s *stagedRows[Tx]) move(ctx context.Context, r *Run[Tx], step string, before func(*stagedRow) bool, exec func(context.Context, core.Querier) (core.Result, error)) error {
	return s.write(ctx, func(ctx context.Context, _ Tx, q core.Querier) error {
		res, err := exec(ctx, q)
		if err != nil || res.Affected == 1 {
			return err
		}
		now, err := s.found(ctx, q, r.hash)
		if err != nil || before(now) {
			return err
		}
		return &StaleError{Step: step, Token: r.token, Current: now.token, State: State(now.state)}
	})
}

// own locks the row for a step, and begins the lease anew.
func (s *stagedRows[Tx]) own(ctx context.Context, q core.Querier, r *Run[Tx], name, current string, mode int, lease time.Duration) error {
	res, err := s.sql.own.Exec(ctx, q, r.hash[:], r.owner, r.token, current, mode, lease.Microseconds())
	if err != nil || res.Affected == 1 {
		return err
	}
	now, err := s.found(ctx, q, r.hash)
	if err != nil {
		return err
	}
	return &StaleError{Step: name, Token: r.token, Current: now.token, State: State(now.state)}
}

// stepRow is a recovery point.
type stepRow struct {
	state  int
	token  int64
	result []byte
}

func (s *stagedRows[Tx]) step(ctx context.Context, q core.Querier, key hash, name string) (*stepRow, error) {
	var r stepRow
	found, err := s.sql.stepLook.QueryRow(ctx, q, []any{&r.state, &r.token, &r.result}, key[:], name)
	if err != nil || !found {
		return nil, err
	}
	return &r, nil
}

// pack stores a value as results are stored, behind the name of its form.
func (s *stagedRows[Tx]) pack(key hash, v any) ([]byte, error) {
	out, err := s.store.options.verdict(&claim{hash: key}, succeeded, v)
	if err != nil {
		return nil, err
	}
	return append([]byte(out.codec+"\x00"), out.result...), nil
}

func (s *stagedRows[Tx]) unpack(key hash, stored []byte, to any) error {
	form, b, ok := bytes.Cut(stored, []byte{0})
	if !ok {
		return &ResultError{Stored: "nothing", Err: errors.New("it was erased")}
	}
	return s.store.options.decode(&claim{hash: key}, verdict{state: succeeded, codec: string(form), result: b}, to)
}
