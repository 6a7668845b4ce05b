package postgres

import "testing"

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
