package result

import (
	"fmt"
	"strings"

	"github.com/holdfast-go/holdfast/internal/measure"
)

// Target is one of the design's targets on one engine, with the measured figure.
type Target struct {
	What     string         `json:"what"`
	On       string         `json:"on"`
	Target   string         `json:"target"`
	Bound    float64        `json:"bound"`
	AtLeast  bool           `json:"at_least,omitempty"`
	Measured measure.Spread `json:"measured"`
	// Met compares the median with the bound.
	Met  bool   `json:"met"`
	Note string `json:"note,omitempty"`
}

// aim tells where the figure of a target is found.
type aim struct {
	what, target   string
	workload, rows string // a row whose name is rows or begins with it
	key            string
	clients        int // 0: any
	bound          float64
	atLeast        bool
	only           string // a group; "" for all
	note           string
}

// aims are the rows of the design's table.
var aims = []aim{
	{what: "acquire + release against upsert + delete", target: "≤ 1.10 x", workload: "pair", rows: "Holdfast, # ÷ bare upsert + delete, #", key: "x", bound: 1.10},
	{what: "acquire + release against upsert + update", target: "≤ 1.10 x", workload: "pair", rows: "Holdfast, # ÷ bare upsert + update, #", key: "x", bound: 1.10, note: "a delete gives the fencing token back; an update, as Holdfast's, keeps it"},
	{what: "acquire + release, round trips", target: "2", workload: "lock", rows: "Holdfast, #", key: "trips", bound: 2},
	{what: "throughput on distinct keys", target: "≥ 0.95 x", workload: "distinct", rows: "Holdfast, #", key: "x", clients: 64, bound: 0.95, atLeast: true},
	{what: "one hot key in one process, round trips a hand-over", target: "≤ 1 statement", workload: "hot", rows: "Holdfast, one process", key: "trips", bound: 1.05, note: "5 % for the turns that other processes get"},
	{what: "refund under Do against the bare form", target: "≤ 1.25 x", workload: "refund", rows: "Holdfast Do, # ÷ bare, #", key: "x", bound: 1.25},
	{what: "refund under Do against the pipelined bare form", target: "≤ 1.05 x", workload: "refund", rows: "Holdfast Do, pgx, one batch ÷ bare, pgx, all pipelined", key: "x", bound: 1.05, only: "postgres"},
	{what: "refund under Do, pipelined, against the bare unpipelined form", target: "< 1 x", workload: "refund", rows: "Holdfast Do, pgx, one batch ÷ bare, pgx", key: "x", bound: 1, only: "postgres"},
	{what: "log bytes of a refund under Do against the bare form", target: "≤ 1.5 x", workload: "log", rows: "Holdfast Do, # ÷ bare, #", key: "x", bound: 1.5},
	{what: "replay, round trips", target: "1", workload: "replay", rows: "Holdfast Do, # ÷ bare SELECT by key, #", key: "trips", bound: 1},
	{what: "held leases, statements an interval", target: "≤ 20", workload: "leases", rows: "Holdfast", key: "statements", bound: 20},
	{what: "held leases, memory of one", target: "< 2048 bytes", workload: "leases", rows: "Holdfast", key: "memory", bound: 2048},
	{what: "reaping, foreground p99 against quiet", target: "≤ 1.5 x", workload: "reap", rows: "Holdfast's reaper", key: "x", bound: 1.5},
}

// Aim sets the targets from what was measured.
func (r *Report) Aim() {
	r.Targets = nil
	for _, a := range aims {
		for i := range r.Tables {
			t := &r.Tables[i]
			if t.Workload != a.workload || a.clients > 0 && t.Clients != a.clients {
				continue
			}
			r.Targets = append(r.Targets, a.in(t)...)
		}
	}
	r.hotAgainstPeers()
	r.handOverBudget()
}

// in lists the rows of a table that the aim covers.
func (a *aim) in(t *Table) (targets []Target) {
	for _, row := range t.Rows {
		v, ok := row.Values[a.key]
		if !ok || a.only != "" && a.only != row.Group || !matches(a.rows, row.Name) {
			continue
		}
		target := Target{What: a.what, On: row.Group + ", " + row.Name, Target: a.target, Bound: a.bound, AtLeast: a.atLeast, Measured: v, Note: a.note}
		if t.Clients > 1 {
			target.On += ", " + clients(t.Clients)
		}
		if strings.Contains(t.Title, "new key") {
			target.On += ", new keys"
		}
		target.Met = v.Median <= a.bound
		if a.atLeast {
			target.Met = v.Median >= a.bound
		}
		targets = append(targets, target)
	}
	return targets
}

