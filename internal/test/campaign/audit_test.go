//go:build unix

package campaign

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/internal/test/history"
)

// rows reads rows of two columns on the auditor's own connection. It retries, because the server
// may be down.
func (c *campaign) rows(query string, args ...any) (all [][2]string) {
	var err error
	for end := time.Now().Add(10 * time.Minute); time.Now().Before(end); time.Sleep(200 * time.Millisecond) {
		if all, err = c.ask(query, args...); err == nil {
			return all
		}
	}
	c.t.Fatalf("the auditor: %s: %v", query, err) // without its rows there is nothing to judge
	return nil
}

func (c *campaign) ask(query string, args ...any) (all [][2]string, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	rows, err := c.site.audit.QueryContext(ctx, c.site.sql(query), args...)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var a, b []byte
		if err := rows.Scan(&a, &b); err != nil {
			return nil, err
		}
		all = append(all, [2]string{string(a), string(b)})
	}
	return all, rows.Err()
}

// once turns rows into a map and reports keys that occur more than once.
func (c *campaign) once(what string, rows [][2]string) map[string]string {
	m := make(map[string]string, len(rows))
	for _, r := range rows {
		if first, twice := m[r[0]]; twice {
			c.violationf("%s of %q twice: by %s and by %s", what, r[0], first, r[1])
		}
		m[r[0]] = r[1]
	}
	return m
}

// An audit judges the tables of some jobs: an epoch's rows by the answers that the clients got,
// as soon as the epoch is over, and all rows at the end.
type audit struct {
	epoch func(c *campaign, epoch int, answers []answer)
	all   func(c *campaign)
}

var audits = []audit{
	{(*campaign).auditBooks, (*campaign).auditBalances},
	{all: (*campaign).auditRecords},
	{(*campaign).auditPayments, (*campaign).auditStaged},
	{epoch: (*campaign).auditVoids},
	{(*campaign).auditLimits, (*campaign).auditCounters},
	{epoch: (*campaign).auditSimilar},
	{(*campaign).auditMessages, (*campaign).auditOutbox},
	{(*campaign).auditTicks, (*campaign).auditCron},
	{epoch: (*campaign).auditWatch},
	{epoch: (*campaign).auditHandles},
	{all: (*campaign).auditCommits},
}

// auditBooks compares the refunds and payouts of an epoch with the answers.
func (c *campaign) auditBooks(epoch int, answers []answer) {
	effects := c.once("an effect", c.rows(`SELECT name, id FROM campaign_effects WHERE epoch = $1`, epoch))
	entries := make(map[string]bool)
	for _, r := range c.rows(`SELECT id, name FROM campaign_ledger WHERE epoch = $1`, epoch) {
		if entries[r[0]] {
			c.violationf("epoch %d: two entries of the ledger by %s, for %q", epoch, r[0], r[1])
		}
		entries[r[0]] = true
	}
	ids := make(map[string]bool, len(effects))
	for key, id := range effects {
		if ids[id] = true; !entries[id] {
			c.violationf("epoch %d: the effect of %q by %s has no entry in the ledger", epoch, key, id)
		}
	}
	for key, who := range c.once("a payout", c.rows(`SELECT payout_no, who FROM campaign_payouts WHERE epoch = $1`, epoch)) {
		if effects[key] != who {
			c.violationf("epoch %d: the payout %q is of %s, its effect of %q", epoch, key, who, effects[key])
		}
	}
	for _, a := range answers {
		if problem := a.against(effects, entries, ids); problem != "" {
			c.violationf("epoch %d: %s of %q by %s was told %s %s %s, but %s", epoch, a.Job, a.Key, a.ID, a.Outcome, a.Value, a.Err, problem)
		}
	}
}

// told returns what the clients were told in an epoch, and counts it.
func (c *campaign) told(epoch int) (all []answer) {
	files, _ := filepath.Glob(filepath.Join(c.dir, fmt.Sprintf("answers-%05d-*", epoch)))
	for _, file := range files {
		for _, a := range c.answers(file) {
			switch a.Outcome {
			case finished:
				c.finished[a.Job]++
				continue
			case unknown:
				c.unknown++
			}
			c.operations++
			all = append(all, a)
		}
	}
	return all
}

