package holdfastgrpc_test

import (
	"context"
	"database/sql"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jmoiron/sqlx"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/holdfastgrpc"
	"github.com/holdfast-go/holdfast/holdfastgrpc/internal/testpb"
	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/internal/access"
	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/test/conformance"
)

// receive reads a stream to its end.
func receive(ctx context.Context, c testpb.RefundsClient, r *request) (got reply, names []string) {
	s, err := c.RefundLines(ctx, r)
	if err != nil {
		return reply{err: err}, nil
	}
	for {
		m, err := s.Recv()
		if errors.Is(err, io.EOF) {
			err = nil
		} else if err == nil {
			names = append(names, m.GetName())
			continue
		}
		header, _ := s.Header()
		return reply{err: err, header: header, trailer: s.Trailer(), replayed: len(header.Get(holdfastgrpc.MetadataReplayed)) == 1}, names
	}
}

func TestServerStream(t *testing.T) {
	t.Parallel()
	suite(t, serverStream[*sql.Tx], serverStream[*sqlx.Tx], serverStream[pgx.Tx])
}

// serverStream checks that messages are sent after COMMIT, all of them, and replayed.
func serverStream[Tx any](e *conformance.Env[Tx]) {
	w := serve(e, with[Tx]{})
	w.svc.send = func(s grpc.ServerStreamingServer[testpb.Refund]) error {
		if err := s.SendHeader(metadata.MD{}); err == nil {
			e.Error("a header was sent before COMMIT")
		}
		if err := s.SetHeader(metadata.Pairs("first", "yes")); err != nil {
			return err
		}
		m := &testpb.Refund{}
		for _, name := range []string{"a", "b", "c"} {
			m.Name = name // used again
			if err := s.Send(m); err != nil {
				return err
			}
		}
		if n := e.Effects("42"); n != 0 {
			e.Errorf("%d effects are committed before the method has returned", n)
		}
		return nil
	}
	for i, replayed := range []bool{false, true, true} {
		got, names := receive(keyed(e.Ctx, "k"), w.client, &request{Order: "42"})
		if first := len(got.header.Get("first")) == 1; got.err != nil || strings.Join(names, "") != "abc" || got.replayed != replayed || first == replayed {
			e.Errorf("call %d: %v, %v, replayed %v, header %v", i, names, got.err, got.replayed, got.header)
		}
	}
	got, _ := receive(keyed(e.Ctx, "k"), w.client, &request{Order: "43"})
	got.wants(e, "another request", codes.FailedPrecondition, holdfastgrpc.ReasonMismatch)
	got, _ = receive(e.Ctx, w.client, &request{Order: "43"})
	got.wants(e, "no key", codes.InvalidArgument, holdfastgrpc.ReasonKeyMissing)
	e.WantOnce("42")
}

func TestStreamLimit(t *testing.T) {
	t.Parallel()
	suite(t, streamLimit[*sql.Tx], streamLimit[*sqlx.Tx], streamLimit[pgx.Tx])
}

// streamLimit checks that a stream that is larger than a record fails, although its method
// ignores the error, and that nothing of it is sent or done.
func streamLimit[Tx any](e *conformance.Env[Tx]) {
	w := serve(e, with[Tx]{store: idempotency.Options{MaxResult: 1 << 10}})
	w.svc.send = func(s grpc.ServerStreamingServer[testpb.Refund]) error {
		for range 10 {
			_ = s.Send(&testpb.Refund{Name: strings.Repeat("x", 200)})
		}
		return nil
	}
	got, names := receive(keyed(e.Ctx, "k"), w.client, &request{Order: "42"})
	got.wants(e, "a large stream", codes.Internal, holdfastgrpc.ReasonInternal)
	if len(names) != 0 || e.Effects("42") != 0 {
		e.Errorf("%d messages, %d effects, want none", len(names), e.Effects("42"))
	}
	got = call(keyed(e.Ctx, strings.Repeat("k", 200)), w.client, &request{Order: strings.Repeat("x", 990)})
	got.wants(e, "a large response", codes.Internal, holdfastgrpc.ReasonInternal)
}

func TestClientStreamsAreRefused(t *testing.T) {
	t.Parallel()
	suite(t, clientStream[*sql.Tx], clientStream[*sqlx.Tx], clientStream[pgx.Tx])
}

func clientStream[Tx any](e *conformance.Env[Tx]) {
	w := serve(e, with[Tx]{options: holdfastgrpc.Options{Methods: map[string]string{upload: "upload"}}})
	s, err := w.client.Upload(keyed(e.Ctx, "k"))
	e.Check(err)
	_, err = s.CloseAndRecv()
	reply{err: err}.wants(e, "a stream from the client", codes.Unimplemented, holdfastgrpc.ReasonClientStream)
}

func TestOptions(t *testing.T) {
	t.Parallel()
	conformance.Run(t, conformance.SQL(), func(e *conformance.Env[*sql.Tx]) {
		server := grpc.NewServer()
		testpb.RegisterRefundsServer(server, &service[*sql.Tx]{})
		check := func(methods map[string]string) error {
			calls, err := holdfastgrpc.New(e.Store(idempotency.Options{}), holdfastgrpc.Options{Methods: methods})
			if err != nil {
				return err
			}
			return calls.Check(server.GetServiceInfo())
		}
		if err := check(map[string]string{refund: "refund", lines: "lines"}); err != nil {
			e.Error(err)
		}
		for _, bad := range []map[string]string{
			nil,
			{"CreateRefund": "refund"},
			{refund: ""},
			{refund: strings.Repeat("x", 200)},
			{upload: "upload"},
			{"/holdfast.test.v1.Refunds/CreateRefunds": "refund"},
		} {
			if err := check(bad); !errors.Is(err, holdfast.ErrInvalid) {
				e.Errorf("%v: %v", bad, err)
			}
		}
		owners, err := idempotency.New(e.Ctx, access.WithOwners(e.DB, core.ManyOwners))
		e.Check(err)
		if _, err := holdfastgrpc.New(owners, holdfastgrpc.Options{Methods: map[string]string{refund: "refund"}}); !errors.Is(err, holdfast.ErrInvalid) {
			e.Errorf("without an owner: %v", err)
		}
	})
}
