package holdfasttest_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/jmoiron/sqlx"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/holdfasttest"
	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/internal/test/dbtest"
)

// TestKitOfSQLX uses the other transaction type, also in the caller's own transaction.
func TestKitOfSQLX(t *testing.T) {
	dbtest.NotUnderRace(t, "sqlx has the memory of database/sql")
	t.Parallel()
	kit := holdfasttest.SQLiteX(t)
	s := store(t, kit.DB)
	pool := sqlx.NewDb(kit.Pool, "sqlite")
	do := func(key string) (idempotency.Outcome, error) {
		tx, err := pool.BeginTxx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		r, err := idempotency.DoTx(t.Context(), s, tx, op(kit.Owner, key), func(context.Context, *sqlx.Tx) (string, error) { return "done", nil })
		if err == nil {
			err = tx.Commit()
		}
		_ = tx.Rollback()
		return r.Outcome, err
	}
	end := kit.InProgress(s, op(kit.Owner, "a"))
	also := kit.InProgress(s, op(kit.Owner, "a"))
	end()
	if _, err := do("a"); !errors.Is(err, idempotency.ErrInProgress) {
		t.Errorf("got %v, want in progress", err)
	}
	if o, err := do("b"); err != nil || o != idempotency.Executed {
		t.Errorf("another key: %v, %v", o, err)
	}
	also()
	if o, err := do("a"); err != nil || o != idempotency.Executed {
		t.Errorf("after it: %v, %v", o, err)
	}
	holdfasttest.Done(kit, s, op(kit.Owner, "c"), "done")
	if o, err := do("c"); err != nil || o != idempotency.Replayed {
		t.Errorf("%v, %v", o, err)
	}
}

// TestLoseCommitOfInTx checks that LoseCommit also works for a commit without a key, and that
// later commits are not affected.
func TestLoseCommitOfInTx(t *testing.T) {
	t.Parallel()
	kit := holdfasttest.SQLite(t, holdfast.Options{SingleOwner: true})
	s := store(t, kit.DB)
	if _, err := kit.Pool.ExecContext(t.Context(), `CREATE TABLE effects (n INTEGER)`); err != nil {
		t.Fatal(err)
	}
	for n, committed := range []bool{false, true} {
		kit.LoseCommit(committed)
		err := kit.DB.InTx(t.Context(), func(ctx context.Context, tx *sql.Tx) error {
			_, err := tx.ExecContext(ctx, `INSERT INTO effects VALUES (1)`)
			return err
		})
		if !errors.Is(err, holdfast.ErrUnknown) {
			t.Errorf("got %v, want unknown", err)
		}
		var rows int
		if err := kit.Pool.QueryRowContext(t.Context(), `SELECT COUNT(*) FROM effects`).Scan(&rows); err != nil || rows != n {
			t.Errorf("committed %v: %d rows, %v", committed, rows, err)
		}
		r, err := idempotency.Do(t.Context(), s, op(kit.Owner, fmt.Sprint(n)), func(context.Context, *sql.Tx) (string, error) { return "", nil })
		if err != nil || r.Outcome != idempotency.Executed {
			t.Errorf("after it: %v, %v", r, err)
		}
	}
}

// fatal records that a test was ended.
type fatal struct {
	*testing.T
	said string
}

func (f *fatal) Fatalf(format string, args ...any) {
	f.said = fmt.Sprintf(format, args...)
	runtime.Goexit()
}

// TestWhatCannotBeInjected checks that a fault which cannot be injected ends the test and
// gives the reason.
func TestWhatCannotBeInjected(t *testing.T) {
	t.Parallel()
	for what, c := range map[string]struct {
		do   func(k *holdfasttest.Kit[*sql.Tx], s *idempotency.Store[*sql.Tx])
		want string
	}{
		"a lease of nobody": {func(k *holdfasttest.Kit[*sql.Tx], _ *idempotency.Store[*sql.Tx]) { k.LoseLease(k.Owner, "free") }, "nobody had a lease"},
		"done twice": {func(k *holdfasttest.Kit[*sql.Tx], s *idempotency.Store[*sql.Tx]) {
			holdfasttest.Done(k, s, op(k.Owner, "a"), 1)
			holdfasttest.Done(k, s, op(k.Owner, "a"), 1)
		}, "not to be made"},
		"no fingerprint": {func(k *holdfasttest.Kit[*sql.Tx], s *idempotency.Store[*sql.Tx]) {
			k.Mismatch(s, idempotency.Op{Name: "refund", Key: "a", NoFingerprint: true})
		}, "nothing mismatches"},
		"a bad op": {func(k *holdfasttest.Kit[*sql.Tx], s *idempotency.Store[*sql.Tx]) { k.InProgress(s, idempotency.Op{}) }, "Op.Name"},
	} {
		tb := &fatal{T: t}
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			kit := holdfasttest.SQLite(tb, holdfast.Options{SingleOwner: true})
			c.do(kit, store(t, kit.DB))
		}()
		<-ended
		if !strings.Contains(tb.said, c.want) {
			t.Errorf("%s: %q", what, tb.said)
		}
	}
}

func store[Tx any](t *testing.T, db *holdfast.DB[Tx]) *idempotency.Store[Tx] {
	t.Helper()
	s, err := idempotency.New(t.Context(), db)
	if err != nil {
		t.Fatal(err)
	}
	return s
}
