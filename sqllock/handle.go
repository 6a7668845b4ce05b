package sqllock

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/dialect"
	"github.com/holdfast-go/holdfast/internal/dialect/lockstmt"
	"github.com/holdfast-go/holdfast/internal/lockname"
	"github.com/holdfast-go/holdfast/internal/trace"
	"github.com/holdfast-go/holdfast/sqllock/internal/keeper"
)

// Handle takes a lease up in another process, or in the same one after a restart: see
// [Lease.Handle] and [Locker.Resume]. It is a text of printable ASCII, at most 2 KiB: string(h) is
// what to store or to send.
//
// It is a secret: a program that has it, and can write to the tables, has the lock. Nothing that
// [Locker.Inspect] or [Locker.List] show makes a handle. String and LogValue keep it out of logs.
type Handle string

// String does not show the handle: string(h) is its text.
func (h Handle) String() string { return "sqllock.Handle(secret)" }

// LogValue implements slog.LogValuer as String does.
func (h Handle) LogValue() slog.Value { return slog.StringValue(h.String()) }

// handleVersion is the first part of a Handle.
const handleVersion = "1"

// handleText writes bytes in a Handle.
var handleText = base64.RawURLEncoding

// newHandle returns the handle of an attempt's term, in the tables with the id store.
func newHandle(t lockstmt.TermID, store string) Handle {
	part := func(b []byte) string { return handleText.EncodeToString(b) }
	return Handle(strings.Join([]string{
		handleVersion, part(t.Attempt[:]), strconv.FormatInt(t.Token, 10), part([]byte(store)), part([]byte(t.Name.Owner)), part(t.Name.Row()),
	}, "."))
}

// parse returns what newHandle was given.
func (h Handle) parse() (t lockstmt.TermID, store string, err error) {
	parts := strings.Split(string(h), ".")
	if len(parts) != 6 || parts[0] != handleVersion {
		return t, "", keeper.Invalid("handle", "is not one that Lease.Handle returned")
	}
	var raw [6][]byte
	for _, i := range []int{1, 3, 4, 5} {
		if raw[i], err = handleText.Strict().DecodeString(parts[i]); err != nil {
			return t, "", keeper.Invalid("handle", "is cut off or was changed")
		}
	}
	var ok bool
	t.Name, ok = lockname.Parse(string(raw[4]), raw[5])
	t.Token, err = strconv.ParseInt(parts[2], 10, 64)
	if !ok || err != nil || len(raw[1]) != len(t.Attempt) || t.Name.Kind() != lockname.Lease {
		return t, "", keeper.Invalid("handle", "is cut off or was changed")
	}
	copy(t.Attempt[:], raw[1])
	return t, string(raw[3]), nil
}

// Handle returns the handle with which another process, or this one after a restart, takes the
// lease up: see [Locker.Resume]. The lease goes on until that happens, and may be released
// instead. [Locker.Close] does not release it any more: what is not resumed ends with its TTL.
// Every call returns the same handle.
//
// Errors: the cause of the lease's context, once it has ended; [holdfast.ErrInvalid] for the locks and permits of
// package fairlock, which have no handles.
func (l *Lease) Handle() (Handle, error) {
	kept := l.kept()
	if kept.Term().Kind() != lockname.Lease {
		return "", keeper.Invalid("lease", "is a fair lock or a permit: these have no handles")
	}
	if err := kept.HandOut(); err != nil {
		return "", err
	}
	a := kept.Attempt()
	return newHandle(lockstmt.TermID{Name: a.Name, Attempt: a.ID, Token: l.Token()}, kept.Statements().ID), nil
}

// Wanted returns a channel that is closed once another call waits for the lock: at once for a call of
// this Locker, and within three seconds after a call of another process began to wait, and half a second as a rule. Use it
// for work that can stop early, or be handed over. A call that tries does not wait. The channel does not
// close when the lease ends.
//
// While a lease has asked, one statement each half second, for all such leases of an owner, reads who waits.
// For the locks and permits of package fairlock, calls of this Locker are read there, too.
func (l *Lease) Wanted() <-chan struct{} { return l.kept().Wanted() }

