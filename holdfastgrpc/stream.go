package holdfastgrpc

import (
	"context"
	"fmt"
	"io"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
)

const clientStream = "its key would have to cover messages that have not arrived yet; send one request, or make each message a call with a key of its own"

// Stream returns the interceptor of methods with a stream from the server. Their messages are sent
// after COMMIT. It finds the type of the request in protoregistry.GlobalFiles, by the name of the
// method. A method with a stream from the client is UNIMPLEMENTED.
func (i *Interceptors[T]) Stream() grpc.StreamServerInterceptor {
	return func(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler) error {
		if _, wants := i.options.Methods[info.FullMethod]; !wants {
			return next(srv, ss)
		}
		if info.IsClientStream {
			return i.status(codes.Unimplemented, ReasonClientStream, "the method has a stream from the client: "+clientStream, nil).Err()
		}
		request, err := i.requestOf(info.FullMethod)
		if err != nil {
			return i.refuse(ss.Context(), info.FullMethod, err)
		}
		if err := ss.RecvMsg(request); err != nil {
			return err
		}
		var last []proto.Message
		kept, executed, err := i.once(ss.Context(), info.FullMethod, request, func(ctx context.Context) ([]proto.Message, error) {
			s := &stream{ctx: ctx, request: request, limit: i.limit}
			if err := next(srv, s); err != nil {
				return nil, err
			}
			last = s.sent
			return s.sent, s.err
		})
		switch {
		case err != nil:
			return err
		case executed:
			kept = last
		}
		for _, m := range kept {
			if err := ss.SendMsg(m); err != nil {
				return err // the client has gone, and retries
			}
		}
		return nil
	}
}

// requestOf returns an empty request of a method.
func (i *Interceptors[T]) requestOf(method string) (proto.Message, error) {
	name := protoreflect.FullName(strings.ReplaceAll(strings.TrimPrefix(method, "/"), "/", "."))
	d, err := protoregistry.GlobalFiles.FindDescriptorByName(name)
	m, is := d.(protoreflect.MethodDescriptor)
	if err != nil || !is {
		return nil, fmt.Errorf("%w: the type of the request of %s is not registered: %w", errNoProto, method, err)
	}
	t, err := i.options.Types.FindMessageByName(m.Input().FullName())
	if err != nil {
		return nil, fmt.Errorf("%w: the type of the request of %s is not registered: %w", errNoProto, method, err)
	}
	return t.New().Interface(), nil
}

// stream is the stream of one run. It keeps messages until COMMIT.
type stream struct {
	ctx     context.Context //nolint:containedctx // it is what a ServerStream has
	request proto.Message
	read    bool
	limit   int
	size    int
	sent    []proto.Message
	err     error // why the messages cannot be stored
}

func (s *stream) Context() context.Context { return s.ctx }

func (s *stream) SetHeader(md metadata.MD) error { return grpc.SetHeader(s.ctx, md) }

func (s *stream) SendHeader(metadata.MD) error { return errSend }

func (s *stream) SetTrailer(md metadata.MD) { _ = grpc.SetTrailer(s.ctx, md) } // it never fails before COMMIT

// RecvMsg gives each run its own copy of the request.
func (s *stream) RecvMsg(m any) error {
	to, is := m.(proto.Message)
	switch {
	case !is:
		return errNoProto
	case s.read:
		return io.EOF
	}
	s.read = true
	proto.Reset(to)
	proto.Merge(to, s.request)
	return nil
}

// SendMsg keeps a copy: the method may use its message again.
func (s *stream) SendMsg(m any) error {
	message, is := m.(proto.Message)
	if !is {
		s.err = errNoProto
		return s.err
	}
	if s.size += proto.Size(message); s.size > s.limit {
		s.err = errLarge
	}
	if s.err == nil {
		s.sent = append(s.sent, proto.Clone(message))
	}
	return s.err
}
