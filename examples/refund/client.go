package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	mathrand "math/rand/v2"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"sync"
	"time"
)

const (
	// patience bounds how long a client retries for a definite answer.
	patience = 90 * time.Second
	// askTimeout bounds one request.
	askTimeout = 15 * time.Second
)

// client is one client process of a storm. Its parent sends it these lines:
//
//	replica <number> <address>             where a replica is now
//	refund <order> <number> <amount> <n>   send n requests for this refund, at once
//
// Each request has a fresh Idempotency-Key, as from a page that generates one for each click. It keeps
// the key until it has a definite answer.
//
// For every request it prints: answer <order> <outcome> <refund id or ->.
type client struct {
	http *http.Client

	mu        sync.Mutex
	addresses map[int]string

	out sync.Mutex
}

func clientCommand(ctx context.Context, args []string) error {
	if err := parse(newFlags("client", "One client of a storm, started by storm."), args); err != nil {
		return err
	}
	c := &client{
		http:      &http.Client{Timeout: askTimeout, Transport: &http.Transport{MaxIdleConnsPerHost: 256}},
		addresses: map[int]string{},
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	followParent(stop, func(words []string) { c.heard(ctx, words) })
	c.http.CloseIdleConnections()
	return nil
}

func (c *client) heard(ctx context.Context, words []string) {
	switch {
	case len(words) == 3 && words[0] == "replica":
		if i, err := strconv.Atoi(words[1]); err == nil {
			c.mu.Lock()
			c.addresses[i] = words[2]
			c.mu.Unlock()
		}
	case len(words) == 5 && words[0] == "refund":
		n, _ := strconv.Atoi(words[4])
		body := fmt.Appendf(nil, `{"refund": %q, "amount": %q}`, words[2], words[3])
		for range n {
			go func() {
				outcome, id := c.insist(ctx, words[1], rand.Text(), body)
				c.out.Lock()
				defer c.out.Unlock()
				fmt.Fprintln(os.Stdout, "answer", words[1], outcome, id)
			}()
		}
	}
}

// insist retries until there is a definite answer, as a real client must: with the same intent
// every time, at any replica.
func (c *client) insist(ctx context.Context, order, key string, body []byte) (outcome, id string) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	pause := 10 * time.Millisecond
	for replica := mathrand.IntN(1 << 16); ; replica++ {
		if outcome, id := c.ask(ctx, replica, order, key, body); outcome != unknown {
			return outcome, id
		}
		pause = min(2*pause, 500*time.Millisecond)
		select {
		case <-time.After(pause/2 + mathrand.N(pause)):
		case <-ctx.Done():
			return unknown, "-"
		}
	}
}

// ask sends one request. Every answer that is not definite is unknown: a broken connection, a 409
// in progress, a 503.
func (c *client) ask(ctx context.Context, replica int, order, key string, body []byte) (outcome, id string) {
	c.mu.Lock()
	address := c.addresses[replica%max(1, len(c.addresses))]
	c.mu.Unlock()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost,
		address+"/orders/"+url.PathEscape(order)+"/refunds", bytes.NewReader(body))
	if err != nil {
		return unknown, "-"
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Idempotency-Key", key)
	response, err := c.http.Do(request)
	if err != nil {
		return unknown, "-"
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return unknown, "-" // the replica died while it answered
	}
	switch response.StatusCode {
	case http.StatusCreated, http.StatusOK:
		var refund Refund
		if json.Unmarshal(text, &refund) != nil || refund.ID == "" {
			return unknown, "-"
		}
		if response.StatusCode == http.StatusOK {
			return replayed, refund.ID
		}
		return executed, refund.ID
	case http.StatusConflict, http.StatusInternalServerError, http.StatusBadGateway,
		http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return unknown, "-"
	}
	return rejected, "-"
}
