package staged

import (
	"context"
	"errors"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/idempotency/operators"
	"github.com/holdfast-go/holdfast/internal/access"
	"github.com/holdfast-go/holdfast/sqllock"
	"github.com/holdfast-go/holdfast/sqllock/fairlock"
)

// clone makes a second set of tables that looks like the original, as a copy of a database or a
// restore elsewhere does.
func (e *env[Tx]) clone() *holdfast.DB[Tx] {
	e.Helper()
	e.Migrate(holdfast.Options{Prefix: "clone_"})
	e.Must(`UPDATE clone_floor SET store = (SELECT store FROM holdfast_floor)`)
	return e.Open(e.DSN, holdfast.Options{Prefix: "clone_"}).DB
}

// family is a family of locks with the table of its terms in the clone.
type family[Tx any] struct {
	acquire func(l *sqllock.Locker[Tx], key string) (*sqllock.Lease, error)
	term    func(l *sqllock.Locker[Tx], key string, token int64) sqllock.Term
	rows    string
}

// afterRestoreClone checks that after-restore gives a clone a new identity. A term of the
// original is then invalid there even where the tokens are equal, and a Locker that was opened
// before refuses to guard.
func afterRestoreClone[Tx any](e *env[Tx]) {
	db := e.clone()
	families := map[string]family[Tx]{
		"lease": {func(l *sqllock.Locker[Tx], key string) (*sqllock.Lease, error) { return l.Acquire(e.Ctx, key) }, (*sqllock.Locker[Tx]).Term, "clone_locks"},
		"fair": {func(l *sqllock.Locker[Tx], key string) (*sqllock.Lease, error) {
			return fairlock.New(l).Acquire(e.Ctx, key)
		}, func(l *sqllock.Locker[Tx], key string, token int64) sqllock.Term {
			return fairlock.New(l).Term(key, token)
		}, "clone_tickets"},
	}
	guarded := func(l *sqllock.Locker[Tx], term sqllock.Term, effect string) error {
		return db.InTx(e.Ctx, func(ctx context.Context, tx Tx) error {
			if err := l.Guard(ctx, tx, term); err != nil {
				return err
			}
			return e.Effect(ctx, tx, effect)
		})
	}
	original, before := e.LockerWith(sqllock.Options{}), e.LockerOn(db, sqllock.Options{})
	// twin returns a term of the original, by its token alone; l has a term of the clone with the same token.
	twin := func(name string, l *sqllock.Locker[Tx], key string) sqllock.Term {
		e.Helper()
		theirs, err := families[name].acquire(original, key)
		e.Check(err)
		mine, err := families[name].acquire(l, key)
		e.Check(err)
		e.Must(`UPDATE `+families[name].rows+` SET token = $1 WHERE token = $2`, theirs.Token(), mine.Token())
		return families[name].term(original, key, theirs.Token())
	}
	for name := range families {
		if err := guarded(before, twin(name, before, "naive"), "naive"); err != nil {
			e.Errorf("%s: on a clone as it is the original's term was to pass: %v", name, err)
		}
	}
	was := e.store(db)
	_, err := operators.AfterRestore(e.Ctx, db, who())
	e.Check(err)
	if now := e.store(db); now == was || len(now) != 16 || e.store(e.DB) != was {
		e.Errorf("the clone's store is %x, it was %x", now, was)
	}

	after := e.LockerOn(db, sqllock.Options{})
	for name, f := range families {
		refused := func(what string, l *sqllock.Locker[Tx], term sqllock.Term) {
			e.Helper()
			if err := guarded(l, term, "refused"); !errors.Is(err, sqllock.ErrOtherStore) {
				e.Errorf("%s: %s: %v", name, what, err)
			}
		}
		refused("the original's term, by a Locker of before", before, twin(name, before, "a"))
		refused("the original's term, by a Locker of after", after, twin(name, after, "b"))
		old, err := f.acquire(before, "c")
		e.Check(err)
		refused("its own term, by a Locker of before", before, old.Term())
		refused("that term, by a Locker of after", after, old.Term())
		lease, err := f.acquire(after, "d")
		e.Check(err)
		refused("a new term, by a Locker of before", before, lease.Term())
		if err := guarded(after, lease.Term(), name); err != nil || e.Effects(name) != 1 {
			e.Errorf("%s: %v, %d effects", name, err, e.Effects(name))
		}
	}
	if n := e.Effects("refused"); n != 0 {
		e.Errorf("%d effects were committed", n)
	}
	// The transaction's writes before the guard are rolled back with it.
	lease, err := before.Acquire(e.Ctx, "e")
	e.Check(err)
	err = db.InTx(e.Ctx, func(ctx context.Context, tx Tx) error {
		err := e.Effect(ctx, tx, "swallowed")
		_ = before.Guard(ctx, tx, lease.Term())
		return err
	})
	if err == nil || e.Effects("swallowed") != 0 {
		e.Errorf("a refusal that is swallowed: %v, %d effects", err, e.Effects("swallowed"))
	}
}

// store returns the identity of a set of tables.
func (e *env[Tx]) store(db *holdfast.DB[Tx]) string {
	e.Helper()
	var store []byte
	if err := e.SQL.QueryRowContext(e.Ctx, `SELECT store FROM `+access.Of(db).Table("floor")).Scan(&store); err != nil {
		e.Fatal(err)
	}
	return string(store)
}
