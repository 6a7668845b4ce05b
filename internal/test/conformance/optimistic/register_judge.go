package optimistic

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/access"
	"github.com/holdfast-go/holdfast/internal/test/dbtest"
	"github.com/holdfast-go/holdfast/internal/test/history"
	"github.com/holdfast-go/holdfast/optimistic"
	"github.com/holdfast-go/holdfast/optimistic/register"
)

// registerClient runs the operations that a history records. In the history, the value of a
// register is its revision, with a mark where it was deleted. A separate check compares the
// bytes of each revision.
type registerClient[Tx any] struct {
	t     testing.TB
	ctx   context.Context //nolint:containedctx // a test's
	r     *register.Register[Tx]
	c     *history.Client
	bytes *sync.Map
}

func stateOf(revision int64, gone bool) string {
	switch {
	case revision == 0:
		return ""
	case gone:
		return strconv.FormatInt(revision, 10) + " deleted"
	}
	return strconv.FormatInt(revision, 10)
}

func entryState(e register.Entry) string { return stateOf(e.Revision, e.Value == nil) }

// same fails if one revision has two values.
func (c registerClient[Tx]) same(e register.Entry) {
	c.t.Helper()
	if was, other := c.bytes.LoadOrStore(fmt.Sprint(e.Name, "/", e.Revision), string(e.Value)); other && was != string(e.Value) {
		c.t.Errorf("%s in revision %d was %q, and is %q", e.Name, e.Revision, was, e.Value)
	}
}

func (c registerClient[Tx]) get(name string) register.Entry {
	op := c.c.Read(name)
	e, err := c.r.Get(c.ctx, name)
	if err != nil && !errors.Is(err, register.ErrNotFound) {
		c.t.Error(err)
		return e
	}
	op.Got(entryState(e))
	c.same(e)
	return e
}

func (c registerClient[Tx]) swap(from register.Entry, value string) {
	op, seen := c.c.Swap(from.Name, entryState(from), stateOf(from.Revision+1, false)), c.c.Read(from.Name)
	e, err := c.r.CompareAndSwap(c.ctx, from.Name, from.Revision, []byte(value))
	c.settle(op, seen, e, err)
}

func (c registerClient[Tx]) delete(from register.Entry) {
	op, seen := c.c.Swap(from.Name, entryState(from), stateOf(from.Revision+1, true)), c.c.Read(from.Name)
	e, err := c.r.Delete(c.ctx, from.Name, from.Revision)
	c.settle(op, seen, e, err)
}

// create learns only from the answer which revision came before.
func (c registerClient[Tx]) create(name, value string) {
	op, seen := c.c.Swap(name, "", ""), c.c.Read(name)
	e, err := c.r.Create(c.ctx, name, []byte(value))
	if err == nil {
		op.Swapped(stateOf(e.Revision-1, true), entryState(e))
		c.same(e)
		return
	}
	c.refused(seen, err)
	op.Failed()
}

func (c registerClient[Tx]) settle(op, seen *history.Access, e register.Entry, err error) {
	switch {
	case err == nil:
		op.OK()
		c.same(e)
	case errors.Is(err, holdfast.ErrRetry):
		op.Failed()
	default:
		op.Refused()
		c.refused(seen, err)
	}
}

// refused records a conflict: the reported entry existed at some moment of the call.
func (c registerClient[Tx]) refused(seen *history.Access, err error) {
	var conflict *register.ConflictError
	switch {
	case errors.As(err, &conflict):
		seen.Got(stateOf(conflict.Found, conflict.Deleted))
	case !errors.Is(err, register.ErrNotFound) && !errors.Is(err, holdfast.ErrRetry):
		c.t.Error(err)
	}
}

// registerIsLinearizable lets clients of two processes read, create, swap and delete two names,
// and checks that one order explains all their results.
func registerIsLinearizable[Tx any](e *env[Tx]) {
	rec, bytes := history.New(), &sync.Map{}
	registers := []*register.Register[Tx]{e.register(), e.registerOn(e.Handle.Open(e.T, e.DSN).DB)}
	var wg sync.WaitGroup
	for id := range 4 {
		c := registerClient[Tx]{e, e.Ctx, registers[id%2], rec.Client(id), bytes}
		wg.Go(func() {
			for i := range 20 {
				name := []string{"a", "b"}[(id+i)%2]
				value := fmt.Sprint(id, "-", i)
				switch from := c.get(name); {
				case from.Value == nil:
					c.create(name, value)
				case i%4 == 3:
					c.delete(from)
				default:
					c.swap(from, value)
				}
			}
		})
	}
	wg.Wait()
	history.Check(e.T, rec.History())
	done := map[history.Outcome]int{}
	for _, op := range rec.History() {
		if op.Kind == history.KindSwap {
			done[op.Outcome]++
		}
	}
	if done[history.OK] == 0 {
		e.Errorf("nothing was changed: %v", done)
	}
}

