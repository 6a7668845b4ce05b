//go:build unix

package campaign

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/idempotency"
)

// The bank is the world outside: payments and messages that no rollback and no crash takes back.
// It lives in the campaign's own process, which no fault hits. It honours idempotency keys as a
// payment provider does: a key has one payment, or one refusal, which its later requests get too.
type bank struct {
	*httptest.Server

	mu       sync.Mutex
	rng      *rand.Rand
	answers  map[string]string   // by the idempotency key: what its first request got
	payments map[string][]string // by the operation: the idempotency keys that paid for it
	messages map[string][]string // by the key: the messages in the order in which they came
}

// bankRefused is the code of a refusal by the bank.
const bankRefused = "no"

func openBank(t *testing.T) *bank {
	t.Helper()
	b := &bank{
		rng:     rand.New(rand.NewPCG(*seed, 3)),
		answers: map[string]string{}, payments: map[string][]string{}, messages: map[string][]string{},
	}
	roads := http.NewServeMux()
	roads.HandleFunc("POST /pay", b.pay)
	roads.HandleFunc("POST /message", b.message)
	b.Server = httptest.NewServer(roads)
	t.Cleanup(b.Close)
	return b
}

// draw returns a number below n, and how long the bank takes.
func (b *bank) draw(n int) (int, time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.rng.IntN(n), time.Duration(b.rng.IntN(20)) * time.Millisecond
}

// pay pays once for a key. Some requests fail before they are executed, some after.
func (b *bank) pay(w http.ResponseWriter, r *http.Request) {
	key, op := r.Header.Get("Idempotency-Key"), text1(r.Body)
	luck, takes := b.draw(20)
	time.Sleep(takes)
	if luck < 2 {
		http.Error(w, "down", http.StatusServiceUnavailable)
		return
	}
	b.mu.Lock()
	answer, again := b.answers[key]
	if !again {
		if answer = "paid by " + key; luck == 2 {
			answer = bankRefused
		} else {
			b.payments[op] = append(b.payments[op], key)
		}
		b.answers[key] = answer
	}
	b.mu.Unlock()
	if luck >= 18 {
		http.Error(w, "the answer is lost", http.StatusBadGateway)
		return
	}
	fmt.Fprint(w, answer)
}

// message takes a message of an outbox.
func (b *bank) message(w http.ResponseWriter, r *http.Request) {
	key, id := r.Header.Get("Message-Key"), text1(r.Body)
	luck, takes := b.draw(20)
	time.Sleep(takes / 4)
	if luck == 0 {
		http.Error(w, "down", http.StatusServiceUnavailable)
		return
	}
	b.mu.Lock()
	b.messages[key] = append(b.messages[key], id)
	b.mu.Unlock()
	if luck == 1 { // the answer is lost
		w.WriteHeader(http.StatusBadGateway)
	}
}

// text1 reads a short body.
func text1(body io.Reader) string {
	text, _ := io.ReadAll(io.LimitReader(body, 1<<10))
	return string(text)
}

// paid returns the operations of an epoch that were paid, with the keys that did.
func (b *bank) paid(epoch int) map[string][]string {
	b.mu.Lock()
	defer b.mu.Unlock()
	some := map[string][]string{}
	for op, keys := range b.payments {
		if epochOf(op) == epoch {
			some[op] = append([]string(nil), keys...)
		}
	}
	return some
}

// handed returns the messages that came under a key.
func (b *bank) handed(key string) []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return append([]string(nil), b.messages[key]...)
}

// askBank sends a client's request.
func askBank(ctx context.Context, url, header, key, body string) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		return "", err
	}
	req.Header.Set(header, key)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", err
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	switch {
	case err != nil:
		return "", err
	case resp.StatusCode != http.StatusOK:
		return "", errors.New(resp.Status)
	case string(text) == bankRefused:
		return "", idempotency.Reject(bankRefused, "the bank does not pay it")
	}
	return string(text), nil
}
