package gomutant

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
)

// name names a fault by its kind, the code that it is in, and how many of the same came before it.
func name(kind, what string, nth int) string {
	sum := sha256.Sum256([]byte(what))
	return fmt.Sprintf("%s-%s-%d", strings.ReplaceAll(kind, " ", "-"), hex.EncodeToString(sum[:4]), nth)
}
