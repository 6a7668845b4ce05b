//go:build unix

package campaign

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/test/dbtest"
	"github.com/holdfast-go/holdfast/internal/test/history"
	"github.com/holdfast-go/holdfast/internal/test/statements"
)

// A campaign is one run on one engine.
type campaign struct {
	t        *testing.T
	site     *site
	control  control
	duration time.Duration
	dir      string // of the clients' records
	keep     bool   // keep the records, because the judge found something in them
	clients  []*process
	crashing sync.Mutex

	moving      sync.Mutex
	serverClock time.Duration // moving guards it

	mu      sync.Mutex
	struck  map[kind]int
	outside []pause
	found   []string

	judged                      int // epochs
	operations, grants, unknown int
	finished                    map[job]int // operations without an error
	commits                     int
	tokens                      []history.Op
	payments                    map[string]verdict   // what callers were told
	tooLate                     map[string]bool      // to cancel them
	watched                     map[string]eventSeen // the last event that each watch has seen
	seen                        []eventSeen          // which are not judged yet
}

// TestCampaign checks Holdfast's promises on every engine under all faults that are possible
// there.
func TestCampaign(t *testing.T) {
	needsDuration(t)
	dbtest.Each(t, func(t *testing.T, e dbtest.Engine) {
		c := begin(t, e, whole, *duration)
		c.run()
		if len(c.found) > 0 {
			t.Errorf("%d violations with seed %d: %s\nreplay: make faults DURATION=%v SEED=%d, or\n  go test ./internal/test/campaign -run 'TestCampaign/%s$' -duration=%v -seed=%d -v\nthe clients' records: %s\nschedule:%s",
				len(c.found), *seed, strings.Join(c.found, "\n"), c.duration, *seed, e, c.duration, *seed, c.dir, text(c.schedule()))
		}
	})
}

// longForm reports whether every control runs on every engine; otherwise each runs on one.
func longForm() bool { return *duration >= 10*time.Minute }

// controlDuration bounds the search for a control's violation, which usually takes ten seconds.
// Faults and meetings are a matter of luck, so the bound is generous.
const controlDuration = 10 * time.Minute

// TestControl removes one protection, and the campaign must detect this.
func TestControl(t *testing.T) {
	needsDuration(t)
	if *controls == "none" {
		t.Skip("-controls=none")
	}
	everywhere := *controls == "all" || *controls == "" && longForm()
	for i, what := range allControls {
		t.Run(string(what), func(t *testing.T) {
			t.Parallel()
			engines := slices.DeleteFunc(dbtest.Engines(), func(e dbtest.Engine) bool { return !what.possible(e) })
			for j, e := range engines {
				if !everywhere && j != i%len(engines) {
					continue
				}
				t.Run(string(e), func(t *testing.T) {
					c := begin(t, e, what, controlDuration)
					if what == asyncStandby && c.site.replication == nil {
						return // the log says why
					}
					c.run()
					if len(c.found) == 0 {
						t.Errorf("seed %d: nobody found out that %s is missing", *seed, what)
					} else {
						t.Logf("the first of %d: %s", len(c.found), c.found[0])
					}
				})
			}
		})
	}
}

// needsDuration skips campaigns in a run of all tests: make faults has the time for them.
func needsDuration(t *testing.T) {
	t.Helper()
	switch {
	case *duration == 0:
		t.Skip("no -duration: make faults runs the campaigns")
	case *duration < 10*time.Second:
		t.Fatal("a -duration below 10s shows nothing")
	}
}

// epochs is the length of an epoch: long enough for clients to meet at a key, and short enough
// for the data that must stay in memory.
const epochs = 5 * time.Second

