// Package idemhttp makes HTTP handlers idempotent. A request that is sent again with the same
// Idempotency-Key gets the response of the first, byte for byte, and its effect happens once. The
// package follows the IETF draft draft-ietf-httpapi-idempotency-key-header, versions -04 to -06 (-07 has
// expired; docs/reference/http.md has each sentence), and reports errors as defined by RFC 9457.
//
//	m, err := idemhttp.New(store, idemhttp.Operation("refund"), idemhttp.Options{Owner: merchantOf})
//	mux.Handle("POST /orders/{order}/refunds", m.Handler(
//		func(w http.ResponseWriter, r *http.Request, tx *sql.Tx) error {
//			...
//		}))
//
// # One transaction
//
// The handler runs in the transaction that stores its response ([idempotency.Do]): the claim of
// the key, the handler's writes, the response and COMMIT are one transaction. The handler receives
// that transaction ([Middleware.Handler]) or finds it in its request's context ([Tx]). Nothing is
// sent before COMMIT, so a client never receives a response for work that was not committed.
//
// The handler may run more than once for one request, so it must have effects in the database
// only, and through its transaction only. It fails with an error, or with [Fail].
//
// # Responses
//
//	the handler's                        first request, or not stored (see below)
//	the handler's, Idempotent-Replayed   a duplicate
//	400  ProblemKeyMissing, ProblemKeyMalformed (see Options.Unkeyed), ProblemRequest
//	403  ProblemOwner                    see Options.Owner
//	409  ProblemInProgress, Retry-After  a duplicate while the first is in progress
//	409  ProblemTooLate                  an operation that a handler has started, to be cancelled: see Cancel
//	409  ProblemSimilar                  a similar request with another key was executed: see Options.Similar
//	410  ProblemExpired                  executed, the response is no longer kept
//	413  ProblemBodyTooLarge
//	422  ProblemMismatch                 the key was used for another request
//	422  ProblemRejected                 the handler returned idempotency.Reject
//	429  ProblemTooMany, Retry-After     the owner's bound of new keys: see idempotency.Options.MaxNew
//	500  ProblemInternal
//	503  ProblemUnknown, Retry-After     outcome not known yet: retry with the same key
//	503  ProblemUnavailable, Retry-After retry with the same key
//	503  ProblemBusy, Retry-After        the middleware's bound of memory: see Options.MaxHeld
//
// # What is stored
//
// Definite responses are stored: by default 2xx and 3xx with the handler's writes, most 4xx
// without them ([DefaultDecision], Options.Decide), and the refusals that a handler makes with
// [idempotency.Reject]. Every other response rolls back, is sent and not stored, and the key is
// free. A duplicate gets the status, the body and the header fields of [DefaultHeaders].
// Set-Cookie, Date and similar fields belong to the first response only.
//
// # What is refused
//
// A response is built in memory and then stored in the record, so the store's MaxResult bounds it.
// The header fields count, and the body counts a third more than its size (base64). A larger
// response is rolled back and answered 500. So are trailers, and 101. Informational responses are
// dropped. The ResponseWriter is not an http.Flusher, and http.ResponseController returns
// http.ErrNotSupported. To stream, respond with the address of the stream.
//
// # Clients that disconnect
//
// A client that disconnects before COMMIT cancels the handler's context, and the work is rolled
// back. A later disconnect undoes nothing. In both cases the client must retry with the same key.
// [idemclient.Transport] does that for a client.
//
// # Routers
//
// Wrap the handler of a route, or a whole router whose routes all need a key (then the function
// operation of [New] distinguishes the operations by the request). Each of chi, gin and echo is
// an [http.Handler], and each run then has its own router context. Do not use it as a router's
// middleware if that router can call next once only, or handles the returned error outside of it:
// see examples/http for each. Put authentication and rate limits in front of it, so that their
// responses are never stored.
package idemhttp
