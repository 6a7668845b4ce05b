package holdfastgrpc

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/idempotency"
)

// Defaults of Options.
const (
	DefaultMaxKey     = 255 // bytes
	DefaultRetryAfter = time.Second
	DefaultDomain     = "github.com/holdfast-go/holdfast"
)

// Options configures the interceptors. Methods is required, and Owner unless the DB is
// SingleOwner; the zero value of any other field is its default.
type Options struct {
	// Methods maps the full name of each method that needs a key, such as
	// "/shop.v1.Refunds/CreateRefund", to the name of its operation (see [idempotency.Op].Name),
	// such as "refund". All other methods pass through, without a transaction. A key belongs to
	// the operation's name, so never change it. Required.
	Methods map[string]string
	// Owner returns the owner of a call (the tenant, merchant or account whose operation it is):
	// a stable id that the service has authenticated, never a field that the client fills in. A
	// status error is sent as it is; any other error, or an empty id, is PERMISSION_DENIED.
	// Required, unless the DB is SingleOwner.
	Owner func(ctx context.Context) (string, error)
	// MaxKey bounds the key in bytes. Default: 255; at most idempotency.MaxKey.
	MaxKey int
	// Fingerprint returns the bytes that identify the request behind the key. request has no
	// request_id any more. An error is INVALID_ARGUMENT, with its text. Default: the method and
	// the message in its deterministic binary form. Give your own if clients may retry while a
	// deploy adds fields to the message: in the default, a field that the server did not know is
	// placed elsewhere than one that it knows, and the retry is KEY_MISMATCH.
	Fingerprint func(method string, request proto.Message) ([]byte, error)
	// Similar says which calls with different keys are similar, for example by order
	// and amount: see idempotency.Similar. Such a call is FAILED_PRECONDITION with ReasonSimilar and a
	// token; the client that sends it again with this token as idempotency-confirm in the metadata
	// confirms. request has no request_id any more. The interceptor sets Confirm; leave it empty.
	// Nil from the function is none. An error is INVALID_ARGUMENT, with its text. Default: keys
	// alone tell intents apart.
	Similar func(method string, request proto.Message) (*idempotency.Similar, error)
	// Decide chooses, by the code of the status that the method returned, whether the refusal is
	// final. Default: DefaultDecision.
	Decide func(code codes.Code) Decision
	// Wait bounds the wait for a call in progress with the same key. [holdfast.NoWait] refuses at
	// once. Default: the store's Wait.
	Wait time.Duration
	// RetryAfter is the delay of RetryInfo. Default: 1 s.
	RetryAfter time.Duration
	// Domain is the domain of ErrorInfo. Default: "github.com/holdfast-go/holdfast".
	Domain string
	// Types resolves the type of a stored response. Default: protoregistry.GlobalTypes, which has
	// the types of generated code that is linked.
	Types interface {
		protoregistry.MessageTypeResolver
		protoregistry.ExtensionTypeResolver
	}
	// Logger logs the errors behind INTERNAL and UNAVAILABLE. Default: slog.Default().
	Logger *slog.Logger
}

// Decision says what becomes of a method that returned a status.
type Decision int

// The decisions on a status. A success is always committed.
const (
	// Reject rolls the method's writes back and stores its status as final. It is replayed.
	Reject Decision = iota + 1
	// Discard rolls back and stores nothing. The status is sent and the key is free.
	Discard
)

// DefaultDecision returns Reject for the codes of a definite refusal: NOT_FOUND, ALREADY_EXISTS,
// PERMISSION_DENIED, FAILED_PRECONDITION and OUT_OF_RANGE. A refusal is final, because a delayed
// duplicate must not execute a request that its client knows to be refused. It returns Discard for
// all others, which mean that the request was not processed or may be corrected.
func DefaultDecision(code codes.Code) Decision {
	switch code { //nolint:exhaustive // the others are discarded
	case codes.NotFound, codes.AlreadyExists, codes.PermissionDenied, codes.FailedPrecondition, codes.OutOfRange:
		return Reject
	}
	return Discard
}

func (o *Options) withDefaults(singleOwner bool) error {
	o.Methods = maps.Clone(o.Methods)
	switch {
	case len(o.Methods) == 0:
		return invalid("Options.Methods", `is empty: name the methods that need a key, for example "/shop.v1.Refunds/CreateRefund": "refund"`)
	case o.Owner == nil && !singleOwner:
		return invalid("Options.Owner", "is missing: say whose call it is, or open the DB as SingleOwner")
	case o.Owner != nil && singleOwner:
		return invalid("Options.Owner", "is given, and the DB is SingleOwner: leave one of them out")
	case o.MaxKey < 0 || o.MaxKey > idempotency.MaxKey:
		return invalid("Options.MaxKey", fmt.Sprintf("%d is not between 0 (default) and %d", o.MaxKey, idempotency.MaxKey))
	case o.Wait < 0 && o.Wait != holdfast.NoWait:
		return invalid("Options.Wait", "is negative: holdfast.NoWait does not wait")
	case o.RetryAfter < 0:
		return invalid("Options.RetryAfter", "is negative; 0 is the default")
	}
	for method, operation := range o.Methods {
		if parts := strings.Split(method, "/"); len(parts) != 3 || parts[0] != "" || parts[1] == "" || parts[2] == "" {
			return invalid("Options.Methods", fmt.Sprintf(`%.100q is not a full name such as "/shop.v1.Refunds/CreateRefund"`, method))
		}
		if operation == "" || len(operation) > idempotency.MaxName {
			return invalid("Options.Methods", fmt.Sprintf("the operation of %.100q has %d bytes, 1 to %d are allowed", method, len(operation), idempotency.MaxName))
		}
	}
	if o.MaxKey == 0 {
		o.MaxKey = DefaultMaxKey
	}
	if o.Fingerprint == nil {
		o.Fingerprint = fingerprint
	}
	if o.Decide == nil {
		o.Decide = DefaultDecision
	}
	if o.RetryAfter == 0 {
		o.RetryAfter = DefaultRetryAfter
	}
	if o.Domain == "" {
		o.Domain = DefaultDomain
	}
	if o.Types == nil {
		o.Types = protoregistry.GlobalTypes
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	return nil
}

func invalid(field, problem string) error {
	return &holdfast.InputError{Field: field, Problem: problem}
}
