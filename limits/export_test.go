package limits

import "context"

// The calls below send one statement each, without the reads before it, and report whether it wrote.

// EndUnread ends a reservation.
func (l *Limits[Tx]) EndUnread(ctx context.Context, id string, to State, captured int64) (bool, error) {
	done, err := l.sql.end.Exec(ctx, l.access.Pool, l.own([]byte(id), int(to), captured, l.keep)...)
	return done.Affected != 0, err
}

// ExpireUnread closes a reservation.
func (l *Limits[Tx]) ExpireUnread(ctx context.Context, id string) (bool, error) {
	ids := [][]byte{[]byte(id)}
	done, err := l.withIDs("expire", l.sql.expire, 3, ids).Exec(ctx, l.access.Pool, withIDs(l.own(l.keep), ids)...)
	return done.Affected != 0, err
}

// EraseUnread deletes an entry.
func (l *Limits[Tx]) EraseUnread(ctx context.Context, id string) (bool, error) {
	ids := [][]byte{[]byte(id)}
	done, err := l.withIDs("erase", l.sql.remove, 2, ids).Exec(ctx, l.access.Pool, withIDs(l.own(), ids)...)
	return done.Affected != 0, err
}

// SetUnread sets a limit.
func (l *Limits[Tx]) SetUnread(ctx context.Context, key string, amount int64) (bool, error) {
	at, err := l.place("key", key)
	if err != nil {
		return false, err
	}
	done, err := l.sql.set.Exec(ctx, l.access.Pool, l.counter(at, amount)...)
	return done.Affected != 0, err
}
