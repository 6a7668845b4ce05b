package idempotency

import (
	"context"
	"fmt"
	"slices"
	"strconv"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/idempotency/internal/ledger"
	"github.com/holdfast-go/holdfast/idempotency/internal/once"
	"github.com/holdfast-go/holdfast/internal/auditlog"
	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/dialect"
)

const (
	erasePage  = 500 // rows that one read scans
	eraseBatch = 100 // records in a transaction
)

// Erasure selects the records to erase.
type Erasure struct {
	// Owner as in Op: required, unless the DB is SingleOwner.
	Owner string
	// Name is the name of the operation. Default: all of the owner's operations.
	Name string
	// Keys erases all data that may identify a person or the subject of the operation: besides the
	// results, the text of the keys, the business ids and the fingerprints. Owner, operation, the
	// hashes of the keys, the times, and the process and program that executed it stay. The rows of
	// Similar go, so that one similar to an erased operation is not noticed any more.
	Keys bool
	// Actor is who erases, and why. Required.
	holdfast.Actor
}

// erasing is one call of EraseScope.
type erasing struct {
	Erasure

	audit *auditlog.Log
}

// erased appends to the audit, in the transaction that erased something.
func (s *Store[Tx]) erased(ctx context.Context, q core.Querier, e erasing, kind string, subject []byte, n int64) error {
	return e.audit.Append(ctx, q, auditlog.Entry{
		Actor: e.By, Action: "erase scope", Reason: e.Reason, Kind: kind, Owner: e.Owner, Namespace: s.options.Namespace, Subject: subject,
		After: struct {
			Erased int64  `json:"erased"`
			Name   string `json:"name,omitempty"`
			Keys   bool   `json:"keys"`
		}{n, e.Name, e.Keys},
	})
}

// EraseScope erases the results, the rejection reasons and the requests' ids of an owner, or of one
// of its operations, in this store's namespace. The fact that they were executed stays: duplicates get
// ErrExpired for as long as the key is kept, and nothing is executed again. EraseScope returns how
// many records it erased, also with an error.
//
// It reads the owner's records once, some hundred rows at a time, and commits a hundred records
// at a time. After an interruption, call it again. It may miss operations that the owner runs at
// the same time, so stop those first. A claim without a result ([UnfinishedError]) and a staged
// operation that has not ended are left for an operator to resolve. It does not erase backups or
// the caller's own tables.
//
// Errors: [holdfast.ErrInvalid], [holdfast.ErrSchema], [holdfast.ErrRetry], [holdfast.ErrUnknown]
// (call it again), errors of ctx and of the driver.
func (s *Store[Tx]) EraseScope(ctx context.Context, what Erasure) (erased int64, err error) {
	e := erasing{what, auditlog.New(s.dialect(), s.access.Table)}
	if err := auditlog.Check("Erasure.Actor.", e.By, e.Reason); err != nil {
		return 0, err
	}
	name := e.Name
	if name == "" {
		name = "any"
	}
	if _, err := s.scope(Op{Owner: e.Owner, Name: name, Key: "any"}); err != nil {
		return 0, err
	}
	for after := []byte{}; after != nil; {
		var keys [][]byte
		var next []byte
		err := s.access.OnConn(ctx, "", func(q core.Querier) (err error) { // again on another connection, if this one is lost
			keys, next, err = s.eraseFind(ctx, q, e, after)
			return err
		})
		if err != nil {
			return erased, s.explain(err)
		}
		after = next
		for batch := range slices.Chunk(keys, eraseBatch) {
			n, err := s.eraseSome(ctx, e, batch)
			erased += n
			if err != nil {
				return erased, s.explain(err)
			}
		}
	}
	n, err := s.eraseStaged(ctx, e)
	if erased += n; err == nil && e.Keys {
		err = s.eraseSimilar(ctx, e)
	}
	return erased, err
}

// eraseStaged erases staged operations, each in its own transaction.
func (s *Store[Tx]) eraseStaged(ctx context.Context, e erasing) (erased int64, err error) {
	l := ledger.New(s.db, s.bounds())
	from := ledger.Selection{Namespace: s.options.Namespace, Owner: e.Owner, Name: e.Name, States: ledger.Ended, Least: -ledger.MaxAhead, Limit: erasePage}
	if !e.Keys {
		from.Rows = "2, 3" // not erased
	}
	ids := core.Pages(nil, once.ID{}, erasePage, func(after once.ID) ([]once.ID, error) {
		from.After = after
		return s.stagedIDs(ctx, l, from)
	})
	for id, err := range ids {
		if err != nil {
			return erased, err
		}
		did, err := s.eraseOne(ctx, l, e, id)
		if err != nil {
			return erased, err
		}
		if did {
			erased++
		}
	}
	return erased, nil
}

// eraseOne erases one staged operation in its own transaction.
func (s *Store[Tx]) eraseOne(ctx context.Context, l *ledger.Ledger[Tx], e erasing, id once.ID) (did bool, err error) {
	err = l.Write(ctx, func(ctx context.Context, _ Tx, q core.Querier) (err error) {
		if did, err = l.Erase(ctx, q, id); err == nil && e.Keys {
			var key bool
			key, err = eraseKey(ctx, l, q, id)
			did = did || key
		}
		if err != nil || !did {
			return err
		}
		return s.erased(ctx, q, e, "staged", id.Hash[:], 1)
	})
	return did, err
}

