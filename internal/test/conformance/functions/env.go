// Package functions contains the suites of the SQL functions by which clients in other languages take
// part. The cases are those of Do, Guard and leases; a client is a few lines on the functions, and
// Go's own calls run beside it on the same keys.
package functions

import (
	"crypto/rand"
	"database/sql"
	"encoding/hex"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/internal/test/conformance"
	"github.com/holdfast-go/holdfast/internal/test/dbtest"
	"github.com/holdfast-go/holdfast/migrations"
)

// env is one case on one engine. Cases share the database, and each has its own keys.
type env struct {
	conformance.Env[*sql.Tx]
}

// Suite runs every case on every engine that has functions.
func Suite(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, engine dbtest.Engine) {
		e := &env{*conformance.New(t, conformance.SQL(), engine)}
		err := migrations.FunctionsUp(e.Ctx, e.SQL)
		if !has(engine) {
			wantUnsupported(t, err)
			return
		}
		e.Check(err)
		if engine == dbtest.MySQL { // docs/reference/protocol.md says so to clients
			e.DSN = dbtest.With(e.DSN, "innodb_lock_wait_timeout=1")
			e.SQL = dbtest.OpenSQL(t, e.DSN)
		}
		for _, suite := range []map[string]func(*env){operations, voids, transactions, sessions, leases, guards, kills} {
			for name, f := range suite {
				t.Run(name, func(t *testing.T) { //nolint:paralleltest // the cases share connections
					own := *e
					own.T = t
					f(&own)
				})
			}
		}
	})
}

// has reports whether an engine has functions: docs/reference/protocol.md says why others have none.
func has(e dbtest.Engine) bool {
	return e == dbtest.Postgres || e == dbtest.MySQL || e == dbtest.MariaDB
}

// answer is the row that a function returns, without its NULLs.
type answer map[string]string

// call is dbtest.Engine.Call in the case's database.
func (e *env) call(q dbtest.Querier, function string, args ...any) (answer, error) {
	return e.Engine.Call(e.Ctx, q, function, args...)
}

// text returns a key as a client would send it: as bytes if it is no text.
func text(key string) any {
	if utf8.ValidString(key) && !strings.ContainsRune(key, 0) {
		return key
	}
	return []byte(key)
}

// claim claims the key of conformance.Op(key), as a client does that waits for a second.
func (e *env) claim(tx dbtest.Querier, key string) (answer, error) {
	return e.claimOf(tx, key, fingerprint(e.T, key), 1_000_000)
}

func (e *env) claimOf(tx dbtest.Querier, key string, fingerprint any, wait int64) (answer, error) {
	return e.call(tx, "claim", "default", "", "refund", text(key), fingerprint, 0, wait)
}

// finish stores JSON, for ever.
func (e *env) finish(tx dbtest.Querier, claim, state, result string) error {
	_, err := e.call(tx, "finish", claim, state, result, "json", nil, nil, nil)
	return err
}

// lookup asks for the key of conformance.Op(key).
func (e *env) lookup(key string) answer {
	e.Helper()
	a, err := e.call(e.SQL, "lookup", "default", "", "refund", text(key), nil, 0)
	e.Check(err)
	return a
}

// do is the whole client: it claims, makes one effect, finishes with "done" and commits.
func (e *env) do(key string) (a answer, err error) {
	err = e.inTx(sql.LevelDefault, func(tx *sql.Tx) error {
		if a, err = e.claim(tx, key); err != nil || a["outcome"] != "claimed" {
			return err
		}
		if err := e.Effect(e.Ctx, tx, key); err != nil {
			return err
		}
		return e.finish(tx, a["claim"], "succeeded", `"done"`)
	})
	return a, err
}

// inTx runs f in a transaction, which it commits if f returns nil.
func (e *env) inTx(level sql.IsolationLevel, f func(tx *sql.Tx) error) error {
	tx, err := e.SQL.BeginTx(e.Ctx, &sql.TxOptions{Isolation: level})
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // also if the test ends
	if err := f(tx); err != nil {
		return err
	}
	return tx.Commit()
}

// conn returns a new session.
func (e *env) conn() *sql.Conn {
	e.Helper()
	c, err := e.SQL.Conn(e.Ctx)
	e.Check(err)
	e.Cleanup(func() { _ = c.Close() })
	return c
}

// on runs a statement on a session.
func (e *env) on(c *sql.Conn, statement string) {
	e.Helper()
	_, err := c.ExecContext(e.Ctx, statement)
	e.Check(err)
}

// want fails unless a has these values.
func (e *env) want(what string, a answer, err error, values ...string) {
	e.Helper()
	for i := 0; i < len(values); i += 2 {
		if err != nil || a[values[i]] != values[i+1] {
			e.Errorf("%s: %v, %v, want %q", what, a, err, values)
			return
		}
	}
}

// refused fails unless err is an error of a function, with this text.
func (e *env) refused(what string, err error, text string) {
	e.Helper()
	if err == nil || !strings.Contains(err.Error(), "holdfast: ") || !strings.Contains(err.Error(), text) {
		e.Errorf("%s: %v, want a refusal with %q", what, err, text)
	}
}

// fingerprint returns the hexadecimal digits of the fingerprint of conformance.Op(key).
func fingerprint(t *testing.T, key string) any {
	t.Helper()
	if !utf8.ValidString(key) {
		return nil // such a request has no JSON form
	}
	form, err := idempotency.Canonical(key)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%x", hashOf(form))
}

// op is the Go form of claim's operation.
func op(key string) idempotency.Op {
	o := conformance.Op(key)
	if !utf8.ValidString(key) {
		o.Request, o.NoFingerprint = nil, true
	}
	return o
}

func newAttempt() string {
	b := make([]byte, 16)
	_, _ = rand.Read(b)
	return hex.EncodeToString(b)
}
