package holdfastgrpc_test

import (
	"context"
	"database/sql"
	"errors"
	"log/slog"
	"net"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jmoiron/sqlx"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/holdfast-go/holdfast/holdfastgrpc"
	"github.com/holdfast-go/holdfast/holdfastgrpc/internal/testpb"
	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/internal/test/conformance"
	"github.com/holdfast-go/holdfast/internal/test/dbtest"
)

func TestMain(m *testing.M) { dbtest.VerifyNoLeaks(m) }

const refund, lines, upload, look = testpb.Refunds_CreateRefund_FullMethodName, testpb.Refunds_RefundLines_FullMethodName,
	testpb.Refunds_Upload_FullMethodName, testpb.Refunds_Look_FullMethodName

type request = testpb.CreateRefundRequest

// world is one server on one engine, and a client with a connection to it.
type world[Tx any] struct {
	*conformance.Env[Tx]
	addr   string
	client testpb.RefundsClient
	svc    *service[Tx]
}

// service makes one effect for each refund, and then does what the test wants.
type service[Tx any] struct {
	testpb.UnimplementedRefundsServer
	e *conformance.Env[Tx]
	// do runs after the effect. It may be nil.
	do   func(ctx context.Context, tx Tx, r *request) error
	send func(s grpc.ServerStreamingServer[testpb.Refund]) error
	ran  atomic.Int32
}

func (s *service[Tx]) CreateRefund(ctx context.Context, r *request) (*testpb.Refund, error) {
	tx, ok := holdfastgrpc.Tx[Tx](ctx)
	if !ok {
		return nil, errors.New("no transaction")
	}
	s.ran.Add(1)
	if err := s.e.Effect(ctx, tx, r.GetOrder()); err != nil {
		return nil, err
	}
	name := "refunds/" + r.GetOrder()
	r.Order = "changed" // by a careless method
	if s.do != nil {
		if err := s.do(ctx, tx, r); err != nil {
			return nil, err
		}
	}
	return &testpb.Refund{Name: name, Cents: r.GetCents()}, nil
}

func (s *service[Tx]) RefundLines(r *request, out grpc.ServerStreamingServer[testpb.Refund]) error {
	tx, ok := holdfastgrpc.Tx[Tx](out.Context())
	if !ok {
		return errors.New("no transaction")
	}
	s.ran.Add(1)
	if err := s.e.Effect(out.Context(), tx, r.GetOrder()); err != nil {
		return err
	}
	return s.send(out)
}

// Look passes through, and says whether it has a transaction.
func (*service[Tx]) Look(ctx context.Context, _ *request) (*testpb.Refund, error) {
	if _, ok := holdfastgrpc.Tx[Tx](ctx); ok {
		return &testpb.Refund{Name: "with a transaction"}, nil
	}
	return &testpb.Refund{Name: "without"}, nil
}

// with is a part of a world that differs from the usual.
type with[Tx any] struct {
	store   idempotency.Options
	options holdfastgrpc.Options
	outer   []grpc.UnaryServerInterceptor
	service *service[Tx]
	config  string // the client's service config
	addr    func(addr string) string
}

// serve starts a server with its own store, as another replica has, and a client of it.
func serve[Tx any](e *conformance.Env[Tx], w with[Tx]) *world[Tx] {
	e.Helper()
	o := w.options
	if o.Methods == nil {
		o.Methods = map[string]string{refund: "refund", lines: "lines"}
	}
	o.Logger = slog.New(slog.DiscardHandler)
	calls, err := holdfastgrpc.New(e.Store(w.store), o)
	e.Check(err)
	if w.service == nil {
		w.service = &service[Tx]{e: e}
	}
	server := grpc.NewServer(grpc.ChainUnaryInterceptor(append(w.outer, calls.Unary())...), grpc.ChainStreamInterceptor(calls.Stream()))
	testpb.RegisterRefundsServer(server, w.service)
	listener, err := (&net.ListenConfig{}).Listen(e.Ctx, "tcp", "127.0.0.1:0")
	e.Check(err)
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	e.Cleanup(func() {
		server.Stop()
		if err := <-ended; err != nil {
			e.Error(err)
		}
	})
	addr := listener.Addr().String()
	if w.addr != nil {
		addr = w.addr(addr)
	}
	return &world[Tx]{Env: e, addr: addr, svc: w.service, client: dial(e, addr, w.config)}
}

func dial[Tx any](e *conformance.Env[Tx], addr, config string) testpb.RefundsClient {
	e.Helper()
	options := []grpc.DialOption{grpc.WithTransportCredentials(insecure.NewCredentials())}
	if config != "" {
		options = append(options, grpc.WithDefaultServiceConfig(config))
	}
	conn, err := grpc.NewClient("passthrough:///"+addr, options...)
	e.Check(err)
	e.Cleanup(func() { _ = conn.Close() })
	return testpb.NewRefundsClient(conn)
}

// suite runs a test on every engine through each kind of handle.
func suite(t *testing.T, std func(*conformance.Env[*sql.Tx]), x func(*conformance.Env[*sqlx.Tx]), native func(*conformance.Env[pgx.Tx])) {
	t.Helper()
	conformance.Handles(t, conformance.Suite{
		SQL:  func(t *testing.T, h conformance.Handle[*sql.Tx]) { t.Helper(); conformance.Run(t, h, std) },
		SQLX: func(t *testing.T, h conformance.Handle[*sqlx.Tx]) { t.Helper(); conformance.Run(t, h, x) },
		Pgx:  func(t *testing.T, h conformance.Handle[pgx.Tx]) { t.Helper(); conformance.Run(t, h, native) },
	})
}

func keyed(ctx context.Context, key string) context.Context {
	return metadata.AppendToOutgoingContext(ctx, holdfastgrpc.MetadataKey, key)
}

// reply is what one call returned.
type reply struct {
	refund   *testpb.Refund
	header   metadata.MD
	trailer  metadata.MD
	err      error
	replayed bool
}

func call(ctx context.Context, c testpb.RefundsClient, r *request) (got reply) {
	got.refund, got.err = c.CreateRefund(ctx, r, grpc.Header(&got.header), grpc.Trailer(&got.trailer))
	got.replayed = slices.Equal(got.header.Get(holdfastgrpc.MetadataReplayed), []string{"true"})
	return got
}

// wants fails unless the reply has the code and the reason of ErrorInfo.
func (r reply) wants(tb testing.TB, what string, code codes.Code, reason string) {
	tb.Helper()
	if s, got := status.Convert(r.err), reasonOf(r.err); s.Code() != code || got != reason {
		tb.Errorf("%s: %v with reason %q (%s), want %v with %q", what, s.Code(), got, s.Message(), code, reason)
	}
}

func reasonOf(err error) string {
	if info := detail[*errdetails.ErrorInfo](err); info != nil {
		return info.GetReason()
	}
	return ""
}

func detail[D any](err error) (d D) {
	for _, detail := range status.Convert(err).Details() {
		if d, is := detail.(D); is {
			return d
		}
	}
	return d
}

const retryEverything = `{"methodConfig": [{"name": [{"service": "holdfast.test.v1.Refunds"}], "waitForReady": true, "retryPolicy": {
"maxAttempts": 5, "initialBackoff": "0.01s", "maxBackoff": "0.1s", "backoffMultiplier": 2, "retryableStatusCodes": ["UNAVAILABLE"]}}]}`

const soon = 10 * time.Millisecond
