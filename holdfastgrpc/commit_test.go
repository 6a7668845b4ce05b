package holdfastgrpc_test

import (
	"context"
	"database/sql"
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jmoiron/sqlx"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"

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

// behind returns e with its pool behind a proxy.
func behind[Tx any](e *conformance.Env[Tx]) (*conformance.Env[Tx], *faultproxy.Proxy) {
	e.Helper()
	at := regexp.MustCompile(`@(tcp\()?([^/?()]+)`).FindStringSubmatchIndex(e.DSN)
	proxy, err := faultproxy.New(e.DSN[at[4]:at[5]])
	e.Check(err)
	e.Cleanup(proxy.Close)
	there := *e
	there.Pool = e.Open(e.DSN[:at[4]] + proxy.Addr() + e.DSN[at[5]:])
	e.Cleanup(there.Close)
	return &there, proxy
}

func TestDatabaseIsAway(t *testing.T) {
	t.Parallel()
	suite(t, away[*sql.Tx], away[*sqlx.Tx], away[pgx.Tx])
}

// away: the database cannot be reached, and nothing runs. The answer says to try again.
func away[Tx any](e *conformance.Env[Tx]) {
	if e.Engine == dbtest.SQLite {
		return // it has no connection that could break
	}
	there, proxy := behind(e)
	w := serve(there, with[Tx]{})
	proxy.Close()
	call(keyed(e.Ctx, "k"), w.client, &request{Order: "42"}).wants(e, "the call", codes.Unavailable, holdfastgrpc.ReasonUnavailable)
	if n := w.svc.ran.Load(); n != 0 {
		e.Errorf("the method ran %d times", n)
	}
}

func TestMethodRunsAgain(t *testing.T) {
	t.Parallel()
	suite(t, runsAgain[*sql.Tx], runsAgain[*sqlx.Tx], runsAgain[pgx.Tx])
}

// runsAgain loses the first COMMIT on its way to the database. The method runs again within the call,
// with the request that the client sent and not with what the first run made of it, and only the
// headers of the second run are sent.
func runsAgain[Tx any](e *conformance.Env[Tx]) {
	if e.Engine == dbtest.SQLite {
		return // it has no connection that could break
	}
	there, proxy := behind(e)
	w := serve(there, with[Tx]{})
	w.svc.do = func(ctx context.Context, _ Tx, _ *request) error {
		if w.svc.ran.Load() == 1 {
			proxy.LoseRequest(faultproxy.Commit, faultproxy.Reset)
		}
		return grpc.SetHeader(ctx, metadata.Pairs("run", strconv.Itoa(int(w.svc.ran.Load()))))
	}
	got := call(keyed(e.Ctx, "k"), w.client, &request{Order: "42"})
	if runs := got.header.Get("run"); got.err != nil || got.replayed || got.refund.GetName() != "refunds/42" || len(runs) != 1 || runs[0] != "2" {
		e.Errorf("%v, %v, replayed %v, header %v", got.refund, got.err, got.replayed, got.header)
	}
	e.WantOnce("42")
}

// lostCommit loses the database's answer to COMMIT, and the database with it. The client is told
// that the outcome is unknown, and its retry gets the response that was committed.
func lostCommit[Tx any](e *conformance.Env[Tx]) {
	if e.Engine == dbtest.SQLite {
		return // it has no connection that could break
	}
	there, proxy := behind(e)
	w := serve(there, with[Tx]{store: idempotency.Options{Wait: time.Millisecond}, options: holdfastgrpc.Options{RetryAfter: soon}})
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
