package limits

import (
	"errors"
	"strings"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/test/dbtest"
	"github.com/holdfast-go/holdfast/limits"
	"github.com/holdfast-go/holdfast/optimistic"
)

// ownTable uses rows of the program's own, with keys of several types.
func ownTable[Tx any](e *env[Tx]) {
	l := e.orders()
	shop := l.For("shop-7")
	e.order("shop-7", "A-1", 100)
	e.order("shop-8", "A-1", 50)
	_, err := shop.Reserve(e.Ctx, ask("A-1", "1", 60))
	e.Check(err)
	_, err = shop.Capture(e.Ctx, ask("A-1", "1", 50))
	e.Check(err)
	_, err = shop.Take(e.Ctx, ask("A-1", "2", 10))
	e.Check(err)
	e.expired(shop, "A-1", "3", 40)
	_, err = shop.Reserve(e.Ctx, ask("A-1", "4", 30))
	e.Check(err)
	_, err = shop.Void(e.Ctx, ask("A-1", "4", 0))
	e.Check(err)
	_, err = shop.Reserve(e.Ctx, ask("A-1", "5", 7))
	e.Check(err)
	e.wantStatus(shop, "A-1", 100, 7, 60)
	e.wantStatus(l.For("shop-8"), "A-1", 50, 0, 0)
	if paid, held, refunded := e.Int(`SELECT paid FROM orders WHERE shop = $1`, "shop-7"), e.Int(`SELECT held FROM orders WHERE shop = $1`, "shop-7"), e.Int(`SELECT refunded FROM orders WHERE shop = $1`, "shop-7"); paid != 100 || held != 7 || refunded != 60 {
		e.Error(paid, held, refunded)
	}
	// Each change of the row moved the version by one: 1, 2 (capture), 3, 4 (reserve), 5 (expire), 6
	// (reserve), 7 (void), 8.
	if n := e.Int(`SELECT version FROM orders WHERE shop = $1`, "shop-7"); n < 8 {
		e.Errorf("version %d", n)
	}
	e.want(errOf(shop.Take(e.Ctx, ask("A-1", "6", 34))), limits.ErrExceeded)
	e.want(errOf(shop.Take(e.Ctx, ask("a-1", "6", 1))), limits.ErrNotFound)
	e.want(errOf(l.Take(e.Ctx, ask("A-1", "6", 1))), limits.ErrNotFound) // of no owner
	e.want(second(shop.Set(e.Ctx, "A-1", 66)), limits.ErrExceeded)
	e.want(second(shop.Set(e.Ctx, "A-1", 67)), nil)
	e.want(second(shop.Set(e.Ctx, "A-2", 67)), limits.ErrNotFound)
	e.Must(`UPDATE orders SET paid = 200 WHERE shop = $1`, "shop-7") // as the program may
	_, err = shop.Take(e.Ctx, ask("A-1", "7", 133))
	e.Check(err)
	e.wantStatus(shop, "A-1", 200, 7, 193)

	// A table whose amounts can only be taken, keyed by an integer.
	e.Must(`CREATE TABLE accounts_in (id BIGINT NOT NULL PRIMARY KEY, most INTEGER NOT NULL, used INTEGER NOT NULL)`)
	e.Must(`INSERT INTO accounts_in (id, most, used) VALUES (41, 1000, 900), (42, 100, 0), (43, 1000, 900)`)
	n := e.open(limits.Options{Table: &limits.Table{TableSpec: holdfast.TableSpec{Table: "accounts_in", Key: []string{"id"}}, Limit: "most", Captured: "used"}})
	_, err = n.Take(e.Ctx, ask("42", "of 42", 60))
	e.Check(err)
	e.want(errOf(n.Take(e.Ctx, ask("42", "of 42 too", 1<<40))), limits.ErrExceeded)
	e.wantStatus(n, "42", 100, 0, 60)
	if got, err := n.Take(e.Ctx, ask("42", "of 42", 60)); err != nil || !got.Replayed {
		e.Errorf("%+v, %v", got, err)
	}
	e.wantStatus(n, "42", 100, 0, 60)
	var x *limits.ExceededError
	if err := second(n.Set(e.Ctx, "42", 59)); !errors.As(err, &x) || x.Captured != 60 || x.Limit != 59 {
		e.Errorf("%+v, %v", x, err)
	}
	e.set(n, "42", 60)
	e.wantStatus(n, "42", 60, 0, 60)
	e.Must(`UPDATE accounts_in SET used = 0 WHERE id = 42`) // as no program should
	e.want(errOf(n.Take(e.Ctx, ask("42", "of 42", 60))), nil)
	if used := e.Int(`SELECT used FROM accounts_in WHERE id = 42`); used != 0 {
		e.Errorf("an amount that was taken before counts again: %d", used)
	}
	e.Must(`UPDATE accounts_in SET used = -1 WHERE id = 42`)
	if err := errOf(n.Take(e.Ctx, ask("42", "of 42", 60))); err == nil || !strings.Contains(err.Error(), "counters of the limit are not the sums") {
		e.Error(err)
	}
	if others := e.Int(`SELECT COUNT(*) FROM accounts_in WHERE id <> 42 AND most = 1000 AND used = 900`); others != 2 {
		e.Errorf("%d other rows are as they were, want 2", others)
	}
	for _, err := range []error{
		errOf(n.Take(e.Ctx, ask("042", "x", 1))), errOf(n.Take(e.Ctx, ask("+42", "x", 1))), errOf(n.Take(e.Ctx, ask("42 ", "x", 1))), errOf(n.Take(e.Ctx, ask("4e1", "x", 1))),
		errOf(n.Reserve(e.Ctx, ask("42", "x", 1))), errOf(n.Capture(e.Ctx, ask("42", "of 42", 1))), errOf(n.Void(e.Ctx, ask("42", "of 42", 1))),
	} {
		e.want(err, holdfast.ErrInvalid)
	}
	e.want(errOf(n.Take(e.Ctx, ask("44", "x", 1))), limits.ErrNotFound)

	// The database refuses what goes past the package, where the table has the condition.
	own := e.open()
	e.set(own, "own", 10)
	if _, err := e.SQL.ExecContext(e.Ctx, e.Rebind(`UPDATE holdfast_limits SET captured = limit_amount + 1`)); err == nil && e.Engine != dbtest.TiDB {
		e.Error("the condition of the table let more be captured than the limit")
	}
}

