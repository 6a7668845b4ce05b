package idemhttp

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"runtime"
	"testing"

	"github.com/holdfast-go/holdfast/idempotency/idemclient"
)

// TestFingerprintMemory checks that a fingerprint takes less memory than the request's body.
func TestFingerprintMemory(t *testing.T) { //nolint:paralleltest // it reads the heap's counters
	body := []byte(`"` + string(bytes.Repeat([]byte("<"), 1<<20)) + `"`)
	for _, media := range []string{"application/json", "text/plain"} {
		var before, after runtime.MemStats
		r := request(http.MethodPost, "/a", "", media)
		runtime.ReadMemStats(&before)
		b, err := fingerprint(r, body)
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
