package result

import (
	"fmt"
	"os"
	"strings"
)

// docPicture is a picture of the page: some rows of a table.
type docPicture struct {
	file            string
	workload, title string // the table, and the beginning of its title
	clients         int    // 0: any
	picture         Picture
	caption         string // replaces the title, if it is set
	shows           func(Row) bool
}

// docMost is the most bytes of a picture of the page: it is kept in the repository.
const docMost = 60_000

var docPictures = []docPicture{
	{
		file: "speed-refund.svg", workload: "refund", title: "A refund", clients: 1, picture: Bars("x", "times the bare transaction (p50); shorter is better"),
		caption: "A refund of four statements ÷ the bare transaction, in turns",
		shows:   func(r Row) bool { return !strings.Contains(r.Name, "prepared") },
	},
	{
		file: "speed-lease.svg", workload: "pair", title: "Acquire and release against the two bare statements, in turns, keys", clients: 1, picture: Bars("x", "times the bare statements (p50); shorter is better"),
		caption: "Acquire and release ÷ two bare statements, in turns",
		shows:   func(Row) bool { return true },
	},
	{
		file: "speed-hot.svg", workload: "hot", title: "One hot key", clients: 16, picture: Bars("processes", "process changes a second; longer is better"),
		caption: "One key that 16 goroutines of four processes want",
		shows: func(r Row) bool {
			return strings.Contains(r.Name, "4 processes") || r.Kind == "peer" || strings.Contains(r.Name, "poll 1–3 ms")
		},
	},
	{
		file: "speed-handover.svg", workload: "handover", title: "Hand-over", picture: Bars("p50", "µs from release to grant, p50; shorter is better"),
		caption: "Hand-over from one client to one that waits",
		shows: func(r Row) bool {
			return r.Kind != "stand-in" && !strings.Contains(r.Name, "5–15 ms") && column(r.Group, "") != r.Group || r.Group == "zookeeper"
		},
	},
	{
		file: "speed-clients.svg", workload: "load", title: "Throughput over the clients", picture: Curve("per_second", "acquired and released a second"),
		shows: func(Row) bool { return true },
	},
	{
		file: "speed-waiters.svg", workload: "load", title: "Hand-overs of one key", picture: Curve("per_second", "hand-overs a second"),
		shows: func(Row) bool { return true },
	},
}

// docPicture draws a picture of the page. What was not measured keeps its picture.
func (r *Report) docPicture(p docPicture, path string) error {
	for _, t := range r.of(p.workload, p.title) {
		if p.clients > 0 && t.Clients != p.clients {
			continue
		}
		some := *t
		some.Picture, some.Rows = p.picture, nil
		if p.caption != "" {
			some.Title, some.Clients = p.caption, 0
		}
		for _, row := range t.Rows {
			if p.shows(row) {
				some.Rows = append(some.Rows, row)
			}
		}
		if _, err := some.write(path); err != nil {
			return err
		}
		info, err := os.Stat(path)
		if err == nil && info.Size() > docMost {
			err = fmt.Errorf("%d bytes, at most %d: show fewer rows", info.Size(), docMost)
		}
		return err
	}
	return nil
}
