package doctor

import (
	"context"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/access"
)

// Clock compares the clocks as if the process's clock were ahead by shift.
func Clock[Tx any](ctx context.Context, db *holdfast.DB[Tx], shift, most time.Duration) ([]Finding, error) {
	a := access.Of(db)
	p := &patient{dialect: a.Dialect, table: a.Table, pool: a.Pool, now: func() time.Time { return time.Now().Add(shift) }}
	err := p.clock(ctx, most)
	return p.found, err
}

// Pooler looks for a pooler; the result of the statement session identifies a session.
func Pooler[Tx any](ctx context.Context, db *holdfast.DB[Tx], session string) ([]Finding, error) {
	a := access.Of(db)
	d := *a.Dialect
	d.Doctor.Session = session
	p := &patient{dialect: &d, table: a.Table, pool: a.Pool}
	err := pooler(ctx, p, a)
	return p.found, err
}
