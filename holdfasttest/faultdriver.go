package holdfasttest

import (
	"context"
	"database/sql/driver"
	"errors"
	"io"
	"net/http"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"modernc.org/sqlite"
)

// connect returns the connector of a database file, whose connections wait for a lock for busy.
func connect(path string, busy time.Duration) (driver.Connector, error) {
	return sqlite.NewConnector("file:" + filepath.ToSlash(path) + "?_pragma=journal_mode(WAL)&_pragma=synchronous(OFF)&_pragma=busy_timeout(" +
		strconv.FormatInt(busy.Milliseconds(), 10) + ")")
}

type faultConnector struct {
	driver.Connector

	p *process
}

// Connect implements driver.Connector.
func (c faultConnector) Connect(ctx context.Context) (driver.Conn, error) {
	c.p.mu.Lock()
	dead, blind := c.p.dead, c.p.blind
	c.p.blind = false
	c.p.mu.Unlock()
	switch {
	case dead:
		return nil, errKilled
	case blind:
		return nil, errLook
	}
	inner, err := c.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	conn, is := inner.(sqliteConn)
	if !is {
		return nil, errors.New("holdfasttest: the SQLite driver's connection is another one than expected")
	}
	own := &faultConn{sqliteConn: conn, p: c.p}
	c.p.mu.Lock()
	defer c.p.mu.Unlock()
	c.p.conns = append(c.p.conns, own)
	return own, nil
}

type sqliteConn interface {
	driver.Conn
	driver.ConnBeginTx
	driver.ConnPrepareContext
	driver.ExecerContext
	driver.QueryerContext
	driver.Pinger
	driver.SessionResetter
	driver.Validator
	sqlite.HookRegisterer
}

// faultConn is a connection of a process.
type faultConn struct {
	sqliteConn

	p    *process
	mu   sync.Mutex // a process is killed by one of its goroutines
	rows []*faultRows
	lost bool
	inTx bool // under p.mu
}

// drop does what a server does when it has lost a client.
func (c *faultConn) drop() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.lost { // nor closed
		c.rollback()
	}
	c.lost = true
}

// Close implements driver.Conn.
func (c *faultConn) Close() error {
	c.drop()
	return c.sqliteConn.Close()
}

func (c *faultConn) transaction(open bool) {
	c.p.mu.Lock()
	defer c.p.mu.Unlock()
	c.inTx = open
}

func (c *faultConn) rollback() {
	for _, r := range c.rows {
		_ = r.Rows.Close()
	}
	c.rows = nil
	c.transaction(false)
	_, _ = c.sqliteConn.ExecContext(context.Background(), "ROLLBACK", nil) // or there is no transaction
}

// do is a statement or a COMMIT.
func (c *faultConn) do(what string, op func() error) error {
	if c.unusable() {
		return driver.ErrBadConn
	}
	f, err := c.p.at(what, false)
	if err != nil {
		return err
	}
	c.mu.Lock()
	switch f {
	case reset:
		c.mu.Unlock()
		c.drop()
		return errReset
	case timeout:
		err = busy
		if what == commit {
			c.rollback()
		}
	case deadlock:
		c.rollback()
		err = snapshot
	default:
		err = op()
	}
	c.mu.Unlock()
	if f == answerLost || f == outage {
		c.drop()
		c.p.mu.Lock()
		c.p.blind = f == outage
		c.p.mu.Unlock()
		return errLost
	}
	return c.p.after(f, err)
}

func (c *faultConn) unusable() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.lost
}

