package history

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
)

// WriteFile writes the history as lines of JSON, one per operation.
func (h History) WriteFile(path string) error {
	var b bytes.Buffer
	lines := json.NewEncoder(&b)
	for _, op := range h {
		if err := lines.Encode(op); err != nil {
			return err
		}
	}
	return os.WriteFile(path, b.Bytes(), 0o600) //nolint:gosec // the test's own file
}

// Read reads a file that WriteFile or a recorder of [Create] wrote. If an operation has several
// lines, the last one counts. A last line that was cut off when its process died is ignored.
func Read(path string) (History, error) {
	text, err := os.ReadFile(path) //nolint:gosec // the test's own file
	if err != nil {
		return nil, err
	}
	text = text[:bytes.LastIndexByte(text, '\n')+1]
	type identity struct{ process, id int }
	at := make(map[identity]int)
	var h History
	lines := json.NewDecoder(bytes.NewReader(text))
	for {
		var op Op
		if err := lines.Decode(&op); errors.Is(err, io.EOF) {
			return h, nil
		} else if err != nil {
			return nil, fmt.Errorf("history: %s: %w", path, err)
		}
		who := identity{op.Process, op.ID}
		if i, ok := at[who]; ok {
			h[i] = op
			continue
		}
		at[who] = len(h)
		h = append(h, op)
	}
}
