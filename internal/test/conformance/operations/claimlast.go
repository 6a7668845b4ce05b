package operations

import (
	"context"
	"errors"
	"strconv"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/internal/access"
	"github.com/holdfast-go/holdfast/internal/test/conformance"
)

// ClaimLast is the suite of stores with Options.ClaimLast, on handles that have them.
func ClaimLast[Tx any](t *testing.T, h conformance.Handle[Tx]) {
	if !h.ClaimLast {
		return
	}
	for name, f := range map[string]func(*env[Tx]){
		"BesideEachOther":   besideEachOther[Tx],
		"BesideClaimFirst":  besideClaimFirst[Tx],
		"RefusedStatements": refusedStatements[Tx],
		"LostInRows":        lostInRows[Tx],
		"SurvivedErrors":    survivedErrors[Tx],
		"KilledStatement":   killedStatement[Tx],
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run(t, h, f)
		})
	}
}

// besideEachOther runs the functions of two processes at once. One commits; the other gets its result,
// whatever its own function returns.
func besideEachOther[Tx any](e *env[Tx]) {
	for key, fails := range map[string]error{"succeeds": nil, "fails": errors.New("refunded already"), "rejects": idempotency.Reject("refunded", "by the other")} {
		first, late := e.Store(idempotency.Options{}), e.Store(idempotency.Options{})
		both, committed := make(chan struct{}), make(chan struct{})
		answers := make(chan error, 1)
		go func() {
			_, err := idempotency.Do(e.Ctx, first, conformance.Op(key), func(ctx context.Context, tx Tx) (string, error) {
				<-both
				return "first", e.Effect(ctx, tx, key)
			})
			close(committed)
			answers <- err
		}()
		runs := 0
		r, err := idempotency.Do(e.Ctx, late, conformance.Op(key), func(ctx context.Context, tx Tx) (string, error) {
			if runs++; runs == 1 {
				close(both)
				<-committed
			}
			return "late", errors.Join(e.Effect(ctx, tx, key), fails)
		})
		if other := <-answers; other != nil || err != nil || r.Value != "first" || r.Outcome != idempotency.Replayed || runs != 1 {
			e.Errorf("%s: %+v, %v after %d runs; the other: %v", key, r, err, runs, other)
		}
		e.WantOnce(key)
	}
}

// besideClaimFirst runs a call that claims first beside the function, as a program without the option
// does. The call waits with its record for the claim.
func besideClaimFirst[Tx any](e *env[Tx]) {
	for key, gives := range map[string]error{"stores": nil, "gives up": errors.New("gives up")} {
		inside, end, answers := make(chan struct{}), make(chan struct{}), make(chan error, 1)
		go func() {
			_, err := idempotency.Do(e.Ctx, e.ClaimFirst(idempotency.Options{}), conformance.Op(key), func(ctx context.Context, tx Tx) (string, error) {
				close(inside)
				<-end
				return "first", errors.Join(gives, e.Effect(ctx, tx, key))
			})
			answers <- err
		}()
		<-inside
		r, err := idempotency.Do(e.Ctx, e.Store(idempotency.Options{}), conformance.Op(key), func(ctx context.Context, tx Tx) (string, error) {
			select {
			case <-end:
			default:
				close(end)
			}
			return "last", e.Effect(ctx, tx, key)
		})
		other := <-answers
		if err != nil || gives == nil && (other != nil || r.Value != "first") || gives != nil && (!errors.Is(other, gives) || r.Value != "last") {
			e.Errorf("%s: %+v, %v; the other: %v", key, r, err, other)
		}
		e.WantOnce(key)
	}
}

