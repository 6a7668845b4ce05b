package idemhttp_test

import (
	"bytes"
	"context"
	"database/sql"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/idempotency/idemhttp"
	"github.com/holdfast-go/holdfast/internal/test/conformance"
	"github.com/holdfast-go/holdfast/internal/test/conformance/hostile"
	"github.com/holdfast-go/holdfast/internal/test/dbtest"
	"github.com/holdfast-go/holdfast/internal/test/faultproxy"
)

var hostPort = regexp.MustCompile(`@(?:tcp\()?([^/?()]+)`)

// trapLostCommit loses the answer to COMMIT and then the server. The client gets "unknown,
// same key" and not "failed"; a retry is replayed.
func trapLostCommit[Tx any](e *conformance.Env[Tx]) {
	if e.Engine == dbtest.SQLite {
		return // it has no connection that could be lost
	}
	at := hostPort.FindStringSubmatchIndex(e.DSN)
	if at == nil {
		e.Fatal("the database's URL has no host:port")
	}
	proxy, err := faultproxy.New(e.DSN[at[2]:at[3]])
	if err != nil {
		e.Fatal(err)
	}
	e.Cleanup(proxy.Close)
	e.Pool = e.Handle.Open(e.T, e.DSN[:at[2]]+proxy.Addr()+e.DSN[at[3]:])
	e.Cleanup(proxy.CutAll)

	s := start(e, idempotency.Options{Wait: 300 * time.Millisecond}, idemhttp.Options{}, refund[Tx])
	fault := proxy.LoseReply(faultproxy.Commit, faultproxy.Close, proxy.Down)
	a := s.post("A-17", "k", "100")
	if !fault.Fired() {
		e.Error("the fault did not strike")
	}
	s.want("lost", a, http.StatusServiceUnavailable, idemhttp.ProblemUnknown)
	if a.header.Get("Retry-After") == "" || !strings.Contains(a.body, "same key") {
		e.Errorf("got %v", a)
	}
	e.WantOnce("A-17")
	// While the database cannot be reached, nothing runs and no outcome is reported as known.
	s.want("down", s.post("A-17", "k", "100"), http.StatusServiceUnavailable, idemhttp.ProblemUnavailable)
	s.wantRuns(1)
	proxy.Refuse(false)
	if a := s.post("A-17", "k", "100"); !a.replayed || a.status != http.StatusCreated || !strings.HasPrefix(a.body, "refunded 100 at") {
		e.Errorf("asked again: %v", a)
	}
	s.wantRuns(0)
	e.WantOnce("A-17")
}

// trapUnfinished checks that a record that was committed without a result is also unknown, and
// that the handler does not run.
func trapUnfinished[Tx any](e *conformance.Env[Tx]) {
	s := start(e, idempotency.Options{}, idemhttp.Options{}, refund[Tx])
	s.post("a", "k", "1")
	e.Must(`UPDATE holdfast_records SET state = 1, result = NULL`)
	s.want("unfinished", s.post("a", "k", "1"), http.StatusServiceUnavailable, idemhttp.ProblemUnknown)
	e.WantOnce("a")
}

// trapOneStatus checks that the client can tell "wait" from "wrong key". 409 means "wait",
// because the first request may fail and leave the key free. 422 comes once the first request
// has its record, and means that the key is wrong.
func trapOneStatus[Tx any](e *conformance.Env[Tx]) {
	started, free := make(chan struct{}), make(chan struct{})
	s := start(e, idempotency.Options{}, idemhttp.Options{}, func(s *service[Tx], w http.ResponseWriter, r *http.Request, tx Tx) error {
		close(started)
		<-free
		return refund(s, w, r, tx)
	})
	held := make(chan answer)
	go func() { held <- s.post("a", "k", "100") }()
	<-started
	wrong := make(chan answer)
	go func() { wrong <- s.post("a", "k", "101") }()
	short := s.replica(idempotency.Options{Wait: 2 * time.Minute}, idemhttp.Options{Wait: 100 * time.Millisecond}, refund[Tx])
	asked := time.Now()
	short.want("in flight", short.post("a", "k", "100"), http.StatusConflict, idemhttp.ProblemInProgress)
	short.want("another request in flight", short.post("a", "k", "101"), http.StatusConflict, idemhttp.ProblemInProgress)
	if waited := time.Since(asked); waited > time.Minute {
		e.Errorf("a wait of 100 ms took %v", waited)
	}
	short.wantRuns(0)
	close(free)
	s.want("first", <-held, http.StatusCreated, "")
	other := <-wrong
	if other.status == http.StatusConflict && !e.DB.Capabilities().LockTimeouts { // the server's own bound has ended its wait
		other = s.post("a", "k", "101")
	}
	s.want("another request", other, http.StatusUnprocessableEntity, idemhttp.ProblemMismatch)
	e.WantOnce("a")
}

