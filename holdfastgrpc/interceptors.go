package holdfastgrpc

import (
	"context"
	"errors"
	"fmt"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/holdfast-go/holdfast/idempotency"
)

// Interceptors makes methods idempotent. It is safe for concurrent use.
type Interceptors[T any] struct {
	store   *idempotency.Store[T]
	options Options
	limit   int // bound of a stored response, in bytes
}

// New makes the interceptors on a store.
//
// Errors: [holdfast.ErrInvalid], for example if Options.Methods is empty, or if Options.Owner is
// missing and the DB is not SingleOwner.
func New[T any](store *idempotency.Store[T], o Options) (*Interceptors[T], error) {
	if store == nil {
		return nil, invalid("store", "is nil")
	}
	if err := o.withDefaults(store.SingleOwner()); err != nil {
		return nil, err
	}
	return &Interceptors[T]{store, o, store.Options().MaxResult}, nil
}

// Check returns an error if Options.Methods has a method that the server does not serve, or one
// with a stream from the client. A misspelt name would leave its method without a transaction.
// Call it with the server's GetServiceInfo after the services are registered.
//
// Errors: [holdfast.ErrInvalid].
func (i *Interceptors[T]) Check(services map[string]grpc.ServiceInfo) error {
	served := map[string]grpc.MethodInfo{}
	for service, info := range services {
		for _, method := range info.Methods {
			served["/"+service+"/"+method.Name] = method
		}
	}
	for method := range i.options.Methods {
		info, ok := served[method]
		switch {
		case !ok:
			return invalid("Options.Methods", fmt.Sprintf("the server has no method %.200q", method))
		case info.IsClientStream:
			return invalid("Options.Methods", fmt.Sprintf("%.200q has a stream from the client: %s", method, clientStream))
		}
	}
	return nil
}

// Unary returns the interceptor of methods without streams. Chain it after authentication and rate
// limits, so that their responses are never stored. The interceptors behind it run in the
// transaction, once for each run of the method.
func (i *Interceptors[T]) Unary() grpc.UnaryServerInterceptor {
	return func(ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
		if _, wants := i.options.Methods[info.FullMethod]; !wants {
			return next(ctx, req)
		}
		request, is := req.(proto.Message)
		if !is {
			return nil, i.refuse(ctx, info.FullMethod, errNoProto)
		}
		var last any // the response of the run that counts
		kept, executed, err := i.once(ctx, info.FullMethod, request, func(ctx context.Context) ([]proto.Message, error) {
			resp, err := next(ctx, proto.Clone(request))
			if err != nil {
				return nil, err
			}
			message, is := resp.(proto.Message)
			if !is {
				return nil, errNoProto
			}
			last = resp
			return []proto.Message{message}, nil
		})
		switch {
		case err != nil:
			return nil, err
		case executed:
			return last, nil
		case len(kept) != 1:
			return nil, i.refuse(ctx, info.FullMethod, errRecord)
		}
		return kept[0], nil
	}
}

// once runs a method for one key. It returns the stored messages if another run has stored them,
// or the status to send.
func (i *Interceptors[T]) once(ctx context.Context, method string, request proto.Message, run func(ctx context.Context) ([]proto.Message, error)) (kept []proto.Message, executed bool, err error) {
	op, err := i.read(ctx, method, request)
	if err != nil {
		return nil, false, err
	}
	outer := grpc.ServerTransportStreamFromContext(ctx)
	var sent *held // the headers and trailers of the run that counts
	result, err := idempotency.Do(ctx, i.store, op, func(ctx context.Context, tx T) ([]byte, error) {
		sent = &held{method: method}
		ctx = context.WithValue(grpc.NewContextWithServerTransportStream(ctx, sent), txKey[T]{}, tx)
		messages, err := run(ctx)
		if err != nil {
			return nil, i.failed(err)
		}
		stored, err := keep(messages, i.limit)
		if err != nil {
			return nil, &failure{err: err}
		}
		return stored, nil
	})
	var rejection *idempotency.Rejection
	isRejection := errors.As(err, &rejection) && result.Outcome != 0
	if err != nil && !isRejection {
		var failed *failure
		if errors.As(err, &failed) && failed.status != nil && !lost(err, failed) {
			sent.send(outer)
		}
		return nil, false, i.refuse(ctx, method, err)
	}
	if executed = result.Outcome == idempotency.Executed; executed {
		sent.send(outer)
	} else if outer != nil {
		_ = outer.SetHeader(metadata.Pairs(MetadataReplayed, "true")) // fails if the client has gone
	}
	if isRejection {
		return nil, executed, i.rejected(rejection)
	}
	if !executed {
		if kept, err = restore(result.Value, i.options.Types); err != nil {
			return nil, false, i.refuse(ctx, method, err)
		}
	}
	return kept, executed, nil
}

// failed says what becomes of an error that a method returned.
func (i *Interceptors[T]) failed(err error) error {
	var rejection *idempotency.Rejection
	if errors.As(err, &rejection) {
		return err // Do says whether it rejects this call
	}
	s, is := status.FromError(err)
	if !is || s.Code() == codes.OK {
		return &failure{err: err}
	}
	if i.options.Decide(s.Code()) == Reject {
		detail, encoding := keepStatus(s)
		if encoding != nil {
			return &failure{err: encoding}
		}
		return &idempotency.Rejection{Code: s.Code().String(), Message: s.Message(), Detail: detail}
	}
	return &failure{err: err, status: s}
}

type txKey[T any] struct{}

// Tx returns the transaction of a method from its context; T is the type of the store's
// transactions, such as *sql.Tx. It returns false for a method that passes through, and for
// another type. The transaction ends with the method.
func Tx[T any](ctx context.Context) (T, bool) {
	tx, ok := ctx.Value(txKey[T]{}).(T)
	return tx, ok
}

// failure is a run that is rolled back and not stored.
type failure struct {
	err    error
	status *status.Status // the method's own; nil for an error that is not sent
}

func (f *failure) Error() string { return f.err.Error() }
func (f *failure) Unwrap() error { return f.err }
