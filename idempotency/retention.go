package idempotency

import (
	"context"
	"fmt"
	"slices"
	"strconv"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/dialect"
)

const (
	erasePage  = 500 // rows, of whomever, that one read goes through
	eraseBatch = 100 // records in a transaction
)

// Erasure says whose records are to be erased.
type Erasure struct {
	// Tenant as in Op: required, unless the store is SingleTenant.
	Tenant string
	// Name is the operation's. Default: all of the tenant's operations.
	Name string
	// Keys erases all that may say who or what it was about: beside the
	// results, the text of the keys, the business ids and the fingerprints.
	// Tenant, operation, the hashes of the keys and the times stay.
	Keys bool
}

// EraseScope erases the results, and the reasons of rejections, of a tenant or of
// one of its operations in this store's namespace. That they were done stays:
// duplicates get ErrExpired for as long as the key is kept, and nothing is
// executed again. It returns how many records it erased; on an error, before that.
//
// It reads the table of records once, some hundred rows at a time, and commits a
// hundred records at a time: an erasure that was broken off is called again. What
// the tenant does meanwhile may be missed, so end that first. A claim without a
// result ([UnfinishedError]), and a staged operation that has not ended, is left
// for whoever resolves it. Backups, and the
// caller's own tables, are the caller's.
//
// Errors: [holdfast.ErrInvalid], [holdfast.ErrSchema], [holdfast.ErrRetry],
// [holdfast.ErrUnknown] (call it again), ctx's, the driver's.
func (s *Store[Tx]) EraseScope(ctx context.Context, e Erasure) (erased int64, err error) {
	name := e.Name
	if name == "" {
		name = "any"
	}
	if _, err := s.scope(Op{Tenant: e.Tenant, Name: name, Key: "any"}); err != nil {
		return 0, err
	}
	for after := []byte{}; after != nil; {
		var keys [][]byte
		err := s.access.OnConn(ctx, "", func(q core.Querier) (err error) {
			keys, after, err = s.eraseFind(ctx, q, e, after)
			return err
		})
		if err != nil {
			return erased, s.explain(err)
		}
		for batch := range slices.Chunk(keys, eraseBatch) {
			n, err := s.eraseSome(ctx, e, batch)
			erased += n
			if err != nil {
				return erased, s.explain(err)
			}
		}
	}
	n, err := s.eraseStaged(ctx, e)
	return erased + n, err
}

// eraseStaged erases staged operations, each in a transaction.
func (s *Store[Tx]) eraseStaged(ctx context.Context, e Erasure) (erased int64, err error) {
	ops := s.Operators()
	f := Filter{States: []State{Succeeded, Rejected}, Tenant: e.Tenant, Name: e.Name, Limit: erasePage}
	if e.Keys {
		f.States = append(f.States, ErasedSucceeded, ErasedRejected)
	}
	for {
		page, err := ops.List(ctx, f)
		if err != nil {
			return erased, err
		}
		for i := range page {
			key, did := page[i].ID, false
			err := ops.rows.write(ctx, func(ctx context.Context, _ Tx, q core.Querier) (err error) {
				if did, err = ops.rows.eraseOne(ctx, q, key); err != nil || !e.Keys {
					return err
				}
				r, err := ops.rows.sql.eraseKey.Exec(ctx, q, key)
				did = did || r.Affected > 0
				return err
			})
			if err != nil {
				return erased, err
			}
			if did {
				erased++
			}
		}
		if len(page) < f.Limit {
			return erased, nil
		}
		f.After = page[len(page)-1].ID
	}
}

// eraseDue are the records that have something to erase.
func eraseDue(e Erasure) string {
	if e.Keys {
		return `state IN (2, 3, 4, 5) AND (state IN (2, 3) OR length(op_key) > 0)`
	}
	return `state IN (2, 3)`
}

// eraseFind reads one page, in the order of the hashes; next is nil at the end.
// There is no index on the tenant: every claim would pay for it.
func (s *Store[Tx]) eraseFind(ctx context.Context, q core.Querier, e Erasure, after []byte) (keys [][]byte, next []byte, err error) {
	table := s.access.Table("records")
	page := s.dialect().Compile("erase.page", `SELECT key_hash FROM `+table+` WHERE key_hash > $1 ORDER BY key_hash LIMIT 1 OFFSET $2`)
	more, err := page.QueryRow(ctx, q, []any{&next}, after, erasePage-1)
	if err != nil {
		return nil, nil, err
	}
	text := `SELECT key_hash FROM ` + table + ` WHERE key_hash > $1 AND namespace = $2 AND tenant = $3 AND ` + eraseDue(e)
	args := []any{after, s.options.Namespace, e.Tenant}
	if e.Name != "" {
		args = append(args, e.Name)
		text += ` AND operation = $` + strconv.Itoa(len(args))
	}
	if more {
		args = append(args, next)
		text += ` AND key_hash <= $` + strconv.Itoa(len(args))
	} else {
		next = nil
	}
	rows, err := s.dialect().Compile("erase.find", text+` ORDER BY key_hash`).Query(ctx, q, args...)
	if err != nil {
		return nil, nil, err
	}
	defer func() {
		if e := rows.Close(); err == nil {
			err = e
		}
	}()
	for rows.Next() {
		var key []byte
		if err := rows.Scan(&key); err != nil {
			return nil, nil, err
		}
		keys = append(keys, key)
	}
	return keys, next, rows.Err()
}

// eraseSome is one transaction.
func (s *Store[Tx]) eraseSome(ctx context.Context, e Erasure, keys [][]byte) (erased int64, err error) {
	set := dialect.Tombstone
	if e.Keys {
		// The empty value of the column's own type, which each engine writes differently.
		set += `, op_key = substr(op_key, 1, 0), business_id = NULL, fingerprint = NULL`
	}
	erase := s.dialect().Compile("erase.write", `UPDATE `+s.access.Table("records")+` SET `+set+
		` WHERE key_hash IN (`+dialect.Params(len(keys))+`) AND `+eraseDue(e))
	args := make([]any, len(keys))
	for i, k := range keys {
		args[i] = k
	}
	opts := core.TxOptions{Isolation: s.dialect().Sweep.Isolation, LockTimeout: s.options.LockTimeout}
	pause := core.NewBackoff()
	for n := 1; ; n++ {
		err := s.access.Attempt(ctx, opts, func(ctx context.Context, _ Tx, q core.Querier) error {
			r, err := erase.Exec(ctx, q, args...)
			erased = r.Affected
			return err
		})
		switch {
		case err == nil:
			return erased, nil
		case ctx.Err() != nil || !s.db.Retryable(err):
			return 0, fmt.Errorf("idempotency: erasing: %w", err)
		case n == s.options.Attempts:
			return 0, &holdfast.RetryError{Attempts: n, Err: err}
		}
		if err := pause.Sleep(ctx); err != nil {
			return 0, err
		}
	}
}
