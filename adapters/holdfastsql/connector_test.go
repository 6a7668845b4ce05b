package holdfastsql_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/adapters/holdfastsql"
	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/internal/test/dbtest"
	"github.com/holdfast-go/holdfast/migrations"
	"github.com/holdfast-go/holdfast/sqllock"
)

// connected is a pool of one connection with Holdfast's connector.
type connected struct {
	*testing.T
	engine dbtest.Engine
	pool   *sql.DB
	db     *holdfast.DB[*sql.Tx]
	store  *idempotency.Store[*sql.Tx]
	locker *sqllock.Locker[*sql.Tx]
	calls  int
}

func onConnector(t *testing.T, f func(c *connected), engines ...dbtest.Engine) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, e dbtest.Engine) {
		runs := false
		for _, one := range engines {
			runs = runs || one == e
		}
		if !runs {
			return
		}
		pool := dbtest.OpenConnector(t, dbtest.DSN(t, e), holdfastsql.Connector)
		pool.SetMaxOpenConns(1)
		if err := migrations.Up(t.Context(), pool); err != nil {
			t.Fatal(err)
		}
		c := &connected{T: t, engine: e, pool: pool}
		var err error
		if c.db, err = holdfastsql.Open(t.Context(), pool, holdfast.Options{SingleOwner: true}); err != nil {
			t.Fatal(err)
		}
		if c.store, err = idempotency.New(t.Context(), c.db); err != nil {
			t.Fatal(err)
		}
		if c.locker, err = sqllock.New(t.Context(), c.db); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.locker.Close(context.WithoutCancel(t.Context())) })
		f(c)
	})
}

// do runs f under a new key.
func (c *connected) do(f func(ctx context.Context, tx *sql.Tx) error) error {
	c.calls++
	op := idempotency.Op{Name: "refund", Key: fmt.Sprint(c.calls), Request: c.calls}
	_, err := idempotency.Do(c.Context(), c.store, op, func(ctx context.Context, tx *sql.Tx) (int, error) { return 0, f(ctx, tx) })
	return err
}

type queryer interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

func (c *connected) status(q queryer, name string) (n int) {
	c.Helper()
	if err := q.QueryRowContext(c.Context(), `SHOW SESSION STATUS LIKE '`+name+`'`).Scan(new(string), &n); err != nil {
		c.Fatal(err)
	}
	return n
}

// TestConnectorTrips counts the statements of a call with a new key: its claim, its result and COMMIT.
func TestConnectorTrips(t *testing.T) {
	onConnector(t, func(c *connected) {
		var questions []int
		for range 40 {
			if err := c.do(func(_ context.Context, tx *sql.Tx) error {
				questions = append(questions, c.status(tx, "Questions"))
				return nil
			}); err != nil {
				c.Fatal(err)
			}
		}
		// The look before a call, which not every call needs, takes the session out of Holdfast's hands.
		least := questions[1] - questions[0]
		for i := range questions[1:] {
			least = min(least, questions[i+1]-questions[i])
		}
		if least != 4 { // with the function's own
			c.Errorf("%d statements from one function to the next", least)
		}
	}, dbtest.MySQL, dbtest.MariaDB)
}

// TestConnectorTripsOfInTx counts the statements of a transaction without a claim: COMMIT. With a statement that
// may end it, also the mark and its check.
func TestConnectorTripsOfInTx(t *testing.T) {
	onConnector(t, func(c *connected) {
		for text, want := range map[string]int{`SELECT 1`: 3, `SET @a = 1`: 5} { // with the function's own two
			questions, least := []int{}, 99
			for range 10 {
				if err := c.db.InTx(c.Context(), func(ctx context.Context, tx *sql.Tx) error {
					questions = append(questions, c.status(tx, "Questions"))
					_, err := tx.ExecContext(ctx, text)
					return err
				}); err != nil {
					c.Fatal(err)
				}
			}
			for i := range questions[1:] {
				least = min(least, questions[i+1]-questions[i])
			}
			// The SET makes the next transaction set the session again: its undo and its setting.
			if text != `SELECT 1` {
				least -= 2
			}
			if least != want {
				c.Errorf("%s: %d statements from one function to the next, want %d", text, least, want)
			}
		}
	}, dbtest.MySQL, dbtest.MariaDB)
}

