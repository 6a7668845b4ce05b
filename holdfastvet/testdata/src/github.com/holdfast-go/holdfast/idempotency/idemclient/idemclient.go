package idemclient

import "net/http"

const HeaderKey = "Idempotency-Key"

type SendOnce struct{ Base http.RoundTripper }

func (t *SendOnce) RoundTrip(r *http.Request) (*http.Response, error) { return nil, nil }
