package operators

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/idempotency/internal/inside"
	"github.com/holdfast-go/holdfast/idempotency/internal/once"
	"github.com/holdfast-go/holdfast/idempotency/staged"
	"github.com/holdfast-go/holdfast/internal/access"
	"github.com/holdfast-go/holdfast/internal/auditlog"
	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/errcode"
	"github.com/holdfast-go/holdfast/internal/options"
	"github.com/holdfast-go/holdfast/sqllock"
	"github.com/holdfast-go/holdfast/sqllock/fairlock"
)

// Defaults and bounds of ProposeOptions.
const (
	defaultProposalTTL = 24 * time.Hour
	maxProposalTTL     = 30 * 24 * time.Hour

	// ProposalIDSize is the length of a proposal's ID before the owner, in bytes.
	ProposalIDSize = 16
)

// Errors of Confirm.
var (
	// ErrNoProposal means that there is no such proposal in this namespace: it was confirmed, has expired,
	// or never was.
	ErrNoProposal = errcode.New("no-proposal", "operators: there is no such proposal, or no longer")
	// ErrSamePerson means that the person who confirms is the one who proposed.
	ErrSamePerson = errcode.New("same-person", "operators: another person must confirm: this one has proposed it")
	// ErrNotHeld means that the lock of the proposal is held no longer, or with another token.
	ErrNotHeld = errcode.New("lock-not-held", "operators: nobody has that lock, or not with that token")
)

// ProposeOptions configures a proposal.
type ProposeOptions struct {
	// TTL is how long the proposal can be confirmed. Default: a day; 50 ms to 30 days.
	TTL time.Duration
}

// Lock names a lock to take away.
type Lock struct {
	// Kind is "lease", "fair" or "semaphore".
	Kind, Owner, Key string
	// Token is the holder's. It is required: another person must confirm what was seen.
	Token int64
}

// Proposal is an intervention that one person has proposed.
type Proposal struct {
	// ID is for Confirm: ProposalIDSize bytes, and the owner.
	ID []byte
	// Action is what Confirm does, as the audit names it, and Operation or Lock what it does it to.
	Action    string
	Operation *staged.Ref
	Lock      *Lock
	// Resolution is what Confirm resolves an Operation with. A result in it is JSON. It has no result and no
	// rejection if Unreadable is set.
	Resolution *Resolution
	// Unreadable is why the store cannot decode the result or the rejection. Confirm fails with it.
	Unreadable error
	// Actor has proposed it. Session is the database's name of the session's user.
	holdfast.Actor

	Session               string
	ProposedAt, ExpiresAt time.Time
}

// payload is what is stored of a proposal, in JSON. Keys are bytes, because not all are UTF-8; that of an
// operation is in its stored form. Value is a proposedValue as the store's codec encodes it, and Form says how.
type payload struct {
	Kind, Owner, Name string             `json:",omitempty"`
	Key               []byte             `json:",omitempty"`
	Token             int64              `json:",omitempty"`
	Step              staged.StepOutcome `json:",omitempty"`
	Resume, Free      bool               `json:",omitempty"`
	Succeed, Reject   bool               `json:",omitempty"`
	Form              string             `json:",omitempty"`
	Value             []byte             `json:",omitempty"`
}

// proposedValue is what a proposal says of customers.
type proposedValue struct {
	Result    json.RawMessage        `json:",omitempty"`
	Rejection *idempotency.Rejection `json:",omitempty"`
}

// sealedFor returns where the value of a proposal is stored.
func sealedFor(id []byte) once.Place {
	return once.Place{ValueKind: once.Proposed, Name: hex.EncodeToString(id)}
}

// Propose stores a resolution until another person confirms it with Confirm; then Resolve runs with the
// actor of the proposal, if the operation has not gone on since it was proposed. The row has the key, and the result if there is one, both as the operation's row has
// them, until it is confirmed or, once it has expired, until the owner's next proposal. The audit records both persons.
//
// Errors: [holdfast.ErrInvalid], [staged.ErrNotFound], [staged.ErrState] if the operation is not as Resolution.Token says,
// [idempotency.ErrUnknown], errors of the driver.
func (o *Operators[Tx]) Propose(ctx context.Context, ref staged.Ref, r Resolution, who holdfast.Actor, opts ...ProposeOptions) (*Proposal, error) {
	if err := once.FirstOf(r.check(), once.FirstOf(check(who), o.staged.CheckRef(ref))); err != nil {
		return nil, err
	}
	key := o.store.Options().HashKeys.Key(ref.Key)
	p := payload{Owner: ref.Owner, Name: ref.Name, Key: []byte(key), Step: r.Step, Resume: r.Resume, Free: r.Free, Succeed: r.Succeed, Reject: r.Reject}
	v, has := proposedValue{Rejection: r.Rejection}, r.Rejection != nil
	if result := map[bool]any{true: r.Result, false: r.StepResult}[r.Succeed]; r.Succeed || r.Step == staged.StepDone {
		var err error
		if v.Result, err = once.Marshal(result); err != nil {
			return nil, once.Invalid("Resolution", "has a result without a form in JSON: "+err.Error())
		}
		has = true
	}
	op, err := o.Show(ctx, ref)
	switch {
	case err != nil:
		return nil, err
	case r.moved(op.Token):
		return nil, &staged.StateError{Action: "propose: " + r.action(), Step: op.Step, State: op.State, Hint: movedHint}
	}
	p.Token = op.Token
	of, id := o.staged.ID(ref), once.RandomID()
	if has {
		var err error
		if p.Form, p.Value, err = inside.Of(o.store).Encode(of.Hash, sealedFor(id), v); err != nil {
			return nil, err
		}
	}
	return o.propose(ctx, id, p, r.action(), "operation", of.Hash[:], who, opts)
}

