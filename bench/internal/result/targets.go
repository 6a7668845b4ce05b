package result

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/holdfast-go/holdfast/internal/measure"
)

// Target is one of the design's targets on one engine, with the measured figure.
type Target struct {
	What string `json:"what"`
	// On is the engine and, on PostgreSQL, the driver; Row is the measured row.
	On  string `json:"on"`
	Row string `json:"row"`
	// Target is the bound in words; empty if the figure is only shown.
	Target   string         `json:"target,omitempty"`
	Bound    float64        `json:"bound,omitempty"`
	AtLeast  bool           `json:"at_least,omitempty"`
	Measured measure.Spread `json:"measured"`
	// Runs is the spread of the medians of several runs; nil for one run.
	Runs *measure.Spread `json:"runs,omitempty"`
	// Met compares the median with the bound.
	Met  bool   `json:"met"`
	Note string `json:"note,omitempty"`
}

// aim tells where the figure of a target is found.
type aim struct {
	what     string
	workload string
	rows     string // the row's name; # stands for any form of a driver
	key      string
	clients  int // 0: any
	// bound is the target of all engines, and of those that bounds does not name; 0 means that
	// the figure is shown without a target.
	bound   float64
	bounds  map[string]float64 // by the column of the table
	disk    map[string]float64 // in their place, where a commit waits for a disk
	atLeast bool
	only    []string // groups; none for all
	highest bool     // of several rows that match on an engine, the highest figure counts
	note    string
}

const (
	onPgx   = "PostgreSQL, pgx"
	onSQL   = "PostgreSQL"
	mysql   = "MySQL"
	mariadb = "MariaDB"
	sqlite  = "SQLite"
)

// columns are the columns of the table of targets.
var columns = []string{onPgx, onSQL, mysql, mariadb, sqlite}

// column returns the column of a row.
func column(group, name string) string {
	switch group {
	case "postgres":
		if strings.Contains(name, "database/sql") {
			return onSQL
		}
		return onPgx
	case "mysql":
		return mysql
	case "mariadb":
		return mariadb
	case "sqlite":
		return sqlite
	}
	return group
}

// on returns bounds by the columns; 0 is none.
func on(bounds ...float64) map[string]float64 {
	by := map[string]float64{}
	for i, b := range bounds {
		by[columns[i]] = b
	}
	return by
}

// servers are the engines with round trips, which can wake a waiter and notice the end of a
// connection.
var servers = []string{"postgres", "mysql", "mariadb"}