// registerJudge checks that the judge of the history finds each of these bugs.
func registerJudge[Tx any](e *env[Tx]) {
	registers := access.Of(e.DB).Table("registers")
	for _, bug := range []struct {
		name  string
		plant func(text string) string
	}{
		{"", func(text string) string { return text }},
		{"a swap that looks at nothing", func(text string) string {
			if strings.Contains(text, "SET value = $3, revision") {
				text = strings.ReplaceAll(text, "revision = $2", "revision > $2 - 100")
			}
			return text
		}},
		{"a deletion that takes the revision along", func(text string) string {
			if strings.Contains(text, "SET value = NULL, revision") {
				text = `DELETE FROM ` + registers + ` WHERE owner = $0 AND name = $1 AND revision = $2`
			}
			return text
		}},
		{"a read of what was before", func(text string) string {
			if strings.Contains(text, registers) && strings.HasPrefix(text, "SELECT revision,") && strings.HasSuffix(text, "name = $1") {
				text = strings.ReplaceAll(text, "revision,", "CASE WHEN revision > 1 THEN revision - 1 ELSE revision END,")
			}
			return text
		}},
	} {
		db := e.Handle.Open(e.T, e.DSN).DB // it has its own dialect
		d := access.Of(db).Dialect
		qualify := d.Qualify
		d.Qualify = func(text string) string {
			if text = bug.plant(text); qualify != nil {
				text = qualify(text)
			}
			return text
		}
		rec, r := history.New(), e.registerOn(db)
		var quiet testing.TB = e.T
		if bug.name != "" {
			quiet = deaf{e.T}
		}
		one := registerClient[Tx]{quiet, e.Ctx, r, rec.Client(1), &sync.Map{}}
		two := registerClient[Tx]{quiet, e.Ctx, r, rec.Client(2), &sync.Map{}}
		one.create("a", "1")
		from := one.get("a")
		one.swap(from, "2")
		two.swap(from, "3")
		one.delete(two.get("a"))
		two.create("a", "4")
		if found := history.Judge(rec.History()); (len(found) == 0) != (bug.name == "") {
			e.Errorf("planted %q, found %v", bug.name, found)
		}
		e.Must(`DELETE FROM holdfast_registers`)
	}
}

// deaf ignores errors, because the test looks for the errors of a planted bug.
type deaf struct{ testing.TB }

func (deaf) Error(...any)          {}
func (deaf) Errorf(string, ...any) {}

// registerNoLostUpdate checks that every increment of several writers is present, by plain calls
// and within transactions.
func registerNoLostUpdate[Tx any](e *env[Tx]) {
	r := e.register()
	names := []string{"a", "b"}
	plus := func(e register.Entry) []byte {
		n, _ := strconv.Atoi(string(e.Value))
		return []byte(strconv.Itoa(n + 1))
	}
	const writers, times = 4, 6
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			for i := range times * len(names) {
				name := names[(w+i)%len(names)]
				var err error
				if i%4 < 2 {
					err = optimistic.Retry(e.Ctx, e.DB, func(ctx context.Context, tx Tx) error {
						from, err := r.GetTx(ctx, tx, name)
						if errors.Is(err, register.ErrNotFound) {
							_, err = r.CreateTx(ctx, tx, name, plus(from))
						} else if err == nil {
							_, err = r.CompareAndSwapTx(ctx, tx, name, from.Revision, plus(from))
						}
						return err
					}, optimistic.RetryOptions{Attempts: 1000})
				} else {
					for err = register.ErrConflict; errors.Is(err, register.ErrConflict) || errors.Is(err, holdfast.ErrRetry); {
						var from register.Entry
						if from, err = r.Get(e.Ctx, name); errors.Is(err, register.ErrNotFound) {
							_, err = r.Create(e.Ctx, name, plus(from))
						} else if err == nil {
							_, err = r.CompareAndSwap(e.Ctx, name, from.Revision, plus(from))
						}
					}
				}
				if err != nil {
					e.Error(err)
				}
			}
		})
	}
	wg.Wait()
	for _, name := range names {
		e.wantEntry(r, name, writers*times, strconv.Itoa(writers*times))
	}
}

// registerSnapshots uses a transaction whose snapshot hides the current revision. It gets a
// conflict or an error that asks for a new transaction, and is rolled back.
func registerSnapshots[Tx any](e *env[Tx]) {
	r := e.register()
	level := sql.LevelRepeatableRead
	if e.Engine == dbtest.SQLite {
		level = sql.LevelDefault
	}
	for what, write := range map[string]func(tx Tx) error{
		"swap":   func(tx Tx) error { _, err := r.CompareAndSwapTx(e.Ctx, tx, "swap", 1, nil); return err },
		"delete": func(tx Tx) error { _, err := r.DeleteTx(e.Ctx, tx, "delete", 1); return err },
		"create": func(tx Tx) error { _, err := r.CreateTx(e.Ctx, tx, "create", nil); return err },
	} {
		if what != "create" {
			if _, err := r.Create(e.Ctx, what, nil); err != nil {
				e.Fatal(err)
			}
		}
		tx := e.BeginTx(level)
		if _, err := r.GetTx(e.Ctx, tx, what); err != nil && what != "create" {
			e.Error(err)
		}
		var err error
		if what == "create" {
			_, err = r.Create(e.Ctx, what, nil)
		} else {
			_, err = r.CompareAndSwap(e.Ctx, what, 1, []byte("2"))
		}
		if err != nil {
			e.Fatal(err)
		}
		var row *register.WriteError
		switch err := write(tx); {
		case !e.StaleWrites() && (!errors.Is(err, holdfast.ErrRetry) || !errors.As(err, &row) || row.Name != what):
			e.Errorf("%s: got %v, want to be asked to begin again, for this name", what, err)
		case e.StaleWrites() && !errors.Is(err, register.ErrConflict):
			e.Errorf("%s: got %v, want a conflict", what, err)
		}
		e.WantRolledBack(tx)
	}
}