func (c *campaign) answers(path string) (all []answer) {
	file, err := os.Open(path)
	c.must(err)
	defer func() { _ = file.Close() }()
	for lines := bufio.NewScanner(file); lines.Scan(); {
		var a answer
		if err := json.Unmarshal(lines.Bytes(), &a); err != nil {
			continue // cut off when its process died
		}
		all = append(all, a)
	}
	return all
}

// against describes how the tables contradict an answer.
func (a *answer) against(effects map[string]string, entries, ids map[string]bool) string {
	id, effect := effects[a.Key]
	switch {
	case (a.Job == visit || a.Job == gather) && a.Outcome == executed && !entries[a.ID]:
		return "it is not there"
	case a.Job == visit || a.Job == gather:
		if a.Outcome == refused && entries[a.ID] {
			return "it is there"
		}
	case !slices.Contains([]job{refund, foreign, payout, batch, original, alike}, a.Job):
	case a.Outcome == refused && ids[a.ID]:
		return "it is there"
	case (a.Outcome == executed || a.Outcome == replayed) && (!effect || id != a.Value):
		return fmt.Sprintf("the tables have %q", id)
	case a.Outcome == executed && a.Value != a.ID:
		return "it did not do it"
	}
	return ""
}

// auditBalances compares the ledger with the balances.
func (c *campaign) auditBalances() {
	balances := c.once("a balance", c.rows(`SELECT name, balance FROM campaign_orders`))
	sums := c.once("a sum", c.rows(`SELECT name, SUM(amount) FROM campaign_ledger GROUP BY name`))
	for name, balance := range balances {
		sum := sums[name]
		if sum == "" {
			sum = "0"
		}
		if sum != balance {
			c.violationf("the ledger of %q sums to %s, its balance is %s", name, sum, balance)
		}
	}
}

// auditRecords compares all records with the effects.
func (c *campaign) auditRecords() {
	if c.control == claimAfterWork {
		return // this control has different records
	}
	effects := make(map[string]string)
	for _, r := range c.rows(`SELECT name, id FROM campaign_effects`) {
		effects[r[0]] = r[1]
	}
	for _, r := range c.rows(`SELECT payout_no, who FROM campaign_payouts`) {
		delete(effects, r[0])
	}
	records := c.once("a record", c.rows(`SELECT op_key, result FROM holdfast_records WHERE state = 2 AND operation <> '`+cronName+`'`))
	for key, id := range effects {
		if records[key] != `"`+id+`"` {
			c.violationf("the refund %q by %s has the record %q", key, id, records[key])
		}
		delete(records, key)
	}
	for key, result := range records {
		c.violationf("the record of %q, %s, has no effect", key, result)
	}
	for _, r := range c.rows(`SELECT op_key, state FROM holdfast_records WHERE state <> 2 AND operation <> '` + cronName + `'`) {
		if r[1] == "3" && strings.Contains(r[0], "/void/") && effects[r[0]] == "" {
			continue // cancelled
		}
		c.violationf("the record of %q has state %s", r[0], r[1])
	}
}

// auditCommits judges the order of the guarded commits of each lease, and the tokens of the
// lease that all epochs share.
func (c *campaign) auditCommits() {
	var commits []history.Commit
	for _, r := range c.rows(`SELECT name, CONCAT(seq, ' ', token) FROM campaign_commits`) {
		commit := history.Commit{Key: r[0]}
		_, err := fmt.Sscan(r[1], &commit.Seq, &commit.Token)
		c.must(err)
		commits = append(commits, commit)
	}
	c.commits = len(commits)
	for _, v := range history.JudgeCommits(commits) {
		c.violationf("key %q: %s: %s", v.Key, v.Rule, v.Text)
	}
	last := history.History(c.tokens)
	for _, v := range history.Judge(last, history.TokensOnly()) {
		c.violationf("key %q, over all epochs: %s: %s", strings.TrimSpace(v.Key), v.Rule, v.Text)
	}
}
