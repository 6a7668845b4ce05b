package console

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"html/template"
	"iter"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/holdfast-go/holdfast/doctor"
	"github.com/holdfast-go/holdfast/internal/access"
	"github.com/holdfast-go/holdfast/internal/lockname"
	"github.com/holdfast-go/holdfast/sqllock"
	"github.com/holdfast-go/holdfast/sqllock/fairlock"
)

const (
	pageRows  = 50 // of leases, operations and passes
	maxQueues = 50
	maxStand  = 20 // tickets of one queue
)

// locksPage is the present content of the tables of locks.
type locksPage struct {
	Prefix string
	All    bool
	Leases []leaseRow
	After  string       // not empty on a later page
	Next   template.URL // query of the next page
	Queues []queueRow
	// MoreQueues: there are more queues than the page shows.
	MoreQueues bool
	// Blocks are the sessions that wait for others. Told is false if the engine or the role does
	// not tell.
	Blocks []doctor.Block
	Told   bool
}

type leaseRow struct {
	sqllock.Info
	ID     string
	Ref    lockRef
	Shared string // the kinds of all locks on the key, if there are several
}

type queueRow struct {
	fairlock.Queue
	Kind    string
	Tickets []ticketRow
	More    int    // tickets that are not shown
	Shared  string // as leaseRow's
}

type ticketRow struct {
	fairlock.Ticket
	ID, Standing string
	Ref          lockRef
}

// lockRef identifies a lock that can be taken away, in forms.
type lockRef struct {
	Kind       string
	Owner, Key string
	Token      int64
}

// Hex returns the key as a form carries it.
func (l lockRef) Hex() string { return hex.EncodeToString([]byte(l.Key)) }

// OwnerHex returns the owner as a form carries it.
func (l lockRef) OwnerHex() string { return hex.EncodeToString([]byte(l.Owner)) }

// rowID identifies a row of a page across reloads.
func rowID(parts ...string) string {
	h := sha256.New()
	for _, p := range parts {
		h.Write([]byte(p))
		h.Write([]byte{0})
	}
	return "r" + hex.EncodeToString(h.Sum(nil)[:12])
}

func (c *console[Tx]) getLocks(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	p := locksPage{Prefix: q.Get("begin"), All: q.Get("all") != "", After: q.Get("after")}
	ownerHex, keyHex, _ := strings.Cut(p.After, "/")
	owner, err := hex.DecodeString(ownerHex)
	key, err2 := hex.DecodeString(keyHex)
	if err != nil || err2 != nil {
		c.fail(w, r, http.StatusBadRequest, "That page of the list is not there.")
		return
	}
	if err = c.readLeases(r.Context(), &p, string(owner), string(key)); err == nil && p.After == "" {
		err = c.readQueues(r.Context(), &p)
	}
	if err == nil {
		err = c.readShared(r.Context(), &p)
	}
	if err == nil && p.After == "" {
		blocks, unknown := doctor.Blocked(r.Context(), c.db)
		p.Blocks, p.Told = blocks[:min(len(blocks), pageRows)], unknown == nil
	}
	if err != nil {
		c.failed(w, r, err)
		return
	}
	view := page{Title: "Locks", Section: "locks", Live: true, Body: p}
	if q.Get("done") == "released" {
		view.Notice = "Released. Whoever had it is told with its next renewal."
	}
	c.render(w, r, http.StatusOK, "locks", view)
}

func (c *console[Tx]) readLeases(ctx context.Context, p *locksPage, owner, key string) error {
	list := sqllock.ListOptions{Prefix: typed(p.Prefix), Free: p.All, EveryOwner: true, After: sqllock.Info{Owner: owner, Key: key}}
	for i, err := range c.locks.List(ctx, list) {
		if err != nil {
			return err
		}
		if len(p.Leases) == pageRows {
			last := p.Leases[pageRows-1].Ref
			q := url.Values{"after": {last.OwnerHex() + "/" + last.Hex()}}
			if p.Prefix != "" {
				q.Set("begin", p.Prefix)
			}
			if p.All {
				q.Set("all", "1")
			}
			p.Next = template.URL(q.Encode()) //nolint:gosec // it is encoded
			return nil
		}
		p.Leases = append(p.Leases, leaseRow{Info: i, ID: rowID("lease", i.Owner, i.Key), Ref: lockRef{"lease", i.Owner, i.Key, i.Token}})
	}
	return nil
}

func (c *console[Tx]) readQueues(ctx context.Context, p *locksPage) error {
	list := fairlock.ListOptions{Prefix: typed(p.Prefix), EveryOwner: true}
	add := func(kind string, lines iter.Seq2[fairlock.Queue, error]) error {
		n := 0
		for line, err := range lines {
			if err != nil {
				return err
			}
			if n++; n > maxQueues {
				p.MoreQueues = true
				return nil
			}
			p.Queues = append(p.Queues, queueOf(kind, line))
		}
		return nil
	}
	if err := add("fair", fairlock.New(c.locks).Queues(ctx, list)); err != nil {
		return err
	}
	return add("semaphore", fairlock.New(c.locks).Semaphores(ctx, list))
}

// readShared marks keys that locks of several kinds use: these do not exclude each
// other.
func (c *console[Tx]) readShared(ctx context.Context, p *locksPage) error {
	keys := map[string][]string{} // by owner
	for _, l := range p.Leases {
		keys[l.Owner] = append(keys[l.Owner], l.Key)
	}
	for _, q := range p.Queues {
		keys[q.Owner] = append(keys[q.Owner], q.Key)
	}
	a := access.Of(c.db)
	kinds := map[[2]string]string{}
	for owner, of := range keys {
		shared, err := lockname.SharedOf(ctx, a.Pool, a.Dialect, a.Table("locks"), owner, of)
		if err != nil {
			return err
		}
		for _, s := range shared {
			words := make([]string, len(s.Kinds))
			for i, k := range s.Kinds {
				words[i] = k.String()
			}
			kinds[[2]string{s.Owner, s.Key}] = strings.Join(words, ", ")
		}
	}
	for i, l := range p.Leases {
		p.Leases[i].Shared = kinds[[2]string{l.Owner, l.Key}]
	}
	for i, q := range p.Queues {
		p.Queues[i].Shared = kinds[[2]string{q.Owner, q.Key}]
	}
	return nil
}

func queueOf(kind string, line fairlock.Queue) queueRow {
	row := queueRow{Queue: line, Kind: kind}
	for _, place := range line.Tickets {
		if len(row.Tickets) == maxStand {
			row.More = len(line.Tickets) - maxStand
			break
		}
		row.Tickets = append(row.Tickets, ticketRow{
			Ticket: place, ID: rowID(kind, line.Owner, line.Key, strconv.FormatInt(place.Token, 10)),
			Standing: line.Describe(place), Ref: lockRef{kind, line.Owner, line.Key, place.Token},
		})
	}
	return row
}
