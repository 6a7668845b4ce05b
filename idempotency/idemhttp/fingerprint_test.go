package idemhttp

import (
	"bytes"
	"compress/gzip"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/idempotency/idemclient"
)

// TestFingerprintMemory checks that a fingerprint takes less memory than the request's body.
func TestFingerprintMemory(t *testing.T) { //nolint:paralleltest // it reads the heap's counters
	body := []byte(`"` + string(bytes.Repeat([]byte("<"), 1<<20)) + `"`)
	for _, media := range []string{"application/json", "text/plain"} {
		var before, after runtime.MemStats
		r := request(http.MethodPost, "/a", "", media)
		runtime.ReadMemStats(&before)
		b, err := content{max: 1 << 20}.fingerprint()(r, body)
		runtime.ReadMemStats(&after)
		if took := after.TotalAlloc - before.TotalAlloc; err != nil || took > uint64(len(body)) || len(b) > 1024 {
			t.Errorf("%s: %d bytes of memory, %d of fingerprint, %v", media, took, len(b), err)
		}
	}
}

// TestFingerprintAfterTheLimit checks that a body that is too large is not parsed.
func TestFingerprintAfterTheLimit(t *testing.T) {
	t.Parallel()
	m := &Middleware[struct{}]{operation: Operation("refund"), options: Options{Fingerprint: func(*http.Request, []byte) ([]byte, error) {
		t.Error("the fingerprint was taken")
		return nil, nil
	}}}
	if err := m.options.withDefaults(true); err != nil {
		t.Fatal(err)
	}
	m.options.MaxBody = 8
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/a", bytes.NewReader(make([]byte, 9)))
	r.Header.Set(idemclient.HeaderKey, "key")
	w := httptest.NewRecorder()
	if _, _, err := m.read(w, r, &share{of: &memory{max: 1 << 20}}); err == nil {
		t.Error("it was read")
	} else if m.refuse(w, r, err); w.Code != http.StatusRequestEntityTooLarge {
		t.Errorf("status %d", w.Code)
	}
}

