// Package enforce creates, checks and removes triggers on the program's own tables.
package enforce

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast/internal/access"
	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/dialect"
)

// Attempts is how often Install and Remove try while the table is locked, and wait for how long
// each of them waits. Other sessions queue behind it.
const (
	Attempts = 10
	wait     = time.Second
)

// Triggers are triggers on one table that belong together.
type Triggers[Tx any] struct {
	Access access.Access[Tx]
	// Retryable reports whether a transaction that failed with an error may run again.
	Retryable func(err error) bool
	Each      []dialect.Trigger
}

// ProblemError says why triggers do not work.
type ProblemError struct {
	// Trigger is the name of the trigger, and Text says what was found and what to do.
	Trigger, Text string
	// Err is the driver's error; nil if the catalog showed the problem.
	Err error

	exists map[string]bool // triggers of these names exist
}

func (p *ProblemError) Error() string { return p.Text }

func (p *ProblemError) Unwrap() error { return p.Err }

// LockedError means that the table was locked all the time.
type LockedError struct{ Err error }

func (e *LockedError) Error() string { return e.Err.Error() }

func (e *LockedError) Unwrap() error { return e.Err }

// Name returns the name of a trigger on a table, short enough for every engine.
func Name(what, table string) string {
	sum := sha256.Sum256([]byte(table))
	return "holdfast_" + what + "_" + hex.EncodeToString(sum[:8])
}

// SQL returns the statements that create triggers, and replace those of the same names.
func SQL(d *dialect.Dialect, triggers []dialect.Trigger) (all []string) {
	for _, t := range triggers {
		all = append(all, d.Enforce.Create(t, true)...)
	}
	return all
}

// Check returns a *ProblemError if a trigger is not there, or is not the one that is wanted.
func (s Triggers[Tx]) Check(ctx context.Context) error {
	var first *ProblemError
	exists := map[string]bool{}
	for _, t := range s.Each {
		found, problem, err := s.check(ctx, t)
		if err != nil {
			return fmt.Errorf("reading about its triggers: %w", err)
		}
		exists[t.Name] = found
		if problem != "" && first == nil {
			first = &ProblemError{Trigger: t.Name, Text: problem, exists: exists}
		}
	}
	if first == nil {
		return nil
	}
	return first
}

func (s Triggers[Tx]) check(ctx context.Context, t dialect.Trigger) (found bool, problem string, err error) {
	d := s.Access.Dialect
	var enabled int
	var shape, body string
	found, err = d.Compile("enforce.find", d.Enforce.Find).QueryRow(ctx, s.Access.Pool, []any{&enabled, &shape, &body}, t.Schema, t.Table, t.Name)
	switch {
	case err != nil:
	case !found || body == "": // MariaDB shows no text without the privilege TRIGGER
		problem = "the trigger does not exist, or this user may not see it: call Enforce"
	case enabled == 0:
		problem = "the trigger is disabled: call Enforce, or ALTER TABLE … ENABLE TRIGGER"
	case shape != d.Enforce.Shape(t) || body != t.Body:
		problem = "the trigger is not the one that this version of Holdfast creates: call Enforce to replace it"
	}
	return found, problem, err
}

// Install creates the triggers, unless they are there.
func (s Triggers[Tx]) Install(ctx context.Context) error {
	return s.ddl(ctx, func(bool) (statements []string, err error) {
		err = s.Check(ctx)
		var problem *ProblemError
		if !errors.As(err, &problem) {
			return nil, err
		}
		for _, t := range s.Each {
			statements = append(statements, s.Access.Dialect.Enforce.Create(t, problem.exists[t.Name])...)
		}
		return statements, problem
	})
}

// Remove drops the triggers, if they are there.
func (s Triggers[Tx]) Remove(ctx context.Context) error {
	return s.ddl(ctx, func(done bool) (statements []string, err error) {
		for _, t := range s.Each {
			if !done {
				statements = append(statements, s.Access.Dialect.Enforce.Remove(t)...)
			}
		}
		return statements, nil
	})
}

// ddl runs the statements that next returns, until it returns none, and then returns its error. done
// tells next whether its last statements succeeded.
func (s Triggers[Tx]) ddl(ctx context.Context, next func(done bool) ([]string, error)) error {
	pause := core.NewBackoff()
	var err error
	for n := 1; ; n++ {
		statements, end := next(n > 1 && err == nil)
		if len(statements) == 0 {
			return end
		}
		// Two processes that create the same trigger at once get errors of many
		// kinds. The next check finds the trigger.
		switch again := err == nil || s.Retryable(err); {
		case err == nil && n > 3: // the catalog does not show what was created
			return end
		case again && n > Attempts:
			return &LockedError{err}
		case !again && n > 3:
			return fmt.Errorf("creating or dropping its triggers: %w", err)
		}
		if err = s.run(ctx, statements); err == nil {
			continue
		}
		if ctx.Err() != nil {
			return fmt.Errorf("%w: %w", context.Cause(ctx), err)
		}
		if text := s.Access.Dialect.Enforce.Denied(err); text != "" {
			return &ProblemError{Trigger: s.Each[0].Name, Text: text, Err: err}
		}
		if err := pause.Sleep(ctx); err != nil {
			return err
		}
	}
}

func (s Triggers[Tx]) run(ctx context.Context, statements []string) error {
	inTx := func(f func(q core.Querier) error) error {
		return s.Access.Attempt(ctx, core.TxOptions{LockTimeout: wait}, nil, func(_ context.Context, _ Tx, q core.Querier, _ core.Reply) error { return f(q) })
	}
	return s.Access.Dialect.RunDDL(ctx, statements, inTx, s.Access.OnConn)
}
