package main

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/idempotency/staged"
)

// bankEvent is a webhook of the provider. It names the payment by the provider's own reference.
type bankEvent struct {
	ID        string `json:"id"`
	Kind      string `json:"kind"` // payment.settled, payment.declined or payment.reversed
	Reference string `json:"reference"`
}

const (
	signatureHeader = "Bank-Signature" // t=seconds,v1=hex of HMAC-SHA256 over "seconds.body"
	signatureAge    = 5 * time.Minute
)

// webhook takes the provider's events, each once, in any order and however often they arrive. An event
// that comes before what it is about is refused, and the provider delivers it again.
func (s *shop[Tx]) webhook(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 1<<16))
	if err != nil || !signed(s.secret, r.Header.Get(signatureHeader), body, time.Now()) {
		http.Error(w, "not signed", http.StatusUnauthorized)
		return
	}
	var e bankEvent
	if err := json.Unmarshal(body, &e); err != nil {
		http.Error(w, "no event", http.StatusBadRequest)
		return
	}
	event := staged.ProviderEvent{
		ID: e.ID, Kind: e.Kind, Body: body, Provider: "bank", Reference: e.Reference, Ref: staged.Ref{Owner: r.PathValue("merchant")},
	}
	switch e.Kind {
	case "payment.settled":
		event.Outcome, event.Result = staged.StepDone, receipt{e.Reference}
	case "payment.declined":
		event.Outcome, event.Rejection = staged.StepRejected, &idempotency.Rejection{Code: "declined"}
	case "payment.reversed":
		event.Outcome = staged.StepReversed
	}
	_, err = staged.HandleEvent(r.Context(), s.store, event, func(ctx context.Context, tx Tx, _ staged.Operation) error {
		if event.Outcome != staged.StepReversed {
			return nil
		}
		// The row has the reference once the step after the call has booked it.
		return s.db.one(ctx, tx, `UPDATE payments SET reversed = 1 WHERE reference = ?`, e.Reference)
	})
	switch {
	case err == nil: // a duplicate, too
		w.WriteHeader(http.StatusNoContent)
	case errors.Is(err, holdfast.ErrInvalid):
		http.Error(w, "not an event for us", http.StatusBadRequest)
	default: // also staged.ErrNotFound, staged.ErrState and errNoRow: it came too early
		http.Error(w, "again, please", http.StatusServiceUnavailable)
	}
}

// sign returns the signature of a body.
func sign(secret string, at time.Time, body []byte) string {
	seconds := strconv.FormatInt(at.Unix(), 10)
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write([]byte(seconds + "."))
	mac.Write(body)
	return "t=" + seconds + ",v1=" + hex.EncodeToString(mac.Sum(nil))
}

// signed checks a signature, in constant time, and its age, so that an old one cannot be replayed for ever.
func signed(secret, signature string, body []byte, now time.Time) bool {
	if len(signature) < 3 {
		return false
	}
	end := 2
	for end < len(signature) && signature[end] != ',' {
		end++
	}
	seconds, err := strconv.ParseInt(signature[2:end], 10, 64)
	at := time.Unix(seconds, 0)
	return err == nil && now.Sub(at).Abs() <= signatureAge && hmac.Equal([]byte(signature), []byte(sign(secret, at, body)))
}
