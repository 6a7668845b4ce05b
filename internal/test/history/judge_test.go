package history_test

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/test/history"
)

const ms = time.Millisecond

// historyOf numbers the operations of one key and converts their times to milliseconds.
func historyOf(ops ...history.Op) history.History {
	for i := range ops {
		op := &ops[i]
		op.ID, op.Key = i, "refund 17"
		op.Call, op.Return, op.Until = op.Call*ms, op.Return*ms, op.Until*ms
	}
	return ops
}

func granted(client int, from, to time.Duration, token int64, until time.Duration) history.Op {
	return history.Op{Client: client, Kind: history.KindGrant, Outcome: history.OK, Call: from, Return: to, Token: token, Until: until}
}

func refused(from, to time.Duration) history.Op {
	return history.Op{Client: 9, Kind: history.KindGrant, Outcome: history.Refused, Call: from, Return: to}
}

func unknown(from time.Duration) history.Op {
	return history.Op{Client: 8, Kind: history.KindGrant, Call: from}
}

func did(client int, kind history.Kind, from, to time.Duration, token int64, outcome history.Outcome) history.Op {
	return history.Op{Client: client, Kind: kind, Outcome: outcome, Call: from, Return: to, Token: token}
}

func ended(client int, from, to time.Duration, token int64) history.Op {
	return did(client, history.KindEnded, from, to, token, history.OK)
}

func released(client int, from, to time.Duration, token int64, outcome history.Outcome) history.Op {
	return did(client, history.KindRelease, from, to, token, outcome)
}

