package idempotency

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/idempotency/internal/once"
	"github.com/holdfast-go/holdfast/internal/access"
	"github.com/holdfast-go/holdfast/internal/blockers"
	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/dialect"
	"github.com/holdfast-go/holdfast/internal/options"
)

// Defaults of Options.
const (
	DefaultWait      = 10 * time.Second
	defaultMaxResult = 1 << 20

	defaultRejectionTTL = 30 * 24 * time.Hour
	defaultMaxNew       = 100_000
)

// DefaultNamespace is the default of Options.Namespace.
const DefaultNamespace = "default"

// Options configures a Store. The zero value of each field is its default.
type Options struct {
	// Namespace separates applications that share the tables; at most 128 bytes. Default:
	// "default".
	Namespace string
	// Wait bounds how long a call waits for another process that holds its key, and how long it
	// resolves an unknown commit by claiming again (at most Attempts times). Default: 10 s; 1 ms to 366 days.
	Wait time.Duration
	// ResultTTL is how long a result is kept, and KeyTTL how long its key is kept. Both count from
	// the end of the operation, by the database's clock, exact to the microsecond. After ResultTTL
	// duplicates get ErrExpired, with the result's business id. After KeyTTL the operation may be
	// executed again. Default: [holdfast.Forever]; that of ResultTTL is KeyTTL. KeyTTL must not be shorter than
	// ResultTTL. Both: 50 ms to 100 years.
	ResultTTL, KeyTTL time.Duration
	// RejectionTTL is how long Do and DoTx keep a rejection with its key, from the end of the
	// operation. Any client can cause rejections, and nothing was executed for them.
	// After RejectionTTL a call with the key is a first attempt and may execute, so it must be longer than
	// any delayed duplicate may be on its way (queues of dead letters too). A rejection's result is not
	// kept longer than ResultTTL. Default: KeyTTL, if that is set, to Forever too; else 30 days. [holdfast.Forever] keeps
	// rejections and their keys, so that the table grows with each refused request. 50 ms to 100 years. Staged operations
	// do not use it: a rejected one may have had effects outside.
	RejectionTTL time.Duration
	// MaxNew bounds how many new keys an owner may use in an hour, in this store: that many at once,
	// and then as many as the hour gives back evenly. A call beyond it fails with ErrTooMany and has no
	// effect; replays are never refused. The counter is in memory, and costs no statement. It is exact
	// in one process, so that n processes admit n times as many, and starts anew with the process.
	// Staged operations count, too; business rows do not. Keys whose call stored nothing do not count,
	// except those of a transaction of the caller's (DoTx, StartTx). Default: 100,000, which are about
	// 80 MB of records; [holdfast.Unlimited] if the DB is SingleOwner.
	MaxNew int
	// MaxRecords bounds how many records and staged operations an owner may have, in all namespaces. A call
	// with a new key beyond it fails with ErrTooMany, until the reaper or a person has cleared some. A process
	// counts them with one statement at the first new key of an owner, which reads at most MaxRecords
	// entries of each primary key, and then again after each hundredth of MaxRecords new keys. So an owner may
	// exceed it by a hundredth for each process, and by the calls that run at the same time. Keys that are
	// kept for ever count for ever: choose it for owners whose KeyTTL ends. Default: [holdfast.Unlimited].
	MaxRecords int
	// MaxResult bounds a stored result in bytes. Default: 1 MiB; 1 KiB to 15 MiB.
	MaxResult int
	// Codec encodes results and rejections, for example to encrypt them. Default: none; they are
	// stored as JSON, and slices of bytes unchanged. FormerCodecs decode results that other
	// versions of the program stored: earlier versions, or the next version while both run.
	Codec        Codec
	FormerCodecs []Codec
	// HashKeys keeps keys as keyed hashes only, for keys that hold personal data, and so fingerprints
	// and what Similar compares, which can be guessed from plain hashes. Calls name operations by
	// their keys as before. Operators and errors show the hashes, and search by a part of a key finds
	// nothing. The secret must not change while keys matter: under another one, an operation that was
	// executed is not found and may be executed again. All programs that share operations need it,
	// and so do the console and Operators, unless they name operations by the hashes. Default: nil,
	// keys in clear.
	HashKeys *KeyHasher
	// Isolation, LockTimeout and Attempts configure the transaction; see holdfast.TxOptions.
	// Attempts also bounds unknown commits.
	Isolation   sql.IsolationLevel
	LockTimeout time.Duration
	Attempts    int

	owners core.Owners // of the DB
}

