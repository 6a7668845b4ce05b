// Package servers starts the compared servers that are not SQL databases: on the loopback
// interface, in a temporary folder, with their durable settings.
package servers

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/bench/internal/wire"
)

// Names of the servers and of their groups.
const (
	// Redis keeps nothing on disk.
	Redis = "redis"
	// RedisDurable waits for the disk on each write: appendfsync always.
	RedisDurable = "redis, fsync"
	Etcd         = "etcd"
	ZooKeeper    = "zookeeper"
)

// All lists the servers.
func All() []string { return []string{Redis, RedisDurable, Etcd, ZooKeeper} }

// Nodes is the number of Redis servers of each kind, as Redlock requires.
const Nodes = 5

// Set holds the running servers.
type Set struct {
	// Addresses are the addresses of each server's nodes, host:port.
	Addresses map[string][]string
	// Versions are the versions that the servers report.
	Versions map[string]string
	// Missing lists the servers that were not available, and why.
	Missing []string
	// Wire counts the round trips of the clients that dial through it.
	Wire wire.Counter

	dir   string
	procs []*process
}

// readyTimeout bounds the start of a server.
const readyTimeout = time.Minute

// Start starts the named servers. An unavailable server is listed in Missing and is not an
// error.
func Start(ctx context.Context, names []string, logf func(format string, args ...any)) (*Set, error) {
	s := &Set{Addresses: map[string][]string{}, Versions: map[string]string{}}
	if len(names) == 0 {
		return s, nil
	}
	var err error
	if s.dir, err = os.MkdirTemp("", "holdfast-bench-"); err != nil {
		return nil, err
	}
	starters := map[string]func(context.Context, string) (string, error){
		Redis: func(ctx context.Context, binary string) (string, error) {
			return s.startRedis(ctx, binary, Redis, "no")
		},
		RedisDurable: func(ctx context.Context, binary string) (string, error) {
			return s.startRedis(ctx, binary, RedisDurable, "yes")
		},
		Etcd:      s.startEtcd,
		ZooKeeper: s.startZooKeeper,
	}
	var installing sync.Once // runs apt-get update once
	for _, name := range names {
		start, known := starters[name]
		if !known {
			return nil, errors.Join(fmt.Errorf("no server %q", name), s.Stop())
		}
		binary, err := have(ctx, name, &installing, logf)
		if err == nil {
			s.Versions[name], err = start(ctx, binary)
		}
		if ctx.Err() != nil {
			return nil, errors.Join(context.Cause(ctx), s.Stop())
		}
		if err != nil {
			delete(s.Addresses, name)
			s.Missing = append(s.Missing, name+": "+err.Error())
			logf("%s: %v", name, err)
			continue
		}
		logf("%s is ready: %s", name, s.Versions[name])
	}
	return s, nil
}

// Running lists the running servers, in the order of All.
func (s *Set) Running() []string {
	if s == nil {
		return nil
	}
	return slices.DeleteFunc(All(), func(name string) bool { return len(s.Addresses[name]) == 0 })
}

// Stop stops the servers and deletes their files.
func (s *Set) Stop() error {
	if s == nil {
		return nil
	}
	for _, p := range s.procs {
		p.stop()
	}
	if s.dir == "" {
		return nil
	}
	return os.RemoveAll(s.dir)
}
