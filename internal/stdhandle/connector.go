package stdhandle

import (
	"context"
	"database/sql/driver"
	"errors"
	"io"

	"github.com/holdfast-go/holdfast/internal/core"
)

// Connector returns a connector whose connections keep Holdfast's settings and statements from one of
// Holdfast's transactions to the next. Everybody else finds them as c made them.
func Connector(c driver.Connector) driver.Connector { return connector{c, nil} }

// NativeConnector is Connector for a driver that sends several statements in one round trip.
func NativeConnector(c driver.Connector, n Native) driver.Connector { return connector{c, n} }

// Native has the methods of core.Pipeline, on the driver's own connection. COMMIT ends with life.
type Native interface {
	Pipes(c driver.Conn) bool
	BeginWith(ctx, life context.Context, c driver.Conn, opts core.TxOptions, first core.Bound) (driver.Tx, core.Reply, error)
	CommitWith(ctx context.Context, c driver.Conn, tx driver.Tx, last core.Bound) (core.Reply, error)
}

type connector struct {
	driver.Connector
	native Native
}

// Connect implements driver.Connector.
func (c connector) Connect(ctx context.Context) (driver.Conn, error) {
	inner, err := c.Connector.Connect(core.NotRunning(core.Unkept(ctx)))
	if err != nil {
		return nil, err
	}
	return &keeping{Conn: inner, native: c.native}, nil
}

// Close implements io.Closer, which database/sql calls when the pool is closed.
func (c connector) Close() error {
	if closer, can := c.Connector.(io.Closer); can {
		return closer.Close()
	}
	return nil
}

// keeping is a driver's connection that keeps what Holdfast has set on its session. Like every driver's
// connection it is used by one goroutine at a time. It has two states, of the session and of the
// transaction; the tests by table walk them.
//
//	session: kept.Setting, undo, dirty, open
//
//	  as made --keep: change--> kept --a statement that may change settings--> dirty
//	     ^                       |  ^                                            |
//	     |                       |  +---------------keep: restore, change--------+
//	     +--ResetSession by the program: restore---------------------------------+
//
//	  open is set by a statement outside of a transaction, which may have begun one. In kept, BEGIN is
//	  left out unless dirty or open is set.
//
//	transaction: late, tx, tx.lost, tx.doubtful, program
//
//	  none --BeginTx in kept--> implicit --COMMIT or ROLLBACK--> none
//	  none --BeginTx----------> program: what may end it is seen, so that nothing need be asked before a DoTx
//	  none --BeginWith--------> late: BEGIN travels with the first statement, COMMIT perhaps with the last
//
//	  implicit --a statement that may end it, the first savepoint--> marked: the mark's release proves it
//	  implicit --a statement that may end it, an error that it may not survive--> doubtful: its end is checked
//	  doubtful, not marked --a statement that needs the mark--> lost: the transaction must run again
//	  implicit --an error that has ended it--> lost: the program's statements are refused
//
// raw is set for good when statements may run unseen, the driver's or the program's: nothing is certain from then on.
type keeping struct {
	driver.Conn
	native Native
	late   *late // the transaction that begins with BeginWith

	kept  core.Kept // the setting, if it has a text
	undo  string    // restores what kept has changed
	raw   bool      // statements may run without being seen here
	dirty bool      // a statement may have changed the setting
	open  bool      // a statement that ran outside a transaction may have begun one
	tx    *implicit // the transaction that runs, if its BEGIN was not sent

	judge   core.Kept // the last setting: what it knows of statements and errors is the server's
	program *seen     // the transaction that began last, if its BEGIN was sent
	texts   texts[contextStmt]
}

// unwrap returns the driver's own connection, and the one that keeps settings, if there is one.
func unwrap(driverConn any) (any, *keeping) {
	if k, ok := driverConn.(*keeping); ok {
		return k.Conn, k
	}
	return driverConn, nil
}

// keep makes the session have a setting. exec runs a statement on it.
func (k *keeping) keep(kept core.Kept, change func() (undo string, err error), exec func(text string) error) (bool, error) {
	if k.kept.Setting == kept.Setting && !k.dirty {
		k.kept = kept
		return true, nil
	}
	if err := k.restore(exec); err != nil {
		return false, err
	}
	undo, err := change()
	if err != nil {
		return false, err
	}
	k.kept, k.judge, k.undo, k.dirty, k.open = kept, kept, undo, false, false
	return true, nil
}

func (k *keeping) restore(exec func(text string) error) error {
	undo := k.undo
	k.kept, k.undo, k.dirty = core.Kept{}, "", false
	if undo == "" {
		return nil
	}
	return exec(undo)
}

