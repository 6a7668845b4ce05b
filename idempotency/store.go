package idempotency

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/access"
	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/dialect"
)

// Defaults of Options.
const (
	DefaultWait      = 10 * time.Second
	DefaultMaxResult = 1 << 20
)

// Options configure a Store; the zero value of each field is its default.
type Options struct {
	// Namespace keeps applications apart that share the tables; at most 128
	// bytes. Default: "default".
	Namespace string
	// SingleTenant says that there is one tenant only, so Op.Tenant is empty.
	SingleTenant bool
	// Wait bounds how long a call waits for another process that holds its
	// key, and how long an unknown commit is resolved by claiming again.
	// Default: 10 s.
	Wait time.Duration
	// BodyLife is how long a result is kept, KeyLife how long its key is,
	// both from the end of the operation, by the database's clock, exact to
	// the microsecond. After BodyLife duplicates get ErrExpired, with the
	// result's business id; after KeyLife the operation may be executed again.
	// Default: for ever. KeyLife must not be shorter than BodyLife.
	BodyLife, KeyLife time.Duration
	// MaxResult bounds a stored result in bytes. Default: 1 MiB; at most 15 MiB.
	MaxResult int
	// Codec encodes results and rejections, for instance to encrypt them.
	// Default: none; they are stored as JSON, and slices of bytes as they are.
	// FormerCodecs read what former versions of the program stored, or what
	// the next one stores while both run.
	Codec        Codec
	FormerCodecs []Codec
	// Isolation, LockTimeout and Attempts are those of the transaction; see
	// holdfast.TxOptions.
	Isolation   sql.IsolationLevel
	LockTimeout time.Duration
	Attempts    int
}

func (o *Options) withDefaults() error {
	if o.Namespace == "" {
		o.Namespace = "default"
	}
	if o.Wait == 0 {
		o.Wait = DefaultWait
	}
	if o.MaxResult == 0 {
		o.MaxResult = DefaultMaxResult
	}
	if o.LockTimeout == 0 {
		o.LockTimeout = holdfast.DefaultLockTimeout
	}
	if o.Attempts == 0 {
		o.Attempts = holdfast.DefaultAttempts
	}
	switch {
	case o.Wait < 0:
		return invalid("Options.Wait", "is negative: use Op.NoWait")
	case o.BodyLife < 0 || o.KeyLife < 0:
		return invalid("Options.BodyLife, KeyLife", "a life is negative; 0 keeps for ever")
	case o.KeyLife > 0 && (o.BodyLife == 0 || o.BodyLife > o.KeyLife):
		return invalid("Options.KeyLife", "is shorter than BodyLife: a result cannot outlive its key")
	case o.MaxResult < 0 || o.MaxResult > 15<<20:
		return invalid("Options.MaxResult", fmt.Sprintf("%d is not between 1 and %d", o.MaxResult, 15<<20))
	case o.LockTimeout < 0 || o.LockTimeout > holdfast.MaxLockTimeout:
		return invalid("Options.LockTimeout", fmt.Sprintf("%v is not between 0 (default) and %v", o.LockTimeout, holdfast.MaxLockTimeout))
	case o.Attempts < 0:
		return invalid("Options.Attempts", "is negative; 0 is the default")
	}
	return firstOf(o.checkCodecs(), checkName("Options.Namespace", o.Namespace, false))
}

// Store holds the records of one namespace. It is safe for concurrent use and
// needs no closing. One Store a process is best: duplicates within a Store are
// brought together before they reach the database.
type Store[Tx any] struct {
	db      *holdfast.DB[Tx]
	access  access.Access[Tx]
	options Options
	sql     statements
	flights *flights[record] // calls under way
	glances *flights[record] // looks of those that do not wait for them
	lease   *leased[Tx]      // see WithLease
	hunch   *hunch
}

type statements struct{ look, lock, claim, claimSetting, renew, finish, finishOrFail core.Stmt }

// New opens the store and checks that its tables are there.
//
// Errors: [holdfast.ErrInvalid], [holdfast.ErrSchema] with the command to run,
// the driver's.
func New[Tx any](ctx context.Context, db *holdfast.DB[Tx], o Options) (*Store[Tx], error) {
	if db == nil {
		return nil, invalid("db", "is nil")
	}
	if err := o.withDefaults(); err != nil {
		return nil, err
	}
	if err := db.CheckSchema(ctx); err != nil {
		return nil, err
	}
	a := db.Access()
	r := strings.NewReplacer("{records}", a.Table("records"), "{now}", a.Dialect.Now)
	compile := func(name, text string) core.Stmt { return a.Dialect.Compile(name, r.Replace(text)) }
	d := &a.Dialect.Records
	return &Store[Tx]{
		db: db, access: a, options: o, flights: &flights[record]{}, glances: &flights[record]{}, hunch: new(hunch),
		sql: statements{
			look: compile("records.look", d.Look), lock: compile("records.lock", d.Lock),
			claim: compile("records.claim", d.Claim), claimSetting: compile("records.claim", d.ClaimSetting), renew: compile("records.renew", d.Renew),
			finish: compile("records.finish", d.Finish), finishOrFail: compile("records.finish", d.FinishOrFail),
		},
	}, nil
}

// Options are the store's, with the defaults filled in.
func (s *Store[Tx]) Options() Options { return s.options }

func (s *Store[Tx]) dialect() *dialect.Dialect { return s.access.Dialect }