// aims are the targets whose bound is a number.
var aims = []aim{
	{what: "refund under Do ÷ bare", workload: "refund", rows: "Holdfast Do, # ÷ bare, #", key: "x", clients: 1, bounds: on(1.15, 1.40, 1.60, 1.60, 0), disk: on(1.08, 1.25, 1.35, 1.35, 0)},
	{what: "the same with the connector", workload: "refund", rows: "Holdfast Do, #, connector ÷ bare, #", key: "x", clients: 1, bounds: on(0, 1.20, 1.25, 1.25, 0), disk: on(0, 1.10, 1.15, 1.15, 0)},
	{what: "the same with the connector", workload: "refund", rows: "Holdfast Do, connector ÷ bare, #", key: "x", clients: 1, bound: 1.45, disk: on(0, 0, 0, 0, 1.20)},
	{what: "refund under DoTx ÷ bare", workload: "refund", rows: "Holdfast DoTx, # ÷ bare, #", key: "x", clients: 1, bounds: on(1.40, 1.40, 1.60, 1.60, 0), disk: on(1.30, 1.30, 1.45, 1.45, 0)},
	{what: "DoTx with the connector ÷ bare", workload: "refund", rows: "Holdfast DoTx, #, connector ÷ bare, #", key: "x", clients: 1},
	{what: "refund under Table.Do ÷ bare", workload: "refund", rows: "Holdfast Table.Do, # ÷ bare, #", key: "x", clients: 1, bounds: on(1, 0, 0, 0, 0)},
	{what: "Table.Do with the connector ÷ bare", workload: "refund", rows: "Holdfast Table.Do, #, connector ÷ bare, #", key: "x", clients: 1, bound: 1},
	{what: "an update under a version ÷ bare", workload: "refund", rows: "Holdfast UpdateTx, # ÷ bare UPDATE of a version, #", key: "x", clients: 1},
	{what: "log bytes that Do adds", workload: "log", rows: "Holdfast Do, # ÷ bare, #", key: "added", bounds: on(250, 250, 450, 250, 0)},
	{what: "processor time of Do ÷ bare", workload: "processor", rows: "Holdfast Do, # ÷ bare, #", key: "x"},
	{what: "processor time of Do with the connector ÷ bare", workload: "processor", rows: "Holdfast Do, #, connector ÷ bare, #", key: "x"},
	{what: "processor time of Do with the connector ÷ bare", workload: "processor", rows: "Holdfast Do, connector ÷ bare, #", key: "x"},
	{what: "processor time of DoTx ÷ bare", workload: "processor", rows: "Holdfast DoTx, # ÷ bare, #", key: "x"},
	{what: "processor time of Table.Do with the connector ÷ bare", workload: "processor", rows: "Holdfast Table.Do, #, connector ÷ bare, #", key: "x"},
	{what: "refund under Do ÷ bare, 16 clients", workload: "refund", rows: "Holdfast Do, # ÷ bare, #", key: "x", clients: 16},
	{what: "refund under Do, one batch ÷ all in one pipeline", workload: "refund", rows: "Holdfast Do, pgx, one batch ÷ bare, pgx, all pipelined", key: "x", clients: 1, bound: 1.05},
	{what: "refund under Do, one batch ÷ bare, statement by statement", workload: "refund", rows: "Holdfast Do, pgx, one batch ÷ bare, pgx", key: "x", clients: 1, bound: 1},
	{what: "replay, round trips", workload: "replay", rows: "Holdfast Do, # ÷ bare SELECT by key, #", key: "trips", clients: 1, bound: 1},
	{what: "replay ÷ bare SELECT by key", workload: "replay", rows: "Holdfast Do, # ÷ bare SELECT by key, #", key: "x", clients: 1},
	{what: "acquire and release ÷ best bare form", workload: "pair", rows: "Holdfast, # ÷ bare upsert + update, #", key: "x", bounds: on(1.15, 1.15, 1.25, 1.25, 1.15), disk: on(1.10, 1.10, 1.15, 1.15, 1.10), highest: true, note: "the bare form keeps its row, and with it the fencing token: upsert and update, prepared or not, whichever is faster"},
	{what: "acquire and release ÷ upsert and delete", workload: "pair", rows: "Holdfast, # ÷ bare upsert + delete, #", key: "x", highest: true, note: "a delete gives the fencing token back, so it is no target"},
	{what: "acquire and release, round trips", workload: "lock", rows: "Holdfast, #", key: "trips", bound: 2},
	{what: "throughput on distinct keys ÷ upsert and delete", workload: "distinct", rows: "Holdfast, #", key: "x", bound: 0.95, atLeast: true},
	{what: "one hot key, one process: round trips a hand-over", workload: "hot", rows: "Holdfast, one process", key: "trips", clients: 16, bound: 1.05, only: servers, note: "5 % for the turns that other processes get"},
	{what: "four processes: longest wait ÷ median, lease", workload: "hot", rows: "Holdfast, 4 processes", key: "wait_x", bound: 10},
	{what: "four processes: longest wait ÷ median, Fair", workload: "hot", rows: "Holdfast Fair, 4 processes", key: "wait_x", bound: 10},
	{what: "four processes: most ÷ least of a goroutine, Fair", workload: "hot", rows: "Holdfast Fair, 4 processes", key: "unfair", bound: 1.1},
	{what: "hand-over between processes ÷ by hand, lease", workload: "handover", rows: "Holdfast, 2 processes", key: "x", bound: 1.2, only: servers, note: "by hand is LISTEN on PostgreSQL, and a GET_LOCK as a baton on MySQL and MariaDB"},
	{what: "hand-over between processes ÷ by hand, Fair", workload: "handover", rows: "Holdfast Fair, 2 processes", key: "x", bound: 1.2, only: servers},
	{what: "takeover after SIGKILL ÷ a hand-over, lease", workload: "takeover", rows: "Holdfast, the holder is killed", key: "x", bound: 3, only: servers},
	{what: "takeover after SIGKILL ÷ a hand-over, Fair", workload: "takeover", rows: "Holdfast Fair, the holder is killed", key: "x", bound: 3, only: servers},
	{what: "held leases: statements an interval", workload: "leases", rows: "Holdfast", key: "statements", bound: 20},
	{what: "held leases: bytes of one", workload: "leases", rows: "Holdfast", key: "memory", bound: 2048},
	{what: "foreground p99 while the reaper works ÷ quiet", workload: "reap", rows: "Holdfast's reaper", key: "x", bound: 1.5},
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
			if r.Flush == Disk && a.disk != nil {
				a.bounds = a.disk
			}
			r.Targets = append(r.Targets, a.in(t)...)
		}
	}
	r.hotAgainstPeers()
}

