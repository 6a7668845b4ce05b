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

// TestCompileWithAnOwner checks that $0 is the first argument, before $1.
func TestCompileWithAnOwner(t *testing.T) {
	t.Parallel()
	const text = `SELECT $1 WHERE owner = $0 AND "$0" = $2 AND other = $0`
	if got := Compile("n", text, false); got.Text != `SELECT $2 WHERE owner = $1 AND "$0" = $3 AND other = $1` {
		t.Errorf("got %s", got.Text)
	}
	s := Compile("n", text, true)
	if args := s.args([]any{"o", 1, 2}); s.Text != `SELECT ? WHERE owner = ? AND "$0" = ? AND other = ?` || !slices.Equal(args, []any{1, "o", 2, "o"}) {
		t.Errorf("got %s with %v", s.Text, args)
	}
	if got := Compile("n", `SELECT $1, "$0"`, false); got.Text != `SELECT $1, "$0"` {
		t.Errorf("a quoted name moved the numbers: %s", got.Text)
	}
}
