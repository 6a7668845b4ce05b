package holdfastgrpc_test

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jmoiron/sqlx"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/holdfastgrpc"
	"github.com/holdfast-go/holdfast/holdfastgrpc/internal/testpb"
	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/internal/test/conformance"
	"github.com/holdfast-go/holdfast/internal/test/faultproxy"
)

func TestDoubleClick(t *testing.T) {
	t.Parallel()
	suite(t, doubleClick[*sql.Tx], doubleClick[*sqlx.Tx], doubleClick[pgx.Tx])
}

// doubleClick sends a call to two replicas, from several clients at once. One of them executes.
func doubleClick[Tx any](e *conformance.Env[Tx]) {
	a, b := serve(e, with[Tx]{}), serve(e, with[Tx]{})
	var wg sync.WaitGroup
	var executed atomic.Int32
	for _, w := range []*world[Tx]{a, b, a, b, a, b} {
		wg.Go(func() {
			got := call(keyed(e.Ctx, "click"), w.client, &request{Order: "42", Cents: 1250, Labels: map[string]string{"a": "1", "b": "2", "c": "3"}})
			if got.err != nil || !proto.Equal(got.refund, &testpb.Refund{Name: "refunds/42", Cents: 1250}) {
				e.Errorf("%v, %v", got.refund, got.err)
			}
			if !got.replayed {
				executed.Add(1)
			}
		})
	}
	wg.Wait()
	e.WantOnce("42")
	if n := executed.Load(); n != 1 {
		e.Errorf("%d calls say that they executed, want 1", n)
	}
	other := call(keyed(e.Ctx, "click"), a.client, &request{Order: "42", Cents: 9999})
	other.wants(e, "another request", codes.FailedPrecondition, holdfastgrpc.ReasonMismatch)
	if f := detail[*errdetails.PreconditionFailure](other.err); len(f.GetViolations()) != 1 {
		e.Errorf("details %v", f)
	}
	if got, err := a.client.Look(e.Ctx, &request{}); err != nil || got.GetName() != "without" {
		e.Errorf("a method that passes through: %v, %v", got, err)
	}
}

func TestKeys(t *testing.T) {
	t.Parallel()
	suite(t, keys[*sql.Tx], keys[*sqlx.Tx], keys[pgx.Tx])
}

func keys[Tx any](e *conformance.Env[Tx]) {
	w := serve(e, with[Tx]{})
	const id, upper = "6c0f27e4-3a44-4a8a-9b5e-0d4a1b6f2c11", "6C0F27E4-3A44-4A8A-9B5E-0D4A1B6F2C11"
	first := call(e.Ctx, w.client, &request{Order: "1", RequestId: id})
	if first.err != nil || first.replayed {
		e.Fatalf("%v, replayed %v", first.err, first.replayed)
	}
	for what, again := range map[string]reply{
		"request_id":                     call(e.Ctx, w.client, &request{Order: "1", RequestId: id}),
		"in upper case":                  call(e.Ctx, w.client, &request{Order: "1", RequestId: upper}),
		"in the metadata":                call(keyed(e.Ctx, id), w.client, &request{Order: "1"}),
		"quoted":                         call(keyed(e.Ctx, `"`+id+`"`), w.client, &request{Order: "1"}),
		"in the metadata, in upper case": call(keyed(e.Ctx, upper), w.client, &request{Order: "1"}),
		"in both":                        call(keyed(e.Ctx, id), w.client, &request{Order: "1", RequestId: id}),
		"in both, in upper case":         call(keyed(e.Ctx, id), w.client, &request{Order: "1", RequestId: upper}),
	} {
		if again.err != nil || !again.replayed || !proto.Equal(again.refund, first.refund) {
			e.Errorf("%s: %v, %v, replayed %v", what, again.refund, again.err, again.replayed)
		}
	}
	e.WantOnce("1")

	for what, c := range map[string]struct {
		ctx    context.Context //nolint:containedctx // a case of the table
		id     string
		reason string
		field  string
	}{
		"no key":            {e.Ctx, "", holdfastgrpc.ReasonKeyMissing, holdfastgrpc.MetadataKey},
		"empty":             {keyed(e.Ctx, ""), "", holdfastgrpc.ReasonKeyMalformed, holdfastgrpc.MetadataKey},
		"two":               {keyed(keyed(e.Ctx, "a"), "b"), "", holdfastgrpc.ReasonKeyMalformed, holdfastgrpc.MetadataKey},
		"long":              {keyed(e.Ctx, string(make256())), "", holdfastgrpc.ReasonKeyMalformed, holdfastgrpc.MetadataKey},
		"no UUID":           {e.Ctx, "refund-1", holdfastgrpc.ReasonKeyMalformed, holdfastgrpc.FieldRequestID},
		"version 1":         {e.Ctx, "6c0f27e4-3a44-1a8a-9b5e-0d4a1b6f2c11", holdfastgrpc.ReasonKeyMalformed, holdfastgrpc.FieldRequestID},
		"the nil UUID":      {e.Ctx, "00000000-0000-0000-0000-000000000000", holdfastgrpc.ReasonKeyMalformed, holdfastgrpc.FieldRequestID},
		"a UUID in braces":  {e.Ctx, "{" + id + "}", holdfastgrpc.ReasonKeyMalformed, holdfastgrpc.FieldRequestID},
		"two that differ":   {keyed(e.Ctx, "other"), id, holdfastgrpc.ReasonKeyMalformed, holdfastgrpc.FieldRequestID},
		"a UUID without -s": {e.Ctx, "6c0f27e43a444a8a9b5e0d4a1b6f2c11", holdfastgrpc.ReasonKeyMalformed, holdfastgrpc.FieldRequestID},
	} {
		got := call(c.ctx, w.client, &request{Order: "refused", RequestId: c.id})
		got.wants(e, what, codes.InvalidArgument, c.reason)
		if v := detail[*errdetails.BadRequest](got.err).GetFieldViolations(); len(v) != 1 || v[0].GetField() != c.field {
			e.Errorf("%s: details %v", what, v)
		}
	}
	if n := e.Effects("refused"); n != 0 {
		e.Errorf("%d effects of refused calls", n)
	}
}

