package console

import (
	"net/http"
	"time"

	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/reaper"
)

// reaperPage holds the last passes.
type reaperPage struct{ Passes []passRow }

type passRow struct {
	reaper.Pass
	ID    string
	Took  time.Duration
	Tasks []reaper.TaskReport // tasks that found something
}

func (c *console[Tx]) getReaper(w http.ResponseWriter, r *http.Request) {
	passes, err := core.First(pageRows, reaper.History(r.Context(), c.db))
	if err != nil {
		c.failed(w, r, err)
		return
	}
	var p reaperPage
	for _, pass := range passes {
		row := passRow{Pass: pass, ID: rowID("pass", pass.Holder, pass.Began.String()), Took: pass.Ended.Sub(pass.Began)}
		for _, t := range pass.Tasks {
			if t.Rows > 0 || t.Passed > 0 {
				row.Tasks = append(row.Tasks, t)
			}
		}
		p.Passes = append(p.Passes, row)
	}
	c.render(w, r, http.StatusOK, "reaper", page{Title: "Reaper", Section: "reaper", Live: true, Body: p})
}
