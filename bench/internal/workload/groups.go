package workload

import (
	"context"
	"fmt"
	"slices"

	"github.com/holdfast-go/holdfast/bench/internal/locks"
)

// open opens a competitor. If a peer or a stand-in is not available, open adds it to p.Missing
// and returns nil.
func (p *Plan) open(ctx context.Context, g group, c locks.Competitor, until *closers) (*locks.Lock, error) {
	l, err := c.Open(ctx, g.world)
	if err == nil && l.Probe != nil {
		err = l.Probe(ctx)
	}
	if err == nil {
		until.later(l.Close)
		return l, nil
	}
	err = fmt.Errorf("%s, %s: %w", g.name, c.Name, err)
	if (c.Kind == locks.Peer || c.Kind == locks.StandIn) && ctx.Err() == nil {
		p.Log("not measured: %v", err)
		if !slices.Contains(p.Missing, err.Error()) {
			p.Missing = append(p.Missing, err.Error())
		}
		return nil, nil
	}
	return nil, err
}

// group holds the competitors that share a server.
type group struct {
	name  string
	world *locks.World
}

// groups returns the SQL databases and then the other servers.
func (p *Plan) groups() []group {
	var list []group
	for _, e := range p.Engines {
		list = append(list, group{e.Name, &locks.World{Engine: e, Servers: p.Servers}})
	}
	for _, name := range p.Servers.Running() {
		list = append(list, group{name, &locks.World{Servers: p.Servers}})
	}
	return list
}
