package sqlite

import "github.com/holdfast-go/holdfast/internal/dialect"

var staged = dialect.NewStaged("MAX", "ON CONFLICT (key_hash) DO NOTHING", "", "instr(op_key, $7) > 0")
