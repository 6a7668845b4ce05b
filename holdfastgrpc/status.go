package holdfastgrpc

import (
	"context"
	"errors"
	"log/slog"
	"strconv"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/idempotency"
)

// The reasons of ErrorInfo: stable, for programs. Any other reason comes from the method.
const (
	ReasonKeyMissing   = "KEY_MISSING"
	ReasonKeyMalformed = "KEY_MALFORMED"
	ReasonOwner        = "OWNER_UNKNOWN"
	// ReasonInProgress (UNAVAILABLE): a call with this key is in progress. Retry later with the
	// same key.
	ReasonInProgress = "IN_PROGRESS"
	// ReasonMismatch (FAILED_PRECONDITION): the key was used for another request, and nothing was
	// done for this one. Use one key per intent.
	ReasonMismatch = "KEY_MISMATCH"
	// ReasonSimilar (FAILED_PRECONDITION): a similar call with another key was executed, and nothing
	// was done for this one. Metadata has "confirm", the token that confirms it as
	// idempotency-confirm, "at", when the other was executed (RFC 3339), and its "business_id", if
	// there is one. See Options.Similar.
	ReasonSimilar = "SIMILAR"
	// ReasonTooMany (RESOURCE_EXHAUSTED): the owner has used too many new keys, and nothing was done.
	// Retry later with the same key, after the delay of RetryInfo. See idempotency.Options.MaxNew.
	ReasonTooMany = "TOO_MANY_KEYS"
	// ReasonRejected (FAILED_PRECONDITION): the method rejected the request for good; metadata
	// "code" says why.
	ReasonRejected = "REJECTED"
	// ReasonExpired (ALREADY_EXISTS): the request was executed, and the response is no longer
	// kept. Metadata "business_id" has the response's business id, if it had one.
	ReasonExpired = "RESPONSE_EXPIRED"
	// ReasonUnknown (UNAVAILABLE): it is not known yet whether the request was executed. Retry
	// with the same key.
	ReasonUnknown = "OUTCOME_UNKNOWN"
	// ReasonUnavailable (UNAVAILABLE): this call did nothing, but an earlier one with the same key
	// may have. Retry with the same key.
	ReasonUnavailable = "UNAVAILABLE"
	// ReasonClientStream (UNIMPLEMENTED): the method has a stream from the client.
	ReasonClientStream = "CLIENT_STREAM"
	// ReasonInternal (INTERNAL): this call did nothing, because of a fault in the service.
	ReasonInternal = "INTERNAL"
)

// pushback is what clients with a retryPolicy wait for before they retry.
const pushback = "grpc-retry-pushback-ms"

// status makes a status with ErrorInfo and more details.
func (i *Interceptors[T]) status(code codes.Code, reason, message string, info map[string]string, more ...protoadapt.MessageV1) *status.Status {
	details := append([]protoadapt.MessageV1{&errdetails.ErrorInfo{Reason: reason, Domain: i.options.Domain, Metadata: info}}, more...)
	s, err := status.New(code, message).WithDetails(details...)
	if err != nil {
		panic(err) // these messages always encode
	}
	return s
}

func (i *Interceptors[T]) badRequest(reason, field, problem string) error {
	message := "the idempotency key is missing: " + problem
	if reason != ReasonKeyMissing {
		message = "the idempotency key cannot be used: " + problem
	}
	return i.status(codes.InvalidArgument, reason, message, nil, &errdetails.BadRequest{
		FieldViolations: []*errdetails.BadRequest_FieldViolation{{Field: field, Description: problem, Reason: reason}},
	}).Err()
}

// rejected returns the status of a stored rejection.
func (i *Interceptors[T]) rejected(r *idempotency.Rejection) error {
	if s := restoreStatus(r.Detail); s != nil {
		return s.Err()
	}
	return i.status(codes.FailedPrecondition, ReasonRejected, r.Message, map[string]string{"code": r.Code}).Err()
}

// refuse returns the status of an error. The database's message is logged, not sent.
func (i *Interceptors[T]) refuse(ctx context.Context, method string, err error) error {
	var failed *failure
	errors.As(err, &failed)
	s, again := i.statusOf(ctx, err, failed)
	if failed == nil || failed.status == nil {
		i.logger(ctx, method, s.Code(), err)
	}
	if again {
		delay := i.options.RetryAfter
		if many := (*idempotency.TooManyError)(nil); errors.As(err, &many) {
			delay = max(delay, many.RetryAfter)
		}
		with, err := s.WithDetails(&errdetails.RetryInfo{RetryDelay: durationpb.New(delay)})
		if err != nil {
			panic(err)
		}
		s = with
		// It fails if the client has gone.
		_ = grpc.SetTrailer(ctx, metadata.Pairs(pushback, strconv.FormatInt(delay.Milliseconds(), 10)))
	}
	return s.Err()
}