// trapUnknownNotKept checks that an answer that is no outcome is not stored, and that later
// answers do not erase a stored outcome.
func trapUnknownNotKept[Tx any](e *conformance.Env[Tx]) {
	s := start(e, idempotency.Options{}, idemhttp.Options{}, func(s *service[Tx], w http.ResponseWriter, r *http.Request, tx Tx) error {
		err := refund(s, w, r, tx) // its status is used, except in the first run
		if s.runs.Load() == 1 {
			return errBoom
		}
		return err
	})
	s.want("first", s.post("a", "k", "1"), http.StatusInternalServerError, idemhttp.ProblemInternal)
	if s.records() != 0 || e.Effects("a") != 0 {
		e.Error("a failure was kept")
	}
	second := s.post("a", "k", "1")
	s.want("second", second, http.StatusCreated, "")
	s.post("a", "k", "other")
	_, _ = s.ask(cancelled(s.Ctx), "POST", "/refunds/a", "k", "1")
	s.wantReplay(second, s.post("a", "k", "1"))
	e.WantOnce("a")
}

func cancelled(ctx context.Context) context.Context {
	ctx, cancel := context.WithCancel(ctx)
	cancel()
	return ctx
}

// trapKeyReuse checks that any other request with the same key is refused as a mismatch.
func trapKeyReuse[Tx any](e *conformance.Env[Tx]) {
	o := idemhttp.Options{Methods: []string{"POST", "PUT"}}
	s := start(e, idempotency.Options{}, o, refund[Tx])
	first := s.post("a", "k", `{"amount":1}`, "Content-Type", "application/json")
	ask := func(method, path, body, contentType string) answer {
		a, err := s.ask(s.Ctx, method, path, "k", body, "Content-Type", contentType, "X-Operation", "refund")
		if err != nil {
			e.Error(err)
		}
		return a
	}
	const wrong = http.StatusUnprocessableEntity
	s.want("body", ask("POST", "/refunds/a", `{"amount":2}`, "application/json"), wrong, idemhttp.ProblemMismatch)
	s.want("path", ask("POST", "/refunds/b", `{"amount":1}`, "application/json"), wrong, idemhttp.ProblemMismatch)
	s.want("route", ask("POST", "/other/a", `{"amount":1}`, "application/json"), wrong, idemhttp.ProblemMismatch)
	s.want("query", ask("POST", "/refunds/a?x=1", `{"amount":1}`, "application/json"), wrong, idemhttp.ProblemMismatch)
	s.want("method", ask("PUT", "/refunds/a", `{"amount":1}`, "application/json"), wrong, idemhttp.ProblemMismatch)
	s.want("kind of body", ask("POST", "/refunds/a", `{"amount":1}`, "text/plain"), wrong, idemhttp.ProblemMismatch)
	s.wantReplay(first, ask("POST", "/refunds/a", `{"amount":1}`, "application/json"))
	s.wantRuns(1)
	e.WantOnce("a")
}

// trapFingerprintDrift checks that a difference that does not change the request is no
// mismatch, and that a change of the last digit is one.
func trapFingerprintDrift[Tx any](e *conformance.Env[Tx]) {
	s := start(e, idempotency.Options{}, idemhttp.Options{}, refund[Tx])
	const body, kind = `{"amount": 9007199254740993, "to": {"b": 1, "a": [1, 2]}}`, "application/json"
	first := s.post("a", "k", body, "Content-Type", kind)
	for _, same := range [][2]string{
		{body, kind},
		{body, "application/json; charset=utf-8"},
		{body, "application/vnd.shop+json"},
		{"\n{\"to\":{\"a\":[1,2],\"b\":1},\"amount\":9007199254740993}\n", kind},
	} {
		s.wantReplay(first, s.post("a", "k", same[0], "Content-Type", same[1], "Authorization", "Bearer refreshed", "User-Agent", "other"))
	}
	for _, other := range []string{
		strings.Replace(body, "993", "992", 1), strings.Replace(body, "[1, 2]", "[2, 1]", 1),
		strings.Replace(body, `"b": 1`, `"b": "1"`, 1), body + "{}", "", "{", "null",
	} {
		s.want(other, s.post("a", "k", other, "Content-Type", kind), http.StatusUnprocessableEntity, idemhttp.ProblemMismatch)
	}
	// A body that claims to be JSON but is not is compared by its bytes.
	broken := s.post("b", "broken", "{not json\xff", "Content-Type", kind)
	s.wantReplay(broken, s.post("b", "broken", "{not json\xff", "Content-Type", kind))
	s.want("broken", s.post("b", "broken", "{not json\xfe", "Content-Type", kind), http.StatusUnprocessableEntity, idemhttp.ProblemMismatch)
	e.WantOnce("a")
	e.WantOnce("b")
}

