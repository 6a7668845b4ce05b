package optimistic

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/test/conformance"
	"github.com/holdfast-go/holdfast/optimistic"
	"github.com/holdfast-go/holdfast/optimistic/register"
)

// Register is the suite of named values with compare-and-swap.
func Register[Tx any](t *testing.T, h conformance.Handle[Tx]) {
	for name, f := range map[string]func(*env[Tx]){
		"RegisterLife":           registerLife[Tx],
		"RegisterInTx":           registerInTx[Tx],
		"RegisterDeletedBetween": registerDeletedBetween[Tx],
		"RegisterSeveralOrNone":  registerSeveralOrNone[Tx],
		"RegisterNamesAreBytes":  registerNamesAreBytes[Tx],
		"RegisterInput":          registerInput[Tx],
		"RegisterNoLostUpdate":   registerNoLostUpdate[Tx],
		"RegisterIsLinearizable": registerIsLinearizable[Tx],
		"RegisterJudge":          registerJudge[Tx],
		"RegisterSnapshots":      registerSnapshots[Tx],
		"RegisterWatch":          registerWatch[Tx],
		"RegisterWatchErrors":    registerWatchErrors[Tx],
		"RegisterList":           registerList[Tx],
		"RegisterPrefixBounds":   registerPrefixBounds[Tx],
		"RegisterWatchPrefix":    registerWatchPrefix[Tx],
		"RegisterPrefixCosts":    registerWatchPrefixCosts[Tx],
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run(t, h, f)
		})
	}
}

func (e *env[Tx]) register() *register.Register[Tx] {
	e.Helper()
	return e.registerOn(e.DB)
}

func (e *env[Tx]) registerOn(db *holdfast.DB[Tx]) *register.Register[Tx] {
	e.Helper()
	r, err := register.New(e.Ctx, db)
	if err != nil {
		e.Fatal(err)
	}
	return r
}

// wantEntry reads name; the value "-" means that there is no entry.
func (e *env[Tx]) wantEntry(r *register.Register[Tx], name string, revision int64, value string) {
	e.Helper()
	got, err := r.Get(e.Ctx, name)
	gone := value == "-"
	if gone {
		value = ""
	}
	if errors.Is(err, register.ErrNotFound) != gone || err != nil && !gone || got.Name != name || got.Revision != revision ||
		string(got.Value) != value || (got.Value == nil) != gone {
		e.Errorf("%.40q is %+v, %v; want revision %d, %q", name, got, err, revision, value)
	}
}

// wantSwapConflict wants a conflict that names its register.
func wantSwapConflict(t testing.TB, err error, name string, given, found int64) {
	t.Helper()
	var c *register.ConflictError
	if !errors.Is(err, register.ErrConflict) || !errors.As(err, &c) || c.Given != given || c.Found != found || c.Name != name {
		t.Errorf("got %v (%+v), want a conflict on %q of %d with %d", err, c, name, given, found)
	}
}

