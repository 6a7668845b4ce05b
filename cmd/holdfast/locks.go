package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"iter"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/doctor"
	"github.com/holdfast-go/holdfast/idempotency/operators"
	"github.com/holdfast-go/holdfast/sqllock"
	"github.com/holdfast-go/holdfast/sqllock/fairlock"
)

func newLocks(f *flags) *cobra.Command {
	cmd := group("locks", "Look at leases, fair locks and semaphores, and take them away",
		newLocksList(f), newLocksQueues(f), newLocksBlocked(f), newLocksRelease(f))
	cmd.SuggestFor = []string{"leases", "lease", "semaphores"}
	return cmd
}

// listFlags select the locks to list.
type listFlags struct {
	prefix, owner string
	all           bool
}

func (l *listFlags) add(cmd *cobra.Command) {
	cmd.Flags().StringVar(&l.prefix, "begin", "", "only keys that begin so")
	cmd.Flags().StringVar(&l.owner, "owner", "", "only the keys of this owner")
	mayBeEmpty(cmd.Flags(), "owner")
}

func (l *listFlags) options(cmd *cobra.Command) sqllock.ListOptions {
	return sqllock.ListOptions{Prefix: l.prefix, Free: l.all, EveryOwner: !cmd.Flags().Changed("owner")}
}

// lease is one lease of locks list, in JSON.
type lease struct {
	Owner string `json:"owner"`
	key
	Held        bool       `json:"held"`
	Holder      string     `json:"holder"`
	Token       int64      `json:"token"`
	Since       time.Time  `json:"since"`
	RemainingMS int64      `json:"remaining_ms"`
	Waiting     int        `json:"waiting"`
	Value       []byte     `json:"value,omitempty"`
	ForcedAt    *time.Time `json:"forced_at,omitempty"`
	ForcedBy    string     `json:"forced_by,omitempty"`
	Reason      string     `json:"forced_reason,omitempty"`
}

func newLocksList(f *flags) *cobra.Command {
	var list listFlags
	cmd := &cobra.Command{
		Use: "list", Short: "List leases: who has them, for how long, and how many wait", Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return f.locker(cmd, func(ctx context.Context, l *sqllock.Locker[*sql.Tx]) error {
				leases, rows := []lease{}, [][]string{}
				for i, err := range l.For(list.owner).List(ctx, list.options(cmd)) {
					if err != nil {
						return err
					}
					leases = append(leases, leaseOf(i))
					holder := text(i.Holder)
					if !i.Held {
						holder = "(free)"
					}
					rows = append(rows, []string{
						text(i.Owner), text(i.Key), holder, strconv.FormatInt(i.Token, 10), moment(i.Since), duration(i.Remaining),
						strconv.Itoa(i.Waiting), text(i.Forced.Reason), text(string(i.Value)), text(i.Forced.By), moment(i.Forced.At),
					})
				}
				none := ""
				if len(rows) == 0 && f.forPeople() {
					var err error
					if none, err = list.leasesElsewhere(ctx, l, list.options(cmd)); err != nil {
						return err
					}
				}
				return f.answer(cmd, leases, f.table(cmd, none, "OWNER KEY HOLDER TOKEN SINCE REMAINING WAITING FORCED | VALUE FORCED_BY FORCED_AT", rows))
			})
		},
	}
	list.add(cmd)
	f.addWatch(cmd)
	cmd.Flags().BoolVar(&list.all, "all", false, "also those that nobody has now")
	return cmd
}

func leaseOf(i sqllock.Info) lease {
	l := lease{
		Owner: i.Owner, key: jsonKey(i.Key), Held: i.Held, Holder: i.Holder, Token: i.Token, Since: i.Since,
		RemainingMS: i.Remaining.Milliseconds(), Waiting: i.Waiting, Value: i.Value,
	}
	if !i.Forced.At.IsZero() {
		l.ForcedAt, l.ForcedBy, l.Reason = &i.Forced.At, i.Forced.By, i.Forced.Reason
	}
	return l
}

