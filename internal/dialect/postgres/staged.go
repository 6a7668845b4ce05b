package postgres

import "github.com/holdfast-go/holdfast/internal/dialect"

var staged = dialect.NewStaged("GREATEST", "ON CONFLICT (owner, key_hash) DO NOTHING", " FOR UPDATE", "position($8 in op_key) > 0", dialect.CompareRows)
