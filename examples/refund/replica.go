package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/examples/internal/process"
)

// serveCommand runs one replica of a storm: the same service on a free port, which it prints. It
// ends when the storm does.
func serveCommand(ctx context.Context, args []string) (err error) {
	flags := newFlags("serve", "One replica of the service, started by storm.")
	merchant := flags.String("merchant", demoMerchant, "whose requests it takes")
	protect := flags.String("protect", protections[0].name, "protection: "+protectionNames())
	if err := parse(flags, args); err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	go followParent(stop, func([]string) {})

	pool, err := openPool(os.Getenv(environmentURL))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, pool.Close()) }()
	s, err := newService(ctx, pool, *merchant, *protect)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.close(ctx)) }()
	listener, err := listen(ctx, "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Println("http://" + listener.Addr().String())
	return serve(ctx, listener, s.handler())
}

// fleet is the replicas of a storm.
type fleet struct {
	url      string
	args     []string
	announce func(replica int, address string) // sends the address to the clients

	mu       sync.Mutex
	replicas []*process.Process
	kills    atomic.Int64
}

// startWait bounds how long a replica may take to start.
const startWait = 30 * time.Second

func (f *fleet) start(ctx context.Context, n int) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i := range n {
		f.replicas = append(f.replicas, nil)
		if err := f.launch(ctx, i); err != nil {
			return err
		}
	}
	return nil
}

func (f *fleet) launch(ctx context.Context, i int) error {
	c, err := startChild(f.url, f.args...)
	if err != nil {
		return err
	}
	f.replicas[i] = c
	timeout := time.NewTimer(startWait)
	defer timeout.Stop()
	select {
	case address, ok := <-c.Lines:
		if !ok {
			return fmt.Errorf("replica %d ended before it served; what it said is above", i)
		}
		f.announce(i, address)
		return nil
	case <-timeout.C:
		return fmt.Errorf("replica %d did not serve within %v", i, startWait)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// restart kills a replica in the middle of its work, and starts it again.
func (f *fleet) restart(ctx context.Context, i int) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	f.replicas[i].Stop()
	f.kills.Add(1)
	return f.launch(ctx, i)
}

func (f *fleet) stop() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, c := range f.replicas {
		if c != nil {
			c.Stop()
		}
	}
	f.replicas = nil
}
