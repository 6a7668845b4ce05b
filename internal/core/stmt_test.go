package core

import (
	"slices"
	"testing"
)

func TestCompile(t *testing.T) {
	t.Parallel()
	const text = `SELECT $2, '$', $1 + $10, $2, "k$1", '$2'`
	if got := Compile("n", text, false); got.Text != text || got.args([]any{1}) == nil {
		t.Errorf("numbered: %+v", got)
	}
	s := Compile("n", text, true)
	if s.Text != `SELECT ?, '$', ? + ?, ?, "k$1", '$2'` {
		t.Errorf("got %s", s.Text)
	}
	args := s.args([]any{1, 2, 3, 4, 5, 6, 7, 8, 9, 10})
	if !slices.Equal(args, []any{2, 1, 10, 2}) {
		t.Errorf("got %v", args)
	}
}
