package service_test

import (
	"bytes"
	"encoding/json"
	"maps"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/examples/service/provider"
)

// secret signs the webhooks. It protects nothing.
const secret = "whsec_storm"

// What the bank does with a refund. The id of a refund ends with it.
const (
	pays      = "pays"
	loses     = "loses"     // pays, and the first answer is lost
	refuses   = "refuses"   // for good, at once
	declines  = "declines"  // accepts, and refuses by webhook
	settles   = "settles"   // accepts, and pays by webhook
	overtakes = "overtakes" // accepts, but the webhook comes before the answer
	drops     = "drops"     // the first request comes to nothing
)

// fates are such that the first four requests have each of the ends that a refund can have.
var fates = []string{pays, loses, refuses, declines, settles, overtakes, drops}

// payment is what the bank knows of a key.
type payment struct {
	refund provider.Refund
	answer provider.Answer
	asked  int
}

// bank honours keys for ever, sends each webhook twice, and loses what it can.
type bank struct {
	provider.Client
	world   *world
	sending sync.WaitGroup

	mu    sync.Mutex
	byKey map[string]*payment
}

func (b *bank) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	key := r.Header.Get("Idempotency-Key")
	var refund provider.Refund
	if err := json.NewDecoder(r.Body).Decode(&refund); err != nil || key == "" {
		http.Error(w, "no refund", http.StatusBadRequest)
		return
	}
	fate := refund.ID[strings.LastIndexByte(refund.ID, '-')+1:]
	b.world.happened("asked")
	answer, first := b.move(key, refund, fate)
	if first && answer.State == provider.Paid {
		b.world.happened("paid")
	}
	if first {
		event := answer // of its end
		switch event.Event, event.Key = "event-of-"+key, key; fate {
		case loses, drops:
			panic(http.ErrAbortHandler) // the connection breaks
		case overtakes:
			b.deliver(event)
			b.sending.Go(func() { b.deliver(event) })
			answer.State = provider.Accepted
		case settles, declines:
			b.sending.Go(func() { b.deliver(event); b.deliver(event) })
			answer.State = provider.Accepted
		}
	}
	_ = json.NewEncoder(w).Encode(answer) // the client may be dead
}

// move moves the money of a key, once, and says whether this was the first request with it.
func (b *bank) move(key string, refund provider.Refund, fate string) (answer provider.Answer, first bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	p := b.byKey[key]
	if p == nil {
		p = &payment{refund: refund, answer: provider.Answer{State: provider.Paid, Reference: "re_" + refund.ID}}
		if fate == refuses || fate == declines {
			p.answer.State = provider.Refused
		}
		if fate == drops {
			p.answer.State = ""
		}
		b.byKey[key] = p
	} else if fate == drops {
		p.answer.State = provider.Paid
	}
	p.asked++
	return p.answer, p.asked == 1
}

// deliver sends a webhook until the service takes it.
func (b *bank) deliver(event provider.Answer) {
	body, err := json.Marshal(event)
	if err != nil {
		panic(err)
	}
	for time.Now().Before(b.world.last) {
		status, _ := b.world.send("/webhook", http.Header{"Signature": {b.Sign(body)}}, body)
		if status == http.StatusOK {
			b.world.happened("webhook")
			return
		}
	}
	b.world.t.Errorf("%s: the webhook was never taken", event.Reference)
}

// payments returns what the bank did.
func (b *bank) payments() (all []payment) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, p := range b.byKey {
		all = append(all, *p)
	}
	return all
}

// send sends a POST to the process that serves now. The status is 0 if there is no answer.
func (w *world) send(path string, header http.Header, body []byte) (status int, text string) {
	r, err := http.NewRequestWithContext(w.ctx, http.MethodPost, w.serving()+path, bytes.NewReader(body))
	if err != nil {
		panic(err)
	}
	maps.Copy(r.Header, header)
	return w.do(r)
}

func (w *world) do(r *http.Request) (status int, text string) {
	response, err := w.client.Do(r)
	if err != nil {
		time.Sleep(5 * time.Millisecond) // until it is asked again
		return 0, err.Error()
	}
	defer response.Body.Close()
	var out bytes.Buffer
	if _, err := out.ReadFrom(response.Body); err != nil {
		return 0, err.Error()
	}
	return response.StatusCode, out.String()
}
