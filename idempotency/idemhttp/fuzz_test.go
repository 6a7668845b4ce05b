package idemhttp

import (
	"bytes"
	"encoding/json"
	"mime"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/idempotency/idemclient"
)

// FuzzFingerprint checks that two requests have the same fingerprint only if they are equal,
// or differ only in how one JSON value is written, or in the order of parameters. TestFingerprintContent has the forms.
func FuzzFingerprint(f *testing.F) {
	const jsonType = "application/json"
	f.Add("POST", "/a", "q=1", jsonType, []byte(`{"a":1}`), "POST", "/a", "q=1", jsonType, []byte(`{ "a": 1 }`))
	f.Add("POST", "/a", "b", "", []byte("c"), "POST", "/ab", "", "", []byte("c"))
	f.Add("POST", "/a", "", jsonType, []byte("\"\xff\""), "POST", "/a", "", jsonType, []byte("\"\xfe\""))
	f.Add("POST", "/a", "", jsonType, []byte(`"\ud800"`), "POST", "/a", "", jsonType, []byte(`"\udbff"`))
	f.Add("POST", "/a", "a=1&b", "application/x-www-form-urlencoded", []byte("x&y"), "POST", "/a", "b&a=1", "application/x-www-form-urlencoded", []byte("y&x"))
	f.Add("POST", "/a%2Fb", "", "", []byte(nil), "POST", "/a/b", "", "", []byte(nil))
	f.Fuzz(func(t *testing.T, method, path, query, media string, body []byte, method2, path2, query2, media2 string, body2 []byte) {
		one, err1 := content{max: 1 << 20}.fingerprint()(request(method, path, query, media), body)
		two, err2 := content{max: 1 << 20}.fingerprint()(request(method2, path2, query2, media2), body2)
		if err1 != nil || err2 != nil || !bytes.Equal(one, two) {
			return
		}
		a, b := request(method, path, query, media), request(method2, path2, query2, media2)
		if a.Method != b.Method || a.URL.EscapedPath() != b.URL.EscapedPath() || byName(a.URL.RawQuery) != byName(b.URL.RawQuery) {
			t.Fatalf("%s %s and %s %s are one", a.Method, a.URL, b.Method, b.URL)
		}
		kind, _, _ := mime.ParseMediaType(media)
		form := kind == "application/x-www-form-urlencoded" && byName(string(body)) == byName(string(body2))
		if bytes.Equal(body, body2) || form || strings.HasPrefix(kind, "multipart/") {
			return
		}
		c1, e1 := idempotency.Canonical(json.RawMessage(body))
		c2, e2 := idempotency.Canonical(json.RawMessage(body2))
		if e1 != nil || e2 != nil || !bytes.Equal(c1, c2) {
			t.Fatalf("%q and %q are one", body, body2)
		}
	})
}

func request(method, path, query, media string) *http.Request {
	return &http.Request{Method: method, URL: &url.URL{Path: path, RawQuery: query}, Header: http.Header{"Content-Type": {media}}}
}

// FuzzRestore checks that any stored record is replayed or refused, without a panic.
func FuzzRestore(f *testing.F) {
	for _, s := range []string{`{"status":200}`, `{"status":99}`, `{"status":1000}`, `{"status":204,"body":"YQ=="}`, `{"status":200,"header":{"X":["a\nb"],"":[""]}}`, `null`, `{"status":1e3}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, kept []byte) {
		stored, err := restore(kept)
		if err != nil {
			return
		}
		w := httptest.NewRecorder()
		stored.replay(w)
		if w.Code != stored.Status || w.Header().Get(idemclient.HeaderReplayed) != "true" {
			t.Fatalf("%q: %d, %v", kept, w.Code, w.Header())
		}
	})
}

// FuzzHeaders checks what is read of a client's other header fields: a wait is a number of seconds that it has
// given, and a confirmation is a token or nothing.
func FuzzHeaders(f *testing.F) {
	for _, s := range []string{``, `wait=5`, `wait="5"`, `respond-async, wait=1; x=y`, `WAIT = 7`, `wait=-1`, `wait=99999999999999999999`, `wait`, `wait==1`, "\x00", strings.Repeat("a", 32)} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, value string) {
		if wait, is := preferredWait(http.Header{"Prefer": {value}}); wait < 0 || wait > 0 && (!is || !strings.Contains(strings.ToLower(value), "wait")) {
			t.Fatalf("%q asks for %v, %v", value, wait, is)
		}
		if isToken(value) && value != "" && (len(value) != tokenLength || strings.Trim(value, "0123456789abcdef") != "") {
			t.Fatalf("%q is a token", value)
		}
		if printable(value) && strings.ContainsAny(value, "\r\n\x00") {
			t.Fatalf("%q can be sent", value)
		}
	})
}