// ResetSession implements driver.SessionResetter. database/sql calls it with the context of the one who
// gets the connection next.
func (k *keeping) ResetSession(ctx context.Context) error {
	k.late, k.program = nil, nil
	if !core.Keeps(ctx) {
		if err := k.restore(func(text string) error { return k.run(ctx, text) }); err != nil {
			return driver.ErrBadConn
		}
	}
	if inner, can := k.Conn.(driver.SessionResetter); can {
		return inner.ResetSession(core.Unkept(ctx))
	}
	return nil
}

func (k *keeping) run(ctx context.Context, text string) error {
	execer, can := k.Conn.(driver.ExecerContext)
	if !can {
		return driver.ErrBadConn
	}
	_, err := execer.ExecContext(ctx, text, nil)
	return err
}

// IsValid implements driver.Validator.
func (k *keeping) IsValid() bool {
	inner, can := k.Conn.(driver.Validator)
	return !can || inner.IsValid()
}

// Ping implements driver.Pinger.
func (k *keeping) Ping(ctx context.Context) error {
	if inner, can := k.Conn.(driver.Pinger); can {
		return inner.Ping(ctx)
	}
	return nil
}

// CheckNamedValue implements driver.NamedValueChecker.
func (k *keeping) CheckNamedValue(v *driver.NamedValue) error {
	if inner, can := k.Conn.(driver.NamedValueChecker); can {
		return inner.CheckNamedValue(v)
	}
	return driver.ErrSkip
}

// BeginTx implements driver.ConnBeginTx. With the setting that Holdfast keeps on MySQL and MariaDB, a
// transaction begins with its first statement.
func (k *keeping) BeginTx(ctx context.Context, opts driver.TxOptions) (driver.Tx, error) {
	k.program = nil
	if k.late != nil && !k.late.begun {
		k.late.begun = true
		return k.late, nil
	}
	if k.kept.Implicit && !k.dirty && !k.open && opts == (driver.TxOptions{}) {
		k.tx = &implicit{k: k, life: ctx}
		return k.tx, nil
	}
	inner, can := k.Conn.(driver.ConnBeginTx)
	switch {
	case !can && opts != (driver.TxOptions{}):
		return nil, errors.New("holdfast: the driver supports neither isolation levels nor read-only transactions")
	case !can:
		return k.Begin()
	}
	k.open = false // BEGIN ends what was open
	tx, err := inner.BeginTx(ctx, opts)
	if err == nil && k.judge.Survives != nil && k.judge.Ends != nil {
		k.program = &seen{}
	}
	return tx, err
}

// PrepareContext implements driver.ConnPrepareContext.
func (k *keeping) PrepareContext(ctx context.Context, query string) (driver.Stmt, error) {
	inner, can := k.Conn.(driver.ConnPrepareContext)
	if !can {
		return k.Prepare(query)
	}
	stmt, err := inner.PrepareContext(ctx, query)
	if err != nil {
		return nil, err
	}
	if modern, ok := takesContext(stmt); ok {
		return &program{modern, k, query}, nil
	}
	if err := k.mark(ctx, ""); err != nil {
		return nil, errors.Join(err, stmt.Close())
	}
	k.raw = true
	return stmt, nil
}

// program is a prepared statement of the program's.
type program struct {
	contextStmt

	k     *keeping
	query string
}

// CheckNamedValue implements driver.NamedValueChecker.
func (s *program) CheckNamedValue(v *driver.NamedValue) error {
	if inner, can := s.contextStmt.(driver.NamedValueChecker); can {
		return inner.CheckNamedValue(v)
	}
	return s.k.CheckNamedValue(v)
}

// ExecContext implements driver.StmtExecContext.
func (s *program) ExecContext(ctx context.Context, args []driver.NamedValue) (driver.Result, error) {
	if err := s.k.before(ctx, s.query); err != nil {
		return nil, err
	}
	r, err := s.contextStmt.ExecContext(ctx, args)
	s.k.after(err)
	return r, err
}

// QueryContext implements driver.StmtQueryContext.
func (s *program) QueryContext(ctx context.Context, args []driver.NamedValue) (driver.Rows, error) {
	if err := s.k.before(ctx, s.query); err != nil {
		return nil, err
	}
	rows, err := s.contextStmt.QueryContext(ctx, args)
	s.k.after(err)
	return s.k.watch(rows, err)
}

// contextStmt is a driver's statement that takes a context.
type contextStmt interface {
	driver.Stmt
	driver.StmtExecContext
	driver.StmtQueryContext
}

