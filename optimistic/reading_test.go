package optimistic

import (
	"math"
	"testing"
)

// TestReadingUnsigned reads what go-sql-driver returns for an UNSIGNED column that it reads as text.
func TestReadingUnsigned(t *testing.T) {
	t.Parallel()
	r := &reading{counter: &counter{name: "version", last: math.MaxInt64}}
	if err := r.Scan(uint64(7)); err != nil || r.version.n != 7 {
		t.Errorf("%+v, %v", r.version, err)
	}
	if err := r.Scan(uint64(math.MaxUint64)); err == nil {
		t.Errorf("above the greatest version: %+v", r.version)
	}
}
