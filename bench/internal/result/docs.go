package result

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/holdfast-go/holdfast/internal/measure"
)

// part matches a generated part of a page: what stands between <!-- bench:NAME --> and
// <!-- /bench -->.
var part = regexp.MustCompile(`(?s)<!-- bench:([a-z]+) -->\n.*?<!-- /bench -->`)

// Docs fills the generated parts of a page and draws its pictures into img beside it.
func (r *Report) Docs(page string) error {
	text, err := os.ReadFile(page) //nolint:gosec // the user names it
	if err != nil {
		return err
	}
	filled, err := r.fill(string(text))
	if err != nil {
		return fmt.Errorf("%s: %w", page, err)
	}
	dir := filepath.Join(filepath.Dir(page), "img")
	if err := os.MkdirAll(dir, 0o755); err != nil { //nolint:gosec // it is to be read by all
		return err
	}
	for _, p := range docPictures {
		if err := r.docPicture(p, filepath.Join(dir, p.file)); err != nil {
			return fmt.Errorf("%s: %w", p.file, err)
		}
	}
	return os.WriteFile(page, []byte(filled), 0o644) //nolint:gosec // it is to be read by all
}

// fill replaces the generated parts.
func (r *Report) fill(page string) (string, error) {
	var err error
	filled := part.ReplaceAllStringFunc(page, func(found string) string {
		name := part.FindStringSubmatch(found)[1]
		write, ok := parts[name]
		if !ok {
			err = fmt.Errorf("no part %q", name)
			return found
		}
		var b strings.Builder
		write(r, &b)
		if b.Len() == 0 {
			b.WriteString("This run did not measure it.\n")
		}
		return "<!-- bench:" + name + " -->\n" + b.String() + "<!-- /bench -->"
	})
	return filled, err
}

// parts are the generated parts of the page, by name.
var parts = map[string]func(*Report, *strings.Builder){
	"run": func(r *Report, b *strings.Builder) {
		b.WriteString("- " + r.howLong() + "\n")
		for _, line := range slices.Concat(r.Machine, r.Servers) {
			b.WriteString("- " + line + "\n")
		}
		for _, line := range r.Missing {
			b.WriteString("- not measured: " + line + "\n")
		}
	},
	"targets": func(r *Report, b *strings.Builder) {
		if len(r.Targets) == 0 {
			return
		}
		targetTable(b, r.Targets)
		if r.OnDisk != nil && len(r.OnDisk.Targets) > 0 {
			b.WriteString("\nThe same with all files on a disk:\n\n")
			targetTable(b, r.OnDisk.Targets)
		}
	},
	"flush": func(r *Report, b *strings.Builder) {
		for _, t := range r.of("flush", "A commit") {
			pivot(b, t, "p50 µs", "p50", func(row Row) string { return row.Name })
		}
		if r.OnDisk == nil {
			return
		}
		for _, t := range r.OnDisk.of("flush", "A commit") {
			b.WriteString("\nWith all files on a disk, " + r.OnDisk.howLong() + ":\n\n")
			pivot(b, t, "p50 µs", "p50", func(row Row) string { return row.Name })
		}
	},
	"locks": func(r *Report, b *strings.Builder) {
		for _, t := range r.of("lock", "Acquire and release, keys") {
			pivot(b, t, "lock and release, p50 µs", "p50", func(row Row) string { return lockNames[row.Name] })
		}
	},
	"processor": func(r *Report, b *strings.Builder) {
		for _, t := range r.of("processor", "Processor time of a refund") {
			pivot(b, t, "processor time of a refund ÷ bare", "x", pairName)
		}
		for _, t := range r.of("processor", "Processor time of an acquire") {
			b.WriteString("\n")
			pivot(b, t, "processor time of an acquire and a release ÷ bare", "x", pairName)
		}
	},
	"log": func(r *Report, b *strings.Builder) {
		for _, t := range r.of("log", "Log bytes") {
			pivot(b, t, "log bytes that a refund adds", "added", pairName)
		}
	},
	"hot": func(r *Report, b *strings.Builder) {
		for _, t := range r.of("hot", "One hot key") {
			if t.Clients == 16 {
				pivot(b, hotRows(t), "16 goroutines of four processes", "v", func(row Row) string { return row.Name })
			}
		}
	},
	"handover": func(r *Report, b *strings.Builder) {
		for _, t := range r.of("handover", "Hand-over") {
			pivot(b, t, "release to grant, p50 µs", "p50", func(row Row) string {
				if row.Kind == "holdfast" || row.Kind == "canary" || strings.Contains(row.Name, "by hand") || row.Group == "zookeeper" {
					return row.Name
				}
				return ""
			})
		}
	},
	"takeover": func(r *Report, b *strings.Builder) {
		for _, t := range r.of("takeover", "Takeover") {
			pivot(b, t, "SIGKILL to grant, p50 µs", "p50", func(row Row) string { return row.Name })
		}
	},
	"growth": func(r *Report, b *strings.Builder) {
		for _, t := range r.of("growth", "Cost over the rows") {
			most := 0.0
			for _, row := range t.Rows {
				most = max(most, row.At)
			}
			pivot(b, t, Number(most)+" rows: ratio of p50", "x", func(row Row) string {
				if row.At == most {
					return row.Name
				}
				return ""
			})
		}
	},
	"clients": func(r *Report, b *strings.Builder) {
		for _, t := range r.of("load", "Throughput over the clients") {
			pivot(b, t, "acquired and released a second", "per_second", func(row Row) string {
				if row.Kind == "holdfast" && slices.Contains([]float64{1, 4, 16, 64}, row.At) {
					return clients(int(row.At))
				}
				return ""
			})
		}
	},
	"waiters": func(r *Report, b *strings.Builder) {
		for _, t := range r.of("load", "Hand-overs of one key") {
			pivot(b, t, "hand-overs a second", "per_second", func(row Row) string { return Number(row.At) + " wait" })
		}
	},
}