// Resume takes up the lease of a handle, without a gap: the term goes on, with the same token and
// value, and no other caller is granted the lock in between. The returned lease is this Locker's,
// with its holder's name and the TTL of opts. A handle is good for one Resume: of many calls one
// succeeds. The new lease has a new handle.
//
// From then on the term is no longer that of the lease that made the handle. That lease's guards,
// its SetValue and its Release return [ErrLost]. Its context ends with its next renewal, and at the latest
// at the end of its trust window; in this process it ends at once. Until then its work outside of
// guarded transactions may overlap with that of the new holder, so stop it before you give the
// handle away. What knows the token only cannot tell the two apart: the terms of [Locker.Term], and the triggers
// of package fence. Resume waits for transactions that the first holder has guarded.
//
// A holder that dies leaves its lease to its handle until the TTL ends. With
// [Options].ReleaseOnDisconnect a call that waits takes the lock as soon as the holder has ended,
// so resume before that.
//
// Errors: [ErrLost] as a *[LostError] when the term has ended, or its handle was resumed before;
// [ErrOtherStore] when the handle is of other tables; [holdfast.ErrInvalid] when it is no handle, or that of
// another owner; ctx's cause; [ErrClosed]; [holdfast.ErrRetry]; the driver's. After an error the lease is not
// this Locker's; if the answer was lost, the lock is released in the background in case it was.
func (l *Locker[Tx]) Resume(ctx context.Context, handle Handle, opts ...AcquireOptions) (lease *Lease, err error) {
	k := l.leases.k
	ctx, op := k.StartSpan(ctx, trace.LockLease, "resume")
	defer func() { op.End(err, keeper.Acquired) }()
	s, wrong := l.settings(ctx, opts)
	t, store, err := handle.parse()
	if err != nil {
		return nil, err
	}
	if _, err := check(ctx, l.owner, t.Name.Key(), wrong); err != nil {
		return nil, err
	}
	switch {
	case t.Name.Owner != l.owner.ID:
		return nil, keeper.Invalid("handle", fmt.Sprintf("is of the owner %.40q, and the Locker is of %.40q: resume it with For of its owner", t.Name.Owner, l.owner.ID))
	case store != k.Statements.ID:
		return nil, fmt.Errorf("%w: key %.40q, token %d: resume it with a Locker on the tables that granted it", ErrOtherStore, t.Name.Key(), t.Token)
	}
	kept, err := l.leases.resume(ctx, t, s)
	if kept == nil && err == nil {
		err = &LostError{Key: t.Name.Key(), Token: t.Token, Reason: "it had ended when it was to be resumed, or its handle had been used"}
	}
	return (*Lease)(kept), err
}

// resume returns no lease if the term has ended.
func (m *leases) resume(ctx context.Context, t lockstmt.TermID, s keeper.Settings) (*keeper.Lease, error) {
	if !m.depart() {
		return nil, ErrClosed
	}
	defer m.k.Pending.Add(-1)
	a := lockstmt.NewAttempt(t.Name, m.k.NewAttemptID(), s.TTL)
	sent := time.Now() // before the request leaves
	v, err := m.statements.resume(ctx, t, a)
	if err != nil || !v.Won {
		return nil, m.notGranted(ctx, a, v, err)
	}
	lease, err := m.begin(a, s, t.Token, sent, true)
	m.k.Resumed(t.Attempt)
	return lease, err
}

// resume gives a term to the attempt a. If an answer was lost, the row shows the outcome.
// The attempt gets this term or none, however often the statement runs: so a lost answer is no doubt about its release.
func (s *statements) resume(ctx context.Context, t lockstmt.TermID, a keeper.Attempt) (v keeper.AttemptResult, err error) {
	stmt := s.Compile("resume", dialect.ResumeLease)
	err = s.Retry(ctx, s.Ambiguous(&v.Ambiguous, func(q core.Querier) error {
		r, err := stmt.Exec(ctx, q, a.Name.Args(a.ID[:], a.TTL.Microseconds(), s.Holder, t.Attempt[:], t.Token)...)
		v.Won = v.Won || err == nil && r.Affected > 0
		return err
	}))
	if err == nil && !v.Won && v.Ambiguous {
		now, failed := s.HolderOf(ctx, a.Name)
		v.Won, err = failed == nil && bytes.Equal(now.Attempt, a.ID[:]), failed
	}
	return v, err
}