// TestConnectorDoubts runs functions that do what a transaction may not survive, or what ends it.
func TestConnectorDoubts(t *testing.T) {
	const swallowed = "!" // begins a statement whose error the function swallows
	const unlisted = swallowed + `SELECT (SELECT 1 UNION ALL SELECT 2)`
	onConnector(t, func(c *connected) {
		if _, err := c.pool.ExecContext(c.Context(), `CREATE TABLE doubts (id INT)`); err != nil {
			c.Fatal(err)
		}
		for name, want := range map[string]struct {
			texts           []string
			runs, next, has int // next: the runs of a second call
			err             error
		}{
			"an error":                              {[]string{unlisted}, 2, 1, 2, nil},
			"an error, and a statement that ends":   {[]string{unlisted, swallowed + `COMMIT`}, 2, 1, 2, holdfast.ErrTxLost},
			"an error, and a savepoint":             {[]string{unlisted, swallowed + `SAVEPOINT a`}, 2, 1, 2, nil},
			"a statement that ends":                 {[]string{`COMMIT`}, 1, 1, 2, holdfast.ErrTxLost},
			"a statement that might, and an error":  {[]string{`SET @a = 1`, unlisted}, 1, 1, 2, nil},
			"back to a savepoint before one":        {[]string{`SAVEPOINT a`, `SET @a = 1`, `ROLLBACK TO SAVEPOINT a`}, 1, 1, 2, nil},
			"an error before a savepoint goes back": {[]string{`SAVEPOINT a`, unlisted, `ROLLBACK TO SAVEPOINT a`}, 1, 1, 2, nil},
		} {
			if _, err := c.pool.ExecContext(c.Context(), `DELETE FROM doubts`); err != nil {
				c.Fatal(err)
			}
			db, err := holdfastsql.Open(c.Context(), c.pool, holdfast.Options{SingleOwner: true})
			if err != nil {
				c.Fatal(err)
			}
			for call, runs := range []int{want.runs, want.next} {
				ran := 0
				err := db.InTx(c.Context(), func(ctx context.Context, tx *sql.Tx) error {
					ran++
					for _, text := range append([]string{`INSERT INTO doubts VALUES (1)`}, want.texts...) {
						text, swallows := strings.CutPrefix(text, swallowed)
						if _, err := tx.ExecContext(ctx, text); err != nil && !swallows {
							return err
						}
					}
					return nil
				})
				if !errors.Is(err, want.err) || ran != runs {
					c.Errorf("%s, call %d: %v after %d runs, want %v after %d", name, call+1, err, ran, want.err, runs)
				}
			}
			var has int
			if err := c.pool.QueryRowContext(c.Context(), `SELECT count(*) FROM doubts`).Scan(&has); err != nil || has != want.has {
				c.Errorf("%s: %d rows, want %d (%v)", name, has, want.has, err)
			}
		}
	}, dbtest.MySQL, dbtest.MariaDB)
}

// TestConnectorTripsOfDoTx counts the statements of DoTx: it asks whether its transaction is alive only after
// what may have ended it.
func TestConnectorTripsOfDoTx(t *testing.T) {
	onConnector(t, func(c *connected) {
		if err := c.do(func(context.Context, *sql.Tx) error { return nil }); err != nil { // the connection learns what errors mean
			c.Fatal(err)
		}
		for text, more := range map[string]int{`SELECT 1`: 0, `SET @a = 1`: 2, `ROLLBACK`: 2} {
			c.calls++
			tx, err := c.pool.BeginTx(c.Context(), nil)
			if err != nil {
				c.Fatal(err)
			}
			if _, err := tx.ExecContext(c.Context(), text); err != nil {
				c.Fatal(err)
			}
			before, at := c.status(tx, "Questions"), 0
			op := idempotency.Op{Name: "refund", Key: fmt.Sprint("tx", c.calls), Request: c.calls}
			_, err = idempotency.DoTx(c.Context(), c.store, tx, op, func(_ context.Context, tx *sql.Tx) (int, error) {
				at = c.status(tx, "Questions")
				return 0, nil
			})
			_ = tx.Rollback()
			if text == `ROLLBACK` {
				if !errors.Is(err, holdfast.ErrTxLost) || at != 0 {
					c.Errorf("%s: %v", text, err)
				}
				continue
			}
			want := more + 3 // claim, savepoint, and the count
			if c.engine == dbtest.MySQL {
				want += 2 // the bound of the claim's wait
			}
			if err != nil || at-before != want {
				c.Errorf("%s: %d statements before the function, want %d (%v)", text, at-before, want, err)
			}
		}
	}, dbtest.MySQL, dbtest.MariaDB)
}