// trapRetention checks that an expired answer gives "gone" and that the operation never runs
// again, and that a rejection's key may run once the rejection has expired.
func trapRetention[Tx any](e *conformance.Env[Tx]) {
	so := idempotency.Options{ResultTTL: 100 * time.Millisecond}
	s := start(e, so, idemhttp.Options{}, refund[Tx])
	s.post("a", "k", "1")
	var a answer
	e.Eventually("the answer expires", func() bool {
		a = s.post("a", "k", "1")
		return !a.replayed
	})
	s.want("gone", a, http.StatusGone, idemhttp.ProblemExpired)
	s.want("gone, and another request", s.post("a", "k", "2"), http.StatusUnprocessableEntity, idemhttp.ProblemMismatch)
	s.wantRuns(1)
	e.WantOnce("a")

	no := s.replica(so, idemhttp.Options{}, func(*service[Tx], http.ResponseWriter, *http.Request, Tx) error {
		return idempotency.Reject("closed", "the shop is closed")
	})
	no.post("no", "no", "1")
	e.Eventually("the reason expires", func() bool {
		a = no.post("no", "no", "1")
		return !a.replayed
	})
	no.want("refused, and nobody knows why", a, http.StatusUnprocessableEntity, idemhttp.ProblemRejected)

	refused := true
	short := s.replica(idempotency.Options{RejectionTTL: 100 * time.Millisecond}, idemhttp.Options{}, func(s *service[Tx], w http.ResponseWriter, r *http.Request, tx Tx) error {
		if refused {
			return idempotency.Reject("closed", "the shop is closed")
		}
		return refund(s, w, r, tx)
	})
	short.want("refused", short.post("late", "late", "1"), http.StatusUnprocessableEntity, idemhttp.ProblemRejected)
	refused = false
	e.Eventually("the rejection expires", func() bool {
		a = short.post("late", "late", "1")
		return !a.replayed
	})
	short.want("a rejection does not protect its key for ever", a, http.StatusCreated, "")
	e.WantOnce("late")
}

