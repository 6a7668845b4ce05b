package idemclient_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/holdfast-go/holdfast/idempotency/idemclient"
)

// A service loses its first answer. The client asks again with the key of its intent, and the service knows
// that it is the same refund.
func ExampleTransport() {
	known := map[string]bool{}
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		key, err := idemclient.ParseKey(r.Header)
		switch {
		case err != nil:
			w.WriteHeader(http.StatusBadRequest)
		case !known[key]:
			known[key] = true
			panic(http.ErrAbortHandler) // the refund was made, and the answer is lost
		default:
			w.Header().Set(idemclient.HeaderReplayed, "true")
		}
	}))
	defer service.Close()

	client := http.Client{Transport: &idemclient.Transport{}}
	ctx := idemclient.WithKey(context.Background(), "order-42-refund-1")
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, service.URL, strings.NewReader("12.50"))
	if err != nil {
		panic(err)
	}
	resp, err := client.Do(r)
	if err != nil {
		panic(err) // an UnansweredError: the outcome is unknown
	}
	_ = resp.Body.Close()
	client.CloseIdleConnections()
	fmt.Println(resp.StatusCode, idemclient.Definite(resp), len(known))
	// Output:
	// 200 true 1
}
