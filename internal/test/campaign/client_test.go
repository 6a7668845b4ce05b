//go:build unix

package campaign

import (
	"bufio"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/adapters/holdfastpgx"
	"github.com/holdfast-go/holdfast/adapters/holdfastsql"
	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/idempotency/businessrow"
	"github.com/holdfast-go/holdfast/idempotency/outbox"
	"github.com/holdfast-go/holdfast/idempotency/staged"
	"github.com/holdfast-go/holdfast/internal/access"
	"github.com/holdfast-go/holdfast/internal/dsn"
	"github.com/holdfast-go/holdfast/internal/test/history"
	"github.com/holdfast-go/holdfast/internal/test/vdso"
	"github.com/holdfast-go/holdfast/limits"
	"github.com/holdfast-go/holdfast/optimistic/register"
	"github.com/holdfast-go/holdfast/sqllock"
)

// clientVariable holds the order for a client process.
const clientVariable = "HOLDFAST_CAMPAIGN_CLIENT"

// An order tells such a process what to do.
type order struct {
	URL          string
	Native       bool // pgx's own pool
	Connector    bool // the adapters' connectors
	Disconnect   bool // sqllock.Options.ReleaseOnDisconnect
	Pool         int  // the maximum number of connections
	Client, Life int  // the number of the client, and how many of its processes were killed before
	Workers      int
	Seed         uint64
	Dir          string        // the directory of its records
	Begin        history.Stamp // of the campaign
	Epoch        time.Duration
	Epochs       int
	Control      control
	Bank         string // its URL
	Finish       bool   // it does what the others left, and ends
}

func clientMain(text string) {
	signal.Ignore(syscall.SIGXFSZ) // a full disk is an error
	o := &order{}
	err := json.Unmarshal([]byte(text), o)
	if err == nil && o.Native {
		err = run(o, openNative)
	} else if err == nil {
		err = run(o, openSQL)
	}
	if err != nil {
		fmt.Println("failed", err)
		os.Exit(1)
	}
}

// A client works as a process of a program does, and records its operations.
type client[Tx any] struct {
	*order

	books     *books
	db        *holdfast.DB[Tx]
	locks     *sqllock.Locker[Tx]
	store     *idempotency.Store[Tx]
	payouts   *businessrow.Table[payoutRow, Tx]
	registers *register.Register[Tx]
	pays      *staged.Runner[string, string, Tx]
	limits    *limits.Limits[Tx]
	box       *outbox.Outbox[Tx]
	relay     *outbox.Relay[Tx]
	plain     *sql.DB
}

// payoutRow is a business row that is its own record.
type payoutRow struct {
	No     string `db:"payout_no"`
	Amount int64  `db:"amount"`
	Who    string `db:"who"`
	Epoch  int64  `db:"epoch"`
}

// opener opens a client's pool and returns a function that closes it.
type opener[Tx any] func(ctx context.Context, o *order) (*holdfast.DB[Tx], func(), error)

// run works until its input contains "quit". It ends with its parent, because then the input
// ends.
func run[Tx any](o *order, open opener[Tx]) error {
	ctx, quit := context.WithCancel(context.Background())
	defer quit()
	go func() {
		for in := bufio.NewScanner(os.Stdin); in.Scan(); {
			var by time.Duration
			if in.Text() == "quit" {
				quit()
			} else if _, err := fmt.Sscanf(in.Text(), "clock %d", &by); err == nil {
				if err := vdso.Move(by); err != nil {
					panic(err)
				}
				fmt.Println("clock", int64(by))
			}
		}
		os.Exit(1)
	}()
	c := &client[Tx]{order: o, books: &books{o: o, open: map[int]*book{}, done: o.epoch()}}
	end, err := c.open(ctx, open)
	for ; err != nil; end, err = c.open(ctx, open) { // the server may be down
		if ctx.Err() != nil {
			fmt.Println("over")
			return nil
		}
		fmt.Println("opening", strings.ReplaceAll(err.Error(), "\n", " "))
		time.Sleep(100 * time.Millisecond)
	}
	defer end()
	if o.Finish {
		if err := c.finish(); err != nil {
			return err
		}
		fmt.Println("over")
		return nil
	}
	fmt.Println("working")
	var all sync.WaitGroup
	for _, p := range parts[Tx]() {
		if p.run != nil {
			all.Go(func() { p.run(c, ctx) })
		}
	}
	for i := range o.Workers {
		all.Go(func() { c.work(ctx, i) })
	}
	all.Wait()
	if err := c.locks.Close(context.Background()); err != nil {
		fmt.Println("closing", err)
	}
	fmt.Println("over")
	return nil
}

