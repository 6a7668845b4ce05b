//go:build unix

package campaign

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/internal/test/history"
	"github.com/holdfast-go/holdfast/sqllock/fairlock"
)

// everybody is the client of a pause that affects all clients.
const everybody = -1

// A pause is a time without a promise about the holder of a lease: the client's process is
// stopped, or the database's clock leaps.
type pause struct {
	client, life int
	from, to     history.Stamp // to is 0 while it lasts
	bounded      bool          // who was granted a lease before it does not trust that lease afterwards
}

// anyLife is the life of a pause that affects all processes of a client.
const anyLife = -1

func (c *campaign) paused(client, life int, from history.Stamp) (at int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.outside = append(c.outside, pause{client: client, life: life, from: from})
	return len(c.outside) - 1
}

func (c *campaign) resumed(at int, later time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.outside[at].to = history.Now() + later
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

// judge judges the clients' histories of an epoch and compares their answers with the tables.
func (c *campaign) judge(epoch int) {
	h, spans := c.recorded(epoch)
	var whole, shares, holders history.History
	for _, op := range h {
		switch key := string(op.Key); {
		case strings.Contains(key, "/semaphore/"):
			holders = append(holders, op)
		case strings.Contains(key, "/shared/"):
			shares = append(shares, op)
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
	outside := history.Outside(spans...)
	c.check(epoch, whole, history.AnyRefusal(), outside)
	c.check(epoch, holders, history.Room(permits), outside)
	c.check(epoch, shares, history.Room(fairlock.MaxPermits), outside)
	answers := c.told(epoch)
	for _, a := range audits {
		if a.epoch != nil {
			a.epoch(c, epoch, answers)
		}
	}
	if !c.keep {
		files, _ := filepath.Glob(filepath.Join(c.dir, fmt.Sprintf("*-%05d-*", epoch)))
		for _, file := range files {
			_ = os.Remove(file)
		}
	}
}

// check adds the violations of a history to those found before.
func (c *campaign) check(epoch int, h history.History, opts ...history.Option) {
	found := history.Judge(h, opts...)
	for _, v := range found {
		c.violationf("epoch %d, key %q: %s: %s", epoch, v.Key, v.Rule, v.Text)
	}
	if len(found) > 0 && c.control == whole {
		c.keep = true
		history.Check(c.t, h, opts...) // reports more, with a picture
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
			if o.client == client && (o.life == life || o.life == anyLife) {
				spans = append(spans, history.Span{Process: i, From: o.from, To: cmp.Or(o.to, now), Bounded: o.bounded})
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