// ticket is one ticket of locks queues, in JSON.
type ticket struct {
	Owner string `json:"owner"`
	key
	Kind        string    `json:"kind"`
	Token       int64     `json:"token"`
	Holder      string    `json:"holder"`
	Held        bool      `json:"held"`
	Permits     int       `json:"permits"`
	Capacity    int       `json:"capacity"`
	Since       time.Time `json:"since"`
	RemainingMS int64     `json:"remaining_ms"`
}

func newLocksQueues(f *flags) *cobra.Command {
	var list listFlags
	cmd := &cobra.Command{
		Use: "queues", Short: "List who has fair locks and semaphores, and who waits for them, in order", Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return f.locker(cmd, func(ctx context.Context, l *sqllock.Locker[*sql.Tx]) error {
				tickets, rows := []ticket{}, [][]string{}
				read := func(kind string, queues iter.Seq2[fairlock.Queue, error]) error {
					for queue, err := range queues {
						if err != nil {
							return err
						}
						for _, p := range queue.Tickets {
							tickets = append(tickets, ticketOf(kind, queue, p))
							rows = append(rows, []string{
								text(queue.Owner), text(queue.Key), kind, strconv.FormatInt(p.Token, 10), text(p.Holder), queue.Describe(p), moment(p.Since), duration(p.Remaining),
								strconv.Itoa(p.Permits), strconv.Itoa(ticketOf(kind, queue, p).Capacity),
							})
						}
					}
					return nil
				}
				o := fairlock.ListOptions{Prefix: list.prefix, EveryOwner: list.options(cmd).EveryOwner}
				fair := fairlock.New(l.For(list.owner))
				if err := errors.Join(read("fair", fair.Queues(ctx, o)), read("semaphore", fair.Semaphores(ctx, o))); err != nil {
					return err
				}
				return f.answer(cmd, tickets, f.table(cmd, "no queue has a ticket", "OWNER KEY KIND TOKEN HOLDER STANDS SINCE REMAINING | PERMITS CAPACITY", rows))
			})
		},
	}
	list.add(cmd)
	f.addWatch(cmd)
	return cmd
}

// block is one wait of locks blocked, in JSON.
type block struct {
	Waiter   string `json:"waiter"`
	WaitedMS int64  `json:"waited_ms"`
	Blocker  string `json:"blocker"`
	User     string `json:"user"`
	Client   string `json:"client"`
	State    string `json:"state"`
	OpenMS   int64  `json:"open_ms"`
}

func newLocksBlocked(f *flags) *cobra.Command {
	cmd := &cobra.Command{
		Use: "blocked", Short: "List database sessions that wait for another session's row lock or running operation", Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return f.with(cmd, func(ctx context.Context, db *holdfast.DB[*sql.Tx]) error {
				all, err := doctor.Blocked(ctx, db)
				if err != nil {
					return err
				}
				blocks, rows := []block{}, [][]string{}
				for _, b := range all {
					blocks = append(blocks, block{b.Waiter, b.Waited.Milliseconds(), b.Blocker.Session, b.Blocker.User, b.Blocker.Client, b.Blocker.State, b.Blocker.Open.Milliseconds()})
					rows = append(rows, []string{b.Waiter, duration(b.Waited), b.Blocker.Session, text(b.Blocker.User), text(b.Blocker.Client), text(b.Blocker.State), duration(b.Blocker.Open)})
				}
				return f.answer(cmd, blocks, f.table(cmd, "no session waits for another", "WAITER WAITED BLOCKER USER CLIENT STATE OPEN", rows))
			})
		},
	}
	f.addWatch(cmd)
	return cmd
}

func ticketOf(kind string, queue fairlock.Queue, p fairlock.Ticket) ticket {
	capacity := queue.Permits
	if kind == "fair" {
		capacity = fairlock.MaxPermits
	}
	return ticket{
		Owner: queue.Owner, key: jsonKey(queue.Key), Kind: kind, Token: p.Token, Holder: p.Holder, Held: p.Held, Permits: p.Permits, Capacity: capacity,
		Since: p.Since, RemainingMS: p.Remaining.Milliseconds(),
	}
}

