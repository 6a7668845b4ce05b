package sqllock

import "github.com/holdfast-go/holdfast/internal/lockname"

// MaxKey is the maximum length of a key in bytes.
const MaxKey = lockname.MaxKey
