// Package provider is the client of a payment provider that honours idempotency keys. Yours takes its place.
package provider

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
)

// Refund is what the provider is asked for.
type Refund struct {
	Shop  string `json:"shop"`
	Order string `json:"order"`
	ID    string `json:"id"`
	Cents int64  `json:"cents"`
}

// Answer is what the provider says of a refund, in its answer and in its webhooks.
type Answer struct {
	State     string `json:"state"`           // Paid, Refused or Accepted
	Reference string `json:"reference"`       // its own name for the refund
	Event     string `json:"event,omitempty"` // of a webhook: the event's id
	Key       string `json:"key,omitempty"`   // of a webhook: the key with which the refund was asked for
}

// The states of a refund. Accepted comes to one of the others later, and a webhook tells which.
const (
	Paid     = "paid"
	Refused  = "refused"
	Accepted = "accepted"
)

// Client speaks to the provider.
type Client struct {
	URL    string
	Secret string // signs the webhooks
}

// Refund asks for a refund. The same key again gets the same refund. After an error it is not known what became of it.
func (c Client) Refund(ctx context.Context, key string, refund Refund) (answer Answer, err error) {
	body, err := json.Marshal(refund)
	if err != nil {
		return answer, err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, c.URL, bytes.NewReader(body))
	if err != nil {
		return answer, err
	}
	r.Header.Set("Idempotency-Key", key)
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		return answer, err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return answer, fmt.Errorf("the provider answered %s", response.Status)
	}
	if err := json.NewDecoder(response.Body).Decode(&answer); err != nil {
		return Answer{}, err
	}
	return answer, answer.known(Paid, Refused, Accepted)
}

// Webhook reads a request of the provider's and checks its signature. It returns an error unless the refund is paid or refused.
func (c Client) Webhook(r *http.Request) (answer Answer, err error) {
	body, err := io.ReadAll(io.LimitReader(r.Body, 1<<16))
	if err != nil {
		return answer, err
	}
	if !hmac.Equal([]byte(r.Header.Get("Signature")), []byte(c.Sign(body))) {
		return answer, errors.New("the webhook is not signed")
	}
	if err := json.Unmarshal(body, &answer); err != nil {
		return Answer{}, err
	}
	return answer, answer.known(Paid, Refused)
}

// known refuses what the service does not understand: it must not pass for paid.
func (a Answer) known(states ...string) error {
	if !slices.Contains(states, a.State) {
		return fmt.Errorf("the provider's state %q is unknown here", a.State)
	}
	return nil
}

// Sign returns the signature of a webhook's body.
func (c Client) Sign(body []byte) string {
	mac := hmac.New(sha256.New, []byte(c.Secret))
	mac.Write(body)
	return hex.EncodeToString(mac.Sum(nil))
}
