// Command mutants plants faults into Holdfast's statements, or into its Go, one at a time, and counts
// those that no test notices:
//
//	mutants [-go [-in PACKAGES]] [-engine NAME] [-sample N -seed S] [-only TEXT] [-run TESTS] [-within TIME] [-jobs N] [-least N] [-out FILE] PACKAGE...
//
// A mutant drops a condition, a lock clause, an assignment, a "+ 1" or a GREATEST, or turns a
// comparison at its border: see package sqlmutant. It is planted where statements are compiled
// (internal/dialect, with the build tag mutants), so mutants follow the text when it moves. With -go it
// is planted into the code of the packages, or of those that -in names: see package gomutant.
//
// A first run of each package's tests, one at a time, lists the mutants and learns which test reaches
// which. Then each mutant runs against the tests that reach it, until one fails. A mutant that the server
// does not understand counts for nothing. The file equal.txt lists the mutants that change nothing, each
// with the reason.
//
// The servers are those of HOLDFAST_TEST_*_DSN. make mutants starts them.
package main

import (
	"bufio"
	"cmp"
	"context"
	_ "embed"
	"flag"
	"fmt"
	"hash/fnv"
	"io"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/holdfast-go/holdfast/internal/test/mutants/gomutant"
)

// equal has a line for each mutant that changes nothing: engines, statement, ID, reason. A star is any,
// and an ID that begins with a tilde is a regular expression for what the mutant does.
//
//go:embed equal.txt
var equal string

type options struct {
	engine, seed, only, in, out, tests string
	sample, jobs, least                int
	within                             time.Duration
	inGo                               bool
}

func main() {
	var o options
	flag.StringVar(&o.engine, "engine", "sqlite", "the `engine` on which the tests run, and whose statements get the faults")
	flag.BoolVar(&o.inGo, "go", false, "plant the faults into Go, not into SQL")
	flag.StringVar(&o.in, "in", "", "with -go, the `packages` that get the faults, separated by commas, when not those whose tests run")
	flag.IntVar(&o.sample, "sample", 0, "run `N` mutants, chosen by -seed; 0 runs all")
	flag.StringVar(&o.seed, "seed", "", "chooses the sample")
	flag.StringVar(&o.only, "only", "", "run the mutants whose place or description matches the regular `expression`")
	flag.StringVar(&o.tests, "run", "", "run the tests that match the `expression` of go test, for a first look: others may notice what survives")
	flag.IntVar(&o.jobs, "jobs", 2, "run `N` mutants at a time")
	flag.DurationVar(&o.within, "within", 0, "begin no mutant after this `time`; 0 tries all")
	flag.IntVar(&o.least, "least", 0, "fail if fewer than `N` percent of a package's mutants are killed")
	flag.StringVar(&o.out, "out", "", "append each result to `FILE`, tab-separated")
	flag.Parse()
	if flag.NArg() == 0 {
		flag.Usage()
		os.Exit(2)
	}
	if err := run(context.Background(), flag.Args(), o); err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, packages []string, o options) error {
	chosen, err := regexp.Compile(o.only)
	if err != nil {
		return err
	}
	var mutants []mutant
	overlay := ""
	if o.inGo {
		folder, err := os.MkdirTemp("", "mutants")
		if err != nil {
			return err
		}
		defer func() { _ = os.RemoveAll(folder) }()
		in := packages
		if o.in != "" {
			in = strings.Split(o.in, ",")
		}
		found, path, err := gomutant.Plant(ctx, folder, in...)
		if err != nil {
			return err
		}
		overlay = path
		for _, m := range found {
			mutants = append(mutants, mutant{m.Function, m.ID, m.What, m.Function + " " + m.ID})
		}
	}
	var suites []*suite
	defer func() {
		for _, s := range suites {
			s.close()
		}
	}()
	for _, pkg := range packages {
		s, err := learn(ctx, pkg, o.engine, overlay, o.tests)
		if err != nil {
			return fmt.Errorf("%s on %s: %w", pkg, o.engine, err)
		}
		suites = append(suites, s)
		fmt.Printf("%s %s: %d run, %d mutants of statements, %v\n", pkg, o.engine, len(s.runs), len(s.mutants), s.took.Round(time.Second))
	}
	if !o.inGo {
		mutants = all(suites)
	}
	mutants = slices.DeleteFunc(mutants, func(m mutant) bool { return !chosen.MatchString(m.String()) })
	if o.sample > 0 && len(mutants) > o.sample {
		slices.SortFunc(mutants, func(a, b mutant) int { return cmp.Compare(order(o.seed, a), order(o.seed, b)) })
		mutants = mutants[:o.sample]
	}
	results, err := judgeAll(ctx, suites, mutants, o)
	if worst := table(os.Stdout, results); err == nil && worst < float64(o.least) {
		err = fmt.Errorf("%.1f %% of a package's mutants were killed, want %d %%", worst, o.least)
	}
	return err
}

