package keeper

import (
	"context"
	"database/sql"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/auditlog"
	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/lockname"
)

// Forced is the state of a term in the audit, before and after a ForceRelease.
type Forced struct {
	Token  int64  `json:"token"`
	Holder string `json:"holder,omitempty"`
	Held   bool   `json:"held"`
}

// Force runs f in a transaction and appends what it did to the audit, unless f returns nothing. f may run
// more than once.
func (s *Statements) Force(ctx context.Context, name lockname.Name, who holdfast.Actor, f func(ctx context.Context, q core.Querier) (before, after *Forced, err error)) (had bool, err error) {
	err = s.Again(ctx, func() error {
		had = false
		return s.InTx(ctx, core.TxOptions{Isolation: sql.LevelReadCommitted, LockTimeout: core.DefaultLockTimeout}, func(ctx context.Context, q core.Querier) error {
			before, after, err := f(ctx, q)
			if had = err == nil && before != nil; !had {
				return err
			}
			e := auditlog.Entry{
				Actor: who.By, Action: "force release", Reason: who.Reason, Kind: name.Kind().String(), Owner: name.Owner,
				Subject: auditlog.Subject(name.Kind().String(), name.Owner, name.Key()), Before: before,
			}
			if after != nil {
				e.After = after
			}
			return s.audit.Append(ctx, q, e)
		})
	})
	return had && err == nil, err
}
