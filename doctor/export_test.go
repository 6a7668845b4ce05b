package doctor

import (
	"context"
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast"
)

// Clock compares clocks as if the database's were ahead by shift.
func Clock[Tx any](ctx context.Context, db *holdfast.DB[Tx], shift, most time.Duration) ([]Finding, error) {
	a := db.Access()
	d := *a.Dialect
	d.Now = fmt.Sprintf("(%s + %d)", d.Now, shift.Microseconds())
	p := &patient{dialect: &d, table: a.Table, pool: a.Pool}
	err := p.clock(ctx, most)
	return p.found, err
}

// Pooler looks for one where sessions are told apart by a statement.
func Pooler[Tx any](ctx context.Context, db *holdfast.DB[Tx], session string) ([]Finding, error) {
	a := db.Access()
	d := *a.Dialect
	d.Doctor.Session = session
	p := &patient{dialect: &d, table: a.Table, pool: a.Pool}
	err := pooler(ctx, p, a)
	return p.found, err
}