func (c *client[Tx]) open(ctx context.Context, open opener[Tx]) (func(), error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	db, end, err := open(ctx, c.order)
	if err != nil {
		return nil, err
	}
	c.Control.plant(&access.Of(db).Dialect.Leases)
	const patience = 2 * time.Second
	var errs [4]error
	c.db = db
	c.locks, errs[0] = sqllock.New(ctx, db, sqllock.Options{TTL: ttl, Margin: margin, Holder: fmt.Sprint("client ", c.Client, ".", c.Life), ReleaseOnDisconnect: c.Disconnect})
	c.store, errs[1] = idempotency.New(ctx, db, idempotency.Options{Wait: patience})
	c.payouts, errs[2] = businessrow.New[payoutRow](ctx, db, holdfast.TableSpec{Table: "campaign_payouts", Key: []string{"payout_no"}},
		businessrow.Options{Compare: []string{"amount"}, Wait: patience})
	c.registers, errs[3] = register.New(ctx, db)
	err = errors.Join(errs[:]...)
	for _, p := range parts[Tx]() {
		if err == nil && p.open != nil {
			err = p.open(c, ctx)
		}
	}
	if err != nil {
		end()
		return nil, err
	}
	return end, nil
}

func openSQL(ctx context.Context, o *order) (*holdfast.DB[*sql.Tx], func(), error) {
	connector, err := dsn.Connector(o.URL, nil)
	if err != nil {
		return nil, nil, err
	}
	switch {
	case o.Connector && strings.HasPrefix(o.URL, "postgres"):
		connector = holdfastpgx.Connector(connector)
	case o.Connector:
		connector = holdfastsql.Connector(connector)
	}
	pool := sql.OpenDB(connector)
	pool.SetMaxOpenConns(o.Pool)
	pool.SetMaxIdleConns(o.Pool)
	db, err := holdfastsql.Open(ctx, pool, holdfast.Options{SingleOwner: true})
	if err != nil {
		_ = pool.Close()
		return nil, nil, err
	}
	return db, func() { _ = pool.Close() }, nil
}

func openNative(ctx context.Context, o *order) (*holdfast.DB[pgx.Tx], func(), error) {
	config, err := pgxpool.ParseConfig(o.URL)
	if err != nil {
		return nil, nil, err
	}
	config.MaxConns = int32(o.Pool)
	holdfastpgx.WatchNotices(config.ConnConfig) // there is a synchronous standby
	pool, err := pgxpool.NewWithConfig(context.WithoutCancel(ctx), config)
	if err != nil {
		return nil, nil, err
	}
	db, err := holdfastpgx.Open(ctx, pool, holdfast.Options{SingleOwner: true})
	if err != nil {
		pool.Close()
		return nil, nil, err
	}
	return db, func() { go pool.Close() }, nil // Close would wait for hanging connections
}

// A task is one operation of a worker.
type task struct {
	plan

	id      string // of this operation, in the tables
	written int    // how often it wrote there
	key     string
	b       *book
	c       *history.Client
}

// work executes a worker's plans one after the other.
func (c *client[Tx]) work(ctx context.Context, worker int) {
	p := plannerOf(c.Seed, c.Client, c.Life, worker)
	for n := 0; ctx.Err() == nil; n++ {
		t := &task{plan: p.next(), id: fmt.Sprintf("%d.%d.%d.%d", c.Client, c.Life, worker, n), b: c.books.begin()}
		t.c = t.b.rec.Client(worker)
		err := c.do(t)
		c.books.end(t.b)
		if err != nil {
			t.pause += 20 * time.Millisecond // the server may be down
		}
		select {
		case <-ctx.Done():
		case <-time.After(t.pause):
		}
	}
}

// works returns what a worker does for each job.
func works[Tx any]() map[job]func(*client[Tx], context.Context, *task) error {
	visits := func(ask func(*client[Tx]) ask) func(*client[Tx], context.Context, *task) error {
		return func(c *client[Tx], ctx context.Context, t *task) error { return c.visit(ctx, t, ask(c)) }
	}
	lease := visits(func(c *client[Tx]) ask { return c.lease })
	fair := visits(func(c *client[Tx]) ask { return c.fair })
	return map[job]func(*client[Tx], context.Context, *task) error{
		visit: lease, crash: lease, overstay: lease,
		inLine: fair, shared: fair, permit: visits(func(c *client[Tx]) ask { return c.semaphore }),
		refund: (*client[Tx]).refund, payout: (*client[Tx]).payout,
		swap: (*client[Tx]).register, erase: (*client[Tx]).register, read: (*client[Tx]).register,
		pay: (*client[Tx]).pay, start: (*client[Tx]).start, cancelled: (*client[Tx]).cancelPay,
		original: (*client[Tx]).original, void: (*client[Tx]).void,
		take: (*client[Tx]).take, alike: (*client[Tx]).similar, batch: (*client[Tx]).batch,
		post: (*client[Tx]).post, offer: (*client[Tx]).offer, resume: (*client[Tx]).resume, gather: (*client[Tx]).gather,
		foreign: (*client[Tx]).foreign,
	}
}

// do runs one operation within its time. The outcome is recorded, so the error only says whether
// the database answers.
func (c *client[Tx]) do(t *task) error {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	t.key = keyOf(t.b.epoch, t.what, t.plan.key%t.keys)
	if t.job != gather && t.what == "lease" && t.plan.key%t.keys == leaseKeys {
		t.key = always
	}
	err := works[Tx]()[t.job](c, ctx, t)
	if err == nil {
		t.b.told(answer{Job: t.job, Outcome: finished})
	}
	return err
}
