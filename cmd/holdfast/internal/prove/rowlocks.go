package prove

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/dialect"
	"github.com/holdfast-go/holdfast/internal/stdhandle"
	"github.com/holdfast-go/holdfast/sqllock/rowlock"
)

// unseenWait is how long a statement must stay unanswered to count as waiting, if the role may
// not see which sessions wait.
const unseenWait = 2 * time.Second

const forUpdate = ` FOR UPDATE`

// session is a transaction on its own connection.
type session struct {
	*sql.Tx

	id string
}

func (t *trial) begin(ctx context.Context, c *client) (*session, error) {
	tx, err := c.pool.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelReadCommitted})
	if err != nil {
		return nil, err
	}
	s := &session{Tx: tx}
	if err := tx.QueryRowContext(ctx, t.dialect.Prove.Session).Scan(&s.id); err != nil {
		return nil, errors.Join(err, tx.Rollback())
	}
	return s, nil
}

// rowLock locks a row in one session and requests it in another, for each pair of lock modes.
func rowLock(ctx context.Context, t *trial) error {
	clients, err := t.racing(ctx)
	if err != nil {
		return err
	}
	for _, way := range []struct{ holds, comes string }{
		{forUpdate, forUpdate}, {forUpdate, ""}, {t.dialect.Prove.Share, forUpdate}, {t.dialect.Prove.Share, ""},
	} {
		if err := t.oneWaits(ctx, clients, way.holds, way.comes); err != nil {
			return err
		}
	}
	if err := t.countUnderLock(ctx, clients); err != nil {
		return err
	}
	return t.lockedKey(ctx, clients)
}