func (o *Options) withDefaults() error {
	if o.Namespace == "" {
		o.Namespace = DefaultNamespace
	}
	if o.Wait == 0 {
		o.Wait = DefaultWait
	}
	if o.MaxResult == 0 {
		o.MaxResult = defaultMaxResult
	}
	if o.Attempts == 0 {
		o.Attempts = core.DefaultAttempts
	}
	if o.ResultTTL == holdfast.Forever && o.KeyTTL > 0 {
		return once.Invalid("Options.KeyTTL", "is shorter than ResultTTL: a result cannot outlive its key")
	}
	if o.RejectionTTL == 0 {
		o.RejectionTTL = cmp.Or(o.KeyTTL, defaultRejectionTTL) // also where KeyTTL is Forever
	}
	for _, d := range []*time.Duration{&o.ResultTTL, &o.KeyTTL} {
		if *d == holdfast.Forever {
			*d = 0
		}
	}
	if err := cmp.Or(
		options.Wait.Check("Options.Wait", o.Wait),
		options.Life.Check("Options.ResultTTL", o.ResultTTL),
		options.Life.Check("Options.KeyTTL", o.KeyTTL),
		options.Bytes.UpTo(15<<20).Check("Options.MaxResult", int64(o.MaxResult)),
		options.LockTimeout.Check("Options.LockTimeout", o.LockTimeout),
		options.Attempts.Check("Options.Attempts", int64(o.Attempts)),
	); err != nil {
		return err
	}
	if err := o.growthDefaults(); err != nil {
		return err
	}
	if o.ResultTTL == 0 {
		o.ResultTTL = o.KeyTTL
	}
	if o.KeyTTL > 0 && o.ResultTTL > o.KeyTTL {
		return once.Invalid("Options.KeyTTL", "is shorter than ResultTTL: a result cannot outlive its key")
	}
	return errors.Join(core.CheckIsolation("Options.Isolation", o.Isolation), o.checkCodecs(), core.CheckName("Options.Namespace", o.Namespace, false))
}

// Store holds the records of one namespace. It is safe for concurrent use and does not need to be
// closed. Use one Store per process: a Store joins duplicates before they reach the database.
type Store[Tx any] struct {
	db        *holdfast.DB[Tx]
	access    access.Access[Tx]
	options   Options
	sql       statements
	protocol  protocol[Tx] // of Do
	tx        txOptions
	flights   *once.Flights[record]   // calls in progress
	peeks     *once.Flights[record]   // reads by calls with NoWait
	similar   *once.Flights[struct{}] // see queue
	lease     *leased[Tx]             // see WithLease
	expectNew *once.ExpectNew
	blockers  *blockers.Env
	ceilings  *ceilings
	// holder and program say who executes, or are nil. They are boxed once.
	holder, program any
}

type statements struct {
	claim             dialect.Claim
	peek              dialect.Peek
	look, lock, renew core.Stmt
	finish            core.Bound
	holders, count    core.Stmt
	similar           similarSQL
}

// New opens the store and checks that its tables exist.
//
// Errors: [holdfast.ErrInvalid], [holdfast.ErrSchema] with the command to run, errors of the
// driver.
func New[Tx any](ctx context.Context, db *holdfast.DB[Tx], opts ...Options) (*Store[Tx], error) {
	if db == nil {
		return nil, once.Invalid("db", "is nil")
	}
	o, err := options.One(opts)
	if err != nil {
		return nil, err
	}
	a := access.Of(db)
	o.owners = a.Owners
	if err := o.withDefaults(); err != nil {
		return nil, err
	}
	if err := db.CheckSchema(ctx); err != nil {
		return nil, err
	}
	o.LockTimeout = cmp.Or(o.LockTimeout, a.Dialect.LockTimeout, core.DefaultLockTimeout)
	r := strings.NewReplacer("{records}", a.Table("records"), "{similar}", a.Table("similar"), "{staged}", a.Table("staged"), "{now}", a.Dialect.Now, "{lockspace}", dialect.Lockspace(a.Table("records")))
	compile := func(name, text string) core.Stmt { return a.Dialect.Compile(name, r.Replace(text)) }
	d := &a.Dialect.Records
	s := &Store[Tx]{
		db: db, access: a, options: o, flights: &once.Flights[record]{}, peeks: &once.Flights[record]{}, similar: &once.Flights[struct{}]{}, expectNew: new(once.ExpectNew), blockers: blockers.New(a.Dialect, a.OnConn), ceilings: newCeilings(&o),
		holder: once.Text(core.DefaultHolder(), maxHolder), program: once.Text(core.Program(), maxProgram),
		sql: statements{
			claim: a.Dialect.Claim("records.claim", r.Replace), peek: a.Dialect.Peek("records.peek", r.Replace),
			look: a.Dialect.Look("records.look", r.Replace(d.Look)), lock: compile("records.lock", d.Lock), renew: compile("records.renew", d.Renew),
			finish:  a.Dialect.Last("records.finish", r.Replace(d.Finish)),
			holders: compile("records.holders", d.Holders), count: compile("records.count", dialect.CountOfOwner),
			similar: compileSimilar(a.Dialect, a.Table),
		},
	}
	s.tx = txOptionsOf(s.sql.claim, &o)
	s.protocol = &claimFirst[Tx]{a.Dialect.Look("records.stands", r.Replace(stands))}
	if s.sql.claim.Reserves(o.Isolation) {
		s.protocol = newLockFirst[Tx](compile, d, s.sql.claim, o.LockTimeout)
	}
	return s, nil
}

// Options returns the store's options, with the defaults filled in.
func (s *Store[Tx]) Options() Options { return s.options }

// SingleOwner reports whether the store's DB has holdfast.Options.SingleOwner, so that Op.Owner is empty.
func (s *Store[Tx]) SingleOwner() bool { return s.options.owners == core.OneOwner }

func (s *Store[Tx]) dialect() *dialect.Dialect { return s.access.Dialect }