func TestJudgeOfLeases(t *testing.T) {
	t.Parallel()
	first := granted(1, 0, 10, 1, 100)
	for name, c := range map[string]struct {
		h    history.History
		want []history.Rule
	}{
		"released, then granted": {h: historyOf(first, released(1, 20, 30, 1, history.OK), granted(2, 31, 40, 2, 140))},
		"granted while the release is on its way": {
			h: historyOf(first, released(1, 20, 50, 1, history.OK), granted(2, 5, 25, 2, 140)),
		},
		"waiters are granted in any order of their calls": {h: historyOf(
			granted(3, 0, 60, 2, 160), released(3, 61, 62, 2, history.OK),
			granted(2, 1, 20, 1, 100), released(2, 21, 22, 1, history.OK),
		)},
		"two holders": {
			h:    historyOf(first, granted(2, 20, 30, 2, 140), released(1, 40, 50, 1, history.Lost)),
			want: []history.Rule{history.Exclusion},
		},
		"two holders, and the first one's release succeeds": {
			h:    historyOf(first, granted(2, 20, 30, 2, 140), released(1, 40, 50, 1, history.OK)),
			want: []history.Rule{history.Exclusion},
		},
		"granted before the first one's context ended": {
			h:    historyOf(first, granted(2, 80, 90, 2, 200), ended(1, 95, 101, 1)),
			want: []history.Rule{history.Exclusion},
		},
		"the context was last seen alive before, its end later": {
			h: historyOf(first, granted(2, 80, 90, 2, 200), ended(1, 89, 300, 1)),
		},
		"granted after the trust of a crashed holder": {h: historyOf(first, granted(2, 20, 100, 2, 200))},
		"granted too early after a crash": {
			h:    historyOf(first, granted(2, 20, 99, 2, 200)),
			want: []history.Rule{history.Exclusion},
		},
		"granted too early after a crash of one who renewed": {
			h: historyOf(first, history.Op{
				Client: 1, Kind: history.KindRenew, Outcome: history.OK, Call: 50, Return: 60, Token: 1, Until: 150,
			}, granted(2, 100, 140, 2, 200)),
			want: []history.Rule{history.Exclusion},
		},
		"token goes back": {
			h: historyOf(granted(1, 0, 10, 7, 100), released(1, 20, 30, 7, history.OK),
				granted(2, 31, 40, 6, 140), released(2, 41, 42, 6, history.OK)),
			want: []history.Rule{history.TokenOrder},
		},
		"one token twice": {
			h: historyOf(first, released(1, 20, 30, 1, history.OK),
				granted(2, 5, 40, 1, 140), released(2, 41, 42, 1, history.OK)),
			want: []history.Rule{history.TokenOrder},
		},
		"a stale release succeeded": {
			h:    historyOf(first, ended(1, 50, 51, 1), granted(2, 60, 70, 2, 160), released(1, 80, 90, 1, history.OK)),
			want: []history.Rule{history.StaleTerm},
		},
		"a late release that nobody took over": {
			h: historyOf(first, ended(1, 50, 51, 1), released(1, 80, 90, 1, history.OK), granted(2, 91, 95, 2, 190)),
		},
		"released twice": {
			h:    historyOf(first, released(1, 20, 30, 1, history.OK), released(1, 40, 50, 1, history.OK)),
			want: []history.Rule{history.StaleTerm},
		},
		"renewed after its release": {
			h:    historyOf(first, released(1, 20, 30, 1, history.OK), did(1, history.KindRenew, 40, 50, 1, history.OK)),
			want: []history.Rule{history.StaleTerm},
		},
		"a stale guarded commit": {
			h: historyOf(first, ended(1, 50, 51, 1), granted(2, 60, 70, 2, 160),
				did(1, history.KindCommit, 80, 90, 1, history.OK)),
			want: []history.Rule{history.StaleCommit},
		},
		"a commit that outlives the context": {
			h: historyOf(first, ended(1, 50, 51, 1), did(1, history.KindCommit, 55, 90, 1, history.OK),
				granted(2, 60, 95, 2, 190)),
		},
		"a stale commit that was refused, or is unknown": {
			h: historyOf(first, ended(1, 50, 51, 1), granted(2, 60, 70, 2, 160),
				did(1, history.KindCommit, 80, 90, 1, history.Lost), did(1, history.KindCommit, 91, 0, 1, "")),
		},
		"a release of unknown outcome that had an effect": {
			h: historyOf(first, released(1, 20, 0, 1, ""), granted(2, 30, 40, 2, 140)),
		},
		"a release of unknown outcome that had none": {
			h: historyOf(first, released(1, 20, 0, 1, ""), refused(60, 70), released(1, 75, 80, 1, history.OK), granted(2, 80, 90, 2, 190)),
		},
		"a grant of unknown outcome that had an effect": {h: historyOf(unknown(0), refused(50, 60), granted(2, 99, 110, 2, 200))},
		"a grant of unknown outcome that had none":      {h: historyOf(unknown(0), granted(2, 10, 20, 1, 200))},
		"refused while held":                            {h: historyOf(first, refused(5, 50), released(1, 40, 45, 1, history.OK))},
		"refused before any grant": {
			h:    historyOf(refused(1, 2), granted(1, 3, 10, 1, 100)),
			want: []history.Rule{history.Refusal},
		},
		"refused between two holders": {
			h:    historyOf(first, released(1, 20, 30, 1, history.OK), refused(31, 39), granted(2, 40, 50, 2, 140)),
			want: []history.Rule{history.Refusal},
		},
		"a term from nowhere": {
			h:    historyOf(released(1, 20, 30, 1, history.OK)),
			want: []history.Rule{history.Incomplete},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := rulesOf(history.Judge(c.h)); !slices.Equal(got, c.want) {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

func rulesOf(found []history.Violation) []history.Rule {
	var rules []history.Rule
	for _, v := range found {
		rules = append(rules, v.Rule)
	}
	return rules
}

func TestOptions(t *testing.T) {
	t.Parallel()
	two := historyOf(granted(1, 0, 10, 1, 100), granted(2, 20, 30, 2, 140), refused(500, 600))
	if found := history.Judge(two, history.TokensOnly()); len(found) > 0 {
		t.Errorf("several holders: %v", found)
	}
	back := historyOf(granted(1, 0, 10, 2, 100), granted(2, 20, 30, 1, 140))
	if got := rulesOf(history.Judge(back, history.TokensOnly())); !slices.Equal(got, []history.Rule{history.TokenOrder}) {
		t.Errorf("token goes back: %q", got)
	}
	spurious := historyOf(refused(0, 1), granted(1, 2, 10, 1, 100))
	if found := history.Judge(spurious, history.AnyRefusal()); len(found) > 0 {
		t.Errorf("any refusal: %v", found)
	}
}

func TestKeysAreApart(t *testing.T) {
	t.Parallel()
	h := historyOf(granted(1, 0, 10, 1, 100), granted(2, 5, 12, 1, 100))
	h[1].Key = "refund 17\x00"
	history.Check(t, h)
}

func TestJudgeOfRegisters(t *testing.T) {
	t.Parallel()
	op := func(client int, kind history.Kind, from, to time.Duration, expect, value string, outcome history.Outcome) history.Op {
		return history.Op{Client: client, Kind: kind, Call: from, Return: to, Expect: expect, Value: value, Outcome: outcome}
	}
	const read, write, swap = history.KindRead, history.KindWrite, history.KindSwap
	start := op(0, write, 0, 1, "", "v1", history.OK)
	for name, c := range map[string]struct {
		h    history.History
		want []history.Rule
	}{
		"one of two swaps": {h: historyOf(start,
			op(1, swap, 2, 9, "v1", "v2", history.OK), op(2, swap, 3, 8, "v1", "v3", history.Refused), op(1, read, 10, 11, "", "v2", history.OK))},
		"a lost update": {h: historyOf(start,
			op(1, swap, 2, 9, "v1", "v2", history.OK), op(2, swap, 3, 8, "v1", "v3", history.OK)), want: []history.Rule{history.Order}},
		"a stale read": {h: historyOf(start,
			op(1, write, 2, 3, "", "v2", history.OK), op(2, read, 4, 5, "", "v1", history.OK)), want: []history.Rule{history.Order}},
		"a conflict with nobody": {h: historyOf(start, op(2, swap, 4, 5, "v1", "v2", history.Refused)), want: []history.Rule{history.Order}},
		"an unknown swap that was done": {h: historyOf(start,
			op(1, swap, 2, 0, "v1", "v2", ""), op(2, read, 4, 5, "", "v1", history.OK), op(2, read, 6, 7, "", "v2", history.OK))},
		"an unknown swap that was not": {h: historyOf(start,
			op(1, swap, 2, 0, "v1", "v2", ""), op(2, read, 4, 5, "", "v1", history.OK), op(2, read, 6, 0, "", "", ""))},
		"an unknown write seen, and unseen": {h: historyOf(start,
			op(1, write, 2, 0, "", "v2", ""), op(2, read, 4, 5, "", "v2", history.OK), op(2, read, 6, 7, "", "v1", history.OK)), want: []history.Rule{history.Order}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := rulesOf(history.Judge(c.h)); !slices.Equal(got, c.want) {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

func TestStaleCommitsInATable(t *testing.T) {
	t.Parallel()
	good := []history.Commit{{"a", 3, 2}, {"a", 1, 1}, {"a", 2, 2}, {"b", 4, 1}}
	history.CheckCommits(t, good)
	var tb fakeTB
	history.CheckCommits(&tb, append(good, history.Commit{Key: "a", Seq: 5, Token: 1}))
	if want := `key "a": a stale term committed: commit 5 with token 1 came after commit 3 with token 2`; !strings.Contains(tb.said, want) {
		t.Errorf("said %q", tb.said)
	}
}

// TestCheckSaysWhat checks that the message names the rule, the key and the operations, and that
// the written file can be judged again.
func TestCheckSaysWhat(t *testing.T) {
	t.Setenv("HOLDFAST_TEST_ARTIFACTS", t.TempDir())
	tb := fakeTB{name: "TestStampede/mysql 9.7"}
	history.Check(&tb, historyOf(granted(1, 0, 10, 1, 100), refused(20, 30), granted(2, 20, 30, 2, 140), released(1, 40, 50, 1, history.Lost)))
	for _, want := range []string{
		`key "refund 17": two holders at once: `,
		"[0s, 10ms] client 1: grant of token 1 -> ok, valid until 100ms",
		"[20ms, 30ms] client 2: grant of token 2 -> ok, valid until 140ms",
		"[40ms, open] client 1: trust in token 1 ends, not before",
		"TestStampede_mysql_9_7-",
	} {
		if !strings.Contains(tb.said, want) {
			t.Errorf("no %q in %s", want, tb.said)
		}
	}
	pictures, _ := filepath.Glob(filepath.Join(filepath.Dir(fileIn(tb.said, ".html")), "*.html"))
	if len(pictures) != 1 {
		t.Errorf("pictures: %q", pictures)
	}
	h, err := history.Read(fileIn(tb.said, ".jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	if got := rulesOf(history.Judge(h)); !slices.Equal(got, []history.Rule{history.Exclusion}) {
		t.Errorf("judged again: %q", got)
	}
}

func TestWhatIsNotJudgedInTimeFails(t *testing.T) {
	t.Setenv("HOLDFAST_TEST_ARTIFACTS", t.TempDir())
	var tb fakeTB
	history.Check(&tb, simulate(1, correct, 16, 1, 2000), history.Timeout(1))
	if !strings.Contains(tb.said, "not judged in time") {
		t.Errorf("said %q", tb.said)
	}
}

func fileIn(said, extension string) string {
	for word := range strings.FieldsSeq(said) {
		if word = strings.TrimSuffix(word, ","); strings.HasSuffix(word, extension) {
			return word
		}
	}
	return ""
}

func TestOutside(t *testing.T) {
	t.Parallel()
	// Client 1 was stopped at 50, and another client acquired the lease at 110.
	h := historyOf(granted(1, 0, 10, 1, 100), ended(1, 120, 121, 1), granted(2, 105, 110, 2, 240))
	late := historyOf(granted(1, 0, 60, 1, 100), ended(1, 120, 121, 1), granted(2, 105, 110, 2, 240))
	span := func(process, from, to int) history.Option {
		return history.Outside(history.Span{Process: process, From: time.Duration(from) * ms, To: time.Duration(to) * ms})
	}
	bounded := func(from, to int) history.Option {
		return history.Outside(history.Span{From: time.Duration(from) * ms, To: time.Duration(to) * ms, Bounded: true})
	}
	for name, c := range map[string]struct {
		h    history.History
		opts []history.Option
		ok   bool
	}{
		"in a bound":                          {h: h, opts: []history.Option{bounded(50, 121)}, ok: true},
		"not beyond it":                       {h: h, opts: []history.Option{bounded(50, 119)}},
		"nor beyond that of a late grant":     {h: late, opts: []history.Option{bounded(50, 119)}},
		"it is an overlap":                    {h: h},
		"but for a stop":                      {h: h, opts: []history.Option{span(0, 50, 119)}, ok: true},
		"of everybody":                        {h: h, opts: []history.Option{span(history.Everybody, 50, 51)}, ok: true},
		"not of another process":              {h: h, opts: []history.Option{span(1, 50, 119)}},
		"nor before it was granted":           {h: h, opts: []history.Option{span(0, -20, -1)}},
		"nor after the other one was":         {h: h, opts: []history.Option{span(0, 115, 119)}},
		"a grant on its way is never trusted": {h: late, opts: []history.Option{span(0, 50, 119)}, ok: true},
		"tokens go up in a stop all the same": {h: historyOf(granted(1, 0, 10, 2, 100), granted(2, 105, 110, 1, 240)), opts: []history.Option{span(0, 50, 119)}},
		"a stale commit is one all the same": {
			h:    historyOf(granted(1, 0, 10, 1, 100), granted(2, 105, 110, 2, 240), did(1, history.KindCommit, 120, 121, 1, history.OK)),
			opts: []history.Option{span(0, 50, 119)},
		},
	} {
		if found := history.Judge(c.h, c.opts...); (len(found) == 0) != c.ok {
			t.Errorf("%s: found %v", name, found)
		}
	}
}