// in returns the targets of the rows of a table that the aim covers.
func (a *aim) in(t *Table) (targets []Target) {
	name := regexp.MustCompile("^" + strings.ReplaceAll(regexp.QuoteMeta(a.rows), "#", "(pgx|database/sql|interpolated|prepared)") + "$")
	for _, row := range t.Rows {
		v, ok := row.Values[a.key]
		if !ok || !name.MatchString(row.Name) || len(a.only) > 0 && !slices.Contains(a.only, row.Group) {
			continue
		}
		on := column(row.Group, row.Name)
		bound := a.bound
		if b, ok := a.bounds[on]; ok {
			bound = b
		}
		target := row.target(a.what, a.key, v, bound, a.atLeast)
		target.Note = a.note
		switch {
		case strings.Contains(t.Title, "new key"):
			target.What += ", new keys"
		case a.workload == "hot", a.workload == "distinct":
			target.What += ", " + goroutines(t.Clients)
		}
		if last := len(targets) - 1; a.highest && last >= 0 && targets[last].On == on {
			if v.Median > targets[last].Measured.Median {
				targets[last] = target
			}
			continue
		}
		targets = append(targets, target)
	}
	return targets
}

// target compares a figure of the row with a bound; 0 is none.
func (r *Row) target(what, key string, v measure.Spread, bound float64, atLeast bool) Target {
	t := Target{What: what, On: column(r.Group, r.Name), Row: r.Name, Bound: bound, AtLeast: atLeast, Measured: v, Met: v.Median <= bound}
	if atLeast {
		t.Met = v.Median >= bound
	}
	if bound > 0 {
		t.Target = map[bool]string{false: "≤ ", true: "≥ "}[atLeast] + Number(bound)
	}
	if runs, ok := r.Runs[key]; ok {
		t.Runs = &runs
	}
	return t
}

// hotAgainstPeers compares one hot key: in one process the changes of the holder a second with
// every durable competitor, and in several the changes of the process with ZooKeeper's. Advisory
// locks write nothing and Redis without fsync keeps nothing on disk, so they are left out.
func (r *Report) hotAgainstPeers() {
	for i := range r.Tables {
		t := &r.Tables[i]
		if t.Workload != "hot" {
			continue
		}
		best, name, zoo := t.bestPeer()
		for _, one := range []struct {
			row, what, key string
			bound          float64
			of             string
		}{
			{"Holdfast, one process", "one hot key, one process: holder changes a second", "changes", best, name},
			{"Holdfast, 4 processes", "four processes: process changes a second, lease", "processes", zoo, "zookeeper"},
			{"Holdfast Fair, 4 processes", "four processes: process changes a second, Fair", "processes", zoo, "zookeeper"},
		} {
			for _, row := range t.Rows {
				v, ok := row.Values[one.key]
				if row.Name != one.row || !ok {
					continue
				}
				target := row.target(one.what+", "+goroutines(t.Clients), one.key, v, one.bound, true)
				if one.bound > 0 {
					target.Target += " (" + one.of + ")"
				}
				r.Targets = append(r.Targets, target)
			}
		}
	}
}

// bestPeer returns the changes of the holder a second of the best durable competitor with its
// name, and ZooKeeper's changes of the process.
func (t *Table) bestPeer() (best float64, name string, zoo float64) {
	for _, row := range t.Rows {
		v := row.Values["changes"].Median
		if row.Group == "zookeeper" {
			zoo = row.Values["processes"].Median
		}
		if row.Kind == "peer" && row.Group != "redis" && v > best {
			best, name = v, row.Group
		}
	}
	return best, name, zoo
}

func goroutines(n int) string { return fmt.Sprintf("%d goroutines", n) }
