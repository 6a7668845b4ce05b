package operations

import (
	"context"
	"errors"
	"sync"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/idempotency/businessrow"
	"github.com/holdfast-go/holdfast/internal/test/conformance"
	"github.com/holdfast-go/holdfast/internal/test/dbtest"
)

// rowRefusedAfterwards: a trigger, or a constraint that came later, looks at a row before its key is.
func rowRefusedAfterwards[Tx any](e *env[Tx]) {
	dbtest.Needs(e, e.Engine, dbtest.Triggers)
	e.Refunds() // makes the table
	row := conformance.Refund{No: "a", Amount: 5}
	nothing := func(context.Context, Tx) error { return nil }
	if r, err := e.Refunds().Do(e.Ctx, row, nothing); err != nil || r.Outcome != idempotency.Executed {
		e.Fatalf("%v, %v", r, err)
	}
	switch e.Engine.Kin() {
	case dbtest.Postgres:
		e.Must(`CREATE FUNCTION closed() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RAISE EXCEPTION ''the month is closed''; END'`)
		e.Must(`CREATE TRIGGER closed BEFORE INSERT ON refunds FOR EACH ROW EXECUTE FUNCTION closed()`)
	case dbtest.SQLite:
		e.Must(`CREATE TRIGGER closed BEFORE INSERT ON refunds BEGIN SELECT RAISE(ABORT, 'the month is closed'); END`)
	default:
		e.Must(`CREATE TRIGGER closed BEFORE INSERT ON refunds FOR EACH ROW SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'the month is closed'`)
	}
	for name, claim := range map[string]func(t *businessrow.Table[conformance.Refund, Tx], row conformance.Refund) (idempotency.Outcome, error){
		"Do": func(t *businessrow.Table[conformance.Refund, Tx], row conformance.Refund) (idempotency.Outcome, error) {
			r, err := t.Do(e.Ctx, row, nothing)
			return r.Outcome, err
		},
		"ClaimTx": func(t *businessrow.Table[conformance.Refund, Tx], row conformance.Refund) (o idempotency.Outcome, err error) {
			err = e.DB.InTx(e.Ctx, func(ctx context.Context, tx Tx) error {
				r, err := t.ClaimTx(ctx, tx, row)
				o = r.Outcome
				return err
			})
			return o, err
		},
		"ClaimAllTx": func(t *businessrow.Table[conformance.Refund, Tx], row conformance.Refund) (o idempotency.Outcome, err error) {
			err = e.DB.InTx(e.Ctx, func(ctx context.Context, tx Tx) error {
				a, err := t.ClaimAllTx(ctx, tx, []conformance.Refund{row, row})
				if err == nil {
					o, err = a[0].Outcome, errors.Join(a[0].Err, a[1].Err)
				}
				return err
			})
			return o, err
		},
	} {
		t := e.Refunds() // as in another process
		for i := range 2 {
			if o, err := claim(t, row); err != nil || o != idempotency.Replayed {
				e.Errorf("%s, call %d: %v, %v", name, i, o, err)
			}
			other := row
			other.Amount = 6
			if _, err := claim(t, other); !errors.Is(err, idempotency.ErrMismatch) {
				e.Errorf("%s, call %d with another amount: %v", name, i, err)
			}
			if o, err := claim(t, conformance.Refund{No: "b"}); err == nil || errors.Is(err, holdfast.ErrRetry) {
				e.Errorf("%s, call %d of a new row: %v, %v", name, i, o, err)
			}
		}
	}
	if n := e.Int(`SELECT COUNT(*) FROM refunds`); n != 1 {
		e.Errorf("%d rows, want 1", n)
	}
}

// rowThatTheFunctionChanges: a duplicate gets the row that stands, in the same process, too.
func rowThatTheFunctionChanges[Tx any](e *env[Tx]) {
	type refund struct {
		No    string `db:"refund_no"`
		State string `db:"state"`
	}
	e.Must(`CREATE TABLE stated (refund_no ` + e.Text() + ` NOT NULL UNIQUE, state VARCHAR(20) NOT NULL)`)
	t, err := businessrow.New[refund](e.Ctx, e.DB, holdfast.TableSpec{Table: "stated", Key: []string{"refund_no"}})
	if err != nil {
		e.Fatal(err)
	}
	in, leave := make(chan struct{}), make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		r, err := t.Do(e.Ctx, refund{"a", "new"}, func(ctx context.Context, tx Tx) error {
			close(in)
			<-leave
			_, err := e.Exec(ctx, tx, `UPDATE stated SET state = 'paid'`)
			return err
		})
		if err != nil || r.Outcome != idempotency.Executed {
			e.Errorf("%v, %v", r, err)
		}
	})
	<-in
	for range 3 {
		waits := make(chan struct{})
		ctx := noted{e.Ctx, sync.OnceFunc(func() { close(waits) })}
		wg.Go(func() {
			r, err := t.Do(ctx, refund{"a", "new"}, func(context.Context, Tx) error { return errors.New("executed twice") })
			if err != nil || r.Outcome != idempotency.Replayed || r.Value.State != "paid" {
				e.Errorf("duplicate: %+v, %v", r, err)
			}
		})
		<-waits
	}
	close(leave)
	wg.Wait()
}

// noted tells when somebody waits for it.
type noted struct {
	context.Context
	waits func()
}

func (c noted) Done() <-chan struct{} {
	c.waits()
	return c.Context.Done()
}

// rowWithoutItsNumber: MySQL and MariaDB make a number for 0 and for NULL.
func rowWithoutItsNumber[Tx any](e *env[Tx]) {
	if e.Engine.Kin() == dbtest.Postgres || e.Engine == dbtest.SQLite {
		return // they keep 0
	}
	type row struct {
		ID *int64 `db:"id"`
		No string `db:"no"`
	}
	e.Must(`CREATE TABLE unnumbered (id BIGINT AUTO_INCREMENT PRIMARY KEY, no ` + e.Text() + ` NOT NULL)`)
	t, err := businessrow.New[row](e.Ctx, e.DB, holdfast.TableSpec{Table: "unnumbered", Key: []string{"id"}})
	if err != nil {
		e.Fatal(err)
	}
	zero, seven := int64(0), int64(7)
	for _, id := range []*int64{&zero, nil, &zero} {
		if r, err := t.Do(e.Ctx, row{id, "a"}, func(context.Context, Tx) error { return nil }); !errors.Is(err, holdfast.ErrInvalid) {
			e.Errorf("Do: %v, %v", r, err)
		}
		err := e.DB.InTx(e.Ctx, func(ctx context.Context, tx Tx) error {
			_, err := t.ClaimTx(ctx, tx, row{id, "a"})
			return err
		})
		if !errors.Is(err, holdfast.ErrInvalid) {
			e.Errorf("ClaimTx: %v", err)
		}
		err = e.DB.InTx(e.Ctx, func(ctx context.Context, tx Tx) error {
			_, err := t.ClaimAllTx(ctx, tx, []row{{id, "a"}, {&seven, "b"}})
			return err
		})
		if !errors.Is(err, holdfast.ErrInvalid) {
			e.Errorf("ClaimAllTx: %v", err)
		}
	}
	if n := e.Int(`SELECT COUNT(*) FROM unnumbered`); n != 0 {
		e.Errorf("%d rows, want 0", n)
	}
	for _, o := range []idempotency.Outcome{idempotency.Executed, idempotency.Replayed} {
		if r, err := t.Do(e.Ctx, row{&seven, "a"}, func(context.Context, Tx) error { return nil }); err != nil || r.Outcome != o {
			e.Errorf("7: %v, %v, want %v", r, err, o)
		}
	}
}
