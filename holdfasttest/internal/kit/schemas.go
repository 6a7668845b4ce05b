package kit

import (
	"context"
	"crypto/rand"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/migrations"
)

// Server makes and drops schemas, or databases, on a server. Open opens a pool in one.
type Server interface {
	Create(ctx context.Context, name string) error
	Open(ctx context.Context, name string) (*sql.DB, error)
	Drop(ctx context.Context, name string) error
}

// Schemas hands out schemas with Holdfast's tables: each test's own, or within Main one for all tests.
type Schemas struct {
	mu     sync.Mutex
	shares bool
	tables func(ctx context.Context, pool *sql.DB) error
	shared map[string]schema // by DSN
}

type schema struct {
	server Server
	name   string
}

// Main runs the tests of a package in one schema, with tables, and drops it.
func (s *Schemas) Main(m interface{ Run() int }, tables func(ctx context.Context, pool *sql.DB) error) int {
	s.shares, s.tables, s.shared = true, tables, map[string]schema{}
	code := m.Run()
	for _, made := range s.shared {
		if err := made.drop(); err != nil {
			fmt.Fprintln(os.Stderr, "holdfasttest:", err)
			code = max(code, 1)
		}
	}
	s.shares, s.tables = false, nil
	return code
}

// For returns the name of the schema of a test.
func (s *Schemas) For(tb TB, dsn string, server Server, opts []holdfast.Options) string {
	tb.Helper()
	s.mu.Lock() // held while it is made: the other tests wait for it
	defer s.mu.Unlock()
	if s.shares && len(opts) > 0 && opts[0].SingleOwner {
		tb.Fatalf("holdfasttest: the tests of this package share one schema, in which only owners keep them apart: leave SingleOwner out, or Main")
	}
	if made, is := s.shared[dsn]; s.shares && is {
		return made.name
	}
	made, err := create(server, s.tables)
	if err != nil {
		tb.Fatalf("holdfasttest: a schema with Holdfast's tables: %v", err)
	}
	if s.shares {
		s.shared[dsn] = made
		return made.name
	}
	tb.Cleanup(func() {
		if err := made.drop(); err != nil {
			tb.Fatalf("holdfasttest: %v", err)
		}
	})
	return made.name
}

func create(server Server, tables func(ctx context.Context, pool *sql.DB) error) (made schema, err error) {
	ctx := context.Background()
	made = schema{server, "holdfasttest_" + Random()}
	if err := server.Create(ctx, made.name); err != nil {
		return made, err
	}
	pool, err := server.Open(ctx, made.name)
	if err == nil {
		err = migrations.Up(ctx, pool)
		if err == nil && tables != nil {
			err = tables(ctx, pool)
		}
		_ = pool.Close()
	}
	if err != nil {
		err = errors.Join(err, made.drop())
	}
	return made, err
}

func (s schema) drop() error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute) // of a transaction that was left open
	defer cancel()
	return s.server.Drop(ctx, s.name)
}

// Random returns a name that no other test has.
func Random() string {
	random := make([]byte, 8)
	_, _ = rand.Read(random) // never fails, as documented
	return hex.EncodeToString(random)
}
