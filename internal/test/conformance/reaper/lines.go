package reaper

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/access"
	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/test/conformance"
	"github.com/holdfast-go/holdfast/reaper"
	"github.com/holdfast-go/holdfast/sqllock"
	"github.com/holdfast-go/holdfast/sqllock/fairlock"
)

// Lines is the suite of the reaper on waiters and on tickets in queues.
func Lines[Tx any](t *testing.T, h conformance.Handle[Tx]) {
	for name, f := range map[string]func(*env[Tx]){
		"WaitersAndClaims":          sweepWaitersAndClaims[Tx],
		"GuardedClaimIsPassedOver":  guardedClaimIsPassedOver[Tx],
		"RenewedWaiterIsLeftAlone":  renewedWaiter[Tx],
		"LineGoesOnBesideTheReaper": lineBesideReaper[Tx],
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run(t, h, f)
		})
	}
}

func (e *env[Tx]) plantWaiters(name string, n, expires int) {
	e.Helper()
	var rows []string
	for i := range n {
		waiter := make([]byte, 16)
		waiter[0], waiter[15] = byte(i/256), byte(i%256)
		rows = append(rows, fmt.Sprintf(`('%s', %s, %s, 'holder', 1, %d)`, conformance.OwnerOf(i), e.Blob([]byte(name)), e.Blob(waiter), expires))
	}
	e.Must(`INSERT INTO holdfast_waiters (owner, name, waiter, holder, waiting, expires_at) VALUES ` + strings.Join(rows, ", "))
}

func (e *env[Tx]) plantTickets(name string, n, from, expires int) {
	e.Helper()
	var rows []string
	for i := range n {
		attempt := fmt.Appendf(nil, "%-16s", fmt.Sprint(name, i))[:16]
		rows = append(rows, fmt.Sprintf(`('%s', %s, %d, %s, 1, 1, 'holder', 1, NULL, %d)`, conformance.OwnerOf(i), e.Blob([]byte(name)), from+i, e.Blob(attempt), expires))
	}
	e.Must(`INSERT INTO holdfast_tickets (owner, name, token, attempt, units, capacity, holder, queued_at, granted_at, expires_at) VALUES ` + strings.Join(rows, ", "))
}

// sweepLines sweeps and fails unless it deleted exactly these numbers of rows.
func (e *env[Tx]) sweepLines(r *reaper.Reaper, waiters, claims int64) reaper.Report {
	e.Helper()
	report, err := r.Sweep(e.Ctx)
	if err != nil || len(report.Tasks) != conformance.SweepTasks || report.Tasks[3].Rows != waiters || report.Tasks[4].Rows != claims || report.Rows() != waiters+claims {
		e.Fatalf("swept %+v, %v, want %d waiters and %d tickets", report, err, waiters, claims)
	}
	return report
}

// sweepWaitersAndClaims checks the exact rows before and after now and the grace period, batches
// that end within a name, and the limit MaxRows.
func sweepWaitersAndClaims[Tx any](e *env[Tx]) {
	now := e.Now()
	e.plantWaiters("\x01dead", 25, now-1000)
	e.plantWaiters("\x01alive", 12, now+hour)
	e.plantWaiters("\x01\x00dead\xff", 3, now-hour)
	e.Must(`UPDATE holdfast_waiters SET expires_at = $1 WHERE owner = '' AND name = $2 AND waiter = $3`, now+hour, []byte("\x01dead"), make([]byte, 16))
	e.plantTickets("\x04dead", 25, 100, now-2*hour)
	e.plantTickets("\x04fresh", 5, 100, now-hour/2)
	e.plantTickets("\x04alive", 7, 100, now+hour)
	e.plantTickets("\x05dead", 2, 1, now-2*hour)
	o := quick(10)
	dry, err := e.Reaper(o).DryRun(e.Ctx)
	if err != nil || len(dry.Tasks) != conformance.SweepTasks || dry.Tasks[3].Rows != 27 || dry.Tasks[4].Rows != 27 || dry.Tasks[3].Oldest < time.Hour || dry.Tasks[4].Oldest < 2*time.Hour {
		e.Errorf("the dry run counted %+v, %v", dry, err)
	}
	o.MaxRows = 4
	if report := e.sweepLines(e.Reaper(o), 4, 0); len(report.Tasks) != conformance.SweepTasks || !report.More {
		e.Errorf("with a bound: %+v", report)
	}
	o.MaxRows = 0
	r := e.Reaper(o)
	report := e.sweepLines(r, 23, 27)
	if report.Tasks[3].Batches != 3 || report.Tasks[4].Batches != 3 || report.Tasks[3].Passed+report.Tasks[4].Passed != 0 {
		e.Errorf("report %+v", report)
	}
	if n := e.Int(`SELECT COUNT(*) FROM holdfast_waiters WHERE expires_at > $1`, now); n != 13 || e.Int(`SELECT COUNT(*) FROM holdfast_waiters`) != 13 {
		e.Errorf("%d waiters that live are left, want 13 and no others", n)
	}
	if n := e.Int(`SELECT COUNT(*) FROM holdfast_tickets WHERE expires_at > $1`, now-hour); n != 12 || e.Tickets() != 12 {
		e.Errorf("%d tickets are left, want 12 and no others", n)
	}
	e.sweepLines(r, 0, 0)
}

