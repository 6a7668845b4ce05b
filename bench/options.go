package main

import (
	"errors"
	"flag"
	"fmt"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/bench/internal/result"
	"github.com/holdfast-go/holdfast/bench/internal/servers"
	"github.com/holdfast-go/holdfast/bench/internal/sqlengine"
	"github.com/holdfast-go/holdfast/bench/internal/workload"
)

// options are the options of the command line.
type options struct {
	workloads []workload.Workload
	engines   []string
	peers     []string
	rounds    int
	slice     time.Duration
	clients   int
	flush     string
	conns     int
	leases    int
	reap      int
	grow      int
	out       string
	merge     []string
	docs      string
}

var allEngines = []string{sqlengine.Postgres, sqlengine.MySQL, sqlengine.MariaDB, sqlengine.SQLite}

func parse(args []string) (*options, error) {
	o := &options{}
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	var names []string
	for _, w := range workload.All() {
		names = append(names, w.Name)
	}
	workloads := flags.String("workload", strings.Join(names, ","), "which to run, in this order: a `list`")
	engines := flags.String("engines", strings.Join(allEngines, ","), "which SQL databases: a `list`")
	peers := flags.String("peers", "all", `which other servers: "all", "none", or a `+"`list`"+` of "`+strings.Join(servers.All(), `" "`)+`", with ; between`)
	flags.IntVar(&o.rounds, "rounds", 5, "how often each takes its turn")
	flags.DurationVar(&o.slice, "slice", time.Second, "how long a turn lasts")
	flags.IntVar(&o.clients, "clients", 0, "how many work at the same time, instead of each workload's own numbers")
	flags.IntVar(&o.conns, "conns", 72, "how many connections a pool may have")
	flags.IntVar(&o.leases, "leases", 10_000, "how many leases one process holds")
	flags.IntVar(&o.reap, "reap", 1_000_000, "how many expired rows are cleared")
	flags.IntVar(&o.grow, "grow", 1_000_000, "how many rows the tables grow to; 10000000 takes long and 10 GB")
	flags.StringVar(&o.flush, "flush", result.Free, `what a commit waits for, which decides the targets: "`+result.Free+`", where all files are in memory, or "`+result.Disk+`"`)
	flags.StringVar(&o.out, "out", "", "write result.json, RESULTS.md and the pictures into this `folder`")
	merge := flags.String("merge", "", "measure nothing, and make one report of the result.json of several runs: a `list`")
	flags.StringVar(&o.docs, "docs", "", "fill the generated parts of this `page`, and draw its pictures into img beside it")
	if err := flags.Parse(args); err != nil {
		return nil, err
	}
	if *merge != "" {
		o.merge = strings.Split(*merge, ",")
	}
	if o.rounds < 1 || o.slice < 10*time.Millisecond || o.conns < 4 || o.leases < 1 || o.reap < 1 || o.grow < 1 || flags.NArg() > 0 {
		return nil, errors.New("-rounds is at least 1, -slice 10ms, -conns 4, the numbers of rows and leases 1, and nothing comes after the flags: see -help")
	}
	if o.flush != result.Free && o.flush != result.Disk {
		return nil, fmt.Errorf("-flush is %q or %q", result.Free, result.Disk)
	}
	var err error
	if o.engines, err = pick(*engines, allEngines, func(s string) string { return s }); err != nil {
		return nil, err
	}
	switch *peers {
	case "all":
		o.peers = servers.All()
	case "none":
	default:
		o.peers = strings.Split(*peers, ";")
	}
	o.workloads, err = pick(*workloads, workload.All(), func(w workload.Workload) string { return w.Name })
	return o, err
}

// pick returns the items that the list names.
func pick[T any](list string, from []T, name func(T) string) (picked []T, err error) {
next:
	for s := range strings.SplitSeq(list, ",") {
		for _, t := range from {
			if s = strings.TrimSpace(s); name(t) == s {
				picked = append(picked, t)
				continue next
			}
		}
		return nil, fmt.Errorf("%q is not known: see -help", s)
	}
	return picked, nil
}