// trapTwinKeys checks keys that engines which fold case would treat as equal: they stay
// different. So do keys of different operations that would be equal if operation and key were
// joined with a separator.
func trapTwinKeys[Tx any](e *conformance.Env[Tx]) {
	s := start(e, idempotency.Options{}, idemhttp.Options{}, refund[Tx])
	var keys []string
	quote := strings.NewReplacer(`\`, `\\`, `"`, `\"`)
	for _, key := range append(append(conformance.Keys(), hostile.Strings()...), "%", "_", `\`, `"`) {
		if printable := !strings.ContainsFunc(key, func(r rune) bool { return r < ' ' || r > '~' }); printable && len(key) <= 255 {
			keys = append(keys, `"`+quote.Replace(key)+`"`)
		}
	}
	for _, key := range keys {
		s.want(key, s.post("a", key, "1", "X-Operation", "o"), http.StatusCreated, "")
	}
	s.want("o:a, b", s.post("a", `"b"`, "1", "X-Operation", "o:a"), http.StatusCreated, "")
	s.want("o, a:b", s.post("a", `"a:b"`, "1", "X-Operation", "o"), http.StatusCreated, "")
	s.wantEffects("a", len(keys)+2)
}

// trapOwners checks that an owner that knows another owner's key gets nothing of its answer,
// that a missing owner is an error and not a bypass, and that a new credential is the same
// owner.
func trapOwners[Tx any](e *conformance.Env[Tx]) {
	owners := map[string]string{"alice": "A", "alice, refreshed": "A", "mallory": "M"}
	o := idemhttp.Options{Owner: func(r *http.Request) (string, error) {
		if r.Header.Get("Authorization") == "broken" {
			return "A", errBoom
		}
		return owners[r.Header.Get("Authorization")], nil
	}}
	s := start(e, idempotency.Options{}, o, refund[Tx])
	first := s.post("a", "k", "secret", "Authorization", "alice")
	s.wantReplay(first, s.post("a", "k", "secret", "Authorization", "alice, refreshed"))
	s.wantRuns(1)
	for _, body := range []string{"secret", "guess"} {
		a := s.post("m", "k", body, "Authorization", "mallory")
		if body == "secret" {
			s.want("mallory's own", a, http.StatusCreated, "")
		} else {
			s.want("mallory's mismatch with its own", a, http.StatusUnprocessableEntity, idemhttp.ProblemMismatch)
		}
		if a.body == first.body {
			e.Errorf("mallory got alice's answer: %v", a)
		}
	}
	s.wantRuns(1)
	for _, nobody := range []string{"", "stranger", "broken"} {
		s.want("no owner", s.post("a", "k", "secret", "Authorization", nobody), http.StatusForbidden, idemhttp.ProblemOwner)
		s.want("no owner, new key", s.post("n", "new", "1", "Authorization", nobody), http.StatusForbidden, idemhttp.ProblemOwner)
	}
	s.wantRuns(0)
	s.wantReplay(first, s.post("a", "k", "secret", "Authorization", "alice"))
	e.WantOnce("a")
	e.WantOnce("m")
	s.wantEffects("n", 0)
}

// trapPersonalHeaders checks that header fields outside the list reach only the first client:
// they are neither replayed nor stored.
func trapPersonalHeaders[Tx any](e *conformance.Env[Tx]) {
	o := idemhttp.Options{Headers: []string{"x-refund-id"}}
	s := start(e, idempotency.Options{}, o, func(s *service[Tx], w http.ResponseWriter, r *http.Request, tx Tx) error {
		w.Header().Set("Set-Cookie", "session=sesame")
		w.Header().Set("X-Secret", "sesame")
		w.Header().Set("Date", "Thu, 01 Jan 1970 00:00:00 GMT")
		w.Header()["X-Refund-Id"] = []string{"R-1", "R-2"}
		w.Header().Set("Link", "</a>, </b>")
		if r.PathValue("order") == "rejected" {
			return idempotency.Reject("no", "no")
		}
		return refund(s, w, r, tx)
	})
	for _, order := range []string{"a", "rejected"} {
		first, second := s.post(order, order, "1"), s.post(order, order, "1")
		s.wantReplay(first, second)
		if first.header.Get("Set-Cookie") != "session=sesame" || first.header.Get("X-Secret") != "sesame" {
			e.Errorf("the first client got %v", first)
		}
		if second.header.Get("Set-Cookie") != "" || second.header.Get("X-Secret") != "" || strings.Contains(second.header.Get("Date"), "1970") {
			e.Errorf("a duplicate got %v", second)
		}
		if got := strings.Join(second.header.Values("X-Refund-Id"), "|"); got != "R-1|R-2" {
			e.Errorf("X-Refund-Id is %q", got)
		}
	}
	rows, err := e.SQL.QueryContext(e.Ctx, `SELECT result FROM holdfast_records`)
	if err != nil {
		e.Fatal(err)
	}
	defer rows.Close()
	n := 0
	for ; rows.Next(); n++ {
		var result []byte
		if err := rows.Scan(&result); err != nil {
			e.Fatal(err)
		}
		if bytes.Contains(result, []byte("sesame")) || !bytes.Contains(result, []byte("R-1")) {
			e.Errorf("the record is %s", result)
		}
	}
	if err := rows.Err(); err != nil || n != 2 {
		e.Errorf("%d records, %v", n, err)
	}
}

// trapFailsClosed checks that the handler does not run when the store cannot be reached.
func trapFailsClosed[Tx any](e *conformance.Env[Tx]) {
	s := start(e, idempotency.Options{}, idemhttp.Options{}, refund[Tx])
	e.Must(`ALTER TABLE holdfast_records RENAME TO gone`)
	s.want("no table", s.post("a", "k", "1"), http.StatusInternalServerError, idemhttp.ProblemInternal)
	e.Must(`ALTER TABLE gone RENAME TO holdfast_records`)
	e.Close()
	a := s.post("a", "k", "1")
	s.want("no database", a, http.StatusServiceUnavailable, idemhttp.ProblemUnavailable)
	if strings.Contains(a.body, "sql") || strings.Contains(a.body, "closed") {
		e.Errorf("what the database said was sent: %v", a)
	}
	s.wantRuns(0)
	s.wantEffects("a", 0)
}

// TestTrapOneConnection checks that a request needs one connection, not two, so duplicates
// cannot starve a pool of one.
func TestTrapOneConnection(t *testing.T) {
	t.Parallel()
	h := conformance.SQL()
	h.Open = func(tb testing.TB, dsn string, opts ...holdfast.Options) conformance.Pool[*sql.Tx] {
		pool := dbtest.OpenSQL(tb, dsn)
		pool.SetMaxOpenConns(1)
		return conformance.SQLPool(tb, pool, opts...)
	}
	conformance.Run(t, h, doubleClick[*sql.Tx])
}