// judgeAll tries the mutants, a few at a time.
func judgeAll(ctx context.Context, suites []*suite, mutants []mutant, o options) ([]result, error) {
	var (
		mu      sync.Mutex
		results []result
	)
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(o.jobs)
	began := time.Now()
	for _, m := range mutants {
		if o.within > 0 && time.Since(began) > o.within {
			break
		}
		group.Go(func() error {
			r := judge(ctx, suites, o.engine, m)
			mu.Lock()
			defer mu.Unlock()
			results = append(results, r)
			fmt.Printf("%d/%d %s %s: %s: %s %s\n", len(results), len(mutants), r.pkg, o.engine, r.verdict, m, r.test)
			return keep(o.out, r)
		})
	}
	err := group.Wait()
	return results, err
}

// all returns the mutants of every suite, once.
func all(suites []*suite) []mutant {
	var out []mutant
	seen := map[mutant]bool{}
	for _, s := range suites {
		for _, m := range s.mutants {
			if !seen[m] {
				seen[m] = true
				out = append(out, m)
			}
		}
	}
	return out
}

// judge tries a mutant in the suites that reach it, most tests first: the first of these
// is the mutant's own package.
func judge(ctx context.Context, suites []*suite, engine string, m mutant) result {
	own := slices.Clone(suites)
	slices.SortStableFunc(own, func(a, b *suite) int { return cmp.Compare(len(b.runs[m.ran]), len(a.runs[m.ran])) })
	r := result{pkg: own[0].pkg, engine: engine, mutant: m, verdict: unreached}
	if r.reason = whyEqual(engine, m); r.reason != "" {
		r.verdict = isEqual
		return r
	}
	for _, s := range own {
		if len(s.runs[m.ran]) == 0 {
			break
		}
		if r.verdict, r.test = s.try(ctx, m); r.verdict != survived {
			break
		}
	}
	return r
}

// order is the place of a mutant in the sample of a seed.
func order(seed string, m mutant) uint32 {
	h := fnv.New32a()
	_, _ = io.WriteString(h, seed+m.place+m.id)
	return h.Sum32()
}

// whyEqual returns the reason of equal.txt, or "".
func whyEqual(engine string, m mutant) string {
	for lines := bufio.NewScanner(strings.NewReader(equal)); lines.Scan(); {
		field := strings.SplitN(lines.Text(), "\t", 4)
		if len(field) != 4 || field[0] != "*" && !slices.Contains(strings.Split(field[0], ","), engine) || field[1] != "*" && field[1] != m.place {
			continue
		}
		if what, is := strings.CutPrefix(field[2], "~"); field[2] == m.id || is && regexp.MustCompile(what).MatchString(m.what) {
			return field[3]
		}
	}
	return ""
}

func keep(path string, r result) error {
	if path == "" {
		return nil
	}
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644) //nolint:gosec // a report
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(f, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", r.pkg, r.engine, r.verdict, r.mutant.place, r.mutant.id, r.mutant.what, r.test+r.reason)
	if e := f.Close(); err == nil {
		err = e
	}
	return err
}

// table prints the counts of each package, and each survivor. It returns the lowest share, in percent.
func table(w io.Writer, results []result) (worst float64) {
	worst = 100
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tw, "\npackage\tengine\tmutants\tkilled\tequal\tnot SQL\tsurvived\tkilled of those that differ")
	for _, pkg := range packagesOf(results) {
		count := map[verdict]int{}
		engine := ""
		for _, r := range results {
			if r.pkg == pkg {
				count[r.verdict]++
				engine = r.engine
			}
		}
		survived := count[survived] + count[unreached]
		share := "-"
		if n := count[killed] + survived; n > 0 {
			percent := 100 * float64(count[killed]) / float64(n)
			worst, share = min(worst, percent), fmt.Sprintf("%.1f %%", percent)
		}
		fmt.Fprintf(tw, "%s\t%s\t%d\t%d\t%d\t%d\t%d\t%s\n", pkg, engine, count[killed]+survived+count[isEqual]+count[broken], count[killed], count[isEqual], count[broken], survived, share)
	}
	_ = tw.Flush()
	for _, r := range results {
		if r.verdict == survived || r.verdict == unreached {
			fmt.Fprintf(w, "%s: %s %s: %s [%s]\n", r.verdict, r.pkg, r.engine, r.mutant, r.mutant.id)
		}
	}
	return worst
}

func packagesOf(results []result) []string {
	var all []string
	for _, r := range results {
		if !slices.Contains(all, r.pkg) {
			all = append(all, r.pkg)
		}
	}
	return all
}
