// Package service_test runs the programs of docs/howto/refund-service.md while they are killed.
package service_test

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/adapters/holdfastsql"
	"github.com/holdfast-go/holdfast/examples/internal/process"
	"github.com/holdfast-go/holdfast/examples/service/provider"
	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/idempotency/operators"
	"github.com/holdfast-go/holdfast/internal/test/dbtest"
	"github.com/holdfast-go/holdfast/internal/test/race"
)

func TestMain(m *testing.M) { dbtest.VerifyNoLeaks(m) }

// programs are the two programs, by the engines that they are for.
var programs = map[dbtest.Engine]string{dbtest.Postgres: "pgx", dbtest.MySQL: "mysql", dbtest.MariaDB: "mysql"}

const (
	shop = "shop-7"
	paid = 100_00 // of each order
)

// size is how much a storm does. kills says at which events of a kind the process is killed: the first is 1.
type size struct {
	orders int
	kills  map[string][]int
}

var (
	large = size{7, map[string][]int{"asked": {3, 9, 15}, "paid": {4, 10}, "webhook": {2, 7}, "accepted": {4, 30}}}
	small = size{3, map[string][]int{"asked": {2, 6}, "paid": {2}, "webhook": {2}, "accepted": {4}}}
)

// TestStorm asks for more refunds than the orders have, each three times at once, of a bank that loses answers, while the
// process is killed at events. Then it compares the books.
func TestStorm(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, e dbtest.Engine) {
		program, have := programs[e]
		if !have {
			t.Skipf("no program is for %s", e)
		}
		of := large
		if testing.Short() || race.Enabled {
			of = small
		}
		w := newWorld(t, e, program, of)
		w.refusesStrangers()

		// An order of 100 is asked for 60, 60, 20 and 20: the last two always fit, and one of the first two, unless the bank
		// refuses the other one in between.
		var asking sync.WaitGroup
		for order := range of.orders {
			for i, cents := range []int64{60_00, 60_00, 20_00, 20_00} {
				f := provider.Refund{Shop: shop, Order: fmt.Sprint(order), Cents: cents}
				f.ID = fmt.Sprintf("%d-%d-%s", order, i, fates[(4*order+i)%len(fates)])
				for range 3 { // the user clicks again and again
					asking.Go(func() { w.ask(f) })
				}
			}
		}
		asking.Wait()
		w.settle()

		// What is left of an order may be refunded, and not a cent more: refused refunds have given back their amounts.
		for order, left := range w.books().left() {
			for i, cents := range []int64{left, 1} {
				f := provider.Refund{Shop: shop, Order: order, ID: fmt.Sprintf("%s-rest-%d-%s", order, i, pays), Cents: cents}
				if status := w.ask(f); cents > 0 && (status == http.StatusUnprocessableEntity) != (i == 1) {
					t.Errorf("order %s with %d cents left: %d cents: %d", order, left, cents, status)
				}
			}
		}
		w.settle()
		w.end()

		b := w.books()
		found := b.audit()
		for _, p := range found.problems {
			t.Error(p)
		}
		t.Logf("%s: paid twice %d, lost %d, stuck %d, over the limit %d, kills %d, refunds %d (refused by the bank %d, by the limit %d, asked again with their keys %d)",
			e, found.twice, found.lost, found.stuck, found.over, w.kills, found.paid, found.refused, len(b.rejected), found.again)
		planned := 0
		for _, at := range of.kills {
			planned += len(at)
		}
		if w.kills != planned || w.kills < 5 || found.paid == 0 || found.refused == 0 || len(b.rejected) == 0 || found.again == 0 {
			t.Errorf("the storm was none: %d of %d kills, %+v", w.kills, planned, found)
		}
	})
}

// world is a program on a database, its bank and its clients.
type world struct {
	t       *testing.T
	ctx     context.Context
	program string
	env     []string
	size    size
	last    time.Time // what has not come by then does not come
	bank    *bank
	db      *sql.DB
	ops     *operators.Operators[*sql.Tx]
	client  *http.Client
	log     *lines

	up      sync.Mutex // held while the process is killed and started
	process *process.Process
	cmd     *exec.Cmd
	address string
	kills   int

	mu       sync.Mutex
	events   map[string]int
	answered map[provider.Refund]int // the status
}