// refusedStatements sends what may end the transaction, and swallows the error. Nothing of it reaches
// the server, so the effect stands with its record. The naive form, without the refusal, leaves an effect
// without a record: see DDLInTheFunction in the other modes.
func refusedStatements[Tx any](e *env[Tx]) {
	e.Must(`CREATE PROCEDURE ends_it() COMMIT`)
	s := e.Store(idempotency.Options{})
	boom := errors.New("boom")
	for _, text := range []string{
		`CREATE TABLE surprise (n INT)`, `ALTER TABLE effects ADD n INT`, `TRUNCATE effects`, `LOCK TABLES effects WRITE`, `UNLOCK TABLES`, `BEGIN`,
		`START TRANSACTION`, `COMMIT`, `ROLLBACK`, `ROLLBACK AND CHAIN`, `SET autocommit = 1`, `SET @a = 1, autocommit = 1`, `CALL ends_it()`,
		`/* a comment */ commit`, "-- a comment\nCOMMIT", `/*! COMMIT */`, `SELECT 1 /*! + 1 */`, `SELECT 1; COMMIT`, `SELECT '\\'; COMMIT`,
		`PREPARE p FROM 'COMMIT'`, `XA START 'x'`, `FLUSH TABLES`, `CREATE TEMPORARY TABLE t (n INT)`, `RELEASE`, ``,
	} {
		_, err := idempotency.Do(e.Ctx, s, conformance.Op(text+"x"), func(ctx context.Context, tx Tx) (string, error) {
			if err := e.Effect(ctx, tx, text+"x"); err != nil {
				return "", err
			}
			if _, err := e.Exec(ctx, tx, text); !errors.Is(err, holdfast.ErrUnsupported) {
				e.Errorf("%q: got %v", text, err)
			}
			return "", boom
		})
		if !errors.Is(err, boom) || e.Effects(text+"x") != 0 {
			e.Errorf("%q: %v, %d effects", text, err, e.Effects(text+"x"))
		}
		if r, err := e.Do(s, conformance.Op(text+"x")); err != nil || r.Outcome != idempotency.Executed {
			e.Errorf("%q, afterwards: %v, %v", text, r, err)
		}
		e.WantOnce(text + "x")
	}
	for _, text := range []string{
		`SAVEPOINT a`, `ROLLBACK TO a`, `ROLLBACK WORK TO SAVEPOINT a`, `RELEASE SAVEPOINT a`, "-- name: Look :one\nSELECT 1", `SELECT 'a;b' FROM DUAL;`,
		`WITH a AS (SELECT 1) SELECT * FROM a`, `DO 1`, `(SELECT 1)`,
	} {
		key := "allowed"
		_, err := idempotency.Do(e.Ctx, s, conformance.Op(key+text), func(ctx context.Context, tx Tx) (string, error) {
			if _, err := e.Exec(ctx, tx, `SAVEPOINT a`); err != nil {
				return "", err
			}
			_, err := e.Exec(ctx, tx, text)
			return "", errors.Join(err, e.Effect(ctx, tx, key+text))
		})
		if err != nil {
			e.Errorf("%q: %v", text, err)
		}
		e.WantOnce(key + text)
	}
}

// lostInRows loses the transaction in a query, whose error comes with the rows, and swallows it.
func lostInRows[Tx any](e *env[Tx]) {
	e.pairs()
	for key, reads := range map[string]bool{"reads the rows": true, "closes the rows": false} {
		_, err := idempotency.Do(e.Ctx, e.Store(idempotency.Options{}), conformance.Op(key), func(ctx context.Context, tx Tx) (string, error) {
			if err := e.Effect(ctx, tx, key); err != nil {
				return "", err
			}
			q, err := access.Of(e.DB).Join(tx)
			if err != nil {
				return "", err
			}
			err = deadlock(e, func(ctx context.Context, query string, args ...any) error {
				if query != `UPDATE pair SET n = n + 1 WHERE id = 2` {
					_, err := q.Exec(ctx, query, args...)
					return err
				}
				rows, err := q.Query(ctx, `SELECT n FROM pair WHERE id > 1 FOR UPDATE`)
				if err != nil {
					return err
				}
				for reads && rows.Next() {
					if err := rows.Scan(new(int)); err != nil {
						return err
					}
				}
				err = rows.Err()
				return errors.Join(err, rows.Close())
			})
			e.Logf("%s: %v", key, err)
			_ = e.Effect(ctx, tx, key)
			return "", nil
		})
		e.WantLost("Do", err, key)
		if n := e.Int(`SELECT COUNT(*) FROM holdfast_records`); n != 0 {
			e.Errorf("%s: %d records without their effect", key, n)
		}
	}
}

