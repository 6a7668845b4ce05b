package history

import (
	"cmp"
	"fmt"
	"slices"
	"testing"
)

// A Commit is a row that a guarded transaction left in a table. It contains the guard's token
// and the commit's position in the order of the key's commits, from a column that the database
// increments while the guard holds.
type Commit struct {
	Key        string
	Seq, Token int64
}

// CheckCommits fails the test if, in the order of the table, a commit has a smaller token than
// one before it: its term was over.
func CheckCommits(t testing.TB, commits []Commit) {
	t.Helper()
	for _, v := range JudgeCommits(commits) {
		t.Errorf("history: key %q: %s: %s", v.Key, v.Rule, v.Text)
	}
}

// JudgeCommits returns the first stale commit of each key.
func JudgeCommits(commits []Commit) []Violation {
	sorted := slices.Clone(commits)
	slices.SortFunc(sorted, func(a, b Commit) int {
		return cmp.Or(cmp.Compare(a.Key, b.Key), cmp.Compare(a.Seq, b.Seq))
	})
	var found []Violation
	for i, c := range sorted[min(1, len(sorted)):] {
		before := sorted[i]
		if c.Key != before.Key || c.Token >= before.Token || len(found) > 0 && found[len(found)-1].Key == c.Key {
			continue
		}
		found = append(found, Violation{
			Rule: StaleCommit, Key: c.Key,
			Text: fmt.Sprintf("commit %d with token %d came after commit %d with token %d", c.Seq, c.Token, before.Seq, before.Token),
		})
	}
	return found
}
