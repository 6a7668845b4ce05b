package reaper

import (
	"strings"

	"github.com/holdfast-go/holdfast/internal/dialect"
)

// newIntents returns the task on the rows of Op.Similar whose window is over.
func newIntents(table string, d *dialect.Dialect) *records {
	t := d.Sweep.Intents
	for _, text := range []*string{&t.Count, &t.Find, &t.Write} {
		*text = strings.ReplaceAll(*text, "{rows}", table)
	}
	return newRecords("intents", table, d, t)
}
