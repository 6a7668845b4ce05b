// Package result holds what was measured and writes it: for machines, for
// people, and as pictures.
package result

import (
	"encoding/json"
	"os"

	"github.com/holdfast-go/holdfast/internal/measure"
)

// Report is a whole run.
type Report struct {
	// Machine says where it ran, in words; Commit which tree it was.
	Machine []string `json:"machine"`
	Commit  string   `json:"commit,omitempty"`
	Began   string   `json:"began"` // RFC 3339
	TookS   float64  `json:"took_s"`
	Rounds  int      `json:"rounds"`
	SliceMS int64    `json:"slice_ms"`
	// Servers say what was measured, and where each came from.
	Servers []string `json:"servers"`
	// Missing are those that could not be had.
	Missing []string `json:"missing,omitempty"`
	Tables  []Table  `json:"tables"`
	Targets []Target `json:"targets"`
}

// Table is one comparison.
type Table struct {
	// Workload is the name that -workload takes.
	Workload string `json:"workload"`
	Title    string `json:"title"`
	// Clients are how many worked at the same time; 0 where it is a column.
	Clients int      `json:"clients,omitempty"`
	Columns []Column `json:"columns"`
	Rows    []Row    `json:"rows"`
	Notes   []string `json:"notes,omitempty"`
	// File is the picture's name, once it is drawn.
	File string `json:"file,omitempty"`
	// Picture is what the SVG shows.
	Picture Picture `json:"-"`
}

// Column is one figure of the rows.
type Column struct {
	// Key is its name in Row.Values.
	Key   string `json:"key"`
	Title string `json:"title"`
	// Spread has the rounds' least and greatest shown too.
	Spread bool `json:"-"`
}

// Row is one competitor.
type Row struct {
	// Group are those that share a server.
	Group string `json:"group"`
	Name  string `json:"name"`
	Kind  string `json:"kind"`
	// Against is the name of the row that the ratios are of.
	Against string `json:"against,omitempty"`
	// At is the size that a curve's point is of.
	At     float64                   `json:"at,omitempty"`
	Values map[string]measure.Spread `json:"values"`
	Note   string                    `json:"note,omitempty"`
}

// Find gives the row of that group and name.
func (t *Table) Find(group, name string) (Row, bool) {
	for _, r := range t.Rows {
		if r.Group == group && r.Name == name {
			return r, true
		}
	}
	return Row{}, false
}

// Write writes the report as JSON.
func (r *Report) Write(path string) error {
	text, err := json.MarshalIndent(r, "", " ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(text, '\n'), 0o644) //nolint:gosec // it is to be read by all
}

// Read reads what Write wrote.
func Read(path string) (*Report, error) {
	text, err := os.ReadFile(path) //nolint:gosec // the user names it
	if err != nil {
		return nil, err
	}
	r := &Report{}
	return r, json.Unmarshal(text, r)
}
