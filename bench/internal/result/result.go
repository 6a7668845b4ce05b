// Package result holds the measurements and writes them as JSON, as Markdown and as pictures.
package result

import (
	"encoding/json"
	"os"

	"github.com/holdfast-go/holdfast/internal/measure"
)

// Report is a whole run.
type Report struct {
	// Machine describes the machine in words; Commit is the measured commit.
	Machine []string `json:"machine"`
	Commit  string   `json:"commit,omitempty"`
	Began   string   `json:"began"` // RFC 3339
	TookS   float64  `json:"took_s"`
	Rounds  int      `json:"rounds"`
	// Runs is the number of runs that were merged; 0 for one run.
	Runs    int   `json:"runs,omitempty"`
	SliceMS int64 `json:"slice_ms"`
	// Flush is Free or Disk: what a commit waits for.
	Flush string `json:"flush,omitempty"`
	// OnDisk is the report of the runs with Disk that were merged beside those with Free.
	OnDisk *Report `json:"on_disk,omitempty"`
	// Servers lists the measured servers and where each came from.
	Servers []string `json:"servers"`
	// Missing lists the servers and competitors that were not available.
	Missing []string `json:"missing,omitempty"`
	Tables  []Table  `json:"tables"`
	Targets []Target `json:"targets"`
}

// What a commit waits for.
const (
	Free = "free" // the files are in memory
	Disk = "disk"
)

// Table is one comparison.
type Table struct {
	// Workload is the name that -workload takes.
	Workload string `json:"workload"`
	Title    string `json:"title"`
	// Clients is the number of concurrent clients; 0 if it is a column.
	Clients int      `json:"clients,omitempty"`
	Columns []Column `json:"columns"`
	Rows    []Row    `json:"rows"`
	Notes   []string `json:"notes,omitempty"`
	// File is the name of the picture, once it is drawn.
	File string `json:"file,omitempty"`
	// Picture defines the SVG.
	Picture Picture `json:"picture"`
}

// Column is one figure of the rows.
type Column struct {
	// Key is the key of the figure in Row.Values.
	Key   string `json:"key"`
	Title string `json:"title"`
	// Spread shows the minimum and the maximum of the rounds too.
	Spread bool `json:"spread,omitempty"`
}

// Row is one competitor.
type Row struct {
	// Group is shared by the competitors on one server.
	Group string `json:"group"`
	Name  string `json:"name"`
	Kind  string `json:"kind"`
	// Against names the row with which the ratios compare.
	Against string `json:"against,omitempty"`
	// At is the size at this point of a curve.
	At     float64                   `json:"at,omitempty"`
	Values map[string]measure.Spread `json:"values"`
	// Runs are the spreads of the medians of several runs; nil for one run.
	Runs map[string]measure.Spread `json:"runs,omitempty"`
	Note string                    `json:"note,omitempty"`
}

// Write writes the report as JSON.
func (r *Report) Write(path string) error {
	text, err := json.MarshalIndent(r, "", " ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(text, '\n'), 0o644) //nolint:gosec // it is to be read by all
}

// Read reads a report that Write has written.
func Read(path string) (*Report, error) {
	text, err := os.ReadFile(path) //nolint:gosec // the user names it
	if err != nil {
		return nil, err
	}
	r := &Report{}
	return r, json.Unmarshal(text, r)
}
