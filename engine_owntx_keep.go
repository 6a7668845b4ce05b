package holdfast

import (
	"context"
	"fmt"

	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/dialect"
)

// keep applies the fence's setting and leaves it on the connection for Holdfast's next transaction. It returns
// false if this connection cannot keep settings.
func (s *ownTx[Tx]) keep(ctx context.Context, opts core.TxOptions) (bool, error) {
	fence := &s.d.dialect.Fence
	k, can := s.conn.(core.Keeper)
	if !can || fence.Kept.Before == nil {
		return false, nil
	}
	kept := core.Kept{Setting: fence.Kept.Before(opts.LockTimeout), Implicit: fence.Implicit, Lost: s.d.lost, Survives: fence.Survives, Ends: fence.Ends}
	if opts.Sealed {
		kept.Sealed, kept.Lost, kept.Refuse = true, s.d.lostSealed, s.d.refuseEnd
	}
	return k.Keep(ctx, kept, func(q core.Querier) (string, error) {
		undo, err := fence.Kept.Change(ctx, explained{q, s.d}, opts.LockTimeout)
		return undo.Text, err
	})
}

func (d *DB[Tx]) lost(err error) error {
	if d.dialect.Classify(err) == dialect.Retry {
		return &TxLostError{Err: err}
	}
	return nil
}

func (d *DB[Tx]) lostSealed(err error) error {
	if d.dialect.Fence.Survives(err) {
		return nil
	}
	return &TxLostError{Err: err}
}

// refuseEnd returns the error for a statement that may end a sealed transaction.
func (d *DB[Tx]) refuseEnd(query string) error {
	if !d.dialect.Fence.Ends(query) {
		return nil
	}
	verb, _ := core.Verb(query)
	return &UnsupportedError{
		Engine: d.product, Check: "statement", What: fmt.Sprintf("%q in a function of Do with ClaimLast", verb),
		Problem: "it may end the transaction, and an effect would stand without its record (G4); it was not sent",
		Remedy:  "use a store without ClaimLast, or leave the statement out",
	}
}

// sealed returns an error if transactions of this pool cannot be sealed.
func (d *DB[Tx]) sealed(ctx context.Context) error {
	if d.dialect.Fence.Survives == nil || d.dialect.Fence.Kept.Before == nil || d.dialect.Capabilities.MultiPrimary {
		return d.unsealed()
	}
	conn, err := d.connect(ctx, false)
	if err != nil {
		return err
	}
	defer conn.Release(false)
	if k, can := conn.(core.Keeper); !can || !k.Keeps() {
		return d.unsealed()
	}
	return nil
}

func (d *DB[Tx]) unsealed() error {
	return &UnsupportedError{
		Engine: d.product, Check: "connector", What: "ClaimLast",
		Problem: "it needs a pool with holdfastsql.Connector, on MySQL or MariaDB with one primary: otherwise nothing sees that the server has ended a transaction, and an effect would stand without its record (G4)",
		Remedy:  "open the pool with sql.OpenDB(holdfastsql.Connector(connector)), or leave ClaimLast out",
	}
}
