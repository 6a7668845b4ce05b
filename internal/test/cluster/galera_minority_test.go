//go:build linux

package cluster_test

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/adapters/holdfastsql"
	"github.com/holdfast-go/holdfast/doctor"
	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/internal/test/dbtest"
	"github.com/holdfast-go/holdfast/sqllock"
)

// findings returns the doctor's findings for a node, by name.
func findings(t *testing.T, url string) map[string]doctor.Finding {
	t.Helper()
	var found []doctor.Finding
	db, err := holdfastsql.Open(t.Context(), dbtest.OpenSQL(t, url), holdfast.Options{SingleOwner: true})
	if err == nil {
		found, err = doctor.Check(t.Context(), db)
	}
	if err != nil {
		refused, ok := doctor.Refused(err)
		if !ok {
			t.Fatalf("it is no finding: %v", err)
		}
		found = append(found, refused...)
	}
	all := map[string]doctor.Finding{}
	for _, f := range found {
		all[f.Check] = f
	}
	return all
}

// galeraDoctor checks the doctor's findings for a working node.
func galeraDoctor(t *testing.T, c *galera) {
	all := findings(t, c.nodes[0].url)
	t.Logf("%+v", all)
	if f := all["Galera"]; f.Severity != doctor.Warning || !strings.Contains(f.Problem, "3 nodes") {
		t.Errorf("got %+v", f)
	}
	if _, there := all["clock"]; there {
		t.Errorf("the clock of a node that is right: %+v", all["clock"])
	}
	if f, there := findings(t, c.nodes[2].url)["clock"]; !there {
		t.Errorf("the clock of the node that is ahead is not found: %+v", f)
	}
	for setting, check := range map[string]string{
		"wsrep_dirty_reads=ON": "Galera dirty reads", "wsrep_retry_autocommit=0": "Galera retry",
	} {
		if _, there := all[check]; there {
			t.Errorf("%s is found where it is not: %+v", check, all[check])
		}
		if _, there := findings(t, c.nodes[0].url+"?"+setting)[check]; !there {
			t.Errorf("%s is not found", check)
		}
	}
	if f := findings(t, c.nodes[0].url+"?wsrep_on=OFF")["wsrep_on"]; !strings.Contains(f.Problem, "wsrep_on") {
		t.Errorf("got %+v", f)
	}
}

// galeraMinority kills two of three nodes. The remaining node hangs until it notices. A commit
// in that time is in doubt, and later statements are refused, while SELECT 1 still works.
func galeraMinority(t *testing.T, c *galera) {
	o := openOn(t, c.nodes[0].url, sqllock.Options{})
	store, err := idempotency.New(t.Context(), o.db, idempotency.Options{Wait: 2 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	var lose sync.Once
	do := func() error {
		_, err := idempotency.Do(t.Context(), store, idempotency.Op{Name: "minority", Key: "k", Request: 1}, func(ctx context.Context, tx *sql.Tx) (string, error) {
			_, err := tx.ExecContext(ctx, `INSERT INTO refunds (refund_no, order_no) VALUES (940000, 1)`)
			lose.Do(func() { // the next request is the COMMIT
				c.nodes[1].kill()
				c.nodes[2].kill()
			})
			return "done", err
		})
		return err
	}
	err = do()
	t.Logf("in between: %v", err)
	if !errors.Is(err, holdfast.ErrUnknown) {
		t.Errorf("a commit while the cluster was lost: %v", err)
	}
	_, plain := o.pool.ExecContext(t.Context(), `UPDATE orders SET refunded = 0 WHERE order_no = 1`)
	if err := plain; err == nil || !o.db.Retryable(err) || o.db.CommitOutcome(err) != holdfast.NotDone {
		t.Errorf("a write on the node that is alone: %v, %v", err, o.db.CommitOutcome(err))
	}
	if err := o.pool.PingContext(t.Context()); err != nil {
		t.Errorf("the naive check of health finds it: %v", err)
	}
	_, err = o.locks.TryAcquire(t.Context(), "minority")
	t.Logf("a lease: %v", err)
	if !errors.Is(err, holdfast.ErrRetry) || !o.db.Retryable(err) {
		t.Errorf("a lease: %v", err)
	}
	err = do()
	t.Logf("a record: %v", err)
	if !errors.Is(err, holdfast.ErrRetry) {
		t.Errorf("a record: %v", err)
	}
	if f := findings(t, c.nodes[0].url)["Galera component"]; f.Severity != doctor.Broken {
		t.Errorf("got %+v", f)
	}
}
