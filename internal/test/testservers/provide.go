//go:build unix

package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"time"
)

// readyTimeout bounds the time from a server's start to its first answer.
const readyTimeout = 2 * time.Minute

// server is a database server that the command can use.
type server struct {
	engine engine
	dsn    string
	how    string // its origin, for the report
	stop   func() // nil if testservers did not start it
}

// A source is one way to get a server. Its error says why it has none, in words that fit after
// "did not run:".
type source func(ctx context.Context, e engine) (*server, error)

// errSetByUser marks a failure that no other source may replace: the user named a server, and it
// is not usable.
var errSetByUser = errors.New("not usable")

// brokenError is the error of a source that should work and does not. The cause may be long: it
// is logged, and the reason does not repeat it.
type brokenError struct {
	reason string
	cause  error
}

func (e *brokenError) Error() string { return e.reason }
func (e *brokenError) Unwrap() error { return e.cause }

// results is the result of provideAll.
type results struct {
	servers []*server
	reasons map[engine]string // why an engine is not among servers
	fatal   []error
}

// provideAll makes the servers available, all at the same time. The caller must stop the results
// even if ctx has ended.
func provideAll(ctx context.Context, opts options, folder string) *results {
	sources := []source{fromEnvironment}
	local := localSource(folder)
	if opts.local {
		sources = append(sources, local)
	}
	if opts.docker {
		sources = append(sources, dockerSource(opts.disk))
	} else {
		sources = append(sources, refuse("HOLDFAST_TEST_DOCKER=0"))
	}
	if !opts.local {
		sources = append(sources, local)
	}
	if opts.install {
		sources = append(sources, installSource(local))
	} else {
		sources = append(sources, refuse("HOLDFAST_TEST_INSTALL=0"))
	}

	found := &results{reasons: make(map[engine]string)}
	for _, e := range serverEngines {
		found.reasons[e] = "left out by -engines"
	}
	var (
		mu sync.Mutex
		wg sync.WaitGroup
	)
	for _, e := range opts.engines {
		wg.Go(func() {
			start := time.Now()
			s, err := firstOf(ctx, e, sources)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				found.reasons[e] = err.Error()
				if errors.Is(err, errSetByUser) {
					found.fatal = append(found.fatal, err)
				}
				return
			}
			logf("%s is ready: %s (%.1f s)", e, s.how, time.Since(start).Seconds())
			found.servers = append(found.servers, s)
		})
	}
	wg.Wait()
	return found
}

// firstOf tries the sources in order; its error contains every reason.
func firstOf(ctx context.Context, e engine, sources []source) (*server, error) {
	var reasons []string
	for _, get := range sources {
		s, err := get(ctx, e)
		if err == nil {
			return s, nil
		}
		if errors.Is(err, errSetByUser) || ctx.Err() != nil {
			return nil, err
		}
		var broken *brokenError
		if errors.As(err, &broken) {
			logf("%s: %v", e, broken.cause)
		}
		if text := err.Error(); text != "" && !slices.Contains(reasons, text) {
			reasons = append(reasons, text)
		}
	}
	return nil, errors.New(strings.Join(reasons, ", "))
}

// refuse returns a source that the user has disabled.
func refuse(reason string) source {
	return func(context.Context, engine) (*server, error) { return nil, errors.New(reason) }
}

// fromEnvironment uses the server that the engine's DSN variable names.
func fromEnvironment(ctx context.Context, e engine) (*server, error) {
	dsn := os.Getenv(e.variable())
	if dsn == "" {
		return nil, errors.New("") // the usual case needs no mention
	}
	ctx, cancel := context.WithTimeout(ctx, readyTimeout/4)
	defer cancel()
	if err := waitReady(ctx, e, dsn, nil); err != nil {
		return nil, fmt.Errorf("the server that %s names is %w: %w", e.variable(), errSetByUser, err)
	}
	return &server{engine: e, dsn: dsn, how: e.variable()}, nil
}

// unavailable lists those of engines that need a server and have none.
func (r *results) unavailable(engines []engine) []engine {
	var missing []engine
	for _, e := range engines {
		if e != sqlite && r.server(e) == nil {
			missing = append(missing, e)
		}
	}
	return missing
}

func (r *results) server(e engine) *server {
	for _, s := range r.servers {
		if s.engine == e {
			return s
		}
	}
	return nil
}

// why returns the reason why there is no server for e.
func (r *results) why(e engine) string { return r.reasons[e] }

// stop stops every server that testservers has started.
func (r *results) stop() {
	var wg sync.WaitGroup
	for _, s := range r.servers {
		if s.stop != nil {
			wg.Go(s.stop)
		}
	}
	wg.Wait()
}

// newPassword makes a password of letters and digits. The servers listen only on the loopback
// interface, but other users of the machine can connect there.
func newPassword() string { return rand.Text() }