func make256() []byte {
	b := make([]byte, 256)
	for i := range b {
		b[i] = 'k'
	}
	return b
}

func TestInProgress(t *testing.T) {
	t.Parallel()
	suite(t, inProgress[*sql.Tx], inProgress[*sqlx.Tx], inProgress[pgx.Tx])
}

// inProgress sends a duplicate while the first call runs. A client without retries is refused; a
// client with a retryPolicy in its service config retries until there is a response.
func inProgress[Tx any](e *conformance.Env[Tx]) {
	started, free := make(chan struct{}), make(chan struct{})
	first := serve(e, with[Tx]{service: &service[Tx]{e: e, do: func(context.Context, Tx, *request) error {
		close(started)
		<-free
		return nil
	}}})
	var refused atomic.Int32
	var ended sync.WaitGroup
	release := sync.OnceFunc(func() { close(free); ended.Wait() })
	defer release()
	second := serve(e, with[Tx]{
		options: holdfastgrpc.Options{Wait: holdfast.NoWait, RetryAfter: soon}, config: retryEverything,
		outer: []grpc.UnaryServerInterceptor{func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
			if refused.Load() == 3 { // the client has tried twice without its caller
				release()
			}
			resp, err := next(ctx, req)
			if err != nil {
				refused.Add(1)
			}
			return resp, err
		}},
	})
	ended.Go(func() {
		if got := call(keyed(e.Ctx, "k"), first.client, &request{Order: "42"}); got.err != nil || got.replayed {
			e.Errorf("the first call: %v, replayed %v", got.err, got.replayed)
		}
	})
	<-started
	got := call(keyed(e.Ctx, "k"), dial(e, second.addr, ""), &request{Order: "42"})
	got.wants(e, "a duplicate", codes.Unavailable, holdfastgrpc.ReasonInProgress)
	if r := detail[*errdetails.RetryInfo](got.err); r.GetRetryDelay().AsDuration() != soon {
		e.Errorf("RetryInfo %v", r)
	}
	got = call(keyed(e.Ctx, "k"), second.client, &request{Order: "42"})
	if got.err != nil || !got.replayed || got.refund.GetName() != "refunds/42" || refused.Load() != 3 {
		e.Errorf("%v, %v, replayed %v, refused %d times", got.refund, got.err, got.replayed, refused.Load())
	}
	e.WantOnce("42")
}

func TestDeadline(t *testing.T) {
	t.Parallel()
	suite(t, deadline[*sql.Tx], deadline[*sqlx.Tx], deadline[pgx.Tx])
}

