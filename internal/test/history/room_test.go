package history_test

import (
	"slices"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/test/history"
)

// some sets the number of units of a grant; 0 means all.
func some(op history.Op, units int) history.Op {
	op.Units = units
	return op
}

func TestRoom(t *testing.T) {
	t.Parallel()
	one, two, three := some(granted(1, 0, 10, 1, 100), 1), some(granted(2, 10, 20, 2, 120), 1), some(granted(3, 20, 30, 3, 130), 1)
	all := granted(4, 20, 30, 4, 130)
	late := some(granted(3, 105, 115, 3, 200), 1)
	stopped := history.Outside(history.Span{Process: 5, From: 40 * ms, To: 101 * ms})
	for name, c := range map[string]struct {
		h    history.History
		opts []history.Option
		want []history.Rule
	}{
		"as many as there are":                {h: historyOf(one, two)},
		"one more":                            {h: historyOf(one, two, three), want: []history.Rule{history.Exclusion}},
		"one more, after a release":           {h: historyOf(one, released(1, 15, 40, 1, history.OK), two, three)},
		"one more, after a crash":             {h: historyOf(one, two, late)},
		"alone beside one who shares":         {h: historyOf(one, all), want: []history.Rule{history.Exclusion}},
		"alone after one who shared":          {h: historyOf(one, released(1, 15, 17, 1, history.OK), all)},
		"a release that was lost":             {h: historyOf(one, two, late, released(1, 150, 160, 1, history.Lost)), opts: []history.Option{stopped}},
		"a release that nobody knows of":      {h: historyOf(one, two, late, released(1, 150, 160, 1, "")), opts: []history.Option{stopped}},
		"a late release, others got its room": {h: historyOf(one, two, late, released(1, 150, 160, 1, history.OK)), opts: []history.Option{stopped}, want: []history.Rule{history.StaleTerm}},
		"a late release, another got it all": {
			h:    historyOf(one, ended(1, 90, 140, 1), granted(4, 105, 115, 4, 200), released(4, 120, 125, 4, history.OK), released(1, 150, 160, 1, history.OK)),
			want: []history.Rule{history.StaleTerm},
		},
		"a late release, nobody got its room":  {h: historyOf(one, late, released(1, 150, 160, 1, history.OK)), opts: []history.Option{stopped}},
		"a release is called before the grant": {h: historyOf(one, two, released(1, 104, 160, 1, history.OK), late), opts: []history.Option{stopped}},
		"tokens":                               {h: historyOf(one, some(granted(2, 20, 30, 1, 120), 1)), want: []history.Rule{history.TokenOrder}},
	} {
		for i := range c.h {
			if c.h[i].Client == 1 {
				c.h[i].Process = 5
			}
		}
		got := rulesOf(history.Judge(c.h, append(c.opts, history.Room(2))...))
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

// TestGrantUnits checks that recorded units are judged.
func TestGrantUnits(t *testing.T) {
	t.Parallel()
	rec := history.New()
	for i := range 3 {
		rec.Client(i).GrantUnits("key", 1).Won(int64(i+1), time.Now().Add(time.Minute))
	}
	if got := rulesOf(history.Judge(rec.History(), history.Room(2))); !slices.Equal(got, []history.Rule{history.Exclusion}) {
		t.Errorf("three of two: %v", got)
	}
	if got := history.Judge(rec.History(), history.Room(3)); len(got) != 0 {
		t.Errorf("three of three: %v", got)
	}
}
