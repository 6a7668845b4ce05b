package simulation

import (
	"flag"
	"runtime"
	"runtime/debug"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/test/race"
)

var (
	seed      = flag.Uint64("seed", 1, "the first seed; 0 is the clock")
	schedules = flag.Int("schedules", 0, "how many schedules of each scene run, ten for each seed; 0 is 1600, and 400 of staged and of tickets, whose schedules are longer")
	duration  = flag.Duration("duration", 0, "for how long schedules of each scene run, instead of their number; TestExact and TestPlanted run only if it is given")
)

// each runs f with seeds, until as many schedules of a scene have run as the flags say, or f returns false.
func each(t *testing.T, scene string, f func(seed uint64) bool) (runs int, took time.Duration) {
	t.Helper()
	open(t)
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1)) // goroutines run in one order
	first, want := *seed, *schedules
	if first == 0 {
		first = uint64(time.Now().UnixNano()) % 1e9
	}
	switch {
	case want > 0:
	case scene == "staged", scene == "tickets":
		want = 400
	default:
		want = 1600
	}
	if race.Enabled {
		want /= 10
	}
	if seeded { // a collection stops goroutines, and puts them behind others
		defer debug.SetGCPercent(debug.SetGCPercent(-1))
	}
	began := time.Now()
	for more := true; more && (*duration == 0 && runs < want || time.Since(began) < *duration); first++ {
		more = f(first)
		if runs += episodes; seeded && runs%(20*episodes) == 0 {
			runtime.GC()
			time.Sleep(10 * time.Millisecond) // what it leaves to do is done
		}
	}
	return runs, time.Since(began)
}

// scenes are the worlds that are simulated.
var scenes = map[string]func(*world) scene{"leases": leaseScene, "flights": flightScene, "staged": newStagedScene, "tickets": ticketScene}

// TestSchedules runs schedules of each scene, and checks what its package promises.
func TestSchedules(t *testing.T) {
	for name, of := range scenes {
		t.Run(name, func(t *testing.T) {
			var done, faults, statements int
			if seeded {
				warm(t, of)
			}
			runs, took := each(t, name, func(seed uint64) bool {
				w := simulate(t, of, seed, false)
				done, faults, statements = done+w.scene.done(), faults+w.faults, statements+w.gate.sent
				if w.violation != "" {
					w.explain(t, of)
				}
				return w.violation == ""
			})
			t.Logf("simulation scene=%s schedules=%d seconds=%.1f rate=%.0f minute=%.0f statements=%d done=%d faults=%d failed=%v", name, runs, took.Seconds(), float64(runs)/took.Seconds(), float64(runs)/took.Minutes(), statements, done, faults, t.Failed())
		})
	}
}

// explain runs a seed again that broke a promise, and fails with what happened.
func (w *world) explain(t *testing.T, of func(*world) scene) {
	t.Helper()
	again := simulate(t, of, w.seed, true)
	if again.hash != w.hash && again.violation != "" { // the first run made what is kept for later
		w, again = again, simulate(t, of, w.seed, true)
	}
	last := 0 // of the schedules
	for i, line := range again.trace {
		if strings.Contains(line, " schedule ") {
			last = i
		}
	}
	same := "and again"
	if again.hash != w.hash {
		same = "and run again it went another way (make simulation has no such chance), to: " + again.violation
	}
	t.Errorf("seed %d, schedule %d: %s; %s\n%s", w.seed, w.episodes, w.violation, same, strings.Join(again.trace[last:], "\n"))
}

// warm runs some seeds: what is kept for later, such as encoders, draws from its own chance.
func warm(t *testing.T, of func(*world) scene) {
	t.Helper()
	open(t)
	for seed := range uint64(20) {
		simulate(t, of, seed, false)
	}
}

// TestReplay runs each seed twice.
func TestReplay(t *testing.T) {
	if !seeded {
		t.Skip("TestExact runs it, with a Go that has no chance of its own")
	}
	for name, of := range scenes {
		t.Run(name, func(t *testing.T) {
			var others []uint64
			warm(t, of)
			runs, _ := each(t, name, func(seed uint64) bool {
				once, again := simulate(t, of, seed, false), simulate(t, of, seed, false)
				if once.hash != again.hash {
					others = append(others, seed)
				}
				return true
			})
			if len(others) > 0 {
				t.Errorf("%d of %d seeds went another way: %v", len(others), runs/episodes, others[:min(len(others), 10)])
			}
			t.Logf("replay scene=%s seeds=%d different=%d", name, runs/episodes, len(others))
		})
	}
}
