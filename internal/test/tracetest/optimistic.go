package tracetest

import (
	"context"
	"database/sql"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/access"
	"github.com/holdfast-go/holdfast/optimistic"
	"github.com/holdfast-go/holdfast/optimistic/register"
	"github.com/holdfast-go/holdfast/reaper"
)

type account struct {
	ID      string `db:"id"`
	Cents   int64  `db:"cents"`
	Version int64  `db:"version"`
}

func (w *world) versions() {
	table, err := optimistic.New[account, *sql.Tx](w.ctx, w.kit.DB, holdfast.TableSpec{Table: "accounts", Key: []string{"id"}})
	w.want(err, nil)
	old, err := table.Insert(w.ctx, account{ID: Secret})
	w.want(err, nil)
	_, err = table.Insert(w.ctx, account{ID: Secret})
	w.want(err, optimistic.ErrDuplicate)
	_, err = table.Update(w.ctx, old)
	w.want(err, nil)
	_, err = table.Update(w.ctx, old)
	w.want(err, optimistic.ErrConflict)
	w.want(optimistic.Retry(w.ctx, w.kit.DB, func(ctx context.Context, tx *sql.Tx) error {
		_, err := table.UpdateTx(ctx, tx, old) // it is not read again
		return err
	}, optimistic.RetryOptions{Attempts: 2}), holdfast.ErrRetry)
	now, err := table.Get(w.ctx, old)
	w.want(err, nil)
	w.in(func(tx *sql.Tx) {
		_, err := table.GetTx(w.ctx, tx, now)
		w.want(err, nil)
		other, err := table.InsertTx(w.ctx, tx, account{ID: Secret + "2"})
		w.want(err, nil)
		w.want(table.DeleteTx(w.ctx, tx, other), nil)
	})
	w.want(table.Delete(w.ctx, now), nil)
	_, err = table.Get(w.ctx, now)
	w.want(err, optimistic.ErrNotFound)
}

func (w *world) registers() {
	r, err := register.New(w.ctx, w.kit.DB)
	w.want(err, nil)
	e, err := r.Create(w.ctx, Secret, []byte(Secret))
	w.want(err, nil)
	_, err = r.Create(w.ctx, Secret, nil)
	w.want(err, optimistic.ErrConflict)
	_, err = r.Get(w.ctx, Secret)
	w.want(err, nil)
	e, err = r.CompareAndSwap(w.ctx, Secret, e.Revision, []byte(Secret))
	w.want(err, nil)
	w.in(func(tx *sql.Tx) {
		_, err := r.GetTx(w.ctx, tx, Secret)
		w.want(err, nil)
		e, err = r.CompareAndSwapTx(w.ctx, tx, Secret, e.Revision, []byte(Secret))
		w.want(err, nil)
		e, err = r.DeleteTx(w.ctx, tx, Secret, e.Revision)
		w.want(err, nil)
		e, err = r.CreateTx(w.ctx, tx, Secret, []byte(Secret))
		w.want(err, nil)
	})
	_, err = r.Delete(w.ctx, Secret, e.Revision)
	w.want(err, nil)
}

func (w *world) reaper() {
	_, err := w.kit.Pool.ExecContext(w.ctx, `UPDATE `+access.Of(w.kit.DB).Table("records")+` SET result_expires_at = 1, key_expires_at = 2`)
	w.want(err, nil)
	r, err := reaper.New(w.ctx, w.kit.DB)
	w.want(err, nil)
	report, err := r.Sweep(w.ctx)
	w.want(err, nil)
	if report.Rows() == 0 {
		w.Fatalf("%+v", report)
	}
}