// registerLife checks that the revision continues after the value was deleted. The naive form
// deletes the row, and a client that still holds revision 1 overwrites the next value.
func registerLife[Tx any](e *env[Tx]) {
	r := e.register()
	e.wantEntry(r, "secret-n", 0, "-")
	for life := range int64(3) {
		before := 3 * life
		made, err := r.Create(e.Ctx, "secret-n", []byte("a"))
		if err != nil || made.Revision != before+1 || string(made.Value) != "a" || made.Name != "secret-n" {
			e.Fatalf("%+v, %v", made, err)
		}
		_, err = r.Create(e.Ctx, "secret-n", []byte("b"))
		wantSwapConflict(e, err, "secret-n", 0, before+1)
		if strings.Contains(err.Error(), "secret-n") {
			e.Error(err)
		}
		next, err := r.CompareAndSwap(e.Ctx, "secret-n", made.Revision, nil)
		if err != nil || next.Revision != before+2 || next.Value == nil || len(next.Value) != 0 {
			e.Errorf("%+v, %v", next, err)
		}
		e.wantEntry(r, "secret-n", before+2, "") // an empty value is not a deleted one
		for _, stale := range []int64{1, made.Revision, next.Revision + 1} {
			_, err1 := r.CompareAndSwap(e.Ctx, "secret-n", stale, []byte("c"))
			_, err2 := r.Delete(e.Ctx, "secret-n", stale)
			if stale != next.Revision {
				wantSwapConflict(e, err1, "secret-n", stale, before+2)
				wantSwapConflict(e, err2, "secret-n", stale, before+2)
			}
		}
		gone, err := r.Delete(e.Ctx, "secret-n", next.Revision)
		if err != nil || gone.Revision != before+3 || gone.Value != nil {
			e.Errorf("%+v, %v", gone, err)
		}
		e.wantEntry(r, "secret-n", before+3, "-")
		for _, revision := range []int64{1, next.Revision, gone.Revision} {
			_, err1 := r.CompareAndSwap(e.Ctx, "secret-n", revision, []byte("c"))
			_, err2 := r.Delete(e.Ctx, "secret-n", revision)
			for _, err := range []error{err1, err2} {
				var none *register.NotFoundError
				if !errors.Is(err, register.ErrNotFound) || !errors.As(err, &none) || none.Name != "secret-n" {
					e.Errorf("deleted: %v", err)
				}
				if revision == gone.Revision { // that there was no value was known
					if errors.Is(err, register.ErrConflict) {
						e.Errorf("deleted before it was read: %v", err)
					}
					continue
				}
				wantSwapConflict(e, err, "secret-n", revision, gone.Revision)
				if strings.Contains(err.Error(), "secret-n") {
					e.Error(err)
				}
			}
		}
	}
	// Writing the same bytes again is a change.
	one, err := r.Create(e.Ctx, "same", []byte("x"))
	if err != nil {
		e.Fatal(err)
	}
	for range 3 {
		if one, err = r.CompareAndSwap(e.Ctx, "same", one.Revision, []byte("x")); err != nil {
			e.Error(err)
		}
	}
	e.wantEntry(r, "same", 4, "x")
}

// registerDeletedBetween deletes the value between the read and the write of a transaction that
// optimistic.Retry runs: its second run finds no value and creates one.
func registerDeletedBetween[Tx any](e *env[Tx]) {
	r := e.register()
	for name, change := range map[string]func(tx Tx, revision int64) error{
		"swap": func(tx Tx, n int64) error {
			_, err := r.CompareAndSwapTx(e.Ctx, tx, "swap", n, []byte("2"))
			return err
		},
		"delete": func(tx Tx, n int64) error { _, err := r.DeleteTx(e.Ctx, tx, "delete", n); return err },
	} {
		if _, err := r.Create(e.Ctx, name, []byte("1")); err != nil {
			e.Fatal(err)
		}
		read, runs := register.Entry{}, 0
		err := optimistic.Retry(e.Ctx, e.DB, func(ctx context.Context, tx Tx) (err error) {
			if runs++; runs == 1 {
				if read, err = r.Get(ctx, name); err != nil {
					return err
				}
				if _, err := r.Delete(ctx, name, read.Revision); err != nil {
					return err
				}
				return change(tx, read.Revision)
			}
			if _, err := r.GetTx(ctx, tx, name); !errors.Is(err, register.ErrNotFound) {
				return fmt.Errorf("read again: %w", err)
			}
			_, err = r.CreateTx(ctx, tx, name, []byte("again"))
			return err
		})
		if err != nil || runs != 2 {
			e.Errorf("%s: %d runs, %v", name, runs, err)
		}
		e.wantEntry(r, name, 3, "again")
	}
}

