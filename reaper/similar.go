package reaper

import (
	"strings"

	"github.com/holdfast-go/holdfast/internal/dialect"
)

// newSimilar returns the task on the rows of Op.Similar whose window is over.
func newSimilar(table string, d *dialect.Dialect) *records {
	t := d.Sweep.Similar
	for _, text := range []*string{&t.Count, &t.Find, &t.Write} {
		*text = strings.ReplaceAll(*text, "{rows}", table)
	}
	return newRecords("similar", table, d, t)
}
