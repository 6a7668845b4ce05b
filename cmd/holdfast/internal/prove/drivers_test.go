package prove_test

import (
	"context"
	"database/sql/driver"
	"errors"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/holdfast-go/holdfast/internal/dsn"
	"github.com/holdfast-go/holdfast/internal/test/dbtest"
)

// connect opens a connection through the driver.
func connect(databaseURL string) (driver.Conn, error) {
	pool, _, err := dsn.Open(databaseURL)
	if err != nil {
		return nil, err
	}
	defer pool.Close()
	_, driverDSN, err := dbtest.DriverDSN(databaseURL)
	if err != nil {
		return nil, err
	}
	return pool.Driver().Open(driverDSN)
}

// turns connects to the first URL. Once it is on, it connects to all URLs in turn.
type turns struct {
	urls []string
	on   atomic.Bool
	n    atomic.Int64
}

func (c *turns) Driver() driver.Driver { return nil }

func (c *turns) Connect(context.Context) (driver.Conn, error) {
	if !c.on.Load() {
		return connect(c.urls[0])
	}
	return connect(c.urls[c.n.Add(1)%int64(len(c.urls))])
}

// conn is the interface that the drivers' connections share.
type conn interface {
	driver.Conn
	driver.ConnBeginTx
	driver.ConnPrepareContext
	driver.ExecerContext
	driver.QueryerContext
}

// splitter, once it is on, sends reads outside of transactions to a replica.
type splitter struct {
	url     string
	begin   []string
	on      atomic.Bool
	mu      sync.Mutex
	replica conn
	reads   int
}

// refreshed is the number of reads that the replica answers from one snapshot of the database.
const refreshed = 7

func newSplitter(t *testing.T, e dbtest.Engine, databaseURL string) *splitter {
	s := &splitter{url: databaseURL, begin: []string{`BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY`}}
	if e != dbtest.Postgres {
		s.begin = []string{`SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ`, `START TRANSACTION WITH CONSISTENT SNAPSHOT`}
	}
	t.Cleanup(s.stop)
	return s
}

func (s *splitter) Driver() driver.Driver { return nil }

func (s *splitter) Connect(context.Context) (driver.Conn, error) {
	c, err := connect(s.url)
	if err != nil {
		return nil, err
	}
	return &split{conn: c.(conn), s: s}, nil
}

// stop sends everything to the primary again.
func (s *splitter) stop() {
	s.on.Store(false)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.replica != nil {
		_ = s.replica.Close()
		s.replica = nil
	}
}

// read answers from the replica's snapshot and renews it after every few reads.
func (s *splitter) read(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.reads++; s.reads%refreshed == 1 || s.replica == nil {
		if err := s.refresh(ctx); err != nil {
			return nil, err
		}
	}
	rows, err := s.replica.QueryContext(ctx, query, args)
	if err == nil {
		rows, err = kept(rows)
	}
	if err != nil { // the snapshot has ended
		return nil, errors.Join(err, s.refresh(ctx))
	}
	return rows, nil
}

func (s *splitter) refresh(ctx context.Context) error {
	if s.replica != nil {
		_ = s.replica.Close()
	}
	c, err := connect(s.url)
	if err != nil {
		return err
	}
	s.replica = c.(conn)
	for _, text := range s.begin {
		if _, err := s.replica.ExecContext(ctx, text, nil); err != nil {
			return err
		}
	}
	return nil
}

// split is a connection whose reads go through the splitter.
type split struct {
	conn

	s    *splitter
	inTx bool
}

func (c *split) BeginTx(ctx context.Context, o driver.TxOptions) (driver.Tx, error) {
	tx, err := c.conn.BeginTx(ctx, o)
	c.inTx = err == nil
	return splitTx{tx, c}, err
}

func (c *split) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	if c.s.on.Load() && !c.inTx && strings.HasPrefix(strings.TrimSpace(query), "SELECT") {
		return c.s.read(ctx, query, args)
	}
	return c.conn.QueryContext(ctx, query, args)
}

type splitTx struct {
	driver.Tx

	c *split
}

func (t splitTx) Commit() error   { t.c.inTx = false; return t.Tx.Commit() }
func (t splitTx) Rollback() error { t.c.inTx = false; return t.Tx.Rollback() }

// memory holds rows that were read to their end.
type memory struct {
	columns []string
	rows    [][]driver.Value
}

func kept(rows driver.Rows) (*memory, error) {
	defer rows.Close()
	m := &memory{columns: rows.Columns()}
	for {
		row := make([]driver.Value, len(m.columns))
		switch err := rows.Next(row); {
		case errors.Is(err, io.EOF):
			return m, nil
		case err != nil:
			return nil, err
		}
		for i, v := range row {
			if b, ok := v.([]byte); ok {
				row[i] = append([]byte{}, b...)
			}
		}
		m.rows = append(m.rows, row)
	}
}

func (m *memory) Columns() []string { return m.columns }
func (m *memory) Close() error      { return nil }

func (m *memory) Next(dest []driver.Value) error {
	if len(m.rows) == 0 {
		return io.EOF
	}
	copy(dest, m.rows[0])
	m.rows = m.rows[1:]
	return nil
}
