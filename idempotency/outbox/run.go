package outbox

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/holdfast-go/holdfast/idempotency/internal/once"
	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/trace"
)

const maxReason = 500

// lease is a message that this relay has, and with it the later messages of its key.
type lease struct {
	first

	attempt []byte
	began   time.Time // before the statement that took it
}

func (l *lease) args(name string, more ...any) []any {
	return append([]any{l.owner, name, []byte(l.key), l.seq}, more...)
}

// take takes a message unless another relay has it.
// The order of its statements is that of internal/test/model/outbox.pml.
func (r *Relay[Tx]) take(ctx context.Context, f first) (*lease, error) {
	l := &lease{first: f, attempt: once.RandomID(), began: time.Now()}
	res, err := r.box.sql.take.Exec(ctx, r.box.access.Pool, l.args(r.box.name, l.attempt, r.options.Lease.Microseconds(), f.starts)...)
	if err != nil || res.Affected != 1 {
		return nil, err
	}
	l.starts++
	return l, nil
}

// drain publishes the messages of a key, from its first one, until none is left or one fails.
func (r *Relay[Tx]) drain(ctx context.Context, k found) (published int, err error) {
	f, err := r.head(ctx, k)
	if f == nil {
		return 0, err
	}
	l, err := r.take(ctx, *f)
	for l != nil && err == nil && ctx.Err() == nil {
		var n int
		l, n, err = r.batch(ctx, l)
		published += n
	}
	if l != nil { // ctx has ended
		err = errors.Join(err, r.end(ctx, r.box.sql.release, l))
	}
	return published, err
}

// batch publishes the message that l has, and some behind it. It returns the lease of the next
// message; nil if the key is done for now. The next message is taken before those before it are noted as
// published: until then they protect it.
func (r *Relay[Tx]) batch(ctx context.Context, l *lease) (next *lease, published int, err error) {
	if l.starts > r.options.MaxAttempts {
		return nil, 0, r.bury(ctx, l, fmt.Errorf("outbox: %d relays began to publish it, and did not end", l.starts-1))
	}
	limit := r.options.Batch
	if l.starts > 1 {
		// The relay before may have died of a later message. Alone, each is blamed for itself.
		limit = 1
	}
	rows, err := r.box.sql.run.Query(ctx, r.box.access.Pool, l.args(r.box.name, limit+1)...)
	if err != nil {
		return l, 0, err
	}
	list, err := core.Collect(rows, scan)
	if err != nil {
		return l, 0, err
	}
	if len(list) == 0 || list[0].Seq != l.seq || list[0].state != waiting {
		return nil, 0, nil // the lease has ended, and another relay was here
	}
	var failed error
	for published < min(limit, len(list)) {
		m := list[published]
		if m.state == dead || published > 0 && time.Since(l.began) > r.options.Lease/3 {
			break
		}
		m.Attempt = max(m.Attempt, 1)
		if failed = r.publishOne(ctx, l, m.Delivery); failed != nil {
			break
		}
		published++
	}
	next, err = r.after(ctx, l, list, published, failed)
	return next, published, err
}

// after notes what became of a batch.
func (r *Relay[Tx]) after(ctx context.Context, l *lease, list []row, published int, failed error) (next *lease, err error) {
	stopped := ctx.Err() != nil
	ctx, cancel := core.Cleanup(ctx)
	defer cancel()
	at := l // the lease of the message that failed, or is next
	if published > 0 {
		at = nil
		if published < len(list) && list[published].state == waiting && !stopped {
			m := list[published]
			if at, err = r.take(ctx, first{l.owner, l.key, m.Seq, m.Attempt}); err != nil {
				return nil, err
			}
		}
		if _, err := r.box.sql.published.Exec(ctx, r.box.access.Pool, l.args(r.box.name, list[published-1].Seq)...); err != nil {
			return nil, err
		}
		switch {
		case stopped: // another relay may have put off what is behind
			_, err := r.box.sql.free.Exec(ctx, r.box.access.Pool, l.args(r.box.name)...)
			return nil, err
		case published == len(list):
			return r.later(ctx, l)
		}
	}
	var forGood *permanent
	switch {
	case at == nil, failed == nil:
		return at, nil
	case stopped:
		return nil, r.end(ctx, r.box.sql.release, at)
	case errors.As(failed, &forGood), at.starts >= r.options.MaxAttempts:
		return nil, r.bury(ctx, at, failed)
	}
	return nil, r.end(ctx, r.box.sql.failed, at, r.backoff(at.starts).Microseconds(), once.Cut(failed.Error(), maxReason))
}

// later takes the message that was written behind the last one of a batch. Another relay may have put
// it off for the length of the lease.
func (r *Relay[Tx]) later(ctx context.Context, l *lease) (*lease, error) {
	rows, err := r.box.sql.run.Query(ctx, r.box.access.Pool, l.args(r.box.name, 1)...)
	if err != nil {
		return nil, err
	}
	list, err := core.Collect(rows, scan)
	if err != nil || len(list) == 0 || list[0].state != waiting || list[0].Attempt > 0 {
		return nil, err
	}
	return r.take(ctx, first{l.owner, l.key, list[0].Seq, 0})
}

// publishOne calls the publisher, whose context ends before the lease does.
func (r *Relay[Tx]) publishOne(ctx context.Context, l *lease, d Delivery) (err error) {
	ctx, span := r.box.access.Trace.Start(ctx, trace.Call{Name: "outbox.publish", Operation: r.box.name, Background: true})
	defer func() { span.End(err, nil) }()
	ctx, cancel := context.WithDeadline(ctx, l.began.Add(r.options.Lease/10*9))
	defer cancel()
	defer func() {
		if p := recover(); p != nil { // on a goroutine of ours it would end the process
			r.options.Logger.ErrorContext(ctx, "outbox: the publisher panicked", "outbox", r.box.name, "message", d.ID, "panic", p, "stack", string(debug.Stack()))
			err = fmt.Errorf("outbox: the publisher panicked: %v\n%s", p, frames(debug.Stack()))
		}
	}()
	return r.publish(ctx, d)
}

// frames returns the part of a stack that begins with the function that panicked.
func frames(stack []byte) []byte {
	if _, after, found := bytes.Cut(stack, []byte("\npanic(")); found {
		_, after, _ = bytes.Cut(after, []byte("\n")) // the line of panic itself
		_, after, _ = bytes.Cut(after, []byte("\n"))
		return after
	}
	return stack
}

func (r *Relay[Tx]) bury(ctx context.Context, l *lease, why error) error {
	err := r.end(ctx, r.box.sql.bury, l, once.Cut(why.Error(), maxReason))
	if err == nil {
		r.box.emitDead(ctx, why)
	}
	return err
}

// end ends a lease. If another relay has the message by now, it decides.
func (r *Relay[Tx]) end(ctx context.Context, s core.Stmt, l *lease, more ...any) error {
	ctx, cancel := core.Cleanup(ctx)
	defer cancel()
	_, err := s.Exec(ctx, r.box.access.Pool, l.args(r.box.name, append([]any{l.attempt}, more...)...)...)
	return err
}