func registerInTx[Tx any](e *env[Tx]) {
	r := e.register()
	if _, err := r.Create(e.Ctx, "a", []byte("1")); err != nil {
		e.Fatal(err)
	}
	for _, commit := range []bool{false, true} {
		tx := e.BeginTx(sql.LevelDefault)
		got, err := r.GetTx(e.Ctx, tx, "a")
		if err != nil || got.Revision != 1 {
			e.Errorf("%+v, %v", got, err)
		}
		if _, err := r.GetTx(e.Ctx, tx, "new"); !errors.Is(err, register.ErrNotFound) {
			e.Error(err) // the transaction continues
		}
		got, err = r.CompareAndSwapTx(e.Ctx, tx, "a", got.Revision, []byte("2"))
		if err != nil {
			e.Error(err)
		}
		if got, err = r.CompareAndSwapTx(e.Ctx, tx, "a", got.Revision, []byte("3")); err != nil || got.Revision != 3 {
			e.Errorf("%+v, %v", got, err)
		}
		if made, err := r.CreateTx(e.Ctx, tx, "new", nil); err != nil || made.Revision != 1 {
			e.Errorf("%+v, %v", made, err)
		}
		if gone, err := r.DeleteTx(e.Ctx, tx, "new", 1); err != nil || gone.Revision != 2 {
			e.Errorf("%+v, %v", gone, err)
		}
		if made, err := r.CreateTx(e.Ctx, tx, "new", []byte("n")); err != nil || made.Revision != 3 {
			e.Errorf("%+v, %v", made, err)
		}
		if err := e.Effect(e.Ctx, tx, "beside"); err != nil {
			e.Error(err)
		}
		e.EndTx(tx, commit)
		if !commit {
			e.wantEntry(r, "a", 1, "1")
			e.wantEntry(r, "new", 0, "-")
		}
	}
	e.wantEntry(r, "a", 3, "3")
	e.wantEntry(r, "new", 3, "n")
	e.WantOnce("beside")

	for what, write := range map[string]func(tx Tx) error{
		"create":  func(tx Tx) error { _, err := r.CreateTx(e.Ctx, tx, "a", nil); return err },
		"swap":    func(tx Tx) error { _, err := r.CompareAndSwapTx(e.Ctx, tx, "a", 2, nil); return err },
		"delete":  func(tx Tx) error { _, err := r.DeleteTx(e.Ctx, tx, "a", 2); return err },
		"nothing": func(tx Tx) error { _, err := r.CompareAndSwapTx(e.Ctx, tx, "none", 2, nil); return err },
	} {
		tx := e.BeginTx(sql.LevelDefault)
		if err := e.Effect(e.Ctx, tx, what); err != nil {
			e.Error(err)
		}
		if err := write(tx); errors.Is(err, register.ErrConflict) == (what == "nothing") || errors.Is(err, register.ErrNotFound) != (what == "nothing") {
			e.Errorf("%s: %v", what, err)
		}
		e.WantRolledBack(tx) // so that the caller cannot commit the rest
		if n := e.Effects(what); n != 0 {
			e.Errorf("%s: %d effects beside a conflict", what, n)
		}
		var none Tx
		if err := write(none); !errors.Is(err, holdfast.ErrNoTx) {
			e.Errorf("%s without a transaction: %v", what, err)
		}
	}
	e.wantEntry(r, "a", 3, "3")
}

// registerSeveralOrNone writes several names and a row: one conflict undoes all and names its
// place.
func registerSeveralOrNone[Tx any](e *env[Tx]) {
	r, accounts := e.register(), e.Accounts("a")
	names := []string{"x", "y", "z"}
	for _, n := range names {
		if _, err := r.Create(e.Ctx, n, []byte("0")); err != nil {
			e.Fatal(err)
		}
	}
	write := func(revisions ...int64) error {
		return optimistic.Retry(e.Ctx, e.DB, func(ctx context.Context, tx Tx) error {
			if _, err := accounts.UpdateTx(ctx, tx, conformance.Account{No: "a", Cents: 1, Version: 1}); err != nil {
				return err
			}
			for i, n := range names {
				if _, err := r.CompareAndSwapTx(ctx, tx, n, revisions[i], []byte("1")); err != nil {
					return err
				}
			}
			return nil
		}, optimistic.RetryOptions{Attempts: 2})
	}
	wantSwapConflict(e, write(1, 7, 1), "y", 7, 1)
	for _, n := range names {
		e.wantEntry(r, n, 1, "0")
	}
	e.WantAccount(conformance.Account{No: "a", Version: 1})
	if err := write(1, 1, 1); err != nil {
		e.Error(err)
	}
	for _, n := range names {
		e.wantEntry(r, n, 2, "1")
	}
	e.WantAccount(conformance.Account{No: "a", Cents: 1, Version: 2})
}