// survivedErrors swallows errors that end no transaction.
func survivedErrors[Tx any](e *env[Tx]) {
	e.Must(`CREATE TABLE once (id INT PRIMARY KEY, n TINYINT NOT NULL)`)
	_, err := idempotency.Do(e.Ctx, e.Store(idempotency.Options{}), conformance.Op("a"), func(ctx context.Context, tx Tx) (string, error) {
		for _, text := range []string{`INSERT INTO once VALUES (1, 1)`, `INSERT INTO once VALUES (1, 1)`, `INSERT INTO once VALUES (2, 1000)`, `INSERT INTO nowhere VALUES (1)`, `SELECT FROM`} {
			_, _ = e.Exec(ctx, tx, text)
		}
		return "", e.Effect(ctx, tx, "a")
	})
	if err != nil || e.Int(`SELECT COUNT(*) FROM once`) != 1 {
		e.Errorf("%v, %d rows", err, e.Int(`SELECT COUNT(*) FROM once`))
	}
	e.WantOnce("a")
}

// killedStatement kills a statement of the function (1317), and then its connection. Neither leaves
// anything.
func killedStatement[Tx any](e *env[Tx]) {
	e.pairs()
	other, err := e.SQL.BeginTx(e.Ctx, nil)
	if err != nil {
		e.Fatal(err)
	}
	defer func() { _ = other.Rollback() }()
	if _, err := other.ExecContext(e.Ctx, `UPDATE pair SET n = 1 WHERE id = 1`); err != nil {
		e.Fatal(err)
	}
	for key, kill := range map[string]string{"statement": `KILL QUERY `, "connection": `KILL `} {
		s := e.Store(idempotency.Options{LockTimeout: time.Hour})
		_, err := idempotency.Do(e.Ctx, s, conformance.Op(key), func(ctx context.Context, tx Tx) (string, error) {
			if err := e.Effect(ctx, tx, key); err != nil {
				return "", err
			}
			q, err := access.Of(e.DB).Join(tx)
			if err != nil {
				return "", err
			}
			rows, err := q.Query(ctx, `SELECT CONNECTION_ID()`)
			if err != nil {
				return "", err
			}
			rows.Next()
			var id int
			if err := errors.Join(rows.Scan(&id), rows.Close()); err != nil {
				return "", err
			}
			ended := make(chan error, 1)
			go func() {
				_, err := e.Exec(ctx, tx, `UPDATE pair SET n = 2 WHERE id = 1`)
				ended <- err
			}()
			e.Eventually("the statement waits", func() bool {
				var n int
				// MySQL fails while another session runs a statement with bytes that are no text (3854).
				err := e.SQL.QueryRowContext(ctx, `SELECT COUNT(*) FROM information_schema.innodb_trx WHERE trx_state = 'LOCK WAIT' AND trx_mysql_thread_id = ?`, id).Scan(&n)
				return err == nil && n > 0
			})
			e.Must(kill + strconv.Itoa(id))
			if err := <-ended; err == nil {
				e.Errorf("%s: it was not killed", key)
			}
			_ = e.Effect(ctx, tx, key)
			return "", nil
		})
		if err == nil || e.Effects(key) != 0 || e.Int(`SELECT COUNT(*) FROM holdfast_records`) != 0 {
			e.Errorf("%s: %v, %d effects, %d records", key, err, e.Effects(key), e.Int(`SELECT COUNT(*) FROM holdfast_records`))
		}
		if key == "statement" && !errors.Is(err, holdfast.ErrTxLost) {
			e.Errorf("%s: %v", key, err)
		}
	}
}
