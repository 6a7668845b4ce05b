package holdfastgrpc_test

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jmoiron/sqlx"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"

	"github.com/holdfast-go/holdfast/holdfastgrpc"
	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/internal/test/conformance"
)

func TestSimilar(t *testing.T) {
	t.Parallel()
	suite(t, similar[*sql.Tx], similar[*sqlx.Tx], similar[pgx.Tx])
}

// similar refuses a call with another key, and executes it once it is confirmed.
func similar[Tx any](e *conformance.Env[Tx]) {
	w := serve(e, with[Tx]{options: holdfastgrpc.Options{Similar: func(_ string, r proto.Message) (*idempotency.Similar, error) {
		switch order := r.(*request).GetOrder(); order {
		case "none":
			return nil, nil
		case "error":
			return nil, errors.New("no order")
		default:
			return &idempotency.Similar{By: []string{order}, Window: time.Hour}, nil
		}
	}}})
	confirm := func(ctx context.Context, token string) context.Context {
		return metadata.AppendToOutgoingContext(ctx, holdfastgrpc.MetadataConfirm, token)
	}
	r := &request{Order: "1"}
	if got := call(keyed(e.Ctx, "a"), w.client, r); got.err != nil {
		e.Fatal(got.err)
	}
	got := call(keyed(e.Ctx, "b"), w.client, r)
	got.wants(e, "another key", codes.FailedPrecondition, holdfastgrpc.ReasonSimilar)
	info := detail[*errdetails.ErrorInfo](got.err).GetMetadata()
	if _, err := time.Parse(time.RFC3339, info["at"]); err != nil || len(info["confirm"]) != 32 || detail[*errdetails.RetryInfo](got.err) != nil {
		e.Errorf("details %v", info)
	}
	if again := call(keyed(e.Ctx, "a"), w.client, r); again.err != nil || !again.replayed {
		e.Errorf("the first key: %v, replayed %v", again.err, again.replayed)
	}
	for _, token := range []string{"*", "yes", strings.Repeat("0", 31)} {
		call(confirm(keyed(e.Ctx, "b"), token), w.client, r).wants(e, "confirmed with "+token, codes.InvalidArgument, holdfastgrpc.ReasonKeyMalformed)
	}
	e.WantOnce("1")
	if got := call(confirm(keyed(e.Ctx, "b"), info["confirm"]), w.client, r); got.err != nil || got.replayed {
		e.Errorf("confirmed: %v, replayed %v", got.err, got.replayed)
	}
	call(confirm(keyed(e.Ctx, "c"), info["confirm"]), w.client, r).wants(e, "confirmed twice", codes.FailedPrecondition, holdfastgrpc.ReasonSimilar)
	if n := e.Effects("1"); n != 2 {
		e.Errorf("%d effects, want 2", n)
	}
	call(keyed(e.Ctx, "d"), w.client, &request{Order: "error"}).wants(e, "an error", codes.InvalidArgument, holdfastgrpc.ReasonKeyMalformed)
	for _, key := range []string{"e", "f"} {
		if got := call(keyed(e.Ctx, key), w.client, &request{Order: "none"}); got.err != nil {
			e.Error(got.err)
		}
	}
}
