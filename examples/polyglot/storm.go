//go:build unix

package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	mathrand "math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/internal/dsn"
	"github.com/holdfast-go/holdfast/migrations"
)

// The protections.
const (
	protocol = "protocol"
	none     = "none"
)

// What clients answer. After the last two they are asked again.
const (
	executed   = "executed"
	replayed   = "replayed"
	inProgress = "in_progress"
	again      = "again"
)

var answers = []string{executed, replayed, inProgress, again}

// When a client is killed or stopped: so long after it was asked, at most. A stopped one sleeps so long.
const (
	strikeWithin = 10 * time.Millisecond
	stoppedFor   = 150 * time.Millisecond
)

// maxDeaths is how often a client may end at one order. It is killed there once at most.
const maxDeaths = 5

// storm holds the values of the flags.
type storm struct {
	url, protect, folder string
	vectors, classes     string
	orders, each         int
	languages            []string
	out, log             io.Writer

	clients []*worker
	mu      sync.Mutex
	tally   tally
}

// tally counts what the clients answered, and which refund they answered with for each order.
type tally struct {
	requests, executed, replayed, again, kills, stops int
	refunds                                           map[string]map[string]bool
}

// run asks all clients for each order at the same moment, and audits the table.
func (s *storm) run(ctx context.Context) (err error) {
	pool, engine, err := dsn.Open(s.url)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, pool.Close()) }()
	if engine == dsn.SQLite {
		return errors.New("the clients speak PostgreSQL, MySQL and MariaDB")
	}
	if err := s.tables(ctx, pool); err != nil {
		return err
	}
	s.tally.refunds = map[string]map[string]bool{}
	defer s.end()
	if err := s.start(ctx); err != nil {
		return err
	}
	run := fmt.Sprintf("run-%d", time.Now().UnixNano())
	for i := range s.orders {
		if err := s.order(ctx, fmt.Sprintf("%s/order-%d", run, i), i); err != nil {
			return err
		}
	}
	return s.audit(ctx, pool, run)
}

// tables makes Holdfast's tables, its functions, and the shop's table. Nothing in that keeps a
// second refund of an order out.
func (*storm) tables(ctx context.Context, pool *sql.DB) error {
	if err := migrations.Up(ctx, pool); err != nil {
		return err
	}
	if err := migrations.FunctionsUp(ctx, pool); err != nil {
		return err
	}
	_, err := pool.ExecContext(ctx, `CREATE TABLE IF NOT EXISTS polyglot_refunds (id VARCHAR(40) PRIMARY KEY, order_no VARCHAR(80) NOT NULL, cents INT NOT NULL)`)
	return err
}

// order asks every client to refund an order. Every fourth order one of them is killed, and every
// fourth one of them is stopped and continued.
func (s *storm) order(ctx context.Context, name string, i int) error {
	victim := s.clients[i/4%len(s.clients)]
	strike := mathrand.N(strikeWithin)
	var all sync.WaitGroup
	errs := make([]error, len(s.clients))
	for n, c := range s.clients {
		all.Go(func() { errs[n] = s.ask(ctx, c, name) })
	}
	switch i % 4 {
	case 1:
		time.Sleep(strike)
		victim.kill()
		s.count(func(t *tally) { t.kills++ })
	case 3:
		time.Sleep(strike)
		victim.pause(stoppedFor)
		s.count(func(t *tally) { t.stops++ })
	}
	all.Wait()
	return errors.Join(errs...)
}

// ask asks a client until it answers, and starts it again if it is gone.
func (s *storm) ask(ctx context.Context, c *worker, order string) error {
	for deaths := 0; ctx.Err() == nil; {
		s.count(func(t *tally) { t.requests++ })
		answer, alive := c.ask(order + " 1250")
		if !alive {
			if deaths++; deaths > maxDeaths {
				return fmt.Errorf("the client in %s ends again and again", c.language)
			}
			if err := c.restart(ctx, s); err != nil {
				return err
			}
			continue
		}
		words := strings.Fields(answer)
		if len(words) != 3 || words[0] != order || !slices.Contains(answers, words[1]) {
			return fmt.Errorf("%s answered %q", c.language, answer)
		}
		s.count(func(t *tally) {
			switch words[1] {
			case executed:
				t.executed++
			case replayed:
				t.replayed++
			default:
				t.again++
				return
			}
			if t.refunds[order] == nil {
				t.refunds[order] = map[string]bool{}
			}
			t.refunds[order][words[2]] = true
		})
		if words[1] == executed || words[1] == replayed {
			return nil
		}
	}
	return context.Cause(ctx)
}

func (s *storm) count(f func(*tally)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f(&s.tally)
}

// audit counts the refunds in the table, and the answers that name another refund than it has.
func (s *storm) audit(ctx context.Context, pool *sql.DB, run string) error {
	rows, err := pool.QueryContext(ctx, `SELECT order_no, id FROM polyglot_refunds`)
	if err != nil {
		return err
	}
	defer func() { _ = rows.Close() }()
	stored, by := map[string][]string{}, map[string]int{}
	for rows.Next() {
		var order, id string
		if err := rows.Scan(&order, &id); err != nil {
			return err
		}
		if strings.HasPrefix(order, run+"/") {
			stored[order] = append(stored[order], id)
			language, _, _ := strings.Cut(id, "-")
			by[language]++
		}
	}
	if err := rows.Err(); err != nil {
		return err
	}
	duplicates, lost := 0, 0
	for i := range s.orders {
		order := fmt.Sprintf("%s/order-%d", run, i)
		duplicates += max(0, len(stored[order])-1)
		there := map[string]bool{}
		for _, id := range stored[order] {
			there[id] = true
		}
		if len(stored[order]) == 0 {
			lost++
		}
		for id := range s.tally.refunds[order] {
			if !there[id] {
				lost++
			}
		}
	}
	var made []string
	for _, l := range s.languages {
		made = append(made, fmt.Sprintf("%s:%d", l, by[l]))
	}
	t := &s.tally
	fmt.Fprintf(s.out, "protect=%s orders=%d requests=%d refunds=%s executed=%d replayed=%d again=%d kills=%d stops=%d duplicates=%d lost=%d\n",
		s.protect, s.orders, t.requests, strings.Join(made, ","), t.executed, t.replayed, t.again, t.kills, t.stops, duplicates, lost)
	if s.protect != none && duplicates+lost > 0 {
		return errors.New("a refund was made twice, or lost")
	}
	return nil
}