// TestFingerprintContent checks which requests are one: those that differ only in what a client makes anew when it
// sends the same thing again.
func TestFingerprintContent(t *testing.T) {
	t.Parallel()
	const form, json = "multipart/form-data; boundary=", "application/json"
	parts := func(boundary string, parts ...string) string {
		return "--" + boundary + "\r\n" + strings.Join(parts, "\r\n--"+boundary+"\r\n") + "\r\n--" + boundary + "--\r\n"
	}
	const amount, file = "Content-Disposition: form-data; name=\"amount\"\r\n\r\n100", "Content-Disposition: form-data; name=\"f\"; filename=\"a.txt\"\r\n\r\nx"
	zip := func(text string, at time.Time) string {
		var b bytes.Buffer
		w := gzip.NewWriter(&b)
		w.ModTime = at
		_, err1 := io.WriteString(w, text)
		if err2 := w.Close(); err1 != nil || err2 != nil {
			t.Fatal(err1, err2)
		}
		return b.String()
	}
	type sent struct{ query, media, coding, body string }
	plain := Options{}
	only, without := Options{OnlyFields: []string{"/order", "/lines/0/cents"}}, Options{IgnoreFields: []string{"/sent_at", "/client/a~1b"}}
	for what, c := range map[string]struct {
		o    Options
		a, b sent
		same bool
	}{
		"the order of parameters":         {plain, sent{query: "a=1&b=2"}, sent{query: "b=2&a=1"}, true},
		"a parameter's value":             {plain, sent{query: "a=1&b=2"}, sent{query: "a=1&b=3"}, false},
		"the order of a list":             {plain, sent{query: "a=1&a=2"}, sent{query: "a=2&a=1"}, false},
		"values that are swapped":         {plain, sent{query: "a=1&b=2"}, sent{query: "a=2&b=1"}, false},
		"a form's fields":                 {plain, sent{media: "application/x-www-form-urlencoded", body: "a=1&b=2"}, sent{media: "application/x-www-form-urlencoded", body: "b=2&a=1"}, true},
		"a form's field":                  {plain, sent{media: "application/x-www-form-urlencoded", body: "a=1"}, sent{media: "application/x-www-form-urlencoded", body: "a=2"}, false},
		"a new boundary":                  {plain, sent{media: form + "x", body: parts("x", amount, file)}, sent{media: form + "y", body: parts("y", amount, file)}, true},
		"a part's content":                {plain, sent{media: form + "x", body: parts("x", amount)}, sent{media: form + "x", body: parts("x", amount+"0")}, false},
		"a part's name":                   {plain, sent{media: form + "x", body: parts("x", amount)}, sent{media: form + "x", body: parts("x", strings.Replace(amount, "amount", "total", 1))}, false},
		"a file's name":                   {plain, sent{media: form + "x", body: parts("x", file)}, sent{media: form + "x", body: parts("x", strings.Replace(file, "a.txt", "b.txt", 1))}, false},
		"a part more":                     {plain, sent{media: form + "x", body: parts("x", amount)}, sent{media: form + "x", body: parts("x", amount, file)}, false},
		"content that is two parts":       {plain, sent{media: form + "x", body: parts("x", amount, file)}, sent{media: form + "y", body: parts("y", amount+"\r\n--x\r\n"+file)}, false},
		"a form that breaks off":          {plain, sent{media: form + "x", body: "--x\r\n" + amount}, sent{media: form + "x", body: "--x\r\n" + amount + "0"}, false},
		"a new time of compression":       {plain, sent{coding: "gzip", body: zip("100", time.Unix(1, 0))}, sent{coding: "gzip", body: zip("100", time.Unix(2, 0))}, true},
		"compressed content":              {plain, sent{coding: "gzip", body: zip("100", time.Unix(1, 0))}, sent{coding: "gzip", body: zip("101", time.Unix(1, 0))}, false},
		"compressed, and not":             {plain, sent{coding: "gzip", body: zip("100", time.Unix(1, 0))}, sent{body: "100"}, false},
		"compressed, and broken":          {plain, sent{coding: "gzip", body: zip("100", time.Unix(1, 0))}, sent{coding: "gzip", body: zip("100", time.Unix(1, 0)) + "x"}, false},
		"a bomb is compared by bytes":     {plain, sent{coding: "gzip", body: zip(strings.Repeat("0", 1<<22), time.Unix(1, 0))}, sent{coding: "gzip", body: zip(strings.Repeat("0", 1<<22), time.Unix(2, 0))}, false},
		"a field that is not chosen":      {only, sent{media: json, body: `{"order":1,"sent_at":1}`}, sent{media: json, body: `{"sent_at":2, "order":1}`}, true},
		"a chosen field":                  {only, sent{media: json, body: `{"order":1}`}, sent{media: json, body: `{"order":2}`}, false},
		"a chosen field in a list":        {only, sent{media: json, body: `{"order":1,"lines":[{"cents":1}]}`}, sent{media: json, body: `{"order":1,"lines":[{"cents":2}]}`}, false},
		"a chosen field of many digits":   {only, sent{media: json, body: `{"order":9007199254740993}`}, sent{media: json, body: `{"order":9007199254740992}`}, false},
		"a chosen field that is null":     {only, sent{media: json, body: `{"order":1,"lines":[{"cents":null}]}`}, sent{media: json, body: `{"order":1}`}, false},
		"no chosen field at all":          {only, sent{media: json, body: `{"a":1}`}, sent{media: json, body: `{"a":2}`}, false},
		"a chosen field in other letters": {only, sent{media: json, body: `{"order":1,"lines":[{"Cents":1}]}`}, sent{media: json, body: `{"order":1,"lines":[{"Cents":2}]}`}, false},
		"a list in other letters":         {only, sent{media: json, body: `{"order":1,"Lines":[{"cents":1}]}`}, sent{media: json, body: `{"order":1,"Lines":[{"cents":2}]}`}, false},
		"both letters":                    {only, sent{media: json, body: `{"order":1,"ORDER":1}`}, sent{media: json, body: `{"order":1,"ORDER":2}`}, false},
		"not JSON after all":              {only, sent{media: json, body: `{"order":1,`}, sent{media: json, body: `{"order":1,}`}, false},
		"text that is not UTF-8":          {only, sent{media: json, body: "{\"order\":\"\xff\"}"}, sent{media: json, body: "{\"order\":\"\xfe\"}"}, false},
		"an ignored field":                {without, sent{media: json, body: `{"order":1,"sent_at":1,"client":{"a/b":1}}`}, sent{media: json, body: `{"client":{"a/b":2},"order":1}`}, true},
		"an ignored field is missing":     {without, sent{media: json, body: `{"order":1,"sent_at":1}`}, sent{media: json, body: `{"order":1}`}, true},
		"a field that is not ignored":     {without, sent{media: json, body: `{"order":1,"sent_at":1}`}, sent{media: json, body: `{"order":2,"sent_at":1}`}, false},
		"another field of that name":      {without, sent{media: json, body: `{"a":{"sent_at":1}}`}, sent{media: json, body: `{"a":{"sent_at":2}}`}, false},
	} {
		if err := c.o.withDefaults(true); err != nil {
			t.Fatal(err)
		}
		of := func(s sent) []byte {
			r := request(http.MethodPost, "/a", s.query, s.media)
			r.Header.Set("Content-Encoding", s.coding)
			b, err := c.o.Fingerprint(r, []byte(s.body))
			if err != nil {
				t.Errorf("%s: %v", what, err)
			}
			return b
		}
		if bytes.Equal(of(c.a), of(c.b)) != c.same || !bytes.Equal(of(c.a), of(c.a)) {
			t.Errorf("%s: they should be one is %v", what, c.same)
		}
	}
}