func newLocksRelease(f *flags) *cobra.Command {
	var k keyFlags
	var who whoFlags
	var kind, owner string
	var token int64
	var propose proposeFlags
	var yes bool
	cmd := &cobra.Command{
		Use: "release", Short: "Take a lock away from its holder; its token moves, and who and why is recorded", Args: noArgs,
		Long: "Take a lock away from its holder. The former holder's guarded transactions fail from now on;\n" +
			"what it does outside of them may overlap with the next holder's work until its trust window ends.\n" +
			"So it wants --yes. holdfast locks list and locks queues say who has it, and who waits.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			name, err := k.key()
			if err != nil {
				return err
			}
			if propose.only {
				return (&opsFlags{flags: f}).operators(cmd, func(ctx context.Context, ops *operators.Operators[*sql.Tx]) error {
					lock := operators.Lock{Kind: kind, Owner: owner, Key: name, Token: token}
					p, err := ops.ProposeRelease(ctx, lock, who.Actor, propose.options())
					return proposed(f, cmd, p, err)
				})
			}
			if !yes {
				return usage("%s: if that is right, add --yes", releases)
			}
			return f.locker(cmd, func(ctx context.Context, l *sqllock.Locker[*sql.Tx]) error {
				var had bool
				l = l.For(owner)
				switch {
				case kind == "lease":
					had, err = l.ForceRelease(ctx, name, token, who.Actor)
				case token == 0:
					err = usage("--token is missing: `holdfast locks queues` prints the token of each ticket")
				case kind == "fair":
					had, err = fairlock.New(l).ForceRelease(ctx, name, token, who.Actor)
				case kind == "semaphore":
					var s *fairlock.Semaphore[*sql.Tx]
					if s, err = fairlock.New(l).Semaphore(name, fairlock.MaxPermits); err == nil { // the number of permits does not matter here
						had, err = s.ForceRelease(ctx, token, who.Actor)
					}
				default:
					err = usage("--kind is lease, fair or semaphore")
				}
				if err != nil {
					return err
				}
				return f.released(cmd, had, token)
			})
		},
	}
	k.add(cmd)
	cmd.Flags().StringVar(&owner, "owner", "", "the owner of the key")
	mayBeEmpty(cmd.Flags(), "owner")
	who.add(cmd)
	propose.add(cmd)
	oneOf(cmd, &kind, "kind", "lease", "whose lock", "lease\tone holder", "fair\ttickets in a queue", "semaphore\tpermits")
	cmd.Flags().Int64Var(&token, "token", 0, "whose it has to be, as listed; a lease needs none")
	cmd.Flags().BoolVar(&yes, "yes", false, "yes, take it away")
	return cmd
}

const releases = "this takes the lock away: the holder's guarded transactions are refused from now on, it hears so with its next renewal, " +
	"and until then what it does outside of them may overlap with the next holder's work (holdfast locks list says who it is)"

// released answers a release. One that took nothing away fails: the lock that was meant is another one,
// or its holder's work has ended.
func (f *flags) released(cmd *cobra.Command, had bool, token int64) error {
	said := "released\n"
	if !had {
		said = ""
	}
	if err := f.answer(cmd, struct {
		Released bool `json:"released"`
	}{had}, said); err != nil || had {
		return err
	}
	if token != 0 {
		return fmt.Errorf("nothing was released: nobody has this lock with the token %d", token)
	}
	return errors.New("nothing was released: nobody has this lock (holdfast locks list shows who has which)")
}

// locker opens the locks with by as the holder.
func (f *flags) locker(cmd *cobra.Command, run func(ctx context.Context, l *sqllock.Locker[*sql.Tx]) error) error {
	return f.with(cmd, func(ctx context.Context, db *holdfast.DB[*sql.Tx]) error {
		l, err := sqllock.New(ctx, db)
		if err != nil {
			return err
		}
		return errors.Join(run(ctx, l), l.Close(context.WithoutCancel(ctx)))
	})
}
