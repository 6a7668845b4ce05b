//go:build unix

package campaign

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/holdfast-go/holdfast/internal/history"
)

// everybody is the client of a pause that is about all.
const everybody = -1

// A pause is a time in which nothing is promised of who has a lease: the client's
// process is stopped, or the database's clock leaps.
type pause struct {
	client, life int
	from, to     history.Stamp // to is 0 while it lasts
}

func (c *campaign) paused(client, life int, from history.Stamp) (at int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.outside = append(c.outside, pause{client: client, life: life, from: from})
	return len(c.outside) - 1
}

func (c *campaign) resumed(at int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.outside[at].to = history.Now()
}

// judgeWhatIsDone judges the epochs that no client can add to any more.
func (c *campaign) judgeWhatIsDone() {
	done := c.clients[0].order.epoch()
	for _, p := range c.clients {
		done = min(done, p.unfinished())
	}
	for ; c.judged < done; c.judged++ {
		c.judge(c.judged)
	}
}

// judge judges what the clients saw in an epoch, and holds what they were told
// against the tables.
func (c *campaign) judge(epoch int) {
	h, spans := c.recorded(epoch)
	var whole, several history.History
	for _, op := range h {
		switch key := string(op.Key); {
		case strings.Contains(key, "/semaphore/"), strings.Contains(key, "/shared/"):
			several = append(several, op)
		default:
			whole = append(whole, op)
		}
		c.operations++
		switch {
		case op.Kind == history.KindGrant && op.Outcome == history.OK:
			c.grants++
			if op.Key == always {
				c.tokens = append(c.tokens, op)
			}
		case op.Outcome == "" && op.Kind != history.KindRead:
			c.unknown++
		}
	}
	opts := []history.Option{history.AnyRefusal(), history.Outside(spans...)}
	c.check(epoch, whole, opts...)
	c.check(epoch, several, history.TokensOnly())
	c.checkPermits(epoch, several, spans)
	c.auditEpoch(epoch)
	if !c.keep {
		files, _ := filepath.Glob(filepath.Join(c.dir, fmt.Sprintf("*-%05d-*", epoch)))
		for _, file := range files {
			_ = os.Remove(file)
		}
	}
}

// check adds what a history breaks to what was found.
func (c *campaign) check(epoch int, h history.History, opts ...history.Option) {
	found := history.Judge(h, opts...)
	for _, v := range found {
		c.violationf("epoch %d, key %q: %s: %s", epoch, v.Key, v.Rule, v.Text)
	}
	if len(found) > 0 && c.control == whole {
		c.keep = true
		history.Check(c.t, h, opts...) // says more, with a picture
	}
}

// recorded merges the histories of all processes of an epoch.
func (c *campaign) recorded(epoch int) (history.History, []history.Span) {
	files, _ := filepath.Glob(filepath.Join(c.dir, fmt.Sprintf("history-%05d-*", epoch)))
	var histories []history.History
	var spans []history.Span
	c.mu.Lock()
	outside := slices.Clone(c.outside)
	c.mu.Unlock()
	now := history.Now()
	for i, file := range files {
		h, err := history.Read(file)
		c.must(err)
		histories = append(histories, h)
		var client, life int
		_, err = fmt.Sscanf(filepath.Base(file), fmt.Sprintf("history-%05d-", epoch)+"%d-%d.jsonl", &client, &life)
		c.must(err)
		for _, o := range outside {
			if o.client == client && o.life == life {
				spans = append(spans, history.Span{Process: i, From: o.from, To: cmp.Or(o.to, now)})
			}
		}
	}
	for _, o := range outside {
		if o.client == everybody {
			spans = append(spans, history.Span{Process: history.Everybody, From: o.from, To: cmp.Or(o.to, now)})
		}
	}
	return history.Merge(histories...), spans
}

// checkPermits finds a moment at which more permits were trusted than there are.
func (c *campaign) checkPermits(epoch int, h history.History, spans []history.Span) {
	type holder struct {
		process, client int
		token           int64
	}
	type stay struct{ from, to history.Stamp }
	stays := make(map[holder]stay)
	for _, op := range h {
		if op.Kind == history.KindGrant && op.Outcome == history.OK && strings.Contains(string(op.Key), "/semaphore/") {
			s := stay{op.Return, max(op.Return, op.Until)}
			for _, out := range spans {
				if (out.Process == history.Everybody || out.Process == op.Process) && op.Call <= out.To {
					s.to = min(s.to, out.From)
				}
			}
			stays[holder{op.Process, op.Client, op.Token}] = s
		}
	}
	for _, op := range h {
		who := holder{op.Process, op.Client, op.Token}
		s, ok := stays[who]
		if ok && (op.Kind == history.KindRelease || op.Kind == history.KindEnded) {
			// The last sight of a renewed one is later than what its grant told.
			s.to = op.Call
			for _, out := range spans {
				if (out.Process == history.Everybody || out.Process == op.Process) && out.From < s.to && s.from <= out.To {
					s.to = out.From
				}
			}
			stays[who] = s
		}
	}
	for who, a := range stays {
		n := 0
		for _, b := range stays {
			if b.from <= a.from && a.from < b.to {
				n++
			}
		}
		if n > permits && a.from < a.to {
			c.violationf("epoch %d: %d of %d permits were out when one with token %d was granted", epoch, n, permits, who.token)
		}
	}
}