// TestConnectorPrepares counts the statements that the server prepares for a lease and for a call.
func TestConnectorPrepares(t *testing.T) {
	onConnector(t, func(c *connected) {
		work := func() {
			if err := c.do(func(context.Context, *sql.Tx) error { return nil }); err != nil {
				c.Fatal(err)
			}
			lease, err := c.locker.TryAcquire(c.Context(), "key")
			if err != nil {
				c.Fatal(err)
			}
			if err := lease.Release(c.Context()); err != nil {
				c.Fatal(err)
			}
		}
		for range 40 {
			work()
		}
		before := c.status(c.pool, "Com_stmt_prepare")
		for range 10 {
			work()
		}
		if n := c.status(c.pool, "Com_stmt_prepare") - before; before == 0 || n != 0 {
			c.Errorf("%d statements were prepared by 40 rounds, and %d by 10 more", before, n)
		}
	}, dbtest.MySQL, dbtest.MariaDB)
}

// settings reads what Holdfast changes on a session.
func (c *connected) settings(q queryer) (s string) {
	c.Helper()
	level := `@@transaction_isolation`
	if c.db.Engine() == holdfast.MariaDB {
		level = `@@tx_isolation`
	}
	if err := q.QueryRowContext(c.Context(), `SELECT CONCAT_WS(' ', @@autocommit + 0, @@innodb_lock_wait_timeout, `+level+`)`).Scan(&s); err != nil {
		c.Fatal(err)
	}
	return s
}

// TestConnectorRestores looks at the session before and after a call, also after functions that change
// the setting, and after which the connection would commit each statement alone.
func TestConnectorRestores(t *testing.T) {
	onConnector(t, func(c *connected) {
		level := "transaction_isolation"
		if c.db.Engine() == holdfast.MariaDB {
			level = "tx_isolation"
		}
		if _, err := c.pool.ExecContext(c.Context(), `SET SESSION `+level+` = 'READ-UNCOMMITTED'`); err != nil {
			c.Fatal(err)
		}
		if _, err := c.pool.ExecContext(c.Context(), `CREATE TABLE effects (k INT)`); err != nil {
			c.Fatal(err)
		}
		was := c.settings(c.pool)
		inside := ""
		look := func(_ context.Context, tx *sql.Tx) error {
			inside = c.settings(tx)
			return nil
		}
		if err := c.do(look); err != nil {
			c.Fatal(err)
		}
		fenced := inside
		if !strings.HasPrefix(was, "1 ") || !strings.HasPrefix(fenced, "0 ") || !strings.HasSuffix(fenced, "READ-COMMITTED") {
			c.Errorf("before %q, inside %q", was, fenced)
		}
		boom := errors.New("boom")
		for _, text := range []string{
			`SET SESSION autocommit = 1`, `/* a comment */ SET autocommit = 1`, `/*! SET autocommit = 1 */`, `SET SESSION innodb_lock_wait_timeout = 3`,
		} {
			for _, prepared := range []bool{false, true} {
				err := c.do(func(ctx context.Context, tx *sql.Tx) error {
					if prepared {
						stmt, err := tx.PrepareContext(ctx, text)
						if err != nil {
							return err
						}
						defer func() { _ = stmt.Close() }()
						_, err = stmt.ExecContext(ctx)
						return errors.Join(err, boom)
					}
					_, err := tx.ExecContext(ctx, text)
					return errors.Join(err, boom)
				})
				if !errors.Is(err, boom) {
					c.Errorf("%s: %v", text, err)
				}
				// The next call is protected again.
				err = c.do(func(ctx context.Context, tx *sql.Tx) error {
					inside = c.settings(tx)
					_, err := tx.ExecContext(ctx, `INSERT INTO effects VALUES (1)`)
					return errors.Join(err, boom)
				})
				if !errors.Is(err, boom) || inside != fenced {
					c.Errorf("after %s, prepared %v: %v, inside %q", text, prepared, err, inside)
				}
			}
		}
		var effects int
		if err := c.pool.QueryRowContext(c.Context(), `SELECT COUNT(*) FROM effects`).Scan(&effects); err != nil || effects != 0 {
			c.Errorf("%d effects of failed calls, %v", effects, err)
		}
		if now := c.settings(c.pool); now != was {
			c.Errorf("the session had %q, and has %q now", was, now)
		}
	}, dbtest.MySQL, dbtest.MariaDB)
}