func newWorld(t *testing.T, e dbtest.Engine, program string, of size) *world {
	t.Helper()
	w := &world{t: t, ctx: t.Context(), size: of, last: time.Now().Add(dbtest.Hang), log: new(lines), events: map[string]int{}, answered: map[provider.Refund]int{}}
	transport := &http.Transport{}
	w.client = &http.Client{Transport: transport, Timeout: dbtest.Slack}
	t.Cleanup(transport.CloseIdleConnections)
	w.bank = &bank{Client: provider.Client{Secret: secret}, world: w, byKey: map[string]*payment{}}
	server := httptest.NewServer(w.bank)
	t.Cleanup(server.Close)

	w.program = filepath.Join(t.TempDir(), program)
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", w.program, "./"+program).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	url := dbtest.DSN(t, e)
	w.env = append(os.Environ(), "DATABASE_URL="+strings.TrimPrefix(url, "mysql://"), "PROVIDER_URL="+server.URL, "WEBHOOK_SECRET="+secret,
		"CONSOLE_TOKEN=9f2c7d41b8e6a053")
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the program said:\n%s", w.log)
		}
	})
	if err := w.start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.process.Stop() })
	w.db = dbtest.OpenSQL(t, url)
	db, err := holdfastsql.Open(t.Context(), w.db)
	if err != nil {
		t.Fatal(err)
	}
	store, err := idempotency.New(t.Context(), db)
	if err != nil {
		t.Fatal(err)
	}
	w.ops = operators.New(store)
	for order := range of.orders {
		if _, err := w.db.ExecContext(t.Context(), fmt.Sprintf(`INSERT INTO orders (shop, order_no, paid) VALUES ('%s', '%d', %d)`, shop, order, paid)); err != nil {
			t.Fatal(err)
		}
	}
	return w
}

// start starts the program and waits until it serves.
func (w *world) start() error {
	for range 5 { // the port may have been taken in between
		address := "127.0.0.1:" + dbtest.FreePort(w.t)
		w.cmd = exec.Command(w.program)
		w.cmd.Env, w.cmd.Stderr = append(slices.Clone(w.env), "ADDRESS="+address), w.log
		p, err := process.Start(w.cmd)
		if err != nil {
			return err
		}
		w.process, w.address = p, "http://"+address
		for last := time.Now().Add(dbtest.Hang); time.Now().Before(last); {
			r, err := http.NewRequestWithContext(w.ctx, http.MethodGet, w.address+"/console/", http.NoBody)
			if err != nil {
				return err
			}
			if status, _ := w.do(r); status != 0 {
				return nil
			}
			select {
			case <-p.Lines: // it has ended
				last = time.Time{}
			default:
			}
		}
		p.Stop()
	}
	return errors.New("the program does not serve")
}

// serving returns the address of the process, once there is one.
func (w *world) serving() string {
	w.up.Lock()
	defer w.up.Unlock()
	return w.address
}

// happened counts an event, and kills the process in the middle of it if that is planned. It returns when another serves.
func (w *world) happened(event string) {
	w.mu.Lock()
	w.events[event]++
	kill := slices.Contains(w.size.kills[event], w.events[event])
	w.mu.Unlock()
	if !kill {
		return
	}
	w.up.Lock()
	defer w.up.Unlock()
	w.process.Stop()
	w.kills++
	if err := w.start(); err != nil {
		w.t.Error(err)
	}
}

// refusesStrangers asks for what the program must not do.
func (w *world) refusesStrangers() {
	w.t.Helper()
	if status, text := w.send("/webhook", http.Header{"Signature": {"00"}}, []byte(`{"state":"paid"}`)); status < http.StatusBadRequest {
		w.t.Errorf("a webhook that is not signed: %d %s", status, text)
	}
	if status, text := w.send("/orders/0/refunds", http.Header{"Idempotency-Key": {"1"}}, nil); status != http.StatusForbidden {
		w.t.Errorf("a request of nobody: %d %s", status, text)
	}
	for _, cents := range []string{"", "-1", "x"} {
		header := http.Header{"Shop": {shop}, "Idempotency-Key": {"none" + cents}, "Content-Type": {"application/x-www-form-urlencoded"}}
		if status, text := w.send("/orders/0/refunds", header, []byte("cents="+cents)); status != http.StatusUnprocessableEntity {
			w.t.Errorf("a refund of %q: %d %s", cents, status, text)
		}
	}
}

