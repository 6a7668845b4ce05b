package limits

import (
	"context"
	"strings"

	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/dialect"
	"github.com/holdfast-go/holdfast/internal/trace"
)

// expireBatch bounds the reservations that one statement closes.
const expireBatch = 128

// Expire closes the reservations of a limit whose time has passed, each batch in its own transaction,
// and returns how many it closed. No promise depends on it: Reserve and Take close what is in their way.
// It makes the limit's row say what is still reserved, for programs that read the row by themselves.
//
// Errors: [ErrNotFound], [holdfast.ErrInvalid], [holdfast.ErrRetry], [holdfast.ErrUnknown]; the error of
// ctx; the driver's.
func (l *Limits[Tx]) Expire(ctx context.Context, key string) (closed int, err error) {
	ctx, span := l.access.Trace.Start(ctx, trace.Call{Name: "limits.expire", Operation: l.name})
	defer func() {
		span.Rows = int64(closed)
		span.End(err, outcome)
	}()
	if err := l.checkReserves(); err != nil {
		return 0, err
	}
	at, err := l.place("key", key)
	if err != nil {
		return 0, err
	}
	for {
		n, err := inTx(ctx, l, func(ctx context.Context, q core.Querier) (int, error) {
			s, err := l.lock(ctx, q, at)
			if err != nil {
				return 0, err
			}
			return l.expireSome(ctx, q, at, &s)
		})
		closed += n
		if err != nil || n == 0 {
			return closed, err
		}
	}
}

// expireSome closes a batch of the reservations whose time has passed, the oldest first, and subtracts
// them from s. The row is locked.
// The order of the statements is that of internal/test/model/limits.pml.
func (l *Limits[Tx]) expireSome(ctx context.Context, q core.Querier, at place, s *status) (n int, err error) {
	if s.reserved == 0 {
		return 0, nil
	}
	rows, err := l.sql.due.Query(ctx, q, l.own(at.bytes(), expireBatch)...)
	if err != nil {
		return 0, err
	}
	var sum int64
	ids, err := core.Collect(rows, func(row core.Row) (id []byte, err error) {
		var amount int64
		err = row.Scan(&id, &amount)
		sum += amount
		return id, err
	})
	if err != nil || len(ids) == 0 {
		return 0, err
	}
	if err := l.expire(ctx, q, ids); err != nil {
		return 0, err
	}
	s.reserved -= sum
	return len(ids), l.change(ctx, q, at, -sum, 0)
}

// expireOne closes a reservation whose time has passed, and returns that it has expired.
func (l *Limits[Tx]) expireOne(ctx context.Context, q core.Querier, at place, e Entry) error {
	if err := l.expire(ctx, q, [][]byte{[]byte(e.ID)}); err != nil {
		return err
	}
	if err := l.change(ctx, q, at, -e.Amount, 0); err != nil {
		return err
	}
	e.State = Expired
	return &EndedError{Entry: e}
}

// expire closes reservations that are still open.
func (l *Limits[Tx]) expire(ctx context.Context, q core.Querier, ids [][]byte) error {
	done, err := l.withIDs("expire", l.sql.expire, 3, ids).Exec(ctx, q, withIDs(l.own(l.keep), ids)...)
	if err == nil && done.Affected != int64(len(ids)) {
		err = errCounters
	}
	return err
}

// withIDs compiles a statement with a list of ids, whose parameters begin with from. The lengths are
// powers of two.
func (l *Limits[Tx]) withIDs(name, text string, from int, ids [][]byte) core.Stmt {
	list := dialect.Tuple(from, core.PowerOfTwo(len(ids)))
	return l.access.Dialect.Compile("limits."+name, strings.Replace(text, "({ids})", list, 1))
}

func withIDs(args []any, ids [][]byte) []any {
	for _, id := range core.Pad(ids) {
		args = append(args, id)
	}
	return args
}
