package holdfastgrpc

import (
	"encoding/json"
	"errors"
	"fmt"

	spb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/known/anypb"
)

var (
	errNoProto = errors.New("holdfastgrpc: the method's messages are no protobuf messages")
	errRecord  = errors.New("holdfastgrpc: the record holds no response of this method: is the operation's name that of something else?")
	errLarge   = errors.New("holdfastgrpc: the response is larger than the store keeps (idempotency.Options.MaxResult): answer with an id and let the client read the rest by it")
)

// A stored response is field 1 of a message, repeated: google.protobuf.Any.
const messageField = 1

// keep encodes the messages of a response for the record.
func keep(messages []proto.Message, limit int) ([]byte, error) {
	var b []byte
	for _, m := range messages {
		boxed := &anypb.Any{}
		if err := anypb.MarshalFrom(boxed, m, proto.MarshalOptions{Deterministic: true}); err != nil {
			return nil, fmt.Errorf("holdfastgrpc: the response has no binary form: %w", err)
		}
		text, err := proto.Marshal(boxed)
		if err != nil {
			return nil, err
		}
		b = protowire.AppendTag(b, messageField, protowire.BytesType)
		if b = protowire.AppendBytes(b, text); len(b) > limit {
			return nil, errLarge
		}
	}
	return b, nil
}

// restore decodes what keep has encoded.
func restore(b []byte, types interface {
	protoregistry.MessageTypeResolver
	protoregistry.ExtensionTypeResolver
},
) (messages []proto.Message, err error) {
	for len(b) > 0 {
		number, kind, n := protowire.ConsumeTag(b)
		if n < 0 || number != messageField || kind != protowire.BytesType {
			return nil, errRecord
		}
		b = b[n:]
		text, n := protowire.ConsumeBytes(b)
		if n < 0 {
			return nil, errRecord
		}
		b = b[n:]
		boxed := &anypb.Any{}
		if err := proto.Unmarshal(text, boxed); err != nil {
			return nil, fmt.Errorf("%w: %w", errRecord, err)
		}
		m, err := anypb.UnmarshalNew(boxed, proto.UnmarshalOptions{Resolver: types})
		if err != nil {
			return nil, fmt.Errorf("%w: %w", errRecord, err)
		}
		messages = append(messages, m)
	}
	return messages, nil
}

// storedStatus is the detail of a rejection that a method returned as a status.
type storedStatus struct {
	Status []byte `json:"google.rpc.status"`
}

func keepStatus(s *status.Status) (json.RawMessage, error) {
	b, err := proto.Marshal(s.Proto())
	if err != nil {
		return nil, err
	}
	return json.Marshal(storedStatus{b})
}

// restoreStatus returns nil if the rejection was stored by idempotency.Reject.
func restoreStatus(detail json.RawMessage) *status.Status {
	var stored storedStatus
	if json.Unmarshal(detail, &stored) != nil || stored.Status == nil {
		return nil
	}
	var s spb.Status
	if proto.Unmarshal(stored.Status, &s) != nil || s.GetCode() == 0 {
		return nil
	}
	return status.FromProto(&s)
}
