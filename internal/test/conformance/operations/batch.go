package operations

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/idempotency/businessrow"
	"github.com/holdfast-go/holdfast/internal/test/conformance"
)

// Batches is the suite of business rows that callers claim in batches.
func Batches[Tx any](t *testing.T, h conformance.Handle[Tx]) {
	t.Helper()
	for name, f := range map[string]func(*env[Tx]){
		"FileTwice":            fileTwice[Tx],
		"MixedBatch":           mixedBatch[Tx],
		"BatchOtherKey":        batchOtherKey[Tx],
		"BatchOfTwoColumns":    batchOfTwoColumns[Tx],
		"WorkersOnOneFile":     workersOnOneFile[Tx],
		"BatchChangesKeys":     batchChangesKeys[Tx],
		"BatchIsNothingOrAll":  batchIsNothingOrAll[Tx],
		"BatchOfNothing":       batchOfNothing[Tx],
		"BatchAfterEndOfTheTx": batchAfterEnd[Tx],
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run(t, h, f)
		})
	}
}

func file(from, n int) []conformance.Refund {
	rows := make([]conformance.Refund, n)
	for i := range rows {
		rows[i] = conformance.Refund{No: fmt.Sprintf("R-%06d", from+i), Amount: int64(from + i)}
	}
	return rows
}

// claimAll claims rows in a transaction and runs the transaction again when the error asks for
// it.
func (e *env[Tx]) claimAll(t *businessrow.Table[conformance.Refund, Tx], rows []conformance.Refund) (verdicts []businessrow.Answer[conformance.Refund], err error) {
	err = e.DB.InTx(e.Ctx, func(ctx context.Context, tx Tx) (err error) {
		verdicts, err = t.ClaimAllTx(ctx, tx, rows)
		return err
	}, holdfast.TxOptions{Attempts: 100})
	return verdicts, err
}

func count(verdicts []businessrow.Answer[conformance.Refund]) (executed, replayed, mismatched int) {
	for _, v := range verdicts {
		switch {
		case v.Err != nil:
			mismatched++
		case v.Outcome == idempotency.Executed:
			executed++
		case v.Outcome == idempotency.Replayed:
			replayed++
		}
	}
	return executed, replayed, mismatched
}

func (e *env[Tx]) wantCounts(verdicts []businessrow.Answer[conformance.Refund], executed, replayed, mismatched int) {
	e.Helper()
	if x, r, m := count(verdicts); x != executed || r != replayed || m != mismatched {
		e.Errorf("executed %d, replayed %d, mismatched %d; want %d, %d, %d", x, r, m, executed, replayed, mismatched)
	}
}

// fileTwice books one file twice. The second run books nothing and takes few statements as well.
func fileTwice[Tx any](e *env[Tx]) {
	const n = 2500
	var statements atomic.Int64
	e.Pool = e.Handle.Open(e.T, e.DSN, holdfast.Options{Observers: []holdfast.Observer{func(context.Context, holdfast.Statement) { statements.Add(1) }}})
	refunds, rows := e.Refunds(), file(0, n)
	for _, again := range []bool{false, true} {
		statements.Store(0)
		verdicts, err := e.claimAll(refunds, rows)
		e.Check(err)
		if again {
			e.wantCounts(verdicts, 0, n, 0)
		} else {
			e.wantCounts(verdicts, n, 0, 0)
		}
		for i, v := range verdicts {
			if v.Row != rows[i] {
				e.Fatalf("row %d: %+v", i, v)
			}
		}
		// Three batches of 1000 at most, each with at most five statements, in a fenced transaction.
		if got := statements.Load(); got > 3*5+10 {
			e.Errorf("%d statements for %d rows", got, n)
		}
	}
	if got := e.Int(`SELECT COUNT(*) FROM refunds`); got != n {
		e.Errorf("%d rows, want %d", got, n)
	}
}

// mixedBatch claims a batch with existing rows, new rows, duplicates and mismatches.
func mixedBatch[Tx any](e *env[Tx]) {
	refunds := e.Refunds()
	_, err := e.claimAll(refunds, file(0, 50))
	e.Check(err)
	rows := file(40, 30) // rows 40 to 49 exist already
	rows[3].Amount = 1
	rows = append(rows, rows[20], conformance.Refund{No: rows[21].No, Amount: 2}, rows[1])
	verdicts, err := e.claimAll(refunds, rows)
	e.Check(err)
	e.wantCounts(verdicts, 20, 11, 2)
	var m *idempotency.MismatchError
	if !errors.As(verdicts[3].Err, &m) || len(m.Columns) != 1 || m.Columns[0] != "amount" || verdicts[3].Row.Amount != 43 {
		e.Errorf("a mismatch: %+v", verdicts[3])
	}
	if verdicts[20].Outcome != idempotency.Executed || verdicts[30].Outcome != idempotency.Replayed || !errors.Is(verdicts[31].Err, idempotency.ErrMismatch) {
		e.Errorf("twice in the batch: %+v", verdicts[30:])
	}
	if got := e.Int(`SELECT COUNT(*) FROM refunds`); got != 70 {
		e.Errorf("%d rows, want 70", got)
	}
	for _, twin := range []string{"r-000041", "R-000041 ", "R-00004\u0661"} {
		verdicts, err := e.claimAll(refunds, append(file(40, 3), conformance.Refund{No: twin}))
		e.Check(err)
		e.wantCounts(verdicts, 1, 3, 0)
	}
}

