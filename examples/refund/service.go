package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/jmoiron/sqlx"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/adapters/holdfastsqlx"
	"github.com/holdfast-go/holdfast/internal/dsn"
	"github.com/holdfast-go/holdfast/limits"
	"github.com/holdfast-go/holdfast/sqllock"
)

// service is one replica of the payment service.
type service struct {
	pool     *sqlx.DB
	db       *holdfast.DB[*sqlx.Tx]
	refunds  *limits.Limits[*sqlx.Tx] // what is refunded of each order
	merchant string                   // the sender of the requests; see authenticate
	protect  string                   // the default protection of a request
	events   *eventLog

	mu         sync.Mutex                // guards the fields that are opened on first use
	strategies map[string]strategy       // by the name of their protection
	locks      *sqllock.Locker[*sqlx.Tx] // one per process; see close
}

const (
	// maxWait bounds how long a request waits for another that works on the same refund. Then its
	// client gets 409 and retries.
	maxWait = 5 * time.Second

	// leaseTTL is how long the orders of a killed replica stay locked. It is shorter than maxWait,
	// so that a client hardly notices. A TTL that is too short costs speed, not money: the guard
	// refuses a late holder.
	leaseTTL = 2 * time.Second
)

// newService opens the service with one protection on the pool. The tables must exist. The first
// request that names another protection opens it: an engine that refuses one can still have the
// others.
func newService(ctx context.Context, pool *sqlx.DB, merchant, protect string) (*service, error) {
	chosen, err := findProtection(protect)
	if err != nil {
		return nil, err
	}
	db, err := holdfastsqlx.Open(ctx, pool)
	if err != nil {
		return nil, fmt.Errorf("open the database: %w", err)
	}
	// The limit of an order's refunds is in its own row. New checks the columns once.
	refunds, err := limits.New(ctx, db, "refunds", limits.Options{Table: &limits.Table{
		TableSpec: holdfast.TableSpec{Table: "orders", Key: []string{"merchant", "order_no"}}, Owner: "merchant", Limit: "paid", Captured: "refunded", Version: "version",
	}})
	if err != nil {
		return nil, fmt.Errorf("open the limits of orders: %w", err)
	}
	s := &service{
		pool: pool, db: db, refunds: refunds,
		merchant: merchant, protect: protect, strategies: map[string]strategy{}, events: newEventLog(),
	}
	if _, err := s.strategy(ctx, chosen); err != nil {
		return nil, errors.Join(err, s.close(ctx))
	}
	return s, nil
}

// strategy opens a protection, unless it is open. holdfast.ErrUnsupported says what the engine
// cannot guarantee; it is permanent.
func (s *service) strategy(ctx context.Context, p protection) (strategy, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if open := s.strategies[p.name]; open != nil {
		return open, nil
	}
	opened, err := p.open(ctx, s)
	if err != nil {
		return nil, fmt.Errorf("open protection %s: %w", p.name, err)
	}
	s.strategies[p.name] = opened
	return opened, nil
}

// locker opens the locks for the protections that use them. The caller holds mu.
func (s *service) locker(ctx context.Context) (*sqllock.Locker[*sqlx.Tx], error) {
	if s.locks != nil {
		return s.locks, nil
	}
	locks, err := sqllock.New(ctx, s.db, sqllock.Options{TTL: leaseTTL})
	if err != nil {
		return nil, fmt.Errorf("open the locks: %w", err)
	}
	s.locks = locks
	return locks, nil
}

// close releases all held locks, also after ctx has ended. Call it after the last request and
// before closing the pool.
func (s *service) close(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.locks == nil {
		return nil
	}
	return s.locks.Close(context.WithoutCancel(ctx))
}

const (
	serverConnections = 20
	// SQLite has one writer: more connections would only wait for each other.
	sqliteConnections = 4
)

// openPool opens the pool of a database URL. A real program has its own pool already, and Holdfast
// works on that one.
func openPool(url string) (*sqlx.DB, error) {
	config, err := dsn.Parse(url)
	if err != nil {
		return nil, usagef("-dsn: %w", err)
	}
	pool, err := sqlx.Open(config.Driver, config.DSN)
	if err != nil {
		return nil, fmt.Errorf("open the pool: %w", err)
	}
	connections := serverConnections
	if config.Engine == dsn.SQLite {
		connections = sqliteConnections
	}
	pool.SetMaxOpenConns(connections)
	pool.SetMaxIdleConns(connections)
	return pool, nil
}
