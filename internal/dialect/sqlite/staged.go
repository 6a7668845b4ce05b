package sqlite

import "github.com/holdfast-go/holdfast/internal/dialect"

var staged = dialect.NewStaged("MAX", "ON CONFLICT (owner, key_hash) DO NOTHING", "", "instr(op_key, $8) > 0", dialect.CompareRows)
