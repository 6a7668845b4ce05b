package rowlock

import (
	"context"
	"strings"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/access"
	"github.com/holdfast-go/holdfast/internal/blockers"
	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/dialect/rowwait"
	"github.com/holdfast-go/holdfast/sqllock/internal/knownrows"
)

// Locker locks keys that need no row of the program's own. It holds no connection,
// runs nothing in the background and needs no closing. It is safe for concurrent
// use.
type Locker[Tx any] struct {
	locks[Tx]

	owner core.Owner
	known *knownrows.Set
}

// For returns the locks of an owner, as [sqllock.Locker.For] does. It costs nothing. A Locker of New has no
// owner, and is for a DB with holdfast.Options.SingleOwner.
func (l *Locker[Tx]) For(owner string) *Locker[Tx] {
	of := *l
	of.owner = l.access.Owners.Owner(owner)
	return &of
}

// New opens a Locker and checks that Holdfast's tables exist.
//
// Errors: [holdfast.ErrInvalid]; [holdfast.ErrSchema] with the command to run; the
// error of ctx; the driver's.
func New[Tx any](ctx context.Context, db *holdfast.DB[Tx]) (*Locker[Tx], error) {
	l, err := open(ctx, db)
	if err != nil {
		return nil, err
	}
	return &Locker[Tx]{locks: l, owner: l.access.Owners.Owner(""), known: knownrows.New()}, nil
}

// locks holds what Locker and Table share.
type locks[Tx any] struct {
	access access.Access[Tx]
	waits  *rowwait.Env
}

func open[Tx any](ctx context.Context, db *holdfast.DB[Tx]) (locks[Tx], error) {
	if db == nil {
		return locks[Tx]{}, invalid("db", "is nil")
	}
	if err := db.CheckSchema(ctx); err != nil {
		return locks[Tx]{}, err
	}
	a := access.Of(db)
	names := strings.NewReplacer("{locks}", a.Table("locks"), "{floor}", a.Table("floor"), "{now}", a.Dialect.Now)
	return locks[Tx]{a, &rowwait.Env{
		Dialect: a.Dialect, Names: names, OnConn: a.OnConn, Alive: a.Alive, PoolWait: core.PoolWait, Blockers: blockers.New(a.Dialect, a.OnConn),
	}}, nil
}