// ownTableIsChecked refuses tables with which a limit does not hold.
func ownTableIsChecked[Tx any](e *env[Tx]) {
	e.orders()
	e.Must(`CREATE TABLE bad (other VARCHAR(20), id ` + e.Text() + ` NOT NULL PRIMARY KEY, most BIGINT NOT NULL, used BIGINT NOT NULL, maybe BIGINT, t VARCHAR(20) NOT NULL, d DECIMAL(10, 2) NOT NULL)`)
	good := limits.Table{TableSpec: holdfast.TableSpec{Table: "bad", Key: []string{"id"}}, Limit: "most", Captured: "used"}
	e.open(limits.Options{Table: &good})
	for what, change := range map[string]func(t *limits.Table){
		"Table.Table":    func(t *limits.Table) { t.Table = "none" },
		"Table.Schema":   func(t *limits.Table) { t.Schema = "no\x00ne" },
		"Table.Key":      func(t *limits.Table) { t.Key = []string{"other"} },
		"Table.Owner":    func(t *limits.Table) { t.Owner = "other" },
		"Table.Limit":    func(t *limits.Table) { t.Limit = "" },
		"Table.Captured": func(t *limits.Table) { t.Captured = "maybe" },
		"Table.Reserved": func(t *limits.Table) { t.Reserved = "used" },
		"Table.Version":  func(t *limits.Table) { t.Version = "t" },
	} {
		table := good
		change(&table)
		_, err := limits.New(e.Ctx, e.DB, "x", limits.Options{Table: &table})
		var in *holdfast.InputError
		if !errors.As(err, &in) || in.Field != what {
			e.Errorf("%s: %v", what, err)
		}
	}
	table := good
	table.Limit = "d"
	if _, err := limits.New(e.Ctx, e.DB, "x", limits.Options{Table: &table}); !errors.Is(err, holdfast.ErrInvalid) || !strings.Contains(err.Error(), "BIGINT") {
		e.Error(err)
	}
	for _, typ := range []string{"SMALLINT", "INTEGER"} {
		name := "small_" + strings.ToLower(typ)
		e.Must(`CREATE TABLE ` + name + ` (id BIGINT NOT NULL PRIMARY KEY, most BIGINT NOT NULL, used ` + typ + ` NOT NULL)`)
		table = good
		table.Table = name
		_, err := limits.New(e.Ctx, e.DB, "x", limits.Options{Table: &table})
		if e.Engine == dbtest.SQLite { // its integers are all as large
			e.Check(err)
		} else if !errors.Is(err, holdfast.ErrInvalid) || !strings.Contains(err.Error(), "smaller than that of Table.Limit") {
			e.Errorf("%s beside BIGINT: %v", typ, err)
		}
	}
	if e.InnoDB() {
		e.Must(`CREATE TABLE folds (id VARCHAR(20) NOT NULL PRIMARY KEY, most BIGINT NOT NULL, used BIGINT NOT NULL)`)
		table = good
		table.Table = "folds"
		_, err := limits.New(e.Ctx, e.DB, "x", limits.Options{Table: &table})
		e.want(err, holdfast.ErrInvalid)
	}
}

// versioned is a row of the program's own table, for package optimistic.
type versioned struct {
	Shop    string `db:"shop"`
	No      string `db:"order_no"`
	Version int64  `db:"version"`
}

// versionIsEnforced uses a table in which the database refuses each change that does not move the version
// by one: an amount, one that goes back because its id was used, and one that was read before.
func versionIsEnforced[Tx any](e *env[Tx]) {
	if !e.DB.Capabilities().Triggers {
		return
	}
	l := e.orders().For("shop-7")
	e.order("shop-7", "A-1", 100)
	rows, err := optimistic.New[versioned](e.Ctx, e.DB, holdfast.TableSpec{Table: "orders", Key: []string{"shop", "order_no"}})
	e.Check(err)
	e.Check(rows.Enforce(e.Ctx))
	read, err := rows.Get(e.Ctx, versioned{Shop: "shop-7", No: "A-1"})
	e.Check(err)
	for range 2 {
		_, err := l.Take(e.Ctx, ask("A-1", "1", 60))
		e.Check(err)
	}
	_, err = l.Reserve(e.Ctx, ask("A-1", "2", 40))
	e.Check(err)
	_, err = l.Capture(e.Ctx, ask("A-1", "2", 30))
	e.Check(err)
	_, err = l.Set(e.Ctx, "A-1", 95)
	e.Check(err)
	e.wantStatus(l, "A-1", 95, 0, 90)
	_, err = rows.Update(e.Ctx, read)
	e.want(err, optimistic.ErrConflict)
	e.Check(rows.Unenforce(e.Ctx))
}
