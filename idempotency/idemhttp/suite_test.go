package idemhttp_test

import (
	"testing"

	"github.com/holdfast-go/holdfast/internal/test/conformance"
)

// all runs the suite on one handle, on every engine that supports it.
func all[Tx any](t *testing.T, h conformance.Handle[Tx]) {
	t.Parallel()
	for name, f := range map[string]func(*conformance.Env[Tx]){
		"DoubleClick":     doubleClick[Tx],
		"Statuses":        statuses[Tx],
		"Requests":        requests[Tx],
		"Verdicts":        decisions[Tx],
		"Declines":        declines[Tx],
		"Unkeyed":         unkeyed[Tx],
		"UnkeyedReported": unkeyedReported[Tx],
		"UnkeyedDerived":  unkeyedDerived[Tx],
		"Lookups":         lookups[Tx],
		"Rejection":       rejection[Tx],
		"Failures":        failures[Tx],
		"RunsAgain":       runsAgain[Tx],
		"Swallowed":       swallowed[Tx],
		"EndsItself":      endsItself[Tx],
		"ParsedBefore":    parsedBefore[Tx],
		"Writer":          writer[Tx],
		"TooLarge":        tooLarge[Tx],
		"PassThrough":     passThrough[Tx],
		"WrapFinds":       wrapFinds[Tx],
		"RanOnce":         ranOnce[Tx],
		"Outer":           outer[Tx],
		"Transport":       transport[Tx],
		"Documented":      documented[Tx],
		"StartedAccepts":  startedAccepts[Tx],
		"StartedCancels":  startedCancels[Tx],
		"StartedWaits":    startedWaits[Tx],
		"SimilarRequests": similarRequests[Tx],
		"SimilarClicks":   similarClicks[Tx],
		"HeldMemory":      heldMemory[Tx],
		"TooManyKeys":     tooManyKeys[Tx],

		// The traps of idempotency that involve HTTP.
		"TrapLostCommitIsUnknown":       trapLostCommit[Tx],
		"TrapUnfinishedIsUnknown":       trapUnfinished[Tx],
		"TrapOneStatusForTwoConditions": trapOneStatus[Tx],
		"TrapUnknownIsNotKept":          trapUnknownNotKept[Tx],
		"TrapKeyReuse":                  trapKeyReuse[Tx],
		"TrapFingerprintDrift":          trapFingerprintDrift[Tx],
		"TrapRetention":                 trapRetention[Tx],
		"TrapTwinKeys":                  trapTwinKeys[Tx],
		"TrapOwners":                    trapOwners[Tx],
		"TrapPersonalHeaders":           trapPersonalHeaders[Tx],
		"TrapFailsClosed":               trapFailsClosed[Tx],
		"TrapClientGoesAway":            trapClientGoesAway[Tx],
		"TrapPanic":                     trapPanic[Tx],
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			conformance.Run(t, h, f)
		})
	}
}

func TestSQL(t *testing.T) { all(t, conformance.SQL()) }
func TestPgx(t *testing.T) { all(t, conformance.Pgx()) }