// ProposeRelease is Propose for a lock that Confirm then takes away by force.
//
// Errors: [holdfast.ErrInvalid], [idempotency.ErrUnknown], errors of the driver.
func (o *Operators[Tx]) ProposeRelease(ctx context.Context, l Lock, who holdfast.Actor, opts ...ProposeOptions) (*Proposal, error) {
	kind, known := map[string]string{"lease": "lease", "fair": "fair lock", "semaphore": "semaphore"}[l.Kind]
	switch {
	case !known:
		return nil, once.Invalid("Lock.Kind", "must be lease, fair or semaphore")
	case l.Key == "" || l.Token == 0:
		return nil, once.Invalid("Lock", "names no key, or no token")
	}
	if err := once.FirstOf(check(who), core.CheckName("Lock.Owner", l.Owner, true)); err != nil {
		return nil, err
	}
	p := payload{Kind: l.Kind, Owner: l.Owner, Key: []byte(l.Key), Token: l.Token}
	return o.propose(ctx, once.RandomID(), p, "force release", kind, auditlog.Subject(kind, l.Owner, l.Key), who, opts)
}

func (o *Operators[Tx]) propose(ctx context.Context, id []byte, p payload, action, kind string, subject []byte, who holdfast.Actor, opts []ProposeOptions) (*Proposal, error) {
	opt, err := options.One(opts)
	if err != nil {
		return nil, err
	}
	if opt.TTL == 0 {
		opt.TTL = defaultProposalTTL
	}
	if err := options.Life.Or("the default").UpTo(maxProposalTTL).Check("ProposeOptions.TTL", opt.TTL); err != nil {
		return nil, err
	}
	stored, err := json.Marshal(p)
	if err != nil {
		return nil, err
	}
	audit := auditlog.New(o.ledger.Access.Dialect, o.ledger.Access.Table)
	full := once.ID{Owner: p.Owner}
	namespace := o.store.Options().Namespace
	err = o.ledger.Write(ctx, func(ctx context.Context, _ Tx, q core.Querier) error {
		if found, err := o.proposal(ctx, q, p.Owner, id); err != nil || found != nil {
			return err // it is an earlier attempt's, whose commit was ambiguous
		}
		if _, err := o.sql.expire.Exec(ctx, q, p.Owner); err != nil {
			return err
		}
		_, err := o.sql.propose.Exec(ctx, q, full.Owner, id, namespace, action, stored, who.By, who.Reason, opt.TTL.Microseconds())
		if err != nil {
			return err
		}
		return audit.Append(ctx, q, auditlog.Entry{
			Actor: who.By, Action: "propose: " + action, Reason: who.Reason, Kind: kind, Owner: p.Owner, Namespace: namespace, Subject: subject,
		})
	})
	if err != nil {
		return nil, err
	}
	return o.proposal(ctx, o.ledger.Access.Pool, p.Owner, id)
}

// Proposals iterates over the proposals of the store's namespace that can be confirmed, the oldest first. It
// reads 500 at a time and is no snapshot. It ends at the first error.
//
// Errors: [holdfast.ErrSchema], errors of the driver.
func (o *Operators[Tx]) Proposals(ctx context.Context) iter.Seq2[Proposal, error] {
	return core.Pages(nil, Proposal{ID: make([]byte, ProposalIDSize)}, listPage, func(after Proposal) ([]Proposal, error) {
		rows, err := o.sql.proposals.Query(ctx, o.ledger.Access.Pool, o.store.Options().Namespace, after.ProposedAt.UnixMicro(), after.ID[:ProposalIDSize], listPage)
		if err != nil {
			return nil, o.ledger.Explain(err)
		}
		return core.Collect(rows, o.scanProposal)
	})
}

// proposal reads a proposal; nil if it is gone, or has expired.
func (o *Operators[Tx]) proposal(ctx context.Context, q core.Querier, owner string, id []byte) (*Proposal, error) {
	rows, err := o.sql.proposal.Query(ctx, q, owner, id, o.store.Options().Namespace)
	if err != nil {
		return nil, o.ledger.Explain(err)
	}
	list, err := core.Collect(rows, o.scanProposal)
	if err != nil || len(list) == 0 {
		return nil, err
	}
	return &list[0], nil
}

