package prove

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast"
)

// promises are those of docs/why/reliability.md that behaviour can show.
var promises = []Promise{
	{Name: "G1", Says: "a holder's context ends before another holder is granted its lease"},
	{Name: "G2", Says: "a guarded transaction commits only while no later grant was committed"},
	{Name: "G3", Says: "tokens of a key only rise"},
	{Name: "G4", Says: "one key has one effect, committed with its record"},
	{Name: "G5", Says: "a key is not executed again after its result has expired"},
	{Name: "G6", Says: "a commit whose answer is lost is resolved by asking again"},
	{Name: "G7", Says: "no lost update under optimistic locking"},
	{Name: "G8", Says: "a key is its exact bytes"},
}

// check is one behaviour and the function that tests it.
type check struct {
	name, shows string
	promises    []string
	// lacks says which required behaviour the engine declares missing. A nil lacks means none.
	lacks func(r *run) string
	do    func(ctx context.Context, t *trial) error
}

var checks = []check{
	{
		name: "one database", shows: "a write through one connection is seen at once by every other, and all lead to one server",
		promises: []string{"G1", "G2", "G3", "G4", "G5", "G7"}, do: oneDatabase,
	},
	{
		name: "isolation", shows: "no session sees what another has not committed",
		promises: []string{"G7"}, do: isolation,
	},
	{
		name: "uncommitted result", shows: "a key is not answered from a result that is stored and not committed",
		promises: []string{"G4", "G5"}, do: uncommittedResult,
	},
	{
		name: "row lock", shows: "a row that one session has locked makes others wait until it ends, and they see its value",
		promises: []string{"G2"}, lacks: noRowLocks, do: rowLock,
	},
	{
		name: "skip locked", shows: "SKIP LOCKED leaves out the locked rows, and nothing else, without waiting",
		promises: []string{"G1", "G2"}, lacks: noSkipLocked, do: skipLocked,
	},
	{
		name: "claim race", shows: "of sessions that claim one key at the same moment one executes it",
		promises: []string{"G4"}, do: claimRace,
	},
	{
		name: "lease race", shows: "of sessions that ask for one lease at the same moment one is granted it, after the last holder's context has ended",
		promises: []string{"G1", "G3"}, do: leaseRace,
	},
	{
		name: "guard", shows: "a stale term is refused, and a guarded transaction keeps others from being granted its lease",
		promises: []string{"G2"}, do: guard,
	},
	{
		name: "tokens", shows: "tokens rise over releases, a force-release, new pools and the reaper",
		promises: []string{"G3"}, do: tokens,
	},
	{
		name: "lost commit", shows: "a COMMIT that was cut off before or after the server ran it leaves one effect, and asking again finds it",
		promises: []string{"G4", "G6"}, lacks: noNetwork, do: lostCommit,
	},
	{
		name: "lost transaction", shows: "a function that ignores the error by which its transaction ended leaves no effect without its claim",
		promises: []string{"G4"}, do: lostTransaction,
	},
	{
		name: "expired result", shows: "a key whose result has expired, and was reaped, is not executed again",
		promises: []string{"G5"}, do: expiredResult,
	},
	{
		name: "lost update", shows: "of sessions that update one version of a row at the same moment one succeeds",
		promises: []string{"G7"}, do: lostUpdate,
	},
	{
		name: "twin keys", shows: "keys that differ in case, accents, blanks, NUL or the last of 1024 bytes are different keys",
		promises: []string{"G8"}, do: twinKeys,
	},
	{
		name: "clock", shows: "the database's clock goes forward as this machine's stopwatch does, in every session and time zone",
		promises: []string{"G1", "G3"}, do: clock,
	},
}

func noRowLocks(r *run) string {
	switch c := r.db.Capabilities(); {
	case !c.RowLocks:
		return "the engine has no row locks, and Holdfast uses none there"
	case c.MultiPrimary:
		return "row locks end at a node of this cluster, and Holdfast refuses them there"
	}
	return ""
}

func noSkipLocked(r *run) string {
	if r.dialect.RowLocks.OneByOne {
		return "the engine does not skip locked rows, and Holdfast asks for each row alone there"
	}
	return noRowLocks(r)
}

func noNetwork(r *run) string {
	if !r.dialect.Prove.Remote {
		return "the database is in the process: there is no connection that can be lost"
	}
	return ""
}

// trial is one run of a check.
type trial struct {
	*run

	attempts atomic.Int64
}

// brokenError reports a behaviour that was absent.
type brokenError string

func (e brokenError) Error() string { return string(e) }

func brokenf(format string, args ...any) error { return brokenError(fmt.Sprintf(format, args...)) }

// check runs c within its deadline.
func (r *run) check(ctx context.Context, c *check) Check {
	result := Check{Name: c.name, Shows: c.shows, Promises: c.promises}
	if c.lacks != nil {
		if result.Found = c.lacks(r); result.Found != "" {
			result.Verdict = NotApplicable
			return result
		}
	}
	r.o.Progress(c.name)
	start := time.Now()
	most := min(time.Until(r.start.Add(r.o.Duration)), r.o.Duration/4)
	ctx, cancel := context.WithTimeoutCause(ctx, most, fmt.Errorf("it was not done within %v", max(most, 0).Round(time.Millisecond)))
	defer cancel()
	t := &trial{run: r}
	var broken brokenError
	switch err := t.attempt(ctx, c); {
	case err == nil:
		result.Verdict = Pass
	case errors.As(err, &broken):
		result.Verdict, result.Found = Fail, broken.Error()
	case errors.Is(err, holdfast.ErrUnsupported), errors.Is(err, holdfast.ErrSchema):
		// The first connection was admitted, and its tables exist.
		result.Verdict, result.Found = Fail, "a later connection of this address was refused: "+err.Error()
	default:
		result.Verdict, result.Found = NotShown, err.Error()
	}
	result.Attempts, result.TookMS = t.attempts.Load(), time.Since(start).Milliseconds()
	return result
}

func (t *trial) attempt(ctx context.Context, c *check) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	err := c.do(ctx, t)
	if cause := context.Cause(ctx); ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		return cause
	}
	return err
}