func eraseKey[Tx any](ctx context.Context, l *ledger.Ledger[Tx], q core.Querier, id once.ID) (did bool, err error) {
	r, err := l.SQL.EraseKey.Exec(ctx, q, id.Args()...)
	if err == nil && r.Affected > 0 {
		_, err = l.SQL.EraseReferences.Exec(ctx, q, id.Args()...)
	}
	return r.Affected > 0, err
}

// stagedIDs reads one page of the ids of staged operations.
func (s *Store[Tx]) stagedIDs(ctx context.Context, l *ledger.Ledger[Tx], from ledger.Selection) ([]once.ID, error) {
	rows, err := l.List(ctx, s.access.Pool, from)
	if err != nil {
		return nil, l.Explain(err)
	}
	columns, err := rows.Columns()
	if err != nil {
		return nil, once.FirstOf(err, rows.Close())
	}
	dest := make([]any, len(columns))
	for i := range dest {
		dest[i] = new(any)
	}
	return core.Collect(rows, func(row core.Row) (id once.ID, err error) {
		dest[0], dest[1] = &id.Owner, once.Into(&id.Hash)
		err = row.Scan(dest...)
		return id, err
	})
}

// bounds returns the bounds of the staged operations' transactions.
func (s *Store[Tx]) bounds() ledger.Bounds {
	o := &s.options
	return ledger.Bounds{Wait: o.Wait, Tx: holdfast.TxOptions{Isolation: o.Isolation, LockTimeout: o.LockTimeout, Attempts: o.Attempts}}
}

// eraseDue returns the condition for records that have something to erase.
func eraseDue(e erasing) string {
	if e.Keys {
		return `state IN (2, 3, 4, 5) AND (state IN (2, 3) OR length(op_key) > 0)`
	}
	return `state IN (2, 3)`
}

// eraseFind reads one page of the owner's records, in the order of the hashes; next is nil at the
// end.
func (s *Store[Tx]) eraseFind(ctx context.Context, q core.Querier, e erasing, after []byte) (keys [][]byte, next []byte, err error) {
	table := s.access.Table("records")
	page := s.dialect().Compile("erase.page", `SELECT key_hash FROM `+table+` WHERE owner = $0 AND key_hash > $1 ORDER BY key_hash LIMIT 1 OFFSET $2`)
	more, err := page.QueryRow(ctx, q, []any{&next}, e.Owner, after, erasePage-1)
	if err != nil {
		return nil, nil, err
	}
	text := `SELECT key_hash FROM ` + table + ` WHERE owner = $0 AND key_hash > $1 AND namespace = $2 AND ` + eraseDue(e)
	args := []any{e.Owner, after, s.options.Namespace}
	if e.Name != "" {
		text += ` AND operation = $` + strconv.Itoa(len(args))
		args = append(args, e.Name)
	}
	if more {
		text += ` AND key_hash <= $` + strconv.Itoa(len(args))
		args = append(args, next)
	} else {
		next = nil
	}
	rows, err := s.dialect().Compile("erase.find", text+` ORDER BY key_hash`).Query(ctx, q, args...)
	if err != nil {
		return nil, nil, err
	}
	keys, err = core.Collect(rows, core.Value[[]byte])
	return keys, next, err
}

// eraseSome erases one batch in one transaction.
func (s *Store[Tx]) eraseSome(ctx context.Context, e erasing, keys [][]byte) (erased int64, err error) {
	set := dialect.Tombstone
	if e.Keys {
		// substr keeps the column's own type; each engine writes an empty value of it differently.
		set += `, op_key = substr(op_key, 1, 0), business_id = NULL, fingerprint = NULL`
	}
	erase := s.dialect().Compile("erase.write", `UPDATE `+s.access.Table("records")+` SET `+set+
		` WHERE owner = $0 AND key_hash IN (`+dialect.Params(len(keys))+`) AND `+eraseDue(e))
	args := []any{e.Owner}
	for _, k := range keys {
		args = append(args, k)
	}
	return s.erase(ctx, e, "record", erase, args)
}

// erase runs a statement in a separate transaction, and repeats it if the engine rolls it back.
func (s *Store[Tx]) erase(ctx context.Context, e erasing, kind string, erase core.Stmt, args []any) (erased int64, err error) {
	opts := core.TxOptions{Isolation: s.dialect().Sweep.Isolation, LockTimeout: s.options.LockTimeout}
	exhausted, err := core.Retry(ctx, s.options.Attempts, s.db.Retryable, func(int) error {
		return s.access.Attempt(ctx, opts, nil, func(ctx context.Context, _ Tx, q core.Querier, _ core.Reply) error {
			r, err := erase.Exec(ctx, q, args...)
			if erased = r.Affected; err != nil || erased == 0 {
				return err
			}
			return s.erased(ctx, q, e, kind, nil, erased)
		})
	})
	switch {
	case exhausted:
		return 0, &holdfast.RetryError{Attempts: s.options.Attempts, Err: err}
	case err != nil:
		return 0, fmt.Errorf("idempotency: erasing: %w", err)
	}
	return erased, nil
}