// deadline passes in the middle of the method: its writes are rolled back, and the retry executes.
func deadline[Tx any](e *conformance.Env[Tx]) {
	var late atomic.Bool
	w := serve(e, with[Tx]{service: &service[Tx]{e: e, do: func(ctx context.Context, _ Tx, _ *request) error {
		if late.Load() {
			return nil
		}
		<-ctx.Done() // gRPC's server has the client's deadline
		return ctx.Err()
	}}})
	ctx, cancel := context.WithTimeout(keyed(e.Ctx, "k"), 2*time.Second) // it must only not pass before the effect
	defer cancel()
	call(ctx, w.client, &request{Order: "42"}).wants(e, "the first call", codes.DeadlineExceeded, "")
	late.Store(true)
	got := call(keyed(e.Ctx, "k"), w.client, &request{Order: "42"})
	if got.err != nil || got.replayed {
		e.Errorf("the retry: %v, replayed %v", got.err, got.replayed)
	}
	e.WantOnce("42")
}

func TestLostResponse(t *testing.T) {
	t.Parallel()
	suite(t, lostResponse[*sql.Tx], lostResponse[*sqlx.Tx], lostResponse[pgx.Tx])
}

// lostResponse cuts the client's connection after COMMIT. gRPC's client retries by its service
// config, and gets the stored response.
func lostResponse[Tx any](e *conformance.Env[Tx]) {
	var proxy *faultproxy.Proxy
	var once sync.Once
	w := serve(e, with[Tx]{
		config: retryEverything,
		addr: func(addr string) string {
			var err error
			proxy, err = faultproxy.New(addr)
			e.Check(err)
			e.Cleanup(proxy.Close)
			return proxy.Addr()
		},
		outer: []grpc.UnaryServerInterceptor{func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
			resp, err := next(ctx, req)
			once.Do(proxy.CutAll)
			return resp, err
		}},
	})
	got := call(keyed(e.Ctx, "k"), w.client, &request{Order: "42", Cents: 1})
	if got.err != nil || !got.replayed || got.refund.GetCents() != 1 || w.svc.ran.Load() != 1 {
		e.Errorf("%v, %v, replayed %v, executed %d times", got.refund, got.err, got.replayed, w.svc.ran.Load())
	}
	e.WantOnce("42")
}

func TestRefusals(t *testing.T) {
	t.Parallel()
	suite(t, refusals[*sql.Tx], refusals[*sqlx.Tx], refusals[pgx.Tx])
}

// refusals checks what is stored: a definite refusal, with its details, and nothing else.
func refusals[Tx any](e *conformance.Env[Tx]) {
	refusal, err := status.New(codes.FailedPrecondition, "more than was paid").WithDetails(&errdetails.ErrorInfo{Reason: "OVER_REFUND", Domain: "shop"})
	e.Check(err)
	for key, c := range map[string]struct {
		err    error
		code   codes.Code
		reason string
		kept   bool
	}{
		"a definite status":   {refusal.Err(), codes.FailedPrecondition, "OVER_REFUND", true},
		"a rejection":         {idempotency.Reject("over_refund", "more than was paid"), codes.FailedPrecondition, holdfastgrpc.ReasonRejected, true},
		"an open status":      {status.Error(codes.ResourceExhausted, "slowly"), codes.ResourceExhausted, "", false},
		"an error":            {errors.New("secret of the database"), codes.Internal, holdfastgrpc.ReasonInternal, false},
		"a malformed request": {status.Error(codes.InvalidArgument, "no"), codes.InvalidArgument, "", false},
	} {
		fails := true
		w := serve(e, with[Tx]{service: &service[Tx]{e: e, do: func(ctx context.Context, _ Tx, _ *request) error {
			_ = grpc.SetTrailer(ctx, metadata.Pairs("first", "yes"))
			if fails {
				return c.err
			}
			return nil
		}}})
		got := call(keyed(e.Ctx, `"`+key+`"`), w.client, &request{Order: key})
		got.wants(e, key, c.code, c.reason)
		if message := status.Convert(got.err).Message(); message == "secret of the database" {
			e.Errorf("%s: the error's text was sent", key)
		}
		if n := e.Effects(key); n != 0 {
			e.Errorf("%s: %d effects, want none", key, n)
		}
		fails = false
		again := call(keyed(e.Ctx, `"`+key+`"`), w.client, &request{Order: key})
		if !c.kept {
			if again.err != nil || again.replayed {
				e.Errorf("%s: the retry: %v, replayed %v", key, again.err, again.replayed)
			}
			e.WantOnce(key)
			continue
		}
		again.wants(e, key+", again", c.code, c.reason)
		if !again.replayed || len(again.trailer.Get("first")) != 0 || !proto.Equal(status.Convert(again.err).Proto(), status.Convert(got.err).Proto()) {
			e.Errorf("%s: replayed %v, %v, was %v", key, again.replayed, again.err, got.err)
		}
		if n := e.Effects(key); n != 0 {
			e.Errorf("%s: %d effects, want none", key, n)
		}
	}
}

