package idemhttp_test

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/idempotency/idemclient"
	"github.com/holdfast-go/holdfast/idempotency/idemhttp"
	"github.com/holdfast-go/holdfast/internal/test/conformance"
)

// tripper is a RoundTripper made from a function.
type tripper func(r *http.Request) (*http.Response, error)

func (f tripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// transport checks that a client whose connections break, and whose request is also in flight
// elsewhere, gets the one answer, with one key and one effect.
func transport[Tx any](e *conformance.Env[Tx]) {
	started, free := make(chan struct{}), make(chan struct{})
	s := start(e, idempotency.Options{}, idemhttp.Options{Wait: holdfast.NoWait}, func(s *service[Tx], w http.ResponseWriter, r *http.Request, tx Tx) error {
		if r.PathValue("order") == "slow" {
			close(started)
			<-free
		}
		return refund(s, w, r, tx)
	})
	freed := sync.OnceFunc(func() { close(free) }) // a second retry may come before the first request has ended
	var mu sync.Mutex
	keys := map[string]bool{}
	statuses := []int{}
	lossy := tripper(func(r *http.Request) (*http.Response, error) {
		mu.Lock()
		defer mu.Unlock()
		resp, err := s.client.Transport.RoundTrip(r)
		if err != nil {
			return nil, err
		}
		keys[r.Header.Get(idemclient.HeaderKey)] = true
		if statuses = append(statuses, resp.StatusCode); resp.StatusCode == http.StatusConflict {
			freed()
		}
		if len(statuses) == 1 {
			_ = resp.Body.Close()
			return nil, errors.New("the connection broke after the server had done it")
		}
		return resp, nil
	})
	client := http.Client{Transport: &idemclient.Transport{Base: lossy}}
	post := func(order string) answer {
		resp, err := client.Post(s.url+"/refunds/"+order, "text/plain", strings.NewReader("100"))
		if err != nil {
			e.Fatal(err)
		}
		defer resp.Body.Close()
		text, _ := io.ReadAll(resp.Body)
		return answer{status: resp.StatusCode, body: string(text), replayed: resp.Header.Get(idemclient.HeaderReplayed) == "true"}
	}
	if a := post("A-17"); !a.replayed || !strings.HasPrefix(a.body, "refunded 100") || len(keys) != 1 {
		e.Errorf("after a broken connection: %v, %v", a, keys)
	}
	e.WantOnce("A-17")

	go func() { _, _ = s.ask(s.Ctx, http.MethodPost, "/refunds/slow", "slow", "100") }()
	<-started
	r, _ := http.NewRequestWithContext(idemclient.WithKey(e.Ctx, "slow"), http.MethodPost, s.url+"/refunds/slow", strings.NewReader("100"))
	resp, err := client.Do(r)
	if err != nil || resp.Header.Get(idemclient.HeaderReplayed) != "true" || resp.StatusCode != http.StatusCreated {
		e.Errorf("in flight elsewhere: %v, %v, %v", resp, err, statuses)
	} else {
		resp.Body.Close()
	}
	e.WantOnce("slow")
}
