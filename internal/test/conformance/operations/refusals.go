package operations

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/internal/test/conformance"
	"github.com/holdfast-go/holdfast/reaper"
)

// Refusals runs the suite on how long rejections are kept.
func Refusals[Tx any](t *testing.T, h conformance.Handle[Tx]) {
	for name, f := range map[string]func(*env[Tx]){
		"RejectionsEnd": rejectionsEnd[Tx],
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run(t, h, f)
		})
	}
}

// rejectionsEnd makes rejections in a store without options, as any client can. The
// reaper clears them with their keys at the end of their life. Then a call with the key is a first
// attempt, whose effect is made once. What was executed stays.
func rejectionsEnd[Tx any](e *env[Tx]) {
	s := e.Store(idempotency.Options{})
	var rej *idempotency.Rejection
	for i := range 20 {
		if _, err := e.issue(s, conformance.Op(fmt.Sprint("no", i)), true); !errors.As(err, &rej) {
			e.Fatal(err)
		}
	}
	if _, err := e.issue(s, conformance.Op("yes"), false); err != nil {
		e.Fatal(err)
	}
	if n := e.Int(`SELECT COUNT(*) FROM holdfast_records WHERE key_expires_at IS NULL`); n != 1 {
		e.Errorf("%d records stay for ever, want the one that was executed", n)
	}
	life := time.Duration(e.Int(`SELECT MIN(key_expires_at - finished_at) FROM holdfast_records WHERE state = 3`)) * time.Microsecond
	if life != 30*24*time.Hour {
		e.Errorf("a rejection is kept for %v", life)
	}
	r := e.Reaper(reaper.Options{})
	e.Sweep(r, 0, 0)
	if _, err := e.issue(s, conformance.Op("no0"), false); !errors.As(err, &rej) {
		e.Errorf("within its life: %v, want the rejection", err)
	}
	e.Must(`UPDATE holdfast_records SET result_expires_at = 1, key_expires_at = 1 WHERE state = 3`)
	if res, err := e.issue(s, conformance.Op("no0"), false); err != nil || res.Outcome != idempotency.Executed {
		e.Errorf("after its life: %v, %v", res, err)
	}
	e.Sweep(r, 0, 19)
	for _, key := range []string{"no0", "no1", "yes"} {
		for range 2 {
			if _, err := e.issue(s, conformance.Op(key), false); err != nil {
				e.Error(err)
			}
		}
		e.WantOnce(key)
	}
}