// statusOf returns the status to send. again reports that retrying with the same key is right.
// Errors about keys and records inside an error of the method concern other keys and are ignored.
func (i *Interceptors[T]) statusOf(ctx context.Context, err error, failed *failure) (s *status.Status, again bool) {
	var expired *idempotency.ExpiredError
	var similar *idempotency.SimilarError
	var inner *idempotency.InnerError
	switch {
	case errors.Is(err, idempotency.ErrUnknown), errors.As(err, &inner) && errors.Is(inner.Err, idempotency.ErrUnknown):
		return i.status(codes.Unavailable, ReasonUnknown, "it is not known yet whether this was done: retry with the same key", nil), true
	case ctx.Err() != nil:
		return status.FromContextError(ctx.Err()), false
	case lost(err, failed):
		return i.partly(), false
	case failed != nil && failed.status != nil:
		return failed.status, false
	case errors.Is(err, holdfast.ErrRetry):
		return i.unavailable(), true
	case failed != nil, errors.As(err, &inner):
		return i.internal(), false
	case errors.Is(err, idempotency.ErrInProgress):
		return i.status(codes.Unavailable, ReasonInProgress, "a call with this idempotency key is in progress: retry later with the same key", nil), true
	case errors.Is(err, idempotency.ErrMismatch):
		return i.status(codes.FailedPrecondition, ReasonMismatch, "the idempotency key belongs to another request, and nothing was done for this one: use a key of its own for each intent", nil,
			&errdetails.PreconditionFailure{Violations: []*errdetails.PreconditionFailure_Violation{{Type: ReasonMismatch, Subject: MetadataKey, Description: "it was used for another request"}}}), false
	case errors.Is(err, idempotency.ErrTooMany):
		return i.status(codes.ResourceExhausted, ReasonTooMany, "this owner has used as many new idempotency keys as it may for now, and nothing was done: retry later with the same key", nil), true
	case errors.As(err, &similar):
		info := map[string]string{"confirm": similar.Token, "at": similar.At.Format(time.RFC3339Nano)}
		if similar.BusinessID != "" {
			info["business_id"] = similar.BusinessID
		}
		return i.status(codes.FailedPrecondition, ReasonSimilar, "a similar call with another idempotency key was executed before, and nothing was done for this one: if it is meant, send it again with "+MetadataConfirm, info), false
	case errors.As(err, &expired) && expired.Rejected:
		return i.status(codes.FailedPrecondition, ReasonRejected, "the request with this idempotency key was rejected, and nothing was done for it: the reason is no longer kept", nil), false
	case errors.As(err, &expired):
		info := map[string]string{}
		if expired.BusinessID != "" {
			info["business_id"] = expired.BusinessID
		}
		return i.status(codes.AlreadyExists, ReasonExpired, "the request with this idempotency key was completed before, and its response is no longer kept", info), false
	}
	for _, fault := range []error{holdfast.ErrInvalid, holdfast.ErrSchema, holdfast.ErrUnsupported, idempotency.ErrNested, errRecord, errNoProto} {
		if errors.Is(err, fault) {
			return i.internal(), false
		}
	}
	return i.unavailable(), true
}

// An earlier call whose response was lost may have been executed.
func (i *Interceptors[T]) unavailable() *status.Status {
	return i.status(codes.Unavailable, ReasonUnavailable, "this call did nothing; an earlier one with the same key may have: retry with the same key", nil)
}

func (i *Interceptors[T]) internal() *status.Status {
	return i.status(codes.Internal, ReasonInternal, "this call did nothing, because of a fault in the service", nil)
}

// partly is for a method whose transaction was lost: what it had committed itself stands.
func (i *Interceptors[T]) partly() *status.Status {
	return i.status(codes.Internal, ReasonInternal, "the service lost its transaction to a fault of its own, and a part of this call may be done: ask again with the same key", nil)
}

// lost reports whether the method's transaction was lost: the method has ended it itself, and what it has committed
// stands. An error about another transaction, inside the method's own, is something else.
func lost(err error, failed *failure) bool {
	var lost *holdfast.TxLostError
	if !errors.As(err, &lost) {
		return false
	}
	return failed == nil || errors.As(lost.Err, new(*failure))
}

func (i *Interceptors[T]) logger(ctx context.Context, method string, code codes.Code, err error) {
	level := slog.LevelError
	switch {
	case code == codes.PermissionDenied:
		level = slog.LevelWarn
	case ctx.Err() != nil: // the client has gone, or its deadline has passed
		level = slog.LevelInfo
	case errors.Is(err, idempotency.ErrInProgress):
		return // expected of duplicates
	case code != codes.Internal && code != codes.Unavailable:
		return
	}
	i.options.Logger.Log(ctx, level, "idempotent call failed", "method", method, "code", code.String(), "error", err)
}
