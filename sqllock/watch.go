package sqllock

import (
	"context"
	"iter"
	"maps"
	"slices"

	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/lockname"
)

// EventKind says what became of a lock.
type EventKind string

// The kinds of events. A grant ends the term before it: a lock that is handed over is not free in
// between, and has no event of its end.
const (
	// EventPresent is the state of a lock when the watch begins. It is the first event of each key that
	// has a row then, and of the key of Locker.Watch.
	EventPresent EventKind = "present"
	EventGranted EventKind = "granted"
	EventRenewed EventKind = "renewed"
	// EventReleased is the end of a term by its holder. EventExpired is its end by the database's
	// clock: the holder had not released it. EventForced is a ForceRelease, which Info.Forced describes.
	EventReleased EventKind = "released"
	EventExpired  EventKind = "expired"
	EventForced   EventKind = "forced"
	// EventGone is the end of a term whose row package reaper has deleted since it was last read, so
	// that it is not known how the term ended. Info is what was last read.
	EventGone EventKind = "gone"
)

// Event is a change of one lock.
type Event struct {
	Kind EventKind
	// Info is the lock as the watch read it. If a term was over by then, Held is false already in the
	// event of its grant.
	Info
	// Missed is how many terms of the key have no event, because each was over before it could be read:
	// they began after the key's last event and before this one. It is -1 if that is not known: package
	// reaper has deleted the row in between, the database was restored, or a client granted the lock
	// that does not count. It is too low if there was more than reaper.Options.LockGrace between two
	// reads.
	Missed int64
}

// Watch yields the present state of the lock on key, and then each change. It reads the lock twice a
// second, and compares what it reads, so a change is yielded up to half a second late. On PostgreSQL a
// release notifies the watch, which reads at once; for that it listens on a connection that the Locker's
// watches and waiting calls share, and writes a row a second. No change is missed silently: Event.Missed
// counts the terms that began and ended between two reads.
//
//	for event, err := range locks.Watch(ctx, "settlement") {
//		if err != nil {
//			return err
//		}
//		log.Print(event.Kind, event.Holder, event.Token)
//	}
//
// A lost connection or a failover does not end the watch: it reads again after a pause that doubles up
// to ten seconds. Between two reads it holds no connection, and it does not read while the
// loop's body runs.
//
// Errors, each of which ends the watch: ctx's cause; [ErrClosed]; [holdfast.ErrInvalid]; an error of
// the database that lasts for five seconds, and is neither a lost connection nor one of a server that
// fails over or asks for another try.
func (l *Locker[Tx]) Watch(ctx context.Context, key string) iter.Seq2[Event, error] {
	name, err := lockname.Of(lockname.Lease, l.owner, key)
	return l.leases.events(ctx, name, name.Row(), next(name.Row()), err)
}

// WatchPrefix is Watch for the locks of the Locker's owner whose keys begin with prefix. Changes of
// different keys are yielded in the order of the keys' bytes, not in that of time. Twice a
// second, on PostgreSQL too, it reads all rows of the prefix, 500 with each statement, those of free
// locks included, and it holds them in memory. So it is for some thousand locks, not for millions.
//
// Errors: those of [Locker.Watch].
func (l *Locker[Tx]) WatchPrefix(ctx context.Context, prefix string) iter.Seq2[Event, error] {
	from := append([]byte{byte(lockname.Lease)}, prefix...)
	return l.leases.events(ctx, lockname.Name{Owner: l.owner.ID}, from, core.Behind(from), l.owner.Err)
}

// events watches the locks of an owner between two names. of is the lock if there is only one, and
// otherwise has no key.
func (m *leases) events(ctx context.Context, of lockname.Name, from, before []byte, err error) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		var seen map[string]Info
		read := func(ctx context.Context) (bool, error) {
			all, err := core.First(-1, core.Pages(nil, Info{}, listPage, func(after Info) ([]Info, error) {
				return m.statements.listLeases(ctx, position{owner: of.Owner, name: lockname.Lease.Row(after.Key)}, from, before, true, listPage)
			}))
			if err != nil {
				return true, err
			}
			if seen == nil && len(all) == 0 && of.Key() != "" {
				all = []Info{{Owner: of.Owner, Key: of.Key()}}
			}
			was := seen
			seen = make(map[string]Info, len(all))
			for _, is := range all {
				seen[is.Key] = is
			}
			for _, e := range changes(was, all, seen) {
				if !yield(e, nil) {
					return false, nil
				}
			}
			return true, nil
		}
		if err == nil {
			err = m.k.Watch(ctx, of, read)
		}
		if err != nil {
			yield(Event{}, err)
		}
	}
}

// changes returns the events that lead from one read to the next one. seen has the locks of now; there
// was no read before if was is nil.
func changes(was map[string]Info, now []Info, seen map[string]Info) (events []Event) {
	for _, is := range now {
		if was == nil {
			events = append(events, Event{Kind: EventPresent, Info: is})
		} else {
			events = append(events, is.since(was[is.Key])...)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(was)) {
		if _, there := seen[key]; !there && was[key].Held {
			events = append(events, Event{Kind: EventGone, Info: was[key]})
		}
	}
	return events
}

// since returns the events since the lock was read as was, the zero Info if it had no row.
func (i Info) since(was Info) (events []Event) {
	add := func(kind EventKind, missed int64) {
		events = append(events, Event{Kind: kind, Info: i, Missed: missed})
	}
	forced := i.Forced.At.After(was.Forced.At)
	if forced && (i.Held || i.Forced.At.Before(i.Since)) { // the term before this one
		add(EventForced, 0)
		forced = false
	}
	granted := i.Token != was.Token && (i.terms != was.terms || !forced)
	switch {
	case granted:
		add(EventGranted, max(i.terms-was.terms-1, -1))
	case i.Held && was.Held && i.expires > was.expires:
		add(EventRenewed, 0)
	}
	switch {
	case i.Held:
	case forced:
		add(EventForced, 0)
	case !granted && !was.Held:
	case i.released:
		add(EventReleased, 0)
	default:
		add(EventExpired, 0)
	}
	return events
}