func (o *Operators[Tx]) scanProposal(row core.Row) (out Proposal, err error) {
	var owner string
	var id, stored []byte
	var at, end int64
	if err := row.Scan(&owner, &id, &out.Action, &stored, &out.By, &out.Session, &out.Reason, &at, &end); err != nil {
		return out, err
	}
	var p payload
	if err := json.Unmarshal(stored, &p); err != nil {
		return out, fmt.Errorf("operators: a proposal cannot be read: %w", err)
	}
	out.ID = slices.Concat(id, []byte(owner))
	out.ProposedAt, out.ExpiresAt = auditlog.Time(at), auditlog.Time(end)
	if p.Kind != "" {
		out.Lock = &Lock{p.Kind, p.Owner, string(p.Key), p.Token}
		return out, nil
	}
	out.Operation = &staged.Ref{Owner: p.Owner, Name: p.Name, Key: string(p.Key)}
	out.Resolution = &Resolution{Token: p.Token, Step: p.Step, Resume: p.Resume, Free: p.Free, Succeed: p.Succeed, Reject: p.Reject}
	if p.Form == "" {
		return out, nil
	}
	var v proposedValue
	out.Unreadable = inside.Of(o.store).Decode(o.staged.ID(*out.Operation).Hash, sealedFor(id), p.Form, p.Value, &v)
	out.Resolution.Rejection = v.Rejection
	if p.Succeed {
		out.Resolution.Result = v.Result
	} else if p.Step == staged.StepDone {
		out.Resolution.StepResult = v.Result
	}
	return out, nil
}

// ConfirmOptions configures Confirm.
type ConfirmOptions struct {
	// OtherAccount also wants another account of the database than the proposer's. Set it where By is not
	// authenticated. SQLite has no accounts, so there Confirm then returns ErrSamePerson.
	OtherAccount bool
}

// SamePerson reports whether two names are one person's for Confirm: names that differ in case or outer blanks
// only are equal.
func SamePerson(a, b string) bool {
	return strings.EqualFold(strings.TrimSpace(a), strings.TrimSpace(b))
}

// Confirm does what a proposal says, in one transaction that also deletes the proposal and appends to the
// audit. by is another person than the proposer, by SamePerson.
// If what was proposed is not possible any more, the proposal stays until it expires.
//
// Errors: [ErrNoProposal], [ErrSamePerson], [ErrNotHeld], *[idempotency.MissingCodecError] if the store lacks the
// codec of the proposal, those of [Operators.Resolve] and of
// [sqllock.Locker.ForceRelease].
func (o *Operators[Tx]) Confirm(ctx context.Context, id []byte, by string, opts ...ConfirmOptions) error {
	opt, err := options.One(opts)
	if err != nil {
		return err
	}
	if err := check(holdfast.Actor{By: by, Reason: "confirmed"}); err != nil {
		return err
	}
	if len(id) < ProposalIDSize || core.CheckName("id", string(id[ProposalIDSize:]), true) != nil {
		return ErrNoProposal
	}
	owner, id := string(id[ProposalIDSize:]), id[:ProposalIDSize]
	p, err := o.proposal(ctx, o.ledger.Access.Pool, owner, id)
	switch {
	case err != nil:
		return err
	case p == nil:
		return ErrNoProposal
	case SamePerson(p.By, by):
		return ErrSamePerson
	case p.Unreadable != nil:
		return p.Unreadable
	}
	ctx = auditlog.Confirming(ctx, &auditlog.Confirmation{By: by, Check: func(ctx context.Context, q core.Querier, session string) error {
		if opt.OtherAccount && session == p.Session {
			return ErrSamePerson
		}
		r, err := o.sql.take.Exec(ctx, q, owner, id)
		if err == nil && r.Affected == 0 {
			err = ErrNoProposal // another one has confirmed it since, or it has just expired
		}
		return err
	}})
	if p.Lock != nil {
		return o.release(ctx, *p.Lock, p.Actor)
	}
	return o.Resolve(ctx, *p.Operation, *p.Resolution, p.Actor)
}

// release takes a lock away in the name of who.
func (o *Operators[Tx]) release(ctx context.Context, lock Lock, who holdfast.Actor) (err error) {
	all, err := sqllock.New(ctx, access.WithOwners(o.db, core.AnyOwner))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, all.Close(context.WithoutCancel(ctx))) }()
	l := all.For(lock.Owner)
	var had bool
	switch lock.Kind {
	case "lease":
		had, err = l.ForceRelease(ctx, lock.Key, lock.Token, who)
	case "fair":
		had, err = fairlock.New(l).ForceRelease(ctx, lock.Key, lock.Token, who)
	default:
		var s *fairlock.Semaphore[Tx]
		if s, err = fairlock.New(l).Semaphore(lock.Key, fairlock.MaxPermits); err == nil { // the number of permits does not matter here
			had, err = s.ForceRelease(ctx, lock.Token, who)
		}
	}
	if err == nil && !had {
		err = ErrNotHeld
	}
	return err
}
