package main

import (
	"bytes"
	"encoding/json"
	"net/http"
	"time"
)

// deliveries bounds how often the bank tries to deliver an event that is refused.
const deliveries = 200

// send delivers an event to the service, times over once it is taken, as providers do now and then. It
// tries again while the service refuses it or is down.
func (b *bank) send(kind, reference string, times int) {
	body, err := json.Marshal(bankEvent{ID: kind + " " + reference, Kind: kind, Reference: reference})
	if err != nil {
		return
	}
	for range deliveries {
		if b.deliver(body) {
			if times--; times == 0 {
				return
			}
		}
		b.sleep(100 * time.Millisecond)
		if b.ctx.Err() != nil {
			return
		}
	}
}

func (b *bank) deliver(body []byte) bool {
	r, err := http.NewRequestWithContext(b.ctx, http.MethodPost, b.service()+"/webhooks/"+merchant, bytes.NewReader(body))
	if err != nil {
		return false
	}
	r.Header.Set(signatureHeader, sign(demoSecret, time.Now(), body))
	client := http.Client{Timeout: 5 * time.Second}
	response, err := client.Do(r)
	if err != nil {
		return false
	}
	_ = response.Body.Close()
	return response.StatusCode < http.StatusMultipleChoices
}