// TestConnectorOfTwo checks that two DBs share a pool: what one keeps on a session is not taken for
// the session's own setting by the other one.
func TestConnectorOfTwo(t *testing.T) {
	onConnector(t, func(c *connected) {
		nothing := func(context.Context, *sql.Tx) error { return nil }
		if err := c.db.InTx(c.Context(), nothing); err != nil {
			c.Fatal(err)
		}
		c.pool.SetMaxIdleConns(0) // so that the second DB does not know the connection of its Open
		c.pool.SetMaxIdleConns(1)
		other, err := holdfastsql.Open(c.Context(), c.pool, holdfast.Options{SingleOwner: true})
		if err != nil {
			c.Fatal(err)
		}
		for _, db := range []*holdfast.DB[*sql.Tx]{c.db, other, c.db} {
			c.pool.SetMaxIdleConns(0)
			c.pool.SetMaxIdleConns(1)
			if err := c.db.InTx(c.Context(), nothing); err != nil {
				c.Error(err)
			}
			if err := db.InTx(c.Context(), nothing); err != nil {
				c.Error(err)
			}
		}
	}, dbtest.MySQL, dbtest.MariaDB)
}

// TestConnectorRefuses lets the server roll a transaction back, and its function go on.
func TestConnectorRefuses(t *testing.T) {
	onConnector(t, func(c *connected) {
		c.pool.SetMaxOpenConns(2)
		for _, text := range []string{`CREATE TABLE pair (id INT PRIMARY KEY, n INT)`, `INSERT INTO pair VALUES (1, 0), (2, 0)`, `CREATE TABLE heavy (n INT)`} {
			if _, err := c.pool.ExecContext(c.Context(), text); err != nil {
				c.Fatal(err)
			}
		}
		other, err := c.pool.BeginTx(c.Context(), nil)
		if err != nil {
			c.Fatal(err)
		}
		defer func() { _ = other.Rollback() }()
		for range 30 { // InnoDB rolls back the transaction that has changed less
			if _, err := other.ExecContext(c.Context(), `INSERT INTO heavy VALUES (1)`); err != nil {
				c.Fatal(err)
			}
		}
		if _, err := other.ExecContext(c.Context(), `UPDATE pair SET n = 1 WHERE id = 2`); err != nil {
			c.Fatal(err)
		}
		answers := make(chan error, 1)
		var after error
		tries := 0
		err = c.do(func(ctx context.Context, tx *sql.Tx) error {
			if tries++; tries > 1 {
				return nil
			}
			if _, err := tx.ExecContext(ctx, `UPDATE pair SET n = 2 WHERE id = 1`); err != nil {
				return err
			}
			go func() {
				_, err := other.ExecContext(ctx, `UPDATE pair SET n = 1 WHERE id = 1`)
				answers <- err
			}()
			// One of the two waits for the other now, whichever is first.
			_, lost := tx.ExecContext(ctx, `UPDATE pair SET n = ? WHERE id = 2`, 2)
			_, after = tx.ExecContext(ctx, `INSERT INTO heavy VALUES (2)`)
			return lost
		})
		if other := <-answers; err != nil || other != nil || tries != 2 || !errors.Is(after, holdfast.ErrTxLost) {
			c.Errorf("got %v after %d tries, the other %v; the statement after the deadlock: %v", err, tries, other, after)
		}
	}, dbtest.MySQL, dbtest.MariaDB)
}

