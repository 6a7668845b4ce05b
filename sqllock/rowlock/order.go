package rowlock

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/internal/rowmap"
)

// rowKey is a row's key and the index at which the row was given.
type rowKey struct {
	index  int
	values []any // in the form in which they are sent
	sorted []any // in the form in which they are compared
}

// order sorts the keys of rows, so that every call locks in the same order.
func (t *Table[R, Tx]) order(rows []R) ([]rowKey, error) {
	out := make([]rowKey, len(rows))
	for i := range rows {
		values := t.keyOf(&rows[i])
		sorted := make([]any, len(values))
		for j, v := range values {
			sorted[j] = rowmap.Plain(v)
		}
		out[i] = rowKey{i, values, sorted}
	}
	slices.SortFunc(out, func(a, b rowKey) int { return slices.CompareFunc(a.sorted, b.sorted, compare) })
	for i := range out {
		if i > 0 && slices.CompareFunc(out[i-1].sorted, out[i].sorted, compare) == 0 {
			return nil, invalid("rows", "a key is given twice: name each row once")
		}
	}
	return out, nil
}

// compare compares two plain values of a column.
func compare(a, b any) int {
	switch a := a.(type) {
	case int64:
		if b, ok := b.(int64); ok {
			return cmp.Compare(a, b)
		}
	case uint64:
		if b, ok := b.(uint64); ok {
			return cmp.Compare(a, b)
		}
	case float64:
		if b, ok := b.(float64); ok {
			return cmp.Compare(a, b)
		}
	case time.Time:
		if b, ok := b.(time.Time); ok {
			return a.Compare(b)
		}
	}
	return strings.Compare(fmt.Sprint(a), fmt.Sprint(b))
}
