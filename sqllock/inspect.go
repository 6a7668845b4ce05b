package sqllock

import (
	"bytes"
	"context"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/dialect"
	"github.com/holdfast-go/holdfast/internal/trace"
)

const (
	// MaxReason is the longest reason of a ForceRelease, in bytes.
	MaxReason = 500
	// MaxValue is the longest value of a lease, in bytes.
	MaxValue = 4096

	listPage = 500 // locks that List reads with one statement
)

// Info is a lease as its row says.
type Info struct {
	Key string
	// Held is whether somebody has it now; Holder is then, or was last, who.
	Held   bool
	Holder string
	// Token is that of the last grant, or above it after a ForceRelease.
	Token int64
	// Since is when the term began, by the database's clock.
	Since time.Time
	// Remaining is the time until its expiry, unless it is renewed.
	Remaining time.Duration
	// Waiting is how many calls of Acquire wait, in all processes, as of the
	// last second or two. Those that wait for a lock of their own process are
	// not counted.
	Waiting int
	// Value is what the holder said with Lease.Say.
	Value []byte
	// Forced says who took the lock away from its holder last, and why; its
	// zero value is nobody.
	Forced Forced
}

// Forced is a lock that was taken away.
type Forced struct {
	At         time.Time
	By, Reason string
}

// Inspect reads a key's lease; false when there never was one, or it was
// reaped since.
//
// Errors: [holdfast.ErrInvalid], the driver's.
func (l *Locker[Tx]) Inspect(ctx context.Context, key string) (info Info, found bool, err error) {
	name, err := nameOf(kindLease, key)
	if err != nil {
		return info, false, err
	}
	page, err := l.leases.store.listLeases(ctx, name, next(name), true, 1)
	if err != nil || len(page) == 0 {
		return info, false, err
	}
	return page[0], true, nil
}

// List goes over the leases whose keys begin with prefix, in the order of the
// keys' bytes: those that are held, or all that have a row. It reads some
// hundreds at a time and is no snapshot. It ends at the first error.
func (l *Locker[Tx]) List(ctx context.Context, prefix string, all bool) iter.Seq2[Info, error] {
	return l.ListAfter(ctx, prefix, "", all)
}

// ListAfter is List of the keys behind one, to go on where another List ended.
func (l *Locker[Tx]) ListAfter(ctx context.Context, prefix, after string, all bool) iter.Seq2[Info, error] {
	return func(yield func(Info, error) bool) {
		from := append([]byte{byte(kindLease)}, prefix...)
		before := behind(from)
		if after >= prefix { // else all are behind it
			from = next(append([]byte{byte(kindLease)}, after...))
		}
		for {
			page, err := l.leases.store.listLeases(ctx, from, before, all, listPage)
			if err != nil {
				yield(Info{}, err)
				return
			}
			for _, info := range page {
				if !yield(info, nil) {
					return
				}
			}
			if len(page) < listPage {
				return
			}
			from = next(append([]byte{byte(kindLease)}, page[len(page)-1].Key...))
		}
	}
}

// next is the name that comes right after name.
func next(name []byte) []byte { return append(slices.Clip(name), 0) }

// behind is the first name that is behind all that begin with p.
func behind(p []byte) []byte {
	p = bytes.Clone(bytes.TrimRight(p, "\xff")) // a kind is left, which is none
	p[len(p)-1]++
	return p
}

// ForceRelease takes the lock on key away from the holder whose grant has a token,
// as Inspect says it, or with token 0 from whoever has it. It records by whom (the
// Holder of this Locker) and why. The token moves, so that the former
// holder's guards and releases fail; its context ends with its next renewal
// only, at the latest with its trust window, and what it does outside of
// guarded transactions may overlap with the next holder's work. It waits for
// guarded transactions under way, within ctx. false when nobody had the lock, or
// another than was meant.
//
// Errors: [holdfast.ErrInvalid] (the reason is empty or longer than
// [MaxReason]), [holdfast.ErrRetry] (a guarded transaction goes on), the driver's.
func (l *Locker[Tx]) ForceRelease(ctx context.Context, key string, token int64, reason string) (had bool, err error) {
	ctx, op := l.leases.tellOf(ctx, trace.LockLease, "force_release")
	defer func() { op.End(err, outcome) }()
	name, err := nameOf(kindLease, key)
	if err != nil {
		return false, err
	}
	if err := checkReason(reason); err != nil {
		return false, err
	}
	s := l.leases.store
	err = s.retry(ctx, func(q core.Querier) error {
		r, err := s.dialect.Compile("locks.force", s.texts(dialect.ForceLease)).Exec(ctx, q, name, s.holder, reason, token)
		had = had || err == nil && r.Affected > 0
		return err
	})
	return had, err
}

func checkReason(reason string) error {
	if reason == "" || len(reason) > MaxReason || !utf8.ValidString(reason) || strings.ContainsRune(reason, 0) {
		return invalid("reason", fmt.Sprintf("is not 1 to %d bytes of UTF-8 without NUL: say why, for those who look later", MaxReason))
	}
	return nil
}

// Say sets what Inspect and List show as the lease's Value, at most 4096 bytes,
// until the term ends. nil takes it back.
//
// Errors: [ErrLost], [holdfast.ErrInvalid], the driver's.
func (l *Lease) Say(ctx context.Context, value []byte) error {
	if err := checkValue(value); err != nil {
		return err
	}
	if l.claim != nil {
		return invalid("value", "fair locks and permits have none")
	}
	s := l.m.store
	said := false
	err := s.retry(ctx, func(q core.Querier) error {
		r, err := s.dialect.Compile("locks.say", s.texts(dialect.SayLease)).Exec(ctx, q, l.name, l.owner[:], value)
		said = err == nil && r.Affected > 0
		return err
	})
	if err == nil && !said { // or it says so already, and MySQL counts changes only
		if v, _ := s.holderOf(ctx, l.name); v.token != l.term.token || v.left == 0 {
			return &LostError{Key: l.term.key, Token: l.term.token, Reason: "it had ended when it was to say something"}
		}
	}
	return err
}

func checkValue(value []byte) error {
	if len(value) > MaxValue {
		return invalid("value", fmt.Sprintf("has %d bytes, at most %d", len(value), MaxValue))
	}
	return nil
}

// listLeases reads rows between two names.
func (s *store) listLeases(ctx context.Context, after, before []byte, all bool, limit int) (page []Info, err error) {
	stmt := s.dialect.Compile("locks.list", s.texts(dialect.ListLeases))
	free := 0
	if all {
		free = 1
	}
	err = s.onConn(ctx, "", func(q core.Querier) error {
		page = nil
		rows, err := stmt.Query(ctx, q, after, before, limit, free)
		return each(rows, err, func() error {
			var name, owner []byte
			var left, since int64
			var forced *int64
			var i Info
			if err := rows.Scan(&name, &owner, &i.Token, &i.Waiting, &left, &i.Holder, &since, &i.Value, &forced, &i.Forced.By, &i.Forced.Reason); err != nil {
				return err
			}
			i.Key, i.Remaining, i.Since = string(name[1:]), micros(left), time.UnixMicro(since).UTC()
			i.Held = owner != nil && left > 0
			if forced != nil {
				i.Forced.At = time.UnixMicro(*forced).UTC()
			}
			page = append(page, i)
			return nil
		})
	})
	return page, err
}
