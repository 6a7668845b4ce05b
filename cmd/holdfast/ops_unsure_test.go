package main

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/idempotency/operators"
	"github.com/holdfast-go/holdfast/idempotency/staged"
	"github.com/holdfast-go/holdfast/limits"
)

// TestOpsUnsure parks an operation that has reserved an amount. To reject it without --yes changes nothing,
// and says what would not run and what would stay reserved.
func TestOpsUnsure(t *testing.T) {
	onEveryEngine(t, func(o operator) {
		orders, err := limits.New(o.Ctx, o.DB, "refunds")
		o.Check(err)
		shop := orders.For("shop")
		_, err = shop.Set(o.Ctx, "order-42", 10_000)
		o.Check(err)
		_, err = shop.Reserve(o.Ctx, limits.Request{Key: "order-42", ID: "earlier", Amount: 1})
		o.Check(err)
		time.Sleep(10 * time.Millisecond) // the reservation of an earlier operation is of an earlier time
		store, err := idempotency.New(o.Ctx, o.DB)
		o.Check(err)
		runner, err := staged.New(store, staged.Workflow[int, string, *sql.Tx]{
			Name: "refund",
			Run: func(ctx context.Context, r *staged.Run[*sql.Tx], _ int) (string, error) {
				if _, err := staged.Local(ctx, r, "reserve", func(ctx context.Context, tx *sql.Tx) (bool, error) {
					_, err := shop.ReserveTx(ctx, tx, limits.Request{Key: "order-42", ID: "refund-1", Amount: 4_000})
					return true, err
				}); err != nil {
					return "", err
				}
				return staged.Call(ctx, r, staged.ExternalCall[string]{Step: "pay"}, func(context.Context, string) (string, error) {
					return "", errors.New("the line is dead")
				})
			},
		})
		o.Check(err)
		if _, err := runner.Do(o.Ctx, idempotency.Op{Owner: "shop", Key: "1"}, 1); !errors.Is(err, idempotency.ErrUnknown) {
			o.Fatal(err)
		}
		which := []string{"--owner", "shop", "--name", "refund", "--key", "1"}
		resolve := append([]string{"ops", "resolve", "--by", "ada", "--reason", "written off"}, which...)
		for as, wants := range map[string][]string{
			"rejected":      {"nothing was done yet", "None of its steps runs any more", "The step reserve was done, and stays done", "4000 of the limit order-42 of refunds (reservation refund-1", "--as step-rejected", "add --yes"},
			"succeeded":     {"None of its steps runs any more", "4000 of the limit order-42"},
			"step-not-done": {"it happens twice", "The step pay is begun: provider key "},
		} {
			args := append(slices.Clone(resolve), "--as", as)
			switch as {
			case "rejected":
				args = append(args, "--code", "lost")
			case "succeeded":
				args = append(args, "--result", `"x"`)
			}
			for _, want := range wants {
				o.misused(want, args...)
			}
			if _, _, said := o.run(args...); strings.Contains(said, "earlier") {
				o.Errorf("%s: %s", as, said)
			}
		}
		if out := o.ok(append([]string{"ops", "show"}, which...)...); !strings.Contains(out, "unknown") {
			o.Error(out)
		}
		if out := o.ok(append(resolve, "--as", "rejected", "--code", "lost", "--yes")...); out != "rejected\n" {
			o.Error(out)
		}
		// What is not possible says so, even after a confirmation.
		o.fails("only what is unknown", append(resolve, "--as", "rejected", "--code", "lost")...)
	})
}

// TestOpsResume resumes operations whose attempts were used up, many at once, after a look at them.
func TestOpsResume(t *testing.T) {
	onEveryEngine(t, func(o operator) {
		away := true
		store, err := idempotency.New(o.Ctx, o.DB)
		o.Check(err)
		runner, err := staged.New(store, staged.Workflow[int, string, *sql.Tx]{
			Name: "payout", MaxAttempts: 1,
			Run: func(ctx context.Context, r *staged.Run[*sql.Tx], _ int) (string, error) {
				if away {
					return "", errors.New("the database is overloaded")
				}
				return staged.Call(ctx, r, staged.ExternalCall[string]{Step: "pay"}, func(context.Context, string) (string, error) {
					return "", errors.New("the line is dead")
				})
			},
		})
		o.Check(err)
		do := func(key string) {
			if _, err := runner.Do(o.Ctx, idempotency.Op{Owner: "shop", Key: key}, 1); !errors.Is(err, idempotency.ErrUnknown) {
				o.Errorf("%s: %v", key, err)
			}
		}
		for _, key := range []string{"1", "2", "3"} {
			do(key)
		}
		away = false
		do("parked at a step")
		resume := []string{"ops", "resume", "--by", "ada", "--reason", "the database is back"}
		if out := o.ok("ops", "resume", "--by", "ada", "--reason", "x", "--because", "no such text"); out != "no unknown operations\n" {
			o.Error(out)
		}
		out := o.ok(append(resume, "--because", "overloaded")...)
		if strings.Count(out, "would be resumed") != 3 || !strings.Contains(out, "add --yes") || strings.Contains(out, "skipped") {
			o.Error(out)
		}
		var dry, done struct {
			Done             bool
			Resumed, Skipped []operation
			After            string
		}
		o.json(&dry, append(resume, "--limit", "2")...)
		if dry.Done || len(dry.Resumed)+len(dry.Skipped) != 2 || dry.After == "" {
			o.Errorf("%+v", dry)
		}
		if n := o.Int(`SELECT COUNT(*) FROM holdfast_staged WHERE state = 6`); n != 4 {
			o.Errorf("%d are parked", n)
		}
		o.json(&done, append(resume, "--yes")...)
		if !done.Done || len(done.Resumed) != 3 || len(done.Skipped) != 1 || done.Skipped[0].Step != "pay" || done.After != "" {
			o.Errorf("%+v", done)
		}
		if n := o.Int(`SELECT COUNT(*) FROM holdfast_staged WHERE state = 1`); n != 3 {
			o.Errorf("%d go on", n)
		}
		if n := o.Int(`SELECT COUNT(*) FROM holdfast_interventions WHERE action = 'resume' AND by_whom = 'ada'`); n != 3 {
			o.Errorf("%d interventions", n)
		}
		o.misused("required", "ops", "resume")
		o.misused("--after", append(resume, "--after", "x")...)
	})
}

// TestIntervened checks that a change which was made is not said to have failed because the operation cannot be read
// afterwards: who is told so repeats it.
func TestIntervened(t *testing.T) {
	onEveryEngine(t, func(o operator) {
		store, err := idempotency.New(o.Ctx, o.DB)
		o.Check(err)
		ctx, cancel := context.WithCancel(o.Ctx)
		cancel()
		for said, want := range map[string]string{"": "done", "cancelled": "cancelled"} {
			var out, errs strings.Builder
			cmd := &cobra.Command{}
			cmd.SetOut(&out)
			cmd.SetErr(&errs)
			err := (&opsFlags{flags: &flags{}}).intervened(ctx, cmd, operators.New(store), staged.Ref{Name: "refund", Key: "1"}, said)
			if err != nil || !strings.Contains(out.String(), want) || !strings.Contains(errs.String(), "it was done") {
				o.Errorf("%q: %v, %q, %q", said, err, out.String(), errs.String())
			}
		}
	})
}
