package holdfast

import (
	"context"

	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/dialect"
)

// single makes each write on a connection its own transaction, where the dialect wants that:
// see dialect.Dialect.Single. After an error that leaves the setting changed, spoiled is true, and
// the connection must be closed.
type single struct {
	core.Querier
	setting dialect.Setting
	spoiled bool
}

func (s *single) Exec(ctx context.Context, query string, args ...any) (r core.Result, err error) {
	s.spoiled = true
	undo, err := s.setting.Change(ctx, s.Querier, 0)
	if err != nil {
		return r, err
	}
	r, err = s.Querier.Exec(ctx, query, args...)
	cleanup, cancel := core.Cleanup(ctx)
	defer cancel()
	_, e := undo.Exec(cleanup, s.Querier) // after an error of the write it commits nothing
	s.spoiled = e != nil
	if err == nil {
		err = e
	}
	return r, err
}
