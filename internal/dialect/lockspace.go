package dialect

import (
	"hash/fnv"
	"strconv"
)

// Lockspace returns the number that separates the locks of one table's keys from those of another
// table in the same database: half of the FNV-1a hash of its quoted, qualified name.
func Lockspace(table string) string {
	h := fnv.New64a()
	_, _ = h.Write([]byte(table))
	return strconv.FormatUint(h.Sum64()>>1, 10)
}