func registerNamesAreBytes[Tx any](e *env[Tx]) {
	r := e.register()
	names := append(conformance.Keys(), strings.Repeat("n", register.MaxName))
	for i, n := range names {
		if _, err := r.Create(e.Ctx, n, []byte(fmt.Sprint(i))); err != nil {
			e.Errorf("%.20q: %v", n, err)
		}
	}
	for i, n := range names {
		e.wantEntry(r, n, 1, fmt.Sprint(i))
	}
	// Values are arbitrary bytes, of any length up to the limit.
	for i, v := range []string{"\x00\xff\x00", "'; DROP TABLE effects; --", "\xc3\x28", strings.Repeat("\xff", register.MaxValue)} {
		if _, err := r.CompareAndSwap(e.Ctx, names[0], int64(i+1), []byte(v)); err != nil {
			e.Errorf("%.20q: %v", v, err)
		}
		e.wantEntry(r, names[0], int64(i+2), v)
	}
}

// registerInput checks that bad input fails before anything is sent, and that a revision which
// no client can have read never means "without the check".
func registerInput[Tx any](e *env[Tx]) {
	r := e.register()
	if _, err := r.Create(e.Ctx, "a", []byte("1")); err != nil {
		e.Fatal(err)
	}
	tx := e.BeginTx(sql.LevelDefault)
	calls := func(name string, revision int64, value []byte) map[string]error {
		errs := map[string]error{}
		_, errs["swap"] = r.CompareAndSwap(e.Ctx, name, revision, value)
		_, errs["swap in tx"] = r.CompareAndSwapTx(e.Ctx, tx, name, revision, value)
		if value == nil {
			_, errs["delete"] = r.Delete(e.Ctx, name, revision)
			_, errs["delete in tx"] = r.DeleteTx(e.Ctx, tx, name, revision)
		}
		if revision == 1 {
			_, errs["create"] = r.Create(e.Ctx, name, value)
			_, errs["create in tx"] = r.CreateTx(e.Ctx, tx, name, value)
		}
		if revision == 1 && value == nil {
			_, errs["get"] = r.Get(e.Ctx, name)
			_, errs["get in tx"] = r.GetTx(e.Ctx, tx, name)
		}
		return errs
	}
	for what, errs := range map[string]map[string]error{
		"no name":           calls("", 1, nil),
		"a long name":       calls(strings.Repeat("n", register.MaxName+1), 1, nil),
		"a long value":      calls("b", 1, make([]byte, register.MaxValue+1)),
		"revision 0":        calls("a", 0, nil),
		"a negative one":    calls("a", -1, nil),
		"the lowest number": calls("a", -1<<63, nil),
	} {
		for call, err := range errs {
			if !errors.Is(err, holdfast.ErrInvalid) {
				e.Errorf("%s, %s: %v", what, call, err)
			}
		}
	}
	e.EndTx(tx, true) // tx is unchanged
	e.wantEntry(r, "a", 1, "1")
	if n := e.Int(`SELECT COUNT(*) FROM holdfast_registers`); n != 1 {
		e.Errorf("%d rows", n)
	}
	if _, err := register.New[Tx](e.Ctx, nil); !errors.Is(err, holdfast.ErrInvalid) {
		e.Error(err)
	}
	e.Must(`DROP TABLE holdfast_schema`)
	if _, err := register.New(e.Ctx, e.DB); !errors.Is(err, holdfast.ErrSchema) {
		e.Errorf("without its tables: %v", err)
	}
}
