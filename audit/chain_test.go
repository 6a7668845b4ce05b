package audit_test

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-go/holdfast/audit"
	"github.com/holdfast-go/holdfast/internal/access"
	"github.com/holdfast-go/holdfast/internal/auditlog"
	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/test/conformance"
	"github.com/holdfast-go/holdfast/internal/test/dbtest"
)

// log returns the log of a database, and what runs a function with it in a transaction.
func (e *env[Tx]) log() (*auditlog.Log, func(func(ctx context.Context, q core.Querier) error) error) {
	a := access.Of(e.DB)
	return auditlog.New(a.Dialect, a.Table), func(f func(ctx context.Context, q core.Querier) error) error {
		return e.DB.InTx(e.Ctx, func(ctx context.Context, tx Tx) error {
			q, err := a.Join(tx)
			if err != nil {
				return err
			}
			return f(ctx, q)
		})
	}
}

// append writes a row of an owner about a subject.
func (e *env[Tx]) append(owner, subject, reason string) {
	e.Helper()
	log, inTx := e.log()
	e.Check(inTx(func(ctx context.Context, q core.Querier) error {
		return log.Append(ctx, q, auditlog.Entry{Actor: "olga", Action: "erase", Reason: reason, Kind: "record", Owner: owner, Subject: auditlog.Subject(subject)})
	}))
}

// stored reads the rows, as they are in the table.
func (e *env[Tx]) stored() (rows []auditlog.Row) {
	e.Helper()
	log, inTx := e.log()
	e.Check(inTx(func(ctx context.Context, q core.Querier) (err error) {
		rows, err = log.Page(ctx, q, "", -1<<63, 100)
		return err
	}))
	return rows
}

// forge writes a row past the package, with a hash.
func (e *env[Tx]) forge(r auditlog.Row, hash []byte) {
	e.Helper()
	e.Must(`INSERT INTO holdfast_audit (chain, seq, happened_at, actor, session_name, action, kind, owner, namespace, subject, reason, confirmed_by, before_state, after_state, hash)
 VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15)`,
		r.Chain, r.Seq, r.At, r.Actor, r.Session, r.Action, r.Kind, r.Owner, r.Namespace, r.Subject, r.Reason, r.Confirmed, r.Before, r.After, hash)
}

// TestForged writes rows anew with hashes that are right for them, as who knows the form of the hash can.
func TestForged(t *testing.T) {
	t.Parallel()
	conformance.Run(t, conformance.SQL(), func(c *conformance.Env[*sql.Tx]) {
		if c.Engine == dbtest.Vitess {
			return // each owner has a chain
		}
		e := open(c)
		for i := range 4 {
			e.append("anna", "k", fmt.Sprint("reason ", i))
		}
		e.verify(4)
		rows := e.stored()
		broken := func(what string, seq int64) {
			e.Helper()
			report, err := audit.Verify(e.Ctx, e.DB)
			var b *audit.BrokenError
			if !errors.As(err, &b) || b.Seq != seq {
				e.Errorf("%s: %+v, %v, want row %d", what, report, err, seq)
			}
		}
		// The texts of two columns are the same together, but not each.
		e.Must(`UPDATE holdfast_audit SET kind = 'recor', owner = 'danna' WHERE seq = 2`)
		broken("a letter that moved to the next column", 2)
		e.Must(`UPDATE holdfast_audit SET kind = 'record', owner = 'anna' WHERE seq = 2`)
		e.verify(4)

		// A row whose own hash is right does not hide that the next one followed another.
		eve := rows[1]
		eve.Actor = "eve"
		anew := eve.Sum(auditlog.Hash(rows[0].Hash))
		e.Must(`UPDATE holdfast_audit SET actor = 'eve', hash = $1 WHERE seq = 2`, anew[:])
		broken("a row written anew", 3)
		e.Must(`UPDATE holdfast_audit SET actor = 'olga', hash = $1 WHERE seq = 2`, rows[1].Hash)
		e.verify(4)

		// Another chain is separate: its first row follows no row.
		other := rows[0]
		other.Chain = "x"
		first := other.Sum(auditlog.Hash{})
		e.forge(other, first[:])
		report := e.verify(5)
		if len(report.Heads) != 2 || report.Heads[0].Seq != 4 || report.Heads[1].Seq != 1 || report.Heads[1].Chain != "x" || !bytes.Equal(report.Heads[0].Hash, rows[3].Hash) {
			e.Errorf("%+v", report)
		}
		if list := e.rows(audit.Filter{After: audit.Record{Chain: "x"}}); len(list) != 1 || list[0].Chain != "x" {
			e.Errorf("the rows from the chain on: %+v", list)
		}
		e.Must(`DELETE FROM holdfast_audit WHERE chain = 'x'`)
		linked := other.Sum(auditlog.Hash(rows[3].Hash))
		e.forge(other, linked[:])
		broken("a chain that goes on in another", 1)
	})
}

