package result

import (
	"slices"

	"github.com/holdfast-go/holdfast/internal/measure"
)

// Merge returns the figures of several runs as one report: the median of the runs' medians, the
// least and the greatest of all rounds, and in Row.Runs the spread of the medians. Rows that
// only some runs have are kept. Merge keeps no reference to the reports, which have the same Flush, and sets the targets.
func Merge(reports []*Report) *Report {
	m := &Report{}
	for _, r := range reports {
		if m.Began == "" || r.Began < m.Began {
			m.Began = r.Began
		}
		m.TookS += r.TookS
		m.Flush = r.Flush
		m.Runs += max(1, r.Runs)
		m.Machine, m.Servers, m.Missing = union(m.Machine, r.Machine), union(m.Servers, r.Servers), union(m.Missing, r.Missing)
		if m.Rounds == 0 || r.Rounds < m.Rounds {
			m.Rounds = r.Rounds
		}
		if m.SliceMS == 0 || r.SliceMS < m.SliceMS {
			m.SliceMS = r.SliceMS
		}
		switch m.Commit {
		case "", r.Commit:
			m.Commit = r.Commit
		default:
			m.Commit = "several"
		}
		for _, t := range r.Tables {
			m.table(t)
		}
	}
	for i := range m.Tables {
		mergeRows(&m.Tables[i])
	}
	m.Runs *= min(1, m.Runs-1) // one run is not merged
	m.Aim()
	return m
}

// table adds the rows of t to the table that compares the same.
func (r *Report) table(t Table) {
	for i := range r.Tables {
		if same := &r.Tables[i]; same.Workload == t.Workload && same.Title == t.Title && same.Clients == t.Clients {
			same.Rows = append(same.Rows, t.Rows...)
			return
		}
	}
	t.Rows = slices.Clone(t.Rows)
	r.Tables = append(r.Tables, t)
}

// mergeRows makes one row of those that measure the same.
func mergeRows(t *Table) {
	var merged []Row
	for i, row := range t.Rows {
		is := func(r Row) bool { return r.Group == row.Group && r.Name == row.Name && r.At == row.At }
		if slices.ContainsFunc(t.Rows[:i], is) {
			continue
		}
		byKey := map[string][]measure.Spread{}
		for _, r := range t.Rows[i:] {
			if is(r) {
				for key, v := range r.Values {
					byKey[key] = append(byKey[key], v)
				}
			}
		}
		row.Values, row.Runs = map[string]measure.Spread{}, nil
		for key, runs := range byKey {
			v, medians := runs[0], make([]float64, 0, len(runs))
			for _, s := range runs {
				v.Min, v.Max, medians = min(v.Min, s.Min), max(v.Max, s.Max), append(medians, s.Median)
			}
			spread := measure.Over(medians)
			v.Median = spread.Median
			row.Values[key] = v
			if len(runs) > 1 {
				if row.Runs == nil {
					row.Runs = map[string]measure.Spread{}
				}
				row.Runs[key] = spread
			}
		}
		merged = append(merged, row)
	}
	t.Rows = merged
}

func union(a, b []string) []string {
	for _, s := range b {
		if !slices.Contains(a, s) {
			a = append(slices.Clip(a), s)
		}
	}
	return a
}
