package holdfastpgx

import (
	"context"
	"database/sql"
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/core"
)

// Pipes implements core.Pipeline.
func (c *conn) Pipes() bool { return true }

// BeginWith implements core.Pipeline.
func (c *conn) BeginWith(ctx, _ context.Context, opts core.TxOptions, first core.Bound) (pgx.Tx, core.Reply, error) {
	return beginWith(ctx, c.native(), opts, first)
}

// CommitWith implements core.Pipeline.
func (c *conn) CommitWith(ctx context.Context, tx pgx.Tx, last core.Bound) (core.Reply, error) {
	return commitWith(ctx, c.native(), tx, last)
}

// beginWith sends BEGIN and first in one round trip.
func beginWith(ctx context.Context, c *pgx.Conn, opts core.TxOptions, first core.Bound) (pgx.Tx, core.Reply, error) {
	var answer core.Reply
	level, err := isoLevel(opts.Isolation)
	if err != nil {
		return nil, answer, err
	}
	b := &pgx.Batch{}
	b.BeginTx(pgx.TxOptions{IsoLevel: level})
	if opts.Setup != "" {
		b.Queue(opts.Setup)
	}
	b.Queue(first.Stmt.Text, first.Args...)
	results := c.SendBatch(ctx, b)
	_, err = results.Exec()
	begun := err == nil
	if begun && opts.Setup != "" {
		_, answer.Err = results.Exec()
	}
	if begun && answer.Err == nil {
		answer = read(results, first)
	}
	if e := results.Close(); e != nil && err == nil && answer.Err == nil {
		err = e
	}
	switch {
	case begun && err == nil && (answer.Err == nil || answered(answer.Err)):
		return &transaction{Tx: results.Tx()}, answer, nil
	case !begun && answered(err):
		// The statement could not be prepared, before anything was begun. Run it in a transaction,
		// where it fails again with the same error.
		tx, err := c.BeginTx(ctx, pgx.TxOptions{IsoLevel: level})
		if err == nil && opts.Setup != "" {
			_, answer.Err = tx.Exec(ctx, opts.Setup)
		}
		if err == nil && answer.Err == nil {
			answer = first.Run(ctx, querier{tx})
		}
		return tx, answer, err
	case err == nil:
		err = answer.Err
	}
	return nil, answer, err
}

// read reads the answer of a statement.
func read(results pgx.BatchResults, b core.Bound) (answer core.Reply) {
	dest := b.Dest
	if b.Counts {
		dest = []any{&answer.Affected, &answer.Text}
	}
	if dest == nil {
		var tag pgconn.CommandTag
		tag, answer.Err = results.Exec()
		answer.Affected = tag.RowsAffected()
		return answer
	}
	answer.Err = results.QueryRow().Scan(dest...)
	if answer.Found = answer.Err == nil; errors.Is(answer.Err, pgx.ErrNoRows) {
		answer.Err = nil
	}
	return answer
}

// Both implements core.Batcher. The server skips second when first fails.
func (q querier) Both(ctx context.Context, first, second core.Bound) (a, b core.Reply) {
	batch := &pgx.Batch{}
	batch.Queue(first.Stmt.Text, first.Args...)
	batch.Queue(second.Stmt.Text, second.Args...)
	results := q.r.SendBatch(ctx, batch)
	if a = read(results, first); a.Err == nil {
		b = read(results, second)
	}
	if err := results.Close(); a.Err == nil && b.Err == nil {
		b.Err = err
	}
	// Both are prepared before the first is sent.
	if unsent := (pgx.ErrPreprocessingBatch{}); errors.As(a.Err, &unsent) && unsent.SQL() == second.Stmt.Text {
		a.Err, b.Err = nil, a.Err
	}
	a.Err, b.Err = named(a.Err), named(b.Err)
	return a, b
}

// commitWith sends last and COMMIT in one round trip. The server skips the COMMIT when last fails.
func commitWith(ctx context.Context, c *pgx.Conn, tx pgx.Tx, last core.Bound) (answer core.Reply, err error) {
	if c.PgConn().TxStatus() == 'I' {
		return answer, sql.ErrTxDone
	}
	if err := sendable(c); err != nil {
		return answer, err
	}
	b := &pgx.Batch{}
	b.Queue(last.OrFail.Text, last.Args...)
	b.Queue("commit")
	results := c.SendBatch(ctx, b)
	tag, err := results.Exec()
	answer.Affected = tag.RowsAffected()
	if answer.Err = refusal(err); answer.Err != nil {
		_ = results.Close() // returns the same error
		return answer, nil  //nolint:nilerr // it is in the answer
	}
	if err == nil {
		tag, err = results.Exec()
	}
	if e := results.Close(); err == nil {
		err = e
	}
	if err == nil && tag.String() == "ROLLBACK" {
		err = pgx.ErrTxCommitRollback
	}
	if t, ok := tx.(*transaction); ok {
		t.over.Store(true)
	}
	if err != nil {
		return answer, err
	}
	return answer, replicated(c)
}

// refusal returns err if it shows that the COMMIT after the statement was not run: the server's
// answer to the statement, the end of a session that idled or took too long in its transaction, or
// a batch that was never sent. Any other end of the session may come from a pooler, after the
// server's COMMIT.
func refusal(err error) error {
	if err == nil {
		return nil
	}
	var unsent pgx.ErrPreprocessingBatch
	var e *pgconn.PgError
	switch {
	case answered(err), errors.As(err, &e) && (e.Code == "25P03" || e.Code == "25P04"):
		return err
	case errors.As(err, &unsent):
		return &holdfast.RetryError{Attempts: 1, Err: err}
	}
	return nil
}

// answered reports whether err is the server's own error on a live connection, and not a lost
// connection.
func answered(err error) bool {
	var e *pgconn.PgError
	return errors.As(err, &e) && e.Severity != "FATAL" && e.Severity != "PANIC"
}
