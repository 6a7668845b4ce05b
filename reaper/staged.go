package reaper

import (
	"context"
	"strings"

	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/dialect"
)

// staged is a task on staged operations that have ended, with their steps and events.
type staged struct {
	records
	lock  listStmt
	parts []listStmt
}

func newStaged(label string, table func(string) string, d *dialect.Dialect, t dialect.SweepStaged) *staged {
	text := strings.NewReplacer("{staged}", table("staged"), "{steps}", table("steps"), "{provider_events}", table("provider_events")).Replace
	stmt := func(name, s string) listStmt {
		return listStmt{dialect: d, name: "sweep." + label + "." + name, text: text(s), group: t.Group}
	}
	s := &staged{
		records: records{
			label: label, at: table("staged"), write: stmt("write", t.Write),
			total: d.Compile("sweep."+label+".count", text(t.Count)), list: d.Compile("sweep."+label+".find", text(t.Find)),
		},
		lock: stmt("lock", t.Lock),
	}
	for _, part := range t.Parts {
		s.parts = append(s.parts, stmt("parts", part))
	}
	return s
}

// clear locks the operations first, so that no event arrives for one that goes.
func (t *staged) clear(ctx context.Context, q core.Querier, cutoff int64, found []row) (int64, error) {
	locked, err := t.lock.query(ctx, q, found, cutoff)
	if err != nil {
		return 0, err
	}
	due, err := scan(locked, func(f *row) []any { return []any{&f.owner, &f.key} })
	if err != nil || len(due) == 0 {
		return 0, err
	}
	for _, part := range t.parts {
		if _, err := part.exec(ctx, q, due); err != nil {
			return 0, err
		}
	}
	return t.write.exec(ctx, q, due)
}