func TestEndsItself(t *testing.T) {
	t.Parallel()
	suite(t, endsItself[*sql.Tx], endsItself[*sqlx.Tx], endsItself[pgx.Tx])
}

// endsItself has methods that commit their transaction themselves. What they did stands, so the status does not say
// that nothing was done, whatever the method would have answered, and the key does not do it again.
func endsItself[Tx any](e *conformance.Env[Tx]) {
	answers := map[string]error{"nil": nil, "refusal": status.Error(codes.InvalidArgument, "no"), "error": errors.New("boom")}
	for key, answer := range answers {
		w := serve(e, with[Tx]{service: &service[Tx]{e: e, do: func(ctx context.Context, tx Tx, _ *request) error {
			if err := e.Effect(ctx, tx, "own "+key); err != nil {
				return err
			}
			_ = e.End(ctx, tx, true)
			return answer
		}}})
		first := call(keyed(e.Ctx, key), w.client, &request{Order: key})
		s := status.Convert(first.err)
		if e.Effects("own "+key) == 1 && (strings.Contains(s.Message(), "did nothing") || s.Code() == codes.InvalidArgument || s.Code() == codes.OK) {
			e.Errorf("%s: %v", key, first.err)
		}
		call(keyed(e.Ctx, key), w.client, &request{Order: key})
		if n := e.Effects("own " + key); n > 1 {
			e.Errorf("%s: done %d times", key, n)
		}
	}
}

func TestExpired(t *testing.T) {
	t.Parallel()
	suite(t, expired[*sql.Tx], expired[*sqlx.Tx], expired[pgx.Tx])
}

func expired[Tx any](e *conformance.Env[Tx]) {
	w := serve(e, with[Tx]{store: idempotency.Options{ResultTTL: 50 * time.Millisecond}})
	if got := call(keyed(e.Ctx, "k"), w.client, &request{Order: "42"}); got.err != nil {
		e.Fatal(got.err)
	}
	var again reply
	e.Eventually("the response is no longer kept", func() bool {
		again = call(keyed(e.Ctx, "k"), w.client, &request{Order: "42"})
		return again.err != nil
	})
	again.wants(e, "a late duplicate", codes.AlreadyExists, holdfastgrpc.ReasonExpired)
	e.WantOnce("42")

	no := serve(e, with[Tx]{store: idempotency.Options{ResultTTL: 50 * time.Millisecond}, service: &service[Tx]{e: e, do: func(context.Context, Tx, *request) error {
		return idempotency.Reject("closed", "the shop is closed")
	}}})
	e.Eventually("the reason is no longer kept", func() bool {
		again = call(keyed(e.Ctx, "no"), no.client, &request{Order: "43"})
		return !again.replayed && again.err != nil && !strings.Contains(again.err.Error(), "shop")
	})
	again.wants(e, "a late duplicate of a rejected call", codes.FailedPrecondition, holdfastgrpc.ReasonRejected)
}

func TestTooMany(t *testing.T) {
	t.Parallel()
	suite(t, tooMany[*sql.Tx], tooMany[*sqlx.Tx], tooMany[pgx.Tx])
}

// tooMany uses more new keys than the owner may.
func tooMany[Tx any](e *conformance.Env[Tx]) {
	w := serve(e, with[Tx]{store: idempotency.Options{MaxNew: 1}})
	if got := call(keyed(e.Ctx, "k"), w.client, &request{Order: "42"}); got.err != nil {
		e.Fatal(got.err)
	}
	refused := call(keyed(e.Ctx, "another"), w.client, &request{Order: "43"})
	refused.wants(e, "a new key", codes.ResourceExhausted, holdfastgrpc.ReasonTooMany)
	var wait *errdetails.RetryInfo
	for _, d := range status.Convert(refused.err).Details() {
		if info, is := d.(*errdetails.RetryInfo); is {
			wait = info
		}
	}
	if wait.GetRetryDelay().AsDuration() < time.Minute {
		e.Errorf("the client is to wait for %v, and an hour has one key", wait.GetRetryDelay().AsDuration())
	}
	if got := call(keyed(e.Ctx, "k"), w.client, &request{Order: "42"}); got.err != nil {
		e.Errorf("a duplicate: %v", got.err)
	}
	e.WantOnce("42")
	if n := e.Effects("43"); n != 0 {
		e.Errorf("%d effects of a refused call", n)
	}
}
