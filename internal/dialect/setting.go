package dialect

import (
	"context"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/internal/core"
)

// Setting is a temporary session setting. Before changes it and After restores it. If the
// engine does not keep the old value, Remember reads it and After contains it as {was}.
type Setting struct {
	Remember string
	Before   func(lockTimeout time.Duration) string
	After    string
	// Local: the statements cannot wait, so they need no context that ends. Some drivers start a
	// goroutine for each statement with one.
	Local bool
}

// Change applies the setting on q. It returns the statement that restores it, empty if nothing
// was changed.
func (s Setting) Change(ctx context.Context, q core.Querier, lockTimeout time.Duration) (undo core.Stmt, err error) {
	if s.Before == nil {
		return core.Stmt{}, nil
	}
	if s.Local {
		ctx = context.WithoutCancel(ctx)
	}
	was := ""
	if s.Remember != "" {
		if _, err := (core.Stmt{Name: "remember", Text: s.Remember}).QueryRow(ctx, q, []any{&was}); err != nil {
			return core.Stmt{}, err
		}
	}
	if _, err := (core.Stmt{Name: "set", Text: s.Before(lockTimeout)}).Exec(ctx, q); err != nil {
		return core.Stmt{}, err
	}
	return core.Stmt{Name: "unset", Text: strings.ReplaceAll(s.After, "{was}", was)}, nil
}

// During runs f while the setting is applied on q. It restores the setting even if ctx has ended.
// If f succeeds, During returns the error of the restoring.
func (s Setting) During(ctx context.Context, q core.Querier, lockTimeout time.Duration, f func() error) error {
	undo, err := s.Change(ctx, q, lockTimeout)
	if err != nil {
		return err
	}
	err = f()
	if undo.Text == "" {
		return err
	}
	if e := s.undo(ctx, q, undo); err == nil {
		err = e
	}
	return err
}

func (s Setting) undo(ctx context.Context, q core.Querier, undo core.Stmt) error {
	if s.Local {
		_, err := undo.Exec(context.WithoutCancel(ctx), q)
		return err
	}
	ctx, cancel := core.Cleanup(ctx)
	defer cancel()
	_, err := undo.Exec(ctx, q)
	return err
}
