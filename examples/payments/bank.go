package main

import (
	"context"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"time"
)

// bank is the provider. It honours idempotency keys, and fails in every way: what it does to a payment
// depends on its order and kind.
type bank struct {
	server  *httptest.Server
	service func() string // where to send webhooks
	ctx     context.Context
	stop    context.CancelFunc
	sending sync.WaitGroup

	mu    sync.Mutex
	byKey map[string]*payment
	tries map[request]int
	next  int
}

// payment is what the bank has for a key.
type payment struct {
	request
	bankAnswer
	reversed bool
}

// The ways in which the bank treats a payment.
const (
	pays = iota
	failsBefore
	paysThenFails
	paysThenHangs
	isBusy
	settlesLater
	settlesTooEarly
	settlesSilently
	declines
	declinesLater
	reverses
	ways
)

func newBank(service func() string) *bank {
	b := &bank{service: service, byKey: map[string]*payment{}, tries: map[request]int{}}
	b.ctx, b.stop = context.WithCancel(context.Background())
	mux := http.NewServeMux()
	mux.HandleFunc("POST /payments/{kind}/{order}", b.pay)
	mux.HandleFunc("GET /payments", b.find)
	b.server = httptest.NewUnstartedServer(mux)
	b.server.Config.BaseContext = func(net.Listener) context.Context { return b.ctx }
	b.server.Start()
	return b
}

func (b *bank) url() string { return b.server.URL }

func (b *bank) close() {
	b.stop()
	b.sending.Wait()
	b.server.CloseClientConnections()
	b.server.Close()
}

// way returns how the bank treats a payment.
func way(p request) int {
	h := fnv.New32a()
	fmt.Fprint(h, p.Order, "/", p.Kind)
	return int(h.Sum32() % ways)
}

// pay answers POST. The first attempts of some payments fail, before or after the money has moved.
func (b *bank) pay(w http.ResponseWriter, r *http.Request) {
	p := request{r.PathValue("order"), r.PathValue("kind")}
	how, key := way(p), r.Header.Get("Idempotency-Key")
	b.mu.Lock()
	b.tries[p]++
	try := b.tries[p]
	b.mu.Unlock()
	switch {
	case how == failsBefore && try == 1:
		http.Error(w, "no", http.StatusInternalServerError)
		return
	case how == isBusy && try <= 2:
		w.Header().Set("Retry-After", "1")
		http.Error(w, "busy", http.StatusTooManyRequests)
		return
	}
	a := b.move(p, how, key)
	switch {
	case how == paysThenFails && try == 1:
		http.Error(w, "no", http.StatusInternalServerError)
	case how == paysThenHangs && try == 1:
		select {
		case <-r.Context().Done():
		case <-time.After(3 * time.Second):
		}
	case a.State == "pending":
		answer(w, http.StatusAccepted, a)
	case a.State == "declined":
		answer(w, http.StatusPaymentRequired, a)
	default:
		answer(w, http.StatusOK, a)
	}
}

// move moves the money of a key once.
func (b *bank) move(p request, how int, key string) bankAnswer {
	b.mu.Lock()
	defer b.mu.Unlock()
	if there := b.byKey[key]; there != nil {
		return there.bankAnswer
	}
	b.next++
	moved := &payment{request: p, bankAnswer: bankAnswer{"paid", fmt.Sprintf("%s_%d", p.Kind[:2], b.next)}}
	b.byKey[key] = moved
	first := moved.bankAnswer
	switch how {
	case settlesLater, settlesTooEarly, settlesSilently, declinesLater:
		moved.State, first.State = "pending", "pending"
		b.settle(moved, how)
	case declines:
		moved.State, first.State = "declined", "declined"
	case reverses:
		b.sending.Go(func() {
			b.sleep(200 * time.Millisecond)
			b.mu.Lock()
			moved.reversed = true
			b.mu.Unlock()
			b.send("payment.reversed", moved.Reference, 2)
		})
	}
	return first
}

// settle ends a pending payment later, and says so twice, or too early, or not at all.
func (b *bank) settle(p *payment, how int) {
	b.sending.Go(func() {
		if how == settlesTooEarly { // the event overtakes the answer of the call
			b.end(p, "paid")
			b.send("payment.settled", p.Reference, 2)
			return
		}
		b.sleep(300 * time.Millisecond)
		switch how {
		case settlesLater:
			b.end(p, "paid")
			b.send("payment.settled", p.Reference, 2)
		case settlesSilently:
			b.end(p, "paid")
		case declinesLater:
			b.end(p, "declined")
			b.send("payment.declined", p.Reference, 2)
		}
	})
}

func (b *bank) end(p *payment, state string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	p.State = state
}

// find answers GET: what became of the payment of a key.
func (b *bank) find(w http.ResponseWriter, r *http.Request) {
	b.mu.Lock()
	a := bankAnswer{State: "none"}
	if p := b.byKey[r.URL.Query().Get("key")]; p != nil {
		a = p.bankAnswer
	}
	b.mu.Unlock()
	answer(w, http.StatusOK, a)
}

func answer(w http.ResponseWriter, status int, a bankAnswer) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	if text, err := json.Marshal(a); err == nil {
		_, _ = w.Write(text)
	}
}

func (b *bank) sleep(d time.Duration) {
	select {
	case <-time.After(d):
	case <-b.ctx.Done():
	}
}

// entries returns a copy of the bank's payments.
func (b *bank) entries() []payment {
	b.mu.Lock()
	defer b.mu.Unlock()
	var all []payment
	for _, p := range b.byKey {
		all = append(all, *p)
	}
	return all
}