// TestBlocked writes rows past the package that would take the next numbers from the chain, or end it. The
// interventions go on where the chain was.
func TestBlocked(t *testing.T) {
	t.Parallel()
	conformance.Run(t, conformance.SQL(), func(c *conformance.Env[*sql.Tx]) {
		if c.Engine == dbtest.Vitess {
			return // each owner has a chain
		}
		e := open(c)
		plant := func(chain string, seq int64) {
			r := auditlog.Row{Chain: chain, Seq: seq, Actor: "eve", Action: "x", Kind: "x", Subject: []byte{}}
			sum := r.Sum(auditlog.Hash{})
			e.forge(r, sum[:])
		}
		next := func(what string, seq int64) {
			e.Helper()
			e.append("anna", "k", what)
			if n := e.Int(`SELECT COUNT(*) FROM holdfast_audit WHERE chain = '' AND seq = $1 AND reason = $2`, seq, what); n != 1 {
				e.Errorf("%s: the row is not row %d", what, seq)
			}
			e.Must(`DELETE FROM holdfast_audit WHERE actor = 'eve'`)
			e.verify(seq)
		}
		plant("x", 40)
		next("another chain is longer", 1)
		plant("", 1<<62)
		next("the last number is taken", 2)
		e.Must(`DELETE FROM holdfast_audit`)
		plant("", 1<<62)
		plant("x", 3)
		next("the last number is taken, and there is no chain", 1)
		next("nothing is planted", 2)
		plant("", 1<<62)
		plant("", 1<<62+7)
		plant("x", 3)
		plant("", 9)
		next("others are taken as well", 3)
	})
}

// TestRecent reads what was done to a subject. That of an operation is the same hash for each owner.
func TestRecent(t *testing.T) {
	t.Parallel()
	run(t, recent[*sql.Tx], recent[pgx.Tx])
}

func recent[Tx any](e *env[Tx]) {
	e.append("anna", "k", "too long ago")
	e.append("anna", "k", "first")
	e.append("ben", "k", "of ben")
	e.append("anna", "another", "of another")
	e.append("anna", "k", "second")
	rows := e.stored()
	last := rows[len(rows)-1]
	if !access.Of(e.DB).Dialect.Audit.PerOwner {
		last.Chain, last.Reason = "x", "of another chain"
		e.forge(last, last.Hash)
	}
	log, inTx := e.log()
	e.Check(inTx(func(ctx context.Context, q core.Querier) error {
		found, err := log.Recent(ctx, q, "anna", auditlog.Subject("k"), 4)
		reasons := map[string]bool{}
		for _, r := range found {
			reasons[r.Reason] = true
			if r.Actor != "olga" || r.Action != "erase" {
				e.Errorf("%+v", r)
			}
		}
		if len(found) != 2 || !reasons["first"] || !reasons["second"] {
			e.Errorf("%+v", found)
		}
		return err
	}))
}

// TestWaitsForTheChain appends while another transaction has appended, and not yet committed: the second row
// follows the first one, and no intervention has to run again.
func TestWaitsForTheChain(t *testing.T) {
	t.Parallel()
	run(t, waitsForTheChain[*sql.Tx], waitsForTheChain[pgx.Tx])
}

func waitsForTheChain[Tx any](e *env[Tx]) {
	if e.Engine == dbtest.TiDB || e.Engine == dbtest.Vitess {
		return // the second one runs again
	}
	e.append("anna", "k", "before")
	log, inTx := e.log()
	entry := auditlog.Entry{Actor: "olga", Action: "erase", Reason: "asked", Kind: "record", Owner: "anna"}
	var committing atomic.Bool
	done := make(chan error, 1)
	err := inTx(func(ctx context.Context, q core.Querier) error {
		if err := log.Append(ctx, q, entry); err != nil {
			return err
		}
		go func() {
			done <- inTx(func(ctx context.Context, q core.Querier) error {
				err := log.Append(ctx, q, entry)
				if err == nil && !committing.Load() {
					err = errors.New("it did not wait")
				}
				if errors.Is(err, core.ErrAgain) {
					err = fmt.Errorf("it did not follow: %s", strings.TrimSpace(err.Error())) // so that it does not run again
				}
				return err
			})
		}()
		time.Sleep(150 * time.Millisecond) // time to go wrong
		committing.Store(true)
		return nil
	})
	e.Check(err)
	if err := <-done; err != nil {
		e.Error(err)
	}
	e.verify(3)
}
