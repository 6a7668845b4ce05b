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

	"github.com/holdfast-go/holdfast/internal/operate"
	"github.com/holdfast-go/holdfast/sqllock"
)

const (
	pageRows = 50 // of leases, operations and passes
	maxLines = 50
	maxStand = 20 // places of one line
)

// locksPage has what the tables of locks say now.
type locksPage struct {
	Prefix string
	All    bool
	Leases []leaseRow
	After  string       // whether this is a later page
	Next   template.URL // query of the next page
	Lines  []lineRow
	// MoreLines: there are more than are shown.
	MoreLines bool
}

type leaseRow struct {
	sqllock.Info
	ID  string
	Ref lockRef
}

type lineRow struct {
	sqllock.Line
	Kind   string
	Places []placeRow
	More   int // places that are not shown
}

type placeRow struct {
	sqllock.Place
	ID, Standing string
	Ref          lockRef
}

// lockRef names what can be taken away, in forms.
type lockRef struct {
	Kind  string
	Key   string
	Token int64
}

// Hex is the key as a form carries it.
func (l lockRef) Hex() string { return hex.EncodeToString([]byte(l.Key)) }

// rowID tells the rows of a page apart when it is shown anew.
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
	after, err := hex.DecodeString(p.After)
	if err != nil {
		c.fail(w, r, http.StatusBadRequest, "That page of the list is not there.")
		return
	}
	if err = c.readLeases(r.Context(), &p, string(after)); err == nil && p.After == "" {
		err = c.readLines(r.Context(), &p)
	}
	if err != nil {
		c.failed(w, r, err)
		return
	}
	view := page{Title: "Locks", Section: "locks", Every: 2000, Body: p}
	if q.Get("done") == "released" {
		view.Notice = "Released. Whoever had it is told with its next renewal."
	}
	c.render(w, r, http.StatusOK, "locks", view)
}

func (c *console[Tx]) readLeases(ctx context.Context, p *locksPage, after string) error {
	for i, err := range c.locks.ListAfter(ctx, typed(p.Prefix), after, p.All) {
		if err != nil {
			return err
		}
		if len(p.Leases) == pageRows {
			q := url.Values{"after": {hex.EncodeToString([]byte(p.Leases[pageRows-1].Key))}}
			if p.Prefix != "" {
				q.Set("begin", p.Prefix)
			}
			if p.All {
				q.Set("all", "1")
			}
			p.Next = template.URL(q.Encode()) //nolint:gosec // it is encoded
			return nil
		}
		p.Leases = append(p.Leases, leaseRow{Info: i, ID: rowID("lease", i.Key), Ref: lockRef{"lease", i.Key, i.Token}})
	}
	return nil
}

func (c *console[Tx]) readLines(ctx context.Context, p *locksPage) error {
	prefix := typed(p.Prefix)
	add := func(kind string, lines iter.Seq2[sqllock.Line, error]) error {
		n := 0
		for line, err := range lines {
			if err != nil {
				return err
			}
			if n++; n > maxLines {
				p.MoreLines = true
				return nil
			}
			p.Lines = append(p.Lines, lineOf(kind, line))
		}
		return nil
	}
	if err := add("fair", c.locks.Fair().Lines(ctx, prefix)); err != nil {
		return err
	}
	return add("semaphore", c.locks.Semaphores(ctx, prefix))
}

func lineOf(kind string, line sqllock.Line) lineRow {
	row := lineRow{Line: line, Kind: kind}
	for _, place := range line.Places {
		if len(row.Places) == maxStand {
			row.More = len(line.Places) - maxStand
			break
		}
		row.Places = append(row.Places, placeRow{
			Place: place, ID: rowID(kind, line.Key, strconv.FormatInt(place.Token, 10)),
			Standing: operate.Standing(line, place), Ref: lockRef{kind, line.Key, place.Token},
		})
	}
	return row
}
