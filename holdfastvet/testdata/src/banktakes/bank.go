package banktakes

import (
	"context"
	"database/sql"
	"net/http"
	"strings"

	"github.com/holdfast-go/holdfast/idempotency/staged"
)

var client = http.Client{}

func pay(ctx context.Context, r *staged.Run[*sql.Tx]) (string, error) {
	return staged.Call(ctx, r, staged.ExternalCall[string]{Step: "pay", OnLeaseEnd: staged.TakeOver}, post)
}

func post(ctx context.Context, key string) (string, error) { // want post:"outside: HTTP"
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://bank.example", strings.NewReader(""))
	if err != nil {
		return "", err
	}
	r.Header.Set("Content-Type", "text/plain")
	r.Header.Set("Idempotency-Key", key)
	resp, err := client.Do(r)
	if err == nil {
		err = resp.Body.Close()
	}
	return "", err
}
