package bankparks

import (
	"context"
	"net/http"
	"strings"

	"github.com/holdfast-go/holdfast/idempotency/idemclient"
	"github.com/holdfast-go/holdfast/idempotency/staged"
)

var client = http.Client{}

func pay(ctx context.Context) (string, error) {
	return staged.Call(ctx, staged.ExternalCall[string]{Step: "pay"}, post)
}

func post(ctx context.Context, key string) (string, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://bank.example", strings.NewReader(""))
	if err != nil {
		return "", err
	}
	r.Header.Set("Content-Type", "text/plain")
	r.Header.Set("Idempotency-Key", key)    // want `net/http repeats a request with this header`
	r.Header.Add("x-idempotency-key", key)  // want `net/http repeats a request with this header`
	r.Header.Set(idemclient.HeaderKey, key) // want `net/http repeats a request with this header`
	resp, err := client.Do(r)
	if err == nil {
		err = resp.Body.Close()
	}
	return "", err
}