// TestConnectorUnwraps gets the driver's own connection.
func TestConnectorUnwraps(t *testing.T) {
	onConnector(t, func(c *connected) {
		conn, err := c.pool.Conn(c.Context())
		if err != nil {
			c.Fatal(err)
		}
		defer func() { _ = conn.Close() }()
		if err := conn.Raw(func(driverConn any) error {
			own := fmt.Sprintf("%T", driverConn.(interface{ Unwrap() driver.Conn }).Unwrap())
			if strings.Contains(own, "stdhandle") {
				c.Errorf("got %s", own)
			}
			return nil
		}); err != nil {
			c.Error(err)
		}
	}, dbtest.Engines()...)
}

// TestConnectorPasses runs what programs do through database/sql in a function of Holdfast's.
func TestConnectorPasses(t *testing.T) {
	onConnector(t, func(c *connected) {
		q := func(query string) string {
			if c.db.Engine() != holdfast.PostgreSQL {
				return query
			}
			for i := 1; strings.Contains(query, "?"); i++ {
				query = strings.Replace(query, "?", fmt.Sprint("$", i), 1)
			}
			return query
		}
		if _, err := c.pool.ExecContext(c.Context(), `CREATE TABLE notes (id INT PRIMARY KEY, body VARCHAR(40))`); err != nil {
			c.Fatal(err)
		}
		c.pool.SetMaxOpenConns(2)
		insert, err := c.pool.PrepareContext(c.Context(), q(`INSERT INTO notes (id, body) VALUES (?, ?)`))
		if err != nil {
			c.Fatal(err)
		}
		defer func() { _ = insert.Close() }()
		for round := range 5 {
			if err := c.do(func(ctx context.Context, tx *sql.Tx) error {
				stmt := tx.StmtContext(ctx, insert) //nolint:sqlclosecheck // the transaction closes it
				for i := range 3 {
					if _, err := stmt.ExecContext(ctx, round*3+i, sql.NullString{String: "text", Valid: i != 0}); err != nil {
						return err
					}
				}
				rows, err := tx.QueryContext(ctx, q(`SELECT id, body FROM notes WHERE id >= ? ORDER BY id`), round*3)
				if err != nil {
					return err
				}
				defer func() { _ = rows.Close() }()
				var ids []int
				for rows.Next() {
					var id int
					var body sql.NullString
					if err := rows.Scan(&id, &body); err != nil {
						return err
					}
					if body.Valid != (id%3 != 0) {
						return fmt.Errorf("row %d has %v", id, body)
					}
					ids = append(ids, id)
				}
				if len(ids) != 3 {
					return fmt.Errorf("the rows %v", ids)
				}
				return rows.Err()
			}); err != nil {
				c.Fatal(err)
			}
		}
		// In the program's own transaction and without one, too.
		tx, err := c.pool.BeginTx(c.Context(), &sql.TxOptions{Isolation: sql.LevelSerializable})
		if err != nil {
			c.Fatal(err)
		}
		if _, err := tx.StmtContext(c.Context(), insert).ExecContext(c.Context(), 100, "text"); err != nil { //nolint:sqlclosecheck // the same
			c.Fatal(err)
		}
		if err := tx.Rollback(); err != nil {
			c.Fatal(err)
		}
		if _, err := insert.ExecContext(c.Context(), 101, "text"); err != nil {
			c.Fatal(err)
		}
		var n int
		if err := c.pool.QueryRowContext(c.Context(), `SELECT COUNT(*) FROM notes`).Scan(&n); err != nil || n != 16 {
			c.Errorf("%d notes, %v", n, err)
		}
	}, dbtest.Engines()...)
}
