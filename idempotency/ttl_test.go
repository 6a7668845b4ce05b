package idempotency_test

import (
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/holdfasttest"
	"github.com/holdfast-go/holdfast/idempotency"
)

// TestResultTTLFollowsKeyTTL opens a store with nothing but a KeyTTL, as docs/howto/cron.md does.
func TestResultTTLFollowsKeyTTL(t *testing.T) {
	t.Parallel()
	kit := holdfasttest.SQLite(t, holdfast.Options{SingleOwner: true})
	const month = 30 * 24 * time.Hour
	s, err := idempotency.New(t.Context(), kit.DB, idempotency.Options{KeyTTL: month})
	if err != nil {
		t.Fatal(err)
	}
	if o := s.Options(); o.ResultTTL != month || o.RejectionTTL != month {
		t.Errorf("%+v", o)
	}
}