// guardedClaimIsPassedOver keeps open a transaction that guards an expired ticket. It delays no
// other session and keeps its ticket until it ends.
func guardedClaimIsPassedOver[Tx any](e *env[Tx]) {
	if !e.DB.Capabilities().RowLocks {
		return // the reaper waits for SQLite's writer in every batch
	}
	l := e.Locker()
	lease, err := fairlock.New(l).Acquire(e.Ctx, "key", sqllock.AcquireOptions{NoRenewal: true})
	e.Check(err)
	tx := e.BeginTx(sql.LevelReadCommitted)
	e.Check(l.Guard(e.Ctx, tx, lease.Term()))
	e.plantTickets("\x7fother", 3, 1, e.Now()-2*hour)
	r := e.Reaper(quick(10))
	e.sweepLines(r, 0, 3)
	e.Check(e.Effect(e.Ctx, tx, "k"))
	e.EndTx(tx, true)
	e.Check(lease.Release(e.Ctx))
	// The same for a row that expires while the guard holds it.
	e.plantTickets("\x04guarded", 2, 1, e.Now()-2*hour)
	tx = e.BeginTx(sql.LevelReadCommitted)
	q, err := access.Of(e.DB).Join(tx)
	e.Check(err)
	var token int
	if found, err := core.QueryRow(e.Ctx, q, []any{&token}, `SELECT token FROM holdfast_tickets WHERE owner = '' AND name = `+e.Blob([]byte("\x04guarded"))+` AND token = 1 FOR UPDATE`); err != nil || !found {
		e.Fatalf("locking: %v, %v", found, err)
	}
	report := e.sweepLines(r, 0, 1)
	if report.Tasks[4].Passed != 1 || e.Int(`SELECT token FROM holdfast_tickets`) != 1 {
		e.Errorf("report %+v", report)
	}
	e.EndTx(tx, true)
	e.sweepLines(r, 0, 1)
}

// renewedWaiter renews a waiter between the reaper's read and its write.
func renewedWaiter[Tx any](e *env[Tx]) {
	e.plantWaiters("\x01key", 3, e.Now()-1000)
	e.plantTickets("\x04key", 3, 1, e.Now()-2*hour)
	later := e.Now() + hour
	seen := &statements{then: func(s holdfast.Statement, _ int) {
		switch s.Name {
		case "sweep.waiters.find":
			waiter := make([]byte, 16)
			waiter[15] = 1
			e.Must(`UPDATE holdfast_waiters SET expires_at = $1 WHERE waiter = $2`, later, waiter)
		case "sweep.tickets.find":
			e.Must(`UPDATE holdfast_tickets SET expires_at = $1 WHERE token = 2`, later)
		}
	}}
	report := e.sweepLines(e.Reaper(reaper.Options{}, seen.observe()), 2, 2)
	if report.Tasks[3].Passed != 1 || report.Tasks[4].Passed != 1 || e.Int(`SELECT COUNT(*) FROM holdfast_waiters`) != 1 || e.Int(`SELECT token FROM holdfast_tickets`) != 2 {
		e.Errorf("report %+v", report)
	}
}

// lineBesideReaper checks that a queue progresses while a reaper sweeps all the time, and that
// the reaper deletes no live ticket.
func lineBesideReaper[Tx any](e *env[Tx]) {
	lockers := e.Lockers(3, sqllock.Options{})
	e.plantTickets("\x7fdead", 200, 1, e.Now()-2*hour)
	e.plantWaiters("\x01dead", 200, e.Now()-1000)
	r := e.Reaper(quick(7))
	stop, swept := make(chan struct{}), make(chan int64)
	go func() {
		var n int64
		for {
			select {
			case <-stop:
				swept <- n
				return
			default:
			}
			report, err := r.Sweep(e.Ctx)
			if err != nil {
				e.Error(err)
			}
			n += report.Rows()
		}
	}()
	granted := make(chan error)
	for i := range 12 {
		go func() {
			lease, err := fairlock.New(lockers[i%3]).Acquire(e.Ctx, "key")
			if err == nil {
				err = e.DB.InTx(e.Ctx, func(ctx context.Context, tx Tx) error {
					if err := lockers[i%3].Guard(ctx, tx, lease.Term()); err != nil {
						return err
					}
					return e.Effect(ctx, tx, "k")
				}, holdfast.TxOptions{Attempts: 100})
			}
			if err == nil {
				err = lease.Release(e.Ctx)
			}
			granted <- err
		}()
	}
	for range 12 {
		if err := <-granted; err != nil {
			e.Error(err)
		}
	}
	e.Eventually("the dead are cleared away", func() bool {
		return e.Tickets()+e.Int(`SELECT COUNT(*) FROM holdfast_waiters WHERE owner = '' AND name = $1`, []byte("\x01dead")) == 0
	})
	close(stop)
	if n := <-swept; n < 400 || e.Effects("k") != 12 {
		e.Errorf("%d rows were swept, want 400; %d effects, want 12", n, e.Effects("k"))
	}
}
