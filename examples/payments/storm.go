package main

import (
	"context"
	"crypto/rand"
	"errors"
	"flag"
	"fmt"
	"io"
	mathrand "math/rand/v2"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/idempotency/idemclient"
	"github.com/holdfast-go/holdfast/internal/dsn"
)

// storm holds the values of the flags.
type storm struct {
	orders, duplicates, processes int
	every, stopFor, limit         time.Duration
	protect, url                  string
	prefix                        string // of this run's orders, so that runs do not mix
}

// stormCommand asks for payments while processes of the service are killed and stopped, and then audits
// the books of the service and the bank.
func stormCommand(ctx context.Context, args []string) error {
	st := storm{prefix: strings.ToLower(rand.Text()[:8]) + "-"}
	flags := flag.NewFlagSet("storm", flag.ContinueOnError)
	flags.IntVar(&st.orders, "orders", 30, "orders, each charged, captured and refunded")
	flags.IntVar(&st.duplicates, "duplicates", 3, "clients that ask for each of them at once")
	flags.IntVar(&st.processes, "processes", 3, "processes of the service")
	flags.DurationVar(&st.every, "every", 300*time.Millisecond, "how often a process is killed and started again, or stopped")
	flags.DurationVar(&st.stopFor, "stop", 2500*time.Millisecond, "for how long a process is stopped; the leases are 2s")
	flags.DurationVar(&st.limit, "limit", 5*time.Minute, "after this what is open counts as open")
	flags.StringVar(&st.protect, "protect", protected, protected+", or "+unprotected+": the control, which pays twice")
	flags.StringVar(&st.url, "dsn", "", dsnUsage)
	if err := parse(flags, args); err != nil {
		return err
	}
	if min(st.orders, st.duplicates, st.processes) < 1 || st.protect != protected && st.protect != unprotected {
		flags.Usage()
		return errUsage
	}
	if st.url == "" {
		url, remove, err := temporaryDatabase()
		if err != nil {
			return err
		}
		defer remove()
		st.url = url
	}
	f, err := st.run(ctx)
	if err != nil {
		return err
	}
	return st.report(f, os.Stdout, os.Stderr)
}

// report prints the result; the last line of stdout is for scripts.
func (st *storm) report(f findings, stdout, stderr io.Writer) error {
	for i, p := range f.problems {
		if i == 20 {
			fmt.Fprintf(stderr, "audit: and %d more\n", len(f.problems)-i)
			break
		}
		fmt.Fprintln(stderr, "audit:", p)
	}
	fmt.Fprintf(stdout, "paid_twice=%d lost=%d open=%d\n", f.twice, f.lost, f.open)
	switch {
	case st.protect == unprotected && f.twice == 0:
		return errors.New("the run without protection did not pay twice")
	case st.protect == protected && len(f.problems) > 0:
		return fmt.Errorf("the audit found %d problems", len(f.problems))
	}
	return nil
}

func (st *storm) run(ctx context.Context) (f findings, err error) {
	pool, engine, err := dsn.Open(withPragmas(st.url))
	if err != nil {
		return f, err
	}
	defer func() { err = errors.Join(err, pool.Close()) }()
	if err := migrate(ctx, pool, engine); err != nil { // before the processes start
		return f, err
	}
	processes := &fleet{url: st.url}
	b := newBank(processes.any)
	defer b.close()
	processes.args = []string{"serve", "-bank", b.url(), "-protect", st.protect}
	defer processes.close()
	if err := processes.start(st.processes); err != nil {
		return f, err
	}
	bounded, stop := context.WithTimeout(ctx, st.limit)
	defer stop()
	striking, enough := context.WithCancel(bounded)
	defer enough()
	struck := make(chan error, 1)
	go func() { struck <- processes.strike(striking, st.every, st.stopFor) }()

	asked := st.ask(bounded, processes)
	enough()
	if err := <-struck; err != nil {
		return f, err
	}
	st.delivered(bounded, b)
	if ctx.Err() != nil {
		return f, context.Cause(ctx)
	}
	rows, err := readRows(ctx, pool, st.prefix)
	if err != nil {
		return f, err
	}
	f = audit(asked, rows, b.entries())
	fmt.Fprintf(os.Stderr, "%s: %d payments asked for %d times each, %d moved; %d kills, %d stops\n",
		engine, len(asked), st.duplicates, f.moved, processes.kills, processes.stops)
	return f, nil
}

// ordersAtOnce is the number of orders that clients work on at once.
const ordersAtOnce = 8

// ask asks for every movement of every order, from several clients at once, until each has a definite answer.
func (st *storm) ask(ctx context.Context, processes *fleet) (asked []request) {
	var all sync.WaitGroup
	free := make(chan struct{}, ordersAtOnce)
	for i := range st.orders {
		order := fmt.Sprintf("%s%04d", st.prefix, i)
		for _, kind := range kinds {
			asked = append(asked, request{order, kind})
		}
		free <- struct{}{}
		all.Go(func() {
			defer func() { <-free }()
			for _, kind := range kinds {
				var clients sync.WaitGroup
				for range st.duplicates {
					clients.Go(func() { st.insist(ctx, processes, request{order, kind}) })
				}
				clients.Wait()
			}
		})
	}
	all.Wait()
	return asked
}

// insist asks until the answer is definite: done, or refused for good. Every request has the same key.
func (st *storm) insist(ctx context.Context, processes *fleet, p request) {
	client := http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	for ctx.Err() == nil {
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, processes.any()+"/orders/"+p.Order+"/"+p.Kind, http.NoBody)
		if err != nil {
			return
		}
		r.Header.Set(idemclient.HeaderKey, key(p))
		r.Header.Set("Prefer", "wait=2")
		response, err := client.Do(r)
		if err == nil {
			_ = response.Body.Close()
			if response.StatusCode == http.StatusOK || response.StatusCode == http.StatusUnprocessableEntity {
				return
			}
		}
		select {
		case <-ctx.Done():
		case <-time.After(50*time.Millisecond + mathrand.N(100*time.Millisecond)):
		}
	}
}

// delivered waits until the bank has delivered its events: a reversal comes after the success.
func (st *storm) delivered(ctx context.Context, b *bank) {
	all := make(chan struct{})
	go func() { defer close(all); b.sending.Wait() }()
	select {
	case <-all:
	case <-ctx.Done():
	case <-time.After(30 * time.Second):
	}
}
