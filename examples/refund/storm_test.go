package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/internal/test/dbtest"
)

// result is the last output of a storm and its exit status.
type result struct {
	orders, requests, refunds, replays, duplicates, unknown int
	exit                                                    int
	stderr                                                  string
}

// runStorm runs the command as a user does, in a separate process.
func runStorm(t *testing.T, args ...string) result {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 4*dbtest.Hang)
	defer cancel()
	cmd := exec.CommandContext(ctx, os.Args[0], append([]string{"storm"}, args...)...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	r := result{stderr: stderr.String()}
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		r.exit = exit.ExitCode()
	} else if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimRight(stdout.String(), "\n"), "\n")
	last := lines[len(lines)-1]
	const form = "orders=%d requests=%d refunds=%d replays=%d duplicates=%d unknown=%d"
	if _, err := fmt.Sscanf(last, form, &r.orders, &r.requests, &r.refunds, &r.replays, &r.duplicates, &r.unknown); err != nil {
		t.Fatalf("the last line is %q, exit status %d\n%s", last, r.exit, r.stderr)
	}
	if want := fmt.Sprintf(form, r.orders, r.requests, r.refunds, r.replays, r.duplicates, r.unknown); last != want {
		t.Errorf("the last line is %q, not %q", last, want)
	}
	return r
}

func TestStorm(t *testing.T) {
	t.Parallel()
	orders, duplicates := 10, 6
	if dbtest.Nightly() {
		orders, duplicates = 24, 10
	}
	dbtest.Each(t, func(t *testing.T, e dbtest.Engine) {
		url := dbtest.DSN(t, e) // one database for all: each run audits only its own orders
		for _, p := range protections {
			for _, kill := range []bool{false, true} {
				orders, duplicates := orders, duplicates
				switch {
				case p.safe && !kill && e != dbtest.SQLite:
					continue // with kills, clients also do all that they do without
				case !kill, !p.safe:
					orders, duplicates = 10, 6
				}
				r := runStorm(t, "-dsn", url, "-protect", p.name, fmt.Sprintf("-kill=%v", kill),
					fmt.Sprintf("-orders=%d", orders), fmt.Sprintf("-duplicates=%d", duplicates), "-processes=3")
				if !p.safe {
					if r.exit != 0 {
						t.Errorf("%s, kill %v: %+v", p.name, kill, r)
					}
					continue
				}
				answered := r.replays >= orders*(duplicates-1) && r.replays <= orders*duplicates
				if r.exit != 0 || r.refunds != orders || r.duplicates != 0 || r.unknown != 0 ||
					r.requests != orders*duplicates || !answered {
					t.Errorf("%s, kill %v: %+v", p.name, kill, r)
				}
				kills := 0
				if kill {
					kills = (orders + killEvery - 1) / killEvery
				}
				if !strings.Contains(r.stderr, fmt.Sprintf("; %d kills\n", kills)) {
					t.Errorf("%s: not %d kills: %s", p.name, kills, r.stderr)
				}
			}
		}
	})
}

// Without protection the same service pays twice. Otherwise the storm would prove nothing.
func TestStormWithoutProtectionShowsDuplicates(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, e dbtest.Engine) {
		dbtest.Eventually(t, "a storm makes duplicates", func() bool {
			return runStorm(t, "-dsn", dbtest.DSN(t, e), "-protect", "none", "-orders=10", "-duplicates=8").duplicates > 0
		})
	})
}

// Every click has a fresh key. The intent guard makes one refund of an order; without it each click is
// paid, also while replicas are killed.
func TestStormOfFreshKeys(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, e dbtest.Engine) {
		url := dbtest.DSN(t, e)
		for _, kill := range []bool{false, true} {
			r := runStorm(t, "-dsn", url, "-protect", "intent-guard", fmt.Sprintf("-kill=%v", kill), "-orders=10", "-duplicates=6")
			if r.exit != 0 || r.refunds != 10 || r.duplicates != 0 || r.unknown != 0 || r.replays < 50 {
				t.Errorf("guarded, kill %v: %+v", kill, r)
			}
		}
		if r := runStorm(t, "-dsn", url, "-protect", "key-per-click", "-orders=5", "-duplicates=4"); r.exit != 0 || r.refunds != 20 || r.duplicates != 15 {
			t.Errorf("the control: %+v", r)
		}
	})
}

// The audit makes a run fail: the same books, declared as protected.
func TestStormFailsOnDuplicates(t *testing.T) {
	t.Parallel()
	var stdout, stderr bytes.Buffer
	st := storm{orders: 1, duplicates: 2, protect: withIdempotency}
	b := goodBooks(t)
	b.refunds = append(b.refunds, Refund{ID: "r2", Order: "o", Intent: "o/1", Amount: money(t, "1.00")})
	if err := st.report(newTally(2), audit(b), &stdout, &stderr); err == nil || !strings.Contains(stderr.String(), "made 2 times") {
		t.Errorf("%v: %s", err, &stderr)
	}
	if got, want := stdout.String(), "orders=1 requests=2 refunds=2 replays=0 duplicates=1 unknown=0\n"; got != want {
		t.Error(got)
	}
}

func TestUnknownProtectionNamesTheOthers(t *testing.T) {
	t.Parallel()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "storm", "-protect", "magic")
	out, err := cmd.CombinedOutput()
	if err == nil || cmd.ProcessState.ExitCode() != 2 {
		t.Error(err)
	}
	for _, p := range protections {
		if !strings.Contains(string(out), p.name) {
			t.Errorf("%q does not name %s", out, p.name)
		}
	}
}
