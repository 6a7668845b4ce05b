package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strconv"
	"sync"
	"time"

	_ "modernc.org/sqlite" // the service's database

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/adapters/holdfastsql"
	"github.com/holdfast-go/holdfast/holdfastotel"
	"github.com/holdfast-go/holdfast/holdfastslog"
	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/migrations"
	"github.com/holdfast-go/holdfast/reaper"
	"github.com/holdfast-go/holdfast/sqllock"
)

// service books each refund once.
type service struct {
	pool    *sql.DB
	db      *holdfast.DB[*sql.Tx]
	refunds *idempotency.Store[*sql.Tx]
	locks   *sqllock.Locker[*sql.Tx]
	reaper  *reaper.Reaper
	unwatch func() error // ends the gauges of what waits
}

func open(ctx context.Context, path string, tele *telemetry) (s *service, err error) {
	s = &service{}
	if s.pool, err = sql.Open("sqlite", "file:"+path+"?_pragma=journal_mode(WAL)&_pragma=busy_timeout(5000)"); err != nil {
		return nil, err
	}
	if err := s.prepare(ctx, tele); err != nil {
		return nil, errors.Join(err, s.pool.Close())
	}
	return s, nil
}

func (s *service) prepare(ctx context.Context, tele *telemetry) (err error) {
	if err := migrations.Up(ctx, s.pool); err != nil {
		return err
	}
	if _, err := s.pool.ExecContext(ctx, `CREATE TABLE IF NOT EXISTS refunds (order_no TEXT NOT NULL, cents INTEGER NOT NULL)`); err != nil {
		return err
	}
	s.db, err = holdfastsql.Open(ctx, s.pool, holdfast.Options{SingleOwner: true, Tracers: []holdfast.Tracer{tele.tracer, holdfastslog.New(nil)}})
	if err != nil {
		return err
	}
	if s.refunds, err = idempotency.New(ctx, s.db); err != nil {
		return err
	}
	if s.locks, err = sqllock.New(ctx, s.db); err != nil {
		return err
	}
	if s.reaper, err = reaper.New(ctx, s.db); err != nil {
		return err
	}
	s.unwatch, err = holdfastotel.ObserveBacklog(s.db, holdfastotel.Options{MeterProvider: tele.meters})
	return err
}

func (s *service) close(ctx context.Context) {
	ctx = context.WithoutCancel(ctx) // ctx has ended
	if err := s.locks.Close(ctx); err != nil {
		slog.ErrorContext(ctx, "closing", "error", err)
	}
	_, _ = s.unwatch(), s.pool.Close()
}

// start runs the background work until the returned function is called.
func (s *service) start(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	running.Go(func() { _ = s.reaper.Run(ctx) }) // it ends with ctx
	running.Go(func() {
		for ctx.Err() == nil {
			_ = s.locks.Do(ctx, "settlement", s.settle) // the metrics show the result
		}
	})
	return func() { cancel(); running.Wait() }
}

// settle stands for work that only one process does at a time.
func (*service) settle(_ context.Context, lease *sqllock.Lease) error {
	select {
	case <-lease.Context().Done():
	case <-time.After(time.Second):
	}
	return nil
}

// refund answers POST /refund?order=42&cents=1250.
func (s *service) refund(w http.ResponseWriter, r *http.Request) {
	order := r.FormValue("order")
	cents, err := strconv.ParseInt(r.FormValue("cents"), 10, 64)
	if err != nil || cents <= 0 || order == "" {
		http.Error(w, "give an order, and cents above zero", http.StatusBadRequest)
		return
	}
	res, err := s.book(r.Context(), order, cents)
	if err != nil {
		http.Error(w, "not booked, or not known: ask again", http.StatusServiceUnavailable)
		return
	}
	fmt.Fprintf(w, "%v: %s\n", res.Outcome, res.Value)
}

func (s *service) book(ctx context.Context, order string, cents int64) (idempotency.Result[string], error) {
	op := idempotency.Op{Name: "refund", Key: idempotency.KeyOf(order, "1"), Request: cents}
	return idempotency.Do(ctx, s.refunds, op, func(ctx context.Context, tx *sql.Tx) (string, error) {
		_, err := tx.ExecContext(ctx, `INSERT INTO refunds VALUES (?, ?)`, order, cents)
		return fmt.Sprintf("refund of %d cents", cents), err
	})
}