func begin(t *testing.T, e dbtest.Engine, what control, duration time.Duration) *campaign {
	t.Helper()
	dir, err := os.MkdirTemp(os.Getenv("HOLDFAST_TEST_ARTIFACTS"), "campaign-"+string(e)+"-") //nolint:usetesting // kept where something was found
	if err != nil {
		t.Fatal(err)
	}
	c := &campaign{t: t, control: what, duration: duration, dir: dir, struck: map[kind]int{}, finished: map[job]int{}, payments: map[string]verdict{}, tooLate: map[string]bool{}, watched: map[string]eventSeen{}}
	t.Cleanup(func() {
		if !t.Failed() {
			_ = os.RemoveAll(dir)
		}
	})
	n := int(duration/epochs) + 6 // a few more, in case the run takes longer
	c.site = newSite(t, e, n)
	order := order{Workers: 3, Seed: *seed, Dir: dir, Begin: history.Now(), Epoch: epochs, Epochs: n, Control: what, Bank: c.site.bank.URL}
	for i, w := range c.site.ways {
		o := order
		o.URL, o.Native, o.Connector, o.Disconnect, o.Pool, o.Client = w.url, w.native, w.connector, w.disconnect, w.pool, i
		c.clients = append(c.clients, &process{c: c, order: o})
	}
	return c
}

// schedule returns the faults that the seed determines.
func (c *campaign) schedule() []fault {
	possible := c.site.faults()
	if c.control != whole {
		possible = c.control.faults(possible)
	}
	return draw(*seed, c.duration, possible, len(c.clients), c.site.own != nil && c.site.own.InDocker)
}

// run lets the clients work under faults, judges their histories during the campaign, and checks
// the tables.
func (c *campaign) run() {
	schedule := c.schedule()
	c.t.Logf("seed %d, %v, schedule:%s", *seed, c.duration, text(schedule))
	ctx, cancel := context.WithCancel(context.Background())
	for _, p := range c.clients {
		c.must(p.start())
		c.t.Cleanup(p.kill)
	}
	var faults sync.WaitGroup
	faults.Go(func() { c.strikeAll(ctx, schedule) })
	for end := time.Now().Add(c.duration); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		c.judgeWhatIsDone()
		if c.control != whole && c.any() {
			break // the judge has detected it
		}
	}
	cancel()
	faults.Wait()
	c.end()
	c.report()
}

// end stops the clients in order and judges the rest.
func (c *campaign) end() {
	var all sync.WaitGroup
	for _, p := range c.clients {
		all.Go(func() {
			c.must(p.start()) // the process may be about to start
			if err := p.quit(30 * time.Second); err != nil && c.control == whole {
				c.violationf("%v", err)
			}
		})
	}
	all.Wait()
	for last := c.clients[0].order.epoch(); c.judged <= last; c.judged++ {
		c.judge(c.judged)
	}
	c.finishAll()
	for _, a := range audits {
		if a.all != nil {
			a.all(c)
		}
	}
}

// report prints one line for scripts.
func (c *campaign) report() {
	var faults []string
	n := 0
	for _, k := range kinds {
		if c.struck[k] > 0 {
			faults = append(faults, fmt.Sprintf("%s=%d", k, c.struck[k]))
			n += c.struck[k]
		}
	}
	name := "campaign"
	if c.control != whole {
		name = "control=" + string(c.control)
	}
	fmt.Printf("%s engine=%s statements=%s seed=%d duration=%v operations=%d faults=%d (%s) grants=%d commits=%d unknown=%d jobs=(%s) violations=%d\n",
		name, c.site.engine, statements.Of(string(c.site.engine)), *seed, c.duration, c.operations, n, strings.Join(faults, " "), c.grants, c.commits, c.unknown, c.jobs(), len(c.found))
}

// enough is a duration in which every job succeeds at least once, with any seed.
const enough = 2 * time.Minute

// jobs lists how often each job finished without an error, and fails the test if a long campaign
// has one that never did.
func (c *campaign) jobs() string {
	var all []string
	for _, j := range c.site.jobs() {
		all = append(all, fmt.Sprintf("%s=%d", j, c.finished[j]))
		if c.finished[j] == 0 && c.control == whole && c.duration >= enough {
			c.t.Errorf("seed %d: in %v no %s has succeeded", *seed, c.duration, j)
		}
	}
	return strings.Join(all, " ")
}

// violationf records a violation.
func (c *campaign) violationf(format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.found = append(c.found, fmt.Sprintf(format, args...))
}

func (c *campaign) any() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.found) > 0
}

// must fails the test on an error that is unrelated to Holdfast.
func (c *campaign) must(err error) {
	if err != nil {
		c.t.Errorf("the campaign itself: %v", err)
	}
}