// lockNames are the locks that a table sets side by side, by their names in the tables.
var lockNames = map[string]string{
	"row FOR UPDATE, database/sql":           "bare `SELECT … FOR UPDATE` in a transaction",
	"row FOR UPDATE, interpolated":           "bare `SELECT … FOR UPDATE` in a transaction",
	"Holdfast LockTx in a transaction":       "`rowlock.Locker.LockTx` in a transaction",
	"Holdfast, pgx":                          "lease",
	"Holdfast, interpolated":                 "lease",
	"Holdfast, database/sql":                 "lease, `database/sql`",
	"Holdfast lease, Guard in a transaction": "lease, and `Guard` in a transaction",
	"advisory lock, pgx":                     "advisory lock; `GET_LOCK`",
	"GET_LOCK, interpolated":                 "advisory lock; `GET_LOCK`",
	"redislock":                              "redislock",
	"redsync, 1 node":                        "redsync, 1 node",
	"redsync, 5 nodes":                       "redsync, 5 nodes",
	"etcd concurrency.Mutex":                 "etcd `concurrency.Mutex`",
	"ZooKeeper Lock":                         "ZooKeeper Lock",
}

// pairName names a row that compares with a floor, but for the control and what is a bare form itself.
func pairName(row Row) string {
	if row.Kind != "holdfast" {
		return ""
	}
	return row.Name
}

// hotRows returns a row for each figure that tells how processes share a key.
func hotRows(t *Table) *Table {
	figures := &Table{}
	for _, name := range []string{"Holdfast, 4 processes", "Holdfast Fair, 4 processes", "ZooKeeper Lock, 4 processes"} {
		for _, f := range [][2]string{
			{"processes", "process changes a second"},
			{"changes", "holder changes a second"},
			{"wait_p50", "median wait, ms"},
			{"wait_max", "longest wait, ms"},
			{"unfair", "most ÷ least of a goroutine"},
		} {
			for _, row := range t.Rows {
				if v, ok := row.Values[f[0]]; ok && row.Name == name {
					figures.Rows = append(figures.Rows, Row{
						Group: row.Group, Name: strings.TrimSuffix(name, ", 4 processes") + ": " + f[1],
						Values: map[string]measure.Spread{"v": v},
					})
				}
			}
		}
	}
	return figures
}

// of returns the tables of a workload whose titles begin so.
func (r *Report) of(workload, title string) (tables []*Table) {
	for i := range r.Tables {
		if t := &r.Tables[i]; t.Workload == workload && strings.HasPrefix(t.Title, title) {
			tables = append(tables, t)
		}
	}
	return tables
}

// pivot writes a figure of a table with a column for each server. label names a row of what is
// written; rows without a label are left out.
func pivot(b *strings.Builder, t *Table, corner, key string, label func(Row) string) {
	var groups, labels []string
	cells := map[[2]string]string{}
	for _, row := range t.Rows {
		name := label(row)
		v, ok := row.Values[key]
		if name == "" || !ok {
			continue
		}
		if !slices.Contains(groups, row.Group) {
			groups = append(groups, row.Group)
		}
		if !slices.Contains(labels, name) {
			labels = append(labels, name)
		}
		cells[[2]string{name, row.Group}] = cell(v, true, true)
	}
	if len(labels) == 0 {
		return
	}
	head := []string{corner}
	for _, g := range groups {
		head = append(head, proper(g))
	}
	line(b, head)
	b.WriteString(strings.Repeat("|---", len(head)) + "|\n")
	for _, name := range labels {
		row := []string{name}
		for _, g := range groups {
			row = append(row, cells[[2]string{name, g}])
		}
		line(b, row)
	}
}

// proper returns the name of a server as people write it.
func proper(group string) string {
	switch group {
	case "postgres":
		return "PostgreSQL"
	case "zookeeper":
		return "ZooKeeper"
	}
	return column(group, "")
}
