package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	mathrand "math/rand/v2"
	"net"
	"os"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/examples/internal/process"
)

// environmentURL passes the database URL to a process.
const environmentURL = "PAYMENTS_EXAMPLE_DSN"

// serveCommand is one process of the service. It prints its address, and ends with its parent.
func serveCommand(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("serve", flag.ContinueOnError)
	c := config{secret: demoSecret}
	flags.StringVar(&c.bank, "bank", "", "the provider")
	flags.StringVar(&c.protect, "protect", protected, "protection")
	if err := parse(flags, args); err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		stop()
	}()
	s, err := openService(ctx, os.Getenv(environmentURL), c)
	if err != nil {
		return err
	}
	defer s.close()
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Println("http://" + listener.Addr().String())
	return serve(ctx, listener, s)
}

// fleet is the processes of the service.
type fleet struct {
	url  string
	args []string

	mu           sync.Mutex
	processes    []*process.Process
	addresses    []string
	kills, stops int
}

// startWait bounds how long a process may take to start.
const startWait = time.Minute

func (f *fleet) launch(i int) error {
	cmd, err := process.Self(environmentURL, f.url, f.args...)
	if err != nil {
		return err
	}
	p, err := process.Start(cmd)
	if err != nil {
		return err
	}
	slow := time.AfterFunc(startWait, p.Kill)
	defer slow.Stop()
	address, serves := <-p.Lines
	if !serves {
		return errors.Join(errors.New("a process of the service did not serve"), p.Wait())
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.processes[i], f.addresses[i] = p, address
	return nil
}

func (f *fleet) start(n int) error {
	f.processes, f.addresses = make([]*process.Process, n), make([]string, n)
	for i := range n {
		if err := f.launch(i); err != nil {
			return err
		}
	}
	return nil
}

// any returns the address of one of the processes. It may be dead.
func (f *fleet) any() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.addresses[mathrand.IntN(len(f.addresses))]
}

func (f *fleet) end(i int) {
	f.mu.Lock()
	p := f.processes[i]
	f.mu.Unlock()
	if p != nil {
		p.Stop()
	}
}

// strike kills and restarts processes, and stops others for longer than their leases, until ctx ends.
func (f *fleet) strike(ctx context.Context, every, stopFor time.Duration) error {
	for n := 0; ; n++ {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(every/2 + mathrand.N(every)):
		}
		i := mathrand.IntN(len(f.processes))
		f.mu.Lock()
		p := f.processes[i]
		f.mu.Unlock()
		if n%4 == 3 && p.Pause() {
			f.stops++
			select {
			case <-ctx.Done():
			case <-time.After(stopFor):
			}
			p.Resume()
			continue
		}
		f.kills++
		f.end(i)
		if err := f.launch(i); err != nil {
			return err
		}
	}
}

func (f *fleet) close() {
	for i := range f.processes {
		f.end(i)
	}
}
