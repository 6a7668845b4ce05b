package everyfault

import (
	"context"
	"database/sql/driver"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
)

// Driver is a driver of database/sql.
type Driver struct {
	// Timeout is the error of a statement that did not get its lock, and leaves its transaction open.
	// Deadlock is that of one that has rolled its transaction back.
	Timeout, Deadlock error
	// Opened is called with each new connection; it returns what ends its session in the server, also while
	// a statement runs. nil: nothing does.
	Opened func(ctx context.Context, c driver.Conn) (kill func(), err error)
	// Wrap adds to a connection what Holdfast uses of the driver's own. nil: nothing.
	Wrap func(own *Conn, c driver.Conn) (driver.Conn, error)
}

// Connector returns the connector of a process.
func (d Driver) Connector(c driver.Connector, p *Process) driver.Connector { return connector{c, d, p} }

type connector struct {
	driver.Connector

	d Driver
	p *Process
}

// Connect implements driver.Connector.
func (c connector) Connect(ctx context.Context) (driver.Conn, error) {
	if err := c.p.Connects(); err != nil {
		return nil, err
	}
	c.p.Opening(1)
	defer c.p.Opening(-1)
	inner, err := c.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	own := &Conn{Conn: inner, d: c.d, p: c.p, kill: func() {}}
	result := driver.Conn(own)
	if c.d.Opened != nil {
		own.kill, err = c.d.Opened(ctx, inner)
	}
	if err == nil && c.d.Wrap != nil {
		result, err = c.d.Wrap(own, inner)
	}
	if err == nil {
		err = c.p.Connected(own)
	}
	if err != nil {
		_ = inner.Close()
		return nil, err
	}
	return result, nil
}

// Conn is a connection of a process.
type Conn struct {
	driver.Conn

	d    Driver
	p    *Process
	kill func()
	mu   sync.Mutex // a process is killed by one of its goroutines
	rows []*rows
	lost bool
	inTx atomic.Bool
	busy atomic.Bool
}

// InTx implements Session.
func (c *Conn) InTx() bool { return c.inTx.Load() }

// Busy implements Session.
func (c *Conn) Busy() bool { return c.busy.Load() }

// Drop implements Session.
func (c *Conn) Drop() {
	idle := c.mu.TryLock()
	if !idle { // its statement may wait for another transaction
		c.kill()
		c.mu.Lock()
	}
	defer c.mu.Unlock()
	if c.lost { // or closed
		return
	}
	c.lost = true
	c.rollback()
	if idle {
		c.kill()
	}
}

// Close implements driver.Conn.
func (c *Conn) Close() error {
	c.Drop()
	return c.Conn.Close()
}

// rollback is what the server does of itself when it has lost the client, and in a deadlock.
func (c *Conn) rollback() {
	for _, r := range c.rows {
		_ = r.Rows.Close() // a statement is done when its rows were read
	}
	c.rows = nil
	c.inTx.Store(false)
	_, _ = c.Conn.(driver.ExecerContext).ExecContext(context.Background(), "ROLLBACK", nil) //nolint:forcetypeassert // each driver of Holdfast implements it; or there is no transaction
}

const commit = "COMMIT"

// do is a statement or a COMMIT.
func (c *Conn) do(what string, op func() error) error {
	if c.unusable() {
		return driver.ErrBadConn
	}
	f, err := c.p.At(Point{What: what, Commits: strings.EqualFold(what, commit)})
	if err != nil {
		return err
	}
	c.mu.Lock()
	if c.lost {
		c.mu.Unlock()
		return driver.ErrBadConn
	}
	c.busy.Store(true)
	switch f {
	case Reset:
		c.busy.Store(false)
		c.mu.Unlock()
		c.Drop()
		return ErrReset
	case Timeout:
		err = c.d.Timeout
		if what == commit {
			c.rollback()
		}
	case Deadlock:
		c.rollback()
		err = c.d.Deadlock
	default:
		err = op()
	}
	c.busy.Store(false)
	c.mu.Unlock()
	if f == AnswerLost || f == Outage {
		c.p.Lose(c, f)
		return ErrLost
	}
	return c.p.After(f, err)
}

func (c *Conn) unusable() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.lost
}

// use runs what is no point, and not while the connection is dropped.
func (c *Conn) use(op func() error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.lost {
		return driver.ErrBadConn
	}
	return op()
}

