package sqllock

import (
	"bytes"
	"cmp"
	"context"
	"iter"
	"slices"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/dialect"
	"github.com/holdfast-go/holdfast/internal/lockname"
	"github.com/holdfast-go/holdfast/internal/options"
	"github.com/holdfast-go/holdfast/internal/trace"
	"github.com/holdfast-go/holdfast/sqllock/internal/keeper"
)

const (
	// MaxValue is the maximum length of a lease's value in bytes.
	MaxValue = 4096

	listPage = 500 // locks that List reads with one statement
)

// Info describes a lease as its row shows it.
type Info struct {
	Owner, Key string
	// Held is whether the lock is held now. Holder is the present or the last holder.
	Held   bool
	Holder string
	// Token is the token of the last grant. After a ForceRelease it is higher.
	Token int64
	// Since is when the term began, by the database's clock.
	Since time.Time
	// Remaining is the time until the lease expires, unless it is renewed.
	Remaining time.Duration
	// Waiting is how many calls of Acquire wait, in all processes. It lags by a second or two.
	// Calls that wait for a lock of their own process do not count.
	Waiting int
	// Value is the value that the holder set with Lease.SetValue. It is nil if the lock is not held.
	Value []byte
	// Forced is the last ForceRelease of this lock. It is zero if there was none.
	Forced Forced

	// For a watch: how many terms the row has had, when the last one expires or ended, and whether it was released.
	terms, expires int64
	released       bool
}

// Forced records a ForceRelease: when, by whom, and why.
type Forced struct {
	At time.Time
	holdfast.Actor
}

// Inspect reads a key's lease. found is false if there never was one, or if package reaper has
// deleted it since.
//
// Errors: [holdfast.ErrInvalid], the driver's.
func (l *Locker[Tx]) Inspect(ctx context.Context, key string) (info Info, found bool, err error) {
	name, err := lockname.Of(lockname.Lease, l.owner, key)
	if err != nil {
		return info, false, err
	}
	page, err := l.leases.statements.listLeases(ctx, position{owner: name.Owner, name: []byte{}}, name.Row(), next(name.Row()), true, 1)
	if err != nil || len(page) == 0 {
		return info, false, err
	}
	return page[0], true, nil
}

// ListOptions select locks to list. The zero value selects the held locks of the Locker's owner.
type ListOptions struct {
	// Prefix selects the keys that begin with it.
	Prefix string
	// Free includes leases that are not held.
	Free bool
	// EveryOwner selects the locks of all owners, in the order of the owners' bytes. On a sharded
	// database that asks every shard.
	EveryOwner bool
	// After is the lock that the list continues after, by its Key and, with EveryOwner, its Owner.
	After Info
}

// List iterates over leases, in the order of the keys' bytes. It reads 500 at a time and is no
// snapshot. It ends at the first error.
//
// Errors: [holdfast.ErrInvalid], the driver's.
func (l *Locker[Tx]) List(ctx context.Context, opts ...ListOptions) iter.Seq2[Info, error] {
	o, err := options.One(opts)
	owner := l.owner
	if o.EveryOwner {
		owner = core.AnyOwner.Owner(o.After.Owner)
	}
	o.After.Owner = owner.ID
	from := append([]byte{byte(lockname.Lease)}, o.Prefix...)
	return core.Pages(cmp.Or(err, owner.Err), o.After, listPage, func(after Info) ([]Info, error) {
		at := position{after.Owner, lockname.Lease.Row(after.Key), o.EveryOwner}
		return l.leases.statements.listLeases(ctx, at, from, core.Behind(from), o.Free, listPage)
	})
}

// position is where a list begins: after a name of one owner, or of every owner.
type position struct {
	owner string
	name  []byte
	every bool
}

// next returns the name right after name.
func next(name []byte) []byte { return append(slices.Clip(name), 0) }

