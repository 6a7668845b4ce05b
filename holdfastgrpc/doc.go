// Package holdfastgrpc makes gRPC methods idempotent. A call that is sent again with the same key
// gets the response of the first, and its effect happens once.
//
//	calls, err := holdfastgrpc.New(store, holdfastgrpc.Options{
//		Methods: map[string]string{"/shop.v1.Refunds/CreateRefund": "refund"},
//		Owner:   merchantOf,
//	})
//	server := grpc.NewServer(
//		grpc.ChainUnaryInterceptor(authenticate, calls.Unary()),
//		grpc.ChainStreamInterceptor(authenticateStream, calls.Stream()))
//	shop.RegisterRefundsServer(server, refunds)
//	if err := calls.Check(server.GetServiceInfo()); err != nil { ... } // a misspelt method
//
//	func (s *Refunds) CreateRefund(ctx context.Context, r *shop.CreateRefundRequest) (*shop.Refund, error) {
//		tx, _ := holdfastgrpc.Tx[*sql.Tx](ctx)
//		...
//	}
//
// # One transaction
//
// The method runs in the transaction that stores its response ([idempotency.Do]): the claim of the
// key, the method's writes, the response and COMMIT are one transaction. Headers, trailers and
// messages are sent after COMMIT, so a client never receives a response for work that was not
// committed.
//
// The method may run more than once for one call, each time with its own copy of the request. So
// it must have effects in the database only, and through its transaction only. It must return the
// error of a statement itself, or wrap it with %w: status.Errorf("%v") hides a deadlock from
// Holdfast, which would otherwise run the method again.
//
// # The key
//
// The key is the metadata field idempotency-key, or the field request_id of the request message.
//
//   - idempotency-key has the syntax of the HTTP header (see [idemclient.ParseKey]), so that a
//     gateway can pass it on: one value, a quoted string or the same text without quotes.
//   - request_id is a string field of the request message itself, as AIP-155 defines it. It must
//     be a UUID of version 4 in its form of 36 characters. Upper and lower case are the same key,
//     also in idempotency-key if the message has the field.
//   - If both are given, they must be equal. If none is given, the call is refused.
//
// Both are the same key: a client may send one and retry with the other.
//
// # Responses
//
//	the method's                       first call, or not stored (see below)
//	the method's, idempotent-replayed  a duplicate
//	INVALID_ARGUMENT     KEY_MISSING, KEY_MALFORMED, with BadRequest
//	PERMISSION_DENIED    OWNER_UNKNOWN, see Options.Owner
//	UNAVAILABLE          IN_PROGRESS, with RetryInfo: a duplicate while the first runs
//	FAILED_PRECONDITION  KEY_MISMATCH: the key was used for another request
//	FAILED_PRECONDITION  SIMILAR: a similar call with another key was executed (Options.Similar)
//	FAILED_PRECONDITION  REJECTED: the method returned idempotency.Reject; metadata "code"
//	ALREADY_EXISTS       RESPONSE_EXPIRED: executed, the response is no longer kept
//	UNAVAILABLE          OUTCOME_UNKNOWN, with RetryInfo: retry with the same key
//	UNAVAILABLE          UNAVAILABLE, with RetryInfo: retry with the same key
//	UNIMPLEMENTED        CLIENT_STREAM
//	INTERNAL             INTERNAL
//
// The names are reasons of ErrorInfo (AIP-193), in the domain of Options. UNAVAILABLE is the one
// code that clients retry by themselves (AIP-194; gRPC's own rule is UNAVAILABLE "if the client
// can retry just the failing call", and ABORTED if it must start again at a higher level). So it
// is the code wherever the same call with the same key is right, and those responses carry
// grpc-retry-pushback-ms, which a retryPolicy in the service config follows.
//
// # What is stored
//
// A success is stored with the method's writes. An error of [idempotency.Reject], and a status
// for which [DefaultDecision] or Options.Decide says so, is stored without them and replayed with
// its details. After every other error nothing is stored and the key is free. Headers and
// trailers of the method go with the first response only.
//
// # Streams
//
// The messages of a server stream are kept in memory until COMMIT and sent then, so the store's
// MaxResult bounds their sum. A stream from the client is refused by name: its key would have to
// cover messages that have not arrived yet.
package holdfastgrpc
