package console

import (
	"context"
	"slices"
	"time"

	"github.com/holdfast-go/holdfast/idempotency/staged"
	"github.com/holdfast-go/holdfast/internal/access"
	"github.com/holdfast-go/holdfast/internal/auditlog"
	"github.com/holdfast-go/holdfast/internal/dialect"
)

const (
	// storyRows is how many of the audit's last rows are read: it has no index on what was changed.
	storyRows = 2000
	// sameWithin is how far apart the times of one intervention may be, which is written to two tables in
	// one transaction.
	sameWithin = time.Minute
	// hashSize is the length of an operation's ID before the owner, in bytes. The audit has that part.
	hashSize = 32
)

// intervention is one that is recorded with the operation, in the audit, or in both.
type intervention struct {
	staged.Intervention
	// ConfirmedBy and Session are the audit's.
	ConfirmedBy, Session string

	audited bool
}

// readStory reads who intervened, and what is proposed.
func (c *console[Tx]) readStory(ctx context.Context, p *operationPage) error {
	for _, i := range p.Interventions {
		p.Story = append(p.Story, intervention{Intervention: i})
	}
	a := access.Of(c.db)
	rows, err := auditlog.New(a.Dialect, a.Table).Recent(ctx, a.Pool, p.Owner, p.Operation.ID[:hashSize], storyRows)
	if err != nil && a.Dialect.Classify(err) != dialect.Denied {
		return err
	}
	p.Audited = err == nil
	for _, r := range rows {
		p.audited(&r)
	}
	slices.SortStableFunc(p.Story, func(a, b intervention) int { return a.At.Compare(b.At) })

	for proposed, err := range c.ops.Proposals(ctx) {
		if err != nil {
			return err
		}
		if of := proposed.Operation; of != nil && *of == p.Ref {
			p.Proposed = append(p.Proposed, proposalRowOf(&proposed))
		}
	}
	return nil
}

// audited adds a row of the audit to the story, or what it knows besides to the same intervention.
func (p *operationPage) audited(r *auditlog.Row) {
	one := intervention{staged.Intervention{Action: r.Action, By: r.Actor, Reason: r.Reason, At: auditlog.Time(r.At)}, r.Confirmed, r.Session, true}
	same := slices.IndexFunc(p.Story, func(i intervention) bool {
		return !i.audited && i.Action == one.Action && i.By == one.By && i.Reason == one.Reason && i.At.Sub(one.At).Abs() < sameWithin
	})
	if same < 0 {
		p.Story = append(p.Story, one)
		return
	}
	one.At = p.Story[same].At
	p.Story[same] = one
}
