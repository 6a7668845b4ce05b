package postgres

import (
	"testing"

	"github.com/holdfast-go/holdfast/internal/dialect"
)

func TestQuorum(t *testing.T) {
	t.Parallel()
	for names, warns := range map[string]bool{
		"": false, "a": false, "a, b": true, "*": true, "ANY 1 (a, b)": true, "ANY 2 (a, b)": false, "FIRST 1 (a, b)": true,
		"FIRST 1 (a)": false, "2 (a, b)": false, "1(a,b)": true, "ANY 2 (*)": true, `"n-1"`: false,
	} {
		if got := quorum(names); (got != "") != warns {
			t.Errorf("%q: got %q", names, got)
		}
	}
}

func TestDurable(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		level, standbys string
		want            dialect.Severity
	}{
		{"on", "", 0},
		{"remote_apply", "", 0},
		{"remote_write", "", 0},
		{"local", "", 0},
		{"off", "", dialect.Broken},
		{"on", "FIRST 1 (a)", 0},
		{"remote_apply", "a", 0},
		{"remote_write", "a", dialect.Warning},
		{"local", "FIRST 1 (a)", dialect.Broken},
		{"off", "a", dialect.Broken},
	} {
		if got, problem, _ := durable([]string{c.level, c.standbys}); got != c.want || (problem != "") != (c.want != 0) {
			t.Errorf("%s, %q: %v, %q", c.level, c.standbys, got, problem)
		}
	}
}
