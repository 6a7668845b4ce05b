package stdhandle

import (
	"context"
	"database/sql"
	"runtime"
	"sync"

	"github.com/holdfast-go/holdfast/internal/core"
)

// maxPrepared bounds the texts that Prepared keeps. The texts of one program are far fewer.
const maxPrepared = 256

// Prepared keeps Holdfast's own statements prepared on the pool's connections, so that each takes one
// round trip, and the engine parses it once. database/sql prepares a statement on a connection when
// it runs there for the first time, and closes it with the connection.
type Prepared struct{ *prepared }

type prepared struct {
	pool *sql.DB

	mu     sync.RWMutex
	texts  map[string]*sql.Stmt // nil: to be prepared
	wanted bool
	left   bool // the pool's connections prepare statements themselves
}

// NewPrepared returns the prepared statements of a pool. They are closed when nothing uses them any
// more: a holdfast.DB has no Close.
func NewPrepared(pool *sql.DB) *Prepared {
	p := &Prepared{&prepared{pool: pool, texts: map[string]*sql.Stmt{}}}
	runtime.AddCleanup(p, (*prepared).close, p.prepared)
	return p
}

func (p *prepared) close() {
	for _, stmt := range p.texts {
		if stmt != nil {
			_ = stmt.Close() // the connections may be closed already
		}
	}
}

// get returns the statement that is to run under ctx, or nil if it runs unprepared. Preparing takes a
// connection, which the caller may hold already, so get leaves it to the next prepare.
func (p *Prepared) get(ctx context.Context, query string) *sql.Stmt {
	if p == nil || !core.Prepared(ctx) {
		return nil
	}
	p.mu.RLock()
	stmt, known := p.texts[query]
	known = known || p.left
	p.mu.RUnlock()
	if !known {
		p.mu.Lock()
		defer p.mu.Unlock()
		if _, known := p.texts[query]; !known && len(p.texts) < maxPrepared {
			p.texts[query], p.wanted = nil, true
		}
	}
	return stmt
}

// leave stops preparing statements.
func (p *Prepared) leave() {
	if p == nil {
		return
	}
	p.mu.RLock()
	left := p.left
	p.mu.RUnlock()
	if left {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.close()
	p.texts, p.wanted, p.left = nil, false, true
}

// prepare prepares what was asked for. An error is that of a statement, which will return it again.
func (p *Prepared) prepare(ctx context.Context) {
	if p == nil {
		return
	}
	p.mu.RLock()
	wanted := p.wanted
	p.mu.RUnlock()
	if !wanted {
		return
	}
	p.mu.Lock()
	var texts []string
	for text, stmt := range p.texts {
		if stmt == nil {
			texts = append(texts, text)
		}
	}
	p.wanted = false
	p.mu.Unlock()
	for _, text := range texts {
		stmt, err := p.pool.PrepareContext(ctx, text)
		p.mu.Lock()
		if err == nil {
			p.texts[text] = stmt
		} else {
			delete(p.texts, text)
		}
		p.mu.Unlock()
	}
}
