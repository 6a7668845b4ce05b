package idemhttp

import (
	"net/http"
	"testing"
	"time"
)

func TestPreferredWait(t *testing.T) {
	t.Parallel()
	for field, want := range map[string]time.Duration{
		"": -1, "wait=10": 10 * time.Second, "respond-async": 0, "Respond-Async, WAIT=3": 3 * time.Second, `foo; wait=1, wait = "7"; x`: 7 * time.Second,
		"wait=-1": -1, "wait": -1, "wait=x, wait=2": 2 * time.Second, "handling=lenient": -1, "wait=0": 0,
	} {
		got, is := preferredWait(http.Header{"Prefer": {field}})
		if !is {
			got = -1
		}
		if got != want {
			t.Errorf("%q: %v, want %v", field, got, want)
		}
	}
}