// oneWaits locks a row in session a with the clause holds, and changes it. Session b requests
// the row with the clause comes, or with an update if comes is empty. b must get no answer
// before a has ended.
func (t *trial) oneWaits(ctx context.Context, clients []*client, holds, comes string) error {
	t.attempts.Add(1)
	k, err := t.newRow(ctx)
	if err != nil {
		return err
	}
	a, err := t.begin(ctx, clients[0])
	if err != nil {
		return err
	}
	defer func() { _ = a.Rollback() }()
	if n, err := t.number(ctx, a, `SELECT n FROM {rows} WHERE k = $1`+holds, k); err != nil || n != 0 {
		return errors.Join(err, unless(n == 0, "a new row says %d", n))
	}
	b, err := t.begin(ctx, clients[1])
	if err != nil {
		return err
	}
	defer func() { _, _ = a.Rollback(), b.Rollback() }() // in this order: b waits for a
	get := func() (int64, error) { return t.number(ctx, b, `SELECT n FROM {rows} WHERE k = $1`+comes, k) }
	name := `SELECT ...` + comes
	if comes == "" {
		name = "UPDATE"
		get = func() (int64, error) {
			if err := t.exec(ctx, b, `UPDATE {rows} SET n = n + 10 WHERE k = $1`, k); err != nil {
				return 0, err
			}
			n, err := t.number(ctx, b, `SELECT n FROM {rows} WHERE k = $1`, k)
			return n - 10, err
		}
	}
	type answer struct {
		n   int64
		err error
	}
	answered := make(chan answer, 1)
	go func() {
		n, err := get()
		answered <- answer{n, err}
	}()
	waits, early, err := waiting(ctx, t, b.id, answered)
	if err == nil && !waits && t.dialect.Classify(early.err) == dialect.Busy {
		return errors.Join(a.Rollback(), b.Rollback()) // b waited for as long as the server's own bound
	}
	if err != nil || !waits && early.err != nil {
		return errors.Join(err, early.err)
	}
	if !waits {
		return brokenf("one session had locked a row with%s, and the %s of another was not made to wait: the engine does not lock rows", holds, name)
	}
	want := int64(0)
	if holds == forUpdate { // writing under a shared lock while others wait for it would be a deadlock
		want = 1
		if err := t.exec(ctx, a, `UPDATE {rows} SET n = 1 WHERE k = $1`, k); err != nil {
			return err
		}
	}
	if err := a.Commit(); err != nil {
		return err
	}
	select {
	case got := <-answered:
		if t.dialect.Classify(got.err) == dialect.Busy {
			return nil
		}
		return errors.Join(got.err, unless(got.err != nil || got.n == want,
			"a session that had waited for a row lock with %s read %d, and not the %d that was committed before it got the lock", name, got.n, want), b.Rollback())
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func unless(ok bool, format string, args ...any) error {
	if ok {
		return nil
	}
	return brokenf(format, args...)
}

// waiting reports whether a session waits for a lock: the server says so, or no answer comes
// within unseenWait. Otherwise it returns the answer.
func waiting[A any](ctx context.Context, t *trial, id string, answered <-chan A) (waits bool, early A, err error) {
	late := time.NewTimer(unseenWait)
	defer late.Stop()
	for {
		select {
		case early = <-answered:
			return false, early, nil
		case <-late.C:
			return true, early, nil
		case <-ctx.Done():
			return false, early, context.Cause(ctx)
		case <-time.After(20 * time.Millisecond):
		}
		if n, err := t.number(ctx, t.pool, t.dialect.Prove.Blocked, id); err == nil && n > 0 {
			return true, early, nil
		}
	}
}

// countUnderLock lets sessions read a number under a lock and write it back plus one.
func (t *trial) countUnderLock(ctx context.Context, clients []*client) error {
	k, err := t.newRow(ctx)
	if err != nil {
		return err
	}
	err = race(racers, func(i int) error {
		for range rounds {
			t.attempts.Add(1)
			s, err := t.begin(ctx, clients[i])
			if err != nil {
				return err
			}
			n, err := t.number(ctx, s, `SELECT n FROM {rows} WHERE k = $1 FOR UPDATE`, k)
			if err == nil {
				err = t.exec(ctx, s, `UPDATE {rows} SET n = $2 WHERE k = $1`, k, n+1)
			}
			if err != nil {
				return errors.Join(err, s.Rollback())
			}
			if err := s.Commit(); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	n, err := t.number(ctx, t.pool, `SELECT n FROM {rows} WHERE k = $1`, k)
	return errors.Join(err, unless(err != nil || n == racers*rounds, "%d transactions added one each under a row lock, and the row says %d", racers*rounds, n))
}

// lockedKey tests Holdfast's own row lock.
func (t *trial) lockedKey(ctx context.Context, clients []*client) error {
	const key = "row lock"
	t.attempts.Add(1)
	a, err := t.begin(ctx, clients[0])
	if err != nil {
		return err
	}
	defer func() { _ = a.Rollback() }()
	first, err := rowlock.New(ctx, clients[0].db)
	if err != nil {
		return err
	}
	second, err := rowlock.New(ctx, clients[1].db)
	if err != nil {
		return err
	}
	if err := first.LockTx(ctx, a.Tx, key, holdfast.Forever); err != nil {
		return err
	}
	b, err := t.begin(ctx, clients[1])
	if err != nil {
		return err
	}
	defer func() { _ = b.Rollback() }()
	switch err := second.LockTx(ctx, b.Tx, key, holdfast.NoWait); {
	case err == nil:
		return brokenf("LockTx gave one key to two transactions")
	case !errors.Is(err, rowlock.ErrLockNotAvailable):
		return err
	}
	if err := a.Commit(); err != nil {
		return err
	}
	return second.LockTx(ctx, b.Tx, key, holdfast.Forever)
}

// skipLocked locks two of five rows in one session and takes the remaining ones in another.
func skipLocked(ctx context.Context, t *trial) error {
	clients, err := t.racing(ctx)
	if err != nil {
		return err
	}
	for range rounds {
		t.attempts.Add(1)
		if err := t.skipsTwo(ctx, clients); err != nil {
			return err
		}
	}
	return nil
}

func (t *trial) skipsTwo(ctx context.Context, clients []*client) error {
	var keys [5]int64
	for i := range keys {
		var err error
		if keys[i], err = t.newRow(ctx); err != nil {
			return err
		}
	}
	a, err := t.begin(ctx, clients[0])
	if err != nil {
		return err
	}
	defer func() { _ = a.Rollback() }()
	for _, i := range []int{1, 3} {
		if _, err := t.number(ctx, a, `SELECT n FROM {rows} WHERE k = $1 FOR UPDATE`, keys[i]); err != nil {
			return err
		}
	}
	b, err := t.begin(ctx, clients[1])
	if err != nil {
		return err
	}
	defer func() { _, _ = a.Rollback(), b.Rollback() }() // in this order: b may wait for a
	type answer struct {
		keys []int64
		err  error
	}
	answered := make(chan answer, 1)
	go func() {
		got, err := t.list(ctx, b, `SELECT k FROM {rows} WHERE k IN ($1, $2, $3, $4, $5) ORDER BY k FOR UPDATE SKIP LOCKED`,
			keys[0], keys[1], keys[2], keys[3], keys[4])
		answered <- answer{got, err}
	}()
	waits, got, err := waiting(ctx, t, b.id, answered)
	switch want := []int64{keys[0], keys[2], keys[4]}; {
	case err != nil || got.err != nil && t.dialect.Classify(got.err) != dialect.Busy:
		return errors.Join(err, got.err)
	case waits || got.err != nil:
		return brokenf("SELECT ... FOR UPDATE SKIP LOCKED waited for rows that another session had locked: the engine does not skip them")
	case !slices.Equal(got.keys, want):
		return brokenf("of five rows another session had locked the second and the fourth, and SELECT ... FOR UPDATE SKIP LOCKED answered %s: the engine does not skip what is locked, and only that",
			places(keys[:], got.keys))
	}
	return errors.Join(b.Rollback(), a.Rollback())
}

// places returns which of keys were in the answer, counted from 1.
func places(keys, got []int64) string {
	var list []int
	for _, k := range got {
		list = append(list, slices.Index(keys, k)+1)
	}
	return fmt.Sprint(list)
}

func (r *run) list(ctx context.Context, q runner, text string, args ...any) ([]int64, error) {
	rows, err := r.stmt(text).Query(ctx, stdhandle.Querier{R: q}, args...)
	if err != nil {
		return nil, err
	}
	return core.Collect(rows, core.Value[int64])
}
