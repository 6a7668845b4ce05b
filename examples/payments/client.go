package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/idempotency/staged"
)

// bankClient calls the provider. Its client sends a request once: net/http alone repeats a POST with a
// key when a kept connection dies.
type bankClient struct {
	url    string
	client http.Client
}

// bankAnswer is what the provider says about a payment.
type bankAnswer struct {
	State     string `json:"state"` // paid, pending, declined or none
	Reference string `json:"reference"`
}

// pay asks the provider to move the money, as a step of an operation.
func (b *bankClient) pay(ctx context.Context, p request, key string) (receipt, error) {
	a, err := b.move(ctx, p, key)
	if err != nil {
		return receipt{}, err
	}
	return outcome(ctx, a)
}

// move asks the provider to move the money. Its answers: 200 paid; 202 accepted, settled later; 402
// declined for good; 429 nothing was done, wait. Anything else, a time-out above all, is unknown.
func (b *bankClient) move(ctx context.Context, p request, key string) (bankAnswer, error) {
	status, header, a, err := b.ask(ctx, http.MethodPost, "/payments/"+p.Kind+"/"+p.Order, key)
	switch {
	case err != nil:
		return a, err
	case status == http.StatusTooManyRequests:
		return a, tooMany(ctx, header)
	case status != http.StatusOK && status != http.StatusAccepted && status != http.StatusPaymentRequired:
		return a, fmt.Errorf("the bank answered %d", status)
	}
	return a, nil
}

// find asks the provider what became of the call with this key.
func (b *bankClient) find(ctx context.Context, key string) (receipt, error) {
	status, _, a, err := b.ask(ctx, http.MethodGet, "/payments?key="+url.QueryEscape(key), key)
	switch {
	case err != nil:
		return receipt{}, err
	case status != http.StatusOK:
		return receipt{}, fmt.Errorf("the bank answered %d", status)
	}
	if a.State == "none" {
		return receipt{}, notFound(ctx)
	}
	return outcome(ctx, a)
}

// callTimeout is when a call is given up. A request may leave at its end.
const callTimeout = 2 * time.Second

// slowest is how long after its begin a call may be executed: until its end, and then on its way to the bank and
// within it. How long that is for a real bank is in its contract, and often minutes.
const slowest = callTimeout + time.Second

// notFound says what it means that the bank knows no payment with a key. It is no proof while a request
// may be on its way. After that, or with a bank that honours keys for as long as attempts go on, it is.
func notFound(ctx context.Context) error {
	if left := slowest - staged.CallAge(ctx); left > 0 {
		return staged.AskAgain(left + 100*time.Millisecond)
	}
	return staged.NotDone(errors.New("the bank knows no such payment"))
}

// outcome turns an answer into the outcome of a step.
func outcome(ctx context.Context, a bankAnswer) (receipt, error) {
	switch a.State {
	case "paid":
		staged.SetReference(ctx, a.Reference) // later webhooks name it
		return receipt{a.Reference}, nil
	case "pending":
		return receipt{}, staged.Accepted(a.Reference, settlesWithin)
	case "declined":
		return receipt{}, idempotency.Reject("declined", "the bank declined")
	}
	return receipt{}, fmt.Errorf("the bank's answer is %q", a.State)
}

// tooMany waits as long as the provider asks, within reason, and says that nothing was done.
func tooMany(ctx context.Context, header http.Header) error {
	seconds, _ := strconv.Atoi(header.Get("Retry-After"))
	wait := time.NewTimer(min(time.Duration(seconds)*time.Second, 2*time.Second))
	defer wait.Stop()
	select {
	case <-wait.C:
	case <-ctx.Done():
	}
	return staged.NotDone(errors.New("the bank is busy"))
}

func (b *bankClient) ask(ctx context.Context, method, path, key string) (status int, header http.Header, a bankAnswer, err error) {
	r, err := http.NewRequestWithContext(ctx, method, b.url+path, http.NoBody)
	if err != nil {
		return 0, nil, a, err
	}
	r.Header.Set("Idempotency-Key", key)
	response, err := b.client.Do(r)
	if err != nil {
		return 0, nil, a, err
	}
	defer response.Body.Close()
	if response.StatusCode < http.StatusInternalServerError && response.StatusCode != http.StatusTooManyRequests {
		err = json.NewDecoder(response.Body).Decode(&a)
	}
	return response.StatusCode, response.Header, a, err
}