// takesContext returns stmt if it takes a context, and no older form of what that needs.
func takesContext(stmt driver.Stmt) (contextStmt, bool) {
	modern, ok := stmt.(contextStmt)
	_, checks := stmt.(driver.NamedValueChecker)
	_, converts := stmt.(driver.ColumnConverter) //nolint:staticcheck // for a driver without NamedValueChecker
	return modern, ok && (checks || !converts)
}

// ExecContext implements driver.ExecerContext.
func (k *keeping) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (r driver.Result, err error) {
	if core.Asks(ctx) && k.alive() {
		return driver.RowsAffected(0), nil
	}
	if err := k.before(ctx, query); err != nil {
		return nil, err
	}
	if stmt := k.stmt(ctx, query); stmt != nil {
		r, err = stmt.ExecContext(ctx, args)
	} else if inner, can := k.Conn.(driver.ExecerContext); can {
		r, err = inner.ExecContext(ctx, query, args)
	} else {
		return nil, driver.ErrSkip
	}
	k.after(err)
	return r, err
}

// QueryContext implements driver.QueryerContext.
func (k *keeping) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (rows driver.Rows, err error) {
	if err := k.before(ctx, query); err != nil {
		return nil, err
	}
	if stmt := k.stmt(ctx, query); stmt != nil {
		rows, err = stmt.QueryContext(ctx, args)
	} else if inner, can := k.Conn.(driver.QueryerContext); can {
		rows, err = inner.QueryContext(ctx, query, args)
	} else {
		return nil, driver.ErrSkip
	}
	k.after(err)
	return k.watch(rows, err)
}

// before refuses a statement of the program's after its transaction was lost.
func (k *keeping) before(ctx context.Context, query string) error {
	if p := k.program; p != nil && !p.doubtful {
		p.doubtful = !core.Running(ctx) && k.judge.Ends(query)
	}
	if k.kept.Setting == "" {
		return nil
	}
	k.dirty = k.dirty || !core.Running(ctx) && !harmless(query)
	if k.tx == nil {
		k.open = true
		return nil
	}
	if k.tx.lost != nil && !core.Running(ctx) {
		return k.tx.lost
	}
	ends := !core.Running(ctx) && (k.kept.Ends == nil || k.kept.Ends(query))
	if verb, _ := core.Verb(query); ends || verb == "SAVEPOINT" {
		if err := k.mark(ctx, query); err != nil {
			return err
		}
	}
	k.tx.doubtful = k.tx.doubtful || ends
	return nil
}

// mark is Mark of fence.pml. It sets the mark of the transaction that runs, unless query does so or it is set. In doubt it would
// perhaps be another transaction's: then the program's statements are refused.
func (k *keeping) mark(ctx context.Context, query string) error {
	if k.tx == nil || k.tx.marked || k.kept.Mark == "" {
		return nil
	}
	if k.tx.doubtful {
		k.tx.again = k.kept.Again(k.tx.doubt)
		k.tx.lost = k.tx.again
		return k.tx.lost
	}
	if query != k.kept.Mark {
		if err := k.run(ctx, k.kept.Mark); err != nil {
			k.after(err)
			return err
		}
	}
	k.tx.marked = true
	return nil
}

func (k *keeping) after(err error) {
	tx := k.running()
	if err == nil || errors.Is(err, driver.ErrSkip) || tx == nil {
		return
	}
	if k.tx != nil && k.tx.lost == nil {
		k.tx.lost = k.kept.Lost(err)
	}
	if k.judge.Survives == nil || !k.judge.Survives(err) {
		tx.doubtful, tx.doubt = true, err
	}
}

// stmt returns the statement of Holdfast's that runs under ctx as a prepared one, or nil.
func (k *keeping) stmt(ctx context.Context, query string) contextStmt {
	if !core.Prepared(ctx) {
		return nil
	}
	if k.texts == nil {
		k.texts = texts[contextStmt]{}
	}
	x := k.texts.of(query)
	inner, can := k.Conn.(driver.ConnPrepareContext)
	if x.sent != often || !can {
		return x.stmt
	}
	stmt, err := inner.PrepareContext(ctx, query)
	if err != nil {
		return nil // the statement will return it again
	}
	modern, ok := takesContext(stmt)
	if !ok {
		_ = stmt.Close()
		return nil
	}
	x.stmt, x.prepared = modern, true
	return modern
}

// harmless reports whether a statement of the program's can change no setting of the session.
func harmless(query string) bool {
	switch verb, _ := core.Verb(query); verb {
	case "SELECT", "INSERT", "UPDATE", "DELETE", "REPLACE", "WITH", "SHOW", "SAVEPOINT", "RELEASE", "ROLLBACK", "COMMIT":
		return core.OneStatement(query)
	}
	return false
}