// ExecContext implements driver.ExecerContext.
func (c *Conn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (r driver.Result, err error) {
	err = c.do(query, func() (err error) { //nolint:contextcheck // a killed process has none
		r, err = c.Conn.(driver.ExecerContext).ExecContext(ctx, query, args) //nolint:forcetypeassert // as above
		if !errors.Is(err, driver.ErrSkip) {
			return err
		}
		// It is one statement of the program, which database/sql would prepare.
		stmt, err := c.prepare(ctx, query)
		if err != nil {
			return err
		}
		defer stmt.Close()
		r, err = stmt.(driver.StmtExecContext).ExecContext(ctx, args) //nolint:forcetypeassert // likewise
		return err
	})
	return r, err
}

// QueryContext implements driver.QueryerContext.
func (c *Conn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (r driver.Rows, err error) {
	err = c.do(query, func() (err error) { //nolint:contextcheck // likewise
		got, err := c.Conn.(driver.QueryerContext).QueryContext(ctx, query, args) //nolint:forcetypeassert // likewise
		if !errors.Is(err, driver.ErrSkip) {
			r, err = c.watch(got, nil, err)
			return err
		}
		stmt, err := c.prepare(ctx, query)
		if err != nil {
			return err
		}
		got, err = stmt.(driver.StmtQueryContext).QueryContext(ctx, args) //nolint:forcetypeassert // likewise
		if err != nil {
			_ = stmt.Close()
		}
		r, err = c.watch(got, stmt, err)
		return err
	})
	return r, err
}

func (c *Conn) prepare(ctx context.Context, query string) (driver.Stmt, error) {
	return c.Conn.(driver.ConnPrepareContext).PrepareContext(ctx, query) //nolint:forcetypeassert // likewise
}

// watch returns rows that end with the connection. With stmt, if it is not nil, ends their statement.
func (c *Conn) watch(got driver.Rows, stmt driver.Stmt, err error) (driver.Rows, error) {
	if err != nil {
		return nil, err
	}
	r := &rows{got, stmt, c}
	c.rows = append(c.rows, r)
	return r, nil
}

// PrepareContext implements driver.ConnPrepareContext.
func (c *Conn) PrepareContext(ctx context.Context, query string) (stmt driver.Stmt, err error) {
	err = c.use(func() error {
		stmt, err = c.prepare(ctx, query)
		return err
	})
	return statement{stmt, c, query}, err
}

// CheckNamedValue implements driver.NamedValueChecker.
func (c *Conn) CheckNamedValue(v *driver.NamedValue) error {
	if inner, can := c.Conn.(driver.NamedValueChecker); can {
		return inner.CheckNamedValue(v)
	}
	return driver.ErrSkip
}

// BeginTx implements driver.ConnBeginTx.
func (c *Conn) BeginTx(ctx context.Context, opts driver.TxOptions) (tx driver.Tx, err error) {
	err = c.use(func() error {
		tx, err = c.Conn.(driver.ConnBeginTx).BeginTx(ctx, opts) //nolint:forcetypeassert // likewise
		c.inTx.Store(err == nil)
		return err
	})
	return transaction{tx, c}, err
}

// ResetSession implements driver.SessionResetter.
func (c *Conn) ResetSession(ctx context.Context) error {
	return c.use(func() error { return c.Conn.(driver.SessionResetter).ResetSession(ctx) }) //nolint:forcetypeassert // likewise
}

// IsValid implements driver.Validator.
func (c *Conn) IsValid() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.lost && c.Conn.(driver.Validator).IsValid() //nolint:forcetypeassert // likewise
}

// Ping implements driver.Pinger.
func (c *Conn) Ping(ctx context.Context) error {
	return c.use(func() error { return c.Conn.(driver.Pinger).Ping(ctx) }) //nolint:forcetypeassert // likewise
}

type transaction struct {
	driver.Tx

	c *Conn
}

// Commit implements driver.Tx.
func (t transaction) Commit() error {
	err := t.c.do(commit, t.Tx.Commit)
	t.c.inTx.Store(false)
	return err
}

// Rollback implements driver.Tx.
func (t transaction) Rollback() error {
	return t.c.use(func() error {
		t.c.inTx.Store(false)
		return t.Tx.Rollback()
	})
}
