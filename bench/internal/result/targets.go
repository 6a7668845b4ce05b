package result

import "strings"

// Target is a row of what the design aims at, and what was measured.
type Target struct {
	What     string  `json:"what"`
	Target   string  `json:"target"`
	Measured string  `json:"measured"`
	Value    float64 `json:"value,omitempty"`
	Verdict  string  `json:"verdict"` // "met", "missed"
}

func targetTable(b *strings.Builder, targets []Target) {
	line(b, []string{"what", "target", "measured", ""})
	b.WriteString("|---|---|---|---|\n")
	for _, t := range targets {
		line(b, []string{t.What, t.Target, t.Measured, t.Verdict})
	}
}