// ask asks for a refund as a client does: again with the same key until the answer is definite.
func (w *world) ask(f provider.Refund) (status int) {
	header := http.Header{"Shop": {f.Shop}, "Idempotency-Key": {f.ID}, "Content-Type": {"application/x-www-form-urlencoded"}}
	for time.Now().Before(w.last) {
		status, text := w.send("/orders/"+f.Order+"/refunds", header, fmt.Appendf(nil, "cents=%d", f.Cents))
		switch status {
		case http.StatusOK, http.StatusAccepted, http.StatusUnprocessableEntity:
			// A duplicate of a refund that the bank has refused in between gets that answer: 422, too.
			accepted := status != http.StatusUnprocessableEntity || !strings.Contains(text, "not-refundable")
			if accepted {
				status = http.StatusAccepted
				w.happened("accepted")
			}
			w.mu.Lock()
			if before := w.answered[f]; before != 0 && before != status {
				w.t.Errorf("%s: %d after %d", f.ID, status, before)
			}
			w.answered[f] = status
			w.mu.Unlock()
			return status
		case 0, http.StatusConflict, http.StatusServiceUnavailable, http.StatusInternalServerError:
		default:
			w.t.Errorf("%s: %d %s", f.ID, status, text)
			return status
		}
	}
	w.t.Errorf("%s: no answer was definite", f.ID)
	return 0
}

// open are the states of operations that have not ended.
var open = []idempotency.State{idempotency.StateInProgress, idempotency.StateWaiting, idempotency.StateSettling, idempotency.StateUnknown}

// stuck returns the operations that have not ended.
func (w *world) stuck() (ids []string) {
	for op, err := range w.ops.List(w.ctx, operators.Filter{States: open}) {
		if err != nil {
			w.t.Fatal(err)
		}
		ids = append(ids, fmt.Sprintf("%s is %v: %s", op.Key, op.State, op.Reason))
	}
	return ids
}

// settle waits until all webhooks are delivered and all operations have ended. The audit finds what has not.
func (w *world) settle() {
	w.bank.sending.Wait()
	for len(w.stuck()) > 0 && time.Now().Before(w.last) {
		time.Sleep(20 * time.Millisecond)
	}
}

// end asks the program to end, as a deployment does.
func (w *world) end() {
	if err := w.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		w.t.Error(err)
	}
	if err := w.process.Wait(); err != nil {
		w.t.Errorf("the program ended with %v", err)
	}
}

// books reads what the service, its clients and the bank know.
func (w *world) books() books {
	b := books{orders: map[string]order{}, rows: map[string]row{}, bank: w.bank.payments(), stuck: w.stuck()}
	w.each(`SELECT order_no, paid, reserved, refunded FROM orders`, func(scan func(...any) error) error {
		var no string
		var o order
		err := scan(&no, &o.paid, &o.reserved, &o.refunded)
		b.orders[no] = o
		return err
	})
	w.each(`SELECT id, order_no, cents, state FROM refunds`, func(scan func(...any) error) error {
		var id string
		var r row
		err := scan(&id, &r.order, &r.cents, &r.state)
		b.rows[id] = r
		return err
	})
	w.mu.Lock()
	defer w.mu.Unlock()
	for f, status := range w.answered {
		if status == http.StatusAccepted {
			b.accepted = append(b.accepted, f)
		} else {
			b.rejected = append(b.rejected, f)
		}
	}
	return b
}

func (w *world) each(query string, f func(scan func(...any) error) error) {
	w.t.Helper()
	rows, err := w.db.QueryContext(w.ctx, query)
	if err != nil {
		w.t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		if err := f(rows.Scan); err != nil {
			w.t.Fatal(err)
		}
	}
	if err := rows.Err(); err != nil {
		w.t.Fatal(err)
	}
}

// lines collects what the processes say.
type lines struct {
	mu   sync.Mutex
	text bytes.Buffer
}

var _ io.Writer = (*lines)(nil)

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// TestLength holds the programs to what the page says of them.
func TestLength(t *testing.T) {
	t.Parallel()
	for _, program := range programs {
		text, err := os.ReadFile(filepath.Join(program, "main.go"))
		if err != nil {
			t.Fatal(err)
		}
		if n := bytes.Count(text, []byte("\n")); n >= 120 {
			t.Errorf("%s has %d lines", program, n)
		}
	}
}
