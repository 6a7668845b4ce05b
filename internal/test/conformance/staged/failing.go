package staged

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/idempotency/operators"
	"github.com/holdfast-go/holdfast/idempotency/staged"
	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/test/rowdiff"
)

// stagedFailing takes a table away under every call. Each says so, and leaves what is stored as it was.
func stagedFailing[Tx any](e *env[Tx]) {
	store := e.Store(idempotency.Options{})
	ops := operators.New(store)
	f, s := accepts(e, "settling", 1<<40, staged.ExternalCall[string]{})
	f.call = nil
	parkedAt(e, "unknown")
	unfinished(e, "unfinished")
	if _, err := s.Do(e.Ctx, stagedOp("ended"), "ended"); err != nil {
		e.Fatal(err)
	}
	boom := errors.New("boom")
	f.before = func(int) error { return boom }
	if _, err := s.Do(e.Ctx, stagedOp("waits"), "waits"); !errors.Is(err, boom) {
		e.Fatal(err)
	}
	f.before = nil
	e.Must(`UPDATE holdfast_staged SET due_at = 0 WHERE op_key = $1`, []byte("waits"))
	event := settled("settling")
	calls := map[string]func() error{
		"do":       func() error { _, err := s.Do(e.Ctx, stagedOp("new"), "new"); return err },
		"do again": func() error { _, err := s.Do(e.Ctx, stagedOp("ended"), "ended"); return err },
		"go on":    func() error { _, err := s.Do(e.Ctx, stagedOp("waits"), "waits"); return err },
		"complete": func() error {
			done, err := s.Complete(e.Ctx)
			return errors.Join(append(done.Errs, err)...)
		},
		"lookup": func() error { _, err := s.Lookup(e.Ctx, stagedOp("ended")); return err },
		"start": func() error {
			tx := e.BeginTx(sql.LevelDefault)
			_, err := s.StartTx(e.Ctx, tx, stagedOp("new"), "new")
			if err == nil {
				e.EndTx(tx, false)
			}
			return err
		},
		"event": func() error {
			isNew, err := staged.HandleEvent(e.Ctx, store, event, nil)
			if isNew {
				e.Error("the event is new")
			}
			return err
		},
		"event by its key": func() error {
			_, err := staged.HandleEvent(e.Ctx, store, staged.ProviderEvent{ID: "1", ProviderKey: s.ProviderKey(ref("ended"), "pay"), Outcome: staged.StepReversed}, nil)
			return err
		},
		"show":       func() error { _, err := ops.Show(e.Ctx, ref("ended")); return err },
		"list":       func() error { _, err := core.First(1, ops.List(e.Ctx)); return err },
		"namespaces": func() error { _, err := ops.Namespaces(e.Ctx, operators.Filter{}, 10); return err },
		"resolve": func() error {
			return ops.Resolve(e.Ctx, ref("unknown"), operators.Resolution{Step: staged.StepDone, StepResult: "x"}, who())
		},
		"end": func() error {
			return ops.Resolve(e.Ctx, ref("unfinished"), operators.Resolution{Succeed: true, Result: "x"}, who())
		},
		"resume all": func() error { _, err := ops.ResumeAll(e.Ctx, operators.Filter{}, who()); return err },
		"erase":      func() error { return ops.Erase(e.Ctx, ref("ended"), who()) },
		"restore":    func() error { _, err := operators.AfterRestore(e.Ctx, e.DB, who()); return err },
	}
	before := e.rows(ledgerTables...)
	pays, asked := f.provider.counts()
	effects := e.Int(`SELECT COUNT(*) FROM effects`)
	for table, needed := range map[string][]string{
		"staged": {"do", "do again", "go on", "complete", "lookup", "start", "event", "event by its key", "show", "list", "namespaces", "resolve", "end", "resume all", "erase", "restore"},
		"steps":  {"event", "event by its key", "show", "resolve", "erase"}, "provider_events": {"event", "event by its key", "show", "erase"},
		"interventions": {"show", "resolve", "end", "resume all", "erase"}, "audit": {"resolve", "end", "resume all", "erase", "restore"},
		"floor": {"do", "start", "restore"}, "tickets": {"restore"}, "waiters": {"restore"}, "locks": {"restore"},
	} {
		e.Must(`ALTER TABLE holdfast_` + table + ` RENAME TO holdfast_away`)
		for _, name := range needed {
			if calls[name]() == nil {
				e.Errorf("%s without %s: no error", name, table)
			}
		}
		e.Must(`ALTER TABLE holdfast_away RENAME TO holdfast_` + table)
		rowdiff.Check(e, "without "+table, before, e.rows(ledgerTables...), nil, rowdiff.Clock{})
	}
	f.provider.want(e, pays, asked)
	if n := e.Int(`SELECT COUNT(*) FROM effects`); n != effects {
		e.Errorf("%d effects, there were %d", n, effects)
	}
}

// stagedUnstored takes the tables away within a call that is paid for, and brings them back later. Its answer
// cannot be stored, so it is unknown: the worker does not claim success, and the money moves once.
func stagedUnstored[Tx any](e *env[Tx]) {
	for _, table := range []string{"staged", "steps"} {
		for mode, outside := range map[string]staged.ExternalCall[string]{
			"park": {}, "take over": {OnLeaseEnd: staged.TakeOver}, "reconcile": {Reconcile: func(_ context.Context, key string) (string, error) { return "found " + key, nil }},
		} {
			for answer, err := range map[string]error{"paid": nil, "refused": idempotency.Reject("refused", ""), "accepted": staged.Accepted("re_1", 1<<40), "not done": staged.NotDone(errTimeout), "lost": errTimeout} {
				key := fmt.Sprint(table, " ", mode, " ", answer)
				f, s := e.stagedRefunds(0)
				f.outside = outside
				f.call = func(_ context.Context, key string) (string, error) {
					if f.runs.Load() > 1 {
						return f.provider.pay(key), nil
					}
					if answer == "paid" || answer == "lost" {
						f.provider.pay(key)
					}
					e.Must(`ALTER TABLE holdfast_` + table + ` RENAME TO holdfast_away`)
					return "", err
				}
				_, got := s.Do(e.Ctx, stagedOp(key), key)
				e.Must(`ALTER TABLE holdfast_away RENAME TO holdfast_` + table)
				var rej *idempotency.Rejection
				if got == nil || errors.As(got, &rej) {
					e.Errorf("%s: %v, though nothing could be stored", key, got)
				}
				e.Must(`UPDATE holdfast_staged SET due_at = 0 WHERE state = 1`)
				_, got = s.Do(e.Ctx, stagedOp(key), key)
				payments, calls := 1, 1
				switch {
				case mode == "park":
					if !errors.Is(got, idempotency.ErrUnknown) {
						e.Errorf("%s: then %v", key, got)
					}
					if answer != "paid" && answer != "lost" {
						payments, calls = 0, 0
					}
				case mode == "take over" && (answer == "paid" || answer == "lost"):
					calls = 2
				case mode == "reconcile" && answer != "paid" && answer != "lost":
					payments, calls = 0, 0
				}
				if mode != "park" && got != nil {
					e.Errorf("%s: then %v", key, got)
				}
				f.provider.want(e, payments, calls)
				if e.Failed() {
					e.Fatal(key)
				}
			}
		}
	}
}
