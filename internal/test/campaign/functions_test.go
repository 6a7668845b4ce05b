//go:build unix

package campaign

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/dsn"
	"github.com/holdfast-go/holdfast/internal/test/dbtest"
)

// openForeign opens a connection for a client in another language, which knows nothing of
// Holdfast but its SQL functions. SQLite has none.
func (c *client[Tx]) openForeign(context.Context) (err error) {
	url := c.URL
	switch c.db.Engine() {
	case holdfast.SQLite:
		return nil
	case holdfast.MySQL:
		url = dbtest.With(url, "innodb_lock_wait_timeout=1") // docs/reference/protocol.md says so to clients
	}
	if c.plain, _, err = dsn.Open(url); err == nil {
		c.plain.SetMaxOpenConns(1)
	}
	return err
}

// foreign requests the same refunds as others do, by the functions.
func (c *client[Tx]) foreign(ctx context.Context, t *task) error {
	if c.plain == nil {
		return errors.New("there are no functions")
	}
	ctx, cancel := context.WithTimeout(ctx, t.wait+time.Second)
	defer cancel()
	a, err := c.claimAndFinish(ctx, t)
	a.Job, a.Key, a.ID = t.job, t.key, t.id
	if err != nil {
		a.Err = err.Error()
	}
	t.b.told(a)
	return err
}

// claimAndFinish is such a client. The control looks first, and claims nothing.
func (c *client[Tx]) claimAndFinish(ctx context.Context, t *task) (answer, error) {
	no := answer{Outcome: refused}
	form, err := idempotency.Canonical(t.key)
	if err != nil {
		return no, err
	}
	ask := []any{"default", "", "refund", t.key, fmt.Sprintf("%x", sha256.Sum256(form)), 0}
	var claim map[string]string
	if c.Control == lookThenDo {
		if claim, err = dbtest.Engine(c.db.Engine()).Call(ctx, c.plain, "lookup", ask...); err != nil {
			return no, err
		}
	}
	tx, err := c.plain.BeginTx(ctx, nil)
	if err != nil {
		return no, err
	}
	defer func() { _ = tx.Rollback() }()
	if c.Control != lookThenDo {
		claim, err = dbtest.Engine(c.db.Engine()).Call(ctx, tx, "claim", append(ask, 1_000_000)...)
	}
	switch {
	case err != nil:
		return no, err
	case claim["outcome"] == "replayed":
		by, err := strconv.Unquote(claim["result"])
		return answer{Outcome: replayed, Value: by}, err
	case claim["outcome"] == "in_progress":
		return no, nil
	case claim["outcome"] != "claimed" && c.Control != lookThenDo:
		return no, fmt.Errorf("the claim's outcome is %q", claim["outcome"])
	}
	err = t.effect(t.id, func(query string, args ...any) error {
		_, err := tx.ExecContext(ctx, core.Compile("", query, c.db.Engine() != holdfast.PostgreSQL).Text, args...)
		return err
	})
	if err != nil {
		return no, err
	}
	if c.Control != lookThenDo {
		if _, err := dbtest.Engine(c.db.Engine()).Call(ctx, tx, "finish", claim["claim"], "succeeded", strconv.Quote(t.id), "json", nil, nil, nil); err != nil {
			return no, err
		}
	}
	if err := tx.Commit(); err != nil {
		return answer{Outcome: unknown}, err
	}
	return answer{Outcome: executed, Value: t.id}, nil
}
