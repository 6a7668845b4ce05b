// Package idemhttp makes HTTP handlers idempotent: a request that is sent
// again with the same Idempotency-Key gets the answer of the first, byte for
// byte, and its effect happens once. It follows the IETF draft
// draft-ietf-httpapi-idempotency-key-header, with errors as RFC 9457 has them.
//
//	m, err := idemhttp.New(store, idemhttp.Options{Tenant: merchantOf})
//	mux.Handle("POST /orders/{order}/refunds", m.Handler(
//		func(w http.ResponseWriter, r *http.Request, tx *sql.Tx) error {
//			...
//		}))
//
// # One transaction
//
// The handler runs in the transaction that keeps its response
// ([idempotency.Do]): the claim of the key, the handler's writes, the response
// and COMMIT are one. The handler receives that transaction ([Middleware.Handler])
// or finds it in its request's context ([Tx]). Nothing is sent before COMMIT,
// so no client is told of what did not happen.
//
// The handler may run more than once for one request, so it must have effects
// in the database only, and through its transaction only. It fails with an
// error, or with [Fail].
//
// # Answers
//
//	the handler's                        first request, or not kept (see below)
//	the handler's, Idempotent-Replayed   a duplicate
//	400  ProblemKeyMissing, ProblemKeyMalformed, ProblemRequest
//	403  ProblemTenant
//	409  ProblemInProgress, Retry-After  a duplicate while the first is under way
//	410  ProblemExpired                  done, the answer is no longer kept
//	413  ProblemBodyTooLarge
//	422  ProblemMismatch                 the key was used for another request
//	422  ProblemRejected                 the handler returned idempotency.Reject
//	500  ProblemInternal
//	503  ProblemUnknown, Retry-After     nobody knows yet: retry with the same key
//	503  ProblemUnavailable, Retry-After retry with the same key
//
// # What is kept
//
// A definite answer: by default 2xx and 3xx with the handler's writes, most 4xx
// without them ([DefaultVerdict], Options.Verdict), and the refusals that a
// handler marks by [idempotency.Reject]. Everything else rolls back, is sent
// and not kept, and the key is free. A duplicate gets status, body and the
// header fields of [DefaultHeaders]; Set-Cookie, Date and the like are those of
// the first response only.
//
// # What is refused
//
// A response in the making is in memory and then in the record, so it is
// bounded by the store's MaxResult, where the body counts a third more (base64)
// beside the header fields: a larger one is rolled back and answered 500. So
// are trailers, and 101. Informational responses are dropped. The
// ResponseWriter is no http.Flusher, and http.ResponseController says
// http.ErrNotSupported: to stream, answer with the address of the stream.
//
// # Clients that go away
//
// A client that disconnects before COMMIT cancels the handler's context, and
// the work is rolled back; one that disconnects later undoes nothing. Both ask
// again with the same key. [Transport] does that for a client.
//
// # Routers
//
// Wrap the handler of a route, or a whole router that has the routes which need
// a key: chi, gin and echo are http.Handlers, and each run then has a context
// of the router's own. Do not make it a router's middleware whose next can be
// called once only, or that handles the returned error outside: see examples/http
// for each. Authentication and rate limits stand before it, so that their
// answers are never kept.
package idemhttp
