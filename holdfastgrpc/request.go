package holdfastgrpc

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/google/uuid"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/idempotency/idemclient"
)

// The metadata of the profile.
const (
	// MetadataKey carries the key in a request.
	MetadataKey = "idempotency-key"
	// MetadataReplayed is "true" in the header of a response that was replayed from the record.
	MetadataReplayed = "idempotent-replayed"
	// MetadataConfirm carries the token of ReasonSimilar in a request that its user confirms.
	MetadataConfirm = "idempotency-confirm"
	// FieldRequestID is the field of a request message that carries the key.
	FieldRequestID = "request_id"
)

// read makes the operation of a call.
func (i *Interceptors[T]) read(ctx context.Context, method string, request proto.Message) (idempotency.Op, error) {
	o := &i.options
	key, field, err := keyOf(ctx, request)
	switch {
	case err != nil:
		return idempotency.Op{}, i.badRequest(ReasonKeyMalformed, field, err.Error())
	case key == "":
		return idempotency.Op{}, i.badRequest(ReasonKeyMissing, MetadataKey,
			"this method needs a key that is the same whenever the same thing is asked for: idempotency-key in the metadata, or request_id in the message")
	case len(key) > o.MaxKey:
		return idempotency.Op{}, i.badRequest(ReasonKeyMalformed, field, fmt.Sprintf("it has %d bytes, at most %d are allowed", len(key), o.MaxKey))
	}
	owner := ""
	if o.Owner != nil {
		if owner, err = o.Owner(ctx); err != nil || owner == "" {
			if s, is := status.FromError(err); is && s.Code() != codes.OK {
				return idempotency.Op{}, err
			}
			i.logger(ctx, method, codes.PermissionDenied, fmt.Errorf("holdfastgrpc: Options.Owner gave no owner: %w", err))
			return idempotency.Op{}, i.status(codes.PermissionDenied, ReasonOwner, "it is not known whose call this is", nil).Err()
		}
	}
	fp, err := o.Fingerprint(method, withoutID(request))
	if err != nil {
		return idempotency.Op{}, i.badRequest(ReasonKeyMalformed, "", err.Error())
	}
	similar, err := i.similar(ctx, method, request)
	return idempotency.Op{
		Owner: owner, Name: o.Methods[method], Key: key, Fingerprint: fp, Wait: o.Wait, Similar: similar,
	}, err
}

// similar makes what is similar to a call, with the client's confirmation.
func (i *Interceptors[T]) similar(ctx context.Context, method string, request proto.Message) (*idempotency.Similar, error) {
	if i.options.Similar == nil {
		return nil, nil
	}
	similar, err := i.options.Similar(method, withoutID(request))
	switch {
	case err != nil:
		return nil, i.badRequest(ReasonKeyMalformed, "", err.Error())
	case similar == nil:
		return nil, nil
	}
	confirmed := *similar
	confirmed.Confirm = ""
	if values := metadata.ValueFromIncomingContext(ctx, MetadataConfirm); len(values) > 0 {
		confirmed.Confirm = values[0]
	}
	if strings.Trim(confirmed.Confirm, "0123456789abcdef") != "" || len(confirmed.Confirm) != 0 && len(confirmed.Confirm) != tokenLength {
		return nil, i.badRequest(ReasonKeyMalformed, MetadataConfirm, "it is not the token of a status with "+ReasonSimilar)
	}
	return &confirmed, nil
}

const tokenLength = 32

// keyOf returns the key of a call, and where it was found.
func keyOf(ctx context.Context, request proto.Message) (key, field string, err error) {
	md, _ := metadata.FromIncomingContext(ctx)
	if values := md.Get(MetadataKey); len(values) > 0 {
		if key, err = idemclient.ParseKey(http.Header{idemclient.HeaderKey: values}); err != nil {
			return "", MetadataKey, errors.New(strings.TrimPrefix(err.Error(), idemclient.ErrKeyMalformed.Error()+": "))
		}
	}
	at := requestID(request)
	if at == nil {
		return key, MetadataKey, nil
	}
	text := request.ProtoReflect().Get(at).String()
	if text == "" {
		if id, is := uuid4(key); is {
			key = id // in the form in which request_id would give it
		}
		return key, MetadataKey, nil
	}
	id, is := uuid4(text)
	if !is {
		return "", FieldRequestID, fmt.Errorf("it is not a UUID of version 4 such as %s", "6c0f27e4-3a44-4a8a-9b5e-0d4a1b6f2c11")
	}
	if key != "" && !strings.EqualFold(key, id) {
		return "", FieldRequestID, fmt.Errorf("it is not the key that the metadata field %s has", MetadataKey)
	}
	return id, FieldRequestID, nil
}

// uuid4 returns a UUID of version 4 in lower case.
func uuid4(text string) (id string, is bool) {
	parsed, err := uuid.Parse(text)
	is = err == nil && len(text) == 36 && parsed.Version() == 4 && parsed.Variant() == uuid.RFC4122
	return parsed.String(), is
}

// requestID returns the field of a message that carries the key; nil for none.
func requestID(m proto.Message) protoreflect.FieldDescriptor {
	f := m.ProtoReflect().Descriptor().Fields().ByName(FieldRequestID)
	if f == nil || f.Kind() != protoreflect.StringKind || f.Cardinality() == protoreflect.Repeated {
		return nil
	}
	return f
}

// withoutID returns a copy of a request without its key, which may be written in several ways.
func withoutID(request proto.Message) proto.Message {
	request = proto.Clone(request)
	if f := requestID(request); f != nil {
		request.ProtoReflect().Clear(f)
	}
	return request
}

// fingerprint is the default of Options.Fingerprint. The length precedes each part, so that no two
// different requests give the same bytes.
func fingerprint(method string, request proto.Message) ([]byte, error) {
	body, err := proto.MarshalOptions{Deterministic: true}.Marshal(request)
	if err != nil {
		return nil, err
	}
	var b []byte
	for _, part := range []string{"holdfast grpc 1", method, string(body)} {
		b = binary.BigEndian.AppendUint64(b, uint64(len(part)))
		b = append(b, part...)
	}
	return b, nil
}