// matches compares a name with a pattern in which # stands for one driver's form.
func matches(pattern, name string) bool {
	for _, form := range []string{"pgx", "database/sql", "interpolated"} {
		if strings.ReplaceAll(pattern, "#", form) == name {
			return true
		}
	}
	return pattern == name
}

// hotAgainstPeers compares holder changes a second on one hot key with every durable
// competitor. Advisory locks write nothing and Redis without fsync keeps nothing on disk, so
// they are left out.
func (r *Report) hotAgainstPeers() {
	for i := range r.Tables {
		t := &r.Tables[i]
		if t.Workload != "hot" {
			continue
		}
		best, name, zoo := 0.0, "", 0.0
		for _, row := range t.Rows {
			v := row.Values["changes"].Median
			if row.Group == "zookeeper" {
				zoo = v
			}
			if row.Kind == "peer" && row.Group != "redis" && v > best {
				best, name = v, row.Group+", "+row.Name
			}
		}
		for _, row := range t.Rows {
			v := row.Values["changes"]
			on := fmt.Sprintf("%s, %s, %s", row.Group, row.Name, clients(t.Clients))
			if row.Name == "Holdfast, one process" && best > 0 {
				r.Targets = append(r.Targets, Target{
					What: "one hot key, holder changes a second", On: on, Target: fmt.Sprintf("> %s (%s)", Number(best), name),
					Bound: best, AtLeast: true, Measured: v, Met: v.Median > best,
				})
			}
			if row.Name == "Holdfast, 4 processes" && zoo > 0 {
				r.Targets = append(r.Targets, Target{
					What: "between processes, holder changes a second", On: on, Target: fmt.Sprintf("≥ %s (ZooKeeper)", Number(zoo)),
					Bound: zoo, AtLeast: true, Measured: v, Met: v.Median >= zoo,
				})
			}
			if row.Name == "Holdfast Fair, 4 processes" {
				u := row.Values["unfair"]
				r.Targets = append(r.Targets, Target{What: "between processes, most ÷ least", On: on, Target: "≤ 1.1", Bound: 1.1, Measured: u, Met: u.Median <= 1.1})
			}
		}
	}
}

// handOverBudget compares a hand-over between processes with two round trips and a commit,
// measured at the same pace.
func (r *Report) handOverBudget() {
	for i := range r.Tables {
		t := &r.Tables[i]
		if t.Workload != "handover" {
			continue
		}
		for _, row := range t.Rows {
			trip, ok := t.Find(row.Group, "round trip, paced")
			commit, too := t.Find(row.Group, "commit of one row, paced")
			if row.Name != "Holdfast, 2 processes" || !ok || !too {
				continue
			}
			budget := 2*trip.Values["p50"].Median + commit.Values["p50"].Median
			target := Target{
				What: "hand-over between processes, p50 µs", On: row.Group, Target: "≤ 2 round trips + 1 commit = " + Number(budget),
				Bound: budget, Measured: row.Values["p50"], Met: row.Values["p50"].Median <= budget,
			}
			if row.Group != "postgres" {
				target.Note = "this engine cannot wake who waits, so the target does not bind it"
			}
			r.Targets = append(r.Targets, target)
		}
	}
}

func targetTable(b *strings.Builder, targets []Target) {
	line(b, []string{"what", "on", "target", "measured", ""})
	b.WriteString("|---|---|---|---|---|\n")
	notes := map[string]bool{}
	for _, t := range targets {
		verdict := "missed"
		if t.Met {
			verdict = "met"
		}
		line(b, []string{t.What, t.On, t.Target, cell(t.Measured, true, true), verdict})
		if t.Note != "" && !notes[t.What+t.Note] {
			notes[t.What+t.Note] = true
		}
	}
	for _, t := range targets {
		if notes[t.What+t.Note] {
			delete(notes, t.What+t.Note)
			b.WriteString("\n" + t.What + ": " + t.Note + ".\n")
		}
	}
}
