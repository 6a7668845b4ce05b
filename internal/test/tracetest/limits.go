package tracetest

import (
	"database/sql"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/limits"
)

func (w *world) limits() {
	l, err := limits.New(w.ctx, w.kit.DB, "refunds")
	w.want(err, nil)
	l = l.For(Secret)
	ask := func(id string, amount int64) limits.Request {
		return limits.Request{Key: Secret, ID: Secret + id, Amount: amount, Timeout: time.Hour}
	}
	_, err = l.Get(w.ctx, Secret)
	w.want(err, limits.ErrNotFound)
	_, err = l.Set(w.ctx, Secret, 100)
	w.want(err, nil)
	_, err = l.Reserve(w.ctx, ask("1", 60))
	w.want(err, nil)
	_, err = l.Reserve(w.ctx, ask("1", 60))
	w.want(err, nil)
	_, err = l.Reserve(w.ctx, ask("1", 61))
	w.want(err, limits.ErrMismatch)
	_, err = l.Take(w.ctx, ask("2", 60))
	w.want(err, limits.ErrExceeded)
	_, err = l.Set(w.ctx, Secret, 50)
	w.want(err, limits.ErrExceeded)
	_, err = l.Take(w.ctx, ask("2", 0))
	w.want(err, holdfast.ErrInvalid)
	_, err = l.Capture(w.ctx, ask("1", 50))
	w.want(err, nil)
	_, err = l.Void(w.ctx, ask("1", 0))
	w.want(err, limits.ErrCaptured)
	_, err = l.Take(w.ctx, ask("3", 1))
	w.want(err, nil)
	w.in(func(tx *sql.Tx) {
		_, err := l.SetTx(w.ctx, tx, Secret, 200)
		w.want(err, nil)
		_, err = l.TakeTx(w.ctx, tx, ask("4", 1))
		w.want(err, nil)
		_, err = l.ReserveTx(w.ctx, tx, ask("5", 1))
		w.want(err, nil)
		_, err = l.VoidTx(w.ctx, tx, ask("5", 0))
		w.want(err, nil)
		_, err = l.CaptureTx(w.ctx, tx, ask("5", 0))
		w.want(err, limits.ErrVoided)
	})
	_, err = l.Reserve(w.ctx, ask("6", 1))
	w.want(err, nil)
	_, err = l.Void(w.ctx, ask("6", 0))
	w.want(err, nil)
	_, err = l.Entry(w.ctx, Secret+"6")
	w.want(err, nil)
	_, err = core.First(1, l.Entries(w.ctx, Secret))
	w.want(err, nil)
	_, err = l.Expire(w.ctx, Secret)
	w.want(err, nil)
	_, err = l.Get(w.ctx, Secret)
	w.want(err, nil)
	_, err = l.Erase(w.ctx, holdfast.Actor{By: "olga", Reason: "asked"})
	w.want(err, nil)
}