// ForceRelease takes the lock on key away from the holder of a token, which Inspect shows, or
// with token 0 from any holder. It records who did so. It raises
// the token, so that the former holder's guards and releases fail. The former holder's context
// ends with its next renewal, at the latest at the end of its trust window. Until then its work
// outside of guarded transactions may overlap with the next holder's work. ForceRelease waits
// for running guarded transactions: ten seconds, or until ctx ends. It returns false if the lock was free or had
// another token. Package audit has a row about it, which commits with it.
//
// Errors: [holdfast.ErrInvalid] (the Actor is not complete),
// [holdfast.ErrRetry] (a guarded transaction still runs), [holdfast.ErrDenied], the driver's.
func (l *Locker[Tx]) ForceRelease(ctx context.Context, key string, token int64, who holdfast.Actor) (had bool, err error) {
	ctx, op := l.leases.k.StartSpan(ctx, trace.LockLease, "force_release")
	defer func() { op.End(err, keeper.Outcome) }()
	name, err := lockname.Of(lockname.Lease, l.owner, key)
	if err != nil {
		return false, err
	}
	if err := keeper.CheckActor(who); err != nil {
		return false, err
	}
	s := l.leases.statements
	return s.Force(ctx, name, who, func(ctx context.Context, q core.Querier) (before, after *keeper.Forced, err error) {
		return s.force(ctx, q, name, token, who)
	})
}

// force takes the lock from the term that it reads first. A term that begins in between has another
// token, so then nothing is changed, and it reads again.
func (s *statements) force(ctx context.Context, q core.Querier, name lockname.Name, token int64, who holdfast.Actor) (before, after *keeper.Forced, err error) {
	for {
		was, there, err := s.ReadOn(ctx, q, name)
		if err != nil || !there || was.Attempt == nil || token != 0 && was.Token != token {
			return nil, nil, err
		}
		r, err := s.Compile("force", dialect.ForceLease).Exec(ctx, q, name.Args(who.By, who.Reason, was.Token)...)
		if err != nil {
			return nil, nil, err
		}
		if r.Affected == 0 {
			continue
		}
		is, _, err := s.ReadOn(ctx, q, name)
		return &keeper.Forced{Token: was.Token, Holder: was.Holder, Held: was.Left > 0}, &keeper.Forced{Token: is.Token}, err
	}
}

// SetValue sets what Inspect and List show as the lease's Value, at most [MaxValue]
// bytes, until the term ends. nil removes it. The value's bytes stay in the lock's row until the
// next term begins or package reaper deletes the row. It waits for a guarded transaction of the lease, so inside one
// it would wait for itself until ctx ends.
//
// Errors: [ErrLost], which also ends the lease's context; [holdfast.ErrInvalid]; the driver's.
func (l *Lease) SetValue(ctx context.Context, value []byte) error {
	if err := keeper.CheckValue(value); err != nil {
		return err
	}
	kept := l.kept()
	if kept.Term().Kind() != lockname.Lease {
		return keeper.Invalid("value", "fair locks and permits have none")
	}
	s := kept.Statements()
	said := false
	err := s.Retry(ctx, func(q core.Querier) error {
		r, err := s.Compile("set value", dialect.SetLeaseValue).Exec(ctx, q, kept.Attempt().Name.Args(kept.Attempt().ID[:], value)...)
		said = err == nil && r.Affected > 0
		return err
	})
	if err == nil && !said { // or it says so already, and MySQL counts changes only
		v, err := s.HolderOf(ctx, kept.Attempt().Name)
		if err != nil {
			return err
		}
		if v.Token != l.Token() || v.Left == 0 || !bytes.Equal(v.Attempt, kept.Attempt().ID[:]) {
			kept.Over()
			return &LostError{Key: l.Key(), Token: l.Token(), Reason: "it had ended when its value was to be set"}
		}
	}
	return err
}

// listLeases reads rows between two names.
func (s *statements) listLeases(ctx context.Context, p position, from, before []byte, all bool, limit int) (page []Info, err error) {
	stmt := s.Compile("list", s.Dialect.ListLeases(p.every))
	free := 0
	if all {
		free = 1
	}
	err = s.OnConn(ctx, func(q core.Querier) error {
		rows, err := stmt.Query(ctx, q, p.owner, p.name, from, before, limit, free)
		if err != nil {
			return err
		}
		page, err = core.Collect(rows, scanInfo)
		return err
	})
	return page, err
}

func scanInfo(row core.Row) (i Info, err error) {
	var name, attempt []byte
	var left, since int64
	var forced *int64
	if err := row.Scan(&i.Owner, &name, &attempt, &i.Token, &i.Waiting, &left, &i.Holder, &since, &i.Value, &forced, &i.Forced.By, &i.Forced.Reason, &i.terms, &i.expires); err != nil {
		return Info{}, err
	}
	i.Key, i.Remaining, i.Since = string(name[1:]), keeper.Micros(left), time.UnixMicro(since).UTC()
	i.Held, i.released = attempt != nil && left > 0, attempt == nil
	if forced != nil {
		i.Forced.At = time.UnixMicro(*forced).UTC()
	}
	return i, nil
}