func batchOtherKey[Tx any](e *env[Tx]) {
	refunds := e.Refunds()
	rows := file(0, 10)
	rows[4].Bank = sql.NullString{String: "B-1", Valid: true}
	_, err := e.claimAll(refunds, rows)
	e.Check(err)
	rows = file(10, 10)
	rows[7].Bank = sql.NullString{String: "B-1", Valid: true}
	if _, err := e.claimAll(refunds, rows); !errors.Is(err, businessrow.ErrUniqueViolation) {
		e.Errorf("got %v", err)
	}
	if got := e.Int(`SELECT COUNT(*) FROM refunds`); got != 10 {
		e.Errorf("%d rows, want 10", got)
	}
}

func batchOfTwoColumns[Tx any](e *env[Tx]) {
	type settlement struct {
		Merchant string `db:"merchant"`
		Day      int64  `db:"day"`
		Cents    int64  `db:"cents"`
	}
	e.Must(`CREATE TABLE settlements (merchant ` + e.Text() + ` NOT NULL, day BIGINT NOT NULL, cents BIGINT NOT NULL, PRIMARY KEY (merchant, day))`)
	t, err := businessrow.New[settlement](e.Ctx, e.DB, holdfast.TableSpec{Table: "settlements", Key: []string{"merchant", "day"}},
		businessrow.Options{Compare: []string{"cents"}})
	e.Check(err)
	var rows []settlement
	for i := range 1500 {
		rows = append(rows, settlement{fmt.Sprint("m", i%7), int64(i / 7), int64(i)})
	}
	for _, want := range []idempotency.Outcome{idempotency.Executed, idempotency.Replayed} {
		e.Check(e.DB.InTx(e.Ctx, func(ctx context.Context, tx Tx) error {
			verdicts, err := t.ClaimAllTx(ctx, tx, rows)
			for i, v := range verdicts {
				if v.Err != nil || v.Outcome != want || v.Row != rows[i] {
					return fmt.Errorf("row %d: %+v, want %v", i, v, want)
				}
			}
			return err
		}))
	}
}

// workersOnOneFile runs several workers that book overlapping parts of one file.
func workersOnOneFile[Tx any](e *env[Tx]) {
	const workers, size = 4, 300
	refunds := e.Refunds()
	var executed atomic.Int64
	var running sync.WaitGroup
	for w := range workers {
		running.Go(func() {
			for step := range 4 {
				verdicts, err := e.claimAll(refunds, file((w+step)%workers*size/2, size))
				if err != nil {
					e.Error(err)
					return
				}
				x, _, m := count(verdicts)
				executed.Add(int64(x))
				if m > 0 {
					e.Errorf("%d mismatches", m)
				}
			}
		})
	}
	running.Wait()
	if rows := e.Int(`SELECT COUNT(*) FROM refunds`); rows != (workers+1)*size/2 || executed.Load() != int64(rows) {
		e.Errorf("%d rows, %d executed, want %d", rows, executed.Load(), (workers+1)*size/2)
	}
}

// batchChangesKeys checks that the batch detects a column that truncates its values.
func batchChangesKeys[Tx any](e *env[Tx]) {
	if !e.InnoDB() {
		return // the other engines refuse the value or keep all of it
	}
	type cut struct {
		No string `db:"no"`
	}
	e.Must(`CREATE TABLE cuts (no VARBINARY(8) NOT NULL UNIQUE)`)
	t, err := businessrow.New[cut](e.Ctx, e.DB, holdfast.TableSpec{Table: "cuts", Key: []string{"no"}})
	e.Check(err)
	err = e.DB.InTx(e.Ctx, func(ctx context.Context, tx Tx) error {
		if _, err := e.Exec(ctx, tx, `SET SESSION sql_mode = ''`); err != nil {
			return err
		}
		_, err := t.ClaimAllTx(ctx, tx, []cut{{"a"}, {strings.Repeat("b", 9)}})
		return err
	})
	if !errors.Is(err, holdfast.ErrInvalid) {
		e.Errorf("got %v", err)
	}
	if got := e.Int(`SELECT COUNT(*) FROM cuts`); got != 0 {
		e.Errorf("%d rows, want 0", got)
	}
}

// batchIsNothingOrAll checks that an error in the caller's function undoes all claims.
func batchIsNothingOrAll[Tx any](e *env[Tx]) {
	refunds := e.Refunds()
	boom := errors.New("boom")
	err := e.DB.InTx(e.Ctx, func(ctx context.Context, tx Tx) error {
		if _, err := refunds.ClaimAllTx(ctx, tx, file(0, 1200)); err != nil {
			return err
		}
		return boom
	})
	if !errors.Is(err, boom) {
		e.Errorf("got %v", err)
	}
	verdicts, err := e.claimAll(refunds, file(0, 1200))
	e.Check(err)
	e.wantCounts(verdicts, 1200, 0, 0)
}

func batchOfNothing[Tx any](e *env[Tx]) {
	verdicts, err := e.claimAll(e.Refunds(), nil)
	if err != nil || len(verdicts) != 0 {
		e.Errorf("got %v, %v", verdicts, err)
	}
	var none Tx
	if _, err := e.Refunds().ClaimAllTx(e.Ctx, none, file(0, 1)); !errors.Is(err, holdfast.ErrNoTx) {
		e.Errorf("no transaction: %v", err)
	}
}

func batchAfterEnd[Tx any](e *env[Tx]) {
	tx, err := e.Begin(e.Ctx, sql.LevelDefault)
	e.Check(err)
	e.Check(e.End(e.Ctx, tx, true))
	if _, err := e.Refunds().ClaimAllTx(e.Ctx, tx, file(0, 2)); err == nil {
		e.Error("rows were claimed in a transaction that had ended")
	}
	if got := e.Int(`SELECT COUNT(*) FROM refunds`); got != 0 {
		e.Errorf("%d rows, want 0", got)
	}
}
