package holdfastgrpc_test

import (
	"context"
	"database/sql"
	"regexp"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jmoiron/sqlx"
	"google.golang.org/grpc/codes"

	"github.com/holdfast-go/holdfast/holdfastgrpc"
	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/internal/test/conformance"
	"github.com/holdfast-go/holdfast/internal/test/dbtest"
	"github.com/holdfast-go/holdfast/internal/test/faultproxy"
)

func TestLostCommit(t *testing.T) {
	t.Parallel()
	suite(t, lostCommit[*sql.Tx], lostCommit[*sqlx.Tx], lostCommit[pgx.Tx])
}

// lostCommit loses the database's answer to COMMIT, and the database with it. The client is told
// that the outcome is unknown, and its retry gets the response that was committed.
func lostCommit[Tx any](e *conformance.Env[Tx]) {
	if e.Engine == dbtest.SQLite {
		return // it has no connection that could break
	}
	at := regexp.MustCompile(`@(tcp\()?([^/?()]+)`).FindStringSubmatchIndex(e.DSN)
	proxy, err := faultproxy.New(e.DSN[at[4]:at[5]])
	e.Check(err)
	e.Cleanup(proxy.Close)
	behind := *e
	behind.Pool = e.Open(e.DSN[:at[4]] + proxy.Addr() + e.DSN[at[5]:])
	e.Cleanup(behind.Close)
	w := serve(&behind, with[Tx]{store: idempotency.Options{Wait: 1}, options: holdfastgrpc.Options{RetryAfter: soon}})
	w.svc.do = func(context.Context, Tx, *request) error {
		proxy.LoseReply(faultproxy.Commit, faultproxy.Reset, func() { proxy.Refuse(true) })
		return nil
	}
	call(keyed(e.Ctx, "k"), w.client, &request{Order: "42"}).wants(e, "the first call", codes.Unavailable, holdfastgrpc.ReasonUnknown)
	e.WantOnce("42")
	proxy.Refuse(false)
	got := call(keyed(e.Ctx, "k"), dial(e, w.addr, retryEverything), &request{Order: "42"})
	if got.err != nil || !got.replayed || got.refund.GetName() != "refunds/42" || w.svc.ran.Load() != 1 {
		e.Errorf("%v, %v, replayed %v, executed %d times", got.refund, got.err, got.replayed, w.svc.ran.Load())
	}
	e.WantOnce("42")
}