// ExecContext implements driver.ExecerContext.
func (c *faultConn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (r driver.Result, err error) {
	err = c.do(query, func() (err error) { r, err = c.sqliteConn.ExecContext(ctx, query, args); return err }) //nolint:contextcheck // a killed process has none
	return r, err
}

// QueryContext implements driver.QueryerContext.
func (c *faultConn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (r driver.Rows, err error) {
	err = c.do(query, func() (err error) { r, err = c.watch(c.sqliteConn.QueryContext(ctx, query, args)); return err }) //nolint:contextcheck // likewise
	return r, err
}

func (c *faultConn) watch(rows driver.Rows, err error) (driver.Rows, error) {
	if err != nil {
		return nil, err
	}
	r := &faultRows{rows, c}
	c.rows = append(c.rows, r)
	return r, nil
}

// PrepareContext implements driver.ConnPrepareContext.
func (c *faultConn) PrepareContext(ctx context.Context, query string) (driver.Stmt, error) {
	if c.unusable() {
		return nil, driver.ErrBadConn
	}
	stmt, err := c.sqliteConn.PrepareContext(ctx, query)
	if err != nil {
		return nil, err
	}
	return faultStmt{stmt, c, query}, nil
}

// BeginTx implements driver.ConnBeginTx.
func (c *faultConn) BeginTx(ctx context.Context, opts driver.TxOptions) (driver.Tx, error) {
	if c.unusable() {
		return nil, driver.ErrBadConn
	}
	tx, err := c.sqliteConn.BeginTx(ctx, opts)
	if err != nil {
		return nil, err
	}
	c.transaction(true)
	return faultTx{tx, c}, nil
}

// ResetSession implements driver.SessionResetter.
func (c *faultConn) ResetSession(ctx context.Context) error {
	if c.unusable() {
		return driver.ErrBadConn
	}
	return c.sqliteConn.ResetSession(ctx)
}

// IsValid implements driver.Validator.
func (c *faultConn) IsValid() bool { return !c.unusable() && c.sqliteConn.IsValid() }

// Ping implements driver.Pinger.
func (c *faultConn) Ping(ctx context.Context) error {
	if c.unusable() {
		return driver.ErrBadConn
	}
	return c.sqliteConn.Ping(ctx)
}

type faultTx struct {
	driver.Tx

	c *faultConn
}

// Commit implements driver.Tx.
func (t faultTx) Commit() error {
	err := t.c.do(commit, t.Tx.Commit)
	t.c.transaction(false)
	return err
}

// Rollback implements driver.Tx.
func (t faultTx) Rollback() error {
	if t.c.unusable() {
		return driver.ErrBadConn
	}
	t.c.transaction(false)
	return t.Tx.Rollback()
}

type faultStmt struct {
	driver.Stmt

	c     *faultConn
	query string
}

// ExecContext implements driver.StmtExecContext.
func (s faultStmt) ExecContext(ctx context.Context, args []driver.NamedValue) (r driver.Result, err error) {
	err = s.c.do(s.query, func() (err error) { //nolint:contextcheck // likewise
		r, err = s.Stmt.(driver.StmtExecContext).ExecContext(ctx, args) //nolint:forcetypeassert // it is modernc.org/sqlite's
		return err
	})
	return r, err
}

// QueryContext implements driver.StmtQueryContext.
func (s faultStmt) QueryContext(ctx context.Context, args []driver.NamedValue) (r driver.Rows, err error) {
	err = s.c.do(s.query, func() (err error) { //nolint:contextcheck // likewise
		r, err = s.c.watch(s.Stmt.(driver.StmtQueryContext).QueryContext(ctx, args)) //nolint:forcetypeassert // likewise
		return err
	})
	return r, err
}

type faultRows struct {
	driver.Rows

	c *faultConn
}

// Next implements driver.Rows.
func (r *faultRows) Next(to []driver.Value) error {
	r.c.mu.Lock()
	defer r.c.mu.Unlock()
	if r.c.lost {
		return errLost
	}
	return r.Rows.Next(to)
}

// Close implements driver.Rows.
func (r *faultRows) Close() error {
	r.c.mu.Lock()
	defer r.c.mu.Unlock()
	for i, open := range r.c.rows {
		if open == r {
			r.c.rows = append(r.c.rows[:i:i], r.c.rows[i+1:]...)
			return r.Rows.Close()
		}
	}
	return nil
}

// outside is the transport of a process.
type outside struct {
	http.RoundTripper

	p *process
}

// RoundTrip implements http.RoundTripper.
func (o outside) RoundTrip(r *http.Request) (*http.Response, error) {
	f, err := o.p.at(r.Method+" "+r.URL.Path, true)
	if f == reset {
		err = errReset
	}
	if err != nil {
		if r.Body != nil {
			_ = r.Body.Close()
		}
		return nil, err
	}
	answer, err := o.RoundTripper.RoundTrip(r)
	if f != noFault && err == nil {
		_, _ = io.Copy(io.Discard, answer.Body) // the other side has done it
		_ = answer.Body.Close()
	}
	switch f {
	case answerLost:
		err = errLost
	case timeout:
		err = errSlow
	}
	if err := o.p.after(f, err); err != nil {
		return nil, err
	}
	return answer, nil
}
