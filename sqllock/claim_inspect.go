package sqllock

import (
	"context"
	"database/sql"
	"iter"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/dialect"
)

// Line is the line of a fair lock or of a semaphore, as the rows say.
type Line struct {
	Key string
	// Permits is the capacity of a semaphore, 0 of a fair lock.
	Permits int
	// Places are those who have it, then those who wait, in order.
	Places []Place
	// Forced says who took a place away last, and why; its zero value is nobody.
	// It goes with the key's row, which the reaper clears.
	Forced Forced

	taken int // permits of all places
}

// Place is one call's place in a line.
type Place struct {
	// Token is the fencing token, which a call has from when it stands in line.
	Token  int64
	Holder string
	// Permits is how many it is for: of a fair lock 1 shared and [MaxPermits]
	// alone.
	Permits int
	// Held is whether it has what it asked for.
	Held bool
	// Since is when it joined the line, by the database's clock.
	Since time.Time
	// Remaining is the time until its expiry, unless it is renewed; 0 of one that
	// has expired and is passed over by whoever is next.
	Remaining time.Duration
}

// Line reads the line of a fair lock; one without places when there is none.
//
// Errors: [holdfast.ErrInvalid], the driver's.
func (f FairLocker[Tx]) Line(ctx context.Context, key string) (Line, error) {
	return f.l.leases.line(ctx, kindFair, key)
}

// Lines goes over the lines of fair locks whose keys begin with prefix and in
// which somebody stands, in the order of the keys' bytes. It reads some hundred
// places at a time and is no snapshot. It ends at the first error.
func (f FairLocker[Tx]) Lines(ctx context.Context, prefix string) iter.Seq2[Line, error] {
	return f.l.leases.store.lines(ctx, kindFair, prefix)
}

// ForceRelease takes the place with a token away, held or not, and records by
// whom (the Holder of this Locker) and why. What it says of the former holder is
// what [Locker.ForceRelease] says. false when there is no such place.
//
// Errors: those of [Locker.ForceRelease].
func (f FairLocker[Tx]) ForceRelease(ctx context.Context, key string, token int64, reason string) (bool, error) {
	return f.l.leases.forceClaim(ctx, kindFair, key, token, reason)
}

// Line reads the semaphore's line.
//
// Errors: the driver's.
func (s *Semaphore[Tx]) Line(ctx context.Context) (Line, error) {
	return s.l.leases.line(ctx, kindSemaphore, s.key)
}

// ForceRelease is [FairLocker.ForceRelease] of the semaphore.
func (s *Semaphore[Tx]) ForceRelease(ctx context.Context, token int64, reason string) (bool, error) {
	return s.l.leases.forceClaim(ctx, kindSemaphore, s.key, token, reason)
}

// Semaphores is [FairLocker.Lines] of all semaphores.
func (l *Locker[Tx]) Semaphores(ctx context.Context, prefix string) iter.Seq2[Line, error] {
	return l.leases.store.lines(ctx, kindSemaphore, prefix)
}

func (m *manager) line(ctx context.Context, k kind, key string) (Line, error) {
	name, err := nameOf(k, key)
	if err != nil {
		return Line{}, err
	}
	line := Line{Key: key}
	read := func(i placeInfo) { line.add(i) }
	return line, m.store.eachPlace(ctx, dialect.LineOfClaims, read, name)
}

func (s *store) lines(ctx context.Context, k kind, prefix string) iter.Seq2[Line, error] {
	return func(yield func(Line, error) bool) {
		from := append([]byte{byte(k)}, prefix...)
		before, token, line := behind(from), int64(0), Line{}
		for {
			n, stopped := 0, false
			err := s.eachPlace(ctx, dialect.ListClaims, func(i placeInfo) {
				n++
				if key := string(i.name[1:]); key != line.Key {
					stopped = stopped || len(line.Places) > 0 && !yield(line, nil)
					line = Line{Key: key}
				}
				line.add(i)
				from, token = i.name, i.Token
			}, from, token, before, listPage)
			switch {
			case stopped:
				return
			case err != nil:
				yield(Line{}, err)
				return
			case n < listPage:
				if len(line.Places) > 0 {
					yield(line, nil)
				}
				return
			}
		}
	}
}

func (m *manager) forceClaim(ctx context.Context, k kind, key string, token int64, reason string) (had bool, err error) {
	ctx, op := m.tellOf(ctx, ask{kind: k, units: MaxPermits}.lock(), "force_release")
	defer func() { op.End(err, outcome) }()
	name, err := nameOf(k, key)
	if err != nil {
		return false, err
	}
	if err := checkReason(reason); err != nil {
		return false, err
	}
	s := m.store
	err = s.again(ctx, func() error {
		// The place first: it may have to wait for a guarded transaction, and the
		// line's end is not to be locked meanwhile.
		return s.inTx(ctx, core.TxOptions{Isolation: sql.LevelReadCommitted, LockTimeout: holdfast.DefaultLockTimeout},
			func(ctx context.Context, q core.Querier) error {
				r, err := s.dialect.Compile("locks.force", s.texts(dialect.ForceClaim)).Exec(ctx, q, name, token)
				if had = err == nil && r.Affected > 0; !had {
					return err
				}
				_, err = s.dialect.Compile("locks.forced", s.texts(dialect.ForcedClaim)).Exec(ctx, q, name, s.holder, reason)
				return err
			})
	})
	if had && err == nil {
		m.mu.Lock()
		m.lines.soon(name)
		m.mu.Unlock()
	}
	return had && err == nil, err
}

// placeInfo is a row of a line; a line without places has one without a token.
type placeInfo struct {
	Place
	name     []byte
	capacity int
	forced   Forced
}

func (l *Line) add(i placeInfo) {
	l.Forced = i.forced
	if i.Token == 0 {
		return
	}
	if kind(i.name[0]) == kindSemaphore {
		l.Permits = i.capacity
	}
	l.taken += i.Permits
	i.Held = l.taken <= i.capacity
	l.Places = append(l.Places, i.Place)
}

func (s *store) eachPlace(ctx context.Context, text string, tell func(placeInfo), args ...any) error {
	stmt := s.dialect.Compile("locks.line", s.texts(text))
	var all []placeInfo
	err := s.onConn(ctx, "", func(q core.Querier) error {
		all = nil
		rows, err := stmt.Query(ctx, q, args...)
		return each(rows, err, func() error {
			var i placeInfo
			var left, since int64
			var forced *int64
			if err := rows.Scan(&i.name, &i.Token, &i.Permits, &i.capacity, &i.Holder, &since, &left, &forced, &i.forced.By, &i.forced.Reason); err != nil {
				return err
			}
			i.Since, i.Remaining = time.UnixMicro(since).UTC(), micros(left)
			if forced != nil {
				i.forced.At = time.UnixMicro(*forced).UTC()
			}
			all = append(all, i)
			return nil
		})
	})
	if err != nil {
		return err
	}
	for _, i := range all {
		tell(i)
	}
	return nil
}
