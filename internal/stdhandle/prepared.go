package stdhandle

import (
	"context"
	"database/sql"
	"runtime"
	"sync"

	"github.com/holdfast-go/holdfast/internal/core"
)

const (
	// often is how many times a text is sent before it is prepared: some are sent once.
	often = 3
	// maxTexts bounds the texts that are counted or prepared.
	maxTexts = 256
)

// texts are the statements that may stay prepared, with the number of times that each was sent.
type texts[S any] map[string]*text[S]

type text[S any] struct {
	sent     int
	prepared bool
	stmt     S
}

// of counts query. If there are too many texts, it forgets those that are not prepared.
func (t texts[S]) of(query string) *text[S] {
	x, known := t[query]
	if !known {
		if len(t) >= maxTexts {
			for query, x := range t {
				if !x.prepared {
					delete(t, query)
				}
			}
		}
		x = &text[S]{}
		if len(t) < maxTexts {
			t[query] = x
		}
	}
	x.sent++
	return x
}

// Prepared keeps Holdfast's own statements prepared on the pool's connections, so that each takes one
// round trip, and the engine parses it once. database/sql prepares a statement on a connection when
// it runs there for the first time, and closes it with the connection.
type Prepared struct{ *prepared }

type prepared struct {
	pool *sql.DB

	mu     sync.Mutex
	texts  texts[*sql.Stmt]
	wanted []string // to be prepared
	left   bool     // the pool's connections prepare statements themselves
}

// NewPrepared returns the prepared statements of a pool. They are closed when nothing uses them any
// more: a holdfast.DB has no Close.
func NewPrepared(pool *sql.DB) *Prepared {
	p := &Prepared{&prepared{pool: pool, texts: texts[*sql.Stmt]{}}}
	runtime.AddCleanup(p, (*prepared).close, p.prepared)
	return p
}

func (p *prepared) close() {
	for _, x := range p.texts {
		if x.prepared {
			_ = x.stmt.Close() // the connections may be closed already
		}
	}
}

// get returns the statement that is to run under ctx, or nil if it runs unprepared. Preparing takes a
// connection, which the caller may hold already, so get leaves it to the next prepare.
func (p *Prepared) get(ctx context.Context, query string) *sql.Stmt {
	if p == nil || !core.Prepared(ctx) {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.left {
		return nil
	}
	x := p.texts.of(query)
	if x.sent == often {
		p.wanted = append(p.wanted, query)
	}
	return x.stmt
}

// leave stops preparing statements.
func (p *Prepared) leave() {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.left {
		p.close()
		p.texts, p.wanted, p.left = nil, nil, true
	}
}

// prepare prepares what was asked for. An error is that of a statement, which will return it again.
func (p *Prepared) prepare(ctx context.Context) {
	if p == nil {
		return
	}
	p.mu.Lock()
	wanted := p.wanted
	p.wanted = nil
	p.mu.Unlock()
	for _, query := range wanted {
		stmt, err := p.pool.PrepareContext(ctx, query)
		p.mu.Lock()
		x := p.texts[query]
		switch {
		case err == nil && x != nil:
			x.stmt, x.prepared = stmt, true
		case err == nil:
			_ = stmt.Close() //nolint:sqlclosecheck // it was forgotten
		case x != nil:
			x.sent = 0
		}
		p.mu.Unlock()
	}
}
